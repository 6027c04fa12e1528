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

static void make_gcn(parameter_source_t *source, int index, plim__exact_layer_t *layer)
{
    layer->scale = PLIM__EXACT_GCN;
    layer->self = true;
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

static void make_gin(parameter_source_t *source, const plim_model_t *model, int index,
                     plim__exact_layer_t *layer)
{
    layer->self = true;
    layer->last =
        layer->epilogue; /* the layer's own norm and activation follow the second product */
    layer->epilogue = (plim__epilogue_t){.width = layer->out};
    find_norm(source, model, "convs", index, "nn.norms.0.", &layer->epilogue);
    layer->epilogue.bias = find(source, "convs", index, "nn.lins.0.bias", layer->out);
    layer->last.bias = find(source, "convs", index, "nn.lins.1.bias", layer->out);
    layer->second = find(source, "convs", index, "nn.lins.1.weight", layer->out * layer->out);
    const float *weight = find(source, "convs", index, "nn.lins.0.weight", layer->out * layer->in);
    place_weight(layer, weight, true);
    /* The node's own row has weight 1 + epsilon: the aggregation adds it once, `root` adds epsilon
     * times it. Epsilon is normally 0; then there is no second product. */
    const float *epsilon = find(source, "convs", index, "eps", 1);
    if (source->parameters == NULL || (epsilon != NULL && *epsilon != 0.0f))
        layer->root = weight;
    layer->root_scale = epsilon != NULL ? *epsilon : 0.0f;
}

static void make_gat(parameter_source_t *source, const plim_model_t *model, int index, bool last,
                     plim__exact_layer_t *layer)
{
    layer->aggregate = PLIM__STREAM_AGGREGATE_ATTENTION;
    layer->self = true;
    layer->skips_loops = true;
    layer->heads = model->heads;
    layer->channels = last ? layer->out : layer->out / model->heads;
    layer->mean_of_heads = last && layer->heads > 1;
    layer->wide = layer->heads * layer->channels;
    layer->front = find(source, "convs", index, "lin.weight", layer->wide * layer->in);
    layer->att_src = find(source, "convs", index, "att_src", layer->wide);
    layer->att_dst = find(source, "convs", index, "att_dst", layer->wide);
    layer->epilogue.bias = find(source, "convs", index, "bias", layer->out);
}

static void make(parameter_source_t *source, const plim_model_t *model, int64_t num_features,
                 int64_t num_outputs, int index, plim__exact_layer_t *layer)
{
    const bool last = index == model->num_layers - 1;
    memset(layer, 0, sizeof *layer);
    layer->in = index == 0 ? num_features : model->hidden;
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
        make_gcn(source, index, layer);
        break;
    case PLIM_SAGE:
        make_sage(source, model, index, layer);
        break;
    case PLIM_GAT:
        make_gat(source, model, index, last, layer);
        break;
    case PLIM_GIN:
        make_gin(source, model, index, layer);
        break;
    case PLIM_GINE: /* of datasets of many graphs, whose batches are exact */
    case PLIM_GATV2:
    case PLIM_RGCN:
        source->status =
            plim__fail(PLIM_ERR_UNSUPPORTED, "exact inference reads no columns of edges");
        break;
    }
}

plim_status_t plim__exact_layer_make(const plim_model_t *model, int64_t num_features,
                                     int64_t num_outputs, const plim__parameter_t *parameters,
                                     int count, int index, plim__exact_layer_t *layer_out)
{
    parameter_source_t source = {parameters, count, PLIM_OK};
    plim__exact_layer_t layer;
    make(&source, model, num_features, num_outputs, index, &layer);
    if (source.status == PLIM_OK)
        *layer_out = layer;
    return source.status;
}

void plim__exact_layers_shape(const plim_dataset_info_t *info, const plim_model_t *model,
                              int64_t num_outputs, bool embeddings, int *num_layers_out,
                              plim__exact_layer_t *layers_out)
{
    parameter_source_t source = {NULL, 0, PLIM_OK};
    const int count = model->num_layers - (embeddings ? 1 : 0);
    for (int i = 0; i < count; i++)
        make(&source, model, info->num_features, num_outputs, i, &layers_out[i]);
    if (count == 0) /* the embeddings of a model of one layer are the features themselves */
        layers_out[0] = (plim__exact_layer_t){.in = info->num_features,
                                              .out = info->num_features,
                                              .inner = info->num_features,
                                              .epilogue = {.width = info->num_features}};
    *num_layers_out = count > 0 ? count : 1;
}
