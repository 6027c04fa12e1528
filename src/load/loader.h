/*
 * The loader's inside, for src/load alone.
 *
 * One stream is served at a time. Batches are numbered by *tickets* that ascend over the loader's
 * whole life; a *run* (a stream from one position on) is a range of them. Where the plan cuts
 * batches (part_seeds), each part has a ticket of its own, so that parts are built at once as
 * batches are. A thread that wants to build claims a free slot and the next ticket below `limit`,
 * builds, and marks the ticket ready; the caller takes tickets in order, and builds too while the
 * one it wants is not ready.
 *
 *     delivered │ ready, or being built │ unclaimed │ not yet possible
 *               ▲ deliver               ▲ next      ▲ limit
 *
 * With everything in memory limit is the run's end; else it is the end of the last window that
 * is ready (loader_window.c). A claimed ticket owns a slot, so at most PLIM__LOAD_SLOTS_MAX are
 * between deliver and next, and ticket t has the place t mod PLIM__LOAD_SLOTS_MAX in the ring to
 * itself.
 *
 * Claims and ready marks are atomics; the lock is for sleeping, errors and windows. Somebody who
 * sleeps says so first and looks again, somebody who changes something looks for sleepers
 * afterwards; both with sequentially consistent operations, so no wake-up is lost.
 */
#ifndef PLIM_LOAD_LOADER_H
#define PLIM_LOAD_LOADER_H

#include "base/threads.h"
#include "load/governor.h"
#include "load/loader_params.h"
#include "load/seeds.h"
#include "load/slots.h"
#include "sample/access.h"

#include <pthread.h>

#define PLIM__LOAD_CLOSED INT64_MAX /* as `next`: nothing can be claimed */

/*
 * A stream: its seeds, how they are drawn, and where it is while it is not served. The loader's
 * first three are over the splits, as the recipe says; they are its own.
 */
struct plim_stream {
    pid_t process;
    plim_loader_t *loader;
    atomic_int references; /* 0: this place is free; of the loader's own: 1 */
    plim__seeds_t *seeds;  /* the loader's, or `own` */
    plim__seeds_t *own;    /* a list; NULL: a split */
    plim_split_t split;    /* of the seeds */
    bool shuffled;
    int64_t whole_size; /* seeds of a batch, … */
    int64_t batch_size; /* … and of the share of it that is delivered */
    int share, num_shares;
    int num_hops;
    int64_t fanout[PLIM_HOPS_MAX];

    bool started;
    int64_t epoch, step; /* the next one */
    int64_t seed;        /* the first seed of the step that was not delivered, and … */
    int64_t part;        /* … how many the part before it had; 0: it begins a ticket */
};

/* What is being served. Written while nobody builds. */
typedef struct plim__load_run {
    bool started;
    plim_stream_t *of;
    int64_t epoch;
    int64_t first_number; /* of first_ticket among all of the epoch's */
    int64_t first_seed;   /* as the stream's `seed` and `part`, for first_ticket */
    int64_t first_part;
    int64_t first_ticket;
    int64_t end_ticket;
} plim__load_run_t;

/* What a ticket of the run stands for: seeds [first, end) of a step's batch. */
typedef struct plim__load_cut {
    int64_t step;
    int64_t batch_first; /* the batch's first seed in the epoch … */
    int64_t batch_seeds; /* … and how many it has */
    int64_t first, end;
} plim__load_cut_t;

/* A ticket's place in the ring. */
typedef struct plim__load_entry {
    _Alignas(64) _Atomic int64_t ready; /* the ticket + 1 once it was built, or failed */
    plim__slot_t *slot;                 /* before that its builder's, then the caller's */
} plim__load_entry_t;

/* One that builds batches: number 0 is the caller, the others have threads. */
typedef struct plim__load_worker {
    _Alignas(64) struct plim_loader *loader;
    int number;
    plim__blocks_t *blocks;
    int64_t *nodes; /* (slot_nodes) of graphs; NULL in one graph */
    struct {
        int64_t step; /* of the run; -1: none */
        int64_t labels;
    } counted; /* the batch whose labels this worker counted last: all its parts need the number */
    plim__thread_t thread;
} plim__load_worker_t;

/* Where a batch's lists and rows come from. */
typedef struct plim__load_sources {
    plim__topology_t *topology;
    plim__rows_t *rows; /* NULL without */
    int first_worker;   /* the number that worker 0 has there */
    bool direct;        /* on disk, without a window before them */
} plim__load_sources_t;

typedef struct plim__load_builder plim__load_builder_t; /* loader_window.c */

struct plim_loader {
    pid_t process;
    atomic_int references;
    plim__arena_t arena;     /* account "loader": what follows, up to the first part of its own */
    plim_job_t made_with;    /* retained, and so is the dataset */
    const plim_job_t *asked; /* the job that the loader was made with … */
    plim_job_t job;          /* … and the same with `stop` below, which also calls windows off */
    int stop;
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    plim__load_plan_t plan;
    plim__loader_params_t params;
    int64_t *graph_indptr; /* (num_graphs + 1); NULL in one graph */
    int threads_account;   /* where the stacks are reserved, and how many bytes of them */
    size_t threads_bytes;

    plim__seeds_t *seeds;
    plim__offsets_t *offsets;
    plim__access_t access;
    plim__load_sources_t base; /* the dataset's own: in memory or on disk */
    plim__slots_t *slots;
    int num_workers;               /* numbers in use: the caller and its threads */
    plim__load_worker_t *workers;  /* (plan.workers) */
    plim__load_builder_t *builder; /* NULL unless params.windowed */

    plim_stream_t streams[PLIM_STREAMS_MAX];
    plim_stream_t *asked_for; /* the caller's: as plim__loader_start's */
    plim__load_run_t run;
    int64_t deliver;           /* the caller's: the ticket it takes next */
    plim__slot_t *partial;     /* the caller's: a batch of which parts are still to come */
    plim_load_stats_t stats;   /* the caller's */
    plim__headroom_t headroom; /* the caller's, as what follows */
    plim__governor_t governor;
    int64_t next_look; /* of the governor: clock */
    int64_t cache_now; /* the target that the caches have */
    bool yields;       /* plim_stream_next fails while the governor is tight */
    bool stale;        /* windows count on rows that were given back since */

    pthread_mutex_t lock; /* guards from here to the atomics, and is held to sleep */
    pthread_cond_t work;  /* workers: something can be claimed, or the end has come */
    pthread_cond_t news;  /* the caller: see plim__load_wait */
    int64_t closed_at;    /* `next` when it was closed */
    plim_status_t status; /* the first error by ticket, and its message */
    char message[1024];

    _Alignas(64) _Atomic int64_t next;
    _Alignas(64) _Atomic int64_t limit;
    _Atomic int64_t failed_at; /* the ticket that `status` belongs to; INT64_MAX: none */
    _Atomic bool ending;
    _Alignas(64) atomic_int sleepers; /* workers asleep */
    _Atomic int64_t awaited;          /* the ticket + 1 the caller sleeps for; 0: it does not */
    plim__load_entry_t ring[PLIM__LOAD_SLOTS_MAX];
};

/* Bytes of the account "loader", and of thread stacks (account "threads"). */
size_t plim__loader_estimate(const plim_dataset_t *dataset, const plim__load_plan_t *plan,
                             const plim__loader_params_t *parts);
size_t plim__loader_threads_estimate(const plim__load_plan_t *plan,
                                     const plim__loader_params_t *parts);

/* Offsets, what is cached, and the dataset's lists and rows as planned. Cleaned up by
 * plim__load_sources_close, also after an error. */
plim_status_t plim__load_sources_open(plim_loader_t *loader);
void plim__load_sources_close(plim_loader_t *loader);

/* Names the packed file. It is the recipe's alone: whoever comes back with more or less memory
 * finds another choice of rows there, and replaces it, so that the scratch disk does not fill up.
 */
uint64_t plim__load_cache_key(const plim_dataset_info_t *info, const plim_recipe_t *recipe);

/*
 * Builds what the slot's ticket stands for, or as much of it as fits: slot->part is 0 the first
 * time, and batch.first_seed says where to go on afterwards. PLIM_ERR_BUDGET when what cannot be
 * cut does not fit; the sources' errors.
 */
plim_status_t plim__batch_build(plim_loader_t *loader, plim__load_worker_t *worker,
                                plim__slot_t *slot);

plim__load_cut_t plim__load_cut(const plim_loader_t *loader, int64_t ticket);

/* Seeds that a ticket of the stream has at most, and tickets of its steps before `step`. */
int64_t plim__load_ticket_seeds(const plim_stream_t *stream);
int64_t plim__load_tickets(const plim_stream_t *stream, int64_t step);

/* Seeds of the stream's shares of an epoch's batches, counted and taken as if they were all: seeds
 * first … first+count-1 of them, as plim__seeds_take. */
int64_t plim__stream_count(const plim_stream_t *stream);
void plim__stream_take(const plim_stream_t *stream, int64_t epoch, int64_t first, int64_t count,
                       int64_t *ids_out, void *labels_out);

/* Lists the nodes of graphs one after the other, and their number; false when they are more than
 * `capacity`. */
bool plim__load_graph_nodes(const plim_loader_t *loader, const int64_t *graphs, int64_t num_graphs,
                            int64_t capacity, int64_t *nodes_out, int64_t *count_out);

/* Keeps an error that befell a ticket, or the window that would begin with it. Lock held. */
void plim__load_fail_locked(plim_loader_t *loader, int64_t ticket, plim_status_t status);

/* Starts the thread of a worker that is not the caller. */
plim_status_t plim__load_worker_start(plim__load_worker_t *worker);

/* Called with the loader after a caller gave a slot back. */
void plim__load_slot_freed(void *context);

/*
 * The governor: from when the sources are open; and a look, when some time has passed since the
 * last. By the caller's thread.
 */
void plim__load_govern_begin(plim_loader_t *loader);
void plim__load_govern(plim_loader_t *loader);

/* Gives the caches so many bytes from now on; windows are built anew where some were given back. */
void plim__load_resize(plim_loader_t *loader, int64_t target);

/* Raises the limit, and tells those who wait for it. Lock held. */
void plim__load_raise(plim_loader_t *loader, int64_t limit);

/* The builder of windows. */
size_t plim__load_builder_estimate(const plim_dataset_info_t *info, const plim__load_plan_t *plan,
                                   const plim__loader_params_t *parts);
plim_status_t plim__load_builder_create(plim_loader_t *loader);
void plim__load_builder_destroy(plim_loader_t *loader);

/* Turns to the loader's new run; nobody is building batches. Lock held; may let go of it
 * meanwhile. */
void plim__load_builder_start(plim_loader_t *loader);

/* Forgets windows of a stream that ends. */
void plim__load_builder_forget(plim_loader_t *loader, const plim_stream_t *stream);

/* The sources that a ticket is built from, and that all of it was built. */
plim__load_sources_t plim__load_builder_sources(const plim_loader_t *loader, int64_t ticket);
void plim__load_builder_built(plim_loader_t *loader, int64_t ticket);

/* Counts the rows of a batch, or part of one, that came without a window. Any thread. */
void plim__load_builder_count(plim_loader_t *loader, const int64_t *nodes, int64_t num_nodes);

/* Windows so far, and, where rows are on disk, the rows that each needed and found in memory. */
void plim__load_builder_stats(const plim_loader_t *loader, plim_load_stats_t *stats);

#endif
