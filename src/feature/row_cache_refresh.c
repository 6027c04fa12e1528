/*
 * Hot rows between windows: what the kernel has taken is found and brought back, as far as the
 * cache may reach now.
 *
 *     pages   | kept, or lost and to be brought back | given back: not there, not looked for |
 *             0                                  most_pages                          num_pages
 *
 * Who refreshes holds the lock. Who lowers the limit never waits for it: a refresh under way looks
 * at the limit again after every batch, and when it has ended.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/job.h"
#include "feature/row_cache_internal.h"
#include "mem/headroom.h"

#include <string.h>

/* Refilling stops where only so much would be left, or after so long. */
#define MARGIN_BYTES ((int64_t)32 << 20)
#define REFILL_NS ((int64_t)1000000000)

#define BATCH_PAGES 512             /* refilled before they may be dropped again */
#define ROOM_PAGES ((int64_t)16384) /* charged before room is asked for again */

static bool take_suspicion(plim__row_cache_t *hot, int64_t page)
{
    uint64_t bit = (uint64_t)1 << page % 64;
    _Atomic uint64_t *word = &hot->suspects[page / 64];
    if ((atomic_load_explicit(word, memory_order_relaxed) & bit) == 0)
        return false;
    return (atomic_fetch_and_explicit(word, ~bit, memory_order_relaxed) & bit) != 0;
}

static bool is_zero(const plim__row_cache_t *hot, int64_t page)
{
    const char *begin = hot->pages + (size_t)page * PLIM__PAGE;
    return __atomic_load_n((const uint64_t *)(const void *)begin, __ATOMIC_RELAXED) == 0;
}

/*
 * Of the pages from `first` on, those that were read after they had been dropped are not resident
 * either. Where a whole chunk is gone the read of one row may bring a huge page of zeros in its
 * place, so all pages of the chunk are looked at.
 */
static void look_at_suspects(plim__row_cache_t *hot, int64_t first, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        if (!take_suspicion(hot, first + i) || (hot->resident[i] & 1) == 0 ||
            !is_zero(hot, first + i))
            continue;
        int64_t chunk = i / PLIM__ROW_CACHE_CHUNK_PAGES * PLIM__ROW_CACHE_CHUNK_PAGES;
        int64_t end = plim__min_i64(chunk + PLIM__ROW_CACHE_CHUNK_PAGES, count);
        for (int64_t j = chunk; j < end; j++)
            if ((hot->resident[j] & 1) != 0 && is_zero(hot, first + j))
                hot->resident[j] = 0;
    }
}

/*
 * Every page begins with a mark, so a glance at its first word tells; but a glance counts as use,
 * which would keep from the kernel which pages are really used. So the kernel is asked which pages
 * are there, and only those are looked at that somebody has found to be zero: for a page that was
 * read after it was dropped the kernel says yes.
 */
static int64_t find_lost(plim__row_cache_t *hot)
{
    int64_t lost = 0;
    const int64_t end = atomic_load_explicit(&hot->released_from, memory_order_relaxed);
    for (int64_t first = 0; first < end; first += PLIM__ROW_CACHE_SCAN) {
        int64_t count = plim__min_i64(PLIM__ROW_CACHE_SCAN, end - first);
        char *base = hot->pages + (size_t)first * PLIM__PAGE;
        if (!plim__arena_resident(base, (size_t)count * PLIM__PAGE, hot->resident))
            memset(hot->resident, 1, (size_t)count);
        look_at_suspects(hot, first, count);
        for (int64_t i = 0; i < count; i++) {
            _Atomic uint32_t *state = &hot->states[first + i];
            uint32_t before = atomic_load_explicit(state, memory_order_relaxed);
            if ((before & 1) != 0 && (hot->resident[i] & 1) == 0)
                atomic_store_explicit(state, ++before, memory_order_relaxed);
            lost += (before & 1) == 0;
        }
    }
    return lost;
}

/* Lost pages, in runs of at most PLIM__ROW_CACHE_RUN bytes. */
typedef struct batch {
    int num_runs;
    int64_t num_pages;
    int64_t first[BATCH_PAGES];
    int64_t count[BATCH_PAGES];
} batch_t;

/*
 * Room for what is filled. Where nothing of a chunk is there, the first write to it may bring all
 * of it as one huge page; so the first lost page of a chunk is charged with all of it.
 */
typedef struct room {
    int64_t pages;   /* left */
    int64_t unasked; /* of them, before they are asked for again */
    int64_t charged; /* chunks before this one have been */
} room_t;

/* False when there is no room for another chunk. */
static bool find_room(room_t *room)
{
    if (room->unasked <= 0 || room->pages < PLIM__ROW_CACHE_CHUNK_PAGES) {
        room->pages = (plim__headroom("") - MARGIN_BYTES) / (int64_t)PLIM__PAGE;
        room->unasked = ROOM_PAGES;
    }
    return room->pages >= PLIM__ROW_CACHE_CHUNK_PAGES;
}

static bool charge(room_t *room, int64_t page)
{
    int64_t chunk = page / PLIM__ROW_CACHE_CHUNK_PAGES;
    if (chunk < room->charged)
        return true;
    if (room->pages < PLIM__ROW_CACHE_CHUNK_PAGES)
        return false;
    room->pages -= PLIM__ROW_CACHE_CHUNK_PAGES;
    room->unasked -= PLIM__ROW_CACHE_CHUNK_PAGES;
    room->charged = chunk + 1;
    return true;
}

/* Lost pages from `from` on, as many as a batch and the room take; returns the page it came to. */
static int64_t collect(const plim__row_cache_t *hot, int64_t from, room_t *room, batch_t *batch)
{
    const int64_t run_pages = (int64_t)(PLIM__ROW_CACHE_RUN / PLIM__PAGE);
    const int64_t end = atomic_load_explicit(&hot->released_from, memory_order_relaxed);
    int64_t page = from;
    batch->num_runs = 0;
    batch->num_pages = 0;
    for (; page < end && batch->num_pages < BATCH_PAGES; page++) {
        if ((atomic_load_explicit(&hot->states[page], memory_order_relaxed) & 1) != 0)
            continue;
        if (!charge(room, page))
            break;
        int last = batch->num_runs - 1;
        if (last >= 0 && batch->first[last] + batch->count[last] == page &&
            batch->count[last] < run_pages) {
            batch->count[last]++;
        } else {
            batch->first[++last] = page;
            batch->count[last] = 1;
            batch->num_runs++;
        }
        batch->num_pages++;
    }
    return page;
}

static plim_status_t read_packed(plim__row_cache_t *hot, const batch_t *batch)
{
    for (int i = 0; i < batch->num_runs; i++)
        hot->filler.reads[i] = (plim__read_t){plim__row_cache_file_offset(batch->first[i]),
                                              (size_t)batch->count[i] * PLIM__PAGE,
                                              hot->pages + (size_t)batch->first[i] * PLIM__PAGE};
    return plim__reader_read(hot->filler.reader, &hot->packed, hot->filler.reads, batch->num_runs);
}

static plim_status_t read_rows(plim__row_cache_t *hot, const batch_t *batch)
{
    plim_status_t status = PLIM_OK;
    for (int i = 0; i < batch->num_runs && status == PLIM_OK; i++)
        status = plim__row_cache_want(hot, &hot->filler, batch->first[i], batch->count[i]);
    if (status == PLIM_OK)
        status = plim__row_cache_settle(hot, &hot->filler);
    hot->filler.num_reads = 0;
    for (int i = 0; i < batch->num_runs && status == PLIM_OK; i++)
        plim__row_cache_mark(hot, batch->first[i], batch->count[i]);
    return status;
}

/* From the packed file while it can be read: it may lie where others tidy up. */
static plim_status_t read_lost(plim__row_cache_t *hot, const batch_t *batch)
{
    if (hot->packed.fd >= 0) {
        plim_status_t status = read_packed(hot, batch);
        if (status != PLIM_ERR_DATA && status != PLIM_ERR_IO)
            return status;
        plim__log(&hot->job, PLIM_LOG_WARNING, "%s; going on without packed rows",
                  plim_last_error());
        plim__file_close(&hot->packed);
    }
    return read_rows(hot, batch);
}

/* What was stored before is seen before what is stored after. ThreadSanitizer knows no fences. */
__attribute__((no_sanitize("thread"))) static void keep_stores_in_order(void)
{
    atomic_thread_fence(memory_order_release);
}

/* The states are even while this writes, so nobody believes what is copied meanwhile. */
static plim_status_t refill(plim__row_cache_t *hot, const batch_t *batch)
{
    keep_stores_in_order();
    PLIM_TRY(read_lost(hot, batch));
    for (int i = 0; i < batch->num_runs; i++) {
        int64_t first = batch->first[i], count = batch->count[i];
        plim__row_cache_let_go(hot, first, first + count);
        for (int64_t page = first; page < first + count; page++)
            atomic_fetch_add_explicit(&hot->states[page], 1, memory_order_release);
    }
    return PLIM_OK;
}

/* Gives back what lies behind the limit, or takes in what the limit allows again. Lock held. */
static void obey_limit(plim__row_cache_t *hot)
{
    const int64_t most = atomic_load(&hot->most_pages);
    const int64_t from = atomic_load(&hot->released_from);
    for (int64_t page = most; page < from; page++) {
        _Atomic uint32_t *state = &hot->states[page];
        if ((atomic_load_explicit(state, memory_order_relaxed) & 1) != 0)
            atomic_fetch_add_explicit(state, 1, memory_order_relaxed);
    }
    if (most < from)
        plim__arena_drop(hot->pages + (size_t)most * PLIM__PAGE,
                         (size_t)(from - most) * PLIM__PAGE);
    atomic_store(&hot->released_from, most);
}

/* Fills lost pages while there is room and time. */
static plim_status_t refill_lost(plim__row_cache_t *hot)
{
    batch_t batch;
    room_t room = {0, 0, 0};
    int64_t start = plim__clock_ns(), page = 0;
    while (page < atomic_load(&hot->released_from) && plim__clock_ns() - start < REFILL_NS &&
           find_room(&room)) {
        page = collect(hot, page, &room, &batch);
        if (batch.num_pages > 0)
            PLIM_TRY(refill(hot, &batch));
        obey_limit(hot);
    }
    return PLIM_OK;
}

/* For whoever finds nobody at it. The limit is looked at again once the lock is free: somebody may
 * have lowered it and gone away. */
static void obey_unless_busy(plim__row_cache_t *hot)
{
    while (atomic_load(&hot->most_pages) < atomic_load(&hot->released_from) &&
           pthread_mutex_trylock(&hot->lock) == 0) {
        obey_limit(hot);
        pthread_mutex_unlock(&hot->lock);
    }
}

plim_status_t plim__row_cache_refresh(plim__row_cache_t *hot)
{
    plim_status_t status = PLIM_OK;
    pthread_mutex_lock(&hot->lock);
    obey_limit(hot);
    if (find_lost(hot) > 0) {
        plim__row_cache_begin_filling(hot);
        status = refill_lost(hot);
        plim__row_cache_end_filling(hot);
    }
    pthread_mutex_unlock(&hot->lock);
    obey_unless_busy(hot);
    return status;
}

size_t plim__row_cache_bytes(const plim__row_cache_t *hot)
{
    return (size_t)hot->num_pages * PLIM__PAGE;
}

void plim__row_cache_limit(plim__row_cache_t *hot, size_t bytes)
{
    const int64_t pages = (int64_t)(bytes / PLIM__ROW_CACHE_CHUNK) * PLIM__ROW_CACHE_CHUNK_PAGES;
    atomic_store(&hot->most_pages, bytes >= plim__row_cache_bytes(hot) ? hot->num_pages : pages);
    obey_unless_busy(hot);
}
