/*
 * Creating a build and adding edges to it.
 *
 * What 1.6 G edges among 111 M nodes cost, at 8 bytes a key:
 *
 *     add      reads 16 B an edge from the caller, writes one key into the worker's gathered keys
 *              (half a megabyte for all ranges, in the second-level cache), and copies 32-64 keys
 *              at a time to the range's chunk, for one lock and two cache misses
 *     spill    12.9 GB written once and read once, in chunks of 256-512 KiB
 *     finish   each range (about a million keys) read, scattered once and then sorted in cache;
 *              6.5 GB of indices and 0.9 GB of offsets written
 *
 * Lock order: a range's lock before the spill's.
 */
#include "ingest/csc_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "mem/size_text.h"

#include <string.h>

/* Edges between two checks of the stop flag. */
#define TASK_EDGES ((int64_t)1 << 16)

/* A pool of at least this size uses huge pages. */
#define HUGE_BYTES ((size_t)64 << 20)

void plim__csc_lay_out(plim__arena_t *arena, void *draft)
{
    plim__csc_t *csc = draft;
    const plim__csc_shape_t *shape = &csc->shape;
    const size_t ranges = (size_t)shape->num_ranges, threads = (size_t)csc->job.threads;
    const size_t parts = (size_t)shape->split_levels << shape->split_bits;
    csc->ranges = plim__arena_carve(arena, ranges, sizeof(plim__csc_range_t), 64);
    csc->gathers = plim__arena_carve(arena, threads, sizeof(plim__csc_gather_t), 1);
    csc->sorters = plim__arena_carve(arena, (size_t)shape->sorters, sizeof(plim__csc_sorter_t), 1);
    csc->parts = plim__arena_carve(arena, parts, sizeof(plim__csc_part_t), 1);
    for (size_t i = 0; i < threads; i++) {
        plim__csc_gather_t gather;
        gather.keys =
            plim__arena_carve(arena, ranges, (size_t)shape->combine * sizeof(uint64_t), 1);
        gather.fill = plim__arena_carve(arena, ranges, sizeof(uint16_t), 1);
        if (csc->gathers != NULL)
            csc->gathers[i] = gather;
    }
    csc->spill = plim__spill_carve(arena, &shape->spill);
    csc->pool =
        plim__arena_carve(arena, (size_t)shape->spill.num_buffers, shape->spill.chunk, PLIM__PAGE);
}

plim_status_t plim__csc_create(const plim_job_t *job, const plim__csc_params_t *params,
                               plim__csc_t **csc_out)
{
    plim__csc_shape_t shape;
    if (!plim__csc_shape(job, params, &shape)) {
        char minimum[PLIM__SIZE_TEXT], given[PLIM__SIZE_TEXT];
        size_t bytes = plim__csc_minimum(job, params);
        if (bytes > INT64_MAX)
            return plim__fail(
                PLIM_ERR_USAGE,
                "cannot build adjacency lists of %lld nodes and %lld edges with %d threads",
                (long long)params->num_nodes, (long long)params->max_edges, job->threads);
        (void)plim__fail(PLIM_ERR_BUDGET,
                         "building the adjacency lists needs at least %s, but has %s; raise "
                         "`memory`",
                         plim__size_text((int64_t)bytes, minimum),
                         plim__size_text((int64_t)params->memory, given));
        return plim__fail_figures(PLIM_ERR_BUDGET, "line", (int64_t)bytes, (int64_t)params->memory);
    }
    plim__csc_t draft = {.job = *job, .params = *params, .shape = shape}, *csc;
    draft.params.remove_duplicates = params->remove_duplicates || params->symmetrise;
    PLIM_TRY(plim__object_create(job->ledger, "csc build", plim__csc_lay_out, &draft, sizeof draft,
                                 &draft.arena, &csc));
    plim_status_t status = plim__spill_open(&csc->job, &csc->shape.spill, csc->spill);
    if (status != PLIM_OK) {
        plim__arena_destroy(&csc->arena);
        return status;
    }
    const size_t pool = shape.spill.chunk * (size_t)shape.spill.num_buffers;
    if (pool >= HUGE_BYTES)
        plim__arena_want_huge(csc->pool, pool);
    plim__spill_lend(csc->spill, csc->pool, shape.spill.num_buffers);
    for (int64_t i = 0; i < shape.num_ranges; i++) {
        pthread_mutex_init(&csc->ranges[i].lock, NULL);
        csc->ranges[i].list = PLIM__SPILL_LIST_INIT;
    }
    *csc_out = csc;
    return PLIM_OK;
}

void plim__csc_destroy(plim__csc_t *csc)
{
    if (csc == NULL)
        return;
    plim__spill_close(csc->spill);
    for (int64_t i = 0; i < csc->shape.num_ranges; i++)
        pthread_mutex_destroy(&csc->ranges[i].lock);
    plim__arena_destroy(&csc->arena);
}

/* Appends keys to the range's chunk; puts the chunk into the spill when it is full. Lock held. */
static plim_status_t append(plim__csc_t *csc, plim__csc_range_t *range, const uint64_t *keys,
                            int64_t count)
{
    int64_t full = (int64_t)(csc->shape.spill.chunk / sizeof(uint64_t));
    while (count > 0) {
        if (range->buffer == NULL)
            PLIM_TRY(plim__spill_take(csc->spill, &range->buffer));
        int64_t moved = plim__min_i64(count, full - range->fill);
        memcpy(range->buffer + range->fill, keys, (size_t)moved * sizeof *keys);
        range->fill += moved;
        keys += moved;
        count -= moved;
        if (range->fill == full) {
            uint64_t *buffer = range->buffer;
            range->buffer = NULL;
            range->fill = 0;
            PLIM_TRY(plim__spill_put(csc->spill, &range->list, buffer, full));
        }
    }
    return PLIM_OK;
}

static plim_status_t pass_on(plim__csc_t *csc, plim__csc_gather_t *gather, int64_t number)
{
    plim__csc_range_t *range = &csc->ranges[number];
    int64_t count = gather->fill[number];
    gather->fill[number] = 0;
    pthread_mutex_lock(&range->lock);
    plim_status_t status = append(csc, range, gather->keys + number * csc->shape.combine, count);
    pthread_mutex_unlock(&range->lock);
    return status;
}

/* Gathers one edge; true when its range's gathered keys are to be passed on. */
static inline bool gather_edge(const plim__csc_shape_t *shape, plim__csc_gather_t *gather,
                               uint64_t source, uint64_t destination, uint64_t *range_out)
{
    uint64_t range = destination >> shape->range_bits;
    uint64_t within = destination & (((uint64_t)1 << shape->range_bits) - 1);
    uint32_t fill = gather->fill[range];
    gather->keys[range * (uint64_t)shape->combine + fill] = within << shape->source_bits | source;
    gather->fill[range] = (uint16_t)++fill;
    *range_out = range;
    return fill == (uint32_t)shape->combine;
}

static plim_status_t add_task(plim__csc_t *csc, plim__csc_gather_t *gather, const int64_t *source,
                              const int64_t *destination, int64_t count, int64_t *bad_out)
{
    const plim__csc_shape_t shape = csc->shape;
    const uint64_t num_nodes = (uint64_t)csc->params.num_nodes;
    const bool symmetrise = csc->params.symmetrise;
    uint64_t range;
    for (int64_t i = 0; i < count; i++) {
        uint64_t from = (uint64_t)source[i], to = (uint64_t)destination[i];
        if (from >= num_nodes || to >= num_nodes) {
            *bad_out = i;
            return PLIM_ERR_DATA;
        }
        if (gather_edge(&shape, gather, from, to, &range))
            PLIM_TRY(pass_on(csc, gather, (int64_t)range));
        if (symmetrise && gather_edge(&shape, gather, to, from, &range))
            PLIM_TRY(pass_on(csc, gather, (int64_t)range));
    }
    return PLIM_OK;
}

plim_status_t plim__csc_add(plim__csc_t *csc, int worker, const int64_t *source,
                            const int64_t *destination, int64_t count, int64_t *bad_out)
{
    if (atomic_fetch_add(&csc->added, count) > csc->params.max_edges - count)
        return plim__fail(PLIM_ERR_USAGE, "more edges than the %lld that were announced",
                          (long long)csc->params.max_edges);
    for (int64_t begin = 0; begin < count; begin += TASK_EDGES) {
        int64_t bad = -1;
        PLIM_TRY(plim__job_check(&csc->job));
        plim_status_t status =
            add_task(csc, &csc->gathers[worker], source + begin, destination + begin,
                     plim__min_i64(TASK_EDGES, count - begin), &bad);
        if (bad >= 0) {
            bad += begin;
            if (bad_out != NULL)
                *bad_out = bad;
            return plim__fail(PLIM_ERR_DATA,
                              "edge %lld → %lld: ids must be at least 0 and less than the number "
                              "of nodes, %lld",
                              (long long)source[bad], (long long)destination[bad],
                              (long long)csc->params.num_nodes);
        }
        PLIM_TRY(status);
    }
    return PLIM_OK;
}

plim_status_t plim__csc_gathered(plim__csc_t *csc)
{
    for (int64_t i = 0; i < csc->shape.num_ranges; i++) {
        plim__csc_range_t *range = &csc->ranges[i];
        for (int worker = 0; worker < csc->job.threads; worker++)
            PLIM_TRY(pass_on(csc, &csc->gathers[worker], i));
        if (range->fill == 0)
            continue;
        uint64_t *buffer = range->buffer;
        int64_t fill = range->fill;
        range->buffer = NULL;
        range->fill = 0;
        PLIM_TRY(plim__spill_put(csc->spill, &range->list, buffer, fill));
    }
    return PLIM_OK;
}
