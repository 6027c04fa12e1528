/*
 * A quantity over time or epochs, reduced while it is read: columns of equal width keep the lowest,
 * the highest and the mean. A sample past the last column makes all columns twice as wide, so any
 * number of samples takes the same memory.
 */
#ifndef PLIM_REPORT_TRACK_H
#define PLIM_REPORT_TRACK_H

#include "mem/arena.h"

#define PLIM__TRACK_COLUMNS 400
#define PLIM__TRACK_BESIDE 40 /* most values beside the first */

typedef struct plim__column {
    double weight;        /* of its samples; 0: it has none */
    double sum;           /* of weight × value */
    double low, high;     /* of the value */
    const double *beside; /* (track->beside) of the sample with the highest value */
} plim__column_t;

typedef struct plim__track {
    int beside;     /* further values of each sample */
    double width;   /* of a column */
    int columns;    /* up to the last one with a sample */
    double end;     /* the last position */
    double *values; /* (PLIM__TRACK_COLUMNS, 4 + beside) */
} plim__track_t;

void plim__track_lay_out(plim__arena_t *arena, plim__track_t *track, int beside);

/* Adds a sample at a position from 0 on, with a weight above 0. `beside` may be NULL if the track
 * has none. */
void plim__track_add(plim__track_t *track, double at, double weight, double value,
                     const double *beside);

plim__column_t plim__track_column(const plim__track_t *track, int column);

/* The highest value, and the weighted mean of all; `missing` without a sample. */
double plim__track_highest(const plim__track_t *track, double missing);
double plim__track_mean(const plim__track_t *track, double missing);

#endif
