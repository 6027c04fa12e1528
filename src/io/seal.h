/*
 * A JSON text's own checksum. The text ends with
 *
 *     "self": "0123456789abcdef"
 *     }
 *
 * and a newline; the digits are the XXH3 of all bytes before them, so a change of any byte is
 * found, blanks too, and no canonical form of JSON is needed.
 */
#ifndef PLIM_IO_SEAL_H
#define PLIM_IO_SEAL_H

#include <stdbool.h>
#include <stddef.h>

typedef enum plim__seal {
    PLIM__SEAL_GOOD,
    PLIM__SEAL_WRONG,  /* the text is not the one that was sealed */
    PLIM__SEAL_MISSING /* the text does not end with a seal */
} plim__seal_t;

#define PLIM__SEAL_BYTES 40 /* a sealed text is longer by less than this */

#define PLIM__SEAL_DIGITS 16

/* The XXH3 of some bytes, in hexadecimal digits. */
void plim__seal_digits(const void *from, size_t size, char digits_out[PLIM__SEAL_DIGITS + 1]);

/* Seals a JSON object, `*used` bytes that end with "\n}", in a buffer of `size` bytes. False when
 * it does not fit. */
bool plim__seal_put(char *text, size_t size, size_t *used);

plim__seal_t plim__seal_check(const char *text, size_t size);

#endif
