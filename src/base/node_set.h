/*
 * A set of nodes as a bit vector that can count: membership, the position of a member among all,
 * and the members in ascending order. One cache line holds 448 nodes and how many members come
 * before them, so a query costs one cache miss:
 *
 *     | members before this line | bits of nodes 448 i … 448 i + 447 |   64 bytes
 *
 * It takes 1.14 bits a node. Positions are valid after plim__node_set_seal, until a node is added.
 *
 * A sparse set stores only lines that have members, up to a capacity, and a directory with a line's
 * number for each 448 nodes: 0.07 bits a node. A query costs two cache misses.
 */
#ifndef PLIM_BASE_NODE_SET_H
#define PLIM_BASE_NODE_SET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLIM__NODE_SET_BITS 448

typedef struct plim__node_set_line {
    uint64_t before;
    uint64_t bits[7];
} plim__node_set_line_t;

typedef struct plim__node_set {
    plim__node_set_line_t *lines; /* (num_lines), aligned to cache lines; borrowed */
    int64_t num_lines;
    int64_t universe; /* nodes are 0 … universe-1 */
    int64_t count;    /* members, once sealed */
    /* Sparse sets: the number of the line of nodes 448 i …; line 0 stays empty. NULL: it is i. */
    uint32_t *directory; /* (num_lines) */
    int64_t capacity;    /* lines besides line 0 */
    int64_t used;        /* lines taken; above the capacity: members were dropped */
} plim__node_set_t;

/* Bytes of the lines for `universe` nodes. */
static inline size_t plim__node_set_bytes(int64_t universe)
{
    return ((size_t)universe / PLIM__NODE_SET_BITS + 1) * sizeof(plim__node_set_line_t);
}

/* An empty set in `lines`: plim__node_set_bytes of zeroed memory. */
plim__node_set_t plim__node_set_make(void *lines, int64_t universe);

/* A sparse set with lines for `capacity` members, wherever they are. */
size_t plim__node_set_sparse_bytes(int64_t universe, int64_t capacity);
plim__node_set_t plim__node_set_make_sparse(void *memory, int64_t universe, int64_t capacity);

void plim__node_set_clear(plim__node_set_t *set);

/* Copies a set; `to` has the same size and kind. */
void plim__node_set_copy(plim__node_set_t *to, const plim__node_set_t *from);

/* Whether members were dropped for lack of lines. */
static inline bool plim__node_set_full(const plim__node_set_t *set)
{
    return __atomic_load_n(&set->used, __ATOMIC_RELAXED) > set->capacity;
}

/* The line with this number. _claim gives a sparse set's nodes a line if they have none,
 * thread-safe; NULL when no line is left. */
static inline plim__node_set_line_t *plim__node_set_line(const plim__node_set_t *set,
                                                         int64_t number)
{
    return &set->lines[set->directory == NULL ? number : set->directory[number]];
}
plim__node_set_line_t *plim__node_set_claim(plim__node_set_t *set, int64_t number);

/* Computes positions and `count`. */
void plim__node_set_seal(plim__node_set_t *set);

/* The smallest member not below `from`, or -1. */
int64_t plim__node_set_next(const plim__node_set_t *set, int64_t from);

/* The same if it is smaller than `end`, else -1; looks no further than `end`. */
int64_t plim__node_set_next_before(const plim__node_set_t *set, int64_t from, int64_t end);

/* Writes up to `capacity` members from `from` on, ascending; returns their number. */
int64_t plim__node_set_list(const plim__node_set_t *set, int64_t from, int64_t capacity,
                            int64_t *nodes_out);

/* The member of this position, 0 … count-1. Sealed sets that are not sparse. */
int64_t plim__node_set_select(const plim__node_set_t *set, int64_t position);

static inline void plim__node_set_prefetch(const plim__node_set_t *set, int64_t node)
{
    const uint64_t number = (uint64_t)node / PLIM__NODE_SET_BITS;
    if (set->directory == NULL)
        __builtin_prefetch(&set->lines[number]);
    else
        __builtin_prefetch(&set->directory[number]);
}

/* Adds a node; thread-safe. True if it was not a member before and there was a line for it. */
static inline bool plim__node_set_add(plim__node_set_t *set, int64_t node)
{
    uint64_t bit = (uint64_t)node % PLIM__NODE_SET_BITS;
    const int64_t number = (int64_t)((uint64_t)node / PLIM__NODE_SET_BITS);
    plim__node_set_line_t *line =
        set->directory == NULL ? &set->lines[number] : plim__node_set_claim(set, number);
    if (line == NULL)
        return false;
    uint64_t *word = &line->bits[bit / 64];
    uint64_t mask = (uint64_t)1 << bit % 64;
    if ((__atomic_load_n(word, __ATOMIC_RELAXED) & mask) != 0)
        return false;
    return (__atomic_fetch_or(word, mask, __ATOMIC_RELAXED) & mask) == 0;
}

static inline bool plim__node_set_has(const plim__node_set_t *set, int64_t node)
{
    uint64_t bit = (uint64_t)node % PLIM__NODE_SET_BITS;
    const uint64_t number = (uint64_t)node / PLIM__NODE_SET_BITS;
    return plim__node_set_line(set, (int64_t)number)->bits[bit / 64] >> bit % 64 & 1;
}

/* Number of members below `node` if it is a member; otherwise -1. Sealed sets only. */
static inline int64_t plim__node_set_position(const plim__node_set_t *set, int64_t node)
{
    const uint64_t number = (uint64_t)node / PLIM__NODE_SET_BITS;
    const plim__node_set_line_t *line = plim__node_set_line(set, (int64_t)number);
    uint64_t bit = (uint64_t)node % PLIM__NODE_SET_BITS;
    uint64_t word = bit / 64;
    uint64_t below = ((uint64_t)1 << bit % 64) - 1;
    if ((line->bits[word] >> bit % 64 & 1) == 0)
        return -1;
    uint64_t position = line->before;
    for (uint64_t i = 0; i < word; i++)
        position += (uint64_t)__builtin_popcountll(line->bits[i]);
    return (int64_t)(position + (uint64_t)__builtin_popcountll(line->bits[word] & below));
}

#endif
