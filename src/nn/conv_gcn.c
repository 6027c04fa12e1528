/* GCN: the neighbourhood weighed by degrees, up to the fan-out, then one product. */
#include "nn/model_internal.h"

static void parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
{
    (void)model;
    layer->product[0] = (plim__linear_t){.in = layer->in, .out = layer->out, .num_weights = 1};
    layer->after.bias = plim__table_add(table, (plim__initial_t){0}, "convs", layer->index, "bias",
                                        layer->out, 0, 0);
    layer->product[0].weight[0] =
        plim__table_add(table, plim__initial_glorot(layer->out, layer->in), "convs", layer->index,
                        "lin.weight", layer->out, layer->in, 0);
}

static void place(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    const plim__side_t kept = plim__side_kept(model, layer);
    layer->scale_src = plim__place_floats(room, kept, layer->hop.num_src, 1);
    layer->scale_dst = plim__place_floats(room, kept, layer->rows, 1);
    layer->scale_self = plim__place_floats(room, kept, layer->rows, 1);
    layer->x = plim__place_matrix(room, plim__side_x(model, layer), layer->rows, layer->in,
                                  model->element);
}

static plim__scales_t scales_of(const plim__layer_t *layer)
{
    return (plim__scales_t){layer->scale_src, layer->scale_dst, layer->scale_self};
}

static void prepare(plim__model_t *model, plim__layer_t *layer)
{
    plim__scales_gcn(&layer->hop, model->degrees, model->params.fanout[layer->index],
                     layer->scale_src, layer->scale_dst, layer->scale_self);
}

static void rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                 int64_t end)
{
    (void)model;
    const plim__scales_t scales = scales_of(layer);
    plim__aggregate_forward_rows(&layer->hop, &scales, &layer->input, x, NULL, first, end);
}

static void backward(plim__model_t *model, plim__layer_t *layer)
{
    plim__linear_backward(model, &layer->product[0], &layer->dy, plim__layer_x(model, layer),
                          layer->dx.data);
    const plim__scales_t scales = scales_of(layer);
    plim__sum_backward(model, layer, &scales);
}

const plim__conv_t plim__conv_gcn = {.parameters = parameters,
                                     .place = place,
                                     .prepare = prepare,
                                     .rows = rows,
                                     .place_back = plim__place_sum_back,
                                     .backward = backward};
