/*
 * Negatives of links: nodes that are drawn for the pairs of a batch. Negative j of b pairs belongs
 * to pair j mod b, or, of targets that share a subgraph, to pair j / amount. It is drawn by the
 * pair's place in the epoch of all ranks, not by its batch.
 *
 * A node that is later than the pair's time is drawn again by itself; after LATE_MOST of them it is
 * the earliest node of all. Then edges are refused, where none may be one: they are looked up in
 * the lists of their targets, and drawn again, up to DRAWS_MOST draws. After that the nodes behind
 * the last target are tried one after the other, of negative pairs also for other sources: few
 * nodes have edges to almost all others. With times the last draw stays in place of that, for early
 * pairs may have edges to all nodes that are not late.
 */
#ifndef PLIM_LOAD_NEGATIVES_H
#define PLIM_LOAD_NEGATIVES_H

#include "source/topology.h"

#include <plimsoll/loader.h>

#define PLIM__NEGATIVES_AT_ONCE 64 /* lists looked into at once … */
#define PLIM__NEGATIVES_WIDTH 64   /* … and entries of each */

/* The memory with which one thread looks up negatives, and the targets of edges. */
typedef struct plim__negatives {
    plim__topology_t *lists; /* with offsets */
    int worker;              /* of them */
    plim__rows_t *node_time; /* NULL: times decide no draws */
    int time_worker;         /* of it */
    int64_t earliest;        /* node by node_time; -1: not known yet */
    int64_t earliest_time;
    int64_t *times; /* (pairs) of the batch, by node_time; set before each draw */
    int64_t nodes[PLIM__NEGATIVES_AT_ONCE];
    int64_t indptr[PLIM__NEGATIVES_AT_ONCE + 1];
    int64_t entries[PLIM__NEGATIVES_AT_ONCE * PLIM__NEGATIVES_WIDTH];
} plim__negatives_t;

/* A batch of pairs: the first is the first-th of the epoch. */
typedef struct plim__links_batch {
    const plim_links_t *links;
    int64_t num_nodes;
    uint64_t seed;
    int64_t epoch;
    int64_t first, pairs;
    bool disjoint;
} plim__links_batch_t;

/* The number of negatives of a batch of `pairs` pairs; saturating. */
int64_t plim__negatives_count(const plim_links_t *links, int64_t pairs);

/* Whether a stream needs a plim__negatives_t: its negatives are looked up, or its pairs are edges.
 */
bool plim__negatives_look(const plim_links_t *links, const plim_recipe_t *recipe);

/*
 * Draws the negatives of a batch of pairs with these sources. sources_out is for negative pairs
 * alone. `negatives` may be NULL unless plim__negatives_look. PLIM_ERR_USAGE if no node is left;
 * errors of reading lists and times.
 */
plim_status_t plim__negatives_draw(const plim__links_batch_t *batch, plim__negatives_t *negatives,
                                   const int64_t *sources, int64_t *sources_out,
                                   int64_t *targets_out);

#endif
