#include "load/governor.h"

#include "base/check.h"

#define SECOND ((int64_t)1000000000)
#define SETTLE (SECOND / 2)      /* less room must last so long … */
#define SETTLE_MOST (2 * SECOND) /* … and longer while it still becomes less, up to this */
#define CALM (3 * SECOND)        /* more room must last so long */
#define CALM_MOST (60 * SECOND)
#define SOON (60 * SECOND) /* shrinking so soon after growing makes growing slower */
#define STEP_MIN ((int64_t)8 << 20)
#define STEP_PART 32

static int64_t step_of(const plim__governor_t *governor)
{
    return plim__max_i64(governor->total / STEP_PART, STEP_MIN);
}

void plim__governor_start(plim__governor_t *governor, int64_t total, int64_t cache)
{
    *governor = (plim__governor_t){
        .total = total, .cache = cache, .target = cache, .low = -1, .high = -1, .calm = CALM};
}

/* What the cache should be with so much room: whole, or a number of steps. Less than a step is no
 * reason to do anything: counters of several processors agree no better. */
static int64_t wanted_with(const plim__governor_t *governor, int64_t room)
{
    const int64_t step = step_of(governor);
    const int64_t missing = room < governor->total ? governor->total - room : 0;
    if (missing <= step)
        return governor->cache;
    return plim__max_i64(governor->cache - missing, 0) / step * step;
}

static bool change(plim__governor_t *governor, int64_t target, bool tight,
                   const plim__room_sight_t *sight)
{
    governor->target = target;
    governor->tight = tight;
    governor->sight = *sight;
    governor->low = governor->high = -1;
    governor->changes++;
    return true;
}

static bool shrink(plim__governor_t *governor, int64_t now, int64_t wanted, bool tight,
                   const plim__room_sight_t *sight)
{
    if (governor->low < 0)
        governor->low_since = now;
    const bool falling = governor->low < 0 || wanted < governor->low;
    governor->low = wanted;
    /* Where the run may be killed there is no time to wait and see. */
    if (tight == governor->tight && now - governor->low_since < (falling ? SETTLE_MOST : SETTLE))
        return false;
    const bool soon = governor->grew_at > 0 && now - governor->grew_at < SOON;
    governor->calm = soon ? plim__min_i64(2 * governor->calm, CALM_MOST) : CALM;
    return change(governor, wanted, tight, sight);
}

static bool grow(plim__governor_t *governor, int64_t now, int64_t wanted,
                 const plim__room_sight_t *sight)
{
    if (governor->high < 0) {
        governor->high_since = now;
        governor->high = wanted;
    }
    governor->high = plim__min_i64(governor->high, wanted);
    if (now - governor->high_since < governor->calm)
        return false;
    governor->grew_at = now;
    return change(governor, governor->high, false, sight);
}

bool plim__governor_see(plim__governor_t *governor, int64_t now, const plim__room_sight_t *sight)
{
    const int64_t kept = governor->total - governor->cache;
    const int64_t wanted = wanted_with(governor, sight->bytes);
    const bool tight = sight->bytes < kept - step_of(governor);
    if (wanted < governor->target || (tight && !governor->tight)) {
        governor->high = -1;
        return shrink(governor, now, wanted, tight || governor->tight, sight);
    }
    governor->low = -1;
    if (wanted > governor->target || (governor->tight && sight->bytes >= kept))
        return grow(governor, now, wanted, sight);
    governor->high = -1;
    return false;
}
