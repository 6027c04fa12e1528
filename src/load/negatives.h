/*
 * Negatives of links: nodes that are drawn for the pairs of a batch. Negative j of b pairs belongs
 * to pair j mod b, or of targets to pair j / amount. It is drawn by the pair's place in the epoch
 * of all ranks, not by its batch.
 *
 * Where none may be an edge, each is looked up in the list of its target, and drawn again up to
 * DRAWS_MOST times. Then the nodes behind the last target are tried one after the other: few nodes
 * have edges to almost all others.
 */
#ifndef PLIM_LOAD_NEGATIVES_H
#define PLIM_LOAD_NEGATIVES_H

#include "base/job.h"
#include "source/topology.h"

#include <plimsoll/loader.h>

#define PLIM__NEGATIVES_AT_ONCE 64 /* lists looked into at once … */
#define PLIM__NEGATIVES_WIDTH 64   /* … and entries of each */

/* What one thread looks negatives up with. */
typedef struct plim__negatives {
    const plim_job_t *job;
    plim__topology_t *lists; /* with offsets */
    int worker;              /* of them */
    int64_t nodes[PLIM__NEGATIVES_AT_ONCE];
    int64_t indptr[PLIM__NEGATIVES_AT_ONCE + 1];
    int64_t entries[PLIM__NEGATIVES_AT_ONCE * PLIM__NEGATIVES_WIDTH];
} plim__negatives_t;

/* The number of negatives of a batch of so many pairs; saturating. */
int64_t plim__negatives_count(const plim_links_t *links, int64_t pairs);

/*
 * Draws the negatives of a batch of so many pairs, whose first is the first-th of the epoch and
 * whose sources are `sources`. sources_out only of negative pairs. `negatives` may be NULL if they
 * may be edges. PLIM_ERR_USAGE for a node that has none; errors of reading lists.
 */
plim_status_t plim__negatives_draw(const plim_links_t *links, plim__negatives_t *negatives,
                                   int64_t num_nodes, uint64_t seed, int64_t epoch, int64_t first,
                                   int64_t pairs, const int64_t *sources, int64_t *sources_out,
                                   int64_t *targets_out);

#endif
