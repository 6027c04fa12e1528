/*
 * A topology source draws the neighbours of nodes at a hop: from disk behind a cache, as a column
 * of it decides, or from a window. The result is the same for every kind of source.
 */
#ifndef PLIM_SOURCE_TOPOLOGY_H
#define PLIM_SOURCE_TOPOLOGY_H

#include "source/choose.h"
#include "source/draw.h"
#include "source/rows.h"
#include "source/source.h"

typedef struct plim__topology plim__topology_t;

/* Neighbours of several nodes: those of nodes[i] are ids[indptr[i]] … ids[indptr[i+1]-1]. */
typedef struct plim__drawn {
    int64_t *indptr;    /* (nodes + 1), from 0 */
    int64_t *ids;       /* (capacity) */
    int64_t capacity;   /* capacity of ids */
    int64_t taken;      /* number of nodes done: fewer if ids is full */
    int64_t *positions; /* (capacity) of the ids in indices.npy; NULL: not wanted */
} plim__drawn_t;

/* The interface of a source: the first member of its struct. */
struct plim__topology {
    plim_status_t (*draw)(plim__topology_t *source, int worker, const plim__draws_t *draws,
                          plim__drawn_t *drawn);
    plim_status_t (*degrees)(plim__topology_t *source, int worker, const int64_t *nodes,
                             int64_t count, int32_t *degrees_out);
    plim_status_t (*entries)(plim__topology_t *source, int worker, const int64_t *nodes,
                             const int64_t *indptr, int64_t count,
                             int64_t *ids); /* NULL in a window */
    plim__source_t *disk;                   /* NULL: not on disk */
    const plim__offsets_t *offsets;         /* of the lists, for positions */
};

/*
 * Workers 0 … workers-1 of a source may draw at once, each number by one thread at a time. At least
 * one node must fit drawn->capacity (fan-out -1: the longest list), otherwise PLIM_ERR_BUDGET. On
 * disk, ascending nodes and large counts are fastest. PLIM_ERR_IO, PLIM_ERR_DATA for an entry that
 * is not a node.
 */
static inline plim_status_t plim__topology_draw(plim__topology_t *source, int worker,
                                                const plim__draws_t *draws, plim__drawn_t *drawn)
{
    return source->draw(source, worker, draws, drawn);
}

/* Lengths of the whole lists of nodes[0 … count-1], in any order, each node valid. Concurrency as
 * for draws; only for datasets whose longest list is below 2^31. */
static inline plim_status_t plim__topology_degrees(plim__topology_t *source, int worker,
                                                   const int64_t *nodes, int64_t count,
                                                   int32_t *degrees_out)
{
    return source->degrees(source, worker, nodes, count, degrees_out);
}

/*
 * Replaces positions in lists by their entries: ids[indptr[i]] … ids[indptr[i+1]-1] are of the list
 * of nodes[i], at most PLIM__FANOUT_MAX. Concurrency and errors as for draws.
 */
static inline plim_status_t plim__topology_entries(plim__topology_t *source, int worker,
                                                   const int64_t *nodes, const int64_t *indptr,
                                                   int64_t count, int64_t *ids)
{
    return source->entries(source, worker, nodes, indptr, count, ids);
}

/*
 * indices.npy on disk, behind the list cache (source/list_cache.h). Reads the drawn entries,
 * sorted. `offsets` is borrowed and must outlive the source.
 */

/* Bytes of the source, and additional bytes while its cache is filled. */
size_t plim__topology_disk_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__source_params_t *params);
size_t plim__topology_disk_filling(const plim_job_t *job, const plim__source_params_t *params);
plim_status_t plim__topology_disk_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim__offsets_t *offsets,
                                         const plim__source_params_t *params,
                                         plim__topology_t **source_out);
void plim__topology_disk_destroy(plim__topology_t *source);

/* Lists that the cache misses are read from the set from now on, which outlives the source, if it
 * has them. Any thread, while others draw. */
void plim__topology_disk_use(plim__topology_t *source, struct plim__working_set *set);

/*
 * Draws that a column decides (source/choose.h), from the lists of another source. The column's
 * entries are those of edges, or with `of_nodes` those of the neighbours. Both sources are
 * borrowed, and have the same `workers`. Account "I/O". PLIM_ERR_DATA for a weight that is negative
 * or not finite.
 */
typedef struct plim__topology_by_column_params {
    plim__topology_t *below;
    plim__rows_t *column;
    plim__choice_t choice;
    bool of_nodes;
    int workers;
} plim__topology_by_column_params_t;

size_t plim__topology_by_column_estimate(int workers);
plim_status_t plim__topology_by_column_create(const plim_job_t *job,
                                              const plim__topology_by_column_params_t *params,
                                              plim__topology_t **source_out);
void plim__topology_by_column_destroy(plim__topology_t *source);

#endif
