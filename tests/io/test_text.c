/* Numbers in text: every separator and line end, the same value strtod finds, errors with their
 * place. */
#include "support/harness.h"

#include "base/fail.h"
#include "base/rng.h"
#include "io/text.h"

#include <float.h>
#include <inttypes.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static plim__text_t *open_text(plim_job_t *job, const char *content, size_t buffer)
{
    plim__reader_t *reader;
    plim__text_t *text;
    assert_ok(plim__reader_memory(job, "test.csv", content, strlen(content), &reader));
    assert_ok(plim__text_open(job, reader, buffer, &text));
    return text;
}

static void takes_every_separator(void **state)
{
    (void)state;
    static const char *const same[] = {
        "1,2\n3,4\n",
        "1\t2\n3\t4",
        "1 2\r\n3 4\r\n",
        " 1 ,\t2 \n\n\r\n 3;4",
        "# comment\n% another\n1  2\n#\n3 , 4\n  # indented\n",
        "\xef\xbb\xbf+1,02\n3,4\n\n\n",
        "\n\n1,2\n3,4",
    };
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        for (size_t buffer = 16; buffer < 64; buffer += 7) {
            plim__text_t *text = open_text(&job, same[i], buffer);
            int64_t rows[8], got;
            assert_ok(plim__text_rows_i64(text, 2, 2, 4, rows, &got));
            assert_int_equal(got, 2);
            assert_memory_equal(rows, ((int64_t[]){1, 2, 3, 4}), 4 * sizeof(int64_t));
            assert_ok(plim__text_rows_i64(text, 2, 2, 4, rows, &got));
            assert_int_equal(got, 0);
            plim__text_close(text);
        }
    }
    test_job_end(&job);
}

static void tells_headings_from_numbers(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__text_t *text = open_text(&job, "# x\nsrc,dst,w\n1,2,0.5\n3,4,\n", 64);
    plim__text_line_t line;
    int64_t rows[4], got;
    assert_ok(plim__text_peek(text, &line));
    assert_int_equal(line.number, 2);
    assert_int_equal(line.columns, 3);
    assert_false(line.numbers);
    assert_ok(plim__text_skip(text));
    assert_ok(plim__text_peek(text, &line));
    assert_int_equal(line.number, 3);
    assert_true(line.numbers);
    assert_ok(plim__text_rows_i64(text, 3, 2, 9, rows, &got));
    assert_int_equal(got, 2);
    assert_memory_equal(rows, ((int64_t[]){1, 2, 3, 4}), sizeof rows);
    assert_ok(plim__text_peek(text, &line));
    assert_int_equal(line.columns, 0);
    assert_ok(plim__text_skip(text));
    plim__text_close(text);
    test_job_end(&job);
}

static void takes_no_typing_error_for_a_heading(void **state)
{
    (void)state;
    static const struct {
        const char *content;
        bool heading;
    } cases[] = {{"src dst\n", true}, {"1 x2\n", false},  {"x1 2\n", false},
                 {"-x y\n", false},   {"a,b,3\n", true},  {"a\n", true},
                 {"1\n", false},      {"nan,1\n", false}, {"\"a\",\"b\"\n", true}};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plim__text_line_t line;
        plim__text_t *text = open_text(&job, cases[i].content, 64);
        assert_ok(plim__text_heading(text, &line));
        assert_int_equal(line.columns == 0, cases[i].heading);
        plim__text_close(text);
    }
    test_job_end(&job);
}

static void takes_headings_of_tables(void **state)
{
    (void)state;
    static const struct {
        const char *content;
        bool wide;
        bool skipped;
        bool index;
        bool ids;
    } cases[] = {{",a,b\n0,1,2\n", false, true, true, true},
                 {",0,1\n0,1,2\n", false, true, true, true},
                 {"0,1,2\n3,4,5\n", false, false, false, false},
                 {"0,1,2\n3,4,5\n", true, true, false, false},
                 {"0,1\n3,4\n", true, false, false, false},
                 {",2,1\n3,4,5\n", true, false, false, false},
                 {"paper_id,x\n0,1\n", true, true, false, true},
                 {"ID x\n0 1\n", true, true, false, true},
                 {"x,y\n0,1\n", true, true, false, false},
                 {"id\n0\n", false, true, false, false},
                 {"id,source,target\n7,0,1\n", false, true, true, true},
                 {"True\nFalse\n", false, false, false, false}};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plim__text_line_t line;
        plim__text_t *text = open_text(&job, cases[i].content, 64);
        assert_ok(plim__text_table(text, cases[i].wide, &line));
        assert_int_equal(line.number == 2, cases[i].skipped);
        assert_int_equal(line.index, cases[i].index);
        assert_int_equal(line.ids, cases[i].ids);
        plim__text_close(text);
    }
    test_job_end(&job);
}

static void takes_whole_reals_and_words_as_integers(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__text_t *text = open_text(&job, "1.000000000000000000e+00 2.0\nTrue,false\n1e3 7\n", 64);
    int64_t rows[6], got;
    assert_ok(plim__text_rows_i64(text, 2, 2, 3, rows, &got));
    assert_memory_equal(rows, ((int64_t[]){1, 2, 1, 0, 1000, 7}), sizeof rows);
    plim__text_close(text);
    test_job_end(&job);
}

static void assert_field(plim__text_field_t field, const char *expected)
{
    assert_int_equal(field.size, strlen(expected));
    assert_memory_equal(field.begin, expected, field.size);
}

static void takes_names(void **state)
{
    (void)state;
    static const char *const same[] = {"source,target,w\nNew York,b 2,1\n", "New York\tb 2\r\n",
                                       "\"New York\" \"b 2\"", "New York ; b 2 ;3\n"};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++) {
        plim__text_t *text = open_text(&job, same[i], 64);
        plim__text_line_t line;
        plim__text_field_t names[2];
        bool more;
        assert_ok(plim__text_names_heading(text, 2, &line));
        assert_ok(plim__text_names(text, 2, names, &more));
        assert_true(more);
        assert_field(names[0], "New York");
        assert_field(names[1], "b 2");
        assert_ok(plim__text_names(text, 2, names, &more));
        assert_false(more);
        plim__text_close(text);
    }
    for (size_t i = 0; i < 3; i++) {
        static const char *const wrong[] = {"a\n", "a,,b\n", "\"a b\n"};
        plim__text_t *text = open_text(&job, wrong[i], 64);
        plim__text_field_t names[2];
        bool more;
        assert_int_equal(plim__text_names(text, 2, names, &more), PLIM_ERR_DATA);
        plim__text_close(text);
    }
    test_job_end(&job);
}

static plim_status_t add_first(void *context, int64_t row, plim__text_field_t field)
{
    char *all = context;
    if (field.size > 3)
        return plim__fail(PLIM_ERR_DATA, "too long");
    (void)snprintf(all + strlen(all), 8, "%d%.*s", (int)row, (int)field.size, field.begin);
    return PLIM_OK;
}

static void passes_the_first_field_on(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__text_t *text = open_text(&job, "a b,1,2\n\nc,3,4\nlong,5,6\n", 64);
    plim__text_line_t line;
    char all[64] = "";
    double rows[4];
    int64_t got;
    plim__text_set_first(text, add_first, all);
    assert_ok(plim__text_peek(text, &line));
    assert_int_equal(line.columns, 3);
    assert_ok(plim__text_rows_f64(text, 3, 2, 2, rows, &got));
    assert_int_equal(got, 2);
    assert_true(rows[0] == 1 && rows[1] == 2 && rows[2] == 3 && rows[3] == 4);
    assert_string_equal(all, "0a b1c");
    assert_int_equal(plim__text_rows_f64(text, 3, 2, 1, rows, &got), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "test.csv: line 4: too long"));
    plim__text_close(text);
    test_job_end(&job);
}

/* Every row says its own number, which is that of its line. */
static void knows_the_line_of_each_row(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (int every = 1; every < 60; every += 7) {
        static char content[4096];
        int size = snprintf(content, sizeof content, "# c\nhead\n\n"), lines = 3, rows = 0;
        while (lines < 120) {
            lines++;
            rows += lines % every != 0;
            size += snprintf(content + size, sizeof content - (size_t)size,
                             lines % every == 0 ? "%%%d\n" : "%d\n", lines);
        }
        plim__text_line_t line;
        plim__text_t *text = open_text(&job, content, 64);
        int64_t values[120], got;
        assert_ok(plim__text_heading(text, &line));
        assert_ok(plim__text_rows_i64(text, 1, 1, 120, values, &got));
        assert_int_equal(got, rows);
        int64_t known = plim__text_lines(text)->known;
        assert_true(known == rows || plim__text_lines(text)->num_gaps == PLIM__TEXT_GAPS);
        for (int64_t i = 0; i < rows; i++)
            assert_int_equal(plim__text_line_of(plim__text_lines(text), i),
                             i < known ? values[i] : 0);
        plim__text_close(text);
    }
    test_job_end(&job);
}

typedef struct refusal {
    const char *content;
    const char *message; /* a part of it */
} refusal_t;

static void refuses_with_the_place(void **state)
{
    (void)state;
    static const refusal_t cases[] = {
        {"1,2\n3,x7\n", "test.csv: line 2, column 2: 'x7'"},
        {"1,2\n3,4.5\n", "line 2, column 2: '4.5'"},
        {"1,9223372036854775808\n", "line 1, column 2"},
        {"1,-9223372036854775809\n", "line 1, column 2"},
        {"1,99999999999999999999999999\n", "line 1, column 2"},
        {"1,2\n\n# c\n3\n", "line 4"},
        {"1,2,3\n", "line 1"},
        {"1,2,\n", "line 1"},
        {"1,,2\n", "line 1, column 2: ''"},
        {"1,-\n", "line 1, column 2: '-'"},
        {"1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29\n",
         "line 1 is longer than 64 bytes"},
        {"1,\x01\xff\n", "'?\?'"},
    };
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plim__text_t *text = open_text(&job, cases[i].content, 64);
        int64_t rows[8], got;
        assert_int_equal(plim__text_rows_i64(text, 2, 2, 4, rows, &got), PLIM_ERR_DATA);
        if (strstr(plim_last_error(), cases[i].message) == NULL)
            fail_msg("'%s' does not say '%s'", plim_last_error(), cases[i].message);
        plim__text_close(text);
    }
    test_job_end(&job);
}

static void reads_integers_to_their_limits(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__text_t *text = open_text(
        &job, "9223372036854775807 -9223372036854775808 -0 000000000000000000000012", 128);
    int64_t row[4], got;
    assert_ok(plim__text_rows_i64(text, 4, 4, 1, row, &got));
    assert_memory_equal(row, ((int64_t[]){INT64_MAX, INT64_MIN, 0, 12}), sizeof row);
    plim__text_close(text);
    test_job_end(&job);
}

static double read_one(plim_job_t *job, const char *number)
{
    double value;
    plim__text_t *text = open_text(job, number, 1200);
    int64_t got;
    assert_ok(plim__text_rows_f64(text, 1, 1, 1, &value, &got));
    assert_int_equal(got, 1);
    plim__text_close(text);
    return value;
}

static void rounds_reals_as_strtod_does(void **state)
{
    (void)state;
    static const char *const hard[] = {"0",
                                       "-0",
                                       "0.1",
                                       ".5",
                                       "5.",
                                       "1e5",
                                       "1E-5",
                                       "2.2250738585072012e-308",
                                       "5e-324",
                                       "1e-400",
                                       "1.7976931348623157e308",
                                       "9007199254740993",
                                       "9007199254740992.5",
                                       "9007199254740993.5",
                                       "0.10000000149011612",
                                       "123456789012345678901234567890",
                                       "0.000000000000000000000000000001",
                                       "18446744073709551615",
                                       "9999999999999999999",
                                       "9999999999999999999e27",
                                       "9999999999999999999e-27",
                                       "1e27",
                                       "1e-27",
                                       "7.450580596923828125e-9",
                                       "1.00000000000000011102230246251565404",
                                       "1.00000000000000011102230246251565405",
                                       "4503599627370497.5",
                                       "0.500000000000000166533453693773481063544750213623046875"};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof hard / sizeof hard[0]; i++) {
        double value = read_one(&job, hard[i]), expected = strtod(hard[i], NULL);
        assert_memory_equal(&value, &expected, sizeof value);
    }
    uint64_t counter = 0;
    for (int i = 0; i < 20000; i++) {
        char number[64];
        uint64_t bits = plim__rng_u64(1, counter++);
        int power = (int)plim__rng_below(2, &counter, 64) - 32;
        if (i % 2 == 0)
            (void)snprintf(number, sizeof number, "%" PRIu64 "e%d", bits >> (bits % 64), power);
        else
            (void)snprintf(number, sizeof number, "%.*g", 1 + (int)(bits % 19),
                           ldexp((double)bits, power - 64));
        double value = read_one(&job, number), expected = strtod(number, NULL);
        if (memcmp(&value, &expected, sizeof value) != 0)
            fail_msg("%s became %.17g instead of %.17g", number, value, expected);
    }
    test_job_end(&job);
}

static void takes_nan_and_infinity(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__text_t *text =
        open_text(&job, "nan,NaN,-inf,Infinity,,-nan,1e999,\n1,2,3,4,5,6,infinit,8", 64);
    float row[8];
    int64_t got;
    assert_ok(plim__text_rows_f32(text, 8, 8, 1, row, &got));
    assert_true(isnan(row[0]) && isnan(row[1]) && isnan(row[4]) && isnan(row[5]) && isnan(row[7]));
    assert_true(row[2] == -INFINITY && row[3] == INFINITY && row[6] == INFINITY);
    assert_int_equal(plim__text_rows_f32(text, 8, 8, 1, row, &got), PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "line 2, column 7: 'infinit'"));
    plim__text_close(text);
    test_job_end(&job);
}

static void ignores_the_locale(void **state)
{
    (void)state;
    if (setlocale(LC_NUMERIC, "de_DE.UTF-8") == NULL)
        print_message("no German locale here: tried with the C locale only\n");
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    double value = read_one(&job, "0.12345678901234567890123");
    (void)setlocale(LC_NUMERIC, "C");
    assert_true(value == 0.12345678901234567890123);
    test_job_end(&job);
}

static plim_status_t open_and_read(plim_job_t *job, void *context)
{
    plim__reader_t *reader;
    plim__text_t *text;
    int64_t row[2], got;
    (void)context;
    plim_status_t status = plim__reader_memory(job, "test.csv", "1,2\n", 4, &reader);
    if (status == PLIM_OK)
        status = plim__text_open(job, reader, 64, &text);
    if (status != PLIM_OK)
        return status;
    status = plim__text_rows_i64(text, 2, 2, 1, row, &got);
    plim__text_close(text);
    return status;
}

static void survives_refused_memory(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_fail_each_arena(&job, open_and_read, NULL);
    plim__text_close(NULL);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_every_separator),
        cmocka_unit_test(tells_headings_from_numbers),
        cmocka_unit_test(takes_no_typing_error_for_a_heading),
        cmocka_unit_test(takes_headings_of_tables),
        cmocka_unit_test(takes_whole_reals_and_words_as_integers),
        cmocka_unit_test(takes_names),
        cmocka_unit_test(passes_the_first_field_on),
        cmocka_unit_test(knows_the_line_of_each_row),
        cmocka_unit_test(refuses_with_the_place),
        cmocka_unit_test(reads_integers_to_their_limits),
        cmocka_unit_test(rounds_reals_as_strtod_does),
        cmocka_unit_test(takes_nan_and_infinity),
        cmocka_unit_test(ignores_the_locale),
        cmocka_unit_test(survives_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
