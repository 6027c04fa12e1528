/* Raw deflate (RFC 1951), decoded by ISA-L's igzip, which needs no memory besides this object. */
#ifndef PLIM_IO_INFLATE_H
#define PLIM_IO_INFLATE_H

#include "io/decoder_input.h"

#include <isa-l/igzip_lib.h>

typedef struct plim__inflate {
    struct inflate_state state;
    int64_t taken; /* input bytes used so far */
} plim__inflate_t;

/* igzip is slow for output below this size; callers that read less buffer the output. */
#define PLIM__INFLATE_CHUNK ((size_t)256 << 10)

void plim__inflate_begin(plim__inflate_t *inflate);

/*
 * Decodes the next bytes, at most `capacity`. *got_out = 0 means that the deflate stream has ended;
 * the input is then at the byte after it. Takes at most `limit` input bytes in all. The status is
 * that of reading the input. *complaint_out says what is wrong with the data, or is NULL.
 */
plim_status_t plim__inflate_read(plim__inflate_t *inflate, plim__decoder_input_t *input,
                                 int64_t limit, void *to, size_t capacity, size_t *got_out,
                                 const char **complaint_out);

/* zlib's CRC-32, continued from `crc` (0 to begin). */
uint32_t plim__inflate_crc(uint32_t crc, const void *data, size_t size);

#endif
