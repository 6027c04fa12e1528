/*
 * Binary16 and binary32 into each other, rounding to nearest, ties to even; a NaN stays one, made
 * quiet, and what is too large becomes infinite. Both paths (scalar, AVX2 with F16C) give the
 * same bits.
 */
#ifndef PLIM_BASE_HALF_H
#define PLIM_BASE_HALF_H

#include <stdint.h>

typedef enum plim__half_path { PLIM__HALF_SCALAR, PLIM__HALF_AVX2 } plim__half_path_t;

plim__half_path_t plim__half_best(void);

/* One value, as the vector instructions do it. */
uint16_t plim__f16_from_f32(float value);
float plim__f32_from_f16(uint16_t half);

/*
 * `count` values. The halves may lie in the latter half of the very memory that the floats go to:
 * none is overwritten before it was read.
 */
void plim__half_widen(plim__half_path_t path, const uint16_t *from, float *to, int64_t count);
void plim__half_narrow(plim__half_path_t path, const float *from, uint16_t *to, int64_t count);

#endif
