/*
 * An I/O engine keeps many reads and writes in flight at once. There are two kinds with the same
 * interface: io_uring, and a pool of threads that call pread and pwrite. One thread at a time uses
 * an engine.
 */
#ifndef PLIM_IO_ENGINE_H
#define PLIM_IO_ENGINE_H

#include "base/job.h"
#include "io/file.h"

/*
 * One transfer, under the rules of plim__file_read_at. The caller owns it and its memory, and does
 * not touch them from submit until it is done. `done` changes only inside calls to the engine.
 */
typedef struct plim__op {
    const plim__file_t *file;
    int64_t offset;
    void *data;
    size_t size; /* at most 1 GiB */
    bool write;
    /* Set by the engine: */
    bool done;
    int error;    /* errno, 0 on success */
    size_t moved; /* bytes so far; short transfers are continued */
    struct plim__op *next;
} plim__op_t;

typedef struct plim__engine plim__engine_t;

/*
 * `depth`: how many operations may be in flight, 1 … 1024. The estimate includes the ring and its
 * requests in the kernel, or the stacks of the threads; for PLIM_IO_AUTO it is the larger of both,
 * unless io_uring is certain to work. PLIM_ERR_UNSUPPORTED when the job wants PLIM_IO_URING and the
 * kernel refuses it; PLIM_IO_AUTO then uses threads.
 */
size_t plim__engine_estimate(plim_io_engine_t kind, int depth);
plim_status_t plim__engine_create(const plim_job_t *job, int depth, plim__engine_t **engine_out);

/* Waits for all operations in flight, then frees. NULL is harmless. */
void plim__engine_destroy(plim__engine_t *engine);

/* Submits an operation; waits for another one first when `depth` are in flight. Errors come from
 * the wait. Submissions may be queued until plim__engine_flush or a wait. */
void plim__engine_submit(plim__engine_t *engine, plim__op_t *op);
void plim__engine_flush(plim__engine_t *engine);

/*
 * Waits until at least one operation has ended, marks all that have ended as done, and returns them
 * linked by `next` (valid until one of them is submitted again). NULL when nothing is in flight.
 */
plim__op_t *plim__engine_progress(plim__engine_t *engine);

/*
 * Waits until `op` is done and returns its status; the message names file and offset. PLIM_ERR_IO,
 * PLIM_ERR_DATA when the file ends inside the range.
 */
plim_status_t plim__engine_wait(plim__engine_t *engine, plim__op_t *op);

#endif
