/*
 * Places of nodes in a working set: the members by classes of access probability, the most probable
 * class first, ascending by node within a class. A class begins on a multiple of `unit` places, so
 * some places before it are empty.
 *
 *     nodes    the members; their positions 0 … count-1 ascend
 *     lines    128 members in 64 bytes: for each class its members before the line, since the
 *              block's first; the classes, three planes of a bit for each member
 *     blocks   256 lines: for each class the place of the block's first member
 *
 * 4 bits a member besides the set of nodes, and one more cache miss than for a position. A line of
 * 16 classes would hold 64 members.
 */
#ifndef PLIM_SOURCE_NODE_ORDER_H
#define PLIM_SOURCE_NODE_ORDER_H

#include "base/node_set.h"
#include "mem/arena.h"

#define PLIM__ORDER_CLASSES 8
#define PLIM__ORDER_LINE 128
#define PLIM__ORDER_BLOCK 32768 /* 256 lines */

typedef struct plim__order_line {
    uint16_t before[PLIM__ORDER_CLASSES];
    uint64_t planes[3][2];
} plim__order_line_t;

typedef struct plim__node_order {
    plim__node_set_t nodes;
    plim__order_line_t *lines;
    int64_t (*blocks)[PLIM__ORDER_CLASSES];
    int64_t first[PLIM__ORDER_CLASSES + 1]; /* place of each class; the last: the end of all */
    int64_t counts[PLIM__ORDER_CLASSES];    /* members of each class */
} plim__node_order_t;

/* Bytes of the lines of `num_members` members, in whole pages. */
size_t plim__node_order_bytes(int64_t num_members);

/* Carves the tables of `num_members` members among `num_nodes` nodes. carve_classes leaves out the
 * set of nodes: for a second order of the same members, the caller copies `nodes` of the first once
 * they are sealed. */
plim__node_order_t plim__node_order_carve_classes(plim__arena_t *arena, int64_t num_members);
plim__node_order_t plim__node_order_carve(plim__arena_t *arena, int64_t num_nodes,
                                          int64_t num_members);

/* Sets a member's class. The set is sealed, the tables are empty. Any thread. */
void plim__node_order_set(plim__node_order_t *order, int64_t position, int number);

/* Computes blocks, places and counts from the nodes and the planes. All places are below
 * first[PLIM__ORDER_CLASSES]. */
void plim__node_order_seal(plim__node_order_t *order, int64_t unit);

/* The member at a place; -1 at an empty one. */
int64_t plim__node_order_node(const plim__node_order_t *order, int64_t place);

static inline int plim__node_order_class(const plim__node_order_t *order, int64_t position)
{
    const plim__order_line_t *line = &order->lines[position / PLIM__ORDER_LINE];
    const uint64_t word = (uint64_t)position % PLIM__ORDER_LINE / 64, bit = (uint64_t)position % 64;
    return (int)((line->planes[0][word] >> bit & 1) | (line->planes[1][word] >> bit & 1) << 1 |
                 (line->planes[2][word] >> bit & 1) << 2);
}

/* The members of a class among 64 of a line. */
static inline uint64_t plim__order_mask(const plim__order_line_t *line, uint64_t word, int number)
{
    const uint64_t first = (number & 1) != 0 ? 0 : UINT64_MAX;
    const uint64_t second = (number & 2) != 0 ? 0 : UINT64_MAX;
    const uint64_t third = (number & 4) != 0 ? 0 : UINT64_MAX;
    return (line->planes[0][word] ^ first) & (line->planes[1][word] ^ second) &
           (line->planes[2][word] ^ third);
}

static inline void plim__node_order_prefetch(const plim__node_order_t *order, int64_t position)
{
    if (position >= 0)
        __builtin_prefetch(&order->lines[position / PLIM__ORDER_LINE]);
}

/* The place of the member at this position. */
static inline int64_t plim__node_order_at(const plim__node_order_t *order, int64_t position)
{
    const plim__order_line_t *line = &order->lines[position / PLIM__ORDER_LINE];
    const uint64_t word = (uint64_t)position % PLIM__ORDER_LINE / 64, bit = (uint64_t)position % 64;
    const int number = plim__node_order_class(order, position);
    int64_t place = order->blocks[position / PLIM__ORDER_BLOCK][number] + line->before[number];
    if (word == 1)
        place += __builtin_popcountll(plim__order_mask(line, 0, number));
    return place +
           __builtin_popcountll(plim__order_mask(line, word, number) & (((uint64_t)1 << bit) - 1));
}

/* The place of a node; -1 if it is not a member. */
static inline int64_t plim__node_order_find(const plim__node_order_t *order, int64_t node)
{
    const int64_t position = plim__node_set_position(&order->nodes, node);
    return position < 0 ? -1 : plim__node_order_at(order, position);
}

#endif
