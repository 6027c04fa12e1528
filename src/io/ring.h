/* io_uring. Buffers are not registered, so that a memlock limit of 64 KiB is enough. */
#ifndef PLIM_IO_RING_H
#define PLIM_IO_RING_H

#include "io/engine.h"

#include <liburing.h>

typedef struct plim__ring {
    struct io_uring uring;
    plim__op_t *unsent; /* in the submission queue, not yet taken by the kernel */
    plim__op_t *unsent_last;
    int starved; /* submissions refused in a row for lack of memory */
    int refused; /* errno once the kernel refuses submissions; operations then run with pread,
                    pwrite */
} plim__ring_t;

/* Kernel memory for a ring and the requests in it. */
size_t plim__ring_bytes(int depth);

/* 0, or errno when the kernel refuses; ENOSYS also for a kernel that is too old. */
int plim__ring_start(plim__ring_t *ring, int depth);

/* No operation may be in flight. */
void plim__ring_stop(plim__ring_t *ring);

/* Adds an operation to the submission queue; at most `depth` may be there or in flight. */
void plim__ring_put(plim__ring_t *ring, plim__op_t *op);

/* Gives the submission queue to the kernel. */
void plim__ring_send(plim__ring_t *ring);

/* Sends, waits until at least one operation has ended, and returns the list of the ended ones. */
plim__op_t *plim__ring_collect(plim__ring_t *ring);

#endif
