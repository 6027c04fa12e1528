/* Compressed offsets say what indptr.npy says, and refuse what it must not say. */
#include "support/harness.h"
#include "support/lists.h"

#include "base/check.h"
#include "mem/arena.h"
#include "source/offsets.h"

#include <stdio.h>
#include <string.h>

/* ThreadSanitizer's own memory is some hundred MiB here. */
#define LINE ((int64_t)(TEST_SANITIZED ? 2048 : 256) << 20)

typedef struct fixture {
    char directory[512];
    char path[600];
    plim_job_t job;
    test_lists_t lists;
    plim_dataset_t *dataset;
} fixture_t;

static fixture_t fixture;

static void make(test_lists_t lists, int threads, plim_io_engine_t engine)
{
    test_directory_make(fixture.directory);
    (void)snprintf(fixture.path, sizeof fixture.path, "%s/data", fixture.directory);
    fixture.job = test_job_make(LINE, threads, engine);
    fixture.lists = lists;
    assert_ok(test_lists_write(&fixture.job, fixture.path, &fixture.lists));
    assert_ok(plim_dataset_open(&fixture.job, fixture.path, &fixture.dataset));
}

static int unmake(void **state)
{
    (void)state;
    plim_dataset_release(fixture.dataset);
    test_lists_free(&fixture.lists);
    test_job_end(&fixture.job);
    test_directory_remove(fixture.directory);
    return 0;
}

static void compare(const plim__offsets_t *offsets)
{
    const int64_t *indptr = fixture.lists.indptr;
    int64_t nodes[100];
    int32_t degrees[100];
    for (int64_t first = 0; first < fixture.lists.num_nodes; first += 100) {
        int64_t count = plim__min_i64(100, fixture.lists.num_nodes - first);
        for (int64_t i = 0; i < count; i++)
            nodes[i] = first + (i * 37 + 11) % count;
        plim__offsets_degrees(offsets, nodes, count, degrees);
        for (int64_t i = 0; i < count; i++)
            assert_int_equal(degrees[i], indptr[nodes[i] + 1] - indptr[nodes[i]]);
    }
    for (int64_t v = 0; v < fixture.lists.num_nodes; v++) {
        plim__list_t list = plim__offsets_list(offsets, v);
        plim__offsets_prefetch(offsets, v);
        if (list.start != indptr[v] || list.degree != indptr[v + 1] - indptr[v])
            fail_msg("node %lld: %lld entries from %lld on", (long long)v, (long long)list.degree,
                     (long long)list.start);
    }
}

static void check_equal(test_lists_t lists, int threads, plim_io_engine_t engine)
{
    plim__offsets_t *offsets;
    make(lists, threads, engine);
    int64_t before = plim__ledger_available(fixture.job.ledger);
    assert_ok(plim__offsets_create(&fixture.job, fixture.dataset, false, &offsets));
    assert_int_equal(before - plim__ledger_available(fixture.job.ledger),
                     plim__offsets_estimate(fixture.dataset, false));
    compare(offsets);
    plim__offsets_destroy(offsets);
    assert_int_equal(before, plim__ledger_available(fixture.job.ledger));
    (void)unmake(NULL);
}

/* Around a line of 56 nodes, and a chunk of 114,688; without long lists, with some, with only long
 * ones. */
static void equal_indptr(void **state)
{
    (void)state;
    const int64_t counts[] = {1, 2, 55, 56, 57, 112, 500, 114687, 114688, 114689};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
        check_equal(test_lists_random(counts[i], i % 2 == 0 ? 29 : 0, 150, i), (int)(i % 3) + 1,
                    i % 4 < 2 ? PLIM_IO_THREADS : PLIM_IO_AUTO);
    }
    check_equal(test_lists_random(700, 1, 300, 1), 2, PLIM_IO_AUTO);
    check_equal(test_lists_random(2000, 3, 5000, 2), 3, PLIM_IO_AUTO);
    check_equal(test_lists_random(130000, 5000, 400000, 3), 2, PLIM_IO_AUTO);
}

static void take_about_a_byte_a_node(void **state)
{
    (void)state;
    make(test_lists_random(200000, 0, 0, 4), 1, PLIM_IO_AUTO);
    assert_in_range(plim__offsets_estimate(fixture.dataset, false), 200000, 240000);
    (void)unmake(NULL);
}

/* Writes `value` as offset `number`; what comes of it is PLIM_ERR_DATA naming the file, and
 * nothing is left reserved. */
static void check_refused(int64_t number, int64_t value)
{
    plim__offsets_t *offsets = NULL;
    int64_t right = fixture.lists.indptr[number];
    int64_t before = plim__ledger_available(fixture.job.ledger);
    test_overwrite(fixture.path, "indptr.npy", number, &value, sizeof value);
    assert_int_equal(plim__offsets_create(&fixture.job, fixture.dataset, false, &offsets),
                     PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "indptr.npy"));
    assert_null(offsets);
    assert_int_equal(before, plim__ledger_available(fixture.job.ledger));
    test_overwrite(fixture.path, "indptr.npy", number, &right, sizeof right);
}

static void refuse_what_does_not_ascend(void **state)
{
    (void)state;
    plim__offsets_t *offsets;
    make(test_lists_random(130000, 60, 300, 5), 2, PLIM_IO_AUTO);
    int64_t last = fixture.lists.num_nodes, num_edges = fixture.lists.indptr[last];
    const int64_t places[] = {0, 1, 2, 56, 100, 114687, 114688, 114689, last - 1, last};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
        check_refused(places[i], -1);
        check_refused(places[i], INT64_MIN);
        check_refused(places[i], INT64_MAX);
        check_refused(places[i], num_edges + 1);
        check_refused(places[i], num_edges / 2);
    }
    assert_ok(plim__offsets_create(&fixture.job, fixture.dataset, false, &offsets));
    compare(offsets);
    plim__offsets_destroy(offsets);
    (void)unmake(NULL);
}

/* Ascending, but with more long lists than dataset.json counts, or other degrees. */
static void refuse_other_degrees(void **state)
{
    (void)state;
    make(test_lists_random(1000, 100, 400, 6), 1, PLIM_IO_AUTO);
    const int64_t *indptr = fixture.lists.indptr;
    int64_t short_one = 5; /* lists 5 … 60 are short: they become one that is long */
    for (int64_t v = short_one + 1; v <= 60; v++)
        test_overwrite(fixture.path, "indptr.npy", v, &indptr[short_one], sizeof(int64_t));
    check_refused(short_one, indptr[short_one]);
    for (int64_t v = short_one + 1; v <= 60; v++)
        test_overwrite(fixture.path, "indptr.npy", v, &indptr[v], sizeof(int64_t));
    while (indptr[short_one + 1] - indptr[short_one] < 8)
        short_one++;
    check_refused(short_one, indptr[short_one] + 7);
    (void)unmake(NULL);
}

/* Under a line with room for one thread's reading alone, eight threads' worth is not asked for;
 * with less it logs that. Where io_uring answers, it may do with less than was estimated. */
static void read_under_a_low_line(void **state)
{
    (void)state;
    plim__offsets_t *offsets;
    const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS, PLIM_IO_THREADS};
    make(test_lists_random(20000, 50, 200, 8), 1, PLIM_IO_AUTO);
    for (int i = 0; i < 3; i++) {
        plim__arena_t rest;
        plim_job_t job = test_job_make(LINE, 8, engines[i]);
        size_t least =
            plim__offsets_estimate(fixture.dataset, false) + plim__offsets_work_minimum(&job);
        size_t left = (size_t)plim__ledger_available(job.ledger) - least;
        left = left / PLIM__PAGE * PLIM__PAGE;
        if (i == 2)
            left += 64 * PLIM__PAGE;
        assert_ok(plim__arena_create(job.ledger, "rest", left, &rest));
        plim_status_t status = plim__offsets_create(&job, fixture.dataset, false, &offsets);
        if (i < 2) {
            assert_ok(status);
            compare(offsets);
            plim__offsets_destroy(offsets);
        } else {
            assert_int_equal(status, PLIM_ERR_BUDGET);
        }
        plim__arena_destroy(&rest);
        test_job_end(&job);
    }
    (void)unmake(NULL);
}

/* A file of one chunk is read by one thread, however many there are. */
static void few_chunks_take_few_threads(void **state)
{
    (void)state;
    plim__offsets_t *offsets;
    make(test_lists_random(20000, 50, 200, 8), 1, PLIM_IO_AUTO);
    plim_job_t job = test_job_make(LINE, 64, PLIM_IO_AUTO);
    size_t least =
        plim__offsets_estimate(fixture.dataset, false) + plim__offsets_work_minimum(&job);
    int64_t before = plim__ledger_reserved(job.ledger);
    assert_ok(plim__offsets_create(&job, fixture.dataset, false, &offsets));
    assert_in_range(plim__ledger_peak(job.ledger) - before, 1, (int64_t)least);
    compare(offsets);
    plim__offsets_destroy(offsets);
    test_job_end(&job);
    (void)unmake(NULL);
}

static plim_status_t create_and_destroy(plim_job_t *job, void *context)
{
    plim__offsets_t *offsets;
    plim_status_t status = plim__offsets_create(job, context, false, &offsets);
    if (status == PLIM_OK)
        plim__offsets_destroy(offsets);
    return status;
}

static void survive_every_failed_arena(void **state)
{
    (void)state;
    make(test_lists_random(3000, 20, 300, 7), 2, PLIM_IO_THREADS);
    test_fail_each_arena(&fixture.job, create_and_destroy, fixture.dataset);
    plim__offsets_destroy(NULL);
    (void)unmake(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_indptr),
        cmocka_unit_test(take_about_a_byte_a_node),
        cmocka_unit_test(refuse_what_does_not_ascend),
        cmocka_unit_test(refuse_other_degrees),
        cmocka_unit_test(read_under_a_low_line),
        cmocka_unit_test(few_chunks_take_few_threads),
        cmocka_unit_test(survive_every_failed_arena),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
