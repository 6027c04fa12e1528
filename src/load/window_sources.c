/*
 * A window as sources. Batches are built from here, so the code avoids cache misses: a draw reads
 * three dependent cache lines (the set's, the place, the ids), and each is prefetched some nodes
 * before it is needed.
 */
#include "base/check.h"
#include "base/fail.h"
#include "load/window_internal.h"
#include "source/row_form.h"

#include <string.h>

/* How many nodes ahead each of the three lines is prefetched. */
#define SET_AHEAD 24
#define PLACE_AHEAD 16
#define IDS_AHEAD 8
#define RING 32 /* positions and places in flight: a power of two above PLACE_AHEAD */

#define ROWS_AHEAD 12

/* Copies the ids of one node to ids[at …]; returns where they end, or -1 when they do not fit. */
static inline int64_t copy_i32(const uint32_t *from, int64_t *ids, int64_t at, int64_t capacity)
{
    while (at < capacity) {
        uint32_t id = *from++;
        ids[at++] = (int64_t)(id & ~LAST_I32);
        if ((id & LAST_I32) != 0)
            return at;
    }
    return -1;
}

static inline int64_t copy_i64(const uint64_t *from, int64_t *ids, int64_t at, int64_t capacity)
{
    while (at < capacity) {
        uint64_t id = *from++;
        ids[at++] = (int64_t)(id & ~LAST_I64);
        if ((id & LAST_I64) != 0)
            return at;
    }
    return -1;
}

/* One call's walk through a hop's tables. */
typedef struct lookup {
    const plim__node_set_t *set;
    const uint32_t *places; /* (set->count) */
    const char *area;
    size_t entry;     /* bytes of an id */
    size_t ids_bytes; /* prefetched of a draw */
    int64_t positions[RING];
    uint32_t found[RING];
} lookup_t;

static inline void lookup_rank(lookup_t *lookup, const int64_t *nodes, int64_t i)
{
    int64_t position = (uint64_t)nodes[i] < (uint64_t)lookup->set->universe
                           ? plim__node_set_position(lookup->set, nodes[i])
                           : -1;
    lookup->positions[i % RING] = position;
    if (position >= 0)
        __builtin_prefetch(&lookup->places[position]);
}

static inline void lookup_place(lookup_t *lookup, int64_t i)
{
    int64_t position = lookup->positions[i % RING];
    uint32_t place = position >= 0 ? lookup->places[position] : NONE_DRAWN;
    lookup->found[i % RING] = place;
    if (place == NONE_DRAWN)
        return;
    const char *ids = lookup->area + place * lookup->entry;
    for (size_t byte = 0; byte < lookup->ids_bytes; byte += PLIM__LINE)
        __builtin_prefetch(ids + byte);
    __builtin_prefetch(ids + lookup->ids_bytes - 1);
}

/* Prefetches the three stages for the nodes after node i. */
static inline void lookup_ahead(lookup_t *lookup, const int64_t *nodes, int64_t count, int64_t i)
{
    if (i + SET_AHEAD < count)
        plim__node_set_prefetch(lookup->set, nodes[i + SET_AHEAD]);
    if (i + PLACE_AHEAD >= 0 && i + PLACE_AHEAD < count)
        lookup_rank(lookup, nodes, i + PLACE_AHEAD);
    if (i + IDS_AHEAD >= 0 && i + IDS_AHEAD < count)
        lookup_place(lookup, i + IDS_AHEAD);
}

static plim_status_t lookup_run(lookup_t *lookup, const int64_t *nodes, int64_t count,
                                plim__drawn_t *drawn)
{
    int64_t at = 0, done = 0;
    drawn->indptr[0] = 0;
    for (int64_t i = -SET_AHEAD; i < 0; i++)
        lookup_ahead(lookup, nodes, count, i);
    for (; done < count; done++) {
        lookup_ahead(lookup, nodes, count, done);
        uint32_t place = lookup->found[done % RING];
        int64_t end = at;
        if (lookup->positions[done % RING] < 0)
            return plim__fail(PLIM_ERR_USAGE, "node %lld belongs to no batch of this window",
                              (long long)nodes[done]);
        if (place != NONE_DRAWN && lookup->entry == sizeof(uint32_t))
            end = copy_i32((const uint32_t *)lookup->area + place, drawn->ids, at, drawn->capacity);
        else if (place != NONE_DRAWN)
            end = copy_i64((const uint64_t *)lookup->area + place, drawn->ids, at, drawn->capacity);
        if (end < 0)
            break;
        drawn->indptr[done + 1] = at = end;
    }
    if (done == 0 && count > 0)
        return plim__fail(PLIM_ERR_BUDGET, "the draws of node %lld do not fit in %lld entries",
                          (long long)nodes[0], (long long)drawn->capacity);
    drawn->taken = done;
    return PLIM_OK;
}

/* Looks up the positions of draws that were found: where each draw's ids begin is looked up again,
 * since a ring holds only the last ones. */
static void find_positions(const plim__load_window_t *window, const lookup_t *lookup,
                           const plim__draws_t *draws, plim__drawn_t *drawn)
{
    const plim__offsets_t *offsets = window->topology_below->offsets;
    for (int64_t i = 0; i < drawn->taken; i++) {
        const int64_t begin = drawn->indptr[i], end = drawn->indptr[i + 1];
        if (begin == end)
            continue;
        const int64_t start = plim__offsets_list(offsets, draws->nodes[i]).start;
        const uint32_t place =
            lookup->places[plim__node_set_position(lookup->set, draws->nodes[i])];
        for (int64_t k = begin; k < end; k++)
            drawn->positions[k] = start + window->positions[place + (k - begin)];
    }
}

/* A window has one draw of each node at a hop. Without positions they are drawn again. */
static plim_status_t topology_draw(plim__topology_t *source, int number, const plim__draws_t *draws,
                                   plim__drawn_t *drawn)
{
    plim__load_window_t *window = ((window_topology_t *)source)->window;
    const plim__hop_t *hop = draws->hop;
    (void)number;
    if (draws->owners != draws->nodes)
        return plim__fail(PLIM_ERR_UNSUPPORTED, "a window holds draws that all batches share");
    size_t entry = plim__index_bytes(window->params.index_type);
    size_t usual = hop->fanout < 1 || hop->fanout > 32 ? 32 : (size_t)hop->fanout;
    lookup_t lookup = {.set = &window->sets[hop->hop],
                       .places = window->places[hop->hop],
                       .area = window->area,
                       .entry = entry,
                       .ids_bytes = usual * entry};
    PLIM_TRY(lookup_run(&lookup, draws->nodes, draws->count, drawn));
    if (drawn->positions != NULL && window->positions != NULL)
        find_positions(window, &lookup, draws, drawn);
    else if (drawn->positions != NULL)
        plim__draw_again(draws, source->offsets, drawn->taken, drawn->positions);
    return PLIM_OK;
}

/* A window stores draws, not lists: the source below knows the degrees. */
static plim_status_t topology_degrees(plim__topology_t *source, int number, const int64_t *nodes,
                                      int64_t count, int32_t *degrees_out)
{
    plim__load_window_t *window = ((window_topology_t *)source)->window;
    return plim__topology_degrees(window->topology_below, window->params.builders + number, nodes,
                                  count, degrees_out);
}

static size_t row_size(const plim__load_window_t *window, plim_dtype_t type)
{
    return (size_t)window->params.num_features * plim__feature_bytes(type);
}

/* Finds the positions of a chunk's stored nodes, and lists the others. Returns their number. */
static int64_t find_others(const plim__load_window_t *window, chunk_t *buffers,
                           const int64_t *nodes, int64_t count)
{
    const plim__node_set_t *set = &window->sets[window->params.num_hops];
    int64_t others = 0;
    for (int64_t i = 0; i < plim__min_i64(SET_AHEAD, count); i++)
        plim__node_set_prefetch(set, nodes[i]);
    for (int64_t i = 0; i < count; i++) {
        if (i + SET_AHEAD < count)
            plim__node_set_prefetch(set, nodes[i + SET_AHEAD]);
        buffers->positions[i] = plim__node_set_position(set, nodes[i]);
        if (buffers->positions[i] < 0) {
            buffers->others[others] = nodes[i];
            buffers->where[others++] = i;
        }
    }
    return others;
}

/*
 * Gathers the rows that are not stored to the end of the chunk, in one call, then moves them to
 * their positions, first to last. A position is never after the row's place at the end, so no row
 * is overwritten before it has moved. The stored rows are copied between them afterwards.
 */
static plim_status_t gather_others(plim__load_window_t *window, int number, int64_t count,
                                   int64_t others, plim_dtype_t type, char *rows)
{
    const chunk_t *buffers = &window->chunks[number];
    size_t size = row_size(window, type);
    char *end = rows + (size_t)(count - others) * size;
    if (others == 0)
        return PLIM_OK;
    PLIM_TRY(plim__rows_gather(window->rows_below, window->params.builders + number,
                               buffers->others, others, type, end));
    for (int64_t i = 0; i < others; i++) {
        char *to = rows + (size_t)buffers->where[i] * size;
        if (to != end + (size_t)i * size)
            memcpy(to, end + (size_t)i * size, size);
    }
    return PLIM_OK;
}

static void copy_stored(const plim__load_window_t *window, const chunk_t *buffers, int64_t count,
                        plim_dtype_t type, char *rows)
{
    const plim__row_form_t form =
        plim__row_form_make(window->params.row_type, window->params.num_features);
    const size_t size = row_size(window, type);
    for (int64_t i = 0; i < count; i++) {
        if (i + ROWS_AHEAD < count && buffers->positions[i + ROWS_AHEAD] >= 0)
            plim__row_prefetch(window->store +
                                   (size_t)buffers->positions[i + ROWS_AHEAD] * form.bytes,
                               form.bytes);
        if (buffers->positions[i] >= 0)
            plim__row_write(&form, window->store + (size_t)buffers->positions[i] * form.bytes, type,
                            rows + (size_t)i * size);
    }
}

static plim_status_t rows_gather(plim__rows_t *source, int number, const int64_t *nodes,
                                 int64_t count, plim_dtype_t type, void *rows_out)
{
    plim__load_window_t *window = ((window_rows_t *)source)->window;
    chunk_t *buffers = &window->chunks[number];
    char *rows = rows_out;
    if (!plim__load_window_with_rows(window))
        return plim__rows_gather(window->rows_below, window->params.builders + number, nodes, count,
                                 type, rows_out);
    for (int64_t first = 0; first < count; first += CHUNK) {
        int64_t chunk = plim__min_i64(CHUNK, count - first);
        int64_t others = find_others(window, buffers, nodes + first, chunk);
        PLIM_TRY(gather_others(window, number, chunk, others, type, rows));
        copy_stored(window, buffers, chunk, type, rows);
        rows += (size_t)chunk * row_size(window, type);
    }
    return PLIM_OK;
}

void plim__load_window_sources(plim__load_window_t *window)
{
    window->topology = (window_topology_t){
        {topology_draw, topology_degrees, NULL, NULL, window->topology_below->offsets}, window};
    window->rows = (window_rows_t){{rows_gather, NULL}, window};
}
