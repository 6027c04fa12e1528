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
    bool numbers;    /* every field is a number; false for a line of headings */
} plim__text_line_t;

plim_status_t plim__text_peek(plim__text_t *text, plim__text_line_t *line_out);

/* Passes over the next line: a line of headings. Nothing at the end. */
plim_status_t plim__text_skip(plim__text_t *text);

/*
 * Up to `max_rows` lines of exactly `columns` fields each, of which the first `keep` are stored:
 * rows_out[row * keep + column]. Less than max_rows only at the end. Integers are decimal and fit
 * 64 bits; reals are correctly rounded to double (rows_f32 rounds that to float, as
 * NumPy's astype does), nan and inf in any case are taken, and a field left empty between
 * separators is nan, as pandas writes it.
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
