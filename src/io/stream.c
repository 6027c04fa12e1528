/* What all streams share, and the stream over memory. */
#include "io/stream.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

plim_status_t plim__stream_read_some(plim__stream_t *stream, void *to, size_t size, size_t *got_out)
{
    size_t done = 0;
    while (done < size) {
        size_t got;
        PLIM_TRY(stream->read(stream, (char *)to + done, size - done, &got));
        if (got == 0)
            break;
        done += got;
    }
    *got_out = done;
    return PLIM_OK;
}

plim_status_t plim__stream_read_all(plim__stream_t *stream, void *to, size_t size)
{
    int64_t begin = stream->position;
    size_t got;
    PLIM_TRY(plim__stream_read_some(stream, to, size, &got));
    if (got == size)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: ends after %" PRId64 " bytes, at least %" PRId64
                      " expected; the file is truncated, fetch it again",
                      stream->name, stream->position, begin + (int64_t)size);
}

plim_status_t plim__stream_skip(plim__stream_t *stream, int64_t size)
{
    char waste[8192];
    while (size > 0) {
        size_t piece = (size_t)plim__min_i64(size, (int64_t)sizeof waste);
        PLIM_TRY(plim__stream_read_all(stream, waste, piece));
        size -= (int64_t)piece;
    }
    return PLIM_OK;
}

plim_status_t plim__stream_end(plim__stream_t *stream)
{
    int64_t expected = stream->position;
    char byte;
    size_t got;
    PLIM_TRY(stream->read(stream, &byte, 1, &got));
    if (got == 0)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA, "%s: has more than the %" PRId64 " bytes expected",
                      stream->name, expected);
}

void plim__stream_close(plim__stream_t *stream)
{
    if (stream != NULL)
        stream->close(stream);
}

typedef struct memory {
    plim__stream_t stream;
    plim__arena_t arena;
    const char *data;
    size_t held; /* bytes at `data`; the stream's size may be more, of a file's front */
} memory_t;

static plim_status_t memory_read(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out)
{
    memory_t *memory = (memory_t *)stream;
    size_t left = memory->held - (size_t)stream->position;
    size_t got = capacity < left ? capacity : left;
    if (got > 0)
        memcpy(to, memory->data + stream->position, got);
    stream->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void memory_close(plim__stream_t *stream)
{
    plim__arena_destroy(&((memory_t *)stream)->arena);
}

plim_status_t plim__stream_memory(const plim_job_t *job, const char *name, const void *data,
                                  size_t size, plim__stream_t **stream_out)
{
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "streams", sizeof(memory_t), &arena));
    memory_t *memory = plim__arena_carve(&arena, 1, sizeof *memory, 1);
    memory->arena = arena;
    memory->data = data;
    memory->held = size;
    memory->stream.read = memory_read;
    memory->stream.close = memory_close;
    memory->stream.size = (int64_t)size;
    (void)snprintf(memory->stream.name, sizeof memory->stream.name, "%s", name);
    *stream_out = &memory->stream;
    return PLIM_OK;
}
