/*
 * Rows from disk. Each worker has a reader and the lists of one piece of the gather:
 *
 *     nodes, in pieces ─┬► row cache ─────────────────────────────────┬► rows_out
 *                       └► keys (node, index), ascending ─► reads ────┘
 *
 * Halves that become floats come into the latter half of their place in rows_out and are widened
 * there; floats that become halves take a detour through `narrow`.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/radix.h"
#include "io/reader.h"
#include "mem/arena.h"
#include "source/row_cache.h"
#include "source/row_form.h"
#include "source/rows.h"

#include <stdatomic.h>
#include <string.h>

/* A gather is split into pieces, long enough that draining the queue at the end of each costs
 * little. */
#define PIECE_BITS 14
#define PIECE_ROWS ((int64_t)1 << PIECE_BITS)
#define CACHED_ROWS ((int64_t)2048) /* piece if all rows are cached: reads are rare */
#define NODES_MAX ((int64_t)1 << (63 - PIECE_BITS)) /* a key holds node and index */

#define NARROW_BYTES ((size_t)1 << 20) /* buffer of floats to be converted to halves */

typedef struct counters {
    _Atomic int64_t rows;
    _Atomic int64_t rows_cached;
    _Atomic int64_t rows_lost;
    _Atomic int64_t transfers;
    _Atomic int64_t bytes_read;
    _Atomic int64_t wait_ns;
} counters_t;

typedef struct worker {
    plim__reader_t *reader;
    plim__read_t *reads; /* (piece_rows) */
    uint64_t *keys;      /* (piece_rows) node << PIECE_BITS | index in the piece */
    uint64_t *spare;     /* (piece_rows) */
    char *narrow;        /* (narrow_rows, num_features) floats; NULL if rows are stored as f16 */
    counters_t counters; /* only the worker writes them */
} worker_t;

typedef struct rows_disk {
    plim__rows_t source; /* first */
    plim__arena_t arena;
    plim__file_t file;
    plim__row_form_t form;
    plim__row_cache_t *cache;    /* NULL: none */
    plim__row_filler_t *fillers; /* (num_workers) readers and lists, which fill the cache */
    int64_t num_nodes;
    int64_t piece_rows;
    int64_t narrow_rows;
    int num_workers;
    worker_t *workers; /* (num_workers) */
} rows_disk_t;

static int64_t piece_rows(bool all)
{
    return all ? CACHED_ROWS : PIECE_ROWS;
}

static int64_t narrow_rows(const plim__row_form_t *form, bool all)
{
    const size_t bytes = all ? NARROW_BYTES / 8 : NARROW_BYTES;
    int64_t rows = form->bytes == 0 ? 1 : (int64_t)(bytes / form->bytes);
    return rows < 1 ? 1 : plim__min_i64(rows, piece_rows(all));
}

static plim__reader_params_t reader_params(const plim__row_form_t *form,
                                           const plim__rows_disk_params_t *params)
{
    return (plim__reader_params_t){
        .depth = params->depth,
        .max_read = form->bytes > PLIM__ROW_READ_MAX ? form->bytes : PLIM__ROW_READ_MAX,
        .merge_distance = params->merge_distance};
}

/* The source's layout without its readers and its cache. */
static void lay_out(plim__arena_t *arena, void *object)
{
    rows_disk_t *rows = object;
    const size_t piece = (size_t)rows->piece_rows, count = (size_t)rows->num_workers;
    const size_t narrow = rows->form.type == PLIM_F32 ? (size_t)rows->narrow_rows : 0;
    rows->workers = plim__arena_carve(arena, count, sizeof(worker_t), 1);
    rows->fillers = plim__arena_carve(arena, count, sizeof(plim__row_filler_t), 1);
    for (int i = 0; i < rows->num_workers; i++) {
        const worker_t worker = {
            .reads = plim__arena_carve(arena, piece, sizeof(plim__read_t), 1),
            .keys = plim__arena_carve(arena, piece, sizeof(uint64_t), 1),
            .spare = plim__arena_carve(arena, piece, sizeof(uint64_t), 1),
            .narrow =
                narrow > 0 ? plim__arena_carve(arena, narrow, rows->form.bytes, PLIM__PAGE) : NULL};
        if (rows->workers != NULL)
            memcpy(&rows->workers[i], &worker, sizeof worker);
    }
}

static rows_disk_t draft_of(const plim_dataset_t *dataset, const plim__row_form_t *form,
                            const plim__rows_disk_params_t *params)
{
    return (rows_disk_t){.form = *form,
                         .num_nodes = plim_dataset_info(dataset)->num_nodes,
                         .piece_rows = piece_rows(params->all),
                         .narrow_rows = narrow_rows(form, params->all),
                         .num_workers = params->workers};
}

static plim__row_cache_params_t cache_params(const plim__row_form_t *form,
                                             const plim__rows_disk_params_t *params)
{
    const size_t stride = plim__round_up(form->bytes, sizeof(uint64_t));
    int64_t most = params->all ? INT64_MAX : 0;
    if (!params->all && stride > 0)
        most = (int64_t)(params->cache_bytes / stride);
    return (plim__row_cache_params_t){.all = params->all,
                                      .nodes = params->cached,
                                      .most = most,
                                      .scratch = params->all ? NULL : params->scratch,
                                      .key = params->cache_key,
                                      .num_fillers = params->workers};
}

size_t plim__rows_disk_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__rows_disk_params_t *params)
{
    const plim__row_form_t form = plim__row_form_of(dataset);
    const plim__reader_params_t reader = reader_params(&form, params);
    const plim__row_cache_params_t cache = cache_params(&form, params);
    rows_disk_t draft = draft_of(dataset, &form, params);
    const size_t bytes = plim__object_bytes(lay_out, &draft, sizeof draft) +
                         (size_t)params->workers * plim__reader_estimate(job->io_engine, &reader);
    return cache.most == 0
               ? bytes
               : plim__add_saturating_size(bytes, plim__row_cache_estimate(dataset, &cache));
}

size_t plim__rows_disk_filling(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim__rows_disk_params_t *params)
{
    const plim__row_form_t form = plim__row_form_of(dataset);
    const plim__row_cache_params_t cache = cache_params(&form, params);
    return cache.most > 0 ? plim__row_cache_filling(job, &cache) : 0;
}

/* Each counter has one writer, so adding needs no locked instruction. */
static void add_to(_Atomic int64_t *counter, int64_t amount)
{
    int64_t before = atomic_load_explicit(counter, memory_order_relaxed);
    atomic_store_explicit(counter, before + amount, memory_order_relaxed);
}

/* PLIM_ERR_USAGE for an invalid node. */
static plim_status_t check_nodes(const rows_disk_t *rows, const int64_t *nodes, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if ((uint64_t)nodes[i] >= (uint64_t)rows->num_nodes)
            return plim__fail(PLIM_ERR_USAGE, "%s: there is no row %lld among %lld",
                              rows->file.path, (long long)nodes[i], (long long)rows->num_nodes);
    return PLIM_OK;
}

/* One piece of a gather. */
typedef struct piece {
    const int64_t *nodes;
    int64_t count;
    plim__row_target_t target;
} piece_t;

static piece_t make_piece(const plim__row_form_t *form, const worker_t *worker,
                          const int64_t *nodes, int64_t count, plim_dtype_t type, char *rows_out)
{
    const size_t step = (size_t)form->num_features * plim__feature_bytes(type);
    piece_t piece = {nodes, count, {type, rows_out, step, rows_out, step}};
    if (type == PLIM_F32 && form->type == PLIM_F16) {
        piece.target.stored = rows_out + form->bytes;
    } else if (type != form->type) {
        piece.target.stored = worker->narrow;
        piece.target.stored_step = form->bytes;
    }
    return piece;
}

/* Copies cached rows; returns the keys of the rows to read, ascending by node. */
static const uint64_t *make_keys(const rows_disk_t *rows, int number, const piece_t *piece,
                                 int64_t *missing_out)
{
    worker_t *worker = &rows->workers[number];
    int64_t missing = piece->count, lost = 0;
    uint64_t largest = 0;
    bool ascending = true;
    if (rows->cache != NULL)
        missing = plim__row_cache_take(rows->cache, number, piece->nodes, piece->count,
                                       &piece->target, worker->keys, &lost);
    add_to(&worker->counters.rows_cached, piece->count - missing);
    add_to(&worker->counters.rows_lost, lost);
    for (int64_t i = 0; i < missing; i++) {
        const uint64_t index = rows->cache != NULL ? worker->keys[i] : (uint64_t)i;
        worker->keys[i] = (uint64_t)piece->nodes[index] << PIECE_BITS | index;
        ascending = ascending && worker->keys[i] >= largest;
        largest = worker->keys[i] > largest ? worker->keys[i] : largest;
    }
    *missing_out = missing;
    if (ascending)
        return worker->keys;
    return plim__radix_sort(worker->keys, worker->spare, missing,
                            64 - __builtin_clzll(largest | 1));
}

static plim_status_t read_rows(rows_disk_t *rows, worker_t *worker, const piece_t *piece,
                               const uint64_t *keys, int64_t count)
{
    int64_t transfers_before, bytes_before, transfers, bytes;
    for (int64_t i = 0; i < count; i++) {
        int64_t node = (int64_t)(keys[i] >> PIECE_BITS);
        size_t index = (size_t)(keys[i] & (PIECE_ROWS - 1));
        worker->reads[i] =
            (plim__read_t){PLIM__NPY_HEADER + node * (int64_t)rows->form.bytes, rows->form.bytes,
                           piece->target.stored + index * piece->target.stored_step};
    }
    plim__reader_totals(worker->reader, &transfers_before, &bytes_before);
    int64_t start = plim__clock_ns();
    plim_status_t status = plim__reader_read(worker->reader, &rows->file, worker->reads, count);
    plim__reader_totals(worker->reader, &transfers, &bytes);
    add_to(&worker->counters.wait_ns, plim__clock_ns() - start);
    add_to(&worker->counters.transfers, transfers - transfers_before);
    add_to(&worker->counters.bytes_read, bytes - bytes_before);
    return status;
}

static plim_status_t gather_piece(rows_disk_t *rows, int number, const piece_t *piece)
{
    int64_t missing;
    PLIM_TRY(check_nodes(rows, piece->nodes, piece->count));
    const uint64_t *keys = make_keys(rows, number, piece, &missing);
    if (missing == 0)
        return PLIM_OK;
    PLIM_TRY(read_rows(rows, &rows->workers[number], piece, keys, missing));
    for (int64_t i = 0; i < missing && piece->target.type != rows->form.type; i++)
        plim__row_arrived(&rows->form, &piece->target, (size_t)(keys[i] & (PIECE_ROWS - 1)));
    return PLIM_OK;
}

static plim_status_t disk_gather(plim__rows_t *source, int worker_number, const int64_t *nodes,
                                 int64_t count, plim_dtype_t type, void *rows_out)
{
    rows_disk_t *rows = (rows_disk_t *)source;
    worker_t *worker = &rows->workers[worker_number];
    bool narrow = type == PLIM_F16 && rows->form.type == PLIM_F32;
    int64_t most = narrow ? rows->narrow_rows : rows->piece_rows;
    size_t step = (size_t)rows->form.num_features * plim__feature_bytes(type);
    for (int64_t first = 0; first < count; first += most) {
        piece_t piece =
            make_piece(&rows->form, worker, nodes + first, plim__min_i64(most, count - first), type,
                       (char *)rows_out + (size_t)first * step);
        PLIM_TRY(gather_piece(rows, worker_number, &piece));
    }
    add_to(&worker->counters.rows, count);
    return PLIM_OK;
}

void plim__rows_disk_stats(plim__rows_t *source, plim__rows_stats_t *stats_out)
{
    rows_disk_t *rows = (rows_disk_t *)source;
    plim__rows_stats_t sum = {0};
    for (int i = 0; i < rows->num_workers; i++) {
        counters_t *counters = &rows->workers[i].counters;
        sum.rows += atomic_load_explicit(&counters->rows, memory_order_relaxed);
        sum.rows_cached += atomic_load_explicit(&counters->rows_cached, memory_order_relaxed);
        sum.rows_lost += atomic_load_explicit(&counters->rows_lost, memory_order_relaxed);
        sum.transfers += atomic_load_explicit(&counters->transfers, memory_order_relaxed);
        sum.bytes_read += atomic_load_explicit(&counters->bytes_read, memory_order_relaxed);
        sum.wait_ns += atomic_load_explicit(&counters->wait_ns, memory_order_relaxed);
    }
    *stats_out = sum;
}

void plim__rows_disk_destroy(plim__rows_t *source)
{
    rows_disk_t *rows = (rows_disk_t *)source;
    if (rows == NULL)
        return;
    plim__row_cache_destroy(rows->cache);
    for (int i = rows->num_workers - 1; i >= 0; i--)
        plim__reader_destroy(rows->workers[i].reader);
    plim__file_close(&rows->file);
    plim__arena_destroy(&rows->arena);
}

static plim_status_t make_readers(const plim_job_t *job, const plim__rows_disk_params_t *params,
                                  rows_disk_t *rows)
{
    const plim__reader_params_t reader = reader_params(&rows->form, params);
    for (int i = 0; i < rows->num_workers; i++) {
        worker_t *worker = &rows->workers[i];
        PLIM_TRY(plim__reader_create(job, &reader, &worker->reader));
        rows->fillers[i] = (plim__row_filler_t){worker->reader, worker->reads,
                                                (int64_t *)worker->keys, rows->piece_rows};
    }
    return PLIM_OK;
}

plim_status_t plim__rows_disk_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__rows_disk_params_t *params,
                                     plim__rows_t **source_out)
{
    plim__file_t file;
    plim__row_form_t form;
    const int64_t num_nodes = plim_dataset_info(dataset)->num_nodes;
    if (num_nodes > NODES_MAX)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s has %lld nodes; rows can be read for at most %lld",
                          plim__dataset_path(dataset), (long long)num_nodes, (long long)NODES_MAX);
    PLIM_TRY(plim__row_form_open(dataset, &file, &form));
    rows_disk_t draft = draft_of(dataset, &form, params), *rows;
    draft.source = (plim__rows_t){disk_gather};
    draft.file = file;
    plim_status_t status =
        plim__object_create(job->ledger, "I/O", lay_out, &draft, sizeof draft, &draft.arena, &rows);
    if (status != PLIM_OK) {
        plim__file_close(&file);
        return status;
    }
    if (!params->all) /* otherwise it is rarely used */
        plim__arena_touch(&rows->arena);
    status = make_readers(job, params, rows);
    plim__row_cache_params_t cache = cache_params(&form, params);
    cache.fillers = rows->fillers;
    if (status == PLIM_OK && (cache.all || cache.nodes != NULL) && cache.most > 0)
        status = plim__row_cache_create(job, dataset, &cache, &rows->cache);
    if (status != PLIM_OK) {
        plim__rows_disk_destroy(&rows->source);
        return status;
    }
    *source_out = &rows->source;
    return PLIM_OK;
}

static plim__row_cache_t *cache_of(plim__rows_t *source)
{
    return source != NULL && source->gather == disk_gather ? ((rows_disk_t *)source)->cache : NULL;
}

plim__droppable_t *plim__rows_disk_memory(plim__rows_t *source)
{
    plim__row_cache_t *cache = cache_of(source);
    return cache != NULL ? plim__row_cache_memory(cache) : NULL;
}

bool plim__rows_disk_holds(plim__rows_t *source, int64_t node)
{
    const plim__row_cache_t *cache = cache_of(source);
    return cache != NULL && plim__row_cache_holds(cache, node);
}

plim_status_t plim__rows_disk_refresh(plim__rows_t *source, int worker, int64_t nanoseconds)
{
    plim__row_cache_t *cache = cache_of(source);
    return cache != NULL ? plim__row_cache_refresh(cache, worker, nanoseconds) : PLIM_OK;
}
