/*
 * A zip read from front to back, by its local headers:
 *
 *     [local header │ data │ descriptor?] …  [central header] …  [ZIP64 end │ locator]?  [end]
 *
 * A member's sizes and CRC are in its local header (in a ZIP64 extra field when 32 bits are too
 * few) or, when the writer could not seek back, in the descriptor after the data. They are compared
 * with the data. At the end, the names, sizes and CRCs in the central directory are compared with
 * those of the members: each entry is hashed and the hashes are added up, so that the comparison
 * needs no memory and the order of entries does not matter.
 *
 * Since it reads forward only, a zip inside a zip is consumed without being stored.
 */
#include "io/zip_format.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/printable.h"
#include "io/inflate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

typedef struct zip_member {
    plim__reader_t reader;
    struct plim__zip *zip;
    bool open;
} zip_member_t;

struct plim__zip {
    plim__arena_t arena;
    plim__decoder_input_t input;
    int64_t members;    /* local headers passed, directories too */
    uint64_t name_hash; /* of the current member's name */
    uint64_t hash_sum;  /* sum of hash_member over the members passed */
    bool ended;         /* the central directory was reached */
    bool broken;        /* an error was returned: nothing more is read */
    bool inside;        /* the current member has not ended yet */
    plim__zip_entry_t entry;
    int64_t stored;   /* data bytes passed, of a member that is not compressed */
    int64_t produced; /* uncompressed bytes of the member so far */
    uint32_t crc;     /* of the produced bytes */
    plim__inflate_t *inflate;
    unsigned char *buffer; /* [PLIM__INFLATE_CHUNK], for callers that read little at a time */
    unsigned char *buffer_begin;
    unsigned char *buffer_end;
    char name[PLIM__READER_NAME];
    zip_member_t member;
};

/* Fails at the current byte of the zip. Every later call fails too. */
static plim_status_t zip_fail(plim__zip_t *zip, const char *what)
{
    zip->broken = true;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: damaged zip at byte %" PRId64 ": %s; download or pack it again",
                      zip->input.inner->name, plim__decoder_input_position(&zip->input), what);
}

static plim_status_t member_fail(plim__zip_t *zip, const char *what)
{
    zip->broken = true;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: damaged at byte %" PRId64 " (byte %" PRId64
                      " of the zip): %s; download or pack it again",
                      zip->member.reader.name, zip->produced,
                      plim__decoder_input_position(&zip->input), what);
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__zip_t *zip = draft;
    plim__decoder_input_init(&zip->input, arena, zip->input.inner);
    zip->inflate = plim__arena_carve(arena, 1, sizeof *zip->inflate, 1);
    zip->buffer = plim__arena_carve(arena, 1, PLIM__INFLATE_CHUNK, PLIM__PAGE);
}

plim_status_t plim__zip_open(const plim_job_t *job, plim__reader_t *inner, plim__zip_t **zip_out)
{
    plim__zip_t draft = {.input = {.inner = inner}};
    plim_status_t status = plim__object_create(job->ledger, "zip", lay_out, &draft, sizeof draft,
                                               &draft.arena, zip_out);
    if (status != PLIM_OK)
        plim__reader_close(inner);
    return status;
}

void plim__zip_close(plim__zip_t *zip)
{
    if (zip == NULL)
        return;
    plim__reader_close(zip->input.inner);
    plim__arena_destroy(&zip->arena);
}

static uint64_t hash_member(uint64_t name_hash, const plim__zip_totals_t *totals)
{
    const uint64_t parts[] = {name_hash, (uint64_t)totals->packed_size, (uint64_t)totals->size,
                              totals->crc};
    return XXH3_64bits(parts, sizeof parts);
}

static void leave_member(plim__zip_t *zip, const plim__zip_totals_t *totals)
{
    zip->hash_sum += hash_member(zip->name_hash, totals);
    zip->inside = false;
}

/* After the last byte of data: reads the descriptor and compares the recorded sizes and CRC with
 * those of the data. */
static plim_status_t end_member(plim__zip_t *zip)
{
    plim__zip_entry_t *entry = &zip->entry;
    int64_t packed = entry->deflated ? zip->inflate->taken : zip->stored;
    const plim__zip_totals_t found = {packed, zip->produced, zip->crc};
    if (entry->descriptor) {
        PLIM_TRY(plim__decoder_input_need(&zip->input, PLIM__ZIP_DESCRIPTOR_MAX));
        size_t size = plim__zip_descriptor(zip->input.begin, plim__decoder_input_have(&zip->input),
                                           &found, entry->zip64);
        if (size == 0)
            return member_fail(zip, "its CRC or size does not match its descriptor");
        zip->input.begin += size;
    } else if (zip->crc != entry->crc) {
        return member_fail(zip, "its CRC does not match the recorded one");
    }
    if ((entry->packed_size >= 0 && packed != entry->packed_size) ||
        (entry->size >= 0 && zip->produced != entry->size))
        return member_fail(zip, "its size does not match the recorded one");
    leave_member(zip, &found);
    return PLIM_OK;
}

static plim_status_t produce_inflated(plim__zip_t *zip, void *to, size_t capacity, size_t *got_out)
{
    int64_t limit = zip->entry.packed_size >= 0 ? zip->entry.packed_size : INT64_MAX;
    const char *complaint;
    PLIM_TRY(
        plim__inflate_read(zip->inflate, &zip->input, limit, to, capacity, got_out, &complaint));
    return complaint == NULL ? PLIM_OK : member_fail(zip, complaint);
}

/*
 * A stored member without a size: the data ends at a descriptor that matches it. Everything before
 * the next possible descriptor is data.
 */
static plim_status_t size_unsized(plim__zip_t *zip, size_t *size_out)
{
    plim__decoder_input_t *input = &zip->input;
    PLIM_TRY(plim__decoder_input_need(input, PLIM__ZIP_DESCRIPTOR_MAX));
    plim__zip_totals_t found = {zip->produced, zip->produced, zip->crc};
    size_t have = plim__decoder_input_have(input);
    unsigned char *mark = memmem(input->begin, have, PLIM__ZIP_DESCRIPTOR_MARK, 4);
    if (mark == input->begin && plim__zip_descriptor(mark, have, &found, zip->entry.zip64) != 0)
        *size_out = 0;
    else if (mark == input->begin)
        *size_out = 1;
    else if (mark != NULL)
        *size_out = (size_t)(mark - input->begin);
    else if (input->ended)
        return member_fail(zip, "it ends without its descriptor");
    else
        *size_out = have - 3;
    return PLIM_OK;
}

static plim_status_t produce_stored(plim__zip_t *zip, void *to, size_t capacity, size_t *got_out)
{
    plim__decoder_input_t *input = &zip->input;
    size_t size = 0;
    if (zip->entry.packed_size >= 0) {
        int64_t left = zip->entry.packed_size - zip->stored;
        if (left > 0)
            PLIM_TRY(plim__decoder_input_need(input, 1));
        if (left > 0 && plim__decoder_input_have(input) == 0)
            return member_fail(zip, "the zip ends inside it");
        size = (size_t)plim__min_i64(left, (int64_t)plim__decoder_input_have(input));
    } else {
        PLIM_TRY(size_unsized(zip, &size));
    }
    size = size < capacity ? size : capacity;
    memcpy(to, input->begin, size);
    input->begin += size;
    zip->stored += (int64_t)size;
    *got_out = size;
    return PLIM_OK;
}

static plim_status_t produce_or_fail(plim__zip_t *zip, void *to, size_t capacity, size_t *got_out)
{
    *got_out = 0;
    if (!zip->inside)
        return PLIM_OK;
    PLIM_TRY(zip->entry.deflated ? produce_inflated(zip, to, capacity, got_out)
                                 : produce_stored(zip, to, capacity, got_out));
    if (*got_out == 0)
        return end_member(zip);
    zip->crc = plim__inflate_crc(zip->crc, to, *got_out);
    zip->produced += (int64_t)*got_out;
    if (zip->entry.size < 0 || zip->produced < zip->entry.size)
        return PLIM_OK;
    char more;
    size_t got;
    PLIM_TRY(zip->entry.deflated ? produce_inflated(zip, &more, 1, &got)
                                 : produce_stored(zip, &more, 1, &got));
    if (got > 0 || zip->produced > zip->entry.size)
        return member_fail(zip, "it is longer than recorded");
    return end_member(zip);
}

/* Produces the member's next bytes, none at its end. Sizes and CRC are checked with the last byte.
 */
static plim_status_t produce(plim__zip_t *zip, void *to, size_t capacity, size_t *got_out)
{
    plim_status_t status = produce_or_fail(zip, to, capacity, got_out);
    /* Also when the inner reader failed: bytes already taken from it are lost. */
    zip->broken = zip->broken || status != PLIM_OK;
    return status;
}

static plim_status_t broken_already(const plim__zip_t *zip)
{
    return plim__fail(PLIM_ERR_DATA, "%s: it was damaged at an earlier byte",
                      zip->input.inner->name);
}

static plim_status_t member_read(plim__reader_t *reader, void *to, size_t capacity, size_t *got_out)
{
    plim__zip_t *zip = ((zip_member_t *)reader)->zip;
    size_t got;
    if (zip->broken)
        return broken_already(zip);
    if (zip->buffer_begin == zip->buffer_end && capacity >= PLIM__INFLATE_CHUNK) {
        PLIM_TRY(produce(zip, to, capacity, &got));
    } else {
        if (zip->buffer_begin == zip->buffer_end) {
            zip->buffer_begin = zip->buffer_end = zip->buffer;
            PLIM_TRY(produce(zip, zip->buffer, PLIM__INFLATE_CHUNK, &got));
            zip->buffer_end += got;
        }
        got = (size_t)(zip->buffer_end - zip->buffer_begin);
        got = got < capacity ? got : capacity;
        memcpy(to, zip->buffer_begin, got);
        zip->buffer_begin += got;
    }
    reader->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void member_close(plim__reader_t *reader)
{
    ((zip_member_t *)reader)->open = false;
}

static void name_member(plim__zip_t *zip)
{
    plim__reader_t *reader = &zip->member.reader;
    char name[PLIM__READER_NAME];
    plim__text_printable(zip->name, strlen(zip->name), name, sizeof name);
    (void)snprintf(reader->name, sizeof reader->name, "%s: %s", zip->input.inner->name, name);
}

plim_status_t plim__zip_member(plim__zip_t *zip, plim__reader_t **reader_out)
{
    plim__reader_t *reader = &zip->member.reader;
    if (zip->entry.unreadable != NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: %s; pack it again with deflate", reader->name,
                          zip->entry.unreadable);
    reader->read = member_read;
    reader->close = member_close;
    reader->position = 0;
    reader->size = zip->entry.size;
    zip->member.zip = zip;
    zip->member.open = true;
    *reader_out = reader;
    return PLIM_OK;
}

/* Skips the rest of the current member; a member of unknown size must be read to its end. */
static plim_status_t pass_member(plim__zip_t *zip)
{
    const plim__zip_entry_t *entry = &zip->entry;
    size_t got = 1;
    if (entry->packed_size >= 0 && !entry->descriptor) {
        int64_t left = entry->packed_size - (entry->deflated ? zip->inflate->taken : zip->stored);
        int64_t passed;
        const plim__zip_totals_t declared = {entry->packed_size, entry->size, entry->crc};
        PLIM_TRY(plim__decoder_input_skip(&zip->input, left, &passed));
        leave_member(zip, &declared);
        return passed == left ? PLIM_OK : member_fail(zip, "the zip ends inside it");
    }
    if (entry->unreadable != NULL)
        return member_fail(zip, entry->unreadable);
    while (got > 0)
        PLIM_TRY(produce(zip, zip->buffer, PLIM__INFLATE_CHUNK, &got));
    return PLIM_OK;
}

/* The local header at the input's begin. */
static plim_status_t begin_member(plim__zip_t *zip)
{
    plim__decoder_input_t *input = &zip->input;
    const char *complaint = NULL;
    PLIM_TRY(plim__decoder_input_need(input, PLIM__ZIP_LOCAL_BYTES));
    if (plim__decoder_input_have(input) >= PLIM__ZIP_LOCAL_BYTES)
        PLIM_TRY(plim__decoder_input_need(input, plim__zip_local_size(input->begin)));
    if (plim__decoder_input_have(input) < PLIM__ZIP_LOCAL_BYTES ||
        plim__decoder_input_have(input) < plim__zip_local_size(input->begin))
        return zip_fail(zip, "it ends inside a member's header");
    if (!plim__zip_local_parse(input->begin, &zip->entry, &complaint))
        return zip_fail(zip, complaint);
    zip->name_hash = XXH3_64bits(input->begin + PLIM__ZIP_LOCAL_BYTES, zip->entry.name_size);
    size_t size = zip->entry.name_size < sizeof zip->name ? zip->entry.name_size : 0;
    memcpy(zip->name, input->begin + PLIM__ZIP_LOCAL_BYTES, size);
    zip->name[size] = '\0';
    input->begin += plim__zip_local_size(input->begin);
    zip->members++;
    zip->inside = true;
    zip->stored = 0;
    zip->produced = 0;
    zip->crc = 0;
    zip->buffer_begin = zip->buffer_end = zip->buffer;
    plim__inflate_begin(zip->inflate);
    name_member(zip);
    return PLIM_OK;
}

/* Reads the central header of `size` bytes and hashes its entry. */
static plim_status_t read_central(plim__zip_t *zip, int64_t size, uint64_t *hash_out)
{
    plim__decoder_input_t *input = &zip->input;
    plim__zip_totals_t totals;
    PLIM_TRY(plim__decoder_input_need(input, (size_t)size));
    if (plim__decoder_input_have(input) < (size_t)size)
        return zip_fail(zip, "it ends inside its central directory");
    if (!plim__zip_central_parse(input->begin, &totals))
        return zip_fail(zip, "its central directory has impossible sizes");
    *hash_out = hash_member(
        XXH3_64bits(input->begin + PLIM__ZIP_CENTRAL_BYTES, plim__zip_central_name(input->begin)),
        &totals);
    return PLIM_OK;
}

/* Reads the central directory to its end and compares it with the members that were read. */
static plim_status_t end_zip(plim__zip_t *zip)
{
    plim__decoder_input_t *input = &zip->input;
    int64_t listed = 0, passed = 0;
    uint64_t sum = 0, hash = 0;
    for (;;) {
        PLIM_TRY(plim__decoder_input_need(input, PLIM__ZIP_RECORD_MAX));
        plim__zip_record_t record;
        if (!plim__zip_record(input->begin, plim__decoder_input_have(input), &record))
            return zip_fail(zip, "its central directory is damaged or cut off");
        if (record.kind == PLIM__ZIP_CENTRAL) {
            PLIM_TRY(read_central(zip, record.size, &hash));
            sum += hash;
            listed++;
        }
        PLIM_TRY(plim__decoder_input_skip(input, record.size, &passed));
        if (passed < record.size)
            return zip_fail(zip, "it ends inside its central directory");
        if (record.kind == PLIM__ZIP_END)
            break;
    }
    if (listed != zip->members)
        return zip_fail(zip, "its central directory lists more or fewer members than it holds");
    if (sum != zip->hash_sum)
        return zip_fail(zip, "its central directory lists a name, size or CRC that no member has");
    zip->ended = true;
    return PLIM_OK;
}

/* A member to skip: a directory, or one whose name has a NUL or is too long. */
static bool nameless(const plim__zip_t *zip)
{
    size_t size = strlen(zip->name);
    return size == 0 || size != zip->entry.name_size || zip->name[size - 1] == '/';
}

plim_status_t plim__zip_next(plim__zip_t *zip, const char **name_out, int64_t *size_out)
{
    if (zip->broken)
        return broken_already(zip);
    do {
        if (zip->inside)
            PLIM_TRY(pass_member(zip));
        if (zip->ended)
            break;
        PLIM_TRY(plim__decoder_input_need(&zip->input, 8));
        if (zip->members == 0)
            zip->input.begin +=
                plim__zip_marker(zip->input.begin, plim__decoder_input_have(&zip->input));
        if (plim__decoder_input_have(&zip->input) < 4)
            return zip_fail(zip, zip->members == 0 ? "it is too short for a zip"
                                                   : "it ends without its central directory");
        if (memcmp(zip->input.begin, "PK\x03\x04", 4) == 0)
            PLIM_TRY(begin_member(zip));
        else if (zip->members == 0 && memcmp(zip->input.begin, "PK", 2) != 0)
            return zip_fail(zip, "it does not begin like a zip");
        else
            PLIM_TRY(end_zip(zip));
    } while (!zip->ended && nameless(zip));
    *name_out = zip->ended ? NULL : zip->name;
    *size_out = zip->ended ? -1 : zip->entry.size;
    return PLIM_OK;
}
