/* The loader's governor at work: it reads the meter now and then, sets the caches' target, and logs
 * what it changed. */
#include "base/check.h"
#include "base/clock.h"
#include "base/job.h"
#include "load/loader.h"
#include "mem/arena.h"
#include "mem/size_text.h"

#include <stdatomic.h>
#include <stdio.h>

#define LOOK_NS ((int64_t)250000000)
#define LOOK_SOON_NS (LOOK_NS / 5)
#define REFRESH_NS (LOOK_NS / 20)
#define TEXT_BYTES 160

static int64_t bytes_of(const plim__droppable_t *memory)
{
    return memory != NULL ? (int64_t)memory->bytes : 0;
}

static int64_t kept_rows(const plim_loader_t *loader)
{
    return bytes_of(plim__rows_disk_memory(loader->base.rows));
}

static int64_t kept_lists(const plim_loader_t *loader)
{
    return bytes_of(plim__topology_disk_memory(loader->base.topology));
}

/* The lists' part of the target: as they shared the cache when their worth divided it. */
static int64_t target_lists(const plim_loader_t *loader)
{
    const plim__governor_t *governor = &loader->governor;
    if (governor->target == governor->cache)
        return kept_lists(loader);
    return (int64_t)((double)kept_lists(loader) * (double)governor->target /
                     (double)governor->cache);
}

void plim__load_govern_begin(plim_loader_t *loader)
{
    plim_ledger_t *ledger = loader->asked->ledger;
    plim__headroom_open("", &loader->headroom);
    plim__governor_start(&loader->governor, plim__ledger_line(ledger),
                         plim__ledger_reserve_bytes(ledger),
                         kept_rows(loader) + kept_lists(loader));
    loader->cache_now = loader->governor.cache;
}

const plim__governor_t *plim__loader_governor(const plim_loader_t *loader)
{
    return &loader->governor;
}

/* "memory.max 1.2 GiB, of which others hold 300 MiB" */
static const char *cause(const plim__headroom_bound_t *bound, char text_out[TEXT_BYTES])
{
    const char *file = bound->file != NULL ? bound->file : "memory of this machine";
    char limit[PLIM__SIZE_TEXT], others[PLIM__SIZE_TEXT];
    (void)plim__size_text(bound->limit, limit);
    (void)plim__size_text(bound->others, others);
    if (bound->others == 0)
        (void)snprintf(text_out, TEXT_BYTES, "%s %s", file, limit);
    else
        (void)snprintf(text_out, TEXT_BYTES, "%s %s, of which others hold %s", file, limit, others);
    return text_out;
}

/* "310 MiB of 800 MiB of rows and 90 MiB of 90 MiB of lists"; what there is of them. */
static const char *kept_text(const plim_loader_t *loader, char text_out[TEXT_BYTES])
{
    char now[2][PLIM__SIZE_TEXT], all[2][PLIM__SIZE_TEXT];
    const int64_t all_rows = kept_rows(loader), all_lists = kept_lists(loader);
    (void)plim__size_text(loader->governor.target - target_lists(loader), now[0]);
    (void)plim__size_text(all_rows, all[0]);
    (void)plim__size_text(target_lists(loader), now[1]);
    (void)plim__size_text(all_lists, all[1]);
    if (all_rows > 0 && all_lists > 0)
        (void)snprintf(text_out, TEXT_BYTES, "%s of %s of rows and %s of %s of lists", now[0],
                       all[0], now[1], all[1]);
    else
        (void)snprintf(text_out, TEXT_BYTES, "%s of %s of %s", now[all_rows == 0],
                       all[all_rows == 0], all_rows > 0 ? "rows" : "lists");
    return text_out;
}

static void log_change(const plim_loader_t *loader, const plim__governor_t *before)
{
    const plim__governor_t *governor = &loader->governor;
    char why[TEXT_BYTES], kept[TEXT_BYTES], room[PLIM__SIZE_TEXT], fixed[PLIM__SIZE_TEXT];
    (void)cause(&governor->bound, why);
    (void)kept_text(loader, kept);
    (void)plim__size_text(plim__max_i64(governor->bound.bytes, 0), room);
    (void)plim__size_text(governor->bound.fixed, fixed);
    if (governor->tight && !before->tight)
        plim__log(loader->asked, PLIM_LOG_WARNING,
                  "only %s can be held now (%s), and this process holds %s besides its caches: the "
                  "kernel may end it; stop it (SIGTERM), and go on with a smaller --memory (a run "
                  "that trains saves now, and goes on with train --resume)",
                  room, why, fixed);
    else if (governor->target < before->target)
        plim__log(
            loader->asked, PLIM_LOG_INFO,
            "only %s can be held now (%s), and this process holds %s besides its caches: kept "
            "in memory are %s; the result stays the same",
            room, why, fixed, kept);
    else if (governor->cache > 0)
        plim__log(loader->asked, PLIM_LOG_INFO, "there is memory again: kept in memory are %s",
                  kept);
    else
        plim__log(loader->asked, PLIM_LOG_INFO, "there is memory again");
}

static void set_limit(plim__droppable_t *memory, int64_t bytes)
{
    if (memory != NULL)
        plim__droppable_limit(memory, (size_t)bytes);
}

void plim__load_resize(plim_loader_t *loader, int64_t target)
{
    loader->stale |= loader->builder != NULL && target < loader->cache_now;
    loader->cache_now = target;
    loader->governor.target = target;
    set_limit(plim__rows_disk_memory(loader->base.rows), target - target_lists(loader));
    set_limit(plim__topology_disk_memory(loader->base.topology), target_lists(loader));
}

/* Without windows nobody else brings back what the caches have lost. Where that fails it is read
 * batch by batch, and the error, if it lasts, is theirs. */
static void refresh(plim_loader_t *loader)
{
    if (loader->builder == NULL &&
        plim__topology_disk_refresh(loader->base.topology, 0, REFRESH_NS) == PLIM_OK)
        (void)plim__rows_disk_refresh(loader->base.rows, 0, REFRESH_NS);
}

void plim__loader_yield(plim_loader_t *loader, bool yields)
{
    loader->yields = yields;
}

static atomic_int squeeze_countdown;

void plim__loader_squeeze_at(int n)
{
    atomic_store(&squeeze_countdown, n);
}

/* True for the one batch that a test has chosen. */
static bool must_squeeze(void)
{
    return atomic_load(&squeeze_countdown) > 0 && atomic_fetch_sub(&squeeze_countdown, 1) == 1;
}

/* Of memory that can be dropped, what is filled; none: 0. */
static int64_t filled(const plim__droppable_t *memory)
{
    return memory != NULL ? (int64_t)plim__droppable_filled_bytes(memory) : 0;
}

int64_t plim__loader_cache_resident(const plim_loader_t *loader)
{
    return filled(plim__rows_disk_memory(loader->base.rows)) +
           filled(plim__topology_disk_memory(loader->base.topology));
}

/* Whether little is left that the kernel can take until the next look, or it becomes less. */
static bool is_closing_in(const plim__governor_t *governor)
{
    return governor->target < governor->reserve || governor->low_since >= 0;
}

void plim__load_govern(plim_loader_t *loader)
{
    if (must_squeeze()) {
        loader->governor.tight = true;
        return;
    }
    const int64_t now = plim__clock_ns();
    const plim__governor_t before = loader->governor;
    plim__headroom_bound_t bound;
    if (now < loader->next_look)
        return;
    loader->next_look = now + (is_closing_in(&loader->governor) ? LOOK_SOON_NS : LOOK_NS);
    plim__headroom_read(&loader->headroom, plim__loader_cache_resident(loader), &bound);
    if (plim__governor_see(&loader->governor, now, &bound)) {
        plim__load_resize(loader, loader->governor.target);
        log_change(loader, &before);
    }
    refresh(loader);
}

void plim__loader_settle(plim_loader_t *loader)
{
    plim__headroom_bound_t bound;
    plim__headroom_read(&loader->headroom, plim__loader_cache_resident(loader), &bound);
    if (plim__governor_settle(&loader->governor, &bound))
        plim__load_resize(loader, loader->governor.target);
}
