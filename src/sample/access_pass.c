/*
 * One pass over indices.npy: each list with a hazard above 0 adds to the counters of its entries.
 *
 *     tasks of equally many entries ─► walk: lists that add something ─► slots: transfers of lists
 *     close together, `depth` in flight ─► additions, queued until their counter is in the cache
 *
 * The addend depends on the node's code and the list's length: one logarithm a list, not an entry.
 */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/rng.h"
#include "base/threads.h"
#include "sample/access_work.h"

#include <string.h>

#define MERGE_DISTANCE ((int64_t)32 << 10) /* bytes: merges closer reads */
#define TASK_MAX ((int64_t)4 << 20)        /* entries of a task, at most */
#define TASK_MIN ((int64_t)1 << 10)
#define TASKS_EACH 64 /* tasks a worker in a small graph */

typedef struct access_pass {
    plim__access_work_t *work;
    int64_t fanout;
    uint64_t key;  /* random key of this hop's rounding */
    int64_t first; /* counters of the nodes [first, first + count) */
    uint64_t count;
    int64_t task; /* entries in a task */
    int64_t num_tasks;
    atomic_llong next;
} access_pass_t;

/* The smallest node whose list begins at `entry` or later. */
static int64_t node_at(const plim__access_work_t *work, int64_t entry)
{
    int64_t low = 0, high = work->num_nodes;
    while (low < high) {
        int64_t middle = low + (high - low) / 2;
        if (plim__offsets_list(work->offsets, middle).start < entry)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Claims the next task, which is whole lists; false after the last. */
static bool claim(access_pass_t *pass, plim__access_worker_t *worker)
{
    plim__access_work_t *work = pass->work;
    int64_t task = atomic_fetch_add(&pass->next, 1);
    if (task >= pass->num_tasks)
        return false;
    worker->node = task == 0 ? 0 : node_at(work, task * pass->task);
    worker->node_end =
        task + 1 == pass->num_tasks ? work->num_nodes : node_at(work, (task + 1) * pass->task);
    plim__progress(work->job, "weighing lists and rows", "edges",
                   work->edges_done + task * pass->task, work->edges_total);
    return true;
}

/* The hazard that each entry of the node's list receives. Rounded up or down at random, so that
 * many small ones do not add up to 0. */
static uint32_t added(const access_pass_t *pass, int64_t node, uint16_t code, int64_t degree)
{
    const plim__access_work_t *work = pass->work;
    double drawn = plim__hazard_drawn(pass->fanout, work->params->replace, degree);
    if (degree == 0 || drawn == 1)
        return degree == 0 ? 0 : plim__hazard_decode(code);
    double hazard = plim__hazard_of((double)work->chances[code] * drawn) * PLIM__HAZARD_ONE;
    return (uint32_t)(hazard + plim__rng_double(pass->key, (uint64_t)node));
}

/* The first index from `place` on whose code is not 0, or `end`. */
static int64_t skip_nothing(const uint16_t *codes, int64_t place, int64_t end)
{
    uint64_t four;
    for (; end - place >= 4; place += 4) {
        memcpy(&four, &codes[place], sizeof four);
        if (four != 0)
            break;
    }
    while (place < end && codes[place] == 0)
        place++;
    return place;
}

/* Moves to the next list with a hazard; *more_out is false after the last. */
static plim_status_t walk(access_pass_t *pass, plim__access_worker_t *worker, bool *more_out)
{
    plim__access_work_t *work = pass->work;
    for (;;) {
        while (worker->node == worker->node_end) {
            PLIM_TRY(plim__job_check(work->job));
            *more_out = claim(pass, worker);
            if (!*more_out)
                return PLIM_OK;
        }
        int64_t chunk = worker->node / PLIM__ACCESS_CHUNK;
        int64_t first = chunk * PLIM__ACCESS_CHUNK;
        if (worker->chunk_first != first)
            PLIM_TRY(plim__access_codes_before(work, chunk, worker->codes, &worker->chunk));
        worker->chunk_first = first;
        int64_t end = plim__min_i64(worker->node_end - first, PLIM__ACCESS_CHUNK);
        int64_t place = skip_nothing(worker->chunk, worker->node - first, end);
        for (; place < end; place = skip_nothing(worker->chunk, place + 1, end)) {
            worker->list = plim__offsets_list(work->offsets, first + place);
            worker->hazard = added(pass, first + place, worker->chunk[place], worker->list.degree);
            if (worker->hazard == 0)
                continue;
            worker->node = first + place + 1;
            *more_out = true;
            return PLIM_OK;
        }
        worker->node = first + end;
    }
}

/* Fills a slot with lists that are close together and starts reading them; *filled_out is false
 * after the last. A list longer than the block continues in the next slot. */
static plim_status_t fill(access_pass_t *pass, plim__access_worker_t *worker,
                          plim__access_slot_t *slot, bool *filled_out)
{
    plim__access_work_t *work = pass->work;
    const int64_t entry = (int64_t)work->entry_bytes;
    const int most = (int)(work->layout.block / PLIM__ACCESS_PART_EACH);
    int64_t start = 0, end = 0;
    slot->num_parts = 0;
    while (slot->num_parts < most) {
        bool more = true;
        if (worker->list.degree == 0)
            PLIM_TRY(walk(pass, worker, &more));
        if (!more)
            break;
        int64_t at = PLIM__NPY_HEADER + worker->list.start * entry;
        if (slot->num_parts == 0)
            start = at & ~((int64_t)work->indices.align - 1);
        else if (at - end > MERGE_DISTANCE)
            break;
        int64_t fit = (start + (int64_t)work->layout.block - at) / entry;
        int64_t take = plim__min_i64(worker->list.degree, fit);
        if (take <= 0)
            break;
        slot->parts[slot->num_parts++] =
            (plim__access_part_t){(uint32_t)((at - start) / entry), (uint32_t)take, worker->hazard};
        worker->list.start += take;
        worker->list.degree -= take;
        end = at + take * entry;
    }
    *filled_out = slot->num_parts > 0;
    if (!*filled_out)
        return PLIM_OK;
    slot->op = (plim__op_t){.file = &work->indices,
                            .offset = start,
                            .data = slot->block,
                            .size = plim__round_up((size_t)(end - start), work->indices.align)};
    plim__engine_submit(worker->engine, &slot->op);
    return PLIM_OK;
}

/* Saturating, so the sum does not depend on the order of addition. */
static inline void add(uint32_t *counter, uint32_t hazard)
{
    uint32_t old = __atomic_load_n(counter, __ATOMIC_RELAXED);
    uint32_t sum;
    do {
        if (old == PLIM__HAZARD_MAX)
            return;
        sum = hazard < PLIM__HAZARD_MAX - old ? old + hazard : PLIM__HAZARD_MAX;
    } while (
        !__atomic_compare_exchange_n(counter, &old, sum, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
}

/* Prefetches a cache line for writing. Compilers do so only for explicitly selected processors.
 * Processors without PREFETCHW ignore it. */
static inline void prefetch_to_write(uint32_t *counter)
{
    __asm__ volatile("prefetchw %0" : : "m"(*counter));
}

/* Queues the addition until the counter is in the cache. */
static inline void put_off(plim__access_worker_t *worker, uint32_t *counter, uint32_t hazard)
{
    uint64_t place = worker->num_pending++ % PLIM__ACCESS_DELAY;
    if (worker->pending_counter[place] != NULL)
        add(worker->pending_counter[place], worker->pending_hazard[place]);
    prefetch_to_write(counter);
    worker->pending_counter[place] = counter;
    worker->pending_hazard[place] = hazard;
}

static void add_pending(plim__access_worker_t *worker)
{
    for (int i = 0; i < PLIM__ACCESS_DELAY; i++) {
        if (worker->pending_counter[i] != NULL)
            add(worker->pending_counter[i], worker->pending_hazard[i]);
        worker->pending_counter[i] = NULL;
    }
}

/* Adds a slot's parts to the counters in range. Returns the block position of the first invalid
 * entry, or -1. */
static inline __attribute__((always_inline)) int64_t add_parts(const access_pass_t *pass,
                                                               plim__access_worker_t *worker,
                                                               const plim__access_slot_t *slot,
                                                               bool wide)
{
    const uint64_t num_nodes = (uint64_t)pass->work->num_nodes;
    const uint64_t first = (uint64_t)pass->first;
    uint32_t *counters = pass->work->counters;
    for (int i = 0; i < slot->num_parts; i++) {
        const plim__access_part_t part = slot->parts[i];
        for (uint32_t j = part.begin; j < part.begin + part.count; j++) {
            const uint64_t node = (uint64_t)plim__index_at(slot->block, wide, j);
            if (node >= num_nodes)
                return j;
            if (node - first < pass->count)
                put_off(worker, &counters[node - first], part.hazard);
        }
    }
    return -1;
}

static plim_status_t take(const access_pass_t *pass, plim__access_worker_t *worker,
                          plim__access_slot_t *slot)
{
    const plim__access_work_t *work = pass->work;
    bool wide = work->entry_bytes == sizeof(int64_t);
    PLIM_TRY(plim__engine_wait(worker->engine, &slot->op));
    int64_t bad = wide ? add_parts(pass, worker, slot, true) : add_parts(pass, worker, slot, false);
    if (bad < 0)
        return PLIM_OK;
    return plim__index_fail(work->indices.path,
                            (slot->op.offset - PLIM__NPY_HEADER) / (int64_t)work->entry_bytes + bad,
                            plim__index_at(slot->block, wide, bad), work->num_nodes);
}

static plim_status_t run(access_pass_t *pass, plim__access_worker_t *worker)
{
    const int depth = pass->work->layout.depth;
    int busy = 0;
    bool more = true;
    for (int oldest = 0;; oldest = (oldest + 1) % depth, busy--) {
        while (more && busy < depth) {
            PLIM_TRY(fill(pass, worker, &worker->slots[(oldest + busy) % depth], &more));
            busy += more;
        }
        plim__engine_flush(worker->engine);
        if (busy == 0)
            return PLIM_OK;
        PLIM_TRY(take(pass, worker, &worker->slots[oldest]));
    }
}

static plim_status_t pass_worker(void *context, int number)
{
    access_pass_t *pass = context;
    plim__access_worker_t *worker = &pass->work->workers[number];
    worker->node = worker->node_end = 0;
    worker->chunk_first = -1;
    worker->list.degree = 0;
    plim_status_t status = run(pass, worker);
    if (status != PLIM_OK) /* stops the other workers */
        atomic_store(&pass->next, pass->num_tasks);
    add_pending(worker);
    return status;
}

plim_status_t plim__access_pass(plim__access_work_t *work, int hop, int64_t first, int64_t count)
{
    int64_t task = work->num_edges / ((int64_t)work->layout.workers * TASKS_EACH);
    task = plim__min_i64(plim__max_i64(task, TASK_MIN), TASK_MAX);
    access_pass_t pass = {.work = work,
                          .fanout = work->fanout[hop],
                          .key = plim__rng_key(0, (uint64_t)hop, 0, 0),
                          .first = first,
                          .count = (uint64_t)count,
                          .task = task,
                          .num_tasks = work->num_edges / task + 1};
    atomic_init(&pass.next, 0);
    PLIM_TRY(plim__parallel(work->layout.workers, pass_worker, &pass));
    work->edges_done += work->num_edges;
    plim__progress(work->job, "weighing lists and rows", "edges", work->edges_done,
                   work->edges_total);
    return PLIM_OK;
}
