/*
 * Aggregation over neighbours and its gradient. The kernels are vectorised and convert the
 * dataset's f16 rows as they read them. Results are deterministic without atomics: the forward pass
 * goes by destination, the backward pass by source along the reversed hop.
 */
#ifndef PLIM_NN_AGGREGATE_H
#define PLIM_NN_AGGREGATE_H

#include "nn/kernels.h"
#include "nn/matrix.h"
#include "nn/team.h"

/* The edges of one hop of a batch: destination v draws from sources indices[indptr[v]] …
 * [indptr[v+1]-1], and is itself source v. */
typedef struct plim__edges {
    int64_t num_dst;
    int64_t num_src;
    int64_t num_edges;
    const int32_t *indptr;  /* (num_dst + 1) */
    const int32_t *indices; /* (num_edges) */
} plim__edges_t;

/* Columns of a hop's edges, in the order of its indices; NULL: absent. */
typedef struct plim__edge_inputs {
    const float *weights;      /* (num_edges) */
    const int64_t *types;      /* (num_edges) */
    plim__matrix_t features;   /* (num_edges, width) F32 or F16; data may be NULL */
    const int64_t *categories; /* (num_edges, columns) */
} plim__edge_inputs_t;

/* The same edges by source: edge edges[indptr[u]] … goes from u to destinations[…], ascending. */
typedef struct plim__reverse {
    int32_t *indptr;       /* (num_src + 1) */
    int32_t *edges;        /* (num_edges) */
    int32_t *destinations; /* (num_edges) */
} plim__reverse_t;

/* Fills the three arrays, which the caller provides. */
void plim__reverse_make(const plim__edges_t *hop, plim__reverse_t *reverse);

/*
 * Linear sums: out[v] = dst[v] * sum over edges e from u of edge[e] src[u] x[u] + self[v] x[v].
 * A NULL src, dst or edge is 1 everywhere, a NULL self 0.
 */
typedef struct plim__scales {
    const float *src;  /* (num_src) */
    const float *dst;  /* (num_dst) */
    const float *self; /* (num_dst) */
    const float *edge; /* (num_edges) */
    plim__mix_t mix;   /* more factors of edges, by type; in the backward pass a row of dout has a
                          part for each basis, in the forward pass there is one basis */
} plim__scales_t;

/*
 * Computes rows [first, end) of out on the calling thread. x: num_src rows, any element; out:
 * num_dst rows, F32 or BF16. If `root` is not NULL, also copies row v of x to row v of root, in
 * root's element (the other half of SAGE's input).
 */
void plim__aggregate_forward_rows(const plim__edges_t *hop, const plim__scales_t *scales,
                                  const plim__matrix_t *x, plim__matrix_t *out,
                                  plim__matrix_t *root, int64_t first, int64_t end);

/*
 * Computes dx[u] (num_src rows, F32, overwritten) from dout (num_dst rows, F32); if droot (num_dst
 * rows, F32) is not NULL, adds droot[u] for u < num_dst.
 */
void plim__aggregate_backward(plim__team_t *team, const plim__edges_t *hop,
                              const plim__reverse_t *reverse, const plim__scales_t *scales,
                              const plim__matrix_t *dout, const plim__matrix_t *droot,
                              plim__matrix_t *dx);

/*
 * The maximum of each column over the neighbours, rows as above; 0 without neighbours. `chosen`
 * (num_dst, width) is the edge of the maximum, the first of equals, or -1; NULL if no backward pass
 * follows. A NaN counts as the largest value.
 */
void plim__aggregate_max_forward_rows(const plim__edges_t *hop, const plim__matrix_t *x,
                                      plim__matrix_t *out, int32_t *chosen, plim__matrix_t *root,
                                      int64_t first, int64_t end);
void plim__aggregate_max_backward(plim__team_t *team, const plim__edges_t *hop,
                                  const plim__reverse_t *reverse, const int32_t *chosen,
                                  const plim__matrix_t *dout, const plim__matrix_t *droot,
                                  plim__matrix_t *dx);

/*
 * GCN's scales from degrees of the whole graph, capped at the fan-out (0 or less: no cap): src
 * 1/sqrt(min(d_u, fanout) + 1); dst 1/sqrt(k_v + 1), where k_v is the number of drawn edges; self
 * the product of the two. With whole neighbourhoods these are the original GCN's. An evaluation
 * that draws more than the fan-out takes the mean at training's scale: dst sqrt(fanout + 1)/(k_v +
 * 1), as exact inference does.
 */
void plim__scales_gcn(const plim__edges_t *hop, const int32_t *degrees, int64_t fanout, float *src,
                      float *dst, float *self);

/*
 * The same of weighted edges, as PyG's gcn_norm: an edge from v to itself is v's own weight (the
 * last of several), otherwise 1; scales are 0 for a sum of 0 and NaN for a negative one. `sums`
 * (num_src) are the sums of the weights of all edges into each node and its own, of the whole
 * dataset; of fewer edges than degrees[u], a sum is (sums[u] - 1) times their share, and 1. NULL:
 * the hop has all edges of all nodes. edge (num_edges) gets the weights, 0 of an edge from v to
 * itself; needed in the backward pass too.
 */
void plim__scales_gcn_weighted(const plim__edges_t *hop, const float *weights, const float *sums,
                               const int32_t *degrees, int64_t fanout, float *edge, float *src,
                               float *dst, float *self);

/* Two steps of it for one node, which exact inference shares: the sum of weights as a batch of
 * training sees it, which draws `fanout` of `degree` edges (0 or less: all); and 1/sqrt(sum), 0 for
 * a sum of 0. */
float plim__weight_sum_drawn(float sum, int64_t degree, int64_t fanout);
float plim__weight_sum_scale(float sum);

/* dst 1/k_v, 0 without edges. */
void plim__scales_mean(const plim__edges_t *hop, float *dst);

/* Splits the rows of a hop, or of a reversed one, into tasks of about equally many edges. */
typedef struct plim__work_split {
    const int32_t *indptr; /* (rows + 1) */
    int64_t rows;
    int64_t weight; /* of a task: edges and rows */
    int64_t tasks;
    int64_t cost; /* of a task, in nanoseconds */
} plim__work_split_t;

/* Nanoseconds of an edge that reads `bytes`. */
double plim__work_split_cost(size_t bytes);

/* `unit`: nanoseconds of an edge. */
plim__work_split_t plim__work_split_make(const int32_t *indptr, int64_t rows, double unit);

/* In `ranges` tasks, whatever they cost. */
plim__work_split_t plim__work_split_ranges(const int32_t *indptr, int64_t rows, int64_t ranges,
                                           double unit);

/* The first row of a task; for the task after the last, the number of rows. */
int64_t plim__work_split_row(const plim__work_split_t *split, int64_t task);

#endif
