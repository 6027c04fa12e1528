/*
 * The draw itself: which entries of a node's list are taken. It depends on (seed, epoch, hop, node)
 * and the list's length, on nothing else: not on the batch, the thread, or where the list lies.
 *
 * Let key = plim__rng_key(seed, epoch, hop, node), d the length, k the fan-out.
 * Without replacement: all entries in their order when d <= k or k = -1; else Floyd's subset, in
 * the order it is made: for i = 0 … k-1 let j = d - k + i, t uniform in [0, j]; take t, or j when t
 * was taken before. With replacement: k times uniform in [0, d), nothing when d = 0, all when k =
 * -1. Uniform numbers are plim__rng_below(key, &counter, …), the counter starting at 0.
 */
#ifndef PLIM_SOURCE_DRAW_H
#define PLIM_SOURCE_DRAW_H

#include "base/rng.h"
#include "source/offsets.h"

#define PLIM__FANOUT_MAX 4096
#define PLIM__HOPS_MAX 8

/* One hop of one epoch. */
typedef struct plim__hop {
    uint64_t seed;
    int64_t epoch;
    int hop;        /* 0: the hop from the seeds */
    int64_t fanout; /* 0 … PLIM__FANOUT_MAX, or -1: all */
    bool replace;
} plim__hop_t;

/* Number of entries drawn from a list of that length. */
static inline int64_t plim__draw_count(const plim__hop_t *hop, int64_t degree)
{
    if (hop->fanout < 0 || degree == 0)
        return degree;
    return hop->replace || degree > hop->fanout ? hop->fanout : degree;
}

/*
 * Computes the plim__draw_count positions drawn in the list of `node`, each in [0, degree). Any
 * thread.
 */
void plim__draw_positions(const plim__hop_t *hop, int64_t node, int64_t degree,
                          int64_t *positions_out);

/* The same in steps, for many nodes of one hop: the common prefix, a node's key, its positions. */
static inline uint64_t plim__draw_prefix(const plim__hop_t *hop)
{
    return plim__rng_prefix(hop->seed, (uint64_t)hop->epoch, (uint64_t)hop->hop);
}

static inline uint64_t plim__draw_key(uint64_t prefix, int64_t node)
{
    return plim__rng_key_of(prefix, (uint64_t)node);
}

void plim__draw_positions_keyed(uint64_t key, const plim__hop_t *hop, int64_t degree,
                                int64_t *positions_out);

#endif
