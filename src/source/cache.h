/*
 * A cache of items, the lists or the rows of some nodes or of all, in memory that can be dropped
 * (mem/droppable.h). The items lie in the order of their nodes. This part knows the set of nodes
 * and fills the memory; the layout and what shows that an item was dropped are the kind's: lists
 * (source/list_cache.h) have any length and are complemented, rows (source/row_cache.h) have one
 * length, so they need no table, and carry marks.
 */
#ifndef PLIM_SOURCE_CACHE_H
#define PLIM_SOURCE_CACHE_H

#include "base/job.h"
#include "source/source.h"

#define PLIM__CACHE_CHUNK ((int64_t)512 << 10) /* bytes of a read when all items are cached */

struct plim__cache {
    plim__arena_t arena;
    plim_job_t job;
    plim__droppable_t memory;
    bool all;
    plim__node_set_t nodes;       /* unused if all items are cached; its lines are borrowed */
    int64_t num_items;            /* number of cached items: those of the first nodes */
    plim__source_t *source;       /* borrowed: its workers fill the cache from its file */
    plim__droppable_fill_fn fill; /* of the kind, for a refresh; its context is the cache */
};

/* Position of the node's item among the cached items; -1 if it is not cached. */
static inline int64_t plim__cache_position(const plim__cache_t *cache, int64_t node)
{
    const int64_t position = cache->all ? node : plim__node_set_position(&cache->nodes, node);
    return position < cache->num_items ? position : -1;
}

/* Sets the other fields of a cache that was carved from the arena with its memory, `all` and
 * num_items, and enters it in its source. */
void plim__cache_begin(plim__cache_t *cache, const plim_job_t *job,
                       const plim__source_params_t *params, plim__source_t *source,
                       plim__droppable_fill_fn fill, const plim__arena_t *arena);

/* Additional bytes while the cache is filled. */
size_t plim__cache_filling(const plim_job_t *job, const plim__source_params_t *params);

/*
 * The first filling, by `fill`, on account `account`. Or of all items: a pass over the file's
 * `bytes` bytes after its header, which compares the checksums (`process`, `merge`: see
 * plim__sweep_t).
 */
plim_status_t plim__cache_fill(plim__cache_t *cache, const char *account, const char *phase,
                               plim__droppable_fill_fn fill);
plim_status_t plim__cache_fill_all(plim__cache_t *cache, int64_t bytes, const char *phase,
                                   plim_status_t (*process)(void *context, int worker,
                                                            int64_t chunk, void *data, size_t size),
                                   plim_status_t (*merge)(void *context, int worker, int64_t chunk,
                                                          void *data, size_t size));

/* Releases memory and arena; the kind's own parts are released before. */
void plim__cache_end(plim__cache_t *cache);

/* The cached nodes in ascending order, from one on. */
typedef struct plim__cache_walk {
    const plim__node_set_t *nodes; /* NULL: all nodes */
    int64_t listed[256];
    int64_t count;
    int64_t next;
} plim__cache_walk_t;

void plim__cache_walk_start(plim__cache_walk_t *walk, const plim__node_set_t *nodes, int64_t from);
int64_t plim__cache_walk_next(plim__cache_walk_t *walk); /* -1 after the last of a set */

/* The reads of a filling worker. */
typedef struct plim__cache_reads {
    const plim__source_t *source;
    const plim__file_t *file;
    int worker;
    int64_t count;
} plim__cache_reads_t;

/*
 * Queues a read. Extends the previous read if both file and memory are adjacent; executes the queue
 * when it is full. plim__cache_reads_run executes the rest. Errors of plim__range_reader_read.
 */
plim_status_t plim__cache_reads_add(plim__cache_reads_t *reads, int64_t offset, size_t size,
                                    char *to);
plim_status_t plim__cache_reads_run(plim__cache_reads_t *reads);

#endif
