/* From aggregated states to a layer's output rows, a range of destinations at a time. */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "nn/aggregate.h"
#include "nn/tile.h"

#include <math.h>
#include <string.h>

#define TILE PLIM__EXACT_TILE

/* The range of destinations in progress. */
typedef struct output {
    plim__exact_t *exact;
    int64_t first; /* position of the range's first destination */
    int64_t rows;
    const float *states;              /* states of the last panel */
    const char *others;               /* states of the panels before it */
    const plim__exact_panel_t *panel; /* of destinations' z */
    float *y;                         /* (rows, inner) */
    float *h;                         /* (rows, out), after the second product */
    plim__exact_chunk_t chunk;        /* own inputs of the destinations */
    const char *data;
} output_t;

static void load_tile(void *context, int worker, int64_t tile)
{
    (void)worker;
    const output_t *output = context;
    const plim__exact_t *exact = output->exact;
    const int64_t position = output->chunk.first + tile * TILE;
    const int64_t end = plim__min_i64(position + TILE, output->chunk.end);
    int64_t node = plim__exact_node_at(exact->to, position);
    for (int64_t i = position; i < end; i++) {
        const int64_t place = plim__exact_position(exact->source.set, node);
        plim__exact_load(exact,
                         output->data +
                             (plim__exact_row_offset(&exact->source, place) - output->chunk.offset),
                         0, exact->layer->in, exact->x + (i - output->first) * exact->layer->in);
        node = plim__exact_node_after(exact->to, node);
    }
}

/* Loads the own input rows of the destinations of range `index`. */
static plim_status_t load_own(output_t *output, int64_t index)
{
    plim__exact_t *exact = output->exact;
    for (;;) {
        const plim__exact_chunk_t *next = plim__exact_reader_peek(&exact->own);
        char *data;
        if (next == NULL || next->range != index)
            return PLIM_OK;
        PLIM_TRY(plim__exact_reader_take(&exact->own, &output->chunk, &data));
        output->data = data;
        plim__team_run(exact->team, (output->chunk.end - output->chunk.first + TILE - 1) / TILE,
                       TILE * (50 + exact->layer->in / 8), load_tile, output);
    }
}

/* The sum of weights into a node as a batch of training sees it. */
static float drawn_sum(const plim__exact_t *exact, int64_t node)
{
    return plim__weight_sum_drawn(exact->weight_sums.sums[node],
                                  plim__offsets_degree(exact->offsets, node), exact->layer->fanout);
}

float plim__exact_weighted_src(const plim__exact_t *exact, int64_t node)
{
    return plim__weight_sum_scale(drawn_sum(exact, node));
}

static float scale_of(const plim__exact_t *exact, int64_t node, int64_t degree)
{
    const plim__exact_layer_t *layer = exact->layer;
    float sum;
    switch (layer->scale) {
    case PLIM__EXACT_GCN_WEIGHTED:
        sum = exact->weight_sums.sums[node];
        return sum == 0 ? 0.0f : sqrtf(drawn_sum(exact, node)) / sum;
    case PLIM__EXACT_GCN:
        /* The mean over the neighbours and the node, times sqrt(k_v+1). */
        return sqrtf((float)(plim__min_i64(degree, layer->fanout) + 1)) / (float)(degree + 1);
    case PLIM__EXACT_MEAN:
        return degree == 0 ? 0.0f : 1.0f / (float)degree;
    case PLIM__EXACT_PLAIN:
        break;
    }
    return 1.0f;
}

/* Computes a panel's columns of one destination from its state. */
static void columns_of_state(const plim__exact_layer_t *layer, const plim__exact_panel_t *panel,
                             const float *state, int64_t degree, float scale, float *to)
{
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_MAX && degree == 0) {
        memset(to, 0, (size_t)panel->count * sizeof *to);
        return;
    }
    if (!plim__exact_attends(layer)) {
        for (int64_t j = 0; j < panel->count; j++)
            to[j] = state[j] * scale;
        return;
    }
    for (int64_t j = 0; j < panel->count; j++) {
        const int64_t head = (panel->first + j) / layer->channels - panel->head;
        to[j] = state[2 * (int64_t)panel->heads + j] / state[2 * head + 1];
    }
}

/* Assembles the aggregated columns of rows [row, row + rows) of the range: to (rows, wide). */
static void assemble(const output_t *output, int64_t row, int64_t rows, float *to)
{
    const plim__exact_t *exact = output->exact;
    const plim__exact_layer_t *layer = exact->layer;
    int64_t degrees[TILE];
    float scales[TILE];
    int64_t node = plim__exact_node_at(exact->to, output->first + row);
    for (int64_t i = 0; i < rows; i++) {
        degrees[i] = plim__offsets_degree(exact->offsets, node);
        scales[i] = scale_of(exact, node, degrees[i]);
        node = plim__exact_node_after(exact->to, node);
    }
    const int64_t panels = exact->plan->choice.panels;
    for (int64_t s = 0; s < panels; s++) {
        const plim__exact_panel_t panel = plim__exact_panel(exact, s);
        const bool last = s == panels - 1;
        const float *states =
            last ? output->states : (const float *)(const void *)(output->others + panel.offset);
        for (int64_t i = 0; i < rows; i++)
            columns_of_state(layer, &panel, states + (row + i) * panel.width, degrees[i], scales[i],
                             to + i * layer->wide + panel.first);
    }
}

static void mean_of_heads(const plim__exact_layer_t *layer, int64_t rows, const float *a, float *y)
{
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < layer->channels; j++) {
            float sum = 0;
            for (int head = 0; head < layer->heads; head++)
                sum += a[i * layer->wide + head * layer->channels + j];
            y[i * layer->channels + j] = sum / (float)layer->heads;
        }
}

/* Computes one tile of the range up to the first epilogue. */
static void multiply_tile(void *context, int worker, int64_t tile)
{
    const output_t *output = context;
    const plim__exact_t *exact = output->exact;
    const plim__exact_layer_t *layer = exact->layer;
    const int64_t row = tile * TILE;
    const int64_t rows = plim__min_i64(TILE, output->rows - row);
    const float *x = exact->x + row * layer->in;
    float *y = output->y + row * layer->inner;
    float *a = plim__exact_tile(exact, worker);
    const bool begun = layer->aggregates;
    if (layer->aggregates) {
        const bool straight = layer->behind == NULL && !layer->mean_of_heads;
        assemble(output, row, rows, straight ? y : a);
        if (layer->behind != NULL)
            plim__tile_product(exact->packed_behind, layer->wide, layer->inner, rows, a,
                               layer->wide, false, y, layer->inner);
        else if (layer->mean_of_heads)
            mean_of_heads(layer, rows, a, y);
    }
    if (layer->root != NULL)
        plim__tile_product(exact->packed_root, layer->in, layer->inner, rows, x, layer->in, begun,
                           y, layer->inner);
    else if (!begun) /* embeddings of a model of one layer: the inputs themselves */
        memcpy(y, x, (size_t)(rows * layer->in) * sizeof *y);
}

static void second_tile(void *context, int worker, int64_t tile)
{
    (void)worker;
    const output_t *output = context;
    const plim__exact_t *exact = output->exact;
    const plim__exact_layer_t *layer = exact->layer;
    const int64_t row = tile * TILE;
    plim__tile_product(exact->packed_second, layer->inner, layer->out,
                       plim__min_i64(TILE, output->rows - row), output->y + row * layer->inner,
                       layer->inner, false, output->h + row * layer->out, layer->out);
}

/* Applies an epilogue in place: y (rows, width); residual (rows, width) or NULL. */
static void apply_epilogue(const plim__exact_t *exact, const plim__epilogue_t *epilogue,
                           int64_t rows, float *y, const float *residual)
{
    plim__matrix_t h = plim__matrix_make(y, rows, epilogue->width, PLIM__F32);
    const plim__matrix_t own =
        plim__matrix_make((float *)(uintptr_t)residual, rows, epilogue->width, PLIM__F32);
    plim__epilogue_forward(exact->team, epilogue, y, residual != NULL ? &own : NULL, &h,
                           exact->kept);
}

/* GATv2's z of one tile of destinations. */
static void dst_tile(void *context, int worker, int64_t tile)
{
    (void)worker;
    const output_t *output = context;
    const plim__exact_t *exact = output->exact;
    const plim__exact_layer_t *layer = exact->layer;
    const plim__exact_panel_t *panel = output->panel;
    const int64_t row = tile * TILE;
    const int64_t rows = plim__min_i64(TILE, output->rows - row);
    float *z = exact->z + row * panel->count;
    plim__tile_product(exact->packed_dst, layer->in, panel->count, rows, exact->x + row * layer->in,
                       layer->in, false, z, panel->count);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < panel->count; j++)
            z[i * panel->count + j] += layer->dst_bias[panel->first + j];
}

plim_status_t plim__exact_output_dst(plim__exact_t *exact, const plim__exact_panel_t *panel,
                                     int64_t range, int64_t rows)
{
    const plim__exact_layer_t *layer = exact->layer;
    output_t work = {
        .exact = exact, .first = range * exact->sizes.range_rows, .rows = rows, .panel = panel};
    PLIM_TRY(load_own(&work, range));
    if (range == 0)
        plim__tile_pack(layer->front_dst + panel->first * layer->in, layer->in, 0, panel->count,
                        exact->packed_dst);
    plim__team_run(exact->team, (rows + TILE - 1) / TILE,
                   TILE * (50 + layer->in * panel->count / 32), dst_tile, &work);
    return PLIM_OK;
}

plim_status_t plim__exact_output_range(plim__exact_t *exact, int64_t range, int64_t rows,
                                       const float *states, const char *others, float *h)
{
    const plim__exact_layer_t *layer = exact->layer;
    const bool twice = layer->second != NULL;
    output_t work = {.exact = exact,
                     .first = range * exact->sizes.range_rows,
                     .rows = rows,
                     .states = states,
                     .others = others,
                     .y = twice ? exact->y : h,
                     .h = h};
    const int64_t tiles = (rows + TILE - 1) / TILE;
    const float *residual = layer->residual ? exact->x : NULL;
    if (layer->front_dst == NULL)
        PLIM_TRY(load_own(&work, range));
    plim__team_run(exact->team, tiles, TILE * (200 + layer->in * layer->inner / 32), multiply_tile,
                   &work);
    apply_epilogue(exact, &layer->epilogue, rows, work.y, twice ? NULL : residual);
    if (!twice)
        return PLIM_OK;
    plim__team_run(exact->team, tiles, TILE * (50 + layer->inner * layer->out / 32), second_tile,
                   &work);
    apply_epilogue(exact, &layer->last, rows, h, residual);
    return PLIM_OK;
}
