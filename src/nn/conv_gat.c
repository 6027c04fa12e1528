/*
 * GAT: one product over all sources, then attention sums each neighbourhood. The heads' results are
 * concatenated; the output layer takes their mean.
 */
#include "nn/model_internal.h"

#include "nn/vector.h"

#define TASK_ROWS 256

static void parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer)
{
    const int heads = model->params.model.heads;
    layer->heads = heads;
    layer->mean_of_heads = layer->plain && heads > 1;
    layer->channels = layer->plain ? layer->out : layer->out / heads;
    const int64_t out = plim__mul_saturating_i64(layer->channels, heads);
    layer->product[0] = (plim__linear_t){.in = layer->in, .out = out, .num_weights = 1};
    const plim__initial_t attention = plim__initial_glorot(heads, layer->channels);
    layer->attention_src = plim__table_add(table, attention, "convs", layer->index, "att_src", 1,
                                           heads, layer->channels);
    layer->attention_dst = plim__table_add(table, attention, "convs", layer->index, "att_dst", 1,
                                           heads, layer->channels);
    layer->after.bias = plim__table_add(table, (plim__initial_t){0}, "convs", layer->index, "bias",
                                        layer->out, 0, 0);
    layer->product[0].weight[0] =
        plim__table_add(table, plim__initial_glorot(out, layer->in), "convs", layer->index,
                        "lin.weight", out, layer->in, 0);
}

static void place(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *workspace)
{
    const plim__side_t kept = plim__side_kept(model, layer);
    const int64_t num_src = layer->hop.num_src;
    const int64_t width = layer->product[0].out;
    plim__attention_state_t *state = &layer->attention_state;
    plim__place_rows(model, layer, workspace);
    state->score_src = plim__place_floats(workspace, kept, num_src, layer->heads);
    state->score_dst = plim__place_floats(workspace, kept, layer->rows, layer->heads);
    state->weights = plim__place_floats(
        workspace, kept, plim__add_saturating_i64(layer->hop.num_edges, layer->rows), layer->heads);
    layer->z = plim__place_matrix(workspace, plim__side_x(model, layer), num_src, width, PLIM__F32);
    if (layer->mean_of_heads)
        layer->heads_out = plim__place_matrix(workspace, plim__side_temporary(model, layer),
                                              layer->rows, width, PLIM__F32);
}

static void rows(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                 int64_t end)
{
    (void)model;
    plim__matrix_convert_rows(&layer->input, x, first, end);
}

static plim__attention_t attention_of(const plim__model_t *model, const plim__layer_t *layer)
{
    return (plim__attention_t){
        .heads = layer->heads,
        .channels = layer->channels,
        .att_src = layer->attention_src->value,
        .att_dst = layer->attention_dst->value,
        .dropout = model->pass.training ? model->params.model.dropout : 0.0f,
        .key = plim__model_key(model, layer->index, 1),
        .nodes = model->nodes,
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

static void forward(plim__model_t *model, plim__layer_t *layer)
{
    if (layer->raw)
        plim__layer_input(model, layer, &layer->x);
    plim__linear_forward(model, &layer->product[0], &layer->x, layer->z.data);
    const plim__attention_t attention = attention_of(model, layer);
    plim__matrix_t out = layer->mean_of_heads ? layer->heads_out
                                              : plim__matrix_make(layer->y, layer->rows,
                                                                  layer->product[0].out, PLIM__F32);
    plim__attention_forward(model->team, &layer->hop, &attention, &layer->z,
                            &layer->attention_state, &out);
    if (layer->mean_of_heads)
        run_heads(model, layer, layer->y, layer->heads_out.data, mean_task);
    plim__model_lap(model, &model->sparse_ns);
}

static void place_back(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace)
{
    const plim__side_t side = plim__side_back(layer);
    const plim__edges_t *hop = &layer->hop;
    const int64_t width = layer->product[0].out;
    const bool recompute = model->params.model.recompute;
    layer->again = layer->x;
    if (recompute && layer->raw)
        layer->again = plim__place_matrix(workspace, side, hop->num_src, layer->in, model->element);
    layer->z_again = layer->z;
    if (recompute)
        layer->z_again = plim__place_matrix(workspace, side, hop->num_src, width, PLIM__F32);
    if (layer->mean_of_heads)
        layer->dheads = plim__place_matrix(workspace, side, layer->rows, width, PLIM__F32);
    layer->dz = plim__place_matrix(workspace, side, hop->num_src, width, PLIM__F32);
    const size_t begin = workspace->used[side];
    plim__place_reverse(workspace, side, layer);
    layer->attention_scratch =
        plim__workspace_take(workspace, side,
                             plim__attention_scratch(hop->num_src, hop->num_dst, hop->num_edges,
                                                     layer->heads, layer->channels));
    workspace->used[side] = begin;
    layer->dz_read = layer->dz;
    if (model->element != PLIM__F32)
        layer->dz_read = plim__place_matrix(workspace, side, hop->num_src, width, model->element);
    layer->dinput = NULL;
    if (!layer->raw)
        layer->dinput = plim__place_matrix(workspace, plim__workspace_other(side), hop->num_src,
                                           layer->in, PLIM__F32)
                            .data;
}

static void backward(plim__model_t *model, plim__layer_t *layer)
{
    if (model->params.model.recompute) {
        if (layer->raw)
            plim__layer_input(model, layer, &layer->again);
        plim__linear_forward(model, &layer->product[0], &layer->again, layer->z_again.data);
    }
    const plim__attention_t attention = attention_of(model, layer);
    const plim__matrix_t *dout = &layer->dy;
    if (layer->mean_of_heads) {
        run_heads(model, layer, layer->dy.data, layer->dheads.data, share_task);
        dout = &layer->dheads;
    }
    plim__reverse_make(&layer->hop, &layer->reverse);
    plim__attention_backward(model->team, &layer->hop, &layer->reverse, &attention, &layer->z_again,
                             &layer->attention_state, dout, &layer->dz,
                             layer->attention_src->gradient, layer->attention_dst->gradient,
                             layer->attention_scratch);
    if (model->element != PLIM__F32)
        plim__matrix_convert(model->team, &layer->dz, &layer->dz_read);
    plim__model_lap(model, &model->sparse_ns);
    plim__linear_backward(model, &layer->product[0], &layer->dz_read, &layer->again, layer->dinput);
    plim__layer_add_residual(model, layer);
}

const plim__conv_t plim__conv_gat = {.parameters = parameters,
                                     .place = place,
                                     .rows = rows,
                                     .forward = forward,
                                     .place_back = place_back,
                                     .backward = backward};
