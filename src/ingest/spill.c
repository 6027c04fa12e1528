#include "ingest/spill.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/engine.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>
#include <unistd.h>

#define NONE PLIM__SPILL_NONE

/* The file grows in these steps, so that single writes do not extend it. */
#define GROWTH ((int64_t)256 << 20)

/* A buffer in memory, or being written. */
typedef struct spill_buffer {
    plim__spill_list_t *list;
    uint32_t count; /* keys */
    uint32_t next;  /* in the queue of buffers to write, or in the free list */
    uint32_t next_in_list;
} spill_buffer_t;

typedef struct write {
    plim__op_t op;
    uint32_t buffer;
} write_t;

/* The lock guards all fields that change, the engine and all lists. */
struct plim__spill {
    pthread_mutex_t lock;
    const char *tmp; /* NULL: no file */
    plim__file_t file;
    plim__engine_t *engine;
    size_t chunk;
    int64_t chunk_keys;
    int depth;
    int64_t written;

    uint32_t *next_slot; /* (num_slots): the list's next older chunk, or the next free slot */
    int64_t num_slots;
    int64_t used_slots; /* slots used so far; all others are free */
    uint32_t free_slot;

    char *base; /* (num_buffers, chunk) */
    spill_buffer_t *buffers;
    int64_t num_buffers;
    int64_t used_buffers; /* ever taken */
    uint32_t free_buffer;
    uint32_t oldest; /* buffers to write, in the order of put */
    uint32_t newest;
    bool spilling;

    write_t *writes; /* (depth): a ring, the oldest at first_write */
    int first_write;
    int num_writes;
    plim__op_t *reads; /* (depth) */
};

plim__spill_t *plim__spill_carve(plim__arena_t *arena, const plim__spill_params_t *params)
{
    const size_t depth = params->tmp != NULL ? (size_t)params->depth : 0;
    plim__spill_t draft = {.tmp = params->tmp,
                           .file = {.fd = -1},
                           .chunk = params->chunk,
                           .chunk_keys = (int64_t)(params->chunk / sizeof(uint64_t)),
                           .depth = (int)depth,
                           .num_slots = params->tmp != NULL ? params->num_slots : 0,
                           .free_slot = NONE,
                           .free_buffer = NONE,
                           .oldest = NONE,
                           .newest = NONE};
    plim__spill_t *spill = plim__arena_carve(arena, 1, sizeof *spill, 1);
    draft.next_slot = plim__arena_carve(arena, (size_t)draft.num_slots, sizeof(uint32_t), 1);
    draft.buffers =
        plim__arena_carve(arena, (size_t)params->num_buffers, sizeof(spill_buffer_t), 1);
    draft.writes = plim__arena_carve(arena, depth, sizeof(write_t), 1);
    draft.reads = plim__arena_carve(arena, depth, sizeof(plim__op_t), 1);
    if (spill != NULL)
        *spill = draft;
    return spill;
}

plim_status_t plim__spill_open(const plim_job_t *job, const plim__spill_params_t *params,
                               plim__spill_t *spill)
{
    if (spill->num_slots >= NONE || params->num_buffers >= NONE)
        return plim__fail(PLIM_ERR_USAGE,
                          "a spill of %lld chunks is too large; more memory gives larger chunks",
                          (long long)plim__max_i64(spill->num_slots, params->num_buffers));
    if (params->tmp != NULL) {
        PLIM_TRY(plim__engine_create(job, params->depth, &spill->engine));
        plim_status_t status =
            plim__file_open(params->tmp, PLIM__FILE_TEMPORARY, true, &spill->file);
        if (status != PLIM_OK) {
            plim__engine_destroy(spill->engine);
            return status;
        }
    }
    pthread_mutex_init(&spill->lock, NULL);
    return PLIM_OK;
}

void plim__spill_close(plim__spill_t *spill)
{
    if (spill == NULL)
        return;
    plim__engine_destroy(spill->engine);
    plim__file_close(&spill->file);
    pthread_mutex_destroy(&spill->lock);
}

void plim__spill_lend(plim__spill_t *spill, void *base, int64_t count)
{
    pthread_mutex_lock(&spill->lock);
    spill->base = base;
    spill->num_buffers = count;
    spill->used_buffers = 0;
    spill->free_buffer = NONE;
    pthread_mutex_unlock(&spill->lock);
}

int64_t plim__spill_untouched(plim__spill_t *spill)
{
    pthread_mutex_lock(&spill->lock);
    int64_t count = spill->num_buffers - spill->used_buffers;
    pthread_mutex_unlock(&spill->lock);
    return count;
}

int64_t plim__spill_written(plim__spill_t *spill)
{
    pthread_mutex_lock(&spill->lock);
    int64_t written = spill->written;
    pthread_mutex_unlock(&spill->lock);
    return written;
}

static uint64_t *buffer_data(plim__spill_t *spill, uint32_t number)
{
    return (uint64_t *)(void *)(spill->base + (size_t)number * spill->chunk);
}

static void free_buffer(plim__spill_t *spill, uint32_t number)
{
    spill->buffers[number].next = spill->free_buffer;
    spill->free_buffer = number;
}

/* Bytes of a chunk of `count` keys in the file: whole pages. */
static size_t chunk_bytes(int64_t count)
{
    return plim__round_up((size_t)count * sizeof(uint64_t), PLIM__PAGE);
}

static plim_status_t take_slot(plim__spill_t *spill, uint32_t *slot_out)
{
    if (spill->free_slot != NONE) {
        *slot_out = spill->free_slot;
        spill->free_slot = spill->next_slot[*slot_out];
        return PLIM_OK;
    }
    if (spill->used_slots == spill->num_slots)
        return plim__fail(PLIM_ERR_USAGE,
                          "internal error: more keys than the %lld chunks of the spill",
                          (long long)spill->num_slots);
    int64_t end = (spill->used_slots + 1) * (int64_t)spill->chunk;
    if (end > spill->file.size) {
        int64_t most = spill->num_slots * (int64_t)spill->chunk;
        int64_t size = plim__min_i64(most, spill->file.size + GROWTH);
        size = plim__max_i64(size, end);
        while (ftruncate(spill->file.fd, size) != 0)
            if (errno != EINTR)
                return plim__fail_errno(errno, "%s: cannot extend a temporary file to %lld bytes",
                                        spill->tmp, (long long)size);
        spill->file.size = size;
    }
    *slot_out = (uint32_t)spill->used_slots++;
    return PLIM_OK;
}

static void free_slot(plim__spill_t *spill, uint32_t slot)
{
    spill->next_slot[slot] = spill->free_slot;
    spill->free_slot = slot;
}

/* Waits for the oldest write and frees its buffer. */
static plim_status_t end_write(plim__spill_t *spill)
{
    write_t *write = &spill->writes[spill->first_write];
    spill->first_write = (spill->first_write + 1) % spill->depth;
    spill->num_writes--;
    free_buffer(spill, write->buffer);
    return plim__engine_wait(spill->engine, &write->op);
}

/* Starts writes, oldest chunks first, until `depth` are in flight. */
static plim_status_t begin_writes(plim__spill_t *spill)
{
    bool any = false;
    while (spill->oldest != NONE && spill->num_writes < spill->depth) {
        uint32_t number = spill->oldest;
        spill_buffer_t *buffer = &spill->buffers[number];
        plim__spill_list_t *list = buffer->list;
        uint32_t slot = NONE;
        PLIM_TRY(take_slot(spill, &slot));
        spill->oldest = buffer->next;
        list->first = buffer->next_in_list;
        spill->next_slot[slot] = list->slot;
        list->slot = slot;
        list->on_disk += buffer->count;
        write_t *write = &spill->writes[(spill->first_write + spill->num_writes++) % spill->depth];
        write->buffer = number;
        write->op = (plim__op_t){.file = &spill->file,
                                 .offset = (int64_t)slot * (int64_t)spill->chunk,
                                 .data = buffer_data(spill, number),
                                 .size = chunk_bytes(buffer->count),
                                 .write = true};
        spill->written += (int64_t)write->op.size;
        plim__engine_submit(spill->engine, &write->op);
        any = true;
    }
    if (any)
        plim__engine_flush(spill->engine);
    return PLIM_OK;
}

static plim_status_t take_locked(plim__spill_t *spill, uint64_t **buffer_out)
{
    while (spill->free_buffer == NONE) {
        if (spill->used_buffers < spill->num_buffers) {
            *buffer_out = buffer_data(spill, (uint32_t)spill->used_buffers++);
            return PLIM_OK;
        }
        spill->spilling = spill->engine != NULL;
        if (spill->spilling)
            PLIM_TRY(begin_writes(spill));
        if (spill->num_writes == 0)
            return plim__fail(PLIM_ERR_USAGE,
                              "internal error: all %lld buffers of the spill are in use",
                              (long long)spill->num_buffers);
        PLIM_TRY(end_write(spill));
    }
    uint32_t number = spill->free_buffer;
    spill->free_buffer = spill->buffers[number].next;
    *buffer_out = buffer_data(spill, number);
    return PLIM_OK;
}

plim_status_t plim__spill_take(plim__spill_t *spill, uint64_t **buffer_out)
{
    pthread_mutex_lock(&spill->lock);
    plim_status_t status = take_locked(spill, buffer_out);
    pthread_mutex_unlock(&spill->lock);
    return status;
}

plim_status_t plim__spill_put(plim__spill_t *spill, plim__spill_list_t *list, uint64_t *data,
                              int64_t count)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&spill->lock);
    uint32_t number = (uint32_t)((size_t)((char *)data - spill->base) / spill->chunk);
    spill_buffer_t *buffer = &spill->buffers[number];
    *buffer = (spill_buffer_t){list, (uint32_t)count, NONE, NONE};
    if (spill->oldest == NONE)
        spill->oldest = number;
    else
        spill->buffers[spill->newest].next = number;
    spill->newest = number;
    if (list->first == NONE)
        list->first = number;
    else
        spill->buffers[list->last].next_in_list = number;
    list->last = number;
    list->count += count;
    if (spill->spilling)
        status = begin_writes(spill);
    pthread_mutex_unlock(&spill->lock);
    return status;
}

plim_status_t plim__spill_flush(plim__spill_t *spill)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&spill->lock);
    if (spill->oldest != NONE && spill->engine == NULL)
        status = plim__fail(PLIM_ERR_USAGE, "the spill has no file to flush to");
    while (status == PLIM_OK && (spill->oldest != NONE || spill->num_writes > 0)) {
        status = begin_writes(spill);
        if (status == PLIM_OK)
            status = end_write(spill);
    }
    pthread_mutex_unlock(&spill->lock);
    return status;
}

/*
 * Reads chunks of the list from disk, at most `depth` at a time. All are full but the newest, which
 * is read first and placed after the others. Adds the number of keys to *count.
 */
static plim_status_t read_disk(plim__spill_t *spill, plim__spill_list_t *list, uint64_t *to,
                               int64_t capacity, int64_t *count)
{
    plim_status_t status = PLIM_OK;
    int64_t full = spill->chunk_keys;
    int64_t chunks = plim__min_i64((list->on_disk + full - 1) / full, capacity / full);
    int64_t newest = list->on_disk % full != 0 ? list->on_disk % full : full;
    for (int64_t begun = 0, ended = 0; ended < chunks;) {
        if (begun < chunks && begun - ended < spill->depth) {
            /* The slot may be reused only after the read, but no thread writes while we hold the
             * lock. */
            uint32_t slot = list->slot;
            list->slot = spill->next_slot[slot];
            free_slot(spill, slot);
            plim__op_t *op = &spill->reads[begun % spill->depth];
            *op = (plim__op_t){.file = &spill->file,
                               .offset = (int64_t)slot * (int64_t)spill->chunk,
                               .data = to + (chunks - 1 - begun) * full,
                               .size = chunk_bytes(begun == 0 ? newest : full)};
            plim__engine_submit(spill->engine, op);
            begun++;
            continue;
        }
        plim_status_t one = plim__engine_wait(spill->engine, &spill->reads[ended++ % spill->depth]);
        if (status == PLIM_OK)
            status = one;
    }
    int64_t keys = chunks > 0 ? (chunks - 1) * full + newest : 0;
    list->on_disk -= keys;
    list->count -= keys;
    *count += keys;
    return status;
}

/* Detaches the list's oldest resident chunks that fit into `capacity` keys; returns the first. */
static uint32_t detach_resident(plim__spill_t *spill, plim__spill_list_t *list, int64_t capacity,
                                int64_t *keys_out)
{
    uint32_t first = list->first;
    uint32_t last = NONE;
    int64_t keys = 0;
    while (list->first != NONE && keys + spill->buffers[list->first].count <= capacity) {
        last = list->first;
        keys += spill->buffers[last].count;
        list->first = spill->buffers[last].next_in_list;
    }
    *keys_out = keys;
    if (last == NONE)
        return NONE;
    spill->buffers[last].next_in_list = NONE;
    list->count -= keys;
    return first;
}

plim_status_t plim__spill_read(plim__spill_t *spill, plim__spill_list_t *list, uint64_t *to,
                               int64_t capacity, int64_t *count_out)
{
    int64_t count = 0, resident;
    pthread_mutex_lock(&spill->lock);
    plim_status_t status =
        list->on_disk > 0 ? read_disk(spill, list, to, capacity, &count) : PLIM_OK;
    uint32_t number = detach_resident(spill, list, capacity - count, &resident);
    pthread_mutex_unlock(&spill->lock);
    if (status != PLIM_OK)
        return status;
    while (number != NONE) {
        const spill_buffer_t *buffer = &spill->buffers[number];
        memcpy(to + count, buffer_data(spill, number), buffer->count * sizeof *to);
        count += buffer->count;
        number = buffer->next_in_list;
    }
    *count_out = count;
    return PLIM_OK;
}

void plim__spill_drop(plim__spill_t *spill, plim__spill_list_t *list)
{
    int64_t resident;
    pthread_mutex_lock(&spill->lock);
    while (list->slot != NONE) {
        uint32_t slot = list->slot;
        list->slot = spill->next_slot[slot];
        free_slot(spill, slot);
    }
    (void)detach_resident(spill, list, INT64_MAX, &resident);
    *list = PLIM__SPILL_LIST_INIT;
    pthread_mutex_unlock(&spill->lock);
}
