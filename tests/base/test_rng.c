/*
 * The generator: known values (datasets depend on them), uniform draws, independent keys. The tests
 * have fixed keys, so they pass always or never.
 */
#include "support/harness.h"

#include "base/rng.h"

#include <math.h>

/* SplitMix64's published first outputs for the seed 1234567. */
static void is_splitmix64(void **state)
{
    (void)state;
    static const uint64_t published[] = {6457827717110365317u, 3203168211198807973u,
                                         9817491932198370423u, 4593380528125082431u,
                                         16408922859458223821u};
    for (uint64_t i = 0; i < 5; i++)
        assert_true(plim__rng_u64(1234567, i) == published[i]);
}

/* The chi-square statistic of counts that should be equal, in standard deviations off its mean. */
static double deviation(const int64_t *counts, int cells, int64_t draws)
{
    double expected = (double)draws / cells;
    double sum = 0;
    for (int i = 0; i < cells; i++)
        sum += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    return (sum - (cells - 1)) / sqrt(2.0 * (cells - 1));
}

static void draws_below_a_bound_evenly(void **state)
{
    (void)state;
    enum { DRAWS = 1000000 };
    static const uint64_t bounds[] = {2, 3, 7, 10, 64, 100, 257, 1000};
    static int64_t counts[1000];
    for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++) {
        uint64_t counter = 0;
        uint64_t key = plim__rng_key(7, bounds[b], 0, 0);
        for (int i = 0; i < 1000; i++)
            counts[i] = 0;
        for (int i = 0; i < DRAWS; i++) {
            uint64_t draw = plim__rng_below(key, &counter, bounds[b]);
            assert_true(draw < bounds[b]);
            counts[draw]++;
        }
        assert_true(fabs(deviation(counts, (int)bounds[b], DRAWS)) < 4);
    }
}

/* A bound of 3/4 of the range: without rejection every third value would come twice as often. */
static void rejects_what_would_favour_some(void **state)
{
    (void)state;
    enum { DRAWS = 300000 };
    const uint64_t bound = 0xc000000000000000u;
    int64_t counts[3] = {0};
    int64_t thirds[3] = {0};
    uint64_t counter = 0;
    for (int i = 0; i < DRAWS; i++) {
        uint64_t draw = plim__rng_below(42, &counter, bound);
        assert_true(draw < bound);
        counts[draw % 3]++;
        thirds[draw >> 62]++;
    }
    assert_true(fabs(deviation(counts, 3, DRAWS)) < 4);
    assert_true(fabs(deviation(thirds, 3, DRAWS)) < 4);
    assert_true(counter > DRAWS * 5 / 4); /* a quarter of the numbers is thrown away */
}

static void bounds_at_the_edges(void **state)
{
    (void)state;
    uint64_t counter = 0;
    assert_true(plim__rng_below(1, &counter, 1) == 0);
    for (int i = 0; i < 1000; i++)
        assert_true(plim__rng_below(1, &counter, UINT64_MAX) < UINT64_MAX);
}

static void doubles_fill_the_unit_interval(void **state)
{
    (void)state;
    enum { DRAWS = 1000000, CELLS = 100 };
    int64_t counts[CELLS] = {0};
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < DRAWS; i++) {
        double value = plim__rng_double(99, i);
        assert_true(value >= 0 && value < 1);
        counts[(int)(value * CELLS)]++;
        sum += value;
        squares += value * value;
    }
    assert_true(fabs(deviation(counts, CELLS, DRAWS)) < 4);
    assert_true(fabs(sum / DRAWS - 0.5) < 0.0015);
    assert_true(fabs(squares / DRAWS - 1.0 / 3) < 0.0015);
}

/* Neighbouring keys, as (seed, node, hop) make them, must not resemble each other: of the 64 bits
 * of their draws half differ. */
static void neighbouring_keys_are_strangers(void **state)
{
    (void)state;
    int64_t differing = 0;
    enum { PAIRS = 100000 };
    for (uint64_t i = 0; i < PAIRS; i++) {
        uint64_t one = plim__rng_u64(plim__rng_key(1, i, 2, 3), 0);
        uint64_t next = plim__rng_u64(plim__rng_key(1, i + 1, 2, 3), 0);
        differing += __builtin_popcountll(one ^ next);
    }
    assert_true(fabs((double)differing / PAIRS - 32) < 4 * 4 / sqrt(PAIRS));
    assert_true(plim__rng_key(1, 2, 3, 4) != plim__rng_key(1, 3, 2, 4));
    assert_true(plim__rng_key(1, 2, 3, 4) != plim__rng_key(2, 1, 3, 4));
    assert_true(plim__rng_key(1, 2, 3, 4) != plim__rng_key(1, 2, 4, 3));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(is_splitmix64),
        cmocka_unit_test(draws_below_a_bound_evenly),
        cmocka_unit_test(rejects_what_would_favour_some),
        cmocka_unit_test(bounds_at_the_edges),
        cmocka_unit_test(doubles_fill_the_unit_interval),
        cmocka_unit_test(neighbouring_keys_are_strangers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
