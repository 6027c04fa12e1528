/* plim_import with its 1st, 2nd, 3rd … allocation failing, at every line, and stopped early. */
#include "support/harness.h"

#include <plimsoll/ingest.h>

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

typedef struct fixture {
    char directory[512];
    char source[600];
    char target[600];
    plim_import_options_t options;
} fixture_t;

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

static void begin(fixture_t *fixture)
{
    static const plim_import_options_t options = PLIM_IMPORT_OPTIONS_INIT;
    test_directory_make(fixture->directory);
    (void)snprintf(fixture->source, sizeof fixture->source, "%s/edges", fixture->directory);
    (void)snprintf(fixture->target, sizeof fixture->target, "%s/out", fixture->directory);
    fixture->options = options;
    fixture->options.source = fixture->source;
    fixture->options.target = fixture->target;
}

static bool exists(const char *path)
{
    struct stat status;
    return stat(path, &status) == 0;
}

/* Removes what an import has made; a failed one must have left nothing. */
static plim_status_t import_and_remove(plim_job_t *job, void *context)
{
    fixture_t *fixture = context;
    plim_status_t status = plim_import(job, &fixture->options);
    assert_int_equal(exists(fixture->target), status == PLIM_OK);
    if (status == PLIM_OK)
        test_directory_remove(fixture->target);
    return status;
}

static void write_graphbolt(const fixture_t *fixture)
{
    char path[700];
    (void)snprintf(path, sizeof path, "%s/metadata.yaml", fixture->source);
    assert_int_equal(mkdir(fixture->source, 0700), 0);
    write_text(path, "graph: {nodes: [{num: 4}], edges: [{format: csv, path: e.csv}]}\n");
    (void)snprintf(path, sizeof path, "%s/e.csv", fixture->source);
    write_text(path, "0,1\n1,2\n2,3\n");
}

static void write_csv_layout(const fixture_t *fixture)
{
    static const char *const files[][2] = {
        {"edge.csv", "0,1\n0,1\n1,0\n"},   {"node-feat.csv", "0.5,1\n1,2\n3,4\n5,6\n7,8\n"},
        {"graph-label.csv", "1.5\n2.5\n"}, {"num-node-list.csv", "2\n3\n"},
        {"num-edge-list.csv", "1\n2\n"},
    };
    char path[700];
    assert_int_equal(mkdir(fixture->source, 0700), 0);
    (void)snprintf(path, sizeof path, "%s/raw", fixture->source);
    assert_int_equal(mkdir(path, 0700), 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/raw/%s", fixture->source, files[i][0]);
        write_text(path, files[i][1]);
    }
}

static void write_names(fixture_t *fixture)
{
    static const char *const files[][2] = {{"edges.csv", "a,b\nb,c\nc,a\n"},
                                           {"nodes.csv", "id\na\nb\nc\n"},
                                           {"features.csv", "id,x\na,1\nb,2\nc,3\n"},
                                           {"labels.csv", "id,y\nc,1\na,0\nb,1\n"}};
    char path[700];
    assert_int_equal(mkdir(fixture->source, 0700), 0);
    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", fixture->source, files[i][0]);
        write_text(path, files[i][1]);
    }
    fixture->options.relabel = true;
    fixture->options.split[0] = fixture->options.split[1] = 0.3;
}

/* Writes a source of each kind. */
static void write_source(fixture_t *fixture, int kind)
{
    switch (kind) {
    case 0:
    case 1:
        write_text(fixture->source, "0 1\n1 2\n2 0\n");
        fixture->options.relabel = kind == 1;
        break;
    case 2:
        write_graphbolt(fixture);
        break;
    case 3:
        write_csv_layout(fixture);
        break;
    case 4:
        write_text(fixture->source, "a b\nb c\nc a\n");
        fixture->options.relabel = true;
        break;
    default:
        write_names(fixture);
    }
}

static void survives_refused_memory(void **state)
{
    (void)state;
    for (int kind = 0; kind < 6; kind++) {
        fixture_t fixture;
        begin(&fixture);
        write_source(&fixture, kind);
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
        test_fail_each_arena(&job, import_and_remove, &fixture);
        test_job_end(&job);
        test_directory_remove(fixture.directory);
    }
}

static void check_every_line(int kind)
{
    fixture_t fixture;
    begin(&fixture);
    write_source(&fixture, kind);
    bool fitted = false;
    int fits = 0; /* a sanitizer's own memory moves the first line that fits */
    for (int64_t line = (int64_t)1 << 20; line < (int64_t)1 << 30 && fits < 40;
         line += (int64_t)1 << 20) {
        plim_job_t job;
        if (test_job_try(line, 2, PLIM_IO_AUTO, &job) != PLIM_OK)
            continue;
        plim_status_t status = import_and_remove(&job, &fixture);
        assert_true(status == PLIM_OK || status == PLIM_ERR_BUDGET);
        /* A sanitizer keeps what was freed, so that the process grows from line to line. */
        assert_true(status == PLIM_OK || !fitted || TEST_SANITIZED);
        assert_true(status != PLIM_OK || plim__ledger_peak(job.ledger) <= line);
        fitted = status == PLIM_OK;
        fits += fitted;
        test_job_end(&job);
    }
    assert_true(fitted);
    test_directory_remove(fixture.directory);
}

static void fits_or_says_so_at_every_line(void **state)
{
    (void)state;
    check_every_line(3);
    check_every_line(5);
}

static void stops_on_request(void **state)
{
    (void)state;
    fixture_t fixture;
    volatile int stop = 1;
    begin(&fixture);
    write_text(fixture.source, "0 1\n1 2\n2 0\n");
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    job.stop = &stop;
    assert_int_equal(import_and_remove(&job, &fixture), PLIM_ERR_STOPPED);
    test_job_end(&job);
    test_directory_remove(fixture.directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(survives_refused_memory),
        cmocka_unit_test(fits_or_says_so_at_every_line),
        cmocka_unit_test(stops_on_request),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
