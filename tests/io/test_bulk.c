/* Long reads straight into memory equal the file, whatever its end, and fail as they should. */
/* labels: asan tsan unprivileged */
#include "support/harness.h"

#include "base/fail.h"
#include "base/rng.h"
#include "io/bulk.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

typedef struct seen {
    const char *bytes; /* what the range must hold */
    atomic_llong sum;
    int64_t fail_at; /* the chunk whose taker fails; -1: none */
} seen_t;

static plim_status_t take(void *context, int64_t at, void *data, size_t size)
{
    seen_t *seen = context;
    if (at == seen->fail_at)
        return plim__fail(PLIM_ERR_DATA, "chunk %lld is not wanted", (long long)at);
    if (memcmp(seen->bytes + at, data, size) != 0)
        return plim__fail(PLIM_ERR_DATA, "chunk %lld is wrong", (long long)at);
    atomic_fetch_add(&seen->sum, (long long)size);
    return PLIM_OK;
}

static void reads_all(void **state)
{
    (void)state;
    char directory[512], path[600];
    enum { LARGEST = 5000003 };
    char *bytes = malloc(LARGEST + 8), *to = aligned_alloc(4096, LARGEST / 4096 * 4096 + 8192);
    assert_true(bytes != NULL && to != NULL);
    for (size_t i = 0; i < LARGEST; i += 8) {
        uint64_t word = plim__rng_u64(3, i);
        memcpy(bytes + i, &word, 8);
    }
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/file", directory);
    static const int64_t sizes[] = {0, 1, 4096, 4097, 1 << 20, (1 << 20) + 1, LARGEST - 4096};
    for (int i = 0; i < 14; i++) {
        plim__file_t file;
        int64_t size = sizes[i / 2];
        seen_t seen = {.bytes = bytes + 4096, .fail_at = -1};
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        assert_int_equal(write(fd, bytes, (size_t)size + 4096), size + 4096);
        assert_int_equal(close(fd), 0);
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 3, engines[i % 2]);
        int64_t before = plim__ledger_reserved(job.ledger);
        assert_ok(plim__file_open(path, PLIM__FILE_READ, true, &file));
        assert_ok(plim__bulk_read(&job, &file, 4096, to, size, take, &seen));
        assert_memory_equal(to, bytes + 4096, (size_t)size);
        assert_int_equal(seen.sum, size);
        assert_true(plim__ledger_peak(job.ledger) - before <= (int64_t)plim__bulk_estimate(&job));
        if (size > 0) {
            seen.fail_at = 0;
            assert_int_equal(plim__bulk_read(&job, &file, 4096, to, size, take, &seen),
                             PLIM_ERR_DATA);
            assert_string_equal(plim_last_error(), "chunk 0 is not wanted");
            assert_int_equal(truncate(path, 4096 + size / 2), 0);
            assert_int_equal(plim__bulk_read(&job, &file, 4096, to, size, NULL, NULL),
                             PLIM_ERR_DATA);
            assert_non_null(strstr(plim_last_error(), path));
        }
        plim__file_close(&file);
        test_job_end(&job);
    }
    test_directory_remove(directory);
    free(to);
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(reads_all)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
