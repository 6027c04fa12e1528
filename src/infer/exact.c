/*
 * How the work is laid out, and what it costs at papers100M's size (111 M nodes, 1.6 G edges, 128
 * columns of f16, two layers of GCN by way of 16 columns to 172, 1.5 M nodes wanted, 4 GiB, two
 * cores, 2.5 GB/s from disk):
 *
 *  1. Which nodes each layer is needed for, from the last to the first: the lists of the 1.5 M are
 *     read once (6.5 GB at most, 3 s). With their neighbours they are 11 M, a tenth of all, into
 *     which 0.68 of the 1.6 G edges lead: layer 1's output is 0.7 GB instead of 7.
 *  2. Layer 1: features times weight (28 GB once, 11 s; 455 GFLOP, 4 s of both cores, alongside)
 *     gives 7.1 GB, of which half fits in memory: two blocks of sources. Each is held in memory
 *     while the lists are streamed (6.5 GB, 3 s) and its rows are fetched at random, 64 bytes each
 *     (80 M a second on both cores: 8 s for both blocks). Sums travel through a nameless file of
 *     0.7 GB between the blocks.
 *  3. Layer 2: sums first, since 16 columns are fewer than 172. Its input fits in memory. The lists
 *     once more (3 s), 95 M fetches, a product, done.
 *
 *  Measured in a 4 GiB control group: 55 GB read, 1.4 GB written, 73 s of processor time, so some
 * 40 s on two cores that nobody else uses; peak 3.5 GiB.
 *
 * Considered: slices of columns alone (every slice reads all features again, and fetches 32 of a
 * line's 64 bytes); features' columns summed before the product (eight times the fetches); a full
 * product on disk (7 GB out and in again, and still sliced). exact_choose.c weighs slices against
 * blocks for each layer.
 *
 * Bits do not depend on memory, threads or engine: a sum goes through its list in ascending order
 * whatever the block, columns do not know of each other, and products (nn/tile.h) are one chain of
 * additions an output.
 */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "io/npy.h"

#include <stdio.h>
#include <string.h>

static void carve(plim__exact_t *exact, plim__arena_t *arena, int workers)
{
    const plim__exact_sizes_t *sizes = &exact->sizes;
    const size_t rows = (size_t)sizes->piece_rows;
    exact->workers = plim__arena_carve(arena, (size_t)workers, sizeof *exact->workers, 1);
    for (int i = 0; i < workers; i++) {
        const size_t row = (size_t)sizes->tile * sizeof(float);
        exact->workers[i].x = plim__arena_carve(arena, PLIM__EXACT_TILE, row, 1);
        exact->workers[i].a = plim__arena_carve(arena, PLIM__EXACT_TILE, row, 1);
    }
    exact->x = plim__arena_carve(arena, rows, (size_t)sizes->x * sizeof(float), 1);
    exact->y = plim__arena_carve(arena, rows, (size_t)sizes->y * sizeof(float), 1);
    exact->h = plim__arena_carve(arena, rows, (size_t)sizes->h * sizeof(float), 1);
    exact->state = plim__arena_carve(arena, 1, (size_t)sizes->written, 1);
    exact->packed_front = plim__arena_carve(arena, 1, sizes->front, 1);
    exact->packed_behind = plim__arena_carve(arena, 1, sizes->behind, 1);
    exact->packed_root = plim__arena_carve(arena, 1, sizes->root, 1);
    exact->packed_second = plim__arena_carve(arena, 1, sizes->second, 1);
    exact->scores = plim__arena_carve(arena, 1, sizes->scores, 1);
    exact->kept = plim__arena_carve(arena, 1, sizes->kept, 1);
}

static plim_status_t make_streams(plim__exact_t *exact, plim__arena_t *arena)
{
    const plim__exact_sizes_t *sizes = &exact->sizes;
    const plim_job_t *job = exact->job;
    PLIM_TRY(plim__exact_stream_make(&exact->lists, job, arena, PLIM__EXACT_AHEAD, sizes->chunk));
    PLIM_TRY(plim__exact_stream_make(&exact->rows, job, arena, PLIM__EXACT_AHEAD, sizes->chunk));
    PLIM_TRY(plim__exact_stream_make(&exact->own, job, arena, PLIM__EXACT_AHEAD, sizes->chunk));
    PLIM_TRY(plim__exact_stream_make(&exact->states, job, arena, PLIM__EXACT_AHEAD_STATES,
                                     sizes->states));
    return plim__exact_writer_make(&exact->writer, job, arena, sizes->written);
}

static plim_status_t open_file(const plim__exact_t *exact, const char *name, plim__file_t *file_out)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(exact->dataset);
    const plim__manifest_file_t *entry = plim__manifest_find(manifest, name);
    if (entry == NULL)
        return plim__fail(PLIM_ERR_USAGE, "%s has no %s", plim__dataset_path(exact->dataset), name);
    return plim__dataset_file_open(exact->dataset, entry, true, file_out);
}

static void destroy(plim__exact_t *exact)
{
    plim__exact_stream_end(&exact->lists);
    plim__exact_stream_end(&exact->rows);
    plim__exact_stream_end(&exact->own);
    plim__exact_stream_end(&exact->states);
    plim__exact_writer_end(&exact->writer);
    plim__exact_sets_end(exact);
    if (exact->features.fd >= 0)
        plim__file_close(&exact->features);
    if (exact->indices.fd >= 0)
        plim__file_close(&exact->indices);
    plim__team_destroy(exact->team);
    plim__offsets_destroy(exact->offsets);
    plim__arena_destroy(&exact->arena);
}

static plim_status_t make_layers(plim__exact_t *exact)
{
    const plim__exact_params_t *params = exact->params;
    plim__exact_layers_shape(exact->info, &params->model, params->num_outputs, params->embeddings,
                             &exact->num_layers, exact->layers);
    const int count = params->model.num_layers - (params->embeddings ? 1 : 0);
    for (int i = 0; i < count; i++) {
        const int64_t fanout = params->fanout[params->model.num_layers - 1 - i];
        PLIM_TRY(plim__exact_layer_make(&params->model, exact->info->num_features,
                                        params->num_outputs, params->parameters,
                                        params->num_parameters, i, &exact->layers[i]));
        exact->layers[i].fanout = fanout > 0 ? fanout : INT64_MAX - 1;
    }
    return PLIM_OK;
}

static plim_status_t fill_in(plim__exact_t *exact, plim__arena_t *arena, int workers)
{
    PLIM_TRY(make_layers(exact));
    PLIM_TRY(plim__team_create_for(exact->job, workers, &exact->team));
    carve(exact, arena, workers);
    PLIM_TRY(make_streams(exact, arena));
    PLIM_TRY(open_file(exact, "indices.npy", &exact->indices));
    return open_file(exact, "features.npy", &exact->features);
}

/* `offsets` belongs to what is made from here on. */
static plim_status_t create(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim__exact_params_t *params, plim__offsets_t *offsets,
                            plim__exact_t **exact_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__exact_layer_t layers[PLIM_HOPS_MAX];
    plim__arena_t arena;
    int num_layers;
    plim__exact_layers_shape(info, &params->model, params->num_outputs, params->embeddings,
                             &num_layers, layers);
    const int64_t available = plim__max_i64(plim_ledger_available(job->ledger), 0);
    const plim__exact_sizes_t sizes =
        plim__exact_sizes_fit(job, info, layers, num_layers, (size_t)available);
    plim_status_t status = plim__arena_create(job->ledger, "exact", sizes.arena, &arena);
    if (status != PLIM_OK) {
        plim__offsets_destroy(offsets);
        return status;
    }
    plim__exact_t *exact = plim__arena_carve(&arena, 1, sizeof *exact, 1);
    exact->job = job;
    exact->dataset = dataset;
    exact->info = info;
    exact->params = params;
    exact->sizes = sizes;
    exact->offsets = offsets;
    exact->half_path = plim__half_best();
    exact->indices.fd = exact->features.fd = -1;
    atomic_init(&exact->damaged, -1);
    status = fill_in(exact, &arena, plim__job_threads(job));
    plim__arena_touch(&arena);
    exact->arena = arena;
    if (status != PLIM_OK)
        destroy(exact);
    else
        *exact_out = exact;
    return status;
}

static plim__exact_source_t source_of_features(const plim__exact_t *exact)
{
    const bool half = exact->info->feature_type == PLIM_F16;
    const int64_t row = exact->info->num_features * (half ? 2 : 4);
    return (plim__exact_source_t){.file = &exact->features,
                                  .set = &exact->every,
                                  .half = half,
                                  .width = exact->info->num_features,
                                  .row_bytes = row,
                                  .start = PLIM__NPY_HEADER,
                                  .piece_rows = INT64_MAX};
}

static plim__exact_source_t source_of_store(const plim__exact_t *exact,
                                            const plim__exact_store_t *store, int layer)
{
    const int64_t width = exact->layers[layer].out;
    return (plim__exact_source_t){.file = store->memory.base == NULL ? &store->file : NULL,
                                  .memory = store->memory.base,
                                  .set = &exact->sets[layer + 1],
                                  .width = width,
                                  .row_bytes = width * (int64_t)sizeof(float),
                                  .piece_rows = exact->sizes.piece_rows,
                                  .piece_bytes = store->piece_bytes};
}

static plim_status_t make_store(const plim__exact_t *exact, int layer, plim__exact_store_t *store)
{
    const size_t bytes = (size_t)exact->sizes.piece_rows * (size_t)exact->layers[layer].out * 4;
    return plim__exact_store_make(
        store, exact->job, exact->params->scratch, exact->plans[layer].in_memory,
        (int64_t)plim__round_up(bytes, PLIM__PAGE),
        plim__exact_pieces(exact, plim__max_i64(exact->sets[layer + 1].count, 1)));
}

/* All layers but the last leave a store, of which the next one reads. */
static plim_status_t run_layers(plim__exact_t *exact, const plim__exact_sink_t *last,
                                plim__exact_store_t *output)
{
    plim__exact_store_t stores[2] = {{.file = {.fd = -1}}, {.file = {.fd = -1}}};
    plim_status_t status = PLIM_OK;
    char phase[64], reading[64];
    exact->source = source_of_features(exact);
    exact->phase = phase;
    exact->reading = reading;
    for (int i = 0; i < exact->num_layers && status == PLIM_OK; i++) {
        plim__exact_store_t *store = &stores[i % 2];
        plim__exact_sink_t sink = {.store = store};
        (void)snprintf(phase, sizeof phase, "exact layer %d of %d", i + 1, exact->num_layers);
        (void)snprintf(reading, sizeof reading, "exact layer %d of %d, inputs", i + 1,
                       exact->num_layers);
        if (i == exact->num_layers - 1) {
            sink = *last;
            store = output;
        }
        plim__exact_store_destroy(&stores[i % 2]);
        if (sink.store != NULL)
            status = make_store(exact, i, store);
        if (status == PLIM_OK)
            status = plim__exact_layer_run(exact, i, &sink);
        if (i < exact->num_layers - 1)
            exact->source = source_of_store(exact, store, i);
    }
    plim__exact_store_destroy(&stores[0]);
    plim__exact_store_destroy(&stores[1]);
    return status;
}

typedef struct taking {
    plim__exact_take_fn take;
    void *context;
    int64_t width;
} taking_t;

static plim_status_t hand_over(void *context, int64_t first, int64_t rows, const float *h)
{
    const taking_t *taking = context;
    return taking->take(taking->context, first, rows, taking->width, h);
}

static bool ascending(const int64_t *nodes, int64_t count)
{
    for (int64_t i = 1; i < count; i++)
        if (nodes[i] <= nodes[i - 1])
            return false;
    return true;
}

static plim_status_t evaluate(plim__exact_t *exact, const int64_t *nodes, int64_t count,
                              plim__exact_take_fn take, void *context)
{
    plim__exact_store_t output = {.file = {.fd = -1}};
    taking_t taking = {take, context, exact->layers[exact->num_layers - 1].out};
    plim__exact_sink_t sink = {.output = hand_over, .context = &taking};
    exact->stored = nodes != NULL && !ascending(nodes, count);
    PLIM_TRY(plim__exact_sets_make(exact, nodes, count));
    PLIM_TRY(plim__exact_plan_layers(exact));
    if (exact->stored)
        sink.store = &output;
    plim_status_t status = run_layers(exact, &sink, &output);
    if (status == PLIM_OK && exact->stored) {
        const plim__exact_source_t source = source_of_store(exact, &output, exact->num_layers - 1);
        status = plim__exact_give(exact, &source, nodes, count, take, context);
    }
    plim__exact_store_destroy(&output);
    return status;
}

plim_status_t plim__exact_run(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim__exact_params_t *params, const int64_t *nodes,
                              int64_t count, plim__exact_take_fn take, void *context)
{
    const size_t least = plim__exact_minimum(job, dataset, params);
    plim__offsets_t *offsets;
    plim__exact_t *exact;
    const int64_t all = plim__add_saturating_i64(
        plim_ledger_reserved(job->ledger), least < (size_t)INT64_MAX ? (int64_t)least : INT64_MAX);
    if (plim_ledger_line(job->ledger) < plim__ledger_lowest(all, plim__ledger_spare(job->ledger)))
        return plim__ledger_refuse_spare(job->ledger, plim__dataset_path(dataset),
                                         "exact evaluation", least);
    PLIM_TRY(plim__offsets_create(job, dataset, &offsets));
    PLIM_TRY(create(job, dataset, params, offsets, &exact));
    plim_status_t status = evaluate(exact, nodes, count, take, context);
    destroy(exact);
    return status;
}
