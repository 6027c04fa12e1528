/* Training over several ranks: the bits of one rank with the same shares, whatever the number of
 * ranks, and one end for all. */
#include "base/rng.h"
#include "nn/score.h"
#include "peers/share_tree.h"
#include "support/dataset.h"
#include "support/ranks.h"
#include "support/training.h"
#include "support/wrapped.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT_SECONDS 60

/* ThreadSanitizer allows no threads in a forked child. */
#if defined(__SANITIZE_THREAD__)
#define HAS_PROCESSES 0
#else
#define HAS_PROCESSES 1
#endif

/* A training by ranks. Fields of one rank are those of `other`, if it has the number. */
typedef struct call {
    const char *name; /* of the run */
    plim_training_t training;
    const plim_training_t *training_other; /* of rank `other`; NULL: the same */
    const char *dataset;                   /* NULL: the generated graph */
    const char *dataset_other;             /* of rank `other`; NULL: the same */
    bool resume;
    plim_status_t expected;
    plim_status_t expected_plan;
    const char *named; /* by the error of the plan on all ranks */
    plim_plan_params_t wanted;
    int other;
    plim_plan_params_t wanted_other;
    int stop_at;    /* step after which rank `other` is stopped; 0: never */
    int squeeze_at; /* batch at which rank `other` has too little memory; 0: never */
    bool limited;   /* rank `other` has a lower instruction set */
    plim_job_t *jobs[TEST_RANKS_MAX];
    int steps, events[TEST_RANKS_MAX];
} call_t;

static call_t call_of(const char *name)
{
    const plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    call_t call = {.name = name,
                   .training = test_training_small(),
                   .wanted = params,
                   .other = -1,
                   .wanted_other = params};
    call.training.shares = 5;
    call.training.accumulation = 2;
    return call;
}

typedef struct listener {
    call_t *call;
    int rank;
} listener_t;

static void listen(void *user, const plim_train_event_t *event)
{
    const listener_t *listener = user;
    call_t *call = listener->call;
    call->events[listener->rank]++;
    if (event->kind == PLIM_EVENT_STEP && ++call->steps == call->stop_at)
        plim_job_stop(call->jobs[call->other], true);
}

static void body(const plim_job_t *given, int rank, int num_ranks, void *context)
{
    call_t *call = context;
    /* Threads that map and unmap rings at one address look like a race to ThreadSanitizer. */
    plim_job_t own = *given, *job = &own;
    own.io_engine = PLIM_IO_THREADS;
    listener_t listener = {call, rank};
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    char path[700];
    (void)num_ranks;
    test_training_path(call->name, path);
    call->jobs[rank] = job;
    if (rank == call->other)
        test_squeeze_at(call->squeeze_at);
    if (rank == call->other && call->limited)
        rank_assert(setenv("ONEDNN_MAX_CPU_ISA", "SSE41", 1) == 0);
    const bool other = rank == call->other;
    const plim_training_t *training =
        other && call->training_other != NULL ? call->training_other : &call->training;
    const char *given_path = call->dataset != NULL ? call->dataset : test_training_graph();
    rank_ok(plim_dataset_open(
        job, other && call->dataset_other != NULL ? call->dataset_other : given_path, &dataset));
    plim_status_t status =
        plim_train_plan(job, dataset, training, other ? &call->wanted_other : &call->wanted, &plan);
    rank_assert(status == call->expected_plan);
    rank_assert(call->named == NULL || strstr(plim_last_error(), call->named) != NULL);
    if (status == PLIM_OK) {
        status = (call->resume ? plim_train_resume : plim_train)(
            job, dataset, &call->training, plan, rank == 0 ? path : "", listen, &listener, &result);
        rank_assert(status == call->expected);
        rank_assert(status != PLIM_OK || result.epochs == call->training.epochs);
        plim_plan_release(plan);
    }
    plim_dataset_release(dataset);
    rank_assert(rank == 0 || call->events[rank] == 0);
}

static void run_threads(int num_ranks, call_t *call)
{
    test_ranks_threads(num_ranks, TIMEOUT_SECONDS, NULL, body, call);
}

static void run_processes(int num_ranks, call_t *call)
{
    int codes[TEST_RANKS_MAX];
    if (!HAS_PROCESSES) {
        run_threads(num_ranks, call);
        return;
    }
    test_ranks_processes(num_ranks, TIMEOUT_SECONDS, NULL, body, call, codes);
    for (int i = 0; i < num_ranks; i++)
        assert_int_equal(codes[i], 0);
}

/* The same training on one rank. */
static void run_alone(const char *name, const call_t *like)
{
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    test_way_t way = test_plain_way;
    way.dataset = like->dataset;
    way.wanted = like->other >= 0 ? like->wanted_other : like->wanted;
    assert_ok(test_train(name, &like->training, &way, &result));
}

/* First of all: oneDNN reads the environment when it is loaded. */
static void test_other_arithmetic_is_refused(void **state)
{
    call_t call = call_of("mixed");
    (void)state;
    call.other = 1;
    call.limited = true;
    call.expected = PLIM_ERR_UNSUPPORTED;
#if defined(__x86_64__)
    if (HAS_PROCESSES && __builtin_cpu_supports("avx2"))
        run_processes(2, &call);
#endif
}

static void test_any_number_of_ranks_gives_the_same_bits(void **state)
{
    static const char *const names[] = {"two", "three", "five"};
    static const int ranks[] = {2, 3, 5};
    call_t call = call_of("alone");
    (void)state;
    run_alone("alone", &call);
    for (int i = 0; i < 3; i++) {
        call.name = names[i];
        (i == 1 ? run_threads : run_processes)(ranks[i], &call);
        test_assert_same_run("alone", names[i]);
    }
}

/* Models that read what edges carry: sampled, and GCN and GATv2 exactly too. */
static void test_columns_of_edges(void **state)
{
    (void)state;
    static const test_graph_t graph = {.num_nodes = 3000,
                                       .num_features = 7,
                                       .num_classes = 5,
                                       .columns =
                                           PLIM_EDGE_FEATURES | PLIM_EDGE_WEIGHT | PLIM_EDGE_TYPE,
                                       .edge_width = 3,
                                       .drawable = true,
                                       .seed = 8};
    static const plim_model_kind_t kinds[] = {PLIM_GCN, PLIM_GATV2, PLIM_GINE, PLIM_RGCN};
    char path[700];
    plim_job_t job = test_job_make((int64_t)256 << 20, 1, PLIM_IO_THREADS);
    test_training_path("columns-of-edges", path);
    assert_ok(test_dataset_make(&job, path, &graph));
    test_job_end(&job);
    for (int i = 0; i < 4; i++) {
        char alone[32], together[32];
        (void)snprintf(alone, sizeof alone, "edges-alone-%d", i);
        (void)snprintf(together, sizeof together, "edges-together-%d", i);
        call_t call = call_of(together);
        call.dataset = path;
        call.training.epochs = 2;
        call.training.model.kind = kinds[i];
        call.training.model.norm = PLIM_NORM_LAYER;
        call.training.edge_weight = kinds[i] == PLIM_GCN;
        call.training.edge_features = kinds[i] == PLIM_GATV2;
        call.training.eval_exact = i < 2;
        run_alone(alone, &call);
        run_processes(2 + i % 2, &call);
        test_assert_same_run(alone, together);
    }
}

/* Draws by time, of batches in memory and on disk: a seed's tree has the same number on any rank.
 */
static void test_draws_by_time(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char alone[32], together[32];
        (void)snprintf(alone, sizeof alone, "times-alone-%d", i);
        (void)snprintf(together, sizeof together, "times-together-%d", i);
        call_t call = call_of(together);
        call.training.epochs = 2;
        call.training.temporal = i == 0 ? PLIM_TEMPORAL_UNIFORM : PLIM_TEMPORAL_LAST;
        if (i == 1) {
            call.wanted.topology = call.wanted.rows = PLIM_PLACE_DISK;
            call.wanted.row_cache = -1;
        }
        run_alone(alone, &call);
        run_processes(2 + i, &call);
        test_assert_same_run(alone, together);
    }
}

static void test_other_settings(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        char alone[32], together[32];
        (void)snprintf(alone, sizeof alone, "alone-%d", i);
        (void)snprintf(together, sizeof together, "together-%d", i);
        call_t call = call_of(together);
        call.training.epochs = 2;
        if (i == 0)
            call.training.model.kind = PLIM_GAT;
        if (i == 1)
            call.training.eval_exact = true;
        if (i == 2)
            call.training.shares = 150; /* more than a batch has seeds */
        if (i == 3) {
            call.wanted.topology = call.wanted.rows = PLIM_PLACE_DISK;
            call.wanted.row_cache = -1;
            call.wanted.window = 3;
        }
        run_alone(alone, &call);
        run_processes(2 + i % 2, &call);
        test_assert_same_run(alone, together);
    }
}

static void test_a_run_continues_with_any_number_of_ranks(void **state)
{
    static const int ranks[] = {2, 1, 3, 2};
    call_t call = call_of("whole");
    (void)state;
    run_alone("whole", &call);
    call.name = "chain";
    for (int i = 0; i < 4; i++) {
        call.training.epochs = i + 1;
        run_threads(ranks[i], &call);
        call.resume = true;
    }
    test_assert_same_run("whole", "chain");
}

/* A rank whose memory becomes short plans again, in a step or in an evaluation. */
static void test_one_rank_plans_again(void **state)
{
    static const int at[] = {1, 2, 7, 26, 60};
    call_t call = call_of("calm");
    (void)state;
    if (!HAS_PROCESSES)
        skip();
    run_alone("calm", &call);
    for (int i = 0; i < 5; i++) {
        char name[32];
        (void)snprintf(name, sizeof name, "squeezed-%d", i);
        call = call_of(name);
        call.other = i % 3;
        call.squeeze_at = at[i];
        run_processes(3, &call);
        test_assert_same_run("calm", name);
    }
}

static void test_a_training_diverges_on_all_ranks(void **state)
{
    call_t call = call_of("diverges");
    (void)state;
    call.training.optimiser.rate = 1e30;
    call.expected = PLIM_ERR_DIVERGED;
    run_processes(3, &call);
}

/* First weights are those that rank 0 reads. */
static void test_first_weights_come_from_rank_0(void **state)
{
    char path[700];
    call_t call = call_of("weights");
    (void)state;
    run_alone("weights", &call);
    test_training_path("weights", path);
    (void)strcat(path, "/last.safetensors");
    call.training.recipe.seed = 9;
    call.training.init = path;
    run_alone("begun", &call);
    call.name = "begun-by-two";
    run_processes(2, &call);
    test_assert_same_run("begun", "begun-by-two");
}

static void test_a_stop_of_one_rank_stops_all(void **state)
{
    call_t call = call_of("undisturbed");
    (void)state;
    run_alone("undisturbed", &call);
    for (int other = 0; other < 2; other++) {
        call = call_of(other == 0 ? "stopped-0" : "stopped-1");
        call.other = other;
        call.stop_at = 27;
        call.expected = PLIM_ERR_STOPPED;
        run_threads(3, &call);
        assert_true(call.steps >= 27 && call.steps <= 29);
        call.stop_at = 0;
        call.expected = PLIM_OK;
        call.resume = true;
        run_threads(2, &call);
        test_assert_same_run("undisturbed", call.name);
    }
}

/* Where one rank must cut batches, all cut them as small. */
static void test_all_ranks_take_the_smallest_cut(void **state)
{
    call_t call = call_of("cut");
    (void)state;
    call.other = 1;
    call.wanted_other.part_seeds = 7;
    run_alone("cut-alone", &call);
    run_threads(3, &call);
    test_assert_same_run("cut-alone", "cut");
}

static void test_all_are_refused_if_one_does_not_fit(void **state)
{
    call_t call = call_of("refused");
    char path[700];
    (void)state;
    call.other = 1;
    call.wanted_other.memory = 1 << 20;
    call.expected_plan = PLIM_ERR_BUDGET;
    run_threads(2, &call);
    call = call_of("refused");
    call.training.shares = 2;
    call.expected_plan = PLIM_ERR_USAGE; /* fewer shares than ranks */
    run_threads(3, &call);
    call.expected_plan = PLIM_OK;
    call.name = "cut"; /* holds a run */
    call.expected = PLIM_ERR_USAGE;
    run_threads(2, &call);
    test_training_path("refused", path);
    assert_int_not_equal(access(path, F_OK), 0);
}

/* Ranks that were started with different words do not train; the error names rank and option. */
static void test_other_words_are_refused(void **state)
{
    static const char *const named[] = {"rank 2: `rate` is 0.5,", "rank 2: `fanout` is [1, 2],",
                                        "rank 2: `checkpoint_steps` is 3,",
                                        "rank 2: the dataset's fingerprint is "};
    char path[700], graph[700];
    plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    (void)state;
    test_training_path("another-graph", graph);
    options.shape = "free";
    options.target = graph;
    options.num_nodes = 500;
    options.num_edges = 2000;
    options.num_features = 4;
    options.num_classes = 3;
    assert_ok(plim_generate(&job, &options));
    test_job_end(&job);
    test_training_path("another", path);
    for (int i = 0; i < 4; i++) {
        call_t call = call_of("another");
        plim_training_t other = call.training;
        if (i == 0)
            other.optimiser.rate = 0.5;
        if (i == 1)
            other.recipe.fanout[0] = 1, other.recipe.fanout[1] = 2;
        if (i == 2)
            other.checkpoint_steps = 3;
        if (i == 3)
            call.dataset_other = graph;
        call.other = 2;
        call.training_other = &other;
        call.expected_plan = PLIM_ERR_USAGE;
        call.named = named[i];
        run_threads(4, &call);
        assert_int_not_equal(access(path, F_OK), 0);
    }
}

/* Rank 0 saves the run when another rank dies, whatever they are doing, and it can continue. */
static void test_a_rank_dies(void **state)
{
    static const int64_t at[] = {9, 20, 31, 60, 90};
    call_t alone = call_of("alive");
    (void)state;
    if (!HAS_PROCESSES)
        skip();
    run_alone("alive", &alone);
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        char name[32], path[700];
        (void)snprintf(name, sizeof name, "dies-%zu", i);
        call_t call = call_of(name);
        const test_fault_t fault = {
            .kind = TEST_DIES, .rank = (int)(i % 2), .at = at[i], .exit_code = 9};
        int codes[2];
        call.expected = PLIM_ERR_IO;
        test_ranks_processes(2, TIMEOUT_SECONDS, &fault, body, &call, codes);
        assert_int_equal(codes[fault.rank], 9);
        assert_int_equal(codes[1 - fault.rank], 0);
        call.expected = PLIM_OK;
        test_training_path(name, path);
        (void)strcat(path, "/run.json");
        call.resume = access(path, F_OK) == 0;
        run_processes(2, &call);
        test_assert_same_run("alive", name);
    }
}

enum { ROWS = 300, COLUMNS = 3, SHARES = 7 };

/* Values of ROC-AUC, of which every rank adds its own shares of the rows. */
typedef struct values {
    float outputs[ROWS][COLUMNS], labels[ROWS][COLUMNS];
    double score, loss;
} values_t;

static void score_body(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    const values_t *values = context;
    const plim__share_range_t range = plim__share_range(SHARES, rank, num_ranks);
    plim__peers_t *peers;
    plim__team_t *team;
    plim__score_t *score;
    rank_ok(plim__peers_open(job, &peers));
    rank_ok(plim__team_create(job->ledger, 1, &team));
    rank_ok(plim__score_create(job->ledger, PLIM_METRIC_ROC_AUC, PLIM_LOSS_BCE, ROWS, COLUMNS,
                               SHARES, &score));
    for (int64_t share = range.begin; share < range.end; share++) {
        const int64_t first = ROWS * share / SHARES, end = ROWS * (share + 1) / SHARES;
        plim__score_share(score, share);
        plim__score_add(score, team, end - first, COLUMNS, values->outputs[first],
                        values->labels[first]);
    }
    rank_ok(plim__score_gather(score, peers));
    const double value = plim__score_value(score), loss = plim__score_loss(score);
    rank_assert(num_ranks == 1 || (value == values->score && loss == values->loss));
    if (num_ranks == 1) {
        ((values_t *)context)->score = value;
        ((values_t *)context)->loss = loss;
    }
    plim__score_destroy(score);
    plim__team_destroy(team);
    plim__peers_close(peers);
}

static void test_scores_of_all_ranks_are_gathered(void **state)
{
    static values_t values;
    (void)state;
    for (int row = 0; row < ROWS; row++)
        for (int column = 0; column < COLUMNS; column++) {
            const uint64_t drawn = plim__rng_u64(5, (uint64_t)(row * COLUMNS + column));
            values.outputs[row][column] = (float)(drawn % 97) / 30.0f;
            values.labels[row][column] = drawn / 97 % 5 == 0 ? NAN : (float)(drawn / 1009 % 2);
        }
    for (int num_ranks = 1; num_ranks <= 5; num_ranks++)
        test_ranks_threads(num_ranks, TIMEOUT_SECONDS, NULL, score_body, &values);
    assert_true(values.score > 0.3 && values.score < 0.7 && values.loss > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_other_arithmetic_is_refused),
        cmocka_unit_test(test_any_number_of_ranks_gives_the_same_bits),
        cmocka_unit_test(test_other_settings),
        cmocka_unit_test(test_columns_of_edges),
        cmocka_unit_test(test_draws_by_time),
        cmocka_unit_test(test_a_run_continues_with_any_number_of_ranks),
        cmocka_unit_test(test_one_rank_plans_again),
        cmocka_unit_test(test_a_training_diverges_on_all_ranks),
        cmocka_unit_test(test_first_weights_come_from_rank_0),
        cmocka_unit_test(test_a_stop_of_one_rank_stops_all),
        cmocka_unit_test(test_all_ranks_take_the_smallest_cut),
        cmocka_unit_test(test_all_are_refused_if_one_does_not_fit),
        cmocka_unit_test(test_other_words_are_refused),
        cmocka_unit_test(test_a_rank_dies),
        cmocka_unit_test(test_scores_of_all_ranks_are_gathered),
    };
    return cmocka_run_group_tests(tests, test_training_begin, test_training_end);
}
