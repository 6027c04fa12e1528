/* How large the largest of many graphs is, which dataset.json does not say. */
#ifndef PLIM_LOAD_LARGEST_GRAPH_H
#define PLIM_LOAD_LARGEST_GRAPH_H

#include "store/dataset.h"

#define PLIM__LARGEST_GRAPH_BYTES ((size_t)512 << 10) /* what finding it holds in memory */

/*
 * The most nodes of any graph, and the most edges, by one pass over graph_indptr.npy and
 * indptr.npy. PLIM_ERR_DATA when they do not ascend, PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM,
 * PLIM_ERR_STOPPED.
 */
plim_status_t plim__largest_graph(const plim_job_t *job, const plim_dataset_t *dataset,
                                  int64_t *nodes_out, int64_t *edges_out);

#endif
