/* A run's directory: settings and positions come back exactly, a second job stays out, what was
 * appended after the last checkpoint goes, and whatever does not fit is refused with words. */
#include "support/harness.h"

#include "io/safetensors.h"
#include "train/run.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

enum { NUM_PARAMETERS = 3, VALUES = 12 };

/* A model of three tensors: a weight, a bias and a buffer that is not learnt. */
typedef struct model {
    plim__parameter_t parameters[NUM_PARAMETERS];
    float values[NUM_PARAMETERS][3][VALUES]; /* value, first and second moment */
    float gradients[NUM_PARAMETERS][VALUES];
} model_t;

static void model_make(model_t *model, float start, int num_moments)
{
    static const char *const names[] = {"convs.0.lin.weight", "convs.0.bias",
                                        "norms.0.module.running_mean"};
    static const int64_t shapes[][2] = {{3, 4}, {4, 0}, {4, 0}};
    memset(model, 0, sizeof *model);
    for (int i = 0; i < NUM_PARAMETERS; i++) {
        plim__parameter_t *parameter = &model->parameters[i];
        (void)snprintf(parameter->name, sizeof parameter->name, "%s", names[i]);
        parameter->num_dims = shapes[i][1] == 0 ? 1 : 2;
        memcpy(parameter->shape, shapes[i], sizeof shapes[i]);
        parameter->count = i == 0 ? 12 : 4;
        parameter->value = model->values[i][0];
        parameter->gradient = i == 2 ? NULL : model->gradients[i];
        for (int m = 0; m < num_moments && i != 2; m++)
            parameter->moment[m] = model->values[i][1 + m];
        for (int m = 0; m < 3; m++)
            for (int j = 0; j < VALUES; j++)
                model->values[i][m][j] = start + (float)(i * 100 + m * 20 + j) / 7.0f;
    }
}

typedef struct world {
    plim_job_t job;
    char directory[512];
    char path[600];
    plim_dataset_info_t dataset;
    plim_training_t training;
    char log[4096];
} world_t;

static void take_log(void *user, plim_log_level_t level, const char *message)
{
    world_t *world = user;
    size_t used = strlen(world->log);
    (void)snprintf(world->log + used, sizeof world->log - used, "%s%s\n",
                   level == PLIM_LOG_WARNING ? "warning: " : "", message);
}

static void world_make(world_t *world)
{
    plim_training_t training = PLIM_TRAINING_INIT;
    memset(world, 0, sizeof *world);
    test_directory_make(world->directory);
    (void)snprintf(world->path, sizeof world->path, "%s/run", world->directory);
    world->job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    world->job.log = take_log;
    world->job.user = world;
    world->training = training;
    memcpy(world->dataset.fingerprint, "0123456789abcdef", 17);
}

static void world_end(world_t *world)
{
    test_job_end(&world->job);
    test_directory_remove(world->directory);
}

static plim_status_t create(world_t *world, plim__run_t **run_out)
{
    return plim__run_create(&world->job, world->path, world->directory, &world->dataset,
                            &world->training, run_out);
}

static plim_status_t open_run(world_t *world, plim__run_t **run_out)
{
    return plim__run_open(&world->job, world->path, &world->dataset, &world->training, run_out);
}

static void settings_come_back_exactly(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    plim_run_info_t info;
    char absolute[PLIM_PATH_MAX];
    world_make(&world);
    plim_training_t *training = &world.training;
    training->model = (plim_model_t){PLIM_GAT,
                                     3,
                                     257,
                                     8,
                                     PLIM_MAX,
                                     PLIM_NORM_BATCH,
                                     PLIM_ELU,
                                     0.1f,
                                     true,
                                     PLIM_POOL_ADD,
                                     PLIM_PRECISION_BF16,
                                     true};
    training->recipe.batch_size = 77;
    training->recipe.num_hops = 3;
    memcpy(training->recipe.fanout, (int64_t[PLIM_HOPS_MAX]){15, -1, 5}, 8 * sizeof(int64_t));
    training->recipe.replace = true;
    training->recipe.seed = UINT64_MAX - 1;
    training->optimiser = (plim_optimiser_t){PLIM_SGD,           0.1 + 0.2, 1.0 / 3, 0.7,
                                             nextafter(1, 0),    5e-324,    1e300,   0.1,
                                             PLIM_SCHEDULE_STEP, 7,         2.0 / 3};
    training->loss = PLIM_LOSS_BCE;
    training->metric = PLIM_METRIC_ROC_AUC;
    training->epochs = (int64_t)1 << 60;
    training->eval_every = 3;
    training->patience = 4;
    training->eval_train = true;
    training->microbatch = 11;
    training->checkpoint_steps = 12;
    training->checkpoint_seconds = 0.1;
    training->memory_steps = 13;
    assert_ok(create(&world, &run));
    plim__run_close(run);
    memset(&info, 0x5a, sizeof info);
    assert_ok(plim_run_read(&world.job, world.path, &info));
    /* Field by field: padding has no value. */
    assert_memory_equal(&info.training.optimiser.rate, &training->optimiser.rate,
                        7 * sizeof(double));
    assert_true(info.training.optimiser.schedule_factor == training->optimiser.schedule_factor);
    assert_int_equal(info.training.optimiser.kind, PLIM_SGD);
    assert_true(info.training.model.dropout == 0.1f);
    assert_int_equal(info.training.model.kind, PLIM_GAT);
    assert_int_equal(info.training.model.precision, PLIM_PRECISION_BF16);
    assert_true(info.training.model.recompute && info.training.model.residual);
    assert_int_equal(info.training.model.hidden, 257);
    assert_true(info.training.recipe.seed == UINT64_MAX - 1);
    assert_int_equal(info.training.recipe.num_hops, 3);
    assert_int_equal(info.training.recipe.fanout[1], -1);
    assert_true(info.training.checkpoint_seconds == 0.1);
    assert_true(info.training.epochs == (int64_t)1 << 60);
    assert_int_equal(info.training.memory_steps, 13);
    assert_non_null(realpath(world.directory, absolute));
    assert_string_equal(info.dataset, absolute);
    assert_string_equal(info.fingerprint, "0123456789abcdef");
    assert_int_equal(info.epochs_done, -1);
    assert_int_equal(info.step, -1);
    /* And by the comparison itself, which knows every setting. */
    *training = info.training;
    assert_ok(open_run(&world, &run));
    plim__run_close(run);
    world_end(&world);
}

static void checkpoints_come_back_exactly(void **state)
{
    (void)state;
    static const plim_optimiser_kind_t kinds[] = {PLIM_ADAM, PLIM_SGD, PLIM_SGD};
    static const int moments[] = {2, 1, 0};
    for (int i = 0; i < 3; i++) {
        world_t world;
        plim__run_t *run;
        model_t model, again;
        plim_run_info_t info;
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
        assert_ok(create(&world, &run));
        assert_ok(plim__run_load(run, again.parameters, NUM_PARAMETERS, &loaded, &found));
        assert_false(found);
        assert_int_equal(loaded.epoch, 0);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(settings_come_back_exactly),
        cmocka_unit_test(checkpoints_come_back_exactly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
