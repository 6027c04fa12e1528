/* Columns keep lowest, highest and mean however often they are widened; a report survives each
 * failing allocation. */
#include "support/harness.h"

#include "report/track.h"

#include <plimsoll/report.h>
#include <stdio.h>
#include <unistd.h>

static void columns_keep_extremes_and_mean(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__track_t track = {.width = 1.0 / 64};
    plim__arena_t arena, counting = plim__arena_counting();
    plim__track_lay_out(&counting, &track, 1);
    assert_ok(plim__arena_create(job.ledger, "test", counting.used, &arena));
    plim__track_lay_out(&arena, &track, 1);
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        const double value = i == 54321 ? 900 : i == 65432 ? -900 : i % 10, beside = i;
        plim__track_add(&track, i * 0.3, 1, value, &beside);
        sum += value;
    }
    plim__track_add(&track, -1, 1, 5000, &sum);
    double low = 0, weight = 0, at_highest = 0;
    for (int i = 0; i < track.columns; i++) {
        const plim__column_t column = plim__track_column(&track, i);
        low = column.low < low ? column.low : low;
        weight += column.weight;
        if (column.weight > 0 && column.high == 900)
            at_highest = column.beside[0];
    }
    assert_true(track.columns > PLIM__TRACK_COLUMNS / 2 && track.columns <= PLIM__TRACK_COLUMNS);
    assert_true(low == -900 && weight == 100000 && at_highest == 54321);
    assert_true(plim__track_highest(&track, 0) == 900);
    assert_float_equal(plim__track_mean(&track, 0), sum / 100000, 1e-9);
    plim__arena_destroy(&arena);
    test_job_end(&job);
}

static plim_status_t make_report(plim_job_t *job, void *directory)
{
    plim_report_t *report;
    char page[600];
    plim_status_t status = plim_report_create(job, &report);
    if (status != PLIM_OK)
        return status;
    (void)snprintf(page, sizeof page, "%s/page.html", (const char *)directory);
    status = plim_report_add(report, directory, NULL);
    if (status == PLIM_OK)
        status = plim_report_write(report, page);
    plim_report_destroy(report);
    return status;
}

static void each_allocation_may_fail(void **state)
{
    (void)state;
    char directory[512], path[600];
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/timeline.jsonl", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs("{\"kind\":\"tick\",\"at_s\":1,\"used_bytes\":5}\n", file);
    (void)fclose(file);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_fail_each_arena(&job, make_report, directory);
    test_job_end(&job);
    (void)snprintf(path, sizeof path, "%s/page.html", directory);
    assert_int_equal(access(path, R_OK), 0);
    test_directory_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_keep_extremes_and_mean),
        cmocka_unit_test(each_allocation_may_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
