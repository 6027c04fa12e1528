#include "io/zip_format.h"

#include <string.h>

enum { FLAG_ENCRYPTED = 1, FLAG_DESCRIPTOR = 8, FLAG_STRONG = 64, FLAG_MASKED = 8192 };
enum { METHOD_STORED = 0, METHOD_DEFLATED = 8 };
enum { EXTRA_ZIP64 = 1 };

size_t plim__zip_local_size(const unsigned char *p)
{
    return PLIM__ZIP_LOCAL_BYTES + plim__decoder_input_u16(p + 26) +
           plim__decoder_input_u16(p + 28);
}

/* Finds the ZIP64 field among the extra fields. False when these are malformed. */
static bool find_zip64(const unsigned char *p, size_t size, const unsigned char **field_out,
                       size_t *field_size_out)
{
    *field_out = NULL;
    *field_size_out = 0;
    /* Writers that align data (on Android, some in Java) leave up to three bytes of padding. */
    while (size >= 4) {
        size_t field_size = plim__decoder_input_u16(p + 2);
        if (field_size > size - 4)
            return false;
        if (plim__decoder_input_u16(p) == EXTRA_ZIP64 && *field_out == NULL) {
            *field_out = p + 4;
            *field_size_out = field_size;
        }
        p += 4 + field_size;
        size -= 4 + field_size;
    }
    return true;
}

/*
 * Reads CRC and sizes, at `sums` in a local or central header. A size whose 32 bits are all ones is
 * in the ZIP64 field instead, the uncompressed one first.
 */
static bool read_totals(const unsigned char *sums, const unsigned char *extra, size_t extra_size,
                        plim__zip_totals_t *totals_out, bool *zip64_out)
{
    const unsigned char *field;
    size_t field_size, used = 0;
    uint64_t packed = plim__decoder_input_u32(sums + 4), size = plim__decoder_input_u32(sums + 8);
    if (!find_zip64(extra, extra_size, &field, &field_size))
        return false;
    if (field != NULL && size == UINT32_MAX) {
        if (field_size < used + 8)
            return false;
        size = plim__decoder_input_u64(field + used);
        used += 8;
    }
    if (field != NULL && packed == UINT32_MAX) {
        if (field_size < used + 8)
            return false;
        packed = plim__decoder_input_u64(field + used);
    }
    if (packed > INT64_MAX || size > INT64_MAX)
        return false;
    *totals_out =
        (plim__zip_totals_t){(int64_t)packed, (int64_t)size, plim__decoder_input_u32(sums)};
    *zip64_out = field != NULL;
    return true;
}

bool plim__zip_central_parse(const unsigned char *p, plim__zip_totals_t *totals_out)
{
    bool zip64;
    return read_totals(p + 16, p + PLIM__ZIP_CENTRAL_BYTES + plim__zip_central_name(p),
                       plim__decoder_input_u16(p + 30), totals_out, &zip64);
}

bool plim__zip_local_parse(const unsigned char *p, plim__zip_entry_t *entry_out,
                           const char **complaint_out)
{
    plim__zip_entry_t entry = {.name_size = plim__decoder_input_u16(p + 26)};
    plim__zip_totals_t totals;
    uint32_t flags = plim__decoder_input_u16(p + 6), method = plim__decoder_input_u16(p + 8);
    if (!read_totals(p + 14, p + PLIM__ZIP_LOCAL_BYTES + entry.name_size,
                     plim__decoder_input_u16(p + 28), &totals, &entry.zip64)) {
        *complaint_out = "a member's header has impossible sizes";
        return false;
    }
    entry.packed_size = totals.packed_size;
    entry.size = totals.size;
    entry.crc = totals.crc;
    entry.descriptor = (flags & FLAG_DESCRIPTOR) != 0;
    /* A writer that cannot seek back writes 0 or all ones; some know the uncompressed size. */
    if (entry.descriptor && (entry.packed_size == 0 || entry.packed_size == UINT32_MAX)) {
        entry.packed_size = -1;
        if (entry.size == 0 || entry.size == UINT32_MAX)
            entry.size = -1;
    }
    entry.deflated = method == METHOD_DEFLATED;
    if ((flags & (FLAG_ENCRYPTED | FLAG_STRONG | FLAG_MASKED)) != 0)
        entry.unreadable = "it is encrypted";
    else if (method != METHOD_STORED && method != METHOD_DEFLATED)
        entry.unreadable = "it is compressed by a method other than deflate";
    if (method == METHOD_STORED && entry.unreadable == NULL && entry.packed_size >= 0 &&
        entry.packed_size != entry.size) {
        *complaint_out = "a stored member's two sizes differ";
        return false;
    }
    *entry_out = entry;
    return true;
}

/* Size of the descriptor if it has this form and matches `found`, else 0. */
static size_t descriptor_form(const unsigned char *p, size_t have, const plim__zip_totals_t *found,
                              size_t mark, size_t width)
{
    size_t size = mark + 4 + 2 * width;
    if (have < size + 2 || memcmp(p, PLIM__ZIP_DESCRIPTOR_MARK, mark) != 0 ||
        memcmp(p + size, "PK", 2) != 0 || plim__decoder_input_u32(p + mark) != found->crc)
        return 0;
    uint64_t packed = (uint64_t)found->packed_size, whole = (uint64_t)found->size;
    const unsigned char *sizes = p + mark + 4;
    bool same = width == 8 ? plim__decoder_input_u64(sizes) == packed &&
                                 plim__decoder_input_u64(sizes + 8) == whole
                           : plim__decoder_input_u32(sizes) == packed &&
                                 plim__decoder_input_u32(sizes + 4) == whole;
    return same ? size : 0;
}

size_t plim__zip_descriptor(const unsigned char *p, size_t have, const plim__zip_totals_t *found,
                            bool zip64)
{
    for (int i = 0; i < 4; i++) {
        bool wide = zip64 == (i % 2 == 0);
        size_t size = descriptor_form(p, have, found, i < 2 ? 4 : 0, wide ? 8 : 4);
        if (size != 0)
            return size;
    }
    return 0;
}

size_t plim__zip_marker(const unsigned char *p, size_t have)
{
    if (have < 8 || memcmp(p + 4, "PK\x03\x04", 4) != 0)
        return 0;
    return memcmp(p, "PK\x07\x08", 4) == 0 || memcmp(p, "PK00", 4) == 0 ? 4 : 0;
}

bool plim__zip_record(const unsigned char *p, size_t have, plim__zip_record_t *record_out)
{
    static const struct {
        char mark[5];
        plim__zip_kind_t kind;
        size_t fixed;    /* bytes before the parts of variable size */
        size_t sizes[3]; /* offsets of the 16-bit sizes of those parts, 0 for none */
    } records[] = {
        {"PK\x01\x02", PLIM__ZIP_CENTRAL, PLIM__ZIP_CENTRAL_BYTES, {28, 30, 32}},
        {"PK\x06\x07", PLIM__ZIP_OTHER, 20, {0, 0, 0}}, /* the ZIP64 end's locator */
        {"PK\x05\x05", PLIM__ZIP_OTHER, 6, {4, 0, 0}},  /* a signature */
        {"PK\x05\x06", PLIM__ZIP_END, 22, {20, 0, 0}},
    };
    for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
        if (have < records[i].fixed || memcmp(p, records[i].mark, 4) != 0)
            continue;
        record_out->kind = records[i].kind;
        record_out->size = (int64_t)records[i].fixed;
        for (int k = 0; k < 3 && records[i].sizes[k] != 0; k++)
            record_out->size += plim__decoder_input_u16(p + records[i].sizes[k]);
        return true;
    }
    /* The ZIP64 end record gives its size in 64 bits. */
    if (have < 12 || memcmp(p, "PK\x06\x06", 4) != 0 ||
        plim__decoder_input_u64(p + 4) > INT64_MAX - 12)
        return false;
    record_out->kind = PLIM__ZIP_OTHER;
    record_out->size = (int64_t)plim__decoder_input_u64(p + 4) + 12;
    return true;
}
