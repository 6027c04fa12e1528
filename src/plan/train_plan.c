/*
 * The plan of a whole run: the loader's plan with the model as its client, so that whether it fits,
 * and the minimum line, are found as for a loader alone; and what prediction takes afterwards.
 */
#include "plan/train_plan.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "infer/exact.h"
#include "infer/link_scores.h"
#include "load/loader_params.h"
#include "load/seeds.h"
#include "mem/headroom.h"
#include "mem/size_text.h"
#include "nn/score.h"
#include "peers/peers.h"
#include "plan/load_plan.h"
#include "plan/plan_settings.h"
#include "plan/run_settings.h"
#include "source/offsets.h"
#include "source/weight_sums.h"

#include <stdio.h>
#include <string.h>

/* Buffer of predictions on their way to the file. */
#define OUTPUT_BYTES (((size_t)128 << 10) + PLIM__PAGE)

/* Small accounts of the ledger, and the name that users see. */
static const char *const names[][2] = {
    {"meter", "process"},
    {"dataset", "process"},
    {"job", "process"},
    {"plan", "process"},
};

/* The account that users see under that name. */
static plim__plan_account_t *account_of(plim__train_plan_t *plan, const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i][0]) == 0)
            name = names[i][1];
    return plim__plan_account(plan->accounts, &plan->num_accounts, name);
}

/* Adds accounts to the plan's, phase by phase, under the names that users see. */
static void add_accounts(plim__train_plan_t *plan, const plim__plan_account_t *accounts, int count)
{
    for (int i = 0; i < count; i++) {
        plim__plan_account_t *account = account_of(plan, accounts[i].name);
        for (int phase = 0; phase < PLIM_PHASES; phase++)
            account->phase[phase] =
                plim__add_saturating_i64(account->phase[phase], accounts[i].phase[phase]);
    }
}

/* Adds bytes of one phase to the account of that name. */
static void add_bytes(plim__train_plan_t *plan, const char *name, plim_phase_t phase, int64_t bytes)
{
    plim__plan_account_t *account = account_of(plan, name);
    account->phase[phase] = plim__add_saturating_i64(account->phase[phase], bytes);
}

/* Sums the phases; the total is the highest of them. Prediction does not count where it is past the
 * line: training fits without it. */
static void sum_phases(plim__train_plan_t *plan)
{
    int kept = 0;
    memset(plan->phase, 0, sizeof plan->phase);
    for (int i = 0; i < plan->num_accounts; i++) {
        plim__plan_account_t account = plan->accounts[i];
        account.bytes = 0;
        for (int phase = 0; phase < PLIM_PHASES; phase++) {
            account.bytes = plim__max_i64(account.bytes, account.phase[phase]);
            plan->phase[phase] = plim__add_saturating_i64(plan->phase[phase], account.phase[phase]);
        }
        if (account.bytes > 0)
            plan->accounts[kept++] = account;
    }
    plan->num_accounts = kept;
    plan->peak_phase = PLIM_PHASE_START;
    for (int phase = 0; phase < PLIM_PHASES; phase++)
        if (plan->phase[phase] > plan->phase[plan->peak_phase] &&
            (phase != PLIM_PHASE_PREDICT || plan->phase[phase] <= plan->line))
            plan->peak_phase = (plim_phase_t)phase;
    plan->total = plan->phase[plan->peak_phase];
}

plim_status_t plim__train_check_ranks(const plim_job_t *job, const plim_training_t *training)
{
    const int num_ranks = job->core->transport.num_ranks;
    if (num_ranks <= training->shares)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "%d ranks, but batches have %lld share%s, and each rank computes at least "
                      "one: start fewer ranks, or begin a new run with `shares` %d or more",
                      num_ranks, (long long)training->shares, training->shares == 1 ? "" : "s",
                      num_ranks);
}

plim_job_t plim__train_job(const plim_job_t *job)
{
    plim_job_t own = *job;
    if (job->core->transport.rank > 0) {
        own.log = NULL;
        own.progress = NULL;
    }
    return own;
}

/* The fewer of two numbers of seeds, 0 being all. */
static int64_t fewer(int64_t a, int64_t b)
{
    return a > 0 && b > 0 ? plim__min_i64(a, b) : plim__max_i64(a, b);
}

/* The seeds of a batch's largest share; 0: of all. A share of links is planned as a batch. */
static int64_t share_seeds(const plim_training_t *training)
{
    return training->shares > 1 && training->task != PLIM_TASK_LINK
               ? (training->recipe.batch_size - 1) / training->shares + 1
               : 0;
}

int64_t plim__train_part_seeds(const plim_dataset_info_t *info, const plim_training_t *training,
                               int64_t wanted)
{
    return plim__load_part_seeds(info, &training->recipe, fewer(wanted, share_seeds(training)));
}

/* Seeds in a part as params and settings ask for, 0: whole batches. Shares are the first cut. */
static int64_t wanted_seeds(const plim_plan_params_t *params, const plim_training_t *training)
{
    return fewer(fewer(params->part_seeds, training->microbatch), share_seeds(training));
}

/* Bytes of the team and the open run, which are there before the loader. */
static int64_t early_bytes(int workers)
{
    return plim__cost_pages(plim__team_estimate(workers)) + plim__cost_pages(PLIM__TRAINER_BYTES);
}

/* What a plan is made for: the context of the loader's client. */
typedef struct use {
    const plim_job_t *job;
    const plim_dataset_info_t *info;
    const plim_training_t *training;
    bool trains; /* else it evaluates batches */
    bool quiet;
} use_t;

static int64_t model_bytes(const void *context, const plim__load_plan_t *plan)
{
    const use_t *use = context;
    return plim__train_model_cost(use->job, use->info, use->training, plan, use->trains, NULL,
                                  NULL);
}

int64_t plim__train_model_bytes(const plim_job_t *job, const plim_dataset_info_t *info,
                                const plim_training_t *training, const plim__train_plan_t *plan)
{
    plim_training_t settings = *training;
    settings.model.recompute = plan->recompute;
    return plim__train_model_cost(job, info, &settings, &plan->load, true, NULL, NULL);
}

/* What would make it fit besides memory; plan/advise.c adds other settings for training. */
static const char *remedies_for(const use_t *use)
{
    const plim_model_t *model = &use->training->model;
    if (!use->trains)
        return plim__plan_settings_draws(use->info, use->training) &&
                       use->training->temporal == PLIM_TEMPORAL_NONE
                   ? ", or use `exact`, which works in parts of any size"
                   : "";
    if (use->training->eval_fanout[0] != 0)
        return use->training->temporal == PLIM_TEMPORAL_NONE
                   ? ", or use a smaller `eval_fanout`, or `eval_exact` instead of it"
                   : ", or use a smaller `eval_fanout`";
    if (use->training->task == PLIM_TASK_LINK)
        return "";
    return model->norm == PLIM_NORM_BATCH ? ", or use `norm` layer: batch norm needs whole batches"
                                          : "";
}

/* Makes `load` the plan of the loader alone. */
static void separate(plim__load_plan_t *load)
{
    int64_t held = 0, own = 0;
    for (int i = 0; i < load->num_accounts; i++)
        *(i < load->num_held ? &held : &own) += load->accounts[i].bytes;
    load->total = held + plim__max_i64(own, load->start);
    load->minimum = plim__min_i64(load->minimum, load->total);
}

/* All accounts but prediction's. `load` plans loader and model as one. */
static void gather_accounts(const use_t *use, const plim__load_plan_t *load,
                            plim__train_plan_t *plan)
{
    plim__plan_account_t accounts[PLIM__MODEL_ACCOUNTS];
    int count;
    (void)plim__train_model_cost(use->job, use->info, use->training, load, use->trains, accounts,
                                 &count);
    add_accounts(plan, load->accounts, load->num_accounts);
    add_accounts(plan, accounts, count);
    int64_t admission = load->start;
    for (int i = load->num_held; i < load->num_accounts; i++)
        admission -= load->accounts[i].phase[PLIM_PHASE_START];
    add_bytes(plan, "admission", PLIM_PHASE_START, admission);
}

/* The model as the client of the loader's planner. It points into itself. */
typedef struct model_client {
    plim_training_t again; /* the training with layers' inputs computed again */
    use_t tighter;         /* which does that */
    plim_stream_params_t stream;
    plim_recipe_t recipe;
    plim_links_t links;
    plim_stream_params_t training_stream; /* of links */
    plim__load_client_t load;
} model_client_t;

/* Evaluation with batch norm uses running statistics, so it may work on parts of batches. */
static plim_status_t describe_client(const use_t *use, const plim_dataset_t *dataset, bool reads,
                                     model_client_t *client)
{
    const plim_training_t *training = use->training;
    const bool links = training->task == PLIM_TASK_LINK;
    const plim__load_cut_by_t cut_by = !use->trains ? PLIM__CUT_BY_PLAN
                                       : training->model.norm == PLIM_NORM_BATCH || links
                                           ? PLIM__CUT_NEVER
                                           : PLIM__CUT_AS_NOMINAL;
    const bool can_be_tighter = use->trains && !training->model.recompute;
    *client = (model_client_t){
        .again = *training,
        .tighter = *use,
        .stream = plim__plan_settings_evaluation(use->info, training, PLIM_VALID),
        .recipe = plim__plan_settings_recipe(use->info, training),
    };
    if (use->trains)
        client->training_stream = plim__plan_settings_stream(training, &client->links);
    client->again.model.recompute = true;
    client->tighter.training = &client->again;
    const bool draws_more = use->trains && client->stream.num_hops >= 0;
    client->load =
        (plim__load_client_t){.bytes = model_bytes,
                              .context = use,
                              .tighter = can_be_tighter ? &client->tighter : NULL,
                              .early = early_bytes,
                              .cut_by = cut_by,
                              .quiet = use->quiet,
                              .evaluation = draws_more ? &client->stream : NULL,
                              .what = use->trains ? "training on batches" : "evaluation on batches",
                              .one = true,
                              .remedies = remedies_for(use)};
    if (client->recipe.skip_loops)
        PLIM_TRY(plim__statistics_loops(use->job, dataset, reads));
    if (!use->trains)
        client->recipe = plim__load_stream_recipe(&client->recipe, &client->stream);
    return PLIM_OK;
}

/* Adds the stream of links to the params of a plan. */
static plim_plan_params_t with_links(const plim_plan_params_t *params, const model_client_t *client)
{
    plim_plan_params_t own = *params;
    if (client->training_stream.links != NULL) {
        own.streams = &client->training_stream;
        own.num_streams = 1;
    }
    return own;
}

static plim_status_t plan_for(const use_t *use, const plim_dataset_t *dataset,
                              const plim_plan_params_t *given, plim__train_plan_t *plan_out)
{
    plim__train_plan_t plan = {0};
    model_client_t client;
    bool tight;
    PLIM_TRY(describe_client(use, dataset, !use->quiet && !given->no_reading, &client));
    const plim_plan_params_t params = with_links(given, &client);
    PLIM_TRY(plim__load_plan_for(use->job, dataset, &client.recipe, &params, &client.load,
                                 &plan.load, &tight));
    if (tight)
        use = &client.tighter;
    plan.line = plan.load.line;
    plan.minimum = plan.load.minimum;
    plan.recompute = use->training->model.recompute;
    const plim__model_params_t weights =
        plim__train_weights_params(plim_dataset_info(dataset), use->training);
    plan.gradient_bytes = (int64_t)(plim__model_weights(&weights) * sizeof(float));
    gather_accounts(use, &plan.load, &plan);
    plan.expect = plan.load.expect;
    sum_phases(&plan);
    plan.model_bytes = model_bytes(use, &plan.load);
    separate(&plan.load);
    plan.load.checkpoint_bytes = plan.phase[PLIM_PHASE_CHECKPOINT] - plan.phase[PLIM_PHASE_TRAIN] +
                                 plim__cost_pages(PLIM__TRAINER_BYTES);
    if (tight && !use->quiet)
        plim__log(use->job, PLIM_LOG_INFO,
                  "backward computes layers' inputs again (recompute), so that %s fit; the result "
                  "is the same to the bit",
                  plan.load.part_seeds > 0 ? "larger parts of batches" : "whole batches");
    *plan_out = plan;
    return PLIM_OK;
}

static int64_t weight_bytes(const plim_dataset_info_t *info, const plim_training_t *training)
{
    const plim__model_params_t params = plim__train_weights_params(info, training);
    return plim__cost_pages(plim__model_estimate(&params));
}

/* A pass over the graph: exact evaluation between epochs, or prediction after training, a process
 * of its own under the same line. */
typedef struct pass_cost {
    int64_t minimum; /* line under which it runs; 0: not known */
    plim__exact_cost_t exact;
} pass_cost_t;

/* Bytes held before the buffers, besides those on the ledger already. */
static int64_t before_exact(const plim_dataset_t *dataset, const plim_training_t *training)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim__columns_t columns = plim__plan_settings_columns(info, training);
    return weight_bytes(info, training) + plim__cost_pages(plim__team_estimate(1)) +
           plim__cost_pages(OUTPUT_BYTES) +
           plim__cost_pages(plim__exact_cost_first(dataset, &training->model, &columns));
}

int64_t plim__predict_exact_bytes(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_training_t *training)
{
    const int64_t line = plim__ledger_line(job->ledger);
    const int64_t available = line - plim__plan_fixed(job, 0) -
                              plim__footprint_reserve(line, plim__job_threads(job)) -
                              before_exact(dataset, training);
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim__columns_t columns = plim__plan_settings_columns(info, training);
    plim__exact_cost_t cost;
    return plim__exact_cost(job, info, &training->model, &columns,
                            plim__plan_settings_outputs(info, training), available, &cost)
               ? cost.bytes
               : 0;
}

/* Bytes of all accounts that the plan has in the phase so far, without the reserve. */
static int64_t sum_entered(plim__train_plan_t *plan, plim_phase_t phase)
{
    int64_t sum = -account_of(plan, "reserve")->phase[phase];
    for (int i = 0; i < plan->num_accounts; i++)
        sum = plim__add_saturating_i64(sum, plan->accounts[i].phase[phase]);
    return sum;
}

/* A phase that takes more than training may need a larger reserve. */
static void enter_reserve(const plim_job_t *job, plim__train_plan_t *plan, plim_phase_t phase)
{
    const int64_t sum = sum_entered(plan, phase);
    const int64_t reserve = plim__footprint_minimum(sum, plim__job_threads(job)) - sum;
    int64_t *entered = &account_of(plan, "reserve")->phase[phase];
    *entered = plim__max_i64(*entered, reserve);
}

/* Enters an exact pass over all nodes into a phase, at its minimum where it does not fit. */
static void enter_exact(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, plim_phase_t phase,
                        plim__train_plan_t *plan, pass_cost_t *cost)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int64_t outputs = plim__plan_settings_outputs(info, training);
    const int64_t weights = weight_bytes(info, training);
    const plim__columns_t columns = plim__plan_settings_columns(info, training);
    const int64_t first =
        plim__cost_pages(plim__exact_cost_first(dataset, &training->model, &columns));
    const int64_t sums =
        columns.edge_weights ? plim__cost_pages(plim__weight_sums_estimate(info->num_nodes)) : 0;
    const int64_t team = plim__cost_pages(plim__team_estimate(1));
    const int64_t exact_minimum = plim__cost_pages(
        plim__exact_cost_minimum(job, dataset, &training->model, &columns, outputs, false));
    const int threads = plim__job_threads(job);
    const int64_t before = sum_entered(plan, phase) + before_exact(dataset, training);
    const int64_t available = plan->line - before - plim__footprint_reserve(plan->line, threads);
    cost->minimum =
        plim__footprint_minimum(plim__add_saturating_i64(before - first, exact_minimum), threads);
    if (!plim__exact_cost(job, info, &training->model, &columns, outputs, available, &cost->exact))
        cost->exact = (plim__exact_cost_t){.bytes = exact_minimum - first};
    add_bytes(plan, "weights and optimiser", phase, weights);
    add_bytes(plan, "threads", phase, team);
    add_bytes(plan, "offsets", phase, first - sums);
    if (sums > 0)
        add_bytes(plan, "edge columns", phase, sums);
    add_bytes(plan, "evaluation", phase,
              plim__add_saturating_i64(cost->exact.bytes, plim__cost_pages(OUTPUT_BYTES)));
    enter_reserve(job, plan, phase);
}

/* Bytes of an exact evaluation besides the pass: the splits with their labels, and scores. */
static int64_t score_bytes(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim_training_t *training)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int64_t outputs = plim__plan_settings_outputs(info, training);
    const size_t label = info->label_kind == PLIM_LABELS_CLASSES
                             ? sizeof(int64_t)
                             : (size_t)info->num_targets * sizeof(float);
    const plim__scorer_t scorer = plim__plan_settings_scorer(training);
    if (training->task == PLIM_TASK_LINK)
        return plim__cost_pages(
            plim__link_scores_estimate(job, training->num_valid_pairs, training->num_pair_types,
                                       training->valid_shared, outputs, &scorer));
    int64_t seeds = 0, sum = plim__cost_pages(plim__seeds_estimate(job, dataset));
    for (int split = 0; split < 3; split++) {
        seeds += info->num_split[split];
        sum = plim__add_saturating_i64(
            sum, plim__cost_pages(plim__score_estimate(plim__training_metric(info, training),
                                                       info->num_split[split], outputs, 1)));
    }
    return plim__add_saturating_i64(
        sum, plim__cost_pages(plim__mul_saturating_size((size_t)seeds, sizeof(int64_t) + label)));
}

/*
 * Replaces the phase of evaluation by that of an exact one. Loader and model are released for it,
 * so it holds what prediction does, and the run stays open.
 */
static plim_status_t plan_evaluation(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_training_t *training, plim__train_plan_t *plan,
                                     plim__exact_cost_t *exact_out)
{
    const plim_phase_t phase = PLIM_PHASE_EVALUATE;
    pass_cost_t cost;
    char line[PLIM__SIZE_TEXT];
    for (int i = 0; i < plan->num_accounts; i++)
        plan->accounts[i].phase[phase] = plan->accounts[i].phase[PLIM_PHASE_PREDICT];
    add_bytes(plan, "activations", phase, plim__cost_pages(PLIM__TRAINER_BYTES));
    add_bytes(plan, "evaluation", phase, score_bytes(job, dataset, training));
    enter_exact(job, dataset, training, phase, plan, &cost);
    plan->evaluation_disk_bytes = cost.exact.disk;
    if (training->task == PLIM_TASK_LINK)
        plan->evaluation_disk_bytes = plim__add_saturating_i64(
            cost.exact.disk, plim__link_scores_disk(plim_dataset_info(dataset)->num_nodes,
                                                    plim__plan_settings_outputs(
                                                        plim_dataset_info(dataset), training)));
    *exact_out = cost.exact;
    plan->minimum = plim__max_i64(plan->minimum, cost.minimum);
    if (cost.minimum <= plan->line)
        return PLIM_OK;
    const long long given = plim__whole_mib(cost.minimum);
    (void)plim__fail(PLIM_ERR_BUDGET,
                     "%s: exact evaluation needs at least %lld MiB, but the memory line is %s; "
                     "raise `memory` to %lldM or more, or leave out %s",
                     plim__dataset_path(dataset), given, plim__size_text(plan->line, line), given,
                     training->task == PLIM_TASK_LINK ? "`valid_pairs`" : "`eval_exact`");
    return plim__fail_figures(PLIM_ERR_BUDGET, "line", (int64_t)given << 20, plan->line);
}

/* By batches: the highest phase of an evaluation's plan. */
static void enter_sampled(const plim_job_t *job, const plim_dataset_t *dataset,
                          const plim_training_t *training, plim__train_plan_t *plan,
                          pass_cost_t *cost)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const use_t use = {.job = job, .info = info, .training = training, .quiet = true};
    plim__train_plan_t evaluation;
    const int64_t output = plim__cost_pages(OUTPUT_BYTES);
    const plim_plan_params_t params = {.part_seeds =
                                           fewer(training->microbatch, share_seeds(training)),
                                       .memory = plan->line - output};
    if (plan_for(&use, dataset, &params, &evaluation) != PLIM_OK)
        return; /* it takes less than training, so it fits */
    cost->minimum = evaluation.minimum + output;
    for (int i = 0; i < evaluation.num_accounts; i++) {
        const plim__plan_account_t *account = &evaluation.accounts[i];
        int64_t *entered = &account_of(plan, account->name)->phase[PLIM_PHASE_PREDICT];
        *entered = plim__max_i64(*entered, account->phase[evaluation.peak_phase]);
    }
    add_bytes(plan, "evaluation", PLIM_PHASE_PREDICT, output);
}

/*
 * Adds the exact prediction of all nodes (for an MLP, or many graphs: of the largest split by
 * batches) as phase PLIM_PHASE_PREDICT, at its minimum where it does not fit, which is logged.
 */
static void add_prediction(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim_training_t *training, plim__train_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    pass_cost_t cost = {.minimum = 0};
    char line[PLIM__SIZE_TEXT];
    if (training->task == PLIM_TASK_LINK && !plim__plan_settings_draws(info, training))
        return; /* smaller than the others */
    if (!plim__plan_settings_draws(info, training) || training->temporal != PLIM_TEMPORAL_NONE)
        enter_sampled(job, dataset, training, plan, &cost);
    else
        enter_exact(job, dataset, training, PLIM_PHASE_PREDICT, plan, &cost);
    sum_phases(plan);
    const int64_t rows = info->num_graphs > 0 ? info->num_graphs : info->num_nodes;
    plan->expect.predict_disk_bytes = plim__add_saturating_i64(
        cost.exact.disk,
        plim__mul_saturating_i64(rows, plim__plan_settings_outputs(info, training) *
                                           (int64_t)sizeof(float)));
    if (cost.minimum <= plan->line)
        return;
    plim__log(job, PLIM_LOG_WARNING,
              "training fits under %s, but exact prediction of all nodes afterwards needs at least "
              "%lld MiB",
              plim__size_text(plan->line, line), (long long)plim__whole_mib(cost.minimum));
}

/* An alternative: a training that is compared, and not planned. It points into itself. */
typedef struct alternative {
    use_t use;
    model_client_t client;
    plim_plan_params_t params;
} alternative_t;

static plim_status_t describe_alternative(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const plim_training_t *training,
                                          const plim_plan_params_t *params,
                                          const plim__probe_t *known, alternative_t *other)
{
    other->use = (use_t){.job = job,
                         .info = plim_dataset_info(dataset),
                         .training = training,
                         .trains = true,
                         .quiet = true};
    other->params = *params;
    other->params.part_seeds = wanted_seeds(params, training);
    PLIM_TRY(describe_client(&other->use, dataset, false, &other->client));
    other->params = with_links(&other->params, &other->client);
    other->client.load.any_cut = true;
    other->client.load.known = known;
    return PLIM_OK;
}

bool plim__train_fits(const plim_job_t *job, const plim_dataset_t *dataset,
                      const plim_training_t *training, const plim_plan_params_t *params,
                      const plim__probe_t *known, int64_t line, bool whole)
{
    alternative_t other;
    return describe_alternative(job, dataset, training, params, known, &other) == PLIM_OK &&
           plim__load_fits(job, dataset, &other.client.recipe, &other.params, &other.client.load,
                           line, whole);
}

int64_t plim__train_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim_training_t *training, const plim_plan_params_t *params,
                            const plim__probe_t *known, bool whole)
{
    alternative_t other;
    if (describe_alternative(job, dataset, training, params, known, &other) != PLIM_OK)
        return 0;
    return plim__load_minimum_for(job, dataset, &other.client.recipe, &other.params,
                                  &other.client.load, whole);
}

plim_status_t plim__train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_training_t *training, const plim_plan_params_t *params,
                               plim__train_plan_t *plan_out)
{
    const use_t use = {
        .job = job, .info = plim_dataset_info(dataset), .training = training, .trains = true};
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    plim__train_plan_t plan;
    plim__exact_cost_t exact;
    PLIM_TRY(plim__plan_settings_check(dataset, training));
    if (params != NULL)
        wanted = *params;
    if (training->task == PLIM_TASK_LINK && wanted.num_streams > 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "a training of links has one stream: leave out `streams`");
    wanted.part_seeds = wanted_seeds(&wanted, training);
    PLIM_TRY(plan_for(&use, dataset, &wanted, &plan));
    if (training->eval_exact)
        PLIM_TRY(plan_evaluation(job, dataset, training, &plan, &exact));
    plim__train_expect(dataset, training, training->eval_exact ? &exact : NULL, &plan);
    add_prediction(job, dataset, training, &plan);
    *plan_out = plan;
    return PLIM_OK;
}

plim_status_t plim__evaluation_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim_training_t *training, plim__train_plan_t *plan_out)
{
    const use_t use = {.job = job, .info = plim_dataset_info(dataset), .training = training};
    const plim_plan_params_t params = {.part_seeds =
                                           fewer(training->microbatch, share_seeds(training))};
    PLIM_TRY(plim__plan_settings_check(dataset, training));
    return plan_for(&use, dataset, &params, plan_out);
}

/*
 * Plans on all ranks, which must have the same settings and dataset. They must cut batches alike,
 * so all take the smallest cut that any of them plans, and plan again until no rank must cut
 * smaller; an error of one is that of all. The peers' memory is on the ledger meanwhile, so plans
 * count it.
 */
static plim_status_t plan_together(const plim_job_t *job, const plim_dataset_t *dataset,
                                   const plim_training_t *training,
                                   const plim_plan_params_t *params, plim__train_plan_t *plan_out)
{
    plim_plan_params_t wanted = *params;
    plim__peers_t *peers;
    plim_status_t status;
    bool same = false;
    PLIM_TRY(plim__peers_open(job, &peers));
    status = plim__run_settings_agree(peers, PLIM__STAGE_START, plim_dataset_info(dataset),
                                      training, "");
    while (status == PLIM_OK && !same) {
        int64_t cut[3] = {0}, least[3], greatest[3];
        status = plim__train_check_ranks(job, training);
        if (status == PLIM_OK)
            status = plim__train_plan(job, dataset, training, &wanted, plan_out);
        if (status == PLIM_OK) {
            cut[0] = plim__train_part_seeds(plim_dataset_info(dataset), training,
                                            plan_out->load.part_seeds);
            cut[1] = plan_out->load.part_nodes;
            cut[2] = plan_out->load.part_edges;
        }
        status = plim__peers_agree(peers, PLIM__STAGE_PLAN, status, 3, cut, least, greatest);
        if (status != PLIM_OK)
            break;
        same = memcmp(least, greatest, sizeof least) == 0;
        wanted.part_seeds = least[0];
        wanted.part_nodes = least[1];
        wanted.part_edges = least[2];
    }
    plim__peers_close(peers);
    return status;
}

PLIM_API plim_status_t plim_train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim_training_t *training,
                                       const plim_plan_params_t *params, plim_plan_t **plan_out)
{
    PLIM_ENTER(job);
    plim_training_t settings = PLIM_TRAINING_INIT;
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    char advice[PLIM__ADVICE_TEXT];
    const plim_job_t own = plim__train_job(job);
    plim_plan_t *plan;
    PLIM_TRY(plim__plan_settings_take(job, dataset, training, &settings));
    if (params != NULL)
        PLIM_TRY(plim__params_take(params, "plim_plan_params_t", &wanted, sizeof wanted));
    PLIM_TRY(plim__plan_create(job, &plan));
    plim_status_t status = plan_together(&own, dataset, &settings, &wanted, &plan->numbers);
    if (status == PLIM_OK) {
        plan->trains = true;
        *plan_out = plan;
        return PLIM_OK;
    }
    if (status == PLIM_ERR_BUDGET && !wanted.no_advice) {
        plim__failure_t failure;
        plim__fail_save(&failure);
        plim__train_advice(job, dataset, &settings, &wanted, advice);
        (void)plim__fail(status, "%s%s", failure.message, advice);
        status = plim__fail_figures(status, failure.limit, failure.needed, failure.available);
    }
    plim_plan_release(plan);
    return status;
}
