/*
 * The order of system calls that makes a directory durable before it is visible, seen by strace.
 * The program traces itself: with an argument it plays the scene.
 */
#include "support/harness.h"

#include "io/commit.h"
#include "io/writer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static const char *own_path;

static int play(const char *target)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__staging_t staging;
    plim__writer_t *writer;
    char path[PATH_MAX + 16] = {0};
    int64_t size, num_checksums;
    const uint64_t *checksums;
    assert_ok(plim__staging_begin(target, &staging));
    (void)snprintf(path, sizeof path, "%s/column", staging.path);
    assert_ok(plim__writer_create(&job, path, 4096, 10000, &writer));
    assert_ok(plim__writer_write(writer, path, sizeof path));
    assert_ok(plim__writer_set_front(writer, "front", 5));
    assert_ok(plim__writer_finish(writer, &size, &checksums, &num_checksums));
    plim__writer_destroy(writer);
    (void)snprintf(path, sizeof path, "%s/dataset.json", staging.path);
    assert_ok(plim__commit_file(path, "{}", 2));
    assert_ok(plim__staging_commit(&staging));
    test_job_end(&job);
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
                     "trace=fsync,fdatasync,rename,renameat,renameat2,ftruncate", program, argument,
                     (char *)NULL);
        _exit(127);
    }
    assert_int_equal(waitpid(child, &how, 0), child);
    return WIFEXITED(how) && WEXITSTATUS(how) == 0;
}

/* The number of the first line from `from` on that holds both, or -1. */
static int line_with(const char *log, int from, const char *call, const char *argument)
{
    char line[16384];
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

static void syncs_before_it_renames(void **state)
{
    (void)state;
    char directory[512], target[600], log[600], staged[1200];
    test_directory_make(directory);
    (void)snprintf(target, sizeof target, "%s/data", directory);
    (void)snprintf(log, sizeof log, "%s/trace", directory);
    if (!trace("true", "x", log)) {
        test_directory_remove(directory);
        print_message("SKIPPED: strace is missing or may not trace here\n");
        skip();
    }
    assert_true(trace(own_path, target, log));
    (void)snprintf(staged, sizeof staged, "<%s/.data.partial/column>", directory);
    int column = line_with(log, 0, "fsync(", staged);
    assert_true(column >= 0);
    assert_int_equal(line_with(log, column + 1, "ftruncate(", staged), -1);
    (void)snprintf(staged, sizeof staged, "<%s/.data.partial/.dataset.json.partial>", directory);
    int json = line_with(log, 0, "fsync(", staged);
    int json_named = line_with(log, json, "rename", "/dataset.json\"");
    (void)snprintf(staged, sizeof staged, "<%s/.data.partial>", directory);
    int directory_synced = line_with(log, json_named, "fsync(", staged);
    (void)snprintf(staged, sizeof staged, "\"%s\"", target);
    int named = line_with(log, 0, "rename", staged);
    (void)snprintf(staged, sizeof staged, "<%s>", directory);
    int parent = line_with(log, named, "fsync(", staged);
    assert_true(column < json && json < json_named && json_named < directory_synced);
    assert_true(directory_synced < named && named < parent);
    test_directory_remove(directory);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(syncs_before_it_renames)};
    own_path = argv[0];
    return argc > 1 ? play(argv[1]) : cmocka_run_group_tests(tests, NULL, NULL);
}
