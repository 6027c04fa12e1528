/* Whether the ids of a split are each there once. */
#ifndef PLIM_STORE_UNIQUE_H
#define PLIM_STORE_UNIQUE_H

#include "base/job.h"
#include "io/file.h"
#include "mem/arena.h"

/*
 * Reads the .npy file of `count` int64 ids, open for buffered reading: PLIM_ERR_DATA names the
 * places of an id that is there twice, of a file that messages call `name`. Ids outside [0, bound)
 * are not looked at. Ascending ids are read once; others by ranges, a bit an id, as many as half of
 * the memory that is available holds. PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_STOPPED. Memory: at
 * least 128 KiB.
 */
plim_status_t plim__unique_check(const plim_job_t *job, const plim__file_t *file, const char *name,
                                 int64_t count, int64_t bound);

#endif
