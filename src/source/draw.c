#include "source/draw.h"

#include <string.h>

#define SCANNED 16 /* up to this many draws, a linear scan finds duplicates */
#define TABLE_MOST (2 * PLIM__FANOUT_MAX)
#define EMPTY UINT16_MAX
#define AHEAD 16 /* nodes between a prefetch and its use */

/* Uniform in [0, bound): the next number of the node's random sequence. */
static inline int64_t below(uint64_t key, uint64_t *counter, int64_t bound)
{
    return (int64_t)plim__rng_below(key, counter, (uint64_t)bound);
}

/* Floyd's algorithm for a list of at most 64 entries, with a bit set of taken entries. */
static void draw_short(uint64_t key, int64_t degree, int64_t count, int64_t *positions)
{
    uint64_t counter = 0, taken = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t last = degree - count + i;
        int64_t position = below(key, &counter, last + 1);
        position = (taken >> position & 1) != 0 ? last : position;
        taken |= (uint64_t)1 << position;
        positions[i] = position;
    }
}

static void draw_few(uint64_t key, int64_t degree, int64_t count, int64_t *positions)
{
    uint64_t counter = 0;
    for (int64_t i = 0; i < count; i++) {
        int64_t last = degree - count + i;
        int64_t position = below(key, &counter, last + 1);
        bool taken = false;
        for (int64_t j = 0; j < i; j++)
            taken |= positions[j] == position;
        positions[i] = taken ? last : position;
    }
}

/* Floyd's algorithm with an open-addressing table of taken positions. */
static void draw_many(uint64_t key, int64_t degree, int64_t count, int64_t *positions)
{
    uint16_t table[TABLE_MOST];
    uint64_t counter = 0;
    unsigned bits = 6;
    while (((int64_t)1 << bits) < 2 * count)
        bits++;
    const uint64_t mask = ((uint64_t)1 << bits) - 1;
    memset(table, 0xff, sizeof table[0] << bits);
    for (int64_t i = 0; i < count; i++) {
        int64_t last = degree - count + i;
        int64_t position = below(key, &counter, last + 1);
        for (;;) {
            uint64_t slot = (uint64_t)position * 0x9e3779b97f4a7c15u >> (64 - bits);
            while (table[slot] != EMPTY && positions[table[slot]] != position)
                slot = (slot + 1) & mask;
            if (table[slot] == EMPTY) {
                table[slot] = (uint16_t)i;
                break;
            }
            position = last; /* larger than any position taken so far */
        }
        positions[i] = position;
    }
}

void plim__draw_positions(uint64_t key, const plim__hop_t *hop, int64_t degree,
                          int64_t *positions_out)
{
    const int64_t count = plim__draw_count(hop, degree);
    if (hop->fanout < 0 || (!hop->replace && degree == count)) {
        for (int64_t i = 0; i < count; i++)
            positions_out[i] = i;
    } else if (hop->replace) {
        uint64_t counter = 0;
        for (int64_t i = 0; i < count; i++)
            positions_out[i] = below(key, &counter, degree);
    } else if (degree <= 64) {
        draw_short(key, degree, count, positions_out);
    } else if (count <= SCANNED) {
        draw_few(key, degree, count, positions_out);
    } else {
        draw_many(key, degree, count, positions_out);
    }
}

void plim__draw_again(const plim__draws_t *draws, const plim__offsets_t *offsets, int64_t taken,
                      int64_t *positions_out)
{
    const uint64_t prefix = plim__draw_prefix(draws->hop);
    for (int64_t i = 0; i < taken; i++) {
        if (i + AHEAD < taken)
            plim__offsets_prefetch(offsets, draws->nodes[i + AHEAD]);
        const plim__list_t list = plim__offsets_list(offsets, draws->nodes[i]);
        const int64_t count = plim__draw_count(draws->hop, list.degree);
        plim__draw_positions(plim__draw_key(prefix, draws->owners[i]), draws->hop, list.degree,
                             positions_out);
        for (int64_t k = 0; k < count; k++)
            positions_out[k] += list.start;
        positions_out += count;
    }
}
