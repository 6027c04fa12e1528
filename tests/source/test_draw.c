/* Draws are uniform, distinct where they must be, and a function of (seed, epoch, hop, node). */
#include "support/draws.h"
#include "support/harness.h"

#include <math.h>
#include <string.h>

enum { TRIALS = 20000, MOST = 5000 };

static int64_t positions[PLIM__FANOUT_MAX];

/* Five standard deviations above the mean of a chi-square of so many degrees of freedom: with
 * fixed seeds either always passed or never, and passed by one wrong sampler in millions. */
static void assert_uniform(const int64_t *counts, int64_t cells, double expected)
{
    double sum = 0;
    for (int64_t i = 0; i < cells; i++)
        sum += ((double)counts[i] - expected) * ((double)counts[i] - expected) / expected;
    double freedom = (double)(cells - 1);
    assert_true(sum < freedom + 5 * sqrt(2 * freedom) + 5);
    /* Too even is not random either. */
    assert_true(sum > freedom - 5 * sqrt(2 * freedom) - 5);
}

static void check_uniform(int64_t degree, int64_t fanout, bool replace)
{
    static int64_t counts[MOST];
    plim__hop_t hop = {.seed = 11, .epoch = 3, .hop = 1, .fanout = fanout, .replace = replace};
    int64_t drawn = plim__draw_count(&hop, degree);
    memset(counts, 0, sizeof counts);
    for (int64_t node = 0; node < TRIALS; node++) {
        test_draw_positions(&hop, node, degree, positions);
        for (int64_t i = 0; i < drawn; i++) {
            assert_in_range(positions[i], 0, degree - 1);
            counts[positions[i]]++;
        }
    }
    double expected = (double)TRIALS * (double)drawn / (double)degree;
    if (!replace) /* a cell's variance is smaller by this, without replacement */
        for (int64_t i = 0; i < degree; i++)
            counts[i] = (int64_t)llround(expected + ((double)counts[i] - expected) /
                                                        sqrt(1 - (double)drawn / (double)degree) *
                                                        sqrt(1 - 1.0 / (double)degree));
    assert_uniform(counts, degree, expected);
}

static void every_entry_is_as_likely(void **state)
{
    (void)state;
    const struct {
        int64_t degree, fanout;
    } cases[] = {{3, 1},   {4, 3},   {5, 2},    {7, 5},    {16, 15},   {30, 10},  {64, 15},
                 {65, 15}, {100, 5}, {128, 20}, {200, 64}, {1000, 15}, {4000, 40}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        check_uniform(cases[i].degree, cases[i].fanout, false);
        check_uniform(cases[i].degree, cases[i].fanout, true);
    }
    check_uniform(3, 10, true);
    check_uniform(2, 1, true);
}

/* Every subset of 2 … 4 of 5 … 7, and with replacement every sequence of 2. */
static void every_subset_is_as_likely(void **state)
{
    (void)state;
    for (int64_t degree = 5; degree <= 7; degree++)
        for (int64_t fanout = 2; fanout <= 4; fanout++) {
            plim__hop_t hop = {.seed = 5, .epoch = degree, .hop = 0, .fanout = fanout};
            int64_t by_bits[128] = {0}, counts[128], cells = 0;
            for (int64_t node = 0; node < TRIALS; node++) {
                unsigned bits = 0;
                test_draw_positions(&hop, node, degree, positions);
                for (int64_t i = 0; i < fanout; i++)
                    bits |= 1u << positions[i];
                assert_int_equal(__builtin_popcount(bits), fanout);
                by_bits[bits]++;
            }
            for (unsigned bits = 0; bits < 1u << degree; bits++)
                if (__builtin_popcount(bits) == fanout)
                    counts[cells++] = by_bits[bits];
            assert_uniform(counts, cells, (double)TRIALS / (double)cells);
        }
    plim__hop_t hop = {.seed = 5, .epoch = 1, .hop = 2, .fanout = 2, .replace = true};
    int64_t pairs[36] = {0};
    for (int64_t node = 0; node < TRIALS; node++) {
        test_draw_positions(&hop, node, 6, positions);
        pairs[positions[0] * 6 + positions[1]]++;
    }
    assert_uniform(pairs, 36, TRIALS / 36.0);
}

/* The header's words, one by one. */
static void naive_positions(const plim__hop_t *hop, int64_t node, int64_t degree, int64_t *out)
{
    static bool taken[1 << 17];
    uint64_t key =
        plim__rng_key(hop->seed, (uint64_t)hop->epoch, (uint64_t)hop->hop, (uint64_t)node);
    uint64_t counter = 0;
    int64_t k = hop->fanout;
    if (k == -1 || (!hop->replace && degree <= k)) {
        for (int64_t i = 0; i < degree; i++)
            out[i] = i;
        return;
    }
    memset(taken, 0, (size_t)degree * sizeof taken[0]);
    for (int64_t i = 0; i < k && degree > 0; i++) {
        int64_t j = degree - k + i;
        int64_t bound = hop->replace ? degree : j + 1;
        int64_t t = (int64_t)plim__rng_below(key, &counter, (uint64_t)bound);
        out[i] = !hop->replace && taken[t] ? j : t;
        taken[out[i]] = true;
    }
}

static void equal_the_naive_ones(void **state)
{
    (void)state;
    static int64_t expected[1 << 17], got[1 << 17];
    const int64_t fanouts[] = {-1, 0, 1, 2, 3, 5, 10, 15, 16, 17, 25, 40, 64, 100, 1000, 4096};
    const int64_t degrees[] = {0,  1,  2,  3,  4,   8,   14,  15,   16,   17,   18,   40,   63,
                               64, 65, 80, 99, 127, 128, 129, 1000, 4095, 4096, 4097, 5000, 100000};
    for (size_t f = 0; f < sizeof fanouts / sizeof fanouts[0]; f++)
        for (size_t d = 0; d < sizeof degrees / sizeof degrees[0]; d++)
            for (int64_t node = 0; node < 20; node++) {
                plim__hop_t hop = {.seed = (uint64_t)f,
                                   .epoch = node % 3,
                                   .hop = (int)(node % 2),
                                   .fanout = fanouts[f],
                                   .replace = node % 5 == 0};
                int64_t many = plim__draw_count(&hop, degrees[d]);
                int64_t all = fanouts[f] == -1 || (!hop.replace && degrees[d] <= fanouts[f]);
                assert_int_equal(many, all || degrees[d] == 0 ? degrees[d] : fanouts[f]);
                naive_positions(&hop, node, degrees[d], expected);
                test_draw_positions(&hop, node, degrees[d], got);
                assert_memory_equal(got, expected, (size_t)many * sizeof *got);
            }
}

/* Seed, epoch, hop and node each change the draw; nothing else is in it. */
static void depend_on_each_coordinate(void **state)
{
    (void)state;
    int64_t first[10], again[10];
    const plim__hop_t hop = {.seed = 1, .epoch = 2, .hop = 3, .fanout = 10};
    plim__hop_t other[3] = {hop, hop, hop};
    other[0].seed = 2;
    other[1].epoch = 3;
    other[2].hop = 2;
    test_draw_positions(&hop, 77, 1000, first);
    test_draw_positions(&hop, 78, 1000, again);
    assert_memory_not_equal(first, again, sizeof first);
    for (int i = 0; i < 3; i++) {
        test_draw_positions(&other[i], 77, 1000, again);
        assert_memory_not_equal(first, again, sizeof first);
    }
    test_draw_positions(&hop, 77, 1000, again);
    assert_memory_equal(first, again, sizeof first);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_entry_is_as_likely),
        cmocka_unit_test(every_subset_is_as_likely),
        cmocka_unit_test(equal_the_naive_ones),
        cmocka_unit_test(depend_on_each_coordinate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
