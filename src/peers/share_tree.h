/*
 * The order in which the shares of a batch are added, fixed by their number S alone.
 *
 * The tree is the one over the next power of two of leaves, without the leaves past S: a node is a
 * range [begin, min(begin + 2^k, S)) whose begin is a multiple of 2^k.
 *
 *     S = 6         [0, 6)
 *               ┌─────┴─────┐
 *            [0, 4)      [4, 6)
 *           ┌──┴──┐       ┌─┴─┐
 *         [0,2) [2,4)     4   5
 *         ┌─┴─┐ ┌─┴─┐
 *         0   1 2   3
 *
 * Nodes come from left to right and go on a stack; whenever the upper two are children of one node,
 * the top is added to the one below. A rank adds its own contiguous shares in this way, and what
 * stays on its stack are its *subtrees*: the largest nodes inside its range. Pushed in the order of
 * ranks, the subtrees of all ranks add up to the root. So the sum has the same bits for any number
 * of ranks.
 */
#ifndef PLIM_PEERS_SHARE_TREE_H
#define PLIM_PEERS_SHARE_TREE_H

#include <stdint.h>

/* Shares of a batch: at most this many. */
#define PLIM__SHARES_MAX 65536

/* No range has more subtrees, and no stack is deeper: 2 log2(PLIM__SHARES_MAX), and the one that is
 * being pushed. */
#define PLIM__SHARE_NODES_MAX 33

/* Shares [begin, end). */
typedef struct plim__share_range {
    int64_t begin, end;
} plim__share_range_t;

/* The shares of a rank: sizes differ by one at most. num_ranks is at most num_shares. */
plim__share_range_t plim__share_range(int64_t num_shares, int rank, int num_ranks);

/* The largest node that begins where `range` begins and lies inside it: its first subtree. */
plim__share_range_t plim__share_subtree(int64_t num_shares, plim__share_range_t range);

/* The number of subtrees of a range. */
int plim__share_num_subtrees(int64_t num_shares, plim__share_range_t range);

typedef struct plim__share_stack {
    int64_t num_shares;
    int depth;
    plim__share_range_t nodes[PLIM__SHARE_NODES_MAX];
} plim__share_stack_t;

/*
 * Pushes the node that follows the stack's top. Returns the number of additions: for each, the top
 * is added to the node below it and removed. `depth` is the depth afterwards.
 */
int plim__share_stack_push(plim__share_stack_t *stack, plim__share_range_t node);

/* The largest depth while the shares of a range are pushed one by one: the sums to be kept. */
int plim__share_stack_depth(int64_t num_shares, plim__share_range_t range);

#endif
