/*
 * The draw itself: which entries of a node's list are taken. It depends on (seed, epoch, hop,
 * owner) and the list's length, on nothing else: not on the batch, the thread, or where the list
 * lies. The owner is the node itself, so a node has one draw at a hop, which batches and windows
 * share. Where each seed has a tree of its own, the owner is the node in that tree.
 *
 * Let key = plim__rng_key(seed, epoch, hop, owner), d the length, k the fan-out.
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

/* Draws of some nodes at a hop. */
typedef struct plim__draws {
    const plim__hop_t *hop;
    const int64_t *nodes;  /* (count) whose lists are drawn from; each valid, in any order */
    const int64_t *owners; /* (count) whose keys the draws have: the same array as `nodes` */
    int64_t count;
    const int64_t *until; /* (count) the latest time of each draw, where times decide */
} plim__draws_t;

/* Each node owns its draw. */
static inline plim__draws_t plim__draws_of(const plim__hop_t *hop, const int64_t *nodes,
                                           int64_t count)
{
    return (plim__draws_t){hop, nodes, nodes, count, NULL};
}

/* Number of entries drawn from a list of that length. */
static inline int64_t plim__draw_count(const plim__hop_t *hop, int64_t degree)
{
    if (hop->fanout < 0 || degree == 0)
        return degree;
    return hop->replace || degree > hop->fanout ? hop->fanout : degree;
}

/* The key of an owner's draw, from the hop's common prefix. */
static inline uint64_t plim__draw_prefix(const plim__hop_t *hop)
{
    return plim__rng_prefix(hop->seed, (uint64_t)hop->epoch, (uint64_t)hop->hop);
}

static inline uint64_t plim__draw_key(uint64_t prefix, int64_t owner)
{
    return plim__rng_key_of(prefix, (uint64_t)owner);
}

/* The owner of the draws of a node in a tree. */
static inline int64_t plim__draw_owner(int64_t tree, int64_t node)
{
    return (int64_t)plim__rng_key_of(plim__rng_u64((uint64_t)tree, 0), (uint64_t)node);
}

/* Computes the plim__draw_count positions drawn with that key, each in [0, degree). Any thread. */
void plim__draw_positions(uint64_t key, const plim__hop_t *hop, int64_t degree,
                          int64_t *positions_out);

/*
 * Repeats the first `taken` draws and writes the positions of their entries in indices.npy, one
 * draw after the other: for a source that stores entries without positions.
 */
void plim__draw_again(const plim__draws_t *draws, const plim__offsets_t *offsets, int64_t taken,
                      int64_t *positions_out);

#endif
