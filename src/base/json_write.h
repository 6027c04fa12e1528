/*
 * Writes JSON into a buffer of the caller, without memory. Values that do not fit are left out, so
 * the text is whole JSON once everything that was opened is closed.
 */
#ifndef PLIM_BASE_JSON_WRITE_H
#define PLIM_BASE_JSON_WRITE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLIM__JSON_CLOSING 16 /* bytes kept for closing brackets */

typedef struct plim__json_writer {
    char *text;    /* ends in NUL */
    size_t used;   /* bytes of the text */
    size_t limit;  /* values may fill the buffer up to here; closing brackets stand behind */
    int left_out;  /* brackets that are open, but did not fit: everything in them is left out */
    bool overflow; /* a value was left out */
} plim__json_writer_t;

/* Begins a text of at most `size` bytes, NUL included; more than PLIM__JSON_CLOSING. */
plim__json_writer_t plim__json_writer(char *text, size_t size);

/* Adds a member; key NULL: an element of a list, or the text's own value. */
void plim__json_put_integer(plim__json_writer_t *writer, const char *key, int64_t value);
void plim__json_put_bool(plim__json_writer_t *writer, const char *key, bool value);

/* The thread has the C locale (base/job.h). Writes null for a number that is not finite. */
void plim__json_put_real(plim__json_writer_t *writer, const char *key, int decimals, double value);

/* A value that is JSON already: "null", or a number with digits of the caller's choice. */
void plim__json_put_literal(plim__json_writer_t *writer, const char *key, const char *value);

/* At most `most` characters of a text of any origin: ASCII, the rest as \uXXXX. Bytes that are not
 * UTF-8 become '?', and so do control characters with put_printable. */
void plim__json_put_text(plim__json_writer_t *writer, const char *key, const char *text,
                         size_t most);
void plim__json_put_printable(plim__json_writer_t *writer, const char *key, const char *text,
                              size_t most);

/* Opens an object '{' or a list '[', and closes it. */
void plim__json_open(plim__json_writer_t *writer, const char *key, char bracket);
void plim__json_close(plim__json_writer_t *writer, char bracket);

/* If a value was left out, truncates the text to `position` and returns false. */
bool plim__json_keep(plim__json_writer_t *writer, size_t position);

#endif
