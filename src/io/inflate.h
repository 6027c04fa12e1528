/* Raw deflate (RFC 1951) from a feed, by ISA-L's igzip: no memory of its own besides this object.
 */
#ifndef PLIM_IO_INFLATE_H
#define PLIM_IO_INFLATE_H

#include "io/decoder_input.h"

#include <isa-l/igzip_lib.h>

typedef struct plim__inflate {
    struct inflate_state state;
    int64_t taken; /* bytes of the feed used so far */
} plim__inflate_t;

/* Output pieces below this are decoded slowly: keep them in a buffer of one's own. */
#define PLIM__INFLATE_PIECE ((size_t)256 << 10)

void plim__inflate_begin(plim__inflate_t *inflate);

/*
 * The next bytes, at most `capacity`; *got_out = 0 means that the deflate stream ended, the feed
 * then standing behind it. Takes at most `limit` bytes of the feed in all. The status is the
 * feed's; what is wrong with the data itself, or NULL, is in *complaint_out.
 */
plim_status_t plim__inflate_read(plim__inflate_t *inflate, plim__decoder_input_t *feed,
                                 int64_t limit, void *to, size_t capacity, size_t *got_out,
                                 const char **complaint_out);

/* zlib's CRC-32, continued from `crc` (0 to begin). */
uint32_t plim__inflate_crc(uint32_t crc, const void *data, size_t size);

#endif
