/*
 * The order of system calls that makes a checkpoint durable before it is visible, and metrics
 * before the checkpoint that counts them, seen by strace. The program traces itself: with an
 * argument it plays the scene.
 */
#include "support/run.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *own_path;

/* A checkpoint, a line after it, and a resume that takes the line back. */
static int play(const char *directory)
{
    world_t world = {.training = PLIM_TRAINING_INIT};
    plim__run_t *run;
    model_t model;
    plim__position_t position = {.epoch = 1};
    bool found;
    world.job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    memcpy(world.dataset.fingerprint, "0123456789abcdef", 17);
    (void)snprintf(world.path, sizeof world.path, "%s/run", directory);
    (void)snprintf(world.directory, sizeof world.directory, "%s", directory);
    model_make(&model, 1, 2);
    assert_ok(create_run(&world, &run));
    assert_ok(plim__run_metrics(run, "one"));
    assert_ok(plim__run_save(run, model.parameters, NUM_PARAMETERS, &position));
    assert_ok(plim__run_metrics(run, "two"));
    plim__run_close(run);
    assert_ok(open_run(&world, &run));
    assert_ok(plim__run_load(run, model.parameters, NUM_PARAMETERS, &position, &found));
    plim__run_close(run);
    test_job_end(&world.job);
    return 0;
}

/* Runs a program under strace; true when it ended well. */
static bool trace(const char *program, const char *argument, const char *log)
{
    int how;
    pid_t child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        /* LeakSanitizer cannot work under a tracer. */
        (void)setenv("ASAN_OPTIONS", "detect_leaks=0", 1);
        (void)execlp("strace", "strace", "-f", "-y", "-s", "4096", "-o", log, "-e",
                     "trace=fsync,rename,linkat,ftruncate,write,writev,pwrite64,mkdir", program,
                     argument, (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

/* The number of the first line from `from` on that holds both, or -1. */
static int line_with(const char *log, int from, const char *call, const char *argument)
{
    char line[65536];
    int number = 0, found = -1;
    FILE *file = fopen(log, "r");
    assert_non_null(file);
    for (; found < 0 && fgets(line, sizeof line, file) != NULL; number++) {
        if (number >= from && strstr(line, call) != NULL && strstr(line, argument) != NULL)
            found = number;
    }
    (void)fclose(file);
    return found;
}

static void syncs_before_it_names(void **state)
{
    (void)state;
    char directory[512], log[600], run[600], metrics[700], nameless[700], partial[700];
    test_directory_make(directory);
    (void)snprintf(log, sizeof log, "%s/trace", directory);
    if (!trace("true", "x", log)) {
        test_directory_remove(directory);
        print_message("SKIPPED: strace is missing or may not trace here\n");
        skip();
    }
    assert_true(trace(own_path, directory, log));
    (void)snprintf(run, sizeof run, "<%s/run>", directory);
    (void)snprintf(metrics, sizeof metrics, "<%s/run/metrics.jsonl>", directory);
    (void)snprintf(nameless, sizeof nameless, "<%s/run/#", directory);
    (void)snprintf(partial, sizeof partial, "<%s/run/.last.safetensors.partial>", directory);

    /* run.json and the directory itself. */
    int json = line_with(log, 0, "fsync(", "/run/.run.json.partial>");
    int json_named = line_with(log, json, "rename(", "/run.json\"");
    int json_kept = line_with(log, json_named, "fsync(", run);
    (void)snprintf(run, sizeof run, "<%s>", directory);
    int parent = line_with(log, json_kept, "fsync(", run);
    assert_true(json >= 0 && json < json_named && json_named < json_kept && json_kept < parent);

    /* The checkpoint: through a nameless file where there are such files. */
    (void)snprintf(run, sizeof run, "<%s/run>", directory);
    int line = line_with(log, parent, "writev(", metrics);
    int lines_kept = line_with(log, line, "fsync(", metrics);
    bool named = line_with(log, 0, "linkat(", "") < 0;
    const char *file = named ? partial : nameless;
    int written = line_with(log, lines_kept, "pwrite64(", file);
    int kept = line_with(log, written, "fsync(", file);
    int linked = named ? kept : line_with(log, kept, "linkat(", "/.last.safetensors.partial");
    int renamed = line_with(log, linked, "rename(", "/last.safetensors\")");
    int directory_kept = line_with(log, renamed, "fsync(", run);
    assert_true(line >= 0 && line < lines_kept && lines_kept < written && written < kept);
    assert_true(kept <= linked && linked < renamed && renamed < directory_kept);
    assert_int_equal(line_with(log, kept + 1, "pwrite64(", file), -1);

    /* The resume: what came after is cut off, and stays so. */
    int cut = line_with(log, directory_kept, "ftruncate(", metrics);
    int cut_kept = line_with(log, cut, "fsync(", metrics);
    assert_true(directory_kept < cut && cut < cut_kept);
    test_directory_remove(directory);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(syncs_before_it_names)};
    own_path = argv[0];
    return argc > 1 ? play(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
