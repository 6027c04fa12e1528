#include "plan/expect.h"

#include "base/check.h"
#include "base/job.h"
#include "io/npy.h"
#include "plan/plan_settings.h"
#include "store/dataset.h"

#include <math.h>
#include <string.h>

/*
 * Rates measured on two cores of a Xeon at 2.1 GHz with AVX-512 and a virtual disk
 * (bench/results/). Work of one core in a second; disk rates are those of all threads together.
 */
static const struct {
    double edges;  /* drawn, deduplicated and renumbered */
    double rows;   /* copied to a slot, wherever they come from … */
    double bytes;  /* … and their bytes */
    double reads;  /* I/Os that the disk gives at depth … */
    double disk;   /* … and their bytes */
    double flops;  /* of products; of bf16 twice as many */
    double sparse; /* bytes gathered and added by aggregation, finish and optimiser */
    double step;   /* seconds that every batch takes besides */
} rates = {23e6, 40e6, 8e9, 250e3, 2e9, 60e9, 12e9, 0.05e-3};

#define SECTOR_BYTES 512.0

/*
 * Hit rate of a cache of `kept` bytes when an epoch needs `needed` of `all`. Epochs need different
 * bytes, some of them much more often. Both figures were fitted to papers100M's shape under lines
 * from 1 to 8 GiB; they decide only expected times.
 */
static double hit_share(double kept, double needed, double all)
{
    const double candidates = fmin(1.6 * needed, all);
    return candidates > kept ? pow(kept / candidates, 0.7) : 1;
}

/* `count` pieces of `bytes` each, spread over a file and read in ascending order: those near each
 * other in one. */
static void add_reads(double count, double bytes, double file_bytes, double merge, double times,
                      plim__expectation_t *expect)
{
    if (count < 1)
        return;
    const double distance = fmax(file_bytes / count, bytes);
    const double near = -expm1(-merge / distance);
    const double reads = count * (1 - near) + 1;
    const double skipped = count * near * fmin(merge / 2, distance);
    const double read_bytes = reads * SECTOR_BYTES + count * bytes + skipped;
    expect->epoch_reads += (int64_t)(reads * times);
    expect->epoch_read_bytes += (int64_t)(fmin(read_bytes, file_bytes + SECTOR_BYTES) * times);
}

static double row_bytes(const plim_dataset_info_t *info)
{
    return (double)info->num_features * (double)plim__feature_bytes(info->feature_type);
}

/* Steps that a window of the plan has: by its draws, and by the rows that it does not find kept. */
static int64_t window_steps(const plim__load_facts_t *facts, const plim__load_plan_t *plan,
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

/* Of the nodes that so many seeds need, those that draw at hop `hop`. */
static double destinations(const plim__manifest_t *manifest, const plim_recipe_t *recipe,
                           double nodes, int64_t seeds, int hop)
{
    plim_recipe_t shorter = *recipe;
    shorter.num_hops = hop;
    const double all = (double)plim__load_size_expected(manifest, recipe, seeds).nodes;
    const double some = (double)plim__load_size_expected(manifest, &shorter, seeds).nodes;
    return fmax(nodes * some / fmax(all, 1), (double)seeds);
}

/* Reads of lists and rows, window by window. */
static void expect_reads(const plim__load_facts_t *facts, const plim__load_plan_t *plan,
                         plim__expectation_t *expect)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(facts->dataset);
    const plim_dataset_info_t *info = &manifest->info;
    const plim_recipe_t *recipe = facts->recipe;
    const double row = row_bytes(info), merge = (double)plan->merge_distance;
    const double entry = (double)plim__index_bytes(info->index_type);
    const double list = entry * (double)info->num_edges / (double)info->num_nodes;
    const double reach = (double)(manifest->reach > 0 ? manifest->reach : info->num_nodes);
    const int64_t all_seeds = info->num_split[PLIM_TRAIN];
    const double epoch = (double)plim__load_expected(facts, all_seeds).nodes;
    const double hits = row > 0 ? hit_share((double)plan->row_cache_bytes / row, epoch, reach) : 1;
    const int64_t steps = window_steps(facts, plan, hits);
    const int64_t seeds =
        plim__min_i64(plim__mul_saturating_i64(steps, facts->batch_seeds), all_seeds);
    const double nodes = (double)plim__load_expected(facts, seeds).nodes;
    const double windows = ceil((double)expect->epoch_steps / (double)steps);
    if (!plan->rows_in_memory && row > 0)
        add_reads(nodes * (1 - hits), row, row * (double)info->num_nodes, merge, windows, expect);
    if (!plan->topology_in_memory && recipe->num_hops > 0) {
        const int last = recipe->num_hops - 1; /* whose nodes draw no more */
        const double kept = (double)plan->list_cache_bytes / (list + 8);
        const double lists = destinations(manifest, recipe, nodes, seeds, last);
        const double wanted = destinations(manifest, recipe, epoch, all_seeds, last);
        add_reads(lists * (1 - hit_share(kept, wanted, reach)), list,
                  entry * (double)info->num_edges, merge, windows, expect);
    }
}

/* Drawn ones, of the places that blocks have for them and for the lists' ends. */
static double drawn_edges(const plim__load_facts_t *facts, const plim__load_size_t *batch)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(facts->dataset);
    double edges = (double)batch->edges;
    for (int hop = 0; hop < facts->recipe->num_hops; hop++)
        edges -=
            destinations(manifest, facts->recipe, (double)batch->nodes, facts->batch_seeds, hop);
    return fmax(edges, 0);
}

/* Of building one batch, on one core. */
static double load_seconds(const plim__expectation_t *expect)
{
    return (double)expect->batch_edges / rates.edges + (double)expect->batch_nodes / rates.rows +
           (double)expect->batch_bytes / rates.bytes;
}

/* Of an epoch: what is computed while the disk reads, or what it reads if that takes longer. */
static double epoch_seconds(const plim__expectation_t *expect, double step_seconds)
{
    const double disk =
        (double)expect->epoch_reads / rates.reads + (double)expect->epoch_read_bytes / rates.disk;
    return fmax((double)expect->epoch_steps * step_seconds, disk);
}

plim__expectation_t plim__load_expect(const plim__load_facts_t *facts,
                                      const plim__load_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(facts->dataset);
    const plim__load_size_t batch = plim__load_expected(facts, facts->batch_seeds);
    const double row = facts->recipe->no_features ? 0 : row_bytes(info);
    plim__expectation_t expect = {.batch_nodes = batch.nodes};
    expect.batch_edges = (int64_t)drawn_edges(facts, &batch);
    expect.batch_bytes = (int64_t)((double)batch.nodes * row + (double)batch.edges * 4);
    expect.epoch_steps = (info->num_split[PLIM_TRAIN] - 1) / facts->recipe->batch_size + 1;
    if (plan->window_steps > 0)
        expect_reads(facts, plan, &expect);
    expect.epoch_seconds =
        epoch_seconds(&expect, load_seconds(&expect) / plan->workers + rates.step);
    expect.disk_bytes = plan->scratch_bytes;
    return expect;
}

/* Rows that layer i computes, of an expected batch. */
static double layer_rows(const plim_dataset_t *dataset, const plim_training_t *training,
                         const plim__train_plan_t *plan, int layer)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim_recipe_t *recipe = &plan->load.recipe;
    const int64_t seeds = plim__min_i64(recipe->batch_size, manifest->info.num_split[PLIM_TRAIN]);
    if (manifest->info.num_graphs > 0)
        return (double)plan->expect.batch_nodes;
    if (recipe->num_hops == 0)
        return (double)seeds;
    return destinations(manifest, recipe, (double)plan->expect.batch_nodes, seeds,
                        training->model.num_layers - 1 - layer);
}

/* Products of a layer: the neighbours', the node's own, GIN's second. */
static double products_of(plim_model_kind_t kind)
{
    return kind == PLIM_SAGE || kind == PLIM_GIN ? 2 : 1;
}

/* Forward and back, of one batch on one core. */
static double model_seconds(const plim_dataset_t *dataset, const plim_training_t *training,
                            const plim__train_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim_model_t *model = &training->model;
    const double flops = rates.flops * (model->precision == PLIM_PRECISION_BF16 ? 2 : 1);
    double seconds = 0, sources = (double)plan->expect.batch_nodes;
    for (int i = 0; i < model->num_layers; i++) {
        const bool last = i + 1 == model->num_layers;
        const double in = (double)(i == 0 ? info->num_features : model->hidden);
        const double out = (double)(last ? plim__plan_settings_outputs(info) : model->hidden);
        const double rows = layer_rows(dataset, training, plan, i);
        const double edges =
            (double)plan->expect.batch_edges * rows / fmax((double)plan->expect.batch_nodes, 1);
        const double products = model->kind == PLIM_GAT ? sources : rows;
        const double passes = (i == 0 ? 2 : 3) + (plan->recompute ? 1 : 0);
        seconds += 2 * products * in * out * products_of(model->kind) * passes / flops;
        seconds += (2 * edges * in + 6 * rows * (in + out)) * 4 / rates.sparse;
        sources = rows;
    }
    return seconds;
}

/* What else a run directory holds: four headers of checkpoints, and lines. */
#define RUN_FILES_BYTES ((int64_t)1 << 20)

static int64_t account_bytes(const plim__train_plan_t *plan, const char *name)
{
    for (int i = 0; i < plan->num_accounts; i++)
        if (strcmp(plan->accounts[i].name, name) == 0)
            return plan->accounts[i].bytes;
    return 0;
}

void plim__train_expect(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, plim__train_plan_t *plan)
{
    plim__expectation_t *expect = &plan->expect;
    const double cores = plim__job_threads(job);
    const int64_t parts = plan->load.part_seeds > 0
                              ? (plan->load.recipe.batch_size - 1) / plan->load.part_seeds + 1
                              : 1;
    expect->epoch_seconds = epoch_seconds(
        expect, (load_seconds(expect) + model_seconds(dataset, training, plan)) / cores +
                    (double)parts * rates.step);
    /* The last and the best, each twice while it is written. Without gradients the last is what the
     * account has, and the best is as large as these. */
    const int64_t weights = account_bytes(plan, "weights and optimiser");
    expect->disk_bytes =
        plim__add_saturating_i64(plim__add_saturating_i64(expect->disk_bytes, RUN_FILES_BYTES),
                                 plim__mul_saturating_i64(weights, 2));
}
