/* The keyed permutation: a bijection of any count, its inverse, and the same many at once. */
#include "support/harness.h"

#include "base/permute.h"

#include <string.h>

enum { MOST = 70000 };

static int64_t images[MOST];
static unsigned char seen[MOST];

static void check_bijection(int64_t count, uint64_t key)
{
    plim__permute_t permute = plim__permute_make((uint64_t)count, key);
    memset(seen, 0, (size_t)count);
    for (int64_t i = 0; i < count; i++) {
        uint64_t image = plim__permute_forward(&permute, (uint64_t)i);
        assert_true(image < (uint64_t)count);
        assert_false(seen[image]);
        seen[image] = 1;
        images[i] = i;
    }
    plim__permute_many(&permute, images, count, false);
    for (int64_t i = 0; i < count; i++)
        assert_true((uint64_t)images[i] == plim__permute_forward(&permute, (uint64_t)i));
    plim__permute_many(&permute, images, count, true);
    for (int64_t i = 0; i < count; i++)
        assert_true(images[i] == i);
}

static void is_a_bijection_of_any_count(void **state)
{
    (void)state;
    for (int64_t count = 1; count <= 300; count++)
        check_bijection(count, (uint64_t)count * 77);
    const int64_t counts[] = {1023, 1024, 1025, 4097, 10007, 65535, 65536, 65537};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        check_bijection(counts[i], i);
}

static void large_counts_come_back(void **state)
{
    (void)state;
    const uint64_t counts[] = {111059956, (uint64_t)1 << 31, ((uint64_t)1 << 40) + 1,
                               (uint64_t)1 << 62};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        plim__permute_t permute = plim__permute_make(counts[i], i);
        for (uint64_t j = 0; j < 1000; j++) {
            uint64_t index = plim__rng_u64(i, j) % counts[i];
            uint64_t image = plim__permute_forward(&permute, index);
            assert_true(image < counts[i]);
            images[j] = (int64_t)index;
        }
        plim__permute_many(&permute, images, 1000, false);
        for (uint64_t j = 0; j < 1000; j++)
            assert_true((uint64_t)images[j] ==
                        plim__permute_forward(&permute, plim__rng_u64(i, j) % counts[i]));
        plim__permute_many(&permute, images, 1000, true);
        for (uint64_t j = 0; j < 1000; j++)
            assert_true((uint64_t)images[j] == plim__rng_u64(i, j) % counts[i]);
    }
}

/* Neighbours must not stay neighbours, a fixed index must go everywhere as the key changes. */
static void scatters(void **state)
{
    (void)state;
    enum { COUNT = 1000, KEYS = 20000, BINS = 10 };
    int bins[BINS] = {0};
    int close = 0;
    for (uint64_t key = 0; key < KEYS; key++) {
        plim__permute_t permute = plim__permute_make(COUNT, key);
        int64_t a = (int64_t)plim__permute_forward(&permute, 0);
        int64_t b = (int64_t)plim__permute_forward(&permute, 1);
        bins[a * BINS / COUNT]++;
        close += a - b <= 1 && b - a <= 1;
    }
    for (int i = 0; i < BINS; i++) {
        assert_true(bins[i] > KEYS / BINS * 9 / 10);
        assert_true(bins[i] < KEYS / BINS * 11 / 10);
    }
    assert_true(close < KEYS * 4 / COUNT);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_a_bijection_of_any_count),
        cmocka_unit_test(large_counts_come_back),
        cmocka_unit_test(scatters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
