/*
 * How a transfer continues after the kernel's answer. plim__file_read_at, the thread pool and
 * io_uring share these rules, so that they succeed and fail alike.
 */
#ifndef PLIM_IO_TRANSFER_H
#define PLIM_IO_TRANSFER_H

#include "io/engine.h"

#include <sys/types.h>

/* In op->error, where errno is never negative: the file ended inside the range. */
#define PLIM__TRANSFER_TRUNCATED (-1)

/*
 * Handles `result`, a byte count or a negated errno, of a request from op->moved on. True when the
 * operation has ended (op->error says how), false when the rest must be requested again.
 */
bool plim__transfer_take(plim__op_t *op, ssize_t result);

/* Runs the whole operation in this thread, with pread or pwrite. */
void plim__transfer_run(plim__op_t *op);

/* The status of an operation that has ended, and its message. */
plim_status_t plim__transfer_status(const plim__op_t *op);

#endif
