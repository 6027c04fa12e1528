/*
 * A child that saves over and over is killed at random moments. Whatever the moment, what is loaded
 * afterwards is one whole checkpoint, no older than the last one that was reported as saved, and
 * metrics.jsonl ends where it did then.
 */
/* labels: asan unprivileged */
#include "support/run.h"

#include "base/clock.h"
#include "base/rng.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILLS = 50, BIG = 20000 };

/* Large enough that a checkpoint is written in several pieces. */
typedef struct big_model {
    plim__parameter_t parameters[2];
    float values[2][3][BIG];
} big_model_t;

static void big_make(big_model_t *model)
{
    memset(model, 0, sizeof *model);
    for (int i = 0; i < 2; i++) {
        plim__parameter_t *parameter = &model->parameters[i];
        (void)snprintf(parameter->name, sizeof parameter->name, "convs.%d.weight", i);
        parameter->num_dims = 1;
        parameter->shape[0] = parameter->count = BIG;
        parameter->value = model->values[i][0];
        parameter->gradient = model->values[i][0];
        parameter->moment[0] = model->values[i][1];
        parameter->moment[1] = model->values[i][2];
    }
}

/* What every value is after so many updates. */
static void big_set(big_model_t *model, int64_t updates)
{
    for (int i = 0; i < 2; i++)
        for (int m = 0; m < 3; m++)
            for (int j = 0; j < BIG; j++)
                model->values[i][m][j] = (float)(updates * 6 + (int64_t)i * 3 + m);
}

static void assert_whole(const big_model_t *model, int64_t updates)
{
    for (int i = 0; i < 2; i++)
        for (int m = 0; m < 3; m++)
            for (int j = 0; j < BIG; j++)
                if (model->values[i][m][j] != (float)(updates * 6 + (int64_t)i * 3 + m))
                    fail_msg("value %d of %d.%d is %g after %lld updates", j, i, m,
                             (double)model->values[i][m][j], (long long)updates);
}

static big_model_t model;

/* Never returns. *saved is the number of the last checkpoint that is durable. */
static void save_for_ever(world_t *world, volatile int64_t *saved)
{
    plim__run_t *run;
    plim__position_t position;
    bool found;
    if (test_job_try(PLIM_LINE_NONE, 2, PLIM_IO_AUTO, &world->job) != PLIM_OK ||
        open_run(world, &run) != PLIM_OK ||
        plim__run_load(run, model.parameters, 2, &position, &found) != PLIM_OK)
        _exit(1);
    for (;;) {
        char line[32];
        position.updates++;
        position.epoch = position.updates * 2;
        position.best_epoch = position.updates;
        big_set(&model, position.updates);
        (void)snprintf(line, sizeof line, "%015lld", (long long)position.updates);
        if (plim__run_metrics(run, line) != PLIM_OK || plim__run_timeline(run, line) != PLIM_OK ||
            plim__run_save_best(run, model.parameters, 2, &position) != PLIM_OK ||
            plim__run_save(run, model.parameters, 2, &position) != PLIM_OK)
            _exit(2);
        *saved = position.updates;
    }
}

/* Returns which checkpoint was found. */
static int64_t check_after_kill(world_t *world, int64_t saved)
{
    plim__run_t *run;
    plim__position_t position;
    bool found;
    char line[32] = "", path[700];
    assert_ok(open_run(world, &run));
    memset(model.values, 0, sizeof model.values);
    assert_ok(plim__run_load(run, model.parameters, 2, &position, &found));
    plim__run_close(run);
    assert_true(position.updates >= saved && position.updates <= saved + 1);
    assert_true(found);
    assert_int_equal(size_of(world, "metrics.jsonl"), 16 * position.updates);
    assert_int_equal(size_of(world, "timeline.jsonl") % 16, 0);
    assert_whole(&model, position.updates);
    assert_int_equal(position.epoch, 2 * position.updates);
    path_in(world, "metrics.jsonl", path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    if (position.updates > 0) {
        assert_int_equal(fseek(file, -16, SEEK_END), 0);
        assert_non_null(fgets(line, sizeof line, file));
        assert_int_equal(atoll(line), position.updates);
    }
    assert_int_equal(fclose(file), 0);
    /* The best weights, saved before, are whole as well: this checkpoint's or the next one's. */
    assert_ok(plim__run_weights(&world->job, AT_FDCWD, world->path, NULL, model.parameters, 2));
    float first = model.values[0][0][0];
    assert_true(first == (float)(position.updates * 6) ||
                first == (float)(position.updates * 6 + 6));
    for (int i = 0; i < 2; i++)
        for (int j = 0; j < BIG; j++)
            assert_true(model.values[i][0][j] == first + (float)(3 * i));
    return position.updates;
}

/* How long a kill may wait, in microseconds: a few checkpoints. */
static uint64_t longest_wait(plim__run_t *run)
{
    plim__position_t position = {.updates = 0};
    int64_t began = plim__clock_ns();
    big_set(&model, 0);
    assert_ok(plim__run_save_best(run, model.parameters, 2, &position));
    assert_ok(plim__run_save(run, model.parameters, 2, &position));
    uint64_t wait = (uint64_t)(plim__clock_ns() - began) / 1000 * 5;
    return wait < 1000 ? 1000 : wait > 200000 ? 200000 : wait;
}

static void every_kill_leaves_a_whole_checkpoint(void **state)
{
    (void)state;
    world_t world;
    plim__run_t *run;
    int how;
    uint64_t seed = (uint64_t)plim__clock_ns();
    volatile int64_t *saved =
        mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    assert_true(saved != MAP_FAILED);
    print_message("seed %llu\n", (unsigned long long)seed);
    world_make(&world);
    world.training.epochs = INT32_MAX;
    big_make(&model);
    assert_ok(create_run(&world, &run));
    uint64_t wait = longest_wait(run);
    plim__run_close(run);
    int64_t began = plim__clock_ns();
    for (int i = 0; i < KILLS; i++) {
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            save_for_ever(&world, saved);
        (void)usleep((useconds_t)(plim__rng_u64(seed, (uint64_t)i) % wait));
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, &how, 0), child);
        assert_true(WIFSIGNALED(how)); /* it had not given up */
        *saved = check_after_kill(&world, *saved);
    }
    print_message("%lld checkpoints, %d kills, %.1f s\n", (long long)*saved, KILLS,
                  plim__clock_seconds_since(began));
    assert_true(*saved > 0);
    /* A last one, undisturbed, leaves nothing but what belongs there. */
    reopen_run(&world);
    static const char *const names[] = {"run.json",         "metrics.jsonl",    "timeline.jsonl",
                                        "last.safetensors", "best.safetensors", ".lock"};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        char path[700];
        path_in(&world, names[i], path);
        assert_int_equal(unlink(path), 0);
    }
    assert_int_equal(rmdir(world.path), 0);
    (void)munmap((void *)(uintptr_t)saved, 4096);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(every_kill_leaves_a_whole_checkpoint)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
