/* The columns of a slice, of a block of sources, made from the layer's input and kept in memory. */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "nn/tile.h"

#include <math.h>

#define TILE PLIM__EXACT_TILE

typedef struct fill {
    plim__exact_t *exact;
    const plim__exact_slice_t *slice;
    int64_t first; /* rank of the first row in memory */
    plim__exact_chunk_t chunk;
    const char *data;
} fill_t;

/* The slice's part of the weight in front, with attention's scores before it. */
static void pack_front(plim__exact_t *exact, const plim__exact_slice_t *slice)
{
    const plim__exact_layer_t *layer = exact->layer;
    const int64_t scores = 2 * (int64_t)slice->heads;
    if (scores > 0)
        plim__tile_pack(exact->scores + (int64_t)2 * slice->head * layer->in, layer->in, 0, scores,
                        exact->packed_front);
    plim__tile_pack(layer->front + slice->first * layer->in, layer->in, scores, slice->count,
                    exact->packed_front);
}

/* Rows rank … rank+rows-1 of the input: as floats at `x`, or the slice's columns at `to`. */
static void load_rows(const fill_t *fill, int64_t rank, int64_t rows, float *x, float *to)
{
    const plim__exact_t *exact = fill->exact;
    const plim__exact_layer_t *layer = exact->layer;
    const plim__exact_slice_t *slice = fill->slice;
    int64_t node = plim__exact_node_at(exact->from, rank);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t place = plim__exact_rank(exact->source.set, node);
        const char *row =
            fill->data + (plim__exact_row_offset(&exact->source, place) - fill->chunk.offset);
        if (layer->front != NULL)
            plim__exact_load(exact, row, 0, layer->in, x + i * layer->in);
        else
            plim__exact_load(exact, row, slice->first, slice->count, to + i * slice->width);
        if (i + 1 < rows)
            node = plim__exact_node_after(exact->from, node);
    }
}

/* Each row times the source's share of GCN's weights. */
static void scale_rows(const fill_t *fill, int64_t rank, int64_t rows, float *to)
{
    const plim__exact_t *exact = fill->exact;
    int64_t node = plim__exact_node_at(exact->from, rank);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t degree = plim__offsets_list(exact->offsets, node).degree;
        const float scale = 1.0f / sqrtf((float)(plim__min_i64(degree, exact->layer->fanout) + 1));
        float *row = to + i * fill->slice->width;
        for (int64_t j = 0; j < fill->slice->width; j++)
            row[j] *= scale;
        if (i + 1 < rows)
            node = plim__exact_node_after(exact->from, node);
    }
}

static void fill_tile(void *context, int worker, int64_t tile)
{
    const fill_t *fill = context;
    const plim__exact_t *exact = fill->exact;
    const plim__exact_layer_t *layer = exact->layer;
    const int64_t rank = fill->chunk.first + tile * TILE;
    const int64_t rows = plim__min_i64(TILE, fill->chunk.end - rank);
    const int64_t width = fill->slice->width;
    float *x = exact->workers[worker].x;
    float *to = exact->resident + (rank - fill->first) * width;
    load_rows(fill, rank, rows, x, to);
    if (layer->front != NULL)
        plim__tile_product(exact->packed_front, layer->in, width, rows, x, layer->in, false, to,
                           width);
    if (layer->scale == PLIM__EXACT_GCN)
        scale_rows(fill, rank, rows, to);
}

plim_status_t plim__exact_fill(plim__exact_t *exact, const plim__exact_slice_t *slice,
                               int64_t first, int64_t end)
{
    plim__exact_rows_t rows = plim__exact_rows_of(exact, exact->from, first, end);
    const int64_t cost = 100 + exact->layer->in * (slice->width + 16) / 32;
    fill_t fill = {.exact = exact, .slice = slice, .first = first};
    if (exact->layer->front != NULL)
        pack_front(exact, slice);
    plim__exact_stream_start(&exact->rows, exact->source.file, exact->source.memory,
                             plim__exact_rows_next, &rows);
    while (plim__exact_stream_peek(&exact->rows) != NULL) {
        char *data;
        PLIM_TRY(plim__exact_stream_take(&exact->rows, &fill.chunk, &data));
        fill.data = data;
        plim__team_run(exact->team, (fill.chunk.end - fill.chunk.first + TILE - 1) / TILE,
                       TILE * cost, fill_tile, &fill);
        if (exact->choice.slices * exact->choice.blocks == 1) /* of many passes one bar is enough */
            plim__progress(exact->job, exact->reading, "rows", fill.chunk.end - first, end - first);
    }
    return PLIM_OK;
}
