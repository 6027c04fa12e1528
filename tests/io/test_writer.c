/* Files written through either engine: the bytes, the size, the checksums, the front. */
/* labels: asan tsan unprivileged */
#include "support/harness.h"

#include "base/rng.h"
#include "io/writer.h"

#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

static char *random_bytes(size_t size, uint64_t key)
{
    char *bytes = malloc(size + 8);
    assert_non_null(bytes);
    for (size_t i = 0; i < size; i += 8) {
        uint64_t word = plim__rng_u64(key, i);
        memcpy(bytes + i, &word, 8);
    }
    return bytes;
}

/* The file holds exactly these bytes, and the checksums are theirs. */
static void assert_file_is(const char *path, const char *bytes, int64_t size,
                           const uint64_t *checksums, int64_t num_checksums)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    struct stat about;
    assert_int_equal(fstat(fd, &about), 0);
    assert_int_equal(about.st_size, size);
    char *back = malloc((size_t)size + 1);
    assert_non_null(back);
    assert_int_equal(read(fd, back, (size_t)size + 1), size);
    assert_memory_equal(back, bytes, (size_t)size);
    int64_t chunk = 0;
    for (int64_t at = 0; at < size; at += PLIM__CHECKSUM_BYTES, chunk++) {
        int64_t left = size - at < PLIM__CHECKSUM_BYTES ? size - at : PLIM__CHECKSUM_BYTES;
        assert_true(checksums[chunk] == XXH3_64bits(back + at, (size_t)left));
    }
    assert_int_equal(chunk, num_checksums);
    free(back);
    (void)close(fd);
}

/* Writes `size` bytes in chunks of random sizes, by copy and in place, with a late front or none.
 */
static void write_and_check(plim_io_engine_t engine, size_t buffer, int64_t size, bool front)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engine);
    char directory[512], path[600];
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/file", directory);
    char *bytes = random_bytes((size_t)size, (uint64_t)size);
    plim__writer_t *writer;
    int64_t before = plim__ledger_reserved(job.ledger);
    assert_ok(plim__writer_create(&job, AT_FDCWD, path, buffer, size, &writer));
    assert_true(plim__ledger_reserved(job.ledger) - before <=
                (int64_t)plim__writer_estimate(engine, buffer, size));
    uint64_t draw = 0;
    for (int64_t at = 0; at < size;) {
        int64_t chunk = (int64_t)plim__rng_below(7, &draw, 3 * buffer) + 1;
        chunk = chunk < size - at ? chunk : size - at;
        if (draw % 2 == 0) {
            assert_ok(plim__writer_write(writer, bytes + at, (size_t)chunk));
        } else {
            void *to;
            size_t space;
            assert_ok(plim__writer_space(writer, &to, &space));
            assert_true(space > 0);
            chunk = chunk < (int64_t)space ? chunk : (int64_t)space;
            memcpy(to, bytes + at, (size_t)chunk);
            assert_ok(plim__writer_advance(writer, (size_t)chunk));
        }
        at += chunk;
    }
    assert_int_equal(plim__writer_write(writer, "x", 1), PLIM_ERR_USAGE);
    if (front) {
        size_t length = size < 4096 ? (size_t)size : 4096;
        memset(bytes, 'h', length);
        assert_ok(plim__writer_set_front(writer, "wrong", size < 5 ? (size_t)size : 5));
        assert_ok(plim__writer_set_front(writer, bytes, length));
    }
    int64_t written, num_checksums;
    const uint64_t *checksums;
    assert_ok(plim__writer_finish(writer, &written, &checksums, &num_checksums));
    assert_int_equal(written, size);
    assert_file_is(path, bytes, size, checksums, num_checksums);
    plim__writer_destroy(writer);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    free(bytes);
    test_directory_remove(directory);
    test_job_end(&job);
}

static void writes_every_size(void **state)
{
    (void)state;
    static const int64_t sizes[] = {0, 1, 511, 512, 4095, 4096, 4097, 8191, 8192, 100001, 1 << 20};
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
            write_and_check(engines[e], 4096, sizes[i], false);
            write_and_check(engines[e], 65536, sizes[i], sizes[i] > 0);
        }
    }
}

static void checksums_cross_chunks(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++)
        write_and_check(engines[e], (size_t)3 << 20, 2 * PLIM__CHECKSUM_BYTES + 12345, e == 0);
    write_and_check(PLIM_IO_AUTO, (size_t)1 << 20, PLIM__CHECKSUM_BYTES, true);
}

static void refuses_a_file_that_exists(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    char directory[512], path[600];
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/file", directory);
    plim__writer_t *writer = NULL;
    assert_ok(plim__writer_create(&job, AT_FDCWD, path, 4096, 10, &writer));
    plim__writer_t *second = NULL;
    assert_int_equal(plim__writer_create(&job, AT_FDCWD, path, 4096, 10, &second), PLIM_ERR_IO);
    assert_non_null(strstr(plim_last_error(), path));
    assert_null(second);
    plim__writer_destroy(writer);
    plim__writer_destroy(NULL);
    test_directory_remove(directory);
    test_job_end(&job);
}

static plim_status_t make_one(plim_job_t *job, void *context)
{
    plim__writer_t *writer;
    (void)unlink(context);
    plim_status_t status = plim__writer_create(job, AT_FDCWD, context, 4096, 10, &writer);
    if (status == PLIM_OK)
        plim__writer_destroy(writer);
    return status;
}

static void survives_refused_memory(void **state)
{
    (void)state;
    char directory[512], path[600];
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/file", directory);
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e]);
        test_fail_each_arena(&job, make_one, path);
        test_job_end(&job);
    }
    test_directory_remove(directory);
}

static void put_text(const char *path, const char *text)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        (void)!write(fd, text, strlen(text));
        (void)close(fd);
    }
}

/* Mounts a file system of 1 MiB that only this process sees; false where that is not allowed. */
static bool mount_small(const char *path)
{
    uid_t user = getuid();
    gid_t group = getgid();
    if (unshare(user == 0 ? CLONE_NEWNS : CLONE_NEWNS | CLONE_NEWUSER) != 0)
        return false;
    if (user != 0) {
        char map[64];
        (void)snprintf(map, sizeof map, "0 %u 1", (unsigned)user);
        put_text("/proc/self/uid_map", map);
        (void)snprintf(map, sizeof map, "0 %u 1", (unsigned)group);
        put_text("/proc/self/setgroups", "deny");
        put_text("/proc/self/gid_map", map);
    }
    return mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) == 0 &&
           mount("plimsoll-test", path, "tmpfs", 0, "size=1m") == 0;
}

/* 0 when the error is as it should be, 77 when there is no small disk to fill. */
static int fill_disk(const char *directory, plim_io_engine_t engine)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engine);
    plim__writer_t *writer;
    char path[600], *bytes = random_bytes((size_t)4 << 20, 1);
    int64_t size, num_checksums;
    const uint64_t *checksums;
    if (!mount_small(directory))
        return 77;
    (void)snprintf(path, sizeof path, "%s/file", directory);
    assert_ok(plim__writer_create(&job, AT_FDCWD, path, 65536, (int64_t)4 << 20, &writer));
    plim_status_t status = plim__writer_write(writer, bytes, (size_t)4 << 20);
    if (status == PLIM_OK)
        status = plim__writer_finish(writer, &size, &checksums, &num_checksums);
    bool named = strstr(plim_last_error(), path) != NULL &&
                 strstr(plim_last_error(), "disk is full") != NULL;
    plim__writer_destroy(writer);
    free(bytes);
    return status == PLIM_ERR_DISK && named ? 0 : 1;
}

static void says_that_the_disk_is_full(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        char directory[512];
        int how;
        test_directory_make(directory);
        pid_t child = fork();
        assert_true(child >= 0);
        if (child == 0)
            _exit(fill_disk(directory, engines[e]));
        assert_int_equal(waitpid(child, &how, 0), child);
        test_directory_remove(directory);
        assert_true(WIFEXITED(how));
        if (WEXITSTATUS(how) == 77) {
            print_message("SKIPPED: no small file system can be mounted here (needs root or user "
                          "namespaces)\n");
            skip();
        }
        assert_int_equal(WEXITSTATUS(how), 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(writes_every_size),          cmocka_unit_test(checksums_cross_chunks),
        cmocka_unit_test(refuses_a_file_that_exists), cmocka_unit_test(survives_refused_memory),
        cmocka_unit_test(says_that_the_disk_is_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
