/*
 * A block of 8 rows and 16 outputs stays in registers over all inputs: each input loads one row of
 * the panel and broadcasts 8 values.
 *
 *     packed: | input 0: 16 weights | input 1: 16 weights | … |   a panel, (in, 16)
 */
#include "nn/tile.h"

#include "base/check.h"
#include "nn/vector.h"

#include <string.h>

#define PANEL PLIM__TILE_PANEL
#define HEIGHT 8

typedef float panel_t __attribute__((vector_size(PANEL * sizeof(float)), aligned(4)));

size_t plim__tile_bytes(int64_t in, int64_t out)
{
    const size_t panels = ((size_t)out + PANEL - 1) / PANEL;
    return plim__mul_saturating_size(plim__mul_saturating_size(panels, (size_t)in),
                                     PANEL * sizeof(float));
}

void plim__tile_pack(const float *weight, int64_t in, int64_t first, int64_t count, float *packed)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t column = first + i;
        float *to = packed + column / PANEL * in * PANEL + column % PANEL;
        for (int64_t k = 0; k < in; k++)
            to[k * PANEL] = weight[i * in + k];
    }
}

void plim__tile_pack_transposed(const float *weight, int64_t in, int64_t count, float *packed)
{
    for (int64_t k = 0; k < in; k++)
        for (int64_t column = 0; column < count; column++)
            packed[(column / PANEL * in + k) * PANEL + column % PANEL] = weight[k * count + column];
}

/* `height` is a constant where this is inlined. */
PLIM__KERNEL void block(const float *panel, int64_t in, const float *x, int64_t x_stride,
                        panel_t *sums, const int height)
{
    for (int64_t k = 0; k < in; k++) {
        panel_t weights;
        memcpy(&weights, panel + k * PANEL, sizeof weights);
        for (int row = 0; row < height; row++)
            sums[row] += weights * x[row * x_stride + k];
    }
}

PLIM__KERNEL void store_sums(const panel_t *sums, int height, int64_t columns, bool add, float *y,
                             int64_t y_stride)
{
    for (int row = 0; row < height; row++) {
        float *to = y + row * y_stride;
        float values[PANEL];
        memcpy(values, &sums[row], sizeof values);
        for (int64_t j = 0; j < columns; j++)
            to[j] = add ? to[j] + values[j] : values[j];
    }
}

PLIM__KERNEL void product_body(const float *packed, int64_t in, int64_t out, int64_t rows,
                               const float *x, int64_t x_stride, bool add, float *y,
                               int64_t y_stride)
{
    for (int64_t column = 0; column < out; column += PANEL) {
        const float *panel = packed + column * in;
        const int64_t columns = out - column < PANEL ? out - column : PANEL;
        int64_t row = 0;
        for (; row + HEIGHT <= rows; row += HEIGHT) {
            panel_t sums[HEIGHT] = {{0}};
            block(panel, in, x + row * x_stride, x_stride, sums, HEIGHT);
            store_sums(sums, HEIGHT, columns, add, y + row * y_stride + column, y_stride);
        }
        for (; row < rows; row++) {
            panel_t sums[1] = {{0}};
            block(panel, in, x + row * x_stride, x_stride, sums, 1);
            store_sums(sums, 1, columns, add, y + row * y_stride + column, y_stride);
        }
    }
}

PLIM__VECTORISED(product,
                 (const float *packed, int64_t in, int64_t out, int64_t rows, const float *x,
                  int64_t x_stride, bool add, float *y, int64_t y_stride),
                 (packed, in, out, rows, x, x_stride, add, y, y_stride))

void plim__tile_product(const float *packed, int64_t in, int64_t out, int64_t rows, const float *x,
                        int64_t x_stride, bool add, float *y, int64_t y_stride)
{
    product(packed, in, out, rows, x, x_stride, add, y, y_stride);
}
