/* Every task runs once, in the worker whose number it is given; no worker is lost between runs. */
/* labels: asan tsan */
#include "support/harness.h"

#include "base/clock.h"
#include "base/threads.h"
#include "nn/team.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define TASKS 5000
#define WORTH 1000000 /* a millisecond a task: always worth waking a worker */

typedef struct tally {
    atomic_int done[TASKS];
    atomic_int inside[PLIM__THREADS_MAX]; /* in a task, by worker */
    atomic_int seen[PLIM__THREADS_MAX];   /* tasks, by worker */
    atomic_int wrong;
    int64_t sleep_ns;
} tally_t;

static void count_task(void *context, int worker, int64_t task)
{
    tally_t *tally = context;
    if (atomic_fetch_add(&tally->inside[worker], 1) != 0)
        atomic_fetch_add(&tally->wrong, 1);
    atomic_fetch_add(&tally->done[task], 1);
    atomic_fetch_add(&tally->seen[worker], 1);
    if (tally->sleep_ns > 0)
        (void)nanosleep(&(struct timespec){0, (long)tally->sleep_ns}, NULL);
    atomic_fetch_sub(&tally->inside[worker], 1);
}

static void every_task_is_done_once(void **state)
{
    (void)state;
    static const int sizes[] = {1, 2, 3, 8};
    static const int64_t counts[] = {0, 1, 2, 7, 64, TASKS};
    static const int64_t costs[] = {0, 1, 50, WORTH};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    tally_t *tally = calloc(1, sizeof *tally);
    assert_non_null(tally);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
        plim__team_t *team;
        int times[TASKS] = {0};
        assert_ok(plim__team_create(job.ledger, sizes[s], &team));
        assert_int_equal(plim__team_size(team), sizes[s]);
        for (int round = 0; round < 20; round++)
            for (size_t c = 0; c < 24; c++) {
                const int64_t count = counts[c % 6];
                plim__team_run(team, count, costs[c / 6], count_task, tally);
                for (int64_t i = 0; i < count; i++)
                    times[i]++;
            }
        plim__team_destroy(team);
        for (int64_t i = 0; i < TASKS; i++)
            assert_int_equal(atomic_exchange(&tally->done[i], 0), times[i]);
        for (int worker = sizes[s]; worker < PLIM__THREADS_MAX; worker++)
            assert_int_equal(atomic_load(&tally->seen[worker]), 0);
    }
    assert_int_equal(atomic_load(&tally->wrong), 0);
    free(tally);
    test_job_end(&job);
}

/* Short runs with pauses of all lengths between them: workers are met awake, asleep, and in
 * between. */
static void no_worker_is_lost_between_runs(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    tally_t *tally = calloc(1, sizeof *tally);
    assert_non_null(tally);
    plim__team_t *team;
    assert_ok(plim__team_create(job.ledger, 3, &team));
    const int rounds = 3000;
    for (int round = 0; round < rounds; round++) {
        plim__team_run(team, 4, WORTH, count_task, tally);
        const int64_t until = plim__clock_ns() + (round % 40) * 1000;
        while (plim__clock_ns() < until) {
        }
    }
    for (int i = 0; i < 4; i++)
        assert_int_equal(atomic_load(&tally->done[i]), rounds);
    assert_int_equal(atomic_load(&tally->wrong), 0);
    plim__team_destroy(team);
    free(tally);
    test_job_end(&job);
}

static void all_threads_work(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    tally_t *tally = calloc(1, sizeof *tally);
    assert_non_null(tally);
    tally->sleep_ns = 2000000;
    plim__team_t *team;
    assert_ok(plim__team_create(job.ledger, 4, &team));
    for (int worker = 0; worker < 4; worker++) {
        /* One run is enough where all of them get a processor at once. */
        for (int i = 0; i < 100 && atomic_load(&tally->seen[worker]) == 0; i++)
            plim__team_run(team, 200, WORTH, count_task, tally);
        assert_true(atomic_load(&tally->seen[worker]) > 0);
    }
    plim__team_destroy(team);
    free(tally);
    test_job_end(&job);
}

static void little_work_wakes_no_worker(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    tally_t *tally = calloc(1, sizeof *tally);
    assert_non_null(tally);
    plim__team_t *team;
    assert_ok(plim__team_create(job.ledger, 4, &team));
    for (int round = 0; round < 200; round++)
        plim__team_run(team, 20, 500, count_task, tally);
    assert_int_equal(atomic_load(&tally->seen[0]), 200 * 20);
    plim__team_destroy(team);
    free(tally);
    test_job_end(&job);
}

/* A loader has the processors while the team has nothing to do. */
static void idle_threads_use_no_time(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    tally_t *tally = calloc(1, sizeof *tally);
    assert_non_null(tally);
    plim__team_t *team;
    struct timespec before, after;
    assert_ok(plim__team_create(job.ledger, 4, &team));
    plim__team_run(team, 200, WORTH, count_task, tally);
    int64_t spent = INT64_MAX;
    for (int i = 0; i < 100 && spent > 10000000; i++) { /* on a busy machine they sleep late */
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
        (void)usleep(150000);
        (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
        spent = (after.tv_sec - before.tv_sec) * 1000000000 + after.tv_nsec - before.tv_nsec;
    }
    assert_true(spent <= 10000000);
    plim__team_destroy(team);
    free(tally);
    test_job_end(&job);
}

static plim_status_t make_and_end(plim_job_t *job, void *context)
{
    (void)context;
    plim__team_t *team;
    const int64_t before = plim__ledger_reserved(job->ledger);
    plim_status_t status = plim__team_create(job->ledger, 3, &team);
    if (status != PLIM_OK)
        return status;
    assert_true(plim__ledger_reserved(job->ledger) - before <= (int64_t)plim__team_estimate(3));
    plim__team_destroy(team);
    return PLIM_OK;
}

static void failures_leave_nothing(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__team_destroy(NULL);
    test_fail_each_arena(&job, make_and_end, NULL);
    test_job_end(&job);
}

static const volatile float tiny = 1e-39f; /* subnormal */

static void halve_tiny(void *context, int worker, int64_t task)
{
    (void)worker;
    ((volatile float *)context)[task] = tiny * 0.5f;
}

static void subnormal_numbers_are_0_in_work_only(void **state)
{
    (void)state;
    volatile float halves[64];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (int size = 1; size <= 3; size++) {
        plim__team_t *team;
        assert_ok(plim__team_create(job.ledger, size, &team));
        for (int i = 0; i < 64; i++)
            halves[i] = 1.0f;
        plim__team_run(team, 64, WORTH, halve_tiny, (void *)halves);
        for (int i = 0; i < 64; i++)
            assert_true(halves[i] == 0.0f);
        assert_true(tiny * 0.5f > 0.0f);
        plim__team_destroy(team);
    }
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_task_is_done_once),
        cmocka_unit_test(no_worker_is_lost_between_runs),
        cmocka_unit_test(all_threads_work),
        cmocka_unit_test(little_work_wakes_no_worker),
        cmocka_unit_test(idle_threads_use_no_time),
        cmocka_unit_test(subnormal_numbers_are_0_in_work_only),
        cmocka_unit_test(failures_leave_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
