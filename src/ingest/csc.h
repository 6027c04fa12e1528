/*
 * The external-memory CSC build. It turns edges in any order, added by any thread, into indptr.npy
 * and indices.npy with ascending sources in each list, within a given amount of memory.
 *
 *     add ──► scatter by destination range ──► spill (one nameless file, chunks of one range each)
 *     finish: for each range, in order: read its chunks, sort, clean up ──► indices, indptr
 *
 * An edge is one 64-bit key, (destination - first of its range) << source_bits | source: a spilled
 * edge takes 8 bytes, and sorting keys sorts lists and their sources at once. A range too large for
 * memory is split again by its keys' high bits. The result does not depend on memory, threads or
 * engine.
 */
#ifndef PLIM_INGEST_CSC_H
#define PLIM_INGEST_CSC_H

#include "store/dataset_writer.h"

#include <plimsoll/ingest.h>

typedef struct plim__csc_params {
    int64_t num_nodes;
    int64_t max_edges; /* maximum number of edges added, before symmetrise doubles them */
    size_t memory;     /* for create and finish, at least plim__csc_minimum() */
    const char *tmp;   /* directory of the spill; borrowed until destroy */
    bool symmetrise;   /* adds each edge in both directions; implies remove_duplicates */
    bool remove_duplicates;
    plim_self_loops_t self_loops;
} plim__csc_params_t;

typedef struct plim__csc plim__csc_t;

/*
 * The minimum memory: the arena "csc build", the engine of the spill, both open columns and the
 * stacks of finish's threads. A few MiB, and four bytes for each chunk of spill (of 16 KiB or
 * more). SIZE_MAX for impossible parameters. params->memory is ignored.
 */
size_t plim__csc_minimum(const plim_job_t *job, const plim__csc_params_t *params);

/* Maximum bytes of the spill on disk with params->memory; 0 when everything fits into it.
 * INT64_MAX for impossible parameters. */
int64_t plim__csc_spill_with(const plim_job_t *job, const plim__csc_params_t *params);

/*
 * Reserves no more than it can use: memory may be SIZE_MAX. PLIM_ERR_BUDGET below the minimum or
 * past the line, PLIM_ERR_NOMEM, PLIM_ERR_IO when no file can be created in `tmp`, PLIM_ERR_USAGE
 * for more than 2^40 nodes, 2^56 edges or PLIM__THREADS_MAX threads.
 */
plim_status_t plim__csc_create(const plim_job_t *job, const plim__csc_params_t *params,
                               plim__csc_t **csc_out);

/*
 * Adds `count` edges source[i] → destination[i]. `worker` < job->threads is the number of the
 * calling thread; workers may add at the same time. PLIM_ERR_DATA for an id outside [0, num_nodes),
 * with its index in *bad_out (may be NULL); PLIM_ERR_USAGE past max_edges, PLIM_ERR_IO,
 * PLIM_ERR_STOPPED. After a failure only destroy may be called.
 */
plim_status_t plim__csc_add(plim__csc_t *csc, int worker, const int64_t *source,
                            const int64_t *destination, int64_t count, int64_t *bad_out);

/* Results of the build. */
typedef struct plim__csc_totals {
    int64_t num_edges;
    int64_t max_degree;
    int64_t max_self_loops; /* most edges of one node to itself */
    int64_t spill_bytes;    /* written to the spill, re-splits included */
} plim__csc_totals_t;

/*
 * Sorts and writes the columns indptr (int64) and indices (int32 below 2^31 nodes, else int64); on
 * failure they are left open. Call it once, when all edges are added. Reports progress as the phase
 * "sorting edges".
 */
plim_status_t plim__csc_finish(plim__csc_t *csc, plim__dataset_writer_t *writer,
                               plim__csc_totals_t *totals_out);

/* NULL is harmless. */
void plim__csc_destroy(plim__csc_t *csc);

#endif
