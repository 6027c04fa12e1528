/*
 * Reads members of JSON text in place, without memory. Text that is not whole JSON gives fewer
 * members, never an error: for records that a killed process left behind.
 */
#ifndef PLIM_BASE_JSON_SCAN_H
#define PLIM_BASE_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A value inside a JSON text, which must stay; empty when missing. */
typedef struct plim__json {
    const char *begin, *end;
} plim__json_t;

/* Numbers from here on count as missing, so that sums and small multiples fit 64 bits. */
#define PLIM__JSON_NUMBER_MOST ((int64_t)1 << 56)

/* The next member of an object, or element of an array, behind *at (NULL: the first); false at the
 * end. */
bool plim__json_next_member(plim__json_t object, const char **at, plim__json_t *key_out,
                            plim__json_t *value_out);
bool plim__json_next_element(plim__json_t array, const char **at, plim__json_t *element_out);

/* The value of a key of the object itself, not of objects in it. */
plim__json_t plim__json_get(plim__json_t object, const char *key);

/* Whether the value is this string, which needs no escapes. */
bool plim__json_is(plim__json_t value, const char *word);

/* `missing` unless the value is a finite number. The thread has the C locale (base/job.h). */
double plim__json_real(plim__json_t value, double missing);

/* Copies a string, without its escapes and as plim__text_printable does; "" for other values. */
void plim__json_text(plim__json_t value, char *text_out, size_t size);

#endif
