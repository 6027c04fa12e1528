/* Products against a plain sum in double precision, and the same bits from any number of threads.
 */
/* labels: plain onednn */
#include "support/harness.h"

#include "base/rng.h"
#include "mem/arena.h"
#include "nn/bf16.h"
#include "nn/dense.h"
#include "nn/onednn.h"

#include <dirent.h>
#include <malloc.h>
#include <math.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* What the caller allows OpenMP must stay as it is. */
extern int omp_get_max_threads(void) __attribute__((weak));

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
    size_t size = (bytes / 64 + 1) * 64;
    void *data = aligned_alloc(64, size);
    assert_non_null(data);
    memset(data, 0xff, size); /* NaN, in padding rows too */
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

/* The products once, the sum of dW over two calls, in two ranges of columns. */
static void bench_run(bench_t *bench)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__team_t *team;
    plim__dense_t *dense;
    const int64_t in = bench->params.in, out = bench->params.out;
    assert_ok(plim__team_create(job.ledger, bench->params.workers, &team));
    const int64_t before = plim__ledger_reserved(job.ledger);
    assert_ok(plim__dense_create(job.ledger, &bench->params, &dense));
    assert_true(plim__ledger_reserved(job.ledger) - before <=
                (int64_t)plim__dense_estimate(&bench->params));
    const int64_t cut = in / 3;
    float *part = room((size_t)(in * out) * sizeof(float));
    for (int range = 0; range < 2; range++) {
        const int64_t first = range == 0 ? 0 : cut, width = range == 0 ? cut : in - cut;
        for (int64_t o = 0; o < out; o++)
            memcpy(part + o * width, bench->weight + o * in + first, (size_t)width * sizeof(float));
        plim__dense_set_weight(dense, first, width, part);
    }
    plim__dense_forward(dense, team, &bench->x, bench->y);
    plim__dense_backward_input(dense, team, &bench->dy, bench->dx);
    plim__dense_backward_weight(dense, team, &bench->dy, &bench->x);
    plim__dense_backward_weight(dense, team, &bench->dy, &bench->x);
    for (int range = 0; range < 2; range++) {
        const int64_t first = range == 0 ? 0 : cut, width = range == 0 ? cut : in - cut;
        memset(part, 0, (size_t)(width * out) * sizeof(float));
        plim__dense_gradient(dense, team, first, width, range == 1, part);
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
    const shape_t shape = {5000, 130, 70};
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

/* With AVX-512 a row's product is its own, in parts of any size. (oneDNN's kernels for AVX2 treat
 * the last rows of a tile differently.) */
static void a_row_does_not_depend_on_its_neighbours(void **state)
{
    (void)state;
    if (!plim__onednn_has_bf16()) {
        print_message("SKIPPED: this processor may have no AVX-512\n");
        skip();
    }
    for (int element = PLIM__F32; element <= PLIM__BF16; element++) {
        bench_t whole = bench_make((shape_t){700, 130, 70}, (plim__element_t)element, 1);
        bench_run(&whole);
        for (int64_t rows = 1; rows < 700; rows += 111) {
            bench_t part = bench_make((shape_t){rows, 130, 70}, (plim__element_t)element, 1);
            bench_run(&part);
            assert_memory_equal(whole.y, part.y, (size_t)rows * 70 * sizeof(float));
            assert_memory_equal(whole.dx, part.dx, (size_t)rows * 130 * sizeof(float));
            bench_end(&part);
        }
        bench_end(&whole);
    }
}

static int count_threads(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (struct dirent *entry = readdir(tasks); entry != NULL; entry = readdir(tasks))
        count += entry->d_name[0] != '.';
    (void)closedir(tasks);
    return count;
}

static size_t heap_bytes(void)
{
    return mallinfo2().uordblks;
}

/* Objects, and a team of two, that a test runs again and again. */
typedef struct rig {
    plim_job_t job;
    plim__team_t *team;
    plim__dense_t *dense;
    bench_t bench;
} rig_t;

static rig_t rig_with(bench_t bench)
{
    rig_t rig = {.job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO), .bench = bench};
    assert_ok(plim__team_create(rig.job.ledger, 2, &rig.team));
    assert_ok(plim__dense_create(rig.job.ledger, &rig.bench.params, &rig.dense));
    return rig;
}

static rig_t rig_make(shape_t shape, plim__element_t element)
{
    return rig_with(bench_make(shape, element, 2));
}

static void rig_run(rig_t *rig)
{
    bench_t *bench = &rig->bench;
    plim__dense_set_weight(rig->dense, 0, bench->params.in, bench->weight);
    plim__dense_forward(rig->dense, rig->team, &bench->x, bench->y);
    plim__dense_backward_input(rig->dense, rig->team, &bench->dy, bench->dx);
    plim__dense_backward_weight(rig->dense, rig->team, &bench->dy, &bench->x);
    plim__dense_gradient(rig->dense, rig->team, 0, bench->params.in, true, bench->gradient);
}

static void rig_end(rig_t *rig)
{
    plim__dense_destroy(rig->dense);
    plim__team_destroy(rig->team);
    test_job_end(&rig->job);
}

static void rig_end_all(rig_t *rig)
{
    rig_end(rig);
    bench_end(&rig->bench);
}

static void openmp_starts_no_thread(void **state)
{
    (void)state;
    const int before = count_threads();
    const int allowed = omp_get_max_threads != NULL ? omp_get_max_threads() : 1;
    rig_t rig = rig_make((shape_t){20000, 256, 256}, PLIM__F32);
    rig_run(&rig);
    assert_int_equal(count_threads(), before + 1);
    rig_end_all(&rig);
    if (!TEST_SANITIZED)
        assert_int_equal(count_threads(), before);
    if (omp_get_max_threads != NULL)
        assert_int_equal(omp_get_max_threads(), allowed);
}

static void running_takes_no_memory(void **state)
{
    (void)state;
    test_skip_sanitized("the heap is the sanitizer's");
    static const shape_t some[] = {{700, 128, 16}, {2600, 128, 64}}; /* by one thread, by both */
    for (int element = PLIM__F32; element <= PLIM__BF16; element++)
        for (int i = 0; i < 2; i++) {
            rig_t rig = rig_make(some[i], (plim__element_t)element);
            for (int round = 0; round < 50; round++) /* each thread's first call takes some */
                rig_run(&rig);
            const size_t before = heap_bytes();
            for (int round = 0; round < 500; round++) {
                rig_run(&rig);
                assert_int_equal(heap_bytes(), before);
            }
            rig_end_all(&rig);
        }
}

static plim_status_t make_and_end(plim_job_t *job, void *context)
{
    plim__dense_t *dense;
    plim_status_t status = plim__dense_create(job->ledger, context, &dense);
    if (status == PLIM_OK)
        plim__dense_destroy(dense);
    return status;
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    plim__dense_params_t params = {.in = 100, .out = 50, .backward = true, .workers = 2};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__dense_destroy(NULL);
    test_fail_each_arena(&job, make_and_end, &params);
    const int64_t taken = plim__ledger_reserved(job.ledger);
    test_job_end(&job);
    bool refused = false, made = false;
    for (size_t room_bytes = 0; !made; room_bytes += (size_t)256 << 10) {
        job = test_job_make(taken + ((int64_t)64 << 20), 1, PLIM_IO_AUTO);
        int account;
        const int64_t available = plim__ledger_available(job.ledger);
        assert_true(room_bytes <= plim__dense_estimate(&params) + ((size_t)256 << 10));
        assert_ok(
            plim__ledger_reserve(job.ledger, "taken", (size_t)available - room_bytes, &account));
        const int64_t before = plim__ledger_reserved(job.ledger);
        plim_status_t status = make_and_end(&job, &params);
        made = status == PLIM_OK;
        refused = refused || status == PLIM_ERR_BUDGET;
        assert_true(made || status == PLIM_ERR_BUDGET);
        assert_int_equal(plim__ledger_reserved(job.ledger), before);
        plim__ledger_release(job.ledger, account, (size_t)available - room_bytes);
        test_job_end(&job);
    }
    assert_true(refused);
}

/* oneDNN reads this once, so a process of its own is asked. */
static void other_processors_give_right_products(void **state)
{
    (void)state;
    static const char *const sets[] = {"SSE41", "AVX2", "AVX512_CORE"};
    for (size_t i = 0; i < sizeof sets / sizeof *sets; i++) {
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)setenv("ONEDNN_MAX_CPU_ISA", sets[i], 1);
            (void)execl("/proc/self/exe", "test_dense", "products", (char *)NULL);
            _exit(1);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
            fail_msg("products are wrong on %s (wait status %d)", sets[i], status);
    }
}

static atomic_bool forked_enough;

static void *ask_on(void *unused)
{
    (void)unused;
    for (int64_t in = 200; !atomic_load(&forked_enough); in++) {
        const plim__dense_params_t params = {.in = in, .out = 40, .backward = true, .workers = 1};
        (void)plim__dense_estimate(&params);
    }
    return NULL;
}

/* A child that is forked while another thread asks oneDNN has its answers, and does not block. */
static void a_forked_child_does_not_block(void **state)
{
    (void)state;
    const plim__dense_params_t params = {.in = 100, .out = 40, .backward = true, .workers = 1};
    const size_t bytes = plim__dense_estimate(&params);
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, ask_on, NULL), 0);
    for (int i = 0; i < 200; i++) {
        (void)usleep(1000); /* the thread asks again */
        const pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            (void)alarm(120);
            _exit(plim__dense_estimate(&params) == bytes ? 0 : 1);
        }
        int status = -1;
        assert_int_equal(waitpid(child, &status, 0), child);
        assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&forked_enough, true);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest products[] = {
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_are_right),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(a_row_does_not_depend_on_its_neighbours),
        cmocka_unit_test(openmp_starts_no_thread),
        cmocka_unit_test(running_takes_no_memory),
        cmocka_unit_test(failures_leave_nothing),
        cmocka_unit_test(other_processors_give_right_products),
        cmocka_unit_test(a_forked_child_does_not_block),
    };
    if (argc > 1 && strcmp(argv[1], "products") == 0)
        return cmocka_run_group_tests(products, NULL, NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
