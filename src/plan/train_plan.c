/*
 * The plan of a whole run: the loader's fitting, with what training holds beside each choice of
 * slots counted under the same line. So what fits, and the least line, are found as for a loader
 * alone.
 */
#include "base/check.h"
#include "base/fail.h"
#include "mem/footprint.h"
#include "plan/load_plan.h"
#include "plan/settings.h"
#include "plan/train_cost.h"

#include <string.h>

typedef struct beside {
    const plim_job_t *job;
    const plim_dataset_info_t *info;
    const plim_training_t *training;
} beside_t;

static int64_t beside_bytes(const void *context, const plim_load_plan_t *plan)
{
    const beside_t *beside = context;
    return plim__train_cost(beside->job, beside->info, beside->training, plan, NULL, NULL);
}

/* What would make it fit besides memory and smaller batches; none of it unless asked for. */
static const char *remedies_for(const plim_training_t *training)
{
    const bool splits = training->model.norm != PLIM_NORM_BATCH;
    if (!splits)
        return ", or --hidden smaller; batch norm needs whole batches, layer norm (--norm layer) "
               "does not";
    if (!training->model.recompute)
        return ", or --hidden smaller, or take --recompute";
    return ", or --hidden smaller";
}

/* The loader's part of the whole: what it would say of itself. */
static void part_off(plim_train_plan_t *plan, int64_t beside)
{
    plim_load_plan_t *load = &plan->load;
    const int64_t unused =
        plim__footprint_growth(load->total) - plim__footprint_growth(load->total - beside);
    load->total -= beside + unused;
    load->line -= beside;
    load->least -= beside;
}

PLIM_API plim_status_t plim_train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim_training_t *training,
                                       const plim_load_wishes_t *wishes,
                                       plim_train_plan_t *plan_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const beside_t context = {job, info, training};
    const plim__load_beside_t beside = {.bytes = beside_bytes,
                                        .context = &context,
                                        .whole = training->model.norm == PLIM_NORM_BATCH,
                                        .what = "training on batches",
                                        .remedies = remedies_for(training)};
    plim_load_wishes_t wanted = {0};
    plim_plan_account_t accounts[PLIM__TRAIN_ACCOUNTS];
    plim_train_plan_t plan = {0};
    int count;
    PLIM_TRY(plim__settings_check(dataset, training));
    if (wishes != NULL)
        wanted = *wishes;
    if (training->microbatch > 0)
        wanted.part_seeds = training->microbatch;
    const plim_recipe_t recipe = plim__settings_recipe(info, training);
    PLIM_TRY(plim__load_plan_beside(job, dataset, &recipe, &wanted, &beside, &plan.load));
    const int64_t bytes = plim__train_cost(job, info, training, &plan.load, accounts, &count);
    plan.total = plan.load.total;
    plan.line = plan.load.line;
    plan.least = plan.load.least;
    memcpy(plan.accounts, plan.load.accounts, sizeof plan.accounts);
    plan.num_accounts = plan.load.num_accounts;
    for (int i = 0; i < count && plan.num_accounts < PLIM_PLAN_ACCOUNTS; i++)
        plan.accounts[plan.num_accounts++] = accounts[i];
    part_off(&plan, bytes);
    *plan_out = plan;
    return PLIM_OK;
}
