/*
 * Blocks: what a model sees of the graph for some seeds. The nodes come in the order they are met,
 * seeds first; each hop is a block of edges in local ids (positions in `nodes`).
 *
 *     nodes   | seeds | met at hop 0 | met at hop 1 | …
 *     hop 0   destinations: seeds                       sources: seeds, met at hop 0
 *     hop 1   destinations: all met before it           sources: all so far             (native)
 *             destinations: met at hop 0 only                                           (PyG's
 * form)
 *
 * Native: every node met so far draws again at each hop, so a seed's neighbourhood does not depend
 * on the other seeds, and a batch may be cut into parts. PyG's form: a node is expanded once, at
 * the hop after it was first met. New nodes are numbered in the order of destinations, then of
 * draws.
 *
 * Disjoint: each seed has a tree of its own. A node that several trees meet is a node in each of
 * them, and draws in each by that tree's keys; otherwise nothing differs.
 */
#ifndef PLIM_SAMPLE_BLOCKS_H
#define PLIM_SAMPLE_BLOCKS_H

#include "source/topology.h"

#include <plimsoll/loader.h>

typedef struct plim__blocks plim__blocks_t; /* one worker's scratch */

/* Destination of the result: a slot's arrays. */
typedef struct plim__blocks_out {
    plim_dtype_t index_type; /* PLIM_I32 or PLIM_I64: type of indptr and indices */
    plim_dtype_t node_type;  /* … and of nodes */
    void *nodes;             /* (node_capacity); NULL: not written */
    void *trees;             /* (node_capacity) whose tree each node is in: the seed's position in
                                `seeds`; NULL: without. Only if disjoint */
    int64_t node_capacity;   /* below 2^31 */
    /* (edge_capacity) the indices of all hops from the front, each hop's indptr at the end. With
     * targets twice as many entries: the targets of all edges follow the indices. */
    void *edges;
    int64_t edge_capacity; /* for indptr and indices */
    bool with_targets;
    int num_hops;
    plim_block_t blocks[PLIM__HOPS_MAX];
    int64_t num_nodes;
    int64_t num_edges;  /* of all hops */
    int64_t *edge_ids;  /* (edge_capacity) positions of the edges in indices.npy; NULL: without */
    const int64_t *ids; /* (num_nodes) the nodes as int64; in the scratch until its next use */
    const uint64_t *excluded; /* (num_excluded) ascending: edges that are left out after all draws:
                                 between seeds, by their places; in trees by nodes below 2^32 */
    int64_t num_excluded;
} plim__blocks_out_t;

/* An edge between two seeds, by their places, or between two nodes. */
static inline uint64_t plim__blocks_edge(int64_t source, int64_t target)
{
    return (uint64_t)target << 32 | (uint64_t)source;
}

typedef struct plim__blocks_params {
    int num_hops;
    int64_t fanout[PLIM__HOPS_MAX];
    bool replace;
    bool skip_loops;    /* leaves out drawn edges from a node to itself */
    bool with_edge_ids; /* results may have edge_ids */
    plim_form_t form;
    int node_bits; /* disjoint: those of the graph's node numbers; 0: trees share nodes */
    uint64_t seed;
    int64_t node_capacity; /* nodes of the largest result */
    int64_t most_drawn;    /* the longest single draw: the largest fan-out, or the longest list */
    int64_t repeats;       /* of plim__blocks_bound: most seeds of a result that repeat others */
} plim__blocks_params_t;

size_t plim__blocks_estimate(const plim__blocks_params_t *params);
plim_status_t plim__blocks_create(const plim_job_t *job, const plim__blocks_params_t *params,
                                  plim__blocks_t **blocks_out);
void plim__blocks_destroy(plim__blocks_t *blocks);

/* Sets the seed, the number of hops and their fan-outs; none may draw more than most_drawn. */
void plim__blocks_draw_as(plim__blocks_t *blocks, uint64_t seed, int num_hops,
                          const int64_t *fanout);

/* Bits of a node's number among `num_nodes`, at least 1. With those of a tree's number at most 63.
 */
int plim__blocks_node_bits(int64_t num_nodes);

/* The next results, if they are disjoint, are of the trees `first`, first + 1, …: draws depend on
 * these numbers. until[i] is the latest time in the tree of seed i; NULL: no times decide. */
void plim__blocks_trees(plim__blocks_t *blocks, int64_t first, const int64_t *until);

/*
 * Builds the blocks around `seeds` (valid; duplicate seeds give duplicate nodes), drawing as worker
 * `worker` of the source. *fits_out is false if a capacity was too small: the result is then
 * undefined, and fewer seeds may fit. Errors are those of the source.
 */
plim_status_t plim__blocks_build(plim__blocks_t *blocks, plim__topology_t *source, int worker,
                                 int64_t epoch, const int64_t *seeds, int64_t count,
                                 plim__blocks_out_t *out, bool *fits_out);

/* Upper bounds of nodes and of entries in `edges`, without targets, for `num_seeds` seeds;
 * saturating. */
void plim__blocks_bound(const plim__blocks_params_t *params, int64_t num_graph_nodes,
                        int64_t num_graph_edges, int64_t max_degree, int64_t num_seeds,
                        int64_t *nodes_out, int64_t *edges_out);

#endif
