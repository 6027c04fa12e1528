#include "plan/predict_cost.h"

#include "base/check.h"
#include "base/job.h"
#include "infer/exact.h"
#include "io/npy.h"
#include "mem/arena.h"
#include "mem/footprint.h"
#include "nn/dense.h"
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

/* What is there before the buffers: all but what is held and what grows with the line. */
static int64_t before_exact(const plim_dataset_t *dataset, const plim_training_t *training)
{
    return plim__cost_pages(plim__dense_library_bytes()) +
           weight_bytes(plim_dataset_info(dataset), training) +
           plim__cost_pages(plim__team_estimate(1)) + plim__cost_pages(OUTPUT_BYTES) +
           plim__cost_pages(plim__offsets_estimate(dataset));
}

int64_t plim__predict_exact_bytes(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_training_t *training, int64_t held)
{
    const int64_t line = plim__ledger_line(job->ledger);
    const int64_t available =
        line - (int64_t)plim__round_up((size_t)plim__max_i64(held, 0), PLIM__HELD_STEP) -
        plim__footprint_growth(line) - before_exact(dataset, training);
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

/* Where prediction takes more than training, so do its page tables. */
static void enter_tables(plim__train_plan_t *plan)
{
    int64_t sum = 0;
    for (int i = 0; i < plan->num_accounts; i++)
        sum = plim__add_saturating_i64(sum, plan->accounts[i].phase[PLIM__PHASE_PREDICT]);
    enter(plan, "kernel", plim__max_i64(plim__footprint_kernel(sum) - entered(plan, "kernel"), 0));
}

static void enter_exact(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, plim__train_plan_t *plan,
                        plim__predict_cost_t *cost)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int64_t outputs = plim__plan_settings_outputs(info);
    const int64_t library = plim__cost_pages(plim__dense_library_bytes());
    const int64_t weights = weight_bytes(info, training);
    const int64_t offsets = plim__cost_pages(plim__offsets_estimate(dataset));
    const int64_t team = plim__cost_pages(plim__team_estimate(1));
    const int64_t exact_minimum =
        plim__cost_pages(plim__exact_cost_minimum(job, dataset, &training->model, outputs, false));
    const int64_t before = plan->load.held + before_exact(dataset, training) - offsets;
    const int64_t growth = plim__footprint_growth(plan->line);
    int64_t bytes, disk = 0;
    const int64_t least = plim__add_saturating_i64(before + growth, exact_minimum);
    cost->minimum = plim__ledger_lowest(least, plan->load.spare);
    const int64_t line = cost->minimum <= plan->line ? plim__max_i64(plan->line, least) : 0;
    if (!plim__exact_cost(job, info, &training->model, outputs, line - before - growth - offsets,
                          &bytes, &disk))
        bytes = exact_minimum - offsets;
    cost->disk_bytes = plim__add_saturating_i64(
        disk, plim__mul_saturating_i64(info->num_nodes, outputs * (int64_t)sizeof(float)));
    enter(plan, "oneDNN", library);
    enter(plan, "weights and optimiser", weights);
    enter(plan, "team", team);
    enter(plan, "offsets", offsets);
    enter(plan, "evaluation", plim__add_saturating_i64(bytes, plim__cost_pages(OUTPUT_BYTES)));
    enter_tables(plan);
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
