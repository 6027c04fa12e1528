/*
 * Builds the microbatch of a sequence number, or a part of it, in one slot: from the seeds to the
 * rows. Seeds that do not fit are halved until they do; the others are delivered later, from the
 * same slot. Cutting a batch between seeds, or between graphs, changes nothing: a seed's
 * neighbourhood does not depend on the other seeds of its batch.
 */
#ifndef PLIM_LOAD_BATCH_BUILD_H
#define PLIM_LOAD_BATCH_BUILD_H

#include "base/threads.h"
#include "load/load_sources.h"
#include "load/slot_ring.h"
#include "sample/block_count.h"

/* A builder of batches: number 0 is the caller, the others are threads. */
typedef struct plim__load_worker {
    _Alignas(64) plim_loader_t *loader;
    int number;
    plim__blocks_t *blocks;
    plim__block_count_t *count;   /* NULL unless the plan is counted */
    plim__negatives_t *negatives; /* in the slots; NULL unless they are looked up */
    int64_t *nodes;               /* (slot_nodes) of graphs; NULL in one graph */
    struct {
        int64_t step; /* of the run; -1: none */
        int64_t labels;
    } counted; /* the batch whose labels were counted last: all its parts need the number */
    plim__thread_t thread;
} plim__load_worker_t;

/*
 * Builds the slot's microbatch, or as much of it as fits. slot->part is 0 the first time;
 * afterwards batch.first_seed says where to continue. PLIM_ERR_BUDGET when a batch that cannot be
 * cut does not fit; the sources' errors.
 */
plim_status_t plim__batch_build(const plim__load_context_t *context, const plim__load_run_t *run,
                                const plim__load_sources_t *sources, plim__load_worker_t *worker,
                                plim__slot_t *slot);

/* Counts the batch of the slot's microbatch as slot->counted, without building it. */
plim_status_t plim__batch_count(const plim__load_context_t *context, const plim__load_run_t *run,
                                const plim__load_sources_t *sources, plim__load_worker_t *worker,
                                plim__slot_t *slot);

/* plim_loader_hash. */
uint64_t plim__batch_hash(const plim__load_context_t *context, const plim__slots_t *slots,
                          const plim_batch_t *batch, uint64_t hash);

#endif
