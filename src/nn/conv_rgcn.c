/*
 * R-GCN with bases: the mean over the neighbours of each relation r times the sum over bases b of
 * comp[r, b] V_b, and the node's own row times a root weight. The factors are applied to the edges:
 * x has the sum of each basis side by side, then the own row, and one product has all V_b and the
 * root.
 */
#include "nn/model_internal.h"

#include "nn/kernels.h"
#include "nn/vector.h"

#include <string.h>

/* Partial sums of comp's gradient. */
#define RANGES 16

static int64_t bases_of(const plim__model_t *model)
{
    return model->params.columns.bases;
}

static void parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
{
    const int64_t in = layer->in, out = layer->out;
    const int64_t bases = bases_of(model), types = model->params.columns.edge_types;
    layer->product[0] = (plim__linear_t){.in = plim__mul_saturating_i64(bases + 1, in),
                                         .out = out,
                                         .num_weights = (int)bases + 1,
                                         .transposed = true};
    layer->product[0].weight[0] = plim__table_add(table, plim__initial_glorot(in, out), "convs",
                                                  layer->index, "weight", bases, in, out);
    layer->comp = plim__table_add(table, plim__initial_glorot(types, bases), "convs", layer->index,
                                  "comp", types, bases, 0);
    layer->product[0].weight[1] = plim__table_add(table, plim__initial_glorot(in, out), "convs",
                                                  layer->index, "root", in, out, 0);
    layer->after.bias =
        plim__table_add(table, (plim__initial_t){0}, "convs", layer->index, "bias", out, 0, 0);
}

static void place(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *workspace)
{
    const int64_t width = layer->product[0].in;
    layer->scale_edge =
        plim__place_floats(workspace, plim__side_kept(model, layer), layer->hop.num_edges, 1);
    layer->x = plim__place_matrix(workspace, plim__side_x(model, layer), layer->rows, width,
                                  model->element);
    layer->counts = plim__place_floats(workspace, plim__side_temporary(model, layer),
                                       model->params.workers, model->params.columns.edge_types);
}

typedef struct means {
    const plim__layer_t *layer;
    int64_t types;
    plim__work_split_t split;
} means_t;

/* Each edge's share of the mean of its relation. */
static void means_task(void *context, int worker, int64_t task)
{
    const means_t *means = context;
    const plim__edges_t *hop = &means->layer->hop;
    const int64_t *types = means->layer->edges.types;
    float *counts = means->layer->counts + worker * means->types;
    const int64_t last = plim__work_split_row(&means->split, task + 1);
    for (int64_t v = plim__work_split_row(&means->split, task); v < last; v++) {
        for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++)
            counts[types[e]] = 0;
        for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++)
            counts[types[e]]++;
        for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++)
            means->layer->scale_edge[e] = 1 / counts[types[e]];
    }
}

static void prepare(plim__model_t *model, plim__layer_t *layer)
{
    means_t means = {layer, model->params.columns.edge_types,
                     plim__work_split_make(layer->hop.indptr, layer->hop.num_dst, 4)};
    plim__team_run(model->team, means.split.tasks, means.split.cost, means_task, &means);
    plim__model_lap(model, &model->sparse_ns);
}

static plim__scales_t scales_of(const plim__model_t *model, const plim__layer_t *layer)
{
    return (plim__scales_t){.edge = layer->scale_edge,
                            .mix = {.types = layer->edges.types,
                                    .factors = layer->comp->value,
                                    .pitch = bases_of(model),
                                    .bases = bases_of(model)}};
}

static void rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                 int64_t end)
{
    const int64_t bases = bases_of(model), in = layer->in;
    plim__matrix_t root = plim__matrix_columns(x, bases * in, in);
    plim__scales_t scales = scales_of(model, layer);
    scales.mix.bases = 1;
    for (int64_t b = 0; b < bases; b++, scales.mix.factors++) {
        plim__matrix_t sum = plim__matrix_columns(x, b * in, in);
        plim__aggregate_forward_rows(&layer->hop, &scales, &layer->input, &sum,
                                     b == 0 ? &root : NULL, first, end);
    }
}

static void place_back(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace)
{
    const plim__side_t side = plim__side_back(layer);
    const int64_t factors =
        plim__mul_saturating_i64(model->params.columns.edge_types, bases_of(model));
    plim__place_sum_back(model, layer, workspace);
    const size_t begin = workspace->used[side];
    layer->term_scratch =
        plim__place_floats(workspace, side, RANGES, plim__add_saturating_i64(factors, layer->in));
    workspace->used[side] = begin;
}

typedef struct comp_backward {
    const plim__model_t *model;
    const plim__layer_t *layer;
    plim__work_split_t split;
} comp_backward_t;

/* Row u of the input, as floats. */
static const float *input_row(const plim__layer_t *layer, int64_t u, float *copy)
{
    plim__matrix_t from = layer->input;
    from.data = (char *)from.data + (size_t)(u * from.stride) * plim__element_bytes(from.element);
    if (from.element == PLIM__F32)
        return from.data;
    plim__matrix_t to = plim__matrix_make(copy, 1, layer->in, PLIM__F32);
    plim__matrix_convert_rows(&from, &to, 0, 1);
    return copy;
}

/* The range's share of comp's gradient: of an edge of relation r, its share of the mean times
 * x[u]·dx[v] of each basis. */
static void comp_range(void *context, int worker, int64_t range)
{
    (void)worker;
    const comp_backward_t *backward = context;
    const plim__layer_t *layer = backward->layer;
    const plim__edges_t *hop = &layer->hop;
    const int64_t bases = bases_of(backward->model);
    const int64_t factors = backward->model->params.columns.edge_types * bases;
    float *partial = layer->term_scratch + range * (factors + layer->in);
    memset(partial, 0, (size_t)factors * sizeof *partial);
    const int64_t last = plim__work_split_row(&backward->split, range + 1);
    for (int64_t v = plim__work_split_row(&backward->split, range); v < last; v++) {
        const float *dx = (const float *)layer->dx.data + v * layer->dx.stride;
        for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
            const float *x = input_row(layer, hop->indices[e], partial + factors);
            float *sums = partial + layer->edges.types[e] * bases;
            for (int64_t b = 0; b < bases; b++) {
                float product;
                plim__kernels()->dots(1, layer->in, x, dx + b * layer->in, &product);
                sums[b] += layer->scale_edge[e] * product;
            }
        }
    }
}

static void comp_gradient(plim__model_t *model, plim__layer_t *layer)
{
    const int64_t bases = bases_of(model);
    const int64_t factors = model->params.columns.edge_types * bases;
    const double unit = plim__work_split_cost((size_t)(layer->in * bases) * sizeof(float));
    comp_backward_t backward = {
        model, layer, plim__work_split_ranges(layer->hop.indptr, layer->hop.num_dst, RANGES, unit)};
    plim__team_run(model->team, RANGES, backward.split.cost, comp_range, &backward);
    for (int64_t range = 0; range < RANGES; range++)
        plim__vector_add(layer->comp->gradient, layer->term_scratch + range * (factors + layer->in),
                         factors);
}

static void backward(plim__model_t *model, plim__layer_t *layer)
{
    plim__linear_backward(model, &layer->product[0], &layer->dy, plim__layer_x(model, layer),
                          layer->dx.data);
    comp_gradient(model, layer);
    if (!layer->raw) {
        const int64_t in = layer->in;
        const plim__matrix_t dsum = plim__matrix_columns(&layer->dx, 0, in);
        plim__matrix_t droot = plim__matrix_columns(&layer->dx, bases_of(model) * in, in);
        plim__matrix_t dinput = plim__matrix_make(layer->dinput, layer->hop.num_src, in, PLIM__F32);
        const plim__scales_t scales = scales_of(model, layer);
        if (layer->residual) {
            const plim__matrix_t residual =
                plim__matrix_make(layer->dresidual, layer->rows, layer->out, PLIM__F32);
            plim__matrix_add(model->team, &residual, &droot);
        }
        plim__reverse_make(&layer->hop, &layer->reverse);
        plim__aggregate_backward(model->team, &layer->hop, &layer->reverse, &scales, &dsum, &droot,
                                 &dinput);
    }
    plim__model_lap(model, &model->sparse_ns);
}

const plim__conv_t plim__conv_rgcn = {.parameters = parameters,
                                      .place = place,
                                      .prepare = prepare,
                                      .rows = rows,
                                      .place_back = place_back,
                                      .backward = backward};
