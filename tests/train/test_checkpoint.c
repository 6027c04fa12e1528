/* Checkpoints of a run: all comes back exactly, what was appended after the last one goes, and
 * another's are refused. */
/* labels: asan */
#include "support/run.h"

#include "io/safetensors.h"
#include "plan/train_plan.h"

#include <fcntl.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void checkpoints_come_back_exactly(void **state)
{
    (void)state;
    static const plim_optimiser_kind_t kinds[] = {PLIM_ADAM, PLIM_SGD, PLIM_SGD};
    static const int moments[] = {2, 1, 0};
    for (int i = 0; i < 3; i++) {
        world_t world;
        plim__run_t *run;
        model_t model, again;
        plim_run_info_t info = PLIM_RUN_INFO_INIT;
        bool found = true;
        plim__position_t loaded;
        plim__position_t position = {.epoch = 3,
                                     .step = 41,
                                     .updates = (int64_t)1 << 40,
                                     .loss_sum = 0.1,
                                     .loss_seeds = 5248,
                                     .epoch_loss = 1.0 / 3,
                                     .best_epoch = 2,
                                     .best_score = {NAN, 0.7123456789012345, -0.0},
                                     .waited = 1,
                                     .ended = true};
        world_make(&world);
        world.training.optimiser.kind = kinds[i];
        model_make(&model, 1, moments[i]);
        model_make(&again, 50, moments[i]);
        assert_ok(create_run(&world, &run));
        assert_ok(plim__run_load(run, again.parameters, NUM_PARAMETERS, &loaded, &found));
        assert_false(found);
        assert_int_equal(loaded.epoch, 0);
        assert_true(isnan(loaded.best_score[PLIM_VALID])); /* as in a run that begins */
        assert_ok(plim__run_metrics(run, "{\"epoch\": 1}"));
        assert_ok(plim__run_save(run, model.parameters, NUM_PARAMETERS, &position));
        assert_int_equal(position.metrics_bytes, 13);
        plim__run_close(run);
        assert_ok(open_run(&world, &run));
        assert_ok(plim__run_load(run, again.parameters, NUM_PARAMETERS, &loaded, &found));
        assert_true(found);
        assert_memory_equal(&loaded.epoch, &position.epoch, 5 * sizeof(int64_t));
        assert_memory_equal(&loaded.epoch_loss, &position.epoch_loss, sizeof(double));
        assert_true(isnan(loaded.best_score[0]));
        assert_memory_equal(&loaded.best_score[1], &position.best_score[1], 2 * sizeof(double));
        assert_int_equal(loaded.best_epoch, 2);
        assert_int_equal(loaded.waited, 1);
        assert_int_equal(loaded.metrics_bytes, 13);
        assert_true(loaded.ended);
        for (int p = 0; p < NUM_PARAMETERS; p++)
            for (int m = 0; m < 1 + (p == 2 ? 0 : moments[i]); m++)
                assert_memory_equal(again.values[p][m], model.values[p][m],
                                    (size_t)model.parameters[p].count * sizeof(float));
        plim__run_close(run);
        assert_ok(plim_run_read(&world.job, world.path, &info));
        assert_int_equal(info.epochs_done, 3);
        assert_int_equal(info.step, 41);
        world_end(&world);
    }
}

static void cuts_metrics_back_to_the_checkpoint(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    model_t model;
    plim__position_t position = {.epoch = 1};
    bool found;
    world_make(&world);
    model_make(&model, 1, 2);
    assert_ok(create_run(&world, &run));
    assert_ok(plim__run_metrics(run, "one"));
    assert_ok(plim__run_timeline(run, "at one"));
    assert_ok(plim__run_save(run, model.parameters, NUM_PARAMETERS, &position));
    assert_ok(plim__run_metrics(run, "two"));
    assert_ok(plim__run_timeline(run, "at two"));
    plim__run_close(run);
    append_raw(&world, "metrics.jsonl", "thr");
    append_raw(&world, "timeline.jsonl", "at thr");
    assert_ok(open_run(&world, &run));
    assert_ok(plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found));
    assert_int_equal(position.metrics_bytes, 4);
    assert_int_equal(size_of(&world, "metrics.jsonl"), 4);
    assert_int_equal(size_of(&world, "timeline.jsonl"), 14); /* whole lines stay */
    assert_ok(plim__run_metrics(run, "two"));
    assert_int_equal(size_of(&world, "metrics.jsonl"), 8);
    plim__run_close(run);
    world_end(&world);
}

static void a_metrics_file_that_lost_lines_is_refused(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    model_t model;
    plim__position_t position = {.epoch = 1};
    bool found;
    char path[700];
    world_make(&world);
    model_make(&model, 1, 2);
    assert_ok(create_run(&world, &run));
    assert_ok(plim__run_metrics(run, "one"));
    assert_ok(plim__run_save(run, model.parameters, NUM_PARAMETERS, &position));
    plim__run_close(run);
    path_in(&world, "metrics.jsonl", path);
    assert_int_equal(truncate(path, 3), 0);
    assert_ok(open_run(&world, &run));
    assert_int_equal(plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found),
                     PLIM_ERR_DATA);
    assert_says("has 3 bytes, but had 4 when the checkpoint was saved");
    plim__run_close(run);
    append_raw(&world, "metrics.jsonl", "xx\n");
    assert_ok(open_run(&world, &run));
    assert_int_equal(plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found),
                     PLIM_ERR_DATA);
    plim__run_close(run);
    world_end(&world);
}

static void what_is_begun_cannot_be_taken_back(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    model_t model;
    plim__position_t position = {.epoch = 4, .step = 1};
    bool found;
    world_make(&world);
    model_make(&model, 1, 2);
    assert_ok(create_run(&world, &run));
    assert_ok(plim__run_save(run, model.parameters, NUM_PARAMETERS, &position));
    plim__run_close(run);
    world.training.epochs = 4;
    assert_int_equal(open_run(&world, &run), PLIM_ERR_USAGE);
    assert_says("5 or more");
    world.training.epochs = 5;
    assert_ok(open_run(&world, &run));
    assert_ok(plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found));
    plim__run_close(run);
    world_end(&world);
}

static void a_run_without_checkpoint_starts_anew(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    model_t model;
    plim__position_t position = {.epoch = 9};
    bool found = true;
    world_make(&world);
    model_make(&model, 1, 2);
    assert_ok(create_run(&world, &run));
    assert_ok(plim__run_metrics(run, "one"));
    plim__run_close(run);
    assert_ok(open_run(&world, &run));
    assert_ok(plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found));
    assert_false(found);
    assert_int_equal(position.epoch, 0);
    assert_int_equal(size_of(&world, "metrics.jsonl"), 0);
    plim__run_close(run);
    world_end(&world);
}

static void a_stranger_s_checkpoint_is_refused(void **state)
{
    (void)state;
    world_t world, other;
    plim__run_t *run;
    model_t model;
    plim__position_t position = {.epoch = 1};
    bool found;
    char from[700], to[700];
    world_make(&world);
    world_make(&other);
    model_make(&model, 1, 2);
    other.training.optimiser.rate = 0.5;
    assert_ok(create_run(&other, &run));
    assert_ok(plim__run_save(run, model.parameters, NUM_PARAMETERS, &position));
    assert_ok(plim__run_save_best(run, model.parameters, NUM_PARAMETERS, &position));
    plim__run_close(run);
    assert_ok(create_run(&world, &run));
    path_in(&other, "last.safetensors", from);
    path_in(&world, "last.safetensors", to);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found),
                     PLIM_ERR_USAGE);
    assert_says("`rate` is 0.5 in the run but 0.01 now");
    path_in(&other, "best.safetensors", from);
    assert_int_equal(rename(from, to), 0);
    assert_int_equal(plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found),
                     PLIM_ERR_DATA);
    plim__run_close(run);
    world_end(&other);
    world_end(&world);
}

static void another_model_s_tensors_are_refused(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    model_t model;
    plim__position_t position = {.epoch = 1};
    bool found;
    world_make(&world);
    model_make(&model, 1, 2);
    assert_ok(create_run(&world, &run));
    assert_ok(plim__run_save(run, model.parameters, NUM_PARAMETERS, &position));
    model.parameters[0].shape[0] = 6;
    model.parameters[0].shape[1] = 2;
    assert_int_equal(plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found),
                     PLIM_ERR_DATA);
    assert_says("tensor 'convs.0.lin.weight' is F32 [3, 4], but F32 [6, 2]");
    plim__run_close(run);
    world_end(&world);
}

static void weights_are_the_best_or_the_last(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    model_t first, second, got;
    plim__position_t position = {.best_epoch = 4, .best_score = {NAN, 0.75, 0.5}};
    plim__safetensors_t *file;
    char path[700];
    world_make(&world);
    model_make(&first, 1, 2);
    model_make(&second, 2, 2);
    model_make(&got, 3, 0);
    assert_ok(create_run(&world, &run));
    assert_int_equal(
        plim__run_weights(&world.job, AT_FDCWD, world.path, NULL, got.parameters, NUM_PARAMETERS),
        PLIM_ERR_USAGE);
    assert_says("no weights yet");
    assert_ok(plim__run_save(run, first.parameters, NUM_PARAMETERS, &position));
    assert_ok(
        plim__run_weights(&world.job, AT_FDCWD, world.path, NULL, got.parameters, NUM_PARAMETERS));
    assert_memory_equal(got.values[0][0], first.values[0][0], sizeof first.values[0][0]);
    assert_ok(plim__run_save_best(run, second.parameters, NUM_PARAMETERS, &position));
    assert_ok(
        plim__run_weights(&world.job, AT_FDCWD, world.path, NULL, got.parameters, NUM_PARAMETERS));
    assert_memory_equal(got.values[0][0], second.values[0][0], sizeof second.values[0][0]);
    path_in(&world, "last.safetensors", path);
    assert_ok(
        plim__run_weights(&world.job, AT_FDCWD, world.path, path, got.parameters, NUM_PARAMETERS));
    assert_memory_equal(got.values[0][0], first.values[0][0], sizeof first.values[0][0]);
    path_in(&world, "best.safetensors", path);
    assert_ok(plim__safetensors_open(&world.job, AT_FDCWD, path, &file));
    assert_int_equal(plim__safetensors_count(file), NUM_PARAMETERS); /* no moments */
    assert_string_equal(plim__safetensors_note(file, "epoch"), "4");
    assert_string_equal(plim__safetensors_note(file, "valid"), "0.75");
    assert_string_equal(plim__safetensors_note(file, "fingerprint"), "0123456789abcdef");
    plim__safetensors_close(file);
    assert_ok(plim__run_load_best(run, 4, got.parameters, NUM_PARAMETERS));
    assert_memory_equal(got.values[0][0], second.values[0][0], sizeof second.values[0][0]);
    assert_int_equal(plim__run_load_best(run, 3, got.parameters, NUM_PARAMETERS), PLIM_ERR_DATA);
    assert_says("it is of epoch 4, but the best is of 3");
    assert_int_equal(unlink(path), 0);
    assert_int_equal(plim__run_load_best(run, 4, got.parameters, NUM_PARAMETERS), PLIM_ERR_IO);
    plim__run_close(run);
    world_end(&world);
}

static plim_status_t create_save_and_load(plim_job_t *job, void *context)
{
    world_t *world = context;
    plim__run_t *run;
    model_t model;
    plim__position_t position = {.epoch = 1};
    plim_run_info_t info = PLIM_RUN_INFO_INIT;
    bool found;
    static int number;
    (void)snprintf(world->path, sizeof world->path, "%s/run-%d", world->directory, number++);
    model_make(&model, 1, 2);
    plim_status_t status = plim__run_create(job, world->path, world->directory, &world->dataset,
                                            &world->training, &run);
    if (status != PLIM_OK)
        return status;
    status = plim__run_save(run, model.parameters, NUM_PARAMETERS, &position);
    plim__run_close(run);
    if (status == PLIM_OK)
        status = plim__run_open(job, world->path, &world->dataset, &world->training, &run);
    if (status != PLIM_OK)
        return status;
    status = plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found);
    plim__run_close(run);
    if (status == PLIM_OK)
        status = plim_run_read(job, world->path, &info);
    return status;
}

static void survives_every_failing_arena(void **state)
{
    (void)state;
    world_t world;
    world_make(&world);
    test_fail_each_arena(&world.job, create_save_and_load, &world);
    world_end(&world);
}

static void stays_within_the_plan(void **state)
{
    (void)state;
    world_t world;
    world_make(&world);
    int64_t before = plim__ledger_reserved(world.job.ledger);
    assert_ok(create_save_and_load(&world.job, &world));
    assert_int_equal(plim__ledger_reserved(world.job.ledger), before);
    assert_true(plim__ledger_peak(world.job.ledger) - before <=
                (int64_t)(plim__safetensors_estimate(PLIM__TENSORS_MAX) + PLIM__TRAINER_BYTES));
    world_end(&world);
}

static void a_full_disk_leaves_the_run_as_it_was(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    model_t model, again;
    plim__position_t position = {.epoch = 1};
    bool found;
    static float big[20000];
    world_make(&world);
    model_make(&model, 1, 2);
    assert_ok(create_run(&world, &run));
    assert_ok(plim__run_metrics(run, "one"));
    assert_ok(plim__run_save(run, model.parameters, NUM_PARAMETERS, &position));
    static char line[20000];
    struct rlimit before, limit;
    plim__parameter_t large = {
        .name = "big", .num_dims = 1, .shape = {20000}, .count = 20000, .value = big};
    memset(line, 'x', sizeof line - 1);
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    limit = before;
    limit.rlim_cur = 16 << 10;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    position.epoch = 2;
    const plim_status_t too_long = plim__run_metrics(run, line);
    const plim_status_t too_large = plim__run_save(run, &large, 1, &position);
    const plim_status_t short_line = plim__run_metrics(run, "two");
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_int_equal(too_long, PLIM_ERR_DISK);
    assert_int_equal(too_large, PLIM_ERR_DISK);
    assert_ok(short_line);
    plim__run_close(run);
    assert_int_equal(size_of(&world, "metrics.jsonl"), 8); /* nothing of the long line */
    model_make(&again, 7, 2);
    assert_ok(open_run(&world, &run));
    assert_ok(plim__run_load(run, again.parameters, NUM_PARAMETERS, &position, &found));
    assert_int_equal(position.epoch, 1);
    assert_memory_equal(again.values[0][0], model.values[0][0], sizeof model.values[0][0]);
    plim__run_close(run);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoints_come_back_exactly),
        cmocka_unit_test(cuts_metrics_back_to_the_checkpoint),
        cmocka_unit_test(a_metrics_file_that_lost_lines_is_refused),
        cmocka_unit_test(what_is_begun_cannot_be_taken_back),
        cmocka_unit_test(a_run_without_checkpoint_starts_anew),
        cmocka_unit_test(a_stranger_s_checkpoint_is_refused),
        cmocka_unit_test(another_model_s_tensors_are_refused),
        cmocka_unit_test(weights_are_the_best_or_the_last),
        cmocka_unit_test(survives_every_failing_arena),
        cmocka_unit_test(stays_within_the_plan),
        cmocka_unit_test(a_full_disk_leaves_the_run_as_it_was),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
