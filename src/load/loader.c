/* The loader at work: starting, serving and interrupting streams. */
#include "load/loader.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/delay.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "base/process.h"

#include <sched.h>

#define SPINS 128        /* checks before the caller goes to sleep: some microseconds */
#define NAP_NS 50000000L /* how long it sleeps before it checks for a stop */

static void pause_a_moment(void)
{
    __builtin_ia32_pause();
}

static plim__load_entry_t *entry_of(plim_loader_t *loader, int64_t sequence)
{
    return &loader->ring.entries[sequence % PLIM__LOAD_SLOTS_MAX];
}

static bool is_ready(plim_loader_t *loader, int64_t sequence)
{
    return atomic_load(&entry_of(loader, sequence)->ready) == sequence + 1;
}

static bool can_claim(plim_loader_t *loader)
{
    return atomic_load(&loader->ring.next) < atomic_load(&loader->ring.limit) &&
           atomic_load(&loader->slots->free) != 0;
}

/* Whether to wake a worker: when half of the slots that callers do not hold are free, so that it
 * builds several batches each time instead of falling asleep after each. */
static bool should_wake(plim_loader_t *loader)
{
    plim__slots_t *slots = loader->slots;
    const int circulating = slots->count - atomic_load(&slots->held);
    return can_claim(loader) && __builtin_popcountll(atomic_load(&slots->free)) >= circulating / 2;
}

static void signal_caller(plim_loader_t *loader)
{
    pthread_mutex_lock(&loader->ring.lock);
    plim__condition_wake(&loader->ring.news, 1);
    pthread_mutex_unlock(&loader->ring.lock);
}

/* Whether a worker sleeps that has work. */
static bool is_worker_missing(plim_loader_t *loader)
{
    return atomic_load(&loader->ring.sleepers) > 0 && should_wake(loader);
}

void plim__loader_slot_freed(void *context)
{
    plim_loader_t *loader = context;
    if (is_worker_missing(loader)) {
        pthread_mutex_lock(&loader->ring.lock);
        plim__condition_wake(&loader->ring.work, 1);
        pthread_mutex_unlock(&loader->ring.lock);
    }
    if (atomic_load(&loader->ring.awaited) != 0)
        signal_caller(loader);
}

static void fail(plim_loader_t *loader, int64_t sequence, plim_status_t status)
{
    pthread_mutex_lock(&loader->ring.lock);
    plim__slot_ring_fail(&loader->ring, sequence, status);
    pthread_mutex_unlock(&loader->ring.lock);
}

/* Claims a slot with the next sequence number; NULL when either is missing. Any thread. */
static plim__slot_t *claim(plim_loader_t *loader)
{
    if (!can_claim(loader))
        return NULL;
    plim__slot_t *slot = plim__slots_take(loader->slots);
    if (slot == NULL)
        return NULL;
    int64_t sequence = atomic_load(&loader->ring.next);
    while (sequence < atomic_load(&loader->ring.limit))
        if (atomic_compare_exchange_weak(&loader->ring.next, &sequence, sequence + 1)) {
            slot->sequence = sequence;
            plim__delay();
            return slot;
        }
    plim__slots_put(slot);
    return NULL;
}

/* Builds the slot's microbatch, or its next part. */
static plim_status_t build_part(plim_loader_t *loader, plim__load_worker_t *worker,
                                plim__slot_t *slot)
{
    const plim__load_sources_t sources =
        loader->builder != NULL ? plim__window_builder_sources(loader->builder, slot->sequence)
                                : loader->context.sources;
    const plim__load_run_t *run = &loader->ring.run;
    const plim_status_t status =
        run->counts ? plim__batch_count(&loader->context, run, &sources, worker, slot)
                    : plim__batch_build(&loader->context, run, &sources, worker, slot);
    if (status != PLIM_OK)
        fail(loader, slot->sequence, status);
    else if (loader->builder != NULL && !slot->more)
        plim__window_builder_built(loader->builder, slot->sequence);
    return status;
}

static void build(plim_loader_t *loader, plim__load_worker_t *worker, plim__slot_t *slot)
{
    const int64_t sequence = slot->sequence;
    plim__load_entry_t *entry = entry_of(loader, sequence);
    slot->part = 0;
    (void)build_part(loader, worker, slot); /* the ring records an error */
    entry->slot = slot;
    plim__delay();
    atomic_store(&entry->ready, sequence + 1);
    if (atomic_load(&loader->ring.awaited) == sequence + 1)
        signal_caller(loader);
}

void plim__loader_worker(void *context)
{
    plim__load_worker_t *worker = context;
    plim_loader_t *loader = worker->loader;
    while (!atomic_load(&loader->ring.ending)) {
        plim__slot_t *slot = claim(loader);
        if (slot != NULL) {
            build(loader, worker, slot);
            continue;
        }
        pthread_mutex_lock(&loader->ring.lock);
        atomic_fetch_add(&loader->ring.sleepers, 1);
        while (!atomic_load(&loader->ring.ending) && !should_wake(loader))
            plim__condition_wait(&loader->ring.work, &loader->ring.lock);
        atomic_fetch_sub(&loader->ring.sleepers, 1);
        pthread_mutex_unlock(&loader->ring.lock);
    }
}

/* As a deadline: wait without limit. */
#define DEADLINE_NONE INT64_MAX

static int64_t deadline_of(double timeout)
{
    if (timeout < 0 || timeout > 1e9)
        return DEADLINE_NONE;
    return plim__clock_ns() + (int64_t)(timeout * 1e9);
}

/* How to wait for a microbatch. */
typedef struct waiting {
    bool ready_only;  /* until the microbatch is ready, also after an error */
    bool works;       /* stop waiting when a batch can be built */
    int64_t deadline; /* clock */
} waiting_t;

/* Sleeps until the microbatch is ready, something else can be done, or NAP_NS have passed. */
static void await(plim_loader_t *loader, int64_t sequence, const waiting_t *waiting)
{
    for (int i = 0; i < SPINS && waiting->deadline == DEADLINE_NONE; i++) {
        if (is_ready(loader, sequence))
            return;
        pause_a_moment();
    }
    pthread_mutex_lock(&loader->ring.lock);
    atomic_store(&loader->ring.awaited, sequence + 1);
    while (!is_ready(loader, sequence) &&
           (waiting->ready_only || (atomic_load(&loader->ring.failed_at) > sequence &&
                                    !(waiting->works && can_claim(loader))))) {
        /* Slots were freed while callers held fewer: too few then, half of the others now. */
        if (is_worker_missing(loader))
            plim__condition_wake(&loader->ring.work, 1);
        const int64_t left = waiting->deadline - plim__clock_ns();
        plim__condition_wait_for(&loader->ring.news, &loader->ring.lock,
                                 plim__min_i64(left, NAP_NS));
        if (loader->context.asked->stop != NULL &&
            __atomic_load_n(loader->context.asked->stop, __ATOMIC_RELAXED))
            __atomic_store_n(&loader->context.stop, 1, __ATOMIC_RELAXED);
        if (!waiting->ready_only)
            break;
    }
    atomic_store(&loader->ring.awaited, 0);
    pthread_mutex_unlock(&loader->ring.lock);
}

/* Lets the governor look at the meter. */
static void govern(plim_loader_t *loader)
{
    const bool shrank = plim__governor_look(&loader->governor, &loader->context);
    loader->stale |= shrank && loader->builder != NULL;
}

static plim_status_t check_headroom(const plim_loader_t *loader)
{
    if (!loader->yields || !loader->governor.tight)
        return PLIM_OK;
    const plim__headroom_bound_t *bound = &loader->governor.bound;
    (void)plim__fail(PLIM_ERR_BUDGET,
                     "other processes use so much memory that this loader does not "
                     "fit even without its caches; plan again");
    return plim__fail_figures(PLIM_ERR_BUDGET, bound->file != NULL ? bound->file : "MemAvailable",
                              -1, bound->bytes);
}

/* Builds batches or waits until the microbatch is ready. */
static plim_status_t obtain(plim_loader_t *loader, int64_t sequence, int64_t deadline)
{
    const int64_t start = plim__clock_ns();
    /* A batch may take longer than the caller wants to wait; but a single thread must build. */
    const waiting_t waiting = {.works = deadline == DEADLINE_NONE || loader->num_workers == 1,
                               .deadline = deadline};
    plim_status_t status = PLIM_OK;
    while (!is_ready(loader, sequence)) {
        govern(loader);
        status = plim__job_check(loader->context.asked);
        if (status == PLIM_OK)
            status = check_headroom(loader);
        if (status != PLIM_OK || atomic_load(&loader->ring.failed_at) <= sequence)
            break;
        plim__slot_t *slot = waiting.works ? claim(loader) : NULL;
        if (slot != NULL) {
            build(loader, &loader->workers[0], slot);
            continue;
        }
        const bool possible = atomic_load(&loader->ring.next) <= sequence &&
                              atomic_load(&loader->ring.limit) > sequence;
        if (possible && atomic_load(&loader->slots->held) == loader->slots->count) {
            status = plim__fail(PLIM_ERR_USAGE,
                                "the caller holds all %d slots; release a batch before asking for "
                                "the next one, or plan more slots",
                                loader->slots->count);
            break;
        }
        if (deadline != DEADLINE_NONE && plim__clock_ns() >= deadline) {
            status = plim__fail(PLIM_ERR_TIMEOUT, "the next batch is not ready yet");
            break;
        }
        if (!possible || !waiting.works)
            await(loader, sequence, &waiting);
        else
            (void)sched_yield(); /* a worker is about to claim it or to return a slot */
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

/* Delivers to the caller. The loader also holds a microbatch that has parts to come. */
static void deliver(plim_loader_t *loader, plim__slot_t *slot, plim_batch_t **batch_out)
{
    plim__slots_deliver(slot, slot->more ? 2 : 1);
    loader->partial = slot->more ? slot : NULL;
    count(loader, &slot->batch);
    *batch_out = &slot->batch;
}

/* Builds and delivers the next part of the current microbatch, in the same slot. */
static plim_status_t next_part(plim_loader_t *loader, plim_batch_t **batch_out)
{
    plim__slot_t *slot = loader->partial;
    if (atomic_load_explicit(&slot->references, memory_order_acquire) > 1)
        return plim__fail(PLIM_ERR_USAGE,
                          "batch %lld of epoch %lld comes in parts: release the current part "
                          "before asking for the next one",
                          (long long)slot->batch.step, (long long)slot->batch.epoch);
    const int64_t start = plim__clock_ns();
    slot->batch.first_seed += slot->batch.num_seeds;
    const plim_status_t status = build_part(loader, &loader->workers[0], slot);
    loader->stats.starved_seconds += plim__clock_seconds_since(start);
    if (status != PLIM_OK)
        return status;
    atomic_fetch_sub(&loader->slots->held, 1); /* deliver counts it again */
    atomic_fetch_sub(&loader->slots->references, 1);
    deliver(loader, slot, batch_out);
    return PLIM_OK;
}

/* Records the position of the run in its stream, so that it can continue there. */
static void save_position(plim_loader_t *loader)
{
    const plim__load_run_t *run = &loader->ring.run;
    plim_stream_t *stream = run->of;
    if (!run->started)
        return;
    stream->microbatch = stream->seed = stream->part = 0;
    if (loader->partial != NULL) {
        const plim__slot_t *slot = loader->partial;
        stream->step = slot->batch.step;
        stream->microbatch = plim__load_cut(run, slot->sequence).number;
        stream->seed = slot->batch.first_seed + slot->batch.num_seeds;
        stream->part = slot->part;
    } else if (loader->deliver == run->end_sequence) {
        stream->step = plim__stream_steps(stream);
    } else {
        const plim__load_cut_t cut = plim__load_cut(run, loader->deliver);
        const bool first = loader->deliver == run->first_sequence && run->first_part > 0;
        stream->step = cut.step;
        stream->microbatch = cut.number;
        stream->seed = first ? run->first_seed : cut.first;
        stream->part = first ? run->first_part : 0;
    }
}

/* Ends the run: waits for the builders, and frees the batches that were not delivered. */
void plim__loader_drain(plim_loader_t *loader)
{
    const waiting_t waiting = {.ready_only = true, .deadline = DEADLINE_NONE};
    save_position(loader);
    pthread_mutex_lock(&loader->ring.lock);
    plim__slot_ring_close(&loader->ring);
    const int64_t end = loader->ring.closed_at;
    pthread_mutex_unlock(&loader->ring.lock);
    for (; loader->deliver < end; loader->deliver++) {
        while (!is_ready(loader, loader->deliver))
            await(loader, loader->deliver, &waiting);
        plim__slots_put(entry_of(loader, loader->deliver)->slot);
    }
    if (loader->partial != NULL)
        plim_batch_release(&loader->partial->batch);
    loader->partial = NULL;
    pthread_mutex_lock(&loader->ring.lock); /* the window builder may be choosing its next build */
    loader->ring.run.started = false;
    pthread_mutex_unlock(&loader->ring.lock);
}

/* Serves a stream from its position on, or only counts its batches; the run before was drained. */
static void begin(plim_loader_t *loader, plim_stream_t *stream, bool counts)
{
    for (int i = 0; i < loader->context.plan.workers; i++) {
        plim__blocks_draw_as(loader->workers[i].blocks, stream->draw_seed, stream->num_hops,
                             stream->fanout);
        loader->workers[i].counted.step = -1;
    }
    pthread_mutex_lock(&loader->ring.lock);
    /* Skip one number, so that no claim of the run before can succeed in this one. */
    const int64_t first = loader->ring.closed_at + 1;
    const int64_t number = plim__stream_microbatches(stream, stream->step) + stream->microbatch;
    const int64_t microbatches =
        plim__stream_microbatches(stream, plim__stream_end_step(stream)) - number;
    loader->ring.run = (plim__load_run_t){.started = true,
                                          .counts = counts,
                                          .of = stream,
                                          .epoch = stream->epoch,
                                          .first_number = number,
                                          .first_seed = stream->seed,
                                          .first_part = stream->part,
                                          .first_sequence = first,
                                          .end_sequence = first + microbatches};
    loader->deliver = first;
    __atomic_store_n(&loader->context.stop, 0, __ATOMIC_RELAXED);
    atomic_store(&loader->ring.failed_at, INT64_MAX);
    atomic_store(&loader->ring.limit, first);
    if (loader->builder != NULL) {
        plim__window_builder_start(loader->builder, loader->stale);
    } else {
        if (stream->shuffled)
            plim__seeds_prepare(stream->seeds, stream->epoch);
        atomic_store(&loader->ring.limit, loader->ring.run.end_sequence);
    }
    loader->stale = false;
    atomic_store(&loader->ring.next, first);
    plim__condition_wake_all(&loader->ring.work);
    pthread_mutex_unlock(&loader->ring.lock);
}

static void serve(plim_loader_t *loader, plim_stream_t *stream)
{
    plim__loader_drain(loader);
    begin(loader, stream, false);
}

/* Counts the batches of the run that has begun. */
static plim_status_t count_run(plim_loader_t *loader, plim__load_size_t *largest)
{
    for (; loader->deliver < loader->ring.run.end_sequence; loader->deliver++) {
        const int64_t sequence = loader->deliver;
        PLIM_TRY(obtain(loader, sequence, DEADLINE_NONE));
        if (atomic_load(&loader->ring.failed_at) <= sequence)
            return plim__fail_restore(loader->ring.status, &loader->ring.failure);
        plim__slot_t *slot = entry_of(loader, sequence)->slot;
        largest->nodes = plim__max_i64(largest->nodes, slot->counted.nodes);
        largest->edges = plim__max_i64(largest->edges, slot->counted.edges);
        plim__slots_put(slot);
        plim__loader_slot_freed(loader);
    }
    return PLIM_OK;
}

plim_status_t plim__stream_count_batches(plim_stream_t *stream, int64_t epoch, int64_t step,
                                         plim__load_size_t *largest_out)
{
    plim_loader_t *loader = stream->loader;
    plim__load_size_t largest = {0, 0};
    plim__loader_drain(loader);
    const int64_t old_epoch = stream->epoch, old_step = stream->step;
    stream->epoch = epoch;
    stream->step = step;
    loader->stale = true; /* windows are made without rows, and are not used afterwards */
    begin(loader, stream, true);
    const plim_status_t status = count_run(loader, &largest);
    plim__loader_drain(loader);
    loader->stale = loader->builder != NULL;
    stream->epoch = old_epoch;
    stream->step = old_step;
    PLIM_TRY(status);
    *largest_out = largest;
    return PLIM_OK;
}

plim_status_t plim__loader_check(const plim_loader_t *loader)
{
    return loader->slots != NULL ? PLIM_OK
                                 : plim__fail_restore(loader->ring.status, &loader->ring.failure);
}

bool plim__loader_is_held(const plim_loader_t *loader)
{
    /* The loader holds one reference, and another while a batch has parts to come. */
    const bool own = loader->partial != NULL && atomic_load(&loader->partial->references) == 1;
    return atomic_load(&loader->slots->references) > (own ? 2 : 1);
}

static bool is_served(const plim_stream_t *stream)
{
    return stream->loader->ring.run.started && stream->loader->ring.run.of == stream;
}

PLIM_API plim_status_t plim_stream_info(const plim_stream_t *stream, plim_stream_info_t *info_out)
{
    PLIM_TRY(plim__process_check(stream->process));
    PLIM_TRY(plim__output_check(info_out, "plim_stream_info_t"));
    if (is_served(stream))
        save_position(stream->loader);
    const plim_stream_info_t info = {.seeds = plim__stream_count(stream),
                                     .steps = plim__stream_steps(stream),
                                     .epoch = stream->epoch,
                                     .step = stream->step};
    plim__output_give(info_out, &info, sizeof info);
    return PLIM_OK;
}

plim_status_t plim__stream_start(plim_stream_t *stream, int64_t epoch, int64_t step)
{
    plim_loader_t *loader = stream->loader;
    const bool over = !loader->ring.run.started ||
                      (loader->deliver == loader->ring.run.end_sequence && loader->partial == NULL);
    if (over || is_served(stream))
        plim__loader_drain(loader);
    stream->started = true;
    stream->epoch = epoch;
    stream->step = step;
    stream->microbatch = stream->seed = stream->part = 0;
    const int64_t before = plim__ledger_thread_bytes();
    plim__load_sources_renew(&loader->context);
    loader->bytes += plim__ledger_thread_bytes() - before;
    if (!loader->ring.run.started) /* else plim_stream_next interrupts the stream being served */
        begin(loader, stream, false);
    return PLIM_OK;
}

PLIM_API plim_status_t plim_stream_next(plim_stream_t *stream, double timeout,
                                        plim_batch_t **batch_out)
{
    PLIM_TRY(plim__process_check(stream->process));
    plim_loader_t *loader = stream->loader;
    PLIM_ENTER(loader->context.asked);
    PLIM_TRY(plim__loader_check(loader));
    const int64_t deadline = deadline_of(timeout);
    govern(loader);
    PLIM_TRY(plim__job_check(loader->context.asked));
    PLIM_TRY(check_headroom(loader));
    if (!stream->started)
        return plim__fail(PLIM_ERR_USAGE, "the stream was not started: call plim_stream_start");
    if (!is_served(stream))
        serve(loader, stream);
    if (atomic_load(&loader->ring.failed_at) < loader->deliver)
        return plim__fail_restore(loader->ring.status, &loader->ring.failure);
    if (loader->partial != NULL)
        return next_part(loader, batch_out);
    if (loader->deliver == loader->ring.run.end_sequence) {
        *batch_out = NULL;
        return PLIM_OK;
    }
    if (loader->stale) /* build the windows again */
        serve(loader, stream);
    const int64_t sequence = loader->deliver;
    if (!is_ready(loader, sequence))
        PLIM_TRY(obtain(loader, sequence, deadline));
    if (atomic_load(&loader->ring.failed_at) <= sequence)
        return plim__fail_restore(loader->ring.status, &loader->ring.failure);
    loader->deliver++;
    deliver(loader, entry_of(loader, sequence)->slot, batch_out);
    return PLIM_OK;
}

void plim__loader_stop(plim_stream_t *stream)
{
    plim_loader_t *loader = stream->loader;
    if (is_served(stream))
        plim__loader_drain(loader);
    if (loader->builder != NULL)
        plim__window_builder_forget(loader->builder, stream);
}

const plim__governor_t *plim__loader_governor(const plim_loader_t *loader)
{
    return &loader->governor;
}

void plim__loader_yield(plim_loader_t *loader, bool yields)
{
    loader->yields = yields;
}

void plim__loader_retarget(plim_loader_t *loader)
{
    const bool shrank = plim__governor_look_now(&loader->governor, &loader->context);
    loader->stale |= shrank && loader->builder != NULL;
}

/* False in a forked child, and where remaking failed. */
static bool is_usable(const plim_loader_t *loader)
{
    return plim__process_is(loader->process) && loader->slots != NULL;
}

PLIM_API uint64_t plim_loader_hash(plim_loader_t *loader, const plim_batch_t *batch, uint64_t hash)
{
    if (!is_usable(loader) || ((const plim__slot_t *)(const void *)batch)->slots != loader->slots)
        return hash;
    return plim__batch_hash(&loader->context, loader->slots, batch, hash);
}

int64_t plim__loader_labelled(const plim_loader_t *loader, plim_split_t split)
{
    return plim__seeds_labelled(loader->context.seeds, split);
}

PLIM_API void plim_loader_memory(const plim_loader_t *loader, void **base_out, size_t *bytes_out)
{
    const bool here = is_usable(loader);
    *base_out = here ? loader->slots->memory : NULL;
    *bytes_out = here ? (size_t)loader->slots->count * loader->slots->slot_bytes : 0;
}

PLIM_API plim_status_t plim_loader_headroom(plim_loader_t *loader, plim_headroom_t *headroom_out)
{
    PLIM_TRY(plim__process_check(loader->process));
    PLIM_TRY(plim__loader_check(loader));
    PLIM_TRY(plim__output_check(headroom_out, "plim_headroom_t"));
    plim__governor_headroom(&loader->governor, &loader->context, headroom_out);
    return PLIM_OK;
}

/* Adds what lists, rows and windows have counted. */
static void add_source_stats(const plim_loader_t *loader, plim_load_stats_t *stats)
{
    const plim__load_sources_t *sources = &loader->context.sources;
    const plim__source_stats_t lists = plim__source_stats(sources->topologies[0]->disk);
    const plim__source_stats_t rows =
        plim__source_stats(sources->num_tables > 0 ? sources->tables[0]->disk : NULL);
    stats->lists = lists.items;
    stats->lists_cached = lists.cached;
    stats->list_transfers = lists.transfers;
    stats->list_bytes = lists.bytes_read;
    stats->rows = rows.items;
    stats->rows_cached = rows.cached;
    stats->rows_lost = rows.lost;
    stats->row_transfers = rows.transfers;
    stats->row_bytes = rows.bytes_read;
    stats->wait_seconds = (double)(lists.wait_ns + rows.wait_ns) * 1e-9;
    if (loader->builder != NULL)
        plim__window_builder_stats(loader->builder, stats);
}

PLIM_API plim_status_t plim_loader_stats(const plim_loader_t *loader, plim_load_stats_t *stats_out)
{
    plim_load_stats_t stats = loader->stats; /* all 0 in a forked child */
    PLIM_TRY(plim__output_check(stats_out, "plim_load_stats_t"));
    if (is_usable(loader))
        add_source_stats(loader, &stats);
    plim__output_give(stats_out, &stats, sizeof stats);
    return PLIM_OK;
}
