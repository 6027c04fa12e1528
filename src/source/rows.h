/*
 * A row source gathers the rows of nodes in the requested type: from disk behind a cache, or from a
 * window.
 */
#ifndef PLIM_SOURCE_ROWS_H
#define PLIM_SOURCE_ROWS_H

#include "base/node_set.h"
#include "mem/droppable.h"
#include "store/dataset.h"

typedef struct plim__rows plim__rows_t;

typedef struct plim__rows_stats {
    int64_t rows;        /* gathered rows */
    int64_t rows_cached; /* rows found in the cache */
    int64_t rows_lost;   /* cached rows that were dropped */
    int64_t transfers;
    int64_t bytes_read;
    int64_t wait_ns; /* wait for I/O, summed over workers */
} plim__rows_stats_t;

/* The interface of a source: the first member of its struct. */
struct plim__rows {
    plim_status_t (*gather)(plim__rows_t *source, int worker, const int64_t *nodes, int64_t count,
                            plim_dtype_t type, void *rows_out);
};

/*
 * Writes the rows of nodes[0 … count-1], each valid, to rows_out (count, num_features) as `type`
 * (PLIM_F16 or PLIM_F32). Workers 0 … workers-1 may gather at once, each number by one thread at a
 * time. On disk, ascending nodes and large counts are fastest. PLIM_ERR_IO, PLIM_ERR_DATA.
 */
static inline plim_status_t plim__rows_gather(plim__rows_t *source, int worker,
                                              const int64_t *nodes, int64_t count,
                                              plim_dtype_t type, void *rows_out)
{
    return source->gather(source, worker, nodes, count, type, rows_out);
}

/*
 * features.npy on disk. Reads by batched direct I/O and merges reads less than `merge_distance`
 * bytes apart. The row cache (source/row_cache.h) holds the rows of the nodes in `cached`, the
 * first cache_bytes of them, or all rows.
 */
typedef struct plim__rows_disk_params {
    int workers;
    int depth; /* I/Os in flight of each worker */
    size_t merge_distance;
    bool all;                       /* all rows are cached; the fields below are ignored */
    const plim__node_set_t *cached; /* sealed, borrowed; NULL: no cache */
    size_t cache_bytes;
    const char *scratch; /* directory of the packed file for the next start; NULL: no file */
    uint64_t cache_key;  /* of the recipe; names the file */
} plim__rows_disk_params_t;

size_t plim__rows_disk_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__rows_disk_params_t *params);

/* Additional bytes while its cache is filled. */
size_t plim__rows_disk_filling(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim__rows_disk_params_t *params);
plim_status_t plim__rows_disk_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__rows_disk_params_t *params,
                                     plim__rows_t **source_out);
void plim__rows_disk_destroy(plim__rows_t *source);
void plim__rows_disk_stats(plim__rows_t *source, plim__rows_stats_t *stats_out);

/* Bytes of the packed file for a row cache of cache_bytes. */
int64_t plim__rows_packed_bytes(const plim_dataset_t *dataset, size_t cache_bytes);

/*
 * The memory of the source's cache, or NULL; whether it holds a row (which may be dropped at any
 * time); and a refresh of dropped rows, as worker `worker` (see plim__droppable_refresh). All
 * accept other kinds of sources, which have no cache.
 */
plim__droppable_t *plim__rows_disk_memory(plim__rows_t *source);
bool plim__rows_disk_holds(plim__rows_t *source, int64_t node);
plim_status_t plim__rows_disk_refresh(plim__rows_t *source, int worker, int64_t nanoseconds);

#endif
