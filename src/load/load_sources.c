/*
 * The caches keep the lists and rows that a window of the training split most probably needs;
 * without such a split, one of seeds that may be any nodes. In a dataset of many graphs all nodes
 * are equally probable: there the caches keep the graphs of the splits, training first, as far as
 * they fit.
 */
#include "load/load_sources.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/npy.h"
#include "load/slots.h"
#include "mem/arena.h"
#include "mem/size_text.h"
#include "store/dataset.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/*
 * A working set is ordered for windows of this share of an epoch, since it serves all lines: where
 * windows are much longer, the caches hold nearly everything.
 */
#define PACKED_SHARE (1.0 / 16)

/*
 * Choosing what to cache reads at most as many bytes as this number of passes over the dataset. In
 * less memory it would take longer than the epochs that it serves: with 2.2 G nodes in 4 GiB it
 * would read 0.7 TB, for epochs of 35 GB.
 */
#define CHOOSING_PASSES 8

/* Upper bound of a cache's own tables and padding for `bytes` of lists or rows. */
static size_t overhead(size_t bytes)
{
    return bytes > 0 ? bytes / 512 + 6 * PLIM__PAGE : 0;
}

/* Bytes that the caches may take for lists, and for rows. */
static size_t list_capacity(const plim__load_context_t *context)
{
    const size_t bytes = context->plan.topology_in_memory ? 0 : context->plan.list_cache_bytes;
    return bytes > overhead(bytes) ? bytes - overhead(bytes) : 0;
}

static size_t row_capacity(const plim__load_context_t *context)
{
    const bool read = context->params.with_rows && !context->plan.rows_in_memory;
    return read ? context->plan.row_cache_bytes : 0;
}

static size_t entry_bytes(const plim__load_context_t *context)
{
    return plim__index_bytes(context->info->index_type);
}

static size_t row_bytes(const plim__load_context_t *context)
{
    return plim__round_up(context->params.window.row_bytes, sizeof(uint64_t));
}

/* Caches, windows and slots are not made yet, so choosing may use their memory. */
static size_t work_bytes(const plim__load_context_t *context)
{
    const plim__load_plan_t *plan = &context->plan;
    const size_t minimum = plim__access_work_minimum(context->asked, context->info->num_nodes);
    const size_t stays =
        plim__access_estimate(context->info->num_nodes, context->working_set != NULL);
    const int64_t available = plim__ledger_available(context->job.ledger);
    size_t later = plan->list_cache_bytes + plan->row_cache_bytes +
                   PLIM__LOAD_WINDOWS * plim__load_window_estimate(&context->params.window) +
                   plim__slots_estimate(plan, &context->params);
    if (available < 0 || later > (size_t)available)
        later = available < 0 ? 0 : (size_t)available;
    later = later > stays ? later - stays : 0;
    return later > minimum ? later : minimum;
}

/* Whether a temporary file of `bytes` can be written there. */
static bool is_usable(const char *path, int64_t bytes)
{
    return path != NULL && path[0] != '\0' && access(path, W_OK | X_OK) == 0 &&
           plim__file_check_disk(path, bytes, "counters of lists need") == PLIM_OK;
}

/* The directory for counters that do not fit in memory; NULL when there is none. */
static const char *tmp_of(const plim__load_context_t *context)
{
    const char *places[] = {context->plan.scratch, getenv("TMPDIR"), "/var/tmp"};
    const int64_t bytes = plim__access_file_bytes(context->info->num_nodes);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (is_usable(places[i], bytes))
            return places[i];
    return NULL;
}

/* Bytes of rows in the windows as planned, and the minimum that they keep. Where windows are drawn
 * ahead they keep all: smaller windows would be too many for one draw. */
static size_t window_capacity(const plim__load_context_t *context)
{
    const plim__load_window_params_t *window = &context->params.window;
    return PLIM__LOAD_WINDOWS * (size_t)window->rows * window->row_bytes;
}

static size_t window_capacity_minimum(const plim__load_context_t *context)
{
    const plim__load_window_params_t *window = &context->params.window;
    int64_t rows = window->rows;
    if (context->plan.ahead_draws == 0)
        rows = plim__min_i64(rows, context->plan.slot_nodes);
    return PLIM__LOAD_WINDOWS * (size_t)rows * window->row_bytes;
}

/* Planned bytes that the working set does not take, since fewer nodes are reached than it may hold.
 */
static size_t spare_of_set(const plim__load_context_t *context)
{
    const plim__working_set_t *set = context->working_set;
    const size_t planned = plim__working_set_estimate(context->dataset, context->plan.working);
    return set != NULL && planned > set->arena.size ? planned - set->arena.size : 0;
}

/* Bytes that lists, rows and windows share. */
static size_t whole_capacity(const plim__load_context_t *context)
{
    return list_capacity(context) + row_capacity(context) + window_capacity(context) +
           spare_of_set(context);
}

/*
 * Lets lists, rows and windows compete for the same memory. Windows get more than the expected
 * number of rows, which is a mean. The caches' own tables and the windows' minimum are subtracted
 * first, so that everything chosen fits.
 */
static void share_memory(const plim__load_context_t *context, plim__access_params_t *params)
{
    const size_t row = context->params.window.row_bytes;
    const size_t whole = whole_capacity(context), minimum = window_capacity_minimum(context);
    const size_t tables = 2 * overhead(whole);
    const size_t most = whole - minimum > tables ? whole - minimum - tables : 0;
    params->capacity = params->capacity < most ? params->capacity : most;
    params->miss_capacity = most - params->capacity + minimum;
    params->miss_min = minimum;
    if (context->plan.ahead_draws == 0)
        params->miss_bytes = PLIM__LOAD_WINDOWS * (row + row / PLIM__LOAD_SLACK_PART);
    params->row_capacity = most;
    if (params->list_bytes > 0)
        params->list_capacity = most;
}

/*
 * Divides the windows' memory between draws and rows. When it holds less than a window of the
 * planned steps needs, both get the same share of their need.
 */
static void divide_windows(plim__load_context_t *context)
{
    plim__load_plan_t *plan = &context->plan;
    const plim__load_window_params_t *window = &context->params.window;
    const double entry = (double)entry_bytes(context), row = (double)window->row_bytes;
    const double room = (double)plan->window_draws * entry + (double)plan->window_rows * row;
    const double draws = (double)plan->window_draws * entry * (1 + 1.0 / PLIM__LOAD_SLACK_PART);
    const double part = room / (context->access.rows_missed * row + draws);
    const int64_t fewer = (int64_t)(draws * part / entry);
    if (part >= 1 || fewer < plan->slot_edges)
        return;
    plan->window_rows += (int64_t)((double)(plan->window_draws - fewer) * entry / row);
    plan->window_draws = fewer;
}

/*
 * Gives the caches what was chosen, and the windows as much of the rest as they need: their planned
 * rows, or the expected rows that are not cached. What is left stays free, also for the host.
 */
static void divide_memory(plim__load_context_t *context)
{
    plim__load_plan_t *plan = &context->plan;
    const plim__access_t *access = &context->access;
    const size_t row = PLIM__LOAD_WINDOWS * context->params.window.row_bytes;
    const size_t whole = whole_capacity(context);
    const size_t lists = access->list_bytes + overhead(access->list_bytes);
    const size_t rows = access->row_bytes + overhead(access->row_bytes);
    const int64_t missed = (int64_t)(access->rows_missed * (1 + 1.0 / PLIM__LOAD_SLACK_PART));
    const int64_t planned = plan->window_rows;
    assert(lists + rows + window_capacity_minimum(context) <= whole);
    plan->list_cache_bytes = lists;
    plan->row_cache_bytes = access->row_bytes;
    plan->window_rows = (int64_t)((whole - lists - rows) / row);
    divide_windows(context);
    plan->window_rows = plim__min_i64(plan->window_rows, plim__max_i64(missed, planned));
    plim__loader_params_find(context->asked, context->dataset, plan, &context->params);
}

static void log_cached(const plim__load_context_t *context)
{
    const plim__access_t *access = &context->access;
    const long long steps = context->plan.cache_steps;
    char lists[PLIM__SIZE_TEXT], rows[PLIM__SIZE_TEXT];
    (void)plim__size_text((int64_t)access->list_bytes, lists);
    (void)plim__size_text((int64_t)access->row_bytes, rows);
    if (access->list_bytes > 0 && access->row_bytes > 0)
        plim__log(context->asked, PLIM_LOG_INFO,
                  "caches: %s of lists and %s of rows, expected to hold %.1f %% of the lists and "
                  "%.1f %% of the rows that a window of %lld steps needs",
                  lists, rows, 100 * access->list_hits, 100 * access->row_hits, steps);
    else if (access->list_bytes > 0 || access->row_bytes > 0)
        plim__log(context->asked, PLIM_LOG_INFO,
                  "cache: %s of %s, expected to hold %.1f %% of the %s that a window of %lld steps "
                  "needs",
                  access->row_bytes > 0 ? rows : lists, access->row_bytes > 0 ? "rows" : "lists",
                  100 * (access->row_bytes > 0 ? access->row_hits : access->list_hits),
                  access->row_bytes > 0 ? "rows" : "lists", steps);
}

/* The parameters that all computations of access probabilities have in common. */
static plim__access_params_t access_params(const plim__load_context_t *context)
{
    const plim__load_window_params_t *window = &context->params.window;
    plim__access_params_t params = {.num_hops = window->num_hops,
                                    .replace = window->replace,
                                    .seeds = plim__seeds_ids(context->seeds, PLIM_TRAIN),
                                    .num_seeds = plim__seeds_count(context->seeds, PLIM_TRAIN),
                                    .work_bytes = work_bytes(context),
                                    .tmp = tmp_of(context)};
    if (params.num_seeds == 0) {
        params.seeds = NULL;
        params.num_seeds = context->info->num_nodes;
    }
    memcpy(params.fanout, window->fanout, sizeof params.fanout);
    return params;
}

/* Evaluations need the seeds of the other splits as often as training needs its own. */
static void add_splits(const plim__load_context_t *context, plim__access_params_t *params)
{
    for (int i = 0; i < 2; i++) {
        params->others[i] = plim__seeds_ids(context->seeds, (plim_split_t)(PLIM_VALID + i));
        params->num_others[i] = plim__seeds_count(context->seeds, (plim_split_t)(PLIM_VALID + i));
    }
}

static bool lacks_file(const plim__load_context_t *context, const plim__access_params_t *params)
{
    return params->tmp == NULL &&
           plim__access_needs_file(context->asked, context->info->num_nodes, params->work_bytes);
}

static bool takes_long(const plim__load_context_t *context, const plim__access_params_t *params)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(context->dataset);
    int64_t bytes = 0;
    for (int i = 0; i < manifest->num_files; i++)
        bytes = plim__add_saturating_i64(bytes, manifest->files[i].bytes);
    return plim__access_reads(context->asked, context->info, params->num_hops, params->work_bytes) /
               CHOOSING_PASSES >
           bytes;
}

static plim_status_t choose_by_access(plim__load_context_t *context)
{
    plim__access_params_t params = access_params(context);
    const plim__working_set_t *set = context->working_set;
    const bool known =
        set != NULL && set->complete && (list_capacity(context) == 0 || set->num_lists > 0);
    const int64_t steps = (params.num_seeds - 1) / context->plan.recipe.batch_size + 1;
    const int64_t together = plim__max_i64(1, plim__min_i64(context->plan.cache_steps, steps));
    if (!known && lacks_file(context, &params)) {
        const int64_t bytes = plim__access_file_bytes(context->info->num_nodes);
        char needed[PLIM__SIZE_TEXT];
        plim__log(context->asked, PLIM_LOG_WARNING,
                  "lists and rows are not cached: choosing them needs a temporary file of %s, and "
                  "neither `scratch` nor $TMPDIR nor /var/tmp is a writable directory on a disk "
                  "with that much space; set `scratch` to one",
                  plim__size_text(bytes, needed));
        return PLIM_OK;
    }
    if (!known && takes_long(context, &params)) {
        plim__log(
            context->asked, PLIM_LOG_INFO,
            "lists and rows are not cached: choosing them in so little memory would read more "
            "than %d passes over the dataset; a larger line is faster",
            CHOOSING_PASSES);
        return PLIM_OK;
    }
    params.share = (double)together / (double)steps;
    params.row_capacity = row_capacity(context);
    params.list_capacity = list_capacity(context);
    params.list_fixed = PLIM__LOAD_START_BYTES;
    params.packed = set != NULL;
    if (set != NULL) {
        add_splits(context, &params);
        params.row_reads = set->complete ? PLIM__LOAD_PACKED_READS : 1;
        params.list_reads = set->num_lists > 0 ? PLIM__LOAD_PACKED_READS : 1;
    }
    params.capacity = params.row_capacity + params.list_capacity;
    params.row_bytes = params.row_capacity > 0 ? row_bytes(context) : 0;
    params.list_bytes = params.list_capacity > 0 ? entry_bytes(context) : 0;
    if (context->plan.shared)
        share_memory(context, &params);
    if (known)
        plim__access_of_set(set, &params, &context->access);
    else
        PLIM_TRY(plim__access_find(context->asked, context->dataset, context->offsets, &params,
                                   &context->access));
    if (context->plan.shared)
        divide_memory(context);
    /* A cache that is too small would keep the lowest node numbers instead. */
    assert(context->access.row_bytes <= context->plan.row_cache_bytes);
    assert(context->access.list_bytes + overhead(context->access.list_bytes) <=
           context->plan.list_cache_bytes);
    log_cached(context);
    return PLIM_OK;
}

/* Adds a graph's lists and rows as far as they fit. */
static void add_graph(plim__load_context_t *context, int64_t graph)
{
    plim__access_t *access = &context->access;
    const size_t row = row_bytes(context), entry = entry_bytes(context);
    for (int64_t node = context->graph_indptr[graph]; node < context->graph_indptr[graph + 1];
         node++) {
        plim__list_t list = plim__offsets_list(context->offsets, node);
        size_t bytes = PLIM__LOAD_START_BYTES + (size_t)list.degree * entry;
        if (access->row_bytes + row <= row_capacity(context)) {
            plim__node_set_add(&access->rows, node);
            access->row_bytes += row;
        }
        if (access->list_bytes + bytes <= list_capacity(context)) {
            plim__node_set_add(&access->lists, node);
            access->list_bytes += bytes;
        }
    }
}

static plim_status_t choose_graphs(plim__load_context_t *context)
{
    plim__access_t *access = &context->access;
    const int64_t num_nodes = context->info->num_nodes;
    const size_t lines = plim__node_set_bytes(num_nodes);
    PLIM_TRY(plim__arena_create(context->job.ledger, "admission",
                                plim__access_estimate(num_nodes, false), &access->arena));
    access->lists =
        plim__node_set_make(plim__arena_carve(&access->arena, 1, lines, PLIM__LINE), num_nodes);
    access->rows =
        plim__node_set_make(plim__arena_carve(&access->arena, 1, lines, PLIM__LINE), num_nodes);
    for (int number = PLIM_TRAIN; number <= PLIM_TEST; number++) {
        const plim_split_t split = (plim_split_t)number;
        const int64_t *graphs = plim__seeds_ids(context->seeds, split);
        for (int64_t i = 0; i < plim__seeds_count(context->seeds, split); i++)
            add_graph(context, graphs[i]);
    }
    plim__node_set_seal(&access->lists);
    plim__node_set_seal(&access->rows);
    return PLIM_OK;
}

static plim_status_t choose(plim__load_context_t *context)
{
    if (list_capacity(context) == 0 && row_capacity(context) == 0)
        return PLIM_OK;
    return context->graph_indptr != NULL ? choose_graphs(context) : choose_by_access(context);
}

/* Identifies what a working set depends on besides the dataset. */
static uint64_t set_key(const plim__load_context_t *context)
{
    const plim__load_window_params_t *window = &context->params.window;
    uint64_t values[PLIM__HOPS_MAX + 2] = {(uint64_t)window->num_hops, (uint64_t)window->replace};
    for (int i = 0; i < window->num_hops; i++)
        values[2 + i] = (uint64_t)window->fanout[i];
    return XXH3_64bits(values, sizeof values);
}

/* Makes the working set, and its file if it can be written. */
static plim_status_t make_working_set(plim__load_context_t *context)
{
    const plim__load_plan_t *plan = &context->plan;
    plim__access_params_t params = access_params(context);
    if (lacks_file(context, &params) || takes_long(context, &params))
        return PLIM_OK;
    add_splits(context, &params);
    params.share = PACKED_SHARE;
    params.row_bytes = row_bytes(context);
    params.list_bytes = entry_bytes(context);
    params.list_fixed = PLIM__LOAD_START_BYTES;
    PLIM_TRY(plim__access_pack(context->asked, context->dataset, context->offsets, &params,
                               plan->scratch, set_key(context), plan->working,
                               &context->working_set));
    return plim__working_set_save(context->working_set, context->dataset, plan->scratch);
}

/* Opens the file of the working set, if it is there. */
static plim_status_t find_working_set(plim__load_context_t *context)
{
    const plim__load_plan_t *plan = &context->plan;
    return plim__working_set_open(context->asked, context->dataset, context->offsets, plan->scratch,
                                  set_key(context), plan->working, &context->working_set);
}

/* Opens the working set, or makes it unless another process does so. */
static plim_status_t open_working_set(plim__load_context_t *context)
{
    const plim__load_plan_t *plan = &context->plan;
    const uint64_t key = set_key(context);
    int lock;
    context->packed_elsewhere = false;
    if (plan->working.rows == 0)
        return PLIM_OK;
    PLIM_TRY(find_working_set(context));
    if (context->working_set == NULL) {
        if (!plim__working_set_claim(context->dataset, plan->scratch, key, &lock)) {
            plim__log(context->asked, PLIM_LOG_INFO,
                      "another process is packing the rows in %s; this one reads the dataset until "
                      "an epoch begins after that",
                      plan->scratch);
            context->packed_elsewhere = true;
            return PLIM_OK;
        }
        plim_status_t status = find_working_set(context); /* the one before may have made it */
        if (status == PLIM_OK && context->working_set == NULL)
            status = make_working_set(context);
        plim__working_set_release(context->dataset, plan->scratch, key, lock);
        PLIM_TRY(status);
    }
    return PLIM_OK;
}

/* A set that leaves rows out would limit a larger cache. */
static void leave_small_set(plim__load_context_t *context)
{
    const plim__load_plan_t *plan = &context->plan;
    const plim__working_set_t *set = context->working_set;
    if (set != NULL && !set->complete &&
        (int64_t)plim__load_most_cached(plan, context->params.window.row_bytes) / set->stride >
            set->order.nodes.count) {
        plim__log(context->asked, PLIM_LOG_INFO, "%s has fewer rows than the cache holds: not used",
                  set->path);
        plim__working_set_destroy(context->working_set);
        context->working_set = NULL;
    }
}

void plim__load_sources_renew(plim__load_context_t *context)
{
    if (!context->packed_elsewhere || find_working_set(context) != PLIM_OK)
        return;
    context->packed_elsewhere = context->working_set == NULL;
    leave_small_set(context);
    if (context->working_set == NULL)
        return;
    plim__rows_disk_use(context->sources.tables[0], context->working_set);
    plim__topology_disk_use(context->lists, context->working_set);
    plim__log(context->asked, PLIM_LOG_INFO, "missed rows and lists come from %s from now on",
              context->working_set->path);
}

/* A column decides the draws: builders and workers read it. */
static plim_status_t draw_by_column(const plim__load_context_t *context,
                                    plim__topology_t **topology)
{
    const unsigned by = context->plan.recipe.draw_by;
    const plim__topology_by_column_params_t params = {
        .below = *topology,
        .column = context->sources.columns[__builtin_ctz(by)],
        .choice = by == PLIM_EDGE_WEIGHT        ? PLIM__CHOOSE_BY_WEIGHT
                  : context->plan.recipe.latest ? PLIM__CHOOSE_LATEST
                                                : PLIM__CHOOSE_UP_TO,
        .of_nodes = by == PLIM_NODE_TIME,
        .workers = context->params.num_sources};
    return plim__topology_by_column_create(context->asked, &params, topology);
}

static plim_status_t open_topology(plim__load_context_t *context)
{
    plim__load_sources_t *sources = &context->sources;
    plim__source_params_t params = context->params.lists;
    plim__topology_t *topology;
    params.number = sources->num_topologies;
    params.working_set = context->working_set;
    if (context->access.lists.count > 0)
        params.cached = &context->access.lists;
    PLIM_TRY(plim__topology_disk_create(context->asked, context->dataset, context->offsets, &params,
                                        &topology));
    context->lists = topology;
    context->disk[context->num_disk++] = topology->disk;
    if (context->plan.recipe.draw_by != 0)
        PLIM_TRY(draw_by_column(context, &topology));
    sources->topologies[sources->num_topologies++] = topology;
    return PLIM_OK;
}

static plim_status_t open_table(plim__load_context_t *context)
{
    plim__load_sources_t *sources = &context->sources;
    plim__source_params_t params = context->params.rows;
    plim__rows_t *rows;
    params.number = sources->num_tables;
    params.working_set = context->working_set;
    if (context->access.rows.count > 0)
        params.cached = &context->access.rows;
    PLIM_TRY(plim__rows_disk_create(context->asked, context->dataset, &params, &rows));
    sources->tables[sources->num_tables++] = rows;
    context->disk[context->num_disk++] = rows->disk;
    return PLIM_OK;
}

/* Columns are in memory as planned, or on disk without a cache. */
static plim_status_t open_columns(plim__load_context_t *context)
{
    const plim__load_plan_t *plan = &context->plan;
    context->first_column_worker = context->params.columns.workers - plan->workers;
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        plim__source_params_t params = context->params.columns;
        plim__rows_t **column = &context->sources.columns[i];
        params.column = 1u << i;
        if ((plim__load_columns(&plan->recipe) & plan->columns_in_memory & params.column) != 0)
            PLIM_TRY(
                plim__rows_memory_create(context->asked, context->dataset, params.column, column));
        else if ((plim__load_columns(&plan->recipe) & params.column) != 0)
            PLIM_TRY(plim__rows_disk_create(context->asked, context->dataset, &params, column));
    }
    return PLIM_OK;
}

static void close_columns(plim__load_context_t *context)
{
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        plim__rows_t *column = context->sources.columns[i];
        if (column != NULL && column->disk != NULL)
            plim__rows_disk_destroy(column);
        else
            plim__rows_memory_destroy(column);
    }
}

plim_status_t plim__load_sources_open(plim__load_context_t *context)
{
    if (context->plan.offsets_on_disk)
        plim__log(context->asked, PLIM_LOG_INFO,
                  "offsets do not fit: they are read with each list, and nothing is cached; a "
                  "larger line is faster");
    else
        PLIM_TRY(plim__offsets_create(context->asked, context->dataset,
                                      context->plan.recipe.skip_loops, &context->offsets));
    PLIM_TRY(open_working_set(context));
    leave_small_set(context);
    PLIM_TRY(choose(context));
    PLIM_TRY(open_columns(context));
    if (plim__load_sums(context->info, &context->plan.recipe))
        PLIM_TRY(plim__weight_sums_create(context->asked, context->dataset, context->offsets,
                                          &context->weight_sums));
    PLIM_TRY(open_topology(context));
    return context->params.with_rows ? open_table(context) : PLIM_OK;
}

void plim__load_sources_close(plim__load_context_t *context)
{
    for (int i = 0; i < context->sources.num_tables; i++)
        plim__rows_disk_destroy(context->sources.tables[i]);
    for (int i = 0; i < context->sources.num_topologies; i++)
        if (context->sources.topologies[i] != context->lists)
            plim__topology_by_column_destroy(context->sources.topologies[i]);
    plim__topology_disk_destroy(context->lists);
    context->lists = NULL;
    close_columns(context);
    plim__weight_sums_destroy(&context->weight_sums);
    plim__access_free(&context->access);
    plim__working_set_destroy(context->working_set);
    context->working_set = NULL;
    plim__offsets_destroy(context->offsets);
    context->offsets = NULL;
    context->sources = (plim__load_sources_t){0};
    context->num_disk = 0;
}
