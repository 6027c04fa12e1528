#include "plan/train_cost.h"

#include "base/check.h"
#include "io/safetensors.h"
#include "load/loader_params.h"
#include "mem/arena.h"
#include "nn/score.h"
#include "plan/load_cost.h"
#include "plan/plan_settings.h"

#include <stdio.h>

/* Destinations that the first `hops` hops around so many seeds can come to. */
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

size_t plim__train_scratch_bytes(const plim__model_params_t *params)
{
    return plim__add_saturating_size(
        plim__arena_piece((size_t)params->max_seeds,
                          plim__mul_saturating_size((size_t)params->num_outputs, sizeof(float)), 1),
        plim__arena_piece(plim__model_buffers(params), sizeof(float), 1));
}

/* Of a checkpoint: each parameter and its moments. */
static int most_tensors(const plim__model_params_t *params)
{
    return (1 + params->moments) * plim__model_tensors(params);
}

int64_t plim__train_early(int workers)
{
    return plim__cost_pages(plim__team_estimate(workers)) + plim__cost_pages(PLIM__TRAINER_BYTES);
}

enum {
    IN_START = 1 << PLIM__PHASE_START,
    IN_CHECKPOINT = 1 << PLIM__PHASE_CHECKPOINT,
    ONCE_MADE = 1 << PLIM__PHASE_TRAIN | 1 << PLIM__PHASE_EVALUATE | IN_CHECKPOINT
};

/* What a pass takes is touched by the first step and stays; scores likewise, by the first
 * evaluation. */
int64_t plim__train_cost(const plim_dataset_info_t *info, const plim_training_t *settings,
                         const plim__load_plan_t *plan, bool training,
                         plim__plan_account_t *accounts_out, int *num_accounts_out)
{
    const plim__model_params_t params =
        plim__train_model_params(info, settings, plan, training, plan->workers);
    const int64_t model = plim__cost_pages(plim__model_estimate(&params));
    const int64_t activations =
        plim__min_i64(plim__cost_pages(plim__model_activations(&params)), model);
    const struct {
        const char *name;
        int64_t bytes;
        unsigned phases;
    } entries[PLIM__TRAIN_ACCOUNTS] = {
        {"weights and optimiser", model - activations, ONCE_MADE},
        {"activations", activations, ONCE_MADE},
        {"team", plim__cost_pages(plim__team_estimate(plan->workers)), ONCE_MADE | IN_START},
        {"evaluation",
         plim__cost_pages(plim__score_estimate(plim_training_metric(info, settings),
                                               plim__load_largest_split(info), params.num_outputs)),
         ONCE_MADE},
        {"checkpoint", plim__cost_pages(plim__safetensors_estimate(most_tensors(&params))),
         IN_CHECKPOINT},
        {"trainer", plim__cost_pages(plim__train_scratch_bytes(&params)), ONCE_MADE},
        {"trainer", plim__cost_pages(PLIM__TRAINER_BYTES), ONCE_MADE | IN_START},
    };
    int64_t sum = 0;
    int count = 0;
    for (int i = 0; i < PLIM__TRAIN_ACCOUNTS; i++) {
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
