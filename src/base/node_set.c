#include "base/node_set.h"

#include "base/check.h"

#include <string.h>

plim__node_set_t plim__node_set_make(void *lines, int64_t universe)
{
    return (plim__node_set_t){
        .lines = lines, .num_lines = universe / PLIM__NODE_SET_BITS + 1, .universe = universe};
}

static size_t directory_bytes(int64_t universe)
{
    return plim__round_up(((size_t)universe / PLIM__NODE_SET_BITS + 1) * sizeof(uint32_t),
                          sizeof(plim__node_set_line_t));
}

size_t plim__node_set_sparse_bytes(int64_t universe, int64_t capacity)
{
    return plim__add_saturating_size(
        directory_bytes(universe),
        plim__mul_saturating_size((size_t)capacity + 1, sizeof(plim__node_set_line_t)));
}

plim__node_set_t plim__node_set_make_sparse(void *memory, int64_t universe, int64_t capacity)
{
    char *at = memory;
    plim__node_set_t set =
        plim__node_set_make(at != NULL ? at + directory_bytes(universe) : NULL, universe);
    set.directory = memory;
    set.capacity = plim__min_i64(capacity, UINT32_MAX);
    return set;
}

static int64_t lines_used(const plim__node_set_t *set)
{
    return set->directory == NULL ? set->num_lines : 1 + plim__min_i64(set->used, set->capacity);
}

void plim__node_set_clear(plim__node_set_t *set)
{
    memset(set->lines, 0, (size_t)lines_used(set) * sizeof *set->lines);
    if (set->directory != NULL)
        memset(set->directory, 0, (size_t)set->num_lines * sizeof *set->directory);
    set->count = set->used = 0;
}

void plim__node_set_copy(plim__node_set_t *to, const plim__node_set_t *from)
{
    const int64_t after = lines_used(to) - lines_used(from);
    if (after > 0)
        memset(to->lines + lines_used(from), 0, (size_t)after * sizeof *to->lines);
    memcpy(to->lines, from->lines, (size_t)lines_used(from) * sizeof *to->lines);
    if (to->directory != NULL)
        memcpy(to->directory, from->directory, (size_t)to->num_lines * sizeof *to->directory);
    to->count = from->count;
    to->used = from->used;
}

plim__node_set_line_t *plim__node_set_claim(plim__node_set_t *set, int64_t number)
{
    uint32_t *entry = &set->directory[number];
    uint32_t line = __atomic_load_n(entry, __ATOMIC_ACQUIRE);
    if (line != 0)
        return &set->lines[line];
    const int64_t next = __atomic_add_fetch(&set->used, 1, __ATOMIC_RELAXED);
    if (next > set->capacity)
        return NULL;
    /* If another thread was first, this line stays empty. */
    if (__atomic_compare_exchange_n(entry, &line, (uint32_t)next, false, __ATOMIC_ACQ_REL,
                                    __ATOMIC_ACQUIRE))
        line = (uint32_t)next;
    return &set->lines[line];
}

void plim__node_set_seal(plim__node_set_t *set)
{
    uint64_t before = 0;
    for (int64_t i = 0; i < set->num_lines; i++) {
        plim__node_set_line_t *line = plim__node_set_line(set, i);
        if (line == set->lines && set->directory != NULL)
            continue;
        line->before = before;
        for (int j = 0; j < 7; j++)
            before += (uint64_t)__builtin_popcountll(line->bits[j]);
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
        const plim__node_set_line_t *line = plim__node_set_line(set, i);
        if (line == set->lines && set->directory != NULL) {
            first_bit = 0;
            continue;
        }
        for (int64_t word = first_bit / 64; word < 7; word++) {
            uint64_t bits = line->bits[word] & ~(uint64_t)0 << first_bit % 64;
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
