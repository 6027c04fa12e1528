#include "report/track.h"

#include <stdlib.h>
#include <string.h>

enum { WEIGHT, SUM, LOW, HIGH, OTHERS };

bool report_track_create(report_track_t *track, double width, int others)
{
    *track = (report_track_t){.others = others, .width = width};
    track->values = calloc(REPORT_TRACK_COLUMNS, (OTHERS + (size_t)others) * sizeof(double));
    return track->values != NULL;
}

void report_track_destroy(report_track_t *track)
{
    free(track->values);
}

static double *cell(const report_track_t *track, int column)
{
    return track->values + (size_t)column * (OTHERS + (size_t)track->others);
}

static void merge(const report_track_t *track, double *into, const double *from)
{
    const size_t bytes = (OTHERS + (size_t)track->others) * sizeof(double);
    if (from[WEIGHT] <= 0)
        return;
    if (into[WEIGHT] <= 0) {
        memcpy(into, from, bytes);
        return;
    }
    into[WEIGHT] += from[WEIGHT];
    into[SUM] += from[SUM];
    if (from[LOW] < into[LOW])
        into[LOW] = from[LOW];
    if (from[HIGH] > into[HIGH]) {
        into[HIGH] = from[HIGH];
        memcpy(into + OTHERS, from + OTHERS, (size_t)track->others * sizeof(double));
    }
}

/* Makes columns twice as wide. */
static void widen(report_track_t *track)
{
    const size_t bytes = (OTHERS + (size_t)track->others) * sizeof(double);
    for (int i = 0; i < REPORT_TRACK_COLUMNS / 2; i++) {
        double *into = cell(track, i);
        if (i > 0)
            memcpy(into, cell(track, 2 * i), bytes);
        merge(track, into, cell(track, 2 * i + 1));
    }
    memset(cell(track, REPORT_TRACK_COLUMNS / 2), 0, bytes * (REPORT_TRACK_COLUMNS / 2));
    track->columns = (track->columns + 1) / 2;
    track->width *= 2;
}

void report_track_add(report_track_t *track, double at, double weight, double value,
                      const double *others)
{
    double sample[OTHERS + REPORT_TRACK_OTHERS] = {weight, weight * value, value, value};
    if (!(at >= 0) || !(weight > 0))
        return;
    while (at >= track->width * REPORT_TRACK_COLUMNS)
        widen(track);
    const int column = (int)(at / track->width);
    if (track->others > 0)
        memcpy(sample + OTHERS, others, (size_t)track->others * sizeof(double));
    merge(track, cell(track, column), sample);
    if (column >= track->columns)
        track->columns = column + 1;
    if (at > track->end)
        track->end = at;
}

report_column_t report_track_column(const report_track_t *track, int column)
{
    const double *values = cell(track, column);
    return (report_column_t){values[WEIGHT], values[SUM], values[LOW], values[HIGH],
                             values + OTHERS};
}

double report_track_highest(const report_track_t *track, double missing)
{
    double highest = missing;
    bool any = false;
    for (int i = 0; i < track->columns; i++) {
        const report_column_t column = report_track_column(track, i);
        if (column.weight > 0 && (!any || column.high > highest))
            highest = column.high;
        any = any || column.weight > 0;
    }
    return highest;
}

double report_track_mean(const report_track_t *track, double missing)
{
    double sum = 0, weight = 0;
    for (int i = 0; i < track->columns; i++) {
        const report_column_t column = report_track_column(track, i);
        sum += column.sum;
        weight += column.weight;
    }
    return weight > 0 ? sum / weight : missing;
}
