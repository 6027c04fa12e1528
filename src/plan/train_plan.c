/*
 * The plan of a whole run: the loader's fitting, with what training holds beside each choice of
 * slots counted under the same line. So what fits, and the least line, are found as for a loader
 * alone.
 */
#include "plan/train_plan.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "mem/size_text.h"
#include "plan/advise.h"
#include "plan/expect.h"
#include "plan/load_plan.h"
#include "plan/plan_settings.h"
#include "plan/predict_cost.h"
#include "plan/train_accounts.h"
#include "plan/train_cost.h"

#define MIB ((int64_t)1 << 20)

typedef struct beside {
    const plim_job_t *job;
    const plim_dataset_info_t *info;
    const plim_training_t *training;
    bool trains; /* else it evaluates */
    bool quiet;
    const plim__probe_t *known; /* as plim__load_beside_t's */
} beside_t;

static int64_t beside_bytes(const void *context, const plim__load_plan_t *plan)
{
    const beside_t *beside = context;
    return plim__train_cost(beside->info, beside->training, plan, beside->trains, NULL, NULL);
}

/* What would make it fit besides memory; training's are found by plim__advise_text. */
static const char *remedies_for(const beside_t *beside)
{
    const plim_model_t *model = &beside->training->model;
    if (!beside->trains)
        return beside->info->num_graphs == 0 && model->kind != PLIM_MLP
                   ? ", or take --exact, which works in parts of any size"
                   : "";
    return model->norm == PLIM_NORM_BATCH ? ", or take --norm layer: batch norm needs whole batches"
                                          : "";
}

/* The loader's part of the whole: what it would say of itself. */
static void part_off(plim__load_plan_t *load, int64_t beside)
{
    int64_t held = 0, own = 0;
    for (int i = 0; i < load->num_accounts; i++)
        *(i < load->num_held ? &held : &own) += load->accounts[i].bytes;
    load->total = held + plim__max_i64(own, load->start);
    load->line = plim__max_i64(load->line - beside, load->total);
    load->minimum = plim__min_i64(load->minimum, load->total);
}

/* All accounts but prediction's; `load` is the loader's plan, and this beside it, as one. */
static void gather_accounts(const beside_t *context, const plim__load_plan_t *load,
                            plim__train_plan_t *plan)
{
    plim__plan_account_t accounts[PLIM__TRAIN_ACCOUNTS];
    int count;
    (void)plim__train_cost(context->info, context->training, load, context->trains, accounts,
                           &count);
    plim__train_accounts_add(plan, load->accounts, load->num_accounts);
    plim__train_accounts_add(plan, accounts, count);
    int64_t choosing = load->start;
    for (int i = load->num_held; i < load->num_accounts; i++)
        choosing -= load->accounts[i].phase[PLIM__PHASE_START];
    plim__train_accounts_enter(plan, "choosing", PLIM__PHASE_START, choosing);
}

/* What comes after training, and a word where it would not fit. */
static void add_prediction(const beside_t *context, const plim_dataset_t *dataset,
                           plim__train_plan_t *plan)
{
    plim__predict_cost_t cost;
    char line[PLIM__SIZE_TEXT];
    if (!context->trains || context->quiet)
        return;
    plim__predict_cost_enter(context->job, dataset, context->training, plan, &cost);
    plan->expect.disk_bytes = plim__add_saturating_i64(plan->expect.disk_bytes, cost.disk_bytes);
    if (cost.minimum <= plan->line)
        return;
    const int64_t mebibytes = cost.minimum / MIB + 2;
    plim__log(context->job, PLIM_LOG_WARNING,
              "training fits under %s, but exact prediction of all nodes afterwards needs at least "
              "%lld MiB",
              plim__size_text(plan->line, line), (long long)mebibytes);
}

/* Running statistics serve evaluation with batch norm, so that it may work on parts. */
static plim_status_t plan_for(const beside_t *context, const plim_dataset_t *dataset,
                              const plim_plan_params_t *wishes, plim__train_plan_t *plan_out)
{
    const plim_training_t *training = context->training;
    const bool whole = context->trains && training->model.norm == PLIM_NORM_BATCH;
    plim_training_t again = *training; /* the same with layers' inputs computed again */
    beside_t tighter = *context;
    again.model.recompute = true;
    tighter.training = &again;
    const bool can_be_tighter = context->trains && !training->model.recompute;
    const plim__load_beside_t beside = {.bytes = beside_bytes,
                                        .context = context,
                                        .tighter = can_be_tighter ? &tighter : NULL,
                                        .early = plim__train_early,
                                        .whole = whole,
                                        .cuts = !whole,
                                        .any_cut = context->trains && context->quiet,
                                        .bits = context->trains,
                                        .quiet = context->quiet,
                                        .known = context->known,
                                        .what = context->trains ? "training on batches"
                                                                : "evaluation on batches",
                                        .remedies = remedies_for(context)};
    const plim_recipe_t recipe = plim__plan_settings_recipe(context->info, training);
    plim__train_plan_t plan = {0};
    bool tight;
    PLIM_TRY(plim__load_plan_beside(context->job, dataset, &recipe, wishes, &beside, &plan.load,
                                    &tight));
    if (tight)
        context = &tighter;
    plan.line = plan.load.line;
    plan.minimum = plan.load.minimum;
    plan.recompute = context->training->model.recompute;
    gather_accounts(context, &plan.load, &plan);
    plan.expect = plan.load.expect;
    add_prediction(context, dataset, &plan);
    plim__train_accounts_sum(&plan);
    if (!context->quiet)
        plim__train_expect(context->job, dataset, context->training, &plan);
    part_off(&plan.load, beside_bytes(context, &plan.load));
    if (tight && !context->quiet)
        plim__log(context->job, PLIM_LOG_INFO,
                  "layers' inputs are computed again in backward, so that %s fit; the result is "
                  "the same to the bit",
                  plan.load.part_seeds > 0 ? "larger parts of batches" : "whole batches");
    *plan_out = plan;
    return PLIM_OK;
}

/* The fewer of two numbers of seeds, 0 being all. */
static int64_t fewer(int64_t a, int64_t b)
{
    return a > 0 && b > 0 ? plim__min_i64(a, b) : plim__max_i64(a, b);
}

plim_status_t plim__train_plan_quiet(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_training_t *training,
                                     const plim_plan_params_t *wishes, const plim__probe_t *known,
                                     plim__train_plan_t *plan_out)
{
    const beside_t context = {.job = job,
                              .info = plim_dataset_info(dataset),
                              .training = training,
                              .trains = true,
                              .quiet = true,
                              .known = known};
    plim_plan_params_t wanted = *wishes;
    wanted.part_seeds = fewer(wanted.part_seeds, training->microbatch);
    return plan_for(&context, dataset, &wanted, plan_out);
}

plim_status_t plim__train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_training_t *training, const plim_plan_params_t *wishes,
                               plim__train_plan_t *plan_out)
{
    const beside_t context = {
        .job = job, .info = plim_dataset_info(dataset), .training = training, .trains = true};
    plim_plan_params_t wanted = {0};
    char message[PLIM_MESSAGE_MAX], advice[PLIM__ADVICE_TEXT];
    PLIM_TRY(plim__plan_settings_check(dataset, training));
    if (wishes != NULL)
        wanted = *wishes;
    wanted.part_seeds = fewer(wanted.part_seeds, training->microbatch);
    const plim_status_t status = plan_for(&context, dataset, &wanted, plan_out);
    if (status != PLIM_ERR_BUDGET || wanted.no_advice)
        return status;
    plim__fail_save(message, sizeof message);
    plim__advise_text(job, dataset, training, wishes, advice);
    return plim__fail(PLIM_ERR_BUDGET, "%s%s", message, advice);
}

PLIM_API plim_status_t plim_train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim_training_t *training,
                                       const plim_plan_params_t *params, plim_plan_t **plan_out)
{
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    plim_training_t known = PLIM_TRAINING_INIT;
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    plim_plan_t *plan;
    PLIM_TRY(plim__params_take(training, "plim_training_t", &known, sizeof known));
    if (params != NULL)
        PLIM_TRY(plim__params_take(params, "plim_plan_params_t", &wanted, sizeof wanted));
    PLIM_TRY(plim__plan_create(job, &plan));
    plim_status_t status = plim__train_plan(job, dataset, &known, &wanted, &plan->numbers);
    if (status != PLIM_OK) {
        plim_plan_release(plan);
        return status;
    }
    plim__plan_seal(plan, true);
    *plan_out = plan;
    return PLIM_OK;
}

plim_status_t plim__evaluation_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim_training_t *training, plim__train_plan_t *plan_out)
{
    const beside_t context = {.job = job, .info = plim_dataset_info(dataset), .training = training};
    const plim_plan_params_t wanted = {.part_seeds = training->microbatch};
    PLIM_TRY(plim__plan_settings_check(dataset, training));
    return plan_for(&context, dataset, &wanted, plan_out);
}

plim_status_t plim__evaluation_plan_quiet(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const plim_training_t *training, int64_t memory,
                                          plim__train_plan_t *plan_out)
{
    const beside_t context = {
        .job = job, .info = plim_dataset_info(dataset), .training = training, .quiet = true};
    const plim_plan_params_t wanted = {.part_seeds = training->microbatch, .memory = memory};
    return plan_for(&context, dataset, &wanted, plan_out);
}
