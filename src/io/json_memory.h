/* What jansson takes, for the ledger. */
#ifndef PLIM_IO_JSON_MEMORY_H
#define PLIM_IO_JSON_MEMORY_H

#include <stddef.h>

/*
 * At most this much is taken by jansson to parse a text: its nodes by what begins or parts them (an
 * object with its first buckets, an array with its first slots, a member with its share of the
 * buckets, a value with its slot, each with malloc's own), the letters themselves twice, and twice
 * again while a token grows.
 */
size_t plim__json_memory(const char *text, size_t size);

#endif
