/*
 * Files of predictions: whole or not there, readable by those who may, on any file system. This
 * program defines open and linkat, so the linker prefers them to libc's; they pass through unless
 * they play a file system that has no nameless files, or cannot name them.
 */
/* labels: asan */
#include "support/harness.h"

#include "train/output.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

static bool no_nameless; /* NFS, FUSE, older overlayfs and Lustre */
static bool no_naming;

int open(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    int mode = (flags & (O_CREAT | O_TMPFILE)) != 0 ? va_arg(arguments, int) : 0;
    va_end(arguments);
    if (no_nameless && (flags & O_TMPFILE) == O_TMPFILE) {
        errno = EOPNOTSUPP;
        return -1;
    }
    return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int linkat(int from_fd, const char *from, int to_fd, const char *to, int flags)
{
    if (no_naming) {
        errno = ENOENT;
        return -1;
    }
    return (int)syscall(SYS_linkat, from_fd, from, to_fd, to, flags);
}

typedef struct world {
    plim_job_t job;
    char directory[512];
    char path[600];
    mode_t umask;
} world_t;

static void world_make(world_t *world)
{
    world->job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_directory_make(world->directory);
    assert_int_equal(chmod(world->directory, 0755), 0);
    (void)snprintf(world->path, sizeof world->path, "%s/out.npy", world->directory);
    world->umask = umask(022);
}

static void world_end(world_t *world)
{
    (void)umask(world->umask);
    no_nameless = no_naming = false;
    test_directory_remove(world->directory);
    test_job_end(&world->job);
}

static int entries(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
    (void)closedir(directory);
    return count;
}

/* Two rows of three; `rows` of them come. */
static plim_status_t write_rows(world_t *world, plim_predict_kind_t kind, int64_t rows)
{
    static const float values[6] = {1, 3, 2, 7, 5, 7};
    plim__output_t output;
    plim_status_t status =
        plim__output_open(world->job.ledger, world->path, kind, NULL, -1, 2, 3, &output);
    if (status == PLIM_OK)
        status = plim__output_take(&output, rows, 3, values);
    if (status == PLIM_OK)
        status = plim__output_finish(&output);
    plim__output_close(&output);
    return status;
}

static void assert_classes(const world_t *world)
{
    static const char header[] = "\x93NUMPY";
    char start[6];
    int64_t classes[2] = {-1, -1};
    FILE *file = fopen(world->path, "rb");
    assert_non_null(file);
    assert_int_equal(fread(start, 1, sizeof start, file), sizeof start);
    assert_memory_equal(start, header, sizeof start);
    assert_int_equal(fseek(file, 4096, SEEK_SET), 0);
    assert_int_equal(fread(classes, sizeof classes[0], 2, file), 2);
    assert_int_equal(fgetc(file), EOF);
    (void)fclose(file);
    assert_int_equal(classes[0], 1);
    assert_int_equal(classes[1], 0); /* the first of equals */
}

static void assert_mode(const world_t *world, mode_t mode)
{
    struct stat about;
    assert_int_equal(stat(world->path, &about), 0);
    assert_int_equal(about.st_mode & 0777, mode);
}

static void test_it_is_written_on_every_file_system(void **state)
{
    (void)state;
    for (int lacking = 0; lacking < 3; lacking++) {
        world_t world;
        world_make(&world);
        no_nameless = lacking == 1;
        no_naming = lacking == 2;
        for (int times = 0; times < 2; times++) { /* anew, and over an old one */
            assert_ok(write_rows(&world, PLIM_PREDICT_CLASSES, 2));
            assert_classes(&world);
            assert_mode(&world, 0644);
            assert_int_equal(entries(world.directory), 1);
        }
        (void)umask(077);
        assert_ok(write_rows(&world, PLIM_PREDICT_LOGITS, 2));
        assert_mode(&world, 0600);
        world_end(&world);
    }
}

static void test_what_is_not_whole_is_not_there(void **state)
{
    (void)state;
    for (int lacking = 0; lacking < 2; lacking++) {
        world_t world;
        world_make(&world);
        no_nameless = lacking == 1;
        assert_int_equal(write_rows(&world, PLIM_PREDICT_CLASSES, 1), PLIM_ERR_DATA);
        assert_int_equal(entries(world.directory), 0);
        assert_ok(write_rows(&world, PLIM_PREDICT_CLASSES, 2));
        assert_int_equal(write_rows(&world, PLIM_PREDICT_LOGITS, 1), PLIM_ERR_DATA);
        assert_classes(&world); /* the old one stays */
        assert_int_equal(entries(world.directory), 1);
        world_end(&world);
    }
}

/* Before anything is computed. */
static void test_impossible_places_are_refused_at_once(void **state)
{
    world_t world;
    plim__output_t output;
    const char *const names[] = {"", "/", "no/such/place.npy", "directory", "new/"};
    (void)state;
    world_make(&world);
    (void)snprintf(world.path, sizeof world.path, "%s/directory", world.directory);
    assert_int_equal(mkdir(world.path, 0755), 0);
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        (void)snprintf(world.path, sizeof world.path, "%s/%s", world.directory, names[i]);
        assert_int_not_equal(plim__output_open(world.job.ledger, world.path, PLIM_PREDICT_LOGITS,
                                               NULL, -1, 2, 3, &output),
                             PLIM_OK);
        plim__output_close(&output);
        assert_int_equal(entries(world.directory), 1);
    }
    (void)snprintf(world.path, sizeof world.path, "%s/large.npy", world.directory);
    assert_int_equal(plim__output_open(world.job.ledger, world.path, PLIM_PREDICT_LOGITS, NULL, -1,
                                       INT64_MAX, 3, &output),
                     PLIM_ERR_SPACE);
    plim__output_close(&output);
    assert_int_equal(entries(world.directory), 1);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_it_is_written_on_every_file_system),
        cmocka_unit_test(test_what_is_not_whole_is_not_there),
        cmocka_unit_test(test_impossible_places_are_refused_at_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
