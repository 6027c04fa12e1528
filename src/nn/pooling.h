/* Pooling: one row for each graph from the rows of its nodes, and its gradient. */
#ifndef PLIM_NN_POOLING_H
#define PLIM_NN_POOLING_H

#include "nn/matrix.h"
#include "nn/team.h"

#include <plimsoll/train.h>

/* x: rows of nodes, F32 or BF16; out (num_graphs, width) F32; graph_indptr (num_graphs + 1).
 * `chosen` (num_graphs, width), for PLIM_POOL_MAX, is the node of the maximum; -1 in an empty
 * graph. */
void plim__pooling_forward(plim__team_t *team, plim_pool_t pool, int64_t num_graphs,
                           const int32_t *graph_indptr, const plim__matrix_t *x, float *out,
                           int32_t *chosen);
/* dx (rows of nodes, F32) is overwritten. */
void plim__pooling_backward(plim__team_t *team, plim_pool_t pool, int64_t num_graphs,
                            const int32_t *graph_indptr, const int32_t *chosen, const float *dout,
                            plim__matrix_t *dx);

#endif
