/* A job speaks through its callbacks, one at a time, and stops when its flag is up. */
#include "support/harness.h"

#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"

#include <stdio.h>
#include <string.h>

typedef struct heard {
    char last[PLIM_MESSAGE_MAX];
    plim_log_level_t level;
    plim_progress_t progress;
    int messages; /* not atomic: the job promises one speaker at a time */
} heard_t;

static void hear(void *user, plim_log_level_t level, const char *message)
{
    heard_t *heard = user;
    heard->level = level;
    heard->messages++;
    (void)snprintf(heard->last, sizeof heard->last, "%s", message);
}

static void see(void *user, const plim_progress_t *progress)
{
    ((heard_t *)user)->progress = *progress;
    ((heard_t *)user)->messages++;
}

static void speaks_through_its_callbacks(void **state)
{
    (void)state;
    static heard_t heard;
    char large[4096];
    plim_job_t job = PLIM_JOB_INIT;
    job.log = hear;
    job.progress = see;
    job.user = &heard;
    plim__log(&job, PLIM_LOG_WARNING, "%d nodes", 7);
    assert_string_equal(heard.last, "7 nodes");
    assert_int_equal(heard.level, PLIM_LOG_WARNING);
    plim__progress(&job, "reading", "rows", 3, 10);
    assert_string_equal(heard.progress.phase, "reading");
    assert_string_equal(heard.progress.unit, "rows");
    assert_int_equal(heard.progress.done, 3);
    assert_int_equal(heard.progress.total, 10);
    memset(large, 'x', sizeof large - 1);
    large[sizeof large - 1] = '\0';
    plim__log(&job, PLIM_LOG_INFO, "%s", large);
    assert_int_equal(strlen(heard.last), PLIM_MESSAGE_MAX - 1);
}

static void may_be_silent(void **state)
{
    (void)state;
    plim_job_t job = PLIM_JOB_INIT;
    plim__log(&job, PLIM_LOG_INFO, "nobody hears this");
    plim__progress(&job, "reading", "rows", 3, 10);
    assert_ok(plim__job_check(&job));
}

static plim_status_t chatter(void *context, int worker)
{
    for (int i = 0; i < 1000; i++) {
        plim__log(context, PLIM_LOG_INFO, "%d", worker);
        plim__progress(context, "talking", "words", i, 1000);
    }
    return PLIM_OK;
}

static void lets_one_speak_at_a_time(void **state)
{
    (void)state;
    static heard_t heard;
    plim_job_t job = PLIM_JOB_INIT;
    job.log = hear;
    job.progress = see;
    job.user = &heard;
    heard.messages = 0;
    assert_ok(plim__parallel(4, chatter, &job));
    assert_int_equal(heard.messages, 8000);
}

static void stops_when_told(void **state)
{
    (void)state;
    volatile int stop = 0;
    plim_job_t job = PLIM_JOB_INIT;
    job.stop = &stop;
    assert_ok(plim__job_check(&job));
    stop = 1;
    assert_int_equal(plim__job_check(&job), PLIM_ERR_STOPPED);
    assert_non_null(strstr(plim_last_error(), "stopped"));
}

static void uses_as_many_threads_as_can_be_used(void **state)
{
    (void)state;
    static const int given[] = {-1, 0, 1, 2, PLIM__THREADS_MAX, PLIM__THREADS_MAX + 1, 1024};
    static const int used[] = {1, 1, 1, 2, PLIM__THREADS_MAX, PLIM__THREADS_MAX, PLIM__THREADS_MAX};
    plim_job_t job = PLIM_JOB_INIT;
    for (size_t i = 0; i < sizeof given / sizeof given[0]; i++) {
        job.threads = given[i];
        assert_int_equal(plim__job_threads(&job), used[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(speaks_through_its_callbacks),
        cmocka_unit_test(may_be_silent),
        cmocka_unit_test(lets_one_speak_at_a_time),
        cmocka_unit_test(stops_when_told),
        cmocka_unit_test(uses_as_many_threads_as_can_be_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
