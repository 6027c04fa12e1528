/*
 * The kernel's bad days: short transfers, EINTR, EAGAIN, EIO, a full disk, calls it lacks. This
 * program defines the system calls the library uses, so the linker prefers them to libc's and
 * liburing's; each passes through unless a fault is switched on.
 */
/* labels: asan tsan unprivileged */
#include "support/harness.h"

#include "base/rng.h"
#include "io/commit.h"
#include "io/range_reader.h"
#include "io/reader.h"
#include "io/writer.h"
#include "support/safetensors.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <liburing.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static atomic_bool fault_short;       /* transfers end early, on multiples of 4,096 bytes */
static atomic_int fault_often;        /* this errno (EINTR, EAGAIN) in two of three transfers */
static atomic_int fault_always;       /* this errno in every one */
static atomic_int fault_sync;         /* this errno from fsync */
static atomic_bool fault_no_dioalign; /* statx does not tell the alignment of direct I/O */
static atomic_bool fault_no_tmpfile;
static atomic_bool fault_no_link; /* a nameless file can be made, but not named */
static atomic_bool fault_no_noreplace;
static atomic_int injected;

static void faults_off(void)
{
    fault_short = false;
    fault_often = 0;
    fault_always = 0;
    fault_sync = 0;
    injected = 0;
}

/* The errno to fail with now, or 0. */
static int fault_now(void)
{
    static atomic_uint turn;
    int error = fault_always != 0                                         ? fault_always
                : fault_often != 0 && atomic_fetch_add(&turn, 1) % 3 != 0 ? fault_often
                                                                          : 0;
    if (error != 0)
        atomic_fetch_add(&injected, 1);
    return error;
}

static size_t shortened(size_t size)
{
    if (!fault_short || size <= 4096)
        return size;
    atomic_fetch_add(&injected, 1);
    return (size / 2 + 4095) / 4096 * 4096;
}

ssize_t pread(int fd, void *to, size_t size, off_t offset)
{
    int error = fault_now();
    if (error != 0) {
        errno = error;
        return -1;
    }
    return syscall(SYS_pread64, fd, to, shortened(size), offset);
}

ssize_t pwrite(int fd, const void *from, size_t size, off_t offset)
{
    int error = fault_now();
    if (error != 0) {
        errno = error;
        return -1;
    }
    return syscall(SYS_pwrite64, fd, from, shortened(size), offset);
}

/* Shortens requests before they are submitted, and spoils completed ones. */
int io_uring_submit_and_wait(struct io_uring *ring, unsigned wanted)
{
    int (*real)(struct io_uring *, unsigned);
    static unsigned spoiled; /* completions before this one have had their turn */
    *(void **)&real = dlsym(RTLD_NEXT, "io_uring_submit_and_wait");
    for (unsigned i = ring->sq.sqe_head; i != ring->sq.sqe_tail; i++) {
        struct io_uring_sqe *sqe = &ring->sq.sqes[i & *ring->sq.kring_mask];
        sqe->len = (unsigned)shortened(sqe->len);
    }
    int taken = real(ring, wanted);
    unsigned head = *ring->cq.khead, tail = io_uring_smp_load_acquire(ring->cq.ktail);
    if (tail - spoiled > tail - head)
        spoiled = head;
    for (; spoiled != tail; spoiled++) {
        int error = fault_now();
        if (error != 0)
            ring->cq.cqes[spoiled & *ring->cq.kring_mask].res = -error;
    }
    return taken;
}

int fsync(int fd)
{
    if (fault_sync != 0) {
        errno = fault_sync;
        return -1;
    }
    return (int)syscall(SYS_fsync, fd);
}

int statx(int fd, const char *path, int flags, unsigned mask, struct statx *answer)
{
    if (fault_no_dioalign)
        mask &= ~0x2000u;
    int result = (int)syscall(SYS_statx, fd, path, flags, mask, answer);
    if (fault_no_dioalign)
        answer->stx_mask &= ~0x2000u;
    return result;
}

int openat(int directory, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, int) : 0;
    va_end(arguments);
    if (fault_no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_openat, directory, path, flags, mode);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    if (fault_no_link) {
        atomic_fetch_add(&injected, 1);
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}

int renameat2(int from_fd, const char *from, int to_fd, const char *to, unsigned flags)
{
    if (fault_no_noreplace && flags != 0) {
        errno = EINVAL;
        return -1;
    }
    return (int)syscall(SYS_renameat2, from_fd, from, to_fd, to, flags);
}

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

#define FILE_BYTES 700001
#define ROW 12000
#define ROWS (FILE_BYTES / ROW)

typedef struct world {
    plim_job_t job;
    char directory[512];
    char path[600];
    char *bytes; /* what the file shall hold */
    char *back;
} world_t;

static void world_make(world_t *world, plim_io_engine_t engine)
{
    world->job = test_job_make(PLIM_LINE_NONE, 1, engine);
    test_directory_make(world->directory);
    (void)snprintf(world->path, sizeof world->path, "%s/file", world->directory);
    world->bytes = malloc(FILE_BYTES + 8);
    world->back = aligned_alloc(4096, (FILE_BYTES + 4096) / 4096 * 4096);
    assert_non_null(world->bytes);
    assert_non_null(world->back);
    for (size_t i = 0; i < FILE_BYTES; i += 8) {
        uint64_t word = plim__rng_u64(9, i);
        memcpy(world->bytes + i, &word, 8);
    }
}

static void world_end(world_t *world)
{
    faults_off();
    free(world->bytes);
    free(world->back);
    test_directory_remove(world->directory);
    test_job_end(&world->job);
}

static plim_status_t write_file(world_t *world)
{
    plim__writer_t *writer;
    int64_t size, num_checksums;
    const uint64_t *checksums;
    (void)unlink(world->path);
    assert_ok(plim__writer_create(&world->job, AT_FDCWD, world->path, 65536, FILE_BYTES, &writer));
    plim_status_t status = plim__writer_write(writer, world->bytes, FILE_BYTES);
    if (status == PLIM_OK)
        status = plim__writer_set_front(writer, world->bytes, 4096);
    if (status == PLIM_OK)
        status = plim__writer_finish(writer, &size, &checksums, &num_checksums);
    char message[1024];
    (void)snprintf(message, sizeof message, "%s", plim_last_error());
    if (status != PLIM_OK) /* it stays failed */
        assert_int_not_equal(plim__writer_finish(writer, &size, &checksums, &num_checksums),
                             PLIM_OK);
    plim__writer_destroy(writer);
    if (status != PLIM_OK && strstr(message, world->path) == NULL)
        fail_msg("'%s' does not name the file", message);
    return status;
}

static plim_status_t read_rows(world_t *world, bool direct)
{
    plim__range_reader_params_t params = {8, ROW, 0};
    plim__read_t reads[ROWS];
    plim__range_reader_t *reader;
    plim__file_t file;
    assert_ok(plim__file_open(world->path, PLIM__FILE_READ, direct, &file));
    assert_ok(plim__range_reader_create(&world->job, &params, &reader));
    for (int i = 0; i < ROWS; i++) {
        int64_t offset = (int64_t)(i * 7 % ROWS) * ROW;
        reads[i] = (plim__read_t){offset, ROW, world->back + offset};
    }
    plim_status_t status = plim__range_reader_read(reader, &file, reads, ROWS);
    plim__range_reader_destroy(reader);
    plim__file_close(&file);
    return status;
}

static plim_status_t read_to_end(world_t *world)
{
    plim__reader_t *reader;
    plim_status_t status;
    size_t got;
    assert_ok(plim__reader_file(&world->job, world->path, 65536, &reader));
    do {
        status = reader->read(reader, world->back + reader->position,
                              (size_t)(FILE_BYTES - reader->position), &got);
    } while (status == PLIM_OK && got > 0);
    reader->close(reader);
    return status;
}

static void transfer_and_check(world_t *world)
{
    assert_ok(write_file(world));
    for (int direct = 0; direct < 2; direct++) {
        memset(world->back, 0, FILE_BYTES);
        assert_ok(read_rows(world, direct != 0));
        assert_memory_equal(world->back, world->bytes, (size_t)ROWS * ROW);
    }
    memset(world->back, 0, FILE_BYTES);
    assert_ok(read_to_end(world));
    assert_memory_equal(world->back, world->bytes, FILE_BYTES);
}

static void transfers_in_spite_of(world_t *world)
{
    transfer_and_check(world);
    assert_true(atomic_load(&injected) > 0);
    faults_off();
}

static void goes_on_after_short_and_interrupted_transfers(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        world_t world;
        world_make(&world, engines[e]);
        fault_short = true;
        transfers_in_spite_of(&world);
        fault_often = EINTR;
        transfers_in_spite_of(&world);
        fault_often = EAGAIN;
        fault_short = true;
        transfers_in_spite_of(&world);
        world_end(&world);
    }
}

static void reports_errors_with_place_and_remedy(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        world_t world;
        world_make(&world, engines[e]);
        fault_always = ENOSPC;
        assert_int_equal(write_file(&world), PLIM_ERR_DISK);
        faults_off();
        assert_ok(write_file(&world));
        fault_always = EIO;
        for (int direct = 0; direct < 2; direct++) {
            assert_int_equal(read_rows(&world, direct != 0), PLIM_ERR_IO);
            assert_non_null(strstr(plim_last_error(), "Input/output error"));
            assert_non_null(strstr(plim_last_error(), "offset"));
            assert_non_null(strstr(plim_last_error(), "Input/output error"));
        }
        assert_int_equal(read_to_end(&world), PLIM_ERR_IO);
        assert_non_null(strstr(plim_last_error(), "Input/output error"));
        plim__file_t file;
        assert_ok(plim__file_open(world.path, PLIM__FILE_READ, false, &file));
        assert_int_equal(plim__file_read_at(&file, 4096, world.back, 10), PLIM_ERR_IO);
        assert_non_null(strstr(plim_last_error(), "cannot read 10 bytes at offset 4096"));
        plim__file_close(&file);
        world_end(&world);
    }
}

static void says_that_the_disk_is_full(void **state)
{
    (void)state;
    world_t world;
    plim__file_t file;
    world_make(&world, PLIM_IO_THREADS);
    assert_ok(plim__file_open(world.path, PLIM__FILE_CREATE, true, &file));
    fault_always = ENOSPC;
    assert_int_equal(plim__file_write_at(&file, 0, world.back, 4096), PLIM_ERR_DISK);
    assert_non_null(strstr(plim_last_error(), "disk is full"));
    fault_always = EDQUOT;
    assert_int_equal(plim__file_write_at(&file, 0, world.back, 4096), PLIM_ERR_DISK);
    assert_non_null(strstr(plim_last_error(), "quota"));
    plim__file_close(&file);
    world_end(&world);
}

static void never_commits_what_is_not_durable(void **state)
{
    (void)state;
    world_t world;
    plim__staging_t staging;
    struct stat about;
    world_make(&world, PLIM_IO_AUTO);
    fault_sync = EIO;
    assert_int_equal(write_file(&world), PLIM_ERR_IO);
    (void)unlink(world.path);
    assert_ok(plim__staging_begin(world.path, &staging));
    assert_int_equal(plim__staging_commit(&staging), PLIM_ERR_IO);
    assert_int_equal(lstat(world.path, &about), -1);
    plim__staging_abandon(&staging);
    assert_non_null(strstr(plim_last_error(), "Input/output error"));
    assert_int_equal(plim__commit_file(AT_FDCWD, world.path, "x", 1, false), PLIM_ERR_IO);
    assert_int_equal(lstat(world.path, &about), -1);
    assert_int_equal(rmdir(world.directory), 0); /* nothing was left in it */
    assert_int_equal(mkdir(world.directory, 0700), 0);
    world_end(&world);
}

static void probes_the_alignment_where_the_kernel_is_silent(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        world_t world;
        plim__file_t asked, probed;
        world_make(&world, engines[e]);
        assert_ok(write_file(&world));
        assert_ok(plim__file_open(world.path, PLIM__FILE_READ, true, &asked));
        fault_no_dioalign = true;
        assert_ok(plim__file_open(world.path, PLIM__FILE_READ, true, &probed));
        assert_int_equal(asked.direct, probed.direct);
        assert_true(probed.align <= 4096);
        transfer_and_check(&world);
        fault_no_dioalign = false;
        plim__file_close(&asked);
        plim__file_close(&probed);
        world_end(&world);
    }
}

static void makes_temporary_files_without_tmpfile(void **state)
{
    (void)state;
    char directory[512];
    plim__file_t file;
    test_directory_make(directory);
    fault_no_tmpfile = true;
    assert_ok(plim__file_open(directory, PLIM__FILE_TEMPORARY, true, &file));
    fault_no_tmpfile = false;
    assert_int_equal(rmdir(directory), 0);
    plim__file_close(&file);
}

static plim_status_t write_tensor(const world_t *world, float value)
{
    static float values[200000];
    values[199999] = value;
    plim__tensor_t tensor = {"x", PLIM_F32, 1, {200000, 0, 0, 0}, values};
    return test_safetensors_write(&world->job, world->path, NULL, 0, &tensor, 1);
}

/* The last value, after all of the file was read. */
static float read_tensor(const world_t *world)
{
    static float values[200000];
    plim__safetensors_t *file;
    plim__tensor_t tensor = {"x", PLIM_F32, 1, {200000, 0, 0, 0}, values};
    values[199999] = -1;
    assert_ok(plim__safetensors_open(&world->job, AT_FDCWD, world->path, &file));
    assert_ok(plim__safetensors_read(file, &tensor));
    plim__safetensors_close(file);
    return values[199999];
}

static void writes_tensors_where_files_cannot_be_nameless(void **state)
{
    (void)state;
    world_t world;
    world_make(&world, PLIM_IO_AUTO);
    fault_no_tmpfile = true;
    assert_ok(write_tensor(&world, 1));
    fault_no_tmpfile = false;
    assert_true(read_tensor(&world) == 1);
    fault_no_link = true;
    assert_ok(write_tensor(&world, 2));
    fault_no_link = false;
    assert_true(read_tensor(&world) == 2);
    fault_short = true;
    fault_often = EINTR;
    assert_ok(write_tensor(&world, 3));
    assert_true(read_tensor(&world) == 3);
    assert_true(injected > 0);
    faults_off();
    assert_int_equal(unlink(world.path), 0);
    assert_int_equal(rmdir(world.directory), 0); /* nothing else was left */
    assert_int_equal(mkdir(world.directory, 0700), 0);
    world_end(&world);
}

static void keeps_the_old_tensors_when_new_ones_fail(void **state)
{
    (void)state;
    world_t world;
    world_make(&world, PLIM_IO_AUTO);
    assert_ok(write_tensor(&world, 1));
    for (int named = 0; named < 2; named++) {
        fault_no_tmpfile = named;
        fault_always = ENOSPC;
        assert_int_equal(write_tensor(&world, 2), PLIM_ERR_DISK);
        assert_non_null(strstr(plim_last_error(), "the disk is full"));
        faults_off();
        fault_sync = EIO;
        assert_int_equal(write_tensor(&world, 2), PLIM_ERR_IO);
        faults_off();
        assert_true(read_tensor(&world) == 1);
    }
    fault_no_tmpfile = false;
    assert_int_equal(unlink(world.path), 0);
    assert_int_equal(rmdir(world.directory), 0);
    assert_int_equal(mkdir(world.directory, 0700), 0);
    world_end(&world);
}

static void commits_without_noreplace(void **state)
{
    (void)state;
    world_t world;
    plim__staging_t staging;
    struct stat about;
    world_make(&world, PLIM_IO_AUTO);
    fault_no_noreplace = true;
    assert_ok(plim__staging_begin(world.path, &staging));
    assert_int_equal(mkdir(world.path, 0700), 0);
    assert_int_equal(plim__staging_commit(&staging), PLIM_ERR_USAGE);
    assert_int_equal(rmdir(world.path), 0);
    assert_ok(plim__staging_commit(&staging));
    assert_int_equal(lstat(world.path, &about), 0);
    fault_no_noreplace = false;
    world_end(&world);
}

/* Where nodes do not see each other's directory locks, a lock file does it, and leaves no trace. */
static void locks_a_file_for_network_file_systems(void **state)
{
    (void)state;
    world_t world;
    plim__staging_t staging, second;
    struct stat about;
    char lock[PATH_MAX + 8];
    world_make(&world, PLIM_IO_AUTO);
    assert_ok(plim__staging_begin(world.path, &staging));
    (void)snprintf(lock, sizeof lock, "%s/.lock", staging.path);
    assert_int_equal(lstat(lock, &about), 0);
    /* Another node: the directory's lock is not in its way, the file's is. */
    int held = staging.directory;
    staging.directory = dup(held);
    assert_int_equal(flock(held, LOCK_UN), 0);
    assert_int_equal(plim__staging_begin(world.path, &second), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "another process"));
    assert_int_equal(lstat(lock, &about), 0);
    assert_ok(plim__staging_commit(&staging));
    (void)close(held);
    assert_int_equal(rmdir(world.path), 0); /* empty: the lock is gone */
    assert_ok(plim__staging_begin(world.path, &staging));
    plim__staging_abandon(&staging);
    assert_int_equal(rmdir(world.directory), 0);
    assert_int_equal(mkdir(world.directory, 0700), 0);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(goes_on_after_short_and_interrupted_transfers),
        cmocka_unit_test(reports_errors_with_place_and_remedy),
        cmocka_unit_test(says_that_the_disk_is_full),
        cmocka_unit_test(never_commits_what_is_not_durable),
        cmocka_unit_test(probes_the_alignment_where_the_kernel_is_silent),
        cmocka_unit_test(makes_temporary_files_without_tmpfile),
        cmocka_unit_test(writes_tensors_where_files_cannot_be_nameless),
        cmocka_unit_test(keeps_the_old_tensors_when_new_ones_fail),
        cmocka_unit_test(commits_without_noreplace),
        cmocka_unit_test(locks_a_file_for_network_file_systems),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
