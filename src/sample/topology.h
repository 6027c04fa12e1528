/*
 * A topology source draws the neighbours of nodes at a hop: from disk with a cache in front, or
 * from a window that was drawn before. The answers are the same for every kind of source.
 */
#ifndef PLIM_SAMPLE_TOPOLOGY_H
#define PLIM_SAMPLE_TOPOLOGY_H

#include "base/node_set.h"
#include "mem/droppable.h"
#include "sample/draw.h"

typedef struct plim__topology plim__topology_t;

/* Neighbours of several nodes: those of nodes[i] are ids[indptr[i]] … ids[indptr[i+1]-1]. */
typedef struct plim__drawn {
    int64_t *indptr;  /* (nodes + 1), from 0 */
    int64_t *ids;     /* (capacity) */
    int64_t capacity; /* of ids */
    int64_t taken;    /* how many of the nodes were answered: fewer when ids was full */
} plim__drawn_t;

/* Counted since the source was made, by all workers. */
typedef struct plim__topology_stats {
    int64_t lists;        /* lists drawn from, */
    int64_t lists_cached; /* and those found in memory */
    int64_t transfers;    /* I/Os */
    int64_t bytes_read;   /* by them */
    int64_t wait_ns;      /* waited for them, summed over workers */
} plim__topology_stats_t;

/* The interface of a source: the first member of its struct. */
struct plim__topology {
    plim_status_t (*draw)(plim__topology_t *source, int worker, const plim__hop_t *hop,
                          const int64_t *nodes, int64_t count, plim__drawn_t *drawn);
    plim_status_t (*degrees)(plim__topology_t *source, int worker, const int64_t *nodes,
                             int64_t count, int32_t *degrees_out);
    void (*stats)(plim__topology_t *source, plim__topology_stats_t *stats_out);
    void (*destroy)(plim__topology_t *source);
};

/*
 * Draws for nodes[0 … count-1], in any order, each node valid. Workers 0 … workers-1 of a source
 * may draw at once, each number by one thread at a time. At least one node must fit drawn->capacity
 * (fan-out -1: the longest list), else PLIM_ERR_BUDGET. On disk, ascending nodes and large counts
 * read best. PLIM_ERR_IO, PLIM_ERR_DATA for an entry that is no node.
 */
static inline plim_status_t plim__topology_draw(plim__topology_t *source, int worker,
                                                const plim__hop_t *hop, const int64_t *nodes,
                                                int64_t count, plim__drawn_t *drawn)
{
    return source->draw(source, worker, hop, nodes, count, drawn);
}

/* How long the whole lists of nodes[0 … count-1] are, in any order, each node valid. As the draws
 * go, but for datasets whose longest list is below 2^31 only. */
static inline plim_status_t plim__topology_degrees(plim__topology_t *source, int worker,
                                                   const int64_t *nodes, int64_t count,
                                                   int32_t *degrees_out)
{
    return source->degrees(source, worker, nodes, count, degrees_out);
}

static inline void plim__topology_stats(plim__topology_t *source, plim__topology_stats_t *stats_out)
{
    source->stats(source, stats_out);
}

static inline void plim__topology_destroy(plim__topology_t *source)
{
    if (source != NULL)
        source->destroy(source);
}

/*
 * indices.npy on disk, the drawn entries read by batched direct I/O: sorted, those less than
 * `merge_distance` bytes apart joined. The list cache (sample/list_cache.h) keeps the lists of the
 * nodes in `cached`, at most cache_bytes of them in ascending order of nodes, or all lists.
 * `offsets` is borrowed and must outlive the source.
 */
typedef struct plim__topology_disk_params {
    int workers;
    int depth;                      /* I/Os in flight, for each worker */
    size_t merge_distance;          /* see plim__reader_params_t */
    bool all;                       /* all lists are cached; the fields below are ignored */
    const plim__node_set_t *cached; /* sealed; borrowed; NULL or empty: none */
    size_t cache_bytes;
} plim__topology_disk_params_t;

/* Bytes of the source, and additional bytes while its cache is filled. */
size_t plim__topology_disk_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__topology_disk_params_t *params);
size_t plim__topology_disk_filling(const plim_job_t *job,
                                   const plim__topology_disk_params_t *params);
plim_status_t plim__topology_disk_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim__offsets_t *offsets,
                                         const plim__topology_disk_params_t *params,
                                         plim__topology_t **source_out);

/*
 * The memory of the source's cache, or NULL; and reading dropped lists again, as worker `worker`
 * (see plim__droppable_refresh). Both accept a source of another kind, which has no cache.
 */
plim__droppable_t *plim__topology_disk_memory(const plim__topology_t *source);
plim_status_t plim__topology_disk_refresh(plim__topology_t *source, int worker,
                                          int64_t nanoseconds);

#endif
