/*
 * Bytes put aside on a nameless temporary file: written from front to back, then read from front to
 * back, as often as wanted. On the last reading the space is given back to the disk behind the
 * reader, so that what is made of the bytes meanwhile takes their place.
 *
 *     write … write → rewind(keep) → read … → rewind(consume) → read … → destroy
 */
#ifndef PLIM_INGEST_SPOOL_H
#define PLIM_INGEST_SPOOL_H

#include "base/job.h"

#include <stddef.h>

typedef struct plim__spool plim__spool_t;

/* `buffer`: bytes of one transfer; what fits into it never touches the disk. */
size_t plim__spool_estimate(size_t buffer);
plim_status_t plim__spool_create(const plim_job_t *job, const char *directory, size_t buffer,
                                 plim__spool_t **aside_out);

/* NULL is harmless. */
void plim__spool_destroy(plim__spool_t *aside);

plim_status_t plim__spool_write(plim__spool_t *aside, const void *from, size_t size);

/* Bytes written so far. */
int64_t plim__spool_size(const plim__spool_t *aside);

/* Ends the writing; the next read begins at the front. `consume`: free the space as it is read. */
plim_status_t plim__spool_rewind(plim__spool_t *aside, bool consume);

/* Exactly `size` bytes; asking for more than there are is PLIM_ERR_USAGE. */
plim_status_t plim__spool_read(plim__spool_t *aside, void *to, size_t size);

#endif
