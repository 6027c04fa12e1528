/* How close two reads must lie to be one follows from what reads of two sizes take. */
#include "support/harness.h"

#include "load/load_sources.h"

static double seconds(double call, double byte, double bytes)
{
    return call + bytes * byte;
}

static void the_distance_is_what_a_call_costs(void **state)
{
    (void)state;
    /* 6 us a call and 3 GB/s: 18,000 bytes. */
    size_t distance = plim__merge_distance_of(seconds(6e-6, 1 / 3e9, PLIM__MERGE_SMALL),
                                              seconds(6e-6, 1 / 3e9, PLIM__MERGE_LARGE));
    assert_in_range(distance, 17900, 18100);
}

static void the_distance_stays_in_its_bounds(void **state)
{
    (void)state;
    assert_int_equal(plim__merge_distance_of(seconds(0, 1e-9, PLIM__MERGE_SMALL),
                                             seconds(0, 1e-9, PLIM__MERGE_LARGE)),
                     4096);
    assert_int_equal(plim__merge_distance_of(1e-2, 1.0001e-2),
                     65536); /* a far disk: calls are all that counts */
    assert_int_equal(plim__merge_distance_of(1e-5, 0.9e-5), 65536); /* noise */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_distance_is_what_a_call_costs),
        cmocka_unit_test(the_distance_stays_in_its_bounds),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
