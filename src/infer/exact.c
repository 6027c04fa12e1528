/*
 * Exact evaluation from beginning to end, and what it costs at papers100M's size (111 M nodes, 1.6
 * G edges, 128 columns of f16, two layers of GCN by way of 16 columns to 172, 1.5 M nodes wanted, 4
 * GiB, two cores, 2.5 GB/s from disk):
 *
 *  1. Find the nodes that each layer needs, from the last to the first: the lists of the 1.5 M
 *     nodes are read once (6.5 GB at most, 3 s). With their neighbours they are 11 M, a tenth of
 *     all nodes, and 0.68 of the 1.6 G edges lead into them: layer 1's output is 0.7 GB, not 7.
 *  2. Layer 1: features times weight (28 GB once, 11 s; 455 GFLOP, 4 s of both cores, alongside)
 *     gives 7.1 GB. Half of that fits in memory: two blocks of sources. Each block is held in
 *     memory while the lists are streamed (6.5 GB, 3 s) and its rows are fetched at random, 64
 *     bytes each (80 M a second on both cores: 8 s for both blocks). A nameless file of 0.7 GB
 *     keeps the sums between the blocks.
 *  3. Layer 2 aggregates first, since 16 columns are fewer than 172. Its input fits in memory. The
 *     lists once more (3 s), 95 M fetches, one product.
 *
 * Measured in a 4 GiB control group: 55 GB read, 1.4 GB written, 73 s of CPU time, so about 40 s on
 * two idle cores; peak 3.5 GiB.
 *
 * Alternatives: only panels of columns (every panel reads all features again, and fetches 32 of a
 * line's 64 bytes); aggregating the features before the product (eight times the fetches); the
 * whole product on disk (7 GB written and read again, and still in panels). exact_plan.c compares
 * panels and blocks for each layer.
 *
 * The bits do not depend on memory, threads or I/O engine: a sum goes through its list in ascending
 * order whatever the blocks are, columns are independent, and each output of a product (nn/tile.h)
 * is one chain of additions.
 */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/npy.h"

#include <stdio.h>
#include <string.h>

static plim_status_t open_readers(plim__exact_t *exact)
{
    plim__exact_reader_t *readers[] = {&exact->lists, &exact->rows, &exact->own, &exact->states,
                                       &exact->edges};
    for (size_t i = 0; i < sizeof readers / sizeof readers[0]; i++)
        if (readers[i]->ahead > 0)
            PLIM_TRY(plim__exact_reader_open(readers[i], exact->job));
    return plim__engine_create(exact->job, 2, &exact->writer.engine);
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
    plim__exact_reader_close(&exact->lists);
    plim__exact_reader_close(&exact->rows);
    plim__exact_reader_close(&exact->own);
    plim__exact_reader_close(&exact->states);
    plim__exact_reader_close(&exact->edges);
    plim__engine_destroy(exact->writer.engine);
    plim__exact_sets_end(exact);
    if (exact->features.fd >= 0)
        plim__file_close(&exact->features);
    if (exact->column.fd >= 0)
        plim__file_close(&exact->column);
    plim__weight_sums_destroy(&exact->weight_sums);
    if (exact->indices.fd >= 0)
        plim__file_close(&exact->indices);
    plim__team_destroy(exact->team);
    plim__offsets_destroy(exact->offsets);
    plim__arena_destroy(&exact->arena);
}

/* Replaces the shapes of the layers by layers with parameters. */
static plim_status_t make_layers(plim__exact_t *exact)
{
    const plim__exact_params_t *params = exact->params;
    const int count = params->model.num_layers - (params->embeddings ? 1 : 0);
    for (int i = 0; i < count; i++) {
        const int64_t fanout = params->fanout[params->model.num_layers - 1 - i];
        PLIM_TRY(plim__exact_layer_make(&params->model, &params->columns, exact->info->num_features,
                                        params->num_outputs, params->parameters,
                                        params->num_parameters, i, &exact->layers[i]));
        exact->layers[i].fanout = fanout > 0 ? fanout : INT64_MAX - 1;
        exact->layers[i].skips_loops |= plim__offsets_skip_loops(exact->offsets);
    }
    return plim__exact_embedding(&params->model, &params->columns, params->parameters,
                                 params->num_parameters, &exact->embedding);
}

/* Gives each batch its part of edge_values. */
static void place_edges(plim__exact_t *exact)
{
    const plim__exact_column_t *column = &exact->sizes.column;
    const int64_t floats = PLIM__EXACT_BATCH * (column->entries + 1);
    if (column->column == 0)
        return;
    for (int i = 0; i < 2 * exact->sizes.workers; i++) {
        float *at = exact->edge_values + i * floats;
        int32_t *rows = (int32_t *)(void *)(at + PLIM__EXACT_BATCH);
        const bool chosen = column->categories != NULL || column->column == PLIM_EDGE_TYPE;
        exact->batches[i / 2][i % 2].edges = (plim__stream_edges_t){
            .weights = at,
            .values = chosen ? NULL : at + PLIM__EXACT_BATCH,
            .rows = chosen ? rows : NULL,
        };
    }
}

static plim_status_t open_column(plim__exact_t *exact)
{
    const unsigned column = exact->sizes.column.column;
    char name[64];
    if (column == 0)
        return PLIM_OK;
    (void)snprintf(name, sizeof name, "%s.npy", plim__column_names[__builtin_ctz(column)]);
    return open_file(exact, name, &exact->column);
}

static plim_status_t open_all(plim__exact_t *exact)
{
    PLIM_TRY(make_layers(exact));
    place_edges(exact);
    PLIM_TRY(plim__team_create_for(exact->job, exact->sizes.workers, &exact->team));
    PLIM_TRY(open_readers(exact));
    PLIM_TRY(open_file(exact, "indices.npy", &exact->indices));
    PLIM_TRY(open_column(exact));
    return open_file(exact, "features.npy", &exact->features);
}

/* Takes ownership of `offsets` and `sums`, also when it fails. */
static plim_status_t create(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim__exact_params_t *params, plim__offsets_t *offsets,
                            plim__weight_sums_t sums, plim__exact_t **exact_out)
{
    plim__exact_t draft = {.job = job,
                           .dataset = dataset,
                           .info = plim_dataset_info(dataset),
                           .params = params,
                           .peers = params->peers,
                           .offsets = offsets,
                           .half_path = plim__half_best(),
                           .indices = {.fd = -1},
                           .features = {.fd = -1},
                           .column = {.fd = -1},
                           .weight_sums = sums,
                           .damaged = -1,
                           .damaged_edge = -1};
    plim__exact_t *exact;
    const plim__exact_column_t column =
        plim__exact_column_of(draft.info, &params->model, &params->columns);
    plim__exact_layers_shape(draft.info, &params->model, &params->columns, params->num_outputs,
                             params->embeddings, &draft.num_layers, draft.layers);
    draft.sizes =
        plim__exact_sizes_fit(job, draft.info, &column, draft.layers, draft.num_layers,
                              (size_t)plim__max_i64(plim__ledger_available(job->ledger), 0));
    plim_status_t status = plim__object_create(job->ledger, "exact", plim__exact_lay_out, &draft,
                                               sizeof draft, &draft.arena, &exact);
    if (status != PLIM_OK) {
        plim__weight_sums_destroy(&sums);
        plim__offsets_destroy(offsets);
        return status;
    }
    plim__arena_touch(&exact->arena);
    status = open_all(exact);
    if (status != PLIM_OK)
        destroy(exact);
    else
        *exact_out = exact;
    return status;
}

static plim__exact_source_t source_of_features(const plim__exact_t *exact)
{
    const plim__columns_t *columns = &exact->params->columns;
    const int64_t size = (int64_t)plim__feature_bytes(exact->info->feature_type);
    return (plim__exact_source_t){
        .file = &exact->features,
        .set = &exact->all_nodes,
        .half = exact->info->feature_type == PLIM_F16,
        .categories = columns->node_categories.columns > 0 ? &columns->node_categories : NULL,
        .width = plim__model_input(&exact->params->model, columns, exact->info->num_features),
        .row_bytes = exact->info->num_features * size,
        .start = PLIM__NPY_HEADER,
        .range_rows = INT64_MAX};
}

static plim__exact_source_t source_of_store(const plim__exact_t *exact,
                                            const plim__exact_store_t *store, int layer)
{
    const int64_t width = exact->layers[layer].out;
    return (plim__exact_source_t){.file = store->memory.base == NULL ? &store->file : NULL,
                                  .memory = store->memory.base,
                                  .set = &exact->parts[layer + 1],
                                  .width = width,
                                  .row_bytes = width * (int64_t)sizeof(float),
                                  .range_rows = exact->sizes.range_rows,
                                  .range_bytes = store->range_bytes};
}

static plim_status_t make_store(const plim__exact_t *exact, int layer, plim__exact_store_t *store)
{
    const size_t bytes = (size_t)exact->sizes.range_rows * (size_t)exact->layers[layer].out * 4;
    return plim__exact_store_create(
        store, exact->job, exact->params->scratch, exact->plans[layer].in_memory,
        (int64_t)plim__round_up(bytes, PLIM__PAGE),
        plim__exact_num_ranges(exact, plim__max_i64(exact->parts[layer + 1].count, 1)));
}

/* Every layer but the last writes a store, which the next one reads. */
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
            status = plim__exact_agree(exact, make_store(exact, i, store));
        if (status == PLIM_OK)
            status = plim__exact_layer_run(exact, i, &sink);
        if (status == PLIM_OK)
            status = plim__exact_agree(exact, plim__exact_damage(exact));
        if (i < exact->num_layers - 1)
            exact->source = source_of_store(exact, store, i);
    }
    plim__exact_store_destroy(&stores[0]);
    plim__exact_store_destroy(&stores[1]);
    return status;
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
    plim__exact_sink_t sink = {.take = take, .context = context};
    const bool stored = exact->peers != NULL || (nodes != NULL && !ascending(nodes, count));
    exact->stored = stored;
    PLIM_TRY(plim__exact_sets_make(exact, nodes, count));
    PLIM_TRY(plim__exact_plan_layers(exact));
    if (stored)
        sink.store = &output;
    plim_status_t status = run_layers(exact, &sink, &output);
    if (status == PLIM_OK && stored) {
        const plim__exact_source_t source = source_of_store(exact, &output, exact->num_layers - 1);
        status = plim__exact_reorder(exact, &source, nodes,
                                     nodes != NULL ? count : exact->info->num_nodes, take, context);
    }
    plim__exact_store_destroy(&output);
    return status;
}

plim_status_t plim__exact_run(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim__exact_params_t *params, const int64_t *nodes,
                              int64_t count, plim__exact_take_fn take, void *context)
{
    const size_t minimum = plim__exact_cost_minimum(job, dataset, &params->model, &params->columns,
                                                    params->num_outputs, params->embeddings);
    plim__offsets_t *offsets;
    plim__weight_sums_t sums = {.sums = NULL};
    plim__exact_t *exact = NULL;
    plim_status_t status = PLIM_OK;
    const int64_t all =
        plim__add_saturating_i64(plim__ledger_reserved(job->ledger),
                                 minimum < (size_t)INT64_MAX ? (int64_t)minimum : INT64_MAX);
    if (plim__ledger_line(job->ledger) < all)
        status = plim__ledger_refuse(job->ledger, plim__dataset_path(dataset), "exact evaluation",
                                     minimum);
    if (status == PLIM_OK)
        status = plim__offsets_create(
            job, dataset, plim__exact_skips_loops(&params->model, &params->columns), &offsets);
    if (status == PLIM_OK && params->columns.edge_weights) {
        status = plim__weight_sums_create(job, dataset, offsets, &sums);
        if (status != PLIM_OK)
            plim__offsets_destroy(offsets);
    }
    if (status == PLIM_OK)
        status = create(job, dataset, params, offsets, sums, &exact);
    status = plim__peers_agree(params->peers, PLIM__STAGE_EVALUATION, status, 0, NULL, NULL, NULL);
    if (exact == NULL)
        return status;
    if (status == PLIM_OK)
        status = evaluate(exact, nodes, count, take, context);
    destroy(exact);
    return status;
}
