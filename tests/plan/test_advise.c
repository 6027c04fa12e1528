/* Advice does what it says: each change that is named fits, and the one before it does not. */
#include "load/plan_data.h"
#include "plan/train_plan.h"
#include "support/dataset.h"
#include "support/harness.h"
#include "support/training.h"

#include <plimsoll/plimsoll.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)
#define CAPACITY 8

/* Activations and weights decide what fits. */
static const test_graph_t wide = {
    .num_nodes = 40000, .num_features = 128, .num_classes = 7, .half = true};

static plim_training_t large_training(void)
{
    plim_training_t training = test_training_two_hops(PLIM_SAGE, 512, 1024, 15, 10);
    training.model.num_layers = 2;
    return training;
}

static plim_training_t take(plim_training_t training, const plim_advice_t *advice)
{
    if (advice->hidden > 0)
        training.model.hidden = advice->hidden;
    if (advice->batch_size > 0)
        training.recipe.batch_size = advice->batch_size;
    if (advice->bf16)
        training.model.precision = PLIM_PRECISION_BF16;
    assert_true(advice->num_hops == 0 || advice->num_hops == training.recipe.num_hops);
    for (int i = 0; i < advice->num_hops; i++)
        training.recipe.fanout[i] = advice->fanout[i];
    return training;
}

static void check_advice(const test_place_t *place, const plim_training_t *training, int64_t memory,
                         bool whole, int least_count)
{
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    plim_advice_t advice[CAPACITY] = {PLIM_ADVICE_INIT};
    plim__train_plan_t plan;
    int count;
    params.memory = memory;
    assert_ok(plim_train_advise(&place->job, place->dataset, training, &params, CAPACITY, advice,
                                &count));
    assert_true(count >= least_count && count <= CAPACITY);
    for (int i = 0; i < count; i++) {
        const plim_training_t changed = take(*training, &advice[i]);
        for (int hop = 0; hop < training->recipe.num_hops; hop++)
            assert_true(changed.recipe.fanout[hop] <= training->recipe.fanout[hop]);
        assert_ok(plim__train_plan(&place->job, place->dataset, &changed, &params, &plan));
        assert_true(!whole || plan.load.part_seeds == 0);
        assert_true(advice[i].saved_bytes > 0 && advice[i].total_bytes <= memory + MIB);
    }
}

static void what_is_advised_fits(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    test_place_t place = test_place_open(&wide, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_training_t training = large_training();
    plim__train_plan_t plan;
    plim_advice_t advice[CAPACITY] = {PLIM_ADVICE_INIT};
    int count;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
    assert_ok(
        plim_train_advise(&place.job, place.dataset, &training, NULL, CAPACITY, advice, &count));
    assert_int_equal(count, 0); /* whole batches fit */
    for (int64_t memory = plan.minimum - 16 * MIB; memory < plan.minimum; memory += 4 * MIB)
        check_advice(&place, &training, memory, false, 0);
    for (int64_t memory = plan.minimum + MIB; memory < plan.total; memory += 32 * MIB) {
        const plim_plan_params_t params = {.memory = memory};
        plim__train_plan_t cut;
        assert_ok(plim__train_plan(&place.job, place.dataset, &training, &params, &cut));
        check_advice(&place, &training, memory, true, cut.load.part_seeds > 0 ? 1 : 0);
    }
    training.recipe.fanout[1] = 0; /* is not made larger */
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
    check_advice(&place, &training, plan.total / 2, false, 0);
    test_place_close(&place);
}

/* Who is refused is told what would do. */
static void a_refusal_names_what_would_do(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    test_place_t place = test_place_open(&wide, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    const plim_training_t training = large_training();
    plim__train_plan_t plan;
    plim_plan_t *refused;
    plim_advice_t advice[CAPACITY] = {PLIM_ADVICE_INIT};
    int count;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    params.memory = plan.minimum - 2 * MIB;
    assert_ok(
        plim_train_advise(&place.job, place.dataset, &training, &params, CAPACITY, advice, &count));
    assert_true(count > 0);
    assert_int_equal(plim_train_plan(&place.job, place.dataset, &training, &params, &refused),
                     PLIM_ERR_BUDGET);
    for (int i = 0; i < count; i++) {
        const int64_t value = advice[i].hidden > 0       ? advice[i].hidden
                              : advice[i].batch_size > 0 ? advice[i].batch_size
                                                         : advice[i].fanout[0];
        char number[32];
        (void)snprintf(number, sizeof number, "%lld", (long long)value);
        assert_non_null(advice[i].bf16 ? strstr(plim_last_error(), "bf16")
                                       : strstr(plim_last_error(), number));
    }
    assert_non_null(strstr(plim_last_error(), "or more, or `"));
    /* Of a caller made for older headers, only the fields that it knows are read. */
    plim_advice_t again[CAPACITY] = {PLIM_ADVICE_INIT};
    params.size = offsetof(plim_plan_params_t, num_slots);
    memset((char *)&params + params.size, 0x55, sizeof params - params.size);
    assert_ok(
        plim_train_advise(&place.job, place.dataset, &training, &params, CAPACITY, again, &count));
    for (int i = 0; i < count; i++)
        assert_int_equal(advice[i].total_bytes, again[i].total_bytes);
    params.size = 0;
    assert_int_equal(
        plim_train_advise(&place.job, place.dataset, &training, &params, CAPACITY, again, &count),
        PLIM_ERR_USAGE);
    test_place_close(&place);
}

/* Computing layers' inputs again keeps whole batches where nothing else would. */
static void inputs_are_computed_again_before_batches_are_cut(void **state)
{
    (void)state;
    test_place_t place = test_place_open(&wide, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_training_t training = large_training();
    plim__train_plan_t plan, forced;
    int again = 0;
    assert_ok(plim__train_plan(&place.job, place.dataset, &training, NULL, &plan));
    assert_false(plan.recompute);
    for (int64_t memory = plan.minimum; memory < plan.total; memory += MIB) {
        const plim_plan_params_t params = {.memory = memory};
        training.model.recompute = true;
        assert_ok(plim__train_plan(&place.job, place.dataset, &training, &params, &forced));
        assert_true(forced.recompute);
        training.model.recompute = false;
        plim__train_plan_t free_plan;
        assert_ok(plim__train_plan(&place.job, place.dataset, &training, &params, &free_plan));
        assert_int_equal(free_plan.load.part_seeds, forced.load.part_seeds);
        again += free_plan.recompute && free_plan.load.part_seeds == 0;
    }
    assert_true(again > 0);
    test_place_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_advised_fits),
        cmocka_unit_test(a_refusal_names_what_would_do),
        cmocka_unit_test(inputs_are_computed_again_before_batches_are_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
