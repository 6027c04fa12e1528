/* Makes text from outside safe to show. */
#ifndef PLIM_BASE_PRINTABLE_H
#define PLIM_BASE_PRINTABLE_H

#include <stdbool.h>
#include <stddef.h>

/* Bytes of the character at `text` if it is UTF-8 and no control character, else 0. */
size_t plim__printable(const char *text, size_t length);

/* Copies at most size - 1 bytes of text as printable UTF-8: control characters and other bytes
 * become '?', and a shortened text ends in "…". */
void plim__text_printable(const char *text, size_t length, char *text_out, size_t size);

/* The same, one character after another. `text` always ends in NUL. */
typedef struct plim__printable {
    char *text; /* (size) */
    size_t size;
    size_t used;
    bool cut;
} plim__printable_t;

/* Adds the character at `text`; returns how many bytes it took, at least 1. */
size_t plim__printable_add(plim__printable_t *out, const char *text, size_t length);

#endif
