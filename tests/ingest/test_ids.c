/* Ids put aside come back as they were, as often as wanted, in as few bytes as they need. */
#include "support/harness.h"

#include "base/rng.h"
#include "ingest/edge_source.h"

#include <stdio.h>
#include <stdlib.h>

static void write_and_check(size_t buffer, int64_t count, uint64_t bound)
{
    char directory[512];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    int64_t before = plim__ledger_reserved(job.ledger);
    plim__id_spool_t *aside = calloc(1, sizeof *aside);
    int64_t *ids = malloc(sizeof *ids * (size_t)(count + 1));
    int64_t *back = malloc(sizeof *back * (size_t)(count + 1));
    assert_true(aside != NULL && ids != NULL && back != NULL);
    uint64_t draw = 0;
    int64_t most = -1;
    for (int64_t i = 0; i < count; i++) {
        ids[i] = (int64_t)plim__rng_below(bound, &draw, bound);
        most = ids[i] > most ? ids[i] : most;
    }
    test_directory_make(directory);
    assert_ok(plim__id_spool_create(aside, &job, directory, buffer, "ids"));
    for (int64_t done = 0; done < count;) {
        int64_t chunk = 1 + (int64_t)plim__rng_below(7, &draw, 5000);
        chunk = chunk < count - done ? chunk : count - done;
        assert_ok(plim__id_spool_write(aside, ids + done, chunk));
        done += chunk;
    }
    assert_int_equal(aside->count, count);
    assert_int_equal(aside->most, most);
    for (int reading = 0; reading < 3; reading++) {
        int64_t done = 0, got;
        assert_ok(plim__id_spool_rewind(aside, reading == 2));
        do {
            int64_t capacity = 1 + (int64_t)plim__rng_below(9, &draw, 4000);
            assert_ok(aside->ids.read(&aside->ids, back + done,
                                      capacity < count + 1 - done ? capacity : count + 1 - done,
                                      &got));
            done += got;
        } while (got > 0);
        assert_int_equal(done, count);
        if (count > 0)
            assert_memory_equal(ids, back, (size_t)count * sizeof *ids);
    }
    plim__id_spool_destroy(aside);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    free(aside);
    free(ids);
    free(back);
    test_job_end(&job);
    test_directory_remove(directory);
}

static void come_back(void **state)
{
    (void)state;
    const int64_t counts[] = {0, 1, 511, 2048, 2049, 100000};
    const uint64_t bounds[] = {10,
                               (uint64_t)1 << 32,
                               (uint64_t)1 << 33,
                               (uint64_t)1 << 41,
                               (uint64_t)1 << 55,
                               (uint64_t)1 << 63};
    for (size_t c = 0; c < sizeof counts / sizeof counts[0]; c++)
        for (size_t b = 0; b < sizeof bounds / sizeof bounds[0]; b++) {
            write_and_check(4096, counts[c], bounds[b]);
            write_and_check((size_t)1 << 20, counts[c], bounds[b]);
        }
}

static void take_few_bytes(void **state)
{
    (void)state;
    char directory[512];
    int64_t ids[2048];
    unsigned char bytes[16 + 4 * 2048 + 5 * 2048];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__id_spool_t *aside = calloc(1, sizeof *aside);
    assert_non_null(aside);
    test_directory_make(directory);
    for (int i = 0; i < 2048; i++)
        ids[i] = (int64_t)0xffffffff - i;
    assert_ok(plim__id_spool_create(aside, &job, directory, 4096, "ids"));
    assert_ok(plim__id_spool_write(aside, ids, 2048));
    ids[0]++;
    assert_ok(plim__id_spool_write(aside, ids, 2048));
    assert_ok(plim__spool_rewind(aside->file, false));
    assert_ok(plim__spool_read(aside->file, bytes, sizeof bytes));
    assert_int_equal(plim__spool_read(aside->file, bytes, 1), PLIM_ERR_USAGE); /* that is all */
    plim__id_spool_destroy(aside);
    free(aside);
    test_job_end(&job);
    test_directory_remove(directory);
}

static plim_status_t make_one(plim_job_t *job, void *context)
{
    plim__spool_t *aside;
    plim_status_t status = plim__spool_create(job, context, 4096, &aside);
    if (status == PLIM_OK)
        plim__spool_destroy(aside);
    return status;
}

static void report_refused_memory(void **state)
{
    (void)state;
    char directory[512];
    test_directory_make(directory);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_fail_each_arena(&job, make_one, directory);
    test_job_end(&job);
    test_directory_remove(directory);
}

static void nothing_is_left_to_read(void **state)
{
    (void)state;
    char directory[512], bytes[8] = "1234567";
    plim__spool_t *aside;
    test_directory_make(directory);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    assert_ok(plim__spool_create(&job, directory, 4096, &aside));
    assert_ok(plim__spool_write(aside, bytes, 8));
    assert_ok(plim__spool_rewind(aside, true));
    assert_ok(plim__spool_read(aside, bytes, 5));
    assert_int_equal(plim__spool_read(aside, bytes, 4), PLIM_ERR_USAGE);
    assert_ok(plim__spool_read(aside, bytes, 3));
    plim__spool_destroy(aside);
    plim__spool_destroy(NULL);
    test_job_end(&job);
    test_directory_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(come_back),
        cmocka_unit_test(take_few_bytes),
        cmocka_unit_test(report_refused_memory),
        cmocka_unit_test(nothing_is_left_to_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
