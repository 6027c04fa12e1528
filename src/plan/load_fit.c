/*
 * Every arrangement (topology and rows in memory or on disk) is first taken as small as it can be:
 * the smallest of them gives the minimum line. One that fits then grows: slots, columns, I/O depth,
 * windows, list cache, row cache, each up to its share. The first arrangement with slots for whole
 * batches wins; without one, the arrangement with the largest slots, since a batch in parts costs
 * more than reads from disk.
 */
#include "plan/load_fit.h"

#include "base/job.h"
#include "load/loader_params.h"
#include "load/slots.h"
#include "mem/headroom.h"

#include <math.h>
#include <string.h>

typedef struct arrangement {
    bool topology_in_memory;
    bool rows_in_memory;
} arrangement_t;

/* From the fastest to the smallest. */
static const arrangement_t arrangements[] = {
    {true, true}, {true, false}, {false, true}, {false, false}};

#define NUM_ARRANGEMENTS (sizeof arrangements / sizeof arrangements[0])

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
    const bool topology = plim__load_has_draws(facts)
                              ? params->topology != forbidden_by(arrangement->topology_in_memory)
                              : !arrangement->topology_in_memory;
    const bool rows = plim__load_has_rows(facts)
                          ? params->rows != forbidden_by(arrangement->rows_in_memory)
                          : arrangement->rows_in_memory;
    return topology && rows;
}

/* The smallest choices of an arrangement; `tight`: with what takes more time, too. */
static void take_minimum(const plim__load_facts_t *facts, const arrangement_t *arrangement,
                         plim__load_tight_t tight, plim__load_plan_t *plan)
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
    if (params->scratch != NULL)
        strncpy(plan->scratch, params->scratch, sizeof plan->scratch - 1);
    plim__load_reading_minimum(facts, tight, plan);
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

/* The plan with `num_slots` slots of at least that size. */
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
 * Takes `num_slots` slots of that size if they stay within the limit, and the client's growth with
 * them within the line, or within its share of the free memory.
 */
static bool try_slots(const plim__load_facts_t *facts, plim__load_plan_t *plan, int num_slots,
                      const plim__load_size_t *size, int64_t limit)
{
    plim__load_plan_t tried = with_slots(plan, num_slots, size);
    const int64_t grown =
        plim__load_client_bytes(facts, &tried) - plim__load_client_bytes(facts, plan);
    const int64_t total = plim__load_total(facts, &tried);
    int64_t most = facts->line;
    if (plan->window_steps > 0 && (grown > 0 || facts->modest)) {
        const int64_t before = plim__load_total(facts, plan);
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
        if (plim__load_total(facts, &tried) <= facts->line) {
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
    int64_t data = plim__load_file_bytes(facts, "indices.npy");
    if (plim__load_has_rows(facts))
        data = plim__add_saturating_i64(data, plim__load_file_bytes(facts, "features.npy"));
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
    return plim__load_share(facts, before, plan->window_steps > 0 ? part : 1);
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
    const int64_t before = plim__load_total(facts, plan);
    const int64_t cheap = plim__load_share(facts, before, EXTRAS_PART);
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

/* Whether topology in memory leaves enough for the rest. */
static bool comfortable(const plim__load_facts_t *facts, const arrangement_t *arrangement,
                        plim__load_tight_t tight, const plim__load_plan_t *plan)
{
    if (!arrangement->topology_in_memory || arrangement->rows_in_memory ||
        facts->params->topology == PLIM_PLACE_MEMORY)
        return true;
    plim__load_plan_t self = *plan, other;
    take_minimum(facts, &(arrangement_t){false, false}, tight, &other);
    const int64_t smallest = plim__load_total(facts, &other);
    return plim__load_total(facts, &self) - smallest <= (facts->line - smallest) / ADJACENCY_PART;
}

/* Takes columns into memory, first the one that decides draws, then the narrowest: with windows and
 * caches as far as half of what is free holds them, else as far as they fit. */
static void grow_columns(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const unsigned order[] = {plan->recipe.draw_by, PLIM_EDGE_TYPE, PLIM_EDGE_WEIGHT,
                              PLIM_EDGE_TIME,       PLIM_NODE_TIME, PLIM_EDGE_ID,
                              PLIM_EDGE_FEATURES};
    const int64_t part = plan->window_steps > 0 ? COLUMNS_PART : 1;
    const int64_t limit = plim__load_share(facts, plim__load_total(facts, plan), part);
    for (size_t i = 0; i < sizeof order / sizeof order[0]; i++) {
        plim__load_plan_t tried = *plan;
        if ((plim__load_columns(&plan->recipe) & order[i] & ~plan->columns_in_memory) == 0)
            continue;
        tried.columns_in_memory |= order[i];
        if (plim__load_total(facts, &tried) <= limit)
            *plan = tried;
    }
}

/* From the smallest choices to their shares of the line; false when slots are cramped. */
static bool grow_all(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const bool good = grow_slots(facts, plan);
    if (!facts->slots_only)
        grow_columns(facts, plan);
    if (plan->window_steps > 0 && !facts->slots_only)
        plim__load_reading_grow(facts, plan);
    return good;
}

static bool fit(const plim__load_facts_t *facts, plim__load_tight_t tight,
                plim__load_plan_t *plan_out)
{
    plim__load_plan_t plan;
    bool found = false, whole = false, done = false;
    for (size_t i = 0; i < NUM_ARRANGEMENTS && !done; i++) {
        if (!allowed(facts, &arrangements[i]))
            continue;
        take_minimum(facts, &arrangements[i], tight, &plan);
        if (plim__load_total(facts, &plan) > facts->line)
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
        plan_out->total = plim__load_total(facts, plan_out);
    return found;
}

bool plim__load_fit(const plim__load_facts_t *facts, plim__load_plan_t *plan_out)
{
    return fit(facts, PLIM__LOAD_AMPLE, plan_out) || fit(facts, PLIM__LOAD_TIGHT, plan_out) ||
           fit(facts, PLIM__LOAD_TIGHTEST, plan_out);
}

int64_t plim__load_minimum(const plim__load_facts_t *facts)
{
    int64_t used = INT64_MAX;
    plim__load_plan_t plan;
    for (size_t i = 0; i < NUM_ARRANGEMENTS; i++)
        if (allowed(facts, &arrangements[i])) {
            take_minimum(facts, &arrangements[i], PLIM__LOAD_TIGHTEST, &plan);
            used = plim__min_i64(used, plim__load_used(facts, &plan));
        }
    return plim__footprint_minimum(used, plim__job_threads(facts->job));
}
