/*
 * The caller fills one buffer while the other one is being written.
 *
 *     file   ├ written ───┤├ being written ┤├ being filled … ┤
 *                           buffers[1]       buffers[0]
 *
 * A direct file is written in multiples of its alignment: the last buffer is padded with zeros, and
 * the file is truncated to its size afterwards.
 */
#define XXH_STATIC_LINKING_ONLY /* for the size of XXH3_state_t */
#include "io/writer.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"

#include <errno.h>
#include <limits.h>
#include <string.h>
#include <unistd.h>
#include <xxhash.h>

#define BUFFERS 2

typedef struct writer_buffer {
    char *data;
    plim__op_t op;
    bool writing;
} writer_buffer_t;

struct plim__writer {
    plim__arena_t arena;
    plim__engine_t *engine;
    plim__file_t file;
    char *path;
    size_t capacity; /* bytes of a buffer */
    int64_t max_bytes;
    int64_t flushed; /* file bytes submitted for writing */
    size_t filled;   /* bytes in the current buffer */
    int current;
    writer_buffer_t buffers[BUFFERS];
    plim_status_t status; /* the first failure; every later call fails too */
    char *front; /* one page; its first front_size bytes replace those of the file at the end */
    size_t front_size;
    uint64_t *checksums;
    int64_t num_checksums; /* complete ones */
    int64_t hashed;        /* bytes in `state`, less than PLIM__CHECKSUM_BYTES */
    XXH3_state_t *state;
};

static int64_t checksum_count(int64_t bytes)
{
    return bytes / PLIM__CHECKSUM_BYTES + (bytes % PLIM__CHECKSUM_BYTES != 0);
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__writer_t *writer = draft;
    writer->path = plim__arena_carve(arena, 1, PATH_MAX, 1);
    writer->state = plim__arena_carve(arena, 1, sizeof(XXH3_state_t), 64);
    writer->front = plim__arena_carve(arena, 1, PLIM__PAGE, PLIM__PAGE);
    writer->checksums =
        plim__arena_carve(arena, (size_t)checksum_count(writer->max_bytes), sizeof(uint64_t), 1);
    for (int i = 0; i < BUFFERS; i++)
        writer->buffers[i].data = plim__arena_carve(arena, 1, writer->capacity, PLIM__PAGE);
}

size_t plim__writer_estimate(plim_io_engine_t kind, size_t buffer, int64_t max_bytes)
{
    plim__writer_t writer = {.capacity = buffer, .max_bytes = max_bytes};
    return plim__object_bytes(lay_out, &writer, sizeof writer) +
           plim__engine_estimate(kind, BUFFERS);
}

plim_status_t plim__writer_create(const plim_job_t *job, int directory, const char *path,
                                  size_t buffer, int64_t max_bytes, plim__writer_t **writer_out)
{
    if (strlen(path) >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "the path '%.64s…' is too long", path);
    plim__writer_t draft = {.file = {.fd = -1}, .capacity = buffer, .max_bytes = max_bytes};
    plim__writer_t *writer;
    PLIM_TRY(plim__object_create(job->ledger, "writer", lay_out, &draft, sizeof draft, &draft.arena,
                                 &writer));
    XXH3_INITSTATE(writer->state);
    (void)XXH3_64bits_reset(writer->state);
    memcpy(writer->path, path, strlen(path) + 1);
    plim_status_t status = plim__engine_create(job, BUFFERS, &writer->engine);
    if (status == PLIM_OK)
        status =
            plim__file_open_in(directory, writer->path, PLIM__FILE_CREATE, true, &writer->file);
    if (status != PLIM_OK)
        plim__writer_destroy(writer);
    else
        *writer_out = writer;
    return status;
}

static plim_status_t fail_with(plim__writer_t *writer, plim_status_t status)
{
    if (status != PLIM_OK)
        writer->status = status;
    return status;
}

static plim_status_t check_usable(const plim__writer_t *writer)
{
    if (writer->status != PLIM_OK)
        return plim__fail(writer->status, "%s: an earlier write failed", writer->path);
    return PLIM_OK;
}

static void hash(plim__writer_t *writer, const char *from, size_t size)
{
    while (size > 0) {
        size_t left = (size_t)(PLIM__CHECKSUM_BYTES - writer->hashed);
        size_t chunk = size < left ? size : left;
        (void)XXH3_64bits_update(writer->state, from, chunk);
        writer->hashed += (int64_t)chunk;
        from += chunk;
        size -= chunk;
        if (writer->hashed == PLIM__CHECKSUM_BYTES) {
            writer->checksums[writer->num_checksums++] = XXH3_64bits_digest(writer->state);
            (void)XXH3_64bits_reset(writer->state);
            writer->hashed = 0;
        }
    }
}

static plim_status_t wait_for(plim__writer_t *writer, writer_buffer_t *buffer)
{
    if (!buffer->writing)
        return PLIM_OK;
    buffer->writing = false;
    return fail_with(writer, plim__engine_wait(writer->engine, &buffer->op));
}

/* Starts writing the current buffer and waits until the next one is free. */
static plim_status_t flush(plim__writer_t *writer)
{
    writer_buffer_t *buffer = &writer->buffers[writer->current];
    size_t size = plim__round_up(writer->filled, writer->file.align);
    memset(buffer->data + writer->filled, 0, size - writer->filled);
    buffer->op = (plim__op_t){.file = &writer->file,
                              .offset = writer->flushed,
                              .data = buffer->data,
                              .size = size,
                              .write = true};
    plim__engine_submit(writer->engine, &buffer->op);
    plim__engine_flush(writer->engine);
    buffer->writing = true;
    hash(writer, buffer->data, writer->filled);
    writer->flushed += (int64_t)writer->filled;
    writer->filled = 0;
    writer->current = (writer->current + 1) % BUFFERS;
    return wait_for(writer, &writer->buffers[writer->current]);
}

plim_status_t plim__writer_space(plim__writer_t *writer, void **to_out, size_t *size_out)
{
    PLIM_TRY(check_usable(writer));
    *to_out = writer->buffers[writer->current].data + writer->filled;
    *size_out = writer->capacity - writer->filled;
    return PLIM_OK;
}

plim_status_t plim__writer_advance(plim__writer_t *writer, size_t size)
{
    PLIM_TRY(check_usable(writer));
    if (size > writer->capacity - writer->filled ||
        (int64_t)size > writer->max_bytes - writer->flushed - (int64_t)writer->filled)
        return plim__fail(PLIM_ERR_USAGE, "%s: longer than the %lld bytes it was created for",
                          writer->path, (long long)writer->max_bytes);
    writer->filled += size;
    return writer->filled == writer->capacity ? flush(writer) : PLIM_OK;
}

plim_status_t plim__writer_write(plim__writer_t *writer, const void *from, size_t size)
{
    const char *next = from;
    while (size > 0) {
        void *to;
        size_t space;
        PLIM_TRY(plim__writer_space(writer, &to, &space));
        size_t chunk = size < space ? size : space;
        memcpy(to, next, chunk);
        PLIM_TRY(plim__writer_advance(writer, chunk));
        next += chunk;
        size -= chunk;
    }
    return PLIM_OK;
}

plim_status_t plim__writer_set_front(plim__writer_t *writer, const void *front, size_t size)
{
    PLIM_TRY(check_usable(writer));
    memcpy(writer->front, front, size);
    writer->front_size = size;
    return PLIM_OK;
}

/* Writes the front into the first page and computes the first checksum again from disk. */
static plim_status_t write_front(plim__writer_t *writer, int64_t size)
{
    plim__file_t *file = &writer->file;
    char *buffer = writer->buffers[0].data;
    int64_t end = plim__min_i64(size, PLIM__CHECKSUM_BYTES);
    size_t first = plim__round_up((size_t)plim__min_i64(size, (int64_t)PLIM__PAGE), file->align);
    PLIM_TRY(plim__file_read_at(file, 0, buffer, first));
    memcpy(buffer, writer->front, writer->front_size);
    PLIM_TRY(plim__file_write_at(file, 0, buffer, first));
    (void)XXH3_64bits_reset(writer->state);
    for (int64_t at = 0; at < end;) {
        size_t chunk = (size_t)plim__min_i64(end - at, (int64_t)writer->capacity);
        PLIM_TRY(plim__file_read_at(file, at, buffer, plim__round_up(chunk, file->align)));
        (void)XXH3_64bits_update(writer->state, buffer, chunk);
        at += (int64_t)chunk;
    }
    writer->checksums[0] = XXH3_64bits_digest(writer->state);
    return PLIM_OK;
}

static plim_status_t truncate_file(plim__writer_t *writer, int64_t size)
{
    while (ftruncate(writer->file.fd, size) != 0) {
        if (errno != EINTR)
            return plim__fail_errno(errno, "%s: cannot set its size to %lld", writer->path,
                                    (long long)size);
    }
    writer->file.size = size;
    return PLIM_OK;
}

static plim_status_t finish(plim__writer_t *writer, int64_t size)
{
    if (writer->filled > 0)
        PLIM_TRY(flush(writer));
    for (int i = 0; i < BUFFERS; i++)
        PLIM_TRY(wait_for(writer, &writer->buffers[i]));
    PLIM_TRY(truncate_file(writer, size));
    if (writer->hashed > 0)
        writer->checksums[writer->num_checksums++] = XXH3_64bits_digest(writer->state);
    if (writer->front_size > 0) {
        PLIM_TRY(write_front(writer, size));
        PLIM_TRY(truncate_file(writer, size)); /* a padded front may have extended it */
    }
    return plim__file_sync(&writer->file);
}

plim_status_t plim__writer_finish(plim__writer_t *writer, int64_t *size_out,
                                  const uint64_t **checksums_out, int64_t *num_checksums_out)
{
    PLIM_TRY(check_usable(writer));
    int64_t size = writer->flushed + (int64_t)writer->filled;
    PLIM_TRY(fail_with(writer, finish(writer, size)));
    plim__file_close(&writer->file);
    *size_out = size;
    *checksums_out = writer->checksums;
    *num_checksums_out = writer->num_checksums;
    return PLIM_OK;
}

void plim__writer_destroy(plim__writer_t *writer)
{
    if (writer == NULL)
        return;
    plim__engine_destroy(writer->engine);
    plim__file_close(&writer->file);
    plim__arena_destroy(&writer->arena);
}
