/*
 * Terms: a vector for each edge, computed from the edge's columns when it is needed, so that no
 * matrix holds them all. The values of an edge weigh the rows of a table (a linear layer); its
 * categories choose rows of it (embeddings). Sums over edges are cut into ranges that depend only
 * on the hop.
 */
#ifndef PLIM_NN_EDGE_TERMS_H
#define PLIM_NN_EDGE_TERMS_H

#include "nn/aggregate.h"
#include "nn/kernels.h"

/*
 * GINE's sum: out[v] = sum over edges e from u of max(x[u] + term(e), 0) + self[v] x[v]; rows
 * [first, end) on the calling thread. x: any element; out: F32 or BF16.
 */
void plim__relu_sum_rows(const plim__edges_t *hop, const plim__edge_terms_t *terms,
                         const float *self, const plim__matrix_t *x, plim__matrix_t *out,
                         int64_t first, int64_t end);

/* dx (num_src rows, F32, overwritten) from dout (num_dst rows, F32); adds droot if not NULL. */
void plim__relu_sum_backward(plim__team_t *team, const plim__edges_t *hop,
                             const plim__reverse_t *reverse, const plim__edge_terms_t *terms,
                             const float *self, const plim__matrix_t *x, const plim__matrix_t *dout,
                             const plim__matrix_t *droot, plim__matrix_t *dx);

/*
 * The gradients of an edge's term, one row (width) at a time, from any thread. `own`: each
 * destination has a term of its own, the mean of its edges' terms; edges from it to itself have
 * none, and add nothing. Its gradient is divided among its edges. NULL: there is no such term.
 */
typedef struct plim__term_gradients {
    void (*edge)(const void *context, int64_t v, int64_t e, float *gradient);
    void (*own)(const void *context, int64_t v, float *gradient);
    const void *context;
} plim__term_gradients_t;

/* Adds to dtable (table_rows, width), and to dbias (width) if not NULL. `scratch` has
 * plim__edge_terms_scratch bytes. */
void plim__edge_terms_backward(plim__team_t *team, const plim__edges_t *hop,
                               const plim__edge_terms_t *terms,
                               const plim__term_gradients_t *gradients, float *dtable, float *dbias,
                               void *scratch);

/* The same for the terms of plim__relu_sum_rows. */
void plim__relu_sum_terms(plim__team_t *team, const plim__edges_t *hop,
                          const plim__edge_terms_t *terms, const plim__matrix_t *x,
                          const plim__matrix_t *dout, float *dtable, float *dbias, void *scratch);

/* Rows of out are the terms themselves (F32 or BF16), and back: adds to dtable from dout. */
void plim__terms_forward(plim__team_t *team, const plim__edge_terms_t *terms, plim__matrix_t *out);
void plim__terms_backward(plim__team_t *team, const plim__edge_terms_t *terms,
                          const plim__matrix_t *dout, float *dtable, void *scratch);

size_t plim__edge_terms_scratch(int64_t table_rows, int64_t width);

#endif
