/*
 * Makes lines of bytes: any size of line in bounded memory, without terminal sequences and control
 * characters. A carriage return ends a line too, as progress bars use it.
 */
#include "doctor/facts.h"

#include <string.h>

enum { ESCAPE_NONE, ESCAPE_BEGUN, ESCAPE_SEQUENCE, ESCAPE_STRING };

/* Whether the byte belongs to an escape sequence, which is left out. */
static bool in_escape(doctor_log_lines_t *lines, unsigned char c)
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

static void hand_out(doctor_t *doctor, bool whole)
{
    doctor_log_lines_t *lines = &doctor->lines;
    lines->text[lines->length] = '\0';
    if (lines->length > 0)
        doctor_facts_line(doctor, lines->text, lines->length);
    if (whole) {
        lines->length = 0;
        return;
    }
    memmove(lines->text, lines->text + lines->length - DOCTOR_LINE_OVERLAP, DOCTOR_LINE_OVERLAP);
    lines->length = DOCTOR_LINE_OVERLAP;
}

void doctor_log_bytes(doctor_t *doctor, const char *bytes, size_t size)
{
    doctor_log_lines_t *lines = &doctor->lines;
    doctor_source_t *source = &doctor->source[doctor->num_sources - 1];
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
            if (lines->length == DOCTOR_LINE_MAX)
                hand_out(doctor, false);
        }
    }
}

void doctor_log_end(doctor_t *doctor)
{
    const bool some = doctor->lines.length > 0; /* without a newline at the end */
    hand_out(doctor, true);
    doctor->source[doctor->num_sources - 1].lines += some;
    doctor_script_end(&doctor->script);
    for (int i = 0; i < doctor->script.num_habits && doctor->num_habits < DOCTOR_HABITS; i++) {
        doctor->habits[doctor->num_habits].source = doctor->num_sources - 1;
        doctor->habits[doctor->num_habits++].found = doctor->script.habits[i];
    }
    doctor->lines.escape = ESCAPE_NONE;
}
