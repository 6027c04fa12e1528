/*
 * A run of a file's bytes read once, in parallel: pieces by direct I/O on several threads, looked
 * at as they come and settled in their order.
 */
#ifndef PLIM_STORE_SWEEP_H
#define PLIM_STORE_SWEEP_H

#include "base/job.h"
#include "store/dataset.h"

typedef struct plim__sweep {
    const plim__file_t *file;
    const plim__manifest_file_t *entry; /* the file's checksums are compared on the way: the range
                                           reaches, with what lies behind, to its end */
    int64_t start;                      /* bytes [start, end), `start` a multiple of a page */
    int64_t end;
    int64_t piece;     /* bytes of a piece, a multiple of a page */
    int64_t behind;    /* so many bytes of the next piece are read with each: less than a page */
    const char *phase; /* for progress */
    void *context;

    /* A piece (its number, its bytes and how many, those behind it not counted), on any thread in
     * any order; NULL: nothing. */
    plim_status_t (*look)(void *context, int worker, int64_t piece, void *data, size_t size);

    /* The same piece, after all before it, by the same worker, one at a time; NULL: nothing. */
    plim_status_t (*settle)(void *context, int worker, int64_t piece, void *data, size_t size);
} plim__sweep_t;

/*
 * On as many of the job's threads (at most PLIM__THREADS_MAX) as have a piece each and room under
 * its line, at least one. Account "sweep". PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM, PLIM_ERR_STOPPED, and what the callbacks return.
 */
plim_status_t plim__sweep_run(const plim_job_t *job, const plim__sweep_t *sweep);

/* Memory that a sweep of such pieces needs at least while it runs. */
size_t plim__sweep_minimum(const plim_job_t *job, int64_t piece);

#endif
