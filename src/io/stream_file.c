/*
 * A file as a stream: while the caller consumes one buffer the next one is being read.
 */
#include "base/check.h"
#include "base/fail.h"
#include "io/engine.h"
#include "io/stream.h"
#include "mem/arena.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>

#define BUFFERS 2
#define BUFFER_MAX ((size_t)1 << 30)

typedef struct file_stream {
    plim__stream_t stream;
    plim__arena_t arena;
    plim__engine_t *engine;
    plim__file_t file;
    char *path;
    size_t capacity; /* of a buffer */
    int64_t asked;   /* file bytes asked for so far */
    int current;     /* the buffer being consumed */
    size_t consumed; /* of its bytes */
    char *data[BUFFERS];
    size_t valid[BUFFERS]; /* file bytes it holds or will hold; 0 when it has nothing to read */
    plim__op_t ops[BUFFERS];
} file_stream_t;

static size_t arena_bytes(size_t buffer)
{
    return plim__arena_piece(1, sizeof(file_stream_t), 1) + plim__arena_piece(1, PATH_MAX, 1) +
           BUFFERS * plim__arena_piece(1, plim__round_up(buffer, PLIM__PAGE), PLIM__PAGE);
}

size_t plim__stream_file_estimate(plim_io_engine_t kind, size_t buffer)
{
    return plim__round_up(arena_bytes(buffer), PLIM__PAGE) + plim__engine_estimate(kind, BUFFERS);
}

/* Asks for the next piece of the file into buffer i; at the end there is none. */
static void ask(file_stream_t *self, int i)
{
    int64_t left = self->file.size - self->asked;
    self->valid[i] = (size_t)plim__min_i64(left, (int64_t)self->capacity);
    if (self->valid[i] == 0)
        return;
    self->ops[i] = (plim__op_t){.file = &self->file,
                                .offset = self->asked,
                                .data = self->data[i],
                                .size = plim__round_up(self->valid[i], self->file.align)};
    self->asked += (int64_t)self->valid[i];
    plim__engine_submit(self->engine, &self->ops[i]);
    plim__engine_flush(self->engine);
}

static plim_status_t file_read(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out)
{
    file_stream_t *self = (file_stream_t *)stream;
    int i = self->current;
    if (self->valid[i] > 0 && self->consumed == 0)
        PLIM_TRY(plim__engine_wait(self->engine, &self->ops[i]));
    size_t left = self->valid[i] - self->consumed;
    size_t piece = capacity < left ? capacity : left;
    memcpy(to, self->data[i] + self->consumed, piece);
    self->consumed += piece;
    stream->position += (int64_t)piece;
    if (self->consumed == self->valid[i] && piece > 0) {
        ask(self, i);
        self->current = (i + 1) % BUFFERS;
        self->consumed = 0;
    }
    *got_out = piece;
    return PLIM_OK;
}

static void file_close(plim__stream_t *stream)
{
    file_stream_t *self = (file_stream_t *)stream;
    plim__engine_destroy(self->engine);
    plim__file_close(&self->file);
    plim__arena_destroy(&self->arena);
}

/* The stream begins at `begin`, a multiple of a page. */
static plim_status_t open_at(const plim_job_t *job, const char *path, size_t buffer, int64_t begin,
                             plim__stream_t **stream_out)
{
    plim__arena_t arena;
    if (buffer == 0 || buffer > BUFFER_MAX || strlen(path) >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%.64s: cannot be read with a buffer of %zu bytes", path,
                          buffer);
    PLIM_TRY(plim__arena_create(job->ledger, "file stream", arena_bytes(buffer), &arena));
    file_stream_t *self = plim__arena_carve(&arena, 1, sizeof *self, 1);
    self->path = plim__arena_carve(&arena, 1, PATH_MAX, 1);
    self->capacity = plim__round_up(buffer, PLIM__PAGE);
    for (int i = 0; i < BUFFERS; i++)
        self->data[i] = plim__arena_carve(&arena, 1, self->capacity, PLIM__PAGE);
    memcpy(self->path, path, strlen(path) + 1);
    plim_status_t status = plim__engine_create(job, BUFFERS, &self->engine);
    if (status != PLIM_OK)
        goto destroy_arena;
    status = plim__file_open(self->path, PLIM__FILE_READ, true, &self->file);
    if (status != PLIM_OK)
        goto destroy_engine;
    self->arena = arena;
    self->stream.read = file_read;
    self->stream.close = file_close;
    self->stream.size = self->file.size;
    (void)snprintf(self->stream.name, sizeof self->stream.name, "%s", path);
    self->asked = self->stream.position = plim__min_i64(begin, self->file.size);
    for (int i = 0; i < BUFFERS; i++)
        ask(self, i);
    *stream_out = &self->stream;
    return PLIM_OK;
destroy_engine:
    plim__engine_destroy(self->engine);
destroy_arena:
    plim__arena_destroy(&arena);
    return status;
}

plim_status_t plim__stream_file(const plim_job_t *job, const char *path, size_t buffer,
                                plim__stream_t **stream_out)
{
    return open_at(job, path, buffer, 0, stream_out);
}

plim_status_t plim__stream_file_at(const plim_job_t *job, const char *path, size_t buffer,
                                   int64_t offset, plim__stream_t **stream_out)
{
    plim__stream_t *stream;
    int64_t begin = offset & ~((int64_t)PLIM__PAGE - 1);
    PLIM_TRY(open_at(job, path, buffer, begin, &stream));
    plim_status_t status = plim__stream_skip(stream, offset - begin);
    if (status != PLIM_OK) {
        plim__stream_close(stream);
        return status;
    }
    *stream_out = stream;
    return PLIM_OK;
}
