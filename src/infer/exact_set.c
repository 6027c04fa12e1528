/* The nodes that each layer is computed for, and the walks over their lists and rows. */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/npy.h"

#include <string.h>

/* Lists or rows that are further apart are read separately. */
#define MERGE_BYTES ((int64_t)16 << 10)

plim_status_t plim__exact_damage(plim__exact_t *exact)
{
    const int64_t entry = atomic_load(&exact->damaged), edge = atomic_load(&exact->damaged_edge);
    if (edge >= 0)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: row %lld has a type or a category that is not below the number of "
                          "them",
                          exact->column.path, (long long)edge);
    if (atomic_load(&exact->damaged_row))
        return plim__fail(PLIM_ERR_DATA,
                          "%s: a node has a category that is not below the number of them",
                          exact->features.path);
    if (entry < 0)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: entry %lld is not a valid node, or changed while it was read; copy or "
                      "create the dataset again",
                      exact->indices.path, (long long)entry);
}

plim__exact_lists_t plim__exact_lists_of(const plim__exact_t *exact, const plim__exact_set_t *set)
{
    const int64_t bytes = (int64_t)plim__index_bytes(exact->info->index_type);
    return (plim__exact_lists_t){.exact = exact,
                                 .set = set,
                                 .range_rows = exact->sizes.range_rows,
                                 .most = exact->sizes.chunk /
                                         plim__max_i64(bytes, exact->sizes.column.bytes),
                                 .node = set->count > 0 ? plim__exact_node_at(set, 0) : -1,
                                 .entry = -1};
}

/* All nodes of a stripe: their lists are adjacent, so a chunk is the next `most` entries, or where
 * totals of lists are needed as many whole lists. A node is its position + `away`. */
static int64_t next_dense(plim__exact_lists_t *lists, int64_t start, int64_t end, int64_t away)
{
    const plim__offsets_t *offsets = lists->exact->offsets;
    const plim__list_t last = plim__offsets_list(offsets, end - 1 + away);
    int64_t stop = last.start + last.degree;
    if (stop - start <= lists->most) {
        lists->position = end;
        lists->entry = -1;
        return stop;
    }
    stop = start + lists->most;
    int64_t low = lists->position, high = end; /* the last list that begins before `stop` */
    while (high - low > 1) {
        const int64_t middle = low + (high - low) / 2;
        if (plim__offsets_list(offsets, middle + away).start < stop)
            low = middle;
        else
            high = middle;
    }
    const plim__list_t cut = plim__offsets_list(offsets, low + away);
    const bool split = cut.start + cut.degree > stop;
    if (split && lists->exact->sizes.column.totals > 0 && low > lists->position) {
        lists->position = low;
        lists->entry = -1;
        return cut.start;
    }
    lists->position = split ? low : low + 1;
    lists->entry = split ? stop : -1;
    return stop;
}

/* Some nodes: a chunk merges lists that are near each other; a long list comes in several chunks.
 */
static int64_t next_sparse(plim__exact_lists_t *lists, int64_t start, int64_t end)
{
    const plim__exact_t *exact = lists->exact;
    const int64_t merge = MERGE_BYTES / (int64_t)plim__index_bytes(exact->info->index_type);
    int64_t stop = start;
    while (lists->position < end) {
        const plim__list_t list = plim__offsets_list(exact->offsets, lists->node);
        const int64_t list_end = list.start + list.degree;
        if (list.degree > 0 && stop == start && lists->entry < 0 && list.start > start)
            return stop; /* the chunk holds only empty lists */
        if (list.degree > 0 && list_end - start > lists->most) {
            if (stop > start)
                return stop;
            lists->entry = start + lists->most;
            return lists->entry;
        }
        if (list.degree > 0 && stop > start && list.start - stop > merge)
            return stop;
        stop = list.degree > 0 ? list_end : stop;
        lists->entry = -1;
        lists->position++;
        lists->node = plim__exact_node_after(lists->set, lists->node);
    }
    return stop;
}

bool plim__exact_lists_next(void *context, plim__exact_chunk_t *chunk_out)
{
    plim__exact_lists_t *lists = context;
    const plim__exact_set_t *set = lists->set;
    const int64_t bytes = (int64_t)plim__index_bytes(lists->exact->info->index_type);
    if (lists->position >= set->count)
        return false;
    const int64_t range = lists->position / lists->range_rows;
    const int64_t first = lists->position;
    const int64_t end =
        plim__min_i64((range + 1) * lists->range_rows, plim__exact_run_end(set, first));
    const int64_t node = set->all ? plim__exact_node_at(set, first) : lists->node;
    const int64_t start =
        lists->entry >= 0 ? lists->entry : plim__offsets_list(lists->exact->offsets, node).start;
    const int64_t stop =
        set->all ? next_dense(lists, start, end, node - first) : next_sparse(lists, start, end);
    *chunk_out = (plim__exact_chunk_t){.offset = PLIM__NPY_HEADER + start * bytes,
                                       .size = (stop - start) * bytes,
                                       .range = range,
                                       .first = first,
                                       .end = lists->position + (lists->entry >= 0)};
    return true;
}

plim__exact_rows_t plim__exact_rows_of(const plim__exact_t *exact, const plim__exact_set_t *set,
                                       int64_t first, int64_t end)
{
    return (plim__exact_rows_t){.source = &exact->source,
                                .set = set,
                                .range_rows = exact->sizes.range_rows,
                                .most = exact->sizes.chunk,
                                .position = first,
                                .end = end,
                                .node = first < end ? plim__exact_node_at(set, first) : -1};
}

/* The position in `other` of the set's member `position`, if the members after it, to the end of
 * its run, have the positions after that; else -1. */
static int64_t position_of_run(const plim__exact_set_t *set, const plim__exact_set_t *other,
                               int64_t position)
{
    if (set == other || (set->all && other->all && set->peers == other->peers))
        return position;
    return set->all && other->all && other->peers == 0 ? plim__exact_whole(set, position) : -1;
}

bool plim__exact_rows_next(void *context, plim__exact_chunk_t *chunk_out)
{
    plim__exact_rows_t *rows = context;
    const plim__exact_source_t *source = rows->source;
    if (rows->position >= rows->end)
        return false;
    const int64_t first = rows->position, range = first / rows->range_rows;
    const int64_t end =
        plim__min_i64((range + 1) * rows->range_rows,
                      plim__min_i64(rows->end, plim__exact_run_end(rows->set, first)));
    const int64_t row = position_of_run(rows->set, source->set, first);
    int64_t start, stop;
    if (row >= 0) {
        const int64_t fit = plim__max_i64(1, rows->most / source->row_bytes);
        rows->position = plim__min_i64(first + fit, end);
        start = plim__exact_row_offset(source, row);
        stop = plim__exact_row_offset(source, row + rows->position - first - 1) + source->row_bytes;
    } else {
        start = stop =
            plim__exact_row_offset(source, plim__exact_position(source->set, rows->node));
        for (; rows->position < end; rows->position++) {
            const int64_t at =
                plim__exact_row_offset(source, plim__exact_position(source->set, rows->node));
            if (stop > start &&
                (at - stop > MERGE_BYTES || at + source->row_bytes - start > rows->most))
                break;
            stop = at + source->row_bytes;
            rows->node = plim__exact_node_after(rows->set, rows->node);
        }
    }
    *chunk_out = (plim__exact_chunk_t){.offset = start,
                                       .size = stop - start,
                                       .range = range,
                                       .first = first,
                                       .end = rows->position};
    return true;
}

int plim__exact_stripe_shift(int64_t num_nodes, int peers)
{
    const int64_t lines = num_nodes / PLIM__NODE_SET_BITS + 1;
    int shift = 0;
    while (lines > ((int64_t)peers * PLIM__EXACT_STRIPES) << shift)
        shift++;
    return shift;
}

int64_t plim__exact_stripe_position(const plim__exact_set_t *set, int shift, int64_t stripe)
{
    const int64_t node = plim__exact_stripe_node(shift, stripe);
    if (set->all)
        return set->peers == 0 ? plim__min_i64(node, set->count) : node;
    const int64_t line = stripe << shift;
    return line < set->members.num_lines ? (int64_t)set->members.lines[line].before
                                         : set->members.count;
}

/* The place among the peer's stripes of the one that holds the part's member `position`. */
static int stripe_at(const plim__exact_set_t *part, int64_t position)
{
    int low = 0, high = PLIM__EXACT_STRIPES;
    while (high - low > 1) {
        const int middle = (low + high) / 2;
        if (part->before[middle] <= position)
            low = middle;
        else
            high = middle;
    }
    return low;
}

int64_t plim__exact_part_whole(const plim__exact_set_t *part, int64_t position)
{
    const int place = stripe_at(part, position);
    const int64_t stripe = (int64_t)place * part->peers + part->peer;
    return plim__exact_stripe_position(part, part->shift, stripe) + position - part->before[place];
}

/* The smallest member that is `node` or larger; -1 or an invalid node if there is none. */
int64_t plim__exact_part_skip(const plim__exact_set_t *part, int64_t node)
{
    for (;;) {
        const int64_t stripe = plim__exact_stripe(part->shift, node);
        const int64_t away = (part->peer - stripe % part->peers + part->peers) % part->peers;
        if (node < 0 || away == 0)
            return node;
        node = plim__exact_stripe_node(part->shift, stripe + away);
        if (part->all)
            return node;
        node = node < part->members.universe ? plim__node_set_next(&part->members, node) : -1;
    }
}

int64_t plim__exact_run_end(const plim__exact_set_t *set, int64_t position)
{
    return set->peers == 0 ? set->count : set->before[stripe_at(set, position) + 1];
}

int64_t plim__exact_part_before(const plim__exact_set_t *part, int64_t whole)
{
    if (part->peers == 0)
        return whole;
    if (!part->all && whole >= part->members.count)
        return part->count;
    const int64_t node = part->all ? whole : plim__node_set_select(&part->members, whole);
    const int64_t stripe = plim__exact_stripe(part->shift, node);
    const int64_t round = stripe / part->peers, turn = stripe % part->peers;
    if (turn != part->peer)
        return part->before[round + (turn > part->peer)];
    return part->before[round] + whole - plim__exact_stripe_position(part, part->shift, stripe);
}

/* This peer's part of a set. */
static plim__exact_set_t part_of(const plim__exact_t *exact, const plim__exact_set_t *whole)
{
    const int peers = plim__peers_num_ranks(exact->peers);
    plim__exact_set_t part = *whole;
    part.arena = (plim__arena_t){0};
    if (peers == 1)
        return part;
    part.peers = peers;
    part.peer = plim__peers_rank(exact->peers);
    part.shift = exact->all_nodes.shift;
    part.count = 0;
    for (int place = 0; place <= PLIM__EXACT_STRIPES; place++) {
        const int64_t stripe = (int64_t)place * peers + part.peer;
        part.before[place] = part.count;
        part.count += plim__exact_stripe_position(whole, part.shift, stripe + 1) -
                      plim__exact_stripe_position(whole, part.shift, stripe);
    }
    part.edges = (int64_t)((double)whole->edges * (double)part.count /
                           (double)plim__max_i64(whole->count, 1)); /* for progress */
    return part;
}

static plim_status_t make_set(plim__exact_t *exact, plim__exact_set_t *set)
{
    const size_t bytes = plim__exact_set_bytes(exact->info->num_nodes);
    *set = (plim__exact_set_t){0};
    PLIM_TRY(plim__arena_create(exact->job->ledger, "exact sets", bytes, &set->arena));
    set->members = plim__node_set_make(plim__arena_carve(&set->arena, 1, bytes, PLIM__PAGE),
                                       exact->info->num_nodes);
    return PLIM_OK;
}

static void seal_set(const plim__exact_t *exact, plim__exact_set_t *set)
{
    plim__node_set_seal(&set->members);
    set->count = set->members.count;
    set->edges = 0;
    for (int64_t node = plim__node_set_next(&set->members, 0); node >= 0;
         node = plim__node_set_next(&set->members, node + 1))
        set->edges += plim__offsets_list(exact->offsets, node).degree;
    if (set->count == exact->info->num_nodes) {
        plim__arena_destroy(&set->arena);
        *set = exact->all_nodes;
    }
}

static plim_status_t make_wanted(plim__exact_t *exact, const int64_t *nodes, int64_t count,
                                 plim__exact_set_t *set)
{
    PLIM_TRY(make_set(exact, set));
    for (int64_t i = 0; i < count; i++) {
        if ((uint64_t)nodes[i] >= (uint64_t)exact->info->num_nodes)
            return plim__fail(PLIM_ERR_USAGE, "%s: there is no node %lld among %lld",
                              plim__dataset_path(exact->dataset), (long long)nodes[i],
                              (long long)exact->info->num_nodes);
        (void)plim__node_set_add(&set->members, nodes[i]);
    }
    seal_set(exact, set);
    return PLIM_OK;
}

/* Adds the sources of one chunk of lists to a set. */
typedef struct expand {
    plim__exact_t *exact;
    const plim__exact_set_t *from;
    plim__exact_set_t *set;
    plim__exact_chunk_t chunk;
    int64_t start, stop; /* the chunk's entries */
    const char *data;
} expand_t;

#define EXPAND_LISTS 256

static void expand_lists(void *context, int worker, int64_t task)
{
    (void)worker;
    expand_t *expand = context;
    plim__exact_t *exact = expand->exact;
    const int64_t first = expand->chunk.first + task * EXPAND_LISTS;
    const int64_t end = plim__min_i64(first + EXPAND_LISTS, expand->chunk.end);
    int64_t node = plim__exact_node_at(expand->from, first);
    for (int64_t position = first; position < end; position++) {
        const plim__list_t list = plim__offsets_list(exact->offsets, node);
        const int64_t stop = plim__min_i64(list.start + list.degree, expand->stop);
        for (int64_t i = plim__max_i64(list.start, expand->start); i < stop; i++) {
            const int64_t source = plim__exact_entry(exact, expand->data, i - expand->start);
            if (plim__exact_check(exact, i, source))
                (void)plim__node_set_add(&expand->set->members, source);
        }
        node = plim__exact_node_after(expand->from, node);
    }
}

/* Makes a set of the members of `from`, of which this peer has a part, and the sources of the
 * part. */
static plim_status_t expand_part(plim__exact_t *exact, const plim__exact_set_t *from,
                                 plim__exact_set_t *set)
{
    plim__exact_lists_t lists = plim__exact_lists_of(exact, from);
    const int64_t bytes = (int64_t)plim__index_bytes(exact->info->index_type);
    PLIM_TRY(make_set(exact, set));
    memcpy(set->members.lines, from->members.lines,
           (size_t)from->members.num_lines * sizeof *from->members.lines);
    plim__exact_reader_start(&exact->lists, &exact->indices, NULL, plim__exact_lists_next, &lists);
    while (plim__exact_reader_peek(&exact->lists) != NULL) {
        plim__exact_chunk_t chunk;
        char *data;
        PLIM_TRY(plim__exact_reader_take(&exact->lists, &chunk, &data));
        const int64_t start = (chunk.offset - PLIM__NPY_HEADER) / bytes;
        expand_t expand = {exact, from, set, chunk, start, start + chunk.size / bytes, data};
        plim__team_run(exact->team, (chunk.end - chunk.first + EXPAND_LISTS - 1) / EXPAND_LISTS,
                       20000, expand_lists, &expand);
        PLIM_TRY(plim__exact_damage(exact));
        plim__progress(exact->job, "finding needed inputs", "nodes", chunk.end, from->count);
    }
    if (from->count > 0)
        plim__progress(exact->job, "finding needed inputs", "nodes", from->count, from->count);
    return PLIM_OK;
}

static plim_status_t expand_set(plim__exact_t *exact, const plim__exact_set_t *from,
                                plim__exact_set_t *set)
{
    const plim_status_t status = expand_part(exact, from, set);
    plim__exact_reader_drop(&exact->lists);
    PLIM_TRY(plim__exact_agree(exact, status));
    PLIM_TRY(plim__exact_unite(exact, &set->members));
    seal_set(exact, set);
    return PLIM_OK;
}

plim_status_t plim__exact_sets_make(plim__exact_t *exact, const int64_t *nodes, int64_t count)
{
    const int64_t num_nodes = exact->info->num_nodes;
    exact->all_nodes = (plim__exact_set_t){
        .all = true,
        .count = num_nodes,
        .edges = exact->info->num_edges,
        .shift = plim__exact_stripe_shift(num_nodes, plim__peers_num_ranks(exact->peers))};
    exact->sets[exact->num_layers] = exact->all_nodes;
    if (nodes != NULL)
        PLIM_TRY(plim__exact_agree(
            exact, make_wanted(exact, nodes, count, &exact->sets[exact->num_layers])));
    exact->parts[exact->num_layers] = part_of(exact, &exact->sets[exact->num_layers]);
    for (int i = exact->num_layers - 1; i >= 0; i--) {
        const plim__exact_set_t *to = &exact->sets[i + 1];
        /* So many edges reach most nodes anyway: take all nodes. The bound is higher if the set
         * also limits the destinations of the previous layer. */
        const int64_t many = i > 0 ? plim__mul_saturating_i64(2, num_nodes) : num_nodes / 2;
        if (to->all || (exact->layers[i].aggregates && to->edges >= many))
            exact->sets[i] = exact->all_nodes;
        else if (!exact->layers[i].aggregates)
            exact->sets[i] = *to;
        else
            PLIM_TRY(expand_set(exact, &exact->parts[i + 1], &exact->sets[i]));
        exact->parts[i] = part_of(exact, &exact->sets[i]);
    }
    return PLIM_OK;
}

void plim__exact_sets_end(plim__exact_t *exact)
{
    for (int i = exact->num_layers; i >= 0; i--)
        if (exact->sets[i].arena.base != NULL &&
            (i == 0 || exact->sets[i - 1].arena.base != exact->sets[i].arena.base))
            plim__arena_destroy(&exact->sets[i].arena);
}
