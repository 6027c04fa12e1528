/* Columns keep lowest, highest and mean however often they are widened; a page replaces pages only.
 */
#include "support/harness.h"

#include "report/report.h"
#include "report/track.h"

#include <stdio.h>
#include <unistd.h>

static void columns_keep_extremes_and_mean(void **state)
{
    (void)state;
    report_track_t track;
    assert_true(report_track_create(&track, 1.0 / 64, 1));
    double sum = 0;
    for (int i = 0; i < 100000; i++) {
        const double value = i == 54321 ? 900 : i == 65432 ? -900 : i % 10, others = i;
        report_track_add(&track, i * 0.3, 1, value, &others);
        sum += value;
    }
    report_track_add(&track, -1, 1, 5000, &sum);
    double low = 0, weight = 0, at_highest = 0;
    for (int i = 0; i < track.columns; i++) {
        const report_column_t column = report_track_column(&track, i);
        low = column.low < low ? column.low : low;
        weight += column.weight;
        if (column.weight > 0 && column.high == 900)
            at_highest = column.others[0];
    }
    assert_true(track.columns > REPORT_TRACK_COLUMNS / 2 && track.columns <= REPORT_TRACK_COLUMNS);
    assert_true(low == -900 && weight == 100000 && at_highest == 54321);
    assert_true(report_track_highest(&track, 0) == 900);
    assert_float_equal(report_track_mean(&track, 0), sum / 100000, 1e-9);
    report_track_destroy(&track);
}

static void a_run_becomes_a_page(void **state)
{
    (void)state;
    char directory[512], path[600];
    report_t report = {0};
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/page.html", directory);
    assert_int_equal(report_write(&report, path), PLIM_ERR_USAGE);
    assert_int_equal(report_add(&report, directory, NULL), PLIM_ERR_USAGE);
    (void)snprintf(path, sizeof path, "%s/timeline.jsonl", directory);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    (void)fputs("{\"kind\":\"tick\",\"at_s\":1,\"used_bytes\":5}\n", file);
    (void)fclose(file);
    for (int i = 0; i < REPORT_RUNS; i++)
        assert_int_equal(report_add(&report, directory, NULL), PLIM_OK);
    assert_int_equal(report_add(&report, directory, NULL), PLIM_ERR_USAGE);
    assert_int_equal(report_write(&report, path), PLIM_ERR_USAGE); /* no report */
    (void)snprintf(path, sizeof path, "%s/page.html", directory);
    assert_int_equal(report_write(&report, path), PLIM_OK);
    assert_int_equal(report_write(&report, path), PLIM_OK); /* replaced */
    report_clear(&report);
    test_directory_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(columns_keep_extremes_and_mean),
        cmocka_unit_test(a_run_becomes_a_page),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
