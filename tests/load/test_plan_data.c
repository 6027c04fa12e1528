/* The plan object: its getters and its JSON agree, and it lives as long as it is held. */
/* labels: asan */
#include "load/plan_data.h"

#include "support/dataset.h"
#include "support/harness.h"

#include <jansson.h>
#include <plimsoll/plimsoll.h>
#include <stdio.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)

static int64_t count_of(const json_t *object, const char *name)
{
    const json_t *value = json_object_get(object, name);
    assert_true(json_is_integer(value));
    return json_integer_value(value);
}

static void check(const plim_plan_t *plan, int64_t line, bool trains)
{
    json_t *json = json_loads(plim_plan_json(plan), JSON_REJECT_DUPLICATES, NULL);
    const json_t *account;
    size_t i;
    int64_t sum = 0;
    assert_non_null(json);
    assert_int_equal(plim_plan_line(plan), line);
    assert_int_equal(count_of(json, "line_bytes"), line);
    assert_int_equal(count_of(json, "total_bytes"), plim_plan_peak(plan));
    assert_int_equal(count_of(json, "minimum_bytes"), plim_plan_minimum(plan));
    assert_int_equal(count_of(json, "part_seeds"), plim_plan_part_seeds(plan));
    assert_true(count_of(json_object_get(json, "expect"), "epoch_steps") > 0);
    json_array_foreach(json_object_get(json, "accounts"), i, account)
    {
        assert_int_equal(json_object_get(account, "phases") != NULL, trains);
        sum += count_of(account, "bytes");
    }
    assert_true(sum > 0);
    assert_int_equal(json_object_get(json, "peak_phase") != NULL, trains);
    json_decref(json);
}

static void test_getters_and_json_agree(void **state)
{
    static const test_graph_t graph = {.num_nodes = 300, .num_features = 8, .num_classes = 3};
    const plim_recipe_t recipe = PLIM_RECIPE_INIT;
    const plim_training_t training = PLIM_TRAINING_INIT;
    test_place_t place = test_place_open(&graph, 512 * MIB, 2, PLIM_IO_AUTO);
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    plim_plan_t *plan;
    (void)state;
    params.memory = 256 * MIB;
    assert_ok(plim_load_plan(&place.job, place.dataset, &recipe, &params, &plan));
    check(plan, 256 * MIB, false);
    plim_plan_release(plan);
    assert_ok(plim_train_plan(&place.job, place.dataset, &training, &params, &plan));
    check(plan, 256 * MIB, true);
    plim_plan_release(plan);
    test_place_close(&place);
}

static void test_it_lives_as_long_as_it_is_held(void **state)
{
    static const test_graph_t graph = {.num_nodes = 300, .num_features = 8, .num_classes = 3};
    const plim_recipe_t recipe = PLIM_RECIPE_INIT;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    const int64_t before = plim__ledger_reserved(place.job.ledger);
    plim_plan_t *plan;
    (void)state;
    assert_ok(plim_load_plan(&place.job, place.dataset, &recipe, NULL, &plan));
    assert_null(strstr(plim_plan_json(plan), "line_bytes")); /* there is no line */
    plim_plan_retain(plan);
    plim_plan_release(plan);
    assert_true(plim_plan_peak(plan) > 0);
    plim_plan_release(plan);
    plim_plan_release(NULL);
    assert_int_equal(plim__ledger_reserved(place.job.ledger), before);
    test_place_close(&place);
}

/* However large its numbers are, a plan's JSON is whole. */
static void test_the_largest_text_fits(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_plan_t *plan;
    (void)state;
    assert_ok(plim__plan_create(&job, &plan));
    memset(&plan->numbers, 0x7f, sizeof plan->numbers);
    plan->numbers.num_accounts = plan->numbers.load.num_accounts = PLIM__PLAN_ACCOUNTS;
    plan->numbers.peak_phase = PLIM__PHASE_CHECKPOINT;
    plan->numbers.recompute = plan->numbers.load.guessed = plan->numbers.load.counted = true;
    plan->numbers.load.topology_in_memory = plan->numbers.load.rows_in_memory = true;
    for (int i = 0; i < PLIM__PLAN_ACCOUNTS; i++)
        (void)snprintf(plan->numbers.accounts[i].name, 32, "%031d", i);
    plim__plan_seal(plan, true);
    json_t *json = json_loads(plim_plan_json(plan), 0, NULL);
    assert_non_null(json);
    json_decref(json);
    plim_plan_release(plan);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_getters_and_json_agree),
        cmocka_unit_test(test_it_lives_as_long_as_it_is_held),
        cmocka_unit_test(test_the_largest_text_fits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
