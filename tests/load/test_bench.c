#include "load/bench_bare.h"
#include "load/plan_data.h"
#include "plan/load_plan.h"
#include "support/dataset.h"
#include "support/harness.h"

#include <plimsoll/plimsoll.h>

#include <stdio.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)

static test_place_t open_place(int64_t num_features, int64_t line, plim_io_engine_t engine)
{
    const test_graph_t graph = {.num_nodes = 3000,
                                .num_features = num_features,
                                .num_classes = 3,
                                .half = num_features % 2 == 0,
                                .bare = num_features == 0};
    return test_place_open(&graph, line, 2, engine);
}

static const plim_recipe_t recipe = {.batch_size = 700, .row_type = PLIM_F32, .seed = 3};

/* From memory and from disk, through both engines: counts are what was asked for, nothing stays. */
static void test_gather_counts(void **state)
{
    (void)state;
    for (int round = 0; round < 4; round++) {
        test_place_t place =
            open_place(30 + round, 256 * MIB, round < 2 ? PLIM_IO_AUTO : PLIM_IO_THREADS);
        const plim_plan_params_t wishes = {.rows = 1 + round % 2};
        plim__load_plan_t plan;
        plim_bench_result_t gather, bare;
        assert_ok(plim__bench_gather_plan(&place.job, place.dataset, &recipe, &wishes, &plan));
        assert_int_equal(plan.rows_in_memory, round % 2 == 0);
        assert_true(plan.total <= plan.line && plan.minimum <= plan.total);
        int64_t before = plim__ledger_reserved(place.job.ledger);
        assert_ok(plim__bench_gather(&place.job, place.dataset, &plan, 11, &gather, &bare));
        assert_int_equal(plim__ledger_reserved(place.job.ledger), before);
        assert_true(plim__ledger_peak(place.job.ledger) - before <=
                    plan.total - plan.accounts[0].bytes);
        assert_int_equal(gather.count, 11 * 700);
        assert_int_equal(bare.count, 11 * 700);
        assert_int_equal(gather.bytes, 11 * 700 * (30 + round) * 4);
        assert_true(gather.seconds > 0 && bare.seconds > 0);
        assert_int_equal(gather.transfers > 0, round % 2 == 1);
        assert_int_equal(bare.transfers > 0, round % 2 == 1);
        /* Each place for itself: no fewer transfers than the reader makes, which joins them. */
        assert_true(bare.transfers >= gather.transfers);
        test_place_close(&place);
    }
}

/* The least line does, and one byte less does not. */
static void test_gather_least(void **state)
{
    (void)state;
    test_place_t place = open_place(30, 256 * MIB, PLIM_IO_AUTO);
    for (int where = 0; where < 3; where++) {
        plim_plan_params_t wishes = {.rows = where};
        plim__load_plan_t plan, least;
        assert_ok(plim__bench_gather_plan(&place.job, place.dataset, &recipe, &wishes, &plan));
        wishes.memory = plan.minimum;
        assert_ok(plim__bench_gather_plan(&place.job, place.dataset, &recipe, &wishes, &least));
        assert_int_equal(least.total, plan.minimum);
        assert_int_equal(least.minimum, plan.minimum);
        wishes.memory = plan.minimum - 1;
        assert_int_equal(
            plim__bench_gather_plan(&place.job, place.dataset, &recipe, &wishes, &least),
            PLIM_ERR_BUDGET);
    }
    test_place_close(&place);
}

static void test_gather_refuses(void **state)
{
    (void)state;
    test_place_t place = open_place(0, 64 * MIB, PLIM_IO_AUTO);
    const plim_plan_params_t none = {0};
    plim__load_plan_t plan;
    assert_int_equal(plim__bench_gather_plan(&place.job, place.dataset, &recipe, &none, &plan),
                     PLIM_ERR_USAGE);
    test_place_close(&place);
    place = open_place(30, 64 * MIB, PLIM_IO_AUTO);
    plim_recipe_t large = recipe;
    large.batch_size = 1 << 20;
    assert_int_equal(plim__bench_gather_plan(&place.job, place.dataset, &large, &none, &plan),
                     PLIM_ERR_BUDGET);
    assert_non_null(strstr(plim_last_error(), "--memory"));
    large.batch_size = INT64_MAX;
    assert_int_equal(plim__bench_gather_plan(&place.job, place.dataset, &large, &none, &plan),
                     PLIM_ERR_BUDGET);
    large.batch_size = 0;
    assert_int_equal(plim__bench_gather_plan(&place.job, place.dataset, &large, &none, &plan),
                     PLIM_ERR_USAGE);
    test_place_close(&place);
}

static void test_the_bare_machine(void **state)
{
    (void)state;
    test_place_t place = open_place(30, 64 * MIB, PLIM_IO_AUTO);
    plim_bench_result_t result;
    assert_ok(
        plim_bench_reads(&place.job, place.dataset, "features.npy", 5000, 60, 16, 1, &result));
    assert_int_equal(result.count, 5000);
    assert_int_equal(result.transfers, 5000);
    assert_true(result.bytes_read >= result.bytes);
    assert_ok(plim_bench_copies(&place.job, 64 * MIB, INT64_MAX, 5000, 256, 1, &result));
    assert_int_equal(result.bytes, 5000 * 256);
    assert_int_equal(plim_bench_reads(&place.job, place.dataset, "none.npy", 1, 1, 1, 1, &result),
                     PLIM_ERR_USAGE);
    test_place_close(&place);
}

/* Stacks included, whatever the line. */
static void test_copies_stay_inside_the_plan(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 3; threads++) {
        plim_job_t job = test_job_make(256 * MIB, threads, PLIM_IO_AUTO);
        const int64_t held = plim__ledger_reserved(job.ledger);
        plim_bench_result_t result;
        assert_ok(plim_bench_copies(&job, held + 8 * MIB, 64 * MIB, 1000, 256, 1, &result));
        assert_int_equal(result.count, 1000);
        assert_true(plim__ledger_peak(job.ledger) <= held + 8 * MIB);
        assert_true(plim__ledger_peak(job.ledger) > held + 7 * MIB);
        assert_int_equal(plim__ledger_reserved(job.ledger), held);
        test_job_end(&job);
    }
}

typedef struct failing {
    plim_dataset_t *dataset;
    int which;
} failing_t;

static plim_status_t run_one(plim_job_t *job, void *context)
{
    const failing_t *failing = context;
    const plim_plan_params_t wishes = {.rows = 1 + failing->which % 2};
    plim_recipe_t sampled = PLIM_RECIPE_INIT;
    plim_bench_result_t result, bare;
    plim__load_plan_t plan;
    plim_status_t status;
    switch (failing->which) {
    case 0:
    case 1:
        status = plim__bench_gather_plan(job, failing->dataset, &recipe, &wishes, &plan);
        return status == PLIM_OK
                   ? plim__bench_gather(job, failing->dataset, &plan, 3, &result, &bare)
                   : status;
    case 2:
        return plim_bench_reads(job, failing->dataset, "indices.npy", 100, 8, 4, 1, &result);
    case 3:
        return plim_bench_copies(job, plim__ledger_line(job->ledger), MIB, 100, 8, 1, &result);
    default:
        sampled.batch_size = 16;
        return plim__load_plan(job, failing->dataset, &sampled, &wishes, &plan);
    }
}

static void test_every_arena_may_fail(void **state)
{
    (void)state;
    test_place_t place = open_place(30, 256 * MIB, PLIM_IO_AUTO);
    place.job.threads = 1; /* so that the n-th arena is always the same one */
    for (int which = 0; which < 6; which++) {
        failing_t failing = {place.dataset, which};
        test_fail_each_arena(&place.job, run_one, &failing);
    }
    test_place_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gather_counts),
        cmocka_unit_test(test_gather_least),
        cmocka_unit_test(test_gather_refuses),
        cmocka_unit_test(test_the_bare_machine),
        cmocka_unit_test(test_copies_stay_inside_the_plan),
        cmocka_unit_test(test_every_arena_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
