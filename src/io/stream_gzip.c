/*
 * gzip:  [header │ deflate data │ CRC-32 │ size modulo 2^32] …  zeros?
 *
 * Several members make one stream, as `cat a.gz b.gz` and parallel compressors write them.
 */
#include "base/fail.h"
#include "io/decompress.h"
#include "io/inflate.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { FLAG_CRC = 2, FLAG_EXTRA = 4, FLAG_NAME = 8, FLAG_COMMENT = 16, FLAG_RESERVED = 0xe0 };
enum { HEADER_BYTES = 10, TRAILER_BYTES = 8, METHOD_DEFLATE = 8 };

typedef struct gzip {
    plim__stream_t stream;
    plim__arena_t arena;
    plim__decoder_input_t input;
    bool inside; /* of a member's data */
    bool ended;
    bool broken;
    uint32_t crc;
    uint32_t size; /* of the member, modulo 2^32 */
    plim__inflate_t inflate;
    unsigned char *buffer; /* [PLIM__INFLATE_PIECE], for readers who take little at a time */
    unsigned char *buffer_begin;
    unsigned char *buffer_end;
} gzip_t;

static plim_status_t gzip_fail(gzip_t *gzip, const char *what)
{
    gzip->broken = true;
    return plim__fail(PLIM_ERR_DATA, "%s: damaged gzip at byte %" PRId64 ": %s; fetch it again",
                      gzip->stream.name, plim__decoder_input_position(&gzip->input), what);
}

static plim_status_t need(gzip_t *gzip, size_t size)
{
    PLIM_TRY(plim__decoder_input_need(&gzip->input, size));
    if (plim__decoder_input_have(&gzip->input) < size)
        return gzip_fail(gzip, "it ends inside a header or trailer");
    return PLIM_OK;
}

/* A name or a comment: bytes up to a zero. */
static plim_status_t pass_text(gzip_t *gzip)
{
    unsigned char byte;
    do {
        PLIM_TRY(need(gzip, 1));
        byte = *gzip->input.begin++;
    } while (byte != 0);
    return PLIM_OK;
}

static plim_status_t begin_member(gzip_t *gzip)
{
    plim__decoder_input_t *feed = &gzip->input;
    PLIM_TRY(need(gzip, HEADER_BYTES));
    unsigned flags = feed->begin[3];
    if (memcmp(feed->begin, "\x1f\x8b", 2) != 0 || feed->begin[2] != METHOD_DEFLATE ||
        (flags & FLAG_RESERVED) != 0)
        return gzip_fail(gzip, "what stands here is no member of it");
    feed->begin += HEADER_BYTES;
    if ((flags & FLAG_EXTRA) != 0) {
        PLIM_TRY(need(gzip, 2));
        size_t size = 2 + plim__decoder_input_u16(feed->begin);
        PLIM_TRY(need(gzip, size));
        feed->begin += size;
    }
    if ((flags & FLAG_NAME) != 0)
        PLIM_TRY(pass_text(gzip));
    if ((flags & FLAG_COMMENT) != 0)
        PLIM_TRY(pass_text(gzip));
    if ((flags & FLAG_CRC) != 0) {
        PLIM_TRY(need(gzip, 2));
        feed->begin += 2;
    }
    plim__inflate_begin(&gzip->inflate);
    gzip->crc = 0;
    gzip->size = 0;
    gzip->inside = true;
    return PLIM_OK;
}

static plim_status_t end_member(gzip_t *gzip)
{
    PLIM_TRY(need(gzip, TRAILER_BYTES));
    if (plim__decoder_input_u32(gzip->input.begin) != gzip->crc)
        return gzip_fail(gzip, "its CRC differs from the one recorded");
    if (plim__decoder_input_u32(gzip->input.begin + 4) != gzip->size)
        return gzip_fail(gzip, "its size differs from the one recorded");
    gzip->input.begin += TRAILER_BYTES;
    gzip->inside = false;
    return PLIM_OK;
}

/* Between members: another one, or the end, which tapes and the like pad with zeros. */
static plim_status_t begin_or_end(gzip_t *gzip)
{
    plim__decoder_input_t *feed = &gzip->input;
    PLIM_TRY(plim__decoder_input_need(feed, 1));
    if (plim__decoder_input_have(feed) > 0 && *feed->begin != 0)
        return begin_member(gzip);
    while (plim__decoder_input_have(feed) > 0) {
        if (*feed->begin != 0)
            return gzip_fail(gzip, "something follows the zeros behind its last member");
        feed->begin++;
        PLIM_TRY(plim__decoder_input_need(feed, 1));
    }
    gzip->ended = true;
    return PLIM_OK;
}

static plim_status_t produce_or_fail(gzip_t *gzip, void *to, size_t capacity, size_t *got_out)
{
    *got_out = 0;
    while (*got_out == 0 && !gzip->ended) {
        if (!gzip->inside) {
            PLIM_TRY(begin_or_end(gzip));
            continue;
        }
        const char *complaint;
        PLIM_TRY(plim__inflate_read(&gzip->inflate, &gzip->input, INT64_MAX, to, capacity, got_out,
                                    &complaint));
        if (complaint != NULL)
            return gzip_fail(gzip, complaint);
        gzip->crc = plim__inflate_crc(gzip->crc, to, *got_out);
        gzip->size += (uint32_t)*got_out;
        if (*got_out == 0)
            PLIM_TRY(end_member(gzip));
    }
    return PLIM_OK;
}

static plim_status_t produce(gzip_t *gzip, void *to, size_t capacity, size_t *got_out)
{
    plim_status_t status = produce_or_fail(gzip, to, capacity, got_out);
    /* Also when the stream below failed: what was taken of it is lost. */
    gzip->broken = gzip->broken || status != PLIM_OK;
    return status;
}

static plim_status_t gzip_read(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out)
{
    gzip_t *gzip = (gzip_t *)stream;
    size_t got;
    if (gzip->broken)
        return gzip_fail(gzip, "nothing can be read behind damage");
    if (gzip->buffer_begin == gzip->buffer_end && capacity >= PLIM__INFLATE_PIECE) {
        PLIM_TRY(produce(gzip, to, capacity, &got));
    } else {
        if (gzip->buffer_begin == gzip->buffer_end) {
            gzip->buffer_begin = gzip->buffer_end = gzip->buffer;
            PLIM_TRY(produce(gzip, gzip->buffer, PLIM__INFLATE_PIECE, &got));
            gzip->buffer_end += got;
        }
        got = (size_t)(gzip->buffer_end - gzip->buffer_begin);
        got = got < capacity ? got : capacity;
        memcpy(to, gzip->buffer_begin, got);
        gzip->buffer_begin += got;
    }
    stream->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void gzip_close(plim__stream_t *stream)
{
    gzip_t *gzip = (gzip_t *)stream;
    plim__stream_close(gzip->input.inner);
    plim__arena_destroy(&gzip->arena);
}

_Static_assert(sizeof(gzip_t) + PLIM__FEED_PIECE + PLIM__INFLATE_PIECE + 2 * PLIM__PAGE <=
                   PLIM__DECOMPRESS_ESTIMATE,
               "PLIM__DECOMPRESS_ESTIMATE holds a gzip stream");

plim_status_t plim__stream_gzip(const plim_job_t *job, plim__stream_t *inner,
                                plim__stream_t **stream_out)
{
    plim__arena_t arena;
    plim_status_t status =
        plim__arena_create(job->ledger, "streams", PLIM__DECOMPRESS_ESTIMATE, &arena);
    if (status != PLIM_OK) {
        plim__stream_close(inner);
        return status;
    }
    gzip_t *gzip = plim__arena_carve(&arena, 1, sizeof *gzip, 1);
    plim__decoder_input_init(&gzip->input, &arena, inner);
    gzip->buffer = plim__arena_carve(&arena, 1, PLIM__INFLATE_PIECE, PLIM__PAGE);
    gzip->buffer_begin = gzip->buffer_end = gzip->buffer;
    gzip->arena = arena;
    gzip->stream.read = gzip_read;
    gzip->stream.close = gzip_close;
    gzip->stream.size = -1;
    (void)snprintf(gzip->stream.name, sizeof gzip->stream.name, "%s", inner->name);
    *stream_out = &gzip->stream;
    return PLIM_OK;
}
