#include "source/cache.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/threads.h"
#include "store/sweep.h"

#define THREADS_MAX 8

static size_t stack_bytes(const plim_job_t *job, int workers, int *threads_out)
{
    const int threads = workers < job->threads ? workers : job->threads;
    *threads_out = threads < THREADS_MAX ? threads : THREADS_MAX;
    return (size_t)(*threads_out - 1) * PLIM__STACK_BYTES;
}

size_t plim__cache_filling(const plim_job_t *job, const plim__source_params_t *params)
{
    int threads;
    return params->all ? plim__sweep_minimum(job, PLIM__CACHE_CHUNK)
                       : stack_bytes(job, params->workers, &threads);
}

plim_status_t plim__cache_fill(plim__cache_t *cache, const char *account, const char *phase,
                               plim__droppable_fill_fn fill)
{
    int threads, number;
    const size_t stacks = stack_bytes(&cache->job, cache->source->num_workers, &threads);
    PLIM_TRY(plim__ledger_reserve(cache->job.ledger, account, stacks, &number));
    plim_status_t status =
        plim__droppable_fill(&cache->memory, &cache->job, threads, phase, fill, cache);
    plim__ledger_release(cache->job.ledger, number, stacks);
    return status;
}

plim_status_t plim__cache_fill_all(plim__cache_t *cache, int64_t bytes, const char *phase,
                                   plim_status_t (*process)(void *context, int worker,
                                                            int64_t chunk, void *data, size_t size),
                                   plim_status_t (*merge)(void *context, int worker, int64_t chunk,
                                                          void *data, size_t size))
{
    const plim__sweep_t sweep = {.file = &cache->source->file,
                                 .entry = cache->source->entry,
                                 .start = PLIM__NPY_HEADER,
                                 .end = PLIM__NPY_HEADER + bytes,
                                 .chunk = PLIM__CACHE_CHUNK,
                                 .phase = phase,
                                 .context = cache,
                                 .process = process,
                                 .merge = merge};
    plim__droppable_fill_begin(&cache->memory);
    plim_status_t status = plim__sweep_run(&cache->job, &sweep);
    plim__droppable_fill_end(&cache->memory);
    return status;
}

void plim__cache_begin(plim__cache_t *cache, const plim_job_t *job,
                       const plim__source_params_t *params, plim__source_t *source,
                       plim__droppable_fill_fn fill, const plim__arena_t *arena)
{
    cache->arena = *arena;
    cache->job = *job;
    if (!params->all && params->cached != NULL)
        cache->nodes = *params->cached;
    cache->source = source;
    source->cache = cache;
    cache->fill = fill;
}

void plim__cache_end(plim__cache_t *cache)
{
    plim__droppable_end(&cache->memory);
    plim__arena_destroy(&cache->arena);
}

void plim__cache_walk_start(plim__cache_walk_t *walk, const plim__node_set_t *nodes, int64_t from)
{
    const int64_t most = (int64_t)(sizeof walk->listed / sizeof walk->listed[0]);
    walk->nodes = nodes;
    walk->next = nodes != NULL ? 0 : from;
    walk->count = nodes != NULL ? plim__node_set_list(nodes, from, most, walk->listed) : INT64_MAX;
}

int64_t plim__cache_walk_next(plim__cache_walk_t *walk)
{
    if (walk->nodes == NULL)
        return walk->next++;
    if (walk->next == walk->count && walk->count > 0)
        plim__cache_walk_start(walk, walk->nodes, walk->listed[walk->count - 1] + 1);
    return walk->next < walk->count ? walk->listed[walk->next++] : -1;
}

plim_status_t plim__cache_reads_run(plim__cache_reads_t *reads)
{
    const plim__source_worker_t *worker = &reads->source->workers[reads->worker];
    const int64_t count = reads->count;
    reads->count = 0;
    return plim__range_reader_read(worker->reader, reads->file, worker->reads, count);
}

plim_status_t plim__cache_reads_add(plim__cache_reads_t *reads, int64_t offset, size_t size,
                                    char *to)
{
    const size_t most = reads->source->max_read;
    plim__read_t *queue = reads->source->workers[reads->worker].reads;
    for (size_t part; size > 0; offset += (int64_t)part, to += part, size -= part) {
        plim__read_t *last = reads->count > 0 ? &queue[reads->count - 1] : NULL;
        part = size < most ? size : most;
        if (last != NULL && last->size < most && last->offset + (int64_t)last->size == offset &&
            (char *)last->to + last->size == to) {
            part = part < most - last->size ? part : most - last->size;
            last->size += part;
            continue;
        }
        if (reads->count == reads->source->num_reads)
            PLIM_TRY(plim__cache_reads_run(reads));
        queue[reads->count++] = (plim__read_t){offset, part, to};
    }
    return PLIM_OK;
}
