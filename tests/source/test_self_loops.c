/* Degrees without self-loops, against counting in the lists. */
#include "support/harness.h"
#include "support/lists.h"

#include "base/check.h"
#include "source/self_loops.h"

#include <stdio.h>
#include <string.h>

#define LINE ((int64_t)1 << 30)
#define CHUNK 131072 /* entries of indices.npy that are read together */

typedef struct fixture {
    char directory[512];
    char path[600];
    plim_job_t job;
    test_lists_t lists;
    plim_dataset_t *dataset;
} fixture_t;

static fixture_t fixture;

static void make(test_lists_t lists, int threads)
{
    test_directory_make(fixture.directory);
    (void)snprintf(fixture.path, sizeof fixture.path, "%s/data", fixture.directory);
    fixture.job = test_job_make(LINE, threads, PLIM_IO_AUTO);
    fixture.lists = lists;
    assert_ok(test_lists_write(&fixture.job, fixture.path, &fixture.lists));
    assert_ok(plim_dataset_open(&fixture.job, fixture.path, &fixture.dataset));
}

static void unmake(void)
{
    plim_dataset_release(fixture.dataset);
    test_lists_free(&fixture.lists);
    test_job_end(&fixture.job);
    test_directory_remove(fixture.directory);
}

static int64_t loops_of(int64_t v)
{
    int64_t loops = 0;
    for (int64_t e = fixture.lists.indptr[v]; e < fixture.lists.indptr[v + 1]; e++)
        loops += fixture.lists.indices[e] == v;
    return loops;
}

/* Degrees are right, and the most loops of a node are noted in the dataset. */
static void check(test_lists_t lists, int threads)
{
    plim__offsets_t *offsets;
    int64_t most = 0;
    make(lists, threads);
    assert_int_equal(plim__dataset_max_self_loops(fixture.dataset), -1);
    assert_ok(plim__offsets_create(&fixture.job, fixture.dataset, true, &offsets));
    for (int64_t v = 0; v < lists.num_nodes; v++) {
        const int64_t wanted = lists.indptr[v + 1] - lists.indptr[v] - loops_of(v);
        int32_t degree;
        most = plim__max_i64(most, loops_of(v));
        plim__offsets_degrees(offsets, &v, 1, &degree);
        if (plim__offsets_degree(offsets, v) != wanted || degree != wanted)
            fail_msg("node %lld: degree %d, expected %lld", (long long)v, degree,
                     (long long)wanted);
        assert_int_equal(plim__offsets_list(offsets, v).start, lists.indptr[v]);
    }
    assert_int_equal(plim__dataset_max_self_loops(fixture.dataset), most);
    assert_int_equal(plim__offsets_skip_loops(offsets), most > 0);
    plim__offsets_destroy(offsets);
    /* Now known: the table is planned, and the object is as large as planned. */
    const int64_t before = plim__ledger_available(fixture.job.ledger);
    assert_ok(plim__offsets_create(&fixture.job, fixture.dataset, true, &offsets));
    assert_int_equal(before - plim__ledger_available(fixture.job.ledger),
                     plim__offsets_estimate(fixture.dataset, true));
    plim__offsets_destroy(offsets);
    unmake();
}

static test_lists_t with_loops(int64_t num_nodes, int64_t every, int64_t most, uint64_t seed)
{
    test_lists_t lists = test_lists_random(num_nodes, 29, 400, seed);
    test_lists_loops(&lists, every, most);
    return lists;
}

static void degrees_leave_loops_out(void **state)
{
    (void)state;
    check(with_loops(1, 1, 1, 1), 1);
    check(with_loops(500, 3, 1, 2), 2);
    check(with_loops(700, 1, 2, 3), 1);
    check(with_loops(700, 7, 17, 4), 3);
    check(with_loops(700, 29, 300, 5), 2);
    check(with_loops(20000, 5, 3, 6), 3); /* several chunks */
}

static void without_loops_there_is_no_table(void **state)
{
    (void)state;
    test_lists_t lists = test_lists_random(300, 0, 0, 7);
    for (int64_t v = 0; v < lists.num_nodes; v++)
        for (int64_t e = lists.indptr[v]; e < lists.indptr[v + 1]; e++)
            lists.indices[e] = v == 0 ? 1 : v - 1;
    check(lists, 2);
}

/* Lists that are longer than a chunk, whose loops lie on both sides of where chunks meet. */
static void lists_may_be_longer_than_chunks(void **state)
{
    (void)state;
    test_lists_t lists = test_lists_random(200, 67, 3 * CHUNK, 8);
    for (int64_t v = 66; v < 200; v += 67) {
        for (int64_t e = lists.indptr[v]; e < lists.indptr[v + 1]; e++)
            lists.indices[e] = e < lists.indptr[v] + 10 ? 3 : v;
    }
    check(lists, 2);
}

/* A count in dataset.json that is too small is noticed. */
static void too_many_loops_are_damage(void **state)
{
    (void)state;
    plim__offsets_t *offsets = NULL;
    make(with_loops(700, 5, 6, 9), 2);
    const int64_t before = plim__ledger_available(fixture.job.ledger);
    plim__dataset_note_self_loops(fixture.dataset, 1);
    assert_int_equal(plim__offsets_create(&fixture.job, fixture.dataset, true, &offsets),
                     PLIM_ERR_DATA);
    assert_null(offsets);
    assert_int_equal(before, plim__ledger_available(fixture.job.ledger));
    unmake();
}

/* Counting and filling need no more than reading offsets does. */
static void a_low_line_is_enough(void **state)
{
    (void)state;
    plim__offsets_t *offsets;
    make(with_loops(20000, 5, 3, 10), 1);
    for (int known = 0; known < 2; known++) {
        plim__arena_t rest;
        plim_job_t job = test_job_make(LINE, 8, PLIM_IO_THREADS);
        const size_t least = plim__offsets_estimate(fixture.dataset, true) +
                             plim__offsets_work_minimum(&job) +
                             (size_t)(known == 0 ? 4 * PLIM__PAGE : 0);
        const size_t left = ((size_t)plim__ledger_available(job.ledger) - least) / PLIM__PAGE;
        assert_ok(plim__arena_create(job.ledger, "rest", left * PLIM__PAGE, &rest));
        assert_ok(plim__offsets_create(&job, fixture.dataset, true, &offsets));
        plim__offsets_destroy(offsets);
        plim__arena_destroy(&rest);
        test_job_end(&job);
    }
    unmake();
}

static plim_status_t create_and_destroy(plim_job_t *job, void *context)
{
    plim__offsets_t *offsets;
    plim__dataset_note_self_loops(context, -1);
    plim_status_t status = plim__offsets_create(job, context, true, &offsets);
    if (status == PLIM_OK)
        plim__offsets_destroy(offsets);
    return status;
}

static void every_failed_arena_is_survived(void **state)
{
    (void)state;
    make(with_loops(3000, 5, 3, 11), 2);
    test_fail_each_arena(&fixture.job, create_and_destroy, fixture.dataset);
    unmake();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(degrees_leave_loops_out),
        cmocka_unit_test(without_loops_there_is_no_table),
        cmocka_unit_test(lists_may_be_longer_than_chunks),
        cmocka_unit_test(too_many_loops_are_damage),
        cmocka_unit_test(a_low_line_is_enough),
        cmocka_unit_test(every_failed_arena_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
