#include "source/source.h"

#include "base/clock.h"
#include "base/fail.h"
#include "source/cache.h"

#include <string.h>

void plim__source_lay_out(plim__arena_t *arena, plim__source_t *source)
{
    const size_t reads = (size_t)source->num_reads, keys = (size_t)source->num_keys;
    source->workers =
        plim__arena_carve(arena, (size_t)source->num_workers, sizeof(plim__source_worker_t), 1);
    for (int i = 0; i < source->num_workers; i++) {
        const plim__source_worker_t worker = {
            .reads = plim__arena_carve(arena, reads, sizeof(plim__read_t), 1),
            .keys = plim__arena_carve(arena, keys, sizeof(uint64_t), 1),
            .sort_scratch = plim__arena_carve(arena, keys, sizeof(uint64_t), 1)};
        if (source->workers != NULL)
            memcpy(&source->workers[i], &worker, sizeof worker);
    }
}

static plim__range_reader_params_t reader_params(const plim__source_t *source,
                                                 const plim__source_params_t *params)
{
    return (plim__range_reader_params_t){params->depth, source->max_read, params->merge_distance};
}

size_t plim__source_readers_bytes(const plim_job_t *job, const plim__source_t *source,
                                  const plim__source_params_t *params)
{
    const plim__range_reader_params_t reader = reader_params(source, params);
    return (size_t)params->workers * plim__range_reader_estimate(job->io_engine, &reader);
}

plim_status_t plim__source_open(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__source_params_t *params, plim__source_t *source)
{
    const plim__range_reader_params_t reader = reader_params(source, params);
    PLIM_TRY(plim__dataset_file_open(dataset, source->entry, true, &source->file));
    if (!params->all) /* otherwise it is rarely used */
        plim__arena_touch(&source->arena);
    for (int i = 0; i < source->num_workers; i++)
        PLIM_TRY(plim__range_reader_create(job, &reader, &source->workers[i].reader));
    return PLIM_OK;
}

void plim__source_close(plim__source_t *source)
{
    for (int i = source->num_workers - 1; i >= 0; i--)
        plim__range_reader_destroy(source->workers[i].reader);
    plim__file_close(&source->file);
    plim__arena_destroy(&source->arena);
}

plim_status_t plim__source_read(plim__source_t *source, int worker_number, const plim__file_t *file,
                                int64_t first, int64_t count)
{
    plim__source_worker_t *worker = &source->workers[worker_number];
    int64_t transfers_before, bytes_before, transfers, bytes;
    plim__range_reader_totals(worker->reader, &transfers_before, &bytes_before);
    const int64_t start = plim__clock_ns();
    plim_status_t status =
        plim__range_reader_read(worker->reader, file, worker->reads + first, count);
    plim__source_count(&worker->wait_ns, plim__clock_ns() - start);
    plim__range_reader_totals(worker->reader, &transfers, &bytes);
    plim__source_count(&worker->transfers, transfers - transfers_before);
    plim__source_count(&worker->bytes_read, bytes - bytes_before);
    return status;
}

plim__source_stats_t plim__source_stats(const plim__source_t *source)
{
    plim__source_stats_t sum = {0};
    for (int i = 0; source != NULL && i < source->num_workers; i++) {
        const plim__source_worker_t *worker = &source->workers[i];
        sum.items += atomic_load_explicit(&worker->items, memory_order_relaxed);
        sum.cached += atomic_load_explicit(&worker->cached, memory_order_relaxed);
        sum.lost += atomic_load_explicit(&worker->lost, memory_order_relaxed);
        sum.transfers += atomic_load_explicit(&worker->transfers, memory_order_relaxed);
        sum.bytes_read += atomic_load_explicit(&worker->bytes_read, memory_order_relaxed);
        sum.wait_ns += atomic_load_explicit(&worker->wait_ns, memory_order_relaxed);
    }
    return sum;
}

plim__droppable_t *plim__source_memory(const plim__source_t *source)
{
    return source != NULL && source->cache != NULL ? &source->cache->memory : NULL;
}

plim_status_t plim__source_refresh(plim__source_t *source, int worker, int64_t nanoseconds)
{
    if (source == NULL || source->cache == NULL)
        return PLIM_OK;
    return plim__droppable_refresh(&source->cache->memory, worker, nanoseconds, source->cache->fill,
                                   source->cache);
}
