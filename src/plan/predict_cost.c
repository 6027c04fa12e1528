#include "plan/predict_cost.h"

#include "base/check.h"
#include "base/job.h"
#include "infer/exact.h"
#include "io/npy.h"
#include "mem/arena.h"
#include "mem/footprint.h"
#include "nn/model.h"
#include "plan/load_cost.h"
#include "plan/load_plan.h"
#include "plan/plan_settings.h"
#include "plan/train_accounts.h"
#include "plan/train_plan.h"
#include "sample/offsets.h"

#include <string.h>

/* Of predictions on their way to the file. */
#define OUTPUT_BYTES (((size_t)128 << 10) + PLIM__PAGE)

/* A model that is only its parameters, as src/train/evaluate.c makes it. */
static int64_t weight_bytes(const plim_dataset_info_t *info, const plim_training_t *training)
{
    plim__model_params_t params = {.model = training->model,
                                   .num_features = info->num_features,
                                   .num_outputs = plim__plan_settings_outputs(info),
                                   .row_type = info->feature_type,
                                   .workers = 1,
                                   .max_src = 1,
                                   .max_edges = 1,
                                   .max_seeds = 1};
    for (int i = 0; i < training->model.num_layers; i++)
        params.max_dst[i] = 1;
    return plim__cost_pages(plim__model_estimate(&params));
}

static void enter(plim__train_plan_t *plan, const char *name, int64_t bytes)
{
    plim__train_accounts_enter(plan, name, PLIM__PHASE_PREDICT, bytes);
}

/* What is there before the buffers, besides what stands on the ledger already. */
static int64_t before_exact(const plim_dataset_t *dataset, const plim_training_t *training)
{
    return weight_bytes(plim_dataset_info(dataset), training) +
           plim__cost_pages(plim__team_estimate(1)) + plim__cost_pages(OUTPUT_BYTES) +
           plim__cost_pages(plim__offsets_estimate(dataset));
}

int64_t plim__predict_exact_bytes(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_training_t *training)
{
    const int64_t line = plim__ledger_line(job->ledger);
    const int64_t available = line - plim__plan_fixed(job->ledger) -
                              plim__footprint_reserve(line, plim__job_threads(job)) -
                              before_exact(dataset, training);
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    int64_t bytes, disk;
    return plim__exact_cost(job, info, &training->model, plim__plan_settings_outputs(info),
                            available, &bytes, &disk)
               ? bytes
               : 0;
}

/* What the plan has of an account already, there in every phase. */
static int64_t entered(const plim__train_plan_t *plan, const char *name)
{
    for (int i = 0; i < plan->num_accounts; i++)
        if (strcmp(plan->accounts[i].name, name) == 0)
            return plan->accounts[i].phase[PLIM__PHASE_PREDICT];
    return 0;
}

/* What prediction holds, as far as it is entered; the reserve is not counted. */
static int64_t sum_entered(const plim__train_plan_t *plan)
{
    int64_t sum = -entered(plan, "reserve");
    for (int i = 0; i < plan->num_accounts; i++)
        sum = plim__add_saturating_i64(sum, plan->accounts[i].phase[PLIM__PHASE_PREDICT]);
    return sum;
}

/* Where prediction takes more than training, its reserve may be larger. */
static void enter_reserve(const plim_job_t *job, plim__train_plan_t *plan)
{
    const int64_t sum = sum_entered(plan);
    const int64_t reserve = plim__footprint_minimum(sum, plim__job_threads(job)) - sum;
    enter(plan, "reserve", plim__max_i64(reserve - entered(plan, "reserve"), 0));
}

static void enter_exact(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, plim__train_plan_t *plan,
                        plim__predict_cost_t *cost)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int64_t outputs = plim__plan_settings_outputs(info);
    const int64_t weights = weight_bytes(info, training);
    const int64_t offsets = plim__cost_pages(plim__offsets_estimate(dataset));
    const int64_t team = plim__cost_pages(plim__team_estimate(1));
    const int64_t exact_minimum =
        plim__cost_pages(plim__exact_cost_minimum(job, dataset, &training->model, outputs, false));
    const int threads = plim__job_threads(job);
    const int64_t before = sum_entered(plan) + before_exact(dataset, training);
    const int64_t available = plan->line - before - plim__footprint_reserve(plan->line, threads);
    int64_t bytes, disk = 0;
    cost->minimum =
        plim__footprint_minimum(plim__add_saturating_i64(before - offsets, exact_minimum), threads);
    if (!plim__exact_cost(job, info, &training->model, outputs, available, &bytes, &disk))
        bytes = exact_minimum - offsets;
    cost->disk_bytes = plim__add_saturating_i64(
        disk, plim__mul_saturating_i64(info->num_nodes, outputs * (int64_t)sizeof(float)));
    enter(plan, "weights and optimiser", weights);
    enter(plan, "team", team);
    enter(plan, "offsets", offsets);
    enter(plan, "evaluation", plim__add_saturating_i64(bytes, plim__cost_pages(OUTPUT_BYTES)));
    enter_reserve(job, plan);
}

/* By batches: the plan of an evaluation, at its greatest. */
static void enter_sampled(const plim_job_t *job, const plim_dataset_t *dataset,
                          const plim_training_t *training, plim__train_plan_t *plan,
                          plim__predict_cost_t *cost)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__train_plan_t evaluation;
    const int64_t output = plim__cost_pages(OUTPUT_BYTES);
    const int64_t rows = info->num_graphs > 0 ? info->num_graphs : info->num_nodes;
    cost->disk_bytes =
        plim__mul_saturating_i64(rows, plim__plan_settings_outputs(info) * (int64_t)sizeof(float));
    if (plim__evaluation_plan_quiet(job, dataset, training, plan->line - output, &evaluation) !=
        PLIM_OK)
        return; /* with its output less than training takes, so it does fit */
    cost->minimum = evaluation.minimum + output;
    for (int i = 0; i < evaluation.num_accounts; i++) {
        const plim__plan_account_t *account = &evaluation.accounts[i];
        const int64_t there = entered(plan, account->name);
        enter(plan, account->name, plim__max_i64(account->phase[evaluation.peak_phase] - there, 0));
    }
    enter(plan, "evaluation", output);
}

void plim__predict_cost_enter(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_training_t *training, plim__train_plan_t *plan,
                              plim__predict_cost_t *cost_out)
{
    *cost_out = (plim__predict_cost_t){.minimum = 0};
    if (plim_dataset_info(dataset)->num_graphs > 0 || training->model.kind == PLIM_MLP)
        enter_sampled(job, dataset, training, plan, cost_out);
    else
        enter_exact(job, dataset, training, plan, cost_out);
}
