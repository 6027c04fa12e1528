#include "peers/share_tree.h"

#include "base/check.h"

#include <assert.h>

plim__share_range_t plim__share_range(int64_t num_shares, int rank, int num_ranks)
{
    return (plim__share_range_t){num_shares * rank / num_ranks,
                                 num_shares * (rank + 1) / num_ranks};
}

plim__share_range_t plim__share_subtree(int64_t num_shares, plim__share_range_t range)
{
    plim__share_range_t subtree = {range.begin, range.begin + 1};
    for (int64_t size = 2; range.begin % size == 0; size *= 2) {
        const int64_t end = plim__min_i64(range.begin + size, num_shares);
        if (end > range.end)
            break;
        subtree.end = end;
        if (end == num_shares)
            break;
    }
    return subtree;
}

int plim__share_num_subtrees(int64_t num_shares, plim__share_range_t range)
{
    int count = 0;
    for (; range.begin < range.end; count++)
        range.begin = plim__share_subtree(num_shares, range).end;
    return count;
}

/* Whether two adjacent nodes are the children of one. */
static bool are_siblings(int64_t num_shares, plim__share_range_t left, plim__share_range_t right)
{
    const int64_t size = left.end - left.begin;
    return (size & (size - 1)) == 0 && left.begin % (2 * size) == 0 &&
           right.end == plim__min_i64(left.begin + 2 * size, num_shares);
}

int plim__share_stack_push(plim__share_stack_t *stack, plim__share_range_t node)
{
    int additions = 0;
    assert(stack->depth < PLIM__SHARE_NODES_MAX);
    stack->nodes[stack->depth++] = node;
    while (stack->depth > 1 && are_siblings(stack->num_shares, stack->nodes[stack->depth - 2],
                                            stack->nodes[stack->depth - 1])) {
        stack->nodes[stack->depth - 2].end = stack->nodes[stack->depth - 1].end;
        stack->depth--;
        additions++;
    }
    return additions;
}

int plim__share_stack_depth(int64_t num_shares, plim__share_range_t range)
{
    plim__share_stack_t stack = {.num_shares = num_shares};
    int most = 0;
    for (int64_t share = range.begin; share < range.end; share++) {
        (void)plim__share_stack_push(&stack, (plim__share_range_t){share, share + 1});
        most = stack.depth > most ? stack.depth : most;
    }
    return most;
}
