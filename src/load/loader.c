/* The loader at work: streams are started, asked for batches, interrupted. See load/loader.h. */
#include "load/loader.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/delay.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/process.h"

#include <sched.h>
#include <time.h>

#define SPINS 128        /* looks before the caller goes to sleep: some microseconds */
#define NAP_NS 50000000L /* how long it sleeps before it looks whether it should stop */

static void pause_a_moment(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static plim__load_entry_t *entry_of(plim_loader_t *loader, int64_t ticket)
{
    return &loader->ring[ticket % PLIM__LOAD_SLOTS_MAX];
}

static bool is_ready(plim_loader_t *loader, int64_t ticket)
{
    return atomic_load(&entry_of(loader, ticket)->ready) == ticket + 1;
}

static bool can_claim(plim_loader_t *loader)
{
    return atomic_load(&loader->next) < atomic_load(&loader->limit) &&
           atomic_load(&loader->slots->free) != 0;
}

/* Whether it is worth waking a worker: half of the slots that callers do not hold are free, so that
 * it builds several batches each time instead of falling asleep after each. */
static bool is_worth_waking(plim_loader_t *loader)
{
    plim__slots_t *slots = loader->slots;
    const int circulating = slots->count - atomic_load(&slots->held);
    return can_claim(loader) && plim__slots_free(slots) >= circulating / 2;
}

static void signal_caller(plim_loader_t *loader)
{
    pthread_mutex_lock(&loader->lock);
    pthread_cond_signal(&loader->news);
    pthread_mutex_unlock(&loader->lock);
}

void plim__load_slot_freed(void *context)
{
    plim_loader_t *loader = context;
    if (atomic_load(&loader->sleepers) > 0 && is_worth_waking(loader)) {
        pthread_mutex_lock(&loader->lock);
        pthread_cond_signal(&loader->work);
        pthread_mutex_unlock(&loader->lock);
    }
    if (atomic_load(&loader->awaited) != 0)
        signal_caller(loader);
}

void plim__load_raise(plim_loader_t *loader, int64_t limit)
{
    atomic_store(&loader->limit, limit);
    pthread_cond_broadcast(&loader->work);
    pthread_cond_signal(&loader->news);
}

/* Lock held. */
static void close_claims(plim_loader_t *loader)
{
    int64_t next = atomic_exchange(&loader->next, PLIM__LOAD_CLOSED);
    if (next != PLIM__LOAD_CLOSED)
        loader->closed_at = next;
}

void plim__load_fail_locked(plim_loader_t *loader, int64_t ticket, plim_status_t status)
{
    if (ticket < atomic_load(&loader->limit)) /* else it is a window's: those before it are good */
        close_claims(loader);
    if (ticket < atomic_load(&loader->failed_at)) {
        loader->status = status;
        plim__fail_save(loader->message, sizeof loader->message);
        atomic_store(&loader->failed_at, ticket);
    }
    pthread_cond_signal(&loader->news);
}

static void fail(plim_loader_t *loader, int64_t ticket, plim_status_t status)
{
    pthread_mutex_lock(&loader->lock);
    plim__load_fail_locked(loader, ticket, status);
    pthread_mutex_unlock(&loader->lock);
}

/* A slot with the next ticket; NULL when there is no slot or no ticket. Any thread. */
static plim__slot_t *claim(plim_loader_t *loader)
{
    if (!can_claim(loader))
        return NULL;
    plim__slot_t *slot = plim__slots_take(loader->slots);
    if (slot == NULL)
        return NULL;
    int64_t ticket = atomic_load(&loader->next);
    while (ticket < atomic_load(&loader->limit))
        if (atomic_compare_exchange_weak(&loader->next, &ticket, ticket + 1)) {
            slot->ticket = ticket;
            plim__delay();
            return slot;
        }
    plim__slots_put(slot);
    return NULL;
}

static void build(plim_loader_t *loader, plim__load_worker_t *worker, plim__slot_t *slot)
{
    const int64_t ticket = slot->ticket;
    plim__load_entry_t *entry = entry_of(loader, ticket);
    slot->part = 0;
    plim_status_t status = plim__batch_build(loader, worker, slot);
    if (status != PLIM_OK)
        fail(loader, ticket, status);
    else if (loader->builder != NULL && !slot->more)
        plim__load_builder_built(loader, ticket);
    entry->slot = slot;
    plim__delay();
    atomic_store(&entry->ready, ticket + 1);
    if (atomic_load(&loader->awaited) == ticket + 1)
        signal_caller(loader);
}

static plim_status_t worker_body(void *context)
{
    plim__load_worker_t *worker = context;
    plim_loader_t *loader = worker->loader;
    while (!atomic_load(&loader->ending)) {
        plim__slot_t *slot = claim(loader);
        if (slot != NULL) {
            build(loader, worker, slot);
            continue;
        }
        pthread_mutex_lock(&loader->lock);
        atomic_fetch_add(&loader->sleepers, 1);
        while (!atomic_load(&loader->ending) && !is_worth_waking(loader))
            pthread_cond_wait(&loader->work, &loader->lock);
        atomic_fetch_sub(&loader->sleepers, 1);
        pthread_mutex_unlock(&loader->lock);
    }
    return PLIM_OK;
}

plim_status_t plim__load_worker_start(plim__load_worker_t *worker)
{
    return plim__thread_start(&worker->thread, worker_body, worker, NULL);
}

/* A moment of the clock by which to give up; DEADLINE_NONE: never. */
#define DEADLINE_NONE INT64_MAX

static int64_t deadline_of(double timeout)
{
    if (timeout < 0 || timeout > 1e9)
        return DEADLINE_NONE;
    return plim__clock_ns() + (int64_t)(timeout * 1e9);
}

/* Who waits for a ticket, and for what else. */
typedef struct waiting {
    bool ready_only;  /* for nothing but the ticket, whatever happens */
    bool works;       /* and would build a batch */
    int64_t deadline; /* and until when, at most */
} waiting_t;

/* Sleeps until the ticket is ready, or something else can be done, or a moment has passed. */
static void await(plim_loader_t *loader, int64_t ticket, const waiting_t *waiting)
{
    for (int i = 0; i < SPINS && waiting->deadline == DEADLINE_NONE; i++) {
        if (is_ready(loader, ticket))
            return;
        pause_a_moment();
    }
    pthread_mutex_lock(&loader->lock);
    atomic_store(&loader->awaited, ticket + 1);
    while (!is_ready(loader, ticket) &&
           (waiting->ready_only ||
            (atomic_load(&loader->failed_at) > ticket && !(waiting->works && can_claim(loader))))) {
        const int64_t until = plim__min_i64(plim__clock_ns() + NAP_NS, waiting->deadline);
        const struct timespec moment = {until / 1000000000L, until % 1000000000L};
        (void)pthread_cond_timedwait(&loader->news, &loader->lock, &moment);
        if (loader->asked->stop != NULL && __atomic_load_n(loader->asked->stop, __ATOMIC_RELAXED))
            __atomic_store_n(&loader->stop, 1, __ATOMIC_RELAXED);
        if (!waiting->ready_only)
            break;
    }
    atomic_store(&loader->awaited, 0);
    pthread_mutex_unlock(&loader->lock);
}

static plim_status_t check_room(const plim_loader_t *loader)
{
    if (!loader->yields || !loader->governor.tight)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_BUDGET, "others hold so much memory that what this loader cannot "
                                       "drop has no room; plan anew");
}

/* Works or waits until the ticket is ready. */
static plim_status_t obtain(plim_loader_t *loader, int64_t ticket, int64_t deadline)
{
    const int64_t start = plim__clock_ns();
    /* A batch may take longer than the caller will wait; but somebody must build it. */
    const waiting_t waiting = {.works = deadline == DEADLINE_NONE || loader->num_workers == 1,
                               .deadline = deadline};
    plim_status_t status = PLIM_OK;
    while (!is_ready(loader, ticket)) {
        plim__load_govern(loader);
        status = plim__job_check(loader->asked);
        if (status == PLIM_OK)
            status = check_room(loader);
        if (status != PLIM_OK || atomic_load(&loader->failed_at) <= ticket)
            break;
        plim__slot_t *slot = waiting.works ? claim(loader) : NULL;
        if (slot != NULL) {
            build(loader, &loader->workers[0], slot);
            continue;
        }
        const bool possible =
            atomic_load(&loader->next) <= ticket && atomic_load(&loader->limit) > ticket;
        if (possible && atomic_load(&loader->slots->held) == loader->slots->count) {
            status = plim__fail(PLIM_ERR_USAGE,
                                "all %d slots are held by the caller; release a batch before the "
                                "next one, or plan more slots",
                                loader->slots->count);
            break;
        }
        if (deadline != DEADLINE_NONE && plim__clock_ns() >= deadline) {
            status = plim__fail(PLIM_ERR_TIMEOUT, "the next batch is not ready yet");
            break;
        }
        if (!possible || !waiting.works)
            await(loader, ticket, &waiting);
        else
            (void)sched_yield(); /* a worker is about to claim it, or a slot is on its way back */
    }
    loader->stats.starved_seconds += plim__clock_seconds_since(start);
    return status;
}

static void count(plim_loader_t *loader, const plim_batch_t *batch)
{
    loader->stats.batches += batch->last_part;
    loader->stats.parts++;
    loader->stats.nodes += batch->num_nodes;
    for (int i = 0; i < batch->num_blocks; i++)
        loader->stats.edges += batch->blocks[i].num_edges;
}

/* To the caller. A ticket with parts to come is also held by the loader. */
static void deliver(plim_loader_t *loader, plim__slot_t *slot, plim_batch_t **batch_out)
{
    plim__slots_deliver(slot, slot->more ? 2 : 1);
    loader->partial = slot->more ? slot : NULL;
    count(loader, &slot->batch);
    *batch_out = &slot->batch;
}

/* The next part of the ticket at hand, into the same slot. */
static plim_status_t next_part(plim_loader_t *loader, plim_batch_t **batch_out)
{
    plim__slot_t *slot = loader->partial;
    if (atomic_load_explicit(&slot->references, memory_order_acquire) > 1)
        return plim__fail(PLIM_ERR_USAGE,
                          "batch %lld of epoch %lld comes in parts: release the part at hand "
                          "before the next one",
                          (long long)slot->batch.step, (long long)slot->batch.epoch);
    const int64_t start = plim__clock_ns();
    slot->batch.first_seed += slot->batch.num_seeds;
    plim_status_t status = plim__batch_build(loader, &loader->workers[0], slot);
    loader->stats.starved_seconds += plim__clock_seconds_since(start);
    if (status != PLIM_OK) {
        fail(loader, slot->ticket, status);
        return status;
    }
    if (loader->builder != NULL && !slot->more)
        plim__load_builder_built(loader, slot->ticket);
    atomic_fetch_sub(&loader->slots->held, 1); /* it is delivered anew */
    atomic_fetch_sub(&loader->slots->references, 1);
    deliver(loader, slot, batch_out);
    return PLIM_OK;
}

/* Writes down where the run is, so that its stream can go on there. */
static void remember(plim_loader_t *loader)
{
    const plim__load_run_t *run = &loader->run;
    plim_stream_t *stream = run->of;
    if (!run->started)
        return;
    stream->seed = stream->part = 0;
    if (loader->partial != NULL) {
        const plim__slot_t *slot = loader->partial;
        stream->step = slot->batch.step;
        stream->seed = slot->batch.first_seed + slot->batch.num_seeds;
        stream->part = slot->part;
    } else if (loader->deliver == run->end_ticket) {
        stream->step = plim_stream_steps(stream);
    } else {
        const plim__load_cut_t cut = plim__load_cut(loader, loader->deliver);
        const bool first = loader->deliver == run->first_ticket && run->first_part > 0;
        stream->step = cut.step;
        stream->seed = first ? run->first_seed : cut.first;
        stream->part = first ? run->first_part : 0;
    }
}

/* Ends the run: nobody builds any more, and what was not delivered is free again. */
static void drain(plim_loader_t *loader)
{
    const waiting_t waiting = {.ready_only = true, .deadline = DEADLINE_NONE};
    remember(loader);
    pthread_mutex_lock(&loader->lock);
    close_claims(loader);
    const int64_t end = loader->closed_at;
    pthread_mutex_unlock(&loader->lock);
    for (; loader->deliver < end; loader->deliver++) {
        while (!is_ready(loader, loader->deliver))
            await(loader, loader->deliver, &waiting);
        plim__slots_put(entry_of(loader, loader->deliver)->slot);
    }
    if (loader->partial != NULL)
        plim_batch_release(&loader->partial->batch);
    loader->partial = NULL;
    pthread_mutex_lock(&loader->lock); /* a builder may be choosing what is next */
    loader->run.started = false;
    pthread_mutex_unlock(&loader->lock);
}

/* Serves a stream from where it is, after the run before it was drained. */
static void begin(plim_loader_t *loader, plim_stream_t *stream)
{
    for (int i = 0; i < loader->plan.workers; i++) {
        plim__blocks_draw_as(loader->workers[i].blocks, stream->num_hops, stream->fanout);
        loader->workers[i].counted.step = -1;
    }
    pthread_mutex_lock(&loader->lock);
    /* One number is left out, so that no claim of the run before can succeed in this one. */
    const int64_t first = loader->closed_at + 1;
    const int64_t number =
        plim__load_tickets(stream, stream->step) + stream->seed / plim__load_ticket_seeds(stream);
    const int64_t tickets = plim__load_tickets(stream, plim_stream_steps(stream)) - number;
    loader->run = (plim__load_run_t){.started = true,
                                     .of = stream,
                                     .epoch = stream->epoch,
                                     .first_number = number,
                                     .first_seed = stream->seed,
                                     .first_part = stream->part,
                                     .first_ticket = first,
                                     .end_ticket = first + tickets};
    loader->deliver = first;
    __atomic_store_n(&loader->stop, 0, __ATOMIC_RELAXED);
    atomic_store(&loader->failed_at, INT64_MAX);
    atomic_store(&loader->limit, first);
    if (loader->builder != NULL) {
        plim__load_builder_start(loader);
    } else {
        if (stream->shuffled)
            plim__seeds_prepare(stream->seeds, stream->epoch);
        atomic_store(&loader->limit, loader->run.end_ticket);
    }
    loader->stale = false;
    atomic_store(&loader->next, first);
    pthread_cond_broadcast(&loader->work);
    pthread_mutex_unlock(&loader->lock);
}

static void serve(plim_loader_t *loader, plim_stream_t *stream)
{
    drain(loader);
    begin(loader, stream);
}

PLIM_API int64_t plim_stream_seeds(const plim_stream_t *stream)
{
    return plim__process_is(stream->process) ? plim__stream_count(stream) : 0;
}

PLIM_API int64_t plim_stream_steps(const plim_stream_t *stream)
{
    const int64_t seeds = plim_stream_seeds(stream);
    return seeds == 0 ? 0 : (seeds - 1) / stream->batch_size + 1;
}

static bool is_served(const plim_stream_t *stream)
{
    return stream->loader->run.started && stream->loader->run.of == stream;
}

PLIM_API void plim_stream_position(const plim_stream_t *stream, int64_t *epoch_out,
                                   int64_t *step_out)
{
    if (plim__process_is(stream->process) && is_served(stream))
        remember(stream->loader);
    *epoch_out = stream->epoch;
    *step_out = stream->step;
}

PLIM_API plim_status_t plim_stream_start(plim_stream_t *stream, int64_t epoch, int64_t step)
{
    PLIM_TRY(plim__process_check(stream->process));
    plim_loader_t *loader = stream->loader;
    PLIM_ENTER(loader->asked);
    const int64_t steps = plim_stream_steps(stream);
    if (epoch < 0 || step < 0 || step > steps)
        return plim__fail(PLIM_ERR_USAGE, "there is no step %lld of epoch %lld: an epoch has %lld",
                          (long long)step, (long long)epoch, (long long)steps);
    const bool over = !loader->run.started ||
                      (loader->deliver == loader->run.end_ticket && loader->partial == NULL);
    if (over || is_served(stream))
        drain(loader);
    stream->started = true;
    stream->epoch = epoch;
    stream->step = step;
    stream->seed = stream->part = 0;
    if (!loader->run.started) /* else another one is being served: plim_stream_next turns to this */
        begin(loader, stream);
    return PLIM_OK;
}

PLIM_API plim_status_t plim_stream_next(plim_stream_t *stream, double timeout,
                                        plim_batch_t **batch_out)
{
    PLIM_TRY(plim__process_check(stream->process));
    plim_loader_t *loader = stream->loader;
    PLIM_ENTER(loader->asked);
    const int64_t deadline = deadline_of(timeout);
    plim__load_govern(loader);
    PLIM_TRY(plim__job_check(loader->asked));
    PLIM_TRY(check_room(loader));
    if (!stream->started)
        return plim__fail(PLIM_ERR_USAGE, "the stream was not started: call plim_stream_start");
    if (!is_served(stream))
        serve(loader, stream);
    if (atomic_load(&loader->failed_at) < loader->deliver)
        return plim__fail_restore(loader->status, loader->message);
    if (loader->partial != NULL)
        return next_part(loader, batch_out);
    if (loader->deliver == loader->run.end_ticket) {
        *batch_out = NULL;
        return PLIM_OK;
    }
    if (loader->stale) /* windows count on rows that were given back: they are built anew */
        serve(loader, stream);
    const int64_t ticket = loader->deliver;
    if (!is_ready(loader, ticket))
        PLIM_TRY(obtain(loader, ticket, deadline));
    if (atomic_load(&loader->failed_at) <= ticket)
        return plim__fail_restore(loader->status, loader->message);
    loader->deliver++;
    deliver(loader, entry_of(loader, ticket)->slot, batch_out);
    return PLIM_OK;
}

PLIM_API void plim_stream_retain(plim_stream_t *stream)
{
    if (plim__process_is(stream->process))
        atomic_fetch_add_explicit(&stream->references, 1, memory_order_relaxed);
}

PLIM_API void plim_stream_release(plim_stream_t *stream)
{
    if (stream == NULL || !plim__process_is(stream->process) ||
        atomic_fetch_sub_explicit(&stream->references, 1, memory_order_acq_rel) != 1)
        return;
    plim_loader_t *loader = stream->loader;
    if (is_served(stream))
        drain(loader);
    if (loader->builder != NULL)
        plim__load_builder_forget(loader, stream);
    plim__seeds_destroy(stream->own);
    stream->own = NULL;
    plim_loader_release(loader);
}

PLIM_API int64_t plim_loader_labelled(const plim_loader_t *loader, plim_split_t split)
{
    return plim__process_is(loader->process) ? plim__seeds_labelled(loader->seeds, split) : -1;
}

PLIM_API void plim_loader_memory(const plim_loader_t *loader, void **base_out, size_t *bytes_out)
{
    const bool here = plim__process_is(loader->process);
    *base_out = here ? loader->slots->memory : NULL;
    *bytes_out = here ? loader->slots->bytes : 0;
}

plim_stream_t *plim__loader_split(plim_loader_t *loader, plim_split_t split)
{
    return &loader->streams[split];
}

plim_status_t plim__loader_start(plim_loader_t *loader, plim_split_t split, int64_t epoch,
                                 int64_t step)
{
    plim_stream_t *stream = plim__loader_split(loader, split);
    PLIM_TRY(plim_stream_start(stream, epoch, step));
    loader->asked_for = stream;
    return PLIM_OK;
}

plim_status_t plim__loader_next(plim_loader_t *loader, plim_batch_t **batch_out)
{
    plim_stream_t *stream = loader->asked_for;
    return plim_stream_next(stream != NULL ? stream : &loader->streams[PLIM_TRAIN], -1, batch_out);
}

PLIM_API void plim_loader_stats(const plim_loader_t *loader, plim_load_stats_t *stats_out)
{
    plim_load_stats_t stats = loader->stats; /* all 0 in a forked child */
    plim__topology_stats_t lists;
    if (!plim__process_is(loader->process)) {
        *stats_out = stats;
        return;
    }
    plim__topology_stats(loader->base.topology, &lists);
    stats.lists = lists.lists;
    stats.lists_hot = lists.lists_hot;
    stats.list_transfers = lists.transfers;
    stats.list_bytes = lists.bytes_read;
    stats.wait_seconds = (double)lists.wait_ns * 1e-9;
    if (loader->base.rows != NULL) {
        plim__rows_stats_t rows;
        plim__rows_stats(loader->base.rows, &rows);
        stats.rows = rows.rows;
        stats.rows_hot = rows.rows_hot;
        stats.rows_lost = rows.rows_lost;
        stats.row_transfers = rows.transfers;
        stats.row_bytes = rows.bytes_read;
        stats.wait_seconds += (double)rows.wait_ns * 1e-9;
    }
    if (loader->builder != NULL)
        plim__load_builder_stats(loader, &stats);
    *stats_out = stats;
}
