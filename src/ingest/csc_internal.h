/* Internals of the CSC build, for src/ingest/csc*.c only. */
#ifndef PLIM_INGEST_CSC_INTERNAL_H
#define PLIM_INGEST_CSC_INTERNAL_H

#include "ingest/csc.h"
#include "ingest/spill.h"

#include <pthread.h>
#include <stdatomic.h>

/* How a build uses its memory. Follows from job and parameters. */
typedef struct plim__csc_shape {
    int64_t keys;       /* upper bound: edges, doubled by symmetrise */
    int64_t loops;      /* keys that self-loops may add: num_nodes or 0 */
    int source_bits;    /* low bits of a key; the destination is above */
    int range_bits;     /* a range is 2^range_bits destinations */
    int64_t num_ranges; /* at least 1 */
    int combine;        /* keys that a worker gathers for a range before taking its lock */
    int sorters;        /* maximum threads of finish */
    int split_bits;     /* a range too large for an area is split into at most 2^split_bits parts */
    int split_levels;   /* maximum splits in a row; fewer bits: more levels, fewer parts in all */
    size_t column_buffer;
    plim__spill_params_t spill; /* tmp is NULL when all keys fit into memory */
    size_t total;               /* bytes of arena, engine, columns and stacks */
} plim__csc_shape_t;

/* The shape for params->memory. False when that is too little. */
bool plim__csc_shape(const plim_job_t *job, const plim__csc_params_t *params,
                     plim__csc_shape_t *shape_out);

/* An area in which one thread sorts: at least this many chunks, two halves of whole chunks. */
#define PLIM__CSC_AREA_CHUNKS 16

/* Keys of a range that are not in the spill yet, guarded by the lock, and the list in the spill. */
typedef struct plim__csc_range {
    _Alignas(64) pthread_mutex_t lock;
    uint64_t *buffer; /* NULL: no buffer */
    int64_t fill;     /* keys in it */
    plim__spill_list_t list;
} plim__csc_range_t;

/* The keys that a worker has gathered for each range. */
typedef struct plim__csc_gather {
    uint64_t *keys; /* (num_ranges, combine) */
    uint16_t *fill; /* (num_ranges) */
} plim__csc_gather_t;

/* One part of a range that is being split. */
typedef struct plim__csc_part {
    plim__spill_list_t list;
    uint64_t *buffer;
    int64_t fill;
    uint64_t first;  /* the first key */
    uint64_t differ; /* bits in which any other key differs from that one */
} plim__csc_part_t;

/* A thread of finish, with the result for its range. */
typedef struct plim__csc_sorter {
    char *area;        /* (2, capacity) keys */
    int64_t num_keys;  /* keys of its range, before removals */
    uint64_t *records; /* (num_records): destination in the range << source_bits | run length - 1 */
    int64_t num_records;
    const void *sources; /* (num_sources) int32 or int64 */
    int64_t num_sources;
    int64_t max_self_loops; /* of the lists prepared last */
    bool too_large;
} plim__csc_sorter_t;

/* The columns that the lists are written to, front to back. */
typedef struct plim__csc_output {
    plim__column_t *indptr;
    plim__column_t *indices;
    size_t index_size;
    int64_t num_nodes;
    int64_t next_node; /* first node whose indptr is not written */
    int64_t num_edges;
    int64_t degree; /* degree of next_node - 1 so far */
    int64_t max_degree;
    int64_t max_self_loops;
    int64_t *window; /* window of the indptr column */
    int64_t window_size;
    int64_t window_fill;
} plim__csc_output_t;

/* The object's layout; job and shape are set. */
void plim__csc_lay_out(plim__arena_t *arena, void *draft);

struct plim__csc {
    plim__arena_t arena;
    plim_job_t job;
    plim__csc_params_t params;
    plim__csc_shape_t shape;
    atomic_int_least64_t added;
    plim__spill_t *spill;
    plim__csc_range_t *ranges;   /* (num_ranges) */
    plim__csc_gather_t *gathers; /* (threads) */
    plim__csc_part_t *parts;     /* (levels, 2^split_bits) */
    char *pool;                  /* (num_buffers, chunk) */
    /* Finish: */
    plim__csc_sorter_t *sorters; /* (shape.sorters) */
    int64_t capacity;            /* keys of one half of an area, whole chunks */
    int64_t area_chunks;
    int split_bits; /* an area has twice as many chunks as parts */
    int64_t total;  /* keys in all, self-loops to be added included */
    int64_t sorted; /* keys whose lists are written */
    plim__csc_output_t output;
};

static inline int64_t plim__csc_range_first(const plim__csc_t *csc, int64_t range)
{
    return range << csc->shape.range_bits;
}

/* Self-loops to add to the range: one a destination, or none. */
static inline int64_t plim__csc_range_loops(const plim__csc_t *csc, int64_t range)
{
    int64_t left = csc->shape.loops - plim__csc_range_first(csc, range);
    int64_t most = (int64_t)1 << csc->shape.range_bits;
    return csc->shape.loops == 0 ? 0 : left < most ? left : most;
}

/* Moves all gathered keys into the ranges' lists. */
plim_status_t plim__csc_gathered(plim__csc_t *csc);

/*
 * Sorts the first `count` keys of the sorter's area, which agree above `bits`, removes self-loops
 * and duplicates as the parameters say, and stores records and sources in the sorter.
 */
void plim__csc_prepare(const plim__csc_t *csc, plim__csc_sorter_t *sorter, int64_t count, int bits,
                       int64_t first_node);

/* Splits a range that is larger than an area through the spill, and writes its lists. */
plim_status_t plim__csc_split(plim__csc_t *csc, plim__csc_sorter_t *sorter, int64_t range);

plim_status_t plim__csc_output_open(plim__csc_t *csc, plim__dataset_writer_t *writer);

/* Writes the lists of the sorter. Destinations do not descend from one call to the next. */
plim_status_t plim__csc_output_lists(plim__csc_t *csc, const plim__csc_sorter_t *sorter,
                                     int64_t first_node);

/* Writes `count` times the same edge. */
plim_status_t plim__csc_output_repeat(plim__csc_t *csc, int64_t node, int64_t source,
                                      int64_t count);

plim_status_t plim__csc_output_close(plim__csc_t *csc);

#endif
