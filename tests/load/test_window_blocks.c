/*
 * Batches whose blocks and rows come from windows over a dataset on disk equal those that come from
 * the dataset in memory, byte for byte.
 */
/* labels: asan tsan */
#include "load/window.h"
#include "support/dataset.h"
#include "support/harness.h"
#include "support/sources.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NODES ((int64_t)4000)
#define FEATURES ((int64_t)20)
#define BATCH ((int64_t)50)
#define BATCHES ((int64_t)9)
#define EDGES ((int64_t)200000)

typedef struct world {
    char directory[512];
    plim_job_t job;
    plim_dataset_t *dataset;
    plim__offsets_t *offsets;
    plim__topology_t *lists[2]; /* in memory, on disk */
    plim__rows_t *rows[2];
    plim__node_set_line_t *lines; /* of the nodes whose lists and rows are kept in memory */
    plim__node_set_t cached;
    int64_t seeds[BATCH * BATCHES];
    int64_t bounds[BATCHES + 1];
} world_t;

static void world_make(world_t *world, plim_io_engine_t engine, bool half)
{
    char path[600];
    memset(world, 0, sizeof *world);
    test_directory_make(world->directory);
    (void)snprintf(path, sizeof path, "%s/data", world->directory);
    world->job = test_job_make(PLIM_LINE_NONE, 2, engine);
    test_graph_t graph = {
        .num_nodes = NODES, .num_features = FEATURES, .num_classes = 3, .half = half, .seed = 21};
    assert_ok(test_dataset_make(&world->job, path, &graph));
    assert_ok(plim_dataset_open(&world->job, path, &world->dataset));
    assert_ok(plim__offsets_create(&world->job, world->dataset, false, &world->offsets));
    size_t bytes = plim__node_set_bytes(NODES);
    world->lines = aligned_alloc(64, bytes);
    assert_non_null(world->lines);
    memset(world->lines, 0, bytes);
    world->cached = plim__node_set_make(world->lines, NODES);
    for (int64_t node = 1; node < NODES; node += 4)
        (void)plim__node_set_add(&world->cached, node);
    plim__node_set_seal(&world->cached);
    assert_ok(test_lists_cached(&world->job, world->dataset, world->offsets, 1, &world->lists[0]));
    assert_ok(test_rows_cached(&world->job, world->dataset, &world->rows[0]));
    plim__source_params_t lists = {.workers = 3,
                                   .depth = 8,
                                   .merge_distance = 512,
                                   .cached = &world->cached,
                                   .cache_bytes = 8192};
    assert_ok(plim__topology_disk_create(&world->job, world->dataset, world->offsets, &lists,
                                         &world->lists[1]));
    plim__source_params_t rows = {.workers = 3,
                                  .depth = 8,
                                  .merge_distance = 512,
                                  .cached = &world->cached,
                                  .cache_bytes = 65536};
    assert_ok(plim__rows_disk_create(&world->job, world->dataset, &rows, &world->rows[1]));
    for (int64_t i = 0; i < BATCH * BATCHES; i++)
        world->seeds[i] = (i * 739 + 11) % NODES;
    for (int64_t i = 0; i <= BATCHES; i++)
        world->bounds[i] = i * BATCH;
}

static void world_end(world_t *world)
{
    for (int i = 0; i < 2; i++) {
        plim__topology_disk_destroy(world->lists[i]);
        plim__rows_disk_destroy(world->rows[i]);
    }
    plim__offsets_destroy(world->offsets);
    plim_dataset_release(world->dataset);
    free(world->lines);
    test_job_end(&world->job);
    test_directory_remove(world->directory);
}

/* One side of the comparison: scratch, and a slot's arrays. */
typedef struct side {
    plim__blocks_t *blocks;
    plim__blocks_out_t out;
    float *rows; /* (NODES, FEATURES) */
} side_t;

static void side_make(side_t *side, const plim_job_t *job, const plim__blocks_params_t *params)
{
    assert_ok(plim__blocks_create(job, params, &side->blocks));
    side->out = (plim__blocks_out_t){.index_type = PLIM_I32,
                                     .node_type = PLIM_I32,
                                     .nodes = malloc((size_t)NODES * sizeof(int32_t)),
                                     .node_capacity = NODES,
                                     .edges = malloc((size_t)EDGES * sizeof(int32_t)),
                                     .edge_capacity = EDGES,
                                     .edge_ids = malloc((size_t)EDGES * sizeof(int64_t))};
    side->rows = malloc((size_t)(NODES * FEATURES) * sizeof(float));
    assert_true(side->out.nodes != NULL && side->out.edge_ids != NULL && side->out.edges != NULL &&
                side->rows != NULL);
}

static void side_end(side_t *side)
{
    plim__blocks_destroy(side->blocks);
    free(side->out.nodes);
    free(side->out.edges);
    free(side->out.edge_ids);
    free(side->rows);
}

static void side_build(side_t *side, plim__topology_t *lists, plim__rows_t *rows, int64_t epoch,
                       const int64_t *seeds, int64_t count)
{
    bool fits;
    assert_ok(plim__blocks_build(side->blocks, lists, 0, epoch, seeds, count, &side->out, &fits));
    assert_true(fits);
    assert_ok(plim__rows_gather(rows, 0, side->out.ids, side->out.num_nodes, PLIM_F32, side->rows));
}

static void compare(const side_t *a, const side_t *b)
{
    assert_int_equal(a->out.num_nodes, b->out.num_nodes);
    assert_memory_equal(a->out.nodes, b->out.nodes, (size_t)a->out.num_nodes * sizeof(int32_t));
    assert_memory_equal(a->rows, b->rows, (size_t)a->out.num_nodes * FEATURES * sizeof(float));
    assert_int_equal(a->out.num_edges, b->out.num_edges);
    assert_memory_equal(a->out.edge_ids, b->out.edge_ids,
                        (size_t)a->out.num_edges * sizeof(int64_t));
    assert_int_equal(a->out.num_hops, b->out.num_hops);
    for (int hop = 0; hop < a->out.num_hops; hop++) {
        const plim_block_t *one = &a->out.blocks[hop], *other = &b->out.blocks[hop];
        assert_int_equal(one->num_dst, other->num_dst);
        assert_int_equal(one->first_dst, other->first_dst);
        assert_int_equal(one->num_src, other->num_src);
        assert_int_equal(one->num_edges, other->num_edges);
        assert_memory_equal(one->indptr, other->indptr,
                            (size_t)(one->num_dst + 1) * sizeof(int32_t));
        assert_memory_equal(one->indices, other->indices, (size_t)one->num_edges * sizeof(int32_t));
    }
}

/* Two epochs through windows of these capacities; returns the windows of the second. */
static int check(world_t *world, const plim__blocks_params_t *blocks, int64_t draws, int64_t rows)
{
    const plim_dataset_info_t *info = plim_dataset_info(world->dataset);
    plim__load_window_params_t params = {.num_hops = blocks->num_hops,
                                         .replace = blocks->replace,
                                         .seed = blocks->seed,
                                         .num_nodes = NODES,
                                         .index_type = info->index_type,
                                         .most_drawn = blocks->most_drawn,
                                         .draws = draws,
                                         .rows = rows,
                                         .row_bytes = (size_t)FEATURES *
                                                      (info->feature_type == PLIM_F16 ? 2 : 4),
                                         .row_type = info->feature_type,
                                         .num_features = FEATURES,
                                         .builders = 2,
                                         .workers = 1};
    memcpy(params.fanout, blocks->fanout, sizeof params.fanout);
    plim__load_window_t *window;
    side_t truth, side;
    int windows = 0;
    assert_ok(
        plim__load_window_create(&world->job, &params, world->lists[1], world->rows[1], &window));
    side_make(&truth, &world->job, blocks);
    side_make(&side, &world->job, blocks);
    for (int64_t epoch = 5; epoch < 7; epoch++) {
        windows = 0;
        for (int64_t batch = 0, taken, end = 0; batch < BATCHES; batch++) {
            const int64_t *bounds = world->bounds + batch;
            if (batch == end) {
                assert_ok(plim__load_window_build(window, epoch, world->seeds, bounds,
                                                  BATCHES - batch, false, &taken));
                end += taken;
                windows++;
            }
            side_build(&truth, world->lists[0], world->rows[0], epoch, world->seeds + bounds[0],
                       bounds[1] - bounds[0]);
            side_build(&side, plim__load_window_topology(window), plim__load_window_rows(window),
                       epoch, world->seeds + bounds[0], bounds[1] - bounds[0]);
            compare(&truth, &side);
        }
    }
    side_end(&side);
    side_end(&truth);
    plim__load_window_destroy(window);
    return windows;
}

static void test_same_as_from_memory(void **state)
{
    const int64_t fanouts[][3] = {{3, 2, 2}, {-1, 2, 1}, {15, 10, 5}, {4, 0, -1}};
    (void)state;
    for (int i = 0; i < 2; i++) {
        world_t world;
        int windows = 0, cases = 0;
        world_make(&world, i == 0 ? PLIM_IO_AUTO : PLIM_IO_THREADS, i == 0);
        for (int variant = 0; variant < 16; variant += i == 0 ? 3 : 5) {
            plim__blocks_params_t blocks = {.num_hops = 3,
                                            .with_edge_ids = true,
                                            .replace = (variant & 1) != 0,
                                            .form = (variant & 2) != 0 ? PLIM_PYG : PLIM_NATIVE,
                                            .seed = 77,
                                            .node_capacity = NODES,
                                            .most_drawn = 15};
            memcpy(blocks.fanout, fanouts[variant / 4], sizeof fanouts[0]);
            assert_int_equal(check(&world, &blocks, 4 * NODES * 16, NODES), 1);
            cases++;
            windows += check(&world, &blocks, 4 * NODES * 16, NODES * 17 / 20);
        }
        assert_in_range(windows, 2 * cases, BATCHES * cases); /* the smaller ones were cut */
        world_end(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_same_as_from_memory)};
    return cmocka_run_group_tests_name("load.window_blocks", tests, NULL, NULL);
}
