/*
 * The kernels of nn/kernels.h on whichever lanes_*.h was included before: for the files
 * kernels_*.c only.
 *
 * A row is worked off in blocks of columns whose sums stay in registers while all of the row's
 * edges go by. Behind the last whole vector of a row stands one that overlaps the one before;
 * rows narrower than a vector go through a copy.
 */
#include "nn/kernels.h"

#include <string.h>

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 16")
#endif

/* How far ahead, in bytes of rows, the sources of coming edges are fetched into the cache. */
#define AHEAD_BYTES 4096

/* Where a block of columns begins in a row. */
LANES_INLINE const char *place(const plim__matrix_t *matrix, int64_t row, int64_t column)
{
    return (const char *)matrix->data +
           (row * matrix->stride + column) * (int64_t)plim__element_bytes(matrix->element);
}

/* `part` is 0 for a whole vector, else the values that there are. */
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

/* One row's columns [column, column + vectors * LANES), or `part` columns of one vector. */
typedef struct block {
    int64_t row;
    int64_t column;
    int64_t part;
} block_t;

/* Of one block: the sum over its row's edges. */
LANES_INLINE void sum_edges(const plim__row_sums_t *sums, block_t block, plim__element_t element,
                            int vectors, lanes_t *total)
{
    const int64_t width = LANES * (int64_t)plim__element_bytes(element);
    const int64_t bytes = vectors * width;
    const int64_t ahead = AHEAD_BYTES / bytes > 2 ? AHEAD_BYTES / bytes : 2;
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
    if (sums->root != NULL) {
        char *root = (char *)place(sums->root, block.row, block.column);
        const plim__element_t to = sums->root->element;
        const int64_t step = LANES * (int64_t)plim__element_bytes(to);
        UNROLL
        for (int i = 0; i < vectors; i++)
            store_part(root + i * step, to, block.part,
                       load_part(x + i * width, element, block.part));
    }
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

/* Calls a kernel for each block of each row: the widest first, the rest by halves. */
#define FOR_EACH_BLOCK(kernel, argument, element, width, first, last)                              \
    for (int64_t row = (first); row < (last); row++) {                                             \
        int64_t at = 0;                                                                            \
        for (; at + LANES_BLOCK * LANES <= (width); at += LANES_BLOCK * LANES)                     \
            kernel(argument, (block_t){row, at, 0}, element, LANES_BLOCK);                         \
        if (LANES_BLOCK > 8 && at + 8 * LANES <= (width)) {                                        \
            kernel(argument, (block_t){row, at, 0}, element, 8);                                   \
            at += 8 * LANES;                                                                       \
        }                                                                                          \
        if (at + 4 * LANES <= (width)) {                                                           \
            kernel(argument, (block_t){row, at, 0}, element, 4);                                   \
            at += 4 * LANES;                                                                       \
        }                                                                                          \
        if (at + 2 * LANES <= (width)) {                                                           \
            kernel(argument, (block_t){row, at, 0}, element, 2);                                   \
            at += 2 * LANES;                                                                       \
        }                                                                                          \
        for (; at + LANES <= (width); at += LANES)                                                 \
            kernel(argument, (block_t){row, at, 0}, element, 1);                                   \
        if (at < (width) && (width) >= LANES)                                                      \
            kernel(argument, (block_t){row, (width)-LANES, 0}, element, 1);                        \
        else if (at < (width))                                                                     \
            kernel(argument, (block_t){row, 0, (width)}, element, 1);                              \
    }

LANES_TARGET static void sum_f32(const plim__row_sums_t *sums, int64_t first, int64_t last){
    FOR_EACH_BLOCK(sum_block, sums, PLIM__F32, sums->x->width, first, last)}

LANES_TARGET static void sum_bf16(const plim__row_sums_t *sums, int64_t first, int64_t last){
    FOR_EACH_BLOCK(sum_block, sums, PLIM__BF16, sums->x->width, first, last)}

LANES_TARGET static void sum_f16(const plim__row_sums_t *sums, int64_t first, int64_t last)
{
    FOR_EACH_BLOCK(sum_block, sums, PLIM__F16, sums->x->width, first, last)
}

static void sum(const plim__row_sums_t *sums, int64_t first, int64_t last)
{
    switch (sums->x->element) {
    case PLIM__F32:
        sum_f32(sums, first, last);
        break;
    case PLIM__BF16:
        sum_bf16(sums, first, last);
        break;
    default:
        sum_f16(sums, first, last);
    }
}

/* LANES numbers from `from` on, of which `count` are there. */
LANES_INLINE lanes_t load_int32(const int32_t *from, int64_t count)
{
    if (count >= LANES)
        return lanes_from_int32(from);
    int32_t copy[LANES] = {0};
    memcpy(copy, from, (size_t)count * sizeof copy[0]);
    return lanes_from_int32(copy);
}

LANES_INLINE void store_count(float *to, int64_t count, lanes_t values)
{
    store_part(to, PLIM__F32, count >= LANES ? 0 : count, values);
}

/* Edges of LANES destinations, of which `count` are there. */
LANES_INLINE lanes_t load_drawn(const int32_t *indptr, int64_t count)
{
    int32_t drawn[LANES] = {0};
    for (int64_t i = 0; i < LANES && i < count; i++)
        drawn[i] = indptr[i + 1] - indptr[i];
    return lanes_from_int32(drawn);
}

LANES_TARGET static void scales_gcn(const int32_t *indptr, const int32_t *degrees, int64_t num_dst,
                                    int64_t num_src, float *src, float *dst, float *self)
{
    const lanes_t one = lanes_set(1);
    for (int64_t u = 0; u < num_src; u += LANES) {
        const lanes_t degree = lanes_add(load_int32(degrees + u, num_src - u), one);
        store_count(src + u, num_src - u, lanes_div(one, lanes_sqrt(degree)));
    }
    for (int64_t v = 0; v < num_dst; v += LANES) {
        const int64_t count = num_dst - v;
        const lanes_t degree = load_int32(degrees + v, count);
        const lanes_t more = lanes_add(degree, one);
        const lanes_t drawn = load_drawn(indptr + v, count);
        const lanes_t share = lanes_where_positive(drawn, lanes_div(degree, drawn));
        store_count(dst + v, count, lanes_div(share, lanes_sqrt(more)));
        store_count(self + v, count, lanes_div(one, more));
    }
}

LANES_TARGET static void scales_mean(const int32_t *indptr, int64_t num_dst, float *dst)
{
    for (int64_t v = 0; v < num_dst; v += LANES) {
        const lanes_t drawn = load_drawn(indptr + v, num_dst - v);
        store_count(dst + v, num_dst - v,
                    lanes_where_positive(drawn, lanes_div(lanes_set(1), drawn)));
    }
}

#define KERNELS                                                                                    \
    {                                                                                              \
        .sum = sum, .scales_gcn = scales_gcn, .scales_mean = scales_mean,                          \
    }
