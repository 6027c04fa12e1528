/* A job calls its callbacks on host threads only, one at a time, and stops when its flag is up. */
#include "support/harness.h"

#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"

#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct heard {
    char last[PLIM_MESSAGE_MAX];
    plim_log_level_t level;
    char phase[32], unit[32];
    int64_t done, total;
    int messages; /* not atomic: the job promises one callback at a time */
    int progresses;
    bool on_ours; /* a callback was called on a library thread */
    const plim_job_t *job;
} heard_t;

static void hear(void *user, plim_log_level_t level, const char *message)
{
    heard_t *heard = user;
    heard->level = level;
    heard->messages++;
    heard->on_ours |= plim__thread_is_ours();
    (void)snprintf(heard->last, sizeof heard->last, "%s", message);
}

static void see(void *user, const plim_progress_t *progress)
{
    heard_t *heard = user;
    (void)snprintf(heard->phase, sizeof heard->phase, "%s", progress->phase);
    (void)snprintf(heard->unit, sizeof heard->unit, "%s", progress->unit);
    heard->done = progress->done;
    heard->total = progress->total;
    heard->progresses++;
    heard->on_ours |= plim__thread_is_ours();
}

static plim_job_t make_job(heard_t *heard)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    job.log = hear;
    job.progress = see;
    job.user = heard;
    return job;
}

static void calls_its_callbacks(void **state)
{
    (void)state;
    static heard_t heard;
    char large[4096];
    plim_job_t job = make_job(&heard);
    plim__log(&job, PLIM_LOG_WARNING, "%d nodes", 7);
    assert_ok(plim__job_check(&job));
    assert_string_equal(heard.last, "7 nodes");
    assert_int_equal(heard.level, PLIM_LOG_WARNING);
    plim__progress(&job, "reading", "rows", 3, 10);
    assert_string_equal(heard.phase, "reading");
    assert_string_equal(heard.unit, "rows");
    assert_int_equal(heard.done, 3);
    assert_int_equal(heard.total, 10);
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    plim__log(&job, PLIM_LOG_INFO, "%s", large);
    plim__job_deliver(&job);
    assert_int_equal(strlen(heard.last), PLIM_MESSAGE_MAX - 1);
    test_job_end(&job);
}

static void may_be_silent(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__log(&job, PLIM_LOG_INFO, "nobody hears this");
    plim__progress(&job, "reading", "rows", 3, 10);
    assert_ok(plim__job_check(&job));
    test_job_end(&job);
}

static plim_status_t log_some(void *context, int worker)
{
    if (worker == 0)
        return PLIM_OK;
    for (int i = 0; i < 5; i++)
        plim__log(context, PLIM_LOG_INFO, "%d", i);
    for (int i = 0; i <= 1000; i++)
        plim__progress(context, "counting", "words", i, 1000);
    return PLIM_OK;
}

static void queues_what_library_threads_log(void **state)
{
    (void)state;
    static heard_t heard;
    plim_job_t job = make_job(&heard);
    assert_ok(plim__parallel(2, log_some, &job));
    assert_int_equal(heard.messages, 0);
    (void)plim__fail(PLIM_ERR_DATA, "kept across callbacks");
    plim__job_deliver(&job);
    assert_int_equal(heard.messages, 5);
    assert_int_equal(heard.progresses, 1); /* only the newest state */
    assert_int_equal(heard.done, 1000);
    assert_false(heard.on_ours);
    assert_string_equal(plim_last_error(), "kept across callbacks");
    test_job_end(&job);
}

static plim_status_t log_many(void *context, int worker)
{
    for (int i = 0; i < 1000; i++) {
        plim__log(context, PLIM_LOG_INFO, "%d", worker);
        (void)plim__job_check(context);
    }
    return PLIM_OK;
}

static plim_status_t flood(void *context, int worker)
{
    return worker == 0 ? PLIM_OK : log_many(context, worker);
}

static void drops_the_oldest_lines_and_says_so(void **state)
{
    (void)state;
    static heard_t heard;
    plim_job_t job = make_job(&heard);
    assert_ok(plim__parallel(2, flood, &job));
    plim__job_deliver(&job);
    assert_int_equal(heard.messages, PLIM__JOB_EVENTS + 1);
    assert_string_equal(heard.last, "1");
    test_job_end(&job);
}

static void calls_back_one_at_a_time(void **state)
{
    (void)state;
    static heard_t heard;
    plim_job_t job = make_job(&heard);
    assert_ok(plim__parallel(4, log_many, &job));
    assert_true(heard.messages >= 1000 && heard.messages <= 8000);
    assert_false(heard.on_ours);
    test_job_end(&job);
}

/* A callback that calls the library, which logs in turn. */
static void call_in(void *user, plim_log_level_t level, const char *message)
{
    heard_t *heard = user;
    hear(user, level, message);
    if (heard->messages < 3)
        plim__log(heard->job, PLIM_LOG_INFO, "from the callback");
    assert_true(plim__ledger_reserved(heard->job->ledger) > 0);
}

static void lets_callbacks_call_in(void **state)
{
    (void)state;
    static heard_t heard;
    plim_job_t job = make_job(&heard);
    job.log = call_in;
    heard.job = &job;
    plim__log(&job, PLIM_LOG_INFO, "first");
    plim__job_deliver(&job);
    assert_int_equal(heard.messages, 3);
    test_job_end(&job);
}

/* One host thread's callback waits for a lock that another holds while it calls the library. */
typedef struct locked {
    plim_job_t job;
    pthread_mutex_t lock; /* the host's, such as Python's GIL */
    pthread_barrier_t both;
    int messages;
} locked_t;

static void take_lock(void *user, plim_log_level_t level, const char *message)
{
    locked_t *locked = user;
    (void)level;
    if (strcmp(message, "waits") == 0)
        (void)pthread_barrier_wait(&locked->both);
    pthread_mutex_lock(&locked->lock);
    locked->messages++;
    pthread_mutex_unlock(&locked->lock);
}

static void *call_and_wait(void *context)
{
    locked_t *locked = context;
    plim__job_call_t call;
    assert_ok(plim__job_enter(&locked->job, &call));
    plim__log(&locked->job, PLIM_LOG_INFO, "waits");
    plim__job_leave(&call);
    return NULL;
}

static void locked_make(locked_t *locked)
{
    (void)pthread_mutex_init(&locked->lock, NULL);
    (void)pthread_barrier_init(&locked->both, NULL, 2);
    locked->job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    locked->job.log = take_lock;
    locked->job.user = locked;
    locked->messages = 0;
}

static void locked_end(locked_t *locked)
{
    test_job_end(&locked->job);
    (void)pthread_barrier_destroy(&locked->both);
    (void)pthread_mutex_destroy(&locked->lock);
}

static void does_not_wait_for_a_callback(void **state)
{
    (void)state;
    static locked_t locked;
    pthread_t thread;
    locked_make(&locked);
    pthread_mutex_lock(&locked.lock);
    assert_int_equal(pthread_create(&thread, NULL, call_and_wait, &locked), 0);
    (void)pthread_barrier_wait(&locked.both);
    for (int i = 0; i < 10; i++) {
        plim__log(&locked.job, PLIM_LOG_INFO, "goes on");
        plim__job_deliver(&locked.job);
    }
    pthread_mutex_unlock(&locked.lock);
    (void)pthread_join(thread, NULL);
    plim__job_deliver(&locked.job);
    assert_int_equal(locked.messages, 11);
    locked_end(&locked);
}

/* A thread that holds a lock of the host does not deliver another call's lines: they may want it.
 */
static void *log_in_a_call(void *context)
{
    locked_t *locked = context;
    plim__job_call_t call;
    assert_ok(plim__job_enter(&locked->job, &call));
    plim__log(&locked->job, PLIM_LOG_INFO, "goes on");
    (void)pthread_barrier_wait(&locked->both); /* now the other calls, with the lock held */
    (void)pthread_barrier_wait(&locked->both);
    plim__job_leave(&call);
    return NULL;
}

static void does_not_deliver_for_others(void **state)
{
    (void)state;
    static locked_t locked;
    pthread_t thread;
    plim__job_call_t call;
    locked_make(&locked);
    assert_int_equal(pthread_create(&thread, NULL, log_in_a_call, &locked), 0);
    (void)pthread_barrier_wait(&locked.both);
    pthread_mutex_lock(&locked.lock);
    assert_ok(plim__job_enter(&locked.job, &call));
    assert_ok(plim__job_check(&locked.job));
    plim__job_leave(&call);
    assert_int_equal(locked.messages, 0);
    pthread_mutex_unlock(&locked.lock);
    (void)pthread_barrier_wait(&locked.both);
    (void)pthread_join(thread, NULL);
    assert_int_equal(locked.messages, 1);
    locked_end(&locked);
}

static void stops_when_told(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    assert_ok(plim__job_check(&job));
    plim_job_stop(&job, true);
    assert_int_equal(plim__job_check(&job), PLIM_ERR_STOPPED);
    plim_job_stop(&job, false);
    assert_ok(plim__job_check(&job));
    test_job_end(&job);
}

static void uses_as_many_threads_as_can_be_used(void **state)
{
    (void)state;
    static const int given[] = {-1, 0, 1, 2, PLIM__THREADS_MAX, PLIM__THREADS_MAX + 1, 1024};
    static const int used[] = {1, 1, 1, 2, PLIM__THREADS_MAX, PLIM__THREADS_MAX, PLIM__THREADS_MAX};
    plim_job_t job = {0};
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        job.threads = given[i];
        assert_int_equal(plim__job_threads(&job), used[i]);
    }
}

static void counts_references(void **state)
{
    (void)state;
    const plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_account_info_t info = PLIM_ACCOUNT_INFO_INIT;
    plim_job_t *job;
    assert_ok(plim_job_create(&params, &job));
    plim_job_retain(job);
    plim_job_release(job);
    plim_job_info_t about = PLIM_JOB_INFO_INIT;
    assert_ok(plim_job_info(job, &about));
    assert_true(about.line == PLIM_LINE_NONE && about.reserved > 0);
    assert_true(about.peak >= about.reserved);
    assert_true(plim_job_account(job, 0, &info));
    assert_string_equal(info.name, "process");
    assert_false(plim_job_account(job, -1, &info));
    assert_false(plim_job_account(job, 1000, &info));
    plim_job_release(job);
    plim_job_release(NULL);
}

/* What a forked child gets of a job; 0 when it is as it should be. */
static int use_in_child(plim_job_t *job)
{
    plim_account_info_t info = PLIM_ACCOUNT_INFO_INIT;
    plim_job_info_t about = PLIM_JOB_INFO_INIT;
    plim__job_call_t call;
    if (plim__job_enter(job, &call) != PLIM_ERR_USAGE ||
        plim_job_info(job, &about) != PLIM_ERR_USAGE || plim_job_account(job, 0, &info))
        return 1;
    plim_job_retain(job);
    plim_job_stop(job, true);
    plim_job_release(job);
    plim_job_release(job);
    plim_job_t own; /* a child may make its own */
    if (test_job_try(PLIM_LINE_NONE, 1, PLIM_IO_AUTO, &own) != PLIM_OK)
        return 2;
    test_job_end(&own);
    return 0;
}

static void belongs_to_its_process(void **state)
{
    (void)state;
    const plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_job_t *job;
    int status;
    assert_ok(plim_job_create(&params, &job));
    const pid_t child = fork();
    if (child == 0)
        _exit(use_in_child(job));
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_ok(plim__job_check(job)); /* the child's stop is not the parent's */
    plim_job_release(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(calls_its_callbacks),
        cmocka_unit_test(may_be_silent),
        cmocka_unit_test(queues_what_library_threads_log),
        cmocka_unit_test(drops_the_oldest_lines_and_says_so),
        cmocka_unit_test(calls_back_one_at_a_time),
        cmocka_unit_test(lets_callbacks_call_in),
        cmocka_unit_test(does_not_wait_for_a_callback),
        cmocka_unit_test(does_not_deliver_for_others),
        cmocka_unit_test(stops_when_told),
        cmocka_unit_test(uses_as_many_threads_as_can_be_used),
        cmocka_unit_test(counts_references),
        cmocka_unit_test(belongs_to_its_process),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
