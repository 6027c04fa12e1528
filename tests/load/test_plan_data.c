/* The plan object: its figures add up, and it gives its memory back. */
/* labels: asan */
#include "load/plan_data.h"

#include "support/dataset.h"
#include "support/harness.h"

#include <plimsoll/plimsoll.h>
#include <stddef.h>

#define MIB ((int64_t)1 << 20)

/* The peak of a training is the sum of a phase of its accounts. */
static void check(const plim_plan_t *plan, int64_t line, bool trains)
{
    plim_plan_info_t info = PLIM_PLAN_INFO_INIT;
    plim_plan_account_t account = PLIM_PLAN_ACCOUNT_INIT;
    int64_t sum = 0, phases[PLIM_PHASES] = {0};
    assert_ok(plim_plan_info(plan, &info));
    for (int i = 0; plim_plan_account(plan, i, &account); i++) {
        sum += account.bytes;
        for (int phase = 0; phase < PLIM_PHASES; phase++)
            phases[phase] += account.phase_bytes[phase];
    }
    assert_true(info.line == line && info.trains == trains && info.epoch_steps > 0);
    assert_true(info.minimum > 0 && info.minimum <= info.peak && info.peak <= line);
    assert_memory_equal(phases, info.phase_bytes, sizeof phases);
    if (trains)
        assert_int_equal(phases[info.peak_phase], info.peak);
    else /* creating a loader may take more than it holds afterwards */
        assert_true(sum > 0 && sum <= info.peak);
}

static void test_figures_add_up(void **state)
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

static void test_it_gives_its_memory_back(void **state)
{
    static const test_graph_t graph = {.num_nodes = 300, .num_features = 8, .num_classes = 3};
    const plim_recipe_t recipe = PLIM_RECIPE_INIT;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    const int64_t before = plim__ledger_reserved(place.job.ledger);
    plim_plan_t *plan;
    (void)state;
    assert_ok(plim_load_plan(&place.job, place.dataset, &recipe, NULL, &plan));
    plim_plan_info_t info = PLIM_PLAN_INFO_INIT;
    assert_ok(plim_plan_info(plan, &info));
    assert_int_equal(info.line, PLIM_LINE_NONE);
    plim_plan_release(plan);
    plim_plan_release(NULL);
    assert_int_equal(plim__ledger_reserved(place.job.ledger), before);
    test_place_close(&place);
}

/* A caller of another version: what it does not know is left alone. */
static void test_callers_struct_may_be_shorter(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_plan_info_t info = {.size = offsetof(plim_plan_info_t, slots), .slots = 77}, none = {0};
    plim_plan_account_t unsized = {0}, account = PLIM_PLAN_ACCOUNT_INIT;
    plim_plan_t *plan;
    (void)state;
    assert_ok(plim__plan_create(&job, &plan));
    plan->numbers.load.workers = 3;
    plan->numbers.load.num_slots = 4;
    plan->numbers.load.num_accounts = 1;
    assert_ok(plim_plan_info(plan, &info));
    assert_true(info.workers == 3 && info.slots == 77);
    assert_int_equal(plim_plan_info(plan, &none), PLIM_ERR_USAGE);
    assert_false(plim_plan_account(plan, 0, &unsized));
    assert_true(plim_plan_account(plan, 0, &account));
    assert_false(plim_plan_account(plan, 1, &account) || plim_plan_account(plan, -1, &account));
    plim_plan_release(plan);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_figures_add_up),
        cmocka_unit_test(test_it_gives_its_memory_back),
        cmocka_unit_test(test_callers_struct_may_be_shorter),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
