#include "plan/load_cost.h"

#include "base/check.h"
#include "load/loader.h"
#include "mem/arena.h"

#include <stdio.h>

int64_t plim__cost_pages(size_t bytes)
{
    return bytes < (size_t)INT64_MAX ? (int64_t)plim__round_up(bytes, PLIM__PAGE) : INT64_MAX;
}

static int64_t times(int64_t count, size_t bytes)
{
    return plim__mul_saturating_i64(count, plim__cost_pages(bytes));
}

/* Adds an account unless it is empty. */
static void enter(plim__load_plan_t *plan, const char *name, int64_t bytes)
{
    if (bytes == 0 || plan->num_accounts == PLIM__PLAN_ACCOUNTS)
        return;
    plim__plan_account_t *account = &plan->accounts[plan->num_accounts++];
    (void)snprintf(account->name, sizeof account->name, "%s", name);
    account->bytes = bytes;
    for (int phase = 0; phase < PLIM__PHASES; phase++)
        account->phase[phase] = phase == PLIM__PHASE_PREDICT ? 0 : bytes;
}

static int64_t sum_accounts(const plim__load_plan_t *plan)
{
    int64_t sum = 0;
    for (int i = 0; i < plan->num_accounts; i++)
        sum = plim__add_saturating_i64(sum, plan->accounts[i].bytes);
    return sum;
}

/* A source's estimate holds its cache and what serves reading: two accounts. Returns what filling
 * takes besides. */
static int64_t enter_lists(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim__loader_params_t *parts, plim__load_plan_t *plan,
                           int64_t *io_bytes)
{
    const int64_t num_nodes = plim_dataset_info(dataset)->num_nodes;
    const plim__node_set_t any = {.universe = num_nodes, .count = num_nodes};
    plim__topology_disk_params_t cold = parts->lists, hot = parts->lists;
    cold.cache_bytes = 0;
    cold.all = false;
    hot.hot = &any;
    const int64_t all = plim__cost_pages(plim__topology_disk_estimate(job, dataset, &hot));
    const int64_t io = /* where all is cached there is less of it */
        plim__min_i64(plim__cost_pages(plim__topology_disk_estimate(job, dataset, &cold)), all);
    enter(plan, "list cache", all - io);
    *io_bytes = plim__add_saturating_i64(*io_bytes, io);
    return plim__cost_pages(plim__topology_disk_filling(job, &hot));
}

static int64_t enter_rows(const plim_job_t *job, const plim_dataset_t *dataset,
                          const plim__loader_params_t *parts, plim__load_plan_t *plan,
                          int64_t *io_bytes)
{
    plim__rows_disk_params_t cold = parts->rows;
    cold.cache_bytes = 0;
    cold.all = false;
    const int64_t all = plim__cost_pages(plim__rows_disk_estimate(job, dataset, &parts->rows));
    const int64_t io =
        plim__min_i64(plim__cost_pages(plim__rows_disk_estimate(job, dataset, &cold)), all);
    enter(plan, "row cache", all - io);
    *io_bytes = plim__add_saturating_i64(*io_bytes, io);
    return plim__cost_pages(plim__rows_disk_filling(job, dataset, &parts->rows));
}

/* Offsets, seeds and the choice of what is hot come first: what reading and choosing take is gone
 * before the rest is there. Returns the most that is held meanwhile. */
static int64_t enter_first(const plim_job_t *job, const plim_dataset_t *dataset,
                           plim__load_plan_t *plan)
{
    int64_t num_nodes = plim_dataset_info(dataset)->num_nodes;
    int64_t work_bytes = plim__cost_pages(plim__offsets_work_minimum(job));
    enter(plan, "seeds and labels",
          plim__add_saturating_i64(plim__cost_pages(plim__seeds_stays(dataset)), plan->list_bytes));
    enter(plan, "offsets", plim__cost_pages(plim__offsets_estimate(dataset)));
    if (plan->list_cache_bytes > 0 || plan->row_cache_bytes > 0) {
        enter(plan, "cache sets", plim__cost_pages(plim__access_estimate(num_nodes)));
        work_bytes =
            plim__max_i64(work_bytes, plim__cost_pages(plim__access_work_minimum(job, num_nodes)));
    }
    return plim__max_i64(plim__add_saturating_i64(sum_accounts(plan), work_bytes),
                         plim__cost_pages(plim__seeds_estimate(job, dataset)));
}

int64_t plim__load_cost(const plim_job_t *job, const plim_dataset_t *dataset,
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
    if (parts.windowed)
        enter(plan, "windows",
              times(PLIM__LOAD_WINDOWS, plim__load_window_estimate(&parts.window)));
    /* The caches, whose room windows may share, are filled before the others are made. */
    making = plim__max_i64(
        making, plim__add_saturating_i64(sum_accounts(plan), io_bytes + loader_bytes + filling));
    enter(plan, "slots", plim__cost_pages(plim__slots_estimate(plan, &parts)));
    enter(plan, "workers",
          plim__add_saturating_i64(times(plan->workers, plim__blocks_estimate(&parts.blocks)),
                                   loader_bytes));
    enter(plan, "i/o", io_bytes);
    enter(plan, "thread stacks", plim__cost_pages(plim__loader_threads_estimate(plan, &parts)));
    const int64_t sum = sum_accounts(plan);
    for (int i = first; i < plan->num_accounts && making > sum; i++)
        plan->accounts[i].phase[PLIM__PHASE_START] = 0;
    plan->start = plim__max_i64(sum, making);
    return sum;
}
