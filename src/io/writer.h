/*
 * A new file written from front to back in large direct writes that overlap the caller's work, with
 * a checksum of every PLIM__CHECKSUM_BYTES of the file (the last one shorter) made on the way.
 */
#ifndef PLIM_IO_WRITER_H
#define PLIM_IO_WRITER_H

#include "io/engine.h"

#define PLIM__CHECKSUM_BYTES ((int64_t)64 << 20)

typedef struct plim__writer plim__writer_t;

/* `buffer`: bytes of one write, a multiple of PLIM__PAGE; two of them are held. Checksums for a
 * file of at most max_bytes. */
size_t plim__writer_estimate(plim_io_engine_t kind, size_t buffer, int64_t max_bytes);
plim_status_t plim__writer_create(const plim_job_t *job, const char *path, size_t buffer,
                                  int64_t max_bytes, plim__writer_t **writer_out);

/* Appends. PLIM_ERR_USAGE past max_bytes, PLIM_ERR_IO; after a failed write nothing works but
 * plim__writer_destroy. */
plim_status_t plim__writer_write(plim__writer_t *writer, const void *from, size_t size);

/*
 * Appending without a copy: up to *size_out (> 0) bytes may be put at the returned address, of
 * which plim__writer_advance takes the first `size`.
 */
plim_status_t plim__writer_space(plim__writer_t *writer, void **to_out, size_t *size_out);
plim_status_t plim__writer_advance(plim__writer_t *writer, size_t size);

/*
 * Replaces the first `size` bytes of the file, at most a page, when it is finished: for a header
 * that depends on how much was written behind it. The bytes must have been written once (zeros
 * will do), and the last call before plim__writer_finish counts. That then reads the first
 * PLIM__CHECKSUM_BYTES back to make their checksum anew.
 */
plim_status_t plim__writer_set_front(plim__writer_t *writer, const void *front, size_t size);

/*
 * Writes what is left, sets the exact size, makes it durable and closes the file. The checksums
 * (XXH3, 64 bits, seed 0) stay the writer's.
 */
plim_status_t plim__writer_finish(plim__writer_t *writer, int64_t *size_out,
                                  const uint64_t **checksums_out, int64_t *num_checksums_out);

/* Frees; an unfinished file stays as it is, for whoever removes the directory. NULL is harmless. */
void plim__writer_destroy(plim__writer_t *writer);

#endif
