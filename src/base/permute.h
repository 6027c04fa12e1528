/*
 * A keyed permutation of 0 … count-1 that is computed, not stored: a Feistel network on the
 * smallest sufficient number of bits, repeated until the result is below count. Both directions
 * cost a few nanoseconds and no memory, in any order and from any thread.
 */
#ifndef PLIM_BASE_PERMUTE_H
#define PLIM_BASE_PERMUTE_H

#include "base/rng.h"

#include <stdbool.h>
#include <stdint.h>

#define PLIM__PERMUTE_ROUNDS 6

typedef struct plim__permute {
    uint64_t count; /* 1 … 2^62 */
    uint64_t low_mask;
    uint64_t high_mask;
    unsigned low_bits;
    uint32_t keys[PLIM__PERMUTE_ROUNDS];
} plim__permute_t;

/* The permutation of 0 … count-1 for `key`; count 0 means 1. */
static inline plim__permute_t plim__permute_make(uint64_t count, uint64_t key)
{
    plim__permute_t permute = {.count = count == 0 ? 1 : count};
    unsigned bits = 2;
    while (bits < 62 && (uint64_t)1 << bits < permute.count)
        bits++;
    permute.low_bits = bits - bits / 2;
    permute.low_mask = ((uint64_t)1 << permute.low_bits) - 1;
    permute.high_mask = ((uint64_t)1 << bits / 2) - 1;
    for (int i = 0; i < PLIM__PERMUTE_ROUNDS; i++)
        permute.keys[i] = (uint32_t)(plim__rng_u64(key, (uint64_t)i) >> 32);
    return permute;
}

#define PLIM__PERMUTE_FIRST 0x9e3779b1u
#define PLIM__PERMUTE_SECOND 0xc2b2ae3du

/* Two multiplications of 32 by 32 bits, which all vector units have. `half` < 2^31. */
static inline uint64_t plim__permute_round(uint64_t half, uint32_t key)
{
    uint64_t x = (uint64_t)((uint32_t)half ^ key) * PLIM__PERMUTE_FIRST;
    x ^= x >> 32;
    return ((uint64_t)(uint32_t)x * PLIM__PERMUTE_SECOND) >> 32;
}

/* The image of `index` < count. */
static inline uint64_t plim__permute_forward(const plim__permute_t *permute, uint64_t index)
{
    do {
        uint64_t low = index & permute->low_mask;
        uint64_t high = index >> permute->low_bits;
        for (int i = 0; i < PLIM__PERMUTE_ROUNDS; i += 2) {
            high ^= plim__permute_round(low, permute->keys[i]) & permute->high_mask;
            low ^= plim__permute_round(high, permute->keys[i + 1]) & permute->low_mask;
        }
        index = high << permute->low_bits | low;
    } while (index >= permute->count);
    return index;
}

/* The same for many indices in place, with the widest vectors, and the inverse; equal on every
 * CPU. */
void plim__permute_many(const plim__permute_t *permute, int64_t *indices, int64_t count,
                        bool inverse);

#endif
