/*
 * Bytes read front to back: of a file, a decompressed file, a member of a zip, a member of a zip
 * inside a zip. Each stream has a name for messages, outermost container first:
 * "papers100M-bin.zip: papers100M-bin/raw/data.npz: edge_index.npy".
 */
#ifndef PLIM_IO_STREAM_H
#define PLIM_IO_STREAM_H

#include "base/job.h"

#include <stddef.h>

#define PLIM__STREAM_NAME 512

typedef struct plim__stream plim__stream_t;

/* Reads up to `capacity` (> 0) bytes and adds them to `position`; *got_out = 0 means the end.
 * PLIM_ERR_DATA for truncation and a bad CRC. */
typedef plim_status_t (*plim__stream_read_fn)(plim__stream_t *stream, void *to, size_t capacity,
                                              size_t *got_out);

/* A stream's implementation embeds this as its first member. */
struct plim__stream {
    plim__stream_read_fn read;
    void (*close)(plim__stream_t *stream); /* frees the stream, and the inner one that it owns */
    int64_t position;                      /* bytes delivered so far */
    int64_t size;                          /* bytes in all, -1 when unknown */
    char name[PLIM__STREAM_NAME];
};

/* For implementations: position, size and name of `inner`, with other functions. */
plim__stream_t plim__stream_over(const plim__stream_t *inner, plim__stream_read_fn read,
                                 void (*close)(plim__stream_t *stream));

/* A file's bytes, read ahead by direct I/O. `buffer` is the bytes of one read; two are held. */
plim_status_t plim__stream_file(const plim_job_t *job, const char *path, size_t buffer,
                                plim__stream_t **stream_out);

/* The same from byte `offset`. PLIM_ERR_DATA when the file is shorter. */
plim_status_t plim__stream_file_at(const plim_job_t *job, const char *path, size_t buffer,
                                   int64_t offset, plim__stream_t **stream_out);

/* `size` bytes at `data`, borrowed. `name` is truncated to PLIM__STREAM_NAME. */
plim_status_t plim__stream_memory(const plim_job_t *job, const char *name, const void *data,
                                  size_t size, plim__stream_t **stream_out);

/*
 * The decompressed bytes of `inner` if it begins with the magic number of gzip or zstd, else its
 * bytes. Takes ownership of `inner`, also on failure. PLIM_ERR_DATA for damage and for a compressed
 * stream that ends early. Memory: below 1 MiB, and for zstd the window of its frames, at most
 * 128 MiB (8 MiB for `zstd -19`, 2 MiB for `zstd`).
 */
plim_status_t plim__stream_decompress(const plim_job_t *job, plim__stream_t *inner,
                                      plim__stream_t **stream_out);

/*
 * Reads `inner` up to `buffer` bytes ahead on a thread of its own, so that decompressing and
 * consuming overlap. Takes ownership of `inner`, also on failure.
 */
plim_status_t plim__stream_ahead(const plim_job_t *job, plim__stream_t *inner, size_t buffer,
                                 plim__stream_t **stream_out);

/* Reads exactly `size` bytes. PLIM_ERR_DATA, naming both sizes, when the stream ends early. */
plim_status_t plim__stream_read_all(plim__stream_t *stream, void *to, size_t size);

/* Reads at most `size` bytes, fewer only at the end. */
plim_status_t plim__stream_read_some(plim__stream_t *stream, void *to, size_t size,
                                     size_t *got_out);

plim_status_t plim__stream_skip(plim__stream_t *stream, int64_t size);

/*
 * Checks that the stream ends here, and with it a zip member's checksum. PLIM_ERR_DATA when there
 * are more bytes.
 */
plim_status_t plim__stream_end(plim__stream_t *stream);

/* NULL is harmless. */
void plim__stream_close(plim__stream_t *stream);

/*
 * A zip, read forward only: next member, its bytes, next member … It reads any stream, so zips
 * nest. ZIP64, deflated and stored members, sizes before or after the data. CRC and sizes are
 * checked by the read that delivers a member's last byte. PLIM_ERR_DATA for damage; later reads
 * fail too.
 */
typedef struct plim__zip plim__zip_t;

/* Takes ownership of `inner`, also on failure. plim__zip_next fails when it is not a zip. */
plim_status_t plim__zip_open(const plim_job_t *job, plim__stream_t *inner, plim__zip_t **zip_out);

/*
 * Moves to the next member that is a file. Returns its name (valid until the next call; NULL after
 * the last member) and its size (-1 when the zip gives it only after the data).
 */
plim_status_t plim__zip_next(plim__zip_t *zip, const char **name_out, int64_t *size_out);

/* Opens the current member as a stream; close it before the next plim__zip_next. */
plim_status_t plim__zip_member(plim__zip_t *zip, plim__stream_t **stream_out);

/* Closes the zip and its inner stream. NULL is harmless. */
void plim__zip_close(plim__zip_t *zip);

#endif
