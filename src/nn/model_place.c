/*
 * Before a pass: its epilogues, and the places of its matrices. Placing over an empty workspace
 * counts its bytes, so the same code estimates the largest part.
 */
#include "nn/model_internal.h"

#include "base/rng.h"

/* Separates dropout's keys from those of the loader's draws, which have the same seed. */
#define DROPOUT_STREAM 0x64726f706f757421u

uint64_t plim__model_key(const plim__model_t *model, int layer, int kind)
{
    const plim__pass_t *pass = &model->pass;
    return plim__rng_key(pass->seed ^ DROPOUT_STREAM, (uint64_t)pass->epoch, (uint64_t)pass->step,
                         2 * (uint64_t)layer + (uint64_t)kind);
}

static float *value_of(const plim__parameter_t *parameter)
{
    return parameter == NULL ? NULL : parameter->value;
}

static float *gradient_of(const plim__parameter_t *parameter)
{
    return parameter == NULL ? NULL : parameter->gradient;
}

plim__epilogue_t plim__model_epilogue(const plim__model_t *model,
                                      const plim__epilogue_parameters_t *parameters, bool plain,
                                      bool dropout, int layer)
{
    const plim_model_t *settings = &model->params.model;
    plim__epilogue_t epilogue = {0};
    epilogue.width = parameters->width;
    epilogue.bias = value_of(parameters->bias);
    epilogue.training = model->pass.training;
    if (plain)
        return epilogue;
    epilogue.norm = settings->norm;
    epilogue.gamma = value_of(parameters->gamma);
    epilogue.beta = value_of(parameters->beta);
    epilogue.running_mean = value_of(parameters->mean);
    epilogue.running_var = value_of(parameters->variance);
    epilogue.activation = settings->activation;
    if (dropout && settings->dropout > 0) {
        epilogue.dropout = settings->dropout;
        epilogue.key = plim__model_key(model, layer, 0);
        epilogue.nodes = model->nodes;
    }
    return epilogue;
}

plim__epilogue_t plim__layer_epilogue(const plim__model_t *model, const plim__layer_t *layer)
{
    return plim__model_epilogue(model, &layer->after, layer->plain, true, layer->index);
}

/* PyG's GIN has no dropout between its products. */
plim__epilogue_t plim__layer_inner(const plim__model_t *model, const plim__layer_t *layer)
{
    return plim__model_epilogue(model, &layer->inner, false, false, layer->index);
}

plim__epilogue_gradients_t
plim__model_epilogue_gradients(const plim__epilogue_parameters_t *parameters)
{
    return (plim__epilogue_gradients_t){gradient_of(parameters->bias),
                                        gradient_of(parameters->gamma),
                                        gradient_of(parameters->beta)};
}

plim__matrix_t plim__place_matrix(plim__workspace_t *workspace, plim__side_t side, int64_t rows,
                                  int64_t width, plim__element_t element)
{
    void *data = plim__workspace_take(workspace, side, plim__matrix_bytes(rows, width, element));
    return plim__matrix_make(data, rows, width, element);
}

float *plim__place_floats(plim__workspace_t *workspace, plim__side_t side, int64_t rows,
                          int64_t width)
{
    return plim__workspace_take(
        workspace, side,
        plim__mul_saturating_size(plim__mul_saturating_size((size_t)rows, (size_t)width),
                                  sizeof(float)));
}

void *plim__place_kept(plim__workspace_t *workspace, plim__side_t side,
                       const plim__epilogue_t *epilogue, int64_t rows)
{
    return epilogue->training
               ? plim__workspace_take(workspace, side, plim__epilogue_kept(epilogue, rows))
               : NULL;
}

void plim__place_reverse(plim__workspace_t *workspace, plim__side_t side, plim__layer_t *layer)
{
    /* Indices are as wide as floats. */
    layer->reverse.indptr = (int32_t *)(void *)plim__place_floats(
        workspace, side, plim__add_saturating_i64(layer->hop.num_src, 1), 1);
    layer->reverse.edges =
        (int32_t *)(void *)plim__place_floats(workspace, side, layer->hop.num_edges, 1);
    layer->reverse.destinations =
        (int32_t *)(void *)plim__place_floats(workspace, side, layer->hop.num_edges, 1);
}

/* The side of a layer's h outside training. */
static plim__side_t result_side(const plim__layer_t *layer)
{
    return layer->index % 2 == 0 ? PLIM__FRONT : PLIM__BACK;
}

plim__side_t plim__side_kept(const plim__model_t *model, const plim__layer_t *layer)
{
    return model->pass.training ? PLIM__FRONT : plim__workspace_other(result_side(layer));
}

plim__side_t plim__side_temporary(const plim__model_t *model, const plim__layer_t *layer)
{
    return model->pass.training ? PLIM__BACK : plim__workspace_other(result_side(layer));
}

plim__side_t plim__side_x(const plim__model_t *model, const plim__layer_t *layer)
{
    return model->params.model.recompute ? plim__side_temporary(model, layer)
                                         : plim__side_kept(model, layer);
}

plim__side_t plim__side_back(const plim__layer_t *layer)
{
    return layer->index % 2 == 0 ? PLIM__BACK : PLIM__FRONT;
}

void plim__place_rows(const plim__model_t *model, plim__layer_t *layer,
                      plim__workspace_t *workspace)
{
    layer->x = layer->input;
    if (layer->raw)
        layer->x = plim__place_matrix(workspace, plim__side_x(model, layer), layer->hop.num_src,
                                      layer->in, model->element);
}

/* In MLP and GAT x is the layer's input, which is always kept, or a copy of the batch's rows. */
static bool x_is_kept(const plim__model_t *model, const plim__layer_t *layer)
{
    const plim_model_kind_t kind = model->params.model.kind;
    return !model->params.model.recompute ||
           (!layer->raw && (kind == PLIM_MLP || plim__attends(kind)));
}

void plim__place_again(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace)
{
    layer->again = layer->x;
    if (!x_is_kept(model, layer))
        layer->again = plim__place_matrix(workspace, plim__side_back(layer), layer->x.rows,
                                          layer->x.width, layer->x.element);
}

plim__matrix_t *plim__layer_x(plim__model_t *model, plim__layer_t *layer)
{
    if (!x_is_kept(model, layer))
        plim__layer_input(model, layer, &layer->again);
    return &layer->again;
}

void plim__place_sum_back(const plim__model_t *model, plim__layer_t *layer,
                          plim__workspace_t *workspace)
{
    const plim__side_t side = plim__side_back(layer);
    const size_t begin = workspace->used[side];
    plim__place_again(model, layer, workspace);
    workspace->used[side] = begin; /* the weight's gradient reads x again before dx is written */
    layer->dx.data = NULL;
    if (!layer->needs_dx)
        return;
    layer->dx = plim__place_matrix(workspace, side, layer->rows, layer->x.width, PLIM__F32);
    if (layer->raw)
        return;
    plim__place_reverse(workspace, side, layer);
    layer->dinput = plim__place_matrix(workspace, plim__workspace_other(side), layer->hop.num_src,
                                       layer->in, PLIM__F32)
                        .data;
}

static void place_residual(const plim__model_t *model, plim__layer_t *layer,
                           plim__workspace_t *workspace)
{
    if (layer->residual && layer->index == 0 && layer->input.element == PLIM__F16)
        layer->converted = plim__place_matrix(workspace, plim__side_temporary(model, layer),
                                              layer->rows, layer->in, model->element);
}

static void place_forward(plim__model_t *model, plim__layer_t *layer, plim__workspace_t *workspace)
{
    const bool training = model->pass.training;
    layer->begin = workspace->used[PLIM__FRONT];
    const plim__side_t side = training ? PLIM__FRONT : result_side(layer);
    const plim__side_t kept = plim__side_kept(model, layer);
    const plim__side_t temporary = plim__side_temporary(model, layer);
    if (!training)
        workspace->used[side] = 0; /* the layer before the last one's h is no longer needed */
    const size_t temporaries = workspace->used[temporary];
    model->conv->place(model, layer, workspace);
    place_residual(model, layer, workspace);
    const plim__epilogue_t epilogue = plim__layer_epilogue(model, layer);
    layer->kept = plim__place_kept(workspace, kept, &epilogue, layer->rows);
    const plim__element_t element = layer->plain ? PLIM__F32 : model->element;
    if (element != PLIM__F32 && !plim__layer_tiled(model))
        layer->y =
            plim__place_matrix(workspace, temporary, layer->rows, layer->out, PLIM__F32).data;
    layer->before_h = workspace->used[side];
    layer->h = plim__place_matrix(workspace, side, layer->rows, layer->out, element);
    if (element == PLIM__F32)
        layer->y = layer->h.data;
    if (training || layer->index + 1 < model->params.model.num_layers)
        workspace->used[temporary] = temporaries;
}

static void place_head(plim__model_t *model, plim__workspace_t *workspace)
{
    plim__head_t *head = &model->head;
    const plim__layer_t *last = &model->layers[model->params.model.num_layers - 1];
    const plim__side_t side = model->pass.training ? PLIM__FRONT : result_side(last);
    const int64_t width = last->out;
    head->x = plim__place_matrix(workspace, side, model->num_seeds, width, model->element);
    head->pooled = model->element == PLIM__F32
                       ? head->x.data
                       : plim__place_floats(workspace, side, model->num_seeds, width);
    head->chosen = NULL;
    if (model->params.model.pool == PLIM_POOL_MAX)
        head->chosen =
            (int32_t *)(void *)plim__place_floats(workspace, side, model->num_seeds, width);
    const plim__epilogue_t epilogue = plim__model_epilogue(model, &head->after, true, false, 0);
    head->kept = plim__place_kept(workspace, side, &epilogue, model->num_seeds);
    head->h = plim__place_matrix(workspace, side, model->num_seeds, head->product.out, PLIM__F32);
}

/* Places the last layer's dh on that layer's side, and the head's gradients for the moment. */
static void place_head_back(plim__model_t *model, plim__workspace_t *workspace)
{
    plim__head_t *head = &model->head;
    plim__layer_t *last = &model->layers[model->params.model.num_layers - 1];
    const plim__side_t side = plim__side_back(last);
    const plim__side_t other = plim__workspace_other(side);
    const size_t begin = workspace->used[other];
    head->dy =
        plim__place_matrix(workspace, other, model->num_seeds, head->product.out, model->element);
    const plim__epilogue_t epilogue = plim__model_epilogue(model, &head->after, true, false, 0);
    head->scratch = plim__workspace_take(workspace, other, plim__epilogue_scratch(&epilogue));
    head->dpooled =
        plim__place_matrix(workspace, other, model->num_seeds, last->out, PLIM__F32).data;
    last->dh = plim__place_matrix(workspace, side, last->rows, last->out, PLIM__F32).data;
    workspace->used[other] = begin;
}

static void place_backward(plim__model_t *model, plim__layer_t *layer, plim__workspace_t *workspace)
{
    const plim__side_t side = plim__side_back(layer);
    const bool last = layer->index + 1 == model->params.model.num_layers;
    const bool given = last && !model->params.graph_level; /* the caller owns dh */
    /* Products read dy in the model's element; attention reads floats. */
    const plim__element_t element =
        plim__attends(model->params.model.kind) ? PLIM__F32 : model->element;
    if (given || element != PLIM__F32)
        layer->dy = plim__place_matrix(workspace, side, layer->rows, layer->out, element);
    else
        layer->dy = plim__matrix_make((void *)layer->dh, layer->rows, layer->out, element);
    layer->dresidual = layer->residual && !layer->raw
                           ? plim__place_floats(workspace, side, layer->rows, layer->out)
                           : NULL;
    const plim__epilogue_t epilogue = plim__layer_epilogue(model, layer);
    const size_t begin = workspace->used[side];
    layer->scratch = plim__workspace_take(workspace, side, plim__epilogue_scratch(&epilogue));
    workspace->used[side] = begin;
    if (side == PLIM__BACK)
        workspace->used[PLIM__FRONT] =
            layer->before_h; /* h was taken last, and is no longer needed */
    model->conv->place_back(model, layer, workspace);
    workspace->used[side] = side == PLIM__BACK ? 0 : layer->begin;
}

void plim__model_place(plim__model_t *model, plim__workspace_t *workspace)
{
    const int count = model->params.model.num_layers;
    plim__place_encoder(model, workspace);
    for (int i = 0; i < count; i++) {
        plim__layer_t *layer = &model->layers[i];
        if (i > 0) {
            layer->input = model->layers[i - 1].h;
            layer->input.rows = layer->hop.num_src;
        }
        place_forward(model, layer, workspace);
    }
    model->embeddings = NULL;
    plim__layer_t *last = &model->layers[count - 1];
    if (model->params.graph_level)
        place_head(model, workspace);
    else if (!model->pass.training && last->input.element != PLIM__F32)
        model->embeddings = plim__place_floats(workspace, plim__side_temporary(model, last),
                                               model->num_seeds, last->in);
    if (!model->pass.training)
        return;
    if (model->params.graph_level)
        place_head_back(model, workspace);
    for (int i = count - 1; i >= 0; i--) {
        place_backward(model, &model->layers[i], workspace);
        if (i > 0)
            model->layers[i - 1].dh = model->layers[i].dinput;
    }
    plim__place_encoder_back(model, workspace);
}

static size_t count_pass(plim__model_t *model, bool training)
{
    plim__workspace_t workspace = {0};
    model->pass.training = training;
    plim__model_place(model, &workspace);
    return workspace.peak;
}

/*
 * The edges of a part may belong to any layer. The bytes of a pass are a maximum of sums, so they
 * are largest when all edges belong to one layer (plus some rounding for each layer).
 */
size_t plim__model_workspace_bytes(plim__model_t *model)
{
    const plim__model_params_t *params = &model->params;
    const int count = params->model.num_layers;
    const bool rows_only = params->model.kind == PLIM_MLP;
    const int64_t rows = params->graph_level ? params->max_src : params->max_seeds;
    size_t most = 0;
    model->num_seeds = params->max_seeds;
    for (int full = 0; full < count; full++) {
        for (int i = 0; i < count; i++) {
            plim__layer_t *layer = &model->layers[i];
            layer->hop = (plim__edges_t){0};
            layer->hop.num_dst = rows_only ? rows : params->max_dst[i];
            layer->hop.num_src = rows_only ? rows
                                 : i == 0  ? params->max_src
                                           : params->max_dst[i - 1];
            if (params->graph_level || i == full)
                layer->hop.num_edges = params->max_edges;
            layer->rows = layer->hop.num_dst;
        }
        for (int training = 0; training <= (params->training ? 1 : 0); training++) {
            const size_t bytes = count_pass(model, training != 0);
            most = bytes > most ? bytes : most;
        }
    }
    return plim__add_saturating_size(most, (size_t)count * 8 * PLIM__LINE);
}
