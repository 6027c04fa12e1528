/*
 * Zstandard. A frame's header tells the window its decoder needs, so the decoder is built in an
 * arena of just that size, anew when a later frame needs more.
 */
#define ZSTD_STATIC_LINKING_ONLY /* for decoders built in memory that is given to them */

#include "base/fail.h"
#include "io/decoder_input.h"
#include "io/decompress.h"
#include "mem/size_text.h"

#include <inttypes.h>
#include <stdio.h>
#include <zstd.h>

/* What the command line tool takes without being told otherwise (--long=27). */
#define WINDOW_MAX ((uint64_t)128 << 20)

typedef struct zstd {
    plim__stream_t stream;
    plim__arena_t arena;
    plim_ledger_t *ledger;
    plim__decoder_input_t input;
    bool inside; /* of a frame */
    bool broken;
    plim__arena_t decoder_arena;
    ZSTD_DStream *decoder; /* in decoder_arena */
} zstd_t;

static plim_status_t zstd_fail(zstd_t *zstd, const char *what)
{
    zstd->broken = true;
    return plim__fail(PLIM_ERR_DATA, "%s: damaged zstd at byte %" PRId64 ": %s; fetch it again",
                      zstd->stream.name, plim__decoder_input_position(&zstd->input), what);
}

/* A decoder for windows of this size, unless the present one will do. */
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
        return plim__fail(PLIM_ERR_UNSUPPORTED, "%s: this libzstd builds no decoder in %zu bytes",
                          zstd->stream.name, size);
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
                          "%s: decoding it takes a window of %s, more than 128 MiB; compress it "
                          "again without --long",
                          zstd->stream.name, plim__size_text((int64_t)header.windowSize, text));
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
    ZSTD_inBuffer input = {zstd->input.begin, have, 0};
    size_t code = ZSTD_decompressStream(zstd->decoder, output, &input);
    zstd->input.begin += input.pos;
    if (ZSTD_isError(code))
        return zstd_fail(zstd, ZSTD_getErrorName(code));
    zstd->inside = code != 0;
    if (zstd->inside && have == 0 && output->pos == before)
        return zstd_fail(zstd, "it ends inside a frame");
    return PLIM_OK;
}

static plim_status_t zstd_read(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out)
{
    zstd_t *zstd = (zstd_t *)stream;
    ZSTD_outBuffer output = {to, capacity, 0};
    if (zstd->broken)
        return zstd_fail(zstd, "nothing can be read behind damage");
    while (output.pos == 0) {
        if (!zstd->inside)
            PLIM_TRY(begin_frame(zstd));
        if (!zstd->inside)
            break;
        PLIM_TRY(decode(zstd, &output));
    }
    stream->position += (int64_t)output.pos;
    *got_out = output.pos;
    return PLIM_OK;
}

static void zstd_close(plim__stream_t *stream)
{
    zstd_t *zstd = (zstd_t *)stream;
    plim__arena_destroy(&zstd->decoder_arena);
    plim__stream_close(zstd->input.inner);
    plim__arena_destroy(&zstd->arena);
}

plim_status_t plim__stream_zstd(const plim_job_t *job, plim__stream_t *inner,
                                plim__stream_t **stream_out)
{
    plim__arena_t arena;
    plim_status_t status = plim__arena_create(
        job->ledger, "streams", plim__arena_piece(1, sizeof(zstd_t), 1) + PLIM__FEED_PIECE, &arena);
    if (status != PLIM_OK) {
        plim__stream_close(inner);
        return status;
    }
    zstd_t *zstd = plim__arena_carve(&arena, 1, sizeof *zstd, 1);
    plim__decoder_input_init(&zstd->input, &arena, inner);
    zstd->arena = arena;
    zstd->ledger = job->ledger;
    zstd->stream.read = zstd_read;
    zstd->stream.close = zstd_close;
    zstd->stream.size = -1;
    (void)snprintf(zstd->stream.name, sizeof zstd->stream.name, "%s", inner->name);
    status = begin_frame(zstd);
    if (status != PLIM_OK) {
        zstd_close(&zstd->stream);
        return status;
    }
    *stream_out = &zstd->stream;
    return PLIM_OK;
}
