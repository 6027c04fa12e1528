#include "report/track.h"

#include <string.h>

enum { WEIGHT, SUM, LOW, HIGH, BESIDE };

void plim__track_lay_out(plim__arena_t *arena, plim__track_t *track, int beside)
{
    track->beside = beside;
    track->values = plim__arena_carve(arena, PLIM__TRACK_COLUMNS,
                                      (BESIDE + (size_t)beside) * sizeof(double), sizeof(double));
}

static double *cell(const plim__track_t *track, int column)
{
    return track->values + (size_t)column * (BESIDE + (size_t)track->beside);
}

static void merge(const plim__track_t *track, double *into, const double *from)
{
    const size_t bytes = (BESIDE + (size_t)track->beside) * sizeof(double);
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
        memcpy(into + BESIDE, from + BESIDE, (size_t)track->beside * sizeof(double));
    }
}

/* Makes columns twice as wide. */
static void widen(plim__track_t *track)
{
    const size_t bytes = (BESIDE + (size_t)track->beside) * sizeof(double);
    for (int i = 0; i < PLIM__TRACK_COLUMNS / 2; i++) {
        double *into = cell(track, i);
        if (i > 0)
            memcpy(into, cell(track, 2 * i), bytes);
        merge(track, into, cell(track, 2 * i + 1));
    }
    memset(cell(track, PLIM__TRACK_COLUMNS / 2), 0, bytes * (PLIM__TRACK_COLUMNS / 2));
    track->columns = (track->columns + 1) / 2;
    track->width *= 2;
}

void plim__track_add(plim__track_t *track, double at, double weight, double value,
                     const double *beside)
{
    double sample[BESIDE + PLIM__TRACK_BESIDE] = {weight, weight * value, value, value};
    if (!(at >= 0) || !(weight > 0))
        return;
    while (at >= track->width * PLIM__TRACK_COLUMNS)
        widen(track);
    const int column = (int)(at / track->width);
    if (track->beside > 0)
        memcpy(sample + BESIDE, beside, (size_t)track->beside * sizeof(double));
    merge(track, cell(track, column), sample);
    if (column >= track->columns)
        track->columns = column + 1;
    if (at > track->end)
        track->end = at;
}

plim__column_t plim__track_column(const plim__track_t *track, int column)
{
    const double *values = cell(track, column);
    return (plim__column_t){values[WEIGHT], values[SUM], values[LOW], values[HIGH],
                            values + BESIDE};
}

double plim__track_highest(const plim__track_t *track, double missing)
{
    double highest = missing;
    bool any = false;
    for (int i = 0; i < track->columns; i++) {
        const plim__column_t column = plim__track_column(track, i);
        if (column.weight > 0 && (!any || column.high > highest))
            highest = column.high;
        any = any || column.weight > 0;
    }
    return highest;
}

double plim__track_mean(const plim__track_t *track, double missing)
{
    double sum = 0, weight = 0;
    for (int i = 0; i < track->columns; i++) {
        const plim__column_t column = plim__track_column(track, i);
        sum += column.sum;
        weight += column.weight;
    }
    return weight > 0 ? sum / weight : missing;
}
