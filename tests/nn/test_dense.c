/* Products against a plain sum in double precision, and the same bits from any number of threads.
 */
#include "support/harness.h"

#include "base/rng.h"
#include "mem/arena.h"
#include "nn/bf16.h"
#include "nn/dense.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct shape {
    int64_t rows, in, out;
} shape_t;

/* Everything that one product needs, and what it gave. */
typedef struct bench {
    plim__dense_params_t params;
    int64_t rows;
    plim__matrix_t x, dy;
    float *weight, *y, *dx, *gradient;
} bench_t;

static void *room(size_t bytes)
{
    void *data = aligned_alloc(64, plim__round_up(bytes + 1, 64));
    assert_non_null(data);
    memset(data, 0xff, plim__round_up(bytes + 1, 64)); /* NaN, in spare rows too */
    return data;
}

static float draw(uint64_t key, int64_t i)
{
    return (float)(plim__rng_double(key, (uint64_t)i) * 2 - 1);
}

static plim__matrix_t matrix_make(int64_t rows, int64_t width, plim__element_t element,
                                  uint64_t key)
{
    plim__matrix_t matrix = {room(plim__matrix_bytes(rows, width, element)), rows, width, width,
                             element};
    for (int64_t i = 0; i < rows * width; i++) {
        if (element == PLIM__BF16)
            ((uint16_t *)matrix.data)[i] = plim__bf16_from_f32(draw(key, i));
        else
            ((float *)matrix.data)[i] = draw(key, i);
    }
    return matrix;
}

static double matrix_at(const plim__matrix_t *matrix, int64_t row, int64_t column)
{
    const int64_t i = row * matrix->stride + column;
    return matrix->element == PLIM__BF16
               ? (double)plim__f32_from_bf16(((const uint16_t *)matrix->data)[i])
               : (double)((const float *)matrix->data)[i];
}

static bench_t bench_make(shape_t shape, plim__element_t element, int workers)
{
    bench_t bench = {.params = {.in = shape.in,
                                .out = shape.out,
                                .element = element,
                                .backward = true,
                                .input_gradient = true,
                                .workers = workers},
                     .rows = shape.rows};
    bench.x = matrix_make(shape.rows, shape.in, element, 1);
    bench.dy = matrix_make(shape.rows, shape.out, element, 2);
    bench.weight = room((size_t)(shape.in * shape.out) * sizeof(float));
    bench.gradient = room((size_t)(shape.in * shape.out) * sizeof(float));
    for (int64_t i = 0; i < shape.in * shape.out; i++) {
        bench.weight[i] = draw(3, i);
        bench.gradient[i] = 0;
    }
    bench.y = room(plim__matrix_bytes(shape.rows, shape.out, PLIM__F32));
    bench.dx = room(plim__matrix_bytes(shape.rows, shape.in, PLIM__F32));
    return bench;
}

static void bench_end(bench_t *bench)
{
    free(bench->x.data);
    free(bench->dy.data);
    free(bench->weight);
    free(bench->gradient);
    free(bench->y);
    free(bench->dx);
}

/* The products once, the sum of dW over two calls, in two slices of columns. */
static void bench_run(bench_t *bench)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__team_t *team;
    plim__dense_t *dense;
    const int64_t in = bench->params.in, out = bench->params.out;
    assert_ok(plim__dense_library_begin(job.ledger));
    assert_ok(plim__team_create(job.ledger, bench->params.workers, &team));
    const int64_t before = plim_ledger_reserved(job.ledger);
    assert_ok(plim__dense_create(job.ledger, &bench->params, &dense));
    assert_true(plim_ledger_reserved(job.ledger) - before <=
                (int64_t)plim__dense_estimate(&bench->params));
    const int64_t cut = in / 3;
    float *part = room((size_t)(in * out) * sizeof(float));
    for (int slice = 0; slice < 2; slice++) {
        const int64_t first = slice == 0 ? 0 : cut, width = slice == 0 ? cut : in - cut;
        for (int64_t o = 0; o < out; o++)
            memcpy(part + o * width, bench->weight + o * in + first, (size_t)width * sizeof(float));
        plim__dense_set_weight(dense, team, first, width, part);
    }
    plim__dense_forward(dense, team, &bench->x, bench->y);
    plim__dense_backward_input(dense, team, &bench->dy, bench->dx);
    plim__dense_backward_weight(dense, team, &bench->dy, &bench->x);
    plim__dense_backward_weight(dense, team, &bench->dy, &bench->x);
    for (int slice = 0; slice < 2; slice++) {
        const int64_t first = slice == 0 ? 0 : cut, width = slice == 0 ? cut : in - cut;
        memset(part, 0, (size_t)(width * out) * sizeof(float));
        plim__dense_gradient(dense, team, first, width, slice == 1, part);
        for (int64_t o = 0; o < out; o++)
            memcpy(bench->gradient + o * in + first, part + o * width,
                   (size_t)width * sizeof(float));
    }
    memset(part, 0, (size_t)(in * out) * sizeof(float));
    plim__dense_gradient(dense, team, 0, in, true, part);
    for (int64_t i = 0; i < in * out; i++)
        assert_true(part[i] == 0);
    free(part);
    plim__dense_destroy(dense);
    plim__team_destroy(team);
    plim__dense_library_end(job.ledger);
    test_job_end(&job);
}

static void assert_near(double is, double wanted, double scale, const char *what,
                        const bench_t *bench, int64_t row, int64_t column)
{
    if (fabs(is - wanted) <= 2e-6 * scale + 1e-6)
        return;
    fail_msg("%s[%lld][%lld] of %lld x %lld x %lld is %.9g instead of %.9g", what, (long long)row,
             (long long)column, (long long)bench->rows, (long long)bench->params.in,
             (long long)bench->params.out, is, wanted);
}

/* Rounded like the products' own copy. */
static double weight_at(const bench_t *bench, int64_t o, int64_t i)
{
    const float value = bench->weight[o * bench->params.in + i];
    return bench->params.element == PLIM__BF16
               ? (double)plim__f32_from_bf16(plim__bf16_from_f32(value))
               : (double)value;
}

static void bench_check(const bench_t *bench)
{
    const int64_t in = bench->params.in, out = bench->params.out, rows = bench->rows;
    for (int64_t r = 0; r < rows; r++) {
        for (int64_t o = 0; o < out; o++) {
            double sum = 0;
            for (int64_t i = 0; i < in; i++)
                sum += matrix_at(&bench->x, r, i) * weight_at(bench, o, i);
            assert_near(bench->y[r * out + o], sum, (double)in, "y", bench, r, o);
        }
        for (int64_t i = 0; i < in; i++) {
            double sum = 0;
            for (int64_t o = 0; o < out; o++)
                sum += matrix_at(&bench->dy, r, o) * weight_at(bench, o, i);
            assert_near(bench->dx[r * in + i], sum, (double)out, "dx", bench, r, i);
        }
    }
    for (int64_t o = 0; o < out; o++)
        for (int64_t i = 0; i < in; i++) {
            double sum = 0;
            for (int64_t r = 0; r < rows; r++)
                sum += matrix_at(&bench->dy, r, o) * matrix_at(&bench->x, r, i);
            assert_near(bench->gradient[o * in + i], 2 * sum, 2 * (double)rows, "dW", bench, o, i);
        }
}

static const shape_t shapes[] = {
    {1, 1, 1},      {1, 128, 16},   {31, 7, 5},    {32, 100, 47},  {33, 16, 172}, {257, 128, 16},
    {512, 128, 16}, {1000, 33, 65}, {64, 1433, 7}, {300, 602, 41}, {2300, 20, 1}, {5000, 12, 9},
};

static void products_are_right(void **state)
{
    (void)state;
    for (int element = PLIM__F32; element <= PLIM__BF16; element++)
        for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++) {
            bench_t bench = bench_make(shapes[i], (plim__element_t)element, 2);
            bench_run(&bench);
            bench_check(&bench);
            bench_end(&bench);
        }
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const int counts[] = {1, 2, 3, 8};
    const shape_t shape = {20000, 130, 70};
    for (int element = PLIM__F32; element <= PLIM__BF16; element++) {
        bench_t first = bench_make(shape, (plim__element_t)element, 1);
        bench_run(&first);
        for (size_t i = 1; i < sizeof counts / sizeof *counts; i++) {
            bench_t other = bench_make(shape, (plim__element_t)element, counts[i]);
            bench_run(&other);
            const size_t rows = (size_t)shape.rows, in = (size_t)shape.in;
            const size_t out = (size_t)shape.out;
            assert_memory_equal(first.y, other.y, rows * out * sizeof(float));
            assert_memory_equal(first.dx, other.dx, rows * in * sizeof(float));
            assert_memory_equal(first.gradient, other.gradient, out * in * sizeof(float));
            bench_end(&other);
        }
        bench_end(&first);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
