#include "load/probe.h"
#include "support/dataset.h"
#include "support/harness.h"

#include <stdio.h>

/* Sizes grow with the seeds, but not faster, and stay within what is possible at all. */
/* labels: asan */
static void test_sizes_are_plausible(void **state)
{
    static const test_graph_t graph = {.num_nodes = 20000, .num_features = 4, .num_classes = 3};
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = PLIM_RECIPE_INIT;
    plim__probe_t trial, again;
    (void)state;
    recipe.fanout[0] = 3;
    recipe.fanout[1] = -1;
    int64_t before = plim__ledger_reserved(place.job.ledger);
    assert_ok(plim__probe_run(&place.job, place.dataset, &recipe, &trial));
    assert_int_equal(plim__ledger_reserved(place.job.ledger), before);
    assert_true(plim__ledger_peak(place.job.ledger) - before <=
                (int64_t)plim__probe_estimate(&place.job, place.dataset, &recipe) + (4 << 20));
    assert_int_equal(trial.count, PLIM__PROBE_SIZES);
    for (int i = 0; i < trial.count; i++) {
        const plim__probe_size_t *size = &trial.sizes[i];
        assert_true(size->nodes >= size->seeds && size->nodes <= graph.num_nodes);
        assert_true(size->edges >= 2 * size->seeds + 2);
        if (i == 0)
            continue;
        const plim__probe_size_t *less = &trial.sizes[i - 1];
        assert_int_equal(size->seeds, 4 * less->seeds);
        assert_true(size->nodes > less->nodes && size->edges > less->edges);
        assert_true(size->nodes < 5 * less->nodes);
    }
    /* Degrees are 0 … 12: three draws of six neighbours each make some twenty nodes a seed. */
    double each = (double)trial.sizes[0].nodes / (double)trial.sizes[0].seeds;
    assert_true(each > 10 && each < 30);
    place.job.threads = 1;
    place.job.io_engine = PLIM_IO_THREADS;
    assert_ok(plim__probe_run(&place.job, place.dataset, &recipe, &again));
    assert_memory_equal(&trial, &again, sizeof trial);
    test_place_close(&place);
}

static plim_status_t run_trial(plim_job_t *job, void *context)
{
    const plim_recipe_t recipe = PLIM_RECIPE_INIT;
    plim__probe_t trial;
    return plim__probe_run(job, context, &recipe, &trial);
}

static plim_status_t run_largest(plim_job_t *job, void *context)
{
    int64_t nodes, edges;
    return plim__largest_graph(job, context, &nodes, &edges);
}

static void test_every_arena_may_fail(void **state)
{
    static const test_graph_t graph = {.num_nodes = 500, .num_features = 4, .num_classes = 3};
    static const test_graph_t graphs = {
        .num_nodes = 500, .num_features = 4, .num_classes = 3, .graphs = true};
    (void)state;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    test_fail_each_arena(&place.job, run_trial, place.dataset);
    test_place_close(&place);
    place = test_place_open(&graphs, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    test_fail_each_arena(&place.job, run_largest, place.dataset);
    test_place_close(&place);
}

/* Graphs of five nodes each, the last one of what is left. */
static void test_the_largest_graph(void **state)
{
    (void)state;
    for (int64_t num_nodes = 3; num_nodes < 400000; num_nodes = num_nodes * 7 + 1) {
        const test_graph_t graph = {.num_nodes = num_nodes,
                                    .num_features = 1,
                                    .num_classes = 3,
                                    .graphs = true,
                                    .seed = (uint64_t)num_nodes};
        test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
        int64_t nodes, edges;
        assert_ok(plim__largest_graph(&place.job, place.dataset, &nodes, &edges));
        assert_int_equal(nodes, num_nodes < 5 ? num_nodes : 5);
        assert_in_range(edges, num_nodes < 20 ? 0 : 20, 60);
        test_place_close(&place);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_are_plausible),
        cmocka_unit_test(test_every_arena_may_fail),
        cmocka_unit_test(test_the_largest_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
