/*
 * Numbers in lines of text: csv, tsv, or separated by blanks.
 *
 * Fields are parted by one comma or semicolon with or without blanks (spaces, tabs) around it, or
 * by blanks alone, so the separator need not be told. Lines end with LF or CRLF. Empty lines, and
 * lines that begin with '#' or '%', are passed over. Decimal points only, whatever the locale says.
 *
 * Errors are PLIM_ERR_DATA with the stream's name, line and column (the first of each is 1).
 */
#ifndef PLIM_IO_TEXT_H
#define PLIM_IO_TEXT_H

#include "io/stream.h"

#include <stdbool.h>

typedef struct plim__text plim__text_t;

/* The longest line that can be read is `buffer` bytes less one; 1 MiB is plenty and fast. */
size_t plim__text_estimate(size_t buffer);

/* Takes `inner` over, also on failure. */
plim_status_t plim__text_open(const plim_job_t *job, plim__stream_t *inner, size_t buffer,
                              plim__text_t **text_out);

/* Closes the stream below, too. NULL is harmless. */
void plim__text_close(plim__text_t *text);

/* What the next line holds, without consuming it. */
typedef struct plim__text_line {
    int64_t number;  /* of the line in the file */
    int64_t columns; /* fields; 0 at the end of the text */
    bool numbers;    /* every field is a number */
    bool heading;    /* not so, and neither of the first two begins as a number does */
} plim__text_line_t;

plim_status_t plim__text_peek(plim__text_t *text, plim__text_line_t *line_out);

/* Passes over the next line, which then counts as no row. Nothing at the end. */
plim_status_t plim__text_skip(plim__text_t *text);

/* Passes over the next line if it is a heading, saying so to the job, and peeks at what follows. */
plim_status_t plim__text_heading(plim__text_t *text, plim__text_line_t *line_out);

/*
 * Which line each row came from, the first row being 0. Rows follow each other line by line but for
 * empty lines and comments, so only the rows behind those are noted, as long as there is room.
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

/* Those of the text; they grow as it is read. */
const plim__text_lines_t *plim__text_lines(const plim__text_t *text);

/* The line of a row; 0 when it is not known. */
int64_t plim__text_line_of(const plim__text_lines_t *lines, int64_t row);

/* What is said, behind a semicolon, when a field is no integer. Borrowed. */
void plim__text_set_remedy(plim__text_t *text, const char *remedy);

/*
 * Up to `max_rows` lines of exactly `columns` fields each, of which the first `keep` are stored:
 * rows_out[row * keep + column]. Less than max_rows only at the end. Integers are decimal and fit
 * 64 bits; reals are correctly rounded to double (rows_f32 rounds that to float, as
 * NumPy's astype does, but refuses what only infinity could stand for), nan and inf in any case are
 * taken, and a field left empty between separators is nan, as pandas writes it.
 */
plim_status_t plim__text_rows_i64(plim__text_t *text, int64_t columns, int64_t keep,
                                  int64_t max_rows, int64_t *rows_out, int64_t *got_out);
plim_status_t plim__text_rows_f64(plim__text_t *text, int64_t columns, int64_t keep,
                                  int64_t max_rows, double *rows_out, int64_t *got_out);
plim_status_t plim__text_rows_f32(plim__text_t *text, int64_t columns, int64_t keep,
                                  int64_t max_rows, float *rows_out, int64_t *got_out);

/*
 * One field after another, for lines of unequal shape. Each call begins the next line when none is
 * begun; plim__text_finish_line ends it, and refuses what is left in it.
 */
plim_status_t plim__text_i64(plim__text_t *text, int64_t *value_out);
plim_status_t plim__text_f64(plim__text_t *text, double *value_out);
plim_status_t plim__text_finish_line(plim__text_t *text);

/* PLIM_ERR_DATA with the text's name and the place of the field read last: "NAME: line 3, column 2:
 * …", for callers who find a value out of its range. */
plim_status_t plim__text_fail(const plim__text_t *text, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
