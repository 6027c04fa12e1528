/*
 * Lines are parsed in the buffer. A line is parsed once all of it, with its newline, is there, so
 * that fields need no bound: the newline ends every number.
 *
 *     buffer:  │ parsed │ line … \n │ filled … │ free │ one byte for the newline of the last line
 *                         at     line_end      filled
 */
#include "io/text.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/number.h"
#include "mem/arena.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

struct plim__text {
    plim__arena_t arena;
    const plim_job_t *job;
    plim__stream_t *inner;
    const char *remedy; /* appended to the error for a field that is not an integer, or NULL */
    locale_t c_locale;
    char *buffer;
    char *limit;  /* end of the buffer, without the byte for the newline */
    char *filled; /* end of the bytes read */
    char *next;   /* where the next line begins */
    bool ended;   /* the stream has ended */
    /* The line in progress: */
    bool begun;
    bool expects; /* a separator was passed: a field must follow, possibly empty */
    const char *at;
    const char *line_end;
    int64_t line;    /* its number, from 1 */
    int64_t column;  /* fields passed */
    size_t capacity; /* bytes of the longest line */
    plim__text_lines_t lines;
};

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__text_t *text = draft;
    text->buffer = plim__arena_carve(arena, 1, text->capacity + 1, PLIM__PAGE);
}

plim_status_t plim__text_open(const plim_job_t *job, plim__stream_t *inner, size_t buffer,
                              plim__text_t **text_out)
{
    plim__text_t draft = {.job = job, .inner = inner, .capacity = buffer};
    plim__text_t *text;
    plim_status_t status = plim__object_create(job->ledger, "text", lay_out, &draft, sizeof draft,
                                               &draft.arena, &text);
    if (status != PLIM_OK) {
        plim__stream_close(inner);
        return status;
    }
    text->limit = text->buffer + buffer;
    text->filled = text->buffer;
    text->next = text->buffer;
    /* glibc's "C" locale is a constant: no memory is allocated. */
    text->c_locale = newlocale(LC_ALL_MASK, "C", (locale_t)0);
    if (text->c_locale == (locale_t)0) {
        plim__text_close(text);
        return plim__fail(PLIM_ERR_NOMEM, "newlocale cannot create the C locale");
    }
    *text_out = text;
    return PLIM_OK;
}

void plim__text_close(plim__text_t *text)
{
    if (text == NULL)
        return;
    if (text->c_locale != (locale_t)0)
        freelocale(text->c_locale);
    plim__stream_close(text->inner);
    plim__arena_destroy(&text->arena);
}

static bool is_blank(char byte)
{
    return byte == ' ' || byte == '\t' || byte == '\r';
}

static bool is_separator(char byte)
{
    return byte == ',' || byte == ';';
}

static bool ends_field(char byte)
{
    return is_blank(byte) || is_separator(byte) || byte == '\n';
}

static const char *pass_blanks(const char *p)
{
    while (is_blank(*p))
        p++;
    return p;
}

/* Reports the field at `field`, shortened and with unprintable bytes replaced. */
static plim_status_t refuse_field(const plim__text_t *text, const char *field, const char *what)
{
    char shown[33];
    size_t size = 0;
    while (size + 1 < sizeof shown && !ends_field(field[size])) {
        shown[size] = '?';
        if (field[size] >= ' ' && field[size] <= '~')
            shown[size] = field[size];
        size++;
    }
    shown[size] = '\0';
    return plim__fail(PLIM_ERR_DATA, "%s: line %" PRId64 ", column %" PRId64 ": '%s' is not %s%s%s",
                      text->inner->name, text->line, text->column + 1, shown, what,
                      text->remedy != NULL ? "; " : "", text->remedy != NULL ? text->remedy : "");
}

void plim__text_set_remedy(plim__text_t *text, const char *remedy)
{
    text->remedy = remedy;
}

/* Moves the unparsed bytes to the front and fills the rest of the buffer. */
static plim_status_t refill(plim__text_t *text)
{
    size_t left = (size_t)(text->filled - text->next);
    if (left == (size_t)(text->limit - text->buffer))
        return plim__fail(PLIM_ERR_DATA,
                          "%s: line %" PRId64 " is longer than %zu bytes; is this a text file?",
                          text->inner->name, text->line + 1, left);
    memmove(text->buffer, text->next, left);
    text->next = text->buffer;
    text->filled = text->buffer + left;
    size_t space = (size_t)(text->limit - text->filled), got;
    PLIM_TRY(plim__stream_read_some(text->inner, text->filled, space, &got));
    bool first = text->line == 0 && left == 0;
    text->filled += got;
    text->ended = got < space;
    if (first && got >= 3 && memcmp(text->buffer, "\xef\xbb\xbf", 3) == 0)
        text->next += 3; /* UTF-8 byte order mark */
    return PLIM_OK;
}

/* Finds the end of the line at `next`; NULL at the end of the text. */
static plim_status_t find_line(plim__text_t *text, char **end_out)
{
    for (;;) {
        char *end = memchr(text->next, '\n', (size_t)(text->filled - text->next));
        if (end == NULL && text->ended && text->next < text->filled) {
            end = text->filled++;
            *end = '\n';
        }
        if (end != NULL || text->ended) {
            *end_out = end;
            return PLIM_OK;
        }
        PLIM_TRY(refill(text));
    }
}

const plim__text_lines_t *plim__text_lines(const plim__text_t *text)
{
    return &text->lines;
}

int64_t plim__text_line_of(const plim__text_lines_t *lines, int64_t row)
{
    int gap = lines->num_gaps - 1;
    if (row < 0 || row >= lines->known)
        return 0;
    while (gap >= 0 && lines->gaps[gap].row > row)
        gap--;
    return gap < 0 ? row + 1 : lines->gaps[gap].line + row - lines->gaps[gap].row;
}

/* Records that a row begins on `line`. After the first gap without space, lines are unknown. */
static inline void note_row(plim__text_lines_t *lines, int64_t line)
{
    int64_t row = lines->rows++;
    if (lines->known != row)
        return;
    lines->known++;
    if (plim__text_line_of(lines, row) == line)
        return;
    if (lines->num_gaps < PLIM__TEXT_GAPS) {
        lines->gaps[lines->num_gaps].row = row;
        lines->gaps[lines->num_gaps].line = line;
        lines->num_gaps++;
    } else {
        lines->known = row;
    }
}

/* Discards the row in progress. */
static void forget_row(plim__text_lines_t *lines)
{
    lines->rows--;
    lines->known = plim__min_i64(lines->known, lines->rows);
    if (lines->num_gaps > 0 && lines->gaps[lines->num_gaps - 1].row >= lines->rows)
        lines->num_gaps--;
}

/* Begins the next line that is neither empty nor a comment, unless one is in progress. False at
 * the end. */
static plim_status_t begin_line(plim__text_t *text, bool *more_out)
{
    while (!text->begun) {
        char *end;
        PLIM_TRY(find_line(text, &end));
        if (end == NULL)
            break;
        text->at = pass_blanks(text->next);
        text->line_end = end;
        text->next = end + 1;
        text->line++;
        text->column = 0;
        text->expects = false;
        text->begun = *text->at != '\n' && *text->at != '#' && *text->at != '%';
        if (text->begun)
            note_row(&text->lines, text->line);
    }
    *more_out = text->begun;
    return PLIM_OK;
}

/* Passes the separator after a field that ends at `p`. */
static inline void pass_separator(plim__text_t *text, const char *p)
{
    p = pass_blanks(p);
    text->expects = is_separator(*p);
    if (text->expects)
        p = pass_blanks(p + 1);
    text->at = p;
    text->column++;
}

static inline bool at_line_end(const plim__text_t *text)
{
    return *text->at == '\n' && !text->expects;
}

static plim_status_t too_short(const plim__text_t *text, int64_t columns)
{
    return plim__fail(
        PLIM_ERR_DATA, "%s: line %" PRId64 " has %" PRId64 " field%s instead of %" PRId64,
        text->inner->name, text->line, text->column, text->column == 1 ? "" : "s", columns);
}

/* Reads the next of `columns` fields. */
static inline plim_status_t take_i64(plim__text_t *text, int64_t columns, int64_t *value_out)
{
    const char *p = text->at;
    if (at_line_end(text))
        return too_short(text, columns);
    if (!plim__number_i64(&p, value_out) || !ends_field(*p))
        return refuse_field(text, text->at, "a 64-bit integer");
    pass_separator(text, p);
    return PLIM_OK;
}

static inline plim_status_t take_f64(plim__text_t *text, int64_t columns, double *value_out)
{
    const char *p = text->at;
    if (at_line_end(text))
        return too_short(text, columns);
    if (is_separator(*p) || *p == '\n')
        *value_out = NAN;
    else if (!plim__number_f64(&p, text->c_locale, value_out) || !ends_field(*p))
        return refuse_field(text, text->at, "a number");
    pass_separator(text, p);
    return PLIM_OK;
}

static void pass_field(plim__text_t *text)
{
    const char *p = text->at;
    while (!ends_field(*p))
        p++;
    pass_separator(text, p);
}

static bool begins_number(char byte)
{
    return (byte >= '0' && byte <= '9') || byte == '+' || byte == '-' || byte == '.';
}

plim_status_t plim__text_peek(plim__text_t *text, plim__text_line_t *line_out)
{
    plim__text_line_t line = {.numbers = true};
    bool more, begins = false;
    PLIM_TRY(begin_line(text, &more));
    plim__text_t before = *text;
    while (more && !at_line_end(text)) {
        const char *p = text->at;
        double value;
        begins = begins || (text->column < 2 && begins_number(*p));
        if (!is_separator(*p) && *p != '\n' &&
            (!plim__number_f64(&p, text->c_locale, &value) || !ends_field(*p)))
            line.numbers = false;
        pass_field(text);
    }
    line.heading = !line.numbers && !begins;
    line.number = text->line;
    line.columns = more ? text->column : 0;
    *text = before;
    *line_out = line;
    return PLIM_OK;
}

plim_status_t plim__text_skip(plim__text_t *text)
{
    bool more;
    PLIM_TRY(begin_line(text, &more));
    if (more)
        forget_row(&text->lines);
    text->begun = false;
    return PLIM_OK;
}

/* Copies the line in progress, shortened and with unprintable bytes replaced. */
static void show_line(const plim__text_t *text, char shown[65])
{
    size_t size = 0;
    for (; size < 64 && text->at + size < text->line_end && text->at[size] != '\r'; size++)
        shown[size] = text->at[size] >= ' ' && text->at[size] <= '~' ? text->at[size] : '?';
    shown[size] = '\0';
}

plim_status_t plim__text_heading(plim__text_t *text, plim__text_line_t *line_out)
{
    char shown[65];
    PLIM_TRY(plim__text_peek(text, line_out));
    if (line_out->columns == 0 || !line_out->heading)
        return PLIM_OK;
    show_line(text, shown);
    plim__log(text->job, PLIM_LOG_INFO, "%s: line %" PRId64 " is skipped as a heading: '%s'",
              text->inner->name, line_out->number, shown);
    PLIM_TRY(plim__text_skip(text));
    return plim__text_peek(text, line_out);
}

/* Ends a row: skips the fields that are not kept and checks their number. */
static plim_status_t end_row(plim__text_t *text, int64_t columns)
{
    while (text->column < columns && !at_line_end(text))
        pass_field(text);
    if (text->column < columns)
        return too_short(text, columns);
    if (!at_line_end(text))
        return plim__fail(PLIM_ERR_DATA,
                          "%s: line %" PRId64 " has more than the %" PRId64 " fields expected",
                          text->inner->name, text->line, text->column);
    text->begun = false;
    return PLIM_OK;
}

static inline plim_status_t take_f32(plim__text_t *text, int64_t columns, float *value_out)
{
    double value;
    PLIM_TRY(take_f64(text, columns, &value));
    *value_out = (float)value;
    if (isinf(*value_out) && !isinf(value))
        return plim__fail(PLIM_ERR_DATA,
                          "%s: line %" PRId64 ", column %" PRId64
                          ": %g is too large for f32; scale the values",
                          text->inner->name, text->line, text->column, value);
    return PLIM_OK;
}

#define TEXT_ROWS(name, type)                                                                      \
    plim_status_t plim__text_rows_##name(plim__text_t *text, int64_t columns, int64_t keep,        \
                                         int64_t max_rows, type *rows_out, int64_t *got_out)       \
    {                                                                                              \
        int64_t row = 0;                                                                           \
        for (; row < max_rows; row++) {                                                            \
            bool more;                                                                             \
            PLIM_TRY(begin_line(text, &more));                                                     \
            if (!more)                                                                             \
                break;                                                                             \
            for (int64_t i = 0; i < keep; i++)                                                     \
                PLIM_TRY(take_##name(text, columns, &rows_out[row * keep + i]));                   \
            PLIM_TRY(end_row(text, columns));                                                      \
        }                                                                                          \
        *got_out = row;                                                                            \
        return PLIM_OK;                                                                            \
    }

TEXT_ROWS(i64, int64_t)
TEXT_ROWS(f64, double)
TEXT_ROWS(f32, float)
