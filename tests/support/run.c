#include "support/run.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

void model_make(model_t *model, float start, int num_moments)
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

static void take_log(void *user, plim_log_level_t level, const char *message)
{
    world_t *world = user;
    size_t used = strlen(world->log);
    (void)snprintf(world->log + used, sizeof world->log - used, "%s%s\n",
                   level == PLIM_LOG_WARNING ? "warning: " : "", message);
}

void world_make(world_t *world)
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

void world_end(world_t *world)
{
    test_job_end(&world->job);
    test_directory_remove(world->directory);
}

plim_status_t create_run(world_t *world, plim__run_t **run_out)
{
    return plim__run_create(&world->job, world->path, world->directory, &world->dataset,
                            &world->training, run_out);
}

plim_status_t open_run(world_t *world, plim__run_t **run_out)
{
    const plim_status_t status =
        plim__run_open(&world->job, world->path, &world->dataset, &world->training, run_out);
    plim__job_deliver(&world->job);
    return status;
}

void make_run(world_t *world)
{
    plim__run_t *run;
    assert_ok(create_run(world, &run));
    plim__run_close(run);
}

void reopen_run(world_t *world)
{
    plim__run_t *run;
    assert_ok(open_run(world, &run));
    plim__run_close(run);
}

void path_in(const world_t *world, const char *name, char path_out[700])
{
    (void)snprintf(path_out, 700, "%s/%s", world->path, name);
}

int64_t size_of(const world_t *world, const char *name)
{
    char path[700];
    struct stat about;
    path_in(world, name, path);
    return stat(path, &about) == 0 ? about.st_size : -1;
}

void append_raw(const world_t *world, const char *name, const char *text)
{
    char path[700];
    path_in(world, name, path);
    FILE *file = fopen(path, "a");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

void assert_says(const char *words)
{
    if (strstr(plim_last_error(), words) == NULL)
        fail_msg("'%s' does not say '%s'", plim_last_error(), words);
}

/* A file's text with the first `from` replaced by `to`. */
void replace_text(const world_t *world, const char *name, const char *from, const char *to)
{
    char path[700];
    static char text[65536], after[65536];
    path_in(world, name, path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    char *at = strstr(text, from);
    assert_non_null(at);
    (void)snprintf(after, sizeof after, "%.*s%s%s", (int)(at - text), text, to, at + strlen(from));
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(after, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

void unseal(const world_t *world)
{
    char path[700];
    static char text[65536];
    path_in(world, "run.json", path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    assert_int_equal(fclose(file), 0);
    char *at = strstr(text, ",\n  \"self\"");
    assert_non_null(at);
    memcpy(at, "\n}\n", sizeof "\n}\n");
    file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

void flip_bit(const char *path, int64_t bit)
{
    FILE *file = fopen(path, "r+");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)(bit / 8), SEEK_SET), 0);
    const int byte = fgetc(file);
    assert_true(byte != EOF);
    assert_int_equal(fseek(file, (long)(bit / 8), SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1 << bit % 8, file), byte ^ 1 << bit % 8);
    assert_int_equal(fclose(file), 0);
}
