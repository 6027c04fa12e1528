/* evaluate and predict by several ranks: the scores and the files of one, sampled and exact,
 * whatever the memory; and one end for all. */
/* labels: asan */
#include "base/job.h"
#include "mem/arena.h"
#include "support/ranks.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TIMEOUT_SECONDS 60
#define MIB ((int64_t)1 << 20)

typedef struct call {
    const char *run;
    bool exact;
    int64_t available;  /* bytes of each rank's line that are free; 0: all */
    const char *out;    /* NULL: evaluates */
    plim_split_t split; /* of a prediction */
    plim_predict_kind_t kind;
    int stopped; /* rank that is stopped before it begins; -1: none */
    plim_status_t expected;
    double score[3], loss[3]; /* of rank 0 */
    int events;               /* of rank 0 */
} call_t;

static void listen(void *user, const plim_train_event_t *event)
{
    (void)event;
    ++*(int *)user;
}

static void body(const plim_job_t *given, int rank, int num_ranks, void *context)
{
    call_t *call = context;
    plim_job_t own = *given, *job = &own;
    plim_inference_t inference = PLIM_INFERENCE_INIT;
    plim_dataset_t *dataset;
    double score[3] = {-1, -1, -1}, loss[3] = {-1, -1, -1};
    char run[700], out[700];
    volatile int stop = rank == call->stopped;
    int account = 0, events = 0;
    (void)num_ranks;
    own.io_engine = PLIM_IO_THREADS; /* for ThreadSanitizer, as in test_ranks.c */
    own.stop = &stop;
    inference.exact = call->exact;
    test_training_path(call->run, run);
    rank_ok(plim_dataset_open(job, test_training_graph(), &dataset));
    const int64_t away =
        call->available > 0 ? plim__ledger_available(job->ledger) - call->available : 0;
    if (away > 0)
        rank_ok(plim__ledger_reserve(job->ledger, "away", (size_t)away, &account));
    const int64_t before = plim__ledger_reserved(job->ledger);
    plim_status_t status;
    if (call->out != NULL) {
        test_training_path(call->out, out);
        status = plim_predict(job, dataset, run, &inference, call->split, call->kind,
                              rank == 0 ? out : "", listen, &events);
    } else {
        status = plim_evaluate(job, dataset, run, &inference, 7, listen, &events, score, loss);
    }
    if (status != call->expected)
        (void)fprintf(stderr, "rank %d: %d %s\n", rank, status, plim_last_error());
    rank_assert(status == call->expected);
    rank_assert(plim__ledger_reserved(job->ledger) == before);
    rank_assert(rank == 0 || events == 0);
    if (rank == 0) {
        memcpy(call->score, score, sizeof score);
        memcpy(call->loss, loss, sizeof loss);
        call->events = events;
    }
    if (away > 0)
        plim__ledger_release(job->ledger, account, (size_t)away);
    plim_dataset_release(dataset);
}

static void run_ranks(int num_ranks, call_t *call)
{
    test_ranks_threads(num_ranks, TIMEOUT_SECONDS, NULL, body, call);
}

static call_t call_of(const char *run)
{
    return (call_t){.run = run, .stopped = -1};
}

/* Runs of one share and of several, of a graph and of drawn neighbourhoods; the last by time. */
static const char *const runs[] = {"one-share", "five-shares", "gat", "by-time"};

static int begin(void **state)
{
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    if (test_training_begin(state) != 0)
        return -1;
    for (int i = 0; i < 4; i++) {
        plim_training_t training = test_training_small();
        training.epochs = 2;
        training.shares = i == 1 ? 5 : 1;
        training.recipe.batch_size = 107; /* divides no split */
        if (i == 2)
            training.model.kind = PLIM_GAT;
        if (i == 3)
            training.temporal = PLIM_TEMPORAL_UNIFORM;
        assert_ok(test_train(runs[i], &training, &test_plain_way, &result));
    }
    return 0;
}

static void test_scores_of_one_rank(void **state)
{
    /* Stacks of the reader's threads are larger under a sanitizer. */
    static const int64_t unit = TEST_SANITIZED ? 64 * MIB : 12 * MIB;
    const int64_t available[] = {0, 2 * unit, unit};
    (void)state;
    for (int i = 0; i < 7; i++) {
        call_t alone = call_of(runs[i / 2]);
        alone.exact = i % 2 != 0;
        run_ranks(1, &alone);
        for (int num_ranks = 2; num_ranks <= 3; num_ranks++) {
            call_t call = call_of(runs[i / 2]);
            call.exact = alone.exact;
            call.available = call.exact ? available[(i / 2 + num_ranks) % 3] : 0;
            run_ranks(num_ranks, &call);
            assert_memory_equal(call.score, alone.score, sizeof call.score);
            assert_memory_equal(call.loss, alone.loss, sizeof call.loss);
            assert_true(isfinite(call.loss[0]) && isfinite(call.score[2]));
            assert_true(call.exact || call.events > 0);
        }
        for (int line = 1; alone.exact && line < 3; line++) {
            call_t call = call_of(runs[i / 2]);
            call.exact = true;
            call.available = available[line];
            run_ranks(1, &call);
            assert_memory_equal(call.loss, alone.loss, sizeof call.loss);
        }
    }
}

static void assert_same_file(const char *one, const char *other)
{
    static char bytes[2][1 << 22];
    const char *const names[] = {one, other};
    size_t sizes[2];
    for (int i = 0; i < 2; i++) {
        char path[700];
        test_training_path(names[i], path);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        sizes[i] = fread(bytes[i], 1, sizeof bytes[i], file);
        assert_int_equal(fclose(file), 0);
    }
    assert_true(sizes[0] > 0 && sizes[0] < sizeof bytes[0]);
    assert_int_equal(sizes[0], sizes[1]);
    assert_memory_equal(bytes[0], bytes[1], sizes[0]);
}

static void test_files_of_one_rank(void **state)
{
    static const struct {
        bool exact;
        plim_split_t split;
        plim_predict_kind_t kind;
        const char *ending;
    } ways[] = {{true, PLIM_ALL_NODES, PLIM_PREDICT_LOGITS, "npy"},
                {true, PLIM_TEST, PLIM_PREDICT_CLASSES, "csv"},
                {true, PLIM_VALID, PLIM_PREDICT_EMBEDDINGS, "npy"},
                {false, PLIM_TEST, PLIM_PREDICT_LOGITS, "npy"},
                {false, PLIM_TRAIN, PLIM_PREDICT_PROBABILITIES, "csv"},
                {false, PLIM_TRAIN, PLIM_PREDICT_EMBEDDINGS, "npy"},
                {false, PLIM_TEST, PLIM_PREDICT_LOGITS, "npy"}};
    (void)state;
    for (size_t i = 0; i < sizeof ways / sizeof ways[0]; i++) {
        char names[4][32];
        for (int num_ranks = 1; num_ranks <= 3; num_ranks++) {
            (void)snprintf(names[num_ranks], sizeof names[0], "out-%zu-%d.%s", i, num_ranks,
                           ways[i].ending);
            call_t call = call_of(i < 6 ? runs[i % 3] : "by-time");
            call.exact = ways[i].exact;
            call.split = ways[i].split;
            call.kind = ways[i].kind;
            call.out = names[num_ranks];
            run_ranks(num_ranks, &call);
            assert_same_file(names[1], names[num_ranks]);
        }
    }
}

/* Whatever goes wrong on one rank ends all, and leaves no file. */
static void test_an_error_of_one_is_that_of_all(void **state)
{
    char path[700];
    struct stat about;
    (void)state;
    for (int i = 0; i < 8; i++) {
        call_t call = call_of(runs[0]);
        call.exact = (i & 1) != 0;
        call.out = (i & 2) != 0 ? "stopped.npy" : NULL;
        call.split = PLIM_TEST;
        call.stopped = i / 4;
        call.expected = PLIM_ERR_STOPPED;
        run_ranks(2, &call);
    }
    test_training_path("stopped.npy", path);
    assert_int_not_equal(stat(path, &about), 0);
    call_t call = call_of(runs[0]);
    call.out = "no-ending"; /* rank 0 alone sees it */
    call.expected = PLIM_ERR_USAGE;
    run_ranks(3, &call);
    call = call_of("no-such-run");
    call.expected = PLIM_ERR_USAGE;
    run_ranks(3, &call);
    call = call_of("by-time");
    call.exact = true;
    call.expected = PLIM_ERR_USAGE;
    run_ranks(2, &call);
    for (int exact = 0; exact < 2; exact++) {
        call = call_of(runs[0]);
        call.exact = exact != 0;
        call.available = 1 << 18;
        call.expected = PLIM_ERR_BUDGET;
        run_ranks(2, &call);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scores_of_one_rank),
        cmocka_unit_test(test_files_of_one_rank),
        cmocka_unit_test(test_an_error_of_one_is_that_of_all),
    };
    return cmocka_run_group_tests(tests, begin, test_training_end);
}
