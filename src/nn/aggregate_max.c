#include "nn/aggregate.h"
#include "nn/kernels.h"
#include "nn/work_split.h"

typedef struct backward {
    plim__work_split_t split;
    plim__row_max_back_t rows;
    const plim__kernels_t *kernels;
} backward_t;

static void backward_piece(void *context, int worker, int64_t piece)
{
    (void)worker;
    const backward_t *backward = context;
    backward->kernels->max_back(&backward->rows, plim__work_split_row(&backward->split, piece),
                                plim__work_split_row(&backward->split, piece + 1));
}

void plim__aggregate_max_forward_rows(const plim__edges_t *hop, const plim__matrix_t *x,
                                      plim__matrix_t *out, int32_t *chosen, plim__matrix_t *root,
                                      int64_t first, int64_t end)
{
    const plim__row_max_t max = {.indptr = hop->indptr,
                                 .indices = hop->indices,
                                 .num_edges = hop->num_edges,
                                 .x = x,
                                 .out = out,
                                 .chosen = chosen,
                                 .root = root};
    plim__kernels()->max(&max, first, end);
}

void plim__aggregate_max_backward(plim__team_t *team, const plim__edges_t *hop,
                                  const plim__reverse_t *reverse, const int32_t *chosen,
                                  const plim__matrix_t *dout, const plim__matrix_t *droot,
                                  plim__matrix_t *dx)
{
    const size_t bytes = (size_t)dout->width * (sizeof(float) + sizeof chosen[0]);
    backward_t backward = {
        .split = plim__work_split_make(reverse->indptr, hop->num_src, plim__work_split_cost(bytes)),
        .rows = {.indptr = reverse->indptr,
                 .edges = reverse->edges,
                 .destinations = reverse->destinations,
                 .num_self = hop->num_dst,
                 .chosen = chosen,
                 .dout = dout,
                 .droot = droot,
                 .dx = dx},
        .kernels = plim__kernels()};
    plim__team_run(team, backward.split.pieces, backward.split.cost, backward_piece, &backward);
}
