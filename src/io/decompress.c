/*
 * Decompression of gzip (RFC 1952) and Zstandard (RFC 8878), recognised by their magic numbers.
 */
#define ZSTD_STATIC_LINKING_ONLY /* for decoders built in memory of ours */

#include "base/fail.h"
#include "io/inflate.h"
#include "mem/size_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>

/*
 * gzip:  [header │ deflate data │ CRC-32 │ size modulo 2^32] …  zeros?
 *
 * Several members make one stream, as `cat a.gz b.gz` and parallel compressors write them.
 */
enum { FLAG_CRC = 2, FLAG_EXTRA = 4, FLAG_NAME = 8, FLAG_COMMENT = 16, FLAG_RESERVED = 0xe0 };
enum { HEADER_BYTES = 10, TRAILER_BYTES = 8, METHOD_DEFLATE = 8 };

typedef struct gzip {
    plim__reader_t reader;
    plim__arena_t arena;
    plim__decoder_input_t input;
    bool inside; /* a member's data */
    bool ended;
    bool broken;
    uint32_t crc;
    uint32_t size; /* of the member so far, modulo 2^32 */
    plim__inflate_t *inflate;
    unsigned char *buffer; /* [PLIM__INFLATE_CHUNK], for callers that read little at a time */
    unsigned char *buffer_begin;
    unsigned char *buffer_end;
} gzip_t;

static plim_status_t gzip_fail(gzip_t *gzip, const char *what)
{
    gzip->broken = true;
    return plim__fail(PLIM_ERR_DATA, "%s: damaged gzip at byte %" PRId64 ": %s; download it again",
                      gzip->reader.name, plim__decoder_input_position(&gzip->input), what);
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
    plim__decoder_input_t *input = &gzip->input;
    PLIM_TRY(need(gzip, HEADER_BYTES));
    unsigned flags = input->begin[3];
    if (memcmp(input->begin, "\x1f\x8b", 2) != 0 || input->begin[2] != METHOD_DEFLATE ||
        (flags & FLAG_RESERVED) != 0)
        return gzip_fail(gzip, "no gzip member begins here");
    input->begin += HEADER_BYTES;
    if ((flags & FLAG_EXTRA) != 0) {
        PLIM_TRY(need(gzip, 2));
        size_t size = 2 + plim__decoder_input_u16(input->begin);
        PLIM_TRY(need(gzip, size));
        input->begin += size;
    }
    if ((flags & FLAG_NAME) != 0)
        PLIM_TRY(pass_text(gzip));
    if ((flags & FLAG_COMMENT) != 0)
        PLIM_TRY(pass_text(gzip));
    if ((flags & FLAG_CRC) != 0) {
        PLIM_TRY(need(gzip, 2));
        input->begin += 2;
    }
    plim__inflate_begin(gzip->inflate);
    gzip->crc = 0;
    gzip->size = 0;
    gzip->inside = true;
    return PLIM_OK;
}

static plim_status_t end_member(gzip_t *gzip)
{
    PLIM_TRY(need(gzip, TRAILER_BYTES));
    if (plim__decoder_input_u32(gzip->input.begin) != gzip->crc)
        return gzip_fail(gzip, "its CRC does not match the recorded one");
    if (plim__decoder_input_u32(gzip->input.begin + 4) != gzip->size)
        return gzip_fail(gzip, "its size does not match the recorded one");
    gzip->input.begin += TRAILER_BYTES;
    gzip->inside = false;
    return PLIM_OK;
}

/* Between members: the next one, or the end, which may be padded with zeros. */
static plim_status_t begin_or_end(gzip_t *gzip)
{
    plim__decoder_input_t *input = &gzip->input;
    PLIM_TRY(plim__decoder_input_need(input, 1));
    if (plim__decoder_input_have(input) > 0 && *input->begin != 0)
        return begin_member(gzip);
    while (plim__decoder_input_have(input) > 0) {
        if (*input->begin != 0)
            return gzip_fail(gzip, "data follows the zeros after the last member");
        input->begin++;
        PLIM_TRY(plim__decoder_input_need(input, 1));
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
        PLIM_TRY(plim__inflate_read(gzip->inflate, &gzip->input, INT64_MAX, to, capacity, got_out,
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
    /* Also when the inner reader failed: bytes already taken from it are lost. */
    gzip->broken = gzip->broken || status != PLIM_OK;
    return status;
}

static plim_status_t gzip_read(plim__reader_t *reader, void *to, size_t capacity, size_t *got_out)
{
    gzip_t *gzip = (gzip_t *)reader;
    size_t got;
    if (gzip->broken)
        return gzip_fail(gzip, "it was damaged at an earlier byte");
    if (gzip->buffer_begin == gzip->buffer_end && capacity >= PLIM__INFLATE_CHUNK) {
        PLIM_TRY(produce(gzip, to, capacity, &got));
    } else {
        if (gzip->buffer_begin == gzip->buffer_end) {
            gzip->buffer_begin = gzip->buffer_end = gzip->buffer;
            PLIM_TRY(produce(gzip, gzip->buffer, PLIM__INFLATE_CHUNK, &got));
            gzip->buffer_end += got;
        }
        got = (size_t)(gzip->buffer_end - gzip->buffer_begin);
        got = got < capacity ? got : capacity;
        memcpy(to, gzip->buffer_begin, got);
        gzip->buffer_begin += got;
    }
    reader->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void gzip_close(plim__reader_t *reader)
{
    gzip_t *gzip = (gzip_t *)reader;
    plim__reader_close(gzip->input.inner);
    plim__arena_destroy(&gzip->arena);
}

static void lay_out_gzip(plim__arena_t *arena, void *draft)
{
    gzip_t *gzip = draft;
    plim__decoder_input_init(&gzip->input, arena, gzip->input.inner);
    gzip->inflate = plim__arena_carve(arena, 1, sizeof *gzip->inflate, 1);
    gzip->buffer = plim__arena_carve(arena, 1, PLIM__INFLATE_CHUNK, PLIM__PAGE);
    gzip->buffer_begin = gzip->buffer_end = gzip->buffer;
}

static plim_status_t gzip_open(const plim_job_t *job, plim__reader_t *inner,
                               plim__reader_t **reader_out)
{
    gzip_t draft = {.reader = plim__reader_over(inner, gzip_read, gzip_close),
                    .input = {.inner = inner}};
    gzip_t *gzip;
    draft.reader.position = 0;
    draft.reader.size = -1;
    plim_status_t status = plim__object_create(job->ledger, "streams", lay_out_gzip, &draft,
                                               sizeof draft, &draft.arena, &gzip);
    if (status != PLIM_OK)
        plim__reader_close(inner);
    else
        *reader_out = &gzip->reader;
    return status;
}

/*
 * zstd: frames one after another, skippable ones passed over. A frame's header gives the window
 * that its decoder needs. The decoder is built in an arena of that size, and built again when a
 * later frame needs more.
 */

/* The default limit of the zstd command (--long=27). */
#define WINDOW_MAX ((uint64_t)128 << 20)

typedef struct zstd {
    plim__reader_t reader;
    plim__arena_t arena;
    plim_ledger_t *ledger;
    plim__decoder_input_t input;
    bool inside; /* a frame */
    bool broken;
    plim__arena_t decoder_arena;
    ZSTD_DStream *decoder; /* in decoder_arena */
} zstd_t;

static plim_status_t zstd_fail(zstd_t *zstd, const char *what)
{
    zstd->broken = true;
    return plim__fail(PLIM_ERR_DATA, "%s: damaged zstd at byte %" PRId64 ": %s; download it again",
                      zstd->reader.name, plim__decoder_input_position(&zstd->input), what);
}

/* Makes a decoder for windows of this size, unless the present one is large enough. */
static plim_status_t make_decoder(zstd_t *zstd, size_t window)
{
    size_t size = ZSTD_estimateDStreamSize(window);
    if (zstd->decoder != NULL && zstd->decoder_arena.size >= size)
        return PLIM_OK;
    plim__arena_destroy(&zstd->decoder_arena);
    zstd->decoder_arena = (plim__arena_t){0};
    zstd->decoder = NULL;
    PLIM_TRY(plim__arena_create(zstd->ledger, "streams", size, &zstd->decoder_arena));
    void *space = plim__arena_carve(&zstd->decoder_arena, 1, size, 1);
    zstd->decoder = ZSTD_initStaticDStream(space, size);
    if (zstd->decoder == NULL)
        return plim__fail(PLIM_ERR_UNSUPPORTED, "%s: libzstd cannot build a decoder in %zu bytes",
                          zstd->reader.name, size);
    return PLIM_OK;
}

/* At the first byte of a frame, or at the end. */
static plim_status_t begin_frame(zstd_t *zstd)
{
    ZSTD_frameHeader header;
    PLIM_TRY(plim__decoder_input_need(&zstd->input, ZSTD_FRAMEHEADERSIZE_MAX));
    if (plim__decoder_input_have(&zstd->input) == 0)
        return PLIM_OK;
    size_t code =
        ZSTD_getFrameHeader(&header, zstd->input.begin, plim__decoder_input_have(&zstd->input));
    if (ZSTD_isError(code))
        return zstd_fail(zstd, ZSTD_getErrorName(code));
    if (code != 0)
        return zstd_fail(zstd, "it ends inside a frame's header");
    if (header.frameType == ZSTD_skippableFrame)
        header.windowSize = 0;
    if (header.windowSize > WINDOW_MAX) {
        char text[PLIM__SIZE_TEXT];
        return plim__fail(PLIM_ERR_DATA,
                          "%s: decoding needs a window of %s, more than 128 MiB; compress it again "
                          "with a smaller one",
                          zstd->reader.name, plim__size_text((int64_t)header.windowSize, text));
    }
    PLIM_TRY(make_decoder(zstd, (size_t)header.windowSize));
    code = ZSTD_initDStream(zstd->decoder);
    if (ZSTD_isError(code))
        return zstd_fail(zstd, ZSTD_getErrorName(code));
    zstd->inside = true;
    return PLIM_OK;
}

static plim_status_t decode(zstd_t *zstd, ZSTD_outBuffer *output)
{
    PLIM_TRY(plim__decoder_input_need(&zstd->input, 1));
    size_t have = plim__decoder_input_have(&zstd->input), before = output->pos;
    ZSTD_inBuffer from = {zstd->input.begin, have, 0};
    size_t code = ZSTD_decompressStream(zstd->decoder, output, &from);
    zstd->input.begin += from.pos;
    if (ZSTD_isError(code))
        return zstd_fail(zstd, ZSTD_getErrorName(code));
    zstd->inside = code != 0;
    if (zstd->inside && have == 0 && output->pos == before)
        return zstd_fail(zstd, "it ends inside a frame");
    return PLIM_OK;
}

static plim_status_t zstd_read(plim__reader_t *reader, void *to, size_t capacity, size_t *got_out)
{
    zstd_t *zstd = (zstd_t *)reader;
    ZSTD_outBuffer output = {to, capacity, 0};
    if (zstd->broken)
        return zstd_fail(zstd, "it was damaged at an earlier byte");
    while (output.pos == 0) {
        if (!zstd->inside)
            PLIM_TRY(begin_frame(zstd));
        if (!zstd->inside)
            break;
        PLIM_TRY(decode(zstd, &output));
    }
    reader->position += (int64_t)output.pos;
    *got_out = output.pos;
    return PLIM_OK;
}

static void zstd_close(plim__reader_t *reader)
{
    zstd_t *zstd = (zstd_t *)reader;
    plim__arena_destroy(&zstd->decoder_arena);
    plim__reader_close(zstd->input.inner);
    plim__arena_destroy(&zstd->arena);
}

static void lay_out_zstd(plim__arena_t *arena, void *draft)
{
    zstd_t *zstd = draft;
    plim__decoder_input_init(&zstd->input, arena, zstd->input.inner);
}

static plim_status_t zstd_open(const plim_job_t *job, plim__reader_t *inner,
                               plim__reader_t **reader_out)
{
    zstd_t draft = {.reader = plim__reader_over(inner, zstd_read, zstd_close),
                    .ledger = job->ledger,
                    .input = {.inner = inner}};
    zstd_t *zstd;
    draft.reader.position = 0;
    draft.reader.size = -1;
    plim_status_t status = plim__object_create(job->ledger, "streams", lay_out_zstd, &draft,
                                               sizeof draft, &draft.arena, &zstd);
    if (status != PLIM_OK) {
        plim__reader_close(inner);
        return status;
    }
    status = begin_frame(zstd);
    if (status != PLIM_OK) {
        zstd_close(&zstd->reader);
        return status;
    }
    *reader_out = &zstd->reader;
    return PLIM_OK;
}

#define MAGIC_BYTES 4

/* The inner reader, with the bytes that were read to recognise it put back in front. */
typedef struct peeked {
    plim__reader_t reader;
    plim__arena_t arena;
    plim__reader_t *inner;
    unsigned char magic[MAGIC_BYTES];
    size_t magic_size;
    size_t magic_used;
} peeked_t;

static plim_status_t peeked_read(plim__reader_t *reader, void *to, size_t capacity, size_t *got_out)
{
    peeked_t *peeked = (peeked_t *)reader;
    size_t left = peeked->magic_size - peeked->magic_used;
    size_t got = capacity < left ? capacity : left;
    if (left == 0) {
        PLIM_TRY(peeked->inner->read(peeked->inner, to, capacity, &got));
    } else {
        memcpy(to, peeked->magic + peeked->magic_used, got);
        peeked->magic_used += got;
    }
    reader->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void peeked_close(plim__reader_t *reader)
{
    peeked_t *peeked = (peeked_t *)reader;
    plim__reader_close(peeked->inner);
    plim__arena_destroy(&peeked->arena);
}

static bool is_gzip(const peeked_t *peeked)
{
    return peeked->magic_size >= 2 && memcmp(peeked->magic, "\x1f\x8b", 2) == 0;
}

/* A frame, or a skippable frame before it. */
static bool is_zstd(const peeked_t *peeked)
{
    const unsigned char *magic = peeked->magic;
    return peeked->magic_size == 4 &&
           (memcmp(magic, "\x28\xb5\x2f\xfd", 4) == 0 ||
            (magic[0] >> 4 == 5 && memcmp(magic + 1, "\x2a\x4d\x18", 3) == 0));
}

plim_status_t plim__reader_decompress(const plim_job_t *job, plim__reader_t *inner,
                                      plim__reader_t **reader_out)
{
    plim__arena_t arena;
    plim_status_t status = plim__arena_create(job->ledger, "streams", sizeof(peeked_t), &arena);
    if (status != PLIM_OK) {
        plim__reader_close(inner);
        return status;
    }
    peeked_t *peeked = plim__arena_carve(&arena, 1, sizeof *peeked, 1);
    peeked->arena = arena;
    peeked->inner = inner;
    peeked->reader = plim__reader_over(inner, peeked_read, peeked_close);
    status = plim__reader_read_some(inner, peeked->magic, MAGIC_BYTES, &peeked->magic_size);
    if (status != PLIM_OK) {
        peeked_close(&peeked->reader);
        return status;
    }
    if (is_gzip(peeked))
        return gzip_open(job, &peeked->reader, reader_out);
    if (is_zstd(peeked))
        return zstd_open(job, &peeked->reader, reader_out);
    *reader_out = &peeked->reader;
    return PLIM_OK;
}
