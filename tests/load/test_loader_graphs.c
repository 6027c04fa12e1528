/* Batches of whole graphs, from memory and from disk, against the files. */
/* labels: asan tsan */
#include "load/loader.h"
#include "support/harness.h"
#include "support/loader.h"

#include <stdio.h>
#include <string.h>

#define LINE ((int64_t)1 << 30)

/* The n-th list, as the files say, shifted to where its graph lies in the batch. */
static void check_graphs(const test_loader_t *fixture, const plim_recipe_t *recipe,
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
        assert_int_equal(test_index_at(recipe, batch->graph_indptr, i), local);
        assert_int_equal(((const int64_t *)batch->labels)[i], fixture->labels[graph]);
        for (int64_t node = start; node < fixture->graph_indptr[graph + 1]; node++, local++) {
            int64_t at = test_index_at(recipe, block->indptr, local);
            assert_int_equal(test_index_at(recipe, batch->nodes, local), node);
            assert_int_equal(test_index_at(recipe, block->indptr, local + 1) - at,
                             fixture->indptr[node + 1] - fixture->indptr[node]);
            for (int64_t j = fixture->indptr[node]; j < fixture->indptr[node + 1]; j++, at++)
                assert_int_equal(test_index_at(recipe, block->indices, at) -
                                     test_index_at(recipe, batch->graph_indptr, i),
                                 fixture->indices[j] - start);
        }
    }
    assert_int_equal(local, batch->num_nodes);
    assert_int_equal(test_index_at(recipe, batch->graph_indptr, batch->num_seeds), local);
    test_check_degrees(fixture, recipe, batch);
    test_check_edges(fixture, recipe, batch);
    test_check_rows(fixture, recipe, batch);
}

/* A dataset of many graphs whose edges stay inside: each node of graph g draws from all of it. */
static void make_graphs(const plim_job_t *job, const char *path, bool leaving)
{
    enum { GRAPHS = 300 };
    static int64_t indptr[4000], graph_indptr[GRAPHS + 1], labels[GRAPHS], split[GRAPHS];
    static int32_t indices[40000];
    static uint16_t features[4000 * TEST_FEATURES];
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
        labels[g] = g % TEST_CLASSES;
    }
    if (leaving)
        indices[edges - 1] = 0;
    for (int64_t i = 0; i < nodes * TEST_FEATURES; i++)
        features[i] = (uint16_t)(0x3800 + i % 1024);
    assert_ok(plim__dataset_begin(job, path, &writer));
    assert_ok(test_column(writer, "indptr", PLIM__NPY_I64, 1, (int64_t[]){nodes + 1}, indptr,
                          (size_t)(nodes + 1) * 8));
    assert_ok(test_column(writer, "indices", PLIM__NPY_I32, 1, (int64_t[]){edges}, indices,
                          (size_t)edges * 4));
    assert_ok(test_column(writer, "features", PLIM__NPY_F16, 2, (int64_t[]){nodes, TEST_FEATURES},
                          features, (size_t)nodes * TEST_FEATURES * 2));
    assert_ok(test_column(writer, "graph_indptr", PLIM__NPY_I64, 1, (int64_t[]){GRAPHS + 1},
                          graph_indptr, sizeof graph_indptr));
    assert_ok(test_column(writer, "labels", PLIM__NPY_I64, 1, (int64_t[]){GRAPHS}, labels,
                          sizeof labels));
    for (int s = 0; s < 2; s++) {
        int64_t count = 0;
        for (int64_t g = s; g < GRAPHS; g += 2)
            split[count++] = GRAPHS - 1 - g;
        assert_ok(test_column(writer, s == 0 ? "train" : "valid", PLIM__NPY_I64, 1, &count, split,
                              (size_t)count * 8));
    }
    assert_ok(plim__dataset_finish(writer, &(plim__dataset_facts_t){.num_nodes = nodes,
                                                                    .num_graphs = GRAPHS,
                                                                    .num_classes = TEST_CLASSES,
                                                                    .source = "test",
                                                                    .options = ""}));
}

static void graphs_come_whole(void **state)
{
    (void)state;
    char path[600];
    plim_job_t job = test_job_make(LINE, 1, PLIM_IO_AUTO);
    (void)snprintf(path, sizeof path, "%s/graphs", test_loader_directory);
    make_graphs(&job, path, false);
    test_job_end(&job);
    test_loader_t fixture = test_loader_open("graphs", NULL, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = {.size = sizeof(plim_recipe_t),
                            .batch_size = 16,
                            .seed = 4,
                            .row_type = PLIM_F32,
                            .index_type = PLIM_I64};
    int64_t whole, parts;
    plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 2);
    plan.slot_nodes = 16 * 11;
    plan.slot_edges = 16 * 11 * 12 + 1;
    const uint64_t expected = test_hash_of(&fixture, &plan, &whole);
    for (int mode = 0; mode < 8; mode++) {
        plim_loader_t *loader;
        plim_batch_t *batch;
        plan = mode < 2 ? test_plan_memory(fixture.info, &recipe, mode + 1)
                        : test_plan_disk(fixture.info, &recipe, 2, mode % 3 + 1);
        plan.slot_nodes = mode % 2 == 0 ? 16 * 11 : 20; /* the latter holds the largest graph */
        plan.slot_edges = 16 * 11 * 12 + 1;
        plan.part_seeds = mode == 4 ? 16 : mode == 5 ? 3 : 0;
        plan.list_cache_bytes = plan.row_cache_bytes = mode < 4 ? 0 : 9000;
        plan.recipe.degrees = recipe.degrees = mode % 3 == 0;
        recipe.edge_index = recipe.edge_ids = mode >= 3;
        plan.recipe.edge_index = plan.recipe.edge_ids = mode >= 3;
        assert_true(test_hash_of(&fixture, &plan, &parts) == expected);
        assert_true(mode % 2 == 0 ? parts == whole : parts > whole);
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        assert_ok(plim_stream_start(test_stream(loader, PLIM_VALID), 0, 0));
        for (int64_t first = 0;;) {
            assert_ok(plim_stream_next(test_stream(loader, PLIM_VALID), -1, &batch));
            if (batch == NULL)
                break;
            check_graphs(&fixture, &recipe, batch, first);
            const bool remake = first == 0;
            first += batch->num_seeds;
            plim_batch_release(batch);
            if (remake) { /* remade after the first one, it continues */
                plan.slot_nodes *= 2;
                plan.num_slots = 2;
                assert_ok(plim__loader_remake(loader, &plan));
            }
        }
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

static void edges_between_graphs_are_refused(void **state)
{
    (void)state;
    char path[600];
    plim_job_t job = test_job_make(LINE, 1, PLIM_IO_AUTO);
    (void)snprintf(path, sizeof path, "%s/leaving", test_loader_directory);
    make_graphs(&job, path, true);
    test_job_end(&job);
    test_loader_t fixture = test_loader_open("leaving", NULL, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = {.size = sizeof(plim_recipe_t),
                            .batch_size = 500,
                            .seed = 4,
                            .row_type = PLIM_F32,
                            .index_type = PLIM_I32};
    plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 1);
    plim_loader_t *loader;
    plim_batch_t *batch;
    plan.slot_nodes = 4000;
    plan.slot_edges = 60000;
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
    for (int split = 0; split < 2; split++) {
        assert_ok(plim_stream_start(test_stream(loader, split), 0, 0));
        plim_status_t status = plim_stream_next(test_stream(loader, split), -1, &batch);
        if (split == 0) { /* the last graph, which has the edge, is of the training split */
            assert_int_equal(status, PLIM_ERR_DATA);
            assert_non_null(strstr(plim_last_error(), "another graph"));
        } else {
            assert_ok(status);
            plim_batch_release(batch);
        }
    }
    plim_loader_release(loader);
    test_loader_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(graphs_come_whole),
        cmocka_unit_test(edges_between_graphs_are_refused),
    };
    return cmocka_run_group_tests_name("loader.graphs", tests, test_loader_begin, test_loader_end);
}
