#include "sample/access.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "sample/access_work.h"

#include <string.h>

/* Sizes of a worker's reads: uses the first with which all workers take at most a quarter of the
 * memory. */
static const struct {
    int depth;
    size_t block;
} shapes[] = {{16, (size_t)256 << 10}, {8, (size_t)128 << 10}, {4, (size_t)64 << 10}};
#define SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

static plim__access_t carve_sets(plim__arena_t *arena, int64_t num_nodes, bool packed)
{
    const size_t bytes = plim__node_set_bytes(num_nodes);
    plim__access_t access = {
        .lists = plim__node_set_make(plim__arena_carve(arena, 1, bytes, 1), num_nodes)};
    if (!packed)
        access.rows = plim__node_set_make(plim__arena_carve(arena, 1, bytes, 1), num_nodes);
    return access;
}

size_t plim__access_estimate(int64_t num_nodes, bool packed)
{
    plim__arena_t arena = plim__arena_counting();
    (void)carve_sets(&arena, num_nodes, packed);
    return plim__round_up(arena.used, PLIM__PAGE);
}

static plim__access_worker_t carve_worker(plim__arena_t *arena, const plim__access_layout_t *layout)
{
    const size_t depth = (size_t)layout->depth;
    plim__access_worker_t worker = {0};
    worker.slots = plim__arena_carve(arena, depth, sizeof(plim__access_slot_t), 1);
    worker.blocks = plim__arena_carve(arena, depth, layout->block, PLIM__PAGE);
    worker.parts = plim__arena_carve(arena, depth * (layout->block / PLIM__ACCESS_PART_EACH),
                                     sizeof(plim__access_part_t), 1);
    worker.codes = plim__arena_carve(arena, PLIM__ACCESS_CHUNK, sizeof(uint16_t), 1);
    worker.codes_after = plim__arena_carve(arena, PLIM__ACCESS_CHUNK, sizeof(uint16_t), 1);
    worker.at_cut = plim__arena_carve(arena, PLIM__ACCESS_CHUNK, 1, 1);
    for (int kind = 0; kind < 2; kind++)
        worker.bins[kind] = plim__arena_carve(arena, PLIM__ACCESS_BINS, sizeof(uint64_t), 1);
    (void)plim__arena_carve(arena, 1, PLIM__STACK_BYTES, 1); /* the thread's stack */
    return worker;
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__access_work_t *work = object;
    const plim__access_layout_t *layout = &work->layout;
    work->chances = plim__arena_carve(arena, PLIM__HAZARD_CODES, sizeof(float), 1);
    work->workers =
        plim__arena_carve(arena, (size_t)layout->workers, sizeof(plim__access_worker_t), 1);
    for (int i = 0; i < layout->workers; i++) {
        const plim__access_worker_t worker = carve_worker(arena, layout);
        if (work->workers != NULL)
            work->workers[i] = worker;
    }
    work->counters =
        plim__arena_carve(arena, (size_t)layout->capacity, sizeof(uint32_t), PLIM__PAGE);
    if (!layout->in_file)
        work->codes =
            plim__arena_carve(arena, (size_t)layout->capacity, sizeof(uint16_t), PLIM__PAGE);
}

static size_t layout_bytes(const plim__access_layout_t *layout)
{
    plim__access_work_t draft = {.layout = *layout};
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

static int64_t capacity_minimum(int64_t num_nodes)
{
    int64_t chunks = plim__access_chunks(num_nodes);
    return (chunks / PLIM__ACCESS_RANGES + 1) * PLIM__ACCESS_CHUNK;
}

size_t plim__access_work_minimum(const plim_job_t *job, int64_t num_nodes)
{
    const int depth = shapes[SHAPES - 1].depth;
    const plim__access_layout_t layout = {.workers = 1,
                                          .depth = depth,
                                          .block = shapes[SHAPES - 1].block,
                                          .capacity = capacity_minimum(num_nodes),
                                          .in_file = true};
    return layout_bytes(&layout) + plim__engine_estimate(job->io_engine, depth);
}

int64_t plim__access_file_bytes(int64_t num_nodes)
{
    return 2 * plim__access_chunks(num_nodes) * PLIM__ACCESS_CHUNK * (int64_t)sizeof(uint16_t);
}

static plim_status_t choose_layout(const plim_job_t *job, int64_t num_nodes, size_t work_bytes,
                                   plim__access_layout_t *layout_out)
{
    plim__access_layout_t layout = {0};
    int most = plim__job_threads(job);
    size_t engine = 0;
    if (work_bytes < plim__access_work_minimum(job, num_nodes))
        return plim__fail(PLIM_ERR_BUDGET,
                          "computing access probabilities needs at least %zu bytes, but has %zu",
                          plim__access_work_minimum(job, num_nodes), work_bytes);
    int64_t fit = 0;
    for (int i = 0; i < SHAPES && fit < most; i++) {
        layout.depth = shapes[i].depth;
        layout.block = shapes[i].block;
        plim__arena_t counted = plim__arena_counting();
        (void)carve_worker(&counted, &layout);
        engine = plim__engine_estimate(job->io_engine, layout.depth);
        fit = (int64_t)(work_bytes / 4 / (counted.used + engine));
    }
    layout.workers = (int)plim__max_i64(1, plim__min_i64(fit, most));
    int64_t all = plim__access_chunks(num_nodes) * PLIM__ACCESS_CHUNK;
    size_t rest = work_bytes - layout_bytes(&layout) - (size_t)layout.workers * engine;
    layout.in_file = rest / 6 < (size_t)all;
    layout.capacity = all;
    if (layout.in_file)
        layout.capacity = plim__min_i64(all, (int64_t)(rest / sizeof(uint32_t)) /
                                                 PLIM__ACCESS_CHUNK * PLIM__ACCESS_CHUNK);
    *layout_out = layout;
    return PLIM_OK;
}

static int64_t ranges_of(const plim__access_layout_t *layout, int64_t num_nodes)
{
    return (plim__access_chunks(num_nodes) * PLIM__ACCESS_CHUNK - 1) / layout->capacity + 1;
}

int64_t plim__access_reads(const plim_job_t *job, const plim_dataset_info_t *info, int num_hops,
                           size_t work_bytes)
{
    plim__access_layout_t layout;
    if (choose_layout(job, info->num_nodes, work_bytes, &layout) != PLIM_OK)
        return INT64_MAX;
    const int64_t indices = info->num_edges * (int64_t)plim__index_bytes(info->index_type);
    const int64_t codes = layout.in_file ? plim__access_file_bytes(info->num_nodes) / 2 : 0;
    return plim__mul_saturating_i64(num_hops * ranges_of(&layout, info->num_nodes),
                                    indices + codes);
}

bool plim__access_needs_file(const plim_job_t *job, int64_t num_nodes, size_t work_bytes)
{
    plim__access_layout_t layout;
    return choose_layout(job, num_nodes, work_bytes, &layout) == PLIM_OK && layout.in_file;
}

static plim_status_t work_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                 const plim__offsets_t *offsets,
                                 const plim__access_params_t *params,
                                 plim__access_work_t **work_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__access_work_t draft = {.job = job,
                                 .offsets = offsets,
                                 .params = params,
                                 .num_nodes = info->num_nodes,
                                 .num_edges = info->num_edges,
                                 .entry_bytes = plim__index_bytes(info->index_type),
                                 .indices.fd = -1,
                                 .file.fd = -1};
    plim__access_work_t *work;
    for (int i = 0; i < params->num_hops; i++)
        if (params->fanout[i] != 0)
            draft.fanout[draft.num_hops++] = params->fanout[i];
    PLIM_TRY(choose_layout(job, info->num_nodes, params->work_bytes, &draft.layout));
    PLIM_TRY(plim__object_create(job->ledger, "admission", lay_out, &draft, sizeof draft,
                                 &draft.arena, &work));
    for (int i = 0; i < work->layout.workers; i++) {
        const plim__access_worker_t *worker = &work->workers[i];
        for (int k = 0; k < work->layout.depth; k++) {
            worker->slots[k].block = worker->blocks + (size_t)k * work->layout.block;
            worker->slots[k].parts =
                worker->parts + (size_t)k * (work->layout.block / PLIM__ACCESS_PART_EACH);
        }
    }
    plim__hazard_chances(work->chances);
    plim__arena_want_huge(work->counters, (size_t)work->layout.capacity * sizeof(uint32_t));
    *work_out = work;
    return PLIM_OK;
}

static void work_destroy(plim__access_work_t *work)
{
    for (int i = 0; i < work->layout.workers; i++)
        plim__engine_destroy(work->workers[i].engine);
    plim__file_close(&work->file);
    plim__file_close(&work->indices);
    plim__arena_destroy(&work->arena);
}

static plim_status_t open_files(plim__access_work_t *work, const plim_dataset_t *dataset)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    const plim__manifest_file_t *entry = &manifest->files[manifest->topologies[0].indices];
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &work->indices));
    if (work->layout.in_file) {
        if (work->params->tmp == NULL)
            return plim__fail(PLIM_ERR_USAGE, "no directory for a temporary file was given");
        PLIM_TRY(plim__file_open(work->params->tmp, PLIM__FILE_TEMPORARY, true, &work->file));
        work->file.size = plim__access_file_bytes(work->num_nodes);
    }
    for (int i = 0; i < work->layout.workers; i++)
        PLIM_TRY(plim__engine_create(work->job, work->layout.depth, &work->workers[i].engine));
    return PLIM_OK;
}

/* Computes the codes of the last hop. */
static plim_status_t run_hops(plim__access_work_t *work, const plim_dataset_t *dataset,
                              plim__node_set_t *scratch)
{
    const int64_t ranges = ranges_of(&work->layout, work->num_nodes);
    /* The last hop matters only for rows: its destinations are not drawn from. */
    int hops = work->params->row_bytes > 0 ? work->num_hops : work->num_hops - 1;
    work->edges_total = plim__max_i64(hops, 0) * ranges * work->num_edges;
    PLIM_TRY(open_files(work, dataset));
    PLIM_TRY(plim__access_codes_start(work, scratch));
    for (int hop = 0; hop < hops; hop++) {
        PLIM_TRY(plim__access_hop(work, hop));
        if (hop + 1 < work->num_hops)
            PLIM_TRY(plim__access_codes_advance(work));
    }
    return PLIM_OK;
}

/* Makes a working set if `pack` is given, else the choice for the caches. */
static plim_status_t find(const plim_job_t *job, const plim_dataset_t *dataset,
                          const plim__offsets_t *offsets, const plim__access_params_t *params,
                          const plim__pack_params_t *pack, plim__access_t *access_out,
                          plim__working_set_t **set_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__arena_t arena;
    plim__access_work_t *work;
    const bool packed = params->packed || pack != NULL;
    PLIM_TRY(plim__arena_create(job->ledger, "admission",
                                plim__access_estimate(info->num_nodes, packed), &arena));
    plim__access_t access = carve_sets(&arena, info->num_nodes, packed);
    access.arena = arena;
    plim_status_t status = work_create(job, dataset, offsets, params, &work);
    if (status == PLIM_OK) {
        status = run_hops(work, dataset, &access.lists);
        if (status == PLIM_OK)
            status = pack != NULL ? plim__admission_pack(work, pack, &access.lists, set_out)
                                  : plim__admission_choose(work, &access);
        work_destroy(work);
    }
    if (status == PLIM_OK && pack == NULL)
        *access_out = access;
    else
        plim__access_free(&access);
    return status;
}

plim_status_t plim__access_find(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__offsets_t *offsets, const plim__access_params_t *params,
                                plim__access_t *access_out)
{
    return find(job, dataset, offsets, params, NULL, access_out, NULL);
}

plim_status_t plim__access_pack(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__offsets_t *offsets, const plim__access_params_t *params,
                                const char *scratch, uint64_t key, plim__working_size_t most,
                                plim__working_set_t **set_out)
{
    const plim__pack_params_t pack = {dataset, scratch, key, most};
    return find(job, dataset, offsets, params, &pack, NULL, set_out);
}

void plim__access_free(plim__access_t *access)
{
    plim__arena_destroy(&access->arena);
    *access = (plim__access_t){0};
}
