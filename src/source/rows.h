/*
 * A row source gathers the rows of nodes in the requested type: from disk behind a cache, or from a
 * window. A column of edges (or nodes) is such a source too, whose rows are the entries of the
 * edges at some positions of indices.npy: from disk without a cache, or from memory.
 */
#ifndef PLIM_SOURCE_ROWS_H
#define PLIM_SOURCE_ROWS_H

#include "source/source.h"

typedef struct plim__rows plim__rows_t;

/* The interface of a source: the first member of its struct. */
struct plim__rows {
    plim_status_t (*gather)(plim__rows_t *source, int worker, const int64_t *nodes, int64_t count,
                            plim_dtype_t type, void *rows_out);
    plim__source_t *disk; /* NULL: not on disk */
};

/*
 * Writes the rows of nodes[0 … count-1], each valid, to rows_out (count, num_features) as `type`
 * (PLIM_F16 or PLIM_F32; integers only as PLIM_I64). Workers 0 … workers-1 may gather at once, each
 * number by one thread at a time. On disk, ascending nodes and large counts are fastest.
 * PLIM_ERR_IO, PLIM_ERR_DATA.
 */
static inline plim_status_t plim__rows_gather(plim__rows_t *source, int worker,
                                              const int64_t *nodes, int64_t count,
                                              plim_dtype_t type, void *rows_out)
{
    return source->gather(source, worker, nodes, count, type, rows_out);
}

/* features.npy on disk, behind the row cache (source/row_cache.h). */
size_t plim__rows_disk_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__source_params_t *params);

/* Additional bytes while its cache is filled. */
size_t plim__rows_disk_filling(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim__source_params_t *params);
plim_status_t plim__rows_disk_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__source_params_t *params,
                                     plim__rows_t **source_out);
void plim__rows_disk_destroy(plim__rows_t *source);

/* Rows that the cache misses are read from the set from now on, which outlives the source, as those
 * of the working set that it was created with. Any thread, while others gather. */
void plim__rows_disk_use(plim__rows_t *source, struct plim__working_set *set);

/* Whether the source's cache holds the node's row, which may be dropped at any time. */
bool plim__rows_disk_holds(const plim__rows_t *source, int64_t node);

/* A column wholly in memory, in the account "edge columns". Reading it compares its checksums.
 * PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA. */
size_t plim__rows_memory_estimate(const plim_dataset_t *dataset, unsigned column);
plim_status_t plim__rows_memory_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       unsigned column, plim__rows_t **source_out);
void plim__rows_memory_destroy(plim__rows_t *source);

#endif
