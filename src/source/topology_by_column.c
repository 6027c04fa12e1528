/*
 * Draws that a column decides. Nodes are taken a group at a time, so that the column is gathered
 * and lists are read in few calls:
 *
 *     nodes ─► numbers of their entries ─► values of the column ─► positions chosen ─► ids
 *
 * A list that is longer than a group is read in chunks: they may be read twice, never held whole.
 */
#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"
#include "source/topology.h"

#include <string.h>

#define GROUP_ENTRIES 16384        /* entries of a group's lists, or of a chunk of a long list */
#define LIST_MOST PLIM__FANOUT_MAX /* a longer list is a long one */
#define GROUP_DRAWS 512
#define AHEAD 16 /* nodes between a prefetch and its use */

/* A worker's buffers. */
typedef struct column_worker {
    int64_t *numbers; /* (GROUP_ENTRIES) entries in the column */
    int64_t *values;  /* (GROUP_ENTRIES) of them, of 4 or 8 bytes */
    plim__pick_t *picks;
} column_worker_t;

typedef struct by_column {
    plim__topology_t face; /* first */
    plim__arena_t arena;
    plim__topology_by_column_params_t params;
    column_worker_t *workers;
} by_column_t;

/* The draws of a call, and their result so far. */
typedef struct column_draws {
    int number; /* of the worker */
    const plim__draws_t *draws;
    plim__drawn_t *drawn;
    uint64_t prefix; /* of the keys */
    int64_t taken;   /* draws done */
    int64_t used;    /* of drawn->ids */
} column_draws_t;

static void lay_out(plim__arena_t *arena, void *object)
{
    by_column_t *column = object;
    column->workers =
        plim__arena_carve(arena, (size_t)column->params.workers, sizeof(column_worker_t), 1);
    for (int i = 0; i < column->params.workers; i++) {
        const column_worker_t worker = {
            .numbers = plim__arena_carve(arena, GROUP_ENTRIES, sizeof(int64_t), 1),
            .values = plim__arena_carve(arena, GROUP_ENTRIES, sizeof(int64_t), 1),
            .picks = plim__arena_carve(arena, PLIM__FANOUT_MAX, sizeof(plim__pick_t), 1)};
        if (column->workers != NULL)
            column->workers[i] = worker;
    }
}

size_t plim__topology_by_column_estimate(int workers)
{
    by_column_t draft = {.params.workers = workers};
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

static plim_dtype_t type_of(const by_column_t *column)
{
    return column->params.choice == PLIM__CHOOSE_BY_WEIGHT ? PLIM_F32 : PLIM_I64;
}

/* The values of a group: `numbers` are entries of indices.npy; with values of nodes they are
 * positions in the lists of nodes[0 … count-1], as indptr says. */
static plim_status_t gather(const by_column_t *column, int number, const int64_t *nodes,
                            const int64_t *indptr, int64_t count)
{
    column_worker_t *worker = &column->workers[number];
    if (column->params.of_nodes)
        PLIM_TRY(plim__topology_entries(column->params.below, number, nodes, indptr, count,
                                        worker->numbers));
    return plim__rows_gather(column->params.column, number, worker->numbers, indptr[count],
                             type_of(column), worker->values);
}

static plim_status_t fail_weight(const plim__list_t *list, int64_t position, const void *value)
{
    float weight;
    memcpy(&weight, value, sizeof weight);
    return plim__fail(PLIM_ERR_DATA,
                      "edge_weight.npy: entry %lld is %g, but neighbours are drawn in proportion "
                      "to weights, which must be finite and not negative",
                      (long long)(list->start + position), (double)weight);
}

static plim__choosing_t begin(const by_column_t *column, const column_draws_t *all, int64_t i)
{
    const plim__draws_t *draws = all->draws;
    return (plim__choosing_t){.choice = column->params.choice,
                              .hop = draws->hop,
                              .key = plim__draw_key(all->prefix, draws->owners[i]),
                              .until = draws->until != NULL ? draws->until[i] : INT64_MAX,
                              .picks = column->workers[all->number].picks,
                              .positions = all->drawn->ids + all->used};
}

/* Completes draw i, whose positions are at the end of the ids. */
static void end_draw(column_draws_t *all, plim__list_t list, int64_t count)
{
    plim__drawn_t *drawn = all->drawn;
    for (int64_t k = all->used; k < all->used + count && drawn->positions != NULL; k++)
        drawn->positions[k] = list.start + drawn->ids[k];
    all->used += count;
    drawn->indptr[++all->taken] = all->used;
}

/* Whether the column is not needed: all entries are drawn, or none. */
static bool is_whole(const by_column_t *column, const plim__hop_t *hop, int64_t degree)
{
    return !plim__choose_needs(column->params.choice, hop, degree);
}

static void take_all(column_draws_t *all, plim__list_t list)
{
    const int64_t count = plim__draw_count(all->draws->hop, list.degree);
    for (int64_t k = 0; k < count; k++)
        all->drawn->ids[all->used + k] = k;
    end_draw(all, list, count);
}

/* Gives a long list's values, once or twice. */
static plim_status_t choose_chunks(const by_column_t *column, const column_draws_t *all,
                                   plim__list_t list, plim__choosing_t *choosing, bool again)
{
    const int64_t *node = &all->draws->nodes[all->taken];
    column_worker_t *worker = &column->workers[all->number];
    int64_t size;
    for (int64_t first = 0; first < list.degree; first += size) {
        size =
            plim__min_i64(list.degree - first, column->params.of_nodes ? LIST_MOST : GROUP_ENTRIES);
        const int64_t indptr[2] = {0, size};
        for (int64_t k = 0; k < size; k++)
            worker->numbers[k] = first + k + (column->params.of_nodes ? 0 : list.start);
        PLIM_TRY(gather(column, all->number, node, indptr, 1));
        if (again) {
            plim__choose_again(choosing, worker->values, first, size);
            continue;
        }
        const int64_t good = plim__choose(choosing, worker->values, first, size);
        if (good < size)
            return fail_weight(&list, first + good, (const float *)worker->values + good);
    }
    return PLIM_OK;
}

static plim_status_t draw_long(const by_column_t *column, column_draws_t *all, plim__list_t list)
{
    const int64_t i = all->taken, first = all->used;
    const int64_t *node = &all->draws->nodes[i];
    plim__choosing_t choosing = begin(column, all, i);
    if (is_whole(column, all->draws->hop, list.degree)) {
        take_all(all, list);
    } else {
        PLIM_TRY(choose_chunks(column, all, list, &choosing, false));
        if (plim__choose_twice(&choosing))
            PLIM_TRY(choose_chunks(column, all, list, &choosing, true));
        end_draw(all, list, plim__choose_end(&choosing));
    }
    for (int64_t at = first; at < all->used; at += LIST_MOST) {
        const int64_t indptr[2] = {0, plim__min_i64(all->used - at, LIST_MOST)};
        PLIM_TRY(plim__topology_entries(column->params.below, all->number, node, indptr, 1,
                                        all->drawn->ids + at));
    }
    return PLIM_OK;
}

/* The group of draws from `taken` on: as many as fit, 0 if the ids are full. Their values are those
 * of bounds[0 … n]. A long list is a group of its own. */
static int64_t measure(const by_column_t *column, const column_draws_t *all, int64_t *bounds,
                       int64_t most, bool *long_out)
{
    const plim__draws_t *draws = all->draws;
    const plim__offsets_t *offsets = column->face.offsets;
    column_worker_t *worker = &column->workers[all->number];
    int64_t used = all->used, count = 0, entries = 0;
    bounds[0] = 0;
    *long_out = false;
    for (; count < most; count++) {
        const int64_t i = all->taken + count;
        if (i + AHEAD < draws->count)
            plim__offsets_prefetch(offsets, draws->nodes[i + AHEAD]);
        const plim__list_t list = plim__offsets_list(offsets, draws->nodes[i]);
        const int64_t drawn = plim__draw_count(draws->hop, list.degree);
        const bool needs = !is_whole(column, draws->hop, list.degree);
        if (drawn > all->drawn->capacity - used)
            break;
        if (list.degree > LIST_MOST && (needs || drawn > LIST_MOST)) {
            *long_out = count == 0;
            return count == 0 ? 1 : count;
        }
        if (needs && list.degree > GROUP_ENTRIES - entries)
            break;
        for (int64_t k = 0; k < list.degree && needs; k++)
            worker->numbers[entries + k] = k + (column->params.of_nodes ? 0 : list.start);
        entries += needs ? list.degree : 0;
        used += drawn;
        bounds[count + 1] = entries;
    }
    return count;
}

/* Draws for a group: values of the column, then positions, then their entries. */
static plim_status_t draw_group(const by_column_t *column, column_draws_t *all,
                                const int64_t *bounds, int64_t count)
{
    const plim__draws_t *draws = all->draws;
    const int64_t first = all->taken, from = all->used;
    const char *values = (const char *)column->workers[all->number].values;
    const size_t width = plim__feature_bytes(type_of(column));
    if (bounds[count] > 0)
        PLIM_TRY(gather(column, all->number, draws->nodes + first, bounds, count));
    for (int64_t i = 0; i < count; i++) {
        const plim__list_t list = plim__offsets_list(column->face.offsets, draws->nodes[first + i]);
        const int64_t size = bounds[i + 1] - bounds[i];
        const void *own = values + (size_t)bounds[i] * width;
        if (size == 0) {
            take_all(all, list);
            continue;
        }
        plim__choosing_t choosing = begin(column, all, first + i);
        const int64_t good = plim__choose(&choosing, own, 0, size);
        if (good < size)
            return fail_weight(&list, good, (const float *)own + good);
        if (plim__choose_twice(&choosing))
            plim__choose_again(&choosing, own, 0, size);
        end_draw(all, list, plim__choose_end(&choosing));
    }
    int64_t indptr[GROUP_DRAWS + 1];
    for (int64_t i = 0; i <= count; i++)
        indptr[i] = all->drawn->indptr[first + i] - from;
    return plim__topology_entries(column->params.below, all->number, draws->nodes + first, indptr,
                                  count, all->drawn->ids + from);
}

static plim_status_t draw(plim__topology_t *source, int number, const plim__draws_t *draws,
                          plim__drawn_t *drawn)
{
    const by_column_t *column = (const by_column_t *)source;
    column_draws_t all = {
        .number = number, .draws = draws, .drawn = drawn, .prefix = plim__draw_prefix(draws->hop)};
    int64_t bounds[GROUP_DRAWS + 1];
    drawn->indptr[0] = 0;
    while (all.taken < draws->count) {
        const int64_t most = plim__min_i64(draws->count - all.taken, GROUP_DRAWS);
        bool is_long;
        const int64_t count = measure(column, &all, bounds, most, &is_long);
        if (count == 0)
            break;
        const plim__list_t list = plim__offsets_list(column->face.offsets, draws->nodes[all.taken]);
        PLIM_TRY(is_long ? draw_long(column, &all, list) : draw_group(column, &all, bounds, count));
    }
    if (all.taken == 0 && draws->count > 0)
        return plim__fail(
            PLIM_ERR_BUDGET, "the neighbours of node %lld at hop %d do not fit %lld entries",
            (long long)draws->nodes[0], draws->hop->hop + 1, (long long)drawn->capacity);
    drawn->taken = all.taken;
    return PLIM_OK;
}

static plim_status_t degrees(plim__topology_t *source, int number, const int64_t *nodes,
                             int64_t count, int32_t *degrees_out)
{
    return plim__topology_degrees(((const by_column_t *)source)->params.below, number, nodes, count,
                                  degrees_out);
}

static plim_status_t entries(plim__topology_t *source, int number, const int64_t *nodes,
                             const int64_t *indptr, int64_t count, int64_t *ids)
{
    return plim__topology_entries(((const by_column_t *)source)->params.below, number, nodes,
                                  indptr, count, ids);
}

plim_status_t plim__topology_by_column_create(const plim_job_t *job,
                                              const plim__topology_by_column_params_t *params,
                                              plim__topology_t **source_out)
{
    by_column_t draft = {.params = *params}, *column;
    PLIM_TRY(plim__object_create(job->ledger, "I/O", lay_out, &draft, sizeof draft, &draft.arena,
                                 &column));
    plim__arena_touch(&column->arena);
    column->face =
        (plim__topology_t){draw, degrees, entries, params->below->disk, params->below->offsets};
    *source_out = &column->face;
    return PLIM_OK;
}

void plim__topology_by_column_destroy(plim__topology_t *source)
{
    if (source != NULL) {
        plim__arena_t arena = ((by_column_t *)source)->arena;
        plim__arena_destroy(&arena);
    }
}
