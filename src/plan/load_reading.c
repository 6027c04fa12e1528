/*
 * How a loader reads what is on disk: windows, which hold the draws and rows of some steps; the
 * caches, which get what is left; a working set in scratch; and draws ahead, where an epoch has
 * several windows.
 */
#include "plan/load_fit.h"

#include "load/loader_params.h"
#include "sample/blocks.h"

static int64_t seeds_of_splits(const plim_dataset_info_t *info)
{
    return info->num_split[PLIM_TRAIN] + info->num_split[PLIM_VALID] + info->num_split[PLIM_TEST];
}

/* Share of the nodes that a cache can use: of many graphs those of the splits; without draws the
 * training seeds, or all nodes where there are none. */
static double kept_share(const plim__load_facts_t *facts)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    if (info->num_graphs > 0)
        return (double)seeds_of_splits(info) / (double)info->num_graphs;
    return facts->recipe->num_hops > 0 || info->num_split[PLIM_TRAIN] == 0
               ? 1
               : (double)info->num_split[PLIM_TRAIN] / (double)info->num_nodes;
}

/* Upper bound of a cache over `bytes`, with the user's setting (0: none). */
static int64_t most_cached(const plim__load_facts_t *facts, int64_t bytes, int64_t setting)
{
    const int64_t all = plim__min_i64((int64_t)((double)bytes * kept_share(facts)) + 1, bytes);
    return setting < 0 ? 0 : setting > 0 ? plim__min_i64(setting, all) : all;
}

static int64_t most_cached_rows(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    if (plan->rows_in_memory)
        return 0;
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    const size_t row = (size_t)info->num_features * plim__feature_bytes(info->feature_type);
    const int64_t kept = (int64_t)plim__round_up(row, sizeof(uint64_t));
    return most_cached(facts, plim__mul_saturating_i64(info->num_nodes, kept),
                       facts->params->row_cache);
}

/* Bytes of the seeds' own lists, taken as twice as long as the mean: all that one hop reads. */
static int64_t seeds_lists(const plim__load_facts_t *facts)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    if (info->num_split[PLIM_TRAIN] == 0) /* any node */
        return INT64_MAX;
    const double entries = 2.0 * (double)info->num_edges / (double)info->num_nodes + 1;
    const double bytes =
        (double)seeds_of_splits(info) * entries * (double)plim__index_bytes(info->index_type);
    return bytes < (double)INT64_MAX / 2 ? (int64_t)bytes : INT64_MAX / 2;
}

static int64_t most_cached_lists(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    if (plan->topology_in_memory || !plim__load_has_draws(facts))
        return 0;
    const int64_t most =
        most_cached(facts, plim__load_file_bytes(facts, "indices.npy"), facts->params->list_cache);
    const bool one_hop =
        facts->recipe->num_hops == 1 && plim_dataset_info(facts->dataset)->num_graphs == 0;
    return one_hop && facts->params->list_cache == 0 ? plim__min_i64(most, seeds_lists(facts))
                                                     : most;
}

static int64_t epoch_steps(const plim__load_facts_t *facts)
{
    return plim__max_i64((facts->epoch_seeds - 1) / facts->recipe->batch_size + 1, 1);
}

/* The most steps of a window: an epoch's, or the caller's choice. */
static int64_t most_steps(const plim__load_facts_t *facts)
{
    const int64_t steps = epoch_steps(facts);
    return facts->params->window > 0 ? plim__min_i64(facts->params->window, steps) : steps;
}

/* The steps that windows grow to. Of an epoch that is drawn ahead, each has its part. */
static int64_t steps_each(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return plan->ahead_draws > 0 ? epoch_steps(facts) / AHEAD_WINDOWS + 1 : most_steps(facts);
}

/* The number of steps whose seeds a window with `draws` draws can list. The list takes memory, and
 * an epoch may have any number of steps. */
static int64_t listed_steps(const plim__load_facts_t *facts, int64_t draws)
{
    const int64_t seeds = plim__max_i64(draws / SEEDS_PART, SEEDS_MIN);
    return plim__min_i64(most_steps(facts), seeds / facts->recipe->batch_size + 1);
}

static int64_t scaled(int64_t value, int64_t to, int64_t from)
{
    double product = (double)value * ((double)to / (double)plim__max_i64(from, 1));
    return product < (double)(INT64_MAX / 2) ? (int64_t)product : INT64_MAX / 2;
}

/* The size of a window of so many steps. It always draws in the native form: a probe of the other
 * form is scaled by the ratio that dataset.json gives for the two. */
static plim__load_size_t window_expected(const plim__load_facts_t *facts, int64_t steps)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(facts->dataset);
    const int64_t num_seeds = plim__min_i64(
        plim__mul_saturating_i64(steps, facts->recipe->batch_size), facts->epoch_seeds);
    plim__load_size_t size = plim__load_expected(facts, num_seeds);
    if (facts->recipe->form == PLIM_NATIVE)
        return size;
    plim_recipe_t native = *facts->recipe;
    native.form = PLIM_NATIVE;
    plim__load_size_t all = plim__load_size_expected(manifest, &native, num_seeds);
    plim__load_size_t own = plim__load_size_expected(manifest, facts->recipe, num_seeds);
    size.nodes = plim__min_i64(scaled(size.nodes, all.nodes, own.nodes), manifest->info.num_nodes);
    size.edges = scaled(size.edges, all.edges, own.edges);
    return size;
}

static plim__load_size_t epoch_expected(const plim__load_facts_t *facts)
{
    return window_expected(facts, epoch_steps(facts));
}

/* One seed's size, or the lower bound of a batch: one that does not fit a window is read without.
 */
static plim__load_size_t window_minimum(const plim__load_facts_t *facts)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    plim__load_size_t size = facts->one;
    plim__blocks_params_t params = plim__load_blocks(info, facts->recipe);
    params.form = PLIM_NATIVE;
    if (facts->recipe->form == PLIM_NATIVE || facts->counted)
        return size;
    plim__blocks_bound(&params, info->num_nodes, info->num_edges, info->max_degree, 1, &size.nodes,
                       &size.edges);
    return size;
}

/* Whether the loader can do without offsets in memory: draws alone need them, and degrees. */
static bool spares_offsets(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    const plim_recipe_t *recipe = facts->recipe;
    return !plan->topology_in_memory && facts->params->row_cache <= 0 &&
           facts->params->list_cache <= 0 && plim_dataset_info(facts->dataset)->num_graphs == 0 &&
           plim__load_columns(recipe) == 0 && recipe->draw_by == 0 && !recipe->edge_ids &&
           !recipe->disjoint && !facts->streams->looks_up &&
           (!recipe->skip_loops || plim__dataset_max_self_loops(facts->dataset) == 0);
}

void plim__load_reading_minimum(const plim__load_facts_t *facts, plim__load_tight_t tight,
                                plim__load_plan_t *plan)
{
    const plim_plan_params_t *params = facts->params;
    const bool reads =
        (plim__load_has_draws(facts) && !plan->topology_in_memory) || !plan->rows_in_memory;
    plan->io_depth = DEPTH_MIN;
    plan->merge_distance = PLIM__MERGE_DISTANCE;
    if (reads && plan->recipe.disjoint) {
        plan->window_steps = 1; /* each batch reads for itself */
    } else if (reads) {
        const plim__load_size_t minimum = window_minimum(facts);
        plan->window_sparse = tight != PLIM__LOAD_AMPLE;
        plan->window_draws = minimum.edges;
        plan->window_steps = listed_steps(facts, minimum.edges);
        plan->window_rows = plan->rows_in_memory ? 0 : minimum.nodes;
    }
    plan->offsets_on_disk = tight == PLIM__LOAD_TIGHTEST && reads && spares_offsets(facts, plan);
    if (params->row_cache > 0)
        plan->row_cache_bytes = (size_t)most_cached_rows(facts, plan);
    if (params->list_cache > 0)
        plan->list_cache_bytes = (size_t)most_cached_lists(facts, plan);
}

/* Choices that grow to the largest value that fits. */
typedef enum quantity { AHEAD_DRAWS, WINDOW_DRAWS, WINDOW_ROWS, LIST_CACHE, ROW_CACHE } quantity_t;

static void set(const plim__load_facts_t *facts, plim__load_plan_t *plan, quantity_t quantity,
                int64_t value)
{
    if (quantity == AHEAD_DRAWS) {
        const plim__load_size_t epoch = epoch_expected(facts);
        plan->ahead_draws = value;
        plan->ahead_rows = scaled(value, epoch.nodes, epoch.edges);
    }
    if (quantity == WINDOW_DRAWS)
        plan->window_draws = value;
    if (quantity == WINDOW_DRAWS || quantity == AHEAD_DRAWS)
        plan->window_steps =
            listed_steps(facts, plim__max_i64(plan->window_draws, plan->ahead_draws));
    if (quantity == WINDOW_ROWS)
        plan->window_rows = value;
    if (quantity == LIST_CACHE)
        plan->list_cache_bytes = (size_t)value;
    if (quantity == ROW_CACHE)
        plan->row_cache_bytes = (size_t)value;
}

/* The largest value above `low` and up to `most` whose total is within `limit`; else `low`. */
static void grow(const plim__load_facts_t *facts, plim__load_plan_t *plan, quantity_t quantity,
                 int64_t low, int64_t most, int64_t limit)
{
    while (low < most) {
        int64_t middle = most - (most - low) / 2;
        set(facts, plan, quantity, middle);
        if (plim__load_total(facts, plan) <= limit)
            low = middle;
        else
            most = middle - 1;
    }
    set(facts, plan, quantity, low);
}

static void grow_depth(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const int64_t limit = plim__load_share(facts, plim__load_total(facts, plan), EXTRAS_PART);
    while (plan->io_depth < DEPTH_MOST) {
        plan->io_depth *= 2;
        if (plim__load_total(facts, plan) > limit) {
            plan->io_depth /= 2;
            break;
        }
    }
}

/* The lists that can be drawn from, as far as estimated, where most reads of them are of a page.
 * Where a column decides draws, lists are read by position, and none is packed: `entries` are then
 * those of a file that other draws made, whose rows serve. */
static void working_lists(const plim__load_facts_t *facts, plim__working_size_t *size)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    plim_recipe_t drawn = *facts->recipe;
    const int64_t degree = info->num_edges / plim__max_i64(info->num_nodes, 1) + 1;
    if (drawn.num_hops == 0 ||
        degree * (int64_t)plim__index_bytes(info->index_type) > LISTS_PACKED_BYTES)
        return;
    drawn.disjoint = false;
    drawn.num_hops--;
    const plim__load_size_t epoch = plim__load_size_expected(plim__dataset_manifest(facts->dataset),
                                                             &drawn, seeds_of_splits(info));
    const int64_t lists =
        plim__min_i64(plim__mul_saturating_i64(epoch.nodes, LISTS_REACH_FACTOR), size->rows);
    size->lists = drawn.draw_by == 0 ? lists : 0;
    size->entries = plim__mul_saturating_i64(lists, 2 * degree);
}

/* The rows and lists that can be reached, as far as estimated; if the rows are most of many, the
 * most probable ones, and *all_out is false. */
static plim__working_size_t working_size(const plim__load_facts_t *facts, bool *all_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    plim_recipe_t shared = *facts->recipe;
    shared.disjoint = false; /* each row once */
    const plim__load_size_t epoch = plim__load_size_expected(plim__dataset_manifest(facts->dataset),
                                                             &shared, seeds_of_splits(info));
    plim__working_size_t size = {
        .rows =
            plim__min_i64(plim__mul_saturating_i64(epoch.nodes, REACH_FACTOR), info->num_nodes)};
    *all_out = size.rows <= info->num_nodes / 2 ||
               plim__working_set_bytes(facts->dataset, size) <= WORKING_SET_SMALL;
    if (!*all_out)
        size.rows = info->num_nodes / 4;
    working_lists(facts, &size);
    return size;
}

/* Packs rows and lists in scratch where that needs little memory. Without a training split any node
 * may be a seed, and a packed one would hardly be read again. */
static void take_working_set(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const int64_t before = plim__load_total(facts, plan);
    bool all;
    if (plan->scratch[0] == '\0' || plan->rows_in_memory || !plim__load_has_rows(facts) ||
        plim_dataset_info(facts->dataset)->num_graphs > 0 ||
        plim_dataset_info(facts->dataset)->num_split[PLIM_TRAIN] == 0 ||
        facts->params->row_cache < 0)
        return;
    plan->working = working_size(facts, &all);
    if (plim__load_total(facts, plan) > plim__load_share(facts, before, WORKING_LISTS_PART))
        plan->working.lists = 0; /* the rows of a file that has lists still serve */
    if (plan->working.lists > 0)
        return;
    if (plim__load_total(facts, plan) > plim__load_share(facts, before, WORKING_SET_PART))
        plan->working = (plim__working_size_t){0};
}

/* A set that leaves rows out would limit a larger cache. */
static void drop_small_set(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    plim__loader_params_t params;
    bool all;
    plim__loader_params_find(facts->job, facts->dataset, plan, &params);
    if (plan->working.rows == 0 || working_size(facts, &all).rows != plan->working.rows || all)
        return;
    const size_t row = plim__round_up(params.window.row_bytes, sizeof(uint64_t));
    if (plim__load_most_cached(plan, params.window.row_bytes) / row > (size_t)plan->working.rows)
        plan->working = (plim__working_size_t){0};
}

static void grow_windows(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const plim__load_size_t most = window_expected(facts, steps_each(facts, plan));
    const int64_t draws = scaled(most.edges, 100 + DRAWS_MARGIN_PERCENT, 100);
    grow(facts, plan, WINDOW_DRAWS, plan->window_draws, draws,
         plim__load_share(facts, plim__load_total(facts, plan), DRAWS_PART));
    if (plan->rows_in_memory)
        return;
    const int64_t before = plim__load_total(facts, plan);
    const int64_t rows = plim__max_i64(facts->line - before, 0) / 100 * ROWS_PERCENT;
    grow(facts, plan, WINDOW_ROWS, plan->window_rows, most.nodes, before + rows);
}

static void grow_list_cache(const plim__load_facts_t *facts, plim__load_plan_t *plan, int64_t limit)
{
    grow(facts, plan, LIST_CACHE, (int64_t)plan->list_cache_bytes, most_cached_lists(facts, plan),
         limit);
}

/* About the steps that a window will have, by its draws and rows: it holds the rows that the row
 * cache has not. */
static int64_t expected_steps(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    plim__loader_params_t params;
    int64_t low = 1, high = plan->window_steps;
    plim__loader_params_find(facts->job, facts->dataset, plan, &params);
    const size_t row = params.window.row_bytes;
    const int64_t rows = plan->window_rows + (row > 0 ? (int64_t)(plan->row_cache_bytes / row) : 0);
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        const plim__load_size_t size = window_expected(facts, middle);
        if (size.edges <= plan->window_draws && (plan->rows_in_memory || size.nodes <= rows))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Draws ahead, as much of an epoch as fits the share of draws; false where that is less than two
 * windows of window_steps steps. */
static bool take_ahead(const plim__load_facts_t *facts, int64_t window_steps,
                       plim__load_plan_t *plan)
{
    const plim__load_size_t epoch = epoch_expected(facts);
    plim__loader_params_t params;
    plim__loader_params_find(facts->job, facts->dataset, plan, &params);
    plan->bucket_bytes =
        plim__mul_saturating_i64(plim__mul_saturating_i64(epoch.nodes, BUCKETS_FACTOR),
                                 (int64_t)(params.window.row_bytes + sizeof(int64_t)));
    const int64_t limit = plim__load_share(facts, plim__load_total(facts, plan), DRAWS_PART);
    grow(facts, plan, AHEAD_DRAWS, plan->window_draws,
         scaled(epoch.edges, 100 + DRAWS_MARGIN_PERCENT, 100), limit);
    return plim__load_total(facts, plan) <= limit &&
           (plan->ahead_draws >= epoch.edges ||
            scaled(epoch_steps(facts), plan->ahead_draws, epoch.edges) >= 2 * window_steps);
}

/* The caches get what is left. */
static void grow_caches(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    grow_list_cache(facts, plan,
                    plim__load_share(facts, plim__load_total(facts, plan), LISTS_PART));
    grow(facts, plan, ROW_CACHE, (int64_t)plan->row_cache_bytes, most_cached_rows(facts, plan),
         facts->line);
    grow_list_cache(facts, plan, facts->line);
    plan->shared = plim__load_has_rows(facts) && !plan->rows_in_memory &&
                   plan->row_cache_bytes > 0 && facts->params->row_cache == 0 &&
                   facts->params->list_cache == 0 && !plan->recipe.disjoint;
    plan->cache_steps =
        plan->ahead_draws > 0 ? steps_each(facts, plan) : expected_steps(facts, plan);
}

static void grow_reading(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    if (!plan->recipe.disjoint)
        grow_windows(facts, plan);
    if (!plan->offsets_on_disk)
        grow_caches(facts, plan);
    drop_small_set(facts, plan);
}

/* Whether an epoch has several windows, which can be drawn ahead, and a working set has its rows.
 */
static bool reads_often(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return plan->working.rows > 0 && plan->recipe.num_hops > 0 && !plan->recipe.disjoint &&
           !plan->counted && facts->params->window == 0 && plan->cache_steps < epoch_steps(facts) &&
           epoch_expected(facts).nodes <= plan->working.rows;
}

void plim__load_reading_grow(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    grow_depth(facts, plan);
    if (!plan->offsets_on_disk) /* choosing what is packed and cached needs them */
        take_working_set(facts, plan);
    plim__load_plan_t ahead = *plan;
    grow_reading(facts, plan);
    if (!reads_often(facts, plan) || !take_ahead(facts, plan->cache_steps, &ahead))
        return;
    grow_reading(facts, &ahead);
    if (ahead.working.rows > 0)
        *plan = ahead;
}
