/* Losses against sums in double precision; gradients against their finite differences. */
#include "nn/loss.h"

#include "support/harness.h"
#include "support/nn.h"

#include <math.h>
#include <string.h>

enum { ROWS = 7, WIDTH = 300, VALUES = ROWS * WIDTH };

typedef struct problem {
    plim_loss_t loss;
    int64_t rows, width;
    const float *x;
    const void *labels;
} problem_t;

static double value_loss(plim_loss_t loss, double x, double label)
{
    if (loss == PLIM_LOSS_BCE)
        return log1p(exp(-fabs(x))) + fmax(x, 0) - x * label;
    return loss == PLIM_LOSS_MAE ? fabs(x - label) : (x - label) * (x - label);
}

/* The sum of rows' losses, value `at` being `by` more than it is. */
static double reference(const problem_t *p, int64_t at, double by)
{
    double sum = 0;
    for (int64_t row = 0; row < p->rows; row++) {
        double x[WIDTH], row_sum = 0;
        for (int64_t i = 0; i < p->width; i++)
            x[i] = (double)p->x[row * p->width + i] + (row * p->width + i == at ? by : 0);
        if (p->loss == PLIM_LOSS_CROSS_ENTROPY) {
            const int64_t class = ((const int64_t *)p->labels)[row];
            for (int64_t i = 0; i < p->width; i++)
                row_sum += class < 0 ? 0 : exp(x[i] - x[class]);
            sum += class < 0 ? 0 : log(row_sum);
            continue;
        }
        for (int64_t i = 0; i < p->width; i++) {
            const double label = (double)((const float *)p->labels)[row * p->width + i];
            row_sum += isnan(label) ? 0 : value_loss(p->loss, x[i], label);
        }
        sum += row_sum / (double)p->width;
    }
    return sum;
}

static void check(plim__team_t *team, const problem_t *p)
{
    float doutputs[VALUES];
    const float scale = 0.125f;
    const double step = 1e-6, want = reference(p, -1, 0);
    double got = plim__loss(team, p->loss, p->rows, p->width, p->x, p->labels, scale, doutputs);
    test_close(got, want, 1e-6, "loss", p->loss);
    for (int64_t i = 0; i < p->rows * p->width; i++) {
        const double slope = (reference(p, i, step) - reference(p, i, -step)) / (2 * step);
        test_close((double)doutputs[i], slope * (double)scale, 1e-6, "doutputs", i);
    }
    const double alone = plim__loss(team, p->loss, p->rows, p->width, p->x, p->labels, 0, NULL);
    assert_true(alone == got); /* the loss is the same without a gradient */
}

static void classes(void **state)
{
    float x[VALUES];
    int64_t labels[ROWS];
    test_numbers(1, VALUES, 6.0f, x);
    static const int64_t widths[] = {1, 2, 16, 37, WIDTH};
    for (int w = 0; w < 5; w++) {
        for (int64_t i = 0; i < ROWS; i++)
            labels[i] = i % 5 == 3 ? -1 : i * 7 % widths[w];
        const problem_t p = {PLIM_LOSS_CROSS_ENTROPY, ROWS, widths[w], x, labels};
        check(*state, &p);
    }
}

static void values(void **state)
{
    float x[VALUES], labels[VALUES];
    test_numbers(2, VALUES, 4.0f, x);
    for (int loss = PLIM_LOSS_BCE; loss <= PLIM_LOSS_MAE; loss++) {
        for (int i = 0; i < VALUES; i++)
            labels[i] = i % 3 == 1 || i / 5 == 2 ? NAN : (float)(i * 7 % 2);
        const problem_t one = {(plim_loss_t)loss, ROWS, 1, x, labels};
        const problem_t wide = {(plim_loss_t)loss, ROWS, 5, x, labels}; /* row 2 knows nothing */
        check(*state, &one);
        check(*state, &wide);
    }
}

static void large_logits_stay_finite(void **state)
{
    const float x[6] = {1000.0f, -1000.0f, 0.0f, -3e38f, 3e38f, 88.0f};
    const int64_t labels[2] = {1, 1};
    const float yes[6] = {0, 1, 1, 0, 1, 0};
    float dx[6];
    double loss = plim__loss(*state, PLIM_LOSS_CROSS_ENTROPY, 2, 3, x, labels, 1.0f, dx);
    test_close(loss, 2000.0, 1e-9, "cross-entropy", 0);
    test_close((double)dx[0], 1.0, 1e-6, "dx", 0);
    test_close((double)dx[1], -1.0, 1e-6, "dx", 1);
    loss = plim__loss(*state, PLIM_LOSS_BCE, 1, 6, x, yes, 1.0f, dx);
    test_close(loss, (1000 + 1000 + log(2) + 88) / 6, 1e-9, "binary cross-entropy", 0);
}

static void a_class_out_of_range_counts_for_nothing(void **state)
{
    const float x[4] = {1, 2, 3, 4};
    const int64_t labels[2] = {2, INT64_MIN};
    float dx[4] = {9, 9, 9, 9};
    assert_true(plim__loss(*state, PLIM_LOSS_CROSS_ENTROPY, 2, 2, x, labels, 1.0f, dx) == 0);
    for (int i = 0; i < 4; i++)
        assert_true(dx[i] == 0);
    assert_true(plim__loss(*state, PLIM_LOSS_CROSS_ENTROPY, 0, 2, x, labels, 1.0f, dx) == 0);
}

enum { MANY = 9001, COLUMNS = 19, ALL = MANY * COLUMNS };

static void compute_bits(void *context, plim__team_t *team, void *out)
{
    const plim_loss_t loss = *(const plim_loss_t *)context;
    static float x[ALL];
    static int64_t classes_of[ALL];
    test_numbers(3, ALL, 3.0f, x);
    for (int i = 0; i < MANY; i++)
        classes_of[i] = i % COLUMNS;
    float *labels = (float *)(void *)classes_of;
    if (loss != PLIM_LOSS_CROSS_ENTROPY)
        test_numbers(4, ALL, 1.0f, labels);
    double *sum = out;
    *sum = plim__loss(team, loss, MANY, COLUMNS, x, classes_of, 0.5f, (float *)(sum + 1));
}

static void any_team_and_processor_give_the_same_bits(void **state)
{
    (void)state;
    for (int loss = PLIM_LOSS_CROSS_ENTROPY; loss <= PLIM_LOSS_MSE; loss++)
        test_same_bits(compute_bits, &loss, sizeof(double) + ALL * sizeof(float));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(classes),
        cmocka_unit_test(values),
        cmocka_unit_test(large_logits_stay_finite),
        cmocka_unit_test(a_class_out_of_range_counts_for_nothing),
        cmocka_unit_test(any_team_and_processor_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, test_team_set_up, test_team_tear_down);
}
