/*
 * What others refuse while a model is trained: oneDNN a product, the system a thread. This program
 * defines pthread_create, so the linker prefers it to the library's, and stands between dlsym and
 * its callers (--wrap) to give a function of its own for oneDNN's; each passes through unless it is
 * told to refuse.
 */
/* labels: asan */
#include "support/training.h"

#include "nn/team.h"

#include <dlfcn.h>
#include <dnnl.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_int refuse_product_in; /* the n-th product from now on; 0: none */
static atomic_bool refuse_threads;

static __typeof__(dnnl_primitive_execute) *execute; /* oneDNN's */

static dnnl_status_t execute_or_refuse(const_dnnl_primitive_t primitive, dnnl_stream_t stream,
                                       int count, const dnnl_exec_arg_t *arguments)
{
    if (atomic_load(&refuse_product_in) > 0 && atomic_fetch_sub(&refuse_product_in, 1) == 1)
        return dnnl_out_of_memory;
    return execute(primitive, stream, count, arguments);
}

// NOLINTBEGIN(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp): the linker's names
void *__real_dlsym(void *library, const char *name);
void *__wrap_dlsym(void *library, const char *name);

void *__wrap_dlsym(void *library, const char *name)
{
    void *found = __real_dlsym(library, name);
    if (found == NULL || strcmp(name, "dnnl_primitive_execute") != 0)
        return found;
    *(void **)&execute = found;
    __typeof__(execute) own = execute_or_refuse;
    return *(void **)&own;
}
// NOLINTEND(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp)

/* A sanitizer has a pthread_create of its own. */
#if !TEST_SANITIZED
int pthread_create(pthread_t *thread, const pthread_attr_t *attributes, void *(*body)(void *),
                   void *argument)
{
    int (*real)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
    if (refuse_threads)
        return EAGAIN;
    *(void **)&real = dlsym(RTLD_NEXT, "pthread_create");
    return real(thread, attributes, body, argument);
}
#endif

static bool exists(const char *name)
{
    char path[700];
    test_training_path(name, path);
    return access(path, F_OK) == 0;
}

/* A failed product ends the run, whichever product it is, and nothing of it reaches a checkpoint:
 * the run that continues afterwards ends as an undisturbed one. Before the first step is made there
 * is no run to continue. */
static void test_a_failed_product_ends_the_run(void **state)
{
    static const int places[] = {1, 4, 25, 111, 300, 701};
    static const plim_norm_t norms[] = {PLIM_NORM_NONE, PLIM_NORM_BATCH};
    (void)state;
    for (size_t n = 0; n < sizeof norms / sizeof norms[0]; n++) {
        plim_training_t training = test_training_small();
        plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
        char whole[32], name[32];
        training.model.norm = norms[n];
        training.epochs = 3;
        (void)snprintf(whole, sizeof whole, "whole-%zu", n);
        assert_ok(test_train(whole, &training, &test_plain_way, &result));
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            test_way_t way = test_plain_way;
            (void)snprintf(name, sizeof name, "refused-%zu-%zu", n, i);
            refuse_product_in = places[i];
            assert_int_equal(test_train(name, &training, &way, &result), PLIM_ERR_NOMEM);
            assert_int_equal(refuse_product_in, 0);
            assert_non_null(strstr(plim_last_error(), "oneDNN"));
            way.resume = exists(name);
            assert_true(way.resume == (i >= 3)); /* the first three are before the end of step 1 */
            assert_ok(test_train(name, &training, &way, &result));
            test_assert_same_run(whole, name);
        }
    }
}

/* Puts a directory where the checkpoints go, so that none can be saved. */
static void block_checkpoints(void *user, const plim_train_event_t *event)
{
    if (event->kind == PLIM_EVENT_STEP && event->epoch == 1 && event->step == 1) {
        (void)unlink(user);
        assert_int_equal(mkdir(user, 0700), 0);
    }
}

/* A run whose weights were updated stays with all its files, even if no step of it was saved, and
 * resumes from its first weights, drawn or given. */
static void test_a_run_without_a_saved_step_stays(void **state)
{
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    char path[800], init[700];
    (void)state;
    test_training_path("whole-drawn/best.safetensors", init);
    for (int given = 0; given < 2; given++) {
        plim_training_t training = test_training_small();
        test_way_t way = test_plain_way;
        char last[700];
        const char *whole = given ? "whole-given" : "whole-drawn";
        const char *name = given ? "blocked-given" : "blocked-drawn";
        const char *const files[] = {"run.json", "best.safetensors", "metrics.jsonl",
                                     "timeline.jsonl"};
        training.init = given ? init : NULL;
        assert_ok(test_train(whole, &training, &way, &result));
        (void)snprintf(path, sizeof path, "%s/last.safetensors", name);
        test_training_path(path, last);
        way.events = block_checkpoints;
        way.user = last;
        assert_int_equal(test_train(name, &training, &way, &result), PLIM_ERR_IO);
        for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
            (void)snprintf(path, sizeof path, "%s/%s", name, files[i]);
            assert_true(exists(path));
        }
        assert_int_equal(rmdir(last), 0);
        way = test_plain_way;
        way.resume = true;
        assert_ok(test_train(name, &training, &way, &result));
        test_assert_same_run(whole, name);
    }
}

static void keep_message(void *user, plim_log_level_t level, const char *message)
{
    char *kept = user;
    if (level == PLIM_LOG_WARNING)
        (void)snprintf(kept, 256, "%s", message);
}

static void add_piece(void *context, int worker, int64_t piece)
{
    (void)worker;
    atomic_fetch_add((atomic_llong *)context, piece);
}

static void test_a_smaller_team_says_so(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 3, PLIM_IO_AUTO);
    const int64_t before = plim__ledger_reserved(job.ledger);
    plim__team_t *team;
    char logged[256] = "";
    atomic_llong sum = 0;
    (void)state;
    if (TEST_SANITIZED) {
        test_job_end(&job);
        print_message("SKIPPED: a sanitizer starts threads itself\n");
        skip();
    }
    job.log = keep_message;
    job.user = logged;
    refuse_threads = true;
    assert_ok(plim__team_create_for(&job, 3, &team));
    refuse_threads = false;
    plim__job_deliver(&job);
    assert_int_equal(plim__team_size(team), 1);
    assert_non_null(strstr(logged, "1 of 3 threads"));
    assert_non_null(strstr(logged, "ulimit -u"));
    assert_true(plim__ledger_reserved(job.ledger) - before < (int64_t)plim__team_estimate(2));
    plim__team_run(team, 100, 1000000, add_piece, &sum);
    assert_int_equal(sum, 4950);
    plim__team_destroy(team);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_failed_product_ends_the_run),
        cmocka_unit_test(test_a_run_without_a_saved_step_stays),
        cmocka_unit_test(test_a_smaller_team_says_so),
    };
    return cmocka_run_group_tests(tests, test_training_begin, test_training_end);
}
