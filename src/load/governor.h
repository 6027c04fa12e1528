/*
 * The governor: how much of what it could give back a run keeps.
 *
 *     total   | kept in any case: process, model, slots, windows … | hot lists | hot rows |
 *                                                                  | ◄─────── cache ───► |
 *
 * A plan fits the line as it was when the plan was made. When less can be held (a limit was
 * lowered, a neighbour has grown and stays), the kernel takes pages of the cache at once, and would
 * take them again each time they are brought back. So the cache gets a target: what it was planned
 * with, less what is missing; and when there is room again, the target rises again. Batches do not
 * depend on it.
 *
 * What lasts less than half a second is left to the kernel. Growing takes some seconds of calm, and
 * more of them each time that it was soon followed by shrinking. Steps are a 32nd of the total.
 */
#ifndef PLIM_LOAD_GOVERNOR_H
#define PLIM_LOAD_GOVERNOR_H

#include "mem/room.h"

#include <plimsoll/loader.h>

typedef struct plim__governor {
    int64_t total;            /* bytes of the whole run, as planned */
    int64_t cache;            /* of them, those that can be given back */
    int64_t target;           /* of those, so many may be kept now */
    bool tight;               /* not even the rest has room */
    int64_t changes;          /* of target and tight, so far */
    plim__room_sight_t sight; /* that the last of them followed from */
    int64_t low, low_since;   /* less was wanted at the last look, and since when; -1: it was not */
    int64_t high, high_since; /* more was wanted: the least of it since then; -1: it was not */
    int64_t grew_at;          /* clock; 0: never */
    int64_t calm;             /* nanoseconds of more room before it grows */
} plim__governor_t;

void plim__governor_start(plim__governor_t *governor, int64_t total, int64_t cache);

/* What was seen at a moment of the clock (nanoseconds); true when target or tight has changed. */
bool plim__governor_see(plim__governor_t *governor, int64_t now, const plim__room_sight_t *sight);

/*
 * A loader's governor, as it stands; by the thread that the loader belongs to. It looks now and
 * then when a batch is asked for, and says in the log what it changes.
 */
const plim__governor_t *plim__loader_governor(const plim_loader_t *loader);

/* Whether plim_loader_next fails with PLIM_ERR_BUDGET while the governor is tight, so that the
 * caller can plan anew. At first it does not. */
void plim__loader_yield(plim_loader_t *loader, bool yields);

/* For tests: when the n-th batch from now on is asked for (n = 1 is the next one), and only then,
 * the governor is tight; 0 switches it off. */
void plim__loader_squeeze_at(int n);

/* That the loader is a part of a run of so many bytes in all, where its own plan does not say so.
 */
void plim__loader_part_of(plim_loader_t *loader, int64_t total_bytes);

#endif
