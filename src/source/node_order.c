#include "source/node_order.h"

#include "base/check.h"

#include <string.h>

size_t plim__node_order_bytes(int64_t num_members)
{
    const size_t lines = (size_t)num_members / PLIM__ORDER_LINE + 1;
    return plim__round_up(lines * sizeof(plim__order_line_t), PLIM__PAGE);
}

plim__node_order_t plim__node_order_carve_classes(plim__arena_t *arena, int64_t num_members)
{
    const size_t blocks = (size_t)num_members / PLIM__ORDER_BLOCK + 1;
    return (plim__node_order_t){
        .lines = plim__arena_carve(arena, 1, plim__node_order_bytes(num_members), PLIM__PAGE),
        .blocks = plim__arena_carve(arena, blocks, sizeof(int64_t[PLIM__ORDER_CLASSES]), 1)};
}

plim__node_order_t plim__node_order_carve(plim__arena_t *arena, int64_t num_nodes,
                                          int64_t num_members)
{
    const size_t set = plim__round_up(plim__node_set_bytes(num_nodes), PLIM__PAGE);
    void *lines = plim__arena_carve(arena, 1, set, PLIM__PAGE);
    plim__node_order_t order = plim__node_order_carve_classes(arena, num_members);
    order.nodes = plim__node_set_make(lines, num_nodes);
    return order;
}

void plim__node_order_set(plim__node_order_t *order, int64_t position, int number)
{
    plim__order_line_t *line = &order->lines[position / PLIM__ORDER_LINE];
    const uint64_t word = (uint64_t)position % PLIM__ORDER_LINE / 64;
    for (int plane = 0; plane < 3; plane++)
        __atomic_fetch_or(&line->planes[plane][word],
                          (uint64_t)(number >> plane & 1) << position % 64, __ATOMIC_RELAXED);
}

void plim__node_order_seal(plim__node_order_t *order, int64_t unit)
{
    const int64_t count = order->nodes.count, lines = count / PLIM__ORDER_LINE + 1;
    int64_t so_far[PLIM__ORDER_CLASSES] = {0};
    for (int64_t i = 0; i < lines; i++) {
        plim__order_line_t *line = &order->lines[i];
        int64_t *block = order->blocks[i * PLIM__ORDER_LINE / PLIM__ORDER_BLOCK];
        if (i * PLIM__ORDER_LINE % PLIM__ORDER_BLOCK == 0)
            memcpy(block, so_far, sizeof so_far);
        for (int number = 0; number < PLIM__ORDER_CLASSES; number++)
            line->before[number] = (uint16_t)(so_far[number] - block[number]);
        for (uint64_t word = 0; word < 2; word++) {
            const int64_t left = count - i * PLIM__ORDER_LINE - (int64_t)word * 64;
            const uint64_t valid = left >= 64  ? UINT64_MAX
                                   : left <= 0 ? 0
                                               : ((uint64_t)1 << left) - 1;
            for (int number = 0; number < PLIM__ORDER_CLASSES; number++)
                so_far[number] +=
                    __builtin_popcountll(plim__order_mask(line, word, number) & valid);
        }
    }
    int64_t place = 0;
    for (int number = 0; number < PLIM__ORDER_CLASSES; number++) {
        order->first[number] = place;
        order->counts[number] = so_far[number];
        place += (so_far[number] + unit - 1) / unit * unit;
    }
    order->first[PLIM__ORDER_CLASSES] = place;
    for (int64_t i = 0; i <= count / PLIM__ORDER_BLOCK; i++)
        for (int number = 0; number < PLIM__ORDER_CLASSES; number++)
            order->blocks[i][number] += order->first[number];
}

int64_t plim__node_order_node(const plim__node_order_t *order, int64_t place)
{
    int number = PLIM__ORDER_CLASSES - 1;
    while (order->first[number] > place)
        number--;
    if (place - order->first[number] >= order->counts[number])
        return -1;
    const int64_t count = order->nodes.count;
    int64_t block = 0, blocks = count / PLIM__ORDER_BLOCK + 1;
    while (blocks - block > 1) {
        const int64_t middle = block + (blocks - block) / 2;
        if (order->blocks[middle][number] <= place)
            block = middle;
        else
            blocks = middle;
    }
    int64_t left = place - order->blocks[block][number];
    int64_t line = block * (PLIM__ORDER_BLOCK / PLIM__ORDER_LINE);
    int64_t end =
        plim__min_i64(line + PLIM__ORDER_BLOCK / PLIM__ORDER_LINE, count / PLIM__ORDER_LINE + 1);
    while (end - line > 1) {
        const int64_t middle = line + (end - line) / 2;
        if (order->lines[middle].before[number] <= left)
            line = middle;
        else
            end = middle;
    }
    left -= order->lines[line].before[number];
    uint64_t word = 0, mask = plim__order_mask(&order->lines[line], 0, number);
    if (left >= __builtin_popcountll(mask)) {
        left -= __builtin_popcountll(mask);
        mask = plim__order_mask(&order->lines[line], ++word, number);
    }
    for (; left > 0; left--)
        mask &= mask - 1;
    return plim__node_set_select(&order->nodes, line * PLIM__ORDER_LINE + (int64_t)word * 64 +
                                                    __builtin_ctzll(mask));
}
