/*
 * Reads numbers, and names, from lines of text: csv, tsv, or separated by blanks.
 *
 * Fields are separated by one comma or semicolon with optional blanks (spaces, tabs) around it, or
 * by blanks alone, so the separator need not be given. Lines end with LF or CRLF. Empty lines, and
 * lines that begin with '#' or '%', are skipped. The decimal separator is a point in every locale.
 *
 * Errors are PLIM_ERR_DATA with the reader's name, line and column, both counted from 1.
 */
#ifndef PLIM_IO_TEXT_H
#define PLIM_IO_TEXT_H

#include "io/reader.h"

#include <stdbool.h>

typedef struct plim__text plim__text_t;

/* The longest line that can be read is `buffer` bytes less one; 1 MiB is plenty and fast. Takes
 * ownership of `inner`, also on failure. */
plim_status_t plim__text_open(const plim_job_t *job, plim__reader_t *inner, size_t buffer,
                              plim__text_t **text_out);

/* Closes the inner reader, too. NULL is harmless. */
void plim__text_close(plim__text_t *text);

/* The contents of the next line. */
typedef struct plim__text_line {
    int64_t number;  /* of the line in the file */
    int64_t columns; /* number of fields; 0 at the end of the text */
    bool numbers;    /* every field is a number */
    bool heading;    /* not all are numbers, and neither of the first two begins like one */
    bool unnamed;    /* the first field is empty, as in pandas' heading of a table with an index */
    bool counting;   /* the fields, after an empty first one, are 0, 1, 2 … */
    int64_t words;   /* fields that are not numbers, */
    bool word_first; /* the first among them, */
    bool word_last;  /* or the last */
    /* After a skipped heading, of the first of several columns: */
    bool index; /* its heading is empty (pandas' index), or an id before "source" */
    bool ids;   /* its heading is empty or a usual word for ids of rows */
} plim__text_line_t;

/* Describes the next line without consuming it. */
plim_status_t plim__text_peek(plim__text_t *text, plim__text_line_t *line_out);

/* Skips the next line, which then does not count as a row. Does nothing at the end. */
plim_status_t plim__text_skip(plim__text_t *text);

/* Skips the next line if it is a heading, logging that, and peeks at the line after it. */
plim_status_t plim__text_heading(plim__text_t *text, plim__text_line_t *line_out);

/* The same for a table that pandas may have written: a first line ",0,1,2" is a heading too, and so
 * is "0,1,2" if `wide`. */
plim_status_t plim__text_table(plim__text_t *text, bool wide, plim__text_line_t *line_out);

/* The same for lines that begin with `count` names: a heading begins with a usual word ("id",
 * "source"). */
plim_status_t plim__text_names_heading(plim__text_t *text, int64_t count,
                                       plim__text_line_t *line_out);

/* The last word of the heading that was skipped, shortened; "" without a heading. */
const char *plim__text_heading_end(const plim__text_t *text);

/*
 * The line of each row, rows counted from 0. Rows are on consecutive lines except after empty lines
 * and comments, so only the rows after those are recorded, as long as there is space.
 */
#define PLIM__TEXT_GAPS 32

typedef struct plim__text_lines {
    int64_t rows;  /* begun so far */
    int64_t known; /* rows before this one have a known line */
    int num_gaps;
    struct {
        int64_t row;
        int64_t line;
    } gaps[PLIM__TEXT_GAPS]; /* ascending */
} plim__text_lines_t;

/* The rows read so far. */
const plim__text_lines_t *plim__text_lines(const plim__text_t *text);

/* The line of a row; 0 when unknown. */
int64_t plim__text_line_of(const plim__text_lines_t *lines, int64_t row);

/* Text to append to the error for a field that is not a number. Borrowed. */
void plim__text_set_remedy(plim__text_t *text, const char *remedy);

/*
 * A field as text, without blanks or quotes around it. Between double quotes it may contain
 * separators, and two quotes for one. Otherwise it ends at a comma, semicolon or tab, whichever the
 * first line has, in this order, or else at a blank; a single name is then the whole line. Valid
 * until the next line is read.
 */
typedef struct plim__text_field {
    const char *begin;
    size_t size;
} plim__text_field_t;

/*
 * From now on plim__text_rows_* passes the first field of each line, and the row's number, to
 * `first` instead of storing it; it still counts as a column. The text's name and the line are put
 * before the message of an error. NULL ends this.
 */
typedef plim_status_t (*plim__text_first_fn)(void *context, int64_t row, plim__text_field_t field);
void plim__text_set_first(plim__text_t *text, plim__text_first_fn first, void *context);

/* Skips the first field of each row from now on. */
void plim__text_skip_first(plim__text_t *text);

/* Skips the first `columns` fields of each row, the one that `first` takes among them. */
void plim__text_pass(plim__text_t *text, int64_t columns);

/*
 * From now on plim__text_rows_f64 passes each field that it stores to `word`, which may replace its
 * value: the number, NaN for an empty field (`number` is true) and for a word. Errors as for
 * plim__text_set_first.
 */
typedef plim_status_t (*plim__text_word_fn)(void *context, plim__text_field_t field, bool number,
                                            double *value);
void plim__text_set_words(plim__text_t *text, plim__text_word_fn word, void *context);

/* Reads the first `count` fields of the next line, which may not be empty, and skips the others.
 * *more_out is false at the end of the text. */
plim_status_t plim__text_names(plim__text_t *text, int64_t count, plim__text_field_t *fields_out,
                               bool *more_out);

/*
 * Reads up to `max_rows` lines of exactly `columns` fields each, fewer only at the end, and stores
 * the first `keep` fields: rows_out[row * keep + column]. Integers are decimal and fit 64 bits;
 * whole numbers as reals up to 2^53, and true and false, are integers too. Reals are correctly
 * rounded to double; rows_f32 rounds that to float, as NumPy's astype does, but refuses values that
 * overflow float. nan and inf in any case are accepted; an empty field is nan, as pandas writes it.
 */
plim_status_t plim__text_rows_i64(plim__text_t *text, int64_t columns, int64_t keep,
                                  int64_t max_rows, int64_t *rows_out, int64_t *got_out);
plim_status_t plim__text_rows_f64(plim__text_t *text, int64_t columns, int64_t keep,
                                  int64_t max_rows, double *rows_out, int64_t *got_out);
plim_status_t plim__text_rows_f32(plim__text_t *text, int64_t columns, int64_t keep,
                                  int64_t max_rows, float *rows_out, int64_t *got_out);

#endif
