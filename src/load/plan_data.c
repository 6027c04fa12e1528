/* The plan object and its public figures. */
#include "load/plan_data.h"

#include "base/fail.h"
#include "base/params.h"
#include "base/process.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

plim__plan_account_t *plim__plan_account(plim__plan_account_t accounts[PLIM__PLAN_ACCOUNTS],
                                         int *count, const char *name)
{
    int i = 0;
    while (i < *count && strcmp(accounts[i].name, name) != 0)
        i++;
    if (i == PLIM__PLAN_ACCOUNTS)
        return &accounts[i - 1];
    if (i == *count) {
        accounts[(*count)++] = (plim__plan_account_t){.bytes = 0};
        (void)snprintf(accounts[i].name, sizeof accounts[i].name, "%s", name);
    }
    return &accounts[i];
}

plim_status_t plim__plan_create(const plim_job_t *job, plim_plan_t **plan_out)
{
    const size_t bytes = plim__arena_carve_bytes(1, sizeof(plim_plan_t), 1);
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "plan", bytes, &arena));
    plim_plan_t *plan = plim__arena_carve(&arena, 1, sizeof *plan, 1);
    plan->process = getpid();
    plan->arena = arena;
    plan->job = *job;
    plim_job_retain(job);
    *plan_out = plan;
    return PLIM_OK;
}

plim_status_t plim__plan_check_dataset(const plim_plan_t *plan, const plim_dataset_info_t *info)
{
    const char *planned = plan->numbers.load.fingerprint;
    return strcmp(planned, info->fingerprint) == 0
               ? PLIM_OK
               : plim__fail(PLIM_ERR_USAGE,
                            "the plan is for the dataset of fingerprint %s, and this one has %s: "
                            "plan again",
                            planned, info->fingerprint);
}

PLIM_API void plim_plan_release(plim_plan_t *plan)
{
    if (plan == NULL || !plim__process_is(plan->process))
        return;
    const plim_job_t job = plan->job;
    plim__arena_t arena = plan->arena;
    plim__arena_destroy(&arena);
    plim_job_release(&job);
}

static plim_place_t place(bool in_memory)
{
    return in_memory ? PLIM_PLACE_MEMORY : PLIM_PLACE_DISK;
}

static void give_loader(const plim__load_plan_t *load, plim_plan_info_t *info)
{
    info->topology = place(load->topology_in_memory);
    info->rows = place(load->rows_in_memory);
    info->workers = load->workers;
    info->slots = load->num_slots;
    info->list_cache_bytes = (int64_t)load->list_cache_bytes;
    info->row_cache_bytes = (int64_t)load->row_cache_bytes;
    info->window_steps = load->window_steps;
    info->window_draws = load->window_draws;
    info->window_rows = load->window_rows;
    info->ahead_draws = load->ahead_draws;
    info->slot_nodes = load->slot_nodes;
    info->slot_edges = load->slot_edges;
    info->part_seeds = load->part_seeds;
    info->part_nodes = load->part_nodes;
    info->part_edges = load->part_edges;
    info->counted = load->counted;
    info->guessed = load->guessed;
    info->io_depth = load->io_depth;
    info->io_merge_bytes = (int64_t)load->merge_distance;
    info->scratch_bytes = load->scratch_bytes;
}

static void give_expectation(const plim__expectation_t *expect, plim_plan_info_t *info)
{
    info->batch_nodes = expect->batch_nodes;
    info->batch_edges = expect->batch_edges;
    info->batch_bytes = expect->batch_bytes;
    info->epoch_steps = expect->epoch_steps;
    info->epoch_reads = expect->epoch_reads;
    info->epoch_read_bytes = expect->epoch_read_bytes;
    info->run_read_bytes = expect->run_read_bytes;
    info->disk_bytes = expect->disk_bytes;
    info->predict_disk_bytes = expect->predict_disk_bytes;
}

PLIM_API plim_status_t plim_plan_info(const plim_plan_t *plan, plim_plan_info_t *info_out)
{
    const plim__train_plan_t *all = &plan->numbers;
    const plim__load_plan_t *load = &all->load;
    PLIM_TRY(plim__output_check(info_out, "plim_plan_info_t"));
    PLIM_TRY(plim__process_check(plan->process));
    plim_plan_info_t info = {.trains = plan->trains};
    give_loader(load, &info);
    give_expectation(plan->trains ? &all->expect : &load->expect, &info);
    info.line = plan->trains ? all->line : load->line;
    info.peak = plan->trains ? all->total : load->total;
    info.minimum = plan->trains ? all->minimum : load->minimum;
    info.recompute = all->recompute;
    info.peak_phase = all->peak_phase;
    info.gradient_bytes = all->gradient_bytes;
    memcpy(info.phase_bytes, all->phase, sizeof info.phase_bytes);
    plim__output_give(info_out, &info, sizeof info);
    return PLIM_OK;
}

PLIM_API bool plim_plan_account(const plim_plan_t *plan, int index,
                                plim_plan_account_t *account_out)
{
    const plim__train_plan_t *all = &plan->numbers;
    const int count = plan->trains ? all->num_accounts : all->load.num_accounts;
    if (account_out == NULL || account_out->size == 0 || !plim__process_is(plan->process) ||
        index < 0 || index >= count)
        return false;
    const plim__plan_account_t *account =
        plan->trains ? &all->accounts[index] : &all->load.accounts[index];
    plim_plan_account_t given = {.bytes = account->bytes};
    memcpy(given.name, account->name, sizeof given.name);
    if (plan->trains)
        memcpy(given.phase_bytes, account->phase, sizeof given.phase_bytes);
    plim__output_give(account_out, &given, sizeof given);
    return true;
}
