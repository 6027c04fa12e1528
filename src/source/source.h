/*
 * What topologies and tables of rows share: a file of the dataset, a reader and its buffers for
 * each worker, counters, and a cache (source/cache.h) that the same readers fill.
 */
#ifndef PLIM_SOURCE_SOURCE_H
#define PLIM_SOURCE_SOURCE_H

#include "base/node_set.h"
#include "io/range_reader.h"
#include "mem/droppable.h"
#include "store/dataset.h"

typedef struct plim__cache plim__cache_t;

/* Reads by batched direct I/O; reads less than `merge_distance` bytes apart are merged. */
typedef struct plim__source_params {
    int number; /* of the topology or table in the manifest */
    int workers;
    int depth;                      /* I/Os in flight of each worker */
    size_t merge_distance;          /* see plim__range_reader_params_t */
    bool all;                       /* everything is cached; the fields below are ignored */
    const plim__node_set_t *cached; /* nodes with cached items; sealed, borrowed; NULL: none */
    size_t cache_bytes;             /* of the cache: the first nodes' items that fit */
    struct plim__working_set *working_set; /* caches its first places instead; NULL: none */
    unsigned column; /* rows: 0, or a plim_column_t, whose entries are the rows instead */
} plim__source_params_t;

/* Counters of all workers since the source was created. Its items are lists or rows. */
typedef struct plim__source_stats {
    int64_t items;      /* lists drawn from, or rows gathered */
    int64_t cached;     /* items found in the cache */
    int64_t lost;       /* cached items that were dropped */
    int64_t transfers;  /* I/Os for the other items */
    int64_t bytes_read; /* by these I/Os */
    int64_t wait_ns;    /* wait for them, summed over workers */
} plim__source_stats_t;

typedef struct plim__source_worker {
    plim__range_reader_t *reader;
    plim__read_t *reads; /* (num_reads) */
    uint64_t *keys;      /* (num_keys) sort keys, and as many for the sort */
    uint64_t *sort_scratch;
    /* Written by the worker, read by any thread: see plim__source_stats_t. */
    _Alignas(PLIM__LINE) _Atomic int64_t items;
    _Atomic int64_t cached;
    _Atomic int64_t lost;
    _Atomic int64_t transfers;
    _Atomic int64_t bytes_read;
    _Atomic int64_t wait_ns;
} plim__source_worker_t;

/* The part of a source on disk that does not depend on its kind. */
typedef struct plim__source {
    const char *items;                  /* "lists" or "rows" */
    plim__arena_t arena;                /* of the object that this is part of */
    const plim__manifest_file_t *entry; /* the file in the manifest */
    plim__file_t file;
    size_t max_read; /* the largest single read */
    int64_t num_reads;
    int64_t num_keys;
    int num_workers;
    plim__source_worker_t *workers; /* (num_workers) */
    plim__cache_t *cache;           /* NULL: none */
} plim__source_t;

/* Carves the workers, whose number and sizes are set. */
void plim__source_lay_out(plim__arena_t *arena, plim__source_t *source);

/* Bytes of the workers' readers. */
size_t plim__source_readers_bytes(const plim_job_t *job, const plim__source_t *source,
                                  const plim__source_params_t *params);

/* Opens source->entry and makes the readers. After an error, too, the source is closed by
 * plim__source_close, which releases the arena. */
plim_status_t plim__source_open(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__source_params_t *params, plim__source_t *source);
void plim__source_close(plim__source_t *source);

/* Executes `count` of the worker's reads, from `first` on, and counts them. Errors of
 * plim__range_reader_read. */
plim_status_t plim__source_read(plim__source_t *source, int worker, const plim__file_t *file,
                                int64_t first, int64_t count);

/* Each counter has one writer, so adding needs no locked instruction. */
static inline void plim__source_count(_Atomic int64_t *counter, int64_t by)
{
    atomic_store_explicit(counter, atomic_load_explicit(counter, memory_order_relaxed) + by,
                          memory_order_relaxed);
}

/* These accept NULL, for a source that is not on disk. Any thread. */
plim__source_stats_t plim__source_stats(const plim__source_t *source);
plim__droppable_t *plim__source_memory(const plim__source_t *source); /* of its cache, or NULL */

/* Reads dropped items again, as worker `worker`: see plim__droppable_refresh. */
plim_status_t plim__source_refresh(plim__source_t *source, int worker, int64_t nanoseconds);

#endif
