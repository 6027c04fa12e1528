/*
 * Every arrangement (topology and rows in memory or on disk) is first tried as small as it can be;
 * when that fits it grows: I/O depth, slots, windows, hot lists, hot rows, each up to its share. So
 * what fits at all is found, and the least line is that of the smallest arrangement. The first that
 * has slots for whole batches is taken; where none has, the one whose slots are largest: a batch in
 * parts costs more than a disk does.
 */
#include "plan/load_fit.h"

#include "base/check.h"
#include "base/job.h"
#include "io/npy.h"
#include "load/slots.h"
#include "mem/footprint.h"
#include "plan/load_cost.h"
#include "sample/blocks.h"

#include <math.h>
#include <string.h>

/* How the room is divided. One place, so that measurements can move them. */
enum {
    DEPTH_MIN = 8,
    DEPTH_MOST = 128,
    DEPTH_PART = 16,      /* I/O gets deeper while it takes at most 1/16 of the line */
    SLOTS_PER_WORKER = 4, /* while all of them take at most … */
    SLOTS_PART = 16,      /* … 1/16 of the line */
    SLOTS_MOST_PART = 4,  /* two slots may take 1/4 of it, or they get smaller */
    SLOTS_DATA_PART = 4,  /* more than two take at most 1/4 of what the dataset itself takes, … */
    SLOTS_ROOM = 16 << 20,  /* … or this much */
    SLOTS_CRAMPED_PART = 2, /* … and then 1/2: a batch in parts is read once for each of them */
    BESIDE_PERCENT = 75,    /* of what is left for slots and what stands beside them, the most while
                               windows and hot rows need the rest */
    MODEST_PERCENT = 25, /* the same for parts of more seeds than a tile has rows: they are only a
                            little faster to compute, and rows for which the windows have no
                            room are read once for each part */
    ADJACENCY_PART = 2,  /* topology stays in memory when it takes at most 1/2 of what is left */
    DRAWS_PART = 4,      /* the draws of both windows take at most 1/4 of what is left, */
    ROWS_PERCENT = 20,   /* their rows 20 % of what is left then: 8 and 40 read more */
    LEFT_PART = 16,      /* 1/16 of the line left over is too much while rows could be kept */
    LISTS_PART = 3,      /* hot lists at most 1/3 of the rest, hot rows all else */
    SPARE_PERCENT = 25,  /* slots are larger than what seeds are expected to need by this, */
    FEW_PERCENT = 400,   /* or by this over the root of their number: few differ more */
    DRAWS_SPARE_PERCENT = 10, /* and draws than those of an expected epoch */
    KEPT_MIN = 256 << 10,     /* less is not worth being kept */
    IO_GAP = 16 << 10
};

typedef struct arrangement {
    bool topology_in_memory;
    bool rows_in_memory;
} arrangement_t;

/* From the fastest to the smallest. */
static const arrangement_t arrangements[] = {
    {true, true}, {true, false}, {false, true}, {false, false}};

#define NUM_ARRANGEMENTS (sizeof arrangements / sizeof arrangements[0])

plim__load_size_t plim__load_expected(const plim__load_facts_t *facts, int64_t num_seeds)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(facts->dataset);
    const plim_dataset_info_t *info = &manifest->info;
    if (info->num_graphs > 0) {
        double share = (double)num_seeds / (double)info->num_graphs;
        int64_t nodes = (int64_t)(share * (double)info->num_nodes) + 1;
        return (plim__load_size_t){nodes, nodes + (int64_t)(share * (double)info->num_edges) + 1};
    }
    plim__load_size_t size = facts->probe.count > 1
                                 ? plim__load_size_tried(&facts->probe, num_seeds)
                                 : plim__load_size_expected(manifest, facts->recipe, num_seeds);
    size.nodes = plim__min_i64(size.nodes, info->num_nodes);
    return size;
}

plim__load_size_t plim__load_most(const plim__load_facts_t *facts, int64_t num_seeds)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    const plim__load_size_t *graph = &facts->largest;
    plim__load_size_t size;
    if (info->num_graphs > 0) {
        const int64_t nodes = plim__mul_saturating_i64(graph->nodes, num_seeds);
        const int64_t edges = plim__mul_saturating_i64(graph->nodes + graph->edges, num_seeds);
        size.nodes = plim__max_i64(plim__min_i64(nodes, info->num_nodes), 1);
        size.edges = plim__min_i64(edges, info->num_nodes + info->num_edges) + 1;
        return size;
    }
    plim__blocks_params_t params = {.num_hops = facts->recipe->num_hops,
                                    .replace = facts->recipe->replace,
                                    .form = facts->recipe->form};
    memcpy(params.fanout, facts->recipe->fanout, sizeof params.fanout);
    plim__blocks_bound(&params, info->num_nodes, info->num_edges, info->max_degree, num_seeds,
                       &size.nodes, &size.edges);
    return size;
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
        plim__max_i64(SPARE_PERCENT, (int64_t)(FEW_PERCENT / sqrt((double)num_seeds)));
    size.nodes = more(size.nodes, percent);
    size.edges = more(size.edges, percent);
    const int64_t wished = plim__load_part_seeds(plim_dataset_info(facts->dataset), facts->recipe,
                                                 facts->wishes->part_seeds);
    if (facts->wishes->part_nodes > 0 && num_seeds == wished)
        size = (plim__load_size_t){facts->wishes->part_nodes, facts->wishes->part_edges};
    return (plim__load_size_t){plim__min_i64(size.nodes, most.nodes),
                               plim__min_i64(size.edges, most.edges)};
}

static bool has_rows(const plim__load_facts_t *facts)
{
    return !facts->recipe->no_features && plim_dataset_info(facts->dataset)->num_features > 0;
}

static bool has_draws(const plim__load_facts_t *facts)
{
    return facts->recipe->num_hops > 0 || plim_dataset_info(facts->dataset)->num_graphs > 0;
}

/* Whether the wishes leave it open; without rows they count as in memory, once, and lists that
 * nothing is drawn from stay on disk. */
static bool allowed(const plim__load_facts_t *facts, const arrangement_t *arrangement)
{
    const plim_plan_params_t *wishes = facts->wishes;
    const bool topology = has_draws(facts)
                              ? wishes->topology != (arrangement->topology_in_memory ? 2 : 1)
                              : !arrangement->topology_in_memory;
    const bool rows = has_rows(facts) ? wishes->rows != (arrangement->rows_in_memory ? 2 : 1)
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

/* About what share of the nodes can be worth keeping: of many graphs those of the splits; without
 * draws the seeds of training. */
static double kept_share(const plim__load_facts_t *facts)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    if (info->num_graphs > 0)
        return (double)seeds_of_splits(info) / (double)info->num_graphs;
    return facts->recipe->num_hops > 0
               ? 1
               : (double)info->num_split[PLIM_TRAIN] / (double)info->num_nodes;
}

/* Of so many bytes, what there may be of them in memory. */
static int64_t most_cached(const plim__load_facts_t *facts, int64_t bytes, int64_t wish)
{
    const int64_t all = plim__min_i64((int64_t)((double)bytes * kept_share(facts)) + 1, bytes);
    return wish < 0 ? 0 : wish > 0 ? plim__min_i64(wish, all) : all;
}

static int64_t most_cached_rows(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    if (plan->rows_in_memory)
        return 0;
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    const size_t row = (size_t)info->num_features * plim__feature_bytes(info->feature_type);
    const int64_t kept = (int64_t)plim__round_up(row, sizeof(uint64_t));
    return most_cached(facts, plim__mul_saturating_i64(info->num_nodes, kept),
                       facts->wishes->row_cache);
}

/* Lists of seeds alone, at the worst twice as long as others: all that one hop reads. */
static int64_t seeds_lists(const plim__load_facts_t *facts)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
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
        most_cached(facts, file_bytes(facts, "indices.npy"), facts->wishes->list_cache);
    const bool one_hop =
        facts->recipe->num_hops == 1 && plim_dataset_info(facts->dataset)->num_graphs == 0;
    return one_hop && facts->wishes->list_cache == 0 ? plim__min_i64(most, seeds_lists(facts))
                                                     : most;
}

static int64_t epoch_steps(const plim__load_facts_t *facts)
{
    return plim__max_i64((facts->epoch_seeds - 1) / facts->recipe->batch_size + 1, 1);
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

/* A window draws as the native form does, whatever the form of its batches: every node met so far,
 * at each hop. What a trial of the other form came to is scaled by what dataset.json says of both.
 */
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

/* Room for one seed is enough: a batch that does not fit a window comes without. */
static plim__load_size_t window_minimum(const plim__load_facts_t *facts)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    plim__load_size_t size = facts->one;
    plim__blocks_params_t params = {.num_hops = facts->recipe->num_hops,
                                    .replace = facts->recipe->replace,
                                    .form = PLIM_NATIVE};
    if (facts->recipe->form == PLIM_NATIVE)
        return size;
    memcpy(params.fanout, facts->recipe->fanout, sizeof params.fanout);
    plim__blocks_bound(&params, info->num_nodes, info->num_edges, info->max_degree, 1, &size.nodes,
                       &size.edges);
    return size;
}

/* All that the arrangement needs, and nothing more. */
static void take_minimum(const plim__load_facts_t *facts, const arrangement_t *arrangement,
                         plim__load_plan_t *plan)
{
    const plim_plan_params_t *wishes = facts->wishes;
    memset(plan, 0, sizeof *plan);
    plan->recipe = *facts->recipe;
    plan->envelope = facts->streams->envelope;
    plan->most_seeds = facts->streams->most_seeds;
    plan->list_bytes = facts->streams->list_bytes;
    plan->workers = plim__job_threads(facts->job);
    plan->topology_in_memory = arrangement->topology_in_memory;
    plan->rows_in_memory = arrangement->rows_in_memory;
    plan->num_slots = wishes->num_slots > 0 ? wishes->num_slots : 1;
    plan->slot_nodes = facts->one.nodes;
    plan->slot_edges = facts->one.edges;
    plan->part_seeds =
        facts->part_seeds < facts->batch_seeds ? facts->part_seeds : wishes->part_seeds;
    plan->io_depth = DEPTH_MIN;
    plan->merge_distance = IO_GAP;
    if (wishes->scratch != NULL)
        strncpy(plan->scratch, wishes->scratch, sizeof plan->scratch - 1);
    bool windowed = (has_draws(facts) && !plan->topology_in_memory) || !plan->rows_in_memory;
    if (windowed) {
        plan->window_steps = epoch_steps(facts);
        if (wishes->window > 0)
            plan->window_steps = plim__min_i64(wishes->window, plan->window_steps);
        const plim__load_size_t least = window_minimum(facts);
        plan->window_draws = least.edges;
        plan->window_rows = plan->rows_in_memory ? 0 : least.nodes;
    }
    if (wishes->row_cache > 0)
        plan->row_cache_bytes = (size_t)most_cached_rows(facts, plan);
    if (wishes->list_cache > 0)
        plan->list_cache_bytes = (size_t)most_cached_lists(facts, plan);
}

static int64_t beside_of(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return facts->beside->bytes(facts->beside->context, plan);
}

int64_t plim__load_fixed(const plim__load_facts_t *facts, int64_t line)
{
    return facts->fixed + plim__footprint_reserve(line, plim__job_threads(facts->job));
}

int64_t plim__load_early(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return facts->beside->early != NULL ? facts->beside->early(plan->workers) : 0;
}

/* The plan's total under that line; INT64_MAX when it is past any. */
static int64_t total_of(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan)
{
    int64_t sum = plim__load_cost(facts->job, facts->dataset, plan);
    const int64_t made = plim__add_saturating_i64(sum, beside_of(facts, plan));
    const int64_t start = plim__add_saturating_i64(plan->start, plim__load_early(facts, plan));
    return plim__add_saturating_i64(plim__max_i64(made, start), plim__load_fixed(facts, line));
}

/* What grows to the size that fits. */
typedef enum quantity { WINDOW_DRAWS, WINDOW_ROWS, HOT_LISTS, HOT_ROWS } quantity_t;

static void set(plim__load_plan_t *plan, quantity_t quantity, int64_t value)
{
    if (quantity == WINDOW_DRAWS)
        plan->window_draws = value;
    if (quantity == WINDOW_ROWS)
        plan->window_rows = value;
    if (quantity == HOT_LISTS)
        plan->list_cache_bytes = (size_t)value;
    if (quantity == HOT_ROWS)
        plan->row_cache_bytes = (size_t)value;
}

/* The largest value above `low` and up to `most` whose total is within `limit`; else `low`. */
static void grow(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan,
                 quantity_t quantity, int64_t low, int64_t most, int64_t limit)
{
    while (low < most) {
        int64_t middle = most - (most - low) / 2;
        set(plan, quantity, middle);
        if (total_of(facts, line, plan) <= limit)
            low = middle;
        else
            most = middle - 1;
    }
    set(plan, quantity, low);
}

static int64_t share(int64_t from, int64_t to, int64_t part)
{
    return from + plim__max_i64(to - from, 0) / part;
}

static void grow_depth(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan)
{
    int64_t least = total_of(facts, line, plan);
    int64_t limit = plim__min_i64(line, least + line / DEPTH_PART);
    while (plan->io_depth < DEPTH_MOST) {
        plan->io_depth *= 2;
        if (total_of(facts, line, plan) > limit) {
            plan->io_depth /= 2;
            break;
        }
    }
}

/*
 * Whether so many slots of that size stay within the limit, and what grows beside them within the
 * line or its share of it; the plan keeps them if so.
 */
static bool try_slots(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan,
                      int num_slots, const plim__load_size_t *size, int64_t limit)
{
    plim__load_plan_t tried = *plan;
    tried.num_slots = num_slots;
    tried.slot_nodes = plim__max_i64(size->nodes, plan->slot_nodes);
    tried.slot_edges = plim__max_i64(size->edges, plan->slot_edges);
    const int64_t grown = beside_of(facts, &tried) - beside_of(facts, plan);
    const int64_t total = total_of(facts, line, &tried);
    int64_t most = line;
    if (plan->window_steps > 0 && (grown > 0 || facts->modest)) {
        const int64_t least = total_of(facts, line, plan);
        const int64_t percent = facts->modest ? MODEST_PERCENT : BESIDE_PERCENT;
        most = least + plim__max_i64(line - least, 0) / 100 * percent;
    }
    if (total > most || total - grown > limit)
        return false;
    *plan = tried;
    return true;
}

/* Slots of that size whatever their share, down to a single one; false when the line is too low. */
static bool force_slots(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan,
                        int num_slots, const plim__load_size_t *size)
{
    plim__load_plan_t tried = *plan;
    tried.slot_nodes = plim__max_i64(size->nodes, plan->slot_nodes);
    tried.slot_edges = plim__max_i64(size->edges, plan->slot_edges);
    for (tried.num_slots = num_slots; tried.num_slots > 0; tried.num_slots--)
        if (total_of(facts, line, &tried) <= line) {
            *plan = tried;
            return true;
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
    const size_t room = (size_t)plim__max_i64(data / SLOTS_DATA_PART, SLOTS_ROOM);
    plim__load_plan_t tried = *plan;
    tried.slot_nodes = plim__max_i64(size->nodes, plan->slot_nodes);
    tried.slot_edges = plim__max_i64(size->edges, plan->slot_edges);
    for (tried.num_slots = many; tried.num_slots > few; tried.num_slots--) {
        plim__loader_params_t parts;
        plim__loader_params_find(facts->job, facts->dataset, &tried, &parts);
        if (plim__slots_estimate(&tried, &parts) <= room)
            break;
    }
    return tried.num_slots;
}

/* The part of the room that slots may take: all of it where neither windows nor hot rows want it.
 */
static int64_t slots_share(int64_t least, int64_t line, const plim__load_plan_t *plan, int64_t part)
{
    return share(least, line, plan->window_steps > 0 ? part : 1);
}

/* Takes as much of a batch as fits, by 64ths of it. */
static bool shrink_slots(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan,
                         int num_slots, const plim__load_size_t *batch, int64_t limit)
{
    const plim__load_plan_t least = *plan;
    int low = 0, high = 64;
    while (low < high) {
        const int middle = high - (high - low) / 2;
        const plim__load_size_t size = {batch->nodes - batch->nodes / 64 * (64 - middle),
                                        batch->edges - batch->edges / 64 * (64 - middle)};
        plim__load_plan_t tried = least;
        if (try_slots(facts, line, &tried, num_slots, &size, limit)) {
            *plan = tried;
            low = middle;
        } else {
            high = middle - 1;
        }
    }
    return low > 0;
}

/*
 * Slots for whole batches at their worst, when that is cheap and they are not cut by a rule of
 * their own: one for each worker and one for the caller; else for batches as expected; else as
 * large as may be. False when it had to be less than an expected batch in each of two slots.
 */
static bool grow_slots(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan)
{
    int wish = facts->wishes->num_slots;
    int most = (int)plim__min_i64((int64_t)SLOTS_PER_WORKER * plan->workers, PLIM__LOAD_SLOTS_MAX);
    int many = wish > 0 ? wish : most;
    int few = wish > 0 ? wish : 2;
    int64_t least = total_of(facts, line, plan);
    const plim__load_size_t batch = plim__load_needed(facts, facts->part_seeds);
    int worst = proportionate(facts, plan, few, many, &facts->most);
    if (!facts->beside->cuts && worst >= plim__min_i64(many, plan->workers + 1) &&
        try_slots(facts, line, plan, worst, &facts->most, least + line / SLOTS_PART))
        return true;
    many = proportionate(facts, plan, few, many, &batch);
    if (try_slots(facts, line, plan, few, &batch,
                  slots_share(least, line, plan, SLOTS_MOST_PART))) {
        for (int count = many; count > few; count--)
            if (try_slots(facts, line, plan, count, &batch, least + line / SLOTS_PART))
                break;
        return true;
    }
    if (facts->keeps_cut && force_slots(facts, line, plan, few, &batch))
        return false;
    if (!shrink_slots(facts, line, plan, few, &batch,
                      slots_share(least, line, plan, SLOTS_CRAMPED_PART)))
        (void)try_slots(facts, line, plan, few, &(plim__load_size_t){0, 0}, line);
    return false;
}

static void grow_windows(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan)
{
    plim__load_size_t most = window_expected(facts, window_seeds(facts, plan->window_steps));
    int64_t begin = total_of(facts, line, plan);
    grow(facts, line, plan, WINDOW_DRAWS, plan->window_draws, more(most.edges, DRAWS_SPARE_PERCENT),
         share(begin, line, DRAWS_PART));
    if (plan->rows_in_memory)
        return;
    begin = total_of(facts, line, plan);
    int64_t room = plim__max_i64(line - begin, 0) / 100 * ROWS_PERCENT;
    grow(facts, line, plan, WINDOW_ROWS, plan->window_rows, most.nodes, begin + room);
}

/* Grows what is kept in memory of a kind, unless it would come to next to nothing. */
static void grow_kept(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan,
                      quantity_t quantity, int64_t limit)
{
    bool rows = quantity == HOT_ROWS;
    int64_t held = (int64_t)(rows ? plan->row_cache_bytes : plan->list_cache_bytes);
    int64_t most = rows ? most_cached_rows(facts, plan) : most_cached_lists(facts, plan);
    grow(facts, line, plan, quantity, held, most, limit);
    int64_t grown = (int64_t)(rows ? plan->row_cache_bytes : plan->list_cache_bytes);
    if (grown < KEPT_MIN && grown < most)
        set(plan, quantity, held);
}

/* Hot lists and rows get what is left. */
static void grow_hot(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan)
{
    int64_t limit = share(total_of(facts, line, plan), line, LISTS_PART);
    grow_kept(facts, line, plan, HOT_LISTS, limit);
    grow_kept(facts, line, plan, HOT_ROWS, line);
    grow_kept(facts, line, plan, HOT_LISTS, line);
    plan->shared = has_rows(facts) && !plan->rows_in_memory && plan->row_cache_bytes > 0 &&
                   facts->wishes->row_cache == 0 && facts->wishes->list_cache == 0;
}

/* Whether it stays in memory and leaves the rest the room it should have. */
static bool comfortable(const plim__load_facts_t *facts, int64_t line,
                        const arrangement_t *arrangement, const plim__load_plan_t *plan)
{
    if (!arrangement->topology_in_memory || arrangement->rows_in_memory ||
        facts->wishes->topology == 1)
        return true;
    plim__load_plan_t other;
    take_minimum(facts, &(arrangement_t){false, false}, &other);
    int64_t room = line - total_of(facts, line, &other);
    plim__load_plan_t self = *plan;
    return total_of(facts, line, &self) - total_of(facts, line, &other) <= room / ADJACENCY_PART;
}

/* From the least that the arrangement needs to its share of the line; false when it is cramped. */
static bool grow_all(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan)
{
    const bool windowed = plan->window_steps > 0;
    const plim__load_plan_t least = *plan;
    if (windowed)
        grow_depth(facts, line, plan);
    bool good = grow_slots(facts, line, plan);
    if (windowed && !good) { /* what deeper I/O took was the slots': they come first */
        *plan = least;
        good = grow_slots(facts, line, plan);
        grow_depth(facts, line, plan);
    }
    if (windowed) {
        grow_windows(facts, line, plan);
        grow_hot(facts, line, plan);
    }
    return good;
}

/*
 * Hot rows cost more than their bytes: what fills them comes with the first of them. Where that was
 * more than the others had left, hot rows come first, unless slots would be cramped.
 */
static void grow_hot_first(const plim__load_facts_t *facts, int64_t line,
                           const arrangement_t *arrangement, plim__load_plan_t *plan)
{
    if (plan->rows_in_memory || plan->row_cache_bytes > 0 || facts->wishes->row_cache != 0 ||
        line - total_of(facts, line, plan) < line / LEFT_PART)
        return;
    plim__load_plan_t tried;
    take_minimum(facts, arrangement, &tried);
    tried.row_cache_bytes = (size_t)plim__min_i64(KEPT_MIN, most_cached_rows(facts, &tried));
    if (total_of(facts, line, &tried) <= line && grow_all(facts, line, &tried))
        *plan = tried;
}

bool plim__load_fit(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan_out)
{
    plim__load_plan_t plan;
    bool found = false, whole = false, done = false;
    for (size_t i = 0; i < NUM_ARRANGEMENTS && !done; i++) {
        if (!allowed(facts, &arrangements[i]))
            continue;
        take_minimum(facts, &arrangements[i], &plan);
        if (total_of(facts, line, &plan) > line)
            continue;
        const bool easy = comfortable(facts, line, &arrangements[i], &plan);
        const bool good = grow_all(facts, line, &plan);
        grow_hot_first(facts, line, &arrangements[i], &plan);
        plan.line = line;
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
        plan_out->total = total_of(facts, line, plan_out);
    return found;
}

static bool fits_minimum(const plim__load_facts_t *facts, int64_t line)
{
    plim__load_plan_t plan;
    for (size_t i = 0; i < NUM_ARRANGEMENTS; i++)
        if (allowed(facts, &arrangements[i])) {
            take_minimum(facts, &arrangements[i], &plan);
            if (total_of(facts, line, &plan) <= line)
                return true;
        }
    return false;
}

int64_t plim__load_minimum(const plim__load_facts_t *facts)
{
    int64_t low = 0, high = INT64_MAX / 2;
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (fits_minimum(facts, middle))
            high = middle;
        else
            low = middle;
    }
    return high;
}
