/* What the forward and the backward pass of attention share. */
#ifndef PLIM_NN_ATTENTION_PASS_H
#define PLIM_NN_ATTENTION_PASS_H

#include "nn/attention.h"
#include "nn/kernels.h"

#define PLIM__LEAK 0.2f
/* Edges before its turn that a row is fetched into the cache. */
#define PLIM__EDGES_AHEAD 4

static inline const float *plim__float_row(const plim__matrix_t *matrix, int64_t row)
{
    return (const float *)matrix->data + row * matrix->stride;
}

static inline void plim__prefetch_row(const plim__matrix_t *matrix, int64_t row)
{
    const float *at = plim__float_row(matrix, row);
    for (int64_t c = 0; c < matrix->width; c += 16)
        __builtin_prefetch(at + c);
}

/* Adds kept[h] row[h] to sum[h] for each head h, kept being the weights after dropout on the way
 * from source u to destination v. */
void plim__attention_add(const plim__kernels_t *kernels, const plim__attention_t *attention,
                         int64_t v, int64_t u, const float *weights, const float *row, float *sum);

/* Multiplies values[h] by what dropout makes of a weight of 1 on the way from u to v. */
void plim__attention_drop(const plim__attention_t *attention, int64_t v, int64_t u, int first,
                          int count, float *values);

#endif
