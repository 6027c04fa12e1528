/*
 * JSON texts: their checksum and the memory for parsing them. A sealed text ends with
 *
 *     "self": "0123456789abcdef"
 *     }
 *
 * and a newline. The digits are the XXH3 of all bytes before them, so that every changed byte is
 * detected, and no canonical form of JSON is needed.
 */
#ifndef PLIM_IO_SEAL_H
#define PLIM_IO_SEAL_H

#include <stdbool.h>
#include <stddef.h>

typedef enum plim__seal {
    PLIM__SEAL_GOOD,
    PLIM__SEAL_WRONG,  /* the text was changed */
    PLIM__SEAL_MISSING /* the text does not end with a seal */
} plim__seal_t;

#define PLIM__SEAL_BYTES 40 /* a seal adds fewer bytes than this */

#define PLIM__SEAL_DIGITS 16

/* The XXH3 of some bytes, in hexadecimal digits. */
void plim__seal_digits(const void *from, size_t size, char digits_out[PLIM__SEAL_DIGITS + 1]);

/* Seals a JSON object, `*used` bytes that end with "\n}", in a buffer of `size` bytes. False when
 * it does not fit. */
bool plim__seal_put(char *text, size_t size, size_t *used);

plim__seal_t plim__seal_check(const char *text, size_t size);

/*
 * Upper bound for the memory that jansson takes to parse a text. It counts the bytes that begin or
 * separate values: each object, array, member and value costs its node, its share of a hash table
 * or array, and malloc's overhead. The text itself counts twice, and twice again while a token
 * grows.
 */
size_t plim__json_memory(const char *text, size_t size);

#endif
