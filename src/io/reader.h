/*
 * Batches of reads of any offset and size: widened to the file's alignment through bounce buffers
 * where needed, neighbours less than `gap` bytes apart joined to one transfer, `depth` transfers in
 * flight.
 */
#ifndef PLIM_IO_READER_H
#define PLIM_IO_READER_H

#include "io/engine.h"

typedef struct plim__read {
    int64_t offset;
    size_t size; /* at most the reader's max_read */
    void *to;
} plim__read_t;

typedef struct plim__reader_params {
    int depth;       /* transfers in flight */
    size_t max_read; /* the largest single read */
    size_t gap;      /* reads at most this far apart, in ascending order, are joined, up to the
                        larger of max_read and 64 KiB a transfer */
} plim__reader_params_t;

typedef struct plim__reader plim__reader_t;

size_t plim__reader_estimate(plim_io_engine_t kind, const plim__reader_params_t *params);
plim_status_t plim__reader_create(const plim_job_t *job, const plim__reader_params_t *params,
                                  plim__reader_t **reader_out);
void plim__reader_destroy(plim__reader_t *reader);

/*
 * Reads all, in any order; returns when every byte is in its place. Joining wants ascending
 * offsets. PLIM_ERR_DATA when a read reaches past the end of the file, PLIM_ERR_IO, PLIM_ERR_USAGE
 * for a read larger than max_read, PLIM_ERR_STOPPED when the job is told to stop; the destinations
 * then hold anything.
 */
plim_status_t plim__reader_read(plim__reader_t *reader, const plim__file_t *file,
                                const plim__read_t *reads, int64_t count);

/* Totals since creation: transfers made and bytes moved by them. */
void plim__reader_totals(const plim__reader_t *reader, int64_t *transfers_out, int64_t *bytes_out);

#endif
