/* A dataset copied to scratch: equal, kept, never damaged unnoticed. */
/* labels: asan unprivileged */
#include "base/job.h"
#include "io/commit.h"
#include "store/dataset.h"
#include "support/dataset.h"
#include "support/harness.h"
#include "support/ranks.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct place {
    char directory[512];
    char source[600];
    char scratch[600];
    plim_dataset_t *dataset;
} place_t;

static void place_make_of(plim_job_t *job, place_t *place, const test_graph_t *graph)
{
    test_directory_make(place->directory);
    (void)snprintf(place->source, sizeof place->source, "%s/source", place->directory);
    (void)snprintf(place->scratch, sizeof place->scratch, "%s/scratch", place->directory);
    assert_int_equal(mkdir(place->scratch, 0700), 0);
    assert_ok(test_dataset_make(job, place->source, graph));
    assert_ok(plim_dataset_open(job, place->source, &place->dataset));
}

static void place_make(plim_job_t *job, place_t *place)
{
    const test_graph_t graph = {
        .num_nodes = 500, .num_features = 7, .num_classes = 3, .half = true};
    place_make_of(job, place, &graph);
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
    assert_ok(plim_dataset_open_copy(&job, place.dataset, path, &copy));
    assert_ok(plim_dataset_verify(&job, copy));
    assert_string_equal(plim_dataset_info(copy)->fingerprint,
                        plim_dataset_info(place.dataset)->fingerprint);
    assert_string_equal(plim__dataset_path(copy), path);
    assert_string_equal(plim__dataset_origin(copy), place.source);
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

/* A copy in a directory that everybody can write to is not trusted. */
static void assert_distrusted(const plim_job_t *job, const place_t *place, const char *message)
{
    char path[PLIM_PATH_MAX];
    assert_int_equal(plim_dataset_stage(job, place->dataset, place->scratch, path), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), message));
    assert_non_null(strstr(plim_last_error(), "`scratch`"));
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

#define TEN_LETTERS                                                                                \
    "\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9\xc3\xa9"

/* Another dataset under the copy's name, which came after the copy was opened, is not read. Names
 * that are too long for the report are cut between letters. */
static void test_an_open_copy_is_read_whatever_its_name_leads_to(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    plim_dataset_t *copy;
    plim_dataset_report_t report = PLIM_DATASET_REPORT_INIT;
    char path[PLIM_PATH_MAX], moved[PLIM_PATH_MAX + 20];
    test_graph_t graph = {.num_nodes = 100,
                          .bare = true,
                          .columns = PLIM_EDGE_TYPE,
                          .type_name = TEN_LETTERS TEN_LETTERS TEN_LETTERS TEN_LETTERS};
    place_make_of(&job, &place, &graph);
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, path));
    assert_ok(plim_dataset_open_copy(&job, place.dataset, path, &copy));
    (void)snprintf(moved, sizeof moved, "%s-moved", path);
    assert_int_equal(rename(path, moved), 0);
    graph.type_name = "another";
    assert_ok(test_dataset_make(&job, path, &graph));
    assert_ok(plim_dataset_inspect(&job, copy, true, &report));
    assert_int_equal(report.num_type_names, 7);
    for (int i = 0; i < 7; i++)
        assert_string_equal(report.type_names[i],
                            TEN_LETTERS TEN_LETTERS TEN_LETTERS "\xe2\x80\xa6");
    plim_dataset_release(copy);
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
        print_message("SKIPPED: /dev/shm is not a writable tmpfs\n");
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

/* Three ranks on two nodes: rank 0 on the first, ranks 1 and 2 on the second. */
typedef struct nodes {
    const place_t *place;
    const char *scratch[2];
    plim_status_t expected;
} nodes_t;

static void stage_on_nodes(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    const nodes_t *nodes = context;
    plim_dataset_t *dataset, *copy;
    char path[PLIM_PATH_MAX];
    job->core->transport.local_rank = rank == 2;
    job->core->transport.local_ranks = num_ranks - 1;
    rank_ok(plim_dataset_open(job, nodes->place->source, &dataset));
    rank_assert(plim_dataset_stage(job, dataset, nodes->scratch[rank > 0], path) ==
                nodes->expected);
    if (nodes->expected == PLIM_OK) {
        rank_assert(strncmp(path, nodes->scratch[rank > 0], strlen(nodes->scratch[rank > 0])) == 0);
        rank_ok(plim_dataset_open(job, path, &copy));
        rank_ok(plim_dataset_verify(job, copy));
        plim_dataset_release(copy);
    }
    plim_dataset_release(dataset);
}

static void test_one_rank_reads_for_all_nodes(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    char other[600], path[PLIM_PATH_MAX];
    place_make(&job, &place);
    (void)snprintf(other, sizeof other, "%s/other", place.directory);
    assert_int_equal(mkdir(other, 0700), 0);
    nodes_t nodes = {&place, {place.scratch, other}, PLIM_OK};
    assert_ok(plim_dataset_stage(&job, place.dataset, other, path)); /* one node has it already */
    test_ranks_threads(3, 60, NULL, stage_on_nodes, &nodes);
    const long long sent = test_ranks_bytes;
    assert_true(sent > plim_dataset_info(place.dataset)->bytes);
    test_ranks_threads(3, 60, NULL, stage_on_nodes, &nodes);
    assert_true(test_ranks_bytes < sent); /* copies are used again */
    place_end(&place);
    test_job_end(&job);
}

static void test_damage_ends_all_ranks(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    char file[700];
    place_make(&job, &place);
    (void)snprintf(file, sizeof file, "%s/features.npy", place.source);
    const int fd = open(file, O_WRONLY);
    assert_int_equal(pwrite(fd, "x", 1, 4096 + 100), 1);
    assert_int_equal(close(fd), 0);
    nodes_t nodes = {&place, {place.scratch, place.scratch}, PLIM_ERR_DATA};
    test_ranks_threads(2, 60, NULL, stage_on_nodes, &nodes);
    place_end(&place);
    test_job_end(&job);
}

/* Lets this process write files of at most so many bytes; returns the limit before. */
static rlim_t limit_files(rlim_t bytes)
{
    struct rlimit limit;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &limit), 0);
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = bytes;
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &limit), 0);
    return before;
}

static void test_a_copy_that_does_not_fit_leaves_nothing(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    char path[PLIM_PATH_MAX];
    place_make(&job, &place);
    const rlim_t before = limit_files(1000);
    const plim_status_t status = plim_dataset_stage(&job, place.dataset, place.scratch, path);
    (void)limit_files(before);
    assert_int_equal(status, PLIM_ERR_SPACE);
    assert_int_equal(rmdir(place.scratch), 0);
    place_end(&place);
    test_job_end(&job);
}

typedef struct other_job {
    plim__staging_t staging;
    rlim_t file_limit;
} other_job_t;

static void *give_up(void *context)
{
    other_job_t *other = context;
    const struct timespec nap = {.tv_nsec = 300000000};
    (void)nanosleep(&nap, NULL);
    (void)limit_files(other->file_limit);
    plim__staging_abandon(&other->staging);
    return NULL;
}

/* Also while this job has no space for a copy of its own. */
static void test_waits_for_another_job(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    place_t place;
    char path[PLIM_PATH_MAX], target[PLIM_PATH_MAX];
    other_job_t other = {0};
    pthread_t thread;
    place_make(&job, &place);
    (void)snprintf(target, sizeof target, "%s/plimsoll-%s-%ld", place.scratch,
                   plim_dataset_info(place.dataset)->fingerprint, (long)geteuid());
    assert_ok(plim__staging_begin(target, &other.staging));
    other.file_limit = limit_files(1000);
    assert_int_equal(pthread_create(&thread, NULL, give_up, &other), 0);
    assert_ok(plim_dataset_stage(&job, place.dataset, place.scratch, path));
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(path, target);
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
        cmocka_unit_test(test_an_open_copy_is_read_whatever_its_name_leads_to),
        cmocka_unit_test(test_memory_is_charged_as_such),
        cmocka_unit_test(test_every_arena_may_fail),
        cmocka_unit_test(test_one_rank_reads_for_all_nodes),
        cmocka_unit_test(test_damage_ends_all_ranks),
        cmocka_unit_test(test_a_copy_that_does_not_fit_leaves_nothing),
        cmocka_unit_test(test_waits_for_another_job),
    };
    return cmocka_run_group_tests_name("store.stage", tests, NULL, NULL);
}
