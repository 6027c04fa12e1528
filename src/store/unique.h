/* Checks that a split has each id once. */
#ifndef PLIM_STORE_UNIQUE_H
#define PLIM_STORE_UNIQUE_H

#include "base/job.h"
#include "io/file.h"
#include "mem/arena.h"

/*
 * Reads the .npy file of `count` int64 ids, open for buffered reading. PLIM_ERR_DATA, with `name`
 * and both entries in the message, when an id occurs twice. Ids outside [0, bound) are ignored.
 * Ascending ids are read once; others in passes over ranges of ids, one bit an id, in half of the
 * available memory. PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_STOPPED. Memory: at least 128 KiB.
 */
plim_status_t plim__unique_check(const plim_job_t *job, const plim__file_t *file, const char *name,
                                 int64_t count, int64_t bound);

#endif
