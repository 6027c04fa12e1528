/*
 * Bytes read front to back: of a file, a decompressed file, a member of a zip, a member of a zip
 * inside a zip. Each reader has a name for messages, outermost container first:
 * "papers100M-bin.zip: papers100M-bin/raw/data.npz: edge_index.npy".
 */
#ifndef PLIM_IO_READER_H
#define PLIM_IO_READER_H

#include "base/job.h"

#include <stddef.h>

#define PLIM__READER_NAME 512

typedef struct plim__reader plim__reader_t;

/* Reads up to `capacity` (> 0) bytes and adds them to `position`; *got_out = 0 means the end.
 * PLIM_ERR_DATA for truncation and a bad CRC. */
typedef plim_status_t (*plim__reader_read_fn)(plim__reader_t *reader, void *to, size_t capacity,
                                              size_t *got_out);

/* A reader's implementation embeds this as its first member. */
struct plim__reader {
    plim__reader_read_fn read;
    void (*close)(plim__reader_t *reader); /* frees the reader, and the inner one that it owns */
    int64_t position;                      /* bytes delivered so far */
    int64_t size;                          /* bytes in all, -1 when unknown */
    char name[PLIM__READER_NAME];
};

/* For implementations: position, size and name of `inner`, with other functions. */
plim__reader_t plim__reader_over(const plim__reader_t *inner, plim__reader_read_fn read,
                                 void (*close)(plim__reader_t *reader));

/* A file's bytes, read ahead by direct I/O. `buffer` is the bytes of one read; two are held. */
plim_status_t plim__reader_file(const plim_job_t *job, const char *path, size_t buffer,
                                plim__reader_t **reader_out);

/* Memory of such a reader. */
size_t plim__reader_file_estimate(plim_io_engine_t kind, size_t buffer);

/* The same from byte `offset`. PLIM_ERR_DATA when the file is shorter. */
plim_status_t plim__reader_file_at(const plim_job_t *job, const char *path, size_t buffer,
                                   int64_t offset, plim__reader_t **reader_out);

/* `size` bytes at `data`, borrowed. `name` is truncated to PLIM__READER_NAME. */
plim_status_t plim__reader_memory(const plim_job_t *job, const char *name, const void *data,
                                  size_t size, plim__reader_t **reader_out);

/*
 * The decompressed bytes of `inner` if it begins with the magic number of gzip or zstd, else its
 * bytes. Takes ownership of `inner`, also on failure. PLIM_ERR_DATA for damage and for a compressed
 * stream that ends early. Memory: below 1 MiB, and for zstd the window of its frames, at most
 * 128 MiB (8 MiB for `zstd -19`, 2 MiB for `zstd`).
 */
plim_status_t plim__reader_decompress(const plim_job_t *job, plim__reader_t *inner,
                                      plim__reader_t **reader_out);

/*
 * Reads `inner` up to `buffer` bytes ahead on a thread of its own, so that decompressing and
 * consuming overlap. Takes ownership of `inner`, also on failure.
 */
plim_status_t plim__reader_ahead(const plim_job_t *job, plim__reader_t *inner, size_t buffer,
                                 plim__reader_t **reader_out);

/* Reads exactly `size` bytes. PLIM_ERR_DATA, naming both sizes, when the reader ends early. */
plim_status_t plim__reader_read_all(plim__reader_t *reader, void *to, size_t size);

/* Reads at most `size` bytes, fewer only at the end. */
plim_status_t plim__reader_read_some(plim__reader_t *reader, void *to, size_t size,
                                     size_t *got_out);

plim_status_t plim__reader_skip(plim__reader_t *reader, int64_t size);

/*
 * Checks that the reader ends here, and with it a zip member's checksum. PLIM_ERR_DATA when there
 * are more bytes.
 */
plim_status_t plim__reader_end(plim__reader_t *reader);

/* NULL is harmless. */
void plim__reader_close(plim__reader_t *reader);

/*
 * A zip, read forward only: next member, its bytes, next member … It reads from any reader, so zips
 * nest. ZIP64, deflated and stored members, sizes before or after the data. CRC and sizes are
 * checked by the read that delivers a member's last byte. PLIM_ERR_DATA for damage; later reads
 * fail too.
 */
typedef struct plim__zip plim__zip_t;

/* Takes ownership of `inner`, also on failure. plim__zip_next fails when it is not a zip. */
plim_status_t plim__zip_open(const plim_job_t *job, plim__reader_t *inner, plim__zip_t **zip_out);

/*
 * Moves to the next member that is a file. Returns its name (valid until the next call; NULL after
 * the last member) and its size (-1 when the zip gives it only after the data).
 */
plim_status_t plim__zip_next(plim__zip_t *zip, const char **name_out, int64_t *size_out);

/* Opens the current member as a reader; close it before the next plim__zip_next. */
plim_status_t plim__zip_member(plim__zip_t *zip, plim__reader_t **reader_out);

/* Closes the zip and its inner reader. NULL is harmless. */
void plim__zip_close(plim__zip_t *zip);

#endif
