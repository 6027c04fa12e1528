#include "support/loader.h"
#include "load/plan_data.h"

#include "base/half.h"
#include "load/loader.h"
#include "plan/load_plan.h"
#include "store/dataset.h"
#include "store/labels.h"
#include "support/draws.h"
#include "support/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __SANITIZE_THREAD__
#define LINE ((int64_t)4 << 30) /* the sanitizer's own memory counts, too */
#else
#define LINE ((int64_t)1 << 30)
#endif

char test_loader_directory[512];

int test_loader_begin(void **state)
{
    (void)state;
    test_directory_make(test_loader_directory);
    return 0;
}

int test_loader_end(void **state)
{
    (void)state;
    test_directory_remove(test_loader_directory);
    return 0;
}

static void *read_column(const plim_dataset_t *dataset, const char *path, const char *name)
{
    plim_dataset_file_t file = PLIM_DATASET_FILE_INIT;
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

/* As int64. */
static int64_t *read_labels(const plim_dataset_t *dataset, const char *path)
{
    const plim__manifest_file_t *file =
        plim__manifest_find(plim__dataset_manifest(dataset), "labels.npy");
    void *stored = read_column(dataset, path, "labels.npy");
    if (stored == NULL || file->type == PLIM__NPY_F32)
        return stored;
    int64_t *labels = calloc((size_t)file->shape[0] + 1, sizeof *labels);
    plim__labels_widen(file->type, stored, file->shape[0], labels);
    free(stored);
    return labels;
}

test_loader_t test_loader_open(const char *name, const test_graph_t *graph, int threads,
                               plim_io_engine_t engine)
{
    static const char *const splits[3] = {"train.npy", "valid.npy", "test.npy"};
    test_loader_t fixture = {.job = test_job_make(LINE, threads, engine)};
    char path[600];
    (void)snprintf(path, sizeof path, "%s/%s", test_loader_directory, name);
    if (access(path, F_OK) != 0)
        assert_ok(test_dataset_make(&fixture.job, path, graph));
    assert_ok(plim_dataset_open(&fixture.job, path, &fixture.dataset));
    fixture.info = plim_dataset_info(fixture.dataset);
    fixture.indptr = read_column(fixture.dataset, path, "indptr.npy");
    fixture.indices = read_column(fixture.dataset, path, "indices.npy");
    fixture.features = read_column(fixture.dataset, path, "features.npy");
    fixture.labels = read_labels(fixture.dataset, path);
    fixture.graph_indptr = read_column(fixture.dataset, path, "graph_indptr.npy");
    for (int i = 0; i < 3; i++)
        fixture.splits[i] = read_column(fixture.dataset, path, splits[i]);
    return fixture;
}

void test_loader_close(test_loader_t *fixture)
{
    free(fixture->indptr);
    free(fixture->indices);
    free(fixture->features);
    free(fixture->labels);
    free(fixture->graph_indptr);
    for (int i = 0; i < 3; i++)
        free(fixture->splits[i]);
    plim_dataset_release(fixture->dataset);
    test_job_end(&fixture->job);
}

const test_graph_t test_plain_graph = {.num_nodes = TEST_NODES,
                                       .num_features = TEST_FEATURES,
                                       .num_classes = TEST_CLASSES,
                                       .half = true,
                                       .seed = 17};

const plim_recipe_t test_two_hops = {.size = sizeof(plim_recipe_t),
                                     .batch_size = 48,
                                     .num_hops = 2,
                                     .fanout = {4, 3},
                                     .seed = 9,
                                     .row_type = PLIM_F32,
                                     .index_type = PLIM_I32};

plim__load_plan_t test_plan_memory(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                   int workers)
{
    plim_recipe_t drawn = plim__load_recipe(info, recipe);
    const plim__blocks_params_t params = plim__load_blocks(info, &drawn);
    plim__load_plan_t plan = {.again = plim__load_plan_again,
                              .recipe = *recipe,
                              .workers = workers,
                              .topology_in_memory = true,
                              .rows_in_memory = true,
                              .num_slots = 4,
                              .io_depth = 16,
                              .merge_distance = 16384};
    int64_t seeds = info->num_graphs > 0 ? 5 * recipe->batch_size : recipe->batch_size;
    plim__blocks_bound(&params, info->num_nodes, info->num_edges, info->max_degree, seeds,
                       &plan.slot_nodes, &plan.slot_edges);
    return plan;
}

plim__load_plan_t test_plan_disk(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                 int workers, int64_t window_steps)
{
    plim__load_plan_t plan = test_plan_memory(info, recipe, workers);
    plan.topology_in_memory = false;
    plan.rows_in_memory = false;
    plan.window_steps = window_steps;
    plan.window_draws = 60000;
    plan.window_rows = info->num_nodes;
    return plan;
}

plim__load_plan_t test_plan_ahead(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                  int workers, int64_t window_rows)
{
    plim__load_plan_t plan = test_plan_disk(info, recipe, workers, 1000);
    plan.window_rows = window_rows;
    plan.ahead_draws = 400000;
    plan.ahead_rows = info->num_nodes;
    plan.bucket_bytes = (int64_t)64 << 20;
    (void)snprintf(plan.scratch, sizeof plan.scratch, "%s", test_loader_directory);
    return plan;
}

int64_t test_index_at(const plim_recipe_t *recipe, const void *array, int64_t i)
{
    return recipe->index_type == PLIM_I32 ? ((const int32_t *)array)[i]
                                          : ((const int64_t *)array)[i];
}

void test_check_rows(const test_loader_t *fixture, const plim_recipe_t *recipe,
                     const plim_batch_t *batch)
{
    const int64_t columns = fixture->info->num_features;
    for (int64_t i = 0; i < batch->num_nodes; i++) {
        int64_t node = test_index_at(recipe, batch->nodes, i);
        for (int64_t c = 0; c < columns; c++) {
            uint16_t half = ((const uint16_t *)(const void *)fixture->features)[node * columns + c];
            if (recipe->row_type == PLIM_F16)
                assert_int_equal(((const uint16_t *)batch->rows)[i * columns + c], half);
            else
                assert_true(((const float *)batch->rows)[i * columns + c] ==
                            plim__f32_from_f16(half));
        }
    }
}

void test_check_degrees(const test_loader_t *fixture, const plim_recipe_t *recipe,
                        const plim_batch_t *batch)
{
    assert_int_equal(batch->degrees != NULL, recipe->degrees);
    for (int64_t i = 0; i < batch->num_nodes && recipe->degrees; i++) {
        int64_t node = test_index_at(recipe, batch->nodes, i);
        assert_int_equal(batch->degrees[i], fixture->indptr[node + 1] - fixture->indptr[node]);
    }
}

/* The array of that name; NULL if the batch does not list it. */
static const plim_array_t *find_array(const plim_batch_t *batch, const char *name)
{
    const plim_array_t *array;
    for (int i = 0; (array = plim_batch_array(batch, i)) != NULL; i++)
        if (strcmp(array->name, name) == 0)
            return array;
    return NULL;
}

static int64_t count_edges(const plim_batch_t *batch)
{
    int64_t edges = 0;
    for (int hop = 0; hop < batch->num_blocks; hop++)
        edges += batch->blocks[hop].num_edges;
    return edges;
}

/* The arrays as the batch lists them. */
static void check_edge_arrays(const plim_recipe_t *recipe, const plim_batch_t *batch)
{
    const plim_array_t *index = find_array(batch, "edge_index"),
                       *ids = find_array(batch, "edge_ids");
    assert_int_equal(batch->edge_index != NULL, recipe->edge_index);
    assert_int_equal(batch->edge_ids != NULL, recipe->edge_ids);
    assert_true((index != NULL) == (batch->edge_index != NULL));
    assert_true((ids != NULL) == (batch->edge_ids != NULL));
    if (index != NULL) {
        assert_true(index->data == batch->edge_index && index->type == recipe->index_type);
        assert_true(index->ndim == 2 && index->shape[0] == 2 && index->hop == -1);
        assert_int_equal(index->shape[1], count_edges(batch));
        assert_int_equal((uintptr_t)index->data % 64, 0);
    }
    if (ids != NULL) {
        assert_true(ids->data == batch->edge_ids && ids->type == PLIM_I64 && ids->ndim == 1);
        assert_int_equal(ids->shape[0], count_edges(batch));
        assert_int_equal((uintptr_t)ids->data % 64, 0);
    }
}

/* One edge: from the neighbour to the node that drew it, at its place in the files. */
static void check_edge(const test_loader_t *fixture, const plim_recipe_t *recipe,
                       const plim_batch_t *batch, int64_t edge, int64_t source, int64_t target)
{
    if (batch->edge_index != NULL) {
        const int64_t edges = count_edges(batch);
        assert_int_equal(test_index_at(recipe, batch->edge_index, edge), source);
        assert_int_equal(test_index_at(recipe, batch->edge_index, edges + edge), target);
    }
    if (batch->edge_ids != NULL) {
        const int64_t id = batch->edge_ids[edge];
        const int64_t node = test_index_at(recipe, batch->nodes, target);
        assert_in_range(id, fixture->indptr[node], fixture->indptr[node + 1] - 1);
        assert_int_equal(fixture->indices[id], test_index_at(recipe, batch->nodes, source));
    }
}

void test_check_edges(const test_loader_t *fixture, const plim_recipe_t *recipe,
                      const plim_batch_t *batch)
{
    int64_t edge = 0;
    check_edge_arrays(recipe, batch);
    for (int hop = 0; hop < batch->num_blocks; hop++) {
        const plim_block_t *block = &batch->blocks[hop];
        for (int64_t i = 0; i < block->num_dst; i++) {
            const int64_t first = edge, end = test_index_at(recipe, block->indptr, i + 1);
            for (int64_t j = test_index_at(recipe, block->indptr, i); j < end; j++, edge++) {
                check_edge(fixture, recipe, batch, edge, test_index_at(recipe, block->indices, j),
                           block->first_dst + i);
                for (int64_t other = first; batch->edge_ids != NULL && other < edge; other++)
                    assert_true(recipe->replace || batch->edge_ids[other] != batch->edge_ids[edge]);
            }
        }
    }
    assert_int_equal(edge, count_edges(batch));
}

/* Every destination's draws, as the definition says, by the node's own list in the files. */
static void check_block(const test_loader_t *fixture, const plim_recipe_t *recipe,
                        const plim_batch_t *batch, int hop, int64_t known)
{
    const plim_block_t *block = &batch->blocks[hop];
    plim__hop_t draw = {recipe->seed, batch->epoch, hop, recipe->fanout[hop], recipe->replace};
    int64_t positions[64], met = known;
    assert_int_equal(block->first_dst + block->num_dst, known);
    for (int64_t i = 0; i < block->num_dst; i++) {
        int64_t node = test_index_at(recipe, batch->nodes, block->first_dst + i);
        int64_t degree = fixture->indptr[node + 1] - fixture->indptr[node];
        int64_t first = test_index_at(recipe, block->indptr, i);
        int64_t count = plim__draw_count(&draw, degree);
        assert_int_equal(test_index_at(recipe, block->indptr, i + 1) - first, count);
        test_draw_positions(&draw, node, degree, positions);
        for (int64_t j = 0; j < count; j++) {
            int64_t local = test_index_at(recipe, block->indices, first + j);
            assert_in_range(local, 0, met);
            met += local == met;
            assert_int_equal(test_index_at(recipe, batch->nodes, local),
                             fixture->indices[fixture->indptr[node] + positions[j]]);
        }
    }
    assert_int_equal(met, block->num_src);
}

void test_check_batch(const test_loader_t *fixture, const plim_recipe_t *recipe,
                      const plim_batch_t *batch)
{
    char *seen = calloc((size_t)fixture->info->num_nodes, 1);
    int64_t known = batch->num_seeds;
    assert_int_equal(batch->num_blocks, recipe->num_hops);
    for (int64_t i = 0; i < batch->num_nodes; i++)
        assert_int_equal(seen[test_index_at(recipe, batch->nodes, i)]++, 0);
    test_check_degrees(fixture, recipe, batch);
    test_check_edges(fixture, recipe, batch);
    for (int hop = 0; hop < batch->num_blocks; hop++) {
        if (recipe->form == PLIM_NATIVE)
            assert_int_equal(batch->blocks[hop].first_dst, 0);
        check_block(fixture, recipe, batch, hop, known);
        known = batch->blocks[hop].num_src;
    }
    assert_int_equal(known, batch->num_nodes);
    for (int64_t i = 0; i < batch->num_seeds; i++)
        assert_int_equal(((const int64_t *)batch->labels)[i],
                         fixture->labels[test_index_at(recipe, batch->nodes, i)]);
    test_check_rows(fixture, recipe, batch);
    free(seen);
}

plim_stream_t *test_stream(plim_loader_t *loader, plim_split_t split)
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *stream;
    const plim_recipe_t *recipe = &loader->context.plan.recipe;
    for (int i = 0; i < PLIM_STREAMS_MAX; i++) {
        stream = &loader->streams[i];
        if (atomic_load(&stream->references) > 0 && stream->own == NULL && stream->split == split &&
            stream->shuffled == (split == PLIM_TRAIN) && stream->num_shares == 1 &&
            stream->batch_size == recipe->batch_size)
            return stream;
    }
    params.split = split;
    params.shuffle = split == PLIM_TRAIN;
    assert_ok(plim_loader_stream(loader, &params, &stream));
    plim_loader_release(loader);
    return stream;
}

test_loader_t test_plain_loader(int threads)
{
    return test_loader_open("test_plain_graph", &test_plain_graph, threads, PLIM_IO_AUTO);
}

plim_loader_t *test_loader_start(const test_loader_t *fixture, const plim__load_plan_t *plan)
{
    plim_loader_t *loader;
    assert_ok(plim__loader_create(&fixture->job, fixture->dataset, plan, &loader));
    assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 0, 0));
    return loader;
}

uint64_t test_hash_from(plim_loader_t *loader, plim_split_t split, int64_t epoch, int64_t step,
                        uint64_t hash, int64_t *parts)
{
    plim_batch_t *batch;
    assert_ok(plim_stream_start(test_stream(loader, split), epoch, step));
    for (;;) {
        assert_ok(plim_stream_next(test_stream(loader, split), -1, &batch));
        if (batch == NULL)
            return hash;
        hash = plim_loader_hash(loader, batch, hash);
        (*parts)++;
        plim_batch_release(batch);
    }
}

uint64_t test_hash_of(const test_loader_t *fixture, const plim__load_plan_t *plan, int64_t *parts)
{
    plim_loader_t *loader;
    uint64_t hash = 0;
    *parts = 0;
    assert_ok(plim__loader_create(&fixture->job, fixture->dataset, plan, &loader));
    hash = test_hash_from(loader, PLIM_TRAIN, 0, 0, hash, parts);
    hash = test_hash_from(loader, PLIM_TRAIN, 1, 0, hash, parts);
    hash = test_hash_from(loader, PLIM_VALID, 1, 0, hash, parts);
    hash = test_hash_from(loader, PLIM_TRAIN, 2, 0, hash, parts);
    hash = test_hash_from(loader, PLIM_TEST, 2, 0, hash, parts);
    hash = test_hash_from(loader, PLIM_TRAIN, 7, 0, hash, parts); /* not what follows */
    plim_loader_release(loader);
    return hash;
}

/* Draws an epoch under the line; false if that is refused: by the plan, or by the stream where a
 * disjoint batch is counted and turns out not to fit. */
static bool draw_under(const char *name, const test_graph_t *graph, const plim_recipe_t *recipe,
                       int64_t line, plim__load_plan_t *plan, uint64_t *hash_out)
{
    plim_job_t job;
    plim_loader_t *loader;
    int64_t parts = 0;
    test_loader_t fixture = test_loader_open(name, graph, 2, PLIM_IO_AUTO);
    if (test_job_try(line, 2, PLIM_IO_THREADS, &job) != PLIM_OK) {
        test_loader_close(&fixture);
        return false;
    }
    plim_status_t status = plim__load_plan(&job, fixture.dataset, recipe, NULL, plan);
    if (status == PLIM_OK) {
        assert_ok(plim__loader_create(&job, fixture.dataset, plan, &loader));
        assert_true(plim__ledger_peak(job.ledger) <= plan->total);
        status = plim_stream_start(test_stream(loader, PLIM_TRAIN), 0, 0);
        assert_true(status == PLIM_OK || (recipe->disjoint && plan->counted));
        if (status == PLIM_OK)
            *hash_out = test_hash_from(loader, PLIM_TRAIN, 0, 0, 0, &parts);
        plim_loader_release(loader);
    }
    assert_true(status == PLIM_OK || status == PLIM_ERR_BUDGET);
    test_job_end(&job);
    test_loader_close(&fixture);
    return status == PLIM_OK;
}

plim__load_plan_t test_every_line(const char *name, const test_graph_t *graph,
                                  const plim_recipe_t *recipe, int64_t lowest, int64_t highest,
                                  int64_t part)
{
    plim__load_plan_t plan = {.total = 0};
    uint64_t hash = 0, found = 0;
#ifdef __SANITIZE_THREAD__
    test_skip_sanitized(TEST_LINE_NEAR);
#endif
    for (int64_t line = lowest; line <= highest; line += line / part) {
        const bool fits = draw_under(name, graph, recipe, line, &plan, &found);
        assert_true(hash == 0 || (fits && found == hash));
        hash = fits ? found : 0;
    }
    assert_true(hash != 0);
    return plan;
}

typedef struct attempt {
    const test_loader_t *fixture;
    const plim__load_plan_t *plan;
} attempt_t;

static plim_status_t try_loader(plim_job_t *job, void *context)
{
    const attempt_t *attempt = context;
    plim_loader_t *loader;
    PLIM_TRY(plim__loader_create(job, attempt->fixture->dataset, attempt->plan, &loader));
    plim_loader_release(loader);
    return PLIM_OK;
}

void test_loader_fails(const test_loader_t *fixture, const plim__load_plan_t *plan)
{
    attempt_t attempt = {fixture, plan};
    plim_job_t job = fixture->job;
    test_fail_each_arena(&job, try_loader, &attempt);
}
