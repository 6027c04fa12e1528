#include "doctor/estimate.h"

#include "base/check.h"

#include <plimsoll/ingest.h>
#include <string.h>

static int64_t or_else(int64_t value, int64_t otherwise)
{
    return value > 0 ? value : otherwise;
}

static plim_model_kind_t model_kind(const doctor_recipe_t *recipe)
{
    const char *kind = doctor_recipe_model(recipe);
    return strcmp(kind, "gcn") == 0   ? PLIM_GCN
           : strcmp(kind, "gat") == 0 ? PLIM_GAT
           : strcmp(kind, "gin") == 0 ? PLIM_GIN
                                      : PLIM_SAGE;
}

static void set_training(const doctor_recipe_t *recipe, doctor_estimate_t *estimate)
{
    estimate->training = (plim_training_t)PLIM_TRAINING_INIT;
    estimate->pyg = (pyg_params_t)PYG_PARAMS_INIT;
    plim_recipe_t *draws = &estimate->training.recipe;
    plim_model_t *model = &estimate->training.model;
    const int64_t hops = recipe->num_hops > 0 ? recipe->num_hops : or_else(recipe->layers, 2);
    draws->batch_size = or_else(recipe->batch_size, 1024);
    draws->num_hops = (int)plim__min_i64(hops, PLIM_HOPS_MAX);
    for (int i = 0; i < draws->num_hops; i++)
        draws->fanout[i] = i < recipe->num_hops ? recipe->fanout[i] : 10;
    model->kind = model_kind(recipe);
    model->num_layers = draws->num_hops;
    model->hidden = or_else(recipe->hidden, 256);
    estimate->pyg.num_workers = (int)or_else(recipe->workers, 0);
    estimate->pyg.prefetch = (int)or_else(recipe->prefetch, estimate->pyg.prefetch);
    estimate->pyg.persistent_workers = recipe->persistent > 0;
    estimate->pyg.pin_memory = recipe->pinned > 0;
    estimate->pyg.num_loaders = (int)or_else(recipe->loaders, estimate->pyg.num_loaders);
}

bool doctor_estimate_open(const plim_job_t *job, const doctor_recipe_t *recipe, int64_t gpu_memory,
                          doctor_estimate_t *estimate_out)
{
    plim_generate_options_t shape = PLIM_GENERATE_OPTIONS_INIT;
    const bool counted = recipe->edges > 0 && recipe->nodes > 0;
    if (recipe->deep || (!counted && recipe->shape[0] == '\0'))
        return false;
    shape.shape = counted ? "free" : recipe->shape;
    if (counted) {
        shape.num_nodes = recipe->nodes;
        shape.num_edges = recipe->edges;
        shape.num_features = recipe->features;
        shape.num_classes = plim__min_i64(recipe->nodes, 40);
    }
    estimate_out->job = job;
    if (plim_dataset_from_shape(job, &shape, &estimate_out->dataset) != PLIM_OK)
        return false;
    set_training(recipe, estimate_out);
    estimate_out->pyg.gpu_memory = gpu_memory;
    if (pyg_plan(job, estimate_out->dataset, &estimate_out->training, &estimate_out->pyg,
                 &estimate_out->plan) == PLIM_OK)
        return true;
    doctor_estimate_close(estimate_out);
    return false;
}

void doctor_estimate_close(doctor_estimate_t *estimate)
{
    plim_dataset_release(estimate->dataset);
}
