/* Sorts 64-bit keys in memory. */
#ifndef PLIM_BASE_RADIX_H
#define PLIM_BASE_RADIX_H

#include <stdint.h>

/* Bits of the keys 0 … count - 1. */
static inline int plim__radix_bits(int64_t count)
{
    return count <= 1 ? 0 : 64 - __builtin_clzll((unsigned long long)count - 1);
}

/*
 * Sorts `count` keys ascending by their lowest `bits` bits (0 … 64); the bits above must be equal
 * in all keys. `scratch` holds as many keys and is overwritten; returns the array with the result.
 * Memory: about 20 KiB of stack. Thread-safe.
 */
uint64_t *plim__radix_sort(uint64_t *keys, uint64_t *scratch, int64_t count, int bits);

#endif
