#include "base/json_write.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

plim__json_writer_t plim__json_writer(char *text, size_t size)
{
    text[0] = '\0';
    return (plim__json_writer_t){.text = text, .limit = size - PLIM__JSON_CLOSING};
}

/* Appends all of the text or nothing. */
__attribute__((format(printf, 2, 3))) static void put(plim__json_writer_t *writer,
                                                      const char *format, ...)
{
    va_list arguments;
    /* Closing brackets may stand behind the limit. */
    const size_t space = writer->used < writer->limit ? writer->limit - writer->used : 0;
    va_start(arguments, format);
    const int length = vsnprintf(writer->text + writer->used, space, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= space)
        writer->overflow = true;
    else
        writer->used += (size_t)length;
    writer->text[writer->used] = '\0';
}

/* Decodes the character at `text` and returns its length; 1 and '?' for a byte that is not UTF-8.
 */
static size_t decode(const unsigned char *text, uint32_t *character_out)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t size = text[0] < 0x80                      ? 1
                        : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
                        : (text[0] & 0xf0) == 0xe0          ? 3
                        : (text[0] & 0xf8) == 0xf0          ? 4
                                                            : 0;
    uint32_t character = size == 1 ? text[0] : text[0] & (0x7fU >> size);
    *character_out = '?';
    if (size == 0)
        return 1;
    for (size_t i = 1; i < size; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 1;
        character = character << 6 | (text[i] & 0x3f);
    }
    if (character < lowest[size] || (character >= 0xd800 && character < 0xe000) ||
        character > 0x10ffff)
        return 1;
    *character_out = character;
    return size;
}

static void put_string(plim__json_writer_t *writer, const char *text, size_t most, bool printable)
{
    const unsigned char *rest = (const unsigned char *)text;
    put(writer, "\"");
    for (; *rest != '\0' && most > 0 && !writer->overflow; most--) {
        uint32_t character;
        rest += decode(rest, &character);
        const bool control = character < 0x20 || (character >= 0x7f && character < 0xa0);
        if (control && printable)
            character = '?';
        if (character == '"' || character == '\\')
            put(writer, "\\%c", (char)character);
        else if (character >= 0x20 && character < 0x7f)
            put(writer, "%c", (char)character);
        else if (character < 0x10000)
            put(writer, "\\u%04x", character);
        else
            put(writer, "\\u%04x\\u%04x", 0xd7c0 + (character >> 10), 0xdc00 + (character & 0x3ff));
    }
    put(writer, "\"");
}

typedef enum value_form { LITERAL, TEXT, PRINTABLE } value_form_t;

/* Puts all of a member or nothing. */
static void put_member(plim__json_writer_t *writer, const char *key, value_form_t form,
                       const char *value, size_t most)
{
    const size_t position = writer->used;
    const bool first = position == 0 || strchr("{[", writer->text[position - 1]) != NULL;
    const bool overflow = writer->overflow;
    if (writer->left_out > 0)
        return;
    writer->overflow = false;
    if (!first)
        put(writer, ",");
    if (key != NULL) {
        put_string(writer, key, SIZE_MAX, false);
        put(writer, ":");
    }
    if (form == LITERAL)
        put(writer, "%s", value);
    else
        put_string(writer, value, most, form == PRINTABLE);
    (void)plim__json_keep(writer, position);
    writer->overflow |= overflow;
}

void plim__json_put_literal(plim__json_writer_t *writer, const char *key, const char *value)
{
    put_member(writer, key, LITERAL, value, SIZE_MAX);
}

void plim__json_put_integer(plim__json_writer_t *writer, const char *key, int64_t value)
{
    char digits[24];
    (void)snprintf(digits, sizeof digits, "%" PRId64, value);
    plim__json_put_literal(writer, key, digits);
}

void plim__json_put_bool(plim__json_writer_t *writer, const char *key, bool value)
{
    plim__json_put_literal(writer, key, value ? "true" : "false");
}

void plim__json_put_real(plim__json_writer_t *writer, const char *key, int decimals, double value)
{
    char digits[400]; /* of the largest number, with decimals */
    (void)snprintf(digits, sizeof digits, "%.*f", decimals, value);
    plim__json_put_literal(writer, key, isfinite(value) ? digits : "null");
}

void plim__json_put_text(plim__json_writer_t *writer, const char *key, const char *text,
                         size_t most)
{
    put_member(writer, key, TEXT, text, most);
}

void plim__json_put_printable(plim__json_writer_t *writer, const char *key, const char *text,
                              size_t most)
{
    put_member(writer, key, PRINTABLE, text, most);
}

void plim__json_open(plim__json_writer_t *writer, const char *key, char bracket)
{
    const size_t position = writer->used;
    plim__json_put_literal(writer, key, bracket == '{' ? "{" : "[");
    if (writer->used == position)
        writer->left_out++;
}

void plim__json_close(plim__json_writer_t *writer, char bracket)
{
    if (writer->left_out > 0) {
        writer->left_out--;
        return;
    }
    writer->limit += PLIM__JSON_CLOSING;
    put(writer, "%c", bracket);
    writer->limit -= PLIM__JSON_CLOSING;
}

bool plim__json_keep(plim__json_writer_t *writer, size_t position)
{
    if (!writer->overflow)
        return true;
    writer->used = position;
    writer->text[position] = '\0';
    return false;
}
