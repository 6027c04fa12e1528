/* An MLP: rows as they are, one product a layer, no neighbours. */
#include "nn/model_internal.h"

static void parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
{
    (void)model;
    const plim__initial_t linear = plim__initial_linear(layer->in);
    layer->product[0] = (plim__linear_t){.in = layer->in, .out = layer->out, .num_weights = 1};
    layer->product[0].weight[0] =
        plim__table_add(table, linear, "lins", layer->index, "weight", layer->out, layer->in, 0);
    layer->after.bias =
        plim__table_add(table, linear, "lins", layer->index, "bias", layer->out, 0, 0);
}

static void rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                 int64_t end)
{
    (void)model;
    if (layer->index == 0)
        plim__matrix_convert_rows(&layer->input, x, first, end);
}

static void place_back(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    const plim__side_t side = plim__side_back(layer);
    plim__place_again(model, layer, room);
    if (layer->index > 0)
        layer->dinput = plim__place_matrix(room, plim__workspace_other(side), layer->hop.num_src,
                                           layer->in, PLIM__F32)
                            .data;
}

static void backward(plim__model_t *model, plim__layer_t *layer)
{
    plim__linear_backward(model, &layer->product[0], &layer->dy, plim__layer_x(model, layer),
                          layer->dinput);
    plim__layer_add_residual(model, layer);
}

const plim__conv_t plim__conv_mlp = {.parameters = parameters,
                                     .place = plim__place_rows,
                                     .rows = rows,
                                     .place_back = place_back,
                                     .backward = backward};
