/*
 * gzip and zstd by their magic numbers, anything else as it is. libarchive's filters do the work;
 * a stream below them hands back the bytes that were read to find the magic.
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
#define MAGIC_BYTES 4

/* What libarchive takes for one filter: buffers of 64 KiB … 256 KiB, and zstd's window. */
#define FILTER_BYTES ((size_t)16 << 20)

typedef struct decompress {
    plim__stream_t stream;
    plim__arena_t arena;
    plim__stream_t *inner;
    struct archive *archive; /* NULL: the bytes pass as they are */
    plim_ledger_t *ledger;
    int account;
    plim_status_t inner_status;
    size_t magic_size; /* bytes of `magic`, and how many were handed on */
    size_t magic_used;
    unsigned char magic[MAGIC_BYTES];
    char *feed;
    const char *block;
    size_t block_left;
} decompress_t;

/* The bytes below, the magic first. */
static plim_status_t read_below(decompress_t *decompress, void *to, size_t capacity,
                                size_t *got_out)
{
    size_t left = decompress->magic_size - decompress->magic_used;
    if (left == 0)
        return decompress->inner->read(decompress->inner, to, capacity, got_out);
    size_t got = capacity < left ? capacity : left;
    memcpy(to, decompress->magic + decompress->magic_used, got);
    decompress->magic_used += got;
    *got_out = got;
    return PLIM_OK;
}

static plim_status_t plain_read(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out)
{
    PLIM_TRY(read_below((decompress_t *)stream, to, capacity, got_out));
    stream->position += (int64_t)*got_out;
    return PLIM_OK;
}

static la_ssize_t feed(struct archive *archive, void *context, const void **buffer_out)
{
    decompress_t *decompress = context;
    size_t got = 0;
    decompress->inner_status = read_below(decompress, decompress->feed, FEED_BYTES, &got);
    *buffer_out = decompress->feed;
    if (decompress->inner_status == PLIM_OK)
        return (la_ssize_t)got;
    archive_set_error(archive, EIO, "the stream below failed");
    return -1;
}

static plim_status_t archive_fail(decompress_t *decompress)
{
    if (decompress->inner_status != PLIM_OK)
        return decompress->inner_status;
    const char *text = archive_error_string(decompress->archive);
    return plim__fail(
        PLIM_ERR_DATA,
        "%s: damaged or truncated compressed data near byte %" PRId64 ": %s; fetch it again",
        decompress->inner->name, decompress->inner->position, text != NULL ? text : "unreadable");
}

static plim_status_t archive_read_stream(plim__stream_t *stream, void *to, size_t capacity,
                                         size_t *got_out)
{
    decompress_t *decompress = (decompress_t *)stream;
    while (decompress->block_left == 0) {
        const void *block;
        la_int64_t offset;
        int code =
            archive_read_data_block(decompress->archive, &block, &decompress->block_left, &offset);
        if (code == ARCHIVE_EOF) {
            *got_out = 0;
            return PLIM_OK;
        }
        if (code != ARCHIVE_OK)
            return archive_fail(decompress);
        decompress->block = block;
    }
    size_t got = capacity < decompress->block_left ? capacity : decompress->block_left;
    memcpy(to, decompress->block, got);
    decompress->block += got;
    decompress->block_left -= got;
    stream->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void decompress_close(plim__stream_t *stream)
{
    decompress_t *decompress = (decompress_t *)stream;
    if (decompress->archive != NULL)
        (void)archive_read_free(decompress->archive);
    if (decompress->account >= 0)
        plim__ledger_release(decompress->ledger, decompress->account, FILTER_BYTES);
    plim__stream_close(decompress->inner);
    plim__arena_destroy(&decompress->arena);
}

static plim_status_t open_archive(decompress_t *decompress)
{
    struct archive_entry *entry;
    PLIM_TRY(
        plim__ledger_reserve(decompress->ledger, "streams", FILTER_BYTES, &decompress->account));
    decompress->archive = archive_read_new();
    if (decompress->archive == NULL)
        return plim__fail(PLIM_ERR_NOMEM, "%s: libarchive got no memory", decompress->inner->name);
    if (archive_read_support_filter_gzip(decompress->archive) != ARCHIVE_OK ||
        archive_read_support_filter_zstd(decompress->archive) != ARCHIVE_OK ||
        archive_read_support_format_raw(decompress->archive) != ARCHIVE_OK ||
        archive_read_open(decompress->archive, decompress, NULL, feed, NULL) != ARCHIVE_OK ||
        archive_read_next_header(decompress->archive, &entry) != ARCHIVE_OK)
        return archive_fail(decompress);
    decompress->stream.read = archive_read_stream;
    decompress->stream.size = -1;
    return PLIM_OK;
}

static bool compressed(const decompress_t *decompress)
{
    const unsigned char *magic = decompress->magic;
    if (decompress->magic_size >= 2 && magic[0] == 0x1f && magic[1] == 0x8b)
        return true;
    return decompress->magic_size == 4 && memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0;
}

plim_status_t plim__stream_decompress(const plim_job_t *job, plim__stream_t *inner,
                                      plim__stream_t **stream_out)
{
    plim__arena_t arena;
    plim_status_t status = plim__arena_create(job->ledger, "streams",
                                              plim__arena_piece(1, sizeof(decompress_t), 1) +
                                                  plim__arena_piece(1, FEED_BYTES, PLIM__PAGE),
                                              &arena);
    if (status != PLIM_OK) {
        plim__stream_close(inner);
        return status;
    }
    decompress_t *decompress = plim__arena_carve(&arena, 1, sizeof *decompress, 1);
    decompress->feed = plim__arena_carve(&arena, 1, FEED_BYTES, PLIM__PAGE);
    decompress->arena = arena;
    decompress->inner = inner;
    decompress->ledger = job->ledger;
    decompress->account = -1;
    decompress->stream.read = plain_read;
    decompress->stream.close = decompress_close;
    decompress->stream.position = inner->position;
    decompress->stream.size = inner->size;
    (void)snprintf(decompress->stream.name, sizeof decompress->stream.name, "%s", inner->name);
    status = plim__stream_read_some(inner, decompress->magic, MAGIC_BYTES, &decompress->magic_size);
    if (status == PLIM_OK && compressed(decompress)) {
        decompress->stream.position = 0;
        status = open_archive(decompress);
    }
    if (status != PLIM_OK) {
        decompress_close(&decompress->stream);
        return status;
    }
    *stream_out = &decompress->stream;
    return PLIM_OK;
}
