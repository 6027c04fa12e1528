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
    plim__decode(team, NULL, &p->pairs, p->width, p->rows, scores);
    plim__decode_backward(team, NULL, &p->pairs, ROWS, p->width, p->rows, p->dscores,
                          scores + p->pairs.count);
}

static void check(plim__team_t *team, int64_t count, int64_t width)
{
    static float rows[ROWS * WIDTH_MOST], dscores[PAIRS_MOST];
    static float out[PAIRS_MOST + ROWS * WIDTH_MOST];
    static double wanted[ROWS * WIDTH_MOST];
    problem_t p = {{count, sources, targets, NULL, 0}, width, rows, dscores};
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

enum { WEIGHTS_MOST = WIDTH_MOST * WIDTH_MOST + 2 * WIDTH_MOST + 1 };

/* A decoder that learns, with its gradients. */
typedef struct learnt {
    plim__scorer_t scorer;
    problem_t problem;
    plim_job_t *job;
    float weights[WEIGHTS_MOST], gradients[WEIGHTS_MOST];
    plim__parameter_t parameters[4];
} learnt_t;

enum { TYPES = 5, TYPED = 60 };

static int64_t num_weights(const learnt_t *learnt)
{
    const int64_t width = learnt->problem.width;
    return learnt->scorer.types > 0 ? learnt->scorer.types * width : width * width + 2 * width + 1;
}

/* Scores, the gradient of the rows, and those of the weights. */
static void compute_learnt(void *context, plim__team_t *team, void *out)
{
    learnt_t *learnt = context;
    const problem_t *p = &learnt->problem;
    const plim__decoder_params_t params = {learnt->scorer, p->width, p->pairs.count, true,
                                           plim__team_size(team)};
    plim__decoder_t *decoder;
    float *scores = out;
    memset(learnt->gradients, 0, sizeof learnt->gradients);
    assert_ok(plim__decoder_create(learnt->job->ledger, &params, learnt->parameters,
                                   learnt->scorer.types > 0 ? 1 : 4, &decoder));
    plim__decode(team, decoder, &p->pairs, p->width, p->rows, scores);
    plim__decode_backward(team, decoder, &p->pairs, ROWS, p->width, p->rows, p->dscores,
                          scores + p->pairs.count);
    assert_ok(plim__decoder_check(decoder));
    plim__decoder_destroy(decoder);
    memcpy(scores + p->pairs.count + ROWS * p->width, learnt->gradients,
           (size_t)num_weights(learnt) * sizeof(float));
}

static double distmult_of(const problem_t *p, const double *source, const double *target,
                          const double *vectors, int64_t pair)
{
    const int64_t type = p->pairs.types != NULL ? p->pairs.types[pair % p->pairs.num_typed] : 0;
    double score = 0;
    for (int64_t k = 0; k < p->width; k++)
        score += source[k] * vectors[type * p->width + k] * target[k];
    return score;
}

/* The sum of dscores * scores in double precision. */
static double loss_of(const learnt_t *learnt, const double *rows, const double *weights)
{
    const problem_t *p = &learnt->problem;
    const int64_t width = p->width;
    const double *bias = weights + width * width, *last = bias + width;
    double loss = 0;
    for (int64_t i = 0; i < p->pairs.count; i++) {
        const double *source = rows + sources[i] * width, *target = rows + targets[i] * width;
        const bool mlp = learnt->scorer.kind == PLIM_DECODER_MLP;
        double score = mlp ? last[width] : distmult_of(p, source, target, weights, i);
        for (int64_t k = 0; k < width && mlp; k++) {
            double hidden = bias[k];
            for (int64_t j = 0; j < width; j++)
                hidden += weights[k * width + j] * source[j] * target[j];
            score += hidden > 0 ? hidden * last[k] : 0;
        }
        loss += (double)p->dscores[i] * score;
    }
    return loss;
}

static void check_learnt(plim__team_t *team, plim__scorer_t scorer, int64_t count, int64_t width)
{
    static int64_t types[TYPED];
    static float rows[ROWS * WIDTH_MOST], dscores[PAIRS_MOST];
    static float out[PAIRS_MOST + ROWS * WIDTH_MOST + WEIGHTS_MOST];
    static double values[ROWS * WIDTH_MOST + WEIGHTS_MOST];
    static const char *const names[] = {"decoder.lins.0.weight", "decoder.lins.0.bias",
                                        "decoder.lins.1.weight", "decoder.lins.1.bias"};
    static learnt_t learnt;
    const bool mlp = scorer.kind == PLIM_DECODER_MLP;
    const int64_t sizes[] = {mlp ? width * width : scorer.types * width, width, width, 1};
    plim_job_t job = test_job_make(64 << 20, 1, PLIM_IO_AUTO);
    learnt.problem = (problem_t){{count, sources, targets, NULL, 0}, width, rows, dscores};
    learnt.scorer = scorer;
    learnt.job = &job;
    const int64_t all = num_weights(&learnt);
    for (int64_t i = 0; i < TYPED; i++)
        types[i] = i * 7 % 11 % TYPES;
    if (scorer.types > 1) {
        learnt.problem.pairs.types = types;
        learnt.problem.pairs.num_typed = TYPED;
    }
    test_numbers(1, ROWS * width, 2, rows);
    test_numbers(2, count, 1, dscores);
    test_numbers(3, all, 1, learnt.weights);
    for (int64_t i = 0, first = 0; i < (mlp ? 4 : 1); first += sizes[i++]) {
        learnt.parameters[i] = (plim__parameter_t){.count = sizes[i],
                                                   .value = learnt.weights + first,
                                                   .gradient = learnt.gradients + first};
        const char *name = mlp ? names[i] : "decoder.rel_emb.weight";
        memcpy(learnt.parameters[i].name, name, strlen(name) + 1);
    }
    compute_learnt(&learnt, team, out);
    for (int64_t i = 0; i < ROWS * width; i++)
        values[i] = (double)rows[i];
    for (int64_t i = 0; i < all; i++)
        values[ROWS * width + i] = (double)learnt.weights[i];
    double loss = 0;
    for (int64_t i = 0; i < count; i++)
        loss += (double)dscores[i] * (double)out[i];
    test_close(loss, loss_of(&learnt, values, values + ROWS * width), 1e-4, "loss", 0);
    for (int64_t i = 0; i < ROWS * width + all; i += 1 + i / 50) {
        const double step = 1e-6, value = values[i];
        values[i] = value + step;
        const double above = loss_of(&learnt, values, values + ROWS * width);
        values[i] = value - step;
        const double below = loss_of(&learnt, values, values + ROWS * width);
        values[i] = value;
        test_close((double)out[count + i], (above - below) / (2 * step), 1e-3, "gradient", i);
    }
    test_same_bits(compute_learnt, &learnt, (size_t)(count + ROWS * width + all) * sizeof(float));
    test_job_end(&job);
}

static void test_a_decoder_that_learns(void **state)
{
    static const plim__scorer_t scorers[] = {
        {PLIM_DECODER_MLP, 0}, {PLIM_DECODER_DISTMULT, TYPES}, {PLIM_DECODER_DISTMULT, 1}};
    for (size_t i = 0; i < sizeof scorers / sizeof scorers[0]; i++) {
        check_learnt(*state, scorers[i], PAIRS_MOST, 16);
        check_learnt(*state, scorers[i], 65, 7);
        check_learnt(*state, scorers[i], 1, 3);
    }
}

int main(void)
{
    static const struct CMUnitTest tests[] = {cmocka_unit_test(test_scores_and_gradients),
                                              cmocka_unit_test(test_a_decoder_that_learns)};
    return cmocka_run_group_tests(tests, test_team_set_up, test_team_tear_down);
}
