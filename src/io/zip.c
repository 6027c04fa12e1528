/*
 * A zip read from front to back, by its local headers:
 *
 *     [local header │ data │ descriptor?] …  [central header] …  [ZIP64 end │ locator]?  [end]
 *
 * A member's sizes and CRC stand in its local header (a ZIP64 extra field when 32 bits do not do)
 * or, when the writer could not go back, in the descriptor behind the data. Whatever is said is
 * compared with what was found; at the end, the names, sizes and CRCs that the central directory
 * lists are compared with those of the members, by the sum of a hash of each, so that neither the
 * number of members nor their order matters.
 *
 * Forward-only reading is what lets a zip inside a zip be consumed without being stored.
 */
#include "io/zip_format.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/inflate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <xxhash.h>

typedef struct member {
    plim__stream_t stream;
    struct plim__zip *zip;
    bool open;
} member_t;

struct plim__zip {
    plim__arena_t arena;
    plim__decoder_input_t input;
    int64_t members;    /* local headers passed, directories too */
    uint64_t name_hash; /* of the current member's name */
    uint64_t hash_sum;  /* over the members passed: see hash_member */
    bool ended;         /* the central directory was reached */
    bool broken;        /* an error was returned: nothing more is read */
    bool inside;        /* of the current member: its end was not reached */
    plim__zip_entry_t entry;
    int64_t stored;   /* bytes of data passed, of a member that is not compressed */
    int64_t produced; /* bytes of the member, uncompressed */
    uint32_t crc;     /* of those */
    plim__inflate_t inflate;
    unsigned char *buffer; /* [PLIM__INFLATE_PIECE], for readers who take little at a time */
    unsigned char *buffer_begin;
    unsigned char *buffer_end;
    char name[PLIM__STREAM_NAME];
    member_t member;
};

_Static_assert(sizeof(plim__zip_t) + PLIM__FEED_PIECE + PLIM__INFLATE_PIECE + 2 * PLIM__PAGE <=
                   PLIM__ZIP_ESTIMATE,
               "PLIM__ZIP_ESTIMATE holds a zip");

/* A refusal of the zip at the feed's place, and the last thing it says. */
static plim_status_t zip_fail(plim__zip_t *zip, const char *what)
{
    zip->broken = true;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: damaged zip at byte %" PRId64 ": %s; fetch or pack it again",
                      zip->input.inner->name, plim__decoder_input_position(&zip->input), what);
}

static plim_status_t member_fail(plim__zip_t *zip, const char *what)
{
    zip->broken = true;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: damaged at byte %" PRId64 " of it (byte %" PRId64
                      " of the zip): %s; fetch or pack it again",
                      zip->member.stream.name, zip->produced,
                      plim__decoder_input_position(&zip->input), what);
}

plim_status_t plim__zip_open(const plim_job_t *job, plim__stream_t *inner, plim__zip_t **zip_out)
{
    plim__arena_t arena;
    plim_status_t status = plim__arena_create(job->ledger, "zip", PLIM__ZIP_ESTIMATE, &arena);
    if (status != PLIM_OK) {
        plim__stream_close(inner);
        return status;
    }
    plim__zip_t *zip = plim__arena_carve(&arena, 1, sizeof *zip, 1);
    plim__decoder_input_init(&zip->input, &arena, inner);
    zip->buffer = plim__arena_carve(&arena, 1, PLIM__INFLATE_PIECE, PLIM__PAGE);
    zip->arena = arena;
    *zip_out = zip;
    return PLIM_OK;
}

void plim__zip_close(plim__zip_t *zip)
{
    if (zip == NULL)
        return;
    plim__stream_close(zip->input.inner);
    plim__arena_destroy(&zip->arena);
}

/* A member by its name, sizes and CRC. */
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

/* After the last byte of data: the descriptor, then everything that was said against what was
 * found. */
static plim_status_t end_member(plim__zip_t *zip)
{
    plim__zip_entry_t *entry = &zip->entry;
    int64_t packed = entry->deflated ? zip->inflate.taken : zip->stored;
    const plim__zip_totals_t found = {packed, zip->produced, zip->crc};
    if (entry->descriptor) {
        PLIM_TRY(plim__decoder_input_need(&zip->input, PLIM__ZIP_DESCRIPTOR_MAX));
        size_t size = plim__zip_descriptor(zip->input.begin, plim__decoder_input_have(&zip->input),
                                           &found, entry->zip64);
        if (size == 0)
            return member_fail(zip, "its CRC or size differs from the one recorded behind it");
        zip->input.begin += size;
    } else if (zip->crc != entry->crc) {
        return member_fail(zip, "its CRC differs from the one recorded");
    }
    if ((entry->packed_size >= 0 && packed != entry->packed_size) ||
        (entry->size >= 0 && zip->produced != entry->size))
        return member_fail(zip, "its size differs from the one recorded");
    leave_member(zip, &found);
    return PLIM_OK;
}

static plim_status_t produce_inflated(plim__zip_t *zip, void *to, size_t capacity, size_t *got_out)
{
    int64_t limit = zip->entry.packed_size >= 0 ? zip->entry.packed_size : INT64_MAX;
    const char *complaint;
    PLIM_TRY(
        plim__inflate_read(&zip->inflate, &zip->input, limit, to, capacity, got_out, &complaint));
    return complaint == NULL ? PLIM_OK : member_fail(zip, complaint);
}

/*
 * Stored without a size: the data ends where a descriptor stands that fits it. All before the next
 * place where one could begin is data.
 */
static plim_status_t size_unsized(plim__zip_t *zip, size_t *size_out)
{
    plim__decoder_input_t *feed = &zip->input;
    PLIM_TRY(plim__decoder_input_need(feed, PLIM__ZIP_DESCRIPTOR_MAX));
    plim__zip_totals_t found = {zip->produced, zip->produced, zip->crc};
    size_t have = plim__decoder_input_have(feed);
    unsigned char *mark = memmem(feed->begin, have, PLIM__ZIP_DESCRIPTOR_MARK, 4);
    if (mark == feed->begin && plim__zip_descriptor(mark, have, &found, zip->entry.zip64) != 0)
        *size_out = 0;
    else if (mark == feed->begin)
        *size_out = 1;
    else if (mark != NULL)
        *size_out = (size_t)(mark - feed->begin);
    else if (feed->ended)
        return member_fail(zip, "it ends without its descriptor");
    else
        *size_out = have - 3;
    return PLIM_OK;
}

static plim_status_t produce_stored(plim__zip_t *zip, void *to, size_t capacity, size_t *got_out)
{
    plim__decoder_input_t *feed = &zip->input;
    size_t size = 0;
    if (zip->entry.packed_size >= 0) {
        int64_t left = zip->entry.packed_size - zip->stored;
        if (left > 0)
            PLIM_TRY(plim__decoder_input_need(feed, 1));
        if (left > 0 && plim__decoder_input_have(feed) == 0)
            return member_fail(zip, "the zip ends inside it");
        size = (size_t)plim__min_i64(left, (int64_t)plim__decoder_input_have(feed));
    } else {
        PLIM_TRY(size_unsized(zip, &size));
    }
    size = size < capacity ? size : capacity;
    memcpy(to, feed->begin, size);
    feed->begin += size;
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

/* The member's next bytes, none at its end, which is checked as soon as the last byte is there. */
static plim_status_t produce(plim__zip_t *zip, void *to, size_t capacity, size_t *got_out)
{
    plim_status_t status = produce_or_fail(zip, to, capacity, got_out);
    /* Also when the stream below failed: what was taken of it is lost. */
    zip->broken = zip->broken || status != PLIM_OK;
    return status;
}

static plim_status_t broken_already(const plim__zip_t *zip)
{
    return plim__fail(PLIM_ERR_DATA, "%s: nothing can be read behind damage",
                      zip->input.inner->name);
}

static plim_status_t member_read(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out)
{
    plim__zip_t *zip = ((member_t *)stream)->zip;
    size_t got;
    if (zip->broken)
        return broken_already(zip);
    if (zip->buffer_begin == zip->buffer_end && capacity >= PLIM__INFLATE_PIECE) {
        PLIM_TRY(produce(zip, to, capacity, &got));
    } else {
        if (zip->buffer_begin == zip->buffer_end) {
            zip->buffer_begin = zip->buffer_end = zip->buffer;
            PLIM_TRY(produce(zip, zip->buffer, PLIM__INFLATE_PIECE, &got));
            zip->buffer_end += got;
        }
        got = (size_t)(zip->buffer_end - zip->buffer_begin);
        got = got < capacity ? got : capacity;
        memcpy(to, zip->buffer_begin, got);
        zip->buffer_begin += got;
    }
    stream->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void member_close(plim__stream_t *stream)
{
    ((member_t *)stream)->open = false;
}

static void name_member(plim__zip_t *zip)
{
    plim__stream_t *stream = &zip->member.stream;
    (void)snprintf(stream->name, sizeof stream->name, "%s: %s", zip->input.inner->name, zip->name);
    for (char *p = stream->name; *p != '\0'; p++) {
        if ((unsigned char)*p < ' ' || *p == '\x7f')
            *p = '?';
    }
}

plim_status_t plim__zip_member(plim__zip_t *zip, plim__stream_t **stream_out)
{
    plim__stream_t *stream = &zip->member.stream;
    if (!zip->inside || zip->member.open)
        return plim__fail(PLIM_ERR_USAGE, "%s: %s", zip->input.inner->name,
                          zip->inside ? "a member is open already" : "there is no member to open");
    if (zip->entry.unreadable != NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: %s; pack it again with deflate", stream->name,
                          zip->entry.unreadable);
    stream->read = member_read;
    stream->close = member_close;
    stream->position = 0;
    stream->size = zip->entry.size;
    zip->member.zip = zip;
    zip->member.open = true;
    *stream_out = stream;
    return PLIM_OK;
}

/* What is left of the current member: passed over as it is where its size is known, else read. */
static plim_status_t pass_member(plim__zip_t *zip)
{
    const plim__zip_entry_t *entry = &zip->entry;
    size_t got = 1;
    if (entry->packed_size >= 0 && !entry->descriptor) {
        int64_t left = entry->packed_size - (entry->deflated ? zip->inflate.taken : zip->stored);
        int64_t passed;
        const plim__zip_totals_t said = {entry->packed_size, entry->size, entry->crc};
        PLIM_TRY(plim__decoder_input_skip(&zip->input, left, &passed));
        leave_member(zip, &said);
        return passed == left ? PLIM_OK : member_fail(zip, "the zip ends inside it");
    }
    if (entry->unreadable != NULL)
        return member_fail(zip, entry->unreadable);
    while (got > 0)
        PLIM_TRY(produce(zip, zip->buffer, PLIM__INFLATE_PIECE, &got));
    return PLIM_OK;
}

/* The local header at the feed's begin. */
static plim_status_t begin_member(plim__zip_t *zip)
{
    plim__decoder_input_t *feed = &zip->input;
    const char *complaint = NULL;
    PLIM_TRY(plim__decoder_input_need(feed, PLIM__ZIP_LOCAL_BYTES));
    if (plim__decoder_input_have(feed) >= PLIM__ZIP_LOCAL_BYTES)
        PLIM_TRY(plim__decoder_input_need(feed, plim__zip_local_size(feed->begin)));
    if (plim__decoder_input_have(feed) < PLIM__ZIP_LOCAL_BYTES ||
        plim__decoder_input_have(feed) < plim__zip_local_size(feed->begin))
        return zip_fail(zip, "it ends inside a member's header");
    if (!plim__zip_local_parse(feed->begin, &zip->entry, &complaint))
        return zip_fail(zip, complaint);
    zip->name_hash = XXH3_64bits(feed->begin + PLIM__ZIP_LOCAL_BYTES, zip->entry.name_size);
    size_t size = zip->entry.name_size < sizeof zip->name ? zip->entry.name_size : 0;
    memcpy(zip->name, feed->begin + PLIM__ZIP_LOCAL_BYTES, size);
    zip->name[size] = '\0';
    feed->begin += plim__zip_local_size(feed->begin);
    zip->members++;
    zip->inside = true;
    zip->stored = 0;
    zip->produced = 0;
    zip->crc = 0;
    zip->buffer_begin = zip->buffer_end = zip->buffer;
    plim__inflate_begin(&zip->inflate);
    name_member(zip);
    return PLIM_OK;
}

/* The central header of `size` bytes at the feed's begin; its member's hash. */
static plim_status_t read_central(plim__zip_t *zip, int64_t size, uint64_t *hash_out)
{
    plim__decoder_input_t *feed = &zip->input;
    plim__zip_totals_t totals;
    PLIM_TRY(plim__decoder_input_need(feed, (size_t)size));
    if (plim__decoder_input_have(feed) < (size_t)size)
        return zip_fail(zip, "it ends inside its central directory");
    if (!plim__zip_central_parse(feed->begin, &totals))
        return zip_fail(zip, "its central directory has impossible sizes");
    *hash_out = hash_member(
        XXH3_64bits(feed->begin + PLIM__ZIP_CENTRAL_BYTES, plim__zip_central_name(feed->begin)),
        &totals);
    return PLIM_OK;
}

/* The central directory: present to its end, and listing the members that were met. */
static plim_status_t end_zip(plim__zip_t *zip)
{
    plim__decoder_input_t *feed = &zip->input;
    int64_t listed = 0, passed = 0;
    uint64_t sum = 0, hash = 0;
    for (;;) {
        PLIM_TRY(plim__decoder_input_need(feed, PLIM__ZIP_RECORD_MAX));
        plim__zip_record_t record;
        if (!plim__zip_record(feed->begin, plim__decoder_input_have(feed), &record))
            return zip_fail(zip, "its central directory is damaged or cut off");
        if (record.kind == PLIM__ZIP_CENTRAL) {
            PLIM_TRY(read_central(zip, record.size, &hash));
            sum += hash;
            listed++;
        }
        PLIM_TRY(plim__decoder_input_skip(feed, record.size, &passed));
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

/* A member that no caller can want: a directory, or a name that is no C string of sane length. */
static bool nameless(const plim__zip_t *zip)
{
    size_t size = strlen(zip->name);
    return size == 0 || size != zip->entry.name_size || zip->name[size - 1] == '/';
}

plim_status_t plim__zip_next(plim__zip_t *zip, const char **name_out, int64_t *size_out)
{
    if (zip->broken)
        return broken_already(zip);
    if (zip->member.open)
        return plim__fail(PLIM_ERR_USAGE, "%s: close the member first", zip->member.stream.name);
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
            return zip_fail(zip, zip->members == 0 ? "it is too short to be one"
                                                   : "it ends without its central directory");
        if (memcmp(zip->input.begin, "PK\x03\x04", 4) == 0)
            PLIM_TRY(begin_member(zip));
        else if (zip->members == 0 && memcmp(zip->input.begin, "PK", 2) != 0)
            return zip_fail(zip, "it does not begin like one");
        else
            PLIM_TRY(end_zip(zip));
    } while (!zip->ended && nameless(zip));
    *name_out = zip->ended ? NULL : zip->name;
    *size_out = zip->ended ? -1 : zip->entry.size;
    return PLIM_OK;
}
