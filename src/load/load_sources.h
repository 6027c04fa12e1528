/*
 * Where a loader's lists and rows come from: what its parts share, the choice of what the caches
 * keep, and the dataset's own sources.
 */
#ifndef PLIM_LOAD_LOAD_SOURCES_H
#define PLIM_LOAD_LOAD_SOURCES_H

#include "load/loader_params.h"
#include "load/seeds.h"
#include "sample/access.h"

#include <stdatomic.h>

/* Rows that batches needed, and those of them that were cached. */
typedef struct plim__row_counts {
    _Atomic int64_t rows;
    _Atomic int64_t cached;
} plim__row_counts_t;

/* The sources of a batch. */
typedef struct plim__load_sources {
    plim__topology_t *topology;
    plim__rows_t *rows;         /* NULL without */
    int first_worker;           /* the number of worker 0 in these sources */
    plim__row_counts_t *counts; /* of batches that read from disk without a window; else NULL */
} plim__load_sources_t;

/* What the parts of a loader share. Only `stop` changes once the loader is made. */
typedef struct plim__load_context {
    const plim_job_t *asked; /* the caller's job … */
    plim_job_t job;          /* … and the same with `stop` below, which also cancels windows */
    int stop;
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    plim__load_plan_t plan;
    plim__loader_params_t params;
    int64_t *graph_indptr; /* (num_graphs + 1); NULL in one graph */
    plim__seeds_t *seeds;  /* of the splits */
    plim__offsets_t *offsets;
    plim__access_t access;        /* what the caches keep */
    plim__load_sources_t sources; /* the dataset's own, each with its cache */
} plim__load_context_t;

/*
 * Reads the offsets, chooses what the caches keep, and opens the sources; seeds and graph_indptr
 * are read before. May change how the plan divides memory between caches and windows. Cleaned up by
 * plim__load_sources_close, also after an error.
 */
plim_status_t plim__load_sources_open(plim__load_context_t *context);
void plim__load_sources_close(plim__load_context_t *context);

/*
 * The merge distance: two reads closer than this are cheaper as one transfer. A transfer of s bytes
 * takes call + s * byte seconds, so the merge distance is call / byte, kept between a page and
 * 64 KiB. Computed from the seconds that reads of the two sizes take.
 */
#define PLIM__MERGE_SMALL (4 << 10)
#define PLIM__MERGE_LARGE (64 << 10)
size_t plim__merge_distance_of(double small_seconds, double large_seconds);

/*
 * Measures it in about a tenth of a second, by reads at random places of the larger file that the
 * plan leaves on disk. Returns the plan's own figure when the dataset is small or the reads fail.
 * Memory: 9 MiB a thread, released before it returns.
 */
size_t plim__merge_distance_measure(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__load_plan_t *plan);

#endif
