/*
 * The tensors of one training step, or of one evaluated batch, in PyTorch Geometric: followed layer
 * by layer, forward and back.
 */
#include "pyg/pyg_internal.h"

#include <math.h>

/* glibc's malloc maps larger blocks one by one, and unmaps them when they are freed. */
#define MAPPED_FROM (32.0 * 1024 * 1024)

/*
 * `kept` adds up the tensors that autograd keeps for the backward pass; note() takes the maximum
 * over moments, short-lived tensors included. Messages have a row for each edge; GCN and GAT add
 * one for each node, its self-loop.
 */
typedef struct step_walk {
    double nodes, edges;
    double wide, narrow; /* bytes of a value: float32, and of a matrix product's result */
    double below;        /* count only tensors of fewer bytes */
    bool gradients;
    double kept;
    double most;
} step_walk_t;

/* One layer's shape. */
typedef struct step_layer {
    plim_model_kind_t kind;
    double in, out; /* channels of its rows before and after; GAT's heads together */
    double heads;
    bool first;
    double in_size; /* bytes of a value of its input */
    double terms;   /* matrices of a row for each edge and its input's width that GINE keeps */
    double sums;    /* means of the neighbours that R-GCN keeps, one for each type of edges */
    double own;     /* bytes that autograd keeps until the layer's backward pass is done */
    double after;   /* the same for norm, activation and dropout behind it */
} step_layer_t;

/* GAT and GATv2, whose heads share the channels. */
static bool attends(plim_model_kind_t kind)
{
    return kind == PLIM_GAT || kind == PLIM_GATV2;
}

static double rows(const step_walk_t *walk, double count, double channels, double size)
{
    const double bytes = count * channels * size;
    return bytes < walk->below ? bytes : 0;
}

static void note(step_walk_t *walk, double moment)
{
    walk->most = fmax(walk->most, walk->kept + moment);
}

static void keep(step_walk_t *walk, step_layer_t *layer, double bytes)
{
    if (!walk->gradients)
        return;
    walk->kept += bytes;
    layer->own += bytes;
}

/* Autocast makes a narrow copy of a matrix product's input. */
static void cast(step_walk_t *walk, step_layer_t *layer)
{
    if (walk->narrow < layer->in_size)
        keep(walk, layer, rows(walk, walk->nodes, layer->in, walk->narrow));
}

/* Projection, gathered messages, weighted messages, their sum. */
static void forward_gcn(step_walk_t *walk, step_layer_t *layer)
{
    const double n = walk->nodes, m = n + walk->edges;
    cast(walk, layer);
    keep(walk, layer, rows(walk, m, 2, sizeof(int64_t)) + rows(walk, m, 1, walk->wide));
    note(walk, rows(walk, n, layer->out, walk->narrow) + rows(walk, n, layer->out, walk->wide) +
                   rows(walk, m, layer->out, walk->narrow) + rows(walk, m, layer->out, walk->wide));
}

/* Projection, scores, gathered messages (kept: the scores' gradient needs them), weighted messages,
 * their sum. GATv2 projects sources and targets by themselves and needs neither again; of each
 * message it also keeps the sum of both and its activation, from which scores follow. */
static void forward_gat(step_walk_t *walk, step_layer_t *layer)
{
    const bool v2 = layer->kind == PLIM_GATV2;
    const double n = walk->nodes, m = n + walk->edges;
    const double node = rows(walk, n, layer->out, walk->narrow);
    const double message = rows(walk, m, layer->out, walk->narrow);
    const double kept = v2 ? 3 * message : node + message;
    cast(walk, layer);
    keep(walk, layer,
         kept + rows(walk, m, 2, sizeof(int64_t)) + 6 * rows(walk, m, layer->heads, walk->wide));
    note(walk, (walk->gradients ? 0 : kept) + rows(walk, m, layer->out, walk->wide) +
                   (v2 ? 2 * node : rows(walk, n, layer->out, walk->wide)));
}

/* SAGE: gathered messages, their sum and mean, projection. GIN: messages, sum plus the own row,
 * projection. GINE: also what edges add to messages, and the sum's activation, which is kept.
 * R-GCN: the mean for each type of edges, which its weight's gradient needs. */
static void forward_sum(step_walk_t *walk, step_layer_t *layer)
{
    const double n = walk->nodes;
    const double in = rows(walk, n, layer->in, layer->in_size);
    const double out = rows(walk, n, layer->out, walk->narrow);
    const bool sage = layer->kind == PLIM_SAGE;
    const double message = rows(walk, walk->edges, layer->in, layer->in_size);
    keep(walk, layer, layer->terms * message + layer->sums * in);
    note(walk, message * (layer->terms > 0 ? 2 : 1) + 2 * in);
    keep(walk, layer, in + (sage ? 0 : out));
    cast(walk, layer);
    if (sage)
        cast(walk, layer);
    note(walk, sage ? 3 * out : 2 * out + (walk->gradients ? 0 : in));
}

static void forward(step_walk_t *walk, step_layer_t *layer)
{
    switch (layer->kind) {
    case PLIM_GCN:
        forward_gcn(walk, layer);
        break;
    case PLIM_GAT:
    case PLIM_GATV2:
        forward_gat(walk, layer);
        break;
    case PLIM_SAGE:
    case PLIM_GIN:
    case PLIM_GINE:
    case PLIM_RGCN:
        forward_sum(walk, layer);
        break;
    case PLIM_MLP:
        note(walk, 2 * rows(walk, walk->nodes, layer->out, walk->narrow));
        break;
    }
}

static void backward(step_walk_t *walk, const step_layer_t *layer)
{
    const double n = walk->nodes, e = walk->edges, m = n + e;
    const double in = rows(walk, n, layer->in, layer->in_size);
    const double out = rows(walk, n, layer->out, walk->wide);
    const double message = rows(walk, m, layer->out, walk->wide);
    walk->kept -= layer->after;
    if (layer->kind == PLIM_GCN)
        note(walk, out + 2 * message);
    else if (attends(layer->kind))
        note(walk, out + (layer->kind == PLIM_GATV2 ? 2 : 3) * message);
    note(walk, out + (layer->first ? 0 : 2 * in));
    walk->kept -= layer->own;
    /* The gradient of the input goes through the messages; features need none. */
    const bool sums = layer->kind == PLIM_SAGE || layer->kind == PLIM_GIN ||
                      layer->kind == PLIM_GINE || layer->kind == PLIM_RGCN;
    if (sums && (!layer->first || layer->terms > 0))
        note(walk, 2 * in + (1 + layer->terms) * rows(walk, e, layer->in, layer->in_size));
}

/* Norm, activation, dropout between layers; autograd keeps each one's result. */
static void between(step_walk_t *walk, step_layer_t *layer, const plim_model_t *model, double size)
{
    const double result = rows(walk, walk->nodes, layer->out, size);
    int results = 0;
    results += model->norm != PLIM_NORM_NONE;
    results += model->activation != PLIM_ACTIVATION_NONE;
    results += model->dropout > 0 && walk->gradients ? 2 : 0; /* and its mask */
    note(walk, 2 * result);
    layer->after = walk->gradients ? results * result : 0;
    walk->kept = walk->gradients ? walk->kept + layer->after : result;
}

static double walk_through(const plim_model_t *model, const double width[], double types,
                           double nodes, double edges, bool gradients, double below)
{
    step_walk_t walk = {.nodes = nodes,
                        .edges = edges,
                        .wide = sizeof(float),
                        .narrow = model->precision == PLIM_PRECISION_BF16 ? 2 : sizeof(float),
                        .below = below,
                        .gradients = gradients};
    step_layer_t layers[PLIM_HOPS_MAX] = {{0}};
    double size = sizeof(float);
    for (int i = 0; i < model->num_layers; i++) {
        const bool last = i + 1 == model->num_layers;
        const double heads = attends(model->kind) ? model->heads : 1;
        /* In the last layer of a GAT each head computes all outputs, and their mean is taken. */
        layers[i] = (step_layer_t){.kind = model->kind,
                                   .in = width[i],
                                   .out = width[i + 1] * (last ? heads : 1),
                                   .heads = heads,
                                   .first = i == 0,
                                   .terms = model->kind == PLIM_GINE,
                                   .sums = model->kind == PLIM_RGCN ? types : 0,
                                   .in_size = size};
        forward(&walk, &layers[i]);
        /* The result is float32 where wide weights multiply the messages. */
        size = model->kind == PLIM_GCN || attends(model->kind) ? walk.wide : walk.narrow;
        if (!last)
            between(&walk, &layers[i], model, size);
        else if (gradients)
            walk.kept += rows(&walk, nodes, width[i + 1], size);
    }
    for (int i = model->num_layers - 1; i >= 0 && gradients; i--)
        backward(&walk, &layers[i]);
    return walk.most;
}

static double layer_parameters(const plim_training_t *training, const plim_dataset_info_t *info,
                               double in, double out, double heads)
{
    const double features = (double)info->num_edge_features, types = (double)info->num_edge_types;
    const double bases = training->bases > 0 ? (double)training->bases : types;
    switch (training->model.kind) {
    case PLIM_SAGE:
        return 2 * in * out + out;
    case PLIM_GAT:
        return in * out * heads + 3 * out * heads;
    case PLIM_GATV2:
        return 2 * in * out * heads + 4 * out * heads;
    case PLIM_GIN:
        return in * out + out * out + 2 * out;
    case PLIM_GINE:
        return in * out + out * out + 2 * out + (features + 1) * in;
    case PLIM_RGCN:
        return (bases + 1) * in * out + types * bases + out;
    default:
        return in * out + out;
    }
}

unsigned pyg_columns(const plim_training_t *training)
{
    const plim_model_kind_t kind = training->model.kind;
    return kind == PLIM_GINE || (attends(kind) && training->edge_features) ? PLIM_EDGE_FEATURES
           : kind == PLIM_GCN && training->edge_weight                     ? PLIM_EDGE_WEIGHT
           : kind == PLIM_RGCN                                             ? PLIM_EDGE_TYPE
                                                                           : 0U;
}

pyg_step_t pyg_step(const plim_training_t *training, const plim_dataset_info_t *info,
                    int64_t num_outputs, double nodes, double edges)
{
    const plim_model_t *model = &training->model;
    const double types = (double)info->num_edge_types;
    const bool embeds = training->node_categories[0] > 0;
    double width[PLIM_HOPS_MAX + 1] = {0};
    pyg_step_t step = {0};
    for (int i = 0; i < PLIM_CATEGORIES_MAX; i++)
        step.parameters +=
            sizeof(float) * (double)training->node_categories[i] * (double)model->hidden;
    for (int i = 0; i <= model->num_layers; i++)
        width[i] = (double)(i == 0 && !embeds        ? info->num_features
                            : i == model->num_layers ? num_outputs
                                                     : model->hidden);
    for (int i = 0; i < model->num_layers; i++)
        step.parameters +=
            sizeof(float) * layer_parameters(training, info, width[i], width[i + 1],
                                             i + 1 == model->num_layers ? (double)model->heads : 1);
    step.train = walk_through(model, width, types, nodes, edges, true, INFINITY);
    step.evaluate = walk_through(model, width, types, nodes, edges, false, INFINITY);
    step.small = walk_through(model, width, types, nodes, edges, true, MAPPED_FROM);
    return step;
}
