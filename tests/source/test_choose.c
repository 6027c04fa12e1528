/* Draws by weight have the exact probabilities of drawing one after the other; draws by time are
 * never late, and as likely as one another; both are what source/choose.h says. */
#include "source/choose.h"
#include "support/chosen.h"
#include "support/harness.h"

#include <math.h>
#include <string.h>

enum { TRIALS = 100000, LONGEST = 300 };

static plim__pick_t picks[PLIM__FANOUT_MAX];

/* Draws with the list's values in pieces of that many. */
static int64_t choose(plim__choice_t choice, const plim__hop_t *hop, int64_t owner,
                      const void *values, int64_t degree, int64_t until, int64_t piece,
                      int64_t *out)
{
    const size_t width = choice == PLIM__CHOOSE_BY_WEIGHT ? sizeof(float) : sizeof(int64_t);
    plim__choosing_t choosing = {.choice = choice,
                                 .hop = hop,
                                 .key = plim__draw_key(plim__draw_prefix(hop), owner),
                                 .until = until,
                                 .picks = picks,
                                 .positions = out};
    if (!plim__choose_needs(choice, hop, degree))
        return -1;
    for (int64_t i = 0; i < degree; i += piece) {
        const int64_t count = degree - i < piece ? degree - i : piece;
        assert_int_equal(
            plim__choose(&choosing, (const char *)values + (size_t)i * width, i, count), count);
    }
    if (plim__choose_twice(&choosing))
        for (int64_t i = 0; i < degree; i += piece)
            plim__choose_again(&choosing, (const char *)values + (size_t)i * width, i,
                               degree - i < piece ? degree - i : piece);
    return plim__choose_end(&choosing);
}

/* As many standard deviations from the mean as one wrong sampler in millions would pass. */
static void assert_likely(const int64_t *counts, const double *expected, int64_t cells)
{
    double sum = 0, freedom = -1, rare = 0, found = 0;
    for (int64_t i = 0; i < cells; i++) {
        if (expected[i] == 0)
            assert_int_equal(counts[i], 0);
        if (expected[i] < 10) { /* these count as one */
            rare += expected[i];
            found += (double)counts[i];
            continue;
        }
        sum += ((double)counts[i] - expected[i]) * ((double)counts[i] - expected[i]) / expected[i];
        freedom++;
    }
    assert_true(fabs(found - rare) < 5 * sqrt(rare) + 5);
    assert_true(sum < freedom + 5 * sqrt(2 * freedom) + 5);
    assert_true(sum > freedom - 5 * sqrt(2 * freedom) - 5);
}

/* Every sequence of draws against its probability: each draw in proportion to what is left. */
static void check_sequences(const float *weights, int64_t degree, int64_t fanout)
{
    static int64_t counts[7 * 7 * 7];
    static double expected[7 * 7 * 7];
    const plim__hop_t hop = {.seed = 3, .epoch = 5, .hop = 1, .fanout = fanout};
    int64_t out[8], cells = 1;
    memset(counts, 0, sizeof counts);
    for (int64_t i = 0; i < fanout; i++)
        cells *= degree;
    for (int64_t owner = 0; owner < TRIALS; owner++) {
        int64_t cell = 0;
        assert_int_equal(
            choose(PLIM__CHOOSE_BY_WEIGHT, &hop, owner, weights, degree, 0, degree, out), fanout);
        for (int64_t i = 0; i < fanout; i++)
            cell = cell * degree + out[i];
        counts[cell]++;
    }
    for (int64_t cell = 0; cell < cells; cell++) {
        double probability = 1;
        unsigned taken = 0;
        for (int64_t i = 0, rest = cell, power = cells; i < fanout; i++) {
            double left = 0, equal = 0;
            power /= degree;
            const int64_t entry = rest / power;
            rest %= power;
            for (int64_t j = 0; j < degree; j++) {
                left += (taken >> j & 1) == 0 ? (double)weights[j] : 0;
                equal += (taken >> j & 1) == 0;
            }
            if ((taken >> entry & 1) != 0)
                probability = 0;
            probability *= left > 0 ? (double)weights[entry] / left : 1 / equal;
            taken |= 1u << entry;
        }
        expected[cell] = probability * TRIALS;
    }
    assert_likely(counts, expected, cells);
}

static void weights_are_drawn_as_exactly_likely(void **state)
{
    (void)state;
    const float lists[][7] = {{1, 1, 1, 1, 1, 1, 1},
                              {1, 2, 3, 4, 5, 6, 7},
                              {100, 1, 1, 1, 1, 1, 1},
                              {0, 1, 0, 2, 0, 3, 0},
                              {0, 0, 0, 0, 0, 0, 0},
                              {1e-40f, 1e-40f, 3e-40f, 0, 0, 0, 0},
                              {1e38f, 2e38f, 3e38f, 0, 1, 1, 1e38f}};
    for (size_t i = 0; i < sizeof lists / sizeof lists[0]; i++)
        for (int64_t fanout = 1; fanout <= 3; fanout++)
            check_sequences(lists[i], 7, fanout);
    check_sequences((const float[]){1, 3}, 2, 1);
    check_sequences((const float[]){5, 1, 2, 0}, 4, 3);
}

/* Inclusion in a long list, where most entries are rejected without a logarithm: of weights 1 and
 * 3 in equal numbers, against the share that drawing one after the other gives. */
static void long_lists_include_as_likely(void **state)
{
    (void)state;
    enum { DEGREE = 300, FANOUT = 30, DRAWS = 20000 };
    float weights[DEGREE];
    int64_t out[FANOUT], counts[DEGREE] = {0};
    const plim__hop_t hop = {.seed = 8, .fanout = FANOUT};
    double heavy = 0, ones[FANOUT + 1] = {1}; /* the probability of so many light ones so far */
    for (int i = 0; i < DEGREE; i++)
        weights[i] = i % 2 == 0 ? 1 : 3;
    for (int drawn = 0; drawn < FANOUT; drawn++)
        for (int light = drawn; light >= 0; light--) {
            const double left = DEGREE / 2 - light, other = 3.0 * (DEGREE / 2 - (drawn - light));
            const double is_light = left / (left + other);
            ones[light + 1] = (light == drawn ? 0 : ones[light + 1]) + ones[light] * is_light;
            ones[light] *= 1 - is_light;
        }
    for (int light = 0; light <= FANOUT; light++)
        heavy += ones[light] * (FANOUT - light);
    for (int64_t owner = 0; owner < DRAWS; owner++) {
        assert_int_equal(
            choose(PLIM__CHOOSE_BY_WEIGHT, &hop, owner, weights, DEGREE, 0, DEGREE, out), FANOUT);
        for (int i = 0; i < FANOUT; i++)
            counts[out[i]]++;
    }
    for (int kind = 0; kind < 2; kind++) {
        const double each = (kind == 1 ? heavy : FANOUT - heavy) / (DEGREE / 2);
        double sum = 0;
        for (int i = kind; i < DEGREE; i += 2) {
            const double expected = each * DRAWS;
            sum += ((double)counts[i] - expected) * ((double)counts[i] - expected) /
                   (expected * (1 - each));
        }
        assert_true(fabs(sum - DEGREE / 2.0) < 5 * sqrt((double)DEGREE) + 5);
    }
}

static void replacement_draws_in_proportion(void **state)
{
    (void)state;
    const float lists[][5] = {{1, 2, 0, 4, 3}, {0, 0, 0, 0, 0}, {1e-40f, 0, 0, 0, 3e-40f}};
    for (size_t list = 0; list < 3; list++) {
        const plim__hop_t hop = {.seed = 2, .fanout = 2, .replace = true};
        int64_t counts[25] = {0}, out[2];
        double expected[25], total = 0;
        for (int i = 0; i < 5; i++)
            total += (double)lists[list][i];
        for (int64_t owner = 0; owner < TRIALS; owner++) {
            assert_int_equal(choose(PLIM__CHOOSE_BY_WEIGHT, &hop, owner, lists[list], 5, 0, 2, out),
                             2);
            counts[out[0] * 5 + out[1]]++;
        }
        for (int i = 0; i < 25; i++)
            expected[i] = total == 0 ? TRIALS / 25.0
                                     : TRIALS * ((double)lists[list][i / 5] / total) *
                                           ((double)lists[list][i % 5] / total);
        assert_likely(counts, expected, 25);
    }
}

/* Every subset of those in time is as likely, and of pairs with replacement. */
static void times_are_never_late_and_as_likely(void **state)
{
    (void)state;
    const int64_t times[] = {5, 1, 9, 5, INT64_MIN, 7, INT64_MAX, 5};
    for (int replace = 0; replace < 2; replace++) {
        const plim__hop_t hop = {.seed = 4, .fanout = 2, .replace = replace == 1};
        int64_t counts[64] = {0}, out[2];
        double expected[64] = {0};
        for (int64_t owner = 0; owner < TRIALS; owner++) {
            assert_int_equal(choose(PLIM__CHOOSE_UP_TO, &hop, owner, times, 8, 6, 3, out), 2);
            assert_true(times[out[0]] <= 6 && times[out[1]] <= 6);
            counts[out[0] * 8 + out[1]]++;
        }
        for (int i = 0; i < 64; i++)
            if (times[i / 8] <= 6 && times[i % 8] <= 6 && (replace == 1 || i / 8 != i % 8))
                expected[i] = TRIALS / (replace == 1 ? 25.0 : 20.0);
        assert_likely(counts, expected, 64);
    }
}

static void times_at_their_ends(void **state)
{
    (void)state;
    const int64_t times[] = {5, 1, 9, 5, INT64_MIN, 7, INT64_MAX, 5};
    const plim__hop_t two = {.seed = 4, .fanout = 2}, all = {.fanout = -1};
    int64_t out[8];
    assert_int_equal(choose(PLIM__CHOOSE_LATEST, &two, 1, times, 8, 6, 3, out), 2);
    assert_true(out[0] == 3 && out[1] == 7);
    assert_int_equal(choose(PLIM__CHOOSE_LATEST, &two, 1, times, 8, INT64_MAX, 3, out), 2);
    assert_true(out[0] == 2 && out[1] == 6);
    assert_int_equal(choose(PLIM__CHOOSE_LATEST, &two, 1, times, 8, INT64_MIN, 3, out), 1);
    assert_int_equal(out[0], 4);
    assert_int_equal(choose(PLIM__CHOOSE_UP_TO, &two, 1, times, 4, 0, 3, out), 0);
    assert_int_equal(choose(PLIM__CHOOSE_UP_TO, &two, 1, times, 4, 1, 3, out), 1);
    assert_int_equal(choose(PLIM__CHOOSE_UP_TO, &all, 1, times, 8, 5, 3, out), 5);
    assert_true(out[0] == 0 && out[1] == 1 && out[2] == 3 && out[3] == 4 && out[4] == 7);
}

/* Random lists with equal, zero and extreme values, in pieces of any size. */
static void follows_its_definition(void **state)
{
    (void)state;
    static float weights[LONGEST];
    static int64_t times[LONGEST], out[PLIM__FANOUT_MAX], expected[PLIM__FANOUT_MAX];
    uint64_t counter = 0;
    for (int64_t trial = 0; trial < 20000; trial++) {
        const int64_t degree = 1 + (int64_t)plim__rng_below(6, &counter, trial % 9 ? 20 : LONGEST);
        const plim__choice_t choice = (plim__choice_t)(trial % 3);
        const plim__hop_t hop = {.seed = 6,
                                 .epoch = trial % 5,
                                 .fanout = (int64_t)plim__rng_below(6, &counter, 40) - 1,
                                 .replace = trial % 4 == 0};
        const int64_t until = (int64_t)plim__rng_below(6, &counter, 12) - 1;
        for (int64_t i = 0; i < degree; i++) {
            const uint64_t value = plim__rng_below(6, &counter, 10);
            weights[i] = value < 3 ? 0 : value == 9 ? 3e38f : (float)value * 0.37f;
            times[i] = value == 9 ? INT64_MAX : (int64_t)value;
        }
        const void *values =
            choice == PLIM__CHOOSE_BY_WEIGHT ? (const void *)weights : (const void *)times;
        const int64_t piece = 1 + (int64_t)plim__rng_below(6, &counter, (uint64_t)degree);
        const int64_t count = choose(choice, &hop, trial, values, degree, until, piece, out);
        if (count < 0) /* all, or none */
            continue;
        assert_int_equal(test_chosen(choice, &hop, trial, values, degree, until, expected), count);
        assert_memory_equal(out, expected, (size_t)count * sizeof *out);
    }
}

static void weights_must_be_finite_and_not_negative(void **state)
{
    (void)state;
    const float bad[] = {-1, -1e-40f, NAN, -NAN, INFINITY, -INFINITY};
    const plim__hop_t hop = {.fanout = 2};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (int64_t at = 0; at < 4; at++) {
            float weights[4] = {1, -0.0f, 3, 4};
            int64_t out[2];
            weights[at] = bad[i];
            plim__choosing_t choosing = {
                .choice = PLIM__CHOOSE_BY_WEIGHT, .hop = &hop, .picks = picks, .positions = out};
            assert_int_equal(plim__choose(&choosing, weights, 0, 4), at);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(weights_are_drawn_as_exactly_likely),
        cmocka_unit_test(long_lists_include_as_likely),
        cmocka_unit_test(replacement_draws_in_proportion),
        cmocka_unit_test(times_are_never_late_and_as_likely),
        cmocka_unit_test(times_at_their_ends),
        cmocka_unit_test(follows_its_definition),
        cmocka_unit_test(weights_must_be_finite_and_not_negative),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
