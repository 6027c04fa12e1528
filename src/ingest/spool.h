/*
 * A spool: a nameless temporary file, written front to back and then read front to back any number
 * of times. The last reading frees the disk space behind it, for the data made from the bytes.
 *
 *     write … write → rewind(keep) → read … → rewind(consume) → read … → destroy
 */
#ifndef PLIM_INGEST_SPOOL_H
#define PLIM_INGEST_SPOOL_H

#include "base/job.h"

#include <stddef.h>

typedef struct plim__spool plim__spool_t;

/* `buffer`: bytes of one transfer. Data that fits into it is not written to disk. */
size_t plim__spool_estimate(size_t buffer);
plim_status_t plim__spool_create(const plim_job_t *job, const char *directory, size_t buffer,
                                 plim__spool_t **spool_out);

/* NULL is harmless. */
void plim__spool_destroy(plim__spool_t *spool);

plim_status_t plim__spool_write(plim__spool_t *spool, const void *from, size_t size);

/* Ends writing; the next read begins at the front. `consume`: free disk space while reading. */
plim_status_t plim__spool_rewind(plim__spool_t *spool, bool consume);

/* Reads exactly `size` bytes. PLIM_ERR_USAGE past the end. */
plim_status_t plim__spool_read(plim__spool_t *spool, void *to, size_t size);

#endif
