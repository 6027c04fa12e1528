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

/* Training epochs, validation and test among them. */
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
    hash = hash_from(loader, PLIM_TEST, 2, 0, hash, parts);
    hash = hash_from(loader, PLIM_TRAIN, 7, 0, hash, parts); /* not what follows */
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
        static const size_t hot[] = {0, 20000, (size_t)1 << 20};
        plan = disk_plan(fixture.info, &recipe_two_hops, mode % 3 + 1, windows[mode % 3]);
        plan.topology_in_memory = mode / 6 == 1;
        plan.rows_in_memory = mode / 6 == 2;
        plan.num_slots = mode % 5 + 1;
        plan.hot_list_bytes = hot[mode / 3 % 3];
        plan.hot_row_bytes = hot[(mode + 1) / 3 % 3];
        if (mode / 6 == 3)
            plan.slot_nodes = 100;
        assert_true(hash_of(mode % 2 == 0 ? &fixture : &threads, &plan, &parts) == expected);
        assert_true(plan.slot_nodes == 100 ? parts > whole : parts == whole);
    }
    close_fixture(&threads);
    close_fixture(&fixture);
}

/* Recipes of every kind, from memory and from windows. */
static void every_recipe_is_one_stream(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    for (int variant = 0; variant < 6; variant++) {
        plim_recipe_t recipe = recipe_two_hops;
        recipe.form = variant == 0 || variant == 3 ? PLIM_PYG : PLIM_NATIVE;
        recipe.replace = variant == 1;
        recipe.fanout[1] = variant == 2 || variant == 3 ? -1 : 3;
        recipe.num_hops = variant == 4 ? 3 : variant == 5 ? 0 : 2;
        recipe.fanout[2] = 2;
        recipe.no_features = variant == 1;
        recipe.index_type = variant % 2 == 0 ? PLIM_I64 : PLIM_I32;
        recipe.row_type = variant < 3 ? PLIM_F16 : PLIM_F32;
        int64_t whole, parts;
        plim_load_plan_t plan = memory_plan(fixture.info, &recipe, 2);
        const uint64_t expected = hash_of(&fixture, &plan, &whole);
        plan = disk_plan(fixture.info, &recipe, 2, 5);
        plan.hot_row_bytes = plan.hot_list_bytes = 20000;
        assert_true(hash_of(&fixture, &plan, &parts) == expected);
        assert_int_equal(parts, whole);
        plan.recipe.seed++;
        if (recipe.num_hops > 0)
            assert_true(hash_of(&fixture, &plan, &parts) != expected);
    }
    close_fixture(&fixture);
}

static void any_step_continues_the_stream(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    for (int mode = 0; mode < 3; mode++) {
        plim_load_plan_t plan = disk_plan(fixture.info, &recipe_two_hops, 2, 4);
        plan.topology_in_memory = plan.rows_in_memory = mode == 0;
        plan.slot_nodes = mode == 2 ? 100 : plan.slot_nodes;
        plim_loader_t *loader;
        plim_batch_t *batch;
        int64_t parts = 0;
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        const int64_t steps = plim_loader_steps(loader, PLIM_TRAIN);
        const uint64_t expected = hash_from(loader, PLIM_TRAIN, 5, 0, 0, &parts);
        for (int64_t cut = 0; cut <= steps; cut += 1 + cut / 2) {
            uint64_t hash = 0;
            /* Some of another stream first, then this one up to the cut, in the middle of windows
             * and of what was built ahead. */
            assert_ok(plim_loader_start(loader, cut % 3, cut, cut % 2));
            for (int i = 0; i < cut % 4; i++) {
                assert_ok(plim_loader_next(loader, &batch));
                plim_batch_release(batch);
            }
            assert_ok(plim_loader_start(loader, PLIM_TRAIN, 5, 0));
            for (int64_t step = 0; step < cut;) {
                assert_ok(plim_loader_next(loader, &batch));
                assert_int_equal(batch->step, step);
                hash = plim_loader_hash(loader, batch, hash);
                step += batch->last_part;
                plim_batch_release(batch);
            }
            assert_true(hash_from(loader, PLIM_TRAIN, 5, cut, hash, &parts) == expected);
        }
        assert_int_equal(plim_loader_start(loader, PLIM_TRAIN, 0, steps + 1), PLIM_ERR_USAGE);
        assert_int_equal(plim_loader_start(loader, PLIM_TRAIN, -1, 0), PLIM_ERR_USAGE);
        plim_loader_destroy(loader);
    }
    close_fixture(&fixture);
}

/* The n-th list, as the files say, shifted to where its graph lies in the batch. */
static void check_graphs(const fixture_t *fixture, const plim_recipe_t *recipe,
                         const plim_batch_t *batch, int64_t first)
{
    const plim_block_t *block = &batch->blocks[0];
    int64_t local = 0;
    assert_int_equal(batch->num_blocks, 1);
    assert_int_equal(block->num_dst, batch->num_nodes);
    assert_int_equal(block->num_src, batch->num_nodes);
    for (int64_t i = 0; i < batch->num_seeds; i++) {
        int64_t graph = fixture->splits[PLIM_VALID][first + i];
        int64_t start = fixture->graph_indptr[graph];
        assert_int_equal(index_at(recipe, batch->graph_indptr, i), local);
        assert_int_equal(((const int64_t *)batch->labels)[i], fixture->labels[graph]);
        for (int64_t node = start; node < fixture->graph_indptr[graph + 1]; node++, local++) {
            int64_t at = index_at(recipe, block->indptr, local);
            assert_int_equal(index_at(recipe, batch->nodes, local), node);
            assert_int_equal(index_at(recipe, block->indptr, local + 1) - at,
                             fixture->indptr[node + 1] - fixture->indptr[node]);
            for (int64_t j = fixture->indptr[node]; j < fixture->indptr[node + 1]; j++, at++)
                assert_int_equal(index_at(recipe, block->indices, at) -
                                     index_at(recipe, batch->graph_indptr, i),
                                 fixture->indices[j] - start);
        }
    }
    assert_int_equal(local, batch->num_nodes);
    assert_int_equal(index_at(recipe, batch->graph_indptr, batch->num_seeds), local);
    check_rows(fixture, recipe, batch);
}

/* A dataset of many graphs whose edges stay inside: each node of graph g draws from all of it. */
static void make_graphs(const plim_job_t *job, const char *path, bool leaving)
{
    enum { GRAPHS = 300 };
    static int64_t indptr[4000], graph_indptr[GRAPHS + 1], labels[GRAPHS], split[GRAPHS];
    static int32_t indices[40000];
    static uint16_t features[4000 * FEATURES];
    plim__dataset_writer_t *writer;
    int64_t nodes = 0, edges = 0;
    for (int64_t g = 0; g < GRAPHS; g++) {
        int64_t size = g % 7 == 3 ? 0 : 1 + g % 11;
        for (int64_t i = 0; i < size; i++) {
            for (int64_t j = 0; j < size; j += 1 + (g + i) % 3)
                indices[edges++] = (int32_t)(nodes + j);
            indptr[nodes + i + 1] = edges;
        }
        nodes += size;
        graph_indptr[g + 1] = nodes;
        labels[g] = g % CLASSES;
    }
    if (leaving)
        indices[edges - 1] = 0;
    for (int64_t i = 0; i < nodes * FEATURES; i++)
        features[i] = (uint16_t)(0x3800 + i % 1024);
    assert_ok(plim__dataset_begin(job, path, &writer));
    assert_ok(test_column(writer, "indptr", PLIM__I64, 1, (int64_t[]){nodes + 1}, indptr,
                          (size_t)(nodes + 1) * 8));
    assert_ok(test_column(writer, "indices", PLIM__I32, 1, (int64_t[]){edges}, indices,
                          (size_t)edges * 4));
    assert_ok(test_column(writer, "features", PLIM__F16, 2, (int64_t[]){nodes, FEATURES}, features,
                          (size_t)nodes * FEATURES * 2));
    assert_ok(test_column(writer, "graph_indptr", PLIM__I64, 1, (int64_t[]){GRAPHS + 1},
                          graph_indptr, sizeof graph_indptr));
    assert_ok(
        test_column(writer, "labels", PLIM__I64, 1, (int64_t[]){GRAPHS}, labels, sizeof labels));
    for (int s = 0; s < 2; s++) {
        int64_t count = 0;
        for (int64_t g = s; g < GRAPHS; g += 2)
            split[count++] = GRAPHS - 1 - g;
        assert_ok(test_column(writer, s == 0 ? "train" : "valid", PLIM__I64, 1, &count, split,
                              (size_t)count * 8));
    }
    assert_ok(plim__dataset_finish(writer, &(plim__dataset_facts_t){.num_nodes = nodes,
                                                                    .num_graphs = GRAPHS,
                                                                    .num_classes = CLASSES,
                                                                    .source = "test",
                                                                    .options = ""}));
}

static void graphs_come_whole(void **state)
{
    (void)state;
    char path[600];
    plim_job_t job = test_job_make(LINE, 1, PLIM_IO_AUTO);
    (void)snprintf(path, sizeof path, "%s/graphs", directory);
    make_graphs(&job, path, false);
    test_job_end(&job);
    fixture_t fixture = open_fixture("graphs", NULL, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = {
        .batch_size = 16, .seed = 4, .row_type = PLIM_F32, .index_type = PLIM_I64};
    int64_t whole, parts;
    plim_load_plan_t plan = memory_plan(fixture.info, &recipe, 2);
    plan.slot_nodes = 16 * 11;
    plan.slot_edges = 16 * 11 * 12 + 1;
    const uint64_t expected = hash_of(&fixture, &plan, &whole);
    for (int mode = 0; mode < 8; mode++) {
        plim_loader_t *loader;
        plim_batch_t *batch;
        plan = mode < 2 ? memory_plan(fixture.info, &recipe, mode + 1)
                        : disk_plan(fixture.info, &recipe, 2, mode % 3 + 1);
        plan.slot_nodes = mode % 2 == 0 ? 16 * 11 : 20; /* the latter holds the largest graph */
        plan.slot_edges = 16 * 11 * 12 + 1;
        plan.hot_list_bytes = plan.hot_row_bytes = mode < 4 ? 0 : 9000;
        assert_true(hash_of(&fixture, &plan, &parts) == expected);
        assert_true(mode % 2 == 0 ? parts == whole : parts > whole);
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        assert_ok(plim_loader_start(loader, PLIM_VALID, 0, 0));
        for (int64_t first = 0;;) {
            assert_ok(plim_loader_next(loader, &batch));
            if (batch == NULL)
                break;
            check_graphs(&fixture, &recipe, batch, first);
            first += batch->num_seeds;
            plim_batch_release(batch);
        }
        plim_loader_destroy(loader);
    }
    close_fixture(&fixture);
}

static void edges_between_graphs_are_refused(void **state)
{
    (void)state;
    char path[600];
    plim_job_t job = test_job_make(LINE, 1, PLIM_IO_AUTO);
    (void)snprintf(path, sizeof path, "%s/leaving", directory);
    make_graphs(&job, path, true);
    test_job_end(&job);
    fixture_t fixture = open_fixture("leaving", NULL, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = {
        .batch_size = 500, .seed = 4, .row_type = PLIM_F32, .index_type = PLIM_I32};
    plim_load_plan_t plan = memory_plan(fixture.info, &recipe, 1);
    plim_loader_t *loader;
    plim_batch_t *batch;
    plan.slot_nodes = 4000;
    plan.slot_edges = 60000;
    assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
    for (int split = 0; split < 2; split++) {
        assert_ok(plim_loader_start(loader, split, 0, 0));
        plim_status_t status = plim_loader_next(loader, &batch);
        if (split == 0) { /* the last graph, which has the edge, is of the training split */
            assert_int_equal(status, PLIM_ERR_DATA);
            assert_non_null(strstr(plim_last_error(), "another graph"));
        } else {
            assert_ok(status);
            plim_batch_release(batch);
        }
    }
    plim_loader_destroy(loader);
    close_fixture(&fixture);
}

/* A consumer in another thread: takes what it is given, looks at it, releases it. */
typedef struct consumer {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    plim_batch_t *batch;
    bool ended;
    int64_t nodes;
} consumer_t;

static void *consume(void *context)
{
    consumer_t *consumer = context;
    pthread_mutex_lock(&consumer->lock);
    for (;;) {
        while (consumer->batch == NULL && !consumer->ended)
            pthread_cond_wait(&consumer->moved, &consumer->lock);
        plim_batch_t *batch = consumer->batch;
        if (batch == NULL)
            break;
        consumer->batch = NULL;
        pthread_cond_broadcast(&consumer->moved);
        pthread_mutex_unlock(&consumer->lock);
        int64_t nodes = 0;
        for (int64_t i = 0; i < batch->num_nodes; i++)
            nodes += ((const int32_t *)batch->nodes)[i];
        plim_batch_release(batch);
        pthread_mutex_lock(&consumer->lock);
        consumer->nodes += nodes;
    }
    pthread_mutex_unlock(&consumer->lock);
    return NULL;
}

static void give(consumer_t *consumer, plim_batch_t *batch)
{
    pthread_mutex_lock(&consumer->lock);
    while (consumer->batch != NULL)
        pthread_cond_wait(&consumer->moved, &consumer->lock);
    consumer->batch = batch;
    consumer->ended = batch == NULL;
    pthread_cond_broadcast(&consumer->moved);
    pthread_mutex_unlock(&consumer->lock);
}

static void other_threads_may_hold_batches(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    for (int mode = 0; mode < 2; mode++) {
        plim_load_plan_t plan = disk_plan(fixture.info, &recipe_two_hops, 3, 4);
        plan.topology_in_memory = plan.rows_in_memory = mode == 0;
        plan.num_slots = 7;
        plim_loader_t *loader;
        plim_batch_t *batch;
        consumer_t consumers[2] = {
            {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER},
            {.lock = PTHREAD_MUTEX_INITIALIZER, .moved = PTHREAD_COND_INITIALIZER}};
        pthread_t threads[2];
        int64_t nodes = 0;
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        for (int i = 0; i < 2; i++)
            assert_int_equal(pthread_create(&threads[i], NULL, consume, &consumers[i]), 0);
        for (int64_t epoch = 0; epoch < 5; epoch++) {
            assert_ok(plim_loader_start(loader, PLIM_TRAIN, epoch, 0));
            for (;;) {
                assert_ok(plim_loader_next(loader, &batch));
                if (batch == NULL)
                    break;
                for (int64_t i = 0; i < batch->num_nodes; i++)
                    nodes += ((const int32_t *)batch->nodes)[i];
                plim_batch_retain(batch);
                give(&consumers[0], batch);
                give(&consumers[1], batch);
            }
        }
        for (int i = 0; i < 2; i++) {
            give(&consumers[i], NULL);
            assert_int_equal(pthread_join(threads[i], NULL), 0);
            assert_int_equal(consumers[i].nodes, nodes);
        }
        plim_loader_destroy(loader);
    }
    close_fixture(&fixture);
}

static void holding_every_slot_is_said(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    for (int workers = 1; workers <= 3; workers++) {
        plim_load_plan_t plan = memory_plan(fixture.info, &recipe_two_hops, workers);
        plim_loader_t *loader;
        plim_batch_t *held[3], *batch;
        plan.num_slots = 3;
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        assert_int_equal(plim_loader_next(loader, &batch), PLIM_ERR_USAGE); /* not started */
        assert_ok(plim_loader_start(loader, PLIM_TRAIN, 0, 0));
        for (int i = 0; i < 3; i++)
            assert_ok(plim_loader_next(loader, &held[i]));
        assert_int_equal(plim_loader_next(loader, &batch), PLIM_ERR_USAGE);
        assert_non_null(strstr(plim_last_error(), "slots"));
        /* What is held stays valid over a start, and one slot given back is enough to go on. */
        uint64_t hash = plim_loader_hash(loader, held[1], 0);
        plim_batch_release(held[0]);
        for (int i = 0; i < 5; i++) {
            assert_ok(plim_loader_next(loader, &batch));
            assert_int_equal(batch->step, 3 + i);
            plim_batch_release(batch);
        }
        assert_ok(plim_loader_start(loader, PLIM_TEST, 0, 2));
        assert_ok(plim_loader_next(loader, &batch));
        assert_int_equal(batch->step, 2);
        assert_true(plim_loader_hash(loader, held[1], 0) == hash);
        plim_batch_release(held[1]);
        plim_batch_release(held[2]);
        plim_batch_release(batch);
        plim_loader_destroy(loader);
    }
    close_fixture(&fixture);
}

static void parts_come_one_after_the_other(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    plim_load_plan_t plan = memory_plan(fixture.info, &recipe_two_hops, 2);
    plim_loader_t *loader;
    plim_batch_t *batch, *next;
    plan.slot_nodes = 100;
    assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
    assert_ok(plim_loader_start(loader, PLIM_TRAIN, 0, 0));
    int64_t seeds = 0;
    for (bool last = false; !last;) {
        assert_ok(plim_loader_next(loader, &batch));
        assert_int_equal(batch->step, 0);
        assert_int_equal(batch->first_seed, seeds);
        assert_int_equal(batch->batch_seeds, recipe_two_hops.batch_size);
        check_batch(&fixture, &recipe_two_hops, batch);
        seeds += batch->num_seeds;
        if (!batch->last_part) {
            assert_int_equal(plim_loader_next(loader, &next), PLIM_ERR_USAGE);
            assert_non_null(strstr(plim_last_error(), "part"));
        }
        last = batch->last_part;
        plim_batch_release(batch);
    }
    assert_int_equal(seeds, recipe_two_hops.batch_size);
    assert_ok(plim_loader_next(loader, &batch)); /* left in the middle, and still held */
    assert_ok(plim_loader_start(loader, PLIM_TRAIN, 1, 0));
    assert_ok(plim_loader_next(loader, &next));
    plim_batch_release(next);
    plim_batch_release(batch);
    plim_loader_destroy(loader);

    /* What cannot be cut is refused: PyG's form, and a single seed. */
    for (int i = 0; i < 2; i++) {
        plim_recipe_t recipe = recipe_two_hops;
        recipe.form = i == 0 ? PLIM_PYG : PLIM_NATIVE;
        plan = memory_plan(fixture.info, &recipe, 2);
        plan.slot_nodes = i == 0 ? 100 : 3;
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        assert_ok(plim_loader_start(loader, PLIM_TRAIN, 0, 0));
        assert_int_equal(plim_loader_next(loader, &batch), PLIM_ERR_BUDGET);
        assert_non_null(strstr(plim_last_error(), i == 0 ? "PyG" : "alone"));
        assert_int_equal(plim_loader_next(loader, &batch), PLIM_ERR_BUDGET);
        plim_loader_destroy(loader);
    }
    close_fixture(&fixture);
}

/* Memory of the process's own: code that runs for the first time is mapped 16 pages at a time. */
static int64_t resident_pages(void)
{
    long long size, resident, shared;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%lld %lld %lld", &size, &resident, &shared), 3);
    (void)fclose(file);
    return resident - shared;
}

static void a_thousand_epochs_take_no_more_than_two(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    for (int mode = 0; mode < 2; mode++) {
        plim_load_plan_t plan = disk_plan(fixture.info, &recipe_two_hops, 2, 8);
        plan.topology_in_memory = plan.rows_in_memory = mode == 0;
        plan.recipe.batch_size = 250;
        plim_loader_t *loader;
        plim_batch_t *batch;
        int64_t reserved = 0, resident = 0;
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        for (int64_t epoch = 0; epoch < (mode == 0 ? 1000 : 100); epoch++) {
            assert_ok(plim_loader_start(loader, PLIM_TRAIN, epoch, 0));
            for (;;) {
                assert_ok(plim_loader_next(loader, &batch));
                if (batch == NULL)
                    break;
                plim_batch_release(batch);
            }
            if (epoch == 1) {
                reserved = plim_ledger_reserved(fixture.job.ledger);
                resident = resident_pages();
            }
        }
        assert_int_equal(plim_ledger_reserved(fixture.job.ledger), reserved);
        if (TEST_SANITIZED)
            print_message("skipped: resident pages, which are the sanitizer's too\n");
        else
            assert_int_equal(resident_pages(), resident);
        plim_loader_destroy(loader);
    }
    close_fixture(&fixture);
}

/* A dataset of its own, whose file is cut while the loader reads it. */
static void a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    const char *files[] = {"features.npy", "indices.npy"};
    for (int i = 0; i < 4; i++) {
        char name[32], path[700];
        (void)snprintf(name, sizeof name, "cut%d", i);
        fixture_t fixture = open_fixture(name, &plain, 2, i < 2 ? PLIM_IO_AUTO : PLIM_IO_THREADS);
        plim_load_plan_t plan = disk_plan(fixture.info, &recipe_two_hops, 2, 2);
        plim_loader_t *loader;
        plim_batch_t *batch = NULL;
        plim_status_t status;
        int64_t delivered = 0;
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        assert_ok(plim_loader_start(loader, PLIM_TRAIN, 0, 0));
        assert_ok(plim_loader_next(loader, &batch));
        plim_batch_release(batch);
        (void)snprintf(path, sizeof path, "%s/%s/%s", directory, name, files[i % 2]);
        assert_int_equal(truncate(path, 4096 + 512), 0);
        while ((status = plim_loader_next(loader, &batch)) == PLIM_OK && batch != NULL) {
            plim_batch_release(batch);
            delivered++;
        }
        assert_int_equal(status, PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), files[i % 2]));
        assert_true(delivered < plim_loader_steps(loader, PLIM_TRAIN));
        assert_int_equal(plim_loader_next(loader, &batch), PLIM_ERR_DATA); /* and stays one */
        assert_ok(plim_loader_start(loader, PLIM_TRAIN, 1, 0));
        assert_int_equal(plim_loader_next(loader, &batch), PLIM_ERR_DATA);
        plim_loader_destroy(loader);
        close_fixture(&fixture);
    }
}

static void stops_when_it_is_told_to(void **state)
{
    (void)state;
    volatile int stop = 0;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    fixture.job.stop = &stop;
    for (int mode = 0; mode < 4; mode++) {
        plim_load_plan_t plan = disk_plan(fixture.info, &recipe_two_hops, 2, 3);
        plan.topology_in_memory = plan.rows_in_memory = mode % 2 == 0;
        plim_loader_t *loader;
        plim_batch_t *batch;
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        assert_ok(plim_loader_start(loader, PLIM_TRAIN, 0, 0));
        if (mode < 2) {
            assert_ok(plim_loader_next(loader, &batch));
            plim_batch_release(batch);
        }
        stop = 1;
        assert_int_equal(plim_loader_next(loader, &batch), PLIM_ERR_STOPPED);
        stop = 0;
        if (mode % 2 == 1) { /* and goes on when it is asked again */
            int64_t parts = 0;
            (void)hash_from(loader, PLIM_TRAIN, 0, 0, 0, &parts);
            assert_int_equal(parts, plim_loader_steps(loader, PLIM_TRAIN));
        }
        plim_loader_destroy(loader);
    }
    stop = 1;
    plim_load_plan_t plan = disk_plan(fixture.info, &recipe_two_hops, 2, 3);
    plim_loader_t *loader = NULL;
    plan.hot_row_bytes = plan.hot_list_bytes = 10000;
    assert_int_equal(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader),
                     PLIM_ERR_STOPPED);
    assert_null(loader);
    close_fixture(&fixture);
}

/* What it says it did, against what came out of it. */
static void counts_what_it_does(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 2, PLIM_IO_AUTO);
    for (int mode = 0; mode < 3; mode++) {
        plim_load_plan_t plan = disk_plan(fixture.info, &recipe_two_hops, 2, 1000);
        plan.topology_in_memory = plan.rows_in_memory = mode == 0;
        plan.hot_row_bytes = mode == 2 ? NODES / 2 * 16 : 0;
        plan.slot_nodes = 400;
        plim_loader_t *loader;
        plim_batch_t *batch;
        plim_load_stats_t stats, expected = {0};
        char *seen = calloc(NODES, 1);
        int64_t distinct = 0;
        assert_ok(plim_loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        assert_ok(plim_loader_start(loader, PLIM_TRAIN, 0, 0));
        for (;;) {
            assert_ok(plim_loader_next(loader, &batch));
            if (batch == NULL)
                break;
            expected.parts++;
            expected.batches += batch->last_part;
            expected.nodes += batch->num_nodes;
            for (int i = 0; i < batch->num_blocks; i++)
                expected.edges += batch->blocks[i].num_edges;
            for (int64_t i = 0; i < batch->num_nodes; i++)
                distinct += seen[index_at(&plan.recipe, batch->nodes, i)]++ == 0;
            plim_batch_release(batch);
        }
        plim_loader_stats(loader, &stats);
        assert_int_equal(stats.parts, expected.parts);
        assert_int_equal(stats.batches, plim_loader_steps(loader, PLIM_TRAIN));
        assert_int_equal(stats.batches, expected.batches);
        assert_int_equal(stats.nodes, expected.nodes);
        assert_int_equal(stats.edges, expected.edges);
        assert_int_equal(stats.windows, mode != 0);
        if (mode == 0) {
            assert_int_equal(stats.rows, expected.nodes);
            assert_int_equal(stats.rows_hot, stats.rows);
            assert_int_equal(stats.row_transfers + stats.list_transfers, 0);
        } else { /* the next epoch may have been read ahead, but was not served */
            assert_int_equal(stats.window_steps, stats.batches);
            assert_int_equal(stats.rows, distinct);
            assert_true(mode == 1 ? stats.rows_hot == 0
                                  : stats.rows_hot > 0 && stats.rows_hot < distinct);
            assert_true(stats.row_transfers > 0 && stats.list_transfers > 0);
        }
        free(seen);
        plim_loader_destroy(loader);
    }
    close_fixture(&fixture);
}

typedef struct making {
    fixture_t *fixture;
    plim_load_plan_t plan;
} making_t;

static plim_status_t create_once(plim_job_t *job, void *context)
{
    making_t *making = context;
    plim_loader_t *loader;
    plim_status_t status =
        plim_loader_create(job, making->fixture->dataset, &making->plan, &loader);
    if (status == PLIM_OK)
        plim_loader_destroy(loader);
    return status;
}

static void survives_each_failing_arena(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 1, PLIM_IO_THREADS);
    making_t making = {&fixture, memory_plan(fixture.info, &recipe_two_hops, 2)};
    test_fail_each_arena(&fixture.job, create_once, &making);
    making.plan = disk_plan(fixture.info, &recipe_two_hops, 2, 3);
    making.plan.hot_list_bytes = making.plan.hot_row_bytes = 20000;
    test_fail_each_arena(&fixture.job, create_once, &making);
    plim_loader_destroy(NULL);
    close_fixture(&fixture);
}

static void senseless_plans_are_refused(void **state)
{
    (void)state;
    fixture_t fixture = open_fixture("plain", &plain, 1, PLIM_IO_AUTO);
    const plim_load_plan_t good = memory_plan(fixture.info, &recipe_two_hops, 2);
    plim_load_plan_t bad[8];
    plim_loader_t *loader;
    for (int i = 0; i < 8; i++)
        bad[i] = good;
    bad[0].recipe.batch_size = 0;
    bad[1].recipe.num_hops = PLIM_HOPS_MAX + 1;
    bad[2].recipe.fanout[1] = -2;
    bad[3].recipe.row_type = PLIM_I32;
    bad[4].recipe.index_type = PLIM_F16;
    bad[5].workers = 0;
    bad[6].num_slots = 65;
    bad[7].slot_nodes = 0;
    for (int i = 0; i < 8; i++)
        assert_int_equal(plim_loader_create(&fixture.job, fixture.dataset, &bad[i], &loader),
                         PLIM_ERR_USAGE);
    bad[0] = good;
    bad[0].recipe.batch_size = INT64_MAX / 4; /* of which every array must be refused */
    assert_int_equal(plim_loader_create(&fixture.job, fixture.dataset, &bad[0], &loader),
                     PLIM_ERR_BUDGET);
    close_fixture(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_what_the_files_say),
        cmocka_unit_test(the_stream_is_one),
        cmocka_unit_test(every_recipe_is_one_stream),
        cmocka_unit_test(any_step_continues_the_stream),
        cmocka_unit_test(graphs_come_whole),
        cmocka_unit_test(edges_between_graphs_are_refused),
        cmocka_unit_test(other_threads_may_hold_batches),
        cmocka_unit_test(holding_every_slot_is_said),
        cmocka_unit_test(parts_come_one_after_the_other),
        cmocka_unit_test(a_thousand_epochs_take_no_more_than_two),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(stops_when_it_is_told_to),
        cmocka_unit_test(counts_what_it_does),
        cmocka_unit_test(survives_each_failing_arena),
        cmocka_unit_test(senseless_plans_are_refused),
    };
    return cmocka_run_group_tests_name("loader", tests, make_directory, remove_directory);
}
