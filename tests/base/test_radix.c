/* The radix sort against qsort, for sizes around every boundary and keys of every width. */
/* labels: plain */
#include "support/harness.h"

#include "base/radix.h"
#include "base/rng.h"

#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

/* Random keys of `bits` bits, the upper ones the same in all; with `skew` most of them are few. */
static void make_keys(uint64_t *keys, int64_t count, int bits, int skew)
{
    uint64_t above = bits < 64 ? (uint64_t)0x5a5a5a5a5a5a5a5a >> bits << bits : 0;
    for (int64_t i = 0; i < count; i++) {
        uint64_t draw = plim__rng_u64(7, (uint64_t)i);
        uint64_t key = bits > 0 ? draw >> (64 - bits) : 0;
        if (skew > 0 && draw % 16 != 0)
            key >>= (uint64_t)bits * (uint64_t)skew / 4;
        keys[i] = above | key;
    }
}

static void check(int64_t count, int bits, int skew)
{
    size_t size = (size_t)count * sizeof(uint64_t);
    uint64_t *keys = test_malloc(size + 8), *spare = test_malloc(size + 8);
    uint64_t *expected = test_malloc(size + 8);
    make_keys(keys, count, bits, skew);
    memcpy(expected, keys, size);
    qsort(expected, (size_t)count, sizeof *expected, compare);
    uint64_t *sorted = plim__radix_sort(keys, spare, count, bits);
    assert_true(sorted == keys || sorted == spare);
    assert_memory_equal(sorted, expected, size);
    test_free(keys);
    test_free(spare);
    test_free(expected);
}

static void sorts_all_sizes(void **state)
{
    (void)state;
    const int64_t counts[] = {0, 1, 2, 3, 24, 25, 100, 511, 4096, 65535, 65536, 65537, 200000};
    const int bits[] = {0, 1, 7, 8, 9, 10, 27, 36, 43, 63, 64};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        for (size_t j = 0; j < sizeof bits / sizeof bits[0]; j++)
            check(counts[i], bits[j], 0);
}

static void sorts_skewed_keys(void **state)
{
    (void)state;
    for (int skew = 1; skew <= 4; skew++) {
        check(300000, 44, skew);
        check(3000, 44, skew);
    }
}

static void sorts_many_keys(void **state)
{
    (void)state;
    check(3000000, 48, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sorts_all_sizes),
        cmocka_unit_test(sorts_skewed_keys),
        cmocka_unit_test(sorts_many_keys),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
