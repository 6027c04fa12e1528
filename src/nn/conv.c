/*
 * The layers that are a product of aggregated rows:
 *
 *     MLP    the node's own row, no neighbours
 *     GCN    neighbours and node weighted by degrees, which count up to the fan-out; the batch
 *            leaves self-loops out (plim_recipe_t.skip_loops), so the node counts once
 *     SAGE   the mean, or the maximum, over neighbours beside the node's own row; one product with
 *            lin_l and lin_r side by side
 *     GIN    the neighbours' sum and (1 + epsilon) times the node, then an MLP of two products
 *     GINE   the same, of each neighbour and its edge's term, added and cut off at 0
 *
 * conv_gat.c holds GAT, which multiplies first.
 */
#include "nn/model_internal.h"

static void mlp_parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
{
    (void)model;
    const plim__initial_t linear = plim__initial_linear(layer->in);
    layer->product[0] = (plim__linear_t){.in = layer->in, .out = layer->out, .num_weights = 1};
    layer->product[0].weight[0] =
        plim__table_add(table, linear, "lins", layer->index, "weight", layer->out, layer->in, 0);
    layer->after.bias =
        plim__table_add(table, linear, "lins", layer->index, "bias", layer->out, 0, 0);
}

static void mlp_rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                     int64_t end)
{
    (void)model;
    if (layer->raw)
        plim__matrix_convert_rows(&layer->input, x, first, end);
}

static void mlp_place_back(const plim__model_t *model, plim__layer_t *layer,
                           plim__workspace_t *workspace)
{
    const plim__side_t side = plim__side_back(layer);
    plim__place_again(model, layer, workspace);
    if (!layer->raw)
        layer->dinput = plim__place_matrix(workspace, plim__workspace_other(side),
                                           layer->hop.num_src, layer->in, PLIM__F32)
                            .data;
}

static void mlp_backward(plim__model_t *model, plim__layer_t *layer)
{
    plim__linear_backward(model, &layer->product[0], &layer->dy, plim__layer_x(model, layer),
                          layer->dinput);
    plim__layer_add_residual(model, layer);
}

const plim__conv_t plim__conv_mlp = {.parameters = mlp_parameters,
                                     .place = plim__place_rows,
                                     .rows = mlp_rows,
                                     .place_back = mlp_place_back,
                                     .backward = mlp_backward};

static void gcn_parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
{
    (void)model;
    layer->product[0] = (plim__linear_t){.in = layer->in, .out = layer->out, .num_weights = 1};
    layer->after.bias = plim__table_add(table, (plim__initial_t){0}, "convs", layer->index, "bias",
                                        layer->out, 0, 0);
    layer->product[0].weight[0] =
        plim__table_add(table, plim__initial_glorot(layer->out, layer->in), "convs", layer->index,
                        "lin.weight", layer->out, layer->in, 0);
}

static void gcn_place(const plim__model_t *model, plim__layer_t *layer,
                      plim__workspace_t *workspace)
{
    const plim__side_t kept = plim__side_kept(model, layer);
    layer->scale_src = plim__place_floats(workspace, kept, layer->hop.num_src, 1);
    layer->scale_dst = plim__place_floats(workspace, kept, layer->rows, 1);
    layer->scale_self = plim__place_floats(workspace, kept, layer->rows, 1);
    if (model->params.columns.edge_weights)
        layer->scale_edge = plim__place_floats(workspace, kept, layer->hop.num_edges, 1);
    layer->x = plim__place_matrix(workspace, plim__side_x(model, layer), layer->rows, layer->in,
                                  model->element);
}

static plim__scales_t gcn_scales(const plim__layer_t *layer)
{
    return (plim__scales_t){.src = layer->scale_src,
                            .dst = layer->scale_dst,
                            .self = layer->scale_self,
                            .edge = layer->scale_edge};
}

static void gcn_prepare(plim__model_t *model, plim__layer_t *layer)
{
    if (layer->scale_edge != NULL)
        plim__scales_gcn_weighted(&layer->hop, layer->edges.weights, model->weight_sums,
                                  model->degrees, model->params.fanout[layer->index],
                                  layer->scale_edge, layer->scale_src, layer->scale_dst,
                                  layer->scale_self);
    else
        plim__scales_gcn(&layer->hop, model->degrees, model->params.fanout[layer->index],
                         layer->scale_src, layer->scale_dst, layer->scale_self);
}

static void gcn_rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                     int64_t end)
{
    (void)model;
    const plim__scales_t scales = gcn_scales(layer);
    plim__aggregate_forward_rows(&layer->hop, &scales, &layer->input, x, NULL, first, end);
}

static void gcn_backward(plim__model_t *model, plim__layer_t *layer)
{
    plim__linear_backward(model, &layer->product[0], &layer->dy, plim__layer_x(model, layer),
                          layer->dx.data);
    const plim__scales_t scales = gcn_scales(layer);
    plim__sum_backward(model, layer, &scales);
}

const plim__conv_t plim__conv_gcn = {.parameters = gcn_parameters,
                                     .place = gcn_place,
                                     .prepare = gcn_prepare,
                                     .rows = gcn_rows,
                                     .place_back = plim__place_sum_back,
                                     .backward = gcn_backward};

static void sage_parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
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

static void sage_place(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace)
{
    const plim__side_t kept = plim__side_kept(model, layer);
    if (model->params.model.aggregation == PLIM_MEAN)
        layer->scale_dst = plim__place_floats(workspace, kept, layer->rows, 1);
    else if (model->params.model.aggregation == PLIM_MAX && model->pass.training && !layer->raw)
        layer->chosen =
            (int32_t *)(void *)plim__place_floats(workspace, kept, layer->rows, layer->in);
    layer->x = plim__place_matrix(workspace, plim__side_x(model, layer), layer->rows, 2 * layer->in,
                                  model->element);
}

static void sage_prepare(plim__model_t *model, plim__layer_t *layer)
{
    if (model->params.model.aggregation == PLIM_MEAN)
        plim__scales_mean(&layer->hop, layer->scale_dst);
}

static void sage_rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                      int64_t end)
{
    plim__matrix_t sum = plim__matrix_columns(x, 0, layer->in);
    plim__matrix_t root = plim__matrix_columns(x, layer->in, layer->in);
    const plim__scales_t scales = {.dst = layer->scale_dst};
    if (model->params.model.aggregation != PLIM_MAX)
        plim__aggregate_forward_rows(&layer->hop, &scales, &layer->input, &sum, &root, first, end);
    else
        plim__aggregate_max_forward_rows(&layer->hop, &layer->input, &sum,
                                         model->pass.training ? layer->chosen : NULL, &root, first,
                                         end);
}

static void sage_backward(plim__model_t *model, plim__layer_t *layer)
{
    plim__linear_backward(model, &layer->product[0], &layer->dy, plim__layer_x(model, layer),
                          layer->dx.data);
    if (layer->raw)
        return;
    plim__reverse_make(&layer->hop, &layer->reverse);
    const plim__matrix_t dsum = plim__matrix_columns(&layer->dx, 0, layer->in);
    plim__matrix_t droot = plim__matrix_columns(&layer->dx, layer->in, layer->in);
    plim__matrix_t dinput =
        plim__matrix_make(layer->dinput, layer->hop.num_src, layer->in, PLIM__F32);
    if (layer->residual) {
        const plim__matrix_t residual =
            plim__matrix_make(layer->dresidual, layer->rows, layer->out, PLIM__F32);
        plim__matrix_add(model->team, &residual, &droot);
    }
    const plim__scales_t scales = {.dst = layer->scale_dst};
    if (model->params.model.aggregation != PLIM_MAX)
        plim__aggregate_backward(model->team, &layer->hop, &layer->reverse, &scales, &dsum, &droot,
                                 &dinput);
    else
        plim__aggregate_max_backward(model->team, &layer->hop, &layer->reverse, layer->chosen,
                                     &dsum, &droot, &dinput);
    plim__model_lap(model, &model->sparse_ns);
}

const plim__conv_t plim__conv_sage = {.parameters = sage_parameters,
                                      .place = sage_place,
                                      .prepare = sage_prepare,
                                      .rows = sage_rows,
                                      .place_back = plim__place_sum_back,
                                      .backward = sage_backward};

static void gin_parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
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
    if (model->params.model.kind == PLIM_GINE)
        plim__terms_parameters(model, table, layer, "lin",
                               plim__initial_linear(model->params.columns.edge_features), true, in);
}

static void gin_place(const plim__model_t *model, plim__layer_t *layer,
                      plim__workspace_t *workspace)
{
    const plim__side_t kept = plim__side_kept(model, layer);
    layer->scale_self = plim__place_floats(workspace, kept, layer->rows, 1);
    layer->x = plim__place_matrix(workspace, plim__side_x(model, layer), layer->rows, layer->in,
                                  model->element);
    const plim__epilogue_t inner = plim__layer_inner(model, layer);
    layer->inner_kept = plim__place_kept(workspace, kept, &inner, layer->rows);
    layer->inner_h = plim__place_matrix(workspace, kept, layer->rows, layer->out, model->element);
    layer->inner_y = layer->inner_h.data;
    if (model->element != PLIM__F32 && !plim__layer_tiled(model))
        layer->inner_y = plim__place_matrix(workspace, plim__side_temporary(model, layer),
                                            layer->rows, layer->out, PLIM__F32)
                             .data;
    if (model->params.model.kind == PLIM_GINE)
        plim__place_terms(model, layer, workspace);
}

static void gin_prepare(plim__model_t *model, plim__layer_t *layer)
{
    if (model->params.model.kind == PLIM_GINE)
        plim__terms_prepare(model, layer);
    const float own = 1.0f + layer->epsilon->value[0];
    for (int64_t v = 0; v < layer->rows; v++)
        layer->scale_self[v] = own;
}

static void gin_rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                     int64_t end)
{
    const plim__scales_t scales = {.self = layer->scale_self};
    if (model->params.model.kind == PLIM_GINE)
        plim__relu_sum_rows(&layer->hop, &layer->terms, layer->scale_self, &layer->input, x, first,
                            end);
    else
        plim__aggregate_forward_rows(&layer->hop, &scales, &layer->input, x, NULL, first, end);
}

static void gin_place_back(const plim__model_t *model, plim__layer_t *layer,
                           plim__workspace_t *workspace)
{
    const plim__side_t side = plim__side_back(layer);
    layer->inner_dh = plim__place_matrix(workspace, side, layer->rows, layer->out, PLIM__F32).data;
    layer->inner_dy =
        model->element == PLIM__F32
            ? plim__matrix_make(layer->inner_dh, layer->rows, layer->out, PLIM__F32)
            : plim__place_matrix(workspace, side, layer->rows, layer->out, model->element);
    const plim__epilogue_t inner = plim__layer_inner(model, layer);
    const size_t begin = workspace->used[side];
    layer->inner_scratch = plim__workspace_take(workspace, side, plim__epilogue_scratch(&inner));
    workspace->used[side] = begin;
    plim__place_sum_back(model, layer, workspace);
    if (model->params.model.kind != PLIM_GINE)
        return;
    const size_t placed = workspace->used[side];
    layer->term_scratch = plim__workspace_take(workspace, side, plim__terms_scratch(&layer->terms));
    workspace->used[side] = placed;
}

static void gine_backward(plim__model_t *model, plim__layer_t *layer)
{
    plim__relu_sum_terms(model->team, &layer->hop, &layer->terms, &layer->input, &layer->dx,
                         plim__terms_gradient(layer),
                         layer->term_bias != NULL ? layer->term_bias->gradient : NULL,
                         plim__terms_partials(layer));
    plim__terms_learn(layer);
    if (!layer->raw) {
        plim__matrix_t dinput =
            plim__matrix_make(layer->dinput, layer->hop.num_src, layer->in, PLIM__F32);
        const plim__matrix_t residual =
            plim__matrix_make(layer->dresidual, layer->rows, layer->in, PLIM__F32);
        plim__reverse_make(&layer->hop, &layer->reverse);
        plim__relu_sum_backward(model->team, &layer->hop, &layer->reverse, &layer->terms,
                                layer->scale_self, &layer->input, &layer->dx,
                                layer->residual ? &residual : NULL, &dinput);
    }
    plim__model_lap(model, &model->sparse_ns);
}

static void gin_backward(plim__model_t *model, plim__layer_t *layer)
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
    const plim__scales_t scales = {.self = layer->scale_self};
    if (model->params.model.kind == PLIM_GINE)
        gine_backward(model, layer);
    else
        plim__sum_backward(model, layer, &scales);
}

const plim__conv_t plim__conv_gin = {.parameters = gin_parameters,
                                     .place = gin_place,
                                     .prepare = gin_prepare,
                                     .rows = gin_rows,
                                     .place_back = gin_place_back,
                                     .backward = gin_backward};
