/* Creating and destroying a model. */
#include "nn/model_internal.h"

#include "base/fail.h"

#include <string.h>

static const plim__conv_t *const convs[] = {
    [PLIM_MLP] = &plim__conv_mlp,   [PLIM_GCN] = &plim__conv_gcn,   [PLIM_SAGE] = &plim__conv_sage,
    [PLIM_GAT] = &plim__conv_gat,   [PLIM_GIN] = &plim__conv_gin,   [PLIM_GINE] = &plim__conv_gin,
    [PLIM_GATV2] = &plim__conv_gat, [PLIM_RGCN] = &plim__conv_rgcn,
};

/* Sets everything that follows from the settings alone. */
static void shape_model(plim__model_t *model, const plim__model_params_t *params)
{
    const plim_model_t *settings = &params->model;
    *model = (plim__model_t){.params = *params, .conv = convs[settings->kind]};
    model->element = settings->precision == PLIM_PRECISION_BF16 ? PLIM__BF16 : PLIM__F32;
    model->pass.training = params->training;
    for (int i = 0; i < settings->num_layers; i++) {
        plim__layer_t *layer = &model->layers[i];
        layer->index = i;
        layer->plain = i + 1 == settings->num_layers && !params->graph_level;
        layer->raw = i == 0 && params->columns.node_categories.columns == 0;
        layer->needs_dx = !layer->raw || settings->kind == PLIM_GINE || settings->kind == PLIM_RGCN;
        layer->in = i > 0 ? settings->hidden
                          : plim__model_input(settings, &params->columns, params->num_features);
        layer->out = layer->plain ? params->num_outputs : settings->hidden;
        layer->residual = settings->residual && layer->in == layer->out;
        layer->after.width = layer->out;
    }
    if (model->layers[0].raw)
        model->layers[0].input = plim__matrix_make(
            NULL, 0, params->num_features, params->row_type == PLIM_F16 ? PLIM__F16 : PLIM__F32);
    model->head.product =
        (plim__linear_t){.in = settings->hidden, .out = params->num_outputs, .num_weights = 1};
    model->head.after.width = params->num_outputs;
}

/* Arrays of learnt values: the weights and, in training, their gradient and moments. */
static int num_arrays(const plim__model_params_t *params)
{
    return params->training ? 2 + params->moments : 1;
}

/* Products of all layers and of the head in sequence; NULL after the last. */
static plim__linear_t *product_at(plim__model_t *model, int place)
{
    const plim_model_kind_t kind = model->params.model.kind;
    const int each = kind == PLIM_GIN || kind == PLIM_GINE || kind == PLIM_GATV2 ? 2 : 1;
    const int count = each * model->params.model.num_layers;
    if (place < count)
        return &model->layers[place / each].product[place % each];
    return place == count && model->params.graph_level ? &model->head.product : NULL;
}

static int64_t most_rows(const plim__model_t *model, const plim__linear_t *product)
{
    const plim__model_params_t *params = &model->params;
    if (product == &model->head.product)
        return params->max_seeds;
    int i = 0;
    while (product != &model->layers[i].product[0] && product != &model->layers[i].product[1])
        i++;
    const bool of_sources =
        plim__attends(params->model.kind) && product == &model->layers[i].product[0];
    if (params->graph_level || (of_sources && i == 0))
        return params->max_src;
    if (params->model.kind == PLIM_MLP)
        return params->max_seeds;
    return params->max_dst[of_sources ? i - 1 : i];
}

static bool reads_rows(const plim__model_t *model, const plim__linear_t *product)
{
    const plim__layer_t *first = &model->layers[0];
    return product == &first->product[0] ||
           (model->params.model.kind == PLIM_GATV2 && product == &first->product[1]);
}

/* Parameters of a product; one that reads the batch's rows needs no gradient of its input. */
static plim__dense_params_t dense_params(const plim__model_t *model, const plim__linear_t *product)
{
    return (plim__dense_params_t){
        .in = product->in,
        .out = product->out,
        .element = model->element,
        .backward = model->params.training,
        .input_gradient =
            model->params.training && (!reads_rows(model, product) || model->layers[0].needs_dx),
        .workers = model->params.workers,
        .rows = most_rows(model, product),
        .transposed = product->transposed,
    };
}

/* Floats of a tile of the widest product. */
static int64_t tile_floats(plim__model_t *model)
{
    int64_t widest = 0;
    plim__linear_t *product;
    for (int i = 0; (product = product_at(model, i)) != NULL; i++)
        widest = plim__max_i64(widest, product->out);
    return model->element == PLIM__F32 ? 0 : plim__mul_saturating_i64(widest, PLIM__TILE_ROWS);
}

/* Carves the table and the values it describes. The workspace has an arena of its own. */
static void lay_out(plim__arena_t *arena, void *object)
{
    plim__model_t *model = object;
    plim__model_arrays_t *arrays = &model->arrays;
    plim__table_t counted = {0};
    plim__model_describe(model, &counted);
    const size_t count = (size_t)counted.count, workers = (size_t)model->params.workers;
    float **learnt[] = {&arrays->weights, &arrays->gradient, &arrays->moment[0],
                        &arrays->moment[1]};
    model->table.entries = plim__arena_carve(arena, count, sizeof(plim__parameter_t), 1);
    model->table.initial = plim__arena_carve(arena, count, sizeof(plim__initial_t), 1);
    for (int i = 0; i < num_arrays(&model->params); i++)
        *learnt[i] = plim__arena_carve(arena, counted.weights, sizeof(float), 1);
    arrays->buffers = plim__arena_carve(arena, counted.buffers, sizeof(float), 1);
    arrays->num_weights = (int64_t)counted.weights;
    arrays->num_buffers = (int64_t)counted.buffers;
    model->times = plim__arena_carve(arena, workers, sizeof(plim__worker_times_t), 1);
    model->tile_floats = tile_floats(model);
    model->tiles = plim__arena_carve(
        arena, plim__mul_saturating_size(workers, (size_t)model->tile_floats), sizeof(float), 1);
}

/* Bytes of the workspace's arena, for a model that is laid out. */
static size_t activation_bytes(plim__model_t *model)
{
    return plim__round_up(plim__model_workspace_bytes(model), PLIM__PAGE);
}

size_t plim__model_estimate(const plim__model_params_t *params)
{
    plim__model_t model;
    shape_model(&model, params);
    size_t bytes = plim__object_bytes(lay_out, &model, sizeof model);
    bytes = plim__add_saturating_size(bytes, activation_bytes(&model));
    plim__linear_t *product;
    for (int i = 0; (product = product_at(&model, i)) != NULL; i++) {
        const plim__dense_params_t dense = dense_params(&model, product);
        bytes = plim__add_saturating_size(bytes, plim__dense_estimate(&dense));
    }
    return bytes;
}

/* Counts the model's parameters and buffers. */
static plim__table_t table_of(const plim__model_params_t *params)
{
    plim__model_t model;
    plim__table_t table = {0};
    shape_model(&model, params);
    plim__model_describe(&model, &table);
    return table;
}

size_t plim__model_weights(const plim__model_params_t *params)
{
    return table_of(params).weights;
}

size_t plim__model_buffers(const plim__model_params_t *params)
{
    return table_of(params).buffers;
}

int plim__model_tensors(const plim__model_params_t *params)
{
    return table_of(params).count;
}

size_t plim__model_activations(const plim__model_params_t *params)
{
    plim__model_t model;
    shape_model(&model, params);
    (void)plim__object_bytes(lay_out, &model, sizeof model);
    return activation_bytes(&model);
}

/* Fills in the table and points its entries into the arrays. */
static void link_values(plim__model_t *model)
{
    const plim__model_arrays_t *arrays = &model->arrays;
    float *const learnt[] = {arrays->weights, arrays->gradient, arrays->moment[0],
                             arrays->moment[1]};
    plim__model_describe(model, &model->table);
    int64_t weight = 0, buffer = 0;
    for (int i = 0; i < model->table.count; i++) {
        plim__parameter_t *parameter = &model->table.entries[i];
        if (model->table.initial[i].buffer) {
            parameter->value = arrays->buffers + buffer;
            buffer += parameter->count;
            continue;
        }
        float **places[] = {&parameter->value, &parameter->gradient, &parameter->moment[0],
                            &parameter->moment[1]};
        for (int k = 0; k < num_arrays(&model->params); k++)
            *places[k] = learnt[k] + weight;
        weight += parameter->count;
    }
}

static plim_status_t create_products(plim__model_t *model)
{
    plim__linear_t *product;
    for (int i = 0; (product = product_at(model, i)) != NULL; i++) {
        const plim__dense_params_t params = dense_params(model, product);
        PLIM_TRY(plim__dense_create(model->ledger, &params, &product->dense));
    }
    return PLIM_OK;
}

plim_status_t plim__model_create(plim_ledger_t *ledger, plim__team_t *team,
                                 const plim__model_params_t *params, plim__model_t **model_out)
{
    plim__model_t draft, *model;
    shape_model(&draft, params);
    draft.ledger = ledger;
    draft.team = team;
    PLIM_TRY(plim__object_create(ledger, "weights and optimiser", lay_out, &draft, sizeof draft,
                                 &draft.arena, &model));
    plim__arena_touch(&model->arena);
    plim__workspace_t *workspace = &model->workspace;
    workspace->size = activation_bytes(model);
    link_values(model);
    plim_status_t status =
        plim__arena_create(ledger, "activations", workspace->size, &model->activations);
    if (status == PLIM_OK) {
        plim__arena_touch(&model->activations);
        workspace->base = plim__arena_carve(&model->activations, workspace->size, 1, 1);
        status = create_products(model);
    }
    if (status != PLIM_OK) {
        plim__model_destroy(model);
        return status;
    }
    *model_out = model;
    return PLIM_OK;
}

void plim__model_destroy(plim__model_t *model)
{
    if (model == NULL)
        return;
    plim__linear_t *product;
    for (int i = 0; (product = product_at(model, i)) != NULL; i++)
        plim__dense_destroy(product->dense);
    plim__arena_destroy(&model->activations);
    plim__arena_destroy(&model->arena);
}

/* Where the k-th weight of a product is in the values, or gradients, of its parameters. */
static float *weight_at(const plim__linear_t *product, int k, bool gradient)
{
    const bool last = k + 1 == product->num_weights;
    const plim__parameter_t *weight = product->weight[product->transposed ? last : k];
    const int64_t skipped =
        product->transposed && !last ? k * (product->in / product->num_weights) * product->out : 0;
    return (gradient ? weight->gradient : weight->value) + skipped;
}

void plim__model_changed(plim__model_t *model)
{
    plim__linear_t *product;
    for (int i = 0; (product = product_at(model, i)) != NULL; i++) {
        const int64_t width = product->in / product->num_weights;
        for (int k = 0; k < product->num_weights; k++)
            plim__dense_set_weight(product->dense, k * width, width, weight_at(product, k, false));
    }
}

plim_status_t plim__model_check(plim__model_t *model)
{
    plim__linear_t *product;
    for (int i = 0; (product = product_at(model, i)) != NULL; i++)
        PLIM_TRY(plim__dense_check(product->dense));
    return PLIM_OK;
}

void plim__model_gather_gradients(plim__model_t *model)
{
    model->lap_ns = plim__clock_ns();
    plim__linear_t *product;
    for (int i = 0; (product = product_at(model, i)) != NULL; i++) {
        const int64_t width = product->in / product->num_weights;
        for (int k = 0; k < product->num_weights; k++)
            plim__dense_gradient(product->dense, model->team, k * width, width,
                                 k + 1 == product->num_weights, weight_at(product, k, true));
    }
    plim__model_lap(model, &model->dense_ns);
}

void plim__model_times(const plim__model_t *model, plim__model_times_t *times_out)
{
    times_out->dense = (double)model->dense_ns * 1e-9;
    times_out->sparse = (double)model->sparse_ns * 1e-9;
    times_out->finish = (double)model->finish_ns * 1e-9;
    times_out->dense_flops = model->dense_flops;
}
