/* A long range of a file into memory, straight into place, as fast as the disk gives it. */
#ifndef PLIM_IO_BULK_H
#define PLIM_IO_BULK_H

#include "base/job.h"
#include "io/file.h"

#define PLIM__BULK_CHUNK ((size_t)2 << 20)

/*
 * Called for each chunk once it is in memory, by any of the threads and in any order: `size` bytes
 * at offset `at` of the range. An error ends the reading.
 */
typedef plim_status_t (*plim__bulk_take_fn)(void *context, int64_t at, void *data, size_t size);

/* What reading takes while it lasts, beside its destination: engines and stacks. */
size_t plim__bulk_estimate(const plim_job_t *job);

/*
 * Reads `bytes` from `offset` on, by the job's threads. `to` begins on a page's boundary, and so
 * does `offset`; `to` has room up to the end of its last page, of which the part behind `bytes`
 * may be written. `take` may be NULL. PLIM_ERR_IO, PLIM_ERR_DATA for a file that ends too early,
 * PLIM_ERR_STOPPED, or what `take` returned.
 */
plim_status_t plim__bulk_read(const plim_job_t *job, const plim__file_t *file, int64_t offset,
                              void *to, int64_t bytes, plim__bulk_take_fn take, void *context);

#endif
