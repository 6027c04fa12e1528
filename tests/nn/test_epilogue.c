/* Bias, norm, residual, activation and dropout against a reference in double precision, whose
 * finite differences are what every gradient must be. */
/* labels: plain onednn */
#include "nn/epilogue.h"

#include "base/rng.h"
#include "support/harness.h"
#include "support/nn.h"

#include <math.h>
#include <string.h>

#define ROWS_MAX 40
#define WIDTH_MAX 300
#define VALUES_MAX (ROWS_MAX * WIDTH_MAX)

typedef struct problem {
    plim__epilogue_t finish;
    int64_t rows;
    bool residual;
    plim__element_t element;
    int32_t nodes[ROWS_MAX];
    float running_mean[WIDTH_MAX], running_var[WIDTH_MAX];
    /* What a gradient is wanted of, one after the other. */
    float y[VALUES_MAX], bias[WIDTH_MAX], gamma[WIDTH_MAX], beta[WIDTH_MAX], more[VALUES_MAX];
    float weights[VALUES_MAX]; /* of h in the scalar that is differentiated */
} problem_t;

static problem_t problem; /* too large for a stack */

/* Adds `by` to one input. */
typedef struct nudge {
    const float *where;
    double by;
} nudge_t;

static double input(const float *where, const nudge_t *nudge)
{
    return (double)*where + (where == nudge->where ? nudge->by : 0.0);
}

static bool dropped(const plim__epilogue_t *finish, int64_t row, int64_t column)
{
    if (!finish->training || finish->dropout <= 0)
        return false;
    const uint64_t key = plim__rng_key_of(finish->key, plim__node_id(&finish->nodes, row));
    const uint64_t four = plim__rng_u64(key, (uint64_t)column / 4);
    return (double)(four >> 16 * (column % 4) & 0xffff) < round((double)finish->dropout * 65536);
}

static void statistics(const problem_t *p, const double *v, int64_t at, double *mean, double *var)
{
    const bool layer = p->finish.norm == PLIM_NORM_LAYER;
    const int64_t count = layer ? p->finish.width : p->rows;
    const int64_t step = layer ? 1 : p->finish.width;
    const double *first = v + (layer ? at * p->finish.width : at);
    *mean = *var = 0;
    if (!layer && !p->finish.training) {
        *mean = (double)p->running_mean[at];
        *var = (double)p->running_var[at];
        return;
    }
    for (int64_t i = 0; i < count; i++)
        *mean += first[i * step] / (double)count;
    for (int64_t i = 0; i < count; i++)
        *var += pow(first[i * step] - *mean, 2) / (double)count;
}

static void reference(const problem_t *p, const nudge_t *nudge, double *h)
{
    static double v[VALUES_MAX], mean[WIDTH_MAX], var[WIDTH_MAX]; /* of rows, or of columns */
    const plim__epilogue_t *f = &p->finish;
    const int64_t width = f->width;
    for (int64_t i = 0; i < p->rows * width; i++)
        v[i] = input(&p->y[i], nudge) + (f->bias ? input(&p->bias[i % width], nudge) : 0);
    const bool layer = f->norm == PLIM_NORM_LAYER;
    for (int64_t i = 0; i < (layer ? p->rows : width) && f->norm != PLIM_NORM_NONE; i++)
        statistics(p, v, i, &mean[i], &var[i]);
    const double scale = 1 / (1 - round((double)f->dropout * 65536) / 65536);
    for (int64_t row = 0; row < p->rows; row++) {
        for (int64_t i = 0; i < width; i++) {
            double x = v[row * width + i];
            if (f->norm != PLIM_NORM_NONE) {
                const int64_t at = layer ? row : i;
                x = (x - mean[at]) / sqrt(var[at] + 1e-5) * input(&p->gamma[i], nudge) +
                    input(&p->beta[i], nudge);
            }
            if (p->residual)
                x += input(&p->more[row * width + i], nudge);
            if (f->activation == PLIM_RELU)
                x = fmax(x, 0);
            else if (f->activation == PLIM_ELU)
                x = x > 0 ? x : expm1(x);
            if (f->training && f->dropout > 0)
                x = dropped(f, row, i) ? 0 : x * scale;
            h[row * width + i] = x;
        }
    }
}

static double scalar(const problem_t *p, const float *where, double by)
{
    static double h[VALUES_MAX];
    const nudge_t nudge = {where, by};
    double sum = 0;
    reference(p, &nudge, h);
    for (int64_t i = 0; i < p->rows * p->finish.width; i++)
        sum += h[i] * (double)p->weights[i];
    return sum;
}

static void differences(const problem_t *p, const float *where, int64_t count, const float *got,
                        double tolerance, const char *what)
{
    const double step = 1e-6;
    for (int64_t i = 0; i < count; i++) {
        const double want = (scalar(p, where + i, step) - scalar(p, where + i, -step)) / (2 * step);
        test_close((double)got[i], want, tolerance, what, i);
    }
}

static void make_problem(int64_t rows, int64_t width)
{
    problem_t *p = &problem;
    memset(p, 0, sizeof *p);
    p->rows = rows;
    p->finish.width = width;
    p->finish.training = true;
    p->finish.key = 77;
    p->finish.nodes.ids = p->nodes;
    p->finish.bias = p->bias;
    p->finish.gamma = p->gamma;
    p->finish.beta = p->beta;
    p->finish.running_mean = p->running_mean;
    p->finish.running_var = p->running_var;
    for (int64_t i = 0; i < rows; i++)
        p->nodes[i] = (int32_t)(1000 - 7 * i);
    test_numbers(1, rows * width, 1.5f, p->y);
    test_numbers(2, width, 0.5f, p->bias);
    test_numbers(3, width, 1.5f, p->gamma);
    test_numbers(4, width, 0.5f, p->beta);
    test_numbers(5, rows * width, 1.0f, p->more);
    test_numbers(6, rows * width, 1.0f, p->weights);
    test_numbers(7, width, 0.2f, p->running_mean);
    for (int64_t i = 0; i < width; i++)
        p->running_var[i] = 1.0f + 0.01f * (float)i;
}

static plim__matrix_t copy_of(const float *values, int64_t rows, int64_t width,
                              plim__element_t element)
{
    plim__matrix_t matrix = test_rows(rows, width, width + 3, element);
    for (int64_t i = 0; i < rows * width; i++)
        test_value_set(&matrix, i / width, i % width, values[i]);
    return matrix;
}

/* Forward against the reference, and unless outside training, backward against its differences. */
static void check_problem(plim__team_t *team)
{
    problem_t *p = &problem;
    const int64_t rows = p->rows, width = p->finish.width;
    const size_t bytes = (size_t)(rows * width) * sizeof(float);
    const double tolerance = p->element == PLIM__F32 ? 2e-5 : 1.5e-2;
    static double want[VALUES_MAX];
    static float dresidual[VALUES_MAX], dbias[WIDTH_MAX], dgamma[WIDTH_MAX], dbeta[WIDTH_MAX];
    static float flat[VALUES_MAX];
    const nudge_t none = {NULL, 0};
    for (int64_t i = 0; i < rows * width && p->element == PLIM__BF16; i++) {
        plim__matrix_t one = copy_of(&p->more[i], 1, 1, PLIM__BF16);
        p->more[i] = (float)test_value_at(&one, 0, 0);
        test_free(one.data);
    }
    reference(p, &none, want);
    plim__matrix_t h = test_rows(rows, width, width + 2, p->element);
    plim__matrix_t dy = test_rows(rows, width, width + 5, p->element);
    plim__matrix_t more = copy_of(p->more, rows, width, p->element);
    float *y = test_malloc(bytes);
    memcpy(y, p->y, bytes);
    char *kept = test_malloc(plim__epilogue_kept(&p->finish, rows) + 1);
    char *scratch = test_malloc(plim__epilogue_scratch(&p->finish) + 1);
    plim__epilogue_forward(team, &p->finish, y, p->residual ? &more : NULL, &h, kept);
    for (int64_t i = 0; i < rows * width; i++)
        test_close(test_value_at(&h, i / width, i % width), want[i], tolerance, "h", i);
    if (p->finish.training) {
        for (int64_t i = 0; i < width; i++)
            dbias[i] = dgamma[i] = dbeta[i] = 0;
        const plim__epilogue_gradients_t gradients = {dbias, dgamma, dbeta};
        plim__epilogue_backward(team, &p->finish, &h, kept, p->weights, &dy,
                                p->residual ? dresidual : NULL, &gradients, scratch);
        for (int64_t i = 0; i < rows * width; i++)
            flat[i] = (float)test_value_at(&dy, i / width, i % width);
        differences(p, p->y, rows * width, flat, tolerance, "dy");
        differences(p, p->bias, width, dbias, 4 * tolerance, "dbias");
        if (p->finish.norm != PLIM_NORM_NONE) {
            differences(p, p->gamma, width, dgamma, 4 * tolerance, "dgamma");
            differences(p, p->beta, width, dbeta, 4 * tolerance, "dbeta");
        }
        if (p->residual)
            differences(p, p->more, rows * width, dresidual, tolerance, "dresidual");
    }
    void *all[] = {h.data, dy.data, more.data, y, kept, scratch};
    for (int i = 0; i < 6; i++)
        test_free(all[i]);
}

static void every_kind_agrees_with_the_reference(void **state)
{
    plim__team_t *team = *state;
    for (int kind = 0; kind < 3 * 3 * 2 * 2 * 2; kind++) {
        make_problem(9, 21);
        problem.finish.activation = (plim_activation_t)(kind % 3);
        problem.finish.norm = (plim_norm_t)(kind / 3 % 3);
        problem.finish.dropout = kind / 9 % 2 ? 0.4f : 0.0f;
        problem.residual = kind / 18 % 2;
        problem.element = kind / 36 % 2 ? PLIM__BF16 : PLIM__F32;
        check_problem(team);
    }
}

static void rows_wider_than_a_chunk(void **state)
{
    plim__team_t *team = *state;
    for (int norm = PLIM_NORM_NONE; norm <= PLIM_NORM_BATCH; norm++) {
        make_problem(8, 300);
        problem.finish.norm = (plim_norm_t)norm;
        problem.finish.activation = PLIM_ELU;
        problem.finish.dropout = 0.25f;
        check_problem(team);
    }
}

static void outside_training_running_statistics_count(void **state)
{
    plim__team_t *team = *state;
    for (int norm = PLIM_NORM_NONE; norm <= PLIM_NORM_BATCH; norm++) {
        make_problem(7, 19);
        problem.finish.norm = (plim_norm_t)norm;
        problem.finish.training = false;
        problem.finish.dropout = 0.5f; /* does nothing */
        problem.finish.nodes.ids = NULL;
        check_problem(team);
    }
}

static void without_bias(void **state)
{
    plim__team_t *team = *state;
    for (int norm = PLIM_NORM_NONE; norm <= PLIM_NORM_BATCH; norm++) {
        make_problem(8, 17);
        problem.finish.norm = (plim_norm_t)norm;
        problem.finish.bias = NULL;
        memset(problem.bias, 0, sizeof problem.bias);
        const int64_t rows = problem.rows, width = problem.finish.width;
        static double want[VALUES_MAX];
        static float y[VALUES_MAX], h_data[VALUES_MAX], sums[2 * WIDTH_MAX];
        const nudge_t none = {NULL, 0};
        reference(&problem, &none, want);
        memcpy(y, problem.y, sizeof y);
        plim__matrix_t h = {h_data, rows, width, width, PLIM__F32};
        void *kept = test_malloc(plim__epilogue_kept(&problem.finish, rows) + 1);
        void *scratch = test_malloc(plim__epilogue_scratch(&problem.finish) + 1);
        plim__epilogue_forward(team, &problem.finish, y, NULL, &h, kept);
        for (int64_t i = 0; i < rows * width; i++)
            test_close((double)h_data[i], want[i], 2e-5, "h", i);
        /* dy may lie where dh was. */
        static float dh[VALUES_MAX];
        memcpy(dh, problem.weights, sizeof dh);
        plim__matrix_t dy = {dh, rows, width, width, PLIM__F32};
        const plim__epilogue_gradients_t gradients = {NULL, sums, sums + WIDTH_MAX};
        plim__epilogue_backward(team, &problem.finish, &h, kept, dh, &dy, NULL, &gradients,
                                scratch);
        differences(&problem, problem.y, rows * width, dh, 2e-5, "dy");
        test_free(kept);
        test_free(scratch);
    }
}

static void running_statistics_move_as_in_pytorch(void **state)
{
    plim__team_t *team = *state;
    make_problem(11, 5);
    problem.finish.norm = PLIM_NORM_BATCH;
    double want_mean[5], want_var[5];
    for (int64_t i = 0; i < 5; i++) {
        double mean = 0, var = 0;
        for (int64_t row = 0; row < 11; row++)
            mean += (double)(problem.y[row * 5 + i] + problem.bias[i]) / 11;
        for (int64_t row = 0; row < 11; row++)
            var += pow((double)(problem.y[row * 5 + i] + problem.bias[i]) - mean, 2) / 10;
        want_mean[i] = 0.9 * (double)problem.running_mean[i] + 0.1 * mean;
        want_var[i] = 0.9 * (double)problem.running_var[i] + 0.1 * var;
    }
    check_problem(team);
    for (int64_t i = 0; i < 5; i++) {
        test_close((double)problem.running_mean[i], want_mean[i], 1e-6, "running_mean", i);
        test_close((double)problem.running_var[i], want_var[i], 1e-6, "running_var", i);
    }
}

/* h of ones under dropout, for the given nodes. */
static void drop_ones(plim__team_t *team, uint64_t key, float share, int64_t rows, int64_t width,
                      const void *nodes, bool wide, float *h)
{
    plim__epilogue_t finish = {.width = width,
                               .dropout = share,
                               .training = true,
                               .key = key,
                               .nodes = {nodes, wide},
                               .activation = PLIM_RELU};
    float *y = test_malloc((size_t)(rows * width) * sizeof *y);
    for (int64_t i = 0; i < rows * width; i++)
        y[i] = 1.0f;
    plim__matrix_t out = {h, rows, width, width, PLIM__F32};
    plim__epilogue_forward(team, &finish, y, NULL, &out, NULL);
    test_free(y);
}

static void dropout_follows_the_node(void **state)
{
    plim__team_t *team = *state;
    enum { ROWS = 64, WIDTH = 270, ROW_BYTES = WIDTH * 4, VALUES = ROWS * WIDTH };
    enum { PART = ROWS - 20, PART_BYTES = PART * ROW_BYTES };
    static float whole[VALUES], part[VALUES], other[VALUES];
    int32_t nodes[ROWS], backwards[ROWS];
    int64_t wide[ROWS];
    for (int i = 0; i < ROWS; i++) {
        nodes[i] = 5 * i + 3;
        backwards[ROWS - 1 - i] = nodes[i];
    }
    drop_ones(team, 9, 0.5f, ROWS, WIDTH, nodes, false, whole);
    drop_ones(team, 9, 0.5f, ROWS, WIDTH, backwards, false, part);
    for (int64_t i = 0; i < ROWS; i++)
        assert_memory_equal(whole + i * WIDTH, part + (ROWS - 1 - i) * WIDTH, ROW_BYTES);
    drop_ones(team, 9, 0.5f, PART, WIDTH, nodes + 20, false, part); /* a part of it */
    assert_memory_equal(whole + (VALUES - PART * WIDTH), part, PART_BYTES);
    for (int64_t i = 0; i < ROWS; i++)
        wide[i] = nodes[i];
    drop_ones(team, 9, 0.5f, ROWS, WIDTH, wide, true, other);
    assert_memory_equal(whole, other, sizeof whole);
    for (int64_t i = 0; i < ROWS; i++)
        wide[i] += (int64_t)1 << 32; /* other nodes, although the lower half of the id is equal */
    drop_ones(team, 9, 0.5f, ROWS, WIDTH, wide, true, other);
    assert_memory_not_equal(whole, other, sizeof whole);
    drop_ones(team, 10, 0.5f, ROWS, WIDTH, nodes, false, other);
    int64_t same = 0;
    for (int i = 0; i < VALUES; i++)
        same += (whole[i] > 0) == (other[i] > 0);
    assert_true(fabs((double)same / VALUES - 0.5) < 0.02);
}

static void dropout_drops_its_share(void **state)
{
    plim__team_t *team = *state;
    enum { ROWS = 1000, WIDTH = 256 };
    static const float shares[] = {0.1f, 0.3f, 0.5f, 0.9f};
    static float h[ROWS * WIDTH];
    static int32_t nodes[ROWS];
    for (int i = 0; i < ROWS; i++)
        nodes[i] = i;
    for (int s = 0; s < 4; s++) {
        drop_ones(team, 4, shares[s], ROWS, WIDTH, nodes, false, h);
        double sum = 0;
        int64_t zeros = 0;
        for (int i = 0; i < ROWS * WIDTH; i++) {
            zeros += h[i] == 0;
            sum += (double)h[i];
        }
        const double p = (double)shares[s], count = ROWS * WIDTH;
        const double deviation = sqrt(p * (1 - p) / count);
        assert_true(fabs((double)zeros / count - p) < 4 * deviation);
        assert_true(fabs(sum / count - 1) < 5 * deviation / (1 - p)); /* the mean stays */
    }
    drop_ones(team, 4, 1.0f, ROWS, WIDTH, nodes, false, h);
    for (int i = 0; i < ROWS * WIDTH; i++)
        assert_true(h[i] == 0);
}

/* Rows one behind the other, narrow enough to be worked off together, with and without dropout. */
static void narrow_rows_are_the_same_alone_and_together(void **state)
{
    static const int64_t widths[] = {1, 3, 4, 16, 100, 128};
    enum { ROWS = 40 };
    for (int kind = 0; kind < 24; kind++) {
        const int64_t width = widths[kind % 6];
        make_problem(ROWS, width);
        plim__epilogue_t finish = problem.finish;
        finish.activation = kind < 12 ? PLIM_ELU : PLIM_RELU;
        finish.dropout = kind / 6 % 2 ? 0.4f : 0.0f;
        static float y[2][VALUES_MAX], dbias[2][WIDTH_MAX];
        void *scratch = test_malloc(plim__epilogue_scratch(&finish));
        plim__matrix_t h[2], dy[2];
        for (int64_t apart = 0; apart < 2; apart++) {
            h[apart] = test_rows(ROWS, width, width + 8 * apart, PLIM__F32);
            dy[apart] = test_rows(ROWS, width, width + 8 * apart, PLIM__F32);
            memcpy(y[apart], problem.y, sizeof y[apart]);
            memset(dbias[apart], 0, sizeof dbias[apart]);
            plim__epilogue_forward(*state, &finish, y[apart], NULL, &h[apart], NULL);
            const plim__epilogue_gradients_t gradients = {dbias[apart], NULL, NULL};
            plim__epilogue_backward(*state, &finish, &h[apart], NULL, problem.weights, &dy[apart],
                                    NULL, &gradients, scratch);
        }
        for (int64_t i = 0; i < ROWS * width; i++) {
            const int64_t row = i / width, column = i % width;
            assert_true(test_value_at(&h[0], row, column) == test_value_at(&h[1], row, column));
            assert_true(test_value_at(&dy[0], row, column) == test_value_at(&dy[1], row, column));
        }
        for (int64_t i = 0; i < width; i++)
            test_close((double)dbias[0][i], (double)dbias[1][i], 1e-5, "dbias", i);
        for (int apart = 0; apart < 2; apart++) {
            test_free(h[apart].data);
            test_free(dy[apart].data);
        }
        test_free(scratch);
    }
}

typedef struct bits {
    plim_norm_t norm;
    plim_activation_t activation;
    plim__element_t element;
} bits_t;

enum { BITS_ROWS = 4001, BITS_WIDTH = 37, BITS_VALUES = BITS_ROWS * BITS_WIDTH };

static void compute_bits(void *context, plim__team_t *team, void *out)
{
    const bits_t *bits = context;
    const int64_t count = BITS_VALUES, width = BITS_WIDTH;
    static float y[BITS_VALUES], dh[BITS_VALUES];
    static float bias[BITS_WIDTH], gamma[BITS_WIDTH], beta[BITS_WIDTH];
    static int32_t nodes[BITS_ROWS];
    float *running = (float *)out + 2 * count, *sums = running + 2 * width;
    test_numbers(1, count, 2.0f, y);
    test_numbers(2, count, 1.0f, dh);
    test_numbers(3, BITS_WIDTH, 1.0f, bias);
    test_numbers(4, BITS_WIDTH, 1.0f, gamma);
    test_numbers(5, BITS_WIDTH, 1.0f, beta);
    for (int i = 0; i < BITS_ROWS; i++)
        nodes[i] = 3 * i;
    const plim__epilogue_t finish = {
        BITS_WIDTH,       bias, bits->norm, gamma, beta,          running, running + BITS_WIDTH,
        bits->activation, 0.3f, true,       12,    {nodes, false}};
    plim__matrix_t h = {out, BITS_ROWS, BITS_WIDTH, BITS_WIDTH, bits->element};
    plim__matrix_t dy = {(float *)out + count, BITS_ROWS, BITS_WIDTH, BITS_WIDTH, bits->element};
    void *kept = test_malloc(plim__epilogue_kept(&finish, BITS_ROWS) + 1);
    void *scratch = test_malloc(plim__epilogue_scratch(&finish) + 1);
    const plim__epilogue_gradients_t gradients = {sums, sums + width, sums + 2 * width};
    plim__epilogue_forward(team, &finish, y, NULL, &h, kept);
    plim__epilogue_backward(team, &finish, &h, kept, dh, &dy, NULL, &gradients, scratch);
    test_free(kept);
    test_free(scratch);
}

static void any_team_and_processor_give_the_same_bits(void **state)
{
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        bits_t bits = {(plim_norm_t)(kind % 3), kind % 2 ? PLIM_ELU : PLIM_RELU,
                       kind < 3 ? PLIM__F32 : PLIM__BF16};
        test_same_bits(compute_bits, &bits, (2 * BITS_VALUES + 5 * BITS_WIDTH) * sizeof(float));
    }
}

/* As in PyTorch; or an overflow inside a model would give finite losses and predictions. */
static void what_is_not_a_number_stays_so(void **state)
{
    for (int kind = 0; kind < 3; kind++) {
        const plim__epilogue_t finish = {.width = 20, .activation = (plim_activation_t)kind};
        float y[40] = {0}, h_data[40];
        plim__matrix_t h = {h_data, 2, 20, 20, PLIM__F32};
        y[0] = y[27] = NAN;
        plim__epilogue_forward(*state, &finish, y, NULL, &h, NULL);
        for (int i = 0; i < 40; i++)
            assert_int_equal(isnan(h_data[i]) != 0, i == 0 || i == 27);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_agrees_with_the_reference),
        cmocka_unit_test(rows_wider_than_a_chunk),
        cmocka_unit_test(outside_training_running_statistics_count),
        cmocka_unit_test(without_bias),
        cmocka_unit_test(narrow_rows_are_the_same_alone_and_together),
        cmocka_unit_test(running_statistics_move_as_in_pytorch),
        cmocka_unit_test(dropout_follows_the_node),
        cmocka_unit_test(dropout_drops_its_share),
        cmocka_unit_test(any_team_and_processor_give_the_same_bits),
        cmocka_unit_test(what_is_not_a_number_stays_so),
    };
    return cmocka_run_group_tests(tests, test_team_set_up, test_team_tear_down);
}
