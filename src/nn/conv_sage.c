/*
 * GraphSAGE: the mean, or the largest, of the neighbourhood beside the node's own row, then one
 * product with lin_l and lin_r side by side.
 */
#include "nn/model_internal.h"

static void parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
{
    (void)model;
    const plim__initial_t linear = plim__initial_linear(layer->in);
    const int64_t in = layer->in;
    const int64_t out = layer->out;
    layer->product[0] = (plim__linear_t){.in = 2 * in, .out = out, .num_weights = 2};
    layer->product[0].weight[0] =
        plim__table_add(table, linear, "convs", layer->index, "lin_l.weight", out, in, 0);
    layer->after.bias =
        plim__table_add(table, linear, "convs", layer->index, "lin_l.bias", out, 0, 0);
    layer->product[0].weight[1] =
        plim__table_add(table, linear, "convs", layer->index, "lin_r.weight", out, in, 0);
}

static void place(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *room)
{
    const plim__side_t kept = plim__side_kept(model, layer);
    if (model->params.model.aggregation == PLIM_MEAN)
        layer->scale_dst = plim__place_floats(room, kept, layer->rows, 1);
    else if (model->pass.training && layer->index > 0)
        layer->chosen = (int32_t *)(void *)plim__place_floats(room, kept, layer->rows, layer->in);
    layer->x = plim__place_matrix(room, plim__side_x(model, layer), layer->rows, 2 * layer->in,
                                  model->element);
}

/* The half of a matrix of sums and own rows that begins at a column. */
static plim__matrix_t half(const plim__matrix_t *both, int64_t first)
{
    plim__matrix_t matrix = *both;
    matrix.width = both->width / 2;
    if (both->data != NULL)
        matrix.data = (char *)both->data + (size_t)first * plim__element_bytes(both->element);
    return matrix;
}

static void prepare(plim__model_t *model, plim__layer_t *layer)
{
    if (model->params.model.aggregation == PLIM_MEAN)
        plim__scales_mean(&layer->hop, layer->scale_dst);
}

static void rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                 int64_t end)
{
    plim__matrix_t sum = half(x, 0);
    plim__matrix_t root = half(x, layer->in);
    const plim__scales_t scales = {NULL, layer->scale_dst, NULL};
    if (model->params.model.aggregation == PLIM_MEAN)
        plim__aggregate_forward_rows(&layer->hop, &scales, &layer->input, &sum, &root, first, end);
    else
        plim__aggregate_max_forward_rows(&layer->hop, &layer->input, &sum,
                                         model->pass.training ? layer->chosen : NULL, &root, first,
                                         end);
}

static void backward(plim__model_t *model, plim__layer_t *layer)
{
    plim__linear_backward(model, &layer->product[0], &layer->dy, plim__layer_x(model, layer),
                          layer->dx.data);
    if (layer->index == 0)
        return;
    plim__reverse_make(&layer->hop, &layer->reverse);
    const plim__matrix_t dsum = half(&layer->dx, 0);
    plim__matrix_t droot = half(&layer->dx, layer->in);
    plim__matrix_t dinput =
        plim__matrix_make(layer->dinput, layer->hop.num_src, layer->in, PLIM__F32);
    if (layer->residual) {
        const plim__matrix_t residual =
            plim__matrix_make(layer->dresidual, layer->rows, layer->out, PLIM__F32);
        plim__matrix_add(model->team, &residual, &droot);
    }
    const plim__scales_t scales = {NULL, layer->scale_dst, NULL};
    if (model->params.model.aggregation == PLIM_MEAN)
        plim__aggregate_backward(model->team, &layer->hop, &layer->reverse, &scales, &dsum, &droot,
                                 &dinput);
    else
        plim__aggregate_max_backward(model->team, &layer->hop, &layer->reverse, layer->chosen,
                                     &dsum, &droot, &dinput);
    plim__model_lap(model, &model->sparse_ns);
}

const plim__conv_t plim__conv_sage = {.parameters = parameters,
                                      .place = place,
                                      .prepare = prepare,
                                      .rows = rows,
                                      .place_back = plim__place_sum_back,
                                      .backward = backward};
