/*
 * Patterns of texts: literal characters and
 *
 *     ^    at the beginning only: the message begins here (doctor_message_begin)
 *     ~    at the beginning only: the literal text behind it is reported, not mentioned: it begins
 *          the message or follows a label or a sign, and ends a sentence
 *     $    at the end only: nothing but blanks follows
 *     %d   a whole number, captured
 *     %z   a size ("2.26 GiB", "926. GiB", "51234kB", "16G", "0 bytes"), captured in bytes
 *     %w   characters that are not blanks, as few as possible, the first two captured as words
 *     %*   any characters, as few as possible
 *     a blank stands for one or more.
 */
#ifndef DOCTOR_LOG_PATTERN_H
#define DOCTOR_LOG_PATTERN_H

#include "doctor/facts.h"

typedef struct doctor_captured {
    int numbers;
    int64_t number[DOCTOR_CAPTURES];
    int words;
    char word[2][DOCTOR_WORD];
    const char *at; /* where the pattern begins in the line */
} doctor_captured_t;

/* Whether the line holds the pattern; `begin` is where its message begins. */
bool doctor_pattern_match(const char *pattern, const char *line, const char *begin, const char *end,
                          doctor_captured_t *captured_out);

/* A hash of three bytes, below DOCTOR_TRIPLES: a pattern that may stand anywhere begins (behind a
 * ~) with three literal characters, and is looked for only in lines that hold them. */
unsigned doctor_triple_hash(const char *at);
const char *doctor_pattern_triple(const char *pattern);

/* Skips what others put before a message: times, "kernel: ", "slurmstepd: error: ", "[rank0]: ". */
const char *doctor_message_begin(const char *line, const char *end);

/* A number with a unit of 1024 at `at`; NULL when there is none, else the end. */
const char *doctor_size_parse_at(const char *at, const char *end, int64_t *bytes_out);

/* Whether the text at `at` begins with the word. */
bool doctor_begins(const char *at, const char *end, const char *word);

#endif
