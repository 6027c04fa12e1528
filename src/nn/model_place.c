/* Where the matrices of a pass lie, and so how much room the largest part takes. */
#include "nn/model_internal.h"

plim__matrix_t plim__place_matrix(plim__workspace_t *room, plim__side_t side, int64_t rows,
                                  int64_t width, plim__element_t element)
{
    void *data = plim__workspace_take(room, side, plim__matrix_bytes(rows, width, element));
    return plim__matrix_make(data, rows, width, element);
}

float *plim__place_floats(plim__workspace_t *room, plim__side_t side, int64_t rows, int64_t width)
{
    return plim__workspace_take(
        room, side,
        plim__mul_saturating_size(plim__mul_saturating_size((size_t)rows, (size_t)width),
                                  sizeof(float)));
}

void *plim__place_kept(plim__workspace_t *room, plim__side_t side, const plim__epilogue_t *finish,
                       int64_t rows)
{
    return finish->training ? plim__workspace_take(room, side, plim__epilogue_kept(finish, rows))
                            : NULL;
}

void plim__place_reverse(plim__workspace_t *room, plim__side_t side, plim__layer_t *layer)
{
    /* Indices are as wide as floats. */
    layer->reverse.indptr = (int32_t *)(void *)plim__place_floats(
        room, side, plim__add_saturating_i64(layer->hop.num_src, 1), 1);
    layer->reverse.edges =
        (int32_t *)(void *)plim__place_floats(room, side, layer->hop.num_edges, 1);
    layer->reverse.destinations =
        (int32_t *)(void *)plim__place_floats(room, side, layer->hop.num_edges, 1);
}

/* Outside training: where a layer's h goes. */
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

void plim__place_rows(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    layer->x = layer->input;
    if (layer->index == 0)
        layer->x = plim__place_matrix(room, plim__side_x(model, layer), layer->hop.num_src,
                                      layer->in, model->element);
}

/* The x of MLP and GAT behind layer 0 is the h before: always there. */
static bool x_is_kept(const plim__model_t *model, const plim__layer_t *layer)
{
    const plim_model_kind_t kind = model->params.model.kind;
    return !model->params.model.recompute ||
           (layer->index > 0 && (kind == PLIM_MLP || kind == PLIM_GAT));
}

void plim__place_again(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    layer->again = layer->x;
    if (!x_is_kept(model, layer))
        layer->again = plim__place_matrix(room, plim__side_back(layer), layer->x.rows,
                                          layer->x.width, layer->x.element);
}

plim__matrix_t *plim__layer_x(plim__model_t *model, plim__layer_t *layer)
{
    if (!x_is_kept(model, layer))
        plim__layer_input(model, layer, &layer->again);
    return &layer->again;
}

void plim__place_sum_back(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    const plim__side_t side = plim__side_back(layer);
    const size_t begin = room->used[side];
    plim__place_again(model, layer, room);
    room->used[side] = begin; /* the weight's gradient needs it, dx does not */
    layer->dx.data = NULL;
    if (layer->index == 0)
        return;
    layer->dx = plim__place_matrix(room, side, layer->rows, layer->x.width, PLIM__F32);
    plim__place_reverse(room, side, layer);
    layer->dinput = plim__place_matrix(room, plim__workspace_other(side), layer->hop.num_src,
                                       layer->in, PLIM__F32)
                        .data;
}

static void place_residual(const plim__model_t *model, plim__layer_t *layer,
                           plim__workspace_t *room)
{
    if (layer->residual && layer->index == 0 && layer->input.element == PLIM__F16)
        layer->converted = plim__place_matrix(room, plim__side_temporary(model, layer), layer->rows,
                                              layer->in, model->element);
}

static void place_forward(plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    const bool training = model->pass.training;
    layer->begin = room->used[PLIM__FRONT];
    const plim__side_t side = training ? PLIM__FRONT : result_side(layer);
    const plim__side_t kept = plim__side_kept(model, layer);
    const plim__side_t temporary = plim__side_temporary(model, layer);
    if (!training)
        room->used[side] = 0; /* what the layer before the last one gave */
    const size_t temporaries = room->used[temporary];
    model->conv->place(model, layer, room);
    place_residual(model, layer, room);
    const plim__epilogue_t finish = plim__layer_epilogue(model, layer);
    layer->kept = plim__place_kept(room, kept, &finish, layer->rows);
    const plim__element_t element = layer->plain ? PLIM__F32 : model->element;
    if (element != PLIM__F32 && !plim__layer_tiled(model))
        layer->y = plim__place_matrix(room, temporary, layer->rows, layer->out, PLIM__F32).data;
    layer->before_h = room->used[side];
    layer->h = plim__place_matrix(room, side, layer->rows, layer->out, element);
    if (element == PLIM__F32)
        layer->y = layer->h.data;
    if (training || layer->index + 1 < model->params.model.num_layers)
        room->used[temporary] = temporaries;
}

static void place_head(plim__model_t *model, plim__workspace_t *room)
{
    plim__head_t *head = &model->head;
    const plim__layer_t *last = &model->layers[model->params.model.num_layers - 1];
    const plim__side_t side = model->pass.training ? PLIM__FRONT : result_side(last);
    const int64_t width = last->out;
    head->x = plim__place_matrix(room, side, model->num_seeds, width, model->element);
    head->pooled = model->element == PLIM__F32
                       ? head->x.data
                       : plim__place_floats(room, side, model->num_seeds, width);
    head->chosen = NULL;
    if (model->params.model.pool == PLIM_POOL_MAX)
        head->chosen = (int32_t *)(void *)plim__place_floats(room, side, model->num_seeds, width);
    const plim__epilogue_t finish = plim__model_epilogue(model, &head->after, true, false, 0);
    head->kept = plim__place_kept(room, side, &finish, model->num_seeds);
    head->h = plim__place_matrix(room, side, model->num_seeds, head->product.out, PLIM__F32);
    head->y = head->h.data;
}

/* Leaves the last layer's dh on its side. */
static void place_head_back(plim__model_t *model, plim__workspace_t *room)
{
    plim__head_t *head = &model->head;
    plim__layer_t *last = &model->layers[model->params.model.num_layers - 1];
    const plim__side_t side = plim__side_back(last);
    const plim__side_t other = plim__workspace_other(side);
    const size_t begin = room->used[other];
    head->dy = plim__place_matrix(room, other, model->num_seeds, head->product.out, model->element);
    const plim__epilogue_t finish = plim__model_epilogue(model, &head->after, true, false, 0);
    head->scratch =
        plim__workspace_take(room, other, plim__epilogue_scratch(&finish, model->num_seeds));
    head->dpooled = plim__place_matrix(room, other, model->num_seeds, last->out, PLIM__F32).data;
    last->dh = plim__place_matrix(room, side, last->rows, last->out, PLIM__F32).data;
    room->used[other] = begin;
}

static void place_backward(plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    const plim__side_t side = plim__side_back(layer);
    const bool last = layer->index + 1 == model->params.model.num_layers;
    const bool given = last && !model->params.graph_level; /* dh is the caller's */
    /* Only products want dy in their own element. */
    const plim__element_t element =
        model->params.model.kind == PLIM_GAT ? PLIM__F32 : model->element;
    if (given || element != PLIM__F32)
        layer->dy = plim__place_matrix(room, side, layer->rows, layer->out, element);
    else
        layer->dy = plim__matrix_make((void *)layer->dh, layer->rows, layer->out, element);
    layer->dresidual = layer->residual && layer->index > 0
                           ? plim__place_floats(room, side, layer->rows, layer->out)
                           : NULL;
    const plim__epilogue_t finish = plim__layer_epilogue(model, layer);
    const size_t begin = room->used[side];
    layer->scratch = plim__workspace_take(room, side, plim__epilogue_scratch(&finish, layer->rows));
    room->used[side] = begin;
    if (side == PLIM__BACK)
        room->used[PLIM__FRONT] = layer->before_h; /* h has done its duty, and lies last */
    model->conv->place_back(model, layer, room);
    room->used[side] = side == PLIM__BACK ? 0 : layer->begin;
}

void plim__model_place(plim__model_t *model, plim__workspace_t *room)
{
    const int count = model->params.model.num_layers;
    for (int i = 0; i < count; i++) {
        plim__layer_t *layer = &model->layers[i];
        if (i > 0) {
            layer->input = model->layers[i - 1].h;
            layer->input.rows = layer->hop.num_src;
        }
        place_forward(model, layer, room);
    }
    model->embeddings = NULL;
    plim__layer_t *last = &model->layers[count - 1];
    if (model->params.graph_level)
        place_head(model, room);
    else if (!model->pass.training && last->input.element != PLIM__F32)
        model->embeddings =
            plim__place_floats(room, plim__side_temporary(model, last), model->num_seeds, last->in);
    if (!model->pass.training)
        return;
    if (model->params.graph_level)
        place_head_back(model, room);
    for (int i = count - 1; i >= 0; i--) {
        place_backward(model, &model->layers[i], room);
        if (i > 0)
            model->layers[i - 1].dh = model->layers[i].dinput;
    }
}

static size_t count_pass(plim__model_t *model, bool training)
{
    plim__workspace_t room = {0};
    model->pass.training = training;
    plim__model_place(model, &room);
    return room.peak;
}

/*
 * The edges may belong to any layer. What a pass takes is a maximum of sums, so it is largest when
 * all belong to one of them (each of which rounds up a few times more).
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
