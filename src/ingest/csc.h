/*
 * The external-memory CSC build: edges in any order, from any thread, become indptr.npy and
 * indices.npy with ascending sources in each list, inside the memory it was given, whatever their
 * number.
 *
 *     add ──► scatter by destination range ──► spill (one nameless file, chunks of one range each)
 *     finish: for each range, in order: read its chunks, sort, clean up ──► indices, indptr
 *
 * A spilled edge is one 64-bit key: (destination - first of its range) << source_bits | source, so
 * a spill is 8 bytes an edge and sorting keys sorts lists and their sources at once. A range too
 * large for memory is split again by its keys' high bits. The result does not depend on memory,
 * threads or engine.
 */
#ifndef PLIM_INGEST_CSC_H
#define PLIM_INGEST_CSC_H

#include "store/writer.h"

typedef enum plim__self_loops {
    PLIM__LOOPS_KEEP,
    PLIM__LOOPS_ADD,
    PLIM__LOOPS_REMOVE
} plim__self_loops_t;

typedef struct plim__csc_params {
    int64_t num_nodes;
    int64_t
        max_edges; /* added at most (symmetrise: before doubling); sizes the spill's chunk table */
    size_t memory; /* bytes for the build, at least plim__csc_least() */
    const char *tmp; /* directory of the spill */
    bool symmetrise; /* each edge also the other way; implies remove_duplicates */
    bool remove_duplicates;
    plim__self_loops_t self_loops; /* ADD: exactly one a node */
} plim__csc_params_t;

typedef struct plim__csc plim__csc_t;

/* The least memory for which create succeeds, and the spill's bytes on disk at most. */
size_t plim__csc_least(const plim_job_t *job, const plim__csc_params_t *params);
int64_t plim__csc_spill_bytes(const plim__csc_params_t *params);

/* The same for params->memory: 0 when everything fits into it. */
int64_t plim__csc_spill_with(const plim_job_t *job, const plim__csc_params_t *params);

/* One arena of at most params->memory in the account "csc build". PLIM_ERR_BUDGET below the least.
 */
plim_status_t plim__csc_create(const plim_job_t *job, const plim__csc_params_t *params,
                               plim__csc_t **csc_out);

/*
 * Adds `count` edges source[i] → destination[i]; `worker` < job->threads is the calling thread's
 * number, and each worker may add at the same time as others. An id out of [0, num_nodes) is
 * PLIM_ERR_DATA; *bad_out (may be NULL) is its index in this call.
 */
plim_status_t plim__csc_add(plim__csc_t *csc, int worker, const int64_t *source,
                            const int64_t *destination, int64_t count, int64_t *bad_out);

/* What the build came to. */
typedef struct plim__csc_totals {
    int64_t num_edges;
    int64_t max_degree;
    int64_t spill_bytes; /* written to the spill, re-splits included */
} plim__csc_totals_t;

/* Sorts and writes indptr (int64) and indices (int32 below 2^31 nodes, else int64). Called once. */
plim_status_t plim__csc_finish(plim__csc_t *csc, plim__dataset_writer_t *writer,
                               plim__csc_totals_t *totals_out);

/* NULL is harmless. */
void plim__csc_destroy(plim__csc_t *csc);

#endif
