#include "plan/expect.h"

#include "base/check.h"
#include "base/job.h"
#include "io/npy.h"
#include "plan/settings.h"
#include "plan/train_cost.h"

#include <math.h>
#include <string.h>

/*
 * Measured on two cores of a Xeon at 2.1 GHz with AVX-512 and a virtual disk. Work of a core a
 * second; the disk's are of all threads together.
 */
static const struct {
    double edges;  /* drawn, deduplicated and renumbered */
    double rows;   /* copied to a slot, wherever they come from … */
    double bytes;  /* … and their bytes */
    double reads;  /* I/Os that the disk gives at depth */
    double disk;   /* bytes */
    double flops;  /* of products of f32; of bf16 about the same here */
    double sparse; /* bytes gathered and added by aggregation, finish and optimiser */
    double step;   /* seconds that every batch takes besides */
} rates = {20e6, 12e6, 4e9, 250e3, 2e9, 30e9, 3e9, 0.4e-3};

#define PAGE_BYTES 4096.0

/* Nodes of a window by degree: how many of each bucket it needs, as often as they have entries. */
typedef struct needs {
    double count[PLIM_DEGREE_BUCKETS]; /* nodes */
    double chance[PLIM_DEGREE_BUCKETS];
    double degree[PLIM_DEGREE_BUCKETS];
} needs_t;

/*
 * Takes a node to be needed in proportion to its degree, so that `wanted` of all are. Graphs where
 * few nodes are met again and again for other reasons hit more often than this says.
 */
static void find_needs(const plim__manifest_t *manifest, double wanted, needs_t *needs)
{
    double low = 0, high = 1e12;
    for (int i = 0; i < PLIM_DEGREE_BUCKETS; i++) {
        needs->count[i] = (double)manifest->degrees[i];
        needs->degree[i] =
            i == 0 ? 0.5 : fmin(1.5 * exp2(i - 1) - 0.5, (double)manifest->info.max_degree);
    }
    for (int round = 0; round < 100; round++) {
        const double rate = sqrt(fmax(low, 1e-12) * high);
        double sum = 0;
        for (int i = 0; i < PLIM_DEGREE_BUCKETS; i++) {
            needs->chance[i] = -expm1(-rate * needs->degree[i]);
            sum += needs->count[i] * needs->chance[i];
        }
        if (sum < wanted)
            low = rate;
        else
            high = rate;
    }
}

/* The share of what a window needs that is kept, where `kept` nodes of the highest degree are. */
static double hit_share(const needs_t *needs, double kept)
{
    double all = 0, hits = 0;
    for (int i = PLIM_DEGREE_BUCKETS - 1; i >= 0; i--) {
        const double taken = fmin(kept, needs->count[i]);
        hits += taken * needs->chance[i];
        all += needs->count[i] * needs->chance[i];
        kept -= taken;
    }
    return all > 0 ? hits / all : 0;
}

/* `count` pieces of `bytes` each, spread over a file and read in ascending order: those near each
 * other in one. */
static void add_reads(double count, double bytes, double file_bytes, double gap, double times,
                      plim_expectation_t *expect)
{
    if (count < 1)
        return;
    const double distance = fmax(file_bytes / count, bytes);
    const double near = -expm1(-gap / distance);
    const double reads = count * (1 - near) + 1;
    const double skipped = count * near * fmin(gap / 2, distance);
    const double read_bytes = reads * PAGE_BYTES + count * bytes + skipped;
    expect->epoch_reads += (int64_t)(reads * times);
    expect->epoch_read_bytes += (int64_t)(fmin(read_bytes, file_bytes + PAGE_BYTES) * times);
}

static double row_bytes(const plim_dataset_info_t *info)
{
    return (double)info->num_features * (info->feature_type == PLIM_F16 ? 2 : 4);
}

/* Steps that a window of the plan has: by its draws, and by the rows that it does not find kept. */
static int64_t window_steps(const plim__load_facts_t *facts, const plim_load_plan_t *plan,
                            double row_hits)
{
    const int64_t batch = facts->batch_seeds;
    int64_t low = 1, high = plim__max_i64(plan->window_steps, 1);
    while (low < high) {
        const int64_t middle = high - (high - low) / 2;
        const plim__load_size_t size =
            plim__load_expected(facts, plim__mul_saturating_i64(middle, batch));
        const bool fits = size.edges <= plan->window_draws &&
                          (plan->rows_in_memory ||
                           (double)size.nodes * (1 - row_hits) <= (double)plan->window_rows);
        if (fits)
            low = middle;
        else
            high = middle - 1;
    }
    return low;
}

/* Reads of lists and rows, window by window. */
static void expect_reads(const plim__load_facts_t *facts, const plim_load_plan_t *plan,
                         plim_expectation_t *expect)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(facts->dataset);
    const plim_dataset_info_t *info = &manifest->info;
    const double row = row_bytes(info), gap = (double)plan->io_gap;
    const double entry = (double)plim__index_bytes(info->index_type);
    const double list = entry * (double)info->num_edges / (double)info->num_nodes;
    needs_t needs;
    double hits = 0;
    int64_t steps = plim__max_i64(plan->window_steps, 1);
    for (int round = 0; round < 3; round++) { /* hits depend on the window, and the other way */
        const plim__load_size_t size =
            plim__load_expected(facts, plim__mul_saturating_i64(steps, facts->batch_seeds));
        find_needs(manifest, (double)size.nodes, &needs);
        hits = row > 0 ? hit_share(&needs, (double)plan->hot_row_bytes / row) : 1;
        steps = window_steps(facts, plan, hits);
    }
    const int64_t seeds = plim__min_i64(plim__mul_saturating_i64(steps, facts->batch_seeds),
                                        plim_dataset_info(facts->dataset)->num_split[PLIM_TRAIN]);
    const plim__load_size_t window = plim__load_expected(facts, seeds);
    const double windows = ceil((double)expect->epoch_steps / (double)steps);
    if (!plan->rows_in_memory && row > 0)
        add_reads((double)window.nodes * (1 - hits), row, row * (double)info->num_nodes, gap,
                  windows, expect);
    if (!plan->topology_in_memory && facts->recipe->num_hops > 0) {
        plim_recipe_t recipe = *facts->recipe;
        recipe.num_hops--; /* the last hop's nodes draw no more */
        const double share =
            (double)plim__load_size_expected(manifest, &recipe, seeds).nodes /
            fmax((double)plim__load_size_expected(manifest, facts->recipe, seeds).nodes, 1);
        const double lists = (double)window.nodes * share;
        find_needs(manifest, lists, &needs);
        const double kept = (double)plan->hot_list_bytes / (list + 8);
        add_reads(lists * (1 - hit_share(&needs, kept)), list, entry * (double)info->num_edges, gap,
                  windows, expect);
    }
}

plim_expectation_t plim__load_expect(const plim__load_facts_t *facts, const plim_load_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    const plim__load_size_t batch = plim__load_expected(facts, facts->batch_seeds);
    const double row = facts->recipe->no_features ? 0 : row_bytes(info);
    plim_expectation_t expect = {.batch_nodes = batch.nodes, .batch_edges = batch.edges};
    expect.batch_bytes = (int64_t)((double)batch.nodes * row + (double)batch.edges * 4);
    expect.epoch_steps = (info->num_split[PLIM_TRAIN] - 1) / facts->recipe->batch_size + 1;
    if (plan->window_steps > 0)
        expect_reads(facts, plan, &expect);
    const double steps = (double)expect.epoch_steps;
    const double work = (double)batch.edges / rates.edges + (double)batch.nodes / rates.rows +
                        (double)batch.nodes * row / rates.bytes;
    const double disk = fmax((double)expect.epoch_reads / rates.reads,
                             (double)expect.epoch_read_bytes / rates.disk);
    expect.epoch_seconds = fmax(steps * (work / plan->workers + rates.step), disk);
    expect.disk_bytes = plan->scratch_bytes;
    return expect;
}

/* Rows that layer i computes, of an expected batch. */
static double layer_rows(const plim_dataset_t *dataset, const plim_training_t *training,
                         const plim_train_plan_t *plan, int layer)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim_recipe_t *whole = &plan->load.recipe;
    const int64_t seeds = whole->batch_size;
    plim_recipe_t recipe = *whole;
    if (manifest->info.num_graphs > 0)
        return (double)plan->expect.batch_nodes;
    if (recipe.num_hops == 0)
        return (double)seeds;
    recipe.num_hops = training->model.num_layers - 1 - layer;
    const double all = (double)plim__load_size_expected(manifest, whole, seeds).nodes;
    const double some = (double)plim__load_size_expected(manifest, &recipe, seeds).nodes;
    return fmax((double)plan->expect.batch_nodes * some / fmax(all, 1), (double)seeds);
}

/* Products of a layer: the neighbours', the node's own, GIN's second. */
static double products_of(plim_model_kind_t kind)
{
    return kind == PLIM_SAGE || kind == PLIM_GIN ? 2 : 1;
}

/* Forward and back, of one batch on one core. */
static double model_seconds(const plim_dataset_t *dataset, const plim_training_t *training,
                            const plim_train_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim_model_t *model = &training->model;
    double seconds = 0, sources = (double)plan->expect.batch_nodes;
    for (int i = 0; i < model->num_layers; i++) {
        const bool last = i + 1 == model->num_layers;
        const double in = (double)(i == 0 ? info->num_features : model->hidden);
        const double out = (double)(last ? plim__settings_outputs(info) : model->hidden);
        const double rows = layer_rows(dataset, training, plan, i);
        const double edges =
            (double)plan->expect.batch_edges * rows / fmax((double)plan->expect.batch_nodes, 1);
        const double products = model->kind == PLIM_GAT ? sources : rows;
        const double passes = (i == 0 ? 2 : 3) + (plan->recompute ? 1 : 0);
        seconds += 2 * products * in * out * products_of(model->kind) * passes / rates.flops;
        seconds += (2 * edges * in + 6 * rows * (in + out)) * 4 / rates.sparse;
        sources = rows;
    }
    return seconds;
}

static int64_t account_bytes(const plim_train_plan_t *plan, const char *name)
{
    for (int i = 0; i < plan->num_accounts; i++)
        if (strcmp(plan->accounts[i].name, name) == 0)
            return plan->accounts[i].bytes;
    return 0;
}

void plim__train_expect(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, plim_train_plan_t *plan)
{
    plim_expectation_t *expect = &plan->expect;
    const double cores = plim__job_threads(job);
    const int64_t parts = plan->load.part_seeds > 0
                              ? (plan->load.recipe.batch_size - 1) / plan->load.part_seeds + 1
                              : 1;
    expect->epoch_seconds +=
        (double)expect->epoch_steps *
        (model_seconds(dataset, training, plan) / cores + (double)(parts - 1) * rates.step);
    /* The last and the best, and one of them being written. */
    const int64_t weights = account_bytes(plan, "weights and optimiser");
    expect->disk_bytes =
        plim__add_saturating_i64(expect->disk_bytes, plim__mul_saturating_i64(weights, 3));
}
