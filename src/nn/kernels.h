/*
 * Kernels over the edges of a hop, one set for each kind of processor (nn/vector.h): written once
 * (nn/kernels_body.h) on vectors of 4, 8 or 16 floats (nn/lanes_*.h). Columns are independent of
 * each other, each is added in the order of the edges, and no product is fused with a sum: all sets
 * give the same bits.
 */
#ifndef PLIM_NN_KERNELS_H
#define PLIM_NN_KERNELS_H

#include "nn/matrix.h"

#include <stdbool.h>

#define PLIM__LEAK 0.2f /* slope of attention's leaky ReLU below zero */

/* Factors of edges by their types: of part k of a row, factors[types[e] * pitch + k], k < bases. */
typedef struct plim__mix {
    const int64_t *types;
    const float *factors; /* NULL: 1, of one part */
    int64_t pitch;
    int64_t bases; /* parts of a row of x, side by side, each as wide as x->width */
} plim__mix_t;

/*
 * out[r] = outer[r] * (sum over edges e of r of weight(e) inner[indices[e]] x[indices[e]])
 *        + self[r] x[r] + extra[r], and root[r] = x[r]; the latter three for r < num_self only.
 * weight(e) is weights[e], or weights[edges[e]] with `edges`; with a mix, which needs weights, the
 * summand is that of each part of the row and its factor. Any of weights, outer, inner, self,
 * extra and root may be NULL: 1, 1, 1, 0, 0, none.
 */
typedef struct plim__row_sums {
    const int32_t *indptr;
    const int32_t *indices;
    int64_t num_edges;
    int64_t num_self;
    const float *weights;
    const int32_t *edges;
    plim__mix_t mix;
    const float *inner;
    const float *outer;
    const float *self;
    const plim__matrix_t *x;
    const plim__matrix_t *extra; /* F32 */
    plim__matrix_t *out;         /* F32 or BF16 */
    plim__matrix_t *root;        /* F32 or BF16 */
} plim__row_sums_t;

/* out[r] is the maximum of x[indices[e]] over the edges e of r, 0 without edges; chosen (may be
 * NULL) is the first edge of the maximum, or -1; root[r] = x[r]. */
typedef struct plim__row_max {
    const int32_t *indptr;
    const int32_t *indices;
    int64_t num_edges;
    const plim__matrix_t *x;
    plim__matrix_t *out; /* F32 or BF16 */
    int32_t *chosen;     /* (rows, width) */
    plim__matrix_t *root;
} plim__row_max_t;

/* dx[r] = the sum of dout[destinations[i]] over the r's i for which edges[i] was chosen, and of
 * droot[r] for r < num_self. */
typedef struct plim__row_max_back {
    const int32_t *indptr;
    const int32_t *edges;
    const int32_t *destinations;
    int64_t num_self;
    const int32_t *chosen;
    const plim__matrix_t *dout;  /* F32, as all here */
    const plim__matrix_t *droot; /* may be NULL */
    plim__matrix_t *dx;
} plim__row_max_back_t;

/*
 * A vector for each edge e: term(e) = bias + the sum over i < entries of values[e, i] table[r],
 * with r = rows[e, i]. NULL values are 1, NULL rows are i, a NULL bias is 0.
 */
typedef struct plim__edge_terms {
    int64_t entries;     /* of an edge */
    const float *values; /* (num_edges, entries) */
    const int32_t *rows; /* (num_edges, entries) */
    int64_t table_rows;
    int64_t width;
    const float *table; /* (table_rows, width) */
    const float *bias;  /* (width) */
} plim__edge_terms_t;

/*
 * Sums of max(x[u] + term(e), 0) over edges e from u to v.
 *     relu_sum   by destination: out[r] is the sum, + self[r] x[r] for r < num_self
 *     relu_back  by source, reversed (`edges`): out[r] is the sum of dout[v] where the maximum was
 *                not 0, + self[r] dout[r] + extra[r] for r < num_self
 *     relu_edges row e, an edge to `destination`: out is its dout where the maximum was not 0; out
 *                is one row, overwritten by each edge
 */
typedef struct plim__row_relu {
    const int32_t *indptr;
    const int32_t *indices;
    const int32_t *edges; /* of relu_back: edge of a place */
    int64_t num_edges;
    int64_t num_self;
    const plim__edge_terms_t *terms;
    const float *self;
    const plim__matrix_t *x;
    const plim__matrix_t *dout;  /* F32 */
    const plim__matrix_t *extra; /* F32, or NULL */
    int64_t destination;
    plim__matrix_t *out; /* F32 or BF16 */
} plim__row_relu_t;

typedef struct plim__kernels {
    /* Rows [first, last) of each. */
    void (*sum)(const plim__row_sums_t *sums, int64_t first, int64_t last);
    void (*max)(const plim__row_max_t *max, int64_t first, int64_t last);
    void (*max_back)(const plim__row_max_back_t *back, int64_t first, int64_t last);
    void (*relu_sum)(const plim__row_relu_t *relu, int64_t first, int64_t last);
    void (*relu_back)(const plim__row_relu_t *relu, int64_t first, int64_t last);
    void (*relu_edges)(const plim__row_relu_t *relu, int64_t first, int64_t last);
    /* out[r] = term(from + r). */
    void (*terms)(const plim__edge_terms_t *terms, int64_t from, plim__matrix_t *out, int64_t first,
                  int64_t last);
    void (*scales_gcn)(const int32_t *indptr, const int32_t *degrees, int64_t most, int64_t num_dst,
                       int64_t num_src, float *src, float *dst, float *self);
    void (*scales_mean)(const int32_t *indptr, int64_t num_dst, float *dst);
    /* a, b, x and y are (heads, channels): out[h] = a[h]·b[h]; y[h] += scales[h] x[h]. */
    void (*dots)(int64_t heads, int64_t channels, const float *a, const float *b, float *out);
    void (*add_scaled)(int64_t heads, int64_t channels, const float *scales, const float *x,
                       float *y);
    /*
     * GATv2's scores, with t = a + b + term (NULL: 0) and a leaky ReLU:
     *     leaky_dots  out[h] = att[h]·leaky(t[h])
     *     leaky_sums  y[h] += scales[h] leaky(t[h])
     *     leaky_back  y[h] = scales[h] att[h] leaky'(t[h]), or with `add` added to y; y may be term
     */
    void (*leaky_dots)(int64_t heads, int64_t channels, const float *att, const float *a,
                       const float *b, const float *term, float *out);
    void (*leaky_sums)(int64_t heads, int64_t channels, const float *scales, const float *a,
                       const float *b, const float *term, float *y);
    void (*leaky_back)(int64_t heads, int64_t channels, const float *att, const float *scales,
                       const float *a, const float *b, const float *term, bool add, float *y);
} plim__kernels_t;

extern const plim__kernels_t plim__kernels_baseline;
extern const plim__kernels_t plim__kernels_avx2;
extern const plim__kernels_t plim__kernels_avx512;

/* The set for plim__vector_path. */
const plim__kernels_t *plim__kernels(void);

#endif
