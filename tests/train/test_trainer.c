/* Training: it learns, and nothing but its settings decides what it learns. */
#include "support/harness.h"

#include "mem/arena.h"

#include <plimsoll/plimsoll.h>

#include <malloc.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char directory[512];
static char dataset_path[600];

static int begin(void **state)
{
    plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    (void)state;
    test_directory_make(directory);
    (void)snprintf(dataset_path, sizeof dataset_path, "%s/graph", directory);
    options.shape = "free";
    options.target = dataset_path;
    options.num_nodes = 3000;
    options.num_edges = 24000;
    options.num_features = 24;
    options.num_classes = 5;
    options.features = PLIM_F16;
    assert_ok(plim_generate(&job, &options));
    test_job_end(&job);
    return 0;
}

static int end(void **state)
{
    (void)state;
    test_directory_remove(directory);
    return 0;
}

static plim_training_t small_training(void)
{
    plim_training_t training = PLIM_TRAINING_INIT;
    training.model.kind = PLIM_SAGE;
    training.model.hidden = 16;
    training.model.dropout = 0.3f;
    training.recipe.batch_size = 100;
    training.recipe.fanout[0] = 4;
    training.recipe.fanout[1] = 3;
    training.recipe.seed = 7;
    training.epochs = 4;
    return training;
}

/* How a run is made, beside its settings. */
typedef struct way {
    int threads;
    int64_t line;
    plim_load_wishes_t wishes;
    plim_train_event_fn events;
    void *user;
    const volatile int *stop;
    bool resume;
} way_t;

static const way_t plain = {.threads = 2, .line = PLIM_LINE_NONE};

static void run_path(const char *name, char path_out[700])
{
    (void)snprintf(path_out, 700, "%s/%s", directory, name);
}

static plim_status_t run(const char *name, const plim_training_t *training, const way_t *way,
                         plim_train_result_t *result)
{
    plim_job_t job = test_job_make(way->line, way->threads, PLIM_IO_AUTO);
    plim_train_plan_t plan;
    plim_dataset_t *dataset;
    char path[700];
    run_path(name, path);
    job.stop = way->stop;
    assert_ok(plim_dataset_open(&job, dataset_path, &dataset));
    assert_ok(plim_train_plan(&job, dataset, training, &way->wishes, &plan));
    plim_status_t status = (way->resume ? plim_train_resume : plim_train)(
        &job, dataset, training, &plan, path, way->events, way->user, result);
    plim_dataset_close(dataset);
    test_job_end(&job);
    return status;
}

/* A file whole, ended by a zero. */
static char *read_whole(const char *name, const char *file, size_t *size_out)
{
    char path[800];
    (void)snprintf(path, sizeof path, "%s/%s/%s", directory, name, file);
    FILE *in = fopen(path, "rb");
    assert_non_null(in);
    assert_int_equal(fseek(in, 0, SEEK_END), 0);
    const long size = ftell(in);
    rewind(in);
    char *text = malloc((size_t)size + 1);
    assert_non_null(text);
    assert_int_equal(fread(text, 1, (size_t)size, in), (size_t)size);
    text[size] = '\0';
    (void)fclose(in);
    *size_out = (size_t)size;
    return text;
}

/* The bytes of the tensors of a safetensors file, whatever its notes say. */
static char *read_tensors(const char *name, const char *file, size_t *size_out)
{
    size_t size;
    uint64_t header;
    char *whole = read_whole(name, file, &size);
    memcpy(&header, whole, sizeof header);
    assert_true(size > header + 8);
    *size_out = size - header - 8;
    memmove(whole, whole + header + 8, *size_out);
    return whole;
}

/* Weights, moments, best weights and metrics of two runs are the same bits. */
static void assert_same_run(const char *one, const char *other)
{
    static const char *const files[] = {"last.safetensors", "best.safetensors"};
    size_t size, other_size;
    char *text = read_whole(one, "metrics.jsonl", &size);
    char *other_text = read_whole(other, "metrics.jsonl", &other_size);
    assert_string_equal(text, other_text);
    free(text);
    free(other_text);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        text = read_tensors(one, files[i], &size);
        other_text = read_tensors(other, files[i], &other_size);
        assert_int_equal(size, other_size);
        assert_memory_equal(text, other_text, size);
        free(text);
        free(other_text);
    }
}

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
        plim_training_t training = small_training();
        plim_train_result_t result;
        losses_t losses = {.count = 0};
        char name[32];
        way_t way = plain;
        way.events = note_losses;
        way.user = &losses;
        (void)snprintf(name, sizeof name, "learns-%d", (int)kinds[i]);
        training.model.kind = kinds[i];
        training.recipe.num_hops = kinds[i] == PLIM_MLP ? 0 : 2;
        training.model.dropout = 0;
        training.epochs = 6;
        assert_ok(run(name, &training, &way, &result));
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
    const plim_training_t training = small_training();
    plim_train_result_t result;
    way_t way = plain;
    (void)state;
    assert_ok(run("two", &training, &way, &result));
    way.threads = 1;
    assert_ok(run("one", &training, &way, &result));
    assert_same_run("two", "one");
    way.wishes = (plim_load_wishes_t){.topology = 2, .rows = 2, .hot_rows = -1, .window = 3};
    assert_ok(run("disk", &training, &way, &result));
    assert_same_run("two", "disk");
}

static void test_less_memory_keeps_the_result(void **state)
{
    plim_training_t training = small_training();
    plim_train_result_t result;
    losses_t whole = {.count = 0}, parts = {.count = 0};
    way_t way = plain;
    (void)state;
    way.events = note_losses;
    way.user = &whole;
    assert_ok(run("whole", &training, &way, &result));
    training.model.recompute = true;
    way.events = NULL;
    assert_ok(run("recompute", &training, &way, &result));
    assert_same_run("whole", "recompute");
    training.model.recompute = false;
    training.microbatch = 30;
    way.events = note_losses;
    way.user = &parts;
    assert_ok(run("parts", &training, &way, &result));
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
    plim_training_t training = small_training();
    plim_train_result_t result, stopped;
    (void)state;
    training.patience = 3;
    assert_ok(run("undisturbed", &training, &plain, &result));
    for (size_t i = 0; i < sizeof stops / sizeof stops[0]; i++) {
        stopper_t stopper = stops[i];
        way_t way = plain;
        char name[32];
        (void)snprintf(name, sizeof name, "stopped-%zu", i);
        way.events = stop_at;
        way.user = &stopper;
        way.stop = &stopper.flag;
        assert_int_equal(run(name, &training, &way, &stopped), PLIM_ERR_STOPPED);
        assert_non_null(strstr(plim_last_error(), "saved in"));
        way = plain;
        way.resume = true;
        way.threads = 1;
        assert_ok(run(name, &training, &way, &stopped));
        assert_same_run("undisturbed", name);
        assert_int_equal(stopped.best_epoch, result.best_epoch);
        assert_true(stopped.loss == result.loss);
    }
}

static void test_a_run_goes_on_in_stages(void **state)
{
    plim_training_t training = small_training();
    plim_train_result_t result;
    way_t way = plain;
    (void)state;
    training.eval_every = 2;
    training.epochs = 5;
    assert_ok(run("straight", &training, &plain, &result));
    training.epochs = 2;
    assert_ok(run("stages", &training, &plain, &result));
    assert_int_equal(result.epochs, 2);
    way.resume = true;
    training.epochs = 5;
    assert_ok(run("stages", &training, &way, &result));
    assert_int_equal(result.epochs, 5);
    assert_same_run("straight", "stages");
}

static void test_patience_ends_it(void **state)
{
    plim_training_t training = small_training();
    plim_train_result_t result;
    losses_t losses = {.count = 0};
    way_t way = plain;
    (void)state;
    training.optimiser.rate = 0; /* nothing ever gets better */
    training.epochs = 20;
    training.patience = 2;
    way.events = note_losses;
    way.user = &losses;
    assert_ok(run("patient", &training, &way, &result));
    assert_true(result.early);
    assert_int_equal(result.best_epoch, 1);
    assert_int_equal(result.epochs, 3);
    assert_int_equal(losses.count, 3);
}

static void test_what_makes_no_sense_is_refused(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_dataset_t *dataset;
    plim_train_plan_t plan;
    plim_training_t wrong[15];
    (void)state;
    assert_ok(plim_dataset_open(&job, dataset_path, &dataset));
    for (size_t i = 0; i < 15; i++)
        wrong[i] = small_training();
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
    for (size_t i = 0; i < 15; i++)
        assert_int_equal(plim_train_plan(&job, dataset, &wrong[i], NULL, &plan), PLIM_ERR_USAGE);
    plim_dataset_close(dataset);
    test_job_end(&job);
}

static void test_another_plan_is_refused(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_training_t training = small_training();
    plim_dataset_t *dataset;
    plim_train_plan_t plan;
    plim_train_result_t result;
    char path[700];
    (void)state;
    run_path("nothing", path);
    assert_ok(plim_dataset_open(&job, dataset_path, &dataset));
    assert_ok(plim_train_plan(&job, dataset, &training, NULL, &plan));
    training.recipe.fanout[1]++;
    assert_int_equal(plim_train(&job, dataset, &training, &plan, path, NULL, NULL, &result),
                     PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "plan again"));
    assert_int_equal(access(path, F_OK), -1);
    plim_dataset_close(dataset);
    test_job_end(&job);
}

/* A whole run, each time in a directory of its own, of which nothing is left when it could not
 * begin. */
typedef struct whole_run {
    const plim_dataset_t *dataset;
    const plim_train_plan_t *plan;
    plim_training_t training;
    int tries;
} whole_run_t;

static plim_status_t train_whole(plim_job_t *job, void *context)
{
    whole_run_t *whole = context;
    plim_train_result_t result;
    char name[48], path[700];
    (void)snprintf(name, sizeof name, "try-%d", whole->tries);
    run_path(name, path);
    const plim_status_t status =
        plim_train(job, whole->dataset, &whole->training, whole->plan, path, NULL, NULL, &result);
    if (access(path, F_OK) == 0) {
        (void)snprintf(name, sizeof name, "try-%d/last.safetensors", whole->tries);
        run_path(name, path);
        assert_int_equal(access(path, F_OK), 0);
    }
    whole->tries++;
    return status;
}

static void test_every_arena_may_fail(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_dataset_t *dataset;
    plim_train_plan_t plan;
    whole_run_t whole = {.training = small_training()};
    (void)state;
    whole.training.epochs = 1;
    whole.training.recipe.batch_size = 3000;
    assert_ok(plim_dataset_open(&job, dataset_path, &dataset));
    assert_ok(plim_train_plan(&job, dataset, &whole.training, NULL, &plan));
    whole.dataset = dataset;
    whole.plan = &plan;
    test_fail_each_arena(&job, train_whole, &whole);
    assert_true(whole.tries > 5);
    plim_dataset_close(dataset);
    test_job_end(&job);
}

/* The plan's least line is enough, and what was planned is never exceeded. */
static void test_the_least_line_is_enough(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_dataset_t *dataset;
    plim_train_plan_t plan;
    whole_run_t whole = {.training = small_training(), .tries = 1000};
    (void)state;
    if (TEST_SANITIZED) {
        test_job_end(&job);
        print_message("skipped: a sanitizer's own memory counts\n");
        skip();
    }
    assert_ok(plim_dataset_open(&job, dataset_path, &dataset));
    assert_ok(plim_train_plan(&job, dataset, &whole.training, NULL, &plan));
    plim_dataset_close(dataset);
    test_job_end(&job);
    job = test_job_make(plan.least + (1 << 20), 2, PLIM_IO_AUTO);
    assert_ok(plim_dataset_open(&job, dataset_path, &dataset));
    assert_ok(plim_train_plan(&job, dataset, &whole.training, NULL, &plan));
    whole.dataset = dataset;
    whole.plan = &plan;
    assert_ok(train_whole(&job, &whole));
    assert_true(plim_ledger_peak(job.ledger) <= plan.total);
    plim_dataset_close(dataset);
    test_job_end(&job);
}

/* What the process holds after each epoch. A thread of the team touches its own pages when it first
 * gets work, which on a busy machine may be some epochs after the others. */
#define WARM_EPOCHS 50
typedef struct memory {
    plim_meter_t *meter;
    int64_t anonymous, heap;
    int64_t epochs, changes;
} memory_t;

static void weigh(void *user, const plim_train_event_t *event)
{
    memory_t *memory = user;
    plim_sample_t sample;
    if (event->kind != PLIM_EVENT_EPOCH)
        return;
    plim_meter_read(memory->meter, &sample);
    const struct mallinfo2 heap = mallinfo2();
    if (++memory->epochs > WARM_EPOCHS &&
        (sample.anonymous_bytes != memory->anonymous || (int64_t)heap.uordblks != memory->heap))
        memory->changes++;
    memory->anonymous = sample.anonymous_bytes;
    memory->heap = (int64_t)heap.uordblks;
}

/* Between the steps of an epoch any arena would fail, and the heap does not change. */
typedef struct steps {
    int64_t heap, count, changes;
    bool broken;
} steps_t;

static void watch_steps(void *user, const plim_train_event_t *event)
{
    steps_t *steps = user;
    if (event->kind != PLIM_EVENT_STEP)
        return;
    const int64_t heap = (int64_t)mallinfo2().uordblks;
    if (event->step == 2)
        plim__arena_fail_at(1);
    if (event->step > 2) {
        steps->count++;
        steps->changes += heap != steps->heap;
        steps->broken = steps->broken || plim__arena_fail_pending() == 0;
    }
    if (event->step == event->steps)
        plim__arena_fail_at(0);
    steps->heap = heap;
}

static void test_a_step_allocates_nothing(void **state)
{
    static const plim_model_kind_t kinds[] = {PLIM_GCN, PLIM_SAGE, PLIM_GAT, PLIM_GIN};
    (void)state;
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        plim_training_t training = small_training();
        plim_train_result_t result;
        steps_t steps = {.count = 0};
        char name[32];
        way_t way = plain;
        (void)snprintf(name, sizeof name, "steps-%zu", i);
        way.events = watch_steps;
        way.user = &steps;
        training.model.kind = kinds[i];
        training.model.norm = PLIM_NORM_LAYER;
        training.microbatch = i % 2 == 0 ? 0 : 30;
        assert_ok(run(name, &training, &way, &result));
        assert_true(steps.count > 20);
        assert_false(steps.broken);
        if (!TEST_SANITIZED)
            assert_int_equal(steps.changes, 0);
    }
}

static void test_memory_is_flat(void **state)
{
    plim_training_t training = small_training();
    plim_train_result_t result;
    memory_t memory = {.epochs = 0};
    way_t way = plain;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    (void)state;
    if (TEST_SANITIZED) {
        test_job_end(&job);
        print_message("skipped: a sanitizer's own memory grows\n");
        skip();
    }
    assert_ok(plim_meter_open(job.ledger, &memory.meter));
    training.model.kind = PLIM_GCN;
    training.recipe.batch_size = 3000; /* with whole neighbourhoods every epoch has the same size */
    training.recipe.fanout[0] = training.recipe.fanout[1] = -1;
    training.epochs = 1000;
    way.events = weigh;
    way.user = &memory;
    assert_ok(run("flat", &training, &way, &result));
    assert_int_equal(memory.epochs, 1000);
    assert_int_equal(memory.changes, 0);
    plim_meter_close(memory.meter);
    test_job_end(&job);
}

static void test_evaluation_says_what_training_said(void **state)
{
    const plim_training_t training = small_training();
    plim_train_result_t result;
    plim_inference_t inference = {.exact = false};
    double score[3], loss[3];
    char path[700];
    (void)state;
    assert_ok(run("evaluated", &training, &plain, &result));
    run_path("evaluated", path);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_dataset_t *dataset;
    assert_ok(plim_dataset_open(&job, dataset_path, &dataset));
    assert_ok(plim_evaluate(&job, dataset, path, &inference, 7, NULL, NULL, score, loss));
    for (int split = 0; split < 3; split++)
        assert_true(score[split] == result.score[split]);
    assert_ok(plim_evaluate(&job, dataset, path, &inference, 2, NULL, NULL, score, loss));
    assert_true(isnan(score[PLIM_TEST]) && isnan(loss[PLIM_TEST]));
    assert_int_equal(plim_evaluate(&job, dataset, path, &inference, 0, NULL, NULL, score, loss),
                     PLIM_ERR_USAGE);
    plim_dataset_close(dataset);
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
        cmocka_unit_test(test_evaluation_says_what_training_said),
        cmocka_unit_test(test_every_arena_may_fail),
        cmocka_unit_test(test_the_least_line_is_enough),
        cmocka_unit_test(test_a_step_allocates_nothing),
        cmocka_unit_test(test_memory_is_flat),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
