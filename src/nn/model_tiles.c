/*
 * A layer forward, tile by tile: one thread computes the rows of x, the product and the epilogue of
 * a tile while they are in its cache.
 */
#include "nn/model_internal.h"

typedef struct tiles_forward {
    plim__model_t *model;
    plim__layer_t *layer;
    plim__epilogue_t inner, epilogue;
    plim__matrix_t residual;
} tiles_forward_t;

/* Batch norm needs statistics of all rows before it changes one. */
bool plim__layer_tiled(const plim__model_t *model)
{
    return model->conv->forward == NULL &&
           !(model->params.model.norm == PLIM_NORM_BATCH && model->pass.training);
}

static void lap(int64_t *since, int64_t *part)
{
    const int64_t now = plim__clock_ns();
    *part += now - *since;
    *since = now;
}

/* Memory for a product's rows from `first` on: their final place, or the worker's tile. */
static float *tile_of(const tiles_forward_t *forward, int worker, const plim__matrix_t *h,
                      int64_t first)
{
    if (h->element == PLIM__F32)
        return (float *)h->data + first * h->stride;
    return forward->model->tiles + worker * forward->model->tile_floats;
}

static void forward_tile(void *context, int worker, int64_t tile)
{
    tiles_forward_t *forward = context;
    plim__model_t *model = forward->model;
    plim__layer_t *layer = forward->layer;
    plim__worker_times_t *times = &model->times[worker];
    int64_t since = plim__clock_ns();
    int64_t first, end;
    plim__dense_tile_rows(layer->x.rows, tile, &first, &end);
    model->conv->rows(model, layer, &layer->x, first, end);
    lap(&since, &times->sparse_ns);
    const plim__matrix_t *x = &layer->x;
    const plim__linear_t *linear = &layer->product[0];
    if (layer->product[1].dense != NULL) {
        float *y = tile_of(forward, worker, &layer->inner_h, first);
        plim__dense_forward_tile(linear->dense, worker, x, tile, y);
        lap(&since, &times->dense_ns);
        plim__epilogue_forward_rows(&forward->inner, y, NULL, &layer->inner_h, layer->inner_kept,
                                    first, end);
        lap(&since, &times->finish_ns);
        x = &layer->inner_h;
        linear = &layer->product[1];
    }
    float *y = tile_of(forward, worker, &layer->h, first);
    plim__dense_forward_tile(linear->dense, worker, x, tile, y);
    lap(&since, &times->dense_ns);
    plim__epilogue_forward_rows(&forward->epilogue, y, layer->residual ? &forward->residual : NULL,
                                &layer->h, layer->kept, first, end);
    lap(&since, &times->finish_ns);
}

/* Divides the elapsed time in proportion to the workers' times. */
static void share_time(plim__model_t *model)
{
    plim__worker_times_t sum = {0};
    for (int i = 0; i < model->params.workers; i++) {
        sum.dense_ns += model->times[i].dense_ns;
        sum.sparse_ns += model->times[i].sparse_ns;
        sum.finish_ns += model->times[i].finish_ns;
        model->times[i] = (plim__worker_times_t){0};
    }
    int64_t passed = 0;
    plim__model_lap(model, &passed);
    const int64_t all = plim__max_i64(1, sum.dense_ns + sum.sparse_ns + sum.finish_ns);
    const double scale = (double)passed / (double)all;
    model->dense_ns += (int64_t)((double)sum.dense_ns * scale);
    model->sparse_ns += (int64_t)((double)sum.sparse_ns * scale);
    model->finish_ns += (int64_t)((double)sum.finish_ns * scale);
}

void plim__layer_forward_tiles(plim__model_t *model, plim__layer_t *layer,
                               const plim__matrix_t *residual)
{
    const int64_t rows = layer->rows;
    const int64_t tiles = plim__dense_tiles(rows);
    tiles_forward_t forward = {.model = model, .layer = layer, .residual = *residual};
    forward.epilogue = plim__layer_epilogue(model, layer);
    double flops = 0;
    for (int i = 0; i < 2; i++) {
        const plim__linear_t *linear = &layer->product[i];
        if (linear->dense == NULL)
            continue;
        plim__dense_prepare(linear->dense);
        flops += 2.0 * (double)rows * (double)linear->in * (double)linear->out;
    }
    if (layer->product[1].dense != NULL)
        forward.inner = plim__layer_inner(model, layer);
    model->dense_flops += flops;
    plim__model_lap(model, &model->sparse_ns);
    const int64_t nanoseconds =
        (int64_t)(flops / 150) + layer->hop.num_edges * (3 + layer->in / 10);
    if (tiles > 0)
        plim__team_run(model->team, tiles, nanoseconds / tiles, forward_tile, &forward);
    share_time(model);
}

typedef struct again {
    plim__model_t *model;
    plim__layer_t *layer;
    plim__matrix_t *x;
} again_t;

static void input_tile(void *context, int worker, int64_t tile)
{
    (void)worker;
    const again_t *again = context;
    int64_t first, end;
    plim__dense_tile_rows(again->x->rows, tile, &first, &end);
    again->model->conv->rows(again->model, again->layer, again->x, first, end);
}

void plim__layer_input(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x)
{
    again_t again = {model, layer, x};
    const int64_t tiles = plim__dense_tiles(x->rows);
    const int64_t nanoseconds =
        layer->hop.num_edges * (3 + layer->in / 10) + x->rows * (3 + layer->in / 10);
    if (tiles > 0)
        plim__team_run(model->team, tiles, nanoseconds / tiles, input_tile, &again);
    plim__model_lap(model, &model->sparse_ns);
}
