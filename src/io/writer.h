/*
 * Writes a new file front to back in large direct writes that overlap the caller's work, and
 * computes a checksum of every PLIM__CHECKSUM_BYTES of it (the last chunk may be shorter).
 */
#ifndef PLIM_IO_WRITER_H
#define PLIM_IO_WRITER_H

#include "io/engine.h"

#define PLIM__CHECKSUM_BYTES ((int64_t)64 << 20)

typedef struct plim__writer plim__writer_t;

/* `buffer`: bytes of one write, a multiple of PLIM__PAGE; two are held. The file may grow to
 * max_bytes. `directory` and `path` as for plim__file_open_in. */
size_t plim__writer_estimate(plim_io_engine_t kind, size_t buffer, int64_t max_bytes);
plim_status_t plim__writer_create(const plim_job_t *job, int directory, const char *path,
                                  size_t buffer, int64_t max_bytes, plim__writer_t **writer_out);

/* Appends. PLIM_ERR_USAGE past max_bytes, PLIM_ERR_IO; after a failed write only
 * plim__writer_destroy may be called. */
plim_status_t plim__writer_write(plim__writer_t *writer, const void *from, size_t size);

/*
 * Appends without a copy: the caller fills up to *size_out (> 0) bytes at *to_out, then
 * plim__writer_advance appends the first `size` of them.
 */
plim_status_t plim__writer_space(plim__writer_t *writer, void **to_out, size_t *size_out);
plim_status_t plim__writer_advance(plim__writer_t *writer, size_t size);

/*
 * Replaces the first `size` bytes of the file, at most a page, when it is finished: for a header
 * that depends on the data after it. The bytes must have been written before (zeros will do); the
 * last call counts. plim__writer_finish then reads the first PLIM__CHECKSUM_BYTES back to compute
 * their checksum again.
 */
plim_status_t plim__writer_set_front(plim__writer_t *writer, const void *front, size_t size);

/*
 * Writes the rest, sets the exact size, makes the file durable and closes it. The checksums (XXH3,
 * 64 bits, seed 0) belong to the writer.
 */
plim_status_t plim__writer_finish(plim__writer_t *writer, int64_t *size_out,
                                  const uint64_t **checksums_out, int64_t *num_checksums_out);

/* Frees. An unfinished file stays; the caller removes its directory. NULL is harmless. */
void plim__writer_destroy(plim__writer_t *writer);

#endif
