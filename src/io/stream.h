/*
 * Bytes from front to back: a file, a decompressed file, a member of a zip, a member of a zip that
 * is itself a member. Each stream knows its name for messages, outermost first, as in
 * "papers100M-bin.zip: papers100M-bin/raw/data.npz: edge_index.npy".
 */
#ifndef PLIM_IO_STREAM_H
#define PLIM_IO_STREAM_H

#include "base/job.h"

#include <stddef.h>

#define PLIM__STREAM_NAME 512

typedef struct plim__stream plim__stream_t;

/* A stream's implementation embeds this as its first member. */
struct plim__stream {
    /* Up to `capacity` (> 0) bytes, counted into `position` by it; *got_out = 0 means the end.
     * Truncation and bad CRCs are PLIM_ERR_DATA. */
    plim_status_t (*read)(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out);
    void (*close)(
        plim__stream_t *stream); /* frees it, and what it was opened over if it owns that */
    int64_t position;            /* bytes delivered so far */
    int64_t size;                /* all of them, -1 when not known */
    char name[PLIM__STREAM_NAME];
};

/* The file's own bytes, read ahead in direct transfers. `buffer`: bytes of a transfer, two are
 * held. */
size_t plim__stream_file_estimate(plim_io_engine_t kind, size_t buffer);
plim_status_t plim__stream_file(const plim_job_t *job, const char *path, size_t buffer,
                                plim__stream_t **stream_out);

/* The same from byte `offset` on. PLIM_ERR_DATA when the file ends before it. */
plim_status_t plim__stream_file_at(const plim_job_t *job, const char *path, size_t buffer,
                                   int64_t offset, plim__stream_t **stream_out);

/* `size` bytes at `data`, which is borrowed. `name` is cut to PLIM__STREAM_NAME. */
plim_status_t plim__stream_memory(const plim_job_t *job, const char *name, const void *data,
                                  size_t size, plim__stream_t **stream_out);

/*
 * The same bytes when `inner` is not compressed, else its decompressed bytes: gzip and zstd by
 * their magic numbers. Takes `inner` over, also on failure. Damage, and a compressed stream that
 * ends early, are PLIM_ERR_DATA. gzip takes PLIM__DECOMPRESS_ESTIMATE; zstd the same and the
 * window that its first frame asks for, at most 128 MiB (8 MiB for `zstd -19`, 2 MiB for `zstd`).
 */
#define PLIM__DECOMPRESS_ESTIMATE ((size_t)768 << 10)
plim_status_t plim__stream_decompress(const plim_job_t *job, plim__stream_t *inner,
                                      plim__stream_t **stream_out);

/*
 * Pulls `inner` on a thread of its own, `buffer` bytes ahead, so that inflating and consuming
 * overlap. Takes `inner` over, also on failure.
 */
size_t plim__stream_ahead_estimate(size_t buffer);
plim_status_t plim__stream_ahead(const plim_job_t *job, plim__stream_t *inner, size_t buffer,
                                 plim__stream_t **stream_out);

/* Exactly `size` bytes, or PLIM_ERR_DATA "… ends after N bytes, M expected". */
plim_status_t plim__stream_read_all(plim__stream_t *stream, void *to, size_t size);

/* At most `size` bytes, less only at the end. */
plim_status_t plim__stream_read_some(plim__stream_t *stream, void *to, size_t size,
                                     size_t *got_out);

/* Reads past `size` bytes. */
plim_status_t plim__stream_skip(plim__stream_t *stream, int64_t size);

/*
 * Asserts that the stream ends here, which also makes a zip member's checksum checked; otherwise
 * PLIM_ERR_DATA "… has more than the N bytes expected".
 */
plim_status_t plim__stream_end(plim__stream_t *stream);

/* NULL is harmless. */
void plim__stream_close(plim__stream_t *stream);

/*
 * A zip, forward only: next member, its bytes, next member … Over any stream, so zips nest. ZIP64,
 * deflate and stored, sizes before the data or behind it. CRC and sizes are checked with the read
 * that delivers a member's last byte; damage is PLIM_ERR_DATA, and nothing is read behind it.
 */
typedef struct plim__zip plim__zip_t;

#define PLIM__ZIP_ESTIMATE ((size_t)640 << 10) /* one open zip, its inflating included */

/* Takes `inner` over, also on failure. What is no zip is PLIM_ERR_DATA from plim__zip_next. */
plim_status_t plim__zip_open(const plim_job_t *job, plim__stream_t *inner, plim__zip_t **zip_out);

/*
 * Moves to the next member that is a file: its name (valid until the next call) and size (-1 when
 * the zip does not say beforehand). *name_out is NULL after the last one.
 */
plim_status_t plim__zip_next(plim__zip_t *zip, const char **name_out, int64_t *size_out);

/* The current member as a stream; it must be closed before the next plim__zip_next. */
plim_status_t plim__zip_member(plim__zip_t *zip, plim__stream_t **stream_out);

/* Closes the zip, and the stream below it. NULL is harmless. */
void plim__zip_close(plim__zip_t *zip);

#endif
