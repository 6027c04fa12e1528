/*
 * Where each node's list begins in indices.npy, and how long it is: indptr.npy at about a byte a
 * node. One cache line holds 56 nodes, so a question costs one cache miss:
 *
 *     | start of the first list, and the number of the line's first long list | 56 degrees |
 *
 * A degree of 128 or more is stored in a table of long lists, whose size is known from
 * dataset.json's degree counts; its byte is a mark.
 */
#ifndef PLIM_SOURCE_OFFSETS_H
#define PLIM_SOURCE_OFFSETS_H

#include "store/dataset.h"

typedef struct plim__offsets plim__offsets_t;

/* A list is entries [start, start + degree) of indices.npy. */
typedef struct plim__list {
    int64_t start;
    int64_t degree;
} plim__list_t;

/* Bytes of the object, `skip_loops` as below; minimum of additional memory while it is read. */
size_t plim__offsets_estimate(const plim_dataset_t *dataset, bool skip_loops);
size_t plim__offsets_work_minimum(const plim_job_t *job);

/*
 * Reads indptr.npy once, sequentially, with as many threads as memory allows. Account "offsets".
 * With `skip_loops`, if the dataset has self-loops, it also reads indices.npy and counts each
 * node's: degrees then leave them out. If dataset.json does not say whether there are any, a first
 * pass finds out.
 * PLIM_ERR_DATA if the offsets do not ascend from 0 to the number of edges or contradict the degree
 * counts of dataset.json; PLIM_ERR_UNSUPPORTED for more lists than a line can number; PLIM_ERR_IO,
 * PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED.
 */
plim_status_t plim__offsets_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                   bool skip_loops, plim__offsets_t **offsets_out);
void plim__offsets_destroy(plim__offsets_t *offsets);

/* Any thread; 0 ≤ node < num_nodes. */
plim__list_t plim__offsets_list(const plim__offsets_t *offsets, int64_t node);

/* The node whose list holds an entry of indices.npy. */
int64_t plim__offsets_node_of(const plim__offsets_t *offsets, int64_t entry);
void plim__offsets_prefetch(const plim__offsets_t *offsets, int64_t node);

/* Whether degrees leave self-loops out, and there are any. */
bool plim__offsets_skip_loops(const plim__offsets_t *offsets);

/* A node's degree. Many degrees, all below 2^31; prefetches their cache lines. */
int64_t plim__offsets_degree(const plim__offsets_t *offsets, int64_t node);
void plim__offsets_degrees(const plim__offsets_t *offsets, const int64_t *nodes, int64_t count,
                           int32_t *degrees_out);

#endif
