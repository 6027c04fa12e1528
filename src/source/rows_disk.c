/*
 * Rows from disk. Each worker has a reader and the lists of one task of the gather:
 *
 *     nodes, in tasks ─┬► row cache ─────────────────────────────────┬► rows_out
 *                       └► keys (place, index), ascending ─► reads ───┘
 *
 * With a working set, a place is one in it, or for other nodes follows all of these; else it is the
 * node. So each class of a working set is read in ascending order.
 *
 * Halves that become floats (and 32 bits that become 64) come into the latter half of their place
 * in rows_out and are widened there; floats that become halves take a detour through `narrow`.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/radix.h"
#include "source/row_cache.h"
#include "source/rows.h"
#include "source/working_set.h"

#include <string.h>

/* A gather is split into tasks, long enough that draining the queue at the end of each costs
 * little. */
#define TASK_BITS 14
#define TASK_ROWS ((int64_t)1 << TASK_BITS)
#define CACHED_ROWS ((int64_t)2048)                /* task if all rows are cached: reads are rare */
#define NODES_MAX ((int64_t)1 << (62 - TASK_BITS)) /* a key holds place and index */

#define NARROW_BYTES ((size_t)1 << 20) /* buffer of floats to be converted to halves */

typedef struct rows_disk {
    plim__rows_t face; /* first */
    plim__source_t source;
    plim__row_form_t form;
    plim__row_cache_t *cache;         /* NULL: none */
    plim__working_set_t *_Atomic set; /* borrowed; NULL: none */
    int64_t num_nodes;
    int64_t task_rows;
    int64_t narrow_rows;
    size_t narrow_bytes; /* of a worker */
    char *narrow;        /* (num_workers, narrow_bytes) floats; none if rows are stored as f16 */
} rows_disk_t;

static int64_t task_rows(bool all)
{
    return all ? CACHED_ROWS : TASK_ROWS;
}

static int64_t narrow_rows(const plim__row_form_t *form, bool all)
{
    const size_t bytes = all ? NARROW_BYTES / 8 : NARROW_BYTES;
    int64_t rows = form->bytes == 0 ? 1 : (int64_t)(bytes / form->bytes);
    return rows < 1 ? 1 : plim__min_i64(rows, task_rows(all));
}

/* The source's layout without its readers and its cache. */
static void lay_out(plim__arena_t *arena, void *object)
{
    rows_disk_t *rows = object;
    plim__source_lay_out(arena, &rows->source);
    rows->narrow =
        plim__arena_carve(arena, (size_t)rows->source.num_workers, rows->narrow_bytes, PLIM__PAGE);
}

static plim__row_form_t form_of(const plim_dataset_t *dataset, unsigned column)
{
    return column != 0 ? plim__column_form(plim_dataset_info(dataset), column)
                       : plim__row_form_of(dataset);
}

static int64_t num_rows(const plim_dataset_t *dataset, unsigned column)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    return column != 0 ? plim__column_rows(info, column) : info->num_nodes;
}

static rows_disk_t draft_of(const plim_dataset_t *dataset, const plim__source_params_t *params)
{
    const plim__row_form_t form = form_of(dataset, params->column);
    const int64_t task = task_rows(params->all), narrow = narrow_rows(&form, params->all);
    const size_t floats = form.type == PLIM_F32 ? (size_t)narrow * form.bytes : 0;
    return (rows_disk_t){
        .source = {.items = "rows",
                   .file.fd = -1,
                   .max_read = form.bytes > PLIM__ROW_READ_MAX ? form.bytes : PLIM__ROW_READ_MAX,
                   .num_reads = task,
                   .num_keys = task,
                   .num_workers = params->workers},
        .form = form,
        .set = params->all ? NULL : params->working_set,
        .num_nodes = num_rows(dataset, params->column),
        .task_rows = task,
        .narrow_rows = narrow,
        .narrow_bytes = plim__round_up(floats, PLIM__PAGE)};
}

size_t plim__rows_disk_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__source_params_t *params)
{
    rows_disk_t draft = draft_of(dataset, params);
    const size_t bytes = plim__object_bytes(lay_out, &draft, sizeof draft) +
                         plim__source_readers_bytes(job, &draft.source, params);
    return params->column != 0 || plim__row_cache_rows(dataset, params) == 0
               ? bytes
               : plim__add_saturating_size(bytes, plim__row_cache_estimate(dataset, params));
}

size_t plim__rows_disk_filling(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim__source_params_t *params)
{
    return plim__row_cache_rows(dataset, params) > 0 ? plim__row_cache_filling(job, params) : 0;
}

/* PLIM_ERR_USAGE for an invalid node. */
static plim_status_t check_nodes(const rows_disk_t *rows, const int64_t *nodes, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if ((uint64_t)nodes[i] >= (uint64_t)rows->num_nodes)
            return plim__fail(PLIM_ERR_USAGE, "%s: there is no row %lld among %lld",
                              rows->source.file.path, (long long)nodes[i],
                              (long long)rows->num_nodes);
    return PLIM_OK;
}

/* One task of a gather. */
typedef struct rows_task {
    const int64_t *nodes;
    int64_t count;
    plim__row_target_t target;
} rows_task_t;

static rows_task_t make_task(const rows_disk_t *rows, int number, const int64_t *nodes,
                             int64_t count, plim_dtype_t type, char *rows_out)
{
    const plim__row_form_t *form = &rows->form;
    const size_t step = (size_t)form->num_features * plim__feature_bytes(type);
    rows_task_t task = {nodes, count, {type, rows_out, step, rows_out, step}};
    if (plim__row_widens(form, type)) {
        task.target.stored = rows_out + form->bytes;
    } else if (type != form->type) {
        task.target.stored = rows->narrow + (size_t)number * rows->narrow_bytes;
        task.target.stored_step = form->bytes;
    }
    return task;
}

/* The working set, as long as rows can be read from it. */
static plim__working_set_t *readable_set(const rows_disk_t *rows)
{
    plim__working_set_t *set = atomic_load_explicit(&rows->set, memory_order_acquire);
    return set != NULL && atomic_load(&set->readable) ? set : NULL;
}

static int64_t place_of(const plim__working_set_t *set, int64_t node)
{
    const int64_t place = set == NULL ? node : plim__node_order_find(&set->order, node);
    return place >= 0 ? place : set->order.first[PLIM__ORDER_CLASSES] + node;
}

/* Copies cached rows; returns the keys of the rows to read, ascending by place in `set`. */
static const uint64_t *make_keys(const rows_disk_t *rows, int number, const rows_task_t *task,
                                 const plim__working_set_t *set, int64_t *missing_out,
                                 int64_t *lost_out)
{
    plim__source_worker_t *worker = &rows->source.workers[number];
    int64_t missing = task->count;
    uint64_t largest = 0;
    bool ascending = true;
    if (rows->cache != NULL)
        missing = plim__row_cache_take(rows->cache, number, task->nodes, task->count, &task->target,
                                       worker->keys, lost_out);
    for (int64_t i = 0; i < missing; i++) {
        const uint64_t index = rows->cache != NULL ? worker->keys[i] : (uint64_t)i;
        worker->keys[i] = (uint64_t)place_of(set, task->nodes[index]) << TASK_BITS | index;
        ascending = ascending && worker->keys[i] >= largest;
        largest = worker->keys[i] > largest ? worker->keys[i] : largest;
    }
    *missing_out = missing;
    if (ascending)
        return worker->keys;
    return plim__radix_sort(worker->keys, worker->sort_scratch, missing,
                            64 - __builtin_clzll(largest | 1));
}

/* Reads rows of the working set first, then those of the dataset. */
static plim_status_t read_rows(rows_disk_t *rows, int number, const rows_task_t *task,
                               const plim__working_set_t *set, const uint64_t *keys, int64_t count)
{
    plim__read_t *reads = rows->source.workers[number].reads;
    const int64_t num_places = set == NULL ? 0 : set->order.first[PLIM__ORDER_CLASSES];
    int64_t packed = 0;
    for (int64_t i = 0; i < count; i++) {
        const int64_t place = (int64_t)(keys[i] >> TASK_BITS);
        const size_t index = (size_t)(keys[i] & (TASK_ROWS - 1));
        const int64_t node = place - num_places;
        packed += node < 0;
        reads[i] = (plim__read_t){node < 0 ? plim__working_set_offset(set, place)
                                           : PLIM__NPY_HEADER + node * (int64_t)rows->form.bytes,
                                  rows->form.bytes,
                                  task->target.stored + index * task->target.stored_step};
    }
    if (packed > 0)
        PLIM_TRY(plim__source_read(&rows->source, number, &set->file, 0, packed));
    return plim__source_read(&rows->source, number, &rows->source.file, packed, count - packed);
}

static plim_status_t gather_task(rows_disk_t *rows, int number, const rows_task_t *task)
{
    plim__source_worker_t *worker = &rows->source.workers[number];
    plim__working_set_t *set = readable_set(rows);
    int64_t missing, lost = 0;
    PLIM_TRY(check_nodes(rows, task->nodes, task->count));
    const uint64_t *keys = make_keys(rows, number, task, set, &missing, &lost);
    const plim_status_t status =
        missing == 0 ? PLIM_OK : read_rows(rows, number, task, set, keys, missing);
    if (set != NULL && (status == PLIM_ERR_DATA || status == PLIM_ERR_IO)) {
        plim__working_set_lost(set);
        return gather_task(rows, number, task);
    }
    PLIM_TRY(status);
    plim__source_count(&worker->cached, task->count - missing);
    plim__source_count(&worker->lost, lost);
    for (int64_t i = 0; i < missing && task->target.type != rows->form.type; i++)
        plim__row_arrived(&rows->form, &task->target, (size_t)(keys[i] & (TASK_ROWS - 1)));
    return PLIM_OK;
}

static plim_status_t disk_gather(plim__rows_t *source, int number, const int64_t *nodes,
                                 int64_t count, plim_dtype_t type, void *rows_out)
{
    rows_disk_t *rows = (rows_disk_t *)source;
    bool narrow = type == PLIM_F16 && rows->form.type == PLIM_F32;
    int64_t most = narrow ? rows->narrow_rows : rows->task_rows;
    size_t step = (size_t)rows->form.num_features * plim__feature_bytes(type);
    for (int64_t first = 0; first < count; first += most) {
        rows_task_t task =
            make_task(rows, number, nodes + first, plim__min_i64(most, count - first), type,
                      (char *)rows_out + (size_t)first * step);
        PLIM_TRY(gather_task(rows, number, &task));
    }
    plim__source_count(&rows->source.workers[number].items, count);
    return PLIM_OK;
}

void plim__rows_disk_use(plim__rows_t *source, plim__working_set_t *set)
{
    atomic_store_explicit(&((rows_disk_t *)source)->set, set, memory_order_release);
}

void plim__rows_disk_destroy(plim__rows_t *source)
{
    rows_disk_t *rows = (rows_disk_t *)source;
    if (rows == NULL)
        return;
    plim__row_cache_destroy(rows->cache);
    plim__source_close(&rows->source);
}

/* Opens the source and makes its cache. */
static plim_status_t open_rows(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim__source_params_t *params, rows_disk_t *rows)
{
    PLIM_TRY(plim__source_open(job, dataset, params, &rows->source));
    if (params->column != 0 ||
        (!params->all && params->cached == NULL && params->working_set == NULL) ||
        plim__row_cache_rows(dataset, params) == 0)
        return PLIM_OK;
    return plim__row_cache_create(job, dataset, params, &rows->source, &rows->cache);
}

plim_status_t plim__rows_disk_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__source_params_t *params, plim__rows_t **source_out)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    rows_disk_t draft = draft_of(dataset, params), *rows;
    if (params->column == 0 && params->number >= manifest->num_tables)
        return plim__fail(PLIM_ERR_USAGE, "%s has no features; import it with a features file",
                          plim__dataset_path(dataset));
    if (draft.num_nodes > NODES_MAX)
        return plim__fail(
            PLIM_ERR_UNSUPPORTED, "%s has %lld rows; rows can be read of at most %lld",
            plim__dataset_path(dataset), (long long)draft.num_nodes, (long long)NODES_MAX);
    draft.source.entry =
        &manifest->files[params->column != 0 ? manifest->columns[__builtin_ctz(params->column)]
                                             : manifest->tables[params->number]];
    PLIM_TRY(plim__object_create(job->ledger, "I/O", lay_out, &draft, sizeof draft,
                                 &draft.source.arena, &rows));
    rows->face = (plim__rows_t){disk_gather, &rows->source};
    plim_status_t status = open_rows(job, dataset, params, rows);
    if (status != PLIM_OK) {
        plim__rows_disk_destroy(&rows->face);
        return status;
    }
    *source_out = &rows->face;
    return PLIM_OK;
}

bool plim__rows_disk_holds(const plim__rows_t *source, int64_t node)
{
    const plim__row_cache_t *cache =
        source->disk != NULL ? ((const rows_disk_t *)source)->cache : NULL;
    return cache != NULL && plim__row_cache_holds(cache, node);
}
