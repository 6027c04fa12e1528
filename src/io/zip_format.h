/* The records of a zip (PKWARE's APPNOTE 6.3), taken apart in memory. */
#ifndef PLIM_IO_ZIP_FORMAT_H
#define PLIM_IO_ZIP_FORMAT_H

#include "io/decoder_input.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PLIM__ZIP_LOCAL_BYTES 30    /* of a local header, without its name and extra fields */
#define PLIM__ZIP_CENTRAL_BYTES 46  /* of a central header, likewise */
#define PLIM__ZIP_DESCRIPTOR_MAX 26 /* of a descriptor, and the mark of what follows it */
#define PLIM__ZIP_DESCRIPTOR_MARK "PK\x07\x08"
#define PLIM__ZIP_RECORD_MAX                                                                       \
    PLIM__ZIP_CENTRAL_BYTES /* what tells a central directory's record and its size */

/* What a local header says. */
typedef struct plim__zip_entry {
    bool deflated;       /* else stored */
    bool descriptor;     /* sizes and CRC (also) stand behind the data */
    bool zip64;          /* there was a ZIP64 field: sizes in the descriptor have 64 bits */
    int64_t packed_size; /* bytes of data, -1 when not known */
    int64_t size;        /* bytes uncompressed, -1 when not known */
    uint32_t crc;
    size_t name_size;
    const char *unreadable; /* why this member cannot be read, or NULL */
} plim__zip_entry_t;

/* What was found while reading a member, or what the central directory says of it. */
typedef struct plim__zip_totals {
    int64_t packed_size;
    int64_t size;
    uint32_t crc;
} plim__zip_totals_t;

/* Bytes of a local header with name and extra fields, of which the first PLIM__ZIP_LOCAL_BYTES are
 * at p. */
size_t plim__zip_local_size(const unsigned char *p);

/* Takes a whole local header apart; false with what is wrong. */
bool plim__zip_local_parse(const unsigned char *p, plim__zip_entry_t *entry_out,
                           const char **complaint_out);

/*
 * Bytes of the descriptor at p that says just what was found and is followed by another record; 0
 * when there is none. Writers differ: its mark is optional, its sizes have 32 or 64 bits.
 */
size_t plim__zip_descriptor(const unsigned char *p, size_t have, const plim__zip_totals_t *found,
                            bool zip64);

/* Bytes of the name behind the fixed part of a central header. */
static inline size_t plim__zip_central_name(const unsigned char *p)
{
    return plim__decoder_input_u16(p + 28);
}

/* Takes a whole central header apart; false when its sizes are impossible. */
bool plim__zip_central_parse(const unsigned char *p, plim__zip_totals_t *totals_out);

/* Bytes of the mark that split and once split archives begin with: 0 or 4. */
size_t plim__zip_marker(const unsigned char *p, size_t have);

typedef enum plim__zip_kind { PLIM__ZIP_CENTRAL, PLIM__ZIP_OTHER, PLIM__ZIP_END } plim__zip_kind_t;

/* A record behind the last member. */
typedef struct plim__zip_record {
    plim__zip_kind_t kind;
    int64_t size;
} plim__zip_record_t;

/* False when there is no such record at p, or less than its fixed part. */
bool plim__zip_record(const unsigned char *p, size_t have, plim__zip_record_t *record_out);

#endif
