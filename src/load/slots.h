/*
 * Slots: the memory of batches, made once, counted references, handed out again and again. A batch
 * in a caller's hands keeps all of them in memory, also when the loader has ended.
 *
 *     free ─ take ─► being built ─ deliver ─► held by callers ─ last release ─► free
 *               └──────── put ◄──────┘
 *
 * Which slots are free is one word of bits, so taking and giving back costs one atomic operation
 * each, by any thread.
 */
#ifndef PLIM_LOAD_SLOTS_H
#define PLIM_LOAD_SLOTS_H

#include "base/job.h"
#include "load/loader_params.h"
#include "mem/arena.h"

#include <pthread.h>
#include <stdatomic.h>

#define PLIM__LOAD_SLOTS_MAX 64

typedef struct plim__slots plim__slots_t;

typedef struct plim__slot {
    plim_batch_t batch; /* first, so that a batch's address is its slot's */
    atomic_int references;
    plim__slots_t *slots;
    int number;
    int64_t ticket; /* which of the stream's it holds */
    int64_t part;   /* seeds that the part it holds has; 0: none was built yet */
    bool more;      /* parts of the ticket are still to come */
    int num_arrays;
    plim_array_t arrays[5 + 2 * PLIM_HOPS_MAX]; /* (num_arrays) of the batch */
    int64_t *seeds;                             /* of this part, nodes or graphs */
    void *nodes;                                /* see plim__load_slot_sizes_t */
    void *edges;
    void *rows;         /* NULL without */
    void *labels;       /* NULL without */
    int32_t *degrees;   /* NULL without */
    void *graph_indptr; /* NULL in one graph */
} plim__slot_t;

struct plim__slots {
    plim_job_t job; /* retained */
    plim__arena_t arena;
    atomic_int references; /* the loader's, and one for each batch in the callers' hands */
    char *memory;          /* of the slots' arrays */
    size_t bytes;
    int count;
    plim__slot_t *slots;   /* (count) */
    uint64_t *hashes;      /* (2, slot_nodes) of plim_loader_hash */
    pthread_mutex_t lock;  /* held while `freed` is called: NULL once the loader has ended */
    void (*freed)(void *); /* called with `context` after a slot was given back by a caller */
    void *context;
    _Alignas(64) _Atomic uint64_t free; /* bit i: slot i is free */
    _Alignas(64) atomic_int held;       /* slots in the callers' hands */
};

size_t plim__slots_estimate(const plim__load_plan_t *plan, const plim__loader_params_t *parts);

/* Account "slots"; every page is touched, so that memory does not grow later. PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM. */
plim_status_t plim__slots_create(const plim_job_t *job, const plim__load_plan_t *plan,
                                 const plim__loader_params_t *parts, void (*freed)(void *),
                                 void *context, plim__slots_t **slots_out);

/* The loader ends: `freed` is not called any more. The memory goes with the last batch. */
void plim__slots_release(plim__slots_t *slots);

/* A free slot, now the taker's; NULL when there is none. Any thread. */
plim__slot_t *plim__slots_take(plim__slots_t *slots);

/* Gives back a slot that was not delivered. Any thread. */
void plim__slots_put(plim__slot_t *slot);

/* To the caller, who holds it until it has released it `references` times. */
void plim__slots_deliver(plim__slot_t *slot, int references);

int plim__slots_free(plim__slots_t *slots);

#endif
