/*
 * Converts between binary16 and binary32. Rounds to nearest, ties to even; a NaN becomes a quiet
 * one, and a value that is too large becomes infinite. Both paths (scalar, AVX2 with F16C) give the
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
 * Convert `count` values. plim__half_widen may work in place, with the halves in the second half of
 * the floats' memory: each is read before it is overwritten.
 */
void plim__half_widen(plim__half_path_t path, const uint16_t *from, float *to, int64_t count);
void plim__half_narrow(plim__half_path_t path, const float *from, uint16_t *to, int64_t count);

#endif
