/*
 * Batches whose draws a column decides, by brute force: native and PyG's form, from memory and
 * disk, with and without windows and edge ids, 1 to 8 threads: the same bits.
 */
/* labels: asan tsan */
#include "load/loader.h"
#include "plan/load_plan.h"
#include "support/chosen.h"
#include "support/harness.h"
#include "support/loader.h"

#include <stdio.h>
#include <string.h>

#define ALL ((1u << PLIM_COLUMNS) - 1)
#define DEGREE_MOST 13

static const test_graph_t graph = {.num_nodes = TEST_NODES,
                                   .num_features = TEST_FEATURES,
                                   .num_classes = TEST_CLASSES,
                                   .half = true,
                                   .seed = 17,
                                   .columns = ALL,
                                   .drawable = true};

/* The neighbours of each destination, in the order in which they are drawn. */
static void check_weighted(const test_loader_t *fixture, const plim_recipe_t *recipe,
                           const plim_batch_t *batch)
{
    int64_t edge = 0;
    for (int hop = 0; hop < batch->num_blocks; hop++) {
        const plim_block_t *block = &batch->blocks[hop];
        const plim__hop_t draw = {recipe->seed, batch->epoch, hop, recipe->fanout[hop],
                                  recipe->replace};
        for (int64_t i = 0; i < block->num_dst; i++) {
            const int64_t node = test_index_at(recipe, batch->nodes, block->first_dst + i);
            const int64_t start = fixture->indptr[node];
            const int64_t degree = fixture->indptr[node + 1] - start;
            const int64_t first = test_index_at(recipe, block->indptr, i);
            float weights[DEGREE_MOST];
            int64_t positions[64], count = plim__draw_count(&draw, degree);
            for (int64_t k = 0; k < degree; k++)
                weights[k] = (float)test_drawable_value(start + k);
            for (int64_t k = 0; k < count; k++)
                positions[k] = k;
            if (plim__choose_needs(PLIM__CHOOSE_BY_WEIGHT, &draw, degree))
                count =
                    test_chosen(PLIM__CHOOSE_BY_WEIGHT, &draw, node, weights, degree, 0, positions);
            assert_int_equal(test_index_at(recipe, block->indptr, i + 1) - first, count);
            for (int64_t k = 0; k < count; k++, edge++) {
                const int64_t local = test_index_at(recipe, block->indices, first + k);
                assert_int_equal(test_index_at(recipe, batch->nodes, local),
                                 fixture->indices[start + positions[k]]);
                if (batch->edge_ids != NULL)
                    assert_int_equal(batch->edge_ids[edge], start + positions[k]);
                if (batch->edge_weight != NULL)
                    assert_true(batch->edge_weight[edge] == weights[positions[k]]);
            }
        }
    }
}

static uint64_t check_epoch(const test_loader_t *fixture, const plim__load_plan_t *plan)
{
    plim_loader_t *loader = test_loader_start(fixture, plan);
    plim_stream_t *stream = test_stream(loader, PLIM_TRAIN);
    plim_batch_t *batch;
    uint64_t hash = 0;
    while ((batch = test_next(stream)) != NULL) {
        check_weighted(fixture, &plan->recipe, batch);
        test_check_rows(fixture, &plan->recipe, batch);
        hash = plim_loader_hash(loader, batch, hash);
        plim_batch_release(batch);
    }
    plim_loader_release(loader);
    return hash;
}

/* The recipe's variants: form, replacement, and what batches carry. */
static plim_recipe_t weighted(int kind)
{
    plim_recipe_t recipe = test_two_hops;
    recipe.draw_by = PLIM_EDGE_WEIGHT;
    recipe.form = kind % 2 == 0 ? PLIM_NATIVE : PLIM_PYG;
    recipe.replace = kind / 2 % 2 == 1;
    recipe.edge_index = recipe.edge_ids = kind % 2 == 1;
    recipe.columns = kind / 4 == 1 ? ALL : 0;
    return recipe;
}

static void every_source_draws_the_same(void **state)
{
    static const unsigned places[] = {0, ALL, PLIM_EDGE_WEIGHT};
    (void)state;
    for (int kind = 0; kind < 8; kind += TEST_SANITIZED ? 3 : 1) {
        const plim_recipe_t recipe = weighted(kind);
        uint64_t hash = 0;
        for (int variant = 0; variant < 14; variant += TEST_SANITIZED ? 3 : 1) {
            const int threads = 1 << variant % 4;
            test_loader_t fixture = test_loader_open("weighted", &graph, threads,
                                                     variant % 2 ? PLIM_IO_THREADS : PLIM_IO_AUTO);
            plim__load_plan_t plan = variant / 4 == 0
                                         ? test_plan_memory(fixture.info, &recipe, threads)
                                         : test_plan_disk(fixture.info, &recipe, threads, variant);
            if (variant >= 12)
                plan = test_plan_ahead(fixture.info, &recipe, threads, 600);
            plan.columns_in_memory = places[variant % 3];
            plan.part_seeds = variant % 5 == 4 && kind % 2 == 0 ? 7 : 0;
            if (variant == 9) /* no window holds a batch */
                plan.window_draws = 300;
            const uint64_t found = check_epoch(&fixture, &plan);
            if (variant == 0)
                hash = found;
            assert_true(found == hash);
            test_loader_close(&fixture);
        }
    }
}

static void every_line_draws_the_same(void **state)
{
    (void)state;
    for (int kind = 4; kind < 6; kind++) {
        const plim_recipe_t recipe = weighted(kind);
        (void)test_every_line("weighted", &graph, &recipe, (int64_t)20 << 20, (int64_t)600 << 20,
                              5);
    }
}

static void impossible_draws_are_refused(void **state)
{
    (void)state;
    test_loader_t fixture = test_loader_open("weighted", &graph, 1, PLIM_IO_AUTO);
    test_loader_t plain = test_plain_loader(1);
    plim__load_plan_t plan;
    for (unsigned by = 1; by <= 1u << PLIM_COLUMNS; by <<= 1) {
        plim_recipe_t recipe = test_two_hops;
        recipe.draw_by = by;
        assert_int_equal(plim__load_plan(&plain.job, plain.dataset, &recipe, NULL, &plan),
                         PLIM_ERR_USAGE);
        if (by != PLIM_EDGE_WEIGHT)
            assert_int_equal(plim__load_plan(&fixture.job, fixture.dataset, &recipe, NULL, &plan),
                             PLIM_ERR_USAGE);
    }
    test_loader_close(&plain);
    test_loader_close(&fixture);
}

/* The weight is negative in the test's other graphs. */
static void negative_weights_end_an_epoch(void **state)
{
    (void)state;
    test_graph_t negative = graph;
    negative.drawable = false;
    test_loader_t fixture = test_loader_open("negative", &negative, 2, PLIM_IO_AUTO);
    const plim_recipe_t recipe = weighted(0);
    for (int disk = 0; disk < 2; disk++) {
        const plim__load_plan_t plan = disk == 0 ? test_plan_memory(fixture.info, &recipe, 2)
                                                 : test_plan_disk(fixture.info, &recipe, 2, 5);
        plim_loader_t *loader = test_loader_start(&fixture, &plan);
        plim_batch_t *batch;
        assert_int_equal(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch),
                         PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), "edge_weight"));
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

static void fails_cleanly(void **state)
{
    (void)state;
    test_loader_t fixture = test_loader_open("weighted", &graph, 1, PLIM_IO_THREADS);
    const plim_recipe_t recipe = weighted(5);
    const plim__load_plan_t plan = test_plan_disk(fixture.info, &recipe, 1, 3);
    test_loader_fails(&fixture, &plan);
    test_loader_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_draws_the_same), cmocka_unit_test(every_line_draws_the_same),
        cmocka_unit_test(impossible_draws_are_refused),
        cmocka_unit_test(negative_weights_end_an_epoch), cmocka_unit_test(fails_cleanly)};
    return cmocka_run_group_tests(tests, test_loader_begin, test_loader_end);
}
