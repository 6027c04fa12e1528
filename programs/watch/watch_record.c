#include "watch/watch_record.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define CLOSING 16 /* bytes kept for closing brackets and the newline */

/* Appends all of the text or nothing. */
__attribute__((format(printf, 2, 3))) static void put(watch_record_t *record, const char *format,
                                                      ...)
{
    va_list arguments;
    const size_t room = record->limit - record->used;
    va_start(arguments, format);
    const int length = vsnprintf(record->line + record->used, room, format, arguments);
    va_end(arguments);
    if (length < 0 || (size_t)length >= room)
        record->overflow = true;
    else
        record->used += (size_t)length;
    record->line[record->used] = '\0';
}

/* What stands before a member: a comma unless it is the first. */
static const char *comma(const watch_record_t *record)
{
    return strchr("{[", record->line[record->used - 1]) != NULL ? "" : ",";
}

/* Begins a member: a comma and its key. */
static void put_key(watch_record_t *record, const char *key)
{
    if (key != NULL)
        put(record, "%s\"%s\":", comma(record), key);
    else
        put(record, "%s", comma(record));
}

void watch_record_begin(watch_record_t *record, const char *kind)
{
    record->used = 0;
    record->limit = WATCH_RECORD_LINE - CLOSING;
    record->overflow = false;
    put(record, "%s{\"kind\":\"%s\"", record->torn ? "\n" : "", kind);
}

void watch_record_number(watch_record_t *record, const char *key, int64_t value)
{
    if (value >= 0 && value != INT64_MAX)
        put(record, "%s\"%s\":%" PRId64, comma(record), key, value);
}

void watch_record_real(watch_record_t *record, const char *key, int decimals, double value)
{
    if (value >= 0)
        put(record, "%s\"%s\":%.*f", comma(record), key, decimals, value);
}

void watch_record_true(watch_record_t *record, const char *key)
{
    put(record, "%s\"%s\":true", comma(record), key);
}

/* Decodes the character at `text` and returns its bytes; 1 and '?' for what is not UTF-8, or a
 * control character. */
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
    if (character >= 0x20 && (character < 0x7f || character >= 0xa0))
        *character_out = character;
    return size;
}

void watch_record_text(watch_record_t *record, const char *key, const char *text, size_t most)
{
    const size_t position = record->used;
    const unsigned char *rest = (const unsigned char *)text;
    put_key(record, key);
    put(record, "\"");
    for (; *rest != '\0' && most > 0 && !record->overflow; most--) {
        uint32_t character;
        rest += decode(rest, &character);
        if (character == '"' || character == '\\')
            put(record, "\\%c", (char)character);
        else if (character < 0x80)
            put(record, "%c", (char)character);
        else if (character < 0x10000)
            put(record, "\\u%04x", character);
        else
            put(record, "\\u%04x\\u%04x", 0xd7c0 + (character >> 10), 0xdc00 + (character & 0x3ff));
    }
    put(record, "\"");
    if (record->overflow)
        record->used = position;
}

void watch_record_open(watch_record_t *record, const char *key, char bracket)
{
    put_key(record, key);
    put(record, "%c", bracket);
}

void watch_record_close(watch_record_t *record, char bracket)
{
    record->limit = WATCH_RECORD_LINE; /* there is always room for a bracket */
    put(record, "%c", bracket);
    record->limit -= CLOSING;
}

void watch_record_members(watch_record_t *record, const char *members)
{
    if (members[0] != '\0')
        put(record, ",%s", members);
}

size_t watch_record_position(const watch_record_t *record)
{
    return record->used;
}

bool watch_record_keep(watch_record_t *record, size_t position)
{
    if (!record->overflow)
        return true;
    record->used = position;
    return false;
}

bool watch_record_write(watch_record_t *record)
{
    watch_record_close(record, '}');
    record->line[record->used++] = '\n';
    ssize_t wrote;
    do
        wrote = write(record->file, record->line, record->used);
    while (wrote < 0 && errno == EINTR);
    record->error = wrote < 0 ? errno : (size_t)wrote < record->used ? ENOSPC : 0;
    /* A torn line is ended by the next one; nothing else may be lost with it. */
    if (wrote > 0)
        record->torn = (size_t)wrote < record->used;
    return record->error == 0;
}
