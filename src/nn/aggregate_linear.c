#include "nn/aggregate.h"
#include "nn/kernels.h"
#include "nn/work_split.h"

typedef struct backward {
    plim__work_split_t split;
    plim__row_sums_t sums;
    const plim__kernels_t *kernels;
} backward_t;

static void backward_piece(void *context, int worker, int64_t piece)
{
    (void)worker;
    const backward_t *backward = context;
    backward->kernels->sum(&backward->sums, plim__work_split_row(&backward->split, piece),
                           plim__work_split_row(&backward->split, piece + 1));
}

void plim__aggregate_forward_rows(const plim__edges_t *hop, const plim__scales_t *scales,
                                  const plim__matrix_t *x, plim__matrix_t *out,
                                  plim__matrix_t *root, int64_t first, int64_t end)
{
    const plim__row_sums_t sums = {.indptr = hop->indptr,
                                   .indices = hop->indices,
                                   .num_edges = hop->num_edges,
                                   .num_self = hop->num_dst,
                                   .inner = scales->src,
                                   .outer = scales->dst,
                                   .self = scales->self,
                                   .x = x,
                                   .out = out,
                                   .root = root};
    plim__kernels()->sum(&sums, first, end);
}

void plim__aggregate_backward(plim__team_t *team, const plim__edges_t *hop,
                              const plim__reverse_t *reverse, const plim__scales_t *scales,
                              const plim__matrix_t *dout, const plim__matrix_t *droot,
                              plim__matrix_t *dx)
{
    const size_t bytes = (size_t)dout->width * sizeof(float);
    backward_t backward = {
        .split = plim__work_split_make(reverse->indptr, hop->num_src, plim__work_split_cost(bytes)),
        .sums = {.indptr = reverse->indptr,
                 .indices = reverse->destinations,
                 .num_edges = hop->num_edges,
                 .num_self = hop->num_dst,
                 .inner = scales->dst,
                 .outer = scales->src,
                 .self = scales->self,
                 .x = dout,
                 .extra = droot,
                 .out = dx},
        .kernels = plim__kernels()};
    plim__team_run(team, backward.split.pieces, backward.split.cost, backward_piece, &backward);
}
