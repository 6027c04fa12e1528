/*
 * The plan of a whole run: the loader's fitting, with what training holds beside each choice of
 * slots counted under the same line. So what fits, and the least line, are found as for a loader
 * alone.
 */
#include "plan/train_plan.h"
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
    bool trains; /* else it evaluates */
} beside_t;

static int64_t beside_bytes(const void *context, const plim_load_plan_t *plan)
{
    const beside_t *beside = context;
    return plim__train_cost(beside->job, beside->info, beside->training, plan, beside->trains, NULL,
                            NULL);
}

/* What would make it fit besides memory; none of it unless asked for. */
static const char *remedies_for(const beside_t *beside)
{
    const plim_model_t *model = &beside->training->model;
    if (!beside->trains)
        return beside->info->num_graphs == 0 && model->kind != PLIM_MLP
                   ? ", or take --exact, which works in parts of any size"
                   : "";
    if (model->norm == PLIM_NORM_BATCH)
        return ", or make batches or fan-outs smaller, or --hidden smaller; batch norm needs whole "
               "batches, layer norm (--norm layer) does not";
    if (!model->recompute)
        return ", or make batches or fan-outs smaller, or --hidden smaller, or take --recompute";
    return ", or make batches or fan-outs smaller, or --hidden smaller";
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

/* Each account in every phase, until they are told apart. */
static void sum_phases(plim_train_plan_t *plan)
{
    for (int i = 0; i < plan->num_accounts; i++)
        for (int phase = 0; phase < PLIM_PHASES; phase++)
            plan->accounts[i].phase[phase] = plan->accounts[i].bytes;
    for (int phase = 0; phase < PLIM_PHASES; phase++)
        plan->phase[phase] = plan->total;
    plan->peak_phase = PLIM_PHASE_TRAIN;
}

/* Running statistics serve evaluation with batch norm, so that it may work on parts. */
static plim_status_t plan_for(const beside_t *context, const plim_dataset_t *dataset,
                              const plim_load_wishes_t *wishes, plim_train_plan_t *plan_out)
{
    const plim_training_t *training = context->training;
    const bool whole = context->trains && training->model.norm == PLIM_NORM_BATCH;
    const plim__load_beside_t beside = {.bytes = beside_bytes,
                                        .context = context,
                                        .whole = whole,
                                        .cuts = !whole,
                                        .bits = context->trains,
                                        .what = context->trains ? "training on batches"
                                                                : "evaluation on batches",
                                        .remedies = remedies_for(context)};
    const plim_recipe_t recipe = plim__settings_recipe(context->info, training);
    plim_plan_account_t accounts[PLIM__TRAIN_ACCOUNTS];
    plim_train_plan_t plan = {0};
    int count;
    PLIM_TRY(plim__load_plan_beside(context->job, dataset, &recipe, wishes, &beside, &plan.load));
    const int64_t bytes = plim__train_cost(context->job, context->info, training, &plan.load,
                                           context->trains, accounts, &count);
    plan.total = plan.load.total;
    plan.line = plan.load.line;
    plan.least = plan.load.least;
    memcpy(plan.accounts, plan.load.accounts, sizeof plan.accounts);
    plan.num_accounts = plan.load.num_accounts;
    for (int i = 0; i < count && plan.num_accounts < PLIM_PLAN_ACCOUNTS; i++)
        plan.accounts[plan.num_accounts++] = accounts[i];
    plan.recompute = training->model.recompute;
    sum_phases(&plan);
    part_off(&plan, bytes);
    *plan_out = plan;
    return PLIM_OK;
}

/* The fewer of two numbers of seeds, 0 being all. */
static int64_t fewer(int64_t a, int64_t b)
{
    return a > 0 && b > 0 ? plim__min_i64(a, b) : plim__max_i64(a, b);
}

PLIM_API plim_status_t plim_train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim_training_t *training,
                                       const plim_load_wishes_t *wishes,
                                       plim_train_plan_t *plan_out)
{
    const beside_t context = {job, plim_dataset_info(dataset), training, true};
    plim_load_wishes_t wanted = {0};
    PLIM_TRY(plim__settings_check(dataset, training));
    if (wishes != NULL)
        wanted = *wishes;
    wanted.part_seeds = fewer(wanted.part_seeds, training->microbatch);
    return plan_for(&context, dataset, &wanted, plan_out);
}

plim_status_t plim__evaluation_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim_training_t *training, plim_train_plan_t *plan_out)
{
    const beside_t context = {job, plim_dataset_info(dataset), training, false};
    const plim_load_wishes_t wanted = {.part_seeds = training->microbatch};
    PLIM_TRY(plim__settings_check(dataset, training));
    return plan_for(&context, dataset, &wanted, plan_out);
}
