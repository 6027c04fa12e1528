#include "nn/pooling.h"

#include "nn/bf16.h"
#include "nn/vector.h"

#include <string.h>

typedef struct pooling {
    plim_pool_t pool;
    int64_t num_graphs, graphs_per_task;
    int64_t width;
    const int32_t *graph_indptr;
    const plim__matrix_t *x; /* forward */
    float *out;
    int32_t *chosen;
    const int32_t *chosen_before; /* backward */
    const float *dout;
    plim__matrix_t *dx;
} pooling_t;

PLIM__KERNEL void add_row(const plim__matrix_t *x, int64_t row, float *restrict sum)
{
    const int64_t at = row * x->stride;
    if (x->element == PLIM__F32) {
        const float *from = (const float *)x->data + at;
        for (int64_t i = 0; i < x->width; i++)
            sum[i] += from[i];
    } else {
        const uint16_t *from = (const uint16_t *)x->data + at;
        for (int64_t i = 0; i < x->width; i++)
            sum[i] += plim__f32_from_bf16(from[i]);
    }
}

/* The first of equals is chosen; a NaN counts as larger than all, as in PyTorch. */
PLIM__KERNEL void choose_row(const plim__matrix_t *x, int64_t row, float *restrict largest,
                             int32_t *restrict chosen)
{
    const int64_t at = row * x->stride;
    for (int64_t i = 0; i < x->width; i++) {
        const float v = x->element == PLIM__F32
                            ? ((const float *)x->data)[at + i]
                            : plim__f32_from_bf16(((const uint16_t *)x->data)[at + i]);
        const bool more = v > largest[i] || (v != v && largest[i] == largest[i]) || chosen[i] < 0;
        largest[i] = more ? v : largest[i];
        chosen[i] = more ? (int32_t)row : chosen[i];
    }
}

PLIM__KERNEL void forward_graphs_body(const pooling_t *pooling, int64_t begin, int64_t end)
{
    const int64_t width = pooling->width;
    for (int64_t graph = begin; graph < end; graph++) {
        const int64_t first = pooling->graph_indptr[graph];
        const int64_t last = pooling->graph_indptr[graph + 1];
        float *out = pooling->out + graph * width;
        memset(out, 0, (size_t)width * sizeof *out);
        if (pooling->pool == PLIM_POOL_MAX) {
            int32_t *chosen = pooling->chosen + graph * width;
            memset(chosen, 0xff, (size_t)width * sizeof *chosen);
            for (int64_t row = first; row < last; row++)
                choose_row(pooling->x, row, out, chosen);
            continue;
        }
        for (int64_t row = first; row < last; row++)
            add_row(pooling->x, row, out);
        if (pooling->pool == PLIM_POOL_MEAN && last > first)
            for (int64_t i = 0; i < width; i++)
                out[i] /= (float)(last - first);
    }
}

PLIM__VECTORISED(forward_graphs, (const pooling_t *pooling, int64_t begin, int64_t end),
                 (pooling, begin, end))

PLIM__KERNEL void backward_graphs_body(const pooling_t *pooling, int64_t begin, int64_t end)
{
    const int64_t width = pooling->width, stride = pooling->dx->stride;
    for (int64_t graph = begin; graph < end; graph++) {
        const int64_t first = pooling->graph_indptr[graph];
        const int64_t last = pooling->graph_indptr[graph + 1];
        const float *restrict dout = pooling->dout + graph * width;
        const float share = pooling->pool == PLIM_POOL_MEAN ? (float)(last - first) : 1.0f;
        for (int64_t row = first; row < last; row++) {
            float *restrict dx = (float *)pooling->dx->data + row * stride;
            if (pooling->pool == PLIM_POOL_MAX) {
                const int32_t *restrict chosen = pooling->chosen_before + graph * width;
                for (int64_t i = 0; i < width; i++)
                    dx[i] = chosen[i] == (int32_t)row ? dout[i] : 0.0f;
            } else {
                for (int64_t i = 0; i < width; i++)
                    dx[i] = dout[i] / share;
            }
        }
    }
}

PLIM__VECTORISED(backward_graphs, (const pooling_t *pooling, int64_t begin, int64_t end),
                 (pooling, begin, end))

static void pool_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const pooling_t *pooling = context;
    const int64_t begin = task * pooling->graphs_per_task;
    const int64_t end = plim__min_i64(pooling->num_graphs, begin + pooling->graphs_per_task);
    if (pooling->dx != NULL)
        backward_graphs(pooling, begin, end);
    else
        forward_graphs(pooling, begin, end);
}

static void pool_run(plim__team_t *team, pooling_t *pooling)
{
    if (pooling->num_graphs == 0 || pooling->width == 0)
        return;
    const int64_t nodes = pooling->graph_indptr[pooling->num_graphs];
    const int64_t values = (nodes / pooling->num_graphs + 1) * pooling->width; /* of one graph */
    pooling->graphs_per_task = 16384 / values + 1;
    const int64_t tasks = (pooling->num_graphs - 1) / pooling->graphs_per_task + 1;
    plim__team_run(team, tasks, pooling->graphs_per_task * values / 4, pool_task, pooling);
}

void plim__pooling_forward(plim__team_t *team, plim_pool_t pool, int64_t num_graphs,
                           const int32_t *graph_indptr, const plim__matrix_t *x, float *out,
                           int32_t *chosen)
{
    pooling_t pooling = {.pool = pool,
                         .num_graphs = num_graphs,
                         .width = x->width,
                         .graph_indptr = graph_indptr,
                         .x = x,
                         .out = out,
                         .chosen = chosen};
    pool_run(team, &pooling);
}

void plim__pooling_backward(plim__team_t *team, plim_pool_t pool, int64_t num_graphs,
                            const int32_t *graph_indptr, const int32_t *chosen, const float *dout,
                            plim__matrix_t *dx)
{
    pooling_t pooling = {.pool = pool,
                         .num_graphs = num_graphs,
                         .width = dx->width,
                         .graph_indptr = graph_indptr,
                         .chosen_before = chosen,
                         .dout = dout,
                         .dx = dx};
    pool_run(team, &pooling);
}
