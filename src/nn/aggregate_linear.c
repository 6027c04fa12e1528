#include "nn/aggregate.h"
#include "nn/cut.h"
#include "nn/kernels.h"

typedef struct linear {
    plim__cut_t cut;
    plim__row_sums_t sums;
    const plim__kernels_t *kernels;
} linear_t;

static void linear_piece(void *context, int worker, int64_t piece)
{
    (void)worker;
    const linear_t *linear = context;
    linear->kernels->sum(&linear->sums, plim__cut_row(&linear->cut, piece),
                         plim__cut_row(&linear->cut, piece + 1));
}

static void linear_run(plim__team_t *team, int64_t rows, linear_t *linear)
{
    const plim__matrix_t *x = linear->sums.x;
    const size_t bytes = (size_t)x->width * plim__element_bytes(x->element);
    linear->cut = plim__cut_make(linear->sums.indptr, rows, plim__cut_cost(bytes));
    linear->kernels = plim__kernels();
    plim__team_run(team, linear->cut.pieces, linear->cut.cost, linear_piece, linear);
}

static plim__row_sums_t forward_sums(const plim__hop_t *hop, const plim__scales_t *scales,
                                     const plim__matrix_t *x, plim__matrix_t *out,
                                     plim__matrix_t *root)
{
    return (plim__row_sums_t){.indptr = hop->indptr,
                              .indices = hop->indices,
                              .num_edges = hop->num_edges,
                              .num_self = hop->num_dst,
                              .inner = scales->src,
                              .outer = scales->dst,
                              .self = scales->self,
                              .x = x,
                              .out = out,
                              .root = root};
}

void plim__aggregate_forward(plim__team_t *team, const plim__hop_t *hop,
                             const plim__scales_t *scales, const plim__matrix_t *x,
                             plim__matrix_t *out, plim__matrix_t *root)
{
    linear_t linear = {.sums = forward_sums(hop, scales, x, out, root)};
    linear_run(team, hop->num_dst, &linear);
}

void plim__aggregate_forward_rows(const plim__hop_t *hop, const plim__scales_t *scales,
                                  const plim__matrix_t *x, plim__matrix_t *out,
                                  plim__matrix_t *root, int64_t first, int64_t end)
{
    const plim__row_sums_t sums = forward_sums(hop, scales, x, out, root);
    plim__kernels()->sum(&sums, first, end);
}

void plim__aggregate_backward(plim__team_t *team, const plim__hop_t *hop,
                              const plim__reverse_t *reverse, const plim__scales_t *scales,
                              const plim__matrix_t *dout, const plim__matrix_t *droot,
                              plim__matrix_t *dx)
{
    linear_t linear = {.sums = {.indptr = reverse->indptr,
                                .indices = reverse->destinations,
                                .num_edges = hop->num_edges,
                                .num_self = hop->num_dst,
                                .inner = scales->dst,
                                .outer = scales->src,
                                .self = scales->self,
                                .x = dout,
                                .extra = droot,
                                .out = dx}};
    linear_run(team, hop->num_src, &linear);
}
