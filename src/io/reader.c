/*
 * What all readers share, and the readers over memory, over a file, and over a thread of its own
 * that reads ahead.
 */
#include "io/reader.h"

#include "base/check.h"
#include "base/condition.h"
#include "base/fail.h"
#include "base/threads.h"
#include "io/engine.h"
#include "mem/arena.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>

plim_status_t plim__reader_read_some(plim__reader_t *reader, void *to, size_t size, size_t *got_out)
{
    size_t done = 0;
    while (done < size) {
        size_t got;
        PLIM_TRY(reader->read(reader, (char *)to + done, size - done, &got));
        if (got == 0)
            break;
        done += got;
    }
    *got_out = done;
    return PLIM_OK;
}

plim_status_t plim__reader_read_all(plim__reader_t *reader, void *to, size_t size)
{
    int64_t begin = reader->position;
    size_t got;
    PLIM_TRY(plim__reader_read_some(reader, to, size, &got));
    if (got == size)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s is truncated: it ends after %" PRId64 " bytes, at least %" PRId64
                      " expected; download it again",
                      reader->name, reader->position, begin + (int64_t)size);
}

plim_status_t plim__reader_skip(plim__reader_t *reader, int64_t size)
{
    char waste[8192];
    while (size > 0) {
        size_t chunk = (size_t)plim__min_i64(size, (int64_t)sizeof waste);
        PLIM_TRY(plim__reader_read_all(reader, waste, chunk));
        size -= (int64_t)chunk;
    }
    return PLIM_OK;
}

plim_status_t plim__reader_end(plim__reader_t *reader)
{
    int64_t expected = reader->position;
    char byte;
    size_t got;
    PLIM_TRY(reader->read(reader, &byte, 1, &got));
    if (got == 0)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA, "%s is longer than the %" PRId64 " bytes expected",
                      reader->name, expected);
}

void plim__reader_close(plim__reader_t *reader)
{
    if (reader != NULL)
        reader->close(reader);
}

plim__reader_t plim__reader_over(const plim__reader_t *inner, plim__reader_read_fn read,
                                 void (*close)(plim__reader_t *reader))
{
    plim__reader_t reader = *inner;
    reader.read = read;
    reader.close = close;
    return reader;
}

typedef struct memory {
    plim__reader_t reader;
    plim__arena_t arena;
    const char *data;
    size_t data_size; /* may be less than the reader's size, for the first bytes of a file */
} memory_t;

static plim_status_t memory_read(plim__reader_t *reader, void *to, size_t capacity, size_t *got_out)
{
    memory_t *memory = (memory_t *)reader;
    size_t left = memory->data_size - (size_t)reader->position;
    size_t got = capacity < left ? capacity : left;
    if (got > 0)
        memcpy(to, memory->data + reader->position, got);
    reader->position += (int64_t)got;
    *got_out = got;
    return PLIM_OK;
}

static void memory_close(plim__reader_t *reader)
{
    plim__arena_destroy(&((memory_t *)reader)->arena);
}

plim_status_t plim__reader_memory(const plim_job_t *job, const char *name, const void *data,
                                  size_t size, plim__reader_t **reader_out)
{
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "streams", sizeof(memory_t), &arena));
    memory_t *memory = plim__arena_carve(&arena, 1, sizeof *memory, 1);
    memory->arena = arena;
    memory->data = data;
    memory->data_size = size;
    memory->reader.read = memory_read;
    memory->reader.close = memory_close;
    memory->reader.size = (int64_t)size;
    (void)snprintf(memory->reader.name, sizeof memory->reader.name, "%s", name);
    *reader_out = &memory->reader;
    return PLIM_OK;
}

/* A file as a reader: while the caller consumes one buffer, the next one is being read. */
#define BUFFERS 2

typedef struct file_reader {
    plim__reader_t reader;
    plim__arena_t arena;
    plim__engine_t *engine;
    plim__file_t file;
    char *path;
    size_t capacity; /* of a buffer */
    int64_t asked;   /* file bytes requested so far */
    int current;     /* the buffer being consumed */
    size_t consumed; /* bytes of it that were delivered */
    char *data[BUFFERS];
    size_t valid[BUFFERS]; /* file bytes in it, or being read into it; 0 past the end */
    plim__op_t ops[BUFFERS];
} file_reader_t;

static void lay_out_file(plim__arena_t *arena, void *draft)
{
    file_reader_t *self = draft;
    self->path = plim__arena_carve(arena, 1, PATH_MAX, 1);
    for (int i = 0; i < BUFFERS; i++)
        self->data[i] = plim__arena_carve(arena, 1, self->capacity, PLIM__PAGE);
}

size_t plim__reader_file_estimate(plim_io_engine_t kind, size_t buffer)
{
    file_reader_t reader = {.capacity = plim__round_up(buffer, PLIM__PAGE)};
    return plim__object_bytes(lay_out_file, &reader, sizeof reader) +
           plim__engine_estimate(kind, BUFFERS);
}

/* Starts reading the next chunk of the file into buffer i, unless the file has ended. */
static void ask(file_reader_t *self, int i)
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

static plim_status_t file_read(plim__reader_t *reader, void *to, size_t capacity, size_t *got_out)
{
    file_reader_t *self = (file_reader_t *)reader;
    int i = self->current;
    if (self->valid[i] > 0 && self->consumed == 0)
        PLIM_TRY(plim__engine_wait(self->engine, &self->ops[i]));
    size_t left = self->valid[i] - self->consumed;
    size_t chunk = capacity < left ? capacity : left;
    memcpy(to, self->data[i] + self->consumed, chunk);
    self->consumed += chunk;
    reader->position += (int64_t)chunk;
    if (self->consumed == self->valid[i] && chunk > 0) {
        ask(self, i);
        self->current = (i + 1) % BUFFERS;
        self->consumed = 0;
    }
    *got_out = chunk;
    return PLIM_OK;
}

static void file_close(plim__reader_t *reader)
{
    file_reader_t *self = (file_reader_t *)reader;
    plim__engine_destroy(self->engine);
    plim__file_close(&self->file);
    plim__arena_destroy(&self->arena);
}

/* Opens the file at `begin`, a multiple of a page. */
static plim_status_t open_at(const plim_job_t *job, const char *path, size_t buffer, int64_t begin,
                             plim__reader_t **reader_out)
{
    if (strlen(path) >= PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "%.64s…: the path is too long", path);
    file_reader_t draft = {.reader = {.read = file_read, .close = file_close},
                           .file = {.fd = -1},
                           .capacity = plim__round_up(buffer, PLIM__PAGE)};
    file_reader_t *self;
    PLIM_TRY(plim__object_create(job->ledger, "file stream", lay_out_file, &draft, sizeof draft,
                                 &draft.arena, &self));
    memcpy(self->path, path, strlen(path) + 1);
    (void)snprintf(self->reader.name, sizeof self->reader.name, "%s", path);
    plim_status_t status = plim__engine_create(job, BUFFERS, &self->engine);
    if (status == PLIM_OK)
        status = plim__file_open(self->path, PLIM__FILE_READ, true, &self->file);
    if (status != PLIM_OK) {
        file_close(&self->reader);
        return status;
    }
    self->reader.size = self->file.size;
    self->asked = self->reader.position = plim__min_i64(begin, self->file.size);
    for (int i = 0; i < BUFFERS; i++)
        ask(self, i);
    *reader_out = &self->reader;
    return PLIM_OK;
}

plim_status_t plim__reader_file(const plim_job_t *job, const char *path, size_t buffer,
                                plim__reader_t **reader_out)
{
    return open_at(job, path, buffer, 0, reader_out);
}

plim_status_t plim__reader_file_at(const plim_job_t *job, const char *path, size_t buffer,
                                   int64_t offset, plim__reader_t **reader_out)
{
    plim__reader_t *reader;
    int64_t begin = offset & ~((int64_t)PLIM__PAGE - 1);
    PLIM_TRY(open_at(job, path, buffer, begin, &reader));
    plim_status_t status = plim__reader_skip(reader, offset - reader->position);
    if (status != PLIM_OK) {
        plim__reader_close(reader);
        return status;
    }
    *reader_out = reader;
    return PLIM_OK;
}

/*
 * A thread reads the inner reader ahead, through a ring of bytes:
 *
 *     ring:  │ free │ filled, `head` … `tail` │ free │      positions count up, modulo the capacity
 *
 * The puller (the thread) owns [tail, head + capacity), the consumer [head, tail). Each publishes
 * in chunks of a quarter of the ring, so that a wakeup moves many bytes.
 */
typedef struct ahead {
    plim__reader_t reader;
    plim__arena_t arena;
    plim__reader_t *inner; /* used by the puller only, until it is joined */
    char *ring;
    size_t capacity;
    size_t chunk;
    plim__thread_t thread;
    pthread_mutex_t lock; /* guards what follows */
    plim__condition_t filled;
    plim__condition_t emptied;
    uint64_t head;
    uint64_t tail;
    bool ended;  /* nothing comes after `tail` */
    bool closed; /* the consumer has closed the reader */
    plim_status_t status;
    plim__failure_t failure;
    /* Used by the consumer only. It caches `tail`, so that most reads take no lock. */
    uint64_t taken;
    uint64_t known;
} ahead_t;

/* Waits until the ring has space for a chunk. False when the consumer has closed the reader. */
static bool puller_wait(ahead_t *ahead, uint64_t tail)
{
    pthread_mutex_lock(&ahead->lock);
    while (!ahead->closed && ahead->capacity - (size_t)(tail - ahead->head) < ahead->chunk) {
        plim__condition_wait(&ahead->emptied, &ahead->lock);
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
        plim__fail_save(&ahead->failure);
    }
    plim__condition_wake(&ahead->filled, 1);
    pthread_mutex_unlock(&ahead->lock);
}

static void puller_body(void *context)
{
    ahead_t *ahead = context;
    uint64_t tail = 0;
    while (puller_wait(ahead, tail)) {
        size_t want = ahead->chunk;
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
}

/* Publishes `head` and reads `tail`; with `wait`, waits until there are bytes or the end. */
static plim_status_t reader_exchange(ahead_t *ahead, bool wait)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&ahead->lock);
    ahead->head = ahead->taken;
    if (ahead->capacity - (size_t)(ahead->tail - ahead->head) >= ahead->chunk)
        plim__condition_wake(&ahead->emptied, 1);
    while (wait && ahead->tail == ahead->taken && !ahead->ended) {
        plim__condition_wait(&ahead->filled, &ahead->lock);
    }
    ahead->known = ahead->tail;
    if (wait && ahead->tail == ahead->taken)
        status = ahead->status;
    pthread_mutex_unlock(&ahead->lock);
    return status == PLIM_OK ? PLIM_OK : plim__fail_restore(status, &ahead->failure);
}

static plim_status_t ahead_read(plim__reader_t *reader, void *to, size_t capacity, size_t *got_out)
{
    ahead_t *ahead = (ahead_t *)reader;
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
    reader->position += (int64_t)got;
    *got_out = got;
    /* `head` is only written here, by this thread. */
    if (ahead->taken - ahead->head >= ahead->chunk)
        (void)reader_exchange(ahead, false);
    return PLIM_OK;
}

static void ahead_free(ahead_t *ahead)
{
    pthread_mutex_destroy(&ahead->lock);
    plim__reader_close(ahead->inner);
    plim__arena_destroy(&ahead->arena);
}

static void ahead_close(plim__reader_t *reader)
{
    ahead_t *ahead = (ahead_t *)reader;
    pthread_mutex_lock(&ahead->lock);
    ahead->closed = true;
    plim__condition_wake(&ahead->emptied, 1);
    pthread_mutex_unlock(&ahead->lock);
    plim__thread_join(&ahead->thread);
    ahead_free(ahead);
}

static void lay_out_ahead(plim__arena_t *arena, void *draft)
{
    ahead_t *ahead = draft;
    ahead->ring = plim__arena_carve(arena, 1, ahead->capacity, PLIM__PAGE);
    (void)plim__arena_carve(arena, 1, PLIM__STACK_BYTES, 1); /* counts the thread's stack */
}

plim_status_t plim__reader_ahead(const plim_job_t *job, plim__reader_t *inner, size_t buffer,
                                 plim__reader_t **reader_out)
{
    ahead_t draft = {.reader = plim__reader_over(inner, ahead_read, ahead_close),
                     .inner = inner,
                     .capacity = buffer,
                     .chunk = buffer / 4 > 0 ? buffer / 4 : 1};
    ahead_t *ahead;
    plim_status_t status = plim__object_create(job->ledger, "streams", lay_out_ahead, &draft,
                                               sizeof draft, &draft.arena, &ahead);
    if (status != PLIM_OK) {
        plim__reader_close(inner);
        return status;
    }
    pthread_mutex_init(&ahead->lock, NULL);
    status = plim__thread_start(&ahead->thread, puller_body, ahead);
    if (status != PLIM_OK) {
        ahead_free(ahead);
        return status;
    }
    *reader_out = &ahead->reader;
    return PLIM_OK;
}
