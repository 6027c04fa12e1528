/* Metrics against their definitions. */
#include "nn/score.h"

#include "base/rng.h"
#include "support/harness.h"
#include "support/nn.h"

#include <math.h>
#include <string.h>

static plim_job_t job;

static plim__score_t *score_of(plim_metric_t metric, plim_loss_t loss, int64_t rows,
                               int64_t columns)
{
    plim__score_t *score = NULL;
    const int64_t before = plim__ledger_reserved(job.ledger);
    assert_ok(plim__score_create(job.ledger, metric, loss, rows, columns, 1, &score));
    const size_t estimate = plim__score_estimate(metric, rows, columns, 1);
    assert_true(plim__ledger_reserved(job.ledger) - before <= (int64_t)(estimate + 4096));
    return score;
}

static void accuracy_takes_the_first_of_equals(void **state)
{
    const float outputs[12] = {1, 3, 3, 0, -1, -2, 5, 5, 5, 1, 2, 3};
    const int64_t labels[4] = {1, 0, 1, -1};
    plim__score_t *score = score_of(PLIM_METRIC_ACCURACY, PLIM_LOSS_CROSS_ENTROPY, 9, 3);
    assert_true(isnan(plim__score_value(score)));
    assert_true(isnan(plim__score_loss(score)));
    plim__score_add(score, *state, 4, 3, outputs, labels);
    assert_true(plim__score_value(score) == 2.0 / 3.0);
    const double want = (log(2 + exp(-2)) + log(1 + exp(-1) + exp(-2)) + log(3)) / 3;
    test_close(plim__score_loss(score), want, 1e-6, "loss", 0);
    plim__score_reset(score);
    assert_true(isnan(plim__score_value(score)));
    plim__score_add(score, *state, 1, 3, outputs, labels);
    assert_true(plim__score_value(score) == 1.0);
    plim__score_destroy(score);
}

/* Over all pairs. */
static double brute_force(int64_t rows, int64_t width, int64_t column, const float *outputs,
                          const float *labels)
{
    double sum = 0, pairs = 0;
    for (int64_t a = column; a < rows * width; a += width) {
        for (int64_t b = column; b < rows * width; b += width) {
            if (!(labels[a] == 1 && labels[b] == 0))
                continue;
            pairs++;
            sum += outputs[a] > outputs[b] ? 1 : outputs[a] == outputs[b] ? 0.5 : 0;
        }
    }
    return pairs > 0 ? sum / pairs : NAN;
}

static void area_counts_every_pair(void **state)
{
    enum { ROWS = 400, WIDTH = 4, VALUES = ROWS * WIDTH };
    const int64_t part = 150, rest = ROWS - part;
    float outputs[VALUES], labels[VALUES];
    test_numbers(1, VALUES, 1.0f, outputs);
    test_numbers(2, VALUES, 1.0f, labels);
    for (int i = 0; i < VALUES; i++) {
        outputs[i] = roundf(outputs[i] * 20) / 20; /* many ties, zeros of both signs */
        labels[i] = i % WIDTH == 2 ? 1.0f : fabsf(labels[i]) < 0.1f ? NAN : labels[i] > 0.3f;
    }
    double want = 0;
    for (int64_t column = 0; column < WIDTH; column++)
        want += column == 2 ? 0 : brute_force(ROWS, WIDTH, column, outputs, labels) / 3;
    plim__score_t *score = score_of(PLIM_METRIC_ROC_AUC, PLIM_LOSS_BCE, ROWS, WIDTH);
    plim__score_add(score, *state, part, WIDTH, outputs, labels);
    (void)plim__score_value(score); /* asked in between: nothing is lost */
    plim__score_add(score, *state, rest, WIDTH, outputs + part * WIDTH, labels + part * WIDTH);
    test_close(plim__score_value(score), want, 1e-14, "area", 0);
    plim__score_add(score, *state, 10, WIDTH, outputs, labels); /* beyond max_rows */
    test_close(plim__score_value(score), want, 1e-14, "area", 1);
    plim__score_destroy(score);
}

static void area_of_two_classes(void **state)
{
    enum { ROWS = 300, VALUES = 2 * ROWS };
    float outputs[VALUES], difference[ROWS], as_values[ROWS];
    int64_t labels[ROWS];
    test_numbers(3, VALUES, 1.0f, outputs);
    for (int64_t i = 0; i < ROWS; i++) {
        labels[i] = i % 7 == 0 ? -1 : i % 3 == 1;
        difference[i] = outputs[2 * i + 1] - outputs[2 * i];
        as_values[i] = labels[i] < 0 ? NAN : (float)labels[i];
    }
    plim__score_t *score = score_of(PLIM_METRIC_ROC_AUC, PLIM_LOSS_CROSS_ENTROPY, ROWS, 2);
    plim__score_add(score, *state, ROWS, 2, outputs, labels);
    test_close(plim__score_value(score), brute_force(ROWS, 1, 0, difference, as_values), 1e-14,
               "area", 0);
    plim__score_reset(score);
    labels[0] = 1;
    plim__score_add(score, *state, 1, 2, outputs, labels);
    assert_true(isnan(plim__score_value(score))); /* one class alone */
    plim__score_destroy(score);
}

static void distances_are_over_all_known_values(void **state)
{
    const float outputs[6] = {1, 2, 3, 4, 5, 6}, labels[6] = {0, NAN, 5, NAN, NAN, 6.5f};
    const struct {
        plim_metric_t metric;
        double want;
    } cases[] = {{PLIM_METRIC_MAE, 3.5 / 3}, {PLIM_METRIC_RMSE, sqrt(5.25 / 3)}};
    for (int i = 0; i < 2; i++) {
        plim__score_t *score = score_of(cases[i].metric, PLIM_LOSS_MSE, 3, 2);
        plim__score_add(score, *state, 1, 2, outputs, labels);
        plim__score_add(score, *state, 2, 2, outputs + 2, labels + 2);
        test_close(plim__score_value(score), cases[i].want, 1e-14, "distance", i);
        test_close(plim__score_loss(score), (1 + 4 + 0.25) / 3, 1e-14, "loss", i);
        plim__score_destroy(score);
    }
}

static void yes_and_no_by_the_sign_of_the_logit(void **state)
{
    const float outputs[5] = {1, -2, 3, -4, 5}, labels[5] = {1, 0, 0, 1, NAN};
    plim__score_t *score = score_of(PLIM_METRIC_ACCURACY, PLIM_LOSS_BCE, 5, 1);
    plim__score_add(score, *state, 5, 1, outputs, labels);
    assert_true(plim__score_value(score) == 0.5);
    plim__score_destroy(score);
}

static void cosines_are_of_known_values(void **state)
{
    const float outputs[8] = {3, 4, 1, 0, 5, 5, 0, 0}, labels[8] = {4, 3, NAN, NAN, -2, NAN, 1, 1};
    plim__score_t *score = score_of(PLIM_METRIC_COSINE, PLIM_LOSS_MSE, 4, 2);
    assert_true(isnan(plim__score_value(score)));
    plim__score_add(score, *state, 3, 2, outputs, labels);
    plim__score_add(score, *state, 1, 2, outputs + 6, labels + 6); /* no length: 0 */
    test_close(plim__score_value(score), (0.96 - 1 + 0) / 3, 1e-14, "cosine", 0);
    test_close(plim__score_loss(score), (1 + 1 + 49 + 1 + 1) / 5.0, 1e-14, "loss", 0);
    plim__score_destroy(score);
}

/* Number of rows of the table that are nearer to x than the label, by cosine. */
static int64_t rank_of(const float *x, const float *label, const float *table, int64_t rows,
                       int64_t width)
{
    double own = 0, length = 0;
    int64_t nearer = 0;
    for (int64_t i = 0; i < width; i++) {
        own += (double)x[i] * (double)label[i];
        length += (double)label[i] * (double)label[i];
    }
    for (int64_t row = 0; row < rows; row++) {
        double product = 0, square = 0;
        for (int64_t i = 0; i < width; i++) {
            const double value = (double)table[row * width + i];
            product += (double)x[i] * value;
            square += value * value;
        }
        nearer += product / sqrt(square) > own / sqrt(length) + 1e-5;
    }
    return nearer;
}

static void hits_are_among_the_nearest_rows(void **state)
{
    enum { TABLE = 700, ROWS = 90, WIDTH = 7, K = 20 };
    float table[TABLE * WIDTH], columns[TABLE * WIDTH], outputs[ROWS * WIDTH], labels[ROWS * WIDTH];
    const plim__hits_t hits = {.k = K, .rows = TABLE, .width = WIDTH, .columns = columns};
    int64_t found = 0;
    for (int64_t i = 0; i < TABLE * WIDTH; i++)
        table[i] = (float)(plim__rng_u64(3, (uint64_t)i) % 2000) / 1000.0f - 1.0f;
    for (int64_t row = 0; row < TABLE; row++)
        plim__hits_put(&hits, row, table + row * WIDTH);
    for (int64_t row = 0; row < ROWS; row++) { /* the labels are in the table */
        for (int64_t i = 0; i < WIDTH; i++) {
            labels[row * WIDTH + i] = table[row * 7 * WIDTH + i];
            outputs[row * WIDTH + i] =
                3 * labels[row * WIDTH + i] +
                2 * ((float)(plim__rng_u64(4, (uint64_t)(row * WIDTH + i)) % 2000) / 1000.0f - 1);
        }
        found += rank_of(outputs + row * WIDTH, labels + row * WIDTH, table, TABLE, WIDTH) < K;
    }
    labels[5] = NAN;
    found -= rank_of(outputs, table, table, TABLE, WIDTH) < K;
    plim__score_t *score = score_of(PLIM_METRIC_COSINE, PLIM_LOSS_MSE, ROWS, WIDTH);
    plim__score_rank(score, &hits);
    plim__score_add(score, *state, 40, WIDTH, outputs, labels);
    plim__score_add(score, *state, ROWS - 40, WIDTH, outputs + 40 * WIDTH, labels + 40 * WIDTH);
    assert_true(found > ROWS / 5 && found < ROWS - 5);
    test_close(plim__score_value(score), (double)found / (ROWS - 1), 0.025, "hits", 0);
    memcpy(outputs, table + 3 * WIDTH, sizeof(float) * WIDTH); /* the label itself is the nearest */
    const plim__hits_t first = {.k = 1, .rows = TABLE, .width = WIDTH, .columns = columns};
    plim__score_reset(score);
    plim__score_rank(score, &first);
    plim__score_add(score, *state, 1, WIDTH, outputs, table + 3 * WIDTH);
    assert_true(plim__score_value(score) == 1.0);
    plim__score_destroy(score);
}

/* An output that is equally near to all rows, or to none, is no hit of each of them. */
static void ties_are_not_all_hits(void **state)
{
    enum { TABLE = 40, WIDTH = 3 };
    float table[TABLE * WIDTH], columns[TABLE * WIDTH], outputs[TABLE * WIDTH] = {0};
    const plim__hits_t hits = {.k = 1, .rows = TABLE, .width = WIDTH, .columns = columns};
    for (int64_t row = 0; row < TABLE; row++) { /* in a plane: equally near to its normal */
        const float at[WIDTH] = {1, (float)row - 20, 0};
        memcpy(table + row * WIDTH, at, sizeof at);
        plim__hits_put(&hits, row, at);
    }
    plim__score_t *score = score_of(PLIM_METRIC_COSINE, PLIM_LOSS_MSE, TABLE, WIDTH);
    plim__score_rank(score, &hits);
    plim__score_add(score, *state, TABLE, WIDTH, outputs, table);
    assert_true(plim__score_value(score) == 0.0);
    for (int64_t row = 0; row < TABLE; row++)
        outputs[row * WIDTH + 2] = 1;
    plim__score_reset(score);
    plim__score_add(score, *state, TABLE, WIDTH, outputs, table);
    assert_true(fabs(plim__score_value(score) - 1.0 / TABLE) < 1e-9);
    plim__score_destroy(score);
}

static void better_is_more_or_less(void **state)
{
    (void)state;
    assert_true(plim__score_better(PLIM_METRIC_ACCURACY, 0.6, 0.5));
    assert_false(plim__score_better(PLIM_METRIC_ROC_AUC, 0.5, 0.5));
    assert_true(plim__score_better(PLIM_METRIC_MAE, 0.4, 0.5));
    assert_false(plim__score_better(PLIM_METRIC_RMSE, 0.6, 0.5));
    assert_true(plim__score_better(PLIM_METRIC_RMSE, 0.6, NAN));
    assert_true(plim__score_better(PLIM_METRIC_COSINE, 0.6, 0.5));
    assert_true(plim__score_better(PLIM_METRIC_R2, 0.6, 0.5));
    assert_false(plim__score_better(PLIM_METRIC_ACCURACY, NAN, 0.5));
    assert_false(plim__score_better(PLIM_METRIC_ACCURACY, NAN, NAN));
}

static plim_status_t create_once(plim_job_t *of, void *context)
{
    (void)context;
    plim__score_t *score = NULL;
    const plim_status_t status =
        plim__score_create(of->ledger, PLIM_METRIC_ROC_AUC, PLIM_LOSS_BCE, 1000, 3, 1, &score);
    plim__score_destroy(score);
    return status;
}

static void creation_fails_cleanly(void **state)
{
    (void)state;
    test_fail_each_arena(&job, create_once, NULL);
    plim__score_t *score = NULL;
    const plim_status_t status = plim__score_create(job.ledger, PLIM_METRIC_ROC_AUC, PLIM_LOSS_BCE,
                                                    INT64_MAX / 2, INT64_MAX / 2, 1, &score);
    assert_int_equal(status, PLIM_ERR_BUDGET);
    assert_null(score);
    plim__score_destroy(NULL);
}

/* Of two columns with unknown values, in shares; R2 by its definition. */
static void errors_are_of_each_column(void **state)
{
    enum { ROWS = 40, SHARES = 5 };
    float outputs[ROWS * 2], labels[ROWS * 2];
    double sums[2] = {0}, known[2] = {0}, squares[2] = {0}, away[2] = {0}, spread[2] = {0};
    for (int i = 0; i < ROWS * 2; i++) {
        labels[i] = i % 2 == 0 ? (float)(i % 7) : 1e6f + (float)(i % 11);
        outputs[i] = labels[i] + (float)(i % 5) - 2;
        if (i % 9 == 4)
            labels[i] = NAN;
        if (isnan(labels[i]))
            continue;
        sums[i % 2] += (double)labels[i];
        known[i % 2]++;
    }
    for (int i = 0; i < ROWS * 2; i++) {
        if (isnan(labels[i]))
            continue;
        const double distance = (double)outputs[i] - (double)labels[i];
        const double apart = (double)labels[i] - sums[i % 2] / known[i % 2];
        away[i % 2] += fabs(distance);
        squares[i % 2] += distance * distance;
        spread[i % 2] += apart * apart;
    }
    plim__score_t *score;
    plim_errors_t errors[3];
    assert_ok(
        plim__score_create(job.ledger, PLIM_METRIC_R2, PLIM_LOSS_MSE, ROWS, 2, SHARES, &score));
    plim__score_errors(score, errors);
    for (int i = 0; i < 3; i++)
        assert_true(isnan(errors[i].mae) && isnan(errors[i].rmse) && isnan(errors[i].r2));
    for (int share = 0; share < SHARES; share++) {
        plim__score_share(score, share);
        plim__score_add(score, *state, share == 3 ? 0 : ROWS / 4, 2,
                        outputs + (share > 3 ? 3 : share) * ROWS / 2,
                        labels + (share > 3 ? 3 : share) * ROWS / 2);
    }
    plim__score_errors(score, errors);
    double r2 = 0;
    for (int i = 0; i < 2; i++) {
        test_close(errors[i + 1].mae, away[i] / known[i], 1e-14, "mae", i);
        test_close(errors[i + 1].rmse, sqrt(squares[i] / known[i]), 1e-14, "rmse", i);
        test_close(errors[i + 1].r2, 1 - squares[i] / spread[i], 1e-12, "r2", i);
        r2 += (1 - squares[i] / spread[i]) / 2;
    }
    test_close(errors[0].mae, (away[0] + away[1]) / (known[0] + known[1]), 1e-14, "mae", 2);
    test_close(errors[0].r2, r2, 1e-12, "r2", 2);
    assert_true(plim__score_value(score) == errors[0].r2);
    plim__score_reset(score);
    plim__score_add(score, *state, 1, 2, outputs, labels); /* a value alone has no spread */
    assert_true(isnan(plim__score_value(score)));
    plim__score_destroy(score);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(accuracy_takes_the_first_of_equals),
        cmocka_unit_test(area_counts_every_pair),
        cmocka_unit_test(area_of_two_classes),
        cmocka_unit_test(distances_are_over_all_known_values),
        cmocka_unit_test(errors_are_of_each_column),
        cmocka_unit_test(yes_and_no_by_the_sign_of_the_logit),
        cmocka_unit_test(cosines_are_of_known_values),
        cmocka_unit_test(hits_are_among_the_nearest_rows),
        cmocka_unit_test(ties_are_not_all_hits),
        cmocka_unit_test(better_is_more_or_less),
        cmocka_unit_test(creation_fails_cleanly),
    };
    job = test_job_make((int64_t)1 << 30, 1, PLIM_IO_AUTO);
    const int failed = cmocka_run_group_tests(tests, test_team_set_up, test_team_tear_down);
    test_job_end(&job);
    return failed;
}
