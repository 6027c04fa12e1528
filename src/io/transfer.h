/*
 * How one transfer goes on after the kernel answered: the same rules for plim__file_read_at, the
 * thread pool and io_uring, so that both engines succeed and fail alike.
 */
#ifndef PLIM_IO_TRANSFER_H
#define PLIM_IO_TRANSFER_H

#include "io/engine.h"

#include <sys/types.h>

/* In op->error: the file ended inside the range. No errno is negative. */
#define PLIM__TRANSFER_TRUNCATED (-1)

/*
 * Takes in `result`, a count of bytes or a negated errno, for the part of the operation that begins
 * at op->moved. True when the operation has ended (op->error says how), false when what is left
 * from op->moved on must be asked for again.
 */
bool plim__transfer_take(plim__op_t *op, ssize_t result);

/* Does the whole operation in this thread, with pread or pwrite. */
void plim__transfer_run(plim__op_t *op);

/* The status of an operation that has ended, and its message. */
plim_status_t plim__transfer_status(const plim__op_t *op);

#endif
