/*
 * timeline.jsonl of a watch: append-only, one write a line, nothing allocated. A line is composed
 * in a fixed buffer; members that do not fit are left out, so that a line is always whole JSON.
 */
#ifndef WATCH_RECORD_H
#define WATCH_RECORD_H

#include "base/json_write.h"

#define WATCH_RECORD_LINE ((size_t)64 << 10)

typedef struct watch_record {
    int file;  /* -1: none */
    bool torn; /* the last write ended inside a line */
    int error; /* errno of the last write; 0: it succeeded */
    plim__json_writer_t json;
    char line[WATCH_RECORD_LINE]; /* a newline, which ends a torn line, and the text of `json` */
} watch_record_t;

/* Begins a line {"kind":"…"; the caller adds members to `json`. */
void watch_record_begin(watch_record_t *record, const char *kind);

/* Add a member unless the number is unknown: below 0, or INT64_MAX. */
void watch_record_number(watch_record_t *record, const char *key, int64_t value);
void watch_record_real(watch_record_t *record, const char *key, int decimals, double value);

/* Whether bytes have moved by what is worth a line: more than 1 MiB and 1 %. */
bool watch_record_differs(int64_t now, int64_t then);

/* Ends the line and appends it. False after an error, which `error` keeps: the line is lost, later
 * ones may succeed. */
bool watch_record_write(watch_record_t *record);

#endif
