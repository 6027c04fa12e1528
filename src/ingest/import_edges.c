/*
 * Passes edges to the CSC build. Workers read blocks from the source in turn and add them at the
 * same time. When the number of nodes is not known yet, or an array has all sources before the
 * first destination, ids are spooled to disk, in files whose space is freed while the build reads
 * them.
 */
#include "ingest/import.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "ingest/csc.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Shared by the workers; the lock guards the fields after it. */
typedef struct pump {
    plim__import_t *import;
    plim__csc_t *csc;
    int64_t *blocks; /* (threads, 2, block) */
    int64_t total;   /* most edges expected */
    pthread_mutex_t lock;
    plim__edge_source_t *edges;
    bool ended;
    int64_t failed_at; /* first edge of the earliest block with an error */
    plim_status_t status;
    plim__failure_t failure;
} pump_t;

/* Keeps the error of the earliest block, so that the message is deterministic. */
static void pump_fail(pump_t *pump, int64_t at, plim_status_t status)
{
    pthread_mutex_lock(&pump->lock);
    pump->ended = true;
    if (pump->status == PLIM_OK || at < pump->failed_at) {
        pump->status = status;
        pump->failed_at = at;
        plim__fail_save(&pump->failure);
    }
    pthread_mutex_unlock(&pump->lock);
}

static int64_t pump_take(pump_t *pump, int64_t *source, int64_t *destination, int64_t *first_out)
{
    int64_t got = 0;
    plim_status_t status = plim__job_check(pump->import->job);
    pthread_mutex_lock(&pump->lock);
    int64_t first = pump->edges->position;
    if (!pump->ended) {
        if (status == PLIM_OK)
            status = pump->edges->read(pump->edges, source, destination, pump->import->block, &got);
        if (status == PLIM_OK && pump->edges->position > pump->total)
            status =
                plim__fail(PLIM_ERR_DATA,
                           "%s has more than the %" PRId64 " edges counted in %s; the files do "
                           "not belong together",
                           pump->edges->name, pump->total, pump->import->edges.from);
        pump->ended = status != PLIM_OK || got < pump->import->block;
    }
    pthread_mutex_unlock(&pump->lock);
    *first_out = first;
    if (status != PLIM_OK) {
        pump_fail(pump, first, status);
        return 0;
    }
    if (got > 0)
        plim__progress(pump->import->job, "reading edges", "edges", first + got, pump->total);
    return got;
}

static plim_status_t bad_id(pump_t *pump, int64_t at, int64_t source, int64_t destination)
{
    const plim__edge_source_t *edges = pump->edges;
    char place[PLIM__PLACE];
    const plim__agreed_t *nodes = &pump->import->nodes;
    bool first = source < 0 || source >= nodes->value;
    pthread_mutex_lock(&pump->lock);
    (void)plim__edge_place(edges, at, place);
    pthread_mutex_unlock(&pump->lock);
    return plim__fail(PLIM_ERR_DATA,
                      "%s: %s: the %s's id %" PRId64 " is not in 0 … %" PRId64 " (%s says %" PRId64
                      " nodes); correct it, or give the right `num_nodes`",
                      edges->name, place, first ? "source" : "destination",
                      first ? source : destination, nodes->value - 1, nodes->from, nodes->value);
}

static plim_status_t pump_work(void *context, int worker)
{
    pump_t *pump = context;
    int64_t block = pump->import->block;
    int64_t *source = pump->blocks + 2 * block * worker;
    int64_t *destination = source + block;
    int64_t first, bad = -1;
    int64_t got;
    while ((got = pump_take(pump, source, destination, &first)) > 0) {
        plim_status_t status = plim__csc_add(pump->csc, worker, source, destination, got, &bad);
        if (status == PLIM_ERR_DATA && bad >= 0)
            status = bad_id(pump, first + bad, source[bad], destination[bad]);
        if (status != PLIM_OK) {
            pump_fail(pump, first, status);
            break;
        }
    }
    return PLIM_OK;
}

static plim_status_t pump_run(plim__import_t *import, plim__csc_t *csc, int64_t *blocks,
                              int threads, plim__edge_source_t *edges, int64_t total)
{
    pump_t pump = {.import = import,
                   .csc = csc,
                   .blocks = blocks,
                   .total = total,
                   .lock = PTHREAD_MUTEX_INITIALIZER,
                   .edges = edges};
    (void)plim__parallel(threads, pump_work, &pump);
    pthread_mutex_destroy(&pump.lock);
    if (pump.status != PLIM_OK)
        return plim__fail_restore(pump.status, &pump.failure);
    return plim__import_agree(&import->edges, "edges", edges->position, edges->name);
}

static plim__csc_params_t csc_params(const plim__import_t *import, int64_t num_nodes,
                                     int64_t num_edges)
{
    const plim_import_options_t *options = import->options;
    return (plim__csc_params_t){.num_nodes = num_nodes,
                                .max_edges = num_edges,
                                .tmp = import->tmp,
                                .symmetrise = options->symmetrise,
                                .remove_duplicates = options->remove_duplicates ||
                                                     options->symmetrise ||
                                                     options->duplicates != PLIM_DUPLICATES_FIRST,
                                .self_loops = options->self_loops};
}

/* The parameters of a build with columns. */
static plim__edge_sort_params_t sort_params(const plim__import_t *import,
                                            const plim__csc_params_t *params)
{
    plim__edge_sort_params_t sort = {.num_nodes = params->num_nodes,
                                     .max_edges = params->max_edges,
                                     .memory = params->memory,
                                     .tmp = params->tmp,
                                     .symmetrise = params->symmetrise,
                                     .remove_duplicates = params->remove_duplicates,
                                     .remove_loops = params->self_loops == PLIM_SELF_LOOPS_REMOVE,
                                     .duplicates = import->options->duplicates};
    sort.num_fields = plim__import_fields(import, sort.fields);
    return sort;
}

/* Memory for the fastest build: all edges at once, with a margin. */
static size_t build_memory_most(const plim__import_t *import, const plim__csc_params_t *params)
{
    const plim__edge_sort_params_t sort = sort_params(import, params);
    const size_t each = 32 + (sort.num_fields > 0 ? 16 + plim__edge_sort_values(&sort) : 0);
    int64_t keys = params->max_edges < (INT64_MAX >> 8) ? params->max_edges : INT64_MAX >> 8;
    int64_t nodes = params->num_nodes < (INT64_MAX >> 8) ? params->num_nodes : INT64_MAX >> 8;
    return plim__add_saturating_size(
        plim__mul_saturating_size(each, (size_t)(keys * (params->symmetrise ? 2 : 1))),
        (size_t)(8 * nodes) + ((size_t)64 << 20));
}

/* The minimum of the build, with or without columns. */
static size_t build_minimum(const plim__import_t *import, const plim__csc_params_t *params)
{
    if (!plim__import_has_columns(import))
        return plim__csc_minimum(import->job, params);
    const plim__edge_sort_params_t sort = sort_params(import, params);
    return plim__edge_sort_minimum(import->job, &sort);
}

/* The build gets the memory left under the line, as far as it can use it. */
static void set_memory(const plim__import_t *import, plim__csc_params_t *params)
{
    int64_t available = plim__ledger_available(import->job->ledger);
    size_t most = build_memory_most(import, params);
    params->memory = available < 0 ? 0 : (size_t)available < most ? (size_t)available : most;
}

int64_t plim__import_csc_spill(const plim__import_t *import, int64_t num_nodes, int64_t num_edges)
{
    plim__csc_params_t params = csc_params(import, num_nodes, num_edges);
    set_memory(import, &params);
    if (!plim__import_has_columns(import))
        return plim__csc_spill_with(import->job, &params);
    const plim__edge_sort_params_t sort = sort_params(import, &params);
    return plim__edge_sort_spill(import->job, &sort);
}

static size_t blocks_bytes(const plim__import_t *import)
{
    return (size_t)import->job->threads * 2 * (size_t)import->block * sizeof(int64_t);
}

static size_t stacks_bytes(const plim__import_t *import)
{
    return (size_t)(import->job->threads - 1) * PLIM__STACK_BYTES;
}

/* Bytes for the values of a block of edges, and the buffers of the columns' readers. */
static size_t values_bytes(const plim__import_t *import)
{
    plim__edge_sort_params_t sort = {.num_fields = 0};
    size_t bytes;
    sort.num_fields = plim__import_fields(import, sort.fields);
    (void)plim__import_values_block(import, plim__edge_sort_values(&sort), &bytes);
    return bytes + (size_t)sort.num_fields * (2 * import->buffer + ((size_t)64 << 10));
}

static plim_status_t too_large(const plim__import_t *import, const plim__csc_params_t *params)
{
    if (plim__import_has_columns(import) && params->num_nodes > PLIM__EDGE_SORT_NODES)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: %" PRId64 " nodes (%s) are too many for columns of edges or their "
                          "ids, which graphs of up to %" PRId64 " nodes may have; leave them out",
                          import->options->source, params->num_nodes, import->nodes.from,
                          PLIM__EDGE_SORT_NODES);
    return plim__fail(PLIM_ERR_DATA,
                      "%s: %" PRId64 " nodes (%s) and %" PRId64
                      " edges are too many; if ids are names, use `relabel`",
                      import->options->source, params->num_nodes, import->nodes.from,
                      params->max_edges);
}

plim_status_t plim__import_check_size(const plim__import_t *import, int64_t num_nodes,
                                      int64_t num_edges)
{
    const plim__csc_params_t params = csc_params(import, num_nodes, num_edges);
    return build_minimum(import, &params) == SIZE_MAX ? too_large(import, &params) : PLIM_OK;
}

plim_status_t plim__import_check_memory(const plim__import_t *import, int64_t num_nodes,
                                        int64_t num_edges)
{
    PLIM_TRY(plim__import_check_size(import, num_nodes, num_edges));
    plim__csc_params_t params = csc_params(import, num_nodes, num_edges);
    size_t minimum = build_minimum(import, &params);
    size_t taken = (size_t)plim__ledger_reserved(import->job->ledger);
    minimum += blocks_bytes(import) + stacks_bytes(import);
    if (plim__import_has_columns(import))
        minimum += values_bytes(import);
    /* Open readers are part of what was reserved at the start. */
    if (import->start + import->other_bytes > taken)
        minimum += import->start + import->other_bytes - taken;
    if (plim__ledger_available(import->job->ledger) >= (int64_t)minimum)
        return PLIM_OK;
    return plim__ledger_refuse(import->job->ledger, import->options->source, "building the graph",
                               minimum);
}

/* PLIM_ERR_BUDGET with the minimum. */
static plim_status_t build_memory(const plim__import_t *import, plim__csc_params_t *params)
{
    size_t minimum = build_minimum(import, params);
    set_memory(import, params);
    if (minimum == SIZE_MAX)
        return too_large(import, params);
    if (plim__ledger_available(import->job->ledger) < (int64_t)minimum)
        return plim__ledger_refuse(import->job->ledger, import->options->source,
                                   "building the graph", minimum);
    if (params->memory < minimum)
        params->memory = minimum;
    return PLIM_OK;
}

/* Reads edges and their values in step. */
static plim_status_t sort_edges(plim__import_t *import, plim__edge_sort_t *sort,
                                const plim__edge_sort_params_t *params, int64_t *blocks, char *work,
                                int64_t rows, plim__edge_source_t *edges)
{
    pump_t pump = {.import = import,
                   .blocks = blocks,
                   .total = params->max_edges,
                   .lock = PTHREAD_MUTEX_INITIALIZER,
                   .edges = edges};
    const int64_t block = import->block;
    int64_t *source = blocks, *destination = blocks + block, first, got;
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK && (got = pump_take(&pump, source, destination, &first)) > 0)
        for (int64_t at = 0, part; at < got && status == PLIM_OK; at += part) {
            int64_t bad = -1;
            part = plim__min_i64(rows, got - at);
            status = plim__import_values(import, params->fields, params->num_fields, first + at,
                                         part, work);
            if (status == PLIM_OK)
                status =
                    plim__edge_sort_add(sort, source + at, destination + at,
                                        plim__import_values_of(import, part, work), part, &bad);
            if (status == PLIM_ERR_DATA && bad >= 0)
                status = bad_id(&pump, first + at + bad, source[at + bad], destination[at + bad]);
        }
    pthread_mutex_destroy(&pump.lock);
    PLIM_TRY(status);
    if (pump.status != PLIM_OK)
        return plim__fail_restore(pump.status, &pump.failure);
    PLIM_TRY(plim__import_agree(&import->edges, "edges", edges->position, edges->name));
    return plim__import_columns_end(import);
}

static plim_status_t build_sorted(plim__import_t *import, plim__csc_params_t *csc,
                                  plim__edge_source_t *edges, int64_t *blocks)
{
    plim__edge_sort_t *sort;
    plim__arena_t work;
    size_t bytes;
    PLIM_TRY(plim__import_begin(import));
    plim__edge_sort_params_t params = sort_params(import, csc);
    const int64_t rows = plim__import_values_block(import, plim__edge_sort_values(&params), &bytes);
    PLIM_TRY(plim__arena_create(import->job->ledger, "import blocks", bytes, &work));
    plim_status_t status = plim__import_columns_open(import);
    if (status == PLIM_OK)
        status = build_memory(import, csc);
    params.memory = csc->memory;
    if (status == PLIM_OK)
        status = plim__edge_sort_create(import->job, &params, &sort);
    if (status == PLIM_OK) {
        status = sort_edges(import, sort, &params, blocks, work.base, rows, edges);
        if (status == PLIM_OK)
            status = plim__edge_sort_finish(sort, import->writer);
        plim__edge_sort_destroy(sort);
    }
    plim__arena_destroy(&work);
    return status;
}

static plim_status_t build_inside(plim__import_t *import, plim__csc_params_t *params,
                                  plim__edge_source_t *edges, int64_t *blocks, int threads)
{
    plim__csc_t *csc;
    plim__csc_totals_t totals;
    PLIM_TRY(plim__import_begin(import)); /* takes memory, too */
    PLIM_TRY(build_memory(import, params));
    PLIM_TRY(plim__csc_create(import->job, params, &csc));
    plim_status_t status = pump_run(import, csc, blocks, threads, edges, params->max_edges);
    if (status == PLIM_OK)
        status = plim__csc_finish(csc, import->writer, &totals);
    plim__csc_destroy(csc);
    return status;
}

/* Many graphs need the counts of both nodes and edges. */
static plim_status_t check_counts(const plim__import_t *import)
{
    bool nodes = import->graph_nodes.file != NULL, edges = import->graph_edges.file != NULL;
    if (nodes == edges)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: counts the %s of %" PRId64
                      " graphs, but nothing says how many %s each graph has; add %s",
                      nodes ? import->graph_nodes.ids.name : import->graph_edges.ids.name,
                      nodes ? "nodes" : "edges",
                      nodes ? import->graph_nodes.count : import->graph_edges.count,
                      nodes ? "edges" : "nodes", nodes ? "num-edge-list.csv" : "num-node-list.csv");
}

/* Builds from `edges`, at most `count` of them; with many graphs their ids are local. */
static plim_status_t build(plim__import_t *import, plim__edge_source_t *edges, int64_t count)
{
    plim__csc_params_t params = csc_params(import, import->nodes.value, count);
    plim__edges_local_t local;
    plim__arena_t arena;
    PLIM_TRY(check_counts(import));
    if (import->graph_nodes.file != NULL) {
        PLIM_TRY(plim__id_spool_rewind(&import->graph_nodes, false));
        PLIM_TRY(plim__id_spool_rewind(&import->graph_edges, false));
        plim__edges_local_open(&local, edges, &import->graph_nodes.ids, &import->graph_edges.ids);
        edges = &local.edges;
    }
    int threads = import->job->threads;
    size_t stack_bytes = stacks_bytes(import);
    int stacks;
    PLIM_TRY(plim__ledger_reserve(import->job->ledger, "threads", stack_bytes, &stacks));
    plim_status_t status =
        plim__arena_create(import->job->ledger, "import blocks", blocks_bytes(import), &arena);
    if (status == PLIM_OK) {
        status = plim__import_has_columns(import)
                     ? build_sorted(import, &params, edges, (int64_t *)arena.base)
                     : build_inside(import, &params, edges, (int64_t *)arena.base, threads);
        plim__arena_destroy(&arena);
    }
    plim__ledger_release(import->job->ledger, stacks, stack_bytes);
    import->edges_done = status == PLIM_OK;
    return status;
}

static plim_status_t refuse_second(const plim__import_t *import, const char *name)
{
    if (!import->edges_done && import->sources.file == NULL)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: edges were already read from another file; keep one of the two", name);
}

plim_status_t plim__import_spool_ids(plim__import_t *import, plim__ids_t *ids, const char *what,
                                     int64_t total, plim__id_spool_t *spool)
{
    int64_t chunk[PLIM__ID_CHUNK], got;
    PLIM_TRY(plim__id_spool_create(spool, import->job, import->tmp, import->buffer, ids->name));
    do {
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(ids->read(ids, chunk, plim__min_i64(PLIM__ID_CHUNK, total - ids->position), &got));
        for (int64_t i = 0; what != NULL && i < got; i++)
            if (chunk[i] < 0)
                return plim__fail(PLIM_ERR_DATA,
                                  "%s: edge %" PRId64 ": the %s's id is %" PRId64
                                  "; ids cannot be negative, correct it",
                                  ids->name, spool->count + i, what, chunk[i]);
        PLIM_TRY(plim__id_spool_write(spool, chunk, got));
        if (spool->count == total ||
            spool->count % ((int64_t)PLIM__ID_CHUNK * 256) < PLIM__ID_CHUNK)
            plim__progress(import->job, "reading ids", "ids", spool->count, total);
    } while (got > 0 && ids->position < total);
    return PLIM_OK;
}

static plim_status_t spool_edges(plim__import_t *import, plim__edge_source_t *edges)
{
    int64_t source[PLIM__ID_CHUNK], destination[PLIM__ID_CHUNK], got;
    char place[PLIM__PLACE];
    PLIM_TRY(plim__id_spool_create(&import->sources, import->job, import->tmp, import->buffer,
                                   edges->name));
    PLIM_TRY(plim__id_spool_create(&import->destinations, import->job, import->tmp, import->buffer,
                                   edges->name));
    do {
        int64_t first = edges->position;
        PLIM_TRY(plim__job_check(import->job));
        PLIM_TRY(edges->read(edges, source, destination, PLIM__ID_CHUNK, &got));
        for (int64_t i = 0; i < got; i++)
            if (source[i] < 0 || destination[i] < 0)
                return plim__fail(PLIM_ERR_DATA, "%s: %s: id %" PRId64 " is negative; correct it",
                                  edges->name, plim__edge_place(edges, first + i, place),
                                  source[i] < 0 ? source[i] : destination[i]);
        PLIM_TRY(plim__id_spool_write(&import->sources, source, got));
        PLIM_TRY(plim__id_spool_write(&import->destinations, destination, got));
        if (import->sources.count % ((int64_t)PLIM__ID_CHUNK * 256) < PLIM__ID_CHUNK)
            plim__progress(import->job, "reading edges", "edges", import->sources.count, 0);
    } while (got == PLIM__ID_CHUNK);
    import->edges_from_text = edges->lines != NULL;
    if (edges->lines != NULL)
        import->edge_lines = *edges->lines;
    return plim__import_agree(&import->edges, "edges", edges->position, edges->name);
}

plim_status_t plim__import_edges(plim__import_t *import, plim__edge_source_t *edges, int64_t count)
{
    PLIM_TRY(refuse_second(import, edges->name));
    if (import->nodes_ready && count >= 0 && !import->columns_wait)
        return build(import, edges, count);
    PLIM_TRY(spool_edges(import, edges));
    return import->nodes_ready && !import->columns_wait ? plim__import_build_edges(import)
                                                        : PLIM_OK;
}

plim_status_t plim__import_edges_text(plim__import_t *import, plim__text_t *text, const char *name,
                                      int64_t count)
{
    plim__edges_text_t edges;
    PLIM_TRY(plim__edges_text_open(&edges, text, name));
    if (edges.columns > 2 + import->headed_columns)
        plim__log(import->job, PLIM_LOG_WARNING,
                  import->headed_columns > 0
                      ? "%s has %" PRId64 " columns; those without a known name are ignored"
                      : "%s has %" PRId64 " columns; columns after the second are ignored",
                  name, edges.columns);
    return plim__import_edges(import, &edges.edges, count);
}

/* All sources, then all destinations. */
static plim_status_t edges_by_rows(plim__import_t *import, plim__reader_t *reader,
                                   const plim__npy_t *npy, int64_t count)
{
    plim__ids_npy_t ids;
    plim__edges_pairs_t pairs;
    PLIM_TRY(plim__ids_npy_open(&ids, reader, npy->type, 2 * count));
    PLIM_TRY(plim__import_spool_ids(import, &ids.ids, "source", count, &import->sources));
    PLIM_TRY(plim__ids_npy_open(&ids, reader, npy->type, count));
    if (!import->nodes_ready || import->columns_wait) {
        PLIM_TRY(
            plim__import_spool_ids(import, &ids.ids, "destination", count, &import->destinations));
        return plim__reader_end(reader);
    }
    PLIM_TRY(plim__id_spool_rewind(&import->sources, true));
    plim__edges_pairs_open(&pairs, &import->sources.ids, &ids.ids);
    PLIM_TRY(build(import, &pairs.edges, count));
    plim__id_spool_destroy(&import->sources);
    return plim__reader_end(reader);
}

plim_status_t plim__import_edges_npy(plim__import_t *import, plim__reader_t *reader,
                                     const plim__npy_t *npy)
{
    PLIM_TRY(refuse_second(import, reader->name));
    bool rows = npy->num_dims == 2 && npy->shape[0] == 2;
    if (!rows && (npy->num_dims != 2 || npy->shape[1] != 2))
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: edges must have the shape [2, E] or [E, 2], but it has %d dimensions, "
            "the first of %" PRId64,
            reader->name, npy->num_dims, npy->num_dims > 0 ? npy->shape[0] : 0);
    int64_t count = npy->count / 2;
    PLIM_TRY(plim__import_agree(&import->edges, "edges", count, reader->name));
    if (rows != npy->fortran) /* [2, E] by rows is [E, 2] by columns */
        return edges_by_rows(import, reader, npy, count);
    plim__ids_npy_t ids;
    plim__edges_mixed_t mixed;
    PLIM_TRY(plim__ids_npy_open(&ids, reader, npy->type, 2 * count));
    plim__edges_mixed_open(&mixed, &ids.ids);
    PLIM_TRY(plim__import_edges(import, &mixed.edges, count));
    return plim__reader_end(reader);
}

plim_status_t plim__import_build_edges(plim__import_t *import)
{
    if (import->edges_done || import->sources.file == NULL || import->columns_wait)
        return PLIM_OK;
    plim__edges_pairs_t pairs;
    plim__import_needs_t needs = {.num_nodes = import->nodes.value,
                                  .num_edges = import->sources.count,
                                  .what = "for the graph"};
    if (needs.num_nodes / 16 > needs.num_edges)
        plim__log(import->job, PLIM_LOG_WARNING,
                  "%" PRId64 " nodes (%s), but only %" PRId64
                  " edges; if ids are names, `relabel` numbers them without gaps",
                  needs.num_nodes, import->nodes.from, needs.num_edges);
    PLIM_TRY(plim__import_plan(import, &needs));
    PLIM_TRY(plim__id_spool_rewind(&import->sources, true));
    PLIM_TRY(plim__id_spool_rewind(&import->destinations, true));
    plim__edges_pairs_open(&pairs, &import->sources.ids, &import->destinations.ids);
    if (import->edges_from_text)
        pairs.edges.lines = &import->edge_lines;
    PLIM_TRY(build(import, &pairs.edges, import->sources.count));
    plim__id_spool_destroy(&import->sources);
    plim__id_spool_destroy(&import->destinations);
    return PLIM_OK;
}
