/* The loader. The files of src/load call downwards only, as docs/tour.md draws it; load/slot_ring.h
 * describes how batches are numbered, claimed and delivered. */
#ifndef PLIM_LOAD_LOADER_H
#define PLIM_LOAD_LOADER_H

#include "load/batch_build.h"
#include "load/governor.h"
#include "load/window_builder.h"

struct plim_loader {
    pid_t process;
    atomic_int references;
    plim__arena_t arena;  /* account "slots" */
    plim_job_t made_with; /* retained, as the dataset is */
    int64_t bytes;        /* on the ledger, without the seeds of added streams, and without slots
                             that were replaced while the caller held a batch */
    plim__load_context_t context;
    int threads_account; /* of the stacks, and their bytes */
    size_t threads_bytes;

    plim__slots_t *slots;                    /* NULL: remaking failed, with ring.status */
    plim__window_builder_t *builder;         /* NULL unless params.windowed */
    int num_workers;                         /* the caller and the threads that could be started */
    plim__load_worker_t *workers;            /* (plan.workers) */
    int64_t *graph_nodes;                    /* (plan.workers, slot_nodes); NULL in one graph */
    plim_stream_t streams[PLIM_STREAMS_MAX]; /* free where references is 0 */

    /* Only the caller uses these: */
    int64_t deliver;       /* the sequence number that is taken next */
    plim__slot_t *partial; /* a batch that has parts to come */
    plim_load_stats_t stats;
    plim__governor_t governor;
    bool yields; /* plim_stream_next fails while the governor is tight */
    bool stale;  /* cached rows that windows rely on were released */

    plim__slot_ring_t ring;
};

/* Bytes of the loader itself (account "slots"), and of thread stacks (account "threads"). */
size_t plim__loader_estimate(const plim_dataset_t *dataset, const plim__load_plan_t *plan,
                             const plim__loader_params_t *params);
size_t plim__loader_threads_estimate(const plim__load_plan_t *plan,
                                     const plim__loader_params_t *params);

/* plim_loader_create from the plan's numbers. */
plim_status_t plim__loader_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim__load_plan_t *plan, plim_loader_t **loader_out);

/*
 * Makes caches, windows, workers and slots again, as planned; streams, their cuts of batches and
 * their positions stay. A batch that the caller holds keeps the old slots. After an error the
 * loader is as before, or, when that fails too, all calls report the error.
 */
plim_status_t plim__loader_remake(plim_loader_t *loader, const plim__load_plan_t *plan);

/* The most nodes and edges that a batch of `seeds` seeds can have. */
plim__load_size_t plim__loader_bound(const plim_loader_t *loader, int num_hops,
                                     const int64_t *fanout, int64_t seeds);

/*
 * Counts the batches from that step of the epoch on: *largest_out is the most nodes and the most
 * edges of any. This interrupts the stream being served; the stream stays where it is. Errors of
 * plim_stream_next.
 */
plim_status_t plim__stream_count_batches(plim_stream_t *stream, int64_t epoch, int64_t step,
                                         plim__load_size_t *largest_out);

/* plim_stream_start of batches that fit a slot. */
plim_status_t plim__stream_start(plim_stream_t *stream, int64_t epoch, int64_t step);

/* The error of a loader that could not be remade. */
plim_status_t plim__loader_check(const plim_loader_t *loader);

/* The number of seeds of a split with a label: a class, or at least one known value. */
int64_t plim__loader_labelled(const plim_loader_t *loader, plim_split_t split);

/* Whether the caller holds a batch. */
bool plim__loader_is_held(const plim_loader_t *loader);

/* The loader's governor, read by the loader's caller. It looks at the meter now and then when a
 * batch is asked for. */
const plim__governor_t *plim__loader_governor(const plim_loader_t *loader);

/* Whether plim_stream_next fails with PLIM_ERR_BUDGET while the governor is tight, so that the
 * caller can plan again; false at first. */
void plim__loader_yield(plim_loader_t *loader, bool yields);

/* Reads the meter and sets the caches' target at once: after a rehearsal, after the first epoch. */
void plim__loader_retarget(plim_loader_t *loader);

/* For loader_create.c and streams.c: a worker's thread; wakes workers after a slot was released;
 * ends the run, whose stream continues later; and stops serving a stream that ends. */
void plim__loader_worker(void *worker);
void plim__loader_slot_freed(void *loader);
void plim__loader_drain(plim_loader_t *loader);
void plim__loader_stop(plim_stream_t *stream);

#endif
