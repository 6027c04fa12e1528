/*
 * Slots: the memory of batches, created once and reused. Batches are reference-counted; a batch
 * that a caller holds keeps all slots in memory, also after the loader has ended.
 *
 *     free ─ take ─► being built ─ deliver ─► held by callers ─ last release ─► free
 *               └──────── put ◄──────┘
 *
 * One word of bits says which slots are free: any thread takes or returns a slot with one atomic
 * operation.
 */
#ifndef PLIM_LOAD_SLOTS_H
#define PLIM_LOAD_SLOTS_H

#include "base/job.h"
#include "load/loader_params.h"
#include "load/negatives.h"
#include "mem/arena.h"

#include <pthread.h>
#include <stdatomic.h>

#define PLIM__LOAD_SLOTS_MAX 64

typedef struct plim__slots plim__slots_t;

typedef struct plim__slot {
    plim_batch_t batch; /* first: the address of a batch is that of its slot */
    atomic_int references;
    plim__slots_t *slots;
    int number;
    int64_t sequence;          /* number of the microbatch that it holds */
    int64_t part;              /* seeds of the part in it; 0: none was built yet */
    bool more;                 /* the microbatch has parts to come */
    plim__load_size_t counted; /* of the batch, in a run that counts */
    int num_arrays;
    plim_array_t arrays[12 + PLIM_COLUMNS + 2 * PLIM_HOPS_MAX]; /* (num_arrays) of the batch */
    int64_t *seeds;                                             /* of this part, nodes or graphs */
    uint64_t *pair_keys; /* scratch, then the types of pairs; NULL without links, as the next two */
    int64_t *pair_ids;   /* see plim_batch_t */
    int64_t *pair_index; /* the same */
    void *nodes;         /* see plim__load_slot_sizes_t */
    void *edges;
    void *rows;                  /* NULL without */
    void *labels;                /* NULL without */
    int32_t *degrees;            /* NULL without */
    float *weight_sums;          /* NULL without; see source/weight_sums.h */
    void *graph_indptr;          /* NULL in one graph */
    int64_t *edge_ids;           /* NULL without */
    void *trees;                 /* NULL unless disjoint */
    int64_t *seed_times;         /* NULL unless times decide draws */
    void *columns[PLIM_COLUMNS]; /* NULL without */
} plim__slot_t;

struct plim__slots {
    plim_job_t job; /* retained */
    plim__arena_t arena;
    atomic_int references;         /* the loader's, and one for each batch that callers hold */
    char *memory;                  /* of the slots' arrays */
    size_t slot_bytes, slot_nodes; /* of each slot */
    char fingerprint[17];          /* of the batches' dataset */
    plim_recipe_t recipe;          /* of the batches */
    int count;
    plim__slot_t *slots; /* (count) */
    uint64_t *hashes;    /* (2, slot_nodes) of plim_loader_hash */
    int num_negatives;
    plim__negatives_t *negatives; /* (num_negatives) of the workers */
    pthread_mutex_t lock;         /* held while `freed` is called */
    void (*freed)(void *); /* called with `context` after a caller released a slot; NULL once the
                              loader has ended */
    void *context;
    _Alignas(64) _Atomic uint64_t free; /* bit i: slot i is free */
    _Alignas(64) atomic_int held;       /* slots that callers hold */
};

size_t plim__slots_estimate(const plim__load_plan_t *plan, const plim__loader_params_t *params);

/* Account "slots". Touches every page, so that memory does not grow later. PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM. */
plim_status_t plim__slots_create(const plim_job_t *job, const plim__load_plan_t *plan,
                                 const plim__loader_params_t *params, void (*freed)(void *),
                                 void *context, plim__slots_t **slots_out);

/* Called when the loader ends: `freed` is not called any more. The last batch frees the memory:
 * false when there is one. */
bool plim__slots_release(plim__slots_t *slots);

/* Takes a free slot; NULL when there is none. Any thread. */
plim__slot_t *plim__slots_take(plim__slots_t *slots);

/* Returns a slot that was not delivered. Any thread. */
void plim__slots_put(plim__slot_t *slot);

/* Delivers a slot to the caller, who releases it `references` times. */
void plim__slots_deliver(plim__slot_t *slot, int references);

#endif
