#include "load/governor.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/job.h"
#include "base/params.h"
#include "mem/arena.h"
#include "mem/size_text.h"

#include <stdio.h>

#define SECOND ((int64_t)1000000000)
#define SHORTAGE (SECOND / 2) /* how long memory must be scarce before the target shrinks */
#define CALM (3 * SECOND)     /* how long memory must be free before the target grows */
#define CALM_MAX (60 * SECOND)
#define SOON (60 * SECOND) /* shrinking so soon after growing doubles the calm */
#define DEAD_PART 4        /* differences below 1/4 of the reserve change nothing */

#define LOOK_NS ((int64_t)250000000)
#define LOOK_SOON_NS (LOOK_NS / 5)
#define REFRESH_NS (LOOK_NS / 20)
#define TEXT_BYTES 160
#define LINE_NAME "the memory line"

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

/* The smaller one of the given bound and the line. */
static plim__headroom_bound_t bounded(const plim__governor_t *governor,
                                      const plim__headroom_bound_t *bound)
{
    plim__headroom_bound_t smaller = *bound;
    if (governor->line < bound->bytes) {
        smaller.bytes = smaller.limit = governor->line;
        smaller.others = 0;
        smaller.file = LINE_NAME;
    }
    return smaller;
}

/* What the bound leaves for the caches, without the reserve and fixed memory. */
static int64_t left_by(const plim__governor_t *governor, const plim__headroom_bound_t *bound)
{
    return bound->bytes == PLIM_LINE_NONE ? governor->cache
                                          : bound->bytes - governor->reserve - bound->fixed;
}

static int64_t wanted_by(const plim__governor_t *governor, const plim__headroom_bound_t *bound)
{
    return plim__min_i64(plim__max_i64(left_by(governor, bound), 0), governor->cache);
}

static int64_t dead_band(const plim__governor_t *governor)
{
    return governor->reserve / DEAD_PART;
}

static bool is_scarce(const plim__governor_t *governor, const plim__headroom_bound_t *bound)
{
    return wanted_by(governor, bound) < governor->target - dead_band(governor);
}

/* Nothing is left to drop, and a part of the reserve is in use: a neighbour that grows by 100 MiB/s
 * takes the rest of it in a quarter of a second. */
static bool is_tight(const plim__governor_t *governor, const plim__headroom_bound_t *bound)
{
    return left_by(governor, bound) < -dead_band(governor);
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
    /* When the run may be killed there is no time to wait. */
    if (tight == governor->tight && now - governor->low_since < SHORTAGE)
        return false;
    /* Once for each growth, however many steps the others take. */
    if (governor->grew_at > 0)
        governor->calm =
            now - governor->grew_at < SOON ? plim__min_i64(2 * governor->calm, CALM_MAX) : CALM;
    governor->grew_at = 0;
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
    const plim__headroom_bound_t smaller = bounded(governor, bound);
    const int64_t dead = dead_band(governor);
    const int64_t wanted = wanted_by(governor, &smaller);
    const bool tight = is_tight(governor, &smaller);
    if (is_scarce(governor, &smaller) || (tight && !governor->tight)) {
        governor->high = -1;
        return shrink(governor, now, plim__min_i64(wanted, governor->target),
                      tight || governor->tight, &smaller);
    }
    governor->low_since = -1;
    if (wanted > governor->target + dead ||
        (wanted > governor->target && wanted == governor->cache) ||
        (governor->tight && left_by(governor, &smaller) >= 0))
        return grow(governor, now, wanted, &smaller);
    governor->high = -1;
    return false;
}

bool plim__governor_retarget(plim__governor_t *governor, const plim__headroom_bound_t *bound)
{
    const plim__headroom_bound_t smaller = bounded(governor, bound);
    const int64_t wanted = wanted_by(governor, &smaller);
    const bool tight = is_tight(governor, &smaller);
    if (wanted == governor->target && tight == governor->tight)
        return false;
    return change(governor, wanted, tight, &smaller);
}

static int64_t bytes_of(const plim__source_t *source)
{
    const plim__droppable_t *memory = plim__source_memory(source);
    return memory != NULL ? (int64_t)memory->bytes : 0;
}

static int64_t cache_bytes(const plim__load_context_t *context)
{
    int64_t sum = 0;
    for (int i = 0; i < context->num_disk; i++)
        sum += bytes_of(context->disk[i]);
    return sum;
}

/* A source's part of the target: the same share as when the caches were divided, and all that is
 * left for the last one. */
static int64_t target_of(const plim__governor_t *governor, const plim__load_context_t *context,
                         int number)
{
    int64_t left = governor->target, part = 0;
    if (governor->target == governor->cache)
        return bytes_of(context->disk[number]);
    for (int i = 0; i <= number; i++) {
        left -= part;
        part = (int64_t)((double)bytes_of(context->disk[i]) * (double)governor->target /
                         (double)governor->cache);
    }
    return number + 1 < context->num_disk ? part : left;
}

void plim__governor_open(plim__governor_t *governor, const plim__load_context_t *context)
{
    plim_ledger_t *ledger = context->asked->ledger;
    plim__governor_start(governor, plim__ledger_line(ledger), plim__ledger_reserve_bytes(ledger),
                         cache_bytes(context));
    plim__headroom_open("", &governor->headroom);
}

void plim__governor_close(plim__governor_t *governor)
{
    plim__headroom_close(&governor->headroom);
}

static const char *name_of(const plim__headroom_bound_t *bound)
{
    return bound->file != NULL ? bound->file : "this machine's memory";
}

/* "memory.max 1.2 GiB, 300 MiB of it used by other processes" */
static const char *cause(const plim__headroom_bound_t *bound, char text_out[TEXT_BYTES])
{
    const char *file = name_of(bound);
    char limit[PLIM__SIZE_TEXT], others[PLIM__SIZE_TEXT];
    (void)plim__size_text(bound->limit, limit);
    (void)plim__size_text(bound->others, others);
    if (bound->others == 0)
        (void)snprintf(text_out, TEXT_BYTES, "%s %s", file, limit);
    else
        (void)snprintf(text_out, TEXT_BYTES, "%s %s, %s of it used by other processes", file, limit,
                       others);
    return text_out;
}

/* "310 MiB of 800 MiB of rows and 90 MiB of 90 MiB of lists". */
static const char *cache_text(const plim__governor_t *governor, const plim__load_context_t *context,
                              char text_out[TEXT_BYTES])
{
    size_t length = 0;
    text_out[0] = '\0';
    for (int i = context->num_disk - 1; i >= 0 && length < TEXT_BYTES; i--) {
        const plim__source_t *source = context->disk[i];
        char now[PLIM__SIZE_TEXT], all[PLIM__SIZE_TEXT];
        if (bytes_of(source) == 0)
            continue;
        (void)plim__size_text(target_of(governor, context, i), now);
        (void)plim__size_text(bytes_of(source), all);
        const int added = snprintf(text_out + length, TEXT_BYTES - length, "%s%s of %s of %s",
                                   length > 0 ? " and " : "", now, all, source->items);
        length += added > 0 ? (size_t)added : 0;
    }
    return text_out;
}

static void log_change(const plim__governor_t *governor, const plim__load_context_t *context,
                       int64_t target_before, bool tight_before)
{
    char why[TEXT_BYTES], caches[TEXT_BYTES], limit[PLIM__SIZE_TEXT], fixed[PLIM__SIZE_TEXT];
    (void)cause(&governor->bound, why);
    (void)cache_text(governor, context, caches);
    (void)plim__size_text(plim__max_i64(governor->bound.bytes, 0), limit);
    (void)plim__size_text(governor->bound.fixed, fixed);
    if (governor->tight && !tight_before)
        plim__log(context->asked, PLIM_LOG_WARNING,
                  "this process may hold only %s now (%s), but needs %s without its caches: the "
                  "kernel may kill it",
                  limit, why, fixed);
    else if (governor->target < target_before)
        plim__log(context->asked, PLIM_LOG_INFO,
                  "this process may hold only %s now (%s), and needs %s without its caches: the "
                  "caches shrink to %s; the result stays the same",
                  limit, why, fixed, caches);
    else if (governor->cache > 0)
        plim__log(context->asked, PLIM_LOG_INFO, "memory is available again: the caches hold %s",
                  caches);
    else
        plim__log(context->asked, PLIM_LOG_INFO, "memory is available again");
}

void plim__governor_apply(const plim__governor_t *governor, plim__load_context_t *context)
{
    for (int i = 0; i < context->num_disk; i++)
        if (plim__source_memory(context->disk[i]) != NULL)
            plim__droppable_limit(plim__source_memory(context->disk[i]),
                                  (size_t)target_of(governor, context, i));
}

/* Refills what the caches have lost; with windows their builder does it. An error is ignored: the
 * batches then read from disk, and report an error that lasts. */
static void refresh(const plim__load_context_t *context)
{
    plim_status_t status = PLIM_OK;
    for (int i = 0; !context->params.windowed && i < context->num_disk && status == PLIM_OK; i++)
        status = plim__source_refresh(context->disk[i], 0, REFRESH_NS);
}

int64_t plim__governor_resident(const plim__load_context_t *context)
{
    int64_t sum = 0;
    for (int i = 0; i < context->num_disk; i++)
        if (plim__source_memory(context->disk[i]) != NULL)
            sum += (int64_t)plim__droppable_filled_bytes(plim__source_memory(context->disk[i]));
    return sum;
}

/* Reads the bound. What the kernel has taken of the caches cannot be given back: where memory is
 * scarce, only what is still there counts as droppable. */
static void read_bound(plim__governor_t *governor, const plim__load_context_t *context,
                       plim__headroom_bound_t *bound_out)
{
    const int64_t cached = plim__governor_resident(context);
    plim__headroom_read(&governor->headroom, cached, bound_out);
    const plim__headroom_bound_t smaller = bounded(governor, bound_out);
    if (is_scarce(governor, &smaller))
        plim__headroom_read(&governor->headroom, plim__headroom_left(&governor->headroom, cached),
                            bound_out);
}

bool plim__governor_look(plim__governor_t *governor, plim__load_context_t *context)
{
    const int64_t now = plim__clock_ns(), target_before = governor->target;
    const bool tight_before = governor->tight;
    plim__headroom_bound_t bound;
    if (now < governor->next_look)
        return false;
    /* Sooner when little is left to drop, or memory gets scarce. */
    const bool soon = governor->target < governor->reserve || governor->low_since >= 0;
    governor->next_look = now + (soon ? LOOK_SOON_NS : LOOK_NS);
    read_bound(governor, context, &bound);
    if (plim__governor_see(governor, now, &bound)) {
        plim__governor_apply(governor, context);
        log_change(governor, context, target_before, tight_before);
    }
    refresh(context);
    return governor->target < target_before;
}

void plim__governor_headroom(plim__governor_t *governor, const plim__load_context_t *context,
                             plim_headroom_t *headroom_out)
{
    const int64_t cached =
        plim__headroom_left(&governor->headroom, plim__governor_resident(context));
    plim__headroom_bound_t bound;
    int64_t files;
    plim__headroom_read_anonymous(&governor->headroom, cached, &bound, &files);
    /* Below the limits of the kernel nothing drops code: it counts under the line. */
    if (governor->line < bound.limit && governor->line - files < bound.bytes) {
        bound.bytes = governor->line - files;
        bound.limit = governor->line;
        bound.file = LINE_NAME;
    }
    plim_headroom_t headroom = {.size = sizeof headroom,
                                .bound = bound.bytes,
                                .held = bound.fixed,
                                .cached = cached,
                                .files = files,
                                .reserve = governor->reserve,
                                .limit = bound.limit};
    (void)snprintf(headroom.source, sizeof headroom.source, "%s", name_of(&bound));
    plim__output_give(headroom_out, &headroom, sizeof headroom);
}

bool plim__governor_look_now(plim__governor_t *governor, plim__load_context_t *context)
{
    const int64_t target_before = governor->target;
    plim__headroom_bound_t bound;
    read_bound(governor, context, &bound);
    if (plim__governor_retarget(governor, &bound))
        plim__governor_apply(governor, context);
    return governor->target < target_before;
}
