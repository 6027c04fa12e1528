/*
 * Measures the matrix products of training beside one oneDNN product over the whole height, and the
 * cost of a call.
 *
 *     cmake --build --preset release --target bench_dense
 *     build/release/bench_dense [THREADS] [ROUNDS]
 *
 * Prints one JSON object a line: shape, kind, GFLOP/s of ours and of oneDNN alone (with as many
 * OpenMP threads), and microseconds. Measures both in turns and takes the best of ROUNDS.
 */
#include "bench_job.h"

#include "base/clock.h"
#include "nn/dense.h"
#include "nn/onednn.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern void omp_set_num_threads(int count) __attribute__((weak));

typedef struct shape {
    const char *name;
    int64_t rows, in, out;
    bool input_gradient;
} shape_t;

static const shape_t shapes[] = {
    {"B layer 0", 130000, 256, 256, false}, {"B layer 1", 15000, 512, 256, true},
    {"B layer 2", 1024, 512, 172, true},    {"A layer 0", 512, 128, 16, false},
    {"A layer 1", 128, 16, 172, true},
};

static const char *const kinds[] = {"forward", "input", "weight"};

typedef struct bench {
    const shape_t *shape;
    plim__element_t element;
    int threads;
    plim__team_t *team;
    plim__dense_t *dense;
    plim__matrix_t x, dy;
    float *y, *dx, *weight, *gradient;
    struct dnnl_engine *engine;
} bench_t;

static void check(plim_status_t status)
{
    if (status == PLIM_OK)
        return;
    (void)fprintf(stderr, "%s\n", plim_last_error());
    exit(1);
}

static void *zeros(size_t bytes)
{
    void *data = aligned_alloc(4096, plim__round_up(bytes + 1, 4096));
    if (data == NULL)
        exit(1);
    memset(data, 0, bytes); /* products of zeros take as long as any */
    return data;
}

static void ours(bench_t *bench, int kind)
{
    if (kind == 0)
        plim__dense_forward(bench->dense, bench->team, &bench->x, bench->y);
    else if (kind == 1)
        plim__dense_backward_input(bench->dense, bench->team, &bench->dy, bench->dx);
    else
        plim__dense_backward_weight(bench->dense, bench->team, &bench->dy, &bench->x);
}

/* oneDNN over all rows at once, the weight packed beforehand. */
static plim__product_t bare_product(bench_t *bench, int kind)
{
    const int64_t rows = bench->shape->rows, in = bench->shape->in, out = bench->shape->out;
    const plim__element_t element = bench->element;
    const int64_t from = kind == 0 ? in : out, to = kind == 0 ? out : in;
    plim__view_t source = {rows, from, from, 1, element}, weights = {from, to, 0, 0, element},
                 target = {rows, to, to, 1, PLIM__F32};
    if (kind == 2) {
        source = (plim__view_t){out, rows, 1, out, element};
        weights = (plim__view_t){rows, in, in, 1, element};
        target = (plim__view_t){out, in, in, 1, PLIM__F32};
    }
    plim__product_t product;
    check(plim__product_make(bench->engine, &source, &weights, &target, NULL, false, PLIM__TO_CALL,
                             &product));
    return product;
}

static void measure(bench_t *bench, int kind, int rounds)
{
    const shape_t *shape = bench->shape;
    if (omp_set_num_threads != NULL)
        omp_set_num_threads(bench->threads);
    plim__product_t product = bare_product(bench, kind);
    plim__call_t call;
    atomic_bool failed = false;
    check(plim__call_make(bench->engine, &product, false, &failed, &call));
    void *weights = zeros(product.weights), *scratch = zeros(product.scratch);
    plim__call_set(&call, PLIM__SOURCE, kind == 0 ? bench->x.data : bench->dy.data);
    plim__call_set(&call, PLIM__WEIGHTS, kind == 2 ? bench->x.data : weights);
    plim__call_set(&call, PLIM__TARGET,
                   kind == 0   ? bench->y
                   : kind == 1 ? bench->dx
                               : bench->gradient);
    plim__call_set(&call, PLIM__SCRATCH, scratch);
    int64_t best[2] = {INT64_MAX, INT64_MAX};
    for (int round = 0; round < rounds; round++) {
        int64_t start = plim__clock_ns();
        ours(bench, kind);
        best[0] = plim__min_i64(best[0], plim__clock_ns() - start);
        start = plim__clock_ns();
        plim__call_run(&call);
        best[1] = plim__min_i64(best[1], plim__clock_ns() - start);
    }
    const double flops = 2.0 * (double)shape->rows * (double)shape->in * (double)shape->out;
    printf("{\"library\": \"%s\", \"shape\": \"%s\", \"rows\": %lld, \"in\": %lld, \"out\": %lld, "
           "\"element\": \"%s\", \"threads\": %d, \"kind\": \"%s\", \"gflops\": %.1f, "
           "\"bare_gflops\": %.1f, \"share\": %.2f, \"us\": %.2f, \"bare_us\": %.2f}\n",
           plim__onednn_version(), shape->name, (long long)shape->rows, (long long)shape->in,
           (long long)shape->out, bench->element == PLIM__BF16 ? "bf16" : "f32", bench->threads,
           kinds[kind], flops / (double)best[0], flops / (double)best[1],
           (double)best[1] / (double)best[0], (double)best[0] / 1e3, (double)best[1] / 1e3);
    plim__call_end(&call);
    plim__product_end(&product);
    free(weights);
    free(scratch);
}

/* The rest of a step: packing both ways (with a product of one row), adding up the lanes. */
static void measure_rest(bench_t *bench, int rounds)
{
    int64_t pack = INT64_MAX, collect = INT64_MAX;
    plim__matrix_t x = bench->x, dy = bench->dy;
    x.rows = dy.rows = 1;
    for (int round = 0; round < rounds; round++) {
        int64_t start = plim__clock_ns();
        plim__dense_set_weight(bench->dense, 0, bench->shape->in, bench->weight);
        plim__dense_forward(bench->dense, bench->team, &x, bench->y);
        if (bench->shape->input_gradient)
            plim__dense_backward_input(bench->dense, bench->team, &dy, bench->dx);
        pack = plim__min_i64(pack, plim__clock_ns() - start);
        ours(bench, 2);
        start = plim__clock_ns();
        plim__dense_gradient(bench->dense, bench->team, 0, bench->shape->in, true, bench->gradient);
        collect = plim__min_i64(collect, plim__clock_ns() - start);
    }
    printf("{\"shape\": \"%s\", \"element\": \"%s\", \"threads\": %d, \"set_weight_us\": %.2f, "
           "\"gradient_us\": %.2f}\n",
           bench->shape->name, bench->element == PLIM__BF16 ? "bf16" : "f32", bench->threads,
           (double)pack / 1e3, (double)collect / 1e3);
}

static void run(plim_ledger_t *ledger, const shape_t *shape, plim__element_t element, int threads,
                int rounds)
{
    const plim__dense_params_t params = {.in = shape->in,
                                         .out = shape->out,
                                         .element = element,
                                         .backward = true,
                                         .input_gradient = shape->input_gradient,
                                         .workers = threads};
    bench_t bench = {.shape = shape, .element = element, .threads = threads};
    check(plim__team_create(ledger, threads, &bench.team));
    check(plim__dense_create(ledger, &params, &bench.dense));
    check(plim__onednn_engine(&bench.engine));
    const size_t weight = (size_t)(shape->in * shape->out) * sizeof(float);
    bench.x = (plim__matrix_t){zeros(plim__matrix_bytes(shape->rows, shape->in, element)),
                               shape->rows, shape->in, shape->in, element};
    bench.dy = (plim__matrix_t){zeros(plim__matrix_bytes(shape->rows, shape->out, element)),
                                shape->rows, shape->out, shape->out, element};
    bench.y = zeros(plim__matrix_bytes(shape->rows, shape->out, PLIM__F32));
    bench.dx = zeros(plim__matrix_bytes(shape->rows, shape->in, PLIM__F32));
    bench.weight = zeros(weight);
    bench.gradient = zeros(weight);
    plim__dense_set_weight(bench.dense, 0, shape->in, bench.weight);
    if (shape->rows < 4096)
        rounds *= 100;
    for (int kind = 0; kind < 3; kind++)
        if (kind != 1 || shape->input_gradient)
            measure(&bench, kind, rounds);
    measure_rest(&bench, rounds);
    free(bench.x.data);
    free(bench.dy.data);
    free(bench.y);
    free(bench.dx);
    free(bench.weight);
    free(bench.gradient);
    plim__onednn_engine_end(bench.engine);
    plim__dense_destroy(bench.dense);
    plim__team_destroy(bench.team);
}

int main(int argc, char **argv)
{
    const int most = argc > 1 ? atoi(argv[1]) : 2;
    const int rounds = argc > 2 ? atoi(argv[2]) : 10;
    plim_job_t job = {.threads = most};
    check(bench_job_make(PLIM_LINE_NONE, &job));
    for (int element = PLIM__F32; element <= PLIM__BF16; element++)
        for (int threads = 1; threads <= most; threads++)
            for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
                run(job.ledger, &shapes[i], (plim__element_t)element, threads, rounds);
    return 0;
}
