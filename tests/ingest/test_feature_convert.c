/* Every f16 value, every rounding case, and equal bits on every path this processor has. */
#include "support/harness.h"

#include "base/rng.h"
#include "ingest/feature_convert.h"

#include <math.h>
#include <string.h>

static plim__half_path_t paths[3];
static int num_paths;

static float from_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* f16 as its definition says, in doubles: sign, 5 bits of exponent, 10 of fraction. */
static double f16_by_definition(uint16_t half)
{
    int exponent = half >> 10 & 31;
    double fraction = (half & 0x3ff) / 1024.0;
    double size = exponent == 0    ? ldexp(fraction, -14)
                  : exponent == 31 ? (double)INFINITY
                                   : ldexp(1 + fraction, exponent - 15);
    return (half & 0x8000) != 0 ? -size : size;
}

static void every_f16_widens_and_returns(void **state)
{
    (void)state;
    static uint16_t halves[65536], back[65536];
    static float wide[65536];
    for (int p = 0; p < num_paths; p++) {
        int64_t count = 0;
        double worst = 0;
        for (uint32_t h = 0; h < 65536; h++)
            if ((h & 0x7fff) < 0x7c00)
                halves[count++] = (uint16_t)h;
        assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F16, halves, PLIM__NPY_F32, wide,
                                               count, &worst),
                         count);
        for (int64_t i = 0; i < count; i++) {
            double expected = f16_by_definition(halves[i]);
            assert_true((double)wide[i] == expected);
            assert_int_equal(signbit(wide[i]) != 0, signbit(expected) != 0);
        }
        assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F32, wide, PLIM__NPY_F16, back,
                                               count, &worst),
                         count);
        assert_memory_equal(halves, back, (size_t)count * 2);
        assert_true(worst == 0);
    }
}

/* The nearest f16 by search among the neighbours, ties to the even one. */
static uint16_t nearest_f16(float value)
{
    double size = fabs((double)value);
    uint16_t low = 0, high = 0x7c00;
    while (high - low > 1) {
        uint16_t middle = (uint16_t)((low + high) / 2);
        if (f16_by_definition(middle) <= size)
            low = middle;
        else
            high = middle;
    }
    /* Above 65504 the next step would be 65536: that is where rounding to infinity begins. */
    double above = high == 0x7c00 ? 65536.0 : f16_by_definition(high);
    double below = f16_by_definition(low);
    uint16_t half = size - below < above - size   ? low
                    : size - below > above - size ? high
                    : (low & 1) == 0              ? low
                                                  : high;
    return (uint16_t)(half | (signbit(value) ? 0x8000 : 0));
}

static void rounds_to_nearest_even(void **state)
{
    (void)state;
    enum { COUNT = 1 << 16 };
    static float values[COUNT];
    static uint16_t halves[3][COUNT];
    int64_t count = 0;
    /* Each f16 boundary, the middle between two, and the floats on both sides of the middle. */
    for (uint32_t h = 0; h < 0x7bff; h += 5) {
        float low = plim__f32_from_f16((uint16_t)h), high = plim__f32_from_f16((uint16_t)(h + 1));
        float middle = low + (high - low) / 2;
        values[count++] = middle;
        values[count++] = -nextafterf(middle, 0);
        values[count++] = nextafterf(middle, INFINITY);
    }
    uint64_t key = plim__rng_key(1, 2, 3, 4);
    for (uint64_t c = 0; count < COUNT; c++) {
        float value = from_bits((uint32_t)plim__rng_u64(key, c));
        if (fabsf(value) < 65520)
            values[count++] = value;
    }
    double worst[3] = {0, 0, 0};
    for (int p = 0; p < num_paths; p++) {
        assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F32, values, PLIM__NPY_F16,
                                               halves[p], count, &worst[p]),
                         count);
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(halves[p][i], nearest_f16(values[i]));
        assert_true(worst[p] == worst[0]);
        assert_true(worst[p] > 0);
    }
}

static void stops_at_nan_infinity_and_overflow(void **state)
{
    (void)state;
    const float bad[] = {NAN, -NAN, INFINITY, -INFINITY, 65520, -65520, 1e30f};
    for (int p = 0; p < num_paths; p++)
        for (size_t b = 0; b < sizeof bad / sizeof bad[0]; b++)
            for (int64_t at = 0; at < 70; at++) {
                float values[71];
                uint16_t halves[71];
                float singles[71];
                double worst = 0;
                for (int i = 0; i < 71; i++)
                    values[i] = i % 3 == 0 ? -65504 : i % 3 == 1 ? 65519 : 0;
                values[at] = bad[b];
                assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F32, values,
                                                       PLIM__NPY_F16, halves, 71, &worst),
                                 at);
                assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F32, values,
                                                       PLIM__NPY_F32, singles, 71, &worst),
                                 isfinite(bad[b]) ? 71 : at);
            }
}

static void f16_nan_and_infinity_stop(void **state)
{
    (void)state;
    for (int p = 0; p < num_paths; p++)
        for (int64_t at = 0; at < 40; at++) {
            uint16_t halves[41] = {0}, same[41];
            float singles[41];
            double worst = 0;
            halves[at] = at % 2 == 0 ? 0x7c01 : 0xfc00;
            assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F16, halves, PLIM__NPY_F32,
                                                   singles, 41, &worst),
                             at);
            assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F16, halves, PLIM__NPY_F16,
                                                   same, 41, &worst),
                             at);
        }
}

static void doubles_agree_on_every_path(void **state)
{
    (void)state;
    enum { COUNT = 20000 };
    static double values[COUNT];
    static float singles[3][COUNT];
    static uint16_t halves[3][COUNT];
    double worst[3] = {0, 0, 0}, worst_half[3] = {0, 0, 0};
    uint64_t key = plim__rng_key(5, 6, 7, 8);
    for (int i = 0; i < COUNT; i++) {
        uint64_t bits = plim__rng_u64(key, (uint64_t)i);
        double fraction = plim__rng_double(key, (uint64_t)i + COUNT) - 0.5;
        values[i] = i % 50 == 0 ? 0 : ldexp(fraction, (int)(bits % 40) - 25);
    }
    for (int p = 0; p < num_paths; p++) {
        assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F64, values, PLIM__NPY_F32,
                                               singles[p], COUNT, &worst[p]),
                         COUNT);
        assert_memory_equal(singles[p], singles[0], sizeof singles[0]);
        assert_true(worst[p] == worst[0] && worst[p] > 0 && worst[p] <= 0x1p-24);
        assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F64, values, PLIM__NPY_F16,
                                               halves[p], COUNT, &worst_half[p]),
                         COUNT);
        assert_memory_equal(halves[p], halves[0], sizeof halves[0]);
        assert_true(worst_half[p] == worst_half[0]);
        for (int at = 0; at < 9; at++) {
            double kept = values[at], none = 0;
            values[at] = at % 2 == 0 ? (double)NAN : 65520;
            assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F64, values, PLIM__NPY_F16,
                                                   halves[p], 9, &none),
                             at);
            values[at] = at % 3 == 2 ? (double)NAN : at % 3 == 1 ? (double)-INFINITY : -3.5e38;
            assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F64, values, PLIM__NPY_F32,
                                                   singles[p], 9, &none),
                             at);
            values[at] = kept;
        }
    }
}

static void other_types(void **state)
{
    (void)state;
    const double doubles[] = {0.1, -3, 1e300, 5};
    const int64_t whole[] = {-70000, 1, 2049};
    float singles[4];
    uint16_t halves[4];
    double worst = 0;
    assert_int_equal(plim__feature_convert(PLIM__HALF_SCALAR, PLIM__NPY_F64, doubles, PLIM__NPY_F32,
                                           singles, 4, &worst),
                     2);
    assert_true(singles[0] == 0.1f && singles[1] == -3);
    assert_true(worst > 1e-9 && worst < 1e-7);
    assert_int_equal(plim__feature_convert(PLIM__HALF_SCALAR, PLIM__NPY_I64, whole, PLIM__NPY_F16,
                                           halves, 3, &worst),
                     0);
    assert_int_equal(plim__feature_convert(PLIM__HALF_SCALAR, PLIM__NPY_I64, whole + 1,
                                           PLIM__NPY_F16, halves, 2, &worst),
                     2);
    assert_true(plim__f32_from_f16(halves[1]) == 2048);
    const uint8_t bytes[] = {0, 1, 255};
    assert_int_equal(plim__feature_convert(PLIM__HALF_SCALAR, PLIM__NPY_U8, bytes, PLIM__NPY_F16,
                                           halves, 3, &worst),
                     3);
    assert_true(plim__f32_from_f16(halves[2]) == 255);
}

static void integers_and_whole_floats(void **state)
{
    (void)state;
    int64_t to[4];
    double worst = 0;
    const int16_t small[] = {-32768, 0, 32767};
    const double doubles[] = {-3, 0x1p53 - 1, 0x1p53, 0.5};
    const float bad[] = {0.5f, NAN, INFINITY, -0x1p53f};
    const uint64_t large[] = {1ull << 62, 1ull << 63};
    for (int p = 0; p < num_paths; p++) {
        assert_int_equal(
            plim__feature_convert(paths[p], PLIM__NPY_I16, small, PLIM__NPY_I64, to, 3, &worst), 3);
        assert_true(to[0] == -32768 && to[1] == 0 && to[2] == 32767);
        assert_int_equal(
            plim__feature_convert(paths[p], PLIM__NPY_F64, doubles, PLIM__NPY_I64, to, 4, &worst),
            2);
        assert_true(to[0] == -3 && to[1] == (1LL << 53) - 1);
        for (int i = 0; i < 4; i++)
            assert_int_equal(plim__feature_convert(paths[p], PLIM__NPY_F32, bad + i, PLIM__NPY_I64,
                                                   to, 1, &worst),
                             0);
        assert_int_equal(
            plim__feature_convert(paths[p], PLIM__NPY_U64, large, PLIM__NPY_I64, to, 2, &worst), 1);
    }
    assert_true(to[0] == 1LL << 62 && worst == 0);
}

static void ids_of_any_type(void **state)
{
    (void)state;
    int64_t ids[3];
    const int8_t small[] = {-1, 0, 127};
    const uint32_t middle[] = {0, 4294967295u, 1};
    const uint64_t large[] = {0, 1ull << 63, 1};
    assert_int_equal(plim__feature_convert_ids(PLIM__NPY_I8, small, ids, 3), 3);
    assert_int_equal(ids[0], -1);
    assert_int_equal(plim__feature_convert_ids(PLIM__NPY_U32, middle, ids, 3), 3);
    assert_int_equal(ids[1], 4294967295LL);
    assert_int_equal(plim__feature_convert_ids(PLIM__NPY_U64, large, ids, 3), 1);
}

int main(void)
{
    paths[num_paths++] = PLIM__HALF_SCALAR;
    if (plim__half_best() >= PLIM__HALF_AVX2)
        paths[num_paths++] = PLIM__HALF_AVX2;
    else
        print_message("SKIPPED the AVX2 path: this processor has no AVX2 and F16C\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_f16_widens_and_returns),
        cmocka_unit_test(rounds_to_nearest_even),
        cmocka_unit_test(stops_at_nan_infinity_and_overflow),
        cmocka_unit_test(f16_nan_and_infinity_stop),
        cmocka_unit_test(doubles_agree_on_every_path),
        cmocka_unit_test(other_types),
        cmocka_unit_test(integers_and_whole_floats),
        cmocka_unit_test(ids_of_any_type),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
