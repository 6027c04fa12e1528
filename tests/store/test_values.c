/* Statistics against plain arithmetic, and the vector path against the plain one, bit for bit. */
#include "support/harness.h"

#include "base/rng.h"
#include "store/scan.h"
#include "store/values.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 10007

static void same_bits_on_every_path(void **state)
{
    (void)state;
    static uint16_t halves[65536 + 3];
    static float floats[COUNT];
    for (size_t i = 0; i < sizeof halves / sizeof halves[0]; i++)
        halves[i] = (uint16_t)(i * 40503u); /* every half there is, in disorder */
    for (size_t i = 0; i < COUNT; i++) {
        uint32_t bits = (uint32_t)plim__rng_u64(3, i);
        memcpy(&floats[i], &bits, sizeof bits);
    }
    for (size_t shift = 0; shift < 9; shift++) {
        plim__values_t vector, plain;
        plim__values_start(&vector);
        plim__values_start(&plain);
        plim__values_add(&vector, PLIM__NPY_F16, halves + shift, 65536 - shift);
        plim__values_add_plain(&plain, PLIM__NPY_F16, halves + shift, 65536 - shift);
        assert_memory_equal(&vector, &plain, sizeof plain);
        plim__values_start(&vector);
        plim__values_start(&plain);
        plim__values_add(&vector, PLIM__NPY_F32, floats + shift, COUNT - shift);
        plim__values_add_plain(&plain, PLIM__NPY_F32, floats + shift, COUNT - shift);
        assert_memory_equal(&vector, &plain, sizeof plain);
    }
}

static void blocks_make_no_difference(void **state)
{
    (void)state;
    static float floats[COUNT];
    plim__values_t whole, parts;
    for (size_t i = 0; i < COUNT; i++)
        floats[i] = (float)plim__rng_double(5, i) * 3 - 1;
    plim__values_start(&whole);
    plim__values_start(&parts);
    plim__values_add(&whole, PLIM__NPY_F32, floats, COUNT);
    for (size_t at = 0; at < COUNT; at += 64)
        plim__values_add(&parts, PLIM__NPY_F32, floats + at, COUNT - at < 64 ? COUNT - at : 64);
    assert_memory_equal(&whole, &parts, sizeof whole);
}

static void every_half_is_exact(void **state)
{
    (void)state;
    for (uint32_t bits = 0; bits < 65536; bits++) {
        uint16_t half = (uint16_t)bits;
        int exponent = half >> 10 & 31;
        double mantissa = half & 1023;
        double value = exponent == 0 ? ldexp(mantissa, -24) : ldexp(1024 + mantissa, exponent - 25);
        plim__values_t values;
        plim__values_start(&values);
        plim__values_add_plain(&values, PLIM__NPY_F16, &half, 1);
        if (exponent == 31) {
            assert_int_equal(values.num_nan, mantissa != 0);
            assert_int_equal(values.num_infinite, mantissa == 0);
        } else {
            assert_true(values.sum[0] == (half & 0x8000 ? -value : value));
            assert_true(values.squares[0] == value * value);
        }
    }
}

static void nothing_has_no_statistics(void **state)
{
    (void)state;
    plim__values_sum_t sum = {0};
    plim__values_t values;
    plim_value_stats_t stats;
    const float wrong[] = {NAN, INFINITY, -INFINITY};
    plim__values_start(&values);
    plim__values_add(&values, PLIM__NPY_F32, wrong, 3);
    plim__values_sum(&sum, &values);
    plim__values_stats(&sum, &stats);
    assert_int_equal(stats.count, 3);
    assert_int_equal(stats.num_nan, 1);
    assert_int_equal(stats.num_infinite, 2);
    assert_true(stats.min == 0 && stats.max == 0 && stats.mean == 0 && stats.deviation == 0);
}

static void degrees_fall_into_fine_cells(void **state)
{
    (void)state;
    int last = -1;
    for (int64_t degree = 0; degree < 1 << 20; degree++) {
        int cell = plim__degree_cell(degree);
        assert_in_range(cell - last, 0, 1);
        assert_true(plim__degree_of_cell(cell) <= degree);
        assert_true((double)plim__degree_of_cell(cell) >= (double)degree * 0.999);
        assert_true(degree >= PLIM__DEGREES_EXACT || plim__degree_of_cell(cell) == degree);
        last = cell;
    }
    assert_int_equal(plim__degree_cell(INT64_MAX), PLIM__DEGREES_CELLS - 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_on_every_path),      cmocka_unit_test(blocks_make_no_difference),
        cmocka_unit_test(every_half_is_exact),          cmocka_unit_test(nothing_has_no_statistics),
        cmocka_unit_test(degrees_fall_into_fine_cells),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
