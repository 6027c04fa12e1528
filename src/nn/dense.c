/*
 * The tiles of a product, by rows alone:
 *
 *     |     256     |     256     |     256     | 128 |32|32|3.|
 *
 * The last one reads and writes spare rows. A tile of y = x W' and of dx = dy W is a product of its
 * own, whose weight has been packed into the layout that oneDNN asked for. dW = dy' x is a sum over
 * rows: its tiles are dealt to lanes, each lane is summed by one thread into a matrix of its own,
 * and the lanes are added in their order at the end.
 *
 * Where oneDNN has no bfloat16 product, tiles are widened to float before it sees them.
 */
#include "nn/dense.h"

#include "base/fail.h"
#include "mem/arena.h"
#include "nn/bf16.h"
#include "nn/onednn.h"
#include "nn/vector.h"

#include <assert.h>
#include <string.h>

enum { FORWARD, INPUT, WEIGHT, KINDS };

#define HEIGHTS 3
#define TALLEST 512

/* Longer sums pay the transposed copies of dW's tiles; a packed weight is read as fast by any. */
static const int64_t tile_heights[KINDS][HEIGHTS] = {{PLIM__TILE_ROWS, 128, PLIM__ROWS},
                                                     {PLIM__TILE_ROWS, 128, PLIM__ROWS},
                                                     {TALLEST, 128, PLIM__ROWS}};

#define LANES_MAX 8

/* Of one worker. */
typedef struct tools {
    plim__call_t calls[KINDS][HEIGHTS];
    float *wide[2]; /* (TALLEST, out) of dy and (TALLEST, in) of x, when they must be widened */
} tools_t;

/* A weight in the layout of the products of one kind. */
typedef struct packed {
    plim__product_t packing;
    plim__call_t call;
    void *data;
    bool stale; /* older than `plain` */
} packed_t;

struct plim__dense {
    plim__arena_t arena;
    plim__dense_params_t params;
    bool widens;
    size_t foreign;
    int foreign_account;
    struct dnnl_engine *engine;
    plim__product_t products[KINDS][HEIGHTS];
    packed_t packed[WEIGHT]; /* for FORWARD and INPUT */
    float *plain;            /* (out, in) */
    float *lanes;            /* (LANES_MAX, out, in) */
    int64_t lanes_used;      /* since the last plim__dense_gradient; the others are zero */
    tools_t *tools;          /* (workers) */
};

static bool widens(const plim__dense_params_t *params)
{
    return params->element == PLIM__BF16 && !plim__onednn_has_bf16();
}

static bool wanted(const plim__dense_params_t *params, int kind)
{
    return kind == FORWARD || (kind == INPUT ? params->input_gradient : params->backward);
}

/* Three sizes multiplied, in bytes of an arena. */
static size_t piece(size_t a, size_t b, size_t c, size_t align)
{
    return plim__arena_piece(plim__mul_saturating_size(a, b), c, align);
}

/* What is carved apart from packed weights and scratch, on whose sizes oneDNN decides. */
static size_t own_bytes(const plim__dense_params_t *params)
{
    const size_t in = (size_t)params->in, out = (size_t)params->out;
    const size_t workers = (size_t)params->workers;
    size_t bytes = piece(1, 1, sizeof(plim__dense_t), 1);
    bytes = plim__add_saturating_size(bytes, piece(workers, 1, sizeof(tools_t), 1));
    bytes = plim__add_saturating_size(bytes, piece(out, in, sizeof(float), 1));
    if (params->backward)
        bytes = plim__add_saturating_size(bytes, piece(out, in, LANES_MAX * sizeof(float), 1));
    if (widens(params))
        bytes = plim__add_saturating_size(
            bytes,
            plim__mul_saturating_size(workers, piece(plim__add_saturating_size(in, out), TALLEST,
                                                     sizeof(float), 2 * PLIM__LINE)));
    return bytes;
}

/* What oneDNN takes from the heap. */
static size_t foreign_bytes(const plim__dense_params_t *params)
{
    size_t products = 0, calls = 0;
    for (int kind = 0; kind < KINDS; kind++) {
        if (!wanted(params, kind))
            continue;
        products += HEIGHTS + (kind != WEIGHT ? 1u : 0u);
        calls += HEIGHTS * (size_t)params->workers + (kind != WEIGHT ? 1u : 0u);
    }
    return products * PLIM__ONEDNN_PRODUCT_BYTES + calls * PLIM__ONEDNN_CALL_BYTES;
}

/* Copies of all that a tile reads and writes, its sides rounded up to blocks. */
static size_t scratch_bound(const plim__dense_params_t *params)
{
    const size_t in = plim__round_up((size_t)params->in, 64);
    const size_t out = plim__round_up((size_t)params->out, 64);
    const size_t sides = piece(plim__add_saturating_size(in, out), TALLEST, sizeof(float), 1);
    return plim__add_saturating_size(plim__add_saturating_size(sides, (size_t)256 << 10),
                                     piece(in, out, sizeof(float), 1));
}

static size_t packed_bound(const plim__dense_params_t *params)
{
    return piece(plim__round_up((size_t)params->in, 64), plim__round_up((size_t)params->out, 64),
                 widens(params) ? sizeof(float) : plim__element_bytes(params->element), PLIM__PAGE);
}

size_t plim__dense_estimate(const plim__dense_params_t *params)
{
    const size_t packings = params->input_gradient ? 2 : 1;
    size_t bytes = plim__add_saturating_size(own_bytes(params), foreign_bytes(params));
    bytes = plim__add_saturating_size(bytes, packings * PLIM__PAGE);
    bytes =
        plim__add_saturating_size(bytes, plim__mul_saturating_size(packings, packed_bound(params)));
    bytes = plim__add_saturating_size(
        bytes, plim__mul_saturating_size((size_t)params->workers,
                                         piece(1, 1, scratch_bound(params), PLIM__PAGE)));
    return plim__round_up(bytes, PLIM__PAGE);
}

/* The matrices of a product, by kind; the weight of the first two in a layout of oneDNN's choice.
 */
static void product_views(const plim__dense_t *dense, int kind, int64_t rows, plim__view_t views[3])
{
    const int64_t in = dense->params.in, out = dense->params.out;
    const plim__element_t element = dense->widens ? PLIM__F32 : dense->params.element;
    if (kind == WEIGHT) {
        views[PLIM__SOURCE] = (plim__view_t){out, rows, 1, out, element};
        views[PLIM__WEIGHTS] = (plim__view_t){rows, in, in, 1, element};
        views[PLIM__TARGET] = (plim__view_t){out, in, in, 1, PLIM__F32};
        return;
    }
    const int64_t from = kind == FORWARD ? in : out;
    const int64_t to = kind == FORWARD ? out : in;
    views[PLIM__SOURCE] = (plim__view_t){rows, from, from, 1, element};
    views[PLIM__WEIGHTS] = (plim__view_t){from, to, 0, 0, element};
    views[PLIM__TARGET] = (plim__view_t){rows, to, to, 1, PLIM__F32};
}

/* `plain` as a product of the kind sees it: (in, out) or (out, in). */
static plim__view_t plain_view(const plim__dense_params_t *params, int kind)
{
    if (kind == FORWARD)
        return (plim__view_t){params->in, params->out, 1, params->in, PLIM__F32};
    return (plim__view_t){params->out, params->in, params->in, 1, PLIM__F32};
}

static plim_status_t make_kind(plim__dense_t *dense, int kind)
{
    plim__product_t *products = dense->products[kind];
    plim__view_t views[3];
    for (int h = 0; h < HEIGHTS; h++) {
        /* One packing serves all heights. */
        const plim__product_t *like = h > 0 && kind != WEIGHT ? &products[0] : NULL;
        product_views(dense, kind, tile_heights[kind][h], views);
        PLIM_TRY(plim__product_make(dense->engine, &views[PLIM__SOURCE], &views[PLIM__WEIGHTS],
                                    &views[PLIM__TARGET], like, kind == WEIGHT, &products[h]));
    }
    if (kind == WEIGHT)
        return PLIM_OK;
    const plim__view_t plain = plain_view(&dense->params, kind);
    return plim__packing_make(dense->engine, &plain, &products[0], &dense->packed[kind].packing);
}

static plim_status_t make_products(plim__dense_t *dense)
{
    PLIM_TRY(plim__onednn_engine(&dense->engine));
    for (int kind = 0; kind < KINDS; kind++)
        if (wanted(&dense->params, kind))
            PLIM_TRY(make_kind(dense, kind));
    return PLIM_OK;
}

/* The most that any call needs: they share it, for a thread makes one at a time. */
static size_t scratch_bytes(const plim__dense_t *dense)
{
    int64_t most = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int h = 0; h < HEIGHTS; h++)
            most = plim__max_i64(most, (int64_t)dense->products[kind][h].scratch);
    for (int kind = 0; kind < WEIGHT; kind++)
        most = plim__max_i64(most, (int64_t)dense->packed[kind].packing.scratch);
    return (size_t)most;
}

/* Moves the object into an arena of the size that its products ask for. */
static plim_status_t settle(plim_ledger_t *ledger, plim__dense_t *draft, plim__dense_t **dense_out)
{
    const plim__dense_params_t *params = &draft->params;
    const size_t workers = (size_t)params->workers;
    size_t bytes = own_bytes(params);
    for (int kind = 0; kind < WEIGHT; kind++)
        bytes = plim__add_saturating_size(
            bytes, piece(1, 1, draft->products[kind][0].weights, PLIM__PAGE));
    bytes = plim__add_saturating_size(
        bytes, plim__mul_saturating_size(workers, piece(1, 1, scratch_bytes(draft), PLIM__PAGE)));
    PLIM_TRY(plim__arena_create(ledger, "products", bytes, &draft->arena));
    const size_t values = (size_t)params->out * (size_t)params->in;
    plim__dense_t *dense = plim__arena_carve(&draft->arena, 1, sizeof *dense, 1);
    draft->tools = plim__arena_carve(&draft->arena, workers, sizeof(tools_t), 1);
    draft->plain = plim__arena_carve(&draft->arena, values, sizeof(float), 1);
    if (params->backward)
        draft->lanes = plim__arena_carve(&draft->arena, LANES_MAX * values, sizeof(float), 1);
    for (int kind = 0; kind < WEIGHT; kind++)
        if (wanted(params, kind))
            draft->packed[kind].data =
                plim__arena_carve(&draft->arena, 1, draft->products[kind][0].weights, PLIM__PAGE);
    *dense = *draft;
    *dense_out = dense;
    return PLIM_OK;
}

static plim_status_t make_packing_call(plim__dense_t *dense, int kind, void *scratch)
{
    packed_t *packed = &dense->packed[kind];
    packed->stale = true;
    PLIM_TRY(plim__call_make(dense->engine, &packed->packing, true, &packed->call));
    plim__call_set(&packed->call, PLIM__SOURCE, dense->plain);
    plim__call_set(&packed->call, PLIM__TARGET, packed->data);
    plim__call_set(&packed->call, PLIM__SCRATCH, scratch);
    return PLIM_OK;
}

/* Everything that a worker holds; what differs from tile to tile is set later. */
static plim_status_t make_tools(plim__dense_t *dense, int worker)
{
    tools_t *tools = &dense->tools[worker];
    void *scratch = plim__arena_carve(&dense->arena, 1, scratch_bytes(dense), PLIM__PAGE);
    if (dense->widens) {
        tools->wide[0] =
            plim__arena_carve(&dense->arena, (size_t)dense->params.out, TALLEST * sizeof(float), 1);
        tools->wide[1] =
            plim__arena_carve(&dense->arena, (size_t)dense->params.in, TALLEST * sizeof(float), 1);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        if (!wanted(&dense->params, kind))
            continue;
        for (int h = 0; h < HEIGHTS; h++) {
            plim__call_t *call = &tools->calls[kind][h];
            PLIM_TRY(plim__call_make(dense->engine, &dense->products[kind][h], false, call));
            plim__call_set(call, PLIM__SCRATCH, scratch);
            if (kind != WEIGHT)
                plim__call_set(call, PLIM__WEIGHTS, dense->packed[kind].data);
        }
        if (kind != WEIGHT && worker == 0)
            PLIM_TRY(make_packing_call(dense, kind, scratch));
    }
    return PLIM_OK;
}

/* Ends what oneDNN holds, of an object that may be half made; its arena stays. */
static void end_foreign(plim__dense_t *dense)
{
    for (int worker = 0; dense->tools != NULL && worker < dense->params.workers; worker++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int h = 0; h < HEIGHTS; h++)
                plim__call_end(&dense->tools[worker].calls[kind][h]);
    for (int kind = 0; kind < WEIGHT; kind++) {
        plim__call_end(&dense->packed[kind].call);
        plim__product_end(&dense->packed[kind].packing);
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (int h = 0; h < HEIGHTS; h++)
            plim__product_end(&dense->products[kind][h]);
    plim__onednn_engine_end(dense->engine);
}

plim_status_t plim__dense_create(plim_ledger_t *ledger, const plim__dense_params_t *params,
                                 plim__dense_t **dense_out)
{
    plim__dense_t draft = {
        .params = *params, .widens = widens(params), .foreign = foreign_bytes(params)};
    plim__dense_t *dense = NULL;
    PLIM_TRY(plim__ledger_reserve(ledger, "oneDNN", draft.foreign, &draft.foreign_account));
    const int threads = plim__onednn_alone();
    plim_status_t status = make_products(&draft);
    if (status == PLIM_OK)
        status = settle(ledger, &draft, &dense);
    for (int worker = 0; worker < params->workers && status == PLIM_OK; worker++)
        status = make_tools(dense, worker);
    plim__onednn_restore(threads);
    if (status == PLIM_OK) {
        *dense_out = dense;
        return PLIM_OK;
    }
    end_foreign(dense != NULL ? dense : &draft);
    plim__arena_destroy(&draft.arena);
    plim__ledger_release(ledger, draft.foreign_account, draft.foreign);
    return status;
}

void plim__dense_destroy(plim__dense_t *dense)
{
    if (dense == NULL)
        return;
    end_foreign(dense);
    plim__ledger_release(dense->arena.ledger, dense->foreign_account, dense->foreign);
    plim__arena_destroy(&dense->arena);
}

void plim__dense_set_weight(plim__dense_t *dense, plim__team_t *team, int64_t first, int64_t width,
                            const float *weight)
{
    (void)team; /* it is a few microseconds' work, also where the weight is large */
    const int64_t in = dense->params.in;
    for (int64_t row = 0; row < dense->params.out; row++) {
        float *to = dense->plain + row * in + first;
        memcpy(to, weight + row * width, (size_t)width * sizeof(float));
        for (int64_t i = 0; dense->widens && i < width; i++)
            to[i] = plim__f32_from_bf16(plim__bf16_from_f32(to[i]));
    }
    for (int kind = 0; kind < WEIGHT; kind++)
        dense->packed[kind].stale = true;
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

/* Where tile number `tile` of so many rows starts, and the number of its height. */
static int64_t tile_start(int kind, int64_t rows, int64_t tile, int *height_out)
{
    int64_t start = 0;
    for (int h = 0;; h++) {
        const int64_t height = tile_heights[kind][h];
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
        tiles += rows / tile_heights[kind][h];
        rows %= tile_heights[kind][h];
    }
    return tiles + (rows > 0);
}

/* A product over all rows. */
typedef struct pass {
    plim__dense_t *dense;
    int kind;
    int64_t rows;
    const plim__matrix_t *matrices[2]; /* that are read: x or dy; or dy and x */
    float *result;                     /* of FORWARD and INPUT */
    int64_t tiles;
    int64_t lanes; /* of WEIGHT */
} pass_t;

PLIM__KERNEL void widen_body(const uint16_t *from, float *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = plim__f32_from_bf16(from[i]);
}
PLIM__VECTORISED(widen, (const uint16_t *from, float *to, int64_t count), (from, to, count))

/* Rows from `start` on as the product wants them. */
static void *rows_at(const pass_t *pass, int worker, int which, int64_t start, int64_t height)
{
    const plim__matrix_t *matrix = pass->matrices[which];
    const size_t skip = (size_t)(start * matrix->width) * plim__element_bytes(matrix->element);
    char *rows = (char *)matrix->data + skip;
    if (!pass->dense->widens)
        return rows;
    /* x goes to the second buffer, whichever of the two it is here. */
    float *wide = pass->dense->tools[worker].wide[which == 1 || pass->kind == FORWARD ? 1 : 0];
    widen((const uint16_t *)(const void *)rows, wide, height * matrix->width);
    return wide;
}

static void run_tile(const pass_t *pass, int worker, int64_t tile, float *sum)
{
    int h;
    const int64_t start = tile_start(pass->kind, pass->rows, tile, &h);
    const int64_t height = tile_heights[pass->kind][h];
    const plim__call_t *call = &pass->dense->tools[worker].calls[pass->kind][h];
    plim__call_set(call, PLIM__SOURCE, rows_at(pass, worker, 0, start, height));
    if (pass->kind == WEIGHT) {
        plim__call_set(call, PLIM__WEIGHTS, rows_at(pass, worker, 1, start, height));
        plim__call_set(call, PLIM__TARGET, sum);
    } else {
        const plim__dense_params_t *params = &pass->dense->params;
        const int64_t width = pass->kind == FORWARD ? params->out : params->in;
        plim__call_set(call, PLIM__TARGET, pass->result + start * width);
    }
    plim__call_run(call);
}

static void tile_work(void *context, int worker, int64_t tile)
{
    const int threads = plim__onednn_alone();
    run_tile(context, worker, tile, NULL);
    plim__onednn_restore(threads);
}

/* Nanoseconds of a product over so many rows, roughly. */
static int64_t cost(const plim__dense_t *dense, int64_t rows)
{
    const double flops_a_nanosecond =
        dense->params.element == PLIM__BF16 && plim__onednn_fast_bf16() ? 400 : 100;
    return (int64_t)(2.0 * (double)rows * (double)dense->params.in * (double)dense->params.out /
                     flops_a_nanosecond);
}

static void run_rows(plim__dense_t *dense, plim__team_t *team, int kind, const plim__matrix_t *from,
                     float *to)
{
    assert(from->stride == from->width && from->element == dense->params.element);
    pass_t pass = {.dense = dense,
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
    *end_out = plim__min_i64(rows, *first_out + tile_heights[FORWARD][h]);
}

void plim__dense_forward_tile(plim__dense_t *dense, int worker, const plim__matrix_t *x,
                              int64_t tile, float *y)
{
    assert(x->stride == x->width && x->element == dense->params.element);
    int h;
    const int64_t start = tile_start(FORWARD, x->rows, tile, &h);
    const pass_t pass = {.dense = dense, .kind = FORWARD, .rows = x->rows, .matrices = {x}};
    const plim__call_t *call = &dense->tools[worker].calls[FORWARD][h];
    const int threads = plim__onednn_alone();
    plim__call_set(call, PLIM__SOURCE, rows_at(&pass, worker, 0, start, tile_heights[FORWARD][h]));
    plim__call_set(call, PLIM__TARGET, y);
    plim__call_run(call);
    plim__onednn_restore(threads);
}

void plim__dense_backward_input(plim__dense_t *dense, plim__team_t *team, const plim__matrix_t *dy,
                                float *dx)
{
    run_rows(dense, team, INPUT, dy, dx);
}

/* Tall tiles are dealt evenly; the first lane, which never has more of them than another, takes the
 * rest. */
static void lane_work(void *context, int worker, int64_t lane)
{
    const pass_t *pass = context;
    const plim__dense_params_t *params = &pass->dense->params;
    float *sum = pass->dense->lanes + lane * params->out * params->in;
    const int64_t tall = pass->rows / tile_heights[WEIGHT][0];
    const int64_t end = (lane + 1) * tall / pass->lanes;
    const int threads = plim__onednn_alone();
    for (int64_t tile = lane * tall / pass->lanes; tile < end; tile++)
        run_tile(pass, worker, tile, sum);
    for (int64_t tile = tall; lane == 0 && tile < pass->tiles; tile++)
        run_tile(pass, worker, tile, sum);
    plim__onednn_restore(threads);
}

static void zero_spare_rows(plim__matrix_t *matrix)
{
    const size_t row = (size_t)matrix->stride * plim__element_bytes(matrix->element);
    const size_t rows = (size_t)matrix->rows;
    memset((char *)matrix->data + rows * row, 0, (plim__round_up(rows, PLIM__ROWS) - rows) * row);
}

void plim__dense_backward_weight(plim__dense_t *dense, plim__team_t *team, plim__matrix_t *dy,
                                 plim__matrix_t *x)
{
    assert(dy->stride == dy->width && x->stride == x->width && x->rows == dy->rows);
    pass_t pass = {.dense = dense,
                   .kind = WEIGHT,
                   .rows = x->rows,
                   .matrices = {dy, x},
                   .tiles = count_tiles(WEIGHT, x->rows)};
    if (pass.tiles == 0)
        return;
    pass.lanes = plim__max_i64(1, plim__min_i64(x->rows / TALLEST, LANES_MAX));
    zero_spare_rows(dy);
    zero_spare_rows(x);
    plim__team_run(team, pass.lanes, cost(dense, x->rows) / pass.lanes, lane_work, &pass);
    dense->lanes_used = plim__max_i64(dense->lanes_used, pass.lanes);
}

typedef struct collection {
    plim__dense_t *dense;
    int64_t first, width;
    float *gradient;
} collection_t;

PLIM__KERNEL void add_body(float *to, const float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}
PLIM__VECTORISED(add, (float *to, const float *from, int64_t count), (to, from, count))

static void collect_row(void *context, int worker, int64_t row)
{
    (void)worker;
    const collection_t *collection = context;
    const plim__dense_params_t *params = &collection->dense->params;
    for (int64_t lane = 0; lane < collection->dense->lanes_used; lane++)
        add(collection->gradient + row * collection->width,
            collection->dense->lanes + (lane * params->out + row) * params->in + collection->first,
            collection->width);
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
