/* Checked arithmetic at its edges. */
#include "support/harness.h"

#include "base/check.h"

static void adds_and_multiplies_up_to_the_edge(void **state)
{
    (void)state;
    int64_t number;
    size_t size;
    assert_true(plim__add_i64(INT64_MAX - 1, 1, &number));
    assert_int_equal(number, INT64_MAX);
    assert_false(plim__add_i64(INT64_MAX, 1, &number));
    assert_false(plim__add_i64(INT64_MIN, -1, &number));
    assert_true(plim__mul_i64((int64_t)1 << 31, (int64_t)1 << 31, &number));
    assert_int_equal(number, (int64_t)1 << 62);
    assert_false(plim__mul_i64((int64_t)1 << 32, (int64_t)1 << 31, &number));
    assert_true(plim__mul_i64((int64_t)1 << 32, -((int64_t)1 << 31), &number));
    assert_int_equal(number, INT64_MIN);
    assert_true(plim__add_size(SIZE_MAX - 1, 1, &size));
    assert_false(plim__add_size(SIZE_MAX, 1, &size));
    assert_true(plim__mul_size(SIZE_MAX, 1, &size));
    assert_false(plim__mul_size(SIZE_MAX / 2 + 1, 2, &size));
}

static void saturates_past_the_edge(void **state)
{
    (void)state;
    assert_int_equal(plim__add_saturating_i64(2, 3), 5);
    assert_int_equal(plim__add_saturating_i64(INT64_MAX - 1, 1), INT64_MAX);
    assert_int_equal(plim__add_saturating_i64(INT64_MAX, 1), INT64_MAX);
    assert_int_equal(plim__mul_saturating_i64(2, 3), 6);
    assert_int_equal(plim__mul_saturating_i64((int64_t)1 << 32, (int64_t)1 << 31), INT64_MAX);
    assert_int_equal(plim__mul_saturating_i64(INT64_MAX, 0), 0);
    assert_true(plim__add_saturating_size(SIZE_MAX - 1, 1) == SIZE_MAX);
    assert_true(plim__add_saturating_size(SIZE_MAX, SIZE_MAX) == SIZE_MAX);
    assert_true(plim__mul_saturating_size(2, 3) == 6);
    assert_true(plim__mul_saturating_size(SIZE_MAX / 2 + 1, 2) == SIZE_MAX);
}

static void rounds_up_and_saturates(void **state)
{
    (void)state;
    assert_int_equal(plim__round_up(0, 4096), 0);
    assert_int_equal(plim__round_up(1, 4096), 4096);
    assert_int_equal(plim__round_up(4096, 4096), 4096);
    assert_int_equal(plim__round_up(4097, 1), 4097);
    assert_true(plim__round_up(SIZE_MAX, 4096) == (SIZE_MAX & ~(size_t)4095));
    assert_true(plim__round_up(SIZE_MAX - 4094, 4096) == (SIZE_MAX & ~(size_t)4095));
}

static void takes_the_lesser_and_the_greater(void **state)
{
    (void)state;
    assert_int_equal(plim__min_i64(INT64_MIN, INT64_MAX), INT64_MIN);
    assert_int_equal(plim__max_i64(INT64_MIN, INT64_MAX), INT64_MAX);
    assert_int_equal(plim__min_i64(3, 3), 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(adds_and_multiplies_up_to_the_edge),
        cmocka_unit_test(saturates_past_the_edge),
        cmocka_unit_test(rounds_up_and_saturates),
        cmocka_unit_test(takes_the_lesser_and_the_greater),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
