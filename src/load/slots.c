#include "load/slots.h"

#include "base/fail.h"

#include <string.h>

static plim__slot_t *slot_of(plim_batch_t *batch)
{
    return (plim__slot_t *)(void *)batch;
}

/* The next array of a slot; NULL when its size is 0. */
static void *next_array(char **at, size_t size)
{
    void *array = size > 0 ? *at : NULL;
    *at += size;
    return array;
}

static void place_arrays(plim__slot_t *slot, const plim__load_slot_sizes_t *sizes, char *at)
{
    slot->rows = next_array(&at, sizes->rows); /* first, so that rows are page-aligned */
    slot->nodes = next_array(&at, sizes->nodes);
    slot->edges = next_array(&at, sizes->edges);
    slot->seeds = next_array(&at, sizes->seeds);
    slot->pair_keys = next_array(&at, sizes->places);
    slot->pair_ids = next_array(&at, sizes->places);
    slot->pair_index = next_array(&at, sizes->places);
    slot->labels = next_array(&at, sizes->labels);
    slot->degrees = next_array(&at, sizes->degrees);
    slot->weight_sums = next_array(&at, sizes->weight_sums);
    slot->graph_indptr = next_array(&at, sizes->graph_indptr);
    slot->edge_ids = next_array(&at, sizes->edge_ids);
    slot->trees = next_array(&at, sizes->trees);
    slot->seed_times = next_array(&at, sizes->seed_times);
    for (int i = 0; i < PLIM_COLUMNS; i++)
        slot->columns[i] = next_array(&at, sizes->columns[i]);
}

static void lay_out(plim__arena_t *arena, void *draft)
{
    plim__slots_t *slots = draft;
    const size_t count = (size_t)slots->count;
    slots->slots = plim__arena_carve(arena, count, sizeof *slots->slots, 1);
    slots->hashes = plim__arena_carve(arena, slots->slot_nodes, 2 * sizeof(uint64_t), 1);
    slots->negatives =
        plim__arena_carve(arena, (size_t)slots->num_negatives, sizeof *slots->negatives, 1);
    slots->memory = plim__arena_carve(arena, count, slots->slot_bytes, PLIM__PAGE);
}

static plim__slots_t draft_of(const plim__load_plan_t *plan, const plim__loader_params_t *params)
{
    return (plim__slots_t){.count = plan->num_slots,
                           .slot_nodes = (size_t)plan->slot_nodes,
                           .num_negatives = plan->looks_up ? plan->workers : 0,
                           .slot_bytes = params->slot.bytes};
}

size_t plim__slots_estimate(const plim__load_plan_t *plan, const plim__loader_params_t *params)
{
    plim__slots_t draft = draft_of(plan, params);
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

plim_status_t plim__slots_create(const plim_job_t *job, const plim__load_plan_t *plan,
                                 const plim__loader_params_t *params, void (*freed)(void *),
                                 void *context, plim__slots_t **slots_out)
{
    plim__slots_t draft = draft_of(plan, params), *slots;
    PLIM_TRY(plim__object_create(job->ledger, "slots", lay_out, &draft, sizeof draft, &draft.arena,
                                 &slots));
    const int count = slots->count;
    slots->job = *job;
    plim_job_retain(job);
    memcpy(slots->fingerprint, plan->fingerprint, sizeof slots->fingerprint);
    slots->recipe = plan->recipe;
    for (int i = 0; i < count; i++) {
        plim__slot_t *slot = &slots->slots[i];
        slot->slots = slots;
        slot->number = i;
        atomic_init(&slot->references, 0);
        place_arrays(slot, &params->slot, slots->memory + (size_t)i * slots->slot_bytes);
    }
    pthread_mutex_init(&slots->lock, NULL);
    atomic_init(&slots->references, 1);
    slots->freed = freed;
    slots->context = context;
    atomic_init(&slots->held, 0);
    atomic_init(&slots->free, ~(uint64_t)0 >> (PLIM__LOAD_SLOTS_MAX - count));
    plim__arena_want_huge(slots->arena.base, slots->arena.size);
    plim__arena_touch(&slots->arena);
    *slots_out = slots;
    return PLIM_OK;
}

static bool drop(plim__slots_t *slots)
{
    if (atomic_fetch_sub_explicit(&slots->references, 1, memory_order_acq_rel) != 1)
        return false;
    pthread_mutex_destroy(&slots->lock);
    const plim_job_t job = slots->job;
    plim__arena_t arena = slots->arena;
    plim__arena_destroy(&arena);
    plim_job_release(&job);
    return true;
}

bool plim__slots_release(plim__slots_t *slots)
{
    if (slots == NULL)
        return true;
    pthread_mutex_lock(&slots->lock);
    slots->freed = NULL;
    pthread_mutex_unlock(&slots->lock);
    return drop(slots);
}

plim__slot_t *plim__slots_take(plim__slots_t *slots)
{
    uint64_t free = atomic_load(&slots->free);
    while (free != 0)
        if (atomic_compare_exchange_weak(&slots->free, &free, free & (free - 1)))
            return &slots->slots[__builtin_ctzll(free)];
    return NULL;
}

void plim__slots_put(plim__slot_t *slot)
{
    atomic_fetch_or(&slot->slots->free, (uint64_t)1 << slot->number);
}

void plim__slots_deliver(plim__slot_t *slot, int references)
{
    atomic_store_explicit(&slot->references, references, memory_order_relaxed);
    atomic_fetch_add_explicit(&slot->slots->references, 1, memory_order_relaxed);
    atomic_fetch_add(&slot->slots->held, 1);
}

PLIM_API void plim_batch_retain(plim_batch_t *batch)
{
    if (slot_of(batch)->slots !=
        NULL) /* it is NULL in a forked child, which does not inherit the memory */
        atomic_fetch_add_explicit(&slot_of(batch)->references, 1, memory_order_relaxed);
}

PLIM_API void plim_batch_release(plim_batch_t *batch)
{
    if (batch == NULL || slot_of(batch)->slots == NULL)
        return;
    plim__slot_t *slot = slot_of(batch);
    plim__slots_t *slots = slot->slots;
    if (atomic_fetch_sub_explicit(&slot->references, 1, memory_order_acq_rel) != 1)
        return;
    atomic_fetch_sub(&slots->held, 1);
    plim__slots_put(slot);
    pthread_mutex_lock(&slots->lock);
    if (slots->freed != NULL)
        slots->freed(slots->context);
    pthread_mutex_unlock(&slots->lock);
    (void)drop(slots);
}

PLIM_API const plim_array_t *plim_batch_array(const plim_batch_t *batch, int index)
{
    const plim__slot_t *slot = (const plim__slot_t *)(const void *)batch;
    return index >= 0 && index < slot->num_arrays ? &slot->arrays[index] : NULL;
}
