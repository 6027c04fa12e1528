/*
 * The plan of a whole run: the loader's plan with the model as its client, so that whether it fits,
 * and the minimum line, are found as for a loader alone; and what prediction takes afterwards.
 */
#include "plan/train_plan.h"

#include "base/check.h"
#include "base/job.h"
#include "infer/exact.h"
#include "io/npy.h"
#include "io/safetensors.h"
#include "load/loader_params.h"
#include "mem/headroom.h"
#include "mem/size_text.h"
#include "nn/score.h"
#include "plan/expect.h"
#include "plan/load_plan.h"
#include "plan/plan_settings.h"
#include "sample/offsets.h"

#include <stdio.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)

/* Buffer of predictions on their way to the file. */
#define OUTPUT_BYTES (((size_t)128 << 10) + PLIM__PAGE)

/* Names of the ledger and the estimates, and the names that users see. */
static const char *const names[][2] = {
    {"meter", "process"},
    {"dataset", "process"},
    {"job", "process"},
    {"plan", "process"},
    {"thread stacks", "threads"},
    {"team", "threads"},
    {"cache sets", "choosing"},
    {"list cache", "adjacency cache"},
    {"windows", "window"},
    {"workers", "slots"},
    {"i/o", "I/O"},
    {"trainer", "activations"},
};

static const char *name_of(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (strcmp(name, names[i][0]) == 0)
            return names[i][1];
    return name;
}

/* The account of that name, a new one where there is none. */
static plim__plan_account_t *account_of(plim__train_plan_t *plan, const char *name)
{
    for (int i = 0; i < plan->num_accounts; i++)
        if (strcmp(plan->accounts[i].name, name) == 0)
            return &plan->accounts[i];
    if (plan->num_accounts == PLIM__PLAN_ACCOUNTS)
        return &plan->accounts[PLIM__PLAN_ACCOUNTS - 1];
    plim__plan_account_t *account = &plan->accounts[plan->num_accounts++];
    *account = (plim__plan_account_t){.bytes = 0};
    (void)snprintf(account->name, sizeof account->name, "%s", name);
    return account;
}

/* Adds accounts to the plan's, phase by phase, under the names that users see. */
static void add_accounts(plim__train_plan_t *plan, const plim__plan_account_t *accounts, int count)
{
    for (int i = 0; i < count; i++) {
        plim__plan_account_t *account = account_of(plan, name_of(accounts[i].name));
        for (int phase = 0; phase < PLIM__PHASES; phase++)
            account->phase[phase] =
                plim__add_saturating_i64(account->phase[phase], accounts[i].phase[phase]);
    }
}

/* Adds bytes of one phase to the account of that name. */
static void add_bytes(plim__train_plan_t *plan, const char *name, plim__phase_t phase,
                      int64_t bytes)
{
    plim__plan_account_t *account = account_of(plan, name_of(name));
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
        for (int phase = 0; phase < PLIM__PHASES; phase++) {
            account.bytes = plim__max_i64(account.bytes, account.phase[phase]);
            plan->phase[phase] = plim__add_saturating_i64(plan->phase[phase], account.phase[phase]);
        }
        if (account.bytes > 0)
            plan->accounts[kept++] = account;
    }
    plan->num_accounts = kept;
    plan->peak_phase = PLIM__PHASE_START;
    for (int phase = 0; phase < PLIM__PHASES; phase++)
        if (plan->phase[phase] > plan->phase[plan->peak_phase] &&
            (phase != PLIM__PHASE_PREDICT || plan->phase[phase] <= plan->line))
            plan->peak_phase = (plim__phase_t)phase;
    plan->total = plan->phase[plan->peak_phase];
}

/* Upper bound of the destinations that the first `hops` hops around `seeds` seeds reach. */
static int64_t most_reached(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                            int64_t seeds, int hops, int64_t slot_nodes)
{
    int64_t nodes = plim__min_i64(seeds, slot_nodes);
    for (int i = 0; i < hops; i++) {
        const int64_t drawn = recipe->fanout[i] < 0
                                  ? info->max_degree
                                  : plim__min_i64(recipe->fanout[i], info->max_degree);
        nodes = plim__min_i64(plim__mul_saturating_i64(nodes, drawn + 1), slot_nodes);
    }
    return nodes;
}

plim__model_params_t plim__train_model_params(const plim_dataset_info_t *info,
                                              const plim_training_t *settings,
                                              const plim__load_plan_t *plan, bool training,
                                              int workers)
{
    const int num_layers = settings->model.num_layers;
    const bool graph_level = info->num_graphs > 0;
    const int64_t seeds = plim__load_part_seeds(info, &plan->recipe, plan->part_seeds);
    plim__model_params_t params = {
        .model = settings->model,
        .num_features = info->num_features,
        .num_outputs = plim__plan_settings_outputs(info),
        .row_type = plan->recipe.row_type,
        .graph_level = graph_level,
        .training = training,
        .moments = training ? plim__optimiser_moments(&settings->optimiser) : 0,
        .workers = workers,
        .max_src = plan->slot_nodes,
        .max_edges = plan->slot_edges,
        .max_seeds = graph_level ? seeds : plim__min_i64(seeds, plan->slot_nodes),
    };
    /* Layer i reads block num_layers-1-i, whose destinations are what the hops before it reached;
     * in a dataset of many graphs every layer computes all nodes. */
    for (int i = 0; i < num_layers && plan->recipe.num_hops > 0; i++)
        params.fanout[i] = plan->recipe.fanout[num_layers - 1 - i];
    for (int i = 0; i < num_layers; i++)
        params.max_dst[i] = graph_level
                                ? plan->slot_nodes
                                : most_reached(info, &plan->recipe, seeds,
                                               plan->recipe.num_hops > 0 ? num_layers - 1 - i : 0,
                                               plan->slot_nodes);
    return params;
}

plim__model_params_t plim__train_weights_params(const plim_dataset_info_t *info,
                                                const plim_training_t *settings)
{
    plim__model_params_t params = {.model = settings->model,
                                   .num_features = info->num_features,
                                   .num_outputs = plim__plan_settings_outputs(info),
                                   .row_type = info->feature_type,
                                   .workers = 1,
                                   .max_src = 1,
                                   .max_edges = 1,
                                   .max_seeds = 1};
    for (int i = 0; i < settings->model.num_layers; i++)
        params.max_dst[i] = 1;
    return params;
}

plim__train_scratch_t plim__train_scratch_carve(plim__arena_t *arena,
                                                const plim__model_params_t *params)
{
    plim__train_scratch_t scratch;
    scratch.doutputs =
        plim__arena_carve(arena, (size_t)params->max_seeds,
                          plim__mul_saturating_size((size_t)params->num_outputs, sizeof(float)), 1);
    scratch.buffers = plim__arena_carve(arena, plim__model_buffers(params), sizeof(float), 1);
    return scratch;
}

/* Tensors of a checkpoint: each parameter and its moments. */
static int most_tensors(const plim__model_params_t *params)
{
    return (1 + params->moments) * plim__model_tensors(params);
}

/* Bytes of the team and the open run, which are there before the loader. */
static int64_t early_bytes(int workers)
{
    return plim__cost_pages(plim__team_estimate(workers)) + plim__cost_pages(PLIM__TRAINER_BYTES);
}

enum {
    IN_START = 1 << PLIM__PHASE_START,
    IN_CHECKPOINT = 1 << PLIM__PHASE_CHECKPOINT,
    ONCE_MADE = 1 << PLIM__PHASE_TRAIN | 1 << PLIM__PHASE_EVALUATE | IN_CHECKPOINT
};

#define MODEL_ACCOUNTS 7

/* Bytes beside the loader, account by account in each phase (accounts_out may be NULL); saturates
 * at INT64_MAX. The first step touches the activations, the first evaluation the scores; they stay.
 */
static int64_t model_cost(const plim_dataset_info_t *info, const plim_training_t *settings,
                          const plim__load_plan_t *plan, bool training,
                          plim__plan_account_t *accounts_out, int *num_accounts_out)
{
    const plim__model_params_t params =
        plim__train_model_params(info, settings, plan, training, plan->workers);
    plim__arena_t scratch = plim__arena_counting();
    (void)plim__train_scratch_carve(&scratch, &params);
    const int64_t model = plim__cost_pages(plim__model_estimate(&params));
    const int64_t activations =
        plim__min_i64(plim__cost_pages(plim__model_activations(&params)), model);
    const struct {
        const char *name;
        int64_t bytes;
        unsigned phases;
    } entries[MODEL_ACCOUNTS] = {
        {"weights and optimiser", model - activations, ONCE_MADE},
        {"activations", activations, ONCE_MADE},
        {"team", plim__cost_pages(plim__team_estimate(plan->workers)), ONCE_MADE | IN_START},
        {"evaluation",
         plim__cost_pages(plim__score_estimate(plim_training_metric(info, settings),
                                               plim__load_largest_split(info), params.num_outputs)),
         ONCE_MADE},
        {"checkpoint", plim__cost_pages(plim__safetensors_estimate(most_tensors(&params))),
         IN_CHECKPOINT},
        {"trainer", plim__cost_pages(scratch.used), ONCE_MADE},
        {"trainer", plim__cost_pages(PLIM__TRAINER_BYTES), ONCE_MADE | IN_START},
    };
    int64_t sum = 0;
    int count = 0;
    for (int i = 0; i < MODEL_ACCOUNTS; i++) {
        sum = plim__add_saturating_i64(sum, entries[i].bytes);
        if (accounts_out == NULL || entries[i].bytes == 0)
            continue;
        plim__plan_account_t *account = &accounts_out[count++];
        (void)snprintf(account->name, sizeof account->name, "%s", entries[i].name);
        account->bytes = entries[i].bytes;
        for (int phase = 0; phase < PLIM__PHASES; phase++)
            account->phase[phase] = (entries[i].phases >> phase & 1) != 0 ? entries[i].bytes : 0;
    }
    if (accounts_out != NULL)
        *num_accounts_out = count;
    return sum;
}

/* What a plan is made for: the context of the loader's client. */
typedef struct use {
    const plim_job_t *job;
    const plim_dataset_info_t *info;
    const plim_training_t *training;
    bool trains; /* else it evaluates */
    bool quiet;
    const plim__probe_t *known; /* as plim__load_use_t's */
} use_t;

static int64_t model_bytes(const void *context, const plim__load_plan_t *plan)
{
    const use_t *use = context;
    return model_cost(use->info, use->training, plan, use->trains, NULL, NULL);
}

/* What would make it fit besides memory; plan/advise.c adds other settings for training. */
static const char *remedies_for(const use_t *use)
{
    const plim_model_t *model = &use->training->model;
    if (!use->trains)
        return use->info->num_graphs == 0 && model->kind != PLIM_MLP
                   ? ", or use --exact, which works in parts of any size"
                   : "";
    return model->norm == PLIM_NORM_BATCH ? ", or use --norm layer: batch norm needs whole batches"
                                          : "";
}

/* Makes `load` the plan of the loader alone, beside a model of so many bytes. */
static void separate(plim__load_plan_t *load, int64_t model)
{
    int64_t held = 0, own = 0;
    for (int i = 0; i < load->num_accounts; i++)
        *(i < load->num_held ? &held : &own) += load->accounts[i].bytes;
    load->total = held + plim__max_i64(own, load->start);
    load->line = plim__max_i64(load->line - model, load->total);
    load->minimum = plim__min_i64(load->minimum, load->total);
}

/* All accounts but prediction's. `load` plans loader and model as one. */
static void gather_accounts(const use_t *use, const plim__load_plan_t *load,
                            plim__train_plan_t *plan)
{
    plim__plan_account_t accounts[MODEL_ACCOUNTS];
    int count;
    (void)model_cost(use->info, use->training, load, use->trains, accounts, &count);
    add_accounts(plan, load->accounts, load->num_accounts);
    add_accounts(plan, accounts, count);
    int64_t choosing = load->start;
    for (int i = load->num_held; i < load->num_accounts; i++)
        choosing -= load->accounts[i].phase[PLIM__PHASE_START];
    add_bytes(plan, "choosing", PLIM__PHASE_START, choosing);
}

/* Evaluation with batch norm uses running statistics, so it may work on parts of batches. */
static plim_status_t plan_for(const use_t *use, const plim_dataset_t *dataset,
                              const plim_plan_params_t *params, plim__train_plan_t *plan_out)
{
    const plim_training_t *training = use->training;
    const bool whole = use->trains && training->model.norm == PLIM_NORM_BATCH;
    plim_training_t again = *training; /* the same with layers' inputs computed again */
    use_t tighter = *use;
    again.model.recompute = true;
    tighter.training = &again;
    const bool can_be_tighter = use->trains && !training->model.recompute;
    const plim__load_client_t client = {.bytes = model_bytes,
                                        .context = use,
                                        .tighter = can_be_tighter ? &tighter : NULL,
                                        .early = early_bytes,
                                        .whole = whole,
                                        .cuts = !whole,
                                        .any_cut = use->trains && use->quiet,
                                        .bits = use->trains,
                                        .quiet = use->quiet,
                                        .known = use->known,
                                        .what = use->trains ? "training on batches"
                                                            : "evaluation on batches",
                                        .remedies = remedies_for(use)};
    const plim_recipe_t recipe = plim__plan_settings_recipe(use->info, training);
    plim__train_plan_t plan = {0};
    bool tight;
    PLIM_TRY(plim__load_plan_for(use->job, dataset, &recipe, params, &client, &plan.load, &tight));
    if (tight)
        use = &tighter;
    plan.line = plan.load.line;
    plan.minimum = plan.load.minimum;
    plan.recompute = use->training->model.recompute;
    gather_accounts(use, &plan.load, &plan);
    plan.expect = plan.load.expect;
    sum_phases(&plan);
    if (!use->quiet)
        plim__train_expect(use->job, dataset, use->training, &plan);
    separate(&plan.load, model_bytes(use, &plan.load));
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

/* Memory and disk of the prediction after training, a process of its own under the same line. */
typedef struct predict_cost {
    int64_t minimum;    /* line under which it runs; 0: not known */
    int64_t disk_bytes; /* of layers in between and of predictions */
} predict_cost_t;

static void enter(plim__train_plan_t *plan, const char *name, int64_t bytes)
{
    add_bytes(plan, name, PLIM__PHASE_PREDICT, bytes);
}

/* Bytes held before the buffers, besides those on the ledger already. */
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
    const int64_t available = line - plim__plan_fixed(job->ledger, 0) -
                              plim__footprint_reserve(line, plim__job_threads(job)) -
                              before_exact(dataset, training);
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    int64_t bytes, disk;
    return plim__exact_cost(job, info, &training->model, plim__plan_settings_outputs(info),
                            available, &bytes, &disk)
               ? bytes
               : 0;
}

/* Bytes of an account that the plan has in the prediction phase so far. */
static int64_t entered(const plim__train_plan_t *plan, const char *name)
{
    for (int i = 0; i < plan->num_accounts; i++)
        if (strcmp(plan->accounts[i].name, name) == 0)
            return plan->accounts[i].phase[PLIM__PHASE_PREDICT];
    return 0;
}

/* All of them, without the reserve. */
static int64_t sum_entered(const plim__train_plan_t *plan)
{
    int64_t sum = -entered(plan, "reserve");
    for (int i = 0; i < plan->num_accounts; i++)
        sum = plim__add_saturating_i64(sum, plan->accounts[i].phase[PLIM__PHASE_PREDICT]);
    return sum;
}

/* Prediction that takes more than training may need a larger reserve. */
static void enter_reserve(const plim_job_t *job, plim__train_plan_t *plan)
{
    const int64_t sum = sum_entered(plan);
    const int64_t reserve = plim__footprint_minimum(sum, plim__job_threads(job)) - sum;
    enter(plan, "reserve", plim__max_i64(reserve - entered(plan, "reserve"), 0));
}

static void enter_exact(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, plim__train_plan_t *plan,
                        predict_cost_t *cost)
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

/* By batches: the highest phase of an evaluation's plan. */
static void enter_sampled(const plim_job_t *job, const plim_dataset_t *dataset,
                          const plim_training_t *training, plim__train_plan_t *plan,
                          predict_cost_t *cost)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const use_t use = {.job = job, .info = info, .training = training, .quiet = true};
    plim__train_plan_t evaluation;
    const int64_t output = plim__cost_pages(OUTPUT_BYTES);
    const plim_plan_params_t params = {.part_seeds = training->microbatch,
                                       .memory = plan->line - output};
    const int64_t rows = info->num_graphs > 0 ? info->num_graphs : info->num_nodes;
    cost->disk_bytes =
        plim__mul_saturating_i64(rows, plim__plan_settings_outputs(info) * (int64_t)sizeof(float));
    if (plan_for(&use, dataset, &params, &evaluation) != PLIM_OK)
        return; /* it takes less than training, so it fits */
    cost->minimum = evaluation.minimum + output;
    for (int i = 0; i < evaluation.num_accounts; i++) {
        const plim__plan_account_t *account = &evaluation.accounts[i];
        const int64_t there = entered(plan, account->name);
        enter(plan, account->name, plim__max_i64(account->phase[evaluation.peak_phase] - there, 0));
    }
    enter(plan, "evaluation", output);
}

/*
 * Adds the exact prediction of all nodes (for an MLP, or many graphs: of the largest split by
 * batches) as phase PLIM__PHASE_PREDICT, at its minimum where it does not fit, which is logged.
 */
static void add_prediction(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim_training_t *training, plim__train_plan_t *plan)
{
    predict_cost_t cost = {.minimum = 0};
    char line[PLIM__SIZE_TEXT];
    if (plim_dataset_info(dataset)->num_graphs > 0 || training->model.kind == PLIM_MLP)
        enter_sampled(job, dataset, training, plan, &cost);
    else
        enter_exact(job, dataset, training, plan, &cost);
    sum_phases(plan);
    plan->expect.disk_bytes = plim__add_saturating_i64(plan->expect.disk_bytes, cost.disk_bytes);
    if (cost.minimum <= plan->line)
        return;
    const int64_t mebibytes = cost.minimum / MIB + 2;
    plim__log(job, PLIM_LOG_WARNING,
              "training fits under %s, but exact prediction of all nodes afterwards needs at least "
              "%lld MiB",
              plim__size_text(plan->line, line), (long long)mebibytes);
}

/* The fewer of two numbers of seeds, 0 being all. */
static int64_t fewer(int64_t a, int64_t b)
{
    return a > 0 && b > 0 ? plim__min_i64(a, b) : plim__max_i64(a, b);
}

plim_status_t plim__train_plan_quiet(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_training_t *training,
                                     const plim_plan_params_t *params, const plim__probe_t *known,
                                     plim__train_plan_t *plan_out)
{
    const use_t use = {.job = job,
                       .info = plim_dataset_info(dataset),
                       .training = training,
                       .trains = true,
                       .quiet = true,
                       .known = known};
    plim_plan_params_t wanted = *params;
    wanted.part_seeds = fewer(wanted.part_seeds, training->microbatch);
    return plan_for(&use, dataset, &wanted, plan_out);
}

plim_status_t plim__train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_training_t *training, const plim_plan_params_t *params,
                               plim__train_plan_t *plan_out)
{
    const use_t use = {
        .job = job, .info = plim_dataset_info(dataset), .training = training, .trains = true};
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    plim__train_plan_t plan;
    PLIM_TRY(plim__plan_settings_check(dataset, training));
    if (params != NULL)
        wanted = *params;
    wanted.part_seeds = fewer(wanted.part_seeds, training->microbatch);
    PLIM_TRY(plan_for(&use, dataset, &wanted, &plan));
    add_prediction(job, dataset, training, &plan);
    *plan_out = plan;
    return PLIM_OK;
}

plim_status_t plim__evaluation_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim_training_t *training, plim__train_plan_t *plan_out)
{
    const use_t use = {.job = job, .info = plim_dataset_info(dataset), .training = training};
    const plim_plan_params_t params = {.part_seeds = training->microbatch};
    PLIM_TRY(plim__plan_settings_check(dataset, training));
    return plan_for(&use, dataset, &params, plan_out);
}
