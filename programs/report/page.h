/*
 * HTML text. Everything that comes from outside goes through plim__page_text or plim__page_json,
 * the only place where markup is escaped; put and format take texts of this program alone.
 */
#ifndef PLIM_REPORT_PAGE_H
#define PLIM_REPORT_PAGE_H

#include "base/json_piece.h"

#include <stddef.h>
#include <stdint.h>

typedef struct plim__page {
    char *text;  /* NULL: nothing is written, only counted */
    size_t size; /* of text */
    size_t used; /* bytes written, or that would be */
} plim__page_t;

void plim__page_put(plim__page_t *page, const char *html);
void plim__page_format(plim__page_t *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Any bytes: markup is escaped; control characters, characters that turn the direction of text, and
 * bytes that are not UTF-8 become U+FFFD. */
void plim__page_text(plim__page_t *page, const char *text);

/* A value from a file: a string, a number, a word, or an array of them. */
void plim__page_json(plim__page_t *page, plim__json_t value);

/* "1.5 GiB"; "12.3 s", "4:05", "1:02:03"; a number with three significant digits. "–" for
 * negative ones. */
void plim__page_bytes(plim__page_t *page, double bytes);
void plim__page_seconds(plim__page_t *page, double seconds);
void plim__page_number(plim__page_t *page, double number);

extern const char plim__page_style[];

#endif
