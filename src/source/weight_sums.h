/*
 * What GCN has for degrees where edges have weights: for each node the sum of the weights of the
 * edges into it from other nodes, and its own weight: that of its last self-loop, else 1.
 */
#ifndef PLIM_SOURCE_WEIGHT_SUMS_H
#define PLIM_SOURCE_WEIGHT_SUMS_H

#include "mem/arena.h"
#include "source/offsets.h"

/* One that is zeroed is harmless to destroy. */
typedef struct plim__weight_sums {
    plim__arena_t arena;
    float *sums; /* (num_nodes) */
} plim__weight_sums_t;

/* Bytes of the object; minimum of additional memory while it is made. */
size_t plim__weight_sums_estimate(int64_t num_nodes);
size_t plim__weight_sums_work_minimum(const plim_job_t *job);

/*
 * One pass over edge_weight.npy, and, where there may be self-loops, over indices.npy, with as many
 * threads as memory allows. The values do not depend on their number. Account "edge columns".
 * PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED.
 */
plim_status_t plim__weight_sums_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim__offsets_t *offsets,
                                       plim__weight_sums_t *sums_out);
void plim__weight_sums_destroy(plim__weight_sums_t *sums);

/* Of many nodes; prefetches. */
void plim__weight_sums_of(const plim__weight_sums_t *sums, const int64_t *nodes, int64_t count,
                          float *sums_out);

#endif
