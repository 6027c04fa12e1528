/* Scores of pairs, and their gradient, against sums in double precision. */
#include "nn/decoder.h"

#include "support/harness.h"
#include "support/nn.h"

#include <string.h>

enum { ROWS = 40, WIDTH_MOST = 70, PAIRS_MOST = 200 };

typedef struct problem {
    plim__pairs_t pairs;
    int64_t width;
    const float *rows, *dscores;
} problem_t;

static int64_t sources[PAIRS_MOST], targets[PAIRS_MOST];

/* Scores, then the gradient. */
static void compute(void *context, plim__team_t *team, void *out)
{
    const problem_t *p = context;
    float *scores = out;
    plim__decode(team, &p->pairs, p->width, p->rows, scores);
    plim__decode_backward(team, &p->pairs, ROWS, p->width, p->rows, p->dscores,
                          scores + p->pairs.count);
}

static void check(plim__team_t *team, int64_t count, int64_t width)
{
    static float rows[ROWS * WIDTH_MOST], dscores[PAIRS_MOST];
    static float out[PAIRS_MOST + ROWS * WIDTH_MOST];
    static double wanted[ROWS * WIDTH_MOST];
    problem_t p = {{count, sources, targets}, width, rows, dscores};
    test_numbers(1, ROWS * width, 2, rows);
    test_numbers(2, count, 1, dscores);
    memset(wanted, 0, sizeof wanted);
    memset(out, 0xff, sizeof out);
    compute(&p, team, out);
    for (int64_t i = 0; i < count; i++) {
        const int64_t source = sources[i] * width, target = targets[i] * width;
        double score = 0;
        for (int64_t k = 0; k < width; k++) {
            score += (double)rows[source + k] * (double)rows[target + k];
            wanted[source + k] += (double)dscores[i] * (double)rows[target + k];
            wanted[target + k] += (double)dscores[i] * (double)rows[source + k];
        }
        test_close((double)out[i], score, 1e-5, "score", i);
    }
    for (int64_t i = 0; i < ROWS * width; i++)
        test_close((double)out[count + i], wanted[i], 1e-5, "gradient", i);
    test_same_bits(compute, &p, (size_t)(count + ROWS * width) * sizeof(float));
}

static void test_scores_and_gradients(void **state)
{
    for (int64_t i = 0; i < PAIRS_MOST;
         i++) { /* some rows are in many pairs, some pair themselves */
        sources[i] = i % 3 == 0 ? 0 : i % 30;
        targets[i] = i % 7 == 0 ? sources[i] : i * 5 % 30;
    }
    check(*state, PAIRS_MOST, 70);
    check(*state, PAIRS_MOST, 64);
    check(*state, 65, 16);
    check(*state, 1, 3);
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores_and_gradients)};
    return cmocka_run_group_tests(tests, test_team_set_up, test_team_tear_down);
}
