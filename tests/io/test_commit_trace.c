/*
 * The order of system calls that makes a directory durable before it is visible, seen by strace.
 * The program traces itself: with an argument it plays the scene.
 */
#include "support/harness.h"
#include "support/trace.h"

#include "io/commit.h"
#include "io/writer.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
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
    assert_ok(plim__writer_create(&job, AT_FDCWD, path, 4096, 10000, &writer));
    assert_ok(plim__writer_write(writer, path, sizeof path));
    assert_ok(plim__writer_set_front(writer, "front", 5));
    assert_ok(plim__writer_finish(writer, &size, &checksums, &num_checksums));
    plim__writer_destroy(writer);
    (void)snprintf(path, sizeof path, "%s/dataset.json", staging.path);
    assert_ok(plim__commit_file(AT_FDCWD, path, "{}", 2, false));
    assert_ok(plim__staging_commit(&staging));
    test_job_end(&job);
    return 0;
}

#define CALLS "fsync,fdatasync,rename,renameat,renameat2,ftruncate"

static void syncs_before_it_renames(void **state)
{
    (void)state;
    char directory[512], target[600], log[600], staged[1200];
    test_directory_make(directory);
    (void)snprintf(target, sizeof target, "%s/data", directory);
    (void)snprintf(log, sizeof log, "%s/trace", directory);
    if (!test_trace(CALLS, "true", "x", log)) {
        test_directory_remove(directory);
        print_message("SKIPPED: strace is missing or may not trace here\n");
        skip();
    }
    assert_true(test_trace(CALLS, own_path, target, log));
    (void)snprintf(staged, sizeof staged, "<%s/.data.partial/column>", directory);
    int column = test_trace_line(log, 0, "fsync(", staged);
    assert_true(column >= 0);
    assert_int_equal(test_trace_line(log, column + 1, "ftruncate(", staged), -1);
    (void)snprintf(staged, sizeof staged, "<%s/.data.partial/.dataset.json.partial>", directory);
    int json = test_trace_line(log, 0, "fsync(", staged);
    int json_named = test_trace_line(log, json, "rename", "\"dataset.json\"");
    (void)snprintf(staged, sizeof staged, "<%s/.data.partial>", directory);
    int directory_synced = test_trace_line(log, json_named, "fsync(", staged);
    int named = test_trace_line(log, 0, "rename", "\"data\"");
    (void)snprintf(staged, sizeof staged, "<%s>", directory);
    int parent = test_trace_line(log, named, "fsync(", staged);
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
