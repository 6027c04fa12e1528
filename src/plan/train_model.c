/* The model of a training: its sizes for the parts that a loader's plan allows, and its memory. */
#include "base/check.h"
#include "base/job.h"
#include "io/safetensors.h"
#include "load/loader_params.h"
#include "mem/headroom.h"
#include "nn/score.h"
#include "peers/reduce.h"
#include "plan/plan_settings.h"
#include "plan/train_plan.h"

#include <stdio.h>

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
    const bool links = settings->task == PLIM_TASK_LINK;
    const int64_t seeds = links
                              ? plim__min_i64(plim__plan_settings_places(settings), info->num_nodes)
                              : plim__load_part_seeds(info, &plan->recipe, plan->part_seeds);
    plim__model_params_t params = {
        .model = settings->model,
        .num_features = info->num_features,
        .num_outputs = plim__plan_settings_outputs(info, settings),
        .row_type = plan->recipe.row_type,
        .graph_level = graph_level,
        .training = training,
        .moments = training ? plim__optimiser_moments(&settings->optimiser) : 0,
        .workers = workers,
        .max_src = plan->slot_nodes,
        .max_edges = plan->slot_edges,
        .max_seeds = graph_level ? seeds : plim__min_i64(seeds, plan->slot_nodes),
        .columns = plim__plan_settings_columns(info, settings),
        .scorer = plim__plan_settings_scorer(settings),
    };
    const plim_stream_params_t stream = plim__plan_settings_evaluation(info, settings, PLIM_VALID);
    const plim_recipe_t evaluated = plim__load_stream_recipe(&plan->recipe, &stream);
    const int64_t evaluated_seeds = plim__load_part_seeds(info, &evaluated, plan->part_seeds);
    /* Layer i reads block num_layers-1-i, whose destinations are what the hops before it reached;
     * in a dataset of many graphs every layer computes all nodes. */
    for (int i = 0; i < num_layers && plan->recipe.num_hops > 0; i++)
        params.fanout[i] = settings->recipe.fanout[num_layers - 1 - i];
    for (int i = 0; i < num_layers; i++) {
        const int hops = plan->recipe.num_hops > 0 ? num_layers - 1 - i : 0;
        params.max_dst[i] =
            graph_level
                ? plan->slot_nodes
                : plim__max_i64(
                      most_reached(info, &plan->recipe, seeds, hops, plan->slot_nodes),
                      most_reached(info, &evaluated, evaluated_seeds, hops, plan->slot_nodes));
    }
    return params;
}

plim__decoder_params_t plim__train_decoder_params(const plim_training_t *settings, int workers)
{
    const plim__scorer_t scorer = plim__plan_settings_scorer(settings);
    return (plim__decoder_params_t){
        .scorer = scorer,
        .width = settings->model.hidden,
        .max_pairs = scorer.kind != PLIM_DECODER_DOT ? plim__plan_settings_pairs(settings) : 0,
        .training = true,
        .workers = workers};
}

plim__model_params_t plim__train_weights_params(const plim_dataset_info_t *info,
                                                const plim_training_t *settings)
{
    plim__model_params_t params = {.model = settings->model,
                                   .num_features = info->num_features,
                                   .num_outputs = plim__plan_settings_outputs(info, settings),
                                   .row_type = info->feature_type,
                                   .workers = 1,
                                   .max_src = 1,
                                   .max_edges = 1,
                                   .max_seeds = 1,
                                   .columns = plim__plan_settings_columns(info, settings),
                                   .scorer = plim__plan_settings_scorer(settings)};
    for (int i = 0; i < settings->model.num_layers; i++)
        params.max_dst[i] = 1;
    return params;
}

plim__train_scratch_t plim__train_scratch_carve(plim__arena_t *arena,
                                                const plim__model_params_t *params,
                                                const plim_training_t *settings)
{
    plim__train_scratch_t scratch = {.group = NULL};
    scratch.doutputs =
        plim__arena_carve(arena, (size_t)params->max_seeds,
                          plim__mul_saturating_size((size_t)params->num_outputs, sizeof(float)), 1);
    scratch.buffers = plim__arena_carve(arena, plim__model_buffers(params), sizeof(float), 1);
    if (params->training && settings->shares > 1)
        scratch.group = plim__arena_carve(arena, plim__model_weights(params), sizeof(float), 1);
    if (settings->task != PLIM_TASK_LINK)
        return scratch;
    float **const of_pairs[] = {&scratch.scores, &scratch.labels, &scratch.dscores};
    for (size_t i = 0; i < sizeof of_pairs / sizeof of_pairs[0]; i++)
        *of_pairs[i] =
            plim__arena_carve(arena, (size_t)plim__plan_settings_pairs(settings), sizeof(float), 1);
    return scratch;
}

enum {
    IN_START = 1 << PLIM_PHASE_START,
    IN_CHECKPOINT = 1 << PLIM_PHASE_CHECKPOINT,
    ONCE_MADE = 1 << PLIM_PHASE_TRAIN | 1 << PLIM_PHASE_EVALUATE | IN_CHECKPOINT
};

/* Bytes of the sum over shares, and of its exchange with other ranks. */
static int64_t shares_bytes(const plim_job_t *job, const plim_training_t *settings,
                            const plim__model_params_t *params)
{
    if (settings->shares == 1)
        return 0;
    return plim__cost_pages(plim__reduce_bytes_most(
        (int64_t)plim__model_weights(params), settings->shares, job->core->transport.num_ranks));
}

/* The first step touches the activations, the first evaluation the scores; they stay. */
int64_t plim__train_model_cost(const plim_job_t *job, const plim_dataset_info_t *info,
                               const plim_training_t *settings, const plim__load_plan_t *plan,
                               bool training,
                               plim__plan_account_t accounts_out[PLIM__MODEL_ACCOUNTS],
                               int *num_accounts_out)
{
    const plim__model_params_t params =
        plim__train_model_params(info, settings, plan, training, plan->workers);
    plim__arena_t scratch = plim__arena_counting();
    (void)plim__train_scratch_carve(&scratch, &params, settings);
    const int tensors = (1 + params.moments) * plim__model_tensors(&params);
    const int64_t model = plim__cost_pages(plim__model_estimate(&params));
    const plim__decoder_params_t decoder = plim__train_decoder_params(settings, plan->workers);
    const int64_t decoding =
        training && decoder.max_pairs > 0 ? plim__cost_pages(plim__decoder_estimate(&decoder)) : 0;
    const int64_t activations =
        plim__min_i64(plim__cost_pages(plim__model_activations(&params)), model);
    const struct {
        const char *name;
        int64_t bytes;
        unsigned phases;
    } entries[PLIM__MODEL_ACCOUNTS] = {
        {"weights and optimiser", model - activations, ONCE_MADE},
        {"activations", activations, ONCE_MADE},
        {"threads", plim__cost_pages(plim__team_estimate(plan->workers)), ONCE_MADE | IN_START},
        {"evaluation",
         settings->task == PLIM_TASK_LINK
             ? 0
             : plim__cost_pages(plim__score_estimate(plim__training_metric(info, settings),
                                                     plim__load_largest_split(info),
                                                     params.num_outputs, settings->shares)),
         ONCE_MADE},
        {"checkpoint", plim__cost_pages(plim__safetensors_estimate(tensors)), IN_CHECKPOINT},
        {"activations", plim__add_saturating_i64(plim__cost_pages(scratch.used), decoding),
         ONCE_MADE},
        {"shares", training ? shares_bytes(job, settings, &params) : 0, ONCE_MADE},
        {"activations", plim__cost_pages(PLIM__TRAINER_BYTES), ONCE_MADE | IN_START},
    };
    int64_t sum = 0;
    int count = 0;
    for (int i = 0; i < PLIM__MODEL_ACCOUNTS; i++) {
        sum = plim__add_saturating_i64(sum, entries[i].bytes);
        if (accounts_out == NULL || entries[i].bytes == 0)
            continue;
        plim__plan_account_t *account = &accounts_out[count++];
        (void)snprintf(account->name, sizeof account->name, "%s", entries[i].name);
        account->bytes = entries[i].bytes;
        for (int phase = 0; phase < PLIM_PHASES; phase++)
            account->phase[phase] = (entries[i].phases >> phase & 1) != 0 ? entries[i].bytes : 0;
    }
    if (accounts_out != NULL)
        *num_accounts_out = count;
    return sum;
}
