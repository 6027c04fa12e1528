/* The exponential and bfloat16 against wider arithmetic. */
#include "nn/bf16.h"
#include "nn/exp.h"

#include "support/harness.h"

#include <math.h>

static float float_of(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Distance in units in the last place of the true value's binade (of subnormals below). */
static double ulps(float got, double want)
{
    int exponent;
    frexp(want, &exponent);
    const double unit = ldexp(1.0, exponent - 24 < -149 ? -149 : exponent - 24);
    return fabs((double)got - want) / unit;
}

static void exp_is_within_two_ulps(void **state)
{
    (void)state;
    double worst = 0;
    for (uint32_t bits = 0; bits < 0x42b20000u; bits += 997) { /* up to 89 */
        const float x = float_of(bits);
        if (x < 88.72f)
            worst = fmax(worst, ulps(plim__expf(x), exp((double)x)));
        worst = fmax(worst, ulps(plim__expf(-x), exp(-(double)x)));
    }
    print_message("largest error: %.3f units in the last place\n", worst);
    assert_true(worst <= 2.0);
}

static void exp_of_the_extremes(void **state)
{
    (void)state;
    assert_true(plim__expf(0.0f) == 1.0f);
    assert_true(plim__expf(89.0f) == INFINITY);
    assert_true(plim__expf(INFINITY) == INFINITY);
    assert_true(plim__expf(-INFINITY) == 0.0f);
    assert_true(plim__expf(-1e30f) == 0.0f);
    assert_true(plim__expf(-100.0f) > 0.0f); /* subnormal */
    assert_true(isnan(plim__expf(NAN)));
}

static void bf16_rounds_to_nearest_even(void **state)
{
    (void)state;
    for (uint32_t half = 0; half <= 0xffff; half++) {
        const float exact = plim__f32_from_bf16((uint16_t)half);
        if (isnan(exact)) {
            assert_true(isnan(plim__f32_from_bf16(plim__bf16_from_f32(exact))));
            continue;
        }
        assert_int_equal(plim__bf16_from_f32(exact), half);
        if (isinf(exact))
            continue;
        const uint32_t bits = half << 16;
        assert_int_equal(plim__bf16_from_f32(float_of(bits | 0x7fff)), half);
        assert_int_equal(plim__bf16_from_f32(float_of(bits | 0x8001)), half + 1);
        assert_int_equal(plim__bf16_from_f32(float_of(bits | 0x8000)), half + (half & 1));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exp_is_within_two_ulps),
        cmocka_unit_test(exp_of_the_extremes),
        cmocka_unit_test(bf16_rounds_to_nearest_even),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
