/* Linear sums over edges: plim__kernels_t.sum. */
#ifndef PLIM_NN_KERNELS_SUM_H
#define PLIM_NN_KERNELS_SUM_H

#include "nn/kernels_common.h"

/* Of one block: the sum over its row's edges. */
LANES_INLINE void sum_edges(const plim__row_sums_t *sums, block_t block, plim__element_t element,
                            int vectors, lanes_t *total)
{
    const int64_t width = LANES * (int64_t)plim__element_bytes(element);
    const int64_t bytes = vectors * width;
    const int64_t ahead = edges_ahead(bytes);
    const int64_t stride = sums->x->stride * (int64_t)plim__element_bytes(element);
    const char *base = place(sums->x, 0, block.column);
    const float *inner = sums->inner;
    const int64_t end = sums->indptr[block.row + 1];
    UNROLL
    for (int i = 0; i < vectors; i++)
        total[i] = lanes_set(0);
    for (int64_t e = sums->indptr[block.row]; e < end; e++) {
        const int32_t source = sums->indices[e];
        const char *x = base + source * stride;
        if (e + ahead < sums->num_edges)
            prefetch_block(base + sums->indices[e + ahead] * stride, bytes);
        if (inner != NULL) {
            const lanes_t weight = lanes_set(inner[source]);
            UNROLL
            for (int i = 0; i < vectors; i++)
                total[i] = lanes_add(
                    total[i], lanes_mul(weight, load_part(x + i * width, element, block.part)));
        } else {
            UNROLL
            for (int i = 0; i < vectors; i++)
                total[i] = lanes_add(total[i], load_part(x + i * width, element, block.part));
        }
    }
}

/* Adds what a destination has from itself. */
LANES_INLINE void sum_self(const plim__row_sums_t *sums, block_t block, plim__element_t element,
                           int vectors, lanes_t *total)
{
    const char *x = place(sums->x, block.row, block.column);
    const int64_t width = LANES * (int64_t)plim__element_bytes(element);
    if (sums->self != NULL) {
        const lanes_t weight = lanes_set(sums->self[block.row]);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] = lanes_add(total[i],
                                 lanes_mul(weight, load_part(x + i * width, element, block.part)));
    }
    if (sums->extra != NULL) {
        const char *extra = place(sums->extra, block.row, block.column);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] = lanes_add(total[i], load_part(extra + i * LANES * 4, PLIM__F32, block.part));
    }
    if (sums->root != NULL)
        copy_root(sums->x, sums->root, block, element, vectors);
}

LANES_INLINE void sum_block(const plim__row_sums_t *sums, block_t block, plim__element_t element,
                            int vectors)
{
    lanes_t total[LANES_BLOCK];
    sum_edges(sums, block, element, vectors, total);
    if (sums->outer != NULL) {
        const lanes_t scale = lanes_set(sums->outer[block.row]);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] = lanes_mul(scale, total[i]);
    }
    if (block.row < sums->num_self)
        sum_self(sums, block, element, vectors, total);
    char *out = (char *)place(sums->out, block.row, block.column);
    const plim__element_t to = sums->out->element;
    const int64_t step = LANES * (int64_t)plim__element_bytes(to);
    UNROLL
    for (int i = 0; i < vectors; i++)
        store_part(out + i * step, to, block.part, total[i]);
}

ROWS_BY_ELEMENT(sum, plim__row_sums_t, LANES_BLOCK)

#endif
