/*
 * Reads a range of a file once, in parallel: threads read chunks by direct I/O, process them in any
 * order, and merge them in file order.
 */
#ifndef PLIM_STORE_SWEEP_H
#define PLIM_STORE_SWEEP_H

#include "base/job.h"
#include "store/dataset.h"

typedef struct plim__sweep {
    const plim__file_t *file;
    const plim__manifest_file_t *entry; /* its checksums are compared; the range reaches its end */
    int64_t start;                      /* bytes [start, end), `start` a multiple of a page */
    int64_t end;
    int64_t chunk;     /* bytes of a chunk, a multiple of a page */
    int64_t behind;    /* bytes of the next chunk that are read with each chunk: less than a page */
    const char *phase; /* for progress */
    void *context;

    /* Processes a chunk (its number, bytes and size without `behind`), on any thread in any order;
     * NULL: skipped. */
    plim_status_t (*process)(void *context, int worker, int64_t chunk, void *data, size_t size);

    /* Merges the chunk after all chunks before it, on the same worker, one at a time; NULL:
     * skipped. */
    plim_status_t (*merge)(void *context, int worker, int64_t chunk, void *data, size_t size);
} plim__sweep_t;

/*
 * Uses as many of the job's threads (at most PLIM__THREADS_MAX, at least one) as have a chunk and
 * memory under the line. Account "I/O". PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM, PLIM_ERR_STOPPED, and errors of the callbacks.
 */
plim_status_t plim__sweep_run(const plim_job_t *job, const plim__sweep_t *sweep);

/* Minimum memory of a sweep with chunks of this size. */
size_t plim__sweep_minimum(const plim_job_t *job, int64_t chunk);

#endif
