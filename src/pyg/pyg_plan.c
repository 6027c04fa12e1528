#include "pyg/pyg_plan.h"

#include "base/check.h"
#include "base/fail.h"
#include "plan/load_size.h"
#include "plan/plan_settings.h"
#include "plan/statistics.h"
#include "pyg/pyg_step.h"
#include "store/dataset.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MIB (1024.0 * 1024.0)
#define GIB (1024.0 * MIB)

/*
 * Measured with torch 2.13, torch_geometric 2.8 and pyg-lib 0.9 on x86-64 Linux, by
 * tools/prove-pyg-plan --calibrate, on other runs than those it proves.
 */
#define PYTHON_BYTES (234 * MIB)  /* the interpreter and what imports leave, not of files */
#define LIBRARY_BYTES (100 * MIB) /* pages of library files that are touched */
#define STEP_BYTES (15 * MIB)     /* that the first step leaves: threads, buffers of products */
#define WORKER_BYTES (10 * MIB)   /* pages that a worker writes to and so has for itself */
#define TABLE_BYTES (4 * MIB)     /* the kernel's, besides page tables */
#define MALLOC_KEEPS 1.8 /* times what small blocks take at one moment: holes between them */

/* Assumed: there was no GPU to measure on. */
#define GPU_CONTEXT_BYTES (500 * MIB) /* CUDA's context and kernels, and cuBLAS's workspace */
#define GPU_HOST_BYTES (1 * GIB)      /* what CUDA takes of the host */
#define GPU_SPARE 1.1                 /* the caching allocator's rounding and gaps */

enum { ID = sizeof(int64_t), TERM = sizeof(float) };

static int64_t whole(double bytes)
{
    return bytes < 9e18 ? (int64_t)ceil(bytes) : INT64_MAX;
}

void plim__pyg_batch(const plim__pyg_sizes_t *sizes, int64_t num_seeds, double *nodes_out,
                     double *edges_out)
{
    const int hops = sizes->recipe.num_hops;
    plim_recipe_t shorter = sizes->recipe;
    plim__load_size_t all, before = {.nodes = num_seeds};
    shorter.num_hops = hops - 1;
    if (sizes->probe.count < 2)
        all = plim__load_size_expected(sizes->manifest, &sizes->recipe, num_seeds);
    else
        all = plim__load_size_tried(&sizes->probe, num_seeds);
    if (hops > 1 && sizes->before.count >= 2 && sizes->probe.count >= 2)
        before = plim__load_size_tried(&sizes->before, num_seeds);
    else if (hops > 1)
        before = plim__load_size_expected(sizes->manifest, &shorter, num_seeds);
    *nodes_out = fmin((double)all.nodes, (double)sizes->manifest->info.num_nodes);
    /* A size's edges are places for offsets too: one for each node that drew, and one a hop. */
    *edges_out = hops > 0 ? fmax((double)all.edges - (double)before.nodes - hops, 0) : 0;
}

/* Bytes of a batch as a Data object: rows, labels, ids of nodes and edges, edge_index. */
static double batch_bytes(const plim_dataset_info_t *info, double nodes, double edges)
{
    const double label =
        info->label_kind == PLIM_LABELS_VALUES ? (double)info->num_targets * TERM : (double)ID;
    return nodes * ((double)info->num_features * TERM + label + ID) + edges * 3 * ID;
}

/* What pyg-lib holds while it draws: lists that grow by doubling, and a place for each node of the
 * graph when there are few, else a hash table. */
static double sampler_bytes(const plim_dataset_info_t *info, double nodes, double edges)
{
    const double table =
        info->num_nodes < 1000000 ? (double)info->num_nodes * ID : nodes * 2 * (2 * ID + 1);
    return 2 * (edges * 3 * ID + nodes * ID) + table;
}

static void add(plim_pyg_plan_t *plan, const char *name, bool file,
                const double phase[PLIM_PYG_PHASES])
{
    plim_pyg_account_t *account = &plan->accounts[plan->num_accounts];
    *account = (plim_pyg_account_t){.file = file};
    (void)snprintf(account->name, sizeof account->name, "%s", name);
    for (int i = 0; i < PLIM_PYG_PHASES; i++) {
        account->phase[i] = whole(phase[i]);
        account->bytes = plim__max_i64(account->bytes, account->phase[i]);
        if (!file)
            plan->phase[i] = plim__add_saturating_i64(plan->phase[i], account->phase[i]);
    }
    plan->num_accounts += account->bytes > 0;
}

/* The same from a phase on, to the end. */
static void add_from(plim_pyg_plan_t *plan, const char *name, bool file, plim_pyg_phase_t first,
                     double bytes)
{
    double phase[PLIM_PYG_PHASES] = {0};
    for (int i = (int)first; i < PLIM_PYG_PHASES; i++)
        phase[i] = bytes;
    add(plan, name, file, phase);
}

static void add_dataset(const plim_dataset_info_t *info, const plim_pyg_options_t *options,
                        plim_pyg_plan_t *plan)
{
    const double nodes = (double)info->num_nodes, edges = (double)info->num_edges;
    const double label =
        info->label_kind == PLIM_LABELS_VALUES ? (double)info->num_targets * TERM : (double)ID;
    double seeds = 0;
    for (int i = 0; i < 3; i++)
        seeds += (double)info->num_split[i];
    add_from(plan, "x", options->rows == PLIM_PYG_ROWS_MAPPED, PLIM_PYG_LOAD,
             nodes * (double)info->num_features * TERM);
    add_from(plan, "y and splits", false, PLIM_PYG_LOAD, nodes * label + seeds * ID);
    if (options->graph == PLIM_PYG_EDGE_INDEX)
        add_from(plan, "edge_index", false, PLIM_PYG_LOAD, 2 * edges * ID);
    else
        add_from(plan, "colptr and row", false, PLIM_PYG_LOAD, (nodes + 1 + edges) * ID);
}

/*
 * Each loader turns edge_index into colptr, row and the permutation of edges, and keeps them. Its
 * sort takes the sorted columns and three more lists of a place for each edge; at the end of it
 * columns, row and permutation are there, and row's copy in shared memory when workers are to see
 * it.
 */
static void add_loaders(const plim_dataset_info_t *info, const plim_pyg_options_t *options,
                        plim_pyg_plan_t *plan)
{
    const double nodes = (double)info->num_nodes, edges = (double)info->num_edges;
    const double kept = (2 * edges + nodes + 1) * ID;
    if (options->graph != PLIM_PYG_EDGE_INDEX)
        return;
    const double sorting = 4 * edges * ID + (options->num_workers > 0 ? (nodes + 1) * ID : 0);
    add(plan, "sorted edges", false,
        (const double[]){0, 0, (options->num_loaders - 1) * kept, options->num_loaders * kept,
                         options->num_loaders * kept});
    add(plan, "sort of the edges", false, (const double[]){0, 0, sorting, 0, 0});
}

/*
 * Worker processes: what each has for itself, its batches in shared memory, and the heap as it was
 * when they were forked, which they go on holding while the trainer writes to its own. Persistent
 * ones stay, those of every loader; the first loader's were forked before there was much of a heap.
 */
static void add_workers(const plim_pyg_options_t *options, double batch, double sampler,
                        double heap, plim_pyg_plan_t *plan)
{
    const bool persistent = options->persistent_workers;
    const double count =
        persistent ? options->num_workers * options->num_loaders : options->num_workers;
    const double forks = persistent ? options->num_loaders - 1 : 1;
    const double ahead = (double)options->num_workers * options->prefetch * batch;
    if (options->num_workers == 0)
        return;
    add_from(plan, "workers", false, PLIM_PYG_TRAIN, count * (WORKER_BYTES + sampler));
    add_from(plan, "heap held by forks", false, PLIM_PYG_TRAIN, forks * heap);
    add_from(plan, "batches ahead", false, PLIM_PYG_TRAIN, ahead);
    if (options->pin_memory && options->gpu_memory > 0)
        add_from(plan, "pinned batches", false, PLIM_PYG_TRAIN, ahead);
}

static void add_steps(const plim_pyg_options_t *options, const plim__pyg_step_t *step, double batch,
                      double sampler, plim_pyg_plan_t *plan)
{
    /* Where no worker does it, the next batch is drawn while the one before is still held. */
    const double drawing = options->num_workers == 0 ? batch + sampler : 0;
    double train = step->train, evaluate = step->evaluate;
    add_from(plan, "batch", false, PLIM_PYG_TRAIN, batch);
    if (options->gpu_memory > 0) {
        train = evaluate = 0;
        add_from(plan, "CUDA on the host", false, PLIM_PYG_TRAIN, GPU_HOST_BYTES);
    } else {
        add_from(plan, "weights, gradients, moments", false, PLIM_PYG_TRAIN, 4 * step->parameters);
        add_from(plan, "threads and buffers", false, PLIM_PYG_TRAIN, STEP_BYTES);
        add_from(plan, "kept by malloc", false, PLIM_PYG_TRAIN, MALLOC_KEEPS * step->small);
    }
    add(plan, "activations", false,
        (const double[]){0, 0, 0, fmax(train, drawing), fmax(evaluate, drawing)});
}

/* The kernel's: eight bytes for each page that a process maps; a fork maps what was loaded. */
static void add_tables(const plim_pyg_options_t *options, plim_pyg_plan_t *plan)
{
    const int workers =
        options->num_workers * (options->persistent_workers ? options->num_loaders : 1);
    const double forked = workers * (double)plan->phase[PLIM_PYG_LOAD] / 512;
    double phase[PLIM_PYG_PHASES];
    for (int i = 0; i < PLIM_PYG_PHASES; i++)
        phase[i] = TABLE_BYTES + (double)plan->phase[i] / 512 + (i < PLIM_PYG_TRAIN ? 0 : forked);
    add(plan, "page tables", false, phase);
}

static void find_peak(plim_pyg_plan_t *plan)
{
    for (int i = 0; i < PLIM_PYG_PHASES; i++) {
        if (plan->phase[i] <= plan->peak)
            continue;
        plan->peak = plan->phase[i];
        plan->peak_phase = (plim_pyg_phase_t)i;
    }
    const double ask = ceil((double)plan->peak * 1.1 / GIB) * GIB;
    plan->ask = whole(ask);
}

typedef struct gpu_need {
    double model, batch, activations, total;
} gpu_need_t;

static gpu_need_t gpu_need(const plim_dataset_info_t *info, const plim_training_t *training,
                           const plim__pyg_sizes_t *sizes, int64_t num_seeds,
                           plim_precision_t precision)
{
    plim_training_t changed = *training;
    double nodes, edges;
    changed.model.precision = precision;
    plim__pyg_batch(sizes, num_seeds, &nodes, &edges);
    const plim__pyg_step_t step = plim__pyg_step(&changed, info->num_features,
                                                 plim__plan_settings_outputs(info), nodes, edges);
    gpu_need_t need = {4 * step.parameters, batch_bytes(info, nodes, edges), step.train, 0};
    need.total = GPU_CONTEXT_BYTES + GPU_SPARE * (need.model + need.batch + need.activations);
    return need;
}

/* The most seeds, up to `most`, that the GPU has room for; by 32 where there are as many. */
static int64_t largest_batch(const plim_dataset_info_t *info, const plim_training_t *training,
                             const plim__pyg_sizes_t *sizes, int64_t memory, int64_t most,
                             plim_precision_t precision)
{
    int64_t fits = 0, too_many = most + 1;
    while (too_many - fits > 1) {
        const int64_t middle = fits + (too_many - fits) / 2;
        if (gpu_need(info, training, sizes, middle, precision).total <= (double)memory)
            fits = middle;
        else
            too_many = middle;
    }
    return fits >= 32 && fits < most ? fits / 32 * 32 : fits;
}

static void fit_gpu(const plim_dataset_info_t *info, const plim_training_t *training,
                    const plim_pyg_options_t *options, const plim__pyg_sizes_t *sizes,
                    plim_pyg_gpu_t *gpu)
{
    const int64_t batch = plim__min_i64(training->recipe.batch_size, info->num_nodes);
    const plim_precision_t asked = training->model.precision;
    const gpu_need_t need = gpu_need(info, training, sizes, batch, asked);
    *gpu = (plim_pyg_gpu_t){.memory = options->gpu_memory,
                            .context = whole(GPU_CONTEXT_BYTES),
                            .model = whole(need.model),
                            .batch_bytes = whole(need.batch),
                            .activations = whole(need.activations),
                            .total = whole(need.total),
                            .micro_precision = asked};
    gpu->fits = gpu->total <= gpu->memory;
    const int64_t most = plim__max_i64(info->num_split[PLIM_TRAIN], 1);
    for (int i = PLIM_PRECISION_F32; i <= PLIM_PRECISION_BF16; i++)
        gpu->largest_batch[i] =
            largest_batch(info, training, sizes, gpu->memory, most, (plim_precision_t)i);
    if (gpu->largest_batch[asked] == 0)
        gpu->micro_precision = PLIM_PRECISION_BF16;
    /* As plimsoll cuts them: by halves. */
    gpu->microbatch = batch;
    while (gpu->microbatch > 1 &&
           gpu_need(info, training, sizes, gpu->microbatch, gpu->micro_precision).total >
               (double)gpu->memory)
        gpu->microbatch = (gpu->microbatch + 1) / 2;
    if (gpu->largest_batch[gpu->micro_precision] == 0)
        gpu->microbatch = 0;
}

static void estimate(const plim_dataset_info_t *info, const plim_training_t *training,
                     const plim_pyg_options_t *options, double nodes, double edges,
                     plim_pyg_plan_t *plan_out)
{
    const plim__pyg_step_t step = plim__pyg_step(training, info->num_features,
                                                 plim__plan_settings_outputs(info), nodes, edges);
    const double batch = batch_bytes(info, nodes, edges);
    const double sampler = sampler_bytes(info, nodes, edges);
    *plan_out = (plim_pyg_plan_t){.batch_nodes = whole(nodes), .batch_edges = whole(edges)};
    add_from(plan_out, "python and torch", false, PLIM_PYG_START, PYTHON_BYTES);
    add_from(plan_out, "pages of libraries", true, PLIM_PYG_START, LIBRARY_BYTES);
    add_dataset(info, options, plan_out);
    add_loaders(info, options, plan_out);
    add_steps(options, &step, batch, sampler, plan_out);
    add_workers(options, batch, sampler, options->gpu_memory > 0 ? 0 : MALLOC_KEEPS * step.small,
                plan_out);
    add_tables(options, plan_out);
    find_peak(plan_out);
}

void plim__pyg_estimate(const plim_dataset_info_t *info, const plim_training_t *training,
                        const plim_pyg_options_t *options, const plim__pyg_sizes_t *sizes,
                        plim_pyg_plan_t *plan_out)
{
    const int64_t seeds = plim__min_i64(training->recipe.batch_size, info->num_nodes);
    plim_pyg_options_t changed = *options;
    plim_pyg_plan_t sorted, mapped;
    double nodes, edges;
    plim__pyg_batch(sizes, seeds, &nodes, &edges);
    estimate(info, training, options, nodes, edges, plan_out);
    changed.graph = PLIM_PYG_CSC;
    estimate(info, training, &changed, nodes, edges, &sorted);
    changed.rows = PLIM_PYG_ROWS_MAPPED;
    estimate(info, training, &changed, nodes, edges, &mapped);
    plan_out->peak_csc = sorted.peak;
    plan_out->peak_mapped = mapped.peak;
    if (options->gpu_memory > 0)
        fit_gpu(info, training, options, sizes, &plan_out->gpu);
}

static plim_status_t check(const plim_dataset_t *dataset, const plim_training_t *training,
                           const plim_pyg_options_t *options)
{
    if (plim_dataset_info(dataset)->num_graphs > 0)
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "%s: it holds many graphs, whose batches PyG makes by another loader; "
                          "only one graph's training is estimated",
                          plim__dataset_path(dataset));
    if (options->num_loaders < 1 || options->num_loaders > 3 || options->num_workers < 0 ||
        options->num_workers > 1024 || options->prefetch < 1 || options->prefetch > 1024)
        return plim__fail(PLIM_ERR_USAGE,
                          "%d loaders, %d workers, %d batches ahead: from 1 to 3 loaders, up to "
                          "1024 workers and from 1 to 1024 batches can be estimated",
                          options->num_loaders, options->num_workers, options->prefetch);
    return plim__plan_settings_check(dataset, training);
}

plim_status_t plim_pyg_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim_training_t *training, const plim_pyg_options_t *options,
                            plim_pyg_plan_t *plan_out)
{
    PLIM_TRY(check(dataset, training, options));
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
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
    plim__pyg_estimate(info, training, options, &sizes, plan_out);
    return PLIM_OK;
}

int plim_pyg_killed(const plim_pyg_plan_t *plan, int64_t line)
{
    for (int i = 0; i < PLIM_PYG_PHASES; i++)
        if (plan->phase[i] > line)
            return i;
    return -1;
}

const char *plim_pyg_phase_name(plim_pyg_phase_t phase)
{
    static const char *const names[PLIM_PYG_PHASES] = {"start", "load", "sort", "train",
                                                       "evaluate"};
    return names[phase];
}
