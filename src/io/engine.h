/*
 * Many reads and writes in flight at once, two engines of equal standing behind one interface:
 * io_uring, and a pool of threads that call pread and pwrite. An engine belongs to one thread at a
 * time.
 */
#ifndef PLIM_IO_ENGINE_H
#define PLIM_IO_ENGINE_H

#include "base/job.h"
#include "io/file.h"

/*
 * One transfer, under the rules of plim__file_read_at. The caller owns it and its memory, and
 * touches neither from submit until it is done; it may look at `done`, which changes only inside
 * calls to the engine.
 */
typedef struct plim__op {
    const plim__file_t *file;
    int64_t offset;
    void *data;
    size_t size; /* at most 1 GiB */
    bool write;
    /* The engine's own: */
    bool done;
    int error;    /* errno, 0 when all went well */
    size_t moved; /* bytes so far: short transfers are continued */
    struct plim__op *next;
} plim__op_t;

typedef struct plim__engine plim__engine_t;

/*
 * `depth`: how many operations may be in flight, 1 … 1024. The estimate holds the ring and its
 * requests in the kernel, or the stacks of the threads; for PLIM_IO_AUTO the larger of both, unless
 * it is sure to be the ring. PLIM_ERR_UNSUPPORTED when PLIM_IO_URING is asked for and refused;
 * PLIM_IO_AUTO then takes threads.
 */
size_t plim__engine_estimate(plim_io_engine_t kind, int depth);
plim_status_t plim__engine_create(const plim_job_t *job, int depth, plim__engine_t **engine_out);

/* Waits for everything in flight, then frees. NULL is harmless. */
void plim__engine_destroy(plim__engine_t *engine);

/* PLIM_IO_URING or PLIM_IO_THREADS: which one it came to be. */
plim_io_engine_t plim__engine_kind(const plim__engine_t *engine);

/* Hands an operation over; when `depth` are in flight it waits for one of them first. Never fails
 * by itself: errors come from the wait. It may hold operations back until plim__engine_flush or a
 * wait. */
void plim__engine_submit(plim__engine_t *engine, plim__op_t *op);
void plim__engine_flush(plim__engine_t *engine);

/*
 * Waits until at least one operation in flight has ended, and marks all that have as done: they are
 * returned, linked by `next` until one of them is submitted again. NULL when nothing is in flight.
 */
plim__op_t *plim__engine_progress(plim__engine_t *engine);

/*
 * Waits until `op` is done; its status, with file and offset in the message: PLIM_ERR_IO, or
 * PLIM_ERR_DATA when the file ended inside the range.
 */
plim_status_t plim__engine_wait(plim__engine_t *engine, plim__op_t *op);

#endif
