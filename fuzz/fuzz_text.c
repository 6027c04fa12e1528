/* Numbers and names in text. The first byte chooses how it is read; rows of one kind must agree
 * with the fields read one by one. */
#include "fuzz.h"
#include "io/text.h"

#include <math.h>
#include <string.h>

enum { MAX_COLUMNS = 8, ROWS = 4 };

static plim__text_t *open_text(const uint8_t *data, size_t size, size_t buffer)
{
    plim__reader_t *reader;
    plim__text_t *text;
    FUZZ_ASSERT(plim__reader_memory(fuzz_job(), "fuzz.csv", data, size, &reader) == PLIM_OK);
    FUZZ_ASSERT(plim__text_open(fuzz_job(), reader, buffer, &text) == PLIM_OK);
    return text;
}

/* Returns the rows that were read before the end or the first error. */
static int64_t read_integers(const uint8_t *data, size_t size, int64_t columns, size_t buffer)
{
    plim__text_t *text = open_text(data, size, buffer);
    int64_t rows[ROWS * MAX_COLUMNS], got = 1, total = 0;
    while (got > 0 && plim__text_rows_i64(text, columns, columns, ROWS, rows, &got) == PLIM_OK)
        total += got;
    plim__text_close(text);
    return total;
}

static void read_single_rows(const uint8_t *data, size_t size, int64_t columns, size_t buffer,
                             int64_t rows)
{
    plim__text_t *text = open_text(data, size, buffer);
    int64_t values[MAX_COLUMNS], got;
    for (int64_t row = 0; row < rows; row++) {
        FUZZ_ASSERT(plim__text_rows_i64(text, columns, columns, 1, values, &got) == PLIM_OK);
        FUZZ_ASSERT(got == 1);
    }
    plim__text_close(text);
}

static void read_reals(const uint8_t *data, size_t size, int64_t columns, size_t buffer)
{
    plim__text_t *text = open_text(data, size, buffer);
    plim__text_line_t line;
    double rows[ROWS * MAX_COLUMNS];
    int64_t got = 1;
    while (plim__text_peek(text, &line) == PLIM_OK && line.columns > 0 && !line.numbers)
        (void)plim__text_skip(text);
    while (got > 0 && plim__text_rows_f64(text, columns, columns / 2, ROWS, rows, &got) == PLIM_OK)
        ;
    plim__text_close(text);
}

static plim_status_t take_word(void *context, plim__text_field_t field, bool number, double *value)
{
    int64_t *words = context;
    FUZZ_ASSERT(number || (field.size > 0 && isnan(*value)));
    FUZZ_ASSERT(memchr(field.begin, '\n', field.size) == NULL);
    *value = (double)(*words)++;
    return PLIM_OK;
}

/* Rows whose last fields may be words. */
static void read_words(const uint8_t *data, size_t size, int64_t columns, size_t buffer)
{
    plim__text_t *text = open_text(data, size, buffer);
    plim__text_line_t line;
    double rows[ROWS * MAX_COLUMNS];
    int64_t got = 1, words = 0;
    (void)plim__text_table(text, false, &line);
    FUZZ_ASSERT(memchr(plim__text_heading_end(text), '\n', strlen(plim__text_heading_end(text))) ==
                NULL);
    plim__text_set_words(text, take_word, &words);
    plim__text_pass(text, columns / 2);
    while (got > 0 &&
           plim__text_rows_f64(text, columns, columns - columns / 2, ROWS, rows, &got) == PLIM_OK)
        ;
    plim__text_close(text);
}

static plim_status_t take_first(void *context, int64_t row, plim__text_field_t field)
{
    int64_t *next = context;
    FUZZ_ASSERT(row == (*next)++);
    FUZZ_ASSERT(field.size > 0 && memchr(field.begin, '\n', field.size) == NULL);
    return PLIM_OK;
}

/* Names, and rows that begin with one. */
static void read_names(const uint8_t *data, size_t size, int64_t columns, size_t buffer)
{
    plim__text_t *text = open_text(data, size, buffer);
    plim__text_field_t fields[MAX_COLUMNS];
    plim__text_line_t line;
    double rows[ROWS * MAX_COLUMNS];
    int64_t got = 1, next = 0;
    bool more = plim__text_names_heading(text, columns, &line) == PLIM_OK;
    while (more && plim__text_names(text, columns, fields, &more) == PLIM_OK)
        for (int64_t i = 0; i < columns && more; i++)
            FUZZ_ASSERT(fields[i].size > 0 &&
                        memchr(fields[i].begin, '\n', fields[i].size) == NULL);
    plim__text_close(text);
    text = open_text(data, size, buffer);
    (void)plim__text_table(text, true, &line);
    plim__text_set_first(text, take_first, &next);
    while (got > 0 && plim__text_rows_f64(text, columns, columns - 1, ROWS, rows, &got) == PLIM_OK)
        ;
    plim__text_close(text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0)
        return 0;
    int64_t columns = 1 + data[0] % MAX_COLUMNS;
    size_t buffer = data[0] < 128 ? 4096 : 64;
    data++;
    size--;
    int64_t rows = read_integers(data, size, columns, buffer);
    read_single_rows(data, size, columns, buffer, rows);
    read_reals(data, size, columns, buffer);
    read_words(data, size, columns, buffer);
    read_names(data, size, columns, buffer);
    fuzz_check_ledger();
    return 0;
}
