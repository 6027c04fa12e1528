/*
 * Where a loader's lists and rows come from: what its parts share, the choice of what the caches
 * keep, and the dataset's own sources.
 */
#ifndef PLIM_LOAD_LOAD_SOURCES_H
#define PLIM_LOAD_LOAD_SOURCES_H

#include "load/loader_params.h"
#include "load/seeds.h"
#include "sample/access.h"
#include "source/weight_sums.h"

#include <stdatomic.h>

/* Rows that batches needed, and those of them that were cached. */
typedef struct plim__row_counts {
    _Atomic int64_t rows;
    _Atomic int64_t cached;
} plim__row_counts_t;

/* The sources of a batch. */
typedef struct plim__load_sources {
    plim__topology_t *topologies[PLIM__TOPOLOGIES_MAX];
    int num_topologies;
    plim__rows_t *tables[PLIM__TABLES_MAX];
    int num_tables;                      /* 0: without rows */
    plim__rows_t *columns[PLIM_COLUMNS]; /* those of the recipe */
    int first_worker;                    /* the number of worker 0 in these sources */
    plim__row_counts_t *counts; /* of batches that read from disk without a window; else NULL */
} plim__load_sources_t;

#define PLIM__LOAD_SOURCES (PLIM__TOPOLOGIES_MAX + PLIM__TABLES_MAX)
#define PLIM__LOAD_SLACK_PART 4  /* windows get 1/4 more than the expected rows */
#define PLIM__LOAD_START_BYTES 4 /* of a cached list, beside its entries */

/* Reads that a row or list costs which a complete working set has: they are merged. */
#define PLIM__LOAD_PACKED_READS (1.0 / 8)

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
    plim__weight_sums_t weight_sums;          /* zeroed: batches have none */
    plim__working_set_t *working_set;         /* NULL: none */
    bool packed_elsewhere;                    /* another process was making it */
    plim__access_t access;                    /* what the caches keep */
    plim__load_sources_t sources;             /* the dataset's own, each with its cache */
    plim__topology_t *lists;                  /* what the topology draws from; itself, or below */
    int first_column_worker;                  /* the number of worker 0 in the columns */
    plim__source_t *disk[PLIM__LOAD_SOURCES]; /* the same, without their kinds */
    int num_disk;
} plim__load_context_t;

/*
 * Reads the offsets, chooses what the caches keep, and opens the sources; seeds and graph_indptr
 * are read before. May change how the plan divides memory between caches and windows. Cleaned up by
 * plim__load_sources_close, also after an error.
 */
plim_status_t plim__load_sources_open(plim__load_context_t *context);

/* At the start of an epoch: rows and lists come from the working set from now on, if another
 * process was making it and has finished. Its memory is planned; errors change nothing. */
void plim__load_sources_renew(plim__load_context_t *context);
void plim__load_sources_close(plim__load_context_t *context);

#endif
