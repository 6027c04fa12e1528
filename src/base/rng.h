/*
 * Counter-based random numbers: a draw is a function of (key, counter) and nothing else, so any
 * thread may make it, in any order. The stream of a key is SplitMix64's, started at the key.
 */
#ifndef PLIM_BASE_RNG_H
#define PLIM_BASE_RNG_H

#include <stdint.h>

static inline uint64_t plim__mix64(uint64_t x)
{
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

/* The hash of all coordinates but the last, and the key from it. */
static inline uint64_t plim__rng_prefix(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t key = plim__mix64(seed + 0x9e3779b97f4a7c15u);
    key = plim__mix64(key ^ (a + 0xd1b54a32d192ed03u));
    return plim__mix64(key ^ (b + 0x8cb92ba72f3d8dd7u));
}

static inline uint64_t plim__rng_key_of(uint64_t prefix, uint64_t c)
{
    return plim__mix64(prefix ^ (c + 0xaef17502108ef2d9u));
}

/* A key from a seed and up to three coordinates; it depends on their order. */
static inline uint64_t plim__rng_key(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    return plim__rng_key_of(plim__rng_prefix(seed, a, b), c);
}

/* The counter-th number of the key's stream. */
static inline uint64_t plim__rng_u64(uint64_t key, uint64_t counter)
{
    return plim__mix64(key + (counter + 1) * 0x9e3779b97f4a7c15u);
}

/* In [0, 1), 53 bits. */
static inline double plim__rng_double(uint64_t key, uint64_t counter)
{
    return (double)(plim__rng_u64(key, counter) >> 11) * 0x1p-53;
}

/*
 * In [0, bound), exactly uniform, bound > 0 (Lemire's multiplication with rejection). Advances
 * *counter past the numbers used.
 */
static inline uint64_t plim__rng_below(uint64_t key, uint64_t *counter, uint64_t bound)
{
    for (;;) {
        unsigned __int128 product = (unsigned __int128)plim__rng_u64(key, (*counter)++) * bound;
        if ((uint64_t)product >= bound || (uint64_t)product >= -bound % bound)
            return (uint64_t)(product >> 64);
    }
}

#endif
