/*
 * Converts features to the type in which they are stored and checks every value: a NaN, an
 * infinity, or a value that overflows the target stops the conversion. Keeps the maximum relative
 * error. Both kernels (scalar, AVX2 with F16C) give the same bits.
 */
#ifndef PLIM_INGEST_FEATURE_CONVERT_H
#define PLIM_INGEST_FEATURE_CONVERT_H

#include "base/half.h"
#include "io/npy.h"

/*
 * Converts `count` elements from any type to PLIM__NPY_F16 or PLIM__NPY_F32, rounding to nearest,
 * ties to even; doubles and integers are converted to f16 through f32. To PLIM__NPY_I64 it converts
 * integers, and floats that are whole and below 2^53. Returns the number of converted elements:
 * `count`, or the index of the first NaN, infinity, overflow or, to integers, fraction.
 * *worst_error becomes the maximum of itself and |x - stored| / |x| over nonzero x. Thread-safe,
 * allocates nothing.
 */
int64_t plim__feature_convert(plim__half_path_t path, plim__dtype_t from_type, const void *from,
                              plim__dtype_t to_type, void *to, int64_t count, double *worst_error);

/* Element `index` as a double, for messages. */
double plim__feature_convert_value(plim__dtype_t type, const void *from, int64_t index);

/*
 * Converts `count` elements of any integer type (or bool) to int64. Returns the number of converted
 * elements: less than `count` when a uint64 does not fit.
 */
int64_t plim__feature_convert_ids(plim__dtype_t from_type, const void *from, int64_t *to,
                                  int64_t count);

#endif
