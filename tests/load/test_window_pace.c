/* When one window takes the place of two, and when there are two again. */
#include "load/window_pace.h"
#include "support/harness.h"

static const int train, valid;

/* An epoch of `windows` windows of ten steps; whether the number shall change after one of them. */
static bool epoch_of(plim__window_pace_t *pace, int64_t windows, int64_t read_ns, int64_t built_ns)
{
    bool changes = false;
    plim__window_pace_follow(pace, &train, windows * 10);
    for (int64_t i = 0; i < windows; i++) {
        changes |= plim__window_pace_built(pace, &train, i * 10, 10, read_ns, built_ns);
    }
    return changes;
}

static void reading_decides(void **state)
{
    (void)state;
    plim__window_pace_t pace = {0};
    assert_false(epoch_of(&pace, 6, 500, 200));
    assert_true(epoch_of(&pace, 6, 900, 200));
    plim__window_pace_changed(&pace, true);
    assert_false(epoch_of(&pace, 3, 1000, 400)); /* 467 a window of before: faster, and kept */
    assert_false(epoch_of(&pace, 3, 1000, 4000));
}

static void two_again(void **state)
{
    (void)state;
    plim__window_pace_t pace = {0};
    assert_true(epoch_of(&pace, 6, 900, 200));
    plim__window_pace_changed(&pace, true);
    assert_true(epoch_of(&pace, 6, 800, 200));
    plim__window_pace_changed(&pace, false);
    assert_false(epoch_of(&pace, 6, 9000, 200)); /* tried once */
}

static void without_the_memory(void **state)
{
    (void)state;
    plim__window_pace_t pace = {0};
    assert_true(epoch_of(&pace, 6, 900, 200));
    plim__window_pace_changed(&pace, false);
    assert_false(epoch_of(&pace, 6, 900, 200));
}

/* A window that holds an epoch is none of two that compete; a long epoch is not waited for. */
static void windows_and_epochs(void **state)
{
    (void)state;
    plim__window_pace_t pace = {0};
    for (int i = 0; i < 20; i++)
        assert_false(epoch_of(&pace, 1, 900, 200));
    assert_false(epoch_of(&pace, 3, 100, 200));
    pace = (plim__window_pace_t){0};
    assert_false(epoch_of(&pace, 2, 900, 200));
    assert_true(epoch_of(&pace, 2, 900, 200));
    pace = (plim__window_pace_t){0};
    plim__window_pace_follow(&pace, &train, 1000);
    int64_t windows = 0;
    for (bool changes = false; !changes; windows++) {
        changes = plim__window_pace_built(&pace, &train, windows * 10, 10, 900, 200);
        assert_true(windows < 100);
    }
    assert_true(windows < 50);
}

/* The stream with the most steps is measured. */
static void other_streams(void **state)
{
    (void)state;
    plim__window_pace_t pace = {0};
    assert_false(epoch_of(&pace, 2, 900, 200));
    plim__window_pace_follow(&pace, &valid, 10);
    for (int i = 0; i < 20; i++)
        assert_false(plim__window_pace_built(&pace, &valid, 0, 5, 1, 1000000));
    assert_true(epoch_of(&pace, 2, 900, 200));
    plim__window_pace_changed(&pace, true);
    plim__window_pace_forget(&pace, &train);
    assert_false(epoch_of(&pace, 6, 100000, 200)); /* what two took is not known of another */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reading_decides), cmocka_unit_test(two_again),
        cmocka_unit_test(without_the_memory), cmocka_unit_test(windows_and_epochs),
        cmocka_unit_test(other_streams)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
