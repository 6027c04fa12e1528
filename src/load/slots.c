#include "load/slots.h"

#include "base/check.h"
#include "base/fail.h"

#include <string.h>

static plim__slot_t *slot_of(plim_batch_t *batch)
{
    return (plim__slot_t *)(void *)batch;
}

size_t plim__slots_estimate(const plim__load_plan_t *plan, const plim__loader_params_t *parts)
{
    const size_t count = (size_t)plan->num_slots;
    size_t bytes;
    if (!plim__mul_size(count, parts->slot.bytes, &bytes))
        return SIZE_MAX;
    const size_t sizes[] = {plim__arena_piece(1, sizeof(plim__slots_t), 1),
                            plim__arena_piece(count, sizeof(plim__slot_t), 1),
                            plim__arena_piece((size_t)plan->slot_nodes, 2 * sizeof(uint64_t), 1),
                            PLIM__PAGE};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        if (!plim__add_size(bytes, sizes[i], &bytes))
            return SIZE_MAX;
    return plim__round_up(bytes, PLIM__PAGE);
}

/* The next array of a slot; NULL when it has none of that kind. */
static void *next_array(char **at, size_t size)
{
    void *array = size > 0 ? *at : NULL;
    *at += size;
    return array;
}

static void lay_out(plim__slot_t *slot, const plim__load_slot_sizes_t *sizes, char *at)
{
    slot->rows = next_array(&at, sizes->rows); /* first, so that rows begin on a page */
    slot->nodes = next_array(&at, sizes->nodes);
    slot->edges = next_array(&at, sizes->edges);
    slot->seeds = next_array(&at, sizes->seeds);
    slot->labels = next_array(&at, sizes->labels);
    slot->degrees = next_array(&at, sizes->degrees);
    slot->graph_indptr = next_array(&at, sizes->graph_indptr);
}

plim_status_t plim__slots_create(const plim_job_t *job, const plim__load_plan_t *plan,
                                 const plim__loader_params_t *parts, void (*freed)(void *),
                                 void *context, plim__slots_t **slots_out)
{
    const int count = plan->num_slots;
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "slots", plim__slots_estimate(plan, parts), &arena));
    plim__slots_t *slots = plim__arena_carve(&arena, 1, sizeof *slots, 1);
    slots->count = count;
    slots->slots = plim__arena_carve(&arena, (size_t)count, sizeof *slots->slots, 1);
    slots->hashes = plim__arena_carve(&arena, (size_t)plan->slot_nodes, 2 * sizeof(uint64_t), 1);
    char *memory = plim__arena_carve(&arena, (size_t)count, parts->slot.bytes, PLIM__PAGE);
    for (int i = 0; i < count; i++) {
        plim__slot_t *slot = &slots->slots[i];
        slot->slots = slots;
        slot->number = i;
        atomic_init(&slot->references, 0);
        lay_out(slot, &parts->slot, memory + (size_t)i * parts->slot.bytes);
    }
    slots->freed = freed;
    slots->context = context;
    atomic_init(&slots->held, 0);
    atomic_init(&slots->free, ~(uint64_t)0 >> (PLIM__LOAD_SLOTS_MAX - count));
    plim__arena_touch(&arena);
    slots->arena = arena;
    *slots_out = slots;
    return PLIM_OK;
}

void plim__slots_destroy(plim__slots_t *slots)
{
    if (slots != NULL)
        plim__arena_destroy(&slots->arena);
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
    atomic_fetch_add(&slot->slots->held, 1);
}

int plim__slots_free(plim__slots_t *slots)
{
    return __builtin_popcountll(atomic_load(&slots->free));
}

PLIM_API void plim_batch_retain(plim_batch_t *batch)
{
    atomic_fetch_add_explicit(&slot_of(batch)->references, 1, memory_order_relaxed);
}

PLIM_API void plim_batch_release(plim_batch_t *batch)
{
    plim__slot_t *slot = slot_of(batch);
    plim__slots_t *slots = slot->slots;
    if (atomic_fetch_sub_explicit(&slot->references, 1, memory_order_acq_rel) != 1)
        return;
    atomic_fetch_sub(&slots->held, 1);
    plim__slots_put(slot);
    slots->freed(slots->context);
}
