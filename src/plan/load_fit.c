/*
 * Every arrangement (topology and rows in memory or on disk) is first taken as small as it can be:
 * the smallest of them gives the minimum line. One that fits then grows: slots, I/O depth, windows,
 * list cache, row cache, each up to its share. The first arrangement with slots for whole batches
 * wins; without one, the arrangement with the largest slots, since a batch in parts costs more than
 * reads from disk.
 */
#include "plan/load_plan.h"

#include "base/check.h"
#include "base/job.h"
#include "io/npy.h"
#include "load/loader.h"
#include "load/slots.h"
#include "mem/arena.h"
#include "mem/headroom.h"
#include "sample/access.h"
#include "sample/blocks.h"

#include <math.h>
#include <string.h>

/*
 * How the memory under the line is divided. "Free" is what the choices made so far leave of the
 * line; a PART is 1/N of it. "Expected" is what 21 plans expect to read with another value, on
 * average: papers100M in 1 to 8 GiB, products and reddit in 0.2 to 1 GiB, with two and three hops.
 */
enum {
    /* I/O depth: 8 reads in flight of 0.1 ms each are 80,000 a second, as an SSD does; 128 are as
     * many where each takes 1.6 ms, as on a network's disk. */
    DEPTH_MIN = 8,
    DEPTH_MOST = 128,

    /* Deeper I/O, and slots beyond two, save waiting and no reads. Expected: 1/8 or 1/32 changes
     * reads by less than 1 %. */
    EXTRAS_PART = 16,

    /* Slots: for each worker one that it builds, and three that wait, since batches differ. */
    SLOTS_PER_WORKER = 4,
    /* Two slots that need more than this get smaller, so that windows and caches have the larger
     * part. Expected: 1/2 reads 3 % more often, up to 1.7 times; 1/8 4 % less often, but with
     * smaller slots. */
    SLOTS_MOST_PART = 4,
    /* More than two take at most this part of the dataset's bytes, or SLOTS_DATA_MIN: Cora, 16 MB,
     * had 124 MiB of slots. */
    SLOTS_DATA_PART = 4,
    SLOTS_DATA_MIN = 16 << 20,
    /* Slots of parts of batches: the larger the parts, the less is read again. Expected: 1/4 cuts 5
     * of the 21 smaller, and reads 7 % more often, up to twice. */
    SLOTS_CRAMPED_PART = 2,
    /* Slots and the client's growth together, while windows and caches need the rest. Expected:
     * 90 % changes nothing, 50 % cuts one of the 21 smaller. */
    CLIENT_PERCENT = 75,
    /* The same for parts of more seeds than a tile has rows, which compute only a little faster.
     * Expected: 12 % cuts 7 of the 21 smaller, and reads 9 % more often, up to 2.2 times. */
    MODEST_PERCENT = 25,
    /* A slot is larger than its seeds are expected to need, since sizes are estimates; for few
     * seeds by four standard deviations, FEW_PERCENT over the root of their number, as if the size
     * of a seed's neighbourhood deviated by its mean. */
    MARGIN_PERCENT = 25,
    FEW_PERCENT = 400,

    /* Lists stay in memory when they leave half to rows and slots, so that neither crowds out the
     * other. Expected: 1 changes no plan. */
    ADJACENCY_PART = 2,
    /* The rows that can be reached at all, as a multiple of those of an epoch: 1.7 in papers100M's
     * shape with a fan-out of 3,2. They bound the memory and disk space of a working set. */
    REACH_FACTOR = 4,
    /* Its tables take at most this part. */
    WORKING_SET_PART = 8,
    /* The same of lists: where they are more, those that are drawn from least are not packed. */
    LISTS_REACH_FACTOR = 2,
    /* Its tables with those of lists take at most this part. */
    WORKING_LISTS_PART = 4,
    /* A set of most rows is made where it is smaller than this. */
    WORKING_SET_SMALL = 256 << 20,
    /* Lists are packed up to this mean size: longer ones fill much of the page that is read. */
    LISTS_PACKED_BYTES = 1024,
    /* Columns of edges stay in memory up to this part: each batch reads them, and from disk without
     * a cache. */
    COLUMNS_PART = 2,
    /* The draws of both windows. Expected: 1/2 reads 8 % more often, as the caches get less; 1/8
     * 6 % less often. What windows turn out not to need goes to the caches when the loader is made.
     */
    DRAWS_PART = 4,
    /* Draws are larger than those of an expected epoch: one that draws more takes another window.
     */
    DRAWS_MARGIN_PERCENT = 10,
    /* Windows of an epoch that is drawn ahead, fewer than there can be at once, since epochs
     * differ: what they do not take the caches get. */
    AHEAD_WINDOWS = PLIM__AHEAD_WINDOWS * 3 / 4,
    /* Rows written to buckets, as a multiple of the epoch's distinct rows: a row that several
     * windows need is written once for each. */
    BUCKETS_FACTOR = 2,
    /* The seeds that a window lists, 8 bytes each: one for so many draws, since a fan-out of 10,5
     * takes 61 for a seed; the list is then at most an eighth of the draws of both windows. But a
     * list of 32 MiB is always made, more than the training splits of named shapes need. */
    SEEDS_PART = 8,
    SEEDS_MIN = 1 << 22,
    /* The windows' rows, of what is free then, so that draws and rows are for the same part of an
     * epoch: papers100M in 2 GiB made 521 batches/s, and 390 with 40 % and the loader of that time;
     * 8 % read more. */
    ROWS_PERCENT = 20,
    /* The list cache; the row cache gets the rest, since rows are larger than lists. Expected: 1/2
     * reads 4 % more often, 1/4 as often. */
    LISTS_PART = 3,
};

typedef struct arrangement {
    bool topology_in_memory;
    bool rows_in_memory;
} arrangement_t;

/* From the fastest to the smallest. */
static const arrangement_t arrangements[] = {
    {true, true}, {true, false}, {false, true}, {false, false}};

#define NUM_ARRANGEMENTS (sizeof arrangements / sizeof arrangements[0])

static bool has_rows(const plim__load_facts_t *facts)
{
    return !facts->recipe->no_features && plim_dataset_info(facts->dataset)->num_features > 0;
}

static bool has_draws(const plim__load_facts_t *facts)
{
    return facts->recipe->num_hops > 0 || plim_dataset_info(facts->dataset)->num_graphs > 0;
}

/* The caller's choice that rules out this place. */
static plim_place_t forbidden_by(bool in_memory)
{
    return in_memory ? PLIM_PLACE_DISK : PLIM_PLACE_MEMORY;
}

/* Whether the params allow it. Without rows they count as in memory, and lists that nothing is
 * drawn from stay on disk. */
static bool allowed(const plim__load_facts_t *facts, const arrangement_t *arrangement)
{
    const plim_plan_params_t *params = facts->params;
    const bool topology = has_draws(facts)
                              ? params->topology != forbidden_by(arrangement->topology_in_memory)
                              : !arrangement->topology_in_memory;
    const bool rows = has_rows(facts) ? params->rows != forbidden_by(arrangement->rows_in_memory)
                                      : arrangement->rows_in_memory;
    return topology && rows;
}

static int64_t file_bytes(const plim__load_facts_t *facts, const char *name)
{
    const plim__manifest_file_t *file =
        plim__manifest_find(plim__dataset_manifest(facts->dataset), name);
    return file != NULL ? file->bytes - (int64_t)PLIM__NPY_HEADER : 0;
}

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
    if (plan->topology_in_memory || !has_draws(facts))
        return 0;
    const int64_t most =
        most_cached(facts, file_bytes(facts, "indices.npy"), facts->params->list_cache);
    const bool one_hop =
        facts->recipe->num_hops == 1 && plim_dataset_info(facts->dataset)->num_graphs == 0;
    return one_hop && facts->params->list_cache == 0 ? plim__min_i64(most, seeds_lists(facts))
                                                     : most;
}

static int64_t epoch_steps(const plim__load_facts_t *facts)
{
    return plim__max_i64((facts->epoch_seeds - 1) / facts->recipe->batch_size + 1, 1);
}

/* The most steps of a window, however large. */
static int64_t wanted_steps(const plim__load_facts_t *facts)
{
    const int64_t steps = epoch_steps(facts);
    return facts->params->window > 0 ? plim__min_i64(facts->params->window, steps) : steps;
}

/* The steps that a window of this plan shall have. */
static int64_t steps_each(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return plan->ahead_draws > 0 ? epoch_steps(facts) / AHEAD_WINDOWS + 1 : wanted_steps(facts);
}

/* The steps whose seeds a window of so many draws lists: an epoch may have any number. */
static int64_t listed_steps(const plim__load_facts_t *facts, int64_t draws)
{
    const int64_t seeds = plim__max_i64(draws / SEEDS_PART, SEEDS_MIN);
    return plim__min_i64(wanted_steps(facts), seeds / facts->recipe->batch_size + 1);
}

/* The seeds of a window of that many steps. */
static int64_t window_seeds(const plim__load_facts_t *facts, int64_t steps)
{
    int64_t seeds;
    if (!plim__mul_i64(steps, facts->recipe->batch_size, &seeds))
        return facts->epoch_seeds;
    return plim__min_i64(seeds, facts->epoch_seeds);
}

static int64_t scaled(int64_t value, int64_t to, int64_t from)
{
    double product = (double)value * ((double)to / (double)plim__max_i64(from, 1));
    return product < (double)(INT64_MAX / 2) ? (int64_t)product : INT64_MAX / 2;
}

/* A window always draws in the native form. A probe of the other form is scaled by the ratio that
 * dataset.json gives for the two. */
static plim__load_size_t window_expected(const plim__load_facts_t *facts, int64_t num_seeds)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(facts->dataset);
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

/* The size of an epoch as one window. */
static plim__load_size_t epoch_expected(const plim__load_facts_t *facts)
{
    return window_expected(facts, facts->epoch_seeds);
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

/* How the smallest choices are made: each of these only where the one before does not fit. */
typedef enum tight {
    AMPLE,
    TIGHT,   /* sparse sets in windows */
    TIGHTEST /* offsets on disk, too */
} tight_t;

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

/* The smallest choices of an arrangement; `tight`: with what takes more time, too. */
static void take_minimum(const plim__load_facts_t *facts, const arrangement_t *arrangement,
                         tight_t tight, plim__load_plan_t *plan)
{
    const plim_plan_params_t *params = facts->params;
    memset(plan, 0, sizeof *plan);
    plan->recipe = *facts->recipe;
    plan->envelope = facts->streams->envelope;
    plan->most_seeds = facts->streams->most_seeds;
    plan->list_bytes = facts->streams->list_bytes;
    plan->links = facts->streams->links;
    plan->looks_up = facts->streams->looks_up;
    plan->workers = plim__job_threads(facts->job);
    plan->topology_in_memory = arrangement->topology_in_memory;
    plan->rows_in_memory = arrangement->rows_in_memory;
    plan->num_slots = params->num_slots > 0 ? params->num_slots : 1;
    plan->counted = facts->counted;
    plan->slot_nodes = facts->one.nodes;
    plan->slot_edges = facts->one.edges;
    plan->part_seeds =
        facts->part_seeds < facts->batch_seeds ? facts->part_seeds : params->part_seeds;
    plan->io_depth = DEPTH_MIN;
    plan->merge_distance = PLIM__MERGE_DISTANCE;
    if (params->scratch != NULL)
        strncpy(plan->scratch, params->scratch, sizeof plan->scratch - 1);
    const bool reads = (has_draws(facts) && !plan->topology_in_memory) || !plan->rows_in_memory;
    if (reads && plan->recipe.disjoint) {
        plan->window_steps = 1; /* each batch reads for itself */
    } else if (reads) {
        const plim__load_size_t minimum = window_minimum(facts);
        plan->window_sparse = tight != AMPLE;
        plan->window_draws = minimum.edges;
        plan->window_steps = listed_steps(facts, minimum.edges);
        plan->window_rows = plan->rows_in_memory ? 0 : minimum.nodes;
    }
    plan->offsets_on_disk = tight == TIGHTEST && reads && spares_offsets(facts, plan);
    if (params->row_cache > 0)
        plan->row_cache_bytes = (size_t)most_cached_rows(facts, plan);
    if (params->list_cache > 0)
        plan->list_cache_bytes = (size_t)most_cached_lists(facts, plan);
}

static int64_t times(int64_t count, size_t bytes)
{
    return plim__mul_saturating_i64(count, plim__cost_pages(bytes));
}

/* Adds bytes to the account of that name. */
static void enter(plim__load_plan_t *plan, const char *name, int64_t bytes)
{
    if (bytes == 0)
        return;
    plim__plan_account_t *account = plim__plan_account(plan->accounts, &plan->num_accounts, name);
    account->bytes = plim__add_saturating_i64(account->bytes, bytes);
    for (int phase = 0; phase < PLIM_PHASES; phase++)
        account->phase[phase] = phase == PLIM_PHASE_PREDICT ? 0 : account->bytes;
}

static int64_t sum_accounts(const plim__load_plan_t *plan)
{
    int64_t sum = 0;
    for (int i = 0; i < plan->num_accounts; i++)
        sum = plim__add_saturating_i64(sum, plan->accounts[i].bytes);
    return sum;
}

/* A source's estimate is its cache and the buffers of its reads: two accounts. Returns what filling
 * the cache takes besides. */
static int64_t enter_lists(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim__loader_params_t *parts, plim__load_plan_t *plan,
                           int64_t *io_bytes)
{
    const int64_t num_nodes = plim_dataset_info(dataset)->num_nodes;
    const plim__node_set_t any = {.universe = num_nodes, .count = num_nodes};
    plim__source_params_t uncached = parts->lists, cached = parts->lists;
    uncached.cache_bytes = 0;
    uncached.all = false;
    cached.cached = &any;
    const int64_t all = plim__cost_pages(plim__topology_disk_estimate(job, dataset, &cached));
    const int64_t io = /* where all is cached there is less of it */
        plim__min_i64(plim__cost_pages(plim__topology_disk_estimate(job, dataset, &uncached)), all);
    enter(plan, "adjacency cache", all - io);
    *io_bytes = plim__add_saturating_i64(*io_bytes, io);
    return plim__cost_pages(plim__topology_disk_filling(job, &cached));
}

static int64_t enter_rows(const plim_job_t *job, const plim_dataset_t *dataset,
                          const plim__loader_params_t *parts, plim__load_plan_t *plan,
                          int64_t *io_bytes)
{
    plim__source_params_t uncached = parts->rows;
    uncached.cache_bytes = 0;
    uncached.all = false;
    const int64_t all = plim__cost_pages(plim__rows_disk_estimate(job, dataset, &parts->rows));
    const int64_t io =
        plim__min_i64(plim__cost_pages(plim__rows_disk_estimate(job, dataset, &uncached)), all);
    enter(plan, "row cache", all - io);
    *io_bytes = plim__add_saturating_i64(*io_bytes, io);
    return plim__cost_pages(plim__rows_disk_filling(job, dataset, &parts->rows));
}

/* Returns what making the sums of weights takes beside the columns, before the rest. */
static int64_t enter_columns(const plim_job_t *job, const plim_dataset_t *dataset,
                             const plim__loader_params_t *parts, plim__load_plan_t *plan,
                             int64_t *io_bytes)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const bool sums = plim__load_sums(info, &plan->recipe);
    int64_t bytes = sums ? plim__cost_pages(plim__weight_sums_estimate(info->num_nodes)) : 0;
    for (unsigned column = 1; column < 1u << PLIM_COLUMNS; column <<= 1) {
        plim__source_params_t params = parts->columns;
        params.column = column;
        if ((plim__load_columns(&plan->recipe) & plan->columns_in_memory & column) != 0)
            bytes = plim__add_saturating_i64(
                bytes, plim__cost_pages(plim__rows_memory_estimate(dataset, column)));
        else if ((plim__load_columns(&plan->recipe) & column) != 0)
            *io_bytes = plim__add_saturating_i64(
                *io_bytes, plim__cost_pages(plim__rows_disk_estimate(job, dataset, &params)));
    }
    enter(plan, "edge columns", bytes);
    if (plan->recipe.draw_by != 0)
        *io_bytes = plim__add_saturating_i64(
            *io_bytes, plim__cost_pages(plim__topology_by_column_estimate(parts->num_sources)));
    return sums ? plim__cost_pages(plim__weight_sums_work_minimum(job)) : 0;
}

/* Offsets, seeds and the choice of what to cache are made first; the memory for reading and
 * choosing is free again before the rest is made. Returns the peak meanwhile. */
static int64_t enter_first(const plim_job_t *job, const plim_dataset_t *dataset,
                           plim__load_plan_t *plan)
{
    int64_t num_nodes = plim_dataset_info(dataset)->num_nodes;
    int64_t work_bytes = plim__cost_pages(plim__offsets_work_minimum(job));
    enter(plan, "seeds and labels",
          plim__add_saturating_i64(plim__cost_pages(plim__seeds_stays(dataset)), plan->list_bytes));
    if (plan->offsets_on_disk)
        work_bytes = 0;
    else
        enter(plan, "offsets",
              plim__cost_pages(plim__offsets_estimate(dataset, plan->recipe.skip_loops)));
    if (plan->list_cache_bytes > 0 || plan->row_cache_bytes > 0) {
        const bool packed = plan->working.rows > 0;
        enter(plan, "choosing", plim__cost_pages(plim__access_estimate(num_nodes, packed)));
        work_bytes =
            plim__max_i64(work_bytes, plim__cost_pages(plim__access_work_minimum(job, num_nodes)));
    }
    if (plan->working.rows > 0) {
        enter(plan, "working set",
              plim__cost_pages(plim__working_set_estimate(dataset, plan->working)));
        work_bytes = plim__max_i64(work_bytes, plim__cost_pages(plim__working_set_making(job)));
    }
    return plim__max_i64(plim__add_saturating_i64(sum_accounts(plan), work_bytes),
                         plim__cost_pages(plim__seeds_estimate(job, dataset)));
}

/*
 * Fills the plan's accounts and `start` from its choices and returns the accounts' sum, without
 * what is on the ledger already. While the loader is made it may hold more: `start` is the peak
 * then, and the accounts' phase[PLIM_PHASE_START] is their part of it. Saturates at INT64_MAX.
 */
static int64_t add_accounts(const plim_job_t *job, const plim_dataset_t *dataset,
                            plim__load_plan_t *plan)
{
    plim__loader_params_t parts;
    int64_t io_bytes = 0, filling = 0;
    plim__loader_params_find(job, dataset, plan, &parts);
    plan->num_accounts = 0;
    int64_t loader_bytes = plim__cost_pages(plim__loader_estimate(dataset, plan, &parts));
    int64_t making = plim__add_saturating_i64(loader_bytes, enter_first(job, dataset, plan));
    const int first = plan->num_accounts;
    filling = enter_lists(job, dataset, &parts, plan, &io_bytes);
    if (parts.with_rows)
        filling = plim__max_i64(filling, enter_rows(job, dataset, &parts, plan, &io_bytes));
    filling = plim__max_i64(filling, enter_columns(job, dataset, &parts, plan, &io_bytes));
    if (parts.windowed)
        enter(plan, "window", times(PLIM__LOAD_WINDOWS, plim__load_window_estimate(&parts.window)));
    if (parts.ahead.draws.draws > 0)
        enter(plan, "window", plim__cost_pages(plim__ahead_estimate(&parts.ahead)));
    /* The caches, which may share memory with windows, are filled before the rest is made. */
    making = plim__max_i64(
        making, plim__add_saturating_i64(sum_accounts(plan), io_bytes + loader_bytes + filling));
    enter(plan, "slots", plim__cost_pages(plim__slots_estimate(plan, &parts)));
    size_t scratch = plim__blocks_estimate(&parts.blocks);
    if (plan->counted && !plan->recipe.disjoint)
        scratch = plim__add_saturating_size(
            plim__round_up(scratch, PLIM__PAGE),
            plim__block_count_estimate(plim_dataset_info(dataset)->num_nodes, parts.most_drawn));
    enter(plan, "slots", plim__add_saturating_i64(times(plan->workers, scratch), loader_bytes));
    enter(plan, "I/O", io_bytes);
    enter(plan, "threads", plim__cost_pages(plim__loader_threads_estimate(plan, &parts)));
    const int64_t sum = sum_accounts(plan);
    for (int i = first; i < plan->num_accounts && making > sum; i++)
        plan->accounts[i].phase[PLIM_PHASE_START] = 0;
    plan->start = plim__max_i64(sum, making);
    return sum;
}

static int64_t client_bytes(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return facts->client->bytes(facts->client->context, plan);
}

int64_t plim__load_fixed(const plim__load_facts_t *facts)
{
    return facts->fixed + plim__footprint_reserve(facts->line, plim__job_threads(facts->job));
}

int64_t plim__load_early(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return facts->client->early != NULL ? facts->client->early(plan->workers) : 0;
}

/* Bytes that the plan takes without the reserve; INT64_MAX when they overflow. */
static int64_t used_by(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const int64_t sum = add_accounts(facts->job, facts->dataset, plan);
    const int64_t made = plim__add_saturating_i64(sum, client_bytes(facts, plan));
    const int64_t start = plim__add_saturating_i64(plan->start, plim__load_early(facts, plan));
    return plim__add_saturating_i64(plim__max_i64(made, start), facts->fixed);
}

static int64_t total_of(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    return plim__add_saturating_i64(used_by(facts, plan), plim__load_fixed(facts) - facts->fixed);
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
        if (total_of(facts, plan) <= limit)
            low = middle;
        else
            most = middle - 1;
    }
    set(facts, plan, quantity, low);
}

/* `from` and a part of what is free between it and the line. */
static int64_t share(const plim__load_facts_t *facts, int64_t from, int64_t part)
{
    return from + plim__max_i64(facts->line - from, 0) / part;
}

static void grow_depth(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const int64_t limit = share(facts, total_of(facts, plan), EXTRAS_PART);
    while (plan->io_depth < DEPTH_MOST) {
        plan->io_depth *= 2;
        if (total_of(facts, plan) > limit) {
            plan->io_depth /= 2;
            break;
        }
    }
}

static int64_t more(int64_t value, int64_t percent)
{
    return value < INT64_MAX / 1000 ? value + value * percent / 100 : INT64_MAX;
}

plim__load_size_t plim__load_needed(const plim__load_facts_t *facts, int64_t num_seeds)
{
    plim__load_size_t size = plim__load_expected(facts, num_seeds);
    const plim__load_size_t most = plim__load_most(facts, num_seeds);
    const int64_t percent =
        plim__max_i64(MARGIN_PERCENT, (int64_t)(FEW_PERCENT / sqrt((double)num_seeds)));
    size.nodes = more(size.nodes, percent);
    size.edges = more(size.edges, percent);
    const int64_t wanted = plim__load_part_seeds(plim_dataset_info(facts->dataset), facts->recipe,
                                                 facts->params->part_seeds);
    if (facts->params->part_nodes > 0 && num_seeds == wanted)
        size = (plim__load_size_t){facts->params->part_nodes, facts->params->part_edges};
    return (plim__load_size_t){plim__min_i64(size.nodes, most.nodes),
                               plim__min_i64(size.edges, most.edges)};
}

/* The plan with so many slots of at least that size. */
static plim__load_plan_t with_slots(const plim__load_plan_t *plan, int num_slots,
                                    const plim__load_size_t *size)
{
    plim__load_plan_t tried = *plan;
    tried.num_slots = num_slots;
    tried.slot_nodes = plim__max_i64(size->nodes, plan->slot_nodes);
    tried.slot_edges = plim__max_i64(size->edges, plan->slot_edges);
    return tried;
}

/*
 * Takes so many slots of that size if they stay within the limit, and the client's growth with them
 * within the line, or within its share of the free memory.
 */
static bool try_slots(const plim__load_facts_t *facts, plim__load_plan_t *plan, int num_slots,
                      const plim__load_size_t *size, int64_t limit)
{
    plim__load_plan_t tried = with_slots(plan, num_slots, size);
    const int64_t grown = client_bytes(facts, &tried) - client_bytes(facts, plan);
    const int64_t total = total_of(facts, &tried);
    int64_t most = facts->line;
    if (plan->window_steps > 0 && (grown > 0 || facts->modest)) {
        const int64_t before = total_of(facts, plan);
        const int64_t percent = facts->modest ? MODEST_PERCENT : CLIENT_PERCENT;
        most = before + plim__max_i64(facts->line - before, 0) / 100 * percent;
    }
    if (total > most || total - grown > limit)
        return false;
    *plan = tried;
    return true;
}

/* Slots of that size whatever their share, down to a single one; false when the line is too low. */
static bool force_slots(const plim__load_facts_t *facts, plim__load_plan_t *plan, int num_slots,
                        const plim__load_size_t *size)
{
    for (; num_slots > 0; num_slots--) {
        plim__load_plan_t tried = with_slots(plan, num_slots, size);
        if (total_of(facts, &tried) <= facts->line) {
            *plan = tried;
            return true;
        }
    }
    return false;
}

/* How many slots of that size, from few to many, are in proportion to the data. */
static int proportionate(const plim__load_facts_t *facts, const plim__load_plan_t *plan, int few,
                         int many, const plim__load_size_t *size)
{
    int64_t data = file_bytes(facts, "indices.npy");
    if (has_rows(facts))
        data = plim__add_saturating_i64(data, file_bytes(facts, "features.npy"));
    const size_t most = (size_t)plim__max_i64(data / SLOTS_DATA_PART, SLOTS_DATA_MIN);
    for (; many > few; many--) {
        const plim__load_plan_t tried = with_slots(plan, many, size);
        plim__loader_params_t params;
        plim__loader_params_find(facts->job, facts->dataset, &tried, &params);
        if (plim__slots_estimate(&tried, &params) <= most)
            break;
    }
    return many;
}

/* The limit for slots: a part of the free memory, or all of it without windows and caches. */
static int64_t slots_share(const plim__load_facts_t *facts, int64_t before,
                           const plim__load_plan_t *plan, int64_t part)
{
    return share(facts, before, plan->window_steps > 0 ? part : 1);
}

/* Takes the largest slots that fit, by 64ths of a batch. */
static bool shrink_slots(const plim__load_facts_t *facts, plim__load_plan_t *plan, int num_slots,
                         const plim__load_size_t *batch, int64_t limit)
{
    const plim__load_plan_t smallest = *plan;
    int low = 0, high = 64;
    while (low < high) {
        const int middle = high - (high - low) / 2;
        const plim__load_size_t size = {batch->nodes - batch->nodes / 64 * (64 - middle),
                                        batch->edges - batch->edges / 64 * (64 - middle)};
        plim__load_plan_t tried = smallest;
        if (try_slots(facts, &tried, num_slots, &size, limit)) {
            *plan = tried;
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low > 0;
}

/*
 * Slots for the upper bound of a batch when that is cheap and the plan does not cut batches: one
 * for each worker and one for the caller; else for batches as expected; else as large as possible.
 * False when not even two slots hold an expected batch.
 */
static bool grow_slots(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const int wanted = facts->params->num_slots;
    const int most =
        (int)plim__min_i64((int64_t)SLOTS_PER_WORKER * plan->workers, PLIM__LOAD_SLOTS_MAX);
    int many = wanted > 0 ? wanted : most;
    const int few = wanted > 0 ? wanted : 2;
    const int64_t before = total_of(facts, plan);
    const int64_t cheap = share(facts, before, EXTRAS_PART);
    const plim__load_size_t batch = plim__load_needed(facts, facts->part_seeds);
    const int bound = proportionate(facts, plan, few, many, &facts->most);
    if (!plim__load_plan_cuts(facts->client) && bound >= plim__min_i64(many, plan->workers + 1) &&
        try_slots(facts, plan, bound, &facts->most, cheap))
        return true;
    many = proportionate(facts, plan, few, many, &batch);
    if (try_slots(facts, plan, few, &batch, slots_share(facts, before, plan, SLOTS_MOST_PART))) {
        for (int count = many; count > few; count--)
            if (try_slots(facts, plan, count, &batch, cheap))
                break;
        return true;
    }
    if (facts->keeps_cut && force_slots(facts, plan, few, &batch))
        return false;
    if (!shrink_slots(facts, plan, few, &batch,
                      slots_share(facts, before, plan, SLOTS_CRAMPED_PART)))
        (void)try_slots(facts, plan, few, &(plim__load_size_t){0, 0}, facts->line);
    return false;
}

/* The lists that can be drawn from, as far as estimated, where most reads of them are of a page.
 * Where a column decides draws, lists are read by position, and not from a working set. */
static void working_lists(const plim__load_facts_t *facts, plim__working_size_t *size)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    plim_recipe_t drawn = *facts->recipe;
    const int64_t degree = info->num_edges / plim__max_i64(info->num_nodes, 1) + 1;
    if (drawn.num_hops == 0 || drawn.draw_by != 0 ||
        degree * (int64_t)plim__index_bytes(info->index_type) > LISTS_PACKED_BYTES)
        return;
    drawn.disjoint = false;
    drawn.num_hops--;
    const plim__load_size_t epoch = plim__load_size_expected(plim__dataset_manifest(facts->dataset),
                                                             &drawn, seeds_of_splits(info));
    size->lists =
        plim__min_i64(plim__mul_saturating_i64(epoch.nodes, LISTS_REACH_FACTOR), size->rows);
    size->entries = plim__mul_saturating_i64(size->lists, 2 * degree);
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
    const int64_t before = total_of(facts, plan);
    bool all;
    if (plan->scratch[0] == '\0' || plan->rows_in_memory || !has_rows(facts) ||
        plim_dataset_info(facts->dataset)->num_graphs > 0 ||
        plim_dataset_info(facts->dataset)->num_split[PLIM_TRAIN] == 0 ||
        facts->params->row_cache < 0)
        return;
    plan->working = working_size(facts, &all);
    if (total_of(facts, plan) > share(facts, before, WORKING_LISTS_PART))
        plan->working.lists = plan->working.entries = 0; /* a file that has them still serves */
    if (plan->working.lists > 0)
        return;
    if (total_of(facts, plan) > share(facts, before, WORKING_SET_PART))
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
    const plim__load_size_t most =
        window_expected(facts, window_seeds(facts, steps_each(facts, plan)));
    const int64_t draws = scaled(most.edges, 100 + DRAWS_MARGIN_PERCENT, 100);
    grow(facts, plan, WINDOW_DRAWS, plan->window_draws, draws,
         share(facts, total_of(facts, plan), DRAWS_PART));
    if (plan->rows_in_memory)
        return;
    const int64_t before = total_of(facts, plan);
    const int64_t rows = plim__max_i64(facts->line - before, 0) / 100 * ROWS_PERCENT;
    grow(facts, plan, WINDOW_ROWS, plan->window_rows, most.nodes, before + rows);
}

static void grow_list_cache(const plim__load_facts_t *facts, plim__load_plan_t *plan, int64_t limit)
{
    grow(facts, plan, LIST_CACHE, (int64_t)plan->list_cache_bytes, most_cached_lists(facts, plan),
         limit);
}

/* The steps whose rows windows and row cache together hold: the caches leave to a window what they
 * have themselves. */
static int64_t cache_steps(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    plim__loader_params_t params;
    int64_t low = 1, high = plan->window_steps;
    plim__loader_params_find(facts->job, facts->dataset, plan, &params);
    const size_t row = params.window.row_bytes;
    const int64_t rows = plan->window_rows + (row > 0 ? (int64_t)(plan->row_cache_bytes / row) : 0);
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        const plim__load_size_t size = window_expected(facts, window_seeds(facts, middle));
        if (size.edges <= plan->window_draws && (plan->rows_in_memory || size.nodes <= rows))
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Draws ahead, as much of an epoch as fits in the share of draws; false where that is less than two
 * windows of so many steps. */
static bool take_ahead(const plim__load_facts_t *facts, int64_t window_steps,
                       plim__load_plan_t *plan)
{
    const plim__load_size_t epoch = epoch_expected(facts);
    plim__loader_params_t params;
    plim__loader_params_find(facts->job, facts->dataset, plan, &params);
    plan->bucket_bytes =
        plim__mul_saturating_i64(plim__mul_saturating_i64(epoch.nodes, BUCKETS_FACTOR),
                                 (int64_t)(params.window.row_bytes + sizeof(int64_t)));
    const int64_t limit = share(facts, total_of(facts, plan), DRAWS_PART);
    grow(facts, plan, AHEAD_DRAWS, plan->window_draws,
         scaled(epoch.edges, 100 + DRAWS_MARGIN_PERCENT, 100), limit);
    return total_of(facts, plan) <= limit &&
           (plan->ahead_draws >= epoch.edges ||
            scaled(epoch_steps(facts), plan->ahead_draws, epoch.edges) >= 2 * window_steps);
}

/* The caches get what is left. */
static void grow_caches(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    grow_list_cache(facts, plan, share(facts, total_of(facts, plan), LISTS_PART));
    grow(facts, plan, ROW_CACHE, (int64_t)plan->row_cache_bytes, most_cached_rows(facts, plan),
         facts->line);
    grow_list_cache(facts, plan, facts->line);
    plan->shared = has_rows(facts) && !plan->rows_in_memory && plan->row_cache_bytes > 0 &&
                   facts->params->row_cache == 0 && facts->params->list_cache == 0 &&
                   !plan->recipe.disjoint;
    plan->cache_steps = plan->ahead_draws > 0 ? steps_each(facts, plan) : cache_steps(facts, plan);
}

/* Whether topology in memory leaves enough for the rest. */
static bool comfortable(const plim__load_facts_t *facts, const arrangement_t *arrangement,
                        tight_t tight, const plim__load_plan_t *plan)
{
    if (!arrangement->topology_in_memory || arrangement->rows_in_memory ||
        facts->params->topology == PLIM_PLACE_MEMORY)
        return true;
    plim__load_plan_t self = *plan, other;
    take_minimum(facts, &(arrangement_t){false, false}, tight, &other);
    const int64_t smallest = total_of(facts, &other);
    return total_of(facts, &self) - smallest <= (facts->line - smallest) / ADJACENCY_PART;
}

/* Takes columns into memory, first the one that decides draws, then the narrowest: with windows and
 * caches as far as half of what is free holds them, else as far as they fit. */
static void grow_columns(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const unsigned order[] = {plan->recipe.draw_by, PLIM_EDGE_TYPE, PLIM_EDGE_WEIGHT,
                              PLIM_EDGE_TIME,       PLIM_NODE_TIME, PLIM_EDGE_ID,
                              PLIM_EDGE_FEATURES};
    const int64_t part = plan->window_steps > 0 ? COLUMNS_PART : 1;
    const int64_t limit = share(facts, total_of(facts, plan), part);
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        plim__load_plan_t tried = *plan;
        if ((plim__load_columns(&plan->recipe) & order[i] & ~plan->columns_in_memory) == 0)
            continue;
        tried.columns_in_memory |= order[i];
        if (total_of(facts, &tried) <= limit)
            *plan = tried;
    }
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

/* From the smallest choices to their shares of the line; false when slots are cramped. */
static bool grow_all(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const bool good = grow_slots(facts, plan);
    if (!facts->trial)
        grow_columns(facts, plan);
    if (plan->window_steps > 0 && !facts->trial) {
        grow_depth(facts, plan);
        if (!plan->offsets_on_disk) /* choosing what is packed and cached needs them */
            take_working_set(facts, plan);
        plim__load_plan_t ahead = *plan;
        grow_reading(facts, plan);
        if (reads_often(facts, plan) && take_ahead(facts, plan->cache_steps, &ahead)) {
            grow_reading(facts, &ahead);
            if (ahead.working.rows > 0)
                *plan = ahead;
        }
    }
    return good;
}

static bool fit(const plim__load_facts_t *facts, tight_t tight, plim__load_plan_t *plan_out)
{
    plim__load_plan_t plan;
    bool found = false, whole = false, done = false;
    for (size_t i = 0; i < NUM_ARRANGEMENTS && !done; i++) {
        if (!allowed(facts, &arrangements[i]))
            continue;
        take_minimum(facts, &arrangements[i], tight, &plan);
        if (total_of(facts, &plan) > facts->line)
            continue;
        const bool easy = comfortable(facts, &arrangements[i], tight, &plan);
        const bool good = grow_all(facts, &plan);
        plan.line = facts->line;
        done = good && easy;
        /* Of cramped ones the first with the fewest parts a batch. */
        const bool larger = !whole && found && plan.slot_nodes > plan_out->slot_nodes;
        if (!found || done || (good && !whole) || larger) {
            *plan_out = plan;
            whole = good;
        }
        found = true;
    }
    if (found)
        plan_out->total = total_of(facts, plan_out);
    return found;
}

bool plim__load_fit(const plim__load_facts_t *facts, plim__load_plan_t *plan_out)
{
    return fit(facts, AMPLE, plan_out) || fit(facts, TIGHT, plan_out) ||
           fit(facts, TIGHTEST, plan_out);
}

int64_t plim__load_minimum(const plim__load_facts_t *facts)
{
    int64_t used = INT64_MAX;
    plim__load_plan_t plan;
    for (size_t i = 0; i < NUM_ARRANGEMENTS; i++)
        if (allowed(facts, &arrangements[i])) {
            take_minimum(facts, &arrangements[i], TIGHTEST, &plan);
            used = plim__min_i64(used, used_by(facts, &plan));
        }
    return plim__footprint_minimum(used, plim__job_threads(facts->job));
}
