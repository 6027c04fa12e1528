/* The tree of shares: a rank's subtrees are whole nodes, and any number of ranks adds in one order.
 */
#include "support/harness.h"

#include "base/rng.h"
#include "peers/share_tree.h"

#include <string.h>

/* The sum that the tree defines, by recursion from the root. */
static float sum_node(const float *shares, int64_t num_shares, int64_t begin, int64_t size)
{
    const int64_t half = size / 2;
    if (size == 1)
        return shares[begin];
    const float left = sum_node(shares, num_shares, begin, half);
    return begin + half < num_shares ? left + sum_node(shares, num_shares, begin + half, half)
                                     : left;
}

static float sum_tree(const float *shares, int64_t num_shares)
{
    int64_t size = 1;
    while (size < num_shares)
        size *= 2;
    return sum_node(shares, num_shares, 0, size);
}

/* Pushes a node with its sum, and adds as the stack says. */
static void push(plim__share_stack_t *stack, float *sums, plim__share_range_t node, float sum)
{
    sums[stack->depth] = sum;
    const int additions = plim__share_stack_push(stack, node);
    for (int i = additions; i > 0; i--)
        sums[stack->depth + i - 2] += sums[stack->depth + i - 1];
}

/* The sum over `ranks` ranks, each of which adds its own shares first. */
static float sum_ranks(const float *shares, int64_t num_shares, int ranks)
{
    plim__share_stack_t all = {.num_shares = num_shares};
    float sums[PLIM__SHARE_NODES_MAX], own_sums[PLIM__SHARE_NODES_MAX];
    int64_t next = 0;
    for (int rank = 0; rank < ranks; rank++) {
        plim__share_range_t range = plim__share_range(num_shares, rank, ranks);
        plim__share_stack_t own = {.num_shares = num_shares};
        assert_int_equal(range.begin, next);
        assert_true(range.end > range.begin);
        next = range.end;
        for (int64_t share = range.begin; share < range.end; share++)
            push(&own, own_sums, (plim__share_range_t){share, share + 1}, shares[share]);
        assert_int_equal(own.depth, plim__share_num_subtrees(num_shares, range));
        for (int i = 0; i < own.depth; i++) {
            const plim__share_range_t subtree = plim__share_subtree(num_shares, range);
            assert_int_equal(subtree.begin, own.nodes[i].begin);
            assert_int_equal(subtree.end, own.nodes[i].end);
            range.begin = subtree.end;
            push(&all, sums, own.nodes[i], own_sums[i]);
        }
    }
    assert_int_equal(next, num_shares);
    assert_int_equal(all.depth, 1);
    return sums[0];
}

static void same_bits_for_any_number_of_ranks(void **state)
{
    (void)state;
    float shares[130];
    for (int64_t num_shares = 1; num_shares <= 130; num_shares++) {
        for (int64_t i = 0; i < num_shares; i++)
            shares[i] = (float)plim__rng_u64(3, (uint64_t)i) * 1e-19f;
        const float expected = sum_tree(shares, num_shares);
        for (int ranks = 1; ranks <= num_shares; ranks++) {
            const float sum = sum_ranks(shares, num_shares, ranks);
            assert_memory_equal(&sum, &expected, sizeof sum);
        }
    }
}

static void few_sums_are_kept(void **state)
{
    (void)state;
    assert_int_equal(plim__share_stack_depth(1, (plim__share_range_t){0, 1}), 1);
    assert_int_equal(plim__share_stack_depth(8, (plim__share_range_t){0, 8}), 3);
    assert_int_equal(plim__share_stack_depth(8, (plim__share_range_t){1, 7}), 4);
    assert_int_equal(plim__share_stack_depth(8, (plim__share_range_t){4, 5}), 1);
    /* The worst ranges of the largest batch. */
    const int64_t most = PLIM__SHARES_MAX;
    assert_true(plim__share_stack_depth(most, (plim__share_range_t){1, most - 1}) <
                PLIM__SHARE_NODES_MAX);
    assert_true(plim__share_stack_depth(most - 1, (plim__share_range_t){1, most - 1}) <
                PLIM__SHARE_NODES_MAX);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(same_bits_for_any_number_of_ranks),
        cmocka_unit_test(few_sums_are_kept),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
