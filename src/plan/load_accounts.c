/*
 * What a loader's choices cost: each part's estimate, in the account that it is reserved under. The
 * layouts that estimate build the loader, too, so that the plan cannot differ from it.
 */
#include "plan/load_fit.h"

#include "base/job.h"
#include "load/loader.h"
#include "load/slots.h"
#include "mem/arena.h"
#include "mem/headroom.h"
#include "sample/access.h"
#include "sample/blocks.h"

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
    enter(plan, "list cache", all - io);
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

/* Returns the bytes that are needed only while the running sums of weights are computed, before the
 * other parts exist. */
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
        enter(plan, "admission", plim__cost_pages(plim__access_estimate(num_nodes, packed)));
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

int64_t plim__load_fixed(const plim__load_facts_t *facts)
{
    return facts->fixed + plim__footprint_reserve(facts->line, plim__job_threads(facts->job));
}

int64_t plim__load_early(const plim__load_facts_t *facts, const plim__load_plan_t *plan)
{
    return facts->client->early != NULL ? facts->client->early(plan->workers) : 0;
}

int64_t plim__load_used(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    const int64_t sum = add_accounts(facts->job, facts->dataset, plan);
    const int64_t made = plim__add_saturating_i64(sum, plim__load_client_bytes(facts, plan));
    const int64_t start = plim__add_saturating_i64(plan->start, plim__load_early(facts, plan));
    return plim__add_saturating_i64(plim__max_i64(made, start), facts->fixed);
}

int64_t plim__load_total(const plim__load_facts_t *facts, plim__load_plan_t *plan)
{
    return plim__add_saturating_i64(plim__load_used(facts, plan),
                                    plim__load_fixed(facts) - facts->fixed);
}
