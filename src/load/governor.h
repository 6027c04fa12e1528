/*
 * The governor decides how many bytes the caches hold.
 *
 *     bound    | fixed: process, model, slots, windows …  | caches, up to the target | reserve |
 *
 * The bound is the smallest of the job's line, of what each control group's limit leaves after its
 * other processes, and of what the host has available. Fixed is what the process holds without the
 * caches, as counted by the kernel: memory that the host process or a library takes counts like a
 * neighbour's, and the line is kept also where no control group enforces it. The caches' target is
 * what remains of the bound without fixed and reserve, at most the size that they were made for.
 * Batches do not depend on it.
 *
 * Differences below a quarter of the reserve change nothing. The target shrinks after half a second
 * of scarce memory. It grows after some seconds of free memory, and waits longer each time that it
 * had to shrink soon after growing.
 */
#ifndef PLIM_LOAD_GOVERNOR_H
#define PLIM_LOAD_GOVERNOR_H

#include "load/load_sources.h"
#include "mem/headroom.h"

typedef struct plim__governor {
    int64_t line;                 /* of the job; PLIM_LINE_NONE: none */
    int64_t reserve;              /* stays free below any bound */
    int64_t cache;                /* most bytes of the caches */
    int64_t target;               /* bytes that they may hold now */
    bool tight;                   /* fixed memory uses a part of the reserve */
    int64_t changes;              /* of target and tight, so far */
    plim__headroom_bound_t bound; /* that the last change followed from */
    int64_t low_since;            /* memory has been scarce since then; -1: it is not */
    int64_t high, high_since;     /* smallest larger target wanted since then; -1: none */
    int64_t grew_at;              /* clock; 0: not since it last shrank */
    int64_t calm;                 /* nanoseconds of free memory before the target grows */
    int64_t next_look;            /* clock */
    plim__headroom_t headroom;
} plim__governor_t;

void plim__governor_start(plim__governor_t *governor, int64_t line, int64_t reserve, int64_t cache);

/* Takes a reading at a moment of the clock (nanoseconds); true when target or tight changed. */
bool plim__governor_see(plim__governor_t *governor, int64_t now,
                        const plim__headroom_bound_t *bound);

/* The same at once, without waiting and without the dead band. */
bool plim__governor_retarget(plim__governor_t *governor, const plim__headroom_bound_t *bound);

/* Opens the governor of a loader whose sources are open. */
void plim__governor_open(plim__governor_t *governor, const plim__load_context_t *context);
void plim__governor_close(plim__governor_t *governor);

/*
 * Reads the meter, unless it was read a moment ago, sets the caches' target, and logs a change; and
 * the same at once, without a log. True when the target shrank. By the loader's caller.
 */
bool plim__governor_look(plim__governor_t *governor, plim__load_context_t *context);
bool plim__governor_look_now(plim__governor_t *governor, plim__load_context_t *context);

/* Gives each cache its part of the target. */
void plim__governor_apply(const plim__governor_t *governor, plim__load_context_t *context);

/* Bytes of the caches that are in memory. */
int64_t plim__governor_resident(const plim__load_context_t *context);

/* plim_loader_headroom. By the loader's caller. */
void plim__governor_headroom(plim__governor_t *governor, const plim__load_context_t *context,
                             plim_headroom_t *headroom_out);

#endif
