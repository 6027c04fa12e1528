/* Sums and maxima over the neighbours of a hop, and their gradients: the kernels of nn/kernels.h
 * divided among the team's threads. */
#include "nn/aggregate.h"

#include "base/check.h"
#include "nn/kernels.h"

#include <math.h>
#include <stdbool.h>
#include <string.h>

/* Time of a task: much longer than handing it out, much shorter than the whole. */
#define TASK_NANOSECONDS 40000.0

#define BYTES_PER_NANOSECOND 20.0
#define EDGE_NANOSECONDS 3.0

double plim__work_split_cost(size_t bytes)
{
    return EDGE_NANOSECONDS + (double)bytes / BYTES_PER_NANOSECOND;
}

plim__work_split_t plim__work_split_make(const int32_t *indptr, int64_t rows, double unit)
{
    const int64_t total = indptr[rows] + rows;
    const int64_t weight = plim__max_i64(1, (int64_t)(TASK_NANOSECONDS / unit));
    const int64_t tasks = plim__max_i64(1, total / weight);
    const int64_t even = (total + tasks - 1) / tasks;
    return (plim__work_split_t){indptr, rows, even, tasks, (int64_t)((double)even * unit) + 1};
}

plim__work_split_t plim__work_split_ranges(const int32_t *indptr, int64_t rows, int64_t ranges,
                                           double unit)
{
    const int64_t weight = (indptr[rows] + rows + ranges - 1) / ranges;
    return (plim__work_split_t){indptr, rows, weight, ranges, (int64_t)((double)weight * unit)};
}

int64_t plim__work_split_row(const plim__work_split_t *split, int64_t task)
{
    if (task >= split->tasks)
        return split->rows;
    const int64_t wanted = task * split->weight;
    int64_t low = 0, high = split->rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (split->indptr[middle] + middle < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/*
 * A counting sort. The offsets start as the ends of the sources' lists and are counted down while
 * the edges are placed, from the last to the first. In the end they are the beginnings, and each
 * list ascends.
 */
void plim__reverse_make(const plim__edges_t *hop, plim__reverse_t *reverse)
{
    int32_t *indptr = reverse->indptr;
    memset(indptr, 0, ((size_t)hop->num_src + 1) * sizeof indptr[0]);
    for (int64_t e = 0; e < hop->num_edges; e++)
        indptr[hop->indices[e]]++;
    int32_t total = 0;
    for (int64_t u = 0; u <= hop->num_src; u++) {
        total += indptr[u];
        indptr[u] = total;
    }
    for (int64_t v = hop->num_dst - 1; v >= 0; v--) {
        for (int64_t e = (int64_t)hop->indptr[v + 1] - 1; e >= hop->indptr[v]; e--) {
            const int32_t at = --indptr[hop->indices[e]];
            reverse->edges[at] = (int32_t)e;
            reverse->destinations[at] = (int32_t)v;
        }
    }
}

void plim__scales_gcn(const plim__edges_t *hop, const int32_t *degrees, int64_t fanout, float *src,
                      float *dst, float *self)
{
    plim__kernels()->scales_gcn(hop->indptr, degrees, fanout > 0 ? fanout : INT32_MAX, hop->num_dst,
                                hop->num_src, src, dst, self);
}

float plim__weight_sum_drawn(float sum, int64_t degree, int64_t fanout)
{
    if (fanout <= 0 || degree <= fanout)
        return sum;
    return 1.0f + (sum - 1.0f) * ((float)fanout / (float)degree);
}

float plim__weight_sum_scale(float sum)
{
    return sum == 0 ? 0.0f : 1.0f / sqrtf(sum);
}

void plim__scales_gcn_weighted(const plim__edges_t *hop, const float *weights, const float *sums,
                               const int32_t *degrees, int64_t fanout, float *edge, float *src,
                               float *dst, float *self)
{
    for (int64_t u = 0; sums != NULL && u < hop->num_src; u++)
        src[u] = plim__weight_sum_scale(plim__weight_sum_drawn(sums[u], degrees[u], fanout));
    for (int64_t v = 0; v < hop->num_dst; v++) {
        const int64_t begin = hop->indptr[v], end = hop->indptr[v + 1];
        float sum = 0, own = 1;
        for (int64_t e = begin; e < end; e++) {
            const bool loop = hop->indices[e] == v;
            own = loop ? weights[e] : own;
            edge[e] = loop ? 0.0f : weights[e];
            sum += edge[e];
        }
        sum += own;
        dst[v] = plim__weight_sum_scale(sum);
        if (sums == NULL)
            src[v] = dst[v];
        else if (fanout > 0 && end - begin > fanout && sum != 0)
            dst[v] = sqrtf(plim__weight_sum_drawn(sums[v], degrees[v], fanout)) / sum;
        self[v] = own * dst[v] * src[v];
    }
}

void plim__scales_mean(const plim__edges_t *hop, float *dst)
{
    plim__kernels()->scales_mean(hop->indptr, hop->num_dst, dst);
}

void plim__aggregate_forward_rows(const plim__edges_t *hop, const plim__scales_t *scales,
                                  const plim__matrix_t *x, plim__matrix_t *out,
                                  plim__matrix_t *root, int64_t first, int64_t end)
{
    const plim__row_sums_t sums = {.indptr = hop->indptr,
                                   .indices = hop->indices,
                                   .num_edges = hop->num_edges,
                                   .num_self = hop->num_dst,
                                   .weights = scales->edge,
                                   .mix = scales->mix,
                                   .inner = scales->src,
                                   .outer = scales->dst,
                                   .self = scales->self,
                                   .x = x,
                                   .out = out,
                                   .root = root};
    plim__kernels()->sum(&sums, first, end);
}

/* Arguments of a backward pass, by source along the reversed hop: of sums, or of maxima. */
typedef struct aggregate_backward {
    plim__work_split_t split;
    plim__row_sums_t sums;
    plim__row_max_back_t max;
    const plim__kernels_t *kernels;
} aggregate_backward_t;

static void sum_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const aggregate_backward_t *backward = context;
    backward->kernels->sum(&backward->sums, plim__work_split_row(&backward->split, task),
                           plim__work_split_row(&backward->split, task + 1));
}

static void max_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const aggregate_backward_t *backward = context;
    backward->kernels->max_back(&backward->max, plim__work_split_row(&backward->split, task),
                                plim__work_split_row(&backward->split, task + 1));
}

void plim__aggregate_backward(plim__team_t *team, const plim__edges_t *hop,
                              const plim__reverse_t *reverse, const plim__scales_t *scales,
                              const plim__matrix_t *dout, const plim__matrix_t *droot,
                              plim__matrix_t *dx)
{
    const size_t bytes = (size_t)dout->width * sizeof(float);
    aggregate_backward_t backward = {
        .split = plim__work_split_make(reverse->indptr, hop->num_src, plim__work_split_cost(bytes)),
        .sums = {.indptr = reverse->indptr,
                 .indices = reverse->destinations,
                 .num_edges = hop->num_edges,
                 .num_self = hop->num_dst,
                 .weights = scales->edge,
                 .edges = reverse->edges,
                 .mix = scales->mix,
                 .inner = scales->dst,
                 .outer = scales->src,
                 .self = scales->self,
                 .x = dout,
                 .extra = droot,
                 .out = dx},
        .kernels = plim__kernels()};
    plim__team_run(team, backward.split.tasks, backward.split.cost, sum_task, &backward);
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
    aggregate_backward_t backward = {
        .split = plim__work_split_make(reverse->indptr, hop->num_src, plim__work_split_cost(bytes)),
        .max = {.indptr = reverse->indptr,
                .edges = reverse->edges,
                .destinations = reverse->destinations,
                .num_self = hop->num_dst,
                .chosen = chosen,
                .dout = dout,
                .droot = droot,
                .dx = dx},
        .kernels = plim__kernels()};
    plim__team_run(team, backward.split.tasks, backward.split.cost, max_task, &backward);
}
