/* Finds out what a stream is by its first bytes, which it hands on to whoever reads it. */
#include "base/fail.h"
#include "io/decompress.h"
#include "mem/arena.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#define MAGIC_BYTES 4

/* The stream below, with the bytes that were looked at before it. */
typedef struct peeked {
    plim__stream_t stream;
    plim__arena_t arena;
    plim__stream_t *inner;
    unsigned char magic[MAGIC_BYTES];
    size_t magic_size;
    size_t magic_used;
} peeked_t;

static plim_status_t peeked_read(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out)
{
    peeked_t *peeked = (peeked_t *)stream;
    size_t left = peeked->magic_size - peeked->magic_used;
    size_t got = capacity < left ? capacity : left;
    if (left == 0) {
        PLIM_TRY(peeked->inner->read(peeked->inner, to, capacity, &got));
    } else {
        memcpy(to, peeked->magic + peeked->magic_used, got);
        peeked->magic_used += got;
    }
    stream->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void peeked_close(plim__stream_t *stream)
{
    peeked_t *peeked = (peeked_t *)stream;
    plim__stream_close(peeked->inner);
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

plim_status_t plim__stream_decompress(const plim_job_t *job, plim__stream_t *inner,
                                      plim__stream_t **stream_out)
{
    plim__arena_t arena;
    plim_status_t status = plim__arena_create(job->ledger, "streams", sizeof(peeked_t), &arena);
    if (status != PLIM_OK) {
        plim__stream_close(inner);
        return status;
    }
    peeked_t *peeked = plim__arena_carve(&arena, 1, sizeof *peeked, 1);
    peeked->arena = arena;
    peeked->inner = inner;
    peeked->stream.read = peeked_read;
    peeked->stream.close = peeked_close;
    peeked->stream.position = inner->position;
    peeked->stream.size = inner->size;
    (void)snprintf(peeked->stream.name, sizeof peeked->stream.name, "%s", inner->name);
    status = plim__stream_read_some(inner, peeked->magic, MAGIC_BYTES, &peeked->magic_size);
    if (status != PLIM_OK) {
        peeked_close(&peeked->stream);
        return status;
    }
    if (is_gzip(peeked))
        return plim__stream_gzip(job, &peeked->stream, stream_out);
    if (is_zstd(peeked))
        return plim__stream_zstd(job, &peeked->stream, stream_out);
    *stream_out = &peeked->stream;
    return PLIM_OK;
}
