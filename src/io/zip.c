/*
 * A zip read forward only by libarchive, fed from a stream. Its streaming reader never seeks, so it
 * goes by the local headers; it checks sizes and CRCs at each member's end.
 */
#include "io/stream.h"

#include "base/fail.h"
#include "mem/arena.h"

#include <archive.h>
#include <archive_entry.h>
#include <errno.h>
#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define FEED_BYTES ((size_t)256 << 10)

typedef struct member {
    plim__stream_t stream;
    struct plim__zip *zip;
    const char *block; /* libarchive's, valid until the next block */
    size_t block_left;
    bool open;
} member_t;

struct plim__zip {
    plim__arena_t arena;
    plim__stream_t *inner;
    struct archive *archive;
    int account; /* of what libarchive takes */
    plim_ledger_t *ledger;
    plim_status_t inner_status; /* why the feed stopped */
    char *feed;                 /* [FEED_BYTES] */
    char name[PLIM__STREAM_NAME];
    int64_t size;
    member_t member;
};

static la_ssize_t feed(struct archive *archive, void *context, const void **buffer_out)
{
    plim__zip_t *zip = context;
    size_t got = 0;
    zip->inner_status = zip->inner->read(zip->inner, zip->feed, FEED_BYTES, &got);
    *buffer_out = zip->feed;
    if (zip->inner_status == PLIM_OK)
        return (la_ssize_t)got;
    archive_set_error(archive, EIO, "the stream below failed");
    return -1;
}

/* Called after libarchive refused something; the stream below has the first word. */
static plim_status_t zip_fail(plim__zip_t *zip, const char *name)
{
    if (zip->inner_status != PLIM_OK)
        return zip->inner_status;
    const char *text = archive_error_string(zip->archive);
    return plim__fail(
        PLIM_ERR_DATA, "%s: damaged zip near byte %" PRId64 " of %s: %s; fetch or pack it again",
        name, zip->inner->position, zip->inner->name, text != NULL ? text : "unreadable");
}

static plim_status_t open_archive(plim__zip_t *zip)
{
    zip->archive = archive_read_new();
    if (zip->archive == NULL)
        return plim__fail(PLIM_ERR_NOMEM, "%s: libarchive got no memory", zip->inner->name);
    if (archive_read_support_format_zip_streamable(zip->archive) != ARCHIVE_OK ||
        archive_read_open(zip->archive, zip, NULL, feed, NULL) != ARCHIVE_OK)
        return zip_fail(zip, zip->inner->name);
    return PLIM_OK;
}

plim_status_t plim__zip_open(const plim_job_t *job, plim__stream_t *inner, plim__zip_t **zip_out)
{
    plim__arena_t arena;
    plim_status_t status;
    int account;
    status = plim__arena_create(job->ledger, "zip",
                                plim__arena_piece(1, sizeof(plim__zip_t), 1) +
                                    plim__arena_piece(1, FEED_BYTES, PLIM__PAGE),
                                &arena);
    if (status != PLIM_OK)
        goto close_inner;
    status = plim__ledger_reserve(job->ledger, "zip", PLIM__ZIP_ESTIMATE, &account);
    if (status != PLIM_OK)
        goto destroy_arena;
    plim__zip_t *zip = plim__arena_carve(&arena, 1, sizeof *zip, 1);
    zip->feed = plim__arena_carve(&arena, 1, FEED_BYTES, PLIM__PAGE);
    zip->arena = arena;
    zip->inner = inner;
    zip->account = account;
    zip->ledger = job->ledger;
    status = open_archive(zip);
    if (status != PLIM_OK) {
        plim__zip_close(zip);
        return status;
    }
    *zip_out = zip;
    return PLIM_OK;

destroy_arena:
    plim__arena_destroy(&arena);
close_inner:
    plim__stream_close(inner);
    return status;
}

plim_status_t plim__zip_next(plim__zip_t *zip, const char **name_out, int64_t *size_out)
{
    struct archive_entry *entry;
    for (;;) {
        int code = archive_read_next_header(zip->archive, &entry);
        if (code == ARCHIVE_EOF) {
            *name_out = NULL;
            *size_out = -1;
            return PLIM_OK;
        }
        /* A name that is no UTF-8 is a warning, and no matter here. */
        if (code != ARCHIVE_OK && code != ARCHIVE_WARN)
            return zip_fail(zip, zip->inner->name);
        if (archive_entry_filetype(entry) == AE_IFREG)
            break;
    }
    const char *name = archive_entry_pathname(entry);
    if (name == NULL || strlen(name) >= sizeof zip->name)
        return plim__fail(PLIM_ERR_DATA, "%s: the name of the member near byte %" PRId64 " is %s",
                          zip->inner->name, zip->inner->position,
                          name == NULL ? "unreadable" : "longer than 511 bytes");
    (void)snprintf(zip->name, sizeof zip->name, "%s", name);
    zip->size = archive_entry_size_is_set(entry) ? archive_entry_size(entry) : -1;
    *name_out = zip->name;
    *size_out = zip->size;
    return PLIM_OK;
}

static plim_status_t member_read(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out)
{
    member_t *member = (member_t *)stream;
    while (member->block_left == 0) {
        const void *block;
        la_int64_t offset;
        int code =
            archive_read_data_block(member->zip->archive, &block, &member->block_left, &offset);
        if (code == ARCHIVE_EOF) {
            *got_out = 0;
            return PLIM_OK;
        }
        if (code != ARCHIVE_OK)
            return zip_fail(member->zip, stream->name);
        member->block = block;
    }
    size_t got = capacity < member->block_left ? capacity : member->block_left;
    memcpy(to, member->block, got);
    member->block += got;
    member->block_left -= got;
    stream->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void member_close(plim__stream_t *stream)
{
    ((member_t *)stream)->open = false;
}

plim_status_t plim__zip_member(plim__zip_t *zip, plim__stream_t **stream_out)
{
    member_t *member = &zip->member;
    if (member->open)
        return plim__fail(PLIM_ERR_USAGE, "%s: a member is open already", zip->inner->name);
    *member = (member_t){.zip = zip, .open = true};
    member->stream.read = member_read;
    member->stream.close = member_close;
    member->stream.size = zip->size;
    (void)snprintf(member->stream.name, sizeof member->stream.name, "%s: %s", zip->inner->name,
                   zip->name);
    *stream_out = &member->stream;
    return PLIM_OK;
}

void plim__zip_close(plim__zip_t *zip)
{
    if (zip == NULL)
        return;
    if (zip->archive != NULL)
        (void)archive_read_free(zip->archive);
    plim__ledger_release(zip->ledger, zip->account, PLIM__ZIP_ESTIMATE);
    plim__stream_close(zip->inner);
    plim__arena_destroy(&zip->arena);
}
