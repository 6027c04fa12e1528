/*
 * The tiles of a product, which depend only on its number of rows:
 *
 *     |     256     |     256     |     256     | 128 |32|32|3.|
 *
 * The last one reads and writes padding rows. A tile of y = x W' and of dx = dy W is a product of
 * its own, whose weight has been packed into the layout that oneDNN asked for. dW = dy' x is a sum
 * over rows: its tiles are dealt to lanes, each lane is summed by one thread into a matrix of its
 * own, and the lanes are added in their order at the end.
 *
 * Where oneDNN has no bfloat16 product, tiles are widened to float before it sees them.
 */
#include "nn/dense_object.h"

#include "base/fail.h"
#include "nn/bf16.h"
#include "nn/vector.h"

#include <assert.h>
#include <string.h>

void plim__dense_set_weight(plim__dense_t *dense, int64_t first, int64_t width, const float *weight)
{
    const int64_t in = dense->params.in;
    for (int64_t row = 0; row < dense->params.out; row++) {
        float *to = dense->plain + row * in + first;
        if (dense->params.transposed)
            for (int64_t i = 0; i < width; i++)
                to[i] = weight[i * dense->params.out + row];
        else
            memcpy(to, weight + row * width, (size_t)width * sizeof(float));
        for (int64_t i = 0; dense->widens && i < width; i++)
            to[i] = plim__f32_from_bf16(plim__bf16_from_f32(to[i]));
    }
    for (int kind = 0; kind < WEIGHT; kind++)
        dense->packed[kind].stale = true;
    atomic_store_explicit(&dense->failed, false, memory_order_relaxed);
}

/* Before the first use, not when it is set: it may be set in several parts. */
static void pack(plim__dense_t *dense, int kind)
{
    packed_t *packed = &dense->packed[kind];
    if (!packed->stale)
        return;
    const int threads = plim__onednn_alone();
    plim__call_run(&packed->call);
    plim__onednn_restore(threads);
    packed->stale = false;
}

/* Start of tile `tile` for `rows` rows, and the index of its height. */
static int64_t tile_start(int kind, int64_t rows, int64_t tile, int *height_out)
{
    int64_t start = 0;
    for (int h = 0;; h++) {
        const int64_t height = plim__tile_heights[kind][h];
        const int64_t count = (rows - start) / height;
        if (h == HEIGHTS - 1 || tile < count) {
            *height_out = h;
            return start + tile * height;
        }
        tile -= count;
        start += count * height;
    }
}

static int64_t count_tiles(int kind, int64_t rows)
{
    int64_t tiles = 0;
    for (int h = 0; h < HEIGHTS; h++) {
        tiles += rows / plim__tile_heights[kind][h];
        rows %= plim__tile_heights[kind][h];
    }
    return tiles + (rows > 0);
}

/* Arguments of a product over all rows. */
typedef struct dense_pass {
    plim__dense_t *dense;
    int kind;
    int64_t rows;
    const plim__matrix_t *matrices[2]; /* inputs: x or dy; or dy and x */
    float *result;                     /* of FORWARD and INPUT */
    int64_t tiles;
    int64_t lanes; /* of WEIGHT */
} dense_pass_t;

/* Rows from `start` on in the element of the product. */
static void *rows_at(const dense_pass_t *pass, int worker, int which, int64_t start, int64_t height)
{
    const plim__matrix_t *matrix = pass->matrices[which];
    const size_t skip = (size_t)(start * matrix->width) * plim__element_bytes(matrix->element);
    char *rows = (char *)matrix->data + skip;
    if (!pass->dense->widens)
        return rows;
    /* x uses the second buffer for every kind. */
    float *wide = pass->dense->tools[worker].wide[which == 1 || pass->kind == FORWARD ? 1 : 0];
    plim__vector_widen((const uint16_t *)(const void *)rows, wide, height * matrix->width);
    return wide;
}

/* Computes a tile's product: to `to`, or if that is NULL to the tile's rows of the result. */
static void run_tile(const dense_pass_t *pass, int worker, int64_t tile, float *to)
{
    int h;
    const plim__dense_params_t *params = &pass->dense->params;
    const int64_t start = tile_start(pass->kind, pass->rows, tile, &h);
    const int64_t height = plim__tile_heights[pass->kind][h];
    const plim__call_t *call = &pass->dense->tools[worker].calls[pass->kind][h];
    if (to == NULL)
        to = pass->result + start * (pass->kind == FORWARD ? params->out : params->in);
    plim__call_set(call, PLIM__SOURCE, rows_at(pass, worker, 0, start, height));
    if (pass->kind == WEIGHT)
        plim__call_set(call, PLIM__WEIGHTS, rows_at(pass, worker, 1, start, height));
    plim__call_set(call, PLIM__TARGET, to);
    plim__call_run(call);
}

static void tile_work(void *context, int worker, int64_t tile)
{
    const int threads = plim__onednn_alone();
    run_tile(context, worker, tile, NULL);
    plim__onednn_restore(threads);
}

/* Approximate nanoseconds of a product over `rows` rows. */
static int64_t cost(const plim__dense_t *dense, int64_t rows)
{
    const double flops_a_nanosecond =
        dense->params.element == PLIM__BF16 && plim__onednn_has_bf16() ? 400 : 100;
    return (int64_t)(2.0 * (double)rows * (double)dense->params.in * (double)dense->params.out /
                     flops_a_nanosecond);
}

static void run_rows(plim__dense_t *dense, plim__team_t *team, int kind, const plim__matrix_t *from,
                     float *to)
{
    assert(from->stride == from->width && from->element == dense->params.element);
    dense_pass_t pass = {.dense = dense,
                         .kind = kind,
                         .rows = from->rows,
                         .matrices = {from},
                         .result = to,
                         .tiles = count_tiles(kind, from->rows)};
    if (pass.tiles == 0)
        return;
    pack(dense, kind);
    plim__team_run(team, pass.tiles, cost(dense, from->rows) / pass.tiles, tile_work, &pass);
}

void plim__dense_forward(plim__dense_t *dense, plim__team_t *team, const plim__matrix_t *x,
                         float *y)
{
    run_rows(dense, team, FORWARD, x, y);
}

plim_status_t plim__dense_check(const plim__dense_t *dense)
{
    if (!atomic_load_explicit(&dense->failed, memory_order_relaxed))
        return PLIM_OK;
    return plim__fail(PLIM_ERR_NOMEM,
                      "%s could not compute a product with %lld x %lld weights: the system has no "
                      "memory left (ulimit -v, or other processes)",
                      plim__onednn_version(), (long long)dense->params.out,
                      (long long)dense->params.in);
}

void plim__dense_prepare(plim__dense_t *dense)
{
    pack(dense, FORWARD);
}

int64_t plim__dense_tiles(int64_t rows)
{
    return count_tiles(FORWARD, rows);
}

void plim__dense_tile_rows(int64_t rows, int64_t tile, int64_t *first_out, int64_t *end_out)
{
    int h;
    *first_out = tile_start(FORWARD, rows, tile, &h);
    *end_out = plim__min_i64(rows, *first_out + plim__tile_heights[FORWARD][h]);
}

void plim__dense_forward_tile(plim__dense_t *dense, int worker, const plim__matrix_t *x,
                              int64_t tile, float *y)
{
    assert(x->stride == x->width && x->element == dense->params.element);
    const dense_pass_t pass = {.dense = dense, .kind = FORWARD, .rows = x->rows, .matrices = {x}};
    const int threads = plim__onednn_alone();
    run_tile(&pass, worker, tile, y);
    plim__onednn_restore(threads);
}

void plim__dense_backward_input(plim__dense_t *dense, plim__team_t *team, const plim__matrix_t *dy,
                                float *dx)
{
    run_rows(dense, team, INPUT, dy, dx);
}

/* Tall tiles are dealt evenly; the first lane never has more of them than another and takes the
 * rest. */
static void lane_work(void *context, int worker, int64_t lane)
{
    const dense_pass_t *pass = context;
    const plim__dense_params_t *params = &pass->dense->params;
    float *sum = pass->dense->lanes + lane * params->out * params->in;
    const int64_t tall = pass->rows / plim__tile_heights[WEIGHT][0];
    const int64_t end = (lane + 1) * tall / pass->lanes;
    const int threads = plim__onednn_alone();
    for (int64_t tile = lane * tall / pass->lanes; tile < end; tile++)
        run_tile(pass, worker, tile, sum);
    for (int64_t tile = tall; lane == 0 && tile < pass->tiles; tile++)
        run_tile(pass, worker, tile, sum);
    plim__onednn_restore(threads);
}

static void zero_padding_rows(plim__matrix_t *matrix)
{
    const size_t row = (size_t)matrix->stride * plim__element_bytes(matrix->element);
    const size_t rows = (size_t)matrix->rows;
    memset((char *)matrix->data + rows * row, 0, (plim__round_up(rows, PLIM__ROWS) - rows) * row);
}

void plim__dense_backward_weight(plim__dense_t *dense, plim__team_t *team, plim__matrix_t *dy,
                                 plim__matrix_t *x)
{
    assert(dy->stride == dy->width && x->stride == x->width && x->rows >= dy->rows);
    dense_pass_t pass = {.dense = dense,
                         .kind = WEIGHT,
                         .rows = dy->rows,
                         .matrices = {dy, x},
                         .tiles = count_tiles(WEIGHT, dy->rows)};
    if (pass.tiles == 0)
        return;
    pass.lanes = plim__dense_lanes(dy->rows);
    assert(pass.lanes <= plim__dense_lanes_most(&dense->params));
    zero_padding_rows(dy);
    zero_padding_rows(x);
    plim__team_run(team, pass.lanes, cost(dense, dy->rows) / pass.lanes, lane_work, &pass);
    dense->lanes_used = plim__max_i64(dense->lanes_used, pass.lanes);
}

typedef struct collection {
    plim__dense_t *dense;
    int64_t first, width;
    float *gradient;
} collection_t;

static void collect_row(void *context, int worker, int64_t row)
{
    (void)worker;
    const collection_t *collection = context;
    const plim__dense_params_t *params = &collection->dense->params;
    for (int64_t lane = 0; lane < collection->dense->lanes_used; lane++) {
        const float *from =
            collection->dense->lanes + (lane * params->out + row) * params->in + collection->first;
        if (params->transposed)
            for (int64_t i = 0; i < collection->width; i++)
                collection->gradient[i * params->out + row] += from[i];
        else
            plim__vector_add(collection->gradient + row * collection->width, from,
                             collection->width);
    }
}

static void clear_row(void *context, int worker, int64_t row)
{
    (void)worker;
    plim__dense_t *dense = ((const collection_t *)context)->dense;
    const plim__dense_params_t *params = &dense->params;
    for (int64_t lane = 0; lane < dense->lanes_used; lane++)
        memset(dense->lanes + (lane * params->out + row) * params->in, 0,
               (size_t)params->in * sizeof(float));
}

void plim__dense_gradient(plim__dense_t *dense, plim__team_t *team, int64_t first, int64_t width,
                          bool last, float *gradient)
{
    collection_t collection = {dense, first, width, gradient};
    const int64_t rows = dense->params.out;
    plim__team_run(team, rows, dense->lanes_used * width / 8 + 1, collect_row, &collection);
    if (!last)
        return;
    plim__team_run(team, rows, dense->lanes_used * dense->params.in / 8 + 1, clear_row,
                   &collection);
    dense->lanes_used = 0;
}
