#include "ingest/spool.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/file.h"
#include "mem/arena.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

struct plim__spool {
    plim__arena_t arena;
    char directory[PATH_MAX]; /* path of the file in messages */
    plim__file_t file;
    unsigned char *buffer;
    size_t capacity; /* bytes of the buffer, whole pages */
    int64_t size;    /* bytes written by the caller */
    int64_t base;    /* offset of the buffer in the file */
    size_t used;     /* valid bytes in the buffer */
    size_t taken;    /* reading: bytes of the buffer already delivered */
    bool reading;
    bool consume;
};

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__spool_t *spool = draft;
    spool->buffer = plim__arena_carve(arena, 1, spool->capacity, PLIM__PAGE);
}

size_t plim__spool_estimate(size_t buffer)
{
    plim__spool_t spool = {.capacity = plim__round_up(buffer, PLIM__PAGE)};
    return plim__object_bytes(lay_out, &spool, sizeof spool);
}

plim_status_t plim__spool_create(const plim_job_t *job, const char *directory, size_t buffer,
                                 plim__spool_t **spool_out)
{
    plim__spool_t draft = {.file = {.fd = -1}, .capacity = plim__round_up(buffer, PLIM__PAGE)};
    (void)snprintf(draft.directory, sizeof draft.directory, "%s", directory);
    return plim__object_create(job->ledger, "import spool", lay_out, &draft, sizeof draft,
                               &draft.arena, spool_out);
}

void plim__spool_destroy(plim__spool_t *spool)
{
    if (spool == NULL)
        return;
    if (spool->file.fd >= 0)
        plim__file_close(&spool->file);
    plim__arena_destroy(&spool->arena);
}

/* Writes the buffer to the file, padded to a page for direct I/O. */
static plim_status_t flush(plim__spool_t *spool)
{
    size_t whole = plim__round_up(spool->used, PLIM__PAGE);
    memset(spool->buffer + spool->used, 0, whole - spool->used);
    if (spool->file.fd < 0)
        PLIM_TRY(plim__file_open(spool->directory, PLIM__FILE_TEMPORARY, true, &spool->file));
    PLIM_TRY(plim__file_write_at(&spool->file, spool->base, spool->buffer, whole));
    plim__file_drop(&spool->file, spool->base, (int64_t)whole);
    spool->base += (int64_t)whole;
    spool->used = 0;
    return PLIM_OK;
}

plim_status_t plim__spool_write(plim__spool_t *spool, const void *from, size_t size)
{
    const unsigned char *next = from;
    while (size > 0) {
        if (spool->used == spool->capacity)
            PLIM_TRY(flush(spool));
        size_t chunk = spool->capacity - spool->used;
        chunk = chunk < size ? chunk : size;
        memcpy(spool->buffer + spool->used, next, chunk);
        spool->used += chunk;
        spool->size += (int64_t)chunk;
        next += chunk;
        size -= chunk;
    }
    return PLIM_OK;
}

plim_status_t plim__spool_rewind(plim__spool_t *spool, bool consume)
{
    bool written = spool->reading;
    spool->reading = true;
    spool->consume = consume;
    spool->taken = 0;
    if (spool->file.fd < 0) { /* all data is still in the buffer */
        spool->used = (size_t)spool->size;
        return PLIM_OK;
    }
    if (!written && spool->used > 0)
        PLIM_TRY(flush(spool));
    spool->base = 0;
    spool->used = 0;
    return PLIM_OK;
}

/* Reads the next chunk of the file into the buffer. */
static plim_status_t refill(plim__spool_t *spool)
{
    int64_t begin = spool->base + (int64_t)plim__round_up(spool->used, PLIM__PAGE);
    int64_t left = spool->size - begin;
    size_t size = (size_t)plim__min_i64(left, (int64_t)spool->capacity);
    PLIM_TRY(
        plim__file_read_at(&spool->file, begin, spool->buffer, plim__round_up(size, PLIM__PAGE)));
    plim__file_drop(&spool->file, begin, (int64_t)plim__round_up(size, PLIM__PAGE));
    if (spool->consume) /* without hole punching, closing the file frees the space */
        (void)fallocate(spool->file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
                        (off_t)plim__round_up(size, PLIM__PAGE));
    spool->base = begin;
    spool->used = size;
    spool->taken = 0;
    return PLIM_OK;
}

plim_status_t plim__spool_read(plim__spool_t *spool, void *to, size_t size)
{
    unsigned char *next = to;
    int64_t position = spool->base + (int64_t)spool->taken;
    if ((int64_t)size > spool->size - position)
        return plim__fail(PLIM_ERR_USAGE,
                          "internal error: more bytes are read from a spool than were written");
    while (size > 0) {
        if (spool->taken == spool->used)
            PLIM_TRY(refill(spool));
        size_t chunk = spool->used - spool->taken;
        chunk = chunk < size ? chunk : size;
        memcpy(next, spool->buffer + spool->taken, chunk);
        spool->taken += chunk;
        next += chunk;
        size -= chunk;
    }
    return PLIM_OK;
}
