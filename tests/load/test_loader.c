/*
 * The loader as its users see it: batches are what the files say, the stream is one, however it is
 * made, and nothing grows, hangs or is lost.
 */
#include "base/half.h"
#include "base/rng.h"
#include "load/parts.h"
#include "sample/draw.h"
#include "support/dataset.h"
#include "support/harness.h"

#include <plimsoll/plan.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE ((int64_t)1 << 30)
#define NODES 3000
#define FEATURES 7
#define CLASSES 5

static char directory[512];

static int make_directory(void **state)
{
    (void)state;
    test_directory_make(directory);
    return 0;
}

static int remove_directory(void **state)
{
    (void)state;
    test_directory_remove(directory);
    return 0;
}

/* A dataset, and its files in memory for those who check. */
typedef struct fixture {
    plim_job_t job;
    plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    int64_t *indptr;
    int32_t *indices;
    char *features;
    int64_t *labels;
    int64_t *splits[3];
    int64_t *graph_indptr;
} fixture_t;

static void *read_column(const plim_dataset_t *dataset, const char *path, const char *name)
{
    plim_dataset_file_t file;
    char full[700];
    for (int i = 0; plim_dataset_file(dataset, i, &file); i++)
        if (strcmp(file.name, name) == 0) {
            char *data = calloc((size_t)file.bytes, 1);
            (void)snprintf(full, sizeof full, "%s/%s", path, name);
            FILE *stream = fopen(full, "rb");
            assert_non_null(stream);
            assert_int_equal(fseek(stream, 4096, SEEK_SET), 0);
            assert_int_equal(fread(data, 1, (size_t)file.bytes - 4096, stream), file.bytes - 4096);
            (void)fclose(stream);
            return data;
        }
    return NULL;
}

static fixture_t open_fixture(const char *name, const test_graph_t *graph, int threads,
                              plim_io_engine_t engine)
{
    static const char *const splits[3] = {"train.npy", "valid.npy", "test.npy"};
    fixture_t fixture = {.job = test_job_make(LINE, threads, engine)};
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    if (access(path, F_OK) != 0)
        assert_ok(test_dataset_make(&fixture.job, path, graph));
    assert_ok(plim_dataset_open(&fixture.job, path, &fixture.dataset));
    fixture.info = plim_dataset_info(fixture.dataset);
    fixture.indptr = read_column(fixture.dataset, path, "indptr.npy");
    fixture.indices = read_column(fixture.dataset, path, "indices.npy");
    fixture.features = read_column(fixture.dataset, path, "features.npy");
    fixture.labels = read_column(fixture.dataset, path, "labels.npy");
    fixture.graph_indptr = read_column(fixture.dataset, path, "graph_indptr.npy");
    for (int i = 0; i < 3; i++)
        fixture.splits[i] = read_column(fixture.dataset, path, splits[i]);
    return fixture;
}

static void close_fixture(fixture_t *fixture)
{
    free(fixture->indptr);
    free(fixture->indices);
    free(fixture->features);
    free(fixture->labels);
    free(fixture->graph_indptr);
    for (int i = 0; i < 3; i++)
        free(fixture->splits[i]);
    plim_dataset_close(fixture->dataset);
    test_job_end(&fixture->job);
}

static const test_graph_t plain = {
    .num_nodes = NODES, .num_features = FEATURES, .num_classes = CLASSES, .half = true, .seed = 17};

static const plim_recipe_t recipe_two_hops = {.batch_size = 48,
                                              .num_hops = 2,
                                              .fanout = {4, 3},
                                              .seed = 9,
                                              .row_type = PLIM_F32,
                                              .index_type = PLIM_I32};

/* Everything in memory, slots large enough for any batch. */
static plim_load_plan_t memory_plan(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                    int workers)
{
    plim_recipe_t drawn = plim__load_recipe(info, recipe);
    plim__blocks_params_t params = {
        .num_hops = drawn.num_hops, .replace = drawn.replace, .form = drawn.form};
    plim_load_plan_t plan = {.recipe = *recipe,
                             .workers = workers,
                             .topology_in_memory = true,
                             .rows_in_memory = true,
                             .num_slots = 4,
                             .io_depth = 16,
                             .io_gap = 16384};
    int64_t seeds = info->num_graphs > 0 ? 5 * recipe->batch_size : recipe->batch_size;
    memcpy(params.fanout, drawn.fanout, sizeof params.fanout);
    plim__blocks_bound(&params, info->num_nodes, info->max_degree, seeds, &plan.slot_nodes,
                       &plan.slot_edges);
    return plan;
}

/* Everything on disk. */
static plim_load_plan_t disk_plan(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                  int workers, int64_t window_steps)
{
    plim_load_plan_t plan = memory_plan(info, recipe, workers);
    plan.topology_in_memory = false;
    plan.rows_in_memory = false;
    plan.window_steps = window_steps;
    plan.window_draws = 60000;
    plan.window_rows = info->num_nodes;
    return plan;
}

static int64_t index_at(const plim_recipe_t *recipe, const void *array, int64_t i)
{
    return recipe->index_type == PLIM_I32 ? ((const int32_t *)array)[i]
                                          : ((const int64_t *)array)[i];
}

static void check_rows(const fixture_t *fixture, const plim_recipe_t *recipe,
                       const plim_batch_t *batch)
{
    const int64_t columns = fixture->info->num_features;
    for (int64_t i = 0; i < batch->num_nodes; i++) {
        int64_t node = index_at(recipe, batch->nodes, i);
        for (int64_t c = 0; c < columns; c++) {
            uint16_t half = ((const uint16_t *)(const void *)fixture->features)[node * columns + c];
            if (recipe->row_type == PLIM_F16)
                assert_int_equal(((const uint16_t *)batch->rows)[i * columns + c], half);
            else {
                float value;
                plim__half_widen(plim__half_best(), &half, &value, 1);
                assert_true(((const float *)batch->rows)[i * columns + c] == value);
            }
        }
    }
}

/* Every destination's draws, as the definition says, by the node's own list in the files. */
static void check_block(const fixture_t *fixture, const plim_recipe_t *recipe,
                        const plim_batch_t *batch, int hop, int64_t known)
{
    const plim_block_t *block = &batch->blocks[hop];
    plim__hop_t draw = {recipe->seed, batch->epoch, hop, recipe->fanout[hop], recipe->replace};
    int64_t positions[64], met = known;
    assert_int_equal(block->first_dst + block->num_dst, known);
    for (int64_t i = 0; i < block->num_dst; i++) {
        int64_t node = index_at(recipe, batch->nodes, block->first_dst + i);
        int64_t degree = fixture->indptr[node + 1] - fixture->indptr[node];
        int64_t first = index_at(recipe, block->indptr, i);
        int64_t count = plim__draw_count(&draw, degree);
        assert_int_equal(index_at(recipe, block->indptr, i + 1) - first, count);
        plim__draw_positions(&draw, node, degree, positions);
        for (int64_t j = 0; j < count; j++) {
            int64_t local = index_at(recipe, block->indices, first + j);
            assert_in_range(local, 0, met);
            met += local == met;
            assert_int_equal(index_at(recipe, batch->nodes, local),
                             fixture->indices[fixture->indptr[node] + positions[j]]);
        }
    }
    assert_int_equal(met, block->num_src);
}

static void check_batch(const fixture_t *fixture, const plim_recipe_t *recipe,
                        const plim_batch_t *batch)
{
    char *seen = calloc((size_t)fixture->info->num_nodes, 1);
    int64_t known = batch->num_seeds;
    assert_int_equal(batch->num_blocks, recipe->num_hops);
    for (int64_t i = 0; i < batch->num_nodes; i++)
        assert_int_equal(seen[index_at(recipe, batch->nodes, i)]++, 0);
    for (int hop = 0; hop < batch->num_blocks; hop++) {
        if (recipe->form == PLIM_NATIVE)
            assert_int_equal(batch->blocks[hop].first_dst, 0);
        check_block(fixture, recipe, batch, hop, known);
        known = batch->blocks[hop].num_src;
    }
    assert_int_equal(known, batch->num_nodes);
    for (int64_t i = 0; i < batch->num_seeds; i++)
        assert_int_equal(((const int64_t *)batch->labels)[i],
                         fixture->labels[index_at(recipe, batch->nodes, i)]);
    check_rows(fixture, recipe, batch);
    free(seen);
}

static void batches_are_what_the_files_say(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    for (int variant = 0; variant < 6; variant++) {
        plim_recipe_t recipe = recipe_two_hops;
        recipe.index_type = variant % 2 == 0 ? PLIM_I32 : PLIM_I64;
        recipe.row_type = variant % 3 == 0 ? PLIM_F16 : PLIM_F32;
        recipe.form = variant == 4 ? PLIM_PYG : PLIM_NATIVE;
        recipe.replace = variant == 5;
        plim_load_plan_t plan = memory_plan(fixture.info, &recipe, 2);
        plim_loader_t *loader;
        plim_batch_t *batch;
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        for (int split = 0; split < 3; split++) {
            char *seen = calloc(NODES, 1);
            int64_t seeds = 0, steps = 0;
            assert_ok(plim_loader_start(loader, split, 3, 0));
            for (;; steps++) {
                assert_ok(plim_loader_next(loader, &batch));
                if (batch == NULL)
                    break;
                assert_int_equal(batch->epoch, 3);
                assert_int_equal(batch->step, steps);
                assert_true(batch->last_part && batch->first_seed == 0);
                check_batch(&fixture, &recipe, batch);
                for (int64_t i = 0; i < batch->num_seeds; i++, seeds++) {
                    int64_t node = index_at(&recipe, batch->nodes, i);
                    assert_int_equal(node % 3, split);
                    assert_int_equal(seen[node]++, 0);
                    if (split != PLIM_TRAIN)
                        assert_int_equal(node, fixture.splits[split][seeds]);
                }
                plim_batch_release(batch);
            }
            assert_int_equal(seeds, fixture.info->num_split[split]);
            assert_int_equal(steps, plim_loader_steps(loader, split));
            free(seen);
        }
        plim_loader_destroy(loader);
    }
    close_fixture(&fixture);
}

/* The hash of the rest of an epoch from a step on; counts its parts. */
static uint64_t hash_from(plim_loader_t *loader, plim_split_t split, int64_t epoch, int64_t step,
                          uint64_t hash, int64_t *parts)
{
    plim_batch_t *batch;
    assert_ok(plim_loader_start(loader, split, epoch, step));
    for (;;) {
        assert_ok(plim_loader_next(loader, &batch));
        if (batch == NULL)
            return hash;
        hash = plim_loader_hash(loader, batch, hash);
        (*parts)++;
        plim_batch_release(batch);
    }
}

/* Two training epochs with a validation between them. */
static uint64_t hash_of(const fixture_t *fixture, const plim_load_plan_t *plan, int64_t *parts)
{
    plim_loader_t *loader;
    uint64_t hash = 0;
    *parts = 0;
    assert_ok(plim_loader_create(&fixture->job, fixture->dataset, plan, &loader));
    hash = hash_from(loader, PLIM_TRAIN, 0, 0, hash, parts);
    hash = hash_from(loader, PLIM_TRAIN, 1, 0, hash, parts);
    hash = hash_from(loader, PLIM_VALID, 1, 0, hash, parts);
    hash = hash_from(loader, PLIM_TRAIN, 2, 0, hash, parts);
    plim_loader_destroy(loader);
    return hash;
}

static void the_stream_is_one(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    fixture_t threads = open_fixture("plain", &plain, 2, PLIM_IO_THREADS);
    int64_t whole, parts;
    plim_load_plan_t plan = memory_plan(fixture.info, &recipe_two_hops, 1);
    const uint64_t expected = hash_of(&fixture, &plan, &whole);
    for (int workers = 1; workers <= 8; workers *= 2)
        for (int slots = 1; slots <= 5; slots += 2) {
            plan = memory_plan(fixture.info, &recipe_two_hops, workers);
            plan.num_slots = slots;
            assert_true(hash_of(&fixture, &plan, &parts) == expected);
            assert_int_equal(parts, whole);
            plan.slot_nodes = 100; /* most batches do not fit */
            assert_true(hash_of(&fixture, &plan, &parts) == expected);
            assert_true(parts > 2 * whole);
        }
    for (int mode = 0; mode < 24; mode++) {
        static const int64_t windows[] = {1, 3, 1000};
        plan = disk_plan(fixture.info, &recipe_two_hops, mode % 3 + 1, windows[mode % 3]);
        plan.topology_in_memory = mode / 6 == 1;
        plan.rows_in_memory = mode / 6 == 2;
        plan.num_slots = mode % 5 + 1;
        if (mode / 6 == 3)
            plan.slot_nodes = 100;
        assert_true(hash_of(mode % 2 == 0 ? &fixture : &threads, &plan, &parts) == expected);
        assert_true(plan.slot_nodes == 100 ? parts > whole : parts == whole);
    }
    close_fixture(&threads);
    close_fixture(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_what_the_files_say),
        cmocka_unit_test(the_stream_is_one),
    };
    return cmocka_run_group_tests_name("loader", tests, make_directory, remove_directory);
}
