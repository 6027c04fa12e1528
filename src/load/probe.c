#include "load/probe.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/permute.h"
#include "base/radix.h"
#include "io/npy.h"
#include "io/reader.h"
#include "load/loader_params.h"
#include "mem/arena.h"
#include "sample/blocks.h"

#include <string.h>

enum {
    DEPTH = 64,
    SHALLOW = 4, /* where there is little to read, so that a trial fits where training does */
    GAP = 16 << 10,
    SEEDS_MOST = 16384, /* of the largest trial … */
    GROWTH = 4          /* … and how many times those of the one before it */
};

/* Lists that the largest trial may draw from: about a second of reading. */
#define LISTS_MOST 200000

#define SMALL_EDGES ((int64_t)4 << 20)

typedef struct trial {
    plim__arena_t arena;
    int64_t num_seeds;   /* of the largest trial */
    int64_t *seeds;      /* (num_seeds) */
    uint64_t *spare;     /* (num_seeds) */
    plim__read_t *reads; /* (num_seeds) */
    int32_t *nodes;      /* (node_capacity), and what follows, is written and not looked at */
    int32_t *edges;      /* (edge_capacity) */
    int64_t node_capacity;
    int64_t edge_capacity;
} probe_t;

static plim__blocks_params_t blocks_params(const plim_dataset_info_t *info,
                                           const plim_recipe_t *recipe)
{
    plim__blocks_params_t params = {.num_hops = recipe->num_hops,
                                    .replace = recipe->replace,
                                    .form = recipe->form,
                                    .most_drawn = plim__load_most_drawn(recipe, info->max_degree)};
    memcpy(params.fanout, recipe->fanout, sizeof params.fanout);
    return params;
}

/* Seeds of the largest trial: a power of GROWTH, whose lists are few enough even at the worst. */
static int64_t most_seeds(const plim_dataset_info_t *info, const plim_recipe_t *recipe)
{
    plim__blocks_params_t params = blocks_params(info, recipe);
    int64_t nodes, edges, seeds = 1;
    /* The last hop's nodes draw no more. */
    params.num_hops--;
    while (seeds * GROWTH <= plim__min_i64(SEEDS_MOST, info->num_split[PLIM_TRAIN])) {
        plim__blocks_bound(&params, info->num_nodes, info->num_edges, info->max_degree,
                           seeds * GROWTH, &nodes, &edges);
        if (nodes > LISTS_MOST)
            break;
        seeds *= GROWTH;
    }
    return seeds;
}

static void find_capacities(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                            probe_t *trial)
{
    const plim__blocks_params_t params = blocks_params(info, recipe);
    trial->num_seeds = most_seeds(info, recipe);
    plim__blocks_bound(&params, info->num_nodes, info->num_edges, info->max_degree,
                       trial->num_seeds, &trial->node_capacity, &trial->edge_capacity);
    trial->node_capacity = plim__min_i64(trial->node_capacity, INT32_MAX);
}

static size_t arena_bytes(const probe_t *trial)
{
    const size_t sizes[] = {
        plim__arena_piece((size_t)trial->num_seeds, sizeof(int64_t), 1),
        plim__arena_piece((size_t)trial->num_seeds, sizeof(uint64_t), 1),
        plim__arena_piece((size_t)trial->num_seeds, sizeof(plim__read_t), 1),
        plim__arena_piece((size_t)trial->node_capacity, sizeof(int32_t), 1),
        plim__arena_piece((size_t)trial->edge_capacity, sizeof(int32_t), 1),
    };
    size_t sum = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!plim__add_size(sum, sizes[i], &sum))
            return SIZE_MAX;
    return plim__round_up(sum, PLIM__PAGE);
}

static int depth_of(const plim_dataset_info_t *info)
{
    return info->num_edges < SMALL_EDGES ? SHALLOW : DEPTH;
}

static plim__reader_params_t reader_params(const plim_dataset_info_t *info)
{
    return (plim__reader_params_t){
        .depth = depth_of(info), .max_read = sizeof(int64_t), .gap = GAP};
}

static plim__topology_disk_params_t source_params(const plim_dataset_info_t *info)
{
    return (plim__topology_disk_params_t){.workers = 1, .depth = depth_of(info), .gap = GAP};
}

size_t plim__probe_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim_recipe_t *recipe)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    probe_t trial;
    find_capacities(info, recipe, &trial);
    if (trial.node_capacity > INT32_MAX || info->num_nodes > INT32_MAX)
        return SIZE_MAX;
    plim__blocks_params_t blocks = blocks_params(info, recipe);
    blocks.node_capacity = trial.node_capacity;
    const plim__reader_params_t reader = reader_params(info);
    const plim__topology_disk_params_t source = source_params(info);
    const size_t sizes[] = {arena_bytes(&trial),
                            plim__offsets_estimate(dataset),
                            plim__offsets_work_minimum(job),
                            plim__topology_disk_estimate(job, dataset, &source),
                            plim__blocks_estimate(&blocks),
                            plim__reader_estimate(job->io_engine, &reader)};
    size_t sum = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!plim__add_size(sum, sizes[i], &sum))
            return SIZE_MAX;
    return sum;
}

/* The ids of `count` training nodes that a keyed permutation picks, from its place `first` on. */
static plim_status_t read_seeds(const plim_job_t *job, const plim_dataset_t *dataset,
                                probe_t *trial, uint64_t key, int64_t first, int64_t count)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim__manifest_file_t *entry =
        plim__manifest_find(plim__dataset_manifest(dataset), "train.npy");
    const plim__reader_params_t params = reader_params(info);
    plim__permute_t order = plim__permute_make((uint64_t)info->num_split[PLIM_TRAIN], key);
    plim__reader_t *reader;
    plim__file_t file;
    uint64_t *places = (uint64_t *)trial->seeds;
    for (int64_t i = 0; i < count; i++)
        places[i] = plim__permute_forward(&order, (uint64_t)(first + i) % order.count);
    places = plim__radix_sort(places, trial->spare, count, 63);
    for (int64_t i = 0; i < count; i++)
        trial->reads[i] = (plim__read_t){(int64_t)(PLIM__NPY_HEADER + places[i] * sizeof(int64_t)),
                                         sizeof(int64_t), &trial->seeds[i]};
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &file));
    plim_status_t status = plim__reader_create(job, &params, &reader);
    if (status == PLIM_OK) {
        status = plim__reader_read(reader, &file, trial->reads, count);
        plim__reader_destroy(reader);
    }
    plim__file_close(&file);
    for (int64_t i = 0; i < count && status == PLIM_OK; i++)
        if (trial->seeds[i] < 0 || trial->seeds[i] >= info->num_nodes)
            status = plim__fail(PLIM_ERR_DATA,
                                "%s/train.npy: entry %lld is %lld, and there are %lld nodes; copy "
                                "the dataset again or make it anew",
                                plim__dataset_path(dataset),
                                (long long)(trial->reads[i].offset - (int64_t)PLIM__NPY_HEADER) / 8,
                                (long long)trial->seeds[i], (long long)info->num_nodes);
    return status;
}

static plim_status_t draw(const plim_job_t *job, const plim_dataset_t *dataset,
                          const plim_recipe_t *recipe, probe_t *trial, plim__topology_t *source,
                          plim__blocks_t *blocks, plim__probe_t *result)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const uint64_t key = plim__rng_key(0, 4, 0, 0);
    int64_t first = 0, seeds = most_seeds(info, recipe);
    for (int i = 1; i < PLIM__PROBE_SIZES && seeds >= GROWTH; i++)
        seeds /= GROWTH;
    for (; result->count < PLIM__PROBE_SIZES && seeds <= most_seeds(info, recipe);
         seeds *= GROWTH) {
        plim__blocks_out_t out = {.index_type = PLIM_I32,
                                  .nodes = trial->nodes,
                                  .node_capacity = trial->node_capacity,
                                  .edges = trial->edges,
                                  .edge_capacity = trial->edge_capacity,
                                  .num_hops = recipe->num_hops};
        bool fits;
        int64_t edges = 0;
        PLIM_TRY(plim__job_check(job));
        PLIM_TRY(read_seeds(job, dataset, trial, key, first, seeds));
        PLIM_TRY(plim__blocks_build(blocks, source, 0, 0, trial->seeds, seeds, &out, &fits));
        if (!fits) /* then more seeds would not either, and what was seen so far has to do */
            break;
        for (int hop = 0; hop < recipe->num_hops; hop++)
            edges += out.blocks[hop].num_dst + 1 + out.blocks[hop].num_edges;
        result->sizes[result->count++] = (plim__probe_size_t){seeds, out.num_nodes, edges};
        first += seeds;
    }
    return PLIM_OK;
}

plim_status_t plim__probe_run(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_recipe_t *recipe, plim__probe_t *trial_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__offsets_t *offsets = NULL;
    plim__topology_t *source = NULL;
    plim__blocks_t *blocks = NULL;
    plim__probe_t result = {0};
    probe_t trial = {0};
    find_capacities(info, recipe, &trial);
    plim__blocks_params_t params = blocks_params(info, recipe);
    params.node_capacity = trial.node_capacity;
    const plim__topology_disk_params_t disk = source_params(info);
    PLIM_TRY(plim__arena_create(job->ledger, "trial", arena_bytes(&trial), &trial.arena));
    trial.seeds = plim__arena_carve(&trial.arena, (size_t)trial.num_seeds, sizeof(int64_t), 1);
    trial.spare = plim__arena_carve(&trial.arena, (size_t)trial.num_seeds, sizeof(uint64_t), 1);
    trial.reads = plim__arena_carve(&trial.arena, (size_t)trial.num_seeds, sizeof(plim__read_t), 1);
    trial.nodes = plim__arena_carve(&trial.arena, (size_t)trial.node_capacity, sizeof(int32_t), 1);
    trial.edges = plim__arena_carve(&trial.arena, (size_t)trial.edge_capacity, sizeof(int32_t), 1);
    plim_status_t status = plim__offsets_create(job, dataset, &offsets);
    if (status == PLIM_OK)
        status = plim__topology_disk_create(job, dataset, offsets, &disk, &source);
    if (status == PLIM_OK)
        status = plim__blocks_create(job, &params, &blocks);
    if (status == PLIM_OK)
        status = draw(job, dataset, recipe, &trial, source, blocks, &result);
    plim__blocks_destroy(blocks);
    plim__topology_destroy(source);
    plim__offsets_destroy(offsets);
    plim__arena_destroy(&trial.arena);
    if (status == PLIM_OK)
        *trial_out = result;
    return status;
}
