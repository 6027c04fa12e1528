/* Parsing the records of a zip (PKWARE's APPNOTE 6.3). */
#ifndef PLIM_IO_ZIP_FORMAT_H
#define PLIM_IO_ZIP_FORMAT_H

#include "io/decoder_input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLIM__ZIP_LOCAL_BYTES 30    /* a local header without its name and extra fields */
#define PLIM__ZIP_CENTRAL_BYTES 46  /* a central header, likewise */
#define PLIM__ZIP_DESCRIPTOR_MAX 26 /* a descriptor and the signature of the next record */
#define PLIM__ZIP_DESCRIPTOR_MARK "PK\x07\x08"
#define PLIM__ZIP_RECORD_MAX PLIM__ZIP_CENTRAL_BYTES /* enough to find a record's kind and size */

/* A local header. */
typedef struct plim__zip_entry {
    bool deflated;       /* else stored */
    bool descriptor;     /* sizes and CRC follow the data */
    bool zip64;          /* has a ZIP64 field: sizes in the descriptor have 64 bits */
    int64_t packed_size; /* bytes of data, -1 when unknown */
    int64_t size;        /* bytes uncompressed, -1 when unknown */
    uint32_t crc;
    size_t name_size;
    const char *unreadable; /* why this member cannot be read, or NULL */
} plim__zip_entry_t;

/* Sizes and CRC of a member: measured while reading it, or from the central directory. */
typedef struct plim__zip_totals {
    int64_t packed_size;
    int64_t size;
    uint32_t crc;
} plim__zip_totals_t;

/* Size of a local header with its name and extra fields. Reads the first PLIM__ZIP_LOCAL_BYTES. */
size_t plim__zip_local_size(const unsigned char *p);

/* Parses a whole local header. False with what is wrong in *complaint_out. */
bool plim__zip_local_parse(const unsigned char *p, plim__zip_entry_t *entry_out,
                           const char **complaint_out);

/*
 * Size of the descriptor at p that matches `found` and is followed by another record; 0 when there
 * is none. The descriptor's signature is optional, and its sizes have 32 or 64 bits.
 */
size_t plim__zip_descriptor(const unsigned char *p, size_t have, const plim__zip_totals_t *found,
                            bool zip64);

/* Length of the name after the fixed part of a central header. */
static inline size_t plim__zip_central_name(const unsigned char *p)
{
    return plim__decoder_input_u16(p + 28);
}

/* Parses a whole central header. False when its sizes are impossible. */
bool plim__zip_central_parse(const unsigned char *p, plim__zip_totals_t *totals_out);

/* Length of the signature that (once) split archives begin with: 0 or 4. */
size_t plim__zip_marker(const unsigned char *p, size_t have);

typedef enum plim__zip_kind { PLIM__ZIP_CENTRAL, PLIM__ZIP_OTHER, PLIM__ZIP_END } plim__zip_kind_t;

/* A record after the last member. */
typedef struct plim__zip_record {
    plim__zip_kind_t kind;
    int64_t size;
} plim__zip_record_t;

/* False when no such record is at p, or `have` is less than its fixed part. */
bool plim__zip_record(const unsigned char *p, size_t have, plim__zip_record_t *record_out);

#endif
