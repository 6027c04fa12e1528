/* From what was folded to a layer's output, a piece of destinations at a time. */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "infer/exact_epilogue.h"
#include "nn/tile.h"

#include <math.h>
#include <string.h>

#define TILE PLIM__EXACT_TILE

typedef struct finishing {
    plim__exact_t *exact;
    int64_t first; /* rank of the piece's first destination */
    int64_t rows;
    const float *states; /* of the last slice */
    const char *others;  /* those before it */
    float *y;            /* (rows, inner) */
    float *h;            /* (rows, out), behind the second product */
    /* While the destinations' own inputs come in. */
    plim__exact_chunk_t chunk;
    const char *data;
} finishing_t;

static void load_tile(void *context, int worker, int64_t tile)
{
    (void)worker;
    const finishing_t *finishing = context;
    const plim__exact_t *exact = finishing->exact;
    const int64_t rank = finishing->chunk.first + tile * TILE;
    const int64_t end = plim__min_i64(rank + TILE, finishing->chunk.end);
    int64_t node = plim__exact_node_at(exact->to, rank);
    for (int64_t i = rank; i < end; i++) {
        const int64_t place = plim__exact_rank(exact->source.set, node);
        plim__exact_load(exact,
                         finishing->data + (plim__exact_row_offset(&exact->source, place) -
                                            finishing->chunk.offset),
                         0, exact->layer->in, exact->x + (i - finishing->first) * exact->layer->in);
        node = plim__exact_node_after(exact->to, node);
    }
}

static plim_status_t load_own(finishing_t *finishing, int64_t piece)
{
    plim__exact_t *exact = finishing->exact;
    for (;;) {
        const plim__exact_chunk_t *next = plim__exact_stream_peek(&exact->own);
        char *data;
        if (next == NULL || next->piece != piece)
            return PLIM_OK;
        PLIM_TRY(plim__exact_stream_take(&exact->own, &finishing->chunk, &data));
        finishing->data = data;
        plim__team_run(exact->team,
                       (finishing->chunk.end - finishing->chunk.first + TILE - 1) / TILE,
                       TILE * (50 + exact->layer->in / 8), load_tile, finishing);
    }
}

static float scale_of(const plim__exact_layer_t *layer, int64_t degree)
{
    switch (layer->scale) {
    case PLIM__EXACT_GCN:
        /* The mean over neighbours and node, times what so many drawn ones would give. */
        return sqrtf((float)(plim__min_i64(degree, layer->fanout) + 1)) / (float)(degree + 1);
    case PLIM__EXACT_MEAN:
        return degree == 0 ? 0.0f : 1.0f / (float)degree;
    case PLIM__EXACT_PLAIN:
        break;
    }
    return 1.0f;
}

/* A slice's columns of one destination from its state. */
static void unfold(const plim__exact_layer_t *layer, const plim__exact_slice_t *slice,
                   const float *state, int64_t degree, float *to)
{
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_MAX && degree == 0) {
        memset(to, 0, (size_t)slice->count * sizeof *to);
        return;
    }
    if (layer->aggregate != PLIM__STREAM_AGGREGATE_ATTENTION) {
        const float scale = scale_of(layer, degree);
        for (int64_t j = 0; j < slice->count; j++)
            to[j] = state[j] * scale;
        return;
    }
    for (int64_t j = 0; j < slice->count; j++) {
        const int64_t head = (slice->first + j) / layer->channels - slice->head;
        to[j] = state[2 * (int64_t)slice->heads + j] / state[2 * head + 1];
    }
}

/* What was folded for rows [row, row + rows) of the piece, all columns: to (rows, wide). */
static void assemble(const finishing_t *finishing, int64_t row, int64_t rows, float *to)
{
    const plim__exact_t *exact = finishing->exact;
    const plim__exact_layer_t *layer = exact->layer;
    int64_t degrees[TILE];
    int64_t node = plim__exact_node_at(exact->to, finishing->first + row);
    for (int64_t i = 0; i < rows; i++) {
        degrees[i] = plim__offsets_list(exact->offsets, node).degree;
        node = plim__exact_node_after(exact->to, node);
    }
    for (int64_t s = 0; s < exact->choice.slices; s++) {
        const plim__exact_slice_t slice = plim__exact_slice(exact, s);
        const bool last = s == exact->choice.slices - 1;
        const float *states = last
                                  ? finishing->states
                                  : (const float *)(const void *)(finishing->others + slice.offset);
        for (int64_t i = 0; i < rows; i++)
            unfold(layer, &slice, states + (row + i) * slice.width, degrees[i],
                   to + i * layer->wide + slice.first);
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

/* Everything up to the first finish, for one tile of the piece. */
static void multiply_tile(void *context, int worker, int64_t tile)
{
    const finishing_t *finishing = context;
    const plim__exact_t *exact = finishing->exact;
    const plim__exact_layer_t *layer = exact->layer;
    const int64_t row = tile * TILE;
    const int64_t rows = plim__min_i64(TILE, finishing->rows - row);
    const float *x = exact->x + row * layer->in;
    float *y = finishing->y + row * layer->inner;
    float *a = exact->workers[worker].a;
    bool begun = layer->folds;
    if (layer->folds) {
        const bool straight = layer->behind == NULL && !layer->mean_of_heads;
        assemble(finishing, row, rows, straight ? y : a);
        if (layer->behind != NULL)
            plim__tile_product(exact->packed_behind, layer->wide, layer->inner, rows, a,
                               layer->wide, false, y, layer->inner);
        else if (layer->mean_of_heads)
            mean_of_heads(layer, rows, a, y);
    }
    if (layer->root != NULL)
        plim__tile_product(exact->packed_root, layer->in, layer->inner, rows, x, layer->in, begun,
                           y, layer->inner);
    else if (!begun) /* nothing is computed: the inputs themselves are wanted */
        memcpy(y, x, (size_t)(rows * layer->in) * sizeof *y);
}

static void second_tile(void *context, int worker, int64_t tile)
{
    (void)worker;
    const finishing_t *finishing = context;
    const plim__exact_t *exact = finishing->exact;
    const plim__exact_layer_t *layer = exact->layer;
    const int64_t row = tile * TILE;
    plim__tile_product(exact->packed_second, layer->inner, layer->out,
                       plim__min_i64(TILE, finishing->rows - row),
                       finishing->y + row * layer->inner, layer->inner, false,
                       finishing->h + row * layer->out, layer->out);
}

plim_status_t plim__exact_epilogue_piece(plim__exact_t *exact, int64_t piece, int64_t rows,
                                         const float *states, const char *others, float *h)
{
    const plim__exact_layer_t *layer = exact->layer;
    const bool twice = layer->second != NULL;
    finishing_t finishing = {.exact = exact,
                             .first = piece * exact->sizes.piece_rows,
                             .rows = rows,
                             .states = states,
                             .others = others,
                             .y = twice ? exact->y : h,
                             .h = h};
    const int64_t tiles = (rows + TILE - 1) / TILE;
    const float *residual = layer->residual ? exact->x : NULL;
    PLIM_TRY(load_own(&finishing, piece));
    plim__team_run(exact->team, tiles, TILE * (200 + layer->in * layer->inner / 32), multiply_tile,
                   &finishing);
    plim__exact_epilogue_rows(exact->team, &layer->epilogue, rows, finishing.y,
                              twice ? NULL : residual, exact->kept);
    if (!twice)
        return PLIM_OK;
    plim__team_run(exact->team, tiles, TILE * (50 + layer->inner * layer->out / 32), second_tile,
                   &finishing);
    plim__exact_epilogue_rows(exact->team, &layer->last, rows, h, residual, exact->kept);
    return PLIM_OK;
}
