/*
 * The build of adjacency lists whose edges carry values: indptr.npy, indices.npy and a file for
 * each column, in the order of the lists, within a given amount of memory.
 *
 *     add ──► a run of records in memory ──► sorted, to one nameless file when memory is full
 *     finish: all runs merged ──► combine duplicates ──► indices, indptr, columns
 *
 * A record is a key, destination << bits | source, and the edge's values. Runs are sorted and
 * merged stably, so edges between the same nodes stay in the order in which they were added: it
 * decides which of them is the first, and the order of sums. The result does not depend on memory.
 * The build of edges without values (ingest/csc.h) sorts bare keys with all threads; equal keys
 * have no order there.
 */
#ifndef PLIM_INGEST_EDGE_SORT_H
#define PLIM_INGEST_EDGE_SORT_H

#include "store/dataset_writer.h"

#include <plimsoll/ingest.h>

/* A column of the values. */
typedef struct plim__edge_field {
    plim_column_t column;
    plim__dtype_t type; /* as stored */
    int num_dims;       /* 1, or 2 for (edges, width) */
    int64_t width;      /* values an edge */
} plim__edge_field_t;

typedef struct plim__edge_sort_params {
    int64_t num_nodes; /* at most PLIM__EDGE_SORT_NODES */
    int64_t max_edges; /* maximum number of edges added, before symmetrise doubles them */
    size_t memory;     /* at least plim__edge_sort_minimum() */
    const char *tmp;   /* directory of the runs; borrowed until destroy */
    bool symmetrise;   /* adds each edge in both directions; implies remove_duplicates */
    bool remove_duplicates;
    bool remove_loops;
    plim_duplicates_t duplicates; /* how the values of equal edges are combined */
    int num_fields;
    plim__edge_field_t fields[PLIM_COLUMNS];
} plim__edge_sort_params_t;

#define PLIM__EDGE_SORT_NODES ((int64_t)1 << 32)

typedef struct plim__edge_sort plim__edge_sort_t;

/* Bytes of an edge's values: those of each field, one after the other. */
size_t plim__edge_sort_values(const plim__edge_sort_params_t *params);

/* The minimum memory, columns included: it grows with the square root of the records' bytes.
 * SIZE_MAX for impossible parameters. params->memory is ignored. */
size_t plim__edge_sort_minimum(const plim_job_t *job, const plim__edge_sort_params_t *params);

/* Maximum bytes of the runs on disk with params->memory; 0 when all records fit into it. */
int64_t plim__edge_sort_spill(const plim_job_t *job, const plim__edge_sort_params_t *params);

/* PLIM_ERR_BUDGET below the minimum or past the line, PLIM_ERR_NOMEM, PLIM_ERR_USAGE for more than
 * PLIM__EDGE_SORT_NODES nodes. */
plim_status_t plim__edge_sort_create(const plim_job_t *job, const plim__edge_sort_params_t *params,
                                     plim__edge_sort_t **sort_out);

/*
 * Adds `count` edges source[i] → destination[i] with the values at values + i x
 * plim__edge_sort_values. One thread at a time. PLIM_ERR_DATA for an id outside [0, num_nodes),
 * with its index in *bad_out; PLIM_ERR_USAGE past max_edges, PLIM_ERR_IO, PLIM_ERR_STOPPED.
 */
plim_status_t plim__edge_sort_add(plim__edge_sort_t *sort, const int64_t *source,
                                  const int64_t *destination, const void *values, int64_t count,
                                  int64_t *bad_out);

/* Writes the columns indptr, indices and those of the fields. Call it once. PLIM_ERR_DATA when a
 * sum does not fit its type. Reports progress as the phase "sorting edges". */
plim_status_t plim__edge_sort_finish(plim__edge_sort_t *sort, plim__dataset_writer_t *writer);

/* NULL is harmless. */
void plim__edge_sort_destroy(plim__edge_sort_t *sort);

#endif
