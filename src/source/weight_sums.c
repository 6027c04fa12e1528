#include "source/weight_sums.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "store/sweep.h"

#define CHUNK_BYTES ((int64_t)256 << 10) /* of weights */
#define CHUNK_ENTRIES (CHUNK_BYTES / (int64_t)sizeof(float))
#define AHEAD 16 /* nodes between a prefetch and its use */

/* The sum of a list, or of the part of it that a chunk holds. */
typedef struct list_sum {
    int64_t node;
    double others; /* edges from other nodes */
    double own;    /* the last self-loop */
    bool has_own;
} list_sum_t;

/* The first and the last list of a chunk, where it does not hold the whole list. */
typedef struct sums_worker {
    int num_parts;
    list_sum_t parts[2];
    char *entries; /* (CHUNK_ENTRIES) of indices.npy */
} sums_worker_t;

typedef struct sums_reading {
    const plim_dataset_t *dataset;
    const plim__offsets_t *offsets;
    plim__file_t indices; /* closed: there are no self-loops */
    float *sums;
    int num_workers;
    sums_worker_t *workers; /* (num_workers) */
    list_sum_t open;        /* merged in file order: the list that the last chunk ended with */
} sums_reading_t;

static size_t entries_bytes(const plim_dataset_info_t *info)
{
    return plim__round_up((size_t)CHUNK_ENTRIES * plim__index_bytes(info->index_type), PLIM__PAGE) +
           PLIM__PAGE;
}

static void lay_out_reading(plim__arena_t *arena, sums_reading_t *reading)
{
    const size_t bytes = entries_bytes(plim_dataset_info(reading->dataset));
    sums_worker_t *workers =
        plim__arena_carve(arena, (size_t)reading->num_workers, sizeof *workers, 1);
    char *entries = plim__arena_carve(arena, (size_t)reading->num_workers, bytes, PLIM__PAGE);
    reading->workers = workers;
    for (int i = 0; workers != NULL && i < reading->num_workers; i++)
        workers[i] = (sums_worker_t){.entries = entries + (size_t)i * bytes};
}

size_t plim__weight_sums_estimate(int64_t num_nodes)
{
    return plim__round_up(plim__mul_saturating_size((size_t)num_nodes, sizeof(float)), PLIM__PAGE);
}

size_t plim__weight_sums_work_minimum(const plim_job_t *job)
{
    return plim__sweep_minimum(job, CHUNK_BYTES) + (size_t)CHUNK_ENTRIES * sizeof(int64_t) +
           4 * PLIM__PAGE;
}

/* Reads entries [first, first + count) of indices.npy. */
static plim_status_t read_entries(const sums_reading_t *reading, const sums_worker_t *worker,
                                  int64_t first, int64_t count, const char **entries_out)
{
    const plim__file_t *file = &reading->indices;
    const plim_dataset_info_t *info = plim_dataset_info(reading->dataset);
    const int64_t bytes = (int64_t)plim__index_bytes(info->index_type);
    const int64_t unit = (int64_t)file->align, offset = PLIM__NPY_HEADER + first * bytes;
    const int64_t start = offset / unit * unit;
    *entries_out = worker->entries + (offset - start);
    return plim__file_read_at(
        file, start, worker->entries,
        plim__round_up((size_t)(offset + count * bytes - start), (size_t)unit));
}

static list_sum_t sum_list(const plim_dataset_info_t *info, const float *weights,
                           const char *entries, int64_t begin, int64_t end, int64_t node)
{
    const bool wide = info->index_type == PLIM_I64;
    list_sum_t sum = {.node = node, .own = 1};
    for (int64_t i = begin; i < end; i++) {
        if (entries == NULL || plim__index_at(entries, wide, i) != node) {
            sum.others += (double)weights[i];
        } else {
            sum.own = (double)weights[i];
            sum.has_own = true;
        }
    }
    return sum;
}

static void put(const sums_reading_t *reading, const list_sum_t *sum)
{
    if (sum->node >= 0)
        reading->sums[sum->node] = (float)(sum->others + sum->own);
}

static plim_status_t process(void *context, int number, int64_t chunk, void *data, size_t size)
{
    const sums_reading_t *reading = context;
    const plim_dataset_info_t *info = plim_dataset_info(reading->dataset);
    sums_worker_t *worker = &reading->workers[number];
    const int64_t first = chunk * CHUNK_ENTRIES, stop = first + (int64_t)(size / sizeof(float));
    const char *entries = NULL;
    if (reading->indices.fd >= 0)
        PLIM_TRY(read_entries(reading, worker, first, stop - first, &entries));
    worker->num_parts = 0;
    for (int64_t node = plim__offsets_node_of(reading->offsets, first); node < info->num_nodes;
         node++) {
        const plim__list_t list = plim__offsets_list(reading->offsets, node);
        const int64_t begin = plim__max_i64(list.start, first);
        const int64_t end = plim__min_i64(list.start + list.degree, stop);
        if (list.start >= stop)
            break;
        if (begin >= end)
            continue;
        const list_sum_t sum = sum_list(info, data, entries, begin - first, end - first, node);
        if (end - begin == list.degree)
            put(reading, &sum);
        else
            worker->parts[worker->num_parts++] = sum;
    }
    return PLIM_OK;
}

static plim_status_t merge(void *context, int number, int64_t chunk, void *data, size_t size)
{
    sums_reading_t *reading = context;
    const sums_worker_t *worker = &reading->workers[number];
    (void)chunk;
    (void)data;
    (void)size;
    for (int i = 0; i < worker->num_parts; i++) {
        const list_sum_t *part = &worker->parts[i];
        if (reading->open.node != part->node) {
            put(reading, &reading->open);
            reading->open = *part;
            continue;
        }
        reading->open.others += part->others;
        if (part->has_own)
            reading->open.own = part->own;
    }
    return PLIM_OK;
}

static plim_status_t read_weights(const plim_job_t *job, sums_reading_t *reading)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(reading->dataset);
    const plim__manifest_file_t *entry =
        &manifest->files[manifest->columns[__builtin_ctz(PLIM_EDGE_WEIGHT)]];
    plim_job_t own = *job; /* with as many threads as there are workers */
    plim__file_t file;
    const plim__sweep_t sweep = {.file = &file,
                                 .entry = entry,
                                 .start = PLIM__NPY_HEADER,
                                 .end = entry->bytes,
                                 .chunk = CHUNK_BYTES,
                                 .phase = "adding up weights of edges",
                                 .context = reading,
                                 .process = process,
                                 .merge = merge};
    own.threads = reading->num_workers;
    PLIM_TRY(plim__dataset_file_open(reading->dataset, entry, true, &file));
    const plim_status_t status = plim__sweep_run(&own, &sweep);
    plim__file_close(&file);
    put(reading, &reading->open);
    return status;
}

/* Takes workers as long as their buffers are a small part of what is left. */
static plim_status_t make_workers(const plim_job_t *job, sums_reading_t *reading,
                                  plim__arena_t *arena)
{
    const int64_t part = plim__ledger_available(job->ledger) / 4;
    const int64_t most = part / (int64_t)entries_bytes(plim_dataset_info(reading->dataset));
    reading->num_workers = (int)plim__max_i64(1, plim__min_i64(plim__job_threads(job), most));
    plim__arena_t counting = plim__arena_counting();
    lay_out_reading(&counting, reading);
    PLIM_TRY(plim__arena_create(job->ledger, "edge columns", counting.used, arena));
    lay_out_reading(arena, reading);
    return PLIM_OK;
}

static plim_status_t fill(const plim_job_t *job, sums_reading_t *reading)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(reading->dataset);
    plim__arena_t arena;
    plim_status_t status = PLIM_OK;
    PLIM_TRY(make_workers(job, reading, &arena));
    if (plim__dataset_max_self_loops(reading->dataset) != 0)
        status = plim__dataset_file_open(reading->dataset,
                                         &manifest->files[manifest->topologies[0].indices], true,
                                         &reading->indices);
    if (status == PLIM_OK)
        status = read_weights(job, reading);
    if (reading->indices.fd >= 0)
        plim__file_close(&reading->indices);
    plim__arena_destroy(&arena);
    return status;
}

plim_status_t plim__weight_sums_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim__offsets_t *offsets,
                                       plim__weight_sums_t *sums_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__weight_sums_t sums;
    PLIM_TRY(plim__arena_create(job->ledger, "edge columns",
                                plim__weight_sums_estimate(info->num_nodes), &sums.arena));
    sums.sums = (void *)sums.arena.base;
    for (int64_t v = 0; v < info->num_nodes; v++)
        sums.sums[v] = 1;
    sums_reading_t reading = {.dataset = dataset,
                              .offsets = offsets,
                              .indices = {.fd = -1},
                              .sums = sums.sums,
                              .open = {.node = -1}};
    const plim_status_t status = info->num_edges > 0 ? fill(job, &reading) : PLIM_OK;
    if (status != PLIM_OK) {
        plim__arena_destroy(&sums.arena);
        return status;
    }
    *sums_out = sums;
    return PLIM_OK;
}

void plim__weight_sums_destroy(plim__weight_sums_t *sums)
{
    if (sums->sums != NULL)
        plim__arena_destroy(&sums->arena);
    *sums = (plim__weight_sums_t){.sums = NULL};
}

void plim__weight_sums_of(const plim__weight_sums_t *sums, const int64_t *nodes, int64_t count,
                          float *sums_out)
{
    for (int64_t i = 0; i < count; i++) {
        __builtin_prefetch(&sums->sums[nodes[i + AHEAD < count ? i + AHEAD : i]]);
        sums_out[i] = sums->sums[nodes[i]];
    }
}
