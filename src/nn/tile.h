/*
 * Products of a few rows with a packed weight, for exact inference, which computes ranges of
 * columns as memory allows. Each value is one chain of additions over the inputs, ascending,
 * nothing fused: its bits depend neither on the range nor on the processor, which no library
 * promises.
 */
#ifndef PLIM_NN_TILE_H
#define PLIM_NN_TILE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLIM__TILE_PANEL 16 /* outputs side by side */

size_t plim__tile_bytes(int64_t in, int64_t out);

/* Packs outputs first … first+count-1 of `packed` from weight (count, in), row after row. `first`
 * need not be a multiple of PLIM__TILE_PANEL; places that are never packed must be zero before. */
void plim__tile_pack(const float *weight, int64_t in, int64_t first, int64_t count, float *packed);

/* The same for all outputs of weight (in, count). */
void plim__tile_pack_transposed(const float *weight, int64_t in, int64_t count, float *packed);

/* y (rows, out) = x (rows, in) W', or y += with `add`. Strides in floats. */
void plim__tile_product(const float *packed, int64_t in, int64_t out, int64_t rows, const float *x,
                        int64_t x_stride, bool add, float *y, int64_t y_stride);

#endif
