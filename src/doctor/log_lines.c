/*
 * Makes lines of bytes: any size of line in bounded memory, without terminal sequences and control
 * characters. A carriage return ends a line too, as progress bars use it.
 */
#include "doctor/facts.h"

#include <string.h>

enum { ESCAPE_NONE, ESCAPE_BEGUN, ESCAPE_SEQUENCE, ESCAPE_STRING };

/* Whether the byte belongs to an escape sequence, which is left out. */
static bool in_escape(plim__log_lines_t *lines, unsigned char c)
{
    switch (lines->escape) {
    case ESCAPE_NONE:
        if (c == 0x1b)
            lines->escape = ESCAPE_BEGUN;
        return c == 0x1b;
    case ESCAPE_BEGUN:
        lines->escape = c == '[' ? ESCAPE_SEQUENCE : c == ']' ? ESCAPE_STRING : ESCAPE_NONE;
        return true;
    case ESCAPE_SEQUENCE:
        if (c >= 0x40 && c <= 0x7e)
            lines->escape = ESCAPE_NONE;
        return true;
    default: /* a title: up to BEL or ESC \ */
        if (c == 0x07 || c == '\\')
            lines->escape = ESCAPE_NONE;
        return true;
    }
}

static void hand_out(plim_doctor_t *doctor, bool whole)
{
    plim__log_lines_t *lines = &doctor->lines;
    lines->text[lines->length] = '\0';
    if (lines->length > 0)
        plim__facts_line(doctor, lines->text, lines->length);
    if (whole) {
        lines->length = 0;
        return;
    }
    memmove(lines->text, lines->text + lines->length - PLIM__LINE_OVERLAP, PLIM__LINE_OVERLAP);
    lines->length = PLIM__LINE_OVERLAP;
}

void plim__log_bytes(plim_doctor_t *doctor, const char *bytes, size_t size)
{
    plim__log_lines_t *lines = &doctor->lines;
    plim__source_t *source = &doctor->source[doctor->num_sources - 1];
    for (size_t i = 0; i < size; i++) {
        const unsigned char c = (unsigned char)bytes[i];
        if (c == '\n') {
            lines->escape = ESCAPE_NONE;
            hand_out(doctor, true);
            source->lines++;
        } else if (c == '\r') {
            hand_out(doctor, true);
        } else if (in_escape(lines, c) || c == '\0') {
            continue;
        } else {
            lines->text[lines->length++] = c < 0x20 || c == 0x7f ? ' ' : (char)c;
            if (lines->length == PLIM__LINE_MAX)
                hand_out(doctor, false);
        }
    }
}

void plim__log_end(plim_doctor_t *doctor)
{
    hand_out(doctor, true);
    doctor->lines.escape = ESCAPE_NONE;
}

/* Bytes of the character at `text` if it is UTF-8 and no control character, else 0. */
static size_t printable(const unsigned char *text, size_t length)
{
    if (text[0] < 0x80)
        return text[0] >= 0x20 && text[0] != 0x7f;
    const size_t size = text[0] >= 0xf0 ? 4 : text[0] >= 0xe0 ? 3 : 2;
    /* Overlong forms and C1 (U+0080 to U+009F) are below these second bytes. */
    const unsigned char minimum = text[0] == 0xc2 || text[0] == 0xe0 ? 0xa0
                                  : text[0] == 0xf0                  ? 0x90
                                                                     : 0x80;
    if (text[0] < 0xc2 || text[0] > 0xf4 || size > length || text[1] < minimum)
        return 0;
    /* Surrogates, and what is past U+10FFFF. */
    if ((text[0] == 0xed && text[1] > 0x9f) || (text[0] == 0xf4 && text[1] > 0x8f))
        return 0;
    for (size_t i = 1; i < size; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return size;
}

void plim__text_printable(const char *text, size_t length, char *text_out, size_t size)
{
    static const char ellipsis[] = "\xe2\x80\xa6";
    size_t used = 0;
    for (size_t i = 0; i < length;) {
        const size_t bytes = printable((const unsigned char *)text + i, length - i);
        const size_t room = bytes > 0 ? bytes : 1;
        if (used + room + sizeof ellipsis > size) {
            memcpy(text_out + used, ellipsis, sizeof ellipsis);
            return;
        }
        if (bytes > 0)
            memcpy(text_out + used, text + i, bytes);
        else
            text_out[used] = '?';
        used += room;
        i += room;
    }
    text_out[used] = '\0';
}
