/*
 * Counts what plim__blocks_build would build in PyG's form, without building it. Draws depend on
 * (seed, epoch, hop, node) only, so the nodes of a hop may draw in any order: sets of bits replace
 * local ids, and take the same memory however large the batch is.
 */
#ifndef PLIM_SAMPLE_BLOCK_COUNT_H
#define PLIM_SAMPLE_BLOCK_COUNT_H

#include "sample/blocks.h"

typedef struct plim__block_count plim__block_count_t; /* one worker's scratch */

/* Scratch for a graph of num_nodes nodes, and draws of at most most_drawn. Account "slots". */
size_t plim__block_count_estimate(int64_t num_nodes, int64_t most_drawn);
plim_status_t plim__block_count_create(const plim_job_t *job, int64_t num_nodes, int64_t most_drawn,
                                       plim__block_count_t **count_out);
void plim__block_count_destroy(plim__block_count_t *count);

/*
 * Counts the nodes and the entries of `edges`, without targets, of the blocks around `seeds`, drawn
 * as params say, as worker `worker` of the source. Errors are those of the source.
 */
plim_status_t plim__block_count_run(plim__block_count_t *count, plim__topology_t *source,
                                    int worker, const plim__blocks_params_t *params, int64_t epoch,
                                    const int64_t *seeds, int64_t num_seeds, int64_t *nodes_out,
                                    int64_t *edges_out);

#endif
