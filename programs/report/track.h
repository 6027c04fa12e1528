/*
 * A quantity over time or epochs, reduced while it is read: columns of equal width keep the lowest,
 * the highest and the mean. A sample past the last column makes all columns twice as wide, so any
 * number of samples takes the same memory.
 */
#ifndef REPORT_TRACK_H
#define REPORT_TRACK_H

#include <stdbool.h>

#define REPORT_TRACK_COLUMNS 400
#define REPORT_TRACK_OTHERS 40 /* most further values */

typedef struct report_column {
    double weight;        /* of its samples; 0: it has none */
    double sum;           /* of weight × value */
    double low, high;     /* of the value */
    const double *others; /* (track->others) of the sample with the highest value */
} report_column_t;

typedef struct report_track {
    int others;     /* further values of each sample */
    double width;   /* of a column */
    int columns;    /* up to the last one with a sample */
    double end;     /* the last position */
    double *values; /* (REPORT_TRACK_COLUMNS, 4 + others), owned */
} report_track_t;

/* An empty track, its columns so wide in the beginning. False without memory. */
bool report_track_create(report_track_t *track, double width, int others);
void report_track_destroy(report_track_t *track); /* a zeroed one is harmless */

/* Adds a sample at a position from 0 on, with a weight above 0. `others` may be NULL if the track
 * has none. */
void report_track_add(report_track_t *track, double at, double weight, double value,
                      const double *others);

report_column_t report_track_column(const report_track_t *track, int column);

/* The highest value, and the weighted mean of all; `missing` without a sample. */
double report_track_highest(const report_track_t *track, double missing);
double report_track_mean(const report_track_t *track, double missing);

#endif
