/* Training: it learns, and nothing but its settings decides what it learns. */
#include "load/plan_data.h"
#include "plan/train_plan.h"
#include "support/training.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct losses {
    double of[64];
    double valid[64];
    int count;
} losses_t;

static void note_losses(void *user, const plim_train_event_t *event)
{
    losses_t *losses = user;
    if (event->kind != PLIM_EVENT_EPOCH)
        return;
    losses->of[losses->count] = event->loss;
    losses->valid[losses->count++] = event->score[PLIM_VALID];
}

static void test_it_learns(void **state)
{
    static const plim_model_kind_t kinds[] = {PLIM_MLP, PLIM_GCN, PLIM_SAGE, PLIM_GAT, PLIM_GIN};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        plim_training_t training = test_training_small();
        plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
        losses_t losses = {.count = 0};
        char name[32];
        test_way_t way = test_plain_way;
        way.events = note_losses;
        way.user = &losses;
        (void)snprintf(name, sizeof name, "learns-%d", (int)kinds[i]);
        training.model.kind = kinds[i];
        training.recipe.num_hops = kinds[i] == PLIM_MLP ? 0 : 2;
        training.model.dropout = 0;
        training.epochs = 6;
        assert_ok(test_train(name, &training, &way, &result));
        assert_int_equal(losses.count, 6);
        assert_true(losses.of[5] < 0.9 * losses.of[0]);
        assert_true(result.score[PLIM_VALID] > 0.4); /* a fifth would be a guess */
        assert_true(result.score[PLIM_TRAIN] > 0.4);
        assert_int_equal(result.epochs, 6);
        assert_true(result.best_epoch >= 1);
        assert_true(result.score[PLIM_VALID] == losses.valid[result.best_epoch - 1]);
    }
}

static void test_threads_and_memory_change_nothing(void **state)
{
    const plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    test_way_t way = test_plain_way;
    (void)state;
    assert_ok(test_train("two", &training, &way, &result));
    way.threads = 1;
    assert_ok(test_train("one", &training, &way, &result));
    test_assert_same_run("two", "one");
    way.wanted = (plim_plan_params_t){
        .topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK, .row_cache = -1, .window = 3};
    assert_ok(test_train("disk", &training, &way, &result));
    test_assert_same_run("two", "disk");
}

static void test_less_memory_keeps_the_result(void **state)
{
    plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    losses_t whole = {.count = 0}, parts = {.count = 0};
    test_way_t way = test_plain_way;
    (void)state;
    way.events = note_losses;
    way.user = &whole;
    assert_ok(test_train("whole", &training, &way, &result));
    training.model.recompute = true;
    way.events = NULL;
    assert_ok(test_train("recompute", &training, &way, &result));
    test_assert_same_run("whole", "recompute");
    training.model.recompute = false;
    training.microbatch = 30;
    way.events = note_losses;
    way.user = &parts;
    assert_ok(test_train("parts", &training, &way, &result));
    for (int i = 0; i < whole.count; i++)
        assert_true(fabs(whole.of[i] - parts.of[i]) <= 1e-6 * whole.of[i]);
}

/* Raises the flag at the n-th event of a kind. */
typedef struct stopper {
    plim_train_event_kind_t kind;
    int count;
    volatile int flag;
} stopper_t;

static void stop_at(void *user, const plim_train_event_t *event)
{
    stopper_t *stopper = user;
    if (event->kind == stopper->kind && --stopper->count == 0)
        stopper->flag = 1;
}

static void test_stopped_and_resumed_it_ends_the_same(void **state)
{
    static const stopper_t stops[] = {{PLIM_EVENT_STEP, 1, 0},
                                      {PLIM_EVENT_STEP, 13, 0},
                                      {PLIM_EVENT_STEP, 30, 0},
                                      {PLIM_EVENT_EVAL, 3, 0},
                                      {PLIM_EVENT_EPOCH, 2, 0}};
    plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT, stopped = result;
    (void)state;
    training.patience = 3;
    assert_ok(test_train("undisturbed", &training, &test_plain_way, &result));
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        stopper_t stopper = stops[i];
        test_way_t way = test_plain_way;
        char name[32];
        (void)snprintf(name, sizeof name, "stopped-%zu", i);
        way.events = stop_at;
        way.user = &stopper;
        way.stop = &stopper.flag;
        assert_int_equal(test_train(name, &training, &way, &stopped), PLIM_ERR_STOPPED);
        assert_non_null(strstr(plim_last_error(), "saved in"));
        way = test_plain_way;
        way.resume = true;
        way.threads = 1;
        assert_ok(test_train(name, &training, &way, &stopped));
        test_assert_same_run("undisturbed", name);
        assert_int_equal(stopped.best_epoch, result.best_epoch);
        assert_true(stopped.loss == result.loss);
    }
}

static void test_a_run_goes_on_in_stages(void **state)
{
    plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    test_way_t way = test_plain_way;
    (void)state;
    training.eval_every = 2;
    training.epochs = 5;
    assert_ok(test_train("straight", &training, &test_plain_way, &result));
    training.epochs = 2;
    assert_ok(test_train("stages", &training, &test_plain_way, &result));
    assert_int_equal(result.epochs, 2);
    way.resume = true;
    training.epochs = 5;
    assert_ok(test_train("stages", &training, &way, &result));
    assert_int_equal(result.epochs, 5);
    test_assert_same_run("straight", "stages");
}

static void test_patience_ends_it(void **state)
{
    plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    losses_t losses = {.count = 0};
    test_way_t way = test_plain_way;
    (void)state;
    training.optimiser.rate = 0; /* nothing ever gets better */
    training.epochs = 20;
    training.patience = 2;
    way.events = note_losses;
    way.user = &losses;
    assert_ok(test_train("patient", &training, &way, &result));
    assert_true(result.early);
    assert_int_equal(result.best_epoch, 1);
    assert_int_equal(result.epochs, 3);
    assert_int_equal(losses.count, 3);
}

static void test_what_makes_no_sense_is_refused(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_dataset_t *dataset;
    plim__train_plan_t plan;
    plim_training_t wrong[20];
    (void)state;
    assert_ok(plim_dataset_open(&job, test_training_graph(), &dataset));
    for (size_t i = 0; i < 20; i++)
        wrong[i] = test_training_small();
    wrong[0].model.num_layers = 3;
    wrong[1].model.hidden = 0;
    wrong[2].model.kind = PLIM_GAT;
    wrong[2].model.heads = 3;
    wrong[3].model.dropout = 1.0f;
    wrong[4].model.norm = PLIM_NORM_BATCH;
    wrong[4].microbatch = 10;
    wrong[5].optimiser.rate = NAN;
    wrong[6].optimiser.schedule = PLIM_SCHEDULE_STEP;
    wrong[7].loss = PLIM_LOSS_MSE;
    wrong[8].metric = PLIM_METRIC_ROC_AUC;
    wrong[9].epochs = 0;
    wrong[10].patience = 1;
    wrong[10].eval_every = 0;
    wrong[11].model.kind = PLIM_MLP;
    wrong[12].recipe.replace = true;
    wrong[13].recipe.batch_size = 0;
    wrong[14].recipe.fanout[0] = -2;
    wrong[15].recipe.disjoint = true;
    wrong[16].recipe.draw_by = PLIM_NODE_TIME;
    wrong[16].recipe.disjoint = true;
    wrong[17].temporal = (plim_temporal_t)3;
    wrong[18].temporal = PLIM_TEMPORAL_LAST;
    wrong[18].model.kind = PLIM_GCN;
    wrong[19].temporal = PLIM_TEMPORAL_LAST;
    wrong[19].eval_exact = true;
    for (size_t i = 0; i < 20; i++)
        assert_int_equal(plim__train_plan(&job, dataset, &wrong[i], NULL, &plan), PLIM_ERR_USAGE);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

static void test_another_plan_is_refused(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    const plim_training_t training = test_training_small();
    plim_training_t others[] = {training, training, training, training, training, training};
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    plim_trainer_t *trainer;
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    char path[700];
    (void)state;
    test_training_path("nothing", path);
    assert_ok(plim_dataset_open(&job, test_training_graph(), &dataset));
    assert_ok(plim_train_plan(&job, dataset, &training, NULL, &plan));
    others[0].recipe.fanout[1]++;
    others[1].model.hidden = 4096;
    others[2].model.norm = PLIM_NORM_BATCH;
    others[3].optimiser.kind = PLIM_SGD;
    others[4].temporal = PLIM_TEMPORAL_LAST;
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(plim_train(&job, dataset, &others[i], plan, path, NULL, NULL, &result),
                         PLIM_ERR_USAGE);
        assert_non_null(strstr(plim_last_error(), "plan again"));
        assert_int_equal(access(path, F_OK), -1);
        assert_int_equal(plim_trainer_create(&job, dataset, &others[i], plan, &trainer),
                         PLIM_ERR_USAGE);
    }
    others[5].optimiser.rate *= 2; /* needs nothing else */
    assert_ok(plim_trainer_create(&job, dataset, &others[5], plan, &trainer));
    plim_trainer_release(trainer);
    plim_plan_release(plan);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

/* Lists the values of `name`, before its colon, in the lines of the run's timeline; returns their
 * number. */
static int read_times(const char *run, const char *name, double times_out[64])
{
    char path[800], line[8192];
    int count = 0;
    (void)snprintf(path, sizeof path, "%s/timeline.jsonl", run);
    FILE *in = fopen(path, "r");
    assert_non_null(in);
    while (fgets(line, sizeof line, in) != NULL) {
        const char *found = strstr(line, name);
        if (found != NULL && count < 64)
            times_out[count++] = strtod(strchr(found, ':') + 1, NULL);
    }
    (void)fclose(in);
    return count;
}

/* Under one job a resume, and a second run, begin when they are called. */
static void test_each_training_has_its_own_beginning(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    double began[64], written[64];
    char path[2][700];
    (void)state;
    test_training_path("first", path[0]);
    test_training_path("second", path[1]);
    training.epochs = 1;
    assert_ok(plim_dataset_open(&job, test_training_graph(), &dataset));
    assert_ok(plim_train_plan(&job, dataset, &training, NULL, &plan));
    assert_ok(plim_train(&job, dataset, &training, plan, path[0], NULL, NULL, &result));
    const int lines = read_times(path[0], "\"time_s\"", written);
    assert_true(lines > 1 && lines < 64);
    const double end = written[lines - 1];
    assert_ok(plim_train(&job, dataset, &training, plan, path[1], NULL, NULL, &result));
    assert_int_equal(read_times(path[1], "\"began_s\"", began), 1);
    assert_true(began[0] >= end);
    plim_plan_release(plan);
    training.epochs = 2;
    assert_ok(plim_train_plan(&job, dataset, &training, NULL, &plan));
    assert_ok(plim_train_resume(&job, dataset, &training, plan, path[0], NULL, NULL, &result));
    assert_int_equal(read_times(path[0], "\"began_s\"", began), 2);
    assert_true(began[0] <= written[0] && began[1] >= end);
    plim_plan_release(plan);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

/* A whole run, each time in a directory of its own, of which nothing is left when it could not
 * begin. */
typedef struct whole_run {
    const plim_dataset_t *dataset;
    const plim_plan_t *plan;
    plim_training_t training;
    int tries;
} whole_run_t;

static plim_status_t train_whole(plim_job_t *job, void *context)
{
    whole_run_t *whole = context;
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    char name[48], path[700];
    (void)snprintf(name, sizeof name, "try-%d", whole->tries);
    test_training_path(name, path);
    const plim_status_t status =
        plim_train(job, whole->dataset, &whole->training, whole->plan, path, NULL, NULL, &result);
    if (access(path, F_OK) == 0) {
        (void)snprintf(name, sizeof name, "try-%d/last.safetensors", whole->tries);
        test_training_path(name, path);
        assert_int_equal(access(path, F_OK), 0);
    }
    whole->tries++;
    return status;
}

static void test_every_arena_may_fail(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    whole_run_t whole = {.training = test_training_small()};
    (void)state;
    whole.training.epochs = 1;
    whole.training.recipe.batch_size = 3000;
    assert_ok(plim_dataset_open(&job, test_training_graph(), &dataset));
    assert_ok(plim_train_plan(&job, dataset, &whole.training, NULL, &plan));
    whole.dataset = dataset;
    whole.plan = plan;
    test_fail_each_arena(&job, train_whole, &whole);
    assert_true(whole.tries > 5);
    plim_plan_release(plan);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

/* The plan's least line is enough, and what was planned is never exceeded. */
static void test_the_least_line_is_enough(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    whole_run_t whole = {.training = test_training_small(), .tries = 1000};
    (void)state;
    if (TEST_SANITIZED) {
        test_job_end(&job);
        print_message("skipped: a sanitizer's own memory counts\n");
        skip();
    }
    assert_ok(plim_dataset_open(&job, test_training_graph(), &dataset));
    assert_ok(plim_train_plan(&job, dataset, &whole.training, NULL, &plan));
    const int64_t minimum = plan->numbers.minimum;
    plim_plan_release(plan);
    plim_dataset_release(dataset);
    test_job_end(&job);
    job = test_job_make(minimum + (1 << 20), 2, PLIM_IO_AUTO);
    assert_ok(plim_dataset_open(&job, test_training_graph(), &dataset));
    assert_ok(plim_train_plan(&job, dataset, &whole.training, NULL, &plan));
    whole.dataset = dataset;
    whole.plan = plan;
    assert_ok(train_whole(&job, &whole));
    assert_true(plim__ledger_peak(job.ledger) <= plan->numbers.total);
    plim_plan_release(plan);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

static void test_evaluation_equals_training_scores(void **state)
{
    const plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    plim_inference_t inference = PLIM_INFERENCE_INIT;
    double score[3], loss[3];
    char path[700];
    (void)state;
    assert_ok(test_train("evaluated", &training, &test_plain_way, &result));
    test_training_path("evaluated", path);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_dataset_t *dataset;
    assert_ok(plim_dataset_open(&job, test_training_graph(), &dataset));
    assert_ok(plim_evaluate(&job, dataset, path, &inference, 7, NULL, NULL, score, loss));
    for (int split = 0; split < 3; split++)
        assert_true(score[split] == result.score[split]);
    assert_ok(plim_evaluate(&job, dataset, path, &inference, 2, NULL, NULL, score, loss));
    assert_true(isnan(score[PLIM_TEST]) && isnan(loss[PLIM_TEST]));
    assert_int_equal(plim_evaluate(&job, dataset, path, &inference, 0, NULL, NULL, score, loss),
                     PLIM_ERR_USAGE);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_learns),
        cmocka_unit_test(test_threads_and_memory_change_nothing),
        cmocka_unit_test(test_less_memory_keeps_the_result),
        cmocka_unit_test(test_stopped_and_resumed_it_ends_the_same),
        cmocka_unit_test(test_a_run_goes_on_in_stages),
        cmocka_unit_test(test_patience_ends_it),
        cmocka_unit_test(test_what_makes_no_sense_is_refused),
        cmocka_unit_test(test_another_plan_is_refused),
        cmocka_unit_test(test_evaluation_equals_training_scores),
        cmocka_unit_test(test_each_training_has_its_own_beginning),
        cmocka_unit_test(test_every_arena_may_fail),
        cmocka_unit_test(test_the_least_line_is_enough),
    };
    return cmocka_run_group_tests(tests, test_training_begin, test_training_end);
}
