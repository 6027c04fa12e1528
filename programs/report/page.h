/*
 * HTML text. Everything that comes from outside goes through report_page_text or report_page_json,
 * the only place where markup is escaped; put and format take texts of this program alone.
 */
#ifndef REPORT_PAGE_H
#define REPORT_PAGE_H

#include "base/json_scan.h"

#include <stddef.h>
#include <stdint.h>

typedef struct report_page {
    char *text;  /* NULL: nothing is written, only counted */
    size_t size; /* of text */
    size_t used; /* bytes written, or that would be */
} report_page_t;

void report_page_put(report_page_t *page, const char *html);
void report_page_format(report_page_t *page, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Any bytes: markup is escaped; control characters, characters that turn the direction of text, and
 * bytes that are not UTF-8 become U+FFFD. */
void report_page_text(report_page_t *page, const char *text);

/* A value from a file: a string, a number, a word, or an array of them. */
void report_page_json(report_page_t *page, plim__json_t value);

/* "1.5 GiB"; "12.3 s", "4:05", "1:02:03"; a number with three significant digits. "–" for
 * negative ones. */
void report_page_bytes(report_page_t *page, double bytes);
void report_page_seconds(report_page_t *page, double seconds);
void report_page_number(report_page_t *page, double number);

extern const char report_page_style[];

#endif
