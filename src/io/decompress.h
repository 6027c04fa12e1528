/* The decoders that plim__stream_decompress chooses from. Each takes `inner` over, also on failure.
 */
#ifndef PLIM_IO_DECOMPRESS_H
#define PLIM_IO_DECOMPRESS_H

#include "io/stream.h"

/* gzip (RFC 1952): members one after another, each with its CRC and size checked. */
plim_status_t plim__stream_gzip(const plim_job_t *job, plim__stream_t *inner,
                                plim__stream_t **stream_out);

/* Zstandard (RFC 8878): frames one after another, skippable ones passed over. */
plim_status_t plim__stream_zstd(const plim_job_t *job, plim__stream_t *inner,
                                plim__stream_t **stream_out);

#endif
