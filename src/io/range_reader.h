/*
 * Reads batches of ranges of any offset and size. Ranges that are not aligned go through bounce
 * buffers, close ranges are merged into one transfer, `depth` transfers are in flight.
 */
#ifndef PLIM_IO_RANGE_READER_H
#define PLIM_IO_RANGE_READER_H

#include "io/engine.h"

typedef struct plim__read {
    int64_t offset;
    size_t size; /* at most the reader's max_read */
    void *to;
} plim__read_t;

/* Most bytes of a merged transfer, unless a single read is larger. */
#define PLIM__READ_MERGED ((size_t)64 << 10)

typedef struct plim__range_reader_params {
    int depth;             /* transfers in flight */
    size_t max_read;       /* the largest single read */
    size_t merge_distance; /* ascending reads at most this far apart are merged */
} plim__range_reader_params_t;

typedef struct plim__range_reader plim__range_reader_t;

size_t plim__range_reader_estimate(plim_io_engine_t kind,
                                   const plim__range_reader_params_t *params);
plim_status_t plim__range_reader_create(const plim_job_t *job,
                                        const plim__range_reader_params_t *params,
                                        plim__range_reader_t **reader_out);
void plim__range_reader_destroy(plim__range_reader_t *reader);

/* The checksum of page `number` of a file. The number is hashed too, which detects pages that were
 * exchanged. */
uint32_t plim__page_check(const void *page, int64_t number);

/*
 * Reads all ranges, in any order; only ascending ones are merged. PLIM_ERR_DATA when a range
 * reaches past the end of the file, or a page of it differs from the file's page_checks;
 * PLIM_ERR_IO, PLIM_ERR_USAGE for a range larger than max_read, PLIM_ERR_STOPPED when the job is
 * stopped; the destinations are then undefined.
 */
plim_status_t plim__range_reader_read(plim__range_reader_t *reader, const plim__file_t *file,
                                      const plim__read_t *reads, int64_t count);

/* Transfers and their bytes since creation. */
void plim__range_reader_totals(const plim__range_reader_t *reader, int64_t *transfers_out,
                               int64_t *bytes_out);

#endif
