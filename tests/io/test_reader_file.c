/* A file as a reader: all its bytes in order through either engine, then the end. */
/* labels: asan unprivileged */
#include "support/harness.h"

#include "base/rng.h"
#include "io/reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

static char *make_file(const char *path, size_t size)
{
    char *bytes = malloc(size + 8);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = plim__rng_u64(size, i);
        memcpy(bytes + i, &word, 8);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    assert_int_equal(close(fd), 0);
    return bytes;
}

static void read_and_check(plim_io_engine_t engine, const char *path, size_t size, size_t buffer)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engine);
    char *bytes = make_file(path, size);
    char *back = malloc(size + 100000);
    assert_non_null(back);
    plim__reader_t *reader;
    int64_t before = plim__ledger_reserved(job.ledger);
    assert_ok(plim__reader_file(&job, path, buffer, &reader));
    assert_int_equal(reader->size, size);
    assert_string_equal(reader->name, path);
    size_t total = 0, got = 1;
    uint64_t draw = 0;
    while (got > 0) {
        size_t capacity = 1 + (size_t)plim__rng_below(3, &draw, 90000);
        assert_ok(reader->read(reader, back + total, capacity, &got));
        assert_true(got <= capacity);
        total += got;
        assert_int_equal(reader->position, total);
    }
    assert_int_equal(total, size);
    assert_memory_equal(back, bytes, size);
    assert_ok(reader->read(reader, back, 10, &got));
    assert_int_equal(got, 0);
    reader->close(reader);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    free(bytes);
    free(back);
    test_job_end(&job);
}

static void reads_every_size(void **state)
{
    (void)state;
    static const size_t sizes[] = {0, 1, 511, 4096, 4097, 8192, 65536, 100001, 1 << 20};
    char directory[512], path[600];
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/file", directory);
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            read_and_check(engines[e], path, sizes[i], 4096);
            read_and_check(engines[e], path, sizes[i], 65536);
        }
    }
    test_directory_remove(directory);
}

static void reports_truncation_and_absence(void **state)
{
    (void)state;
    char directory[512], path[600];
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/file", directory);
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e]);
        plim__reader_t *reader = NULL;
        char bytes[8192];
        size_t got;
        free(make_file(path, 100000));
        assert_ok(plim__reader_file(&job, path, 4096, &reader));
        assert_int_equal(truncate(path, 20000), 0);
        plim_status_t status = PLIM_OK;
        while (status == PLIM_OK && reader->position < 100000)
            status = reader->read(reader, bytes, sizeof bytes, &got);
        assert_int_equal(status, PLIM_ERR_DATA);
        assert_int_equal(reader->position, 16384);
        assert_non_null(strstr(plim_last_error(), path));
        assert_non_null(strstr(plim_last_error(), "offset 16384"));
        reader->close(reader);
        reader = NULL;
        assert_int_equal(plim__reader_file(&job, "/nonexistent/x", 4096, &reader), PLIM_ERR_IO);
        assert_int_equal(plim__reader_file(&job, directory, 4096, &reader), PLIM_ERR_IO);
        assert_null(reader);
        test_job_end(&job);
    }
    test_directory_remove(directory);
}

static plim_status_t open_one(plim_job_t *job, void *context)
{
    plim__reader_t *reader;
    plim_status_t status = plim__reader_file(job, context, 4096, &reader);
    if (status == PLIM_OK)
        reader->close(reader);
    return status;
}

static void survives_refused_memory(void **state)
{
    (void)state;
    char directory[512], path[600];
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/file", directory);
    free(make_file(path, 10000));
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e]);
        test_fail_each_arena(&job, open_one, path);
        test_job_end(&job);
    }
    test_directory_remove(directory);
}

static void begins_anywhere(void **state)
{
    (void)state;
    const int64_t offsets[] = {0, 1, 4095, 4096, 4097, 99999, 100000};
    char directory[512], path[600], back[64];
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/file", directory);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    char *bytes = make_file(path, 100000);
    plim__reader_t *reader;
    size_t got;
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        assert_ok(plim__reader_file_at(&job, path, 8192, offsets[i], &reader));
        assert_int_equal(reader->position, offsets[i]);
        assert_ok(plim__reader_read_some(reader, back, sizeof back, &got));
        assert_int_equal(got, offsets[i] > 99936 ? 100000 - offsets[i] : 64);
        assert_memory_equal(back, bytes + offsets[i], got);
        reader->close(reader);
    }
    assert_int_equal(plim__reader_file_at(&job, path, 8192, 100001, &reader), PLIM_ERR_DATA);
    assert_int_equal(plim__reader_file_at(&job, path, 8192, 1000000, &reader), PLIM_ERR_DATA);
    assert_int_equal(plim__reader_file_at(&job, path, 8192, 102400, &reader), PLIM_ERR_DATA);
    free(bytes);
    test_job_end(&job);
    test_directory_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_every_size),
        cmocka_unit_test(begins_anywhere),
        cmocka_unit_test(reports_truncation_and_absence),
        cmocka_unit_test(survives_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
