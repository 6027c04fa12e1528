/* The accounts of a PyG job in each of its phases, and what fits a GPU. */
#include "base/check.h"
#include "pyg/pyg_internal.h"

#include <math.h>

#define MIB (1024.0 * 1024.0)
#define GIB (1024.0 * MIB)

/*
 * Measured with torch 2.13, torch_geometric 2.8 and pyg-lib 0.9 on x86-64 Linux, by
 * tools/prove pyg-plan --calibrate, on other runs than those it proves.
 */
#define LIBRARY_BYTES (100 * MIB) /* file pages of libraries that are touched */
#define STEP_BYTES (15 * MIB)     /* threads and product buffers, left by the first step */
#define TABLE_BYTES (4 * MIB)     /* other kernel memory than page tables */
#define GRAPH_BYTES 2400          /* a Data object with views of x, edge_index and y */
#define MALLOC_KEEPS 1.8          /* heap over the peak of small blocks: holes between them */

/* Assumptions: there was no GPU to measure on. */
#define GPU_CONTEXT_BYTES (500 * MIB) /* CUDA's context and kernels, and cuBLAS's workspace */
#define GPU_HOST_BYTES (1 * GIB)      /* host memory that CUDA takes */
#define GPU_SLACK 1.1                 /* the caching allocator's rounding and gaps */

enum { ID = sizeof(int64_t), TERM = sizeof(float) };

/* Rounded up, saturating. */
static int64_t whole(double bytes)
{
    return bytes < 9e18 ? (int64_t)ceil(bytes) : INT64_MAX;
}

static void add_size(pyg_sizes_t *sizes, int64_t seeds)
{
    if (sizes->count < PYG_SIZES)
        sizes->at[sizes->count++] = (plim_batch_size_t){.seeds = seeds};
}

/* Seeds (graphs, in a dataset of many) of the batch that was asked for, and of the largest that
 * there could be. */
static int64_t batch_seeds(const plim_dataset_info_t *info, const plim_training_t *training)
{
    return plim__min_i64(training->recipe.batch_size,
                         info->num_graphs > 0 ? info->num_graphs : info->num_nodes);
}

static int64_t most_seeds(const plim_dataset_info_t *info)
{
    return plim__max_i64(info->num_split[PLIM_TRAIN], 1);
}

void pyg_sizes_choose(const plim_dataset_info_t *info, const plim_training_t *training,
                      const pyg_params_t *params, pyg_sizes_t *sizes_out)
{
    sizes_out->count = 0;
    add_size(sizes_out, batch_seeds(info, training));
    if (params->gpu_memory <= 0)
        return;
    for (int64_t seeds = batch_seeds(info, training); seeds > 1; seeds = (seeds + 1) / 2)
        add_size(sizes_out, seeds);
    for (int64_t seeds = 1; seeds < most_seeds(info); seeds *= 2)
        add_size(sizes_out, seeds);
    add_size(sizes_out, most_seeds(info));
}

/* The value at `seeds` of the power law through two sizes. */
static double between(const plim_batch_size_t *low, const plim_batch_size_t *high, int64_t seeds,
                      int64_t low_value, int64_t high_value)
{
    const double share =
        log((double)seeds / (double)low->seeds) / log((double)high->seeds / (double)low->seeds);
    if (low_value <= 0 || high_value <= 0)
        return (double)low_value;
    return (double)low_value * pow((double)high_value / (double)low_value, share);
}

/* Distinct nodes and drawn edges of a batch of `num_seeds` seeds. */
static void batch_size(const pyg_sizes_t *sizes, int64_t num_seeds, double *nodes_out,
                       double *edges_out)
{
    const plim_batch_size_t *low = NULL, *high = NULL;
    for (int i = 0; i < sizes->count; i++) {
        const plim_batch_size_t *size = &sizes->at[i];
        if (size->seeds <= num_seeds && (low == NULL || size->seeds > low->seeds))
            low = size;
        if (size->seeds >= num_seeds && (high == NULL || size->seeds < high->seeds))
            high = size;
    }
    if (low == NULL || high == NULL || low->seeds == high->seeds) {
        *nodes_out = (double)(low != NULL ? low : high)->nodes;
        *edges_out = (double)(low != NULL ? low : high)->edges;
        return;
    }
    *nodes_out = between(low, high, num_seeds, low->nodes, high->nodes);
    *edges_out = between(low, high, num_seeds, low->edges, high->edges);
}

/* Columns of the model's outputs. */
static int64_t num_outputs(const plim_dataset_info_t *info)
{
    return info->label_kind == PLIM_LABELS_CLASSES ? info->num_classes : info->num_targets;
}

static double label_bytes(const plim_dataset_info_t *info)
{
    return info->label_kind == PLIM_LABELS_VALUES ? (double)info->num_targets * TERM : (double)ID;
}

/* Bytes of a value of x or edge_attr. */
static double value_bytes(plim_dtype_t stored)
{
    return stored == PLIM_I64 ? ID : TERM;
}

/* Bytes of an edge in the columns that the model reads: edge_attr, edge_weight or edge_type. */
static double edge_bytes(const plim_dataset_info_t *info, const plim_training_t *training)
{
    const unsigned columns = pyg_columns(training);
    const double feature = value_bytes(info->edge_feature_type);
    return ((columns & PLIM_EDGE_FEATURES) != 0 ? (double)info->num_edge_features * feature : 0) +
           ((columns & PLIM_EDGE_WEIGHT) != 0 ? TERM : 0) +
           ((columns & PLIM_EDGE_TYPE) != 0 ? ID : 0);
}

/* Bytes of a batch as a Data object: rows, labels, ids of nodes and edges, edge_index and columns
 * of edges. Of many graphs: rows, each with its graph's number, edge_index, columns of edges,
 * labels, the graphs' first nodes. */
static double batch_bytes(const plim_dataset_info_t *info, const plim_training_t *training,
                          double seeds, double nodes, double edges)
{
    const double row = (double)info->num_features * value_bytes(info->feature_type) + ID;
    const double edge = 2 * ID + edge_bytes(info, training);
    if (info->num_graphs > 0)
        return nodes * row + edges * edge + seeds * (label_bytes(info) + ID);
    return nodes * (row + label_bytes(info)) + edges * (edge + ID);
}

/* pyg-lib's memory while it draws: lists that grow by doubling, and a map of the drawn nodes: an
 * array over all nodes of a small graph, a hash table for a large one. */
static double sampler_bytes(const plim_dataset_info_t *info, double nodes, double edges)
{
    if (info->num_graphs > 0)
        return 0;
    const double table =
        info->num_nodes < 1000000 ? (double)info->num_nodes * ID : nodes * 2 * (2 * ID + 1);
    return 2 * (edges * 3 * ID + nodes * ID) + table;
}

static void add(pyg_plan_t *plan, const char *name, bool file, const double phase[PYG_PHASES])
{
    pyg_account_t *account = &plan->accounts[plan->num_accounts];
    *account = (pyg_account_t){.name = name, .file = file};
    for (int i = 0; i < PYG_PHASES; i++) {
        account->phase[i] = whole(phase[i]);
        account->bytes = plim__max_i64(account->bytes, account->phase[i]);
        if (!file)
            plan->phase[i] = plim__add_saturating_i64(plan->phase[i], account->phase[i]);
    }
    plan->num_accounts += account->bytes > 0;
}

/* An account of constant size from phase `first` to the end. */
static void add_from(pyg_plan_t *plan, const char *name, bool file, pyg_phase_t first, double bytes)
{
    double phase[PYG_PHASES] = {0};
    for (int i = (int)first; i < PYG_PHASES; i++)
        phase[i] = bytes;
    add(plan, name, file, phase);
}

static void add_dataset(const plim_dataset_info_t *info, const plim_training_t *training,
                        const pyg_params_t *params, pyg_plan_t *plan)
{
    const double nodes = (double)info->num_nodes, edges = (double)info->num_edges;
    const double labelled = (double)(info->num_graphs > 0 ? info->num_graphs : info->num_nodes);
    double seeds = 0;
    for (int i = 0; i < 3; i++)
        seeds += (double)info->num_split[i];
    add_from(plan, "x", params->mapped_features, PYG_LOAD,
             nodes * (double)info->num_features * value_bytes(info->feature_type));
    add_from(plan, "y and splits", false, PYG_LOAD, labelled * label_bytes(info) + seeds * ID);
    if (params->graph == PYG_EDGE_INDEX)
        add_from(plan, "edge_index", false, PYG_LOAD, 2 * edges * ID);
    else
        add_from(plan, "colptr and row", false, PYG_LOAD, (nodes + 1 + edges) * ID);
    add_from(plan, "columns of edges", false, PYG_LOAD, edges * edge_bytes(info, training));
}

/*
 * An InMemoryDataset keeps where each graph's part of x, edge_index, y and columns begins, and from
 * the first epoch on an object for each graph that it gave out: in the workers, where there are
 * some.
 */
static void add_graphs(const plim_dataset_info_t *info, const plim_training_t *training,
                       const pyg_params_t *params, pyg_plan_t *plan)
{
    const int parts = 3 + __builtin_popcount(pyg_columns(training));
    const double train = (double)info->num_split[PLIM_TRAIN];
    const double all =
        train + (double)info->num_split[PLIM_VALID] + (double)info->num_split[PLIM_TEST];
    const double copies = params->persistent_workers ? params->num_workers : 1;
    const double kept = copies * (params->num_workers > 0 ? train : all) * GRAPH_BYTES;
    if (info->num_graphs == 0)
        return;
    add_from(plan, "slices", false, PYG_LOAD, parts * ((double)info->num_graphs + 1) * ID);
    add_from(plan, "objects of graphs", false, PYG_TRAIN, kept);
}

/*
 * Each loader sorts edge_index into colptr, row and the permutation of edges, and keeps these
 * three. The sort itself takes the sorted columns and three more arrays of one int64 for each edge.
 * At its end columns, row and permutation exist, and with workers a copy of row in shared memory.
 * Late loaders are made before the first evaluation; the last one then sorts, or keeps what it
 * sorted, beside those before it.
 */
static void add_loaders(const plim_dataset_info_t *info, const pyg_params_t *params,
                        pyg_plan_t *plan)
{
    const double nodes = (double)info->num_nodes, edges = (double)info->num_edges;
    const double kept = (2 * edges + nodes + 1) * ID;
    const int all = params->num_loaders;
    if (params->graph != PYG_EDGE_INDEX || info->num_graphs > 0)
        return;
    const double sorting = 4 * edges * ID + (params->num_workers > 0 ? (nodes + 1) * ID : 0);
    if (params->late_loaders && all > 1) {
        add(plan, "sorted edges", false, (const double[]){0, 0, 0, kept, (all - 1) * kept});
        add(plan, "sort of the edges", false, (const double[]){0, 0, sorting, 0, sorting});
        return;
    }
    add(plan, "sorted edges", false,
        (const double[]){0, 0, (all - 1) * kept, all * kept, all * kept});
    add(plan, "sort of the edges", false, (const double[]){0, 0, sorting, 0, 0});
}

/*
 * Worker processes: each one's private memory, its batches in shared memory, and the heap at the
 * time of the fork, whose pages it keeps while the trainer writes to copies. The workers of all
 * loaders stay when they are persistent; the first loader's were forked while the heap was small.
 */
static void add_workers(const pyg_params_t *params, double batch, double sampler, double heap,
                        pyg_plan_t *plan)
{
    const bool persistent = params->persistent_workers;
    const double count =
        persistent ? params->num_workers * params->num_loaders : params->num_workers;
    const double forks = persistent ? params->num_loaders - 1 : 1;
    const double ahead = (double)params->num_workers * params->prefetch * batch;
    if (params->num_workers == 0)
        return;
    add_from(plan, "workers", false, PYG_TRAIN, count * (PYG_WORKER_BYTES + sampler));
    add_from(plan, "heap held by forks", false, PYG_TRAIN, forks * heap);
    add_from(plan, "batches ahead", false, PYG_TRAIN, ahead);
    if (params->pin_memory && params->gpu_memory > 0)
        add_from(plan, "pinned batches", false, PYG_TRAIN, ahead);
}

static void add_steps(const pyg_params_t *params, const pyg_step_t *step, double batch,
                      double sampler, pyg_plan_t *plan)
{
    /* Without workers the next batch is drawn while the one before is still held. */
    const double drawing = params->num_workers == 0 ? batch + sampler : 0;
    double train = step->train, evaluate = step->evaluate;
    add_from(plan, "batch", false, PYG_TRAIN, batch);
    if (params->gpu_memory > 0) {
        train = evaluate = 0;
        add_from(plan, "CUDA on the host", false, PYG_TRAIN, GPU_HOST_BYTES);
    } else {
        add_from(plan, "weights, gradients, moments", false, PYG_TRAIN, 4 * step->parameters);
        add_from(plan, "threads and buffers", false, PYG_TRAIN, STEP_BYTES);
        add_from(plan, "kept by malloc", false, PYG_TRAIN, MALLOC_KEEPS * step->small);
    }
    add(plan, "activations", false,
        (const double[]){0, 0, 0, fmax(train, drawing), fmax(evaluate, drawing)});
}

/* Page tables: eight bytes for each page that a process maps; a fork maps the loaded dataset. */
static void add_tables(const pyg_params_t *params, pyg_plan_t *plan)
{
    const int workers =
        params->num_workers * (params->persistent_workers ? params->num_loaders : 1);
    const double forked = workers * (double)plan->phase[PYG_LOAD] / 512;
    double phase[PYG_PHASES];
    for (int i = 0; i < PYG_PHASES; i++)
        phase[i] = TABLE_BYTES + (double)plan->phase[i] / 512 + (i < PYG_TRAIN ? 0 : forked);
    add(plan, "page tables", false, phase);
}

static void find_peak(pyg_plan_t *plan)
{
    for (int i = 0; i < PYG_PHASES; i++) {
        if (plan->phase[i] <= plan->peak)
            continue;
        plan->peak = plan->phase[i];
        plan->peak_phase = (pyg_phase_t)i;
    }
    const double ask = ceil((double)plan->peak * 1.1 / GIB) * GIB;
    plan->ask = whole(ask);
}

/* Of many graphs, each graph's rows of hidden channels are pooled, and a linear layer follows. */
static pyg_step_t step_of(const plim_dataset_info_t *info, const plim_training_t *training,
                          double nodes, double edges)
{
    const int64_t outputs = num_outputs(info), hidden = training->model.hidden;
    if (info->num_graphs == 0)
        return pyg_step(training, info, outputs, nodes, edges);
    pyg_step_t step = pyg_step(training, info, hidden, nodes, edges);
    step.parameters += sizeof(float) * (double)hidden * (double)outputs;
    return step;
}

typedef struct gpu_need {
    double model, batch, activations, total;
} gpu_need_t;

static gpu_need_t gpu_need(const plim_dataset_info_t *info, const plim_training_t *training,
                           const pyg_sizes_t *sizes, int64_t num_seeds, plim_precision_t precision)
{
    plim_training_t changed = *training;
    double nodes, edges;
    changed.model.precision = precision;
    batch_size(sizes, num_seeds, &nodes, &edges);
    const pyg_step_t step = step_of(info, &changed, nodes, edges);
    gpu_need_t need = {4 * step.parameters,
                       batch_bytes(info, training, (double)num_seeds, nodes, edges), step.train, 0};
    need.total = GPU_CONTEXT_BYTES + GPU_SLACK * (need.model + need.batch + need.activations);
    return need;
}

/* The most seeds, up to `most`, that fit the GPU; rounded down to a multiple of 32. */
static int64_t largest_batch(const plim_dataset_info_t *info, const plim_training_t *training,
                             const pyg_sizes_t *sizes, int64_t memory, int64_t most,
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
                    const pyg_params_t *params, const pyg_sizes_t *sizes, pyg_gpu_t *gpu)
{
    const int64_t batch = batch_seeds(info, training);
    const plim_precision_t asked = training->model.precision;
    const gpu_need_t need = gpu_need(info, training, sizes, batch, asked);
    *gpu = (pyg_gpu_t){.context = whole(GPU_CONTEXT_BYTES),
                       .model = whole(need.model),
                       .batch_bytes = whole(need.batch),
                       .activations = whole(need.activations),
                       .total = whole(need.total),
                       .micro_precision = asked};
    gpu->fits = gpu->total <= params->gpu_memory;
    const int64_t most = most_seeds(info);
    for (int i = PLIM_PRECISION_F32; i <= PLIM_PRECISION_BF16; i++)
        gpu->largest_batch[i] =
            largest_batch(info, training, sizes, params->gpu_memory, most, (plim_precision_t)i);
    if (gpu->largest_batch[asked] == 0)
        gpu->micro_precision = PLIM_PRECISION_BF16;
    /* Halved until it fits, as plimsoll itself divides batches. */
    gpu->microbatch = batch;
    while (gpu->microbatch > 1 &&
           gpu_need(info, training, sizes, gpu->microbatch, gpu->micro_precision).total >
               (double)params->gpu_memory)
        gpu->microbatch = (gpu->microbatch + 1) / 2;
    if (gpu->largest_batch[gpu->micro_precision] == 0)
        gpu->microbatch = 0;
}

static void estimate(const plim_dataset_info_t *info, const plim_training_t *training,
                     const pyg_params_t *params, double nodes, double edges, pyg_plan_t *plan_out)
{
    const int64_t seeds = batch_seeds(info, training);
    const pyg_step_t step = step_of(info, training, nodes, edges);
    const double batch = batch_bytes(info, training, (double)seeds, nodes, edges);
    const double sampler = sampler_bytes(info, nodes, edges);
    *plan_out = (pyg_plan_t){.batch_graphs = info->num_graphs > 0 ? seeds : 0,
                             .batch_nodes = whole(nodes),
                             .batch_edges = whole(edges)};
    add_from(plan_out, "python and torch", false, PYG_START, PYG_PYTHON_BYTES);
    add_from(plan_out, "pages of libraries", true, PYG_START, LIBRARY_BYTES);
    add_dataset(info, training, params, plan_out);
    add_graphs(info, training, params, plan_out);
    add_loaders(info, params, plan_out);
    add_steps(params, &step, batch, sampler, plan_out);
    add_workers(params, batch, sampler, params->gpu_memory > 0 ? 0 : MALLOC_KEEPS * step.small,
                plan_out);
    add_tables(params, plan_out);
    find_peak(plan_out);
}

void pyg_estimate(const plim_dataset_info_t *info, const plim_training_t *training,
                  const pyg_params_t *params, const pyg_sizes_t *sizes, pyg_plan_t *plan_out)
{
    const int64_t seeds = batch_seeds(info, training);
    pyg_params_t changed = *params;
    pyg_plan_t sorted, mapped;
    double nodes, edges;
    batch_size(sizes, seeds, &nodes, &edges);
    estimate(info, training, params, nodes, edges, plan_out);
    plan_out->peak_csc = plan_out->peak_mapped = plan_out->peak;
    if (params->gpu_memory > 0)
        fit_gpu(info, training, params, sizes, &plan_out->gpu);
    if (info->num_graphs > 0)
        return;
    changed.graph = PYG_CSC;
    estimate(info, training, &changed, nodes, edges, &sorted);
    changed.mapped_features = true;
    estimate(info, training, &changed, nodes, edges, &mapped);
    plan_out->peak_csc = sorted.peak;
    plan_out->peak_mapped = mapped.peak;
}
