/* GIN: the neighbours' sum and (1 + epsilon) times the node itself, then an MLP of two products. */
#include "nn/model_internal.h"

static void parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
{
    const int64_t in = layer->in;
    const int64_t out = layer->out;
    const plim__initial_t first = plim__initial_linear(in);
    const plim__initial_t second = plim__initial_linear(out);
    layer->product[0] = (plim__linear_t){.in = in, .out = out, .num_weights = 1};
    layer->product[1] = (plim__linear_t){.in = out, .out = out, .num_weights = 1};
    layer->inner.width = out;
    layer->epsilon = plim__table_add(table, (plim__initial_t){.buffer = true}, "convs",
                                     layer->index, "eps", 1, 0, 0);
    layer->product[0].weight[0] =
        plim__table_add(table, first, "convs", layer->index, "nn.lins.0.weight", out, in, 0);
    layer->inner.bias =
        plim__table_add(table, first, "convs", layer->index, "nn.lins.0.bias", out, 0, 0);
    layer->product[1].weight[0] =
        plim__table_add(table, second, "convs", layer->index, "nn.lins.1.weight", out, out, 0);
    layer->after.bias =
        plim__table_add(table, second, "convs", layer->index, "nn.lins.1.bias", out, 0, 0);
    plim__table_norm(table, model->params.model.norm, "convs", layer->index, "nn.norms.0.",
                     &layer->inner);
}

static void place(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    const plim__side_t kept = plim__side_kept(model, layer);
    layer->scale_self = plim__place_floats(room, kept, layer->rows, 1);
    layer->x = plim__place_matrix(room, plim__side_x(model, layer), layer->rows, layer->in,
                                  model->element);
    const plim__epilogue_t inner = plim__layer_inner(model, layer);
    layer->inner_kept = plim__place_kept(room, kept, &inner, layer->rows);
    layer->inner_h = plim__place_matrix(room, kept, layer->rows, layer->out, model->element);
    layer->inner_y = layer->inner_h.data;
    if (model->element != PLIM__F32 && !plim__layer_tiled(model))
        layer->inner_y = plim__place_matrix(room, plim__side_temporary(model, layer), layer->rows,
                                            layer->out, PLIM__F32)
                             .data;
}

static void prepare(plim__model_t *model, plim__layer_t *layer)
{
    (void)model;
    const float own = 1.0f + layer->epsilon->value[0];
    for (int64_t v = 0; v < layer->rows; v++)
        layer->scale_self[v] = own;
}

static void rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                 int64_t end)
{
    (void)model;
    const plim__scales_t scales = {NULL, NULL, layer->scale_self};
    plim__aggregate_forward_rows(&layer->hop, &scales, &layer->input, x, NULL, first, end);
}

static void place_back(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    const plim__side_t side = plim__side_back(layer);
    layer->inner_dh = plim__place_matrix(room, side, layer->rows, layer->out, PLIM__F32).data;
    layer->inner_dy = model->element == PLIM__F32
                          ? plim__matrix_make(layer->inner_dh, layer->rows, layer->out, PLIM__F32)
                          : plim__place_matrix(room, side, layer->rows, layer->out, model->element);
    const plim__epilogue_t inner = plim__layer_inner(model, layer);
    const size_t begin = room->used[side];
    layer->inner_scratch =
        plim__workspace_take(room, side, plim__epilogue_scratch(&inner, layer->rows));
    room->used[side] = begin;
    plim__place_sum_back(model, layer, room);
}

static void backward(plim__model_t *model, plim__layer_t *layer)
{
    plim__linear_backward(model, &layer->product[1], &layer->dy, &layer->inner_h, layer->inner_dh);
    const plim__epilogue_t inner = plim__layer_inner(model, layer);
    const plim__epilogue_gradients_t gradients = plim__model_epilogue_gradients(&layer->inner);
    plim__epilogue_backward(model->team, &inner, &layer->inner_h, layer->inner_kept,
                            layer->inner_dh, &layer->inner_dy, NULL, &gradients,
                            layer->inner_scratch);
    plim__model_lap(model, &model->finish_ns);
    plim__linear_backward(model, &layer->product[0], &layer->inner_dy, plim__layer_x(model, layer),
                          layer->dx.data);
    const plim__scales_t scales = {NULL, NULL, layer->scale_self};
    plim__sum_backward(model, layer, &scales);
}

const plim__conv_t plim__conv_gin = {.parameters = parameters,
                                     .place = place,
                                     .prepare = prepare,
                                     .rows = rows,
                                     .place_back = place_back,
                                     .backward = backward};
