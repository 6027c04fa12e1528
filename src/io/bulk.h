/* Reads a long range of a file into memory by several threads, without copies. */
#ifndef PLIM_IO_BULK_H
#define PLIM_IO_BULK_H

#include "base/job.h"
#include "io/file.h"

#define PLIM__BULK_CHUNK ((size_t)2 << 20)

/*
 * Called for each chunk once it is in memory, by any thread and in any order: `size` bytes at
 * offset `at` of the range. An error ends the read.
 */
typedef plim_status_t (*plim__bulk_take_fn)(void *context, int64_t at, void *data, size_t size);

/* Memory of a read in progress besides its destination: engines and stacks. */
size_t plim__bulk_estimate(const plim_job_t *job);

/*
 * Reads `bytes` at `offset` with the job's threads. `to` and `offset` are page-aligned; the read
 * may write up to the end of the last page. `take` may be NULL. PLIM_ERR_IO, PLIM_ERR_DATA for a
 * file that ends too early, PLIM_ERR_STOPPED, or the error of `take`.
 */
plim_status_t plim__bulk_read(const plim_job_t *job, const plim__file_t *file, int64_t offset,
                              void *to, int64_t bytes, plim__bulk_take_fn take, void *context);

#endif
