/*
 * Measuring batch sizes for the plan. A probe draws the neighbourhoods of some training seeds:
 * dataset.json bounds their size by degrees, but only drawing shows which nodes repeat and how long
 * their lists are.
 */
#ifndef PLIM_LOAD_PROBE_H
#define PLIM_LOAD_PROBE_H

#include "sample/reach.h"
#include "store/dataset.h"

#include <plimsoll/loader.h>

#define PLIM__PROBE_SIZES 3

/* Size of a batch, or of a window of batches taken as one. */
typedef struct plim__load_size {
    int64_t nodes; /* distinct ones, seeds included */
    int64_t edges; /* entries of indptr and indices over all hops */
} plim__load_size_t;

/* The size of one batch, and its seeds. */
typedef struct plim__probe_size {
    int64_t seeds;
    int64_t nodes;
    int64_t edges; /* entries of indptr and indices over all hops */
} plim__probe_size_t;

typedef struct plim__probe {
    int count;
    plim__probe_size_t sizes[PLIM__PROBE_SIZES]; /* ascending by seeds */
} plim__probe_t;

/* Peak memory of a probe; SIZE_MAX when none is possible. */
size_t plim__probe_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim_recipe_t *recipe);

/*
 * Draws batches of a few sizes, each four times the one before, for seeds spread over the training
 * split, from lists on disk. The result depends only on the dataset and on how the recipe draws,
 * not on its seed. PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_STOPPED.
 */
plim_status_t plim__probe_run(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_recipe_t *recipe, plim__probe_t *probe_out);

/*
 * Measures which nodes `together` training seeds need, and how often, by a pass over indices.npy
 * for each hop. PLIM_ERR_BUDGET where that does not fit in memory; PLIM_ERR_NOMEM, PLIM_ERR_IO,
 * PLIM_ERR_DATA, PLIM_ERR_STOPPED.
 */
plim_status_t plim__probe_reach(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim_recipe_t *recipe, int64_t together,
                                plim__reach_t *reach_out);

#define PLIM__LARGEST_GRAPH_BYTES ((size_t)512 << 10) /* peak memory of plim__largest_graph */

/*
 * The most nodes and the most edges of any graph in a dataset of many graphs, by one pass over
 * graph_indptr.npy and indptr.npy. PLIM_ERR_DATA when they do not ascend, PLIM_ERR_IO,
 * PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED.
 */
plim_status_t plim__largest_graph(const plim_job_t *job, const plim_dataset_t *dataset,
                                  int64_t *nodes_out, int64_t *edges_out);

#endif
