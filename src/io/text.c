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
#include "base/printable.h"
#include "io/number.h"
#include "mem/arena.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define HEADING_END 64
#define UNQUOTED 4096

struct plim__text {
    plim__arena_t arena;
    const plim_job_t *job;
    plim__reader_t *inner;
    const char *remedy; /* appended to the error for a field that is not a number, or NULL */
    locale_t c_locale;
    char *buffer;
    char *limit;  /* end of the buffer, without the byte for the newline */
    char *filled; /* end of the bytes read */
    char *next;   /* where the next line begins */
    bool ended;   /* the reader has ended */
    /* The line in progress: */
    bool begun;
    bool expects; /* a separator was passed: a field must follow, possibly empty */
    const char *begin;
    const char *at;
    const char *line_end;
    int64_t line;              /* its number, from 1 */
    int64_t column;            /* fields passed */
    size_t capacity;           /* bytes of the longest line */
    char separator;            /* ends names; ' ': any, '\n': the line, '\0': not determined yet */
    plim__text_first_fn first; /* takes the first field of each row, or NULL */
    void *first_context;
    plim__text_word_fn word; /* takes the stored fields of rows_f64, or NULL */
    void *word_context;
    int64_t passed;            /* columns of each row before the stored ones, the first included */
    char heading[HEADING_END]; /* last word of the skipped heading, shortened */
    char unquoted[UNQUOTED];   /* names of the line without the second of two quotes */
    size_t unquoted_used;
    plim__text_lines_t lines;
};

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__text_t *text = draft;
    text->buffer = plim__arena_carve(arena, 1, text->capacity + 1, PLIM__PAGE);
}

plim_status_t plim__text_open(const plim_job_t *job, plim__reader_t *inner, size_t buffer,
                              plim__text_t **text_out)
{
    plim__text_t draft = {.job = job, .inner = inner, .capacity = buffer};
    plim__text_t *text;
    plim_status_t status = plim__object_create(job->ledger, "text", lay_out, &draft, sizeof draft,
                                               &draft.arena, &text);
    if (status != PLIM_OK) {
        plim__reader_close(inner);
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
    plim__reader_close(text->inner);
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

/* The error for the field at `field`, which is shown shortened. */
static plim_status_t refuse_field(const plim__text_t *text, const char *field, const char *what)
{
    char shown[33];
    size_t size = 0;
    while (!ends_field(field[size]))
        size++;
    plim__text_printable(field, size, shown, sizeof shown);
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
    PLIM_TRY(plim__reader_read_some(text->inner, text->filled, space, &got));
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
        text->begin = text->at = pass_blanks(text->next);
        text->line_end = end;
        text->next = end + 1;
        text->line++;
        text->column = 0;
        text->unquoted_used = 0;
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

/* Passes true or false, as Python and pandas write a mask. */
static bool take_truth(const char **at, int64_t *value_out)
{
    *value_out = strncasecmp(*at, "true", 4) == 0;
    if (*value_out == 0 && strncasecmp(*at, "false", 5) != 0)
        return false;
    *at += *value_out != 0 ? 4 : 5;
    return true;
}

/* An integer in another form: numpy.savetxt writes 1 as 1.000000000000000000e+00. */
static plim_status_t take_whole(plim__text_t *text, int64_t *value_out)
{
    const char *p = text->at;
    double value;
    if (!take_truth(&p, value_out)) {
        if (!plim__number_f64(&p, text->c_locale, &value) || !(fabs(value) <= 0x1p53) ||
            value != floor(value))
            return refuse_field(text, text->at, "a 64-bit integer");
        *value_out = (int64_t)value;
    }
    if (!ends_field(*p))
        return refuse_field(text, text->at, "a 64-bit integer");
    pass_separator(text, p);
    return PLIM_OK;
}

/* Reads the next of `columns` fields. */
static inline plim_status_t take_i64(plim__text_t *text, int64_t columns, int64_t *value_out)
{
    const char *p = text->at;
    if (at_line_end(text))
        return too_short(text, columns);
    if (!plim__number_i64(&p, value_out) || !ends_field(*p))
        return take_whole(text, value_out);
    pass_separator(text, p);
    return PLIM_OK;
}

static bool begins_number(char byte)
{
    return (byte >= '0' && byte <= '9') || byte == '+' || byte == '-' || byte == '.';
}

/* Whether the field is a number, true or false. */
static bool is_number(const plim__text_t *text, const char *field)
{
    double value;
    int64_t truth;
    return (plim__number_f64(&field, text->c_locale, &value) || take_truth(&field, &truth)) &&
           ends_field(*field);
}

/* The separator of names on the line in progress; `other` if it has none. */
static char separator_of(const plim__text_t *text, char other)
{
    static const char separators[] = ",;\t";
    const size_t size = (size_t)(text->line_end - text->begin);
    for (int i = 0; i < 3; i++)
        if (memchr(text->begin, separators[i], size) != NULL)
            return separators[i];
    return other;
}

static bool ends_name(char separator, char byte)
{
    return byte == '\n' || (separator == ' ' ? ends_field(byte) : byte == separator);
}

/* The quote that ends the name at `p`, or the end of the line. */
static const char *closing_quote(const char *p)
{
    while (*p != '\n' && (*p != '"' || p[1] == '"'))
        p += *p == '"' ? 2 : 1;
    return p;
}

/* Passes a field; a word may contain blanks if other separators are there. */
static void pass_field(plim__text_t *text)
{
    const char *p = text->at;
    const char separator = is_number(text, p) ? ' ' : separator_of(text, ' ');
    const char *end = *p == '"' ? closing_quote(p + 1) : p;
    if (*end == '"')
        p = end + 1;
    while (!is_separator(*text->at) && !ends_name(separator, *p))
        p++;
    pass_separator(text, p);
}

/* Decodes a quoted name: two quotes stand for one. A name too long for the buffer keeps both. */
static plim__text_field_t unquote(plim__text_t *text, const char *begin, size_t size)
{
    char *to = text->unquoted + text->unquoted_used;
    size_t used = 0;
    if (memchr(begin, '"', size) == NULL || size > UNQUOTED - text->unquoted_used)
        return (plim__text_field_t){begin, size};
    for (size_t i = 0; i < size; i += begin[i] == '"' ? 2 : 1)
        to[used++] = begin[i];
    text->unquoted_used += used;
    return (plim__text_field_t){to, used};
}

/* Takes the next field as text. */
static plim_status_t take_name(plim__text_t *text, plim__text_field_t *field_out)
{
    const char *begin = text->at, *p = begin, *end;
    if (text->separator == '\0')
        text->separator = separator_of(text, ' ');
    if (*begin == '"') {
        end = p = closing_quote(++begin);
        if (*p != '"' || !ends_field(p[1]))
            return refuse_field(text, text->at, "a name that ends with its quote");
        p++;
    } else {
        while (!ends_name(text->separator, *p))
            p++;
        for (end = p; end > begin && is_blank(end[-1]);)
            end--;
    }
    if (end == begin)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: line %" PRId64 ", column %" PRId64 ": a name is missing",
                          text->inner->name, text->line, text->column + 1);
    *field_out = begin > text->at ? unquote(text, begin, (size_t)(end - begin))
                                  : (plim__text_field_t){begin, (size_t)(end - begin)};
    pass_separator(text, p);
    return PLIM_OK;
}

void plim__text_set_words(plim__text_t *text, plim__text_word_fn word, void *context)
{
    text->word = word;
    text->word_context = context;
}

/* Passes an empty field, or a number that ends there. */
static bool take_number(plim__text_t *text, double *value_out)
{
    const char *p = text->at;
    *value_out = NAN;
    if (p[0] == '"' && p[1] == '"' && ends_field(p[2]))
        p += 2;
    else if (!is_separator(*p) && *p != '\n' && !plim__number_f64(&p, text->c_locale, value_out))
        return false;
    const char *next = pass_blanks(p);
    if (!is_separator(*next) && *next != '\n')
        return false;
    pass_separator(text, p);
    return true;
}

/* A field that may be a word. */
static plim_status_t take_word(plim__text_t *text, int64_t columns, double *value_out)
{
    const char *p = text->at;
    plim__text_field_t field = {p, 0};
    if (at_line_end(text))
        return too_short(text, columns);
    if (text->separator == '\0')
        text->separator = separator_of(text, columns == 1 ? '\n' : ' ');
    bool number = take_number(text, value_out);
    if (number) {
        while (!ends_field(p[field.size]))
            field.size++;
    } else {
        PLIM_TRY(take_name(text, &field));
        const char *end = field.begin; /* a number between quotes */
        number = *p == '"' && plim__number_f64(&end, text->c_locale, value_out) &&
                 end == field.begin + field.size;
        if (!number)
            *value_out = NAN;
    }
    const plim_status_t status = text->word(text->word_context, field, number, value_out);
    return status == PLIM_OK
               ? PLIM_OK
               : plim__fail_prefix(status, "%s: line %" PRId64, text->inner->name, text->line);
}

static inline plim_status_t take_f64(plim__text_t *text, int64_t columns, double *value_out)
{
    const char *p = text->at;
    if (text->word != NULL)
        return take_word(text, columns, value_out);
    if (at_line_end(text))
        return too_short(text, columns);
    if (is_separator(*p) || *p == '\n')
        *value_out = NAN;
    else if (!plim__number_f64(&p, text->c_locale, value_out) || !ends_field(*p))
        return refuse_field(text, text->at, "a number");
    pass_separator(text, p);
    return PLIM_OK;
}

plim_status_t plim__text_peek(plim__text_t *text, plim__text_line_t *line_out)
{
    plim__text_line_t line = {.counting = true};
    plim__text_field_t name;
    bool more, begins = false;
    PLIM_TRY(begin_line(text, &more));
    plim__text_t before = *text;
    while (more && !at_line_end(text)) {
        const char *p = text->at, *q = p;
        int64_t number;
        line.unnamed |= text->column == 0 && is_separator(*p);
        if (text->column > 0 || !line.unnamed)
            line.counting = line.counting && plim__number_i64(&q, &number) && ends_field(*q) &&
                            number == text->column - line.unnamed;
        begins = begins || (text->column < 2 && begins_number(*p));
        line.word_last = !is_separator(*p) && *p != '\n' && !is_number(text, p);
        line.word_first |= text->column == 0 && line.word_last;
        line.words += line.word_last;
        if (text->first == NULL || text->column > 0 || take_name(text, &name) != PLIM_OK)
            pass_field(text);
    }
    line.numbers = line.words == 0;
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

/* Usual headings of a column of ids, and of the first column of edges. */
static const char *const id_words[] = {"id",   "ids",   "node", "nodes",  "nodeid", "nid", "vid",
                                       "name", "index", "idx",  "vertex", "key",    NULL};
static const char *const edge_words[] = {"source", "src",   "from",   "u",   "head", "citing",
                                         "start",  "node1", "node_1", "id1", "id_1", NULL};

/* Whether the field at `field` is one of the words. */
static bool is_word(const char *field, const char *const *words)
{
    const char *begin = field + (*field == '"'), *end = begin;
    while (!ends_field(*end) && *end != '"')
        end++;
    const size_t size = (size_t)(end - begin);
    if (words == id_words && size > 3 && strncasecmp(end - 3, "_id", 3) == 0)
        return true;
    for (; *words != NULL; words++)
        if (strlen(*words) == size && strncasecmp(begin, *words, size) == 0)
            return true;
    return false;
}

/* Whether the line in progress is a heading of rows with ids before edges: "id,source,target". */
static bool has_edge_ids(const plim__text_t *text)
{
    const char *p = text->at;
    while (!ends_field(*p))
        p++;
    p = pass_blanks(p);
    return is_word(text->at, id_words) &&
           is_word(is_separator(*p) ? pass_blanks(p + 1) : p, edge_words);
}

/* Keeps the last word of the line in progress. */
static void keep_heading_end(plim__text_t *text)
{
    const char *end = text->line_end;
    while (end > text->begin && (is_blank(end[-1]) || end[-1] == '"'))
        end--;
    const char *word = end;
    while (word > text->begin && !ends_field(word[-1]) && word[-1] != '"')
        word--;
    (void)snprintf(text->heading, sizeof text->heading, "%.*s",
                   (int)plim__min_i64(end - word, HEADING_END), word);
}

const char *plim__text_heading_end(const plim__text_t *text)
{
    return text->heading;
}

/* Skips the line as a heading and peeks at the one after it. */
static plim_status_t pass_heading(plim__text_t *text, plim__text_line_t *line)
{
    char shown[65];
    const bool index = line->unnamed || has_edge_ids(text);
    const bool ids = index || is_word(text->at, id_words);
    plim__text_printable(text->at, strcspn(text->at, "\r\n"), shown, sizeof shown);
    keep_heading_end(text);
    plim__log(text->job, PLIM_LOG_INFO, "%s: line %" PRId64 " is skipped as a heading: '%s'",
              text->inner->name, line->number, shown);
    PLIM_TRY(plim__text_skip(text));
    PLIM_TRY(plim__text_peek(text, line));
    line->index = index && line->columns > 1;
    line->ids = ids && line->columns > 1;
    return PLIM_OK;
}

plim_status_t plim__text_heading(plim__text_t *text, plim__text_line_t *line_out)
{
    PLIM_TRY(plim__text_peek(text, line_out));
    return line_out->columns > 0 && line_out->heading ? pass_heading(text, line_out) : PLIM_OK;
}

plim_status_t plim__text_table(plim__text_t *text, bool wide, plim__text_line_t *line_out)
{
    PLIM_TRY(plim__text_peek(text, line_out));
    const bool counting = line_out->counting && line_out->columns > 1 &&
                          (line_out->unnamed || (wide && line_out->columns > 2));
    return line_out->columns > 0 && (line_out->heading || counting) ? pass_heading(text, line_out)
                                                                    : PLIM_OK;
}

plim_status_t plim__text_names_heading(plim__text_t *text, int64_t count,
                                       plim__text_line_t *line_out)
{
    plim__text_field_t name;
    PLIM_TRY(plim__text_peek(text, line_out));
    if (line_out->columns == 0 || line_out->unnamed)
        return line_out->columns == 0 ? PLIM_OK : pass_heading(text, line_out);
    plim__text_t before = *text;
    text->separator = separator_of(text, count == 1 ? '\n' : ' ');
    const plim_status_t status = take_name(text, &name);
    *text = before;
    /* A heading's word is the whole name; "node 7" is a name. */
    const bool whole = status == PLIM_OK && memchr(name.begin, ' ', name.size) == NULL;
    return whole && (is_word(text->at, id_words) || is_word(text->at, edge_words))
               ? pass_heading(text, line_out)
               : PLIM_OK;
}

void plim__text_set_first(plim__text_t *text, plim__text_first_fn first, void *context)
{
    text->first = first;
    text->first_context = context;
}

static plim_status_t skip_field(void *context, int64_t row, plim__text_field_t field)
{
    (void)context;
    (void)row;
    (void)field;
    return PLIM_OK;
}

void plim__text_skip_first(plim__text_t *text)
{
    plim__text_set_first(text, skip_field, NULL);
}

/* Passes the first field of the line in progress on. */
static plim_status_t pass_first(plim__text_t *text)
{
    plim__text_field_t field = {NULL, 0};
    PLIM_TRY(take_name(text, &field));
    plim_status_t status = text->first(text->first_context, text->lines.rows - 1, field);
    return status == PLIM_OK
               ? PLIM_OK
               : plim__fail_prefix(status, "%s: line %" PRId64, text->inner->name, text->line);
}

plim_status_t plim__text_names(plim__text_t *text, int64_t count, plim__text_field_t *fields_out,
                               bool *more_out)
{
    PLIM_TRY(begin_line(text, more_out));
    if (*more_out && text->separator == '\0')
        text->separator = separator_of(text, count == 1 ? '\n' : ' ');
    for (int64_t i = 0; i < count && *more_out; i++) {
        if (at_line_end(text))
            return too_short(text, count);
        PLIM_TRY(take_name(text, &fields_out[i]));
    }
    text->begun = false;
    return PLIM_OK;
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

void plim__text_pass(plim__text_t *text, int64_t columns)
{
    text->passed = columns;
}

/* Passes the columns before the stored ones. */
static plim_status_t pass_columns(plim__text_t *text, int64_t columns)
{
    while (text->column < text->passed) {
        if (at_line_end(text))
            return too_short(text, columns);
        pass_field(text);
    }
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
            if (text->first != NULL)                                                               \
                PLIM_TRY(pass_first(text));                                                        \
            if (text->passed > 0)                                                                  \
                PLIM_TRY(pass_columns(text, columns));                                             \
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
