/*
 * Which lists and rows are kept in memory: those worth most to a window of the training split, or,
 * in a dataset of many graphs, where no node is worth more than another, those of the splits,
 * training's first, as far as they fit.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "load/loader.h"
#include "mem/size_text.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define START_BYTES 4 /* beside its entries, a list kept takes its start */
#define SPARE_PART 4  /* windows have room for so much more than the rows expected */

/* What lies beside so many bytes of lists, or of rows, at most: a block's share of each list, a
 * page's state, and what is left of the pages that their parts begin on. */
static size_t beside(size_t bytes)
{
    return bytes > 0 ? bytes / 512 + 6 * PLIM__PAGE : 0;
}

/* Bytes of what is not in memory by plan, and is wanted. */
static size_t list_room(const plim_loader_t *loader)
{
    const size_t bytes = loader->plan.topology_in_memory ? 0 : loader->plan.list_cache_bytes;
    return bytes > beside(bytes) ? bytes - beside(bytes) : 0;
}

static size_t row_room(const plim_loader_t *loader)
{
    const bool read = loader->params.with_rows && !loader->plan.rows_in_memory;
    return read ? loader->plan.row_cache_bytes : 0;
}

static size_t entry_bytes(const plim_loader_t *loader)
{
    return plim__index_bytes(loader->info->index_type);
}

static size_t row_bytes(const plim_loader_t *loader)
{
    return plim__round_up(loader->params.window.row_bytes, sizeof(uint64_t));
}

/* Nothing that the plan holds besides is there yet, so choosing may use its room. */
static size_t work_bytes(const plim_loader_t *loader)
{
    const plim__load_plan_t *plan = &loader->plan;
    const size_t least = plim__access_work_minimum(loader->asked, loader->info->num_nodes);
    const size_t stays = plim__access_estimate(loader->info->num_nodes);
    const int64_t available = plim__ledger_available(loader->job.ledger);
    size_t later = plan->list_cache_bytes + plan->row_cache_bytes +
                   PLIM__LOAD_WINDOWS * plim__load_window_estimate(&loader->params.window) +
                   plim__slots_estimate(plan, &loader->params);
    if (available < 0 || later > (size_t)available)
        later = available < 0 ? 0 : (size_t)available;
    later = later > stays ? later - stays : 0;
    return later > least ? later : least;
}

/* Whether that many bytes can be written there, and are not memory again. */
static bool is_disk(const char *path, int64_t bytes)
{
    plim__file_system_t system;
    int64_t space;
    return path != NULL && path[0] != '\0' && access(path, W_OK | X_OK) == 0 &&
           plim__file_system(path, &system) == PLIM_OK && !system.memory &&
           plim__file_space(path, &space) == PLIM_OK && space >= bytes;
}

/* Where counters go that do not fit; NULL when there is no such place. */
static const char *tmp_of(const plim_loader_t *loader)
{
    const char *places[] = {loader->plan.scratch, getenv("TMPDIR"), "/var/tmp"};
    const int64_t bytes = plim__access_file_bytes(loader->info->num_nodes);
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        if (is_disk(places[i], bytes))
            return places[i];
    return NULL;
}

/* Bytes of rows that the windows hold as planned, and those that stay to them in any case. */
static size_t window_room(const plim_loader_t *loader)
{
    const plim__load_window_params_t *window = &loader->params.window;
    return PLIM__LOAD_WINDOWS * (size_t)window->rows * window->row_bytes;
}

static size_t window_room_minimum(const plim_loader_t *loader)
{
    const plim__load_window_params_t *window = &loader->params.window;
    const int64_t rows = plim__min_i64(window->rows, loader->plan.slot_nodes);
    return PLIM__LOAD_WINDOWS * (size_t)rows * window->row_bytes;
}

/* All that lists, rows and windows may take together. */
static size_t whole_room(const plim_loader_t *loader)
{
    return list_room(loader) + row_room(loader) + window_room(loader);
}

/*
 * Lists, rows and windows compete for one room; windows have some to spare, since what is expected
 * of them is the mean. What will lie beside the lists and rows, and the least that windows work
 * with, are set aside first: all that is chosen then has its room.
 */
static void share_room(const plim_loader_t *loader, plim__access_params_t *params)
{
    const size_t row = loader->params.window.row_bytes;
    const size_t whole = whole_room(loader), least = window_room_minimum(loader);
    const size_t aside = 2 * beside(whole);
    const size_t most = whole - least > aside ? whole - least - aside : 0;
    params->room = params->room < most ? params->room : most;
    params->miss_room = most - params->room + least;
    params->miss_min = least;
    params->miss_bytes = PLIM__LOAD_WINDOWS * (row + row / SPARE_PART);
    params->row_room = most;
    if (params->list_bytes > 0)
        params->list_room = most;
}

/*
 * Divides the windows' room, when it holds less than all that a window of so many steps would miss:
 * draws and rows for the same part of it, which is what a window will come to.
 */
static void divide_windows(plim_loader_t *loader)
{
    plim__load_plan_t *plan = &loader->plan;
    const plim__load_window_params_t *window = &loader->params.window;
    const double entry = (double)entry_bytes(loader), row = (double)window->row_bytes;
    const double room = (double)plan->window_draws * entry + (double)plan->window_rows * row;
    const double draws = (double)plan->window_draws * entry * (1 + 1.0 / SPARE_PART);
    const double part = room / (loader->access.rows_missed * row + draws);
    const int64_t fewer = (int64_t)(draws * part / entry);
    if (part >= 1 || fewer < plan->slot_edges)
        return;
    plan->window_rows += (int64_t)((double)(plan->window_draws - fewer) * entry / row);
    plan->window_draws = fewer;
}

/* What is kept keeps its room, and the windows have the rest. */
static void divide_room(plim_loader_t *loader)
{
    plim__load_plan_t *plan = &loader->plan;
    const plim__access_t *worth = &loader->access;
    const size_t row = PLIM__LOAD_WINDOWS * loader->params.window.row_bytes;
    const size_t whole = whole_room(loader);
    const size_t lists = worth->list_bytes + beside(worth->list_bytes);
    const size_t rows = worth->row_bytes + beside(worth->row_bytes);
    assert(lists + rows + window_room_minimum(loader) <= whole);
    plan->list_cache_bytes = lists;
    plan->row_cache_bytes = worth->row_bytes;
    plan->window_rows = (int64_t)((whole - lists - rows) / row);
    divide_windows(loader);
    plim__loader_params_find(loader->asked, loader->dataset, plan, &loader->params);
}

static void log_kept(const plim_loader_t *loader)
{
    const plim__access_t *worth = &loader->access;
    const long long steps = loader->plan.window_steps;
    char lists[PLIM__SIZE_TEXT], rows[PLIM__SIZE_TEXT];
    (void)plim__size_text((int64_t)worth->list_bytes, lists);
    (void)plim__size_text((int64_t)worth->row_bytes, rows);
    if (worth->list_bytes > 0 && worth->row_bytes > 0)
        plim__log(loader->asked, PLIM_LOG_INFO,
                  "kept in memory: %s of lists and %s of rows, expected to hold %.1f %% of the "
                  "lists and %.1f %% of the rows that a window of %lld steps needs",
                  lists, rows, 100 * worth->list_hits, 100 * worth->row_hits, steps);
    else if (worth->list_bytes > 0 || worth->row_bytes > 0)
        plim__log(loader->asked, PLIM_LOG_INFO,
                  "kept in memory: %s of %s, expected to hold %.1f %% of the %s that a window of "
                  "%lld steps needs",
                  worth->row_bytes > 0 ? rows : lists, worth->row_bytes > 0 ? "rows" : "lists",
                  100 * (worth->row_bytes > 0 ? worth->row_hits : worth->list_hits),
                  worth->row_bytes > 0 ? "rows" : "lists", steps);
}

static plim_status_t choose_by_access(plim_loader_t *loader)
{
    const plim__load_window_params_t *window = &loader->params.window;
    const int64_t steps = plim_stream_steps(&loader->streams[PLIM_TRAIN]);
    const int64_t together = plim__max_i64(1, plim__min_i64(loader->plan.window_steps, steps));
    plim__access_params_t params = {.num_hops = window->num_hops,
                                    .replace = window->replace,
                                    .seeds = plim__seeds_ids(loader->seeds, PLIM_TRAIN),
                                    .num_seeds = plim__seeds_count(loader->seeds, PLIM_TRAIN),
                                    .share = (double)together / (double)steps,
                                    .row_room = row_room(loader),
                                    .list_room = list_room(loader),
                                    .list_fixed = START_BYTES,
                                    .work_bytes = work_bytes(loader),
                                    .tmp = tmp_of(loader)};
    if (params.tmp == NULL &&
        plim__access_needs_file(loader->asked, loader->info->num_nodes, params.work_bytes)) {
        plim__log(loader->asked, PLIM_LOG_WARNING,
                  "no disk for %lld bytes of a temporary file, neither in $TMPDIR nor in /var/tmp; "
                  "lists and rows are not kept in memory; give --scratch a directory on a disk",
                  (long long)plim__access_file_bytes(loader->info->num_nodes));
        return PLIM_OK;
    }
    memcpy(params.fanout, window->fanout, sizeof params.fanout);
    params.room = params.row_room + params.list_room;
    params.row_bytes = params.row_room > 0 ? row_bytes(loader) : 0;
    params.list_bytes = params.list_room > 0 ? entry_bytes(loader) : 0;
    if (loader->plan.shared)
        share_room(loader, &params);
    PLIM_TRY(plim__access_find(loader->asked, loader->dataset, loader->offsets, &params,
                               &loader->access));
    if (loader->plan.shared)
        divide_room(loader);
    /* Of more than has room only the first would be kept, by their numbers. */
    assert(loader->access.row_bytes <= loader->plan.row_cache_bytes);
    assert(loader->access.list_bytes + beside(loader->access.list_bytes) <=
           loader->plan.list_cache_bytes);
    log_kept(loader);
    return PLIM_OK;
}

/* Adds a graph's lists and rows as far as they fit. */
static void add_graph(plim_loader_t *loader, int64_t graph)
{
    plim__access_t *worth = &loader->access;
    const size_t row = row_bytes(loader), entry = entry_bytes(loader);
    for (int64_t node = loader->graph_indptr[graph]; node < loader->graph_indptr[graph + 1];
         node++) {
        plim__list_t list = plim__offsets_list(loader->offsets, node);
        size_t bytes = START_BYTES + (size_t)list.degree * entry;
        if (worth->row_bytes + row <= row_room(loader)) {
            plim__node_set_add(&worth->rows, node);
            worth->row_bytes += row;
        }
        if (worth->list_bytes + bytes <= list_room(loader)) {
            plim__node_set_add(&worth->lists, node);
            worth->list_bytes += bytes;
        }
    }
}

static plim_status_t choose_graphs(plim_loader_t *loader)
{
    plim__access_t *worth = &loader->access;
    const int64_t num_nodes = loader->info->num_nodes;
    const size_t lines = plim__node_set_bytes(num_nodes);
    PLIM_TRY(plim__arena_create(loader->job.ledger, "cache sets", plim__access_estimate(num_nodes),
                                &worth->arena));
    worth->lists =
        plim__node_set_make(plim__arena_carve(&worth->arena, 1, lines, PLIM__LINE), num_nodes);
    worth->rows =
        plim__node_set_make(plim__arena_carve(&worth->arena, 1, lines, PLIM__LINE), num_nodes);
    for (int number = PLIM_TRAIN; number <= PLIM_TEST; number++) {
        const plim_split_t split = (plim_split_t)number;
        const int64_t *graphs = plim__seeds_ids(loader->seeds, split);
        for (int64_t i = 0; i < plim__seeds_count(loader->seeds, split); i++)
            add_graph(loader, graphs[i]);
    }
    plim__node_set_seal(&worth->lists);
    plim__node_set_seal(&worth->rows);
    return PLIM_OK;
}

static plim_status_t choose(plim_loader_t *loader)
{
    if ((list_room(loader) == 0 && row_room(loader) == 0) ||
        plim__seeds_count(loader->seeds, PLIM_TRAIN) == 0)
        return PLIM_OK;
    return loader->graph_indptr != NULL ? choose_graphs(loader) : choose_by_access(loader);
}

uint64_t plim__load_cache_key(const plim_dataset_info_t *info, const plim_recipe_t *recipe)
{
    const plim_recipe_t drawn = plim__load_recipe(info, recipe);
    uint64_t values[PLIM__HOPS_MAX + 3] = {(uint64_t)drawn.batch_size, (uint64_t)drawn.num_hops,
                                           (uint64_t)drawn.replace};
    for (int i = 0; i < drawn.num_hops; i++)
        values[3 + i] = (uint64_t)drawn.fanout[i];
    return XXH3_64bits(values, sizeof values);
}

static plim_status_t open_topology(plim_loader_t *loader)
{
    plim__topology_disk_params_t params = loader->params.lists;
    if (loader->access.lists.count > 0)
        params.hot = &loader->access.lists;
    return plim__topology_disk_create(loader->asked, loader->dataset, loader->offsets, &params,
                                      &loader->base.topology);
}

static plim_status_t open_rows(plim_loader_t *loader)
{
    plim__rows_disk_params_t params = loader->params.rows;
    if (!loader->params.with_rows)
        return PLIM_OK;
    params.cache_key = plim__load_cache_key(loader->info, &loader->plan.recipe);
    if (loader->access.rows.count > 0)
        params.hot = &loader->access.rows;
    return plim__rows_disk_create(loader->asked, loader->dataset, &params, &loader->base.rows);
}

plim_status_t plim__load_sources_open(plim_loader_t *loader)
{
    PLIM_TRY(plim__offsets_create(loader->asked, loader->dataset, &loader->offsets));
    PLIM_TRY(choose(loader));
    PLIM_TRY(open_topology(loader));
    return open_rows(loader);
}

void plim__load_sources_close(plim_loader_t *loader)
{
    plim__rows_destroy(loader->base.rows);
    plim__topology_destroy(loader->base.topology);
    plim__access_free(&loader->access);
    plim__offsets_destroy(loader->offsets);
}
