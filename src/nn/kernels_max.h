/* The largest of each column over edges, and back: plim__kernels_t.max, max_back. */
#ifndef PLIM_NN_KERNELS_MAX_H
#define PLIM_NN_KERNELS_MAX_H

#include "nn/kernels_common.h"

/* A sum and an edge number need a register each. */
#define MAX_BLOCK (LANES_BLOCK / 2)

LANES_INLINE void store_ints(int32_t *to, int64_t part, lanes_int_t values)
{
    if (part == 0) {
        lanes_store_int(to, values);
        return;
    }
    int32_t copy[LANES];
    lanes_store_int(copy, values);
    memcpy(to, copy, (size_t)part * sizeof copy[0]);
}

LANES_INLINE lanes_int_t load_ints(const int32_t *from, int64_t part)
{
    if (part == 0)
        return lanes_load_int(from);
    int32_t copy[LANES] = {0};
    memcpy(copy, from, (size_t)part * sizeof copy[0]);
    return lanes_load_int(copy);
}

/* Of one block: the largest over its row's edges, the first of equals; a NaN is larger than all. */
LANES_INLINE void max_edges(const plim__row_max_t *max, block_t block, plim__element_t element,
                            int vectors, lanes_t *largest, lanes_int_t *chosen)
{
    const int64_t width = LANES * (int64_t)plim__element_bytes(element);
    const int64_t bytes = vectors * width;
    const int64_t ahead = edges_ahead(bytes);
    const int64_t stride = max->x->stride * (int64_t)plim__element_bytes(element);
    const char *base = place(max->x, 0, block.column);
    const int64_t begin = max->indptr[block.row], end = max->indptr[block.row + 1];
    UNROLL
    for (int i = 0; i < vectors; i++) {
        chosen[i] = lanes_set_int(begin < end ? (int32_t)begin : -1);
        largest[i] = begin < end ? load_part(base + max->indices[begin] * stride + i * width,
                                             element, block.part)
                                 : lanes_set(0);
    }
    for (int64_t e = begin; e < end; e++) {
        const char *x = base + max->indices[e] * stride;
        const lanes_int_t edge = lanes_set_int((int32_t)e);
        if (e + ahead < max->num_edges)
            prefetch_block(base + max->indices[e + ahead] * stride, bytes);
        UNROLL
        for (int i = 0; i < vectors; i++) {
            const lanes_t value = load_part(x + i * width, element, block.part);
            const lanes_mask_t exceeds = lanes_exceeds(value, largest[i]);
            largest[i] = lanes_choose(exceeds, value, largest[i]);
            chosen[i] = lanes_choose_int(exceeds, edge, chosen[i]);
        }
    }
}

LANES_INLINE void max_block(const plim__row_max_t *max, block_t block, plim__element_t element,
                            int vectors)
{
    lanes_t largest[MAX_BLOCK];
    lanes_int_t chosen[MAX_BLOCK];
    max_edges(max, block, element, vectors, largest, chosen);
    char *out = (char *)place(max->out, block.row, block.column);
    const plim__element_t to = max->out->element;
    const int64_t step = LANES * (int64_t)plim__element_bytes(to);
    UNROLL
    for (int i = 0; i < vectors; i++)
        store_part(out + i * step, to, block.part, largest[i]);
    if (max->chosen != NULL) {
        int32_t *at = max->chosen + block.row * max->x->width + block.column;
        UNROLL
        for (int i = 0; i < vectors; i++)
            store_ints(at + i * LANES, block.part, chosen[i]);
    }
    if (max->root != NULL)
        copy_root(max->x, max->root, block, element, vectors);
}

ROWS_BY_ELEMENT(max, plim__row_max_t, MAX_BLOCK)

/* Of one block of a source: what the destinations that chose it have. */
LANES_INLINE void max_back_block(const plim__row_max_back_t *back, block_t block,
                                 plim__element_t element, int vectors)
{
    const int64_t width = back->dout->width;
    lanes_t total[MAX_BLOCK];
    UNROLL
    for (int i = 0; i < vectors; i++)
        total[i] = lanes_set(0);
    for (int64_t at = back->indptr[block.row]; at < back->indptr[block.row + 1]; at++) {
        const int64_t v = back->destinations[at];
        const lanes_int_t edge = lanes_set_int(back->edges[at]);
        const int32_t *chosen = back->chosen + v * width + block.column;
        const char *dout = place(back->dout, v, block.column);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] = lanes_add(
                total[i], lanes_where_equal(load_ints(chosen + i * LANES, block.part), edge,
                                            load_part(dout + i * LANES * 4, element, block.part)));
    }
    if (block.row < back->num_self && back->droot != NULL) {
        const char *droot = place(back->droot, block.row, block.column);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] = lanes_add(total[i], load_part(droot + i * LANES * 4, element, block.part));
    }
    char *dx = (char *)place(back->dx, block.row, block.column);
    UNROLL
    for (int i = 0; i < vectors; i++)
        store_part(dx + i * LANES * 4, element, block.part, total[i]);
}

LANES_TARGET static void max_back_rows(const plim__row_max_back_t *back, int64_t first,
                                       int64_t last)
{
    FOR_EACH_BLOCK(max_back_block, back, PLIM__F32, MAX_BLOCK, back->dout->width, first, last);
}

#endif
