/* Rows of halves and floats: the same bits on every path, whatever the length and the place. */
#include "support/harness.h"

#include "base/half.h"
#include "base/rng.h"

#include <string.h>

static plim__half_path_t best;

/* Random bits hold every kind of value: NaN, infinity, subnormal, too large. */
static void any_bits_on_every_path(void **state)
{
    (void)state;
    static float singles[1024], wide[1024], wide_one[1024];
    static uint16_t halves[1024], narrow[1024];
    for (uint64_t i = 0; i < 1024; i++) {
        uint64_t bits = plim__rng_u64(7, i);
        if (i % 4 == 0)
            bits = (bits & ~(uint64_t)0x7f800000) | (uint64_t)(96 + bits % 50) << 23;
        memcpy(&singles[i], &bits, sizeof singles[i]);
        halves[i] = (uint16_t)(bits >> 40);
    }
    for (int64_t i = 0; i < 1024; i++)
        wide_one[i] = plim__f32_from_f16(halves[i]);
    for (int path = PLIM__HALF_SCALAR; path <= (int)best; path++) {
        plim__half_widen((plim__half_path_t)path, halves, wide, 1024);
        assert_memory_equal(wide, wide_one, sizeof wide);
        plim__half_narrow((plim__half_path_t)path, singles, narrow, 1024);
        for (int64_t i = 0; i < 1024; i++)
            assert_int_equal(narrow[i], plim__f16_from_f32(singles[i]));
    }
}

static void every_length(void **state)
{
    (void)state;
    uint16_t halves[80], narrow[81];
    float wide[81];
    for (int i = 0; i < 80; i++)
        halves[i] = (uint16_t)(0x3c00 + i);
    for (int path = PLIM__HALF_SCALAR; path <= (int)best; path++) {
        for (int count = 0; count <= 80; count++) {
            memset(wide, 0x55, sizeof wide);
            memset(narrow, 0x55, sizeof narrow);
            plim__half_widen((plim__half_path_t)path, halves, wide, count);
            plim__half_narrow((plim__half_path_t)path, wide, narrow, count);
            assert_memory_equal(narrow, halves, (size_t)count * sizeof halves[0]);
            assert_int_equal(narrow[count], 0x5555);
            assert_int_equal(((unsigned char *)&wide[count])[0], 0x55);
        }
    }
}

static void widens_within_its_own_memory(void **state)
{
    (void)state;
    uint16_t halves[77];
    float apart[77], together[77];
    for (int count = 1; count <= 77; count++) {
        for (int i = 0; i < count; i++)
            halves[i] = (uint16_t)(0x3000 + 37 * i);
        for (int path = PLIM__HALF_SCALAR; path <= (int)best; path++) {
            uint16_t *latter = (uint16_t *)together + count;
            memcpy(latter, halves, (size_t)count * sizeof halves[0]);
            plim__half_widen((plim__half_path_t)path, halves, apart, count);
            plim__half_widen((plim__half_path_t)path, latter, together, count);
            assert_memory_equal(together, apart, (size_t)count * sizeof apart[0]);
        }
    }
}

int main(void)
{
    best = plim__half_best();
    if (best < PLIM__HALF_AVX2)
        print_message("SKIPPED the AVX2 path: this processor has no AVX2 and F16C\n");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_bits_on_every_path),
        cmocka_unit_test(every_length),
        cmocka_unit_test(widens_within_its_own_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
