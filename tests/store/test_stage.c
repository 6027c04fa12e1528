/* A dataset copied to scratch: equal, kept, never damaged unnoticed. */
#include "store/dataset.h"
#include "support/dataset.h"
#include "support/harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct place {
    char directory[512];
    char source[600];
    char scratch[600];
    plim_dataset_t *dataset;
} place_t;

static void place_make(plim_job_t *job, place_t *place)
{
    const test_graph_t graph = {
        .num_nodes = 500, .num_features = 7, .num_classes = 3, .half = true};
    test_directory_make(place->directory);
    (void)snprintf(place->source, sizeof place->source, "%s/source", place->directory);
    (void)snprintf(place->scratch, sizeof place->scratch, "%s/scratch", place->directory);
    assert_int_equal(mkdir(place->scratch, 0700), 0);
    assert_ok(test_dataset_make(job, place->source, &graph));
    assert_ok(plim_dataset_open(job, place->source, &place->dataset));
}

static void place_end(place_t *place)
{
    plim_dataset_release(place->dataset);
    test_directory_remove(place->directory);
}

static void test_copy_is_the_dataset(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    place_t place;
    char path[PLIM_PATH_MAX], again[PLIM_PATH_MAX];
    plim_dataset_t *copy;
    place_make(&job, &place);
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, path));
    assert_ok(plim_dataset_open(&job, path, &copy));
    assert_ok(plim_dataset_verify(&job, copy));
    assert_string_equal(plim_dataset_info(copy)->fingerprint,
                        plim_dataset_info(place.dataset)->fingerprint);
    plim_dataset_release(copy);
    struct stat before, after;
    assert_int_equal(stat(path, &before), 0);
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, again));
    assert_string_equal(path, again);
    assert_int_equal(stat(path, &after), 0);
    assert_int_equal(before.st_ino, after.st_ino);
    place_end(&place);
    test_job_end(&job);
}

static void test_damage_is_not_copied(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    char path[PLIM_PATH_MAX], file[700];
    place_make(&job, &place);
    (void)snprintf(file, sizeof file, "%s/features.npy", place.source);
    int fd = open(file, O_RDWR);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, "x", 1, 5001), 1);
    assert_int_equal(close(fd), 0);
    assert_int_equal(plim_dataset_stage(&job, place.dataset, place.scratch, path), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "features.npy"));
    assert_int_equal(rmdir(place.scratch), 0); /* nothing was left in it */
    place_end(&place);
    test_job_end(&job);
}

/* Cleaners of scratch disks remove files, not directories. */
static void test_a_copy_that_is_not_whole(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    char path[PLIM_PATH_MAX], file[PLIM_PATH_MAX + 20];
    place_make(&job, &place);
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, path));
    (void)snprintf(file, sizeof file, "%s/features.npy", path);
    assert_int_equal(truncate(file, 5000), 0);
    assert_int_equal(plim_dataset_stage(&job, place.dataset, place.scratch, path), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "5000 bytes"));
    assert_int_equal(unlink(file), 0);
    assert_int_equal(plim_dataset_stage(&job, place.dataset, place.scratch, path), PLIM_ERR_IO);
    assert_non_null(strstr(plim_last_error(), file));
    assert_non_null(strstr(plim_last_error(), "remove"));
    test_directory_remove(path);
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, path));
    place_end(&place);
    test_job_end(&job);
}

/* What was found where everybody can write is not believed. */
static void assert_distrusted(const plim_job_t *job, const place_t *place, const char *said)
{
    char path[PLIM_PATH_MAX];
    assert_int_equal(plim_dataset_stage(job, place->dataset, place->scratch, path), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), said));
    assert_non_null(strstr(plim_last_error(), "--scratch"));
}

static void test_copies_that_others_can_write(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    char path[PLIM_PATH_MAX];
    static const char *const names[] = {"", "/features.npy", "/dataset.json"};
    place_make(&job, &place);
    mode_t mask = umask(0);
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, path));
    (void)umask(mask);
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, path)); /* its own it trusts */
    for (int i = 0; i < 3; i++) {
        char file[PLIM_PATH_MAX + 20];
        mode_t mode = i == 0 ? 0755 : 0644;
        (void)snprintf(file, sizeof file, "%s%s", path, names[i]);
        assert_int_equal(chmod(file, mode | S_IWGRP), 0);
        assert_distrusted(&job, &place, "can be written by others");
        assert_int_equal(chmod(file, mode | S_IWOTH), 0);
        assert_distrusted(&job, &place, "can be written by others");
        assert_int_equal(chmod(file, mode), 0);
        if (geteuid() != 0) {
            print_message("SKIPPED in part: only root gives files away\n");
            continue;
        }
        assert_int_equal(chown(file, 65534, (gid_t)-1), 0);
        assert_distrusted(&job, &place, "belongs to another user");
        assert_int_equal(chown(file, 0, (gid_t)-1), 0);
    }
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, path));
    place_end(&place);
    test_job_end(&job);
}

/* A link could be led elsewhere after it was looked at. */
static void test_a_link_is_no_copy(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    char path[PLIM_PATH_MAX], moved[PLIM_PATH_MAX + 20];
    place_make(&job, &place);
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, path));
    (void)snprintf(moved, sizeof moved, "%s-moved", path);
    assert_int_equal(rename(path, moved), 0);
    assert_int_equal(symlink(moved, path), 0);
    assert_int_equal(plim_dataset_stage(&job, place.dataset, place.scratch, path), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "not a directory"));
    place_end(&place);
    test_job_end(&job);
}

static void test_memory_is_charged_as_such(void **state)
{
    (void)state;
    plim__file_system_t system;
    plim_job_t job = test_job_make((int64_t)1 << 30, 1, PLIM_IO_THREADS);
    place_t place;
    char path[PLIM_PATH_MAX];
    char scratch[] = "/dev/shm/plimsoll-test-XXXXXX";
    if (plim__file_system("/dev/shm", &system) != PLIM_OK || !system.memory ||
        mkdtemp(scratch) == NULL) {
        test_job_end(&job);
        print_message("SKIPPED: /dev/shm is no tmpfs that can be written\n");
        skip();
    }
    place_make(&job, &place);
    int account;
    const int64_t bytes = plim_dataset_info(place.dataset)->bytes;
    const int64_t before = plim__ledger_reserved(job.ledger);
    const size_t most = (size_t)(plim__ledger_available(job.ledger) - bytes + 1);
    assert_ok(plim__ledger_reserve(job.ledger, "other", most, &account));
    assert_int_equal(plim_dataset_stage(&job, place.dataset, scratch, path), PLIM_ERR_BUDGET);
    assert_int_equal(rmdir(scratch), 0); /* nothing was left in it */
    assert_int_equal(mkdir(scratch, 0700), 0);
    plim__ledger_release(job.ledger, account, most);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    assert_ok(plim_dataset_stage(&job, place.dataset, scratch, path));
    assert_int_equal(plim__ledger_reserved(job.ledger), before + bytes);
    test_directory_remove(scratch);
    place_end(&place);
    test_job_end(&job);
}

static plim_status_t stage(plim_job_t *job, void *context)
{
    place_t *place = context;
    char path[PLIM_PATH_MAX];
    return plim_dataset_stage(job, place->dataset, place->scratch, path);
}

static void test_every_arena_may_fail(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    place_make(&job, &place);
    test_fail_each_arena(&job, stage, &place);
    place_end(&place);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy_is_the_dataset),
        cmocka_unit_test(test_damage_is_not_copied),
        cmocka_unit_test(test_a_copy_that_is_not_whole),
        cmocka_unit_test(test_copies_that_others_can_write),
        cmocka_unit_test(test_a_link_is_no_copy),
        cmocka_unit_test(test_memory_is_charged_as_such),
        cmocka_unit_test(test_every_arena_may_fail),
    };
    return cmocka_run_group_tests_name("store.stage", tests, NULL, NULL);
}
