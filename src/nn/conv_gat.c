/*
 * GAT: one product over all sources, then attention sums each neighbourhood. The heads' results are
 * concatenated; the output layer takes their mean. GATv2 has a second product, over destinations,
 * and biases in both. Features of edges add a term to the logits: in GAT the product of att_edge
 * and lin_edge, a table of `heads` columns; in GATv2 lin_edge.
 */
#include "nn/model_internal.h"

#include "nn/vector.h"

#include <string.h>

#define TASK_ROWS 256

static bool has_terms(const plim__model_t *model)
{
    return model->params.columns.edge_features > 0;
}

static plim__parameter_t *add_attention(plim__table_t *table, const plim__layer_t *layer,
                                        const char *name)
{
    return plim__table_add(table, plim__initial_glorot(layer->heads, layer->channels), "convs",
                           layer->index, name, 1, layer->heads, layer->channels);
}

static plim__parameter_t *add_linear(plim__table_t *table, const plim__layer_t *layer,
                                     const char *name, int64_t out, int64_t in)
{
    return plim__table_add(table, plim__initial_glorot(out, in), "convs", layer->index, name, out,
                           in, 0);
}

static plim__parameter_t *add_bias(plim__table_t *table, const plim__layer_t *layer,
                                   const char *name, int64_t width)
{
    return plim__table_add(table, (plim__initial_t){0}, "convs", layer->index, name, width, 0, 0);
}

static void parameters_v1(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer,
                          int64_t out)
{
    const int64_t features = model->params.columns.edge_features;
    layer->attention_src = add_attention(table, layer, "att_src");
    layer->attention_dst = add_attention(table, layer, "att_dst");
    if (has_terms(model))
        layer->attention_edge = add_attention(table, layer, "att_edge");
    layer->after.bias = add_bias(table, layer, "bias", layer->out);
    layer->product[0].weight[0] = add_linear(table, layer, "lin.weight", out, layer->in);
    if (!has_terms(model))
        return;
    layer->terms =
        (plim__edge_terms_t){.entries = features, .table_rows = features, .width = layer->heads};
    layer->term_weight = add_linear(table, layer, "lin_edge.weight", out, features);
}

static void parameters_v2(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer,
                          int64_t out)
{
    layer->product[1] = layer->product[0];
    layer->left.width = layer->right.width = out;
    layer->attention_src = add_attention(table, layer, "att");
    layer->after.bias = add_bias(table, layer, "bias", layer->out);
    layer->product[0].weight[0] = add_linear(table, layer, "lin_l.weight", out, layer->in);
    layer->left.bias = add_bias(table, layer, "lin_l.bias", out);
    layer->product[1].weight[0] = add_linear(table, layer, "lin_r.weight", out, layer->in);
    layer->right.bias = add_bias(table, layer, "lin_r.bias", out);
    if (has_terms(model))
        plim__terms_parameters(model, table, layer, "lin_edge",
                               plim__initial_glorot(out, model->params.columns.edge_features),
                               false, out);
}

static void parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
{
    const int heads = model->params.model.heads;
    layer->heads = heads;
    layer->mean_of_heads = layer->plain && heads > 1;
    layer->channels = layer->plain ? layer->out : layer->out / heads;
    const int64_t out = plim__mul_saturating_i64(layer->channels, heads);
    layer->product[0] = (plim__linear_t){.in = layer->in, .out = out, .num_weights = 1};
    if (model->params.model.kind == PLIM_GATV2)
        parameters_v2(model, table, layer, out);
    else
        parameters_v1(model, table, layer, out);
}

static void place(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *workspace)
{
    const plim__side_t kept = plim__side_kept(model, layer);
    const int64_t num_src = layer->hop.num_src;
    const int64_t width = layer->product[0].out;
    plim__attention_state_t *state = &layer->attention_state;
    const bool v2 = model->params.model.kind == PLIM_GATV2;
    const int64_t logits = plim__add_saturating_i64(layer->hop.num_edges, layer->rows);
    plim__place_rows(model, layer, workspace);
    if (v2) {
        layer->z_dst = plim__place_matrix(workspace, plim__side_x(model, layer), layer->rows, width,
                                          PLIM__F32);
    } else {
        state->score_src = plim__place_floats(workspace, kept, num_src, layer->heads);
        state->score_dst = plim__place_floats(workspace, kept, layer->rows, layer->heads);
    }
    if (has_terms(model)) {
        plim__place_terms(model, layer, workspace);
        state->terms = v2 ? plim__place_floats(workspace, kept, layer->rows, width)
                          : plim__place_floats(workspace, kept, logits, layer->heads);
    }
    state->weights = plim__place_floats(workspace, kept, logits, layer->heads);
    layer->z = plim__place_matrix(workspace, plim__side_x(model, layer), num_src, width, PLIM__F32);
    if (layer->mean_of_heads)
        layer->heads_out = plim__place_matrix(workspace, plim__side_temporary(model, layer),
                                              layer->rows, width, PLIM__F32);
    if (v2 && has_terms(model))
        layer->term_row = plim__place_floats(workspace, plim__side_temporary(model, layer),
                                             model->params.workers, width);
}

/* GAT: table[f, h] = sum over c of att_edge[h, c] lin_edge[h * channels + c, f]. */
static void make_table(plim__layer_t *layer)
{
    const int64_t features = layer->terms.table_rows, heads = layer->heads;
    const float *att = layer->attention_edge->value, *weight = layer->term_weight->value;
    memset(layer->term_table, 0, (size_t)(features * heads) * sizeof *layer->term_table);
    for (int64_t i = 0; i < heads * layer->channels; i++)
        for (int64_t f = 0; f < features; f++)
            layer->term_table[f * heads + i / layer->channels] += att[i] * weight[i * features + f];
    layer->terms.table = layer->term_table;
}

/* Back from the table's gradient. */
static void learn_table(plim__layer_t *layer)
{
    const int64_t features = layer->terms.table_rows, heads = layer->heads;
    const float *att = layer->attention_edge->value, *weight = layer->term_weight->value;
    float *datt = layer->attention_edge->gradient, *dweight = layer->term_weight->gradient;
    for (int64_t i = 0; i < heads * layer->channels; i++)
        for (int64_t f = 0; f < features; f++) {
            const float gradient = layer->term_scratch[f * heads + i / layer->channels];
            datt[i] += gradient * weight[i * features + f];
            dweight[i * features + f] += gradient * att[i];
        }
}

static void prepare(plim__model_t *model, plim__layer_t *layer)
{
    if (!has_terms(model))
        return;
    if (model->params.model.kind == PLIM_GATV2) {
        plim__terms_prepare(model, layer);
        return;
    }
    plim__terms_inputs(model, layer);
    make_table(layer);
}

static void rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                 int64_t end)
{
    (void)model;
    plim__matrix_convert_rows(&layer->input, x, first, end);
}

static plim__attention_t attention_of(const plim__model_t *model, const plim__layer_t *layer,
                                      const plim__matrix_t *z_dst, float *term_rows)
{
    const bool v2 = model->params.model.kind == PLIM_GATV2;
    return (plim__attention_t){
        .heads = layer->heads,
        .channels = layer->channels,
        .att_src = layer->attention_src->value,
        .att_dst = v2 ? NULL : layer->attention_dst->value,
        .dropout = model->pass.training ? model->params.model.dropout : 0.0f,
        .key = plim__model_key(model, layer->index, 1),
        .nodes = model->nodes,
        .z_dst = v2 ? z_dst : NULL,
        .terms = has_terms(model) ? &layer->terms : NULL,
        .term_rows = term_rows,
    };
}

typedef struct mean {
    int64_t rows, channels;
    int heads;
    float *one;  /* (rows, channels) */
    float *each; /* (rows, heads, channels) */
} mean_t;

PLIM__KERNEL void mean_row_body(float *restrict one, const float *restrict each, int64_t channels,
                                int heads)
{
    const float share = 1.0f / (float)heads;
    for (int64_t c = 0; c < channels; c++) {
        float sum = each[c];
        for (int h = 1; h < heads; h++)
            sum += each[h * channels + c];
        one[c] = sum * share;
    }
}
PLIM__VECTORISED(mean_row, (float *one, const float *each, int64_t channels, int heads),
                 (one, each, channels, heads))

PLIM__KERNEL void share_row_body(const float *restrict one, float *restrict each, int64_t channels,
                                 int heads)
{
    const float share = 1.0f / (float)heads;
    for (int h = 0; h < heads; h++)
        for (int64_t c = 0; c < channels; c++)
            each[h * channels + c] = one[c] * share;
}
PLIM__VECTORISED(share_row, (const float *one, float *each, int64_t channels, int heads),
                 (one, each, channels, heads))

static void mean_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const mean_t *mean = context;
    const int64_t end = plim__min_i64((task + 1) * TASK_ROWS, mean->rows);
    for (int64_t row = task * TASK_ROWS; row < end; row++)
        mean_row(mean->one + row * mean->channels, mean->each + row * mean->channels * mean->heads,
                 mean->channels, mean->heads);
}

static void share_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const mean_t *mean = context;
    const int64_t end = plim__min_i64((task + 1) * TASK_ROWS, mean->rows);
    for (int64_t row = task * TASK_ROWS; row < end; row++)
        share_row(mean->one + row * mean->channels, mean->each + row * mean->channels * mean->heads,
                  mean->channels, mean->heads);
}

static void run_heads(plim__model_t *model, const plim__layer_t *layer, float *one, float *each,
                      void (*work)(void *, int, int64_t))
{
    mean_t mean = {layer->rows, layer->channels, layer->heads, one, each};
    plim__team_run(model->team, (layer->rows + TASK_ROWS - 1) / TASK_ROWS,
                   TASK_ROWS * (5 + layer->channels * layer->heads / 4), work, &mean);
}

static void add_biases(plim__model_t *model, const plim__epilogue_parameters_t *parameters,
                       plim__matrix_t *z)
{
    const plim__epilogue_t epilogue = plim__model_epilogue(model, parameters, true, false, 0);
    plim__epilogue_forward(model->team, &epilogue, z->data, NULL, z, NULL);
    plim__model_lap(model, &model->finish_ns);
}

/* The products of x: z, and for GATv2 z_dst. */
static void multiply(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x,
                     plim__matrix_t *z, plim__matrix_t *z_dst)
{
    if (layer->raw)
        plim__layer_input(model, layer, x);
    plim__linear_forward(model, &layer->product[0], x, z->data);
    if (model->params.model.kind != PLIM_GATV2)
        return;
    plim__matrix_t own = *x;
    own.rows = layer->rows;
    plim__linear_forward(model, &layer->product[1], &own, z_dst->data);
    add_biases(model, &layer->left, z);
    add_biases(model, &layer->right, z_dst);
}

static void forward(plim__model_t *model, plim__layer_t *layer)
{
    multiply(model, layer, &layer->x, &layer->z, &layer->z_dst);
    const plim__attention_t attention = attention_of(model, layer, &layer->z_dst, layer->term_row);
    plim__matrix_t out = layer->mean_of_heads ? layer->heads_out
                                              : plim__matrix_make(layer->y, layer->rows,
                                                                  layer->product[0].out, PLIM__F32);
    plim__attention_forward(model->team, &layer->hop, &attention, &layer->z,
                            &layer->attention_state, &out);
    if (layer->mean_of_heads)
        run_heads(model, layer, layer->y, layer->heads_out.data, mean_task);
    plim__model_lap(model, &model->sparse_ns);
}

/* What GATv2's second product takes in backward, behind dz_read. */
static void place_back_v2(const plim__model_t *model, plim__layer_t *layer,
                          plim__workspace_t *workspace, plim__side_t side)
{
    const int64_t width = layer->product[0].out;
    layer->dz_dst_read = layer->dz_dst;
    if (model->element != PLIM__F32)
        layer->dz_dst_read =
            plim__place_matrix(workspace, side, layer->rows, width, model->element);
    const plim__epilogue_t epilogue = plim__model_epilogue(model, &layer->left, true, false, 0);
    layer->bias_scratch = plim__workspace_take(workspace, side, plim__epilogue_scratch(&epilogue));
    layer->dx_dst =
        layer->raw ? NULL
                   : plim__place_matrix(workspace, side, layer->rows, layer->in, PLIM__F32).data;
}

static void place_back(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace)
{
    const plim__side_t side = plim__side_back(layer);
    const plim__edges_t *hop = &layer->hop;
    const int64_t width = layer->product[0].out;
    const bool recompute = model->params.model.recompute;
    const bool v2 = model->params.model.kind == PLIM_GATV2;
    layer->again = layer->x;
    if (recompute && layer->raw)
        layer->again = plim__place_matrix(workspace, side, hop->num_src, layer->in, model->element);
    layer->z_again = layer->z;
    layer->z_dst_again = layer->z_dst;
    if (recompute)
        layer->z_again = plim__place_matrix(workspace, side, hop->num_src, width, PLIM__F32);
    if (recompute && v2)
        layer->z_dst_again = plim__place_matrix(workspace, side, layer->rows, width, PLIM__F32);
    if (layer->mean_of_heads)
        layer->dheads = plim__place_matrix(workspace, side, layer->rows, width, PLIM__F32);
    layer->dz = plim__place_matrix(workspace, side, hop->num_src, width, PLIM__F32);
    if (v2)
        layer->dz_dst = plim__place_matrix(workspace, side, layer->rows, width, PLIM__F32);
    const size_t begin = workspace->used[side];
    plim__place_reverse(workspace, side, layer);
    layer->attention_scratch =
        plim__workspace_take(workspace, side,
                             plim__attention_scratch(hop->num_src, hop->num_dst, hop->num_edges,
                                                     layer->heads, layer->channels));
    if (has_terms(model))
        layer->term_scratch =
            plim__workspace_take(workspace, side, plim__terms_scratch(&layer->terms));
    if (v2 && has_terms(model))
        layer->term_row_back = plim__place_floats(workspace, side, model->params.workers, width);
    workspace->used[side] = begin;
    layer->dz_read = layer->dz;
    if (model->element != PLIM__F32)
        layer->dz_read = plim__place_matrix(workspace, side, hop->num_src, width, model->element);
    if (v2)
        place_back_v2(model, layer, workspace, side);
    layer->dinput = NULL;
    if (!layer->raw)
        layer->dinput = plim__place_matrix(workspace, plim__workspace_other(side), hop->num_src,
                                           layer->in, PLIM__F32)
                            .data;
}

/* The biases' gradients, and dz in the element of the products. */
static void biases_back(plim__model_t *model, plim__layer_t *layer,
                        const plim__epilogue_parameters_t *parameters, const plim__matrix_t *dz,
                        plim__matrix_t *read)
{
    const plim__epilogue_t epilogue = plim__model_epilogue(model, parameters, true, false, 0);
    const plim__epilogue_gradients_t gradients = plim__model_epilogue_gradients(parameters);
    plim__epilogue_backward(model->team, &epilogue, dz, NULL, dz->data, read, NULL, &gradients,
                            layer->bias_scratch);
    plim__model_lap(model, &model->finish_ns);
}

static void products_back_v2(plim__model_t *model, plim__layer_t *layer)
{
    biases_back(model, layer, &layer->left, &layer->dz, &layer->dz_read);
    biases_back(model, layer, &layer->right, &layer->dz_dst, &layer->dz_dst_read);
    plim__linear_backward(model, &layer->product[0], &layer->dz_read, &layer->again, layer->dinput);
    plim__linear_backward(model, &layer->product[1], &layer->dz_dst_read, &layer->again,
                          layer->dx_dst);
    if (layer->raw)
        return;
    const plim__matrix_t own = plim__matrix_make(layer->dx_dst, layer->rows, layer->in, PLIM__F32);
    plim__matrix_t dinput =
        plim__matrix_make(layer->dinput, layer->hop.num_src, layer->in, PLIM__F32);
    plim__matrix_add(model->team, &own, &dinput);
}

static void backward(plim__model_t *model, plim__layer_t *layer)
{
    const bool v2 = model->params.model.kind == PLIM_GATV2;
    if (model->params.model.recompute)
        multiply(model, layer, &layer->again, &layer->z_again, &layer->z_dst_again);
    const plim__attention_t attention =
        attention_of(model, layer, &layer->z_dst_again, layer->term_row_back);
    const plim__matrix_t *dout = &layer->dy;
    if (layer->mean_of_heads) {
        run_heads(model, layer, layer->dy.data, layer->dheads.data, share_task);
        dout = &layer->dheads;
    }
    const plim__attention_gradients_t more = {
        .dz_dst = v2 ? &layer->dz_dst : NULL,
        .dtable = has_terms(model) ? plim__terms_gradient(layer) : NULL,
        .scratch = has_terms(model) ? plim__terms_partials(layer) : NULL};
    plim__reverse_make(&layer->hop, &layer->reverse);
    plim__attention_backward(
        model->team, &layer->hop, &layer->reverse, &attention, &layer->z_again,
        &layer->attention_state, dout, &layer->dz, layer->attention_src->gradient,
        v2 ? NULL : layer->attention_dst->gradient, &more, layer->attention_scratch);
    if (has_terms(model) && v2)
        plim__terms_learn(layer);
    else if (has_terms(model))
        learn_table(layer);
    if (!v2 && model->element != PLIM__F32)
        plim__matrix_convert(model->team, &layer->dz, &layer->dz_read);
    plim__model_lap(model, &model->sparse_ns);
    if (v2)
        products_back_v2(model, layer);
    else
        plim__linear_backward(model, &layer->product[0], &layer->dz_read, &layer->again,
                              layer->dinput);
    plim__layer_add_residual(model, layer);
}

const plim__conv_t plim__conv_gat = {.parameters = parameters,
                                     .place = place,
                                     .prepare = prepare,
                                     .rows = rows,
                                     .forward = forward,
                                     .place_back = place_back,
                                     .backward = backward};
