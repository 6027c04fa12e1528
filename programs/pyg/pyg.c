/* Checks the settings, asks for the sizes of batches, estimates; the estimate as JSON. */
#include "base/fail.h"
#include "pyg/pyg_internal.h"

/* Batches of graphs of the mean size. */
static void mean_sizes(const plim_dataset_info_t *info, pyg_sizes_t *sizes)
{
    const double graphs = (double)info->num_graphs;
    for (int i = 0; i < sizes->count; i++) {
        plim_batch_size_t *size = &sizes->at[i];
        size->nodes = (int64_t)((double)size->seeds * (double)info->num_nodes / graphs);
        size->edges = (int64_t)((double)size->seeds * (double)info->num_edges / graphs);
    }
}

plim_status_t pyg_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                       const plim_training_t *training, const pyg_params_t *params,
                       pyg_plan_t *plan_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim_training_t drawn = *training;
    pyg_sizes_t sizes;
    if (info->num_graphs > 0 && (params->graph == PYG_CSC || params->late_loaders))
        return plim__fail(PLIM_ERR_USAGE, "the dataset holds many graphs, whose loaders sort no "
                                          "edges: leave out --graph csc and --late-loaders");
    if (params->num_loaders < 1 || params->num_loaders > 3 || params->num_workers < 0 ||
        params->num_workers > 1024 || params->prefetch < 1 || params->prefetch > 1024)
        return plim__fail(PLIM_ERR_USAGE,
                          "%d loaders, %d workers, %d batches ahead: there must be 1 to 3 loaders, "
                          "0 to 1024 workers and 1 to 1024 batches ahead",
                          params->num_loaders, params->num_workers, params->prefetch);
    drawn.recipe.form = PLIM_PYG;
    pyg_sizes_choose(info, training, params, &sizes);
    const plim_status_t status = plim_batch_sizes(job, dataset, &drawn, sizes.count, sizes.at);
    if (status != PLIM_OK)
        return plim__fail(status, "%s", plim_last_error()); /* the library's */
    if (info->num_graphs > 0)
        mean_sizes(info, &sizes);
    pyg_estimate(info, training, params, &sizes, plan_out);
    return PLIM_OK;
}

const char *const pyg_phase_names[PYG_PHASES] = {"start", "load", "sort", "train", "evaluate"};

static json_t *json_phases(const int64_t phase[PYG_PHASES])
{
    json_t *object = json_object();
    for (int i = 0; i < PYG_PHASES; i++)
        (void)json_object_set_new(object, pyg_phase_names[i], json_integer(phase[i]));
    return object;
}

static json_t *json_accounts(const pyg_plan_t *plan)
{
    json_t *accounts = json_array();
    for (int i = 0; i < plan->num_accounts; i++) {
        const pyg_account_t *account = &plan->accounts[i];
        (void)json_array_append_new(
            accounts, json_pack("{s:s, s:I, s:b, s:o}", "name", account->name, "bytes",
                                (json_int_t)account->bytes, "reclaimable", account->file, "phases",
                                json_phases(account->phase)));
    }
    return accounts;
}

static json_t *json_gpu(const pyg_gpu_t *gpu, int64_t memory)
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

int pyg_killed(const pyg_plan_t *plan, int64_t line)
{
    for (int i = 0; i < PYG_PHASES; i++)
        if (plan->phase[i] > line)
            return i;
    return -1;
}

json_t *pyg_json(const pyg_plan_t *plan, const pyg_params_t *params)
{
    json_t *object = json_pack(
        "{s:o, s:o, s:s, s:I, s:I, s:I, s:I, s:I, s:I}", "accounts", json_accounts(plan), "phases",
        json_phases(plan->phase), "peak_phase", pyg_phase_names[plan->peak_phase], "total_bytes",
        (json_int_t)plan->peak, "ask_bytes", (json_int_t)plan->ask, "csc_bytes",
        (json_int_t)plan->peak_csc, "csc_mapped_bytes", (json_int_t)plan->peak_mapped,
        "batch_nodes", (json_int_t)plan->batch_nodes, "batch_edges", (json_int_t)plan->batch_edges);
    if (plan->batch_graphs > 0)
        (void)json_object_set_new(object, "batch_graphs", json_integer(plan->batch_graphs));
    if (params->line > 0) {
        const int killed = pyg_killed(plan, params->line);
        (void)json_object_set_new(object, "line_bytes", json_integer(params->line));
        (void)json_object_set_new(object, "fits", json_boolean(killed < 0));
        if (killed >= 0)
            (void)json_object_set_new(object, "killed_phase", json_string(pyg_phase_names[killed]));
    }
    if (params->gpu_memory > 0)
        (void)json_object_set_new(object, "gpu", json_gpu(&plan->gpu, params->gpu_memory));
    return object;
}
