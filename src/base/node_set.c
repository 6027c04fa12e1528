#include "base/node_set.h"

#include "base/check.h"

#include <string.h>

plim__node_set_t plim__node_set_make(void *lines, int64_t universe)
{
    return (plim__node_set_t){lines, universe / PLIM__NODE_SET_BITS + 1, universe, 0};
}

void plim__node_set_clear(plim__node_set_t *set)
{
    memset(set->lines, 0, (size_t)set->num_lines * sizeof *set->lines);
    set->count = 0;
}

void plim__node_set_seal(plim__node_set_t *set)
{
    uint64_t before = 0;
    for (int64_t i = 0; i < set->num_lines; i++) {
        set->lines[i].before = before;
        for (int j = 0; j < 7; j++)
            before += (uint64_t)__builtin_popcountll(set->lines[i].bits[j]);
    }
    set->count = (int64_t)before;
}

/* Lists members of lines before `end`. */
static int64_t list(const plim__node_set_t *set, int64_t from, int64_t end, int64_t capacity,
                    int64_t *nodes_out)
{
    int64_t found = 0;
    if (from >= set->universe)
        return 0;
    int64_t first_bit = from % PLIM__NODE_SET_BITS;
    for (int64_t i = from / PLIM__NODE_SET_BITS; i < end && found < capacity; i++) {
        for (int64_t word = first_bit / 64; word < 7; word++) {
            uint64_t bits = set->lines[i].bits[word] & ~(uint64_t)0 << first_bit % 64;
            first_bit = 0;
            for (; bits != 0 && found < capacity; bits &= bits - 1)
                nodes_out[found++] = i * PLIM__NODE_SET_BITS + word * 64 + __builtin_ctzll(bits);
        }
    }
    return found;
}

int64_t plim__node_set_list(const plim__node_set_t *set, int64_t from, int64_t capacity,
                            int64_t *nodes_out)
{
    return list(set, from, set->num_lines, capacity, nodes_out);
}

int64_t plim__node_set_next(const plim__node_set_t *set, int64_t from)
{
    int64_t node;
    return plim__node_set_list(set, from, 1, &node) == 1 ? node : -1;
}

int64_t plim__node_set_next_before(const plim__node_set_t *set, int64_t from, int64_t end)
{
    int64_t node;
    const int64_t lines = (plim__min_i64(end, set->universe) - 1) / PLIM__NODE_SET_BITS + 1;
    return list(set, from, lines, 1, &node) == 1 && node < end ? node : -1;
}

int64_t plim__node_set_select(const plim__node_set_t *set, int64_t position)
{
    int64_t low = 0,
            high = set->num_lines; /* the last line with `before` <= position is in between */
    while (high - low > 1) {
        int64_t middle = low + (high - low) / 2;
        if (set->lines[middle].before <= (uint64_t)position)
            low = middle;
        else
            high = middle;
    }
    int64_t left = position - (int64_t)set->lines[low].before;
    for (int64_t word = 0; word < 7; word++) {
        uint64_t bits = set->lines[low].bits[word];
        int64_t here = __builtin_popcountll(bits);
        if (left < here) {
            for (; left > 0; left--)
                bits &= bits - 1;
            return low * PLIM__NODE_SET_BITS + word * 64 + __builtin_ctzll(bits);
        }
        left -= here;
    }
    return -1;
}
