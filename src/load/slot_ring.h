/*
 * Streams, and the ring of slots in which their batches are built.
 *
 * A loader serves one stream at a time. Where the plan cuts batches (part_seeds), each is several
 * microbatches, which are built in parallel; else a batch is one microbatch. *Sequence numbers*
 * count microbatches over the loader's whole life; a *run* (a stream from one position on) is a
 * range of them. A thread that builds claims a free slot and the next sequence number below
 * `limit`, builds, and marks it ready. The caller takes microbatches in order, and builds too while
 * the one it wants is not ready.
 *
 *     delivered │ ready, or being built │ unclaimed │ not yet possible
 *               ▲ deliver               ▲ next      ▲ limit
 *
 * With everything in memory the limit is the end of the run; else it is the end of the last window
 * that is ready (load/window_builder.h). A claimed number owns a slot, so at most
 * PLIM__LOAD_SLOTS_MAX numbers are between deliver and next, and number s has entry
 * s mod PLIM__LOAD_SLOTS_MAX of the ring to itself.
 *
 * Claims and ready marks are atomics; the lock guards sleeping, errors and windows. A thread that
 * goes to sleep announces it first and checks again; a thread that changes something checks for
 * sleepers afterwards. Both use sequentially consistent operations, so no wake-up is lost.
 */
#ifndef PLIM_LOAD_SLOT_RING_H
#define PLIM_LOAD_SLOT_RING_H

#include "base/check.h"
#include "base/condition.h"
#include "load/seeds.h"
#include "load/slots.h"

#include <pthread.h>
#include <stdatomic.h>

/*
 * A stream: its seeds, how they are drawn, and its position while it is not served. The first three
 * of a loader are over the splits as the recipe says; the loader owns them.
 */
struct plim_stream {
    pid_t process;
    plim_loader_t *loader;
    atomic_int references; /* 0: this place is free */
    plim__seeds_t *seeds;  /* the loader's, or `own` */
    plim__seeds_t *own;    /* a list; NULL: a split */
    plim_split_t split;    /* of the seeds */
    bool shuffled;
    int64_t whole_size; /* seeds of a batch, … */
    int64_t batch_size; /* … and of the shares of it that are delivered: */
    int share, share_count, num_shares;
    int64_t microbatch_seeds; /* at most this many seeds in a microbatch */
    uint64_t draw_seed;       /* of the random numbers */
    int num_hops;
    int64_t fanout[PLIM_HOPS_MAX];

    int64_t counted_epoch, counted_step; /* batches that fit a slot, from that step on; -1: none */

    _Atomic int64_t end_step; /* no step from this one on is built; INT64_MAX: all are */
    bool started;
    int64_t epoch, step; /* the next ones */
    int64_t microbatch;  /* of the step: the number of its microbatches that were delivered, … */
    int64_t seed;        /* … the first seed that was not, and … */
    int64_t part; /* … the number of seeds of the part before it; 0: it begins a microbatch */
};

/* The steps of an epoch; 0 in a forked child. */
int64_t plim__stream_steps(const plim_stream_t *stream);

/* The steps of an epoch that are built. */
static inline int64_t plim__stream_end_step(const plim_stream_t *stream)
{
    return plim__min_i64(plim__stream_steps(stream), stream->end_step);
}

/* The first seed of a share in a batch of `seeds` seeds. */
static inline int64_t plim__share_first(int64_t seeds, int64_t num_shares, int64_t share)
{
    return share * (seeds / num_shares) + plim__min_i64(share, seeds % num_shares);
}

/* The number of seeds in the stream's shares of an epoch's batches. */
int64_t plim__stream_count(const plim_stream_t *stream);

/* Takes seeds first … first+count-1 of these, as plim__seeds_take; places of links, as
 * plim__seeds_take_links. */
plim_status_t plim__stream_take(const plim_stream_t *stream, plim__negatives_t *negatives,
                                int64_t epoch, int64_t first, int64_t count, int64_t *ids_out,
                                void *labels_out);

/* The whole batch of a step: returns its number of seeds, and its first seed in the epoch. */
int64_t plim__stream_batch(const plim_stream_t *stream, int64_t step, int64_t *first_out);

/* The number of microbatches of all steps before `step`. */
int64_t plim__stream_microbatches(const plim_stream_t *stream, int64_t step);

/* The run that is being served. Written while no worker builds batches. */
typedef struct plim__load_run {
    bool started;
    bool counts; /* batches are counted, not built */
    plim_stream_t *of;
    int64_t epoch;
    int64_t first_number; /* of first_sequence among the epoch's microbatches */
    int64_t first_seed;   /* the stream's `seed` and `part`, for first_sequence */
    int64_t first_part;
    int64_t first_sequence;
    int64_t end_sequence;
} plim__load_run_t;

/* The work of a sequence number: seeds [first, end) of the stream's shares of a step's batch. */
typedef struct plim__load_cut {
    int64_t step;
    int64_t number;      /* of the microbatch in the step */
    int share;           /* that the seeds are of */
    int64_t batch_first; /* the first seed of the stream's shares in the epoch … */
    int64_t batch_seeds; /* … and their number of seeds */
    int64_t place;       /* of the first of them in the whole epoch: the number of its tree */
    int64_t first, end;
} plim__load_cut_t;

plim__load_cut_t plim__load_cut(const plim__load_run_t *run, int64_t sequence);

/* The entry of a sequence number in the ring. */
typedef struct plim__load_entry {
    _Alignas(64) _Atomic int64_t ready; /* sequence + 1 once it was built, or failed */
    plim__slot_t *slot;                 /* the builder's until then, the caller's afterwards */
} plim__load_entry_t;

#define PLIM__SLOT_RING_CLOSED INT64_MAX /* as `next`: nothing can be claimed */

typedef struct plim__slot_ring {
    pthread_mutex_t lock;   /* guards the fields before the atomics, and is held to sleep */
    plim__condition_t work; /* workers: a number can be claimed, or the loader ends */
    plim__condition_t news; /* the caller: a microbatch is ready, or failed, or can be claimed */
    plim__load_run_t run;
    int64_t closed_at;    /* `next` when it was closed */
    plim_status_t status; /* of the first that failed */
    plim__failure_t failure;

    _Alignas(64) _Atomic int64_t next;
    _Alignas(64) _Atomic int64_t limit;
    _Atomic int64_t failed_at; /* the sequence that `status` belongs to; INT64_MAX: none */
    _Atomic bool ending;
    _Alignas(64) atomic_int sleepers; /* workers asleep */
    _Atomic int64_t awaited;          /* sequence + 1 that the caller sleeps for; 0: awake */
    plim__load_entry_t entries[PLIM__LOAD_SLOTS_MAX];
} plim__slot_ring_t;

void plim__slot_ring_init(plim__slot_ring_t *ring);
void plim__slot_ring_destroy(plim__slot_ring_t *ring);

/* Nothing can be claimed from now on. Lock held. */
void plim__slot_ring_close(plim__slot_ring_t *ring);

/* Raises the limit, and wakes those who wait for it. Lock held. */
void plim__slot_ring_raise(plim__slot_ring_t *ring, int64_t limit);

/* Records the error of a sequence number, or of the window that would begin with it. Lock held. */
void plim__slot_ring_fail(plim__slot_ring_t *ring, int64_t sequence, plim_status_t status);

#endif
