/* A model's layers as exact evaluation computes them, from its parameters by PyG's names. */
#include "infer/exact_internal.h"

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

/* The table of parameters. Without one only the layer's shape is needed: every parameter is
 * found. */
typedef struct parameter_source {
    const plim__parameter_t *parameters; /* NULL: shape only */
    int count;
    plim_status_t status; /* error for the first parameter that is missing */
} parameter_source_t;

static const float unread; /* represents every parameter of a shape */

/* The values of a parameter of `count` elements, by the parts of its name. */
static const float *find(parameter_source_t *source, const char *list, int index, const char *rest,
                         int64_t count)
{
    char name[PLIM__NAME_MAX];
    if (source->parameters == NULL)
        return &unread;
    (void)snprintf(name, sizeof name, "%s.%d.%s", list, index, rest);
    for (int i = 0; i < source->count; i++)
        if (strcmp(source->parameters[i].name, name) == 0 && source->parameters[i].count == count)
            return source->parameters[i].value;
    if (source->status == PLIM_OK)
        source->status = plim__fail(PLIM_ERR_USAGE,
                                    "the weights hold no %s of %lld values; they belong to another "
                                    "model",
                                    name, (long long)count);
    return NULL;
}

/* Norm and activation, under `list`.`index`.`prefix`. */
static void find_norm(parameter_source_t *source, const plim_model_t *model, const char *list,
                      int index, const char *prefix, plim__epilogue_t *epilogue)
{
    static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
    /* PyG wraps torch's batch norm in a module of its own, and has a layer norm itself. */
    const char *module = model->norm == PLIM_NORM_BATCH ? "module." : "";
    const int wanted = model->norm == PLIM_NORM_BATCH ? 4 : model->norm == PLIM_NORM_LAYER ? 2 : 0;
    const float *found[4] = {NULL};
    for (int i = 0; i < wanted; i++) {
        char rest[PLIM__NAME_MAX];
        (void)snprintf(rest, sizeof rest, "%s%s%s", prefix, module, names[i]);
        found[i] = find(source, list, index, rest, epilogue->width);
    }
    epilogue->norm = model->norm;
    epilogue->activation = model->activation;
    epilogue->gamma = found[0];
    epilogue->beta = found[1];
    epilogue->running_mean = (float *)(uintptr_t)found[2]; /* only read outside training */
    epilogue->running_var = (float *)(uintptr_t)found[3];
}

static void make_linear(parameter_source_t *source, int index, plim__exact_layer_t *layer)
{
    layer->root = find(source, "lins", index, "weight", layer->out * layer->in);
    layer->epilogue.bias = find(source, "lins", index, "bias", layer->out);
}

/* Places a weight (out, in) before or after the aggregation. */
static void place_weight(plim__exact_layer_t *layer, const float *weight, bool linear)
{
    if (linear && layer->out <= layer->in) {
        layer->front = weight;
        layer->wide = layer->out;
    } else {
        layer->behind = weight;
        layer->wide = layer->in;
    }
}

static void make_gcn(parameter_source_t *source, bool weighted, int index,
                     plim__exact_layer_t *layer)
{
    layer->scale = weighted ? PLIM__EXACT_GCN_WEIGHTED : PLIM__EXACT_GCN;
    layer->aggregate = weighted ? PLIM__STREAM_AGGREGATE_WEIGHTED : PLIM__STREAM_AGGREGATE_SUM;
    layer->self = true;
    layer->skips_loops = weighted;
    layer->epilogue.bias = find(source, "convs", index, "bias", layer->out);
    place_weight(layer, find(source, "convs", index, "lin.weight", layer->out * layer->in), true);
}

static void make_sage(parameter_source_t *source, const plim_model_t *model, int index,
                      plim__exact_layer_t *layer)
{
    const bool max = model->aggregation == PLIM_MAX;
    layer->aggregate = max ? PLIM__STREAM_AGGREGATE_MAX : PLIM__STREAM_AGGREGATE_SUM;
    layer->scale = model->aggregation == PLIM_MEAN ? PLIM__EXACT_MEAN : PLIM__EXACT_PLAIN;
    layer->epilogue.bias = find(source, "convs", index, "lin_l.bias", layer->out);
    layer->root = find(source, "convs", index, "lin_r.weight", layer->out * layer->in);
    place_weight(layer, find(source, "convs", index, "lin_l.weight", layer->out * layer->in), !max);
}

/* The terms of edges: a linear layer of this name, or embeddings, whose tables are one behind the
 * other. */
static void find_terms(parameter_source_t *source, const plim__columns_t *columns, int index,
                       const char *linear, bool bias, plim__exact_layer_t *layer)
{
    const plim__categories_t *categories = &columns->edge_categories;
    char rest[PLIM__NAME_MAX];
    if (categories->columns > 0) {
        for (int c = 0; c < categories->columns; c++)
            layer->term_rows += categories->counts[c];
        layer->term_weight =
            find(source, "convs", index, "bond_encoder.bond_embedding_list.0.weight",
                 categories->counts[0] * layer->term_width);
        return;
    }
    layer->term_rows = columns->edge_features;
    (void)snprintf(rest, sizeof rest, "%s.weight", linear);
    layer->term_weight =
        find(source, "convs", index, rest,
             columns->edge_features * (layer->att_edge != NULL ? layer->wide : layer->term_width));
    (void)snprintf(rest, sizeof rest, "%s.bias", linear);
    if (bias)
        layer->term_bias = find(source, "convs", index, rest, layer->term_width);
}

static void make_gin(parameter_source_t *source, const plim_model_t *model,
                     const plim__columns_t *columns, int index, plim__exact_layer_t *layer)
{
    const bool linear = model->kind == PLIM_GIN;
    layer->self = true;
    layer->last =
        layer->epilogue; /* the layer's own norm and activation follow the second product */
    layer->epilogue = (plim__epilogue_t){.width = layer->out};
    find_norm(source, model, "convs", index, "nn.norms.0.", &layer->epilogue);
    layer->epilogue.bias = find(source, "convs", index, "nn.lins.0.bias", layer->out);
    layer->last.bias = find(source, "convs", index, "nn.lins.1.bias", layer->out);
    layer->second = find(source, "convs", index, "nn.lins.1.weight", layer->out * layer->out);
    const float *weight = find(source, "convs", index, "nn.lins.0.weight", layer->out * layer->in);
    place_weight(layer, weight, linear);
    if (!linear) {
        layer->aggregate = PLIM__STREAM_AGGREGATE_RELU;
        layer->term_width = layer->in;
        find_terms(source, columns, index, "lin", true, layer);
    }
    /* The node's own row has weight 1 + epsilon: the aggregation adds it once, `root` adds epsilon
     * times it. Epsilon is normally 0; then there is no second product. */
    const float *epsilon = find(source, "convs", index, "eps", 1);
    if (source->parameters == NULL || (epsilon != NULL && *epsilon != 0.0f))
        layer->root = weight;
    layer->root_scale = epsilon != NULL ? *epsilon : 0.0f;
}

static void make_gat(parameter_source_t *source, const plim_model_t *model,
                     const plim__columns_t *columns, int index, bool last,
                     plim__exact_layer_t *layer)
{
    const bool v2 = model->kind == PLIM_GATV2;
    layer->aggregate = v2 ? PLIM__STREAM_AGGREGATE_ATTENTION_V2 : PLIM__STREAM_AGGREGATE_ATTENTION;
    layer->self = true;
    layer->skips_loops = true;
    layer->heads = model->heads;
    layer->channels = last ? layer->out : layer->out / model->heads;
    layer->mean_of_heads = last && layer->heads > 1;
    layer->wide = layer->heads * layer->channels;
    const int64_t values = layer->wide * layer->in;
    layer->epilogue.bias = find(source, "convs", index, "bias", layer->out);
    if (v2) {
        layer->front = find(source, "convs", index, "lin_l.weight", values);
        layer->front_bias = find(source, "convs", index, "lin_l.bias", layer->wide);
        layer->front_dst = find(source, "convs", index, "lin_r.weight", values);
        layer->dst_bias = find(source, "convs", index, "lin_r.bias", layer->wide);
        layer->att_src = find(source, "convs", index, "att", layer->wide);
    } else {
        layer->front = find(source, "convs", index, "lin.weight", values);
        layer->att_src = find(source, "convs", index, "att_src", layer->wide);
        layer->att_dst = find(source, "convs", index, "att_dst", layer->wide);
    }
    if (columns->edge_features == 0)
        return;
    if (!v2)
        layer->att_edge = find(source, "convs", index, "att_edge", layer->wide);
    layer->term_width = v2 ? layer->wide : layer->heads;
    find_terms(source, columns, index, "lin_edge", false, layer);
}

static void make_rgcn(parameter_source_t *source, const plim__columns_t *columns, int index,
                      plim__exact_layer_t *layer)
{
    const int64_t bases = columns->bases;
    layer->aggregate = PLIM__STREAM_AGGREGATE_TYPED;
    layer->heads = (int)bases;
    layer->channels = layer->in;
    layer->wide = bases * layer->in;
    layer->transposed = true;
    layer->behind = find(source, "convs", index, "weight", layer->wide * layer->out);
    layer->root = find(source, "convs", index, "root", layer->in * layer->out);
    layer->comp = find(source, "convs", index, "comp", columns->edge_types * bases);
    layer->epilogue.bias = find(source, "convs", index, "bias", layer->out);
}

static void make(parameter_source_t *source, const plim_model_t *model,
                 const plim__columns_t *columns, int64_t num_features, int64_t num_outputs,
                 int index, plim__exact_layer_t *layer)
{
    const bool last = index == model->num_layers - 1;
    memset(layer, 0, sizeof *layer);
    layer->in = index == 0 ? plim__model_input(model, columns, num_features) : model->hidden;
    layer->out = last ? num_outputs : model->hidden;
    layer->inner = layer->out;
    layer->root_scale = 1.0f;
    layer->aggregates = model->kind != PLIM_MLP;
    layer->epilogue.width = layer->out;
    layer->residual = model->residual && layer->in == layer->out;
    if (!last)
        find_norm(source, model, "norms", index, "", &layer->epilogue);
    switch (model->kind) {
    case PLIM_MLP:
        make_linear(source, index, layer);
        break;
    case PLIM_GCN:
        make_gcn(source, columns->edge_weights, index, layer);
        break;
    case PLIM_SAGE:
        make_sage(source, model, index, layer);
        break;
    case PLIM_GAT:
    case PLIM_GATV2:
        make_gat(source, model, columns, index, last, layer);
        break;
    case PLIM_GIN:
    case PLIM_GINE:
        make_gin(source, model, columns, index, layer);
        break;
    case PLIM_RGCN:
        make_rgcn(source, columns, index, layer);
        break;
    }
}

plim_status_t plim__exact_layer_make(const plim_model_t *model, const plim__columns_t *columns,
                                     int64_t num_features, int64_t num_outputs,
                                     const plim__parameter_t *parameters, int count, int index,
                                     plim__exact_layer_t *layer_out)
{
    parameter_source_t source = {parameters, count, PLIM_OK};
    plim__exact_layer_t layer;
    make(&source, model, columns, num_features, num_outputs, index, &layer);
    if (source.status == PLIM_OK)
        *layer_out = layer;
    return source.status;
}

plim_status_t plim__exact_embedding(const plim_model_t *model, const plim__columns_t *columns,
                                    const plim__parameter_t *parameters, int count,
                                    const float **embedding_out)
{
    parameter_source_t source = {parameters, count, PLIM_OK};
    if (columns->node_categories.columns > 0)
        *embedding_out = find(&source, "atom_encoder.atom_embedding_list", 0, "weight",
                              columns->node_categories.counts[0] * model->hidden);
    return source.status;
}

void plim__exact_layers_shape(const plim_dataset_info_t *info, const plim_model_t *model,
                              const plim__columns_t *columns, int64_t num_outputs, bool embeddings,
                              int *num_layers_out, plim__exact_layer_t *layers_out)
{
    parameter_source_t source = {NULL, 0, PLIM_OK};
    const int count = model->num_layers - (embeddings ? 1 : 0);
    for (int i = 0; i < count; i++)
        make(&source, model, columns, info->num_features, num_outputs, i, &layers_out[i]);
    const int64_t in = plim__model_input(model, columns, info->num_features);
    if (count == 0) /* the embeddings of a model of one layer are its input itself */
        layers_out[0] =
            (plim__exact_layer_t){.in = in, .out = in, .inner = in, .epilogue = {.width = in}};
    *num_layers_out = count > 0 ? count : 1;
}
