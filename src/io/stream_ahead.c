/*
 * A stream pulled ahead on a thread of its own, through a ring of bytes.
 *
 *     ring:  │ free │ filled, `head` … `tail` │ free │      positions count up, modulo the capacity
 *
 * The puller owns [tail, head + capacity), the reader [head, tail). Each publishes in pieces of a
 * quarter of the ring, so that a wakeup moves many bytes.
 */
#include "io/stream.h"

#include "base/fail.h"
#include "base/threads.h"
#include "mem/arena.h"

#include <stdio.h>
#include <string.h>

typedef struct ahead {
    plim__stream_t stream;
    plim__arena_t arena;
    plim__stream_t *inner; /* the puller's, until it is joined */
    char *ring;
    size_t capacity;
    size_t piece;
    plim__thread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    pthread_cond_t filled;
    pthread_cond_t emptied;
    uint64_t head;
    uint64_t tail;
    bool reader_waits;
    bool puller_waits;
    bool ended;  /* nothing comes after `tail` */
    bool closed; /* the reader has gone */
    plim_status_t status;
    char message[PLIM_MESSAGE_MAX];
    /* The reader's own: what it knows to be filled, so that most reads take no lock. */
    uint64_t taken;
    uint64_t known;
} ahead_t;

/* Waits until a piece has room; false when the reader has gone. */
static bool puller_wait(ahead_t *ahead, uint64_t tail)
{
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->closed && ahead->capacity - (size_t)(tail - ahead->head) < ahead->piece) {
        ahead->puller_waits = true;
        pthread_cond_wait(&ahead->emptied, &ahead->lock);
        ahead->puller_waits = false;
    }
    bool open = !ahead->closed;
    pthread_mutex_unlock(&ahead->lock);
    return open;
}

static void puller_publish(ahead_t *ahead, uint64_t tail, bool ended, plim_status_t status)
{
    pthread_mutex_lock(&ahead->lock);
    ahead->tail = tail;
    ahead->ended = ended;
    if (status != PLIM_OK) {
        ahead->status = status;
        plim__fail_save(ahead->message, sizeof ahead->message);
    }
    if (ahead->reader_waits)
        pthread_cond_signal(&ahead->filled);
    pthread_mutex_unlock(&ahead->lock);
}

static plim_status_t puller_body(void *context)
{
    ahead_t *ahead = context;
    uint64_t tail = 0;
    while (puller_wait(ahead, tail)) {
        size_t want = ahead->piece;
        bool ended = false;
        plim_status_t status = PLIM_OK;
        while (want > 0 && !ended) {
            size_t at = (size_t)(tail % ahead->capacity);
            size_t edge = ahead->capacity - at;
            size_t got = 0;
            status =
                ahead->inner->read(ahead->inner, ahead->ring + at, want < edge ? want : edge, &got);
            ended = status != PLIM_OK || got == 0;
            tail += status == PLIM_OK ? got : 0;
            want -= status == PLIM_OK ? got : 0;
        }
        puller_publish(ahead, tail, ended, status);
        if (ended)
            break;
    }
    return PLIM_OK;
}

/* Gives back what was taken and learns what was filled, waiting until that is something. */
static plim_status_t reader_exchange(ahead_t *ahead, bool wait)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&ahead->lock);
    ahead->head = ahead->taken;
    if (ahead->puller_waits &&
        ahead->capacity - (size_t)(ahead->tail - ahead->head) >= ahead->piece)
        pthread_cond_signal(&ahead->emptied);
    while (wait && ahead->tail == ahead->taken && !ahead->ended) {
        ahead->reader_waits = true;
        pthread_cond_wait(&ahead->filled, &ahead->lock);
        ahead->reader_waits = false;
    }
    ahead->known = ahead->tail;
    if (wait && ahead->tail == ahead->taken)
        status = ahead->status;
    pthread_mutex_unlock(&ahead->lock);
    return status == PLIM_OK ? PLIM_OK : plim__fail_restore(status, ahead->message);
}

static plim_status_t ahead_read(plim__stream_t *stream, void *to, size_t capacity, size_t *got_out)
{
    ahead_t *ahead = (ahead_t *)stream;
    if (ahead->known == ahead->taken)
        PLIM_TRY(reader_exchange(ahead, true));
    size_t at = (size_t)(ahead->taken % ahead->capacity);
    size_t got = (size_t)(ahead->known - ahead->taken);
    if (got > ahead->capacity - at)
        got = ahead->capacity - at;
    if (got > capacity)
        got = capacity;
    memcpy(to, ahead->ring + at, got);
    ahead->taken += got;
    stream->position += (int64_t)got;
    *got_out = got;
    /* `head` is only written here, by this thread. */
    if (ahead->taken - ahead->head >= ahead->piece)
        (void)reader_exchange(ahead, false);
    return PLIM_OK;
}

static void ahead_free(ahead_t *ahead)
{
    pthread_cond_destroy(&ahead->emptied);
    pthread_cond_destroy(&ahead->filled);
    pthread_mutex_destroy(&ahead->lock);
    plim__stream_close(ahead->inner);
    plim__arena_destroy(&ahead->arena);
}

static void ahead_close(plim__stream_t *stream)
{
    ahead_t *ahead = (ahead_t *)stream;
    pthread_mutex_lock(&ahead->lock);
    ahead->closed = true;
    pthread_cond_signal(&ahead->emptied);
    pthread_mutex_unlock(&ahead->lock);
    (void)plim__thread_join(&ahead->thread);
    ahead_free(ahead);
}

size_t plim__stream_ahead_estimate(size_t buffer)
{
    return plim__arena_piece(1, sizeof(ahead_t), 1) + plim__arena_piece(1, buffer, PLIM__PAGE) +
           PLIM__STACK_BYTES;
}

plim_status_t plim__stream_ahead(const plim_job_t *job, plim__stream_t *inner, size_t buffer,
                                 plim__stream_t **stream_out)
{
    plim__arena_t arena;
    plim_status_t status =
        plim__arena_create(job->ledger, "streams", plim__stream_ahead_estimate(buffer), &arena);
    if (status != PLIM_OK) {
        plim__stream_close(inner);
        return status;
    }
    ahead_t *ahead = plim__arena_carve(&arena, 1, sizeof *ahead, 1);
    ahead->ring = plim__arena_carve(&arena, 1, buffer, PLIM__PAGE);
    ahead->arena = arena;
    ahead->inner = inner;
    ahead->capacity = buffer;
    ahead->piece = buffer / 4 > 0 ? buffer / 4 : 1;
    ahead->stream.read = ahead_read;
    ahead->stream.close = ahead_close;
    ahead->stream.position = inner->position;
    ahead->stream.size = inner->size;
    (void)snprintf(ahead->stream.name, sizeof ahead->stream.name, "%s", inner->name);
    pthread_mutex_init(&ahead->lock, NULL);
    pthread_cond_init(&ahead->filled, NULL);
    pthread_cond_init(&ahead->emptied, NULL);
    status = plim__thread_start(&ahead->thread, puller_body, ahead, NULL);
    if (status != PLIM_OK) {
        ahead_free(ahead);
        return status;
    }
    *stream_out = &ahead->stream;
    return PLIM_OK;
}
