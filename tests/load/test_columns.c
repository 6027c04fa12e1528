/*
 * Columns of edges and times of nodes in batches, against the values of the positions that were
 * drawn: native and PyG's form, from memory and disk, with and without windows, 1 to 8 threads.
 */
/* labels: asan tsan */
#include "base/half.h"
#include "load/loader.h"
#include "plan/load_plan.h"
#include "support/harness.h"
#include "support/loader.h"

#include <stdio.h>
#include <string.h>

#define ALL ((1u << PLIM_COLUMNS) - 1)
#define WIDTH 3

static const test_graph_t graph = {.num_nodes = TEST_NODES,
                                   .num_features = TEST_FEATURES,
                                   .num_classes = TEST_CLASSES,
                                   .half = true,
                                   .seed = 17,
                                   .columns = ALL,
                                   .edge_width = WIDTH};

static double feature_at(plim_dtype_t type, const void *features, int64_t i)
{
    return type == PLIM_F16   ? (double)plim__f32_from_f16(((const uint16_t *)features)[i])
           : type == PLIM_F32 ? (double)((const float *)features)[i]
                              : (double)((const int64_t *)features)[i];
}

/* An edge of the batch: its position is told by its number, which the test's files have as an
 * exclusive or. Everything else must be that position's. */
static void check_edge(const test_loader_t *fixture, const test_graph_t *made,
                       const plim_recipe_t *recipe, const plim_batch_t *batch, int64_t edge,
                       int64_t destination, int64_t source)
{
    const int64_t position = batch->edge_number[edge] ^ 1, width = made->edge_width;
    const int64_t columns = width > 0 ? width : 1;
    const plim_dtype_t type = made->edge_form == PLIM_I64    ? PLIM_I64
                              : recipe->row_type == PLIM_F16 ? PLIM_F16
                                                             : PLIM_F32;
    assert_in_range(position, fixture->indptr[destination], fixture->indptr[destination + 1] - 1);
    assert_int_equal(fixture->indices[position], source);
    for (int64_t i = 0; i < columns; i++) {
        const double value = (double)test_column_value(PLIM_EDGE_FEATURES, position, width, i);
        assert_true(feature_at(type, batch->edge_features, edge * columns + i) == value);
    }
    assert_true((double)batch->edge_weight[edge] ==
                (double)test_column_value(PLIM_EDGE_WEIGHT, position, 1, 0));
    assert_int_equal(batch->edge_type[edge], test_column_value(PLIM_EDGE_TYPE, position, 1, 0));
    assert_int_equal(batch->edge_time[edge], test_column_value(PLIM_EDGE_TIME, position, 1, 0));
    if (batch->edge_ids != NULL)
        assert_int_equal(batch->edge_ids[edge], position);
}

static void check_batch(const test_loader_t *fixture, const test_graph_t *made,
                        const plim_recipe_t *recipe, const plim_batch_t *batch)
{
    int64_t edge = 0;
    for (int hop = 0; hop < batch->num_blocks; hop++) {
        const plim_block_t *block = &batch->blocks[hop];
        for (int64_t i = 0; i < block->num_dst; i++) {
            const int64_t end = test_index_at(recipe, block->indptr, i + 1);
            for (int64_t j = test_index_at(recipe, block->indptr, i); j < end; j++, edge++)
                check_edge(
                    fixture, made, recipe, batch, edge,
                    test_index_at(recipe, batch->nodes, block->first_dst + i),
                    test_index_at(recipe, batch->nodes, test_index_at(recipe, block->indices, j)));
        }
    }
    for (int64_t i = 0; i < batch->num_nodes; i++)
        assert_int_equal(
            batch->node_time[i],
            test_column_value(PLIM_NODE_TIME, test_index_at(recipe, batch->nodes, i), 1, 0));
}

/* Checks an epoch of a loader of that plan; returns its hash. */
static uint64_t check_plan(const test_loader_t *fixture, const test_graph_t *made,
                           const plim__load_plan_t *plan)
{
    plim_loader_t *loader = test_loader_start(fixture, plan);
    plim_stream_t *stream = test_stream(loader, PLIM_TRAIN);
    plim_batch_t *batch;
    uint64_t hash = 0;
    while ((batch = test_next(stream)) != NULL) {
        check_batch(fixture, made, &plan->recipe, batch);
        hash = plim_loader_hash(loader, batch, hash);
        plim_batch_release(batch);
    }
    plim_loader_release(loader);
    return hash;
}

static void every_source_gives_the_same_columns(void **state)
{
    static const unsigned places[] = {0, ALL, PLIM_EDGE_TYPE | PLIM_EDGE_FEATURES};
    (void)state;
    for (int form = 0; form < 2; form++) {
        uint64_t hash = 0;
        for (int variant = 0; variant < 12; variant += TEST_SANITIZED ? 3 : 1) {
            const int threads = 1 << variant % 4;
            test_loader_t fixture = test_loader_open("columns", &graph, threads,
                                                     variant % 2 ? PLIM_IO_THREADS : PLIM_IO_AUTO);
            plim_recipe_t recipe = test_two_hops;
            recipe.form = form == 0 ? PLIM_NATIVE : PLIM_PYG;
            recipe.edge_index = recipe.edge_ids = form == 1;
            recipe.columns = ALL;
            plim__load_plan_t plan = variant / 4 == 0
                                         ? test_plan_memory(fixture.info, &recipe, threads)
                                         : test_plan_disk(fixture.info, &recipe, threads, variant);
            plan.columns_in_memory = places[variant % 3];
            const uint64_t found = check_plan(&fixture, &graph, &plan);
            if (variant == 0)
                hash = found;
            assert_true(found == hash);
            test_loader_close(&fixture);
        }
    }
}

/* A batch that comes in parts is hashed as one that comes whole. */
static void parts_carry_the_same_columns(void **state)
{
    (void)state;
    uint64_t hashes[3];
    for (int variant = 0; variant < 3; variant++) {
        test_loader_t fixture = test_loader_open("columns", &graph, 2, PLIM_IO_AUTO);
        plim_recipe_t recipe = test_two_hops;
        recipe.columns = ALL;
        plim__load_plan_t plan = variant == 2 ? test_plan_disk(fixture.info, &recipe, 2, 5)
                                              : test_plan_memory(fixture.info, &recipe, 2);
        plan.part_seeds = variant == 0 ? 0 : variant * 7;
        hashes[variant] = check_plan(&fixture, &graph, &plan);
        test_loader_close(&fixture);
    }
    assert_true(hashes[1] == hashes[0] && hashes[2] == hashes[0]);
}

static void features_come_in_every_type_and_width(void **state)
{
    static const plim_dtype_t forms[] = {PLIM_F32, PLIM_F16, PLIM_I64};
    (void)state;
    for (int variant = 0; variant < 24; variant += TEST_SANITIZED ? 5 : 1) {
        test_graph_t made = graph;
        char name[32];
        made.edge_form = forms[variant % 3];
        made.edge_width = variant / 3 % 2 == 0 ? 0 : 5;
        (void)snprintf(name, sizeof name, "form%d", variant % 6);
        test_loader_t fixture = test_loader_open(name, &made, 2, PLIM_IO_AUTO);
        plim_recipe_t recipe = test_two_hops;
        recipe.columns = ALL;
        recipe.row_type = variant / 6 % 2 == 0 ? PLIM_F32 : PLIM_F16;
        plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 2);
        plan.columns_in_memory = variant / 12 == 0 ? ALL : 0;
        (void)check_plan(&fixture, &made, &plan);
        test_loader_close(&fixture);
    }
}

static void arrays_are_described(void **state)
{
    (void)state;
    for (unsigned columns = 0; columns <= ALL; columns += TEST_SANITIZED ? 7 : 1) {
        test_loader_t fixture = test_loader_open("columns", &graph, 1, PLIM_IO_AUTO);
        plim_recipe_t recipe = test_two_hops;
        recipe.columns = columns;
        plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 1);
        plan.columns_in_memory = columns / 3;
        plim_loader_t *loader = test_loader_start(&fixture, &plan);
        plim_batch_t *batch = test_next(test_stream(loader, PLIM_TRAIN));
        unsigned found = 0;
        int64_t edges = 0;
        const plim_array_t *array;
        for (int hop = 0; hop < batch->num_blocks; hop++)
            edges += batch->blocks[hop].num_edges;
        for (int i = 0; (array = plim_batch_array(batch, i)) != NULL; i++)
            for (int c = 0; c < PLIM_COLUMNS; c++) {
                if (strcmp(array->name, plim__column_names[c]) != 0)
                    continue;
                found |= 1u << c;
                assert_int_equal(array->shape[0],
                                 1u << c == PLIM_NODE_TIME ? batch->num_nodes : edges);
                assert_int_equal(array->ndim, 1u << c == PLIM_EDGE_FEATURES ? 2 : 1);
                assert_int_equal((uintptr_t)array->data % 64, 0);
            }
        assert_int_equal(found, columns);
        assert_null(batch->edge_ids);
        plim_batch_release(batch);
        plim_loader_release(loader);
        test_loader_close(&fixture);
    }
}

static void plans_count_columns(void **state)
{
    (void)state;
    plim_recipe_t recipe = test_two_hops;
    recipe.columns = ALL;
    const plim__load_plan_t plan =
        test_every_line("columns", &graph, &recipe, (int64_t)40 << 20, (int64_t)400 << 20, 6);
    assert_int_equal(plan.columns_in_memory, ALL);
}

static void what_a_dataset_lacks_is_refused(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(1);
    for (unsigned column = 1; column <= 1u << PLIM_COLUMNS; column <<= 1) {
        plim_recipe_t recipe = test_two_hops;
        plim__load_plan_t plan;
        recipe.columns = column;
        assert_int_equal(plim__load_plan(&fixture.job, fixture.dataset, &recipe, NULL, &plan),
                         PLIM_ERR_USAGE);
    }
    test_loader_close(&fixture);
}

static void fails_cleanly(void **state)
{
    (void)state;
    test_loader_t fixture = test_loader_open("columns", &graph, 1, PLIM_IO_THREADS);
    plim_recipe_t recipe = test_two_hops;
    recipe.columns = ALL;
    plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 1);
    plan.columns_in_memory = PLIM_EDGE_FEATURES | PLIM_EDGE_WEIGHT | PLIM_NODE_TIME;
    test_loader_fails(&fixture, &plan);
    test_loader_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_source_gives_the_same_columns),
                                       cmocka_unit_test(features_come_in_every_type_and_width),
                                       cmocka_unit_test(parts_carry_the_same_columns),
                                       cmocka_unit_test(arrays_are_described),
                                       cmocka_unit_test(plans_count_columns),
                                       cmocka_unit_test(what_a_dataset_lacks_is_refused),
                                       cmocka_unit_test(fails_cleanly)};
    return cmocka_run_group_tests(tests, test_loader_begin, test_loader_end);
}
