/*
 * Feature values: the mean of a class plus nearly normal noise, in steps of 1/128, so that f16 and
 * f32 represent the same numbers. All implementations give the same bits.
 */
#ifndef PLIM_GENERATE_GENERATE_NOISE_H
#define PLIM_GENERATE_GENERATE_NOISE_H

#include "base/rng.h"

#include <math.h>
#include <plimsoll/dataset.h>
#include <stdint.h>

#define PLIM__NOISE_STEP 0x1p-7     /* one unit of `mean` */
#define PLIM__NOISE_DEVIATION 104.5 /* of the noise, in the same unit */
#define PLIM__NOISE_MEAN_MAX 256    /* maximum absolute value of a mean */
#define PLIM__NOISE_LANES 16        /* values made at once */

/* A nearly normal coordinate with variance 8, for means: the bits of `key` decide. */
static inline int plim__noise_coordinate(uint64_t key, int64_t i)
{
    return __builtin_popcount((uint32_t)plim__rng_u64(key, (uint64_t)i)) - 16;
}

/* A mean, limited to the largest that rows may have. */
static inline int16_t plim__noise_mean(double mean)
{
    return (int16_t)fmax(-PLIM__NOISE_MEAN_MAX, fmin(mean, PLIM__NOISE_MEAN_MAX));
}

typedef enum plim__noise_path { PLIM__NOISE_SCALAR, PLIM__NOISE_AVX2 } plim__noise_path_t;

plim__noise_path_t plim__noise_best(void);

/*
 * Writes one row of `count` values of `type` (PLIM_F16 or PLIM_F32): mean[i] plus the noise of
 * `key`. `mean` and `to` have `count` entries, rounded up to PLIM__NOISE_LANES.
 */
void plim__noise_row(plim__noise_path_t path, uint64_t key, const int16_t *mean, int64_t count,
                     plim_dtype_t type, void *to);

#endif
