/*
 * What the kernels have in common, on whichever lanes_*.h was included before.
 *
 * A row is worked off in blocks of columns whose results stay in registers while all of the row's
 * edges go by. Behind the last whole vector of a row stands one that overlaps the one before; rows
 * narrower than a vector go through a copy.
 */
#ifndef PLIM_NN_KERNELS_COMMON_H
#define PLIM_NN_KERNELS_COMMON_H

#include "nn/kernels.h"

#include <string.h>

#ifdef __clang__
#define UNROLL _Pragma("unroll")
#else
#define UNROLL _Pragma("GCC unroll 8")
#endif

/* How far ahead, in bytes of rows, the sources of coming edges are fetched into the cache. */
#define AHEAD_BYTES 2048

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

/* How many edges before its turn a source's block is fetched. */
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

/* Copies the row's own block of x. */
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
 * Calls a kernel for each block of each row: of `most` vectors while there are so many columns,
 * then of half as many, then of one. The last one overlaps the one before when columns are left
 * over. Three sizes are enough, and each is a copy of the kernel.
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

#endif
