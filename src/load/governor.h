/*
 * The governor: how much of what can be dropped a run keeps in memory.
 *
 *     bound    | fixed: process, model, slots, windows …  | caches, up to the target | reserve |
 *
 * The bound is the smallest of the job's line, of what each control group leaves beside its other
 * processes, and of what the host has available. Fixed is what the process holds besides the
 * caches, by the kernel's own count: so memory that the host process or a library takes counts like
 * a neighbour's, and the line is kept also where no control group enforces it. The target of the
 * caches is what is left of the bound beside the reserve, at most what they were made for. Batches
 * do not depend on it.
 *
 * Less than a quarter of the reserve changes nothing. Less room must last half a second; more room
 * some seconds, and longer each time that growing was soon followed by shrinking.
 */
#ifndef PLIM_LOAD_GOVERNOR_H
#define PLIM_LOAD_GOVERNOR_H

#include "mem/headroom.h"

#include <plimsoll/loader.h>

typedef struct plim__governor {
    int64_t line;                 /* of the job; PLIM_LINE_NONE: none */
    int64_t reserve;              /* what stays free below any bound */
    int64_t cache;                /* bytes that the caches hold at most */
    int64_t target;               /* bytes that they may hold now */
    bool tight;                   /* what cannot be dropped uses up the reserve */
    int64_t changes;              /* of target and tight, so far */
    plim__headroom_bound_t bound; /* that the last of them followed from */
    int64_t low_since;            /* less has been wanted since then; -1: it is not */
    int64_t high, high_since;     /* more was wanted: the least of it since then; -1: it was not */
    int64_t grew_at;              /* clock; 0: never */
    int64_t calm;                 /* nanoseconds of more room before it grows */
} plim__governor_t;

void plim__governor_start(plim__governor_t *governor, int64_t line, int64_t reserve, int64_t cache);

/* What was read at a moment of the clock (nanoseconds); true when target or tight has changed. */
bool plim__governor_see(plim__governor_t *governor, int64_t now,
                        const plim__headroom_bound_t *bound);

/* The same at once, whatever was before and however small the difference is. */
bool plim__governor_settle(plim__governor_t *governor, const plim__headroom_bound_t *bound);

/*
 * A loader's governor, as it stands; by the thread that the loader belongs to. It reads the meter
 * now and then when a batch is asked for, and logs what it changes.
 */
const plim__governor_t *plim__loader_governor(const plim_loader_t *loader);

/* Whether plim_stream_next fails with PLIM_ERR_BUDGET while the governor is tight, so that the
 * caller can plan anew. At first it does not. */
void plim__loader_yield(plim_loader_t *loader, bool yields);

/* For tests: when the n-th batch from now on is asked for (n = 1 is the next one), and only then,
 * the governor is tight; 0 switches it off. */
void plim__loader_squeeze_at(int n);

/* Reads the meter now and sets the caches' target at once: after a rehearsal, after the first
 * epoch. By the thread that the loader belongs to. */
void plim__loader_settle(plim_loader_t *loader);

/* Bytes of the caches that are in memory. */
int64_t plim__loader_cache_resident(const plim_loader_t *loader);

#endif
