/*
 * All kernels, on the vectors of the lanes_*.h that was included before: for kernels_*.c only.
 *
 * A row is processed in blocks of columns, whose results stay in registers while the kernel goes
 * through all of the row's edges. The last vector of a row overlaps the one before it if columns
 * are left over; rows narrower than a vector go through a copy.
 */
#ifndef PLIM_NN_KERNELS_BODY_H
#define PLIM_NN_KERNELS_BODY_H

#include "nn/kernels.h"

#include <string.h>

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* Bytes of rows that are prefetched ahead. */
#define AHEAD_BYTES 2048

/* Where a block of columns begins in a row. */
LANES_INLINE const char *place(const plim__matrix_t *matrix, int64_t row, int64_t column)
{
    return (const char *)matrix->data +
           (row * matrix->stride + column) * (int64_t)plim__element_bytes(matrix->element);
}

/* `part`: 0 for a whole vector, otherwise the number of values. */
LANES_INLINE lanes_t load_part(const void *from, plim__element_t element, int64_t part)
{
    if (part == 0)
        return lanes_load(from, element);
    char copy[LANES * sizeof(float)] = {0};
    memcpy(copy, from, (size_t)part * plim__element_bytes(element));
    return lanes_load(copy, element);
}

LANES_INLINE void store_part(void *to, plim__element_t element, int64_t part, lanes_t values)
{
    if (part == 0) {
        lanes_store(to, element, values);
        return;
    }
    char copy[LANES * sizeof(float)];
    lanes_store(copy, element, values);
    memcpy(to, copy, (size_t)part * plim__element_bytes(element));
}

LANES_INLINE void prefetch_block(const char *from, int64_t bytes)
{
    UNROLL
    for (int64_t i = 0; i < bytes; i += 64)
        _mm_prefetch(from + i, _MM_HINT_T0);
}

/* Edges before its turn that a source's block is prefetched. */
LANES_INLINE int64_t edges_ahead(int64_t bytes)
{
    return AHEAD_BYTES / bytes > 2 ? AHEAD_BYTES / bytes : 2;
}

/* One row's columns [column, column + vectors * LANES), or `part` columns of one vector. */
typedef struct block {
    int64_t row;
    int64_t column;
    int64_t part;
} block_t;

LANES_INLINE void copy_root(const plim__matrix_t *x, plim__matrix_t *root, block_t block,
                            plim__element_t element, int vectors)
{
    const char *from = place(x, block.row, block.column);
    char *to = (char *)place(root, block.row, block.column);
    const int64_t width = LANES * (int64_t)plim__element_bytes(element);
    const int64_t step = LANES * (int64_t)plim__element_bytes(root->element);
    UNROLL
    for (int i = 0; i < vectors; i++)
        store_part(to + i * step, root->element, block.part,
                   load_part(from + i * width, element, block.part));
}

/*
 * Calls a kernel for each block of each row: blocks of `most` vectors while there are enough
 * columns, then of half as many, then of one. Each size is a copy of the kernel.
 */
#define FOR_EACH_BLOCK(kernel, argument, element, most, width, first, last)                        \
    for (int64_t row = (first); row < (last); row++) {                                             \
        int64_t at = 0;                                                                            \
        for (; at + (most)*LANES <= (width); at += (most)*LANES)                                   \
            kernel(argument, (block_t){row, at, 0}, element, most);                                \
        for (; at + (most) / 2 * LANES <= (width); at += (most) / 2 * LANES)                       \
            kernel(argument, (block_t){row, at, 0}, element, (most) / 2);                          \
        for (; at < (width); at += LANES) {                                                        \
            const int64_t left_over = plim__max_i64(0, (width)-LANES);                             \
            const int64_t part = (width) < LANES ? (width) : 0;                                    \
            kernel(argument, (block_t){row, plim__min_i64(at, left_over), part}, element, 1);      \
        }                                                                                          \
    }

/*
 * name_rows(params, first, last): name_block over rows of params->x, a copy of the kernel for each
 * element that the source may have.
 */
#define ROWS_BY_ELEMENT(name, params_t, most)                                                      \
    LANES_TARGET static void name##_f32(const params_t *params, int64_t first, int64_t last)       \
    {                                                                                              \
        FOR_EACH_BLOCK(name##_block, params, PLIM__F32, most, params->x->width, first, last);      \
    }                                                                                              \
    LANES_TARGET static void name##_bf16(const params_t *params, int64_t first, int64_t last)      \
    {                                                                                              \
        FOR_EACH_BLOCK(name##_block, params, PLIM__BF16, most, params->x->width, first, last);     \
    }                                                                                              \
    LANES_TARGET static void name##_f16(const params_t *params, int64_t first, int64_t last)       \
    {                                                                                              \
        FOR_EACH_BLOCK(name##_block, params, PLIM__F16, most, params->x->width, first, last);      \
    }                                                                                              \
    static void name##_rows(const params_t *params, int64_t first, int64_t last)                   \
    {                                                                                              \
        switch (params->x->element) {                                                              \
        case PLIM__F32:                                                                            \
            name##_f32(params, first, last);                                                       \
            break;                                                                                 \
        case PLIM__BF16:                                                                           \
            name##_bf16(params, first, last);                                                      \
            break;                                                                                 \
        default:                                                                                   \
            name##_f16(params, first, last);                                                       \
        }                                                                                          \
    }

LANES_INLINE float edge_weight(const plim__row_sums_t *sums, int64_t e, int32_t source)
{
    const float weight = sums->weights[e];
    return sums->inner != NULL ? weight * sums->inner[source] : weight;
}

/* Adds the parts of the row at x, each times its factor. */
LANES_INLINE void add_parts(const plim__row_sums_t *sums, int64_t e, float weight, const char *x,
                            block_t block, plim__element_t element, int vectors, lanes_t *total)
{
    const int64_t width = LANES * (int64_t)plim__element_bytes(element);
    const int64_t part = sums->x->width * (int64_t)plim__element_bytes(element);
    const float *factors = sums->mix.factors + sums->mix.types[e] * sums->mix.pitch;
    for (int64_t k = 0; k < sums->mix.bases; k++, x += part) {
        const lanes_t by = lanes_set(weight * factors[k]);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] += by * load_part(x + i * width, element, block.part);
    }
}

typedef enum factor { PLAIN, SCALED, WEIGHTED } factor_t;

/* The sum over the row's edges of one block; each `factor` of the rows is a copy. */
LANES_INLINE void sum_edges(const plim__row_sums_t *sums, block_t block, plim__element_t element,
                            int vectors, factor_t factor, lanes_t *total)
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
        if (factor == WEIGHTED) {
            const int64_t edge = sums->edges != NULL ? sums->edges[e] : e;
            const float weight = edge_weight(sums, edge, source);
            if (sums->mix.factors != NULL) {
                add_parts(sums, edge, weight, x, block, element, vectors, total);
                continue;
            }
            const lanes_t by = lanes_set(weight);
            UNROLL
            for (int i = 0; i < vectors; i++)
                total[i] += by * load_part(x + i * width, element, block.part);
        } else if (factor == SCALED) {
            const lanes_t weight = lanes_set(inner[source]);
            UNROLL
            for (int i = 0; i < vectors; i++)
                total[i] += weight * load_part(x + i * width, element, block.part);
        } else {
            UNROLL
            for (int i = 0; i < vectors; i++)
                total[i] += load_part(x + i * width, element, block.part);
        }
    }
}

LANES_INLINE void sum_self(const plim__row_sums_t *sums, block_t block, plim__element_t element,
                           int vectors, lanes_t *total)
{
    const char *x = place(sums->x, block.row, block.column);
    const int64_t width = LANES * (int64_t)plim__element_bytes(element);
    if (sums->self != NULL) {
        const lanes_t weight = lanes_set(sums->self[block.row]);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] += weight * load_part(x + i * width, element, block.part);
    }
    if (sums->extra != NULL) {
        const char *extra = place(sums->extra, block.row, block.column);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] += load_part(extra + i * LANES * 4, PLIM__F32, block.part);
    }
    if (sums->root != NULL)
        copy_root(sums->x, sums->root, block, element, vectors);
}

LANES_INLINE void sum_block(const plim__row_sums_t *sums, block_t block, plim__element_t element,
                            int vectors)
{
    lanes_t total[LANES_BLOCK];
    if (sums->weights != NULL)
        sum_edges(sums, block, element, vectors, WEIGHTED, total);
    else if (sums->inner != NULL)
        sum_edges(sums, block, element, vectors, SCALED, total);
    else
        sum_edges(sums, block, element, vectors, PLAIN, total);
    if (sums->outer != NULL) {
        const lanes_t scale = lanes_set(sums->outer[block.row]);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] = scale * total[i];
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

/* The maximum over the row's edges of one block, the first of equals; a NaN is larger than all. */
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

/* One block of a source: sums the gradients of the destinations that chose it. */
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
            total[i] += lanes_where_equal(load_ints(chosen + i * LANES, block.part), edge,
                                          load_part(dout + i * LANES * 4, element, block.part));
    }
    if (block.row < back->num_self && back->droot != NULL) {
        const char *droot = place(back->droot, block.row, block.column);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] += load_part(droot + i * LANES * 4, element, block.part);
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

/* Adds a block of an edge's term. */
LANES_INLINE void add_terms(const plim__edge_terms_t *terms, int64_t e, block_t block, int vectors,
                            lanes_t *total)
{
    if (terms->bias != NULL) {
        const float *bias = terms->bias + block.column;
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] += load_part(bias + i * LANES, PLIM__F32, block.part);
    }
    for (int64_t k = 0; k < terms->entries; k++) {
        const int64_t at = e * terms->entries + k;
        const int64_t row = terms->rows != NULL ? terms->rows[at] : k;
        const float *from = terms->table + row * terms->width + block.column;
        const lanes_t value = lanes_set(terms->values != NULL ? terms->values[at] : 1);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] += value * load_part(from + i * LANES, PLIM__F32, block.part);
    }
}

/* x[u] + term(e). */
LANES_INLINE void relu_message(const plim__row_relu_t *relu, int64_t e, int64_t u, block_t block,
                               plim__element_t element, int vectors, lanes_t *message)
{
    const char *x = place(relu->x, u, block.column);
    const int64_t width = LANES * (int64_t)plim__element_bytes(element);
    UNROLL
    for (int i = 0; i < vectors; i++)
        message[i] = load_part(x + i * width, element, block.part);
    add_terms(relu->terms, e, block, vectors, message);
}

LANES_INLINE void relu_store(const plim__row_relu_t *relu, int64_t row, block_t block, int vectors,
                             const lanes_t *values)
{
    char *out = (char *)place(relu->out, row, block.column);
    const plim__element_t to = relu->out->element;
    const int64_t step = LANES * (int64_t)plim__element_bytes(to);
    UNROLL
    for (int i = 0; i < vectors; i++)
        store_part(out + i * step, to, block.part, values[i]);
}

/* Adds scale times a block of row r. */
LANES_INLINE void add_row(const plim__matrix_t *matrix, int64_t r, float scale, block_t block,
                          plim__element_t element, int vectors, lanes_t *total)
{
    const char *from = place(matrix, r, block.column);
    const int64_t width = LANES * (int64_t)plim__element_bytes(element);
    const lanes_t by = lanes_set(scale);
    UNROLL
    for (int i = 0; i < vectors; i++)
        total[i] += by * load_part(from + i * width, element, block.part);
}

LANES_INLINE void relu_sum_block(const plim__row_relu_t *relu, block_t block,
                                 plim__element_t element, int vectors)
{
    lanes_t total[MAX_BLOCK], message[MAX_BLOCK];
    const lanes_t zero = lanes_set(0);
    UNROLL
    for (int i = 0; i < vectors; i++)
        total[i] = zero;
    for (int64_t e = relu->indptr[block.row]; e < relu->indptr[block.row + 1]; e++) {
        relu_message(relu, e, relu->indices[e], block, element, vectors, message);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] += lanes_choose(lanes_exceeds(message[i], zero), message[i], zero);
    }
    if (block.row < relu->num_self)
        add_row(relu->x, block.row, relu->self[block.row], block, element, vectors, total);
    relu_store(relu, block.row, block, vectors, total);
}

ROWS_BY_ELEMENT(relu_sum, plim__row_relu_t, MAX_BLOCK)

LANES_INLINE void relu_back_block(const plim__row_relu_t *relu, block_t block,
                                  plim__element_t element, int vectors)
{
    lanes_t total[MAX_BLOCK], message[MAX_BLOCK];
    UNROLL
    for (int i = 0; i < vectors; i++)
        total[i] = lanes_set(0);
    for (int64_t at = relu->indptr[block.row]; at < relu->indptr[block.row + 1]; at++) {
        const char *dout = place(relu->dout, relu->indices[at], block.column);
        relu_message(relu, relu->edges[at], block.row, block, element, vectors, message);
        UNROLL
        for (int i = 0; i < vectors; i++)
            total[i] += lanes_where_positive(
                message[i], load_part(dout + i * LANES * 4, PLIM__F32, block.part));
    }
    if (block.row < relu->num_self) {
        add_row(relu->dout, block.row, relu->self[block.row], block, PLIM__F32, vectors, total);
        if (relu->extra != NULL)
            add_row(relu->extra, block.row, 1, block, PLIM__F32, vectors, total);
    }
    relu_store(relu, block.row, block, vectors, total);
}

ROWS_BY_ELEMENT(relu_back, plim__row_relu_t, MAX_BLOCK)

LANES_INLINE void relu_edges_block(const plim__row_relu_t *relu, block_t block,
                                   plim__element_t element, int vectors)
{
    lanes_t message[MAX_BLOCK];
    const char *dout = place(relu->dout, relu->destination, block.column);
    relu_message(relu, block.row, relu->indices[block.row], block, element, vectors, message);
    UNROLL
    for (int i = 0; i < vectors; i++)
        message[i] = lanes_where_positive(message[i],
                                          load_part(dout + i * LANES * 4, PLIM__F32, block.part));
    relu_store(relu, 0, block, vectors, message);
}

ROWS_BY_ELEMENT(relu_edges, plim__row_relu_t, MAX_BLOCK)

typedef struct terms_rows {
    const plim__edge_terms_t *terms;
    int64_t from;
    plim__matrix_t *out;
} terms_rows_t;

LANES_INLINE void terms_block(const terms_rows_t *rows, block_t block, plim__element_t element,
                              int vectors)
{
    lanes_t total[MAX_BLOCK];
    (void)element;
    UNROLL
    for (int i = 0; i < vectors; i++)
        total[i] = lanes_set(0);
    add_terms(rows->terms, rows->from + block.row, block, vectors, total);
    const plim__row_relu_t to = {.out = rows->out};
    relu_store(&to, block.row, block, vectors, total);
}

LANES_TARGET static void terms_rows(const plim__edge_terms_t *terms, int64_t from,
                                    plim__matrix_t *out, int64_t first, int64_t last)
{
    const terms_rows_t rows = {terms, from, out};
    FOR_EACH_BLOCK(terms_block, &rows, PLIM__F32, MAX_BLOCK, terms->width, first, last);
}

/* The next floats of an array that ends after `left` of them. */
LANES_INLINE lanes_t load_left(const float *from, int64_t left)
{
    return left >= LANES ? lanes_load(from, PLIM__F32) : lanes_load_some(from, left);
}

LANES_INLINE void store_left(float *to, int64_t left, lanes_t values)
{
    if (left >= LANES)
        lanes_store(to, PLIM__F32, values);
    else
        lanes_store_some(to, left, values);
}

/* LANES numbers at `from`; only the first `count` exist. */
LANES_INLINE lanes_t load_int32(const int32_t *from, int64_t count)
{
    if (count >= LANES)
        return lanes_from_int32(from);
    int32_t copy[LANES] = {0};
    memcpy(copy, from, (size_t)count * sizeof copy[0]);
    return lanes_from_int32(copy);
}

/* Numbers of edges of LANES destinations; only the first `count` exist. */
LANES_INLINE lanes_t load_drawn(const int32_t *indptr, int64_t count)
{
    int32_t drawn[LANES] = {0};
    for (int64_t i = 0; i < LANES && i < count; i++)
        drawn[i] = indptr[i + 1] - indptr[i];
    return lanes_from_int32(drawn);
}

LANES_TARGET static void scales_gcn(const int32_t *indptr, const int32_t *degrees, int64_t most,
                                    int64_t num_dst, int64_t num_src, float *src, float *dst,
                                    float *self)
{
    const lanes_t one = lanes_set(1);
    const lanes_t cap = lanes_set((float)most);
    for (int64_t u = 0; u < num_src; u += LANES) {
        const lanes_t whole = load_int32(degrees + u, num_src - u);
        const lanes_t degree = lanes_choose(lanes_exceeds(whole, cap), cap, whole);
        store_left(src + u, num_src - u, one / lanes_sqrt(degree + one));
    }
    const lanes_t most_drawn = cap + one;
    const lanes_t root = lanes_sqrt(most_drawn);
    for (int64_t v = 0; v < num_dst; v += LANES) {
        const int64_t count = num_dst - v;
        const lanes_t drawn = load_drawn(indptr + v, count) + one;
        const lanes_t scale =
            lanes_choose(lanes_exceeds(drawn, most_drawn), root / drawn, one / lanes_sqrt(drawn));
        store_left(dst + v, count, scale);
        store_left(self + v, count, scale * load_left(src + v, count));
    }
}

LANES_TARGET static void scales_mean(const int32_t *indptr, int64_t num_dst, float *dst)
{
    for (int64_t v = 0; v < num_dst; v += LANES) {
        const lanes_t drawn = load_drawn(indptr + v, num_dst - v);
        store_left(dst + v, num_dst - v, lanes_where_positive(drawn, lanes_set(1) / drawn));
    }
}

#define SIXTEEN (16 / LANES)

/* Column c is added in lane c % 16 for any vector width, so the bits are the same. */
LANES_INLINE float dot(const float *a, const float *b, int64_t count)
{
    lanes_sixteen_t sums;
    UNROLL
    for (int i = 0; i < SIXTEEN; i++)
        sums.part[i] = lanes_set(0);
    int64_t c = 0;
    for (; c + 16 <= count; c += 16) {
        UNROLL
        for (int i = 0; i < SIXTEEN; i++)
            sums.part[i] +=
                lanes_load(a + c + i * LANES, PLIM__F32) * lanes_load(b + c + i * LANES, PLIM__F32);
    }
    UNROLL
    for (int i = 0; i < SIXTEEN; i++, c += LANES) {
        const int64_t left = count - c;
        if (left > 0)
            sums.part[i] += load_left(a + c, left) * load_left(b + c, left);
    }
    return lanes_total(&sums);
}

LANES_TARGET static void dots(int64_t heads, int64_t channels, const float *a, const float *b,
                              float *out)
{
    for (int64_t h = 0; h < heads; h++)
        out[h] = dot(a + h * channels, b + h * channels, channels);
}

LANES_TARGET static void add_scaled(int64_t heads, int64_t channels, const float *scales,
                                    const float *x, float *y)
{
    for (int64_t h = 0; h < heads; h++, x += channels, y += channels) {
        const lanes_t scale = lanes_set(scales[h]);
        int64_t c = 0;
        for (; c + LANES <= channels; c += LANES)
            lanes_store(y + c, PLIM__F32,
                        lanes_load(y + c, PLIM__F32) + scale * lanes_load(x + c, PLIM__F32));
        if (c < channels)
            lanes_store_some(y + c, channels - c,
                             lanes_load_some(y + c, channels - c) +
                                 scale * lanes_load_some(x + c, channels - c));
    }
}

/* The vector of a + b + term from column c on; there are `left` more columns. */
LANES_INLINE lanes_t leaky_input(const float *a, const float *b, const float *term, int64_t c,
                                 int64_t left)
{
    lanes_t sum = load_left(a + c, left) + load_left(b + c, left);
    if (term != NULL)
        sum += load_left(term + c, left);
    return sum;
}

LANES_INLINE lanes_t leaky(lanes_t t)
{
    return lanes_choose(lanes_exceeds(t, lanes_set(0)), t, t * lanes_set(PLIM__LEAK));
}

/* As dot. */
LANES_TARGET static void leaky_dots(int64_t heads, int64_t channels, const float *att,
                                    const float *a, const float *b, const float *term, float *out)
{
    for (int64_t h = 0; h < heads; h++) {
        lanes_sixteen_t sums;
        UNROLL
        for (int i = 0; i < SIXTEEN; i++)
            sums.part[i] = lanes_set(0);
        for (int64_t c = 0; c < channels; c += 16) {
            UNROLL
            for (int i = 0; i < SIXTEEN; i++) {
                const int64_t at = c + i * LANES, left = channels - at;
                if (left > 0)
                    sums.part[i] += load_left(att + h * channels + at, left) *
                                    leaky(leaky_input(a, b, term, h * channels + at, left));
            }
        }
        out[h] = lanes_total(&sums);
    }
}

LANES_TARGET static void leaky_sums(int64_t heads, int64_t channels, const float *scales,
                                    const float *a, const float *b, const float *term, float *y)
{
    for (int64_t h = 0; h < heads; h++) {
        const lanes_t scale = lanes_set(scales[h]);
        for (int64_t c = 0; c < channels; c += LANES) {
            const int64_t at = h * channels + c, left = channels - c;
            store_left(y + at, left,
                       load_left(y + at, left) + scale * leaky(leaky_input(a, b, term, at, left)));
        }
    }
}

LANES_TARGET static void leaky_back(int64_t heads, int64_t channels, const float *att,
                                    const float *scales, const float *a, const float *b,
                                    const float *term, bool add, float *y)
{
    const lanes_t one = lanes_set(1), slope = lanes_set(PLIM__LEAK), zero = lanes_set(0);
    for (int64_t h = 0; h < heads; h++) {
        const lanes_t scale = lanes_set(scales[h]);
        for (int64_t c = 0; c < channels; c += LANES) {
            const int64_t at = h * channels + c, left = channels - c;
            const lanes_t t = leaky_input(a, b, term, at, left);
            lanes_t value = scale * (load_left(att + at, left) *
                                     lanes_choose(lanes_exceeds(t, zero), one, slope));
            if (add)
                value += load_left(y + at, left);
            store_left(y + at, left, value);
        }
    }
}

#define KERNELS                                                                                    \
    {                                                                                              \
        .sum = sum_rows, .max = max_rows, .max_back = max_back_rows, .relu_sum = relu_sum_rows,    \
        .relu_back = relu_back_rows, .relu_edges = relu_edges_rows, .terms = terms_rows,           \
        .scales_gcn = scales_gcn, .scales_mean = scales_mean, .dots = dots,                        \
        .add_scaled = add_scaled, .leaky_dots = leaky_dots, .leaky_sums = leaky_sums,              \
        .leaky_back = leaky_back,                                                                  \
    }

#endif
