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
    char directory[PATH_MAX]; /* the file's path, for its messages */
    plim__file_t file;
    unsigned char *buffer;
    size_t capacity; /* of the buffer, whole pages */
    int64_t size;    /* bytes written by the caller */
    int64_t base;    /* where the buffer's first byte stands in the file */
    size_t used;     /* writing: bytes in the buffer; reading: bytes of it that are valid */
    size_t taken;    /* reading: bytes of it that were delivered */
    bool reading;
    bool consume;
};

size_t plim__spool_estimate(size_t buffer)
{
    return plim__arena_piece(1, sizeof(plim__spool_t), PLIM__LINE) +
           plim__arena_piece(1, plim__round_up(buffer, PLIM__PAGE), PLIM__PAGE);
}

plim_status_t plim__spool_create(const plim_job_t *job, const char *directory, size_t buffer,
                                 plim__spool_t **aside_out)
{
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "import aside", plim__spool_estimate(buffer), &arena));
    plim__spool_t *aside = plim__arena_carve(&arena, 1, sizeof *aside, PLIM__LINE);
    aside->capacity = plim__round_up(buffer, PLIM__PAGE);
    aside->buffer = plim__arena_carve(&arena, 1, aside->capacity, PLIM__PAGE);
    aside->arena = arena;
    aside->file.fd = -1;
    (void)snprintf(aside->directory, sizeof aside->directory, "%s", directory);
    *aside_out = aside;
    return PLIM_OK;
}

void plim__spool_destroy(plim__spool_t *aside)
{
    if (aside == NULL)
        return;
    if (aside->file.fd >= 0)
        plim__file_close(&aside->file);
    plim__arena_destroy(&aside->arena);
}

/* Writes the buffer out; the last one is padded to a page, which direct I/O asks for. */
static plim_status_t flush(plim__spool_t *aside)
{
    size_t whole = plim__round_up(aside->used, PLIM__PAGE);
    memset(aside->buffer + aside->used, 0, whole - aside->used);
    if (aside->file.fd < 0)
        PLIM_TRY(plim__file_open(aside->directory, PLIM__FILE_TEMPORARY, true, &aside->file));
    PLIM_TRY(plim__file_write_at(&aside->file, aside->base, aside->buffer, whole));
    plim__file_drop(&aside->file, aside->base, (int64_t)whole);
    aside->base += (int64_t)whole;
    aside->used = 0;
    return PLIM_OK;
}

plim_status_t plim__spool_write(plim__spool_t *aside, const void *from, size_t size)
{
    const unsigned char *next = from;
    while (size > 0) {
        if (aside->used == aside->capacity)
            PLIM_TRY(flush(aside));
        size_t piece = aside->capacity - aside->used;
        piece = piece < size ? piece : size;
        memcpy(aside->buffer + aside->used, next, piece);
        aside->used += piece;
        aside->size += (int64_t)piece;
        next += piece;
        size -= piece;
    }
    return PLIM_OK;
}

int64_t plim__spool_size(const plim__spool_t *aside)
{
    return aside->size;
}

plim_status_t plim__spool_rewind(plim__spool_t *aside, bool consume)
{
    bool written = aside->reading;
    aside->reading = true;
    aside->consume = consume;
    aside->taken = 0;
    if (aside->file.fd < 0) { /* all of it is still in the buffer */
        aside->used = (size_t)aside->size;
        return PLIM_OK;
    }
    if (!written && aside->used > 0)
        PLIM_TRY(flush(aside));
    aside->base = 0;
    aside->used = 0;
    return PLIM_OK;
}

/* The next piece of the file into the buffer. */
static plim_status_t refill(plim__spool_t *aside)
{
    int64_t begin = aside->base + (int64_t)plim__round_up(aside->used, PLIM__PAGE);
    int64_t left = aside->size - begin;
    size_t size = (size_t)plim__min_i64(left, (int64_t)aside->capacity);
    PLIM_TRY(
        plim__file_read_at(&aside->file, begin, aside->buffer, plim__round_up(size, PLIM__PAGE)));
    plim__file_drop(&aside->file, begin, (int64_t)plim__round_up(size, PLIM__PAGE));
    if (aside->consume) /* where punching holes is not possible the space is freed at the end */
        (void)fallocate(aside->file.fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)begin,
                        (off_t)plim__round_up(size, PLIM__PAGE));
    aside->base = begin;
    aside->used = size;
    aside->taken = 0;
    return PLIM_OK;
}

plim_status_t plim__spool_read(plim__spool_t *aside, void *to, size_t size)
{
    unsigned char *next = to;
    int64_t position = aside->base + (int64_t)aside->taken;
    if ((int64_t)size > aside->size - position)
        return plim__fail(PLIM_ERR_USAGE,
                          "more is read from a temporary file than was written to it");
    while (size > 0) {
        if (aside->taken == aside->used)
            PLIM_TRY(refill(aside));
        size_t piece = aside->used - aside->taken;
        piece = piece < size ? piece : size;
        memcpy(next, aside->buffer + aside->taken, piece);
        aside->taken += piece;
        next += piece;
        size -= piece;
    }
    return PLIM_OK;
}
