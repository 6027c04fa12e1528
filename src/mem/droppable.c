#include "mem/droppable.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "mem/headroom.h"

#include <sched.h>

#define CHUNK ((int64_t)PLIM__DROPPABLE_CHUNK)
#define MARGIN_BYTES ((int64_t)32 << 20) /* of memory that a refresh leaves to others */
#define CHECK_CHUNKS 8                   /* filled between two checks of the headroom */

void plim__droppable_carve(plim__arena_t *arena, size_t bytes, int num_readers,
                           plim__droppable_t *memory_out)
{
    plim__droppable_t memory = {.bytes = plim__round_up(bytes, PLIM__PAGE),
                                .num_readers = num_readers,
                                .lock = PTHREAD_MUTEX_INITIALIZER};
    memory.num_chunks = ((int64_t)memory.bytes + CHUNK - 1) / CHUNK;
    memory.base = plim__arena_carve(arena, memory.bytes, 1, PLIM__PAGE);
    memory.states = plim__arena_carve(arena, (size_t)memory.num_chunks, 1, 1);
    memory.readers = plim__arena_carve(arena, (size_t)num_readers, sizeof *memory.readers, 1);
    atomic_init(&memory.target, memory.num_chunks);
    atomic_init(&memory.end, memory.num_chunks);
    *memory_out = memory;
}

void plim__droppable_end(plim__droppable_t *memory)
{
    if (memory->base != NULL)
        pthread_mutex_destroy(&memory->lock);
}

static char *chunk_base(const plim__droppable_t *memory, int64_t chunk)
{
    return memory->base + chunk * CHUNK;
}

static size_t chunk_bytes(const plim__droppable_t *memory, int64_t chunk)
{
    return (size_t)plim__min_i64(CHUNK, (int64_t)memory->bytes - chunk * CHUNK);
}

/* Huge pages are wanted only while chunks are filled: pages that the kernel gathers into a huge
 * page later can no longer be dropped. */
void plim__droppable_fill_begin(plim__droppable_t *memory)
{
    plim__arena_want_huge(memory->base, memory->bytes);
}

/* Sets `whole` by the chunks. A reader that finds zeros meanwhile finds them again and clears it.
 */
static void update_whole(plim__droppable_t *memory)
{
    bool whole = true;
    for (int64_t i = 0; i < memory->num_chunks && whole; i++)
        whole = atomic_load(&memory->states[i]) == PLIM__CHUNK_FILLED;
    atomic_store(&memory->whole, whole);
}

/*
 * Marks all filled chunks MADV_FREE again, not only the last one. The kernel skips a page that
 * another processor has just brought in while it waits in that processor's own list, some tens of
 * pages long; and ranges that became ready one by one may share a page.
 */
static void mark_all_droppable(plim__droppable_t *memory)
{
    const size_t end = (size_t)(atomic_load(&memory->end) * CHUNK);
    plim__arena_may_drop(memory->base, end < memory->bytes ? end : memory->bytes);
}

void plim__droppable_fill_end(plim__droppable_t *memory)
{
    plim__arena_want_small(memory->base, memory->bytes);
    mark_all_droppable(memory);
    for (int64_t i = 0; i < memory->num_chunks; i++)
        atomic_store(&memory->states[i], PLIM__CHUNK_FILLED);
    atomic_store(&memory->whole, true);
}

/* The first filling: what its threads share. */
typedef struct filling {
    plim__droppable_t *memory;
    const plim_job_t *job;
    const char *phase;
    plim__droppable_fill_fn fill;
    void *context;
    _Atomic int64_t next;
    _Atomic int64_t done;
} filling_t;

static plim_status_t fill_chunks(void *context, int worker)
{
    filling_t *filling = context;
    plim__droppable_t *memory = filling->memory;
    for (;;) {
        const int64_t chunk = atomic_fetch_add(&filling->next, 1);
        if (chunk >= memory->num_chunks)
            return PLIM_OK;
        plim_status_t status = plim__job_check(filling->job);
        if (status == PLIM_OK)
            status =
                filling->fill(filling->context, worker, chunk * CHUNK, chunk_bytes(memory, chunk));
        if (status != PLIM_OK) {
            atomic_store(&filling->next, memory->num_chunks); /* no thread takes more */
            return status;
        }
        plim__arena_may_drop(memory->base + chunk * CHUNK, chunk_bytes(memory, chunk));
        const int64_t done = atomic_fetch_add(&filling->done, 1) + 1;
        if (worker == 0)
            plim__progress(filling->job, filling->phase, "chunks", done, memory->num_chunks);
    }
}

plim_status_t plim__droppable_fill(plim__droppable_t *memory, const plim_job_t *job, int threads,
                                   const char *phase, plim__droppable_fill_fn fill, void *context)
{
    filling_t filling = {
        .memory = memory, .job = job, .phase = phase, .fill = fill, .context = context};
    threads = (int)plim__min_i64(threads, plim__max_i64(memory->num_chunks, 1));
    plim__droppable_fill_begin(memory);
    plim_status_t status = plim__parallel(threads, fill_chunks, &filling);
    plim__droppable_fill_end(memory);
    if (status == PLIM_OK && memory->num_chunks > 0)
        plim__progress(job, phase, "chunks", memory->num_chunks, memory->num_chunks);
    return status;
}

void plim__droppable_miss(plim__droppable_t *memory, int64_t at)
{
    unsigned char filled = PLIM__CHUNK_FILLED;
    atomic_store(&memory->whole, false);
    (void)atomic_compare_exchange_strong(&memory->states[at / CHUNK], &filled, PLIM__CHUNK_SUSPECT);
}

/* Whether the page was taken: its first 8 bytes are never zeros otherwise. */
static bool is_page_lost(const char *page)
{
    return *(const volatile uint64_t *)(const void *)page == 0;
}

/*
 * Whether the chunk must be filled. Reads only the first and the last page unless a reader has
 * found zeros: a read counts as use and would hide from the kernel which pages are really used.
 */
static bool is_missing(plim__droppable_t *memory, int64_t chunk)
{
    const char *base = chunk_base(memory, chunk), *end = base + chunk_bytes(memory, chunk);
    unsigned char state = atomic_load(&memory->states[chunk]);
    if (state == PLIM__CHUNK_EMPTY)
        return true;
    if (state == PLIM__CHUNK_FILLED)
        return is_page_lost(base) || is_page_lost(end - PLIM__PAGE);
    for (const char *page = base; page < end; page += PLIM__PAGE)
        if (is_page_lost(page))
            return true;
    atomic_store(&memory->states[chunk], PLIM__CHUNK_FILLED); /* an item that looks like zeros */
    return false;
}

/* Waits until every reader that may not have seen the last stored state has left. */
static void wait_for_readers(plim__droppable_t *memory)
{
    for (int i = 0; i < memory->num_readers; i++) {
        const uint64_t section = atomic_load(&memory->readers[i].section);
        while ((section & 1) != 0 && atomic_load(&memory->readers[i].section) == section)
            (void)sched_yield();
    }
}

/* Marks the chunk empty and releases its pages. Lock held. */
static void empty(plim__droppable_t *memory, int64_t chunk)
{
    atomic_store(&memory->whole, false);
    atomic_store(&memory->states[chunk], PLIM__CHUNK_EMPTY);
    plim__arena_drop(chunk_base(memory, chunk), chunk_bytes(memory, chunk));
}

/* Lock held. */
static plim_status_t fill_again(plim__droppable_t *memory, int64_t chunk, int worker,
                                plim__droppable_fill_fn fill, void *context)
{
    char *base = chunk_base(memory, chunk);
    const size_t size = chunk_bytes(memory, chunk);
    empty(memory, chunk);
    wait_for_readers(memory);
    plim__arena_want_huge(base, size);
    plim_status_t status = fill(context, worker, chunk * CHUNK, size);
    plim__arena_want_small(base, size);
    plim__arena_may_drop(base, size);
    if (status == PLIM_OK)
        atomic_store(&memory->states[chunk], PLIM__CHUNK_FILLED);
    return status;
}

/* Releases the chunks behind the target, or admits those that it allows again. Lock held. */
static void apply_target(plim__droppable_t *memory)
{
    const int64_t target = atomic_load(&memory->target), end = atomic_load(&memory->end);
    for (int64_t i = target; i < end; i++)
        atomic_store(&memory->states[i], PLIM__CHUNK_EMPTY);
    if (target < end) {
        const size_t from = (size_t)(target * CHUNK), to = (size_t)(end * CHUNK);
        atomic_store(&memory->whole, false);
        plim__arena_drop(memory->base + from, (to < memory->bytes ? to : memory->bytes) - from);
    }
    atomic_store(&memory->end, target);
}

/* Applies the target unless another thread does. Checks again after the unlock: the target may have
 * been lowered meanwhile. */
static void apply_target_unless_busy(plim__droppable_t *memory)
{
    while (atomic_load(&memory->target) < atomic_load(&memory->end) &&
           pthread_mutex_trylock(&memory->lock) == 0) {
        apply_target(memory);
        pthread_mutex_unlock(&memory->lock);
    }
}

/* Fills missing chunks while memory and time allow. Lock held. */
static plim_status_t fill_missing(plim__droppable_t *memory, int worker, int64_t nanoseconds,
                                  plim__droppable_fill_fn fill, void *context)
{
    const int64_t until = plim__clock_ns() + nanoseconds;
    int64_t allowed = 0, filled = 0;
    bool may_fill = true;
    plim_status_t status = PLIM_OK;
    for (int64_t i = 0; i < atomic_load(&memory->end) && status == PLIM_OK; i++) {
        if (!is_missing(memory, i))
            continue;
        if (may_fill && allowed == 0 && plim__headroom("") > MARGIN_BYTES + CHECK_CHUNKS * CHUNK)
            allowed = CHECK_CHUNKS;
        may_fill = may_fill && allowed > 0 && plim__clock_ns() < until;
        if (!may_fill) {
            empty(memory, i);
            continue;
        }
        status = fill_again(memory, i, worker, fill, context);
        allowed--;
        filled++;
        apply_target(memory);
    }
    if (filled > 0)
        mark_all_droppable(memory);
    return status;
}

plim_status_t plim__droppable_refresh(plim__droppable_t *memory, int worker, int64_t nanoseconds,
                                      plim__droppable_fill_fn fill, void *context)
{
    if (pthread_mutex_trylock(&memory->lock) != 0)
        return PLIM_OK; /* another thread refreshes it */
    apply_target(memory);
    plim_status_t status = fill_missing(memory, worker, nanoseconds, fill, context);
    update_whole(memory);
    pthread_mutex_unlock(&memory->lock);
    apply_target_unless_busy(memory);
    return status;
}

void plim__droppable_limit(plim__droppable_t *memory, size_t bytes)
{
    const bool all = bytes >= memory->bytes;
    atomic_store(&memory->target, all ? memory->num_chunks : (int64_t)bytes / CHUNK);
    apply_target_unless_busy(memory);
}

size_t plim__droppable_filled_bytes(const plim__droppable_t *memory)
{
    size_t bytes = 0;
    for (int64_t i = 0; i < memory->num_chunks; i++)
        if (atomic_load(&memory->states[i]) != PLIM__CHUNK_EMPTY)
            bytes += chunk_bytes(memory, i);
    return bytes;
}
