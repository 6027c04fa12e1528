/*
 * timeline.jsonl of a watch: append-only, one write a line, nothing allocated. A line is composed
 * in a fixed buffer; members that do not fit are left out, so that a line is always whole JSON.
 */
#ifndef WATCH_RECORD_H
#define WATCH_RECORD_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define WATCH_RECORD_LINE ((size_t)64 << 10)

typedef struct watch_record {
    int file;      /* -1: none */
    bool torn;     /* the last write ended inside a line */
    int error;     /* errno of the last write; 0: it succeeded */
    size_t used;   /* bytes of `line` */
    size_t limit;  /* members may use so many; the rest is for closing brackets */
    bool overflow; /* a member did not fit since watch_record_begin */
    char line[WATCH_RECORD_LINE];
} watch_record_t;

/* Begins a line {"kind":"…". */
void watch_record_begin(watch_record_t *record, const char *kind);

/* Adds a member; key NULL: an element of a list. Numbers below 0 are unknown and left out. */
void watch_record_number(watch_record_t *record, const char *key, int64_t value);
void watch_record_real(watch_record_t *record, const char *key, int decimals, double value);
void watch_record_true(watch_record_t *record, const char *key);

/*
 * Text of any origin, of at most `most` characters: ASCII, the rest as \uXXXX; control characters
 * and bytes that are not UTF-8 become '?'.
 */
void watch_record_text(watch_record_t *record, const char *key, const char *text, size_t most);

/* Opens an object '{' or a list '[' as a member, and closes it. */
void watch_record_open(watch_record_t *record, const char *key, char bracket);
void watch_record_close(watch_record_t *record, char bracket);

/* Members composed by the caller ("\"a\":1,\"b\":2"); "" is none. */
void watch_record_members(watch_record_t *record, const char *members);

/* A position to return to if a group of members did not fit as a whole. */
size_t watch_record_position(const watch_record_t *record);
bool watch_record_keep(watch_record_t *record, size_t position);

/* Ends the line and appends it. False after an error, which `error` keeps: the line is lost, later
 * ones may succeed. */
bool watch_record_write(watch_record_t *record);

#endif
