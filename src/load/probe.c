#include "load/probe.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/permute.h"
#include "base/radix.h"
#include "io/npy.h"
#include "io/range_reader.h"
#include "load/load_sources.h"
#include "load/loader_params.h"
#include "load/seeds.h"
#include "mem/arena.h"
#include "sample/access.h"
#include "sample/blocks.h"

#include <string.h>

enum {
    DEPTH = 64,
    SHALLOW = 4,        /* for small graphs, so that the probe fits wherever training does */
    SEEDS_MOST = 16384, /* of the largest batch … */
    GROWTH = 4          /* … which has this many times the seeds of the one before */
};

/* Most lists that the largest batch reads: about a second. */
#define LISTS_MOST 200000

#define SMALL_EDGES ((int64_t)4 << 20)

typedef struct probe {
    plim__arena_t arena;
    int64_t num_seeds;      /* of the largest batch */
    int64_t *seeds;         /* (num_seeds) */
    uint64_t *sort_scratch; /* (num_seeds) */
    plim__read_t *reads;    /* (num_seeds) */
    int32_t *edges;         /* (edge_capacity) written and not read */
    int64_t node_capacity;
    int64_t edge_capacity;
} probe_t;

/* Seeds of the largest batch: a power of GROWTH that reads at most LISTS_MOST in the worst case. */
static int64_t most_seeds(const plim_dataset_info_t *info, const plim_recipe_t *recipe)
{
    plim__blocks_params_t params = plim__load_blocks(info, recipe);
    int64_t nodes, edges, seeds = 1;
    /* The nodes of the last hop do not draw. */
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
                            probe_t *probe)
{
    const plim__blocks_params_t params = plim__load_blocks(info, recipe);
    probe->num_seeds = most_seeds(info, recipe);
    plim__blocks_bound(&params, info->num_nodes, info->num_edges, info->max_degree,
                       probe->num_seeds, &probe->node_capacity, &probe->edge_capacity);
    probe->node_capacity = plim__min_i64(probe->node_capacity, INT32_MAX);
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    probe_t *probe = draft;
    const size_t seeds = (size_t)probe->num_seeds;
    probe->seeds = plim__arena_carve(arena, seeds, sizeof *probe->seeds, 1);
    probe->sort_scratch = plim__arena_carve(arena, seeds, sizeof *probe->sort_scratch, 1);
    probe->reads = plim__arena_carve(arena, seeds, sizeof *probe->reads, 1);
    probe->edges = plim__arena_carve(arena, (size_t)probe->edge_capacity, sizeof *probe->edges, 1);
}

static int depth_of(const plim_dataset_info_t *info)
{
    return info->num_edges < SMALL_EDGES ? SHALLOW : DEPTH;
}

static plim__range_reader_params_t reader_params(const plim_dataset_info_t *info)
{
    return (plim__range_reader_params_t){.depth = depth_of(info),
                                         .max_read = sizeof(int64_t),
                                         .merge_distance = PLIM__MERGE_DISTANCE};
}

static plim__source_params_t source_params(const plim_dataset_info_t *info)
{
    return (plim__source_params_t){
        .workers = 1, .depth = depth_of(info), .merge_distance = PLIM__MERGE_DISTANCE};
}

size_t plim__probe_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim_recipe_t *recipe)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    probe_t probe = {0};
    find_capacities(info, recipe, &probe);
    plim__blocks_params_t blocks = plim__load_blocks(info, recipe);
    blocks.node_capacity = probe.node_capacity;
    const plim__range_reader_params_t reader = reader_params(info);
    const plim__source_params_t source = source_params(info);
    const size_t sizes[] = {plim__object_bytes(lay_out, &probe, sizeof probe),
                            plim__offsets_estimate(dataset, false),
                            plim__offsets_work_minimum(job),
                            plim__topology_disk_estimate(job, dataset, &source),
                            plim__blocks_estimate(&blocks),
                            plim__range_reader_estimate(job->io_engine, &reader)};
    size_t sum = 0;
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        sum = plim__add_saturating_size(sum, sizes[i]);
    return sum;
}

/* Reads the ids of `count` training nodes, in the order of a keyed permutation from `first` on. */
static plim_status_t read_seeds(const plim_job_t *job, const plim_dataset_t *dataset,
                                probe_t *probe, uint64_t key, int64_t first, int64_t count)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim__manifest_file_t *entry =
        plim__manifest_find(plim__dataset_manifest(dataset), "train.npy");
    const plim__range_reader_params_t params = reader_params(info);
    plim__permute_t order = plim__permute_make((uint64_t)info->num_split[PLIM_TRAIN], key);
    plim__range_reader_t *reader;
    plim__file_t file;
    uint64_t *places = (uint64_t *)probe->seeds;
    for (int64_t i = 0; i < count; i++)
        places[i] = plim__permute_forward(&order, (uint64_t)(first + i) % order.count);
    places = plim__radix_sort(places, probe->sort_scratch, count, 63);
    for (int64_t i = 0; i < count; i++)
        probe->reads[i] = (plim__read_t){(int64_t)(PLIM__NPY_HEADER + places[i] * sizeof(int64_t)),
                                         sizeof(int64_t), &probe->seeds[i]};
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &file));
    plim_status_t status = plim__range_reader_create(job, &params, &reader);
    if (status == PLIM_OK) {
        status = plim__range_reader_read(reader, &file, probe->reads, count);
        plim__range_reader_destroy(reader);
    }
    plim__file_close(&file);
    for (int64_t i = 0; i < count && status == PLIM_OK; i++)
        if (probe->seeds[i] < 0 || probe->seeds[i] >= info->num_nodes)
            status = plim__fail(PLIM_ERR_DATA,
                                "%s/train.npy: entry %lld is %lld, but there are %lld nodes; copy "
                                "or make the dataset again",
                                plim__dataset_path(dataset),
                                (long long)(probe->reads[i].offset - (int64_t)PLIM__NPY_HEADER) / 8,
                                (long long)probe->seeds[i], (long long)info->num_nodes);
    return status;
}

static plim_status_t draw(const plim_job_t *job, const plim_dataset_t *dataset,
                          const plim_recipe_t *recipe, probe_t *probe, plim__topology_t *source,
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
                                  .node_capacity = probe->node_capacity,
                                  .edges = probe->edges,
                                  .edge_capacity = probe->edge_capacity,
                                  .num_hops = recipe->num_hops};
        bool fits;
        int64_t edges = 0;
        PLIM_TRY(plim__job_check(job));
        PLIM_TRY(read_seeds(job, dataset, probe, key, first, seeds));
        PLIM_TRY(plim__blocks_build(blocks, source, 0, 0, probe->seeds, seeds, &out, &fits));
        if (!fits) /* more seeds would not fit either: use the sizes so far */
            break;
        for (int hop = 0; hop < recipe->num_hops; hop++)
            edges += out.blocks[hop].num_dst + 1 + out.blocks[hop].num_edges;
        result->sizes[result->count++] = (plim__probe_size_t){seeds, out.num_nodes, edges};
        first += seeds;
    }
    return PLIM_OK;
}

plim_status_t plim__probe_run(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_recipe_t *recipe, plim__probe_t *probe_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__offsets_t *offsets = NULL;
    plim__topology_t *source = NULL;
    plim__blocks_t *blocks = NULL;
    plim__probe_t result = {0};
    probe_t draft = {0}, *probe;
    find_capacities(info, recipe, &draft);
    plim__blocks_params_t params = plim__load_blocks(info, recipe);
    params.node_capacity = draft.node_capacity;
    const plim__source_params_t disk = source_params(info);
    PLIM_TRY(plim__object_create(job->ledger, "probe", lay_out, &draft, sizeof draft, &draft.arena,
                                 &probe));
    plim_status_t status = plim__offsets_create(job, dataset, false, &offsets);
    if (status == PLIM_OK)
        status = plim__topology_disk_create(job, dataset, offsets, &disk, &source);
    if (status == PLIM_OK)
        status = plim__blocks_create(job, &params, &blocks);
    if (status == PLIM_OK)
        status = draw(job, dataset, recipe, probe, source, blocks, &result);
    plim__blocks_destroy(blocks);
    plim__topology_disk_destroy(source);
    plim__offsets_destroy(offsets);
    plim__arena_destroy(&probe->arena);
    if (status == PLIM_OK)
        *probe_out = result;
    return status;
}

/* Estimates the nodes that `together` seeds reach. Admits nothing to a cache. */
static plim_status_t estimate_reach(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim_recipe_t *recipe, const plim__offsets_t *offsets,
                                    const plim__seeds_t *seeds, int64_t together,
                                    plim__reach_t *reach_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const int64_t num_seeds = plim__seeds_count(seeds, PLIM_TRAIN);
    const int64_t free_bytes = plim__ledger_available(job->ledger) -
                               (int64_t)plim__access_estimate(info->num_nodes, false);
    plim__access_params_t params = {.num_hops = recipe->num_hops,
                                    .replace = recipe->replace,
                                    .seeds = plim__seeds_ids(seeds, PLIM_TRAIN),
                                    .num_seeds = num_seeds,
                                    .share = (double)together / (double)num_seeds,
                                    .row_bytes = 1,
                                    .list_bytes = plim__index_bytes(info->index_type),
                                    .list_fixed = PLIM__LOAD_START_BYTES,
                                    .work_bytes = (size_t)plim__max_i64(free_bytes, 0)};
    plim__access_t access;
    memcpy(params.fanout, recipe->fanout, sizeof params.fanout);
    if (plim__access_needs_file(job, info->num_nodes, params.work_bytes))
        return plim__fail(PLIM_ERR_BUDGET,
                          "access probabilities of %lld nodes do not fit in memory",
                          (long long)info->num_nodes);
    PLIM_TRY(plim__access_find(job, dataset, offsets, &params, &access));
    *reach_out = access.reach;
    reach_out->seeds = together;
    plim__access_free(&access);
    return PLIM_OK;
}

plim_status_t plim__probe_reach(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim_recipe_t *recipe, int64_t together,
                                plim__reach_t *reach_out)
{
    plim__offsets_t *offsets = NULL;
    plim__seeds_t *seeds = NULL;
    plim_status_t status = plim__offsets_create(job, dataset, false, &offsets);
    if (status == PLIM_OK)
        status = plim__seeds_create(job, dataset, 0, &seeds);
    if (status == PLIM_OK)
        status = estimate_reach(job, dataset, recipe, offsets, seeds, together, reach_out);
    plim__seeds_destroy(seeds);
    plim__offsets_destroy(offsets);
    return status;
}

#define HELD ((int64_t)(PLIM__LARGEST_GRAPH_BYTES / 2 / sizeof(int64_t)))

/* An array of offsets, read from front to back, a chunk at a time. */
typedef struct offsets {
    plim__file_t file;
    int64_t count;
    int64_t first;   /* number of the first one in memory, … */
    int64_t held;    /* … and how many there are */
    int64_t *values; /* (HELD), page-aligned */
} offsets_t;

static plim_status_t open_offsets(const plim_dataset_t *dataset, const char *name, int64_t count,
                                  int64_t *values, offsets_t *offsets)
{
    const plim__manifest_file_t *entry = plim__manifest_find(plim__dataset_manifest(dataset), name);
    *offsets = (offsets_t){.file = {.fd = -1}, .count = count, .values = values};
    if (entry == NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: there is no file %s", plim__dataset_path(dataset),
                          name);
    return plim__dataset_file_open(dataset, entry, true, &offsets->file);
}

/* Offset `number`; numbers ascend from call to call. */
static plim_status_t offset_at(offsets_t *offsets, int64_t number, int64_t *value_out)
{
    if (number >= offsets->first + offsets->held) {
        offsets->first = number / HELD * HELD;
        offsets->held = plim__min_i64(offsets->count - offsets->first, HELD);
        size_t bytes = (size_t)offsets->held * sizeof(int64_t);
        PLIM_TRY(plim__file_read_at(
            &offsets->file, (int64_t)PLIM__NPY_HEADER + offsets->first * (int64_t)sizeof(int64_t),
            offsets->values, plim__round_up(bytes, offsets->file.align)));
    }
    *value_out = offsets->values[number - offsets->first];
    return PLIM_OK;
}

static plim_status_t scan_graphs(const plim_job_t *job, const plim_dataset_info_t *info,
                                 offsets_t *graphs, offsets_t *lists, int64_t *nodes_out,
                                 int64_t *edges_out)
{
    int64_t node = 0, edge = 0, nodes = 0, edges = 0;
    for (int64_t i = 0; i <= info->num_graphs; i++) {
        int64_t next_node, next_edge;
        if (i % HELD == 0)
            PLIM_TRY(plim__job_check(job));
        PLIM_TRY(offset_at(graphs, i, &next_node));
        if (next_node < node || next_node > info->num_nodes || (i == 0 && next_node != 0))
            return plim__fail(PLIM_ERR_DATA,
                              "%s: does not ascend from 0 to the number of nodes; make the dataset "
                              "again",
                              graphs->file.path);
        PLIM_TRY(offset_at(lists, next_node, &next_edge));
        if (next_edge < edge || next_edge > info->num_edges)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: does not ascend from 0 to the number of edges; make the dataset "
                              "again",
                              lists->file.path);
        nodes = plim__max_i64(nodes, next_node - node);
        edges = plim__max_i64(edges, next_edge - edge);
        node = next_node;
        edge = next_edge;
    }
    *nodes_out = nodes;
    *edges_out = edges;
    return PLIM_OK;
}

plim_status_t plim__largest_graph(const plim_job_t *job, const plim_dataset_t *dataset,
                                  int64_t *nodes_out, int64_t *edges_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    offsets_t graphs = {.file = {.fd = -1}}, lists = {.file = {.fd = -1}};
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "probe", PLIM__LARGEST_GRAPH_BYTES, &arena));
    int64_t *values = plim__arena_carve(&arena, 2 * (size_t)HELD, sizeof(int64_t), PLIM__PAGE);
    plim_status_t status =
        open_offsets(dataset, "graph_indptr.npy", info->num_graphs + 1, values, &graphs);
    if (status == PLIM_OK)
        status = open_offsets(dataset, "indptr.npy", info->num_nodes + 1, values + HELD, &lists);
    if (status == PLIM_OK)
        status = scan_graphs(job, info, &graphs, &lists, nodes_out, edges_out);
    plim__file_close(&lists.file);
    plim__file_close(&graphs.file);
    plim__arena_destroy(&arena);
    return status;
}
