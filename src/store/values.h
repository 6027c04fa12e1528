/*
 * Statistics of floating-point values, with the same bits on every CPU. Value i is added to lane
 * i mod 8, in order and in double precision, in which the square of a float is exact.
 */
#ifndef PLIM_STORE_VALUES_H
#define PLIM_STORE_VALUES_H

#include "io/npy.h"

#include <plimsoll/dataset.h>

#define PLIM__LANES 8

typedef struct plim__values {
    double sum[PLIM__LANES]; /* finite values only, as in all fields but the counts */
    double squares[PLIM__LANES];
    float min[PLIM__LANES];
    float max[PLIM__LANES];
    int64_t count;
    int64_t num_nan;
    int64_t num_infinite;
} plim__values_t;

void plim__values_start(plim__values_t *values);

/* Adds `count` values of `type` (PLIM__NPY_F16, PLIM__NPY_F32 or, rounded to f32, PLIM__NPY_I64).
 * All calls but the last add a multiple of PLIM__LANES. */
void plim__values_add(plim__values_t *values, plim__dtype_t type, const void *data, size_t count);

/* Sums over runs, added in the order of the calls. */
typedef struct plim__values_sum {
    double sum;
    double squares;
    double min;
    double max;
    int64_t count;
    int64_t num_nan;
    int64_t num_infinite;
} plim__values_sum_t;

void plim__values_sum(plim__values_sum_t *sum, const plim__values_t *values);
void plim__values_stats(const plim__values_sum_t *sum, plim_value_stats_t *stats_out);

/* For tests: the code without vector instructions. */
void plim__values_add_plain(plim__values_t *values, plim__dtype_t type, const void *data,
                            size_t count);

#endif
