/*
 * Blocks, hop by hop: destinations in chunks, each chunk drawn by the source, then its drawn ids
 * turned into local ids and written in the wanted type.
 *
 * Local ids are found in an open-addressing table. A slot holds a local id and, in the bits that
 * leaves, a tag of the node, so that a node not met before is almost always known from one slot,
 * and only one that was met is compared with its place in `nodes`:
 *
 *     | tag: 32 - bits | local id: bits |      of a table with 2^bits slots
 *
 * In disjoint blocks a tree's number stands above the bits of the node, so the same node in two
 * trees is two entries.
 *
 * The table is as large as the batch needs, not as the largest needs: it starts at what the last
 * batch came to and is rebuilt when it grows too full, so small batches stay in L1.
 */
#include "sample/blocks.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"

#include <string.h>

#define CHUNK_NODES 512
#define CHUNK_ENTRIES 4096
#define RUN 256  /* ids relabelled between two capacity checks */
#define AHEAD 16 /* drawn ids whose table slot is prefetched */
#define EMPTY UINT32_MAX
#define LEAST_BITS 6 /* minimum log2 of the table size */

struct plim__blocks {
    plim__arena_t arena;
    plim__blocks_params_t params;
    int64_t *nodes; /* (node_capacity + RUN + 1) nodes of the batch, in local order; while disjoint
                       blocks are built, with their trees above node_bits */
    int64_t num_nodes;
    uint32_t *table; /* (2^most_bits), the first 2^bits in use */
    unsigned bits;
    unsigned most_bits;
    int64_t full;           /* above this number of nodes the table is rebuilt */
    int64_t expected_nodes; /* nodes of the last batch; initial size of the next table */
    plim__drawn_t drawn;    /* draws of one chunk */
    int64_t *positions;     /* (drawn.capacity) of them, with edge ids */
    int64_t first_tree;     /* number of the first seed's tree, if disjoint */
    int64_t *tree_nodes;    /* (CHUNK_NODES) of one chunk, without their trees; if disjoint */
    int64_t *owners;        /* (CHUNK_NODES) of their draws; if disjoint */
    int64_t *until;         /* (CHUNK_NODES) of their draws; if disjoint */
    const int64_t *times;   /* the latest of each tree, borrowed; NULL: no times decide */
};

/* A result under construction. */
typedef struct writing {
    plim__blocks_out_t *out;
    int64_t num_edges; /* indices written so far, from the front of out->edges */
    int64_t indptr;    /* entry of out->edges where the last indptr begins */
    int64_t left;      /* of out->edge_capacity */
} writing_t;

/* log2 of the smallest table that is at most two thirds full with `num_nodes`. */
static unsigned bits_for(int64_t num_nodes)
{
    unsigned bits = LEAST_BITS;
    while (bits < 32 && ((int64_t)1 << bits) / 3 * 2 < num_nodes)
        bits++;
    return bits;
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__blocks_t *blocks = object;
    const int64_t nodes = blocks->params.node_capacity + RUN;
    blocks->most_bits = bits_for(nodes);
    blocks->nodes = plim__arena_carve(arena, (size_t)nodes + 1, sizeof(int64_t), 1);
    blocks->table = plim__arena_carve(arena, (size_t)1 << blocks->most_bits, sizeof(uint32_t), 1);
    blocks->drawn.capacity = plim__max_i64(CHUNK_ENTRIES, blocks->params.most_drawn);
    blocks->drawn.indptr = plim__arena_carve(arena, CHUNK_NODES + 1, sizeof(int64_t), 1);
    blocks->drawn.ids =
        plim__arena_carve(arena, (size_t)blocks->drawn.capacity, sizeof(int64_t), 1);
    if (blocks->params.with_edge_ids)
        blocks->positions =
            plim__arena_carve(arena, (size_t)blocks->drawn.capacity, sizeof(int64_t), 1);
    if (blocks->params.node_bits > 0) {
        blocks->tree_nodes = plim__arena_carve(arena, CHUNK_NODES, sizeof(int64_t), 1);
        blocks->owners = plim__arena_carve(arena, CHUNK_NODES, sizeof(int64_t), 1);
        blocks->until = plim__arena_carve(arena, CHUNK_NODES, sizeof(int64_t), 1);
    }
}

size_t plim__blocks_estimate(const plim__blocks_params_t *params)
{
    plim__blocks_t draft = {.params = *params};
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

plim_status_t plim__blocks_create(const plim_job_t *job, const plim__blocks_params_t *params,
                                  plim__blocks_t **blocks_out)
{
    plim__blocks_t draft = {.params = *params}, *blocks;
    PLIM_TRY(plim__object_create(job->ledger, "slots", lay_out, &draft, sizeof draft, &draft.arena,
                                 &blocks));
    plim__arena_want_huge(blocks->arena.base, blocks->arena.size);
    plim__arena_touch(&blocks->arena);
    *blocks_out = blocks;
    return PLIM_OK;
}

void plim__blocks_destroy(plim__blocks_t *blocks)
{
    if (blocks != NULL)
        plim__arena_destroy(&blocks->arena);
}

void plim__blocks_draw_as(plim__blocks_t *blocks, uint64_t seed, int num_hops,
                          const int64_t *fanout)
{
    blocks->params.seed = seed;
    blocks->params.num_hops = num_hops;
    memcpy(blocks->params.fanout, fanout, (size_t)num_hops * sizeof *fanout);
}

int plim__blocks_node_bits(int64_t num_nodes)
{
    return num_nodes <= 2 ? 1 : 64 - __builtin_clzll((uint64_t)num_nodes - 1);
}

void plim__blocks_trees(plim__blocks_t *blocks, int64_t first, const int64_t *until)
{
    blocks->first_tree = first;
    blocks->times = until;
}

/* The high bits are a node's slot; of the low 32, those above `bits` are its tag. */
static inline uint64_t hash_of(int64_t node)
{
    return (uint64_t)node * 0x9e3779b97f4a7c15u;
}

/* Rebuilds the table for at least `num_nodes`, with the current nodes. */
static void rebuild(plim__blocks_t *blocks, int64_t num_nodes)
{
    unsigned bits = bits_for(num_nodes);
    blocks->bits = bits < blocks->most_bits ? bits : blocks->most_bits;
    blocks->full = ((int64_t)1 << blocks->bits) / 3 * 2;
    memset(blocks->table, 0xff, sizeof blocks->table[0] << blocks->bits);
    const uint64_t mask = ((uint64_t)1 << blocks->bits) - 1;
    for (int64_t i = 0; i < blocks->num_nodes; i++) {
        uint64_t hash = hash_of(blocks->nodes[i]);
        uint64_t slot = hash >> (64 - blocks->bits);
        while (blocks->table[slot] != EMPTY)
            slot = (slot + 1) & mask;
        blocks->table[slot] = (uint32_t)((hash & ~mask) | (uint64_t)i);
    }
}

/*
 * The local id of a node; a new node gets `next`. Branches on whether it is new would be
 * mispredicted, so the node is always written after the last one.
 */
static inline uint32_t local_id(int64_t *nodes, uint32_t *table, unsigned bits, int64_t node,
                                uint32_t next)
{
    const uint32_t mask = (uint32_t)(((uint64_t)1 << bits) - 1);
    const uint64_t hash = hash_of(node);
    const uint32_t tag = (uint32_t)hash & ~mask;
    uint32_t slot = (uint32_t)(hash >> (64 - bits));
    nodes[next] = node;
    for (;; slot = (slot + 1) & mask) {
        uint32_t entry = table[slot];
        bool empty = entry == EMPTY;
        if ((!empty & ((entry & ~mask) != tag)) != 0)
            continue;
        uint32_t local = empty ? next : entry & mask;
        if (nodes[local] != node)
            continue;
        table[slot] = tag | local;
        return local;
    }
}

/* Converts drawn ids to local ids, for both types. The caller has checked the capacity. */
#define RELABEL(name, type)                                                                        \
    static void name(plim__blocks_t *blocks, const int64_t *ids, int64_t count, type *locals_out)  \
    {                                                                                              \
        int64_t *nodes = blocks->nodes;                                                            \
        uint32_t *table = blocks->table;                                                           \
        const unsigned bits = blocks->bits;                                                        \
        uint32_t next = (uint32_t)blocks->num_nodes;                                               \
        for (int64_t i = 0; i < count; i++) {                                                      \
            int64_t ahead = ids[i + AHEAD < count ? i + AHEAD : i];                                \
            __builtin_prefetch(&table[hash_of(ahead) >> (64 - bits)], 1);                          \
            uint32_t local = local_id(nodes, table, bits, ids[i], next);                           \
            next += local == next;                                                                 \
            locals_out[i] = (type)local;                                                           \
        }                                                                                          \
        blocks->num_nodes = next;                                                                  \
    }

RELABEL(relabel_i32, int32_t)
RELABEL(relabel_i64, int64_t)

static void *edges_at(const plim__blocks_out_t *out, int64_t place)
{
    return out->index_type == PLIM_I32 ? (void *)((int32_t *)out->edges + place)
                                       : (void *)((int64_t *)out->edges + place);
}

static void put(void *array, plim_dtype_t type, int64_t place, int64_t value)
{
    if (type == PLIM_I32)
        ((int32_t *)array)[place] = (int32_t)value;
    else
        ((int64_t *)array)[place] = value;
}

/* Relabels ids; false if the nodes exceed their capacity. */
static bool relabel(plim__blocks_t *blocks, const plim__blocks_out_t *out, const int64_t *ids,
                    int64_t count, int64_t place)
{
    const int64_t capacity = plim__min_i64(out->node_capacity, blocks->params.node_capacity);
    for (int64_t run; count > 0; ids += run, place += run, count -= run) {
        run = plim__min_i64(count, RUN);
        if (blocks->num_nodes + run > blocks->full)
            rebuild(blocks, blocks->num_nodes + run);
        if (out->index_type == PLIM_I32)
            relabel_i32(blocks, ids, run, edges_at(out, place));
        else
            relabel_i64(blocks, ids, run, edges_at(out, place));
        if (blocks->num_nodes > capacity)
            return false;
    }
    return true;
}

/* Removes draws of the destinations themselves. */
static void drop_loops(const int64_t *nodes, plim__drawn_t *drawn)
{
    int64_t kept = 0, i = 0;
    for (int64_t j = 0; j < drawn->taken; j++) {
        for (; i < drawn->indptr[j + 1]; i++) {
            drawn->ids[kept] = drawn->ids[i];
            if (drawn->positions != NULL)
                drawn->positions[kept] = drawn->positions[i];
            kept += drawn->ids[i] != nodes[j];
        }
        drawn->indptr[j + 1] = kept;
    }
}

static inline int64_t tree_of(const plim__blocks_t *blocks, int64_t node)
{
    return node >> blocks->params.node_bits;
}

static inline int64_t without_tree(const plim__blocks_t *blocks, int64_t node)
{
    return node & (((int64_t)1 << blocks->params.node_bits) - 1);
}

/* The draws of `count` of the batch's nodes: disjoint trees own theirs. */
static plim__draws_t draws_of(plim__blocks_t *blocks, const plim__hop_t *hop, const int64_t *nodes,
                              int64_t count)
{
    plim__draws_t draws = plim__draws_of(hop, nodes, count);
    if (blocks->params.node_bits == 0)
        return draws;
    for (int64_t i = 0; i < count; i++) {
        const int64_t node = without_tree(blocks, nodes[i]), tree = tree_of(blocks, nodes[i]);
        blocks->tree_nodes[i] = node;
        blocks->owners[i] = plim__draw_owner(blocks->first_tree + tree, node);
        if (blocks->times != NULL)
            blocks->until[i] = blocks->times[tree];
    }
    draws.nodes = blocks->tree_nodes;
    draws.owners = blocks->owners;
    draws.until = blocks->times != NULL ? blocks->until : NULL;
    return draws;
}

/* Puts the trees of the destinations above the drawn nodes. */
static void add_trees(const plim__blocks_t *blocks, const int64_t *nodes, plim__drawn_t *drawn)
{
    for (int64_t i = 0; i < drawn->taken; i++) {
        const int64_t tree = nodes[i] - without_tree(blocks, nodes[i]);
        for (int64_t j = drawn->indptr[i]; j < drawn->indptr[i + 1]; j++)
            drawn->ids[j] |= tree;
    }
}

/* Draws for destinations [first, first + count) of the batch and builds their block; false if it
 * does not fit. */
static plim_status_t build_hop(plim__blocks_t *blocks, plim__topology_t *source, int worker,
                               const plim__hop_t *hop, int64_t first, int64_t count,
                               writing_t *writing, bool *fits_out)
{
    plim__blocks_out_t *out = writing->out;
    plim__drawn_t *drawn = &blocks->drawn;
    *fits_out = false;
    if (count + 1 > writing->left)
        return PLIM_OK;
    writing->left -= count + 1;
    writing->indptr -= count + 1;
    void *indptr = edges_at(out, writing->indptr);
    const int64_t begin = writing->num_edges;
    int64_t num_edges = 0;
    put(indptr, out->index_type, 0, 0);
    for (int64_t done = 0; done < count; done += drawn->taken) {
        const int64_t *nodes = blocks->nodes + first + done;
        const plim__draws_t draws =
            draws_of(blocks, hop, nodes, plim__min_i64(count - done, CHUNK_NODES));
        PLIM_TRY(plim__topology_draw(source, worker, &draws, drawn));
        if (blocks->params.skip_loops)
            drop_loops(draws.nodes, drawn);
        if (blocks->params.node_bits > 0)
            add_trees(blocks, nodes, drawn);
        int64_t added = drawn->indptr[drawn->taken];
        if (added > writing->left - num_edges ||
            (out->index_type == PLIM_I32 && added > INT32_MAX - num_edges) ||
            !relabel(blocks, out, drawn->ids, added, begin + num_edges))
            return PLIM_OK;
        for (int64_t i = 1; i <= drawn->taken; i++)
            put(indptr, out->index_type, done + i, num_edges + drawn->indptr[i]);
        if (out->edge_ids != NULL)
            memcpy(out->edge_ids + begin + num_edges, drawn->positions,
                   (size_t)added * sizeof *out->edge_ids);
        num_edges += added;
    }
    writing->num_edges += num_edges;
    writing->left -= num_edges;
    out->blocks[hop->hop] = (plim_block_t){.num_dst = count,
                                           .first_dst = first,
                                           .num_src = blocks->num_nodes,
                                           .num_edges = num_edges,
                                           .indptr = indptr,
                                           .indices = edges_at(out, begin)};
    *fits_out = true;
    return PLIM_OK;
}

static int64_t get(const void *array, plim_dtype_t type, int64_t place)
{
    return type == PLIM_I32 ? ((const int32_t *)array)[place] : ((const int64_t *)array)[place];
}

static bool is_excluded(const plim__blocks_out_t *out, int64_t source, int64_t target)
{
    const uint64_t edge = plim__blocks_edge(source, target);
    int64_t low = 0, high = out->num_excluded;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (out->excluded[middle] < edge)
            low = middle + 1;
        else
            high = middle;
    }
    return low < out->num_excluded && out->excluded[low] == edge;
}

/* Leaves out the excluded edges of a block that begins at entry `from`; it begins at `to` then. Of
 * the first num_seeds nodes edges are known by their places, in trees (0) by their nodes. */
static int64_t exclude_from(const plim__blocks_out_t *out, plim_block_t *block, int64_t num_seeds,
                            int64_t from, int64_t to)
{
    const plim_dtype_t type = out->index_type;
    void *indptr = (char *)out->edges + ((const char *)block->indptr - (const char *)out->edges);
    int64_t kept = to, entry = from;
    for (int64_t i = 0; i < block->num_dst; i++) {
        const int64_t target = block->first_dst + i;
        const int64_t end = from + get(indptr, type, i + 1);
        for (; entry < end; entry++) {
            const int64_t source = get(out->edges, type, entry);
            if (num_seeds == 0
                    ? is_excluded(out, out->ids[source], out->ids[target])
                    : source < num_seeds && target < num_seeds && is_excluded(out, source, target))
                continue;
            put(out->edges, type, kept, source);
            if (out->edge_ids != NULL)
                out->edge_ids[kept] = out->edge_ids[entry];
            kept++;
        }
        put(indptr, type, i + 1, kept - to);
    }
    block->indices = edges_at(out, to);
    block->num_edges = kept - to;
    return kept;
}

static void exclude(plim__blocks_out_t *out, int64_t num_seeds)
{
    int64_t entry = 0, kept = 0;
    for (int i = 0; i < out->num_hops; i++) {
        const int64_t edges = out->blocks[i].num_edges;
        kept = exclude_from(out, &out->blocks[i], num_seeds, entry, kept);
        entry += edges;
    }
    out->num_edges = kept;
}

/* Writes the target of each edge of a block; returns where they end. */
#define WRITE_TARGETS(name, type)                                                                  \
    static type *name(const plim_block_t *block, type *targets_out)                                \
    {                                                                                              \
        const type *indptr = block->indptr;                                                        \
        for (int64_t i = 0; i < block->num_dst; i++)                                               \
            for (type j = indptr[i]; j < indptr[i + 1]; j++)                                       \
                *targets_out++ = (type)(block->first_dst + i);                                     \
        return targets_out;                                                                        \
    }

WRITE_TARGETS(write_targets_i32, int32_t)
WRITE_TARGETS(write_targets_i64, int64_t)

static void write_targets(const plim__blocks_out_t *out)
{
    void *targets = edges_at(out, out->num_edges);
    for (int i = 0; i < out->num_hops; i++)
        targets = out->index_type == PLIM_I32 ? (void *)write_targets_i32(&out->blocks[i], targets)
                                              : (void *)write_targets_i64(&out->blocks[i], targets);
}

/* Parts the nodes of disjoint blocks from their trees. */
static void part_trees(plim__blocks_t *blocks, const plim__blocks_out_t *out)
{
    for (int64_t i = 0; i < blocks->num_nodes; i++) {
        if (out->trees != NULL)
            put(out->trees, out->index_type, i, tree_of(blocks, blocks->nodes[i]));
        blocks->nodes[i] = without_tree(blocks, blocks->nodes[i]);
    }
}

plim_status_t plim__blocks_build(plim__blocks_t *blocks, plim__topology_t *source, int worker,
                                 int64_t epoch, const int64_t *seeds, int64_t count,
                                 plim__blocks_out_t *out, bool *fits_out)
{
    const plim__blocks_params_t *params = &blocks->params;
    writing_t writing = {.out = out,
                         .indptr = (out->with_targets ? 2 : 1) * out->edge_capacity,
                         .left = out->edge_capacity};
    bool fits = count <= plim__min_i64(out->node_capacity, params->node_capacity);
    if (fits) {
        memcpy(blocks->nodes, seeds, (size_t)count * sizeof *seeds);
        for (int64_t i = 0; i < count && params->node_bits > 0; i++)
            blocks->nodes[i] |= i << params->node_bits;
        blocks->num_nodes = count;
        rebuild(blocks, plim__max_i64(count, blocks->expected_nodes));
    }
    blocks->drawn.positions = out->edge_ids != NULL ? blocks->positions : NULL;
    int64_t first = 0;
    for (int i = 0; i < params->num_hops && fits; i++) {
        const plim__hop_t hop = {params->seed, epoch, i, params->fanout[i], params->replace};
        int64_t end = blocks->num_nodes;
        PLIM_TRY(build_hop(blocks, source, worker, &hop, first, end - first, &writing, &fits));
        first = params->form == PLIM_PYG ? end : 0;
    }
    if (fits && params->node_bits > 0)
        part_trees(blocks, out);
    if (fits) {
        for (int64_t i = 0; i < blocks->num_nodes && out->nodes != NULL; i++)
            put(out->nodes, out->node_type, i, blocks->nodes[i]);
        out->num_hops = params->num_hops;
        out->num_nodes = blocks->num_nodes;
        out->num_edges = writing.num_edges;
        out->ids = blocks->nodes;
        blocks->expected_nodes = blocks->num_nodes + RUN;
    }
    if (fits && out->num_excluded > 0)
        exclude(out, params->node_bits > 0 ? 0 : count);
    if (fits && out->with_targets)
        write_targets(out);
    *fits_out = fits;
    return PLIM_OK;
}

void plim__blocks_bound(const plim__blocks_params_t *params, int64_t num_graph_nodes,
                        int64_t num_graph_edges, int64_t max_degree, int64_t num_seeds,
                        int64_t *nodes_out, int64_t *edges_out)
{
    int64_t nodes = num_seeds, edges = 0, destinations = num_seeds;
    if (params->node_bits > 0 && num_seeds > 1) {
        plim__blocks_bound(params, num_graph_nodes, num_graph_edges, max_degree, 1, &nodes, &edges);
        *nodes_out = plim__mul_saturating_i64(nodes, num_seeds);
        *edges_out = plim__mul_saturating_i64(edges, num_seeds);
        return;
    }
    for (int i = 0; i < params->num_hops; i++) {
        const plim__hop_t hop = {.fanout = params->fanout[i], .replace = params->replace};
        const int64_t most = plim__draw_count(&hop, max_degree);
        int64_t drawn = plim__mul_saturating_i64(destinations, most);
        /* Without replacement an entry is drawn once for each place of its destination. */
        if (hop.fanout < 0 || !hop.replace)
            drawn = plim__min_i64(
                drawn, plim__add_saturating_i64(num_graph_edges,
                                                plim__mul_saturating_i64(params->repeats, most)));
        edges = plim__add_saturating_i64(
            edges, plim__add_saturating_i64(plim__add_saturating_i64(destinations, 1), drawn));
        nodes = plim__min_i64(plim__add_saturating_i64(nodes, drawn),
                              plim__add_saturating_i64(num_graph_nodes, params->repeats));
        destinations = params->form == PLIM_PYG ? plim__min_i64(drawn, num_graph_nodes - 1) : nodes;
    }
    *nodes_out = nodes;
    *edges_out = edges;
}
