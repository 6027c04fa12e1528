/*
 * Pairs of nodes as seeds. Slots, windows and steps count seeds, and the distinct nodes of a batch
 * of pairs are known only when it is built. So a batch of pairs is a batch of *places*, whose
 * number follows from that of its pairs:
 *
 *     negative pairs     | sources | of negatives | targets | of negatives |
 *     negative targets   | sources | targets | negatives |
 *
 * The nodes of places are a function of (links, seed, epoch, places of the pairs in the epoch);
 * windows draw for them as if they were seeds. When a batch is built, its seeds are the distinct
 * nodes of its places, ascending, and the batch keeps which seed each place is. In disjoint batches
 * each place is a seed.
 */
#ifndef PLIM_LOAD_LINKS_H
#define PLIM_LOAD_LINKS_H

#include "load/links_file.h"
#include "load/negatives.h"
#include "sample/blocks.h"

/* The number of places of a batch of `pairs` pairs; saturating. */
int64_t plim__links_places(const plim_links_t *links, int64_t pairs);

/* The number of pairs of a batch of `places` places. */
int64_t plim__links_pairs(const plim_links_t *links, int64_t places);

/* The number of places of all batches; saturating. */
int64_t plim__links_seeds(const plim_links_t *links, int64_t batch_pairs);

/* Copies a caller's links, with defaults for fields that it does not know, and checks them but for
 * the nodes. PLIM_ERR_USAGE; PLIM_ERR_UNSUPPORTED for more places than batches can have. */
plim_status_t plim__links_take(const plim_links_t *given, const plim_dataset_info_t *info,
                               const plim_recipe_t *recipe, int64_t batch_pairs,
                               plim_links_t *links_out);

/* PLIM_ERR_USAGE for negatives, edges to leave out, or ranks that are not possible. */
plim_status_t plim__links_check_negatives(const plim_links_t *links);

/* PLIM_ERR_USAGE for running sums that descend, are not finite, or end with 0. */
plim_status_t plim__links_check_sums(const double *sums, int64_t num_nodes);

/* The place of the first target of a batch. */
int64_t plim__links_targets(const plim_links_t *links, int64_t pairs);

/* Gives the places of a batch, disjoint, the times of its pairs, which `times` has at first. */
void plim__links_times(const plim_links_t *links, int64_t pairs, int64_t *times);

/*
 * Replaces the nodes of places by the seeds, and returns their number. Each place's seed goes to
 * index_out. `keys` and index_out hold as many entries as there are places.
 */
int64_t plim__links_unite(int64_t *nodes, int64_t places, int64_t num_nodes, uint64_t *keys,
                          int64_t *index_out);

/*
 * The edges to leave out of a batch, as plim__blocks_out_t has them: in `keys` or `scratch`, which
 * hold as many entries as there are places. index[i] is the seed of place i, or, disjoint, its
 * node.
 */
const uint64_t *plim__links_excluded(const plim_links_t *links, int64_t pairs, const int64_t *index,
                                     uint64_t *keys, uint64_t *scratch, int64_t *count_out);

#endif
