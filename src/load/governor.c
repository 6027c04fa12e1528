#include "load/governor.h"

#include "base/check.h"

#include <plimsoll/job.h>

#define SECOND ((int64_t)1000000000)
#define SHORTAGE (SECOND / 2) /* less room must last so long */
#define CALM (3 * SECOND)     /* more room must last so long */
#define CALM_MAX (60 * SECOND)
#define SOON (60 * SECOND) /* shrinking so soon after growing makes growing slower */
#define DEAD_PART 4        /* of the reserve: smaller differences change nothing */

void plim__governor_start(plim__governor_t *governor, int64_t line, int64_t reserve, int64_t cache)
{
    *governor = (plim__governor_t){.line = line,
                                   .reserve = reserve,
                                   .cache = cache,
                                   .target = cache,
                                   .low_since = -1,
                                   .high = -1,
                                   .calm = CALM};
}

/* The bound that counts: the line is one as well. */
static plim__headroom_bound_t bounded(const plim__governor_t *governor,
                                      const plim__headroom_bound_t *bound)
{
    plim__headroom_bound_t least = *bound;
    if (governor->line < bound->bytes) {
        least.bytes = least.limit = governor->line;
        least.others = 0;
        least.file = "the memory line";
    }
    return least;
}

/* What the bound leaves beside the reserve and what cannot be dropped. */
static int64_t left_by(const plim__governor_t *governor, const plim__headroom_bound_t *bound)
{
    return bound->bytes == PLIM_LINE_NONE ? governor->cache
                                          : bound->bytes - governor->reserve - bound->fixed;
}

static int64_t wanted_by(const plim__governor_t *governor, const plim__headroom_bound_t *bound)
{
    return plim__min_i64(plim__max_i64(left_by(governor, bound), 0), governor->cache);
}

/* Nothing is left that could be dropped, and the reserve is being used up: a neighbour that grows
 * by 100 MiB/s takes the rest of it in a quarter of a second. */
static bool is_tight(const plim__governor_t *governor, const plim__headroom_bound_t *bound)
{
    return left_by(governor, bound) < -governor->reserve / DEAD_PART;
}

static bool change(plim__governor_t *governor, int64_t target, bool tight,
                   const plim__headroom_bound_t *bound)
{
    governor->target = target;
    governor->tight = tight;
    governor->bound = *bound;
    governor->low_since = governor->high = -1;
    governor->changes++;
    return true;
}

static bool shrink(plim__governor_t *governor, int64_t now, int64_t wanted, bool tight,
                   const plim__headroom_bound_t *bound)
{
    if (governor->low_since < 0)
        governor->low_since = now;
    /* Where the run may be killed there is no time to wait and see. */
    if (tight == governor->tight && now - governor->low_since < SHORTAGE)
        return false;
    const bool soon = governor->grew_at > 0 && now - governor->grew_at < SOON;
    governor->calm = soon ? plim__min_i64(2 * governor->calm, CALM_MAX) : CALM;
    return change(governor, wanted, tight, bound);
}

static bool grow(plim__governor_t *governor, int64_t now, int64_t wanted,
                 const plim__headroom_bound_t *bound)
{
    if (governor->high < 0) {
        governor->high_since = now;
        governor->high = wanted;
    }
    governor->high = plim__min_i64(governor->high, wanted);
    if (now - governor->high_since < governor->calm)
        return false;
    governor->grew_at = now;
    return change(governor, governor->high, false, bound);
}

bool plim__governor_see(plim__governor_t *governor, int64_t now,
                        const plim__headroom_bound_t *bound)
{
    const plim__headroom_bound_t least = bounded(governor, bound);
    const int64_t dead = governor->reserve / DEAD_PART;
    const int64_t wanted = wanted_by(governor, &least);
    const bool tight = is_tight(governor, &least);
    if (wanted < governor->target - dead || (tight && !governor->tight)) {
        governor->high = -1;
        return shrink(governor, now, plim__min_i64(wanted, governor->target),
                      tight || governor->tight, &least);
    }
    governor->low_since = -1;
    if (wanted > governor->target + dead ||
        (wanted > governor->target && wanted == governor->cache) ||
        (governor->tight && left_by(governor, &least) >= 0))
        return grow(governor, now, wanted, &least);
    governor->high = -1;
    return false;
}

bool plim__governor_settle(plim__governor_t *governor, const plim__headroom_bound_t *bound)
{
    const plim__headroom_bound_t least = bounded(governor, bound);
    const int64_t wanted = wanted_by(governor, &least);
    const bool tight = is_tight(governor, &least);
    if (wanted == governor->target && tight == governor->tight)
        return false;
    return change(governor, wanted, tight, &least);
}
