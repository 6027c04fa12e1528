#include "infer/exact_cost.h"

#include "base/check.h"
#include "base/job.h"
#include "base/node_set.h"
#include "io/engine.h"
#include "mem/arena.h"
#include "nn/epilogue.h"
#include "nn/team.h"
#include "nn/tile.h"
#include "sample/offsets.h"

#define UNIT_MOST ((int64_t)1 << 20) /* bytes of a chunk */
#define UNIT_MIN ((int64_t)1 << 16)
#define PIECE_UNITS 4 /* a piece's matrices are about so many chunks */
#define PIECE_ROWS_MOST 65536
#define GIVE_GAP ((size_t)16 << 10)
#define GIVE_DEPTH 32

static int64_t most(int64_t a, int64_t b)
{
    return plim__max_i64(a, b);
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int64_t state_floats(const plim__exact_layer_t *layer)
{
    return layer->folds ? plim__exact_slice_width(layer, layer->wide) : 0;
}

/* Of all slices together, at most: attention's scores come with each slice again. */
static int64_t stored_floats(const plim__exact_layer_t *layer)
{
    if (!layer->folds)
        return 0;
    return layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION ? 3 * layer->wide : layer->wide;
}

size_t plim__exact_buffer_bytes(int64_t capacity)
{
    return plim__round_up((size_t)capacity, PLIM__PAGE) + 2 * PLIM__PAGE;
}

size_t plim__exact_stream_bytes(int ahead, int64_t capacity)
{
    return plim__mul_saturating_size(
        (size_t)ahead, plim__arena_piece(1, plim__exact_buffer_bytes(capacity), PLIM__PAGE));
}

size_t plim__exact_writer_bytes(int64_t capacity)
{
    return 2 * plim__arena_piece(1, plim__round_up((size_t)capacity, PLIM__PAGE), PLIM__PAGE);
}

int64_t plim__exact_store_bytes(int64_t piece_bytes, int64_t pieces)
{
    return plim__mul_saturating_i64(piece_bytes, pieces);
}

size_t plim__exact_epilogue_bytes(const plim__exact_epilogue_t *finish, int64_t rows)
{
    const plim__epilogue_t made = {.width = finish->width, .norm = finish->norm};
    return plim__epilogue_kept(&made, rows);
}

plim__reader_params_t plim__exact_give_reader(size_t row_bytes)
{
    return (plim__reader_params_t){.depth = GIVE_DEPTH, .max_read = row_bytes, .gap = GIVE_GAP};
}

size_t plim__exact_give_bytes(const plim_job_t *job, int64_t piece_rows, int64_t width)
{
    const plim__reader_params_t params = plim__exact_give_reader((size_t)width * sizeof(float));
    const size_t rows = (size_t)piece_rows;
    return plim__round_up(plim__arena_piece(rows, sizeof(plim__read_t), 1) +
                              2 * plim__arena_piece(rows, sizeof(uint64_t), 1),
                          PLIM__PAGE) +
           plim__reader_estimate(job->io_engine, &params);
}

void plim__exact_layers_shape(const plim_dataset_info_t *info, const plim_model_t *model,
                              int64_t num_outputs, bool embeddings, int *num_layers_out,
                              plim__exact_layer_t *layers_out)
{
    const int count = model->num_layers - (embeddings ? 1 : 0);
    for (int i = 0; i < count; i++)
        plim__exact_layer_shape(model, info->num_features, num_outputs, i, &layers_out[i]);
    if (count == 0) /* a model of one layer reads the features themselves */
        layers_out[0] = (plim__exact_layer_t){.in = info->num_features,
                                              .out = info->num_features,
                                              .inner = info->num_features,
                                              .epilogue = {.width = info->num_features}};
    *num_layers_out = count > 0 ? count : 1;
}

static int64_t choose_rows(const plim__exact_layer_t *layers, int num_layers, int64_t num_nodes,
                           int64_t unit)
{
    int64_t floats = 1;
    for (int i = 0; i < num_layers; i++) {
        const plim__exact_layer_t *layer = &layers[i];
        floats = most(floats, (plim__exact_wants_root(layer) ? layer->in : 0) + 2 * layer->out +
                                  2 * state_floats(layer));
    }
    int64_t rows = PIECE_UNITS * unit / (4 * floats);
    rows = plim__min_i64(most(rows, PLIM__EXACT_TILE), PIECE_ROWS_MOST);
    rows = plim__min_i64(rows, most(num_nodes, 1));
    return (int64_t)plim__round_up((size_t)rows, PLIM__EXACT_TILE);
}

static int64_t piece_bytes(int64_t rows, int64_t width)
{
    return (int64_t)plim__round_up(
        plim__mul_saturating_size((size_t)rows, (size_t)width * sizeof(float)), PLIM__PAGE);
}

static void add_layer(plim__exact_sizes_t *sizes, const plim__exact_layer_t *layer)
{
    const int64_t rows = sizes->piece_rows, states = state_floats(layer);
    sizes->chunk = most(sizes->chunk, layer->in * (int64_t)sizeof(float));
    sizes->states = most(sizes->states, piece_bytes(rows, stored_floats(layer)) +
                                            (layer->folds ? plim__exact_slices_most(layer) : 0) *
                                                (int64_t)PLIM__PAGE);
    sizes->written = most(sizes->written, piece_bytes(rows, most(layer->out, states)));
    if (plim__exact_wants_root(layer))
        sizes->x = most(sizes->x, layer->in);
    if (layer->second != NULL)
        sizes->y = most(sizes->y, layer->inner);
    sizes->h = most(sizes->h, layer->out);
    sizes->tile = most(sizes->tile, most(layer->in, layer->wide));
    sizes->kept = larger(sizes->kept, plim__exact_epilogue_bytes(&layer->epilogue, rows));
    if (layer->second != NULL) {
        sizes->kept = larger(sizes->kept, plim__exact_epilogue_bytes(&layer->last, rows));
        sizes->second = larger(sizes->second, plim__tile_bytes(layer->inner, layer->out));
    }
    if (layer->front != NULL)
        sizes->front = larger(sizes->front, plim__tile_bytes(layer->in, states));
    if (layer->behind != NULL)
        sizes->behind = larger(sizes->behind, plim__tile_bytes(layer->wide, layer->inner));
    if (layer->root != NULL)
        sizes->root = larger(sizes->root, plim__tile_bytes(layer->in, layer->inner));
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION)
        sizes->scores =
            larger(sizes->scores, (size_t)layer->heads * 2 * (size_t)layer->in * sizeof(float));
}

static size_t floats_piece(int64_t rows, int64_t width)
{
    return plim__arena_piece((size_t)rows, (size_t)width * sizeof(float), PLIM__LINE);
}

/* As plim__exact_carve carves. */
static size_t arena_bytes(const plim__exact_sizes_t *sizes, int workers)
{
    const int64_t rows = sizes->piece_rows;
    const size_t tiles = 2 * floats_piece(PLIM__EXACT_TILE, sizes->tile); /* x and a of a worker */
    size_t bytes = plim__arena_piece(1, PLIM__EXACT_OWN_BYTES, 1) +
                   plim__arena_piece((size_t)workers, PLIM__EXACT_WORKER_BYTES, 1) +
                   (size_t)workers * tiles;
    bytes += 3 * plim__exact_stream_bytes(PLIM__EXACT_AHEAD, sizes->chunk) +
             plim__exact_stream_bytes(PLIM__EXACT_AHEAD_STATES, sizes->states) +
             plim__exact_writer_bytes(sizes->written);
    bytes += floats_piece(rows, sizes->x) + floats_piece(rows, sizes->y) +
             floats_piece(rows, sizes->h) +
             plim__arena_piece(1, (size_t)sizes->written, PLIM__LINE);
    const size_t weights[] = {sizes->front,  sizes->behind, sizes->root,
                              sizes->second, sizes->scores, sizes->kept};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        bytes = plim__add_saturating_size(bytes, plim__arena_piece(1, weights[i], PLIM__LINE));
    return plim__round_up(bytes, PLIM__PAGE);
}

plim__exact_sizes_t plim__exact_sizes(const plim_job_t *job, const plim_dataset_info_t *info,
                                      const plim__exact_layer_t *layers, int num_layers,
                                      int64_t unit)
{
    const int workers = plim__job_threads(job);
    plim__exact_sizes_t sizes = {
        .chunk = unit, .piece_rows = choose_rows(layers, num_layers, info->num_nodes, unit)};
    for (int i = 0; i < num_layers; i++)
        add_layer(&sizes, &layers[i]);
    sizes.chunk = (int64_t)plim__round_up((size_t)sizes.chunk, PLIM__PAGE);
    sizes.arena = arena_bytes(&sizes, workers);
    sizes.bytes = sizes.arena + plim__team_estimate(workers) +
                  3 * plim__engine_estimate(job->io_engine, PLIM__EXACT_AHEAD) +
                  plim__engine_estimate(job->io_engine, PLIM__EXACT_AHEAD_STATES) +
                  plim__engine_estimate(job->io_engine, 2);
    return sizes;
}

plim__exact_sizes_t plim__exact_sizes_fit(const plim_job_t *job, const plim_dataset_info_t *info,
                                          const plim__exact_layer_t *layers, int num_layers,
                                          size_t available)
{
    int64_t unit = UNIT_MOST;
    plim__exact_sizes_t sizes = plim__exact_sizes(job, info, layers, num_layers, unit);
    while (unit > UNIT_MIN && sizes.bytes > available / 8) {
        unit /= 2;
        sizes = plim__exact_sizes(job, info, layers, num_layers, unit);
    }
    return sizes;
}

/* Nothing is started yet: all nodes, whatever will be asked for. */
size_t plim__exact_cost_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim_model_t *model, int64_t num_outputs, bool embeddings)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__exact_layer_t layers[PLIM_HOPS_MAX] = {{0}};
    int num_layers;
    int64_t floats = 0;
    plim__exact_layers_shape(info, model, num_outputs, embeddings, &num_layers, layers);
    for (int i = 0; i < num_layers; i++)
        floats = most(floats, plim__exact_minimum_floats(&layers[i], info->num_nodes));
    const plim__exact_sizes_t sizes = plim__exact_sizes(job, info, layers, num_layers, UNIT_MIN);
    size_t later = plim__mul_saturating_size((size_t)floats, sizeof(float)) + 2 * PLIM__PAGE;
    later = plim__add_saturating_size(
        later, plim__exact_give_bytes(job, sizes.piece_rows, layers[num_layers - 1].out));
    later = plim__add_saturating_size(
        later,
        (size_t)(num_layers + 1) *
            plim__arena_piece(1, plim__node_set_bytes(info->num_nodes) + PLIM__PAGE, PLIM__PAGE));
    /* Reading the offsets is over before the rest is there. */
    later = larger(plim__add_saturating_size(later, sizes.bytes), plim__offsets_work_minimum(job));
    return plim__add_saturating_size(later, plim__offsets_estimate(dataset));
}

static int64_t pieces_of(int64_t count, int64_t piece_rows)
{
    return (count + piece_rows - 1) / piece_rows;
}

/* Bytes of a layer's whole product. */
static int64_t resident_bytes(const plim__exact_work_t *work, int index)
{
    return index >= work->num_layers
               ? 0
               : plim__mul_saturating_i64(work->count[index],
                                          4 * state_floats(&work->layers[index]));
}

/* The same, but no less than what any pass over it takes. */
static int64_t room_bytes(const plim__exact_work_t *work, int index)
{
    const int64_t resident = resident_bytes(work, index);
    if (index >= work->num_layers || !work->layers[index].folds)
        return resident;
    const int64_t floats = plim__exact_minimum_floats(&work->layers[index], work->count[index]);
    return most(resident,
                plim__mul_saturating_i64(floats, sizeof(float)) + 2 * (int64_t)PLIM__PAGE);
}

static int64_t output_bytes(const plim__exact_work_t *work, int index)
{
    const bool stored = index < work->num_layers - 1 || work->stored;
    if (index < 0 || !stored)
        return 0;
    return plim__exact_store_bytes(piece_bytes(work->piece_rows, work->layers[index].out),
                                   pieces_of(work->count[index + 1], work->piece_rows));
}

static void plan_partial(const plim__exact_work_t *work, int index, plim__exact_plan_t *plan)
{
    const plim__exact_choice_t *choice = &plan->choice;
    plan->slots = choice->slices - (choice->blocks > 1 ? 0 : 1);
    plan->partial =
        plan->slots * plim__exact_store_bytes(piece_bytes(work->piece_rows, choice->width),
                                              pieces_of(work->count[index + 1], work->piece_rows));
}

/* One layer in `available` bytes, of which `input` are taken by what it reads; false, and what
 * would be needed, when that is too little. */
static bool fit_layer(const plim__exact_work_t *work, int index, int64_t available, int64_t input,
                      plim__exact_plan_t *plan, int64_t *needed_out)
{
    const plim__exact_layer_t *layer = &work->layers[index];
    const int64_t from = work->count[index], to = work->count[index + 1];
    const int64_t edges = work->edges[index + 1];
    const int64_t output = output_bytes(work, index);
    const int64_t all = plim__add_saturating_i64(input, output);
    plan->in_memory = work->most_rows == 0 &&
                      plim__add_saturating_i64(all, room_bytes(work, index)) <= available &&
                      plim__add_saturating_i64(output, room_bytes(work, index + 1)) <= available;
    int64_t left = available - input - (plan->in_memory || work->scratch_counts ? output : 0);
    if (!layer->folds || to == 0) {
        *needed_out = available - left;
        return left >= 0;
    }
    const int64_t row = index > 0
                            ? 4 * layer->in
                            : layer->in * (int64_t)plim__feature_bytes(work->info->feature_type);
    const int64_t states = plim__mul_saturating_i64(to, 4 * stored_floats(layer));
    if (work->scratch_counts && resident_bytes(work, index) > left)
        left -= states + states / 16;
    if (work->most_rows > 0)
        left = plim__min_i64(left, work->most_rows + 2 * (int64_t)PLIM__PAGE);
    const int64_t floats = left / 4 - 2 * (int64_t)(PLIM__PAGE / sizeof(float));
    const int64_t lists = plim__min_i64(work->info->num_edges, edges) *
                          (int64_t)plim__index_bytes(work->info->index_type);
    if (floats > 0)
        plan->choice = plim__exact_choose(layer, from, to, edges,
                                          plim__mul_saturating_i64(from, row), lists, floats);
    if (plan->choice.slices == 0) {
        *needed_out = available - left + 4 * plim__exact_minimum_floats(layer, from) +
                      2 * (int64_t)PLIM__PAGE;
        return false;
    }
    plan_partial(work, index, plan);
    return true;
}

bool plim__exact_fit(const plim__exact_work_t *work, int64_t available, plim__exact_fit_t *fit_out)
{
    plim__exact_fit_t fit = {.held = 0};
    int64_t held = 0, on_disk = 0;
    for (int i = 0; i < work->num_layers; i++) {
        plim__exact_plan_t *plan = &fit.plans[i];
        if (!fit_layer(work, i, available, held, plan, &fit.needed)) {
            *fit_out = fit;
            return false;
        }
        const int64_t output = output_bytes(work, i);
        const int64_t stored = plan->in_memory ? 0 : output;
        const int64_t kept = plan->in_memory || work->scratch_counts ? output : 0;
        const int64_t rows =
            piece_bytes(plan->choice.rows, plan->choice.width) + 2 * (int64_t)PLIM__PAGE;
        fit.disk = most(fit.disk, on_disk + stored + plan->partial);
        fit.held = most(fit.held, held + kept + rows);
        held = kept;
        on_disk = stored;
    }
    *fit_out = fit;
    return true;
}
