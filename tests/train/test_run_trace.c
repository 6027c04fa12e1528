/*
 * The order of system calls that makes a checkpoint durable before it is visible, and metrics
 * before the checkpoint that counts them, seen by strace. The program traces itself: with an
 * argument it plays the scene.
 */
/* labels: asan */
#include "support/run.h"
#include "support/trace.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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

#define CALLS "fsync,rename,renameat,renameat2,linkat,ftruncate,write,writev,pwrite64,mkdir"

static void syncs_before_it_names(void **state)
{
    (void)state;
    char directory[512], log[600], run[600], metrics[700], nameless[700], partial[700];
    test_directory_make(directory);
    (void)snprintf(log, sizeof log, "%s/trace", directory);
    if (!test_trace(CALLS, "true", "x", log)) {
        test_directory_remove(directory);
        print_message("SKIPPED: strace is missing or may not trace here\n");
        skip();
    }
    assert_true(test_trace(CALLS, own_path, directory, log));
    (void)snprintf(run, sizeof run, "<%s/run>", directory);
    (void)snprintf(metrics, sizeof metrics, "<%s/run/metrics.jsonl>", directory);
    (void)snprintf(nameless, sizeof nameless, "<%s/run/#", directory);
    (void)snprintf(partial, sizeof partial, "<%s/run/.last.safetensors.partial>", directory);

    /* run.json and the directory itself. */
    int json = test_trace_line(log, 0, "fsync(", "/run/.run.json.partial>");
    int json_named = test_trace_line(log, json, "renameat2(", "\"run.json\"");
    int json_kept = test_trace_line(log, json_named, "fsync(", run);
    (void)snprintf(run, sizeof run, "<%s>", directory);
    int parent = test_trace_line(log, json_kept, "fsync(", run);
    assert_true(json >= 0 && json < json_named && json_named < json_kept && json_kept < parent);

    /* The checkpoint: through a nameless file where there are such files. */
    (void)snprintf(run, sizeof run, "<%s/run>", directory);
    int line = test_trace_line(log, parent, "writev(", metrics);
    int lines_kept = test_trace_line(log, line, "fsync(", metrics);
    bool named = test_trace_line(log, 0, "linkat(", "") < 0;
    const char *file = named ? partial : nameless;
    int written = test_trace_line(log, lines_kept, "pwrite64(", file);
    int kept = test_trace_line(log, written, "fsync(", file);
    int linked =
        named ? kept : test_trace_line(log, kept, "linkat(", "\".last.safetensors.partial");
    int renamed = test_trace_line(log, linked, "renameat(", "\"last.safetensors\")");
    int directory_kept = test_trace_line(log, renamed, "fsync(", run);
    assert_true(line >= 0 && line < lines_kept && lines_kept < written && written < kept);
    assert_true(kept <= linked && linked < renamed && renamed < directory_kept);
    assert_int_equal(test_trace_line(log, kept + 1, "pwrite64(", file), -1);

    /* The resume: what came after is cut off, and stays so. */
    int cut = test_trace_line(log, directory_kept, "ftruncate(", metrics);
    int cut_kept = test_trace_line(log, cut, "fsync(", metrics);
    assert_true(directory_kept < cut && cut < cut_kept);
    test_directory_remove(directory);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(syncs_before_it_names)};
    own_path = argv[0];
    return argc > 1 ? play(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
