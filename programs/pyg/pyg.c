/* The public call: checks the settings, measures batches, estimates, and writes JSON. */
#include "base/fail.h"
#include "base/params.h"
#include "plan/plan_settings.h"
#include "plan/statistics.h"
#include "pyg/pyg_internal.h"
#include "store/dataset.h"

#include <jansson.h>

static plim_status_t check(const plim_dataset_t *dataset, const plim_training_t *training,
                           const plim_pyg_params_t *params)
{
    if (plim_dataset_info(dataset)->num_graphs > 0)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s holds many graphs; the estimate for PyG covers training on one graph "
                          "only",
                          plim__dataset_path(dataset));
    if (params->num_loaders < 1 || params->num_loaders > 3 || params->num_workers < 0 ||
        params->num_workers > 1024 || params->prefetch < 1 || params->prefetch > 1024)
        return plim__fail(PLIM_ERR_USAGE,
                          "%d loaders, %d workers, %d batches ahead: there must be 1 to 3 loaders, "
                          "0 to 1024 workers and 1 to 1024 batches ahead",
                          params->num_loaders, params->num_workers, params->prefetch);
    return plim__plan_settings_check(dataset, training);
}

plim_status_t plim__pyg_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                             const plim_training_t *training, const plim_pyg_params_t *params,
                             plim__pyg_plan_t *plan_out)
{
    PLIM_TRY(check(dataset, training, params));
    plim__pyg_sizes_t sizes = {.manifest = plim__dataset_manifest(dataset),
                               .recipe = training->recipe};
    sizes.recipe.form = PLIM_PYG;
    if (sizes.recipe.num_hops > 0)
        PLIM_TRY(plim__statistics_probe(job, dataset, &sizes.recipe, true, &sizes.probe));
    if (sizes.recipe.num_hops > 1 && sizes.probe.count > 0) {
        plim_recipe_t shorter = sizes.recipe;
        shorter.num_hops--;
        PLIM_TRY(plim__statistics_probe(job, dataset, &shorter, true, &sizes.before));
    }
    plim__pyg_estimate(plim_dataset_info(dataset), training, params, &sizes, plan_out);
    return PLIM_OK;
}

static const char *const phase_names[PLIM__PYG_PHASES] = {"start", "load", "sort", "train",
                                                          "evaluate"};

static json_t *json_phases(const int64_t phase[PLIM__PYG_PHASES])
{
    json_t *object = json_object();
    for (int i = 0; i < PLIM__PYG_PHASES; i++)
        (void)json_object_set_new(object, phase_names[i], json_integer(phase[i]));
    return object;
}

static json_t *json_accounts(const plim__pyg_plan_t *plan)
{
    json_t *accounts = json_array();
    for (int i = 0; i < plan->num_accounts; i++) {
        const plim__pyg_account_t *account = &plan->accounts[i];
        (void)json_array_append_new(
            accounts, json_pack("{s:s, s:I, s:b, s:o}", "name", account->name, "bytes",
                                (json_int_t)account->bytes, "reclaimable", account->file, "phases",
                                json_phases(account->phase)));
    }
    return accounts;
}

static json_t *json_gpu(const plim__pyg_gpu_t *gpu, int64_t memory)
{
    const char *const *precisions = plim_words(PLIM_WORDS_PRECISION);
    json_t *largest = json_object();
    for (int i = PLIM_PRECISION_F32; i <= PLIM_PRECISION_BF16; i++)
        (void)json_object_set_new(largest, precisions[i], json_integer(gpu->largest_batch[i]));
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:o, s:I, s:s}", "memory_bytes",
                     (json_int_t)memory, "context_bytes", (json_int_t)gpu->context, "model_bytes",
                     (json_int_t)gpu->model, "batch_bytes", (json_int_t)gpu->batch_bytes,
                     "activation_bytes", (json_int_t)gpu->activations, "total_bytes",
                     (json_int_t)gpu->total, "fits", gpu->fits, "largest_batch", largest,
                     "microbatch", (json_int_t)gpu->microbatch, "microbatch_precision",
                     precisions[gpu->micro_precision]);
}

int plim__pyg_killed(const plim__pyg_plan_t *plan, int64_t line)
{
    for (int i = 0; i < PLIM__PYG_PHASES; i++)
        if (plan->phase[i] > line)
            return i;
    return -1;
}

static json_t *json_plan(const plim__pyg_plan_t *plan, const plim_pyg_params_t *params)
{
    json_t *object = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "accounts", json_accounts(plan), "phases",
        json_phases(plan->phase), "peak_phase", phase_names[plan->peak_phase], "total_bytes",
        (json_int_t)plan->peak, "ask_bytes", (json_int_t)plan->ask, "csc_bytes",
        (json_int_t)plan->peak_csc, "csc_mapped_bytes", (json_int_t)plan->peak_mapped,
        "batch_nodes", (json_int_t)plan->batch_nodes, "batch_edges", (json_int_t)plan->batch_edges);
    if (params->line > 0) {
        const int killed = plim__pyg_killed(plan, params->line);
        (void)json_object_set_new(object, "line_bytes", json_integer(params->line));
        (void)json_object_set_new(object, "fits", json_boolean(killed < 0));
        if (killed >= 0)
            (void)json_object_set_new(object, "killed_phase", json_string(phase_names[killed]));
    }
    if (params->gpu_memory > 0)
        (void)json_object_set_new(object, "gpu", json_gpu(&plan->gpu, params->gpu_memory));
    return object;
}

plim_status_t plim_pyg_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim_training_t *training, const plim_pyg_params_t *params,
                                char *json, size_t size)
{
    plim_pyg_params_t known = PLIM_PYG_PARAMS_INIT;
    plim__pyg_plan_t plan;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    if (params != NULL)
        PLIM_TRY(plim__params_take(params, "plim_pyg_params_t", &known,
                                   PLIM__SIZE_USED(plim_pyg_params_t)));
    PLIM_TRY(plim__pyg_plan(job, dataset, training, &known, &plan));
    json_t *object = json_plan(&plan, &known);
    if (object == NULL)
        return plim__fail(PLIM_ERR_NOMEM, "no memory for the estimate's JSON text");
    const size_t used = json_dumpb(object, json, size, JSON_COMPACT);
    json_decref(object);
    if (used == 0)
        return plim__fail(PLIM_ERR_NOMEM, "no memory for the estimate's JSON text");
    if (used >= size)
        return plim__fail(PLIM_ERR_USAGE,
                          "the estimate takes %zu bytes of JSON, the buffer has %zu; "
                          "PLIM_PYG_JSON_MAX is always enough",
                          used + 1, size);
    json[used] = '\0';
    return PLIM_OK;
}
