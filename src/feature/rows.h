/*
 * A row source gathers the rows of nodes in the type that is asked for: from disk with a cache in
 * front, or from a window that was read before.
 */
#ifndef PLIM_FEATURE_ROWS_H
#define PLIM_FEATURE_ROWS_H

#include "base/node_set.h"
#include "mem/droppable.h"
#include "store/dataset.h"

typedef struct plim__rows plim__rows_t;

typedef struct plim__rows_stats {
    int64_t rows;        /* gathered, */
    int64_t rows_cached; /* and those found in the cache */
    int64_t rows_lost;   /* cached ones that were dropped */
    int64_t transfers;
    int64_t bytes_read;
    int64_t wait_ns; /* waited for them, summed over workers */
} plim__rows_stats_t;

/* The interface of a source: the first member of its struct. */
struct plim__rows {
    plim_status_t (*gather)(plim__rows_t *source, int worker, const int64_t *nodes, int64_t count,
                            plim_dtype_t type, void *rows_out);
    void (*stats)(plim__rows_t *source, plim__rows_stats_t *stats_out);
    void (*destroy)(plim__rows_t *source);
};

/*
 * Writes the rows of nodes[0 … count-1], each valid, to rows_out (count, num_features) as `type`
 * (PLIM_F16 or PLIM_F32). Workers 0 … workers-1 may gather at once, each number by one thread at a
 * time. On disk, ascending nodes and large counts read best. PLIM_ERR_IO, PLIM_ERR_DATA.
 */
static inline plim_status_t plim__rows_gather(plim__rows_t *source, int worker,
                                              const int64_t *nodes, int64_t count,
                                              plim_dtype_t type, void *rows_out)
{
    return source->gather(source, worker, nodes, count, type, rows_out);
}

static inline void plim__rows_stats(plim__rows_t *source, plim__rows_stats_t *stats_out)
{
    source->stats(source, stats_out);
}

static inline void plim__rows_destroy(plim__rows_t *source)
{
    if (source != NULL)
        source->destroy(source);
}

/*
 * features.npy on disk, read by batched direct I/O: reads less than `merge_distance` bytes apart
 * are merged. The row cache (feature/row_cache.h) keeps the rows of the nodes in `cached`, the
 * first cache_bytes of them, or all rows.
 */
typedef struct plim__rows_disk_params {
    int workers;
    int depth; /* I/Os in flight, for each worker */
    size_t merge_distance;
    bool all;                       /* all rows are cached; the fields below are ignored */
    const plim__node_set_t *cached; /* sealed, borrowed; NULL: none */
    size_t cache_bytes;
    const char
        *scratch;       /* directory of the packed file for the next start; NULL: none is written */
    uint64_t cache_key; /* of the recipe: names the file */
} plim__rows_disk_params_t;

size_t plim__rows_disk_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__rows_disk_params_t *params);

/* Additional bytes while its cache is filled. */
size_t plim__rows_disk_filling(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim__rows_disk_params_t *params);
plim_status_t plim__rows_disk_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__rows_disk_params_t *params,
                                     plim__rows_t **source_out);

/* Bytes of the packed file for a row cache of cache_bytes. */
int64_t plim__rows_packed_bytes(const plim_dataset_t *dataset, size_t cache_bytes);

/*
 * The memory of the source's cache, or NULL; whether a row is in it (it may be dropped at any
 * time); and reading dropped rows again, as worker `worker` (see plim__droppable_refresh). All
 * accept a source of another kind, which has no cache.
 */
plim__droppable_t *plim__rows_disk_memory(plim__rows_t *source);
bool plim__rows_disk_holds(plim__rows_t *source, int64_t node);
plim_status_t plim__rows_disk_refresh(plim__rows_t *source, int worker, int64_t nanoseconds);

#endif
