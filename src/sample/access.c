#include "sample/access.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/threads.h"
#include "sample/access_work.h"

#include <string.h>

/* How a worker reads: the largest of these with which all workers take at most a quarter of the
 * memory. */
static const struct {
    int depth;
    size_t block;
} shapes[] = {{16, (size_t)256 << 10}, {8, (size_t)128 << 10}, {4, (size_t)64 << 10}};
#define SHAPES ((int)(sizeof shapes / sizeof shapes[0]))

size_t plim__access_estimate(int64_t num_nodes)
{
    return plim__round_up(2 * plim__arena_piece(1, plim__node_set_bytes(num_nodes), PLIM__LINE),
                          PLIM__PAGE);
}

static size_t worker_bytes(int depth, size_t block)
{
    size_t parts = block / PLIM__ACCESS_PART_EACH;
    size_t slot = plim__arena_piece(1, block, PLIM__PAGE) +
                  plim__arena_piece(parts, sizeof(plim__access_part_t), 1);
    return plim__arena_piece((size_t)depth, sizeof(plim__access_slot_t), 1) + (size_t)depth * slot +
           2 * plim__arena_piece(PLIM__ACCESS_CHUNK, sizeof(uint16_t), PLIM__PAGE) +
           plim__arena_piece(PLIM__ACCESS_CHUNK, 1, 1) +
           2 * plim__arena_piece(PLIM__ACCESS_BINS, sizeof(uint64_t), 1) + PLIM__STACK_BYTES;
}

/* All but counters and codes. */
static size_t fixed_bytes(int workers, int depth, size_t block)
{
    return plim__arena_piece(1, sizeof(plim__access_work_t), 1) +
           plim__arena_piece((size_t)workers, sizeof(plim__access_worker_t), 1) +
           plim__arena_piece(PLIM__HAZARD_CODES, sizeof(float), 1) +
           (size_t)workers * worker_bytes(depth, block);
}

#define MARGIN (2 * PLIM__PAGE) /* counters and codes begin on a page's boundary */

static int64_t capacity_minimum(int64_t num_nodes)
{
    int64_t chunks = plim__access_chunks(num_nodes);
    return (chunks / PLIM__ACCESS_RANGES + 1) * PLIM__ACCESS_CHUNK;
}

size_t plim__access_work_minimum(const plim_job_t *job, int64_t num_nodes)
{
    int depth = shapes[SHAPES - 1].depth;
    return plim__round_up(fixed_bytes(1, depth, shapes[SHAPES - 1].block) +
                              (size_t)capacity_minimum(num_nodes) * sizeof(uint32_t) + MARGIN,
                          PLIM__PAGE) +
           plim__engine_estimate(job->io_engine, depth);
}

int64_t plim__access_file_bytes(int64_t num_nodes)
{
    return 2 * plim__access_chunks(num_nodes) * PLIM__ACCESS_CHUNK * (int64_t)sizeof(uint16_t);
}

static plim_status_t lay_out(const plim_job_t *job, int64_t num_nodes, size_t work_bytes,
                             plim__access_layout_t *layout_out)
{
    plim__access_layout_t layout = {0};
    int most = plim__job_threads(job);
    size_t engine = 0;
    if (work_bytes < plim__access_work_minimum(job, num_nodes))
        return plim__fail(PLIM_ERR_BUDGET,
                          "%zu bytes to find out which lists and rows are worth keeping: it takes "
                          "%zu at least",
                          work_bytes, plim__access_work_minimum(job, num_nodes));
    int64_t fit = 0;
    for (int i = 0; i < SHAPES && fit < most; i++) {
        layout.depth = shapes[i].depth;
        layout.block = shapes[i].block;
        engine = plim__engine_estimate(job->io_engine, layout.depth);
        fit = (int64_t)(work_bytes / 4 / (worker_bytes(layout.depth, layout.block) + engine));
    }
    layout.workers = (int)plim__max_i64(1, plim__min_i64(fit, most));
    size_t fixed = fixed_bytes(layout.workers, layout.depth, layout.block) + MARGIN;
    size_t engines = (size_t)layout.workers * engine;
    int64_t all = plim__access_chunks(num_nodes) * PLIM__ACCESS_CHUNK;
    size_t room = (work_bytes - fixed - engines) / PLIM__PAGE * PLIM__PAGE;
    layout.in_file = room / 6 < (size_t)all;
    layout.capacity = all;
    if (layout.in_file)
        layout.capacity = plim__min_i64(all, (int64_t)(room / sizeof(uint32_t)) /
                                                 PLIM__ACCESS_CHUNK * PLIM__ACCESS_CHUNK);
    layout.bytes = fixed + (size_t)layout.capacity * sizeof(uint32_t) +
                   (layout.in_file ? 0 : (size_t)all * sizeof(uint16_t));
    *layout_out = layout;
    return PLIM_OK;
}

bool plim__access_needs_file(const plim_job_t *job, int64_t num_nodes, size_t work_bytes)
{
    plim__access_layout_t layout;
    return lay_out(job, num_nodes, work_bytes, &layout) == PLIM_OK && layout.in_file;
}

static void carve_worker(plim__access_work_t *work, plim__arena_t *arena,
                         plim__access_worker_t *worker)
{
    const plim__access_layout_t *layout = &work->layout;
    worker->slots = plim__arena_carve(arena, (size_t)layout->depth, sizeof(plim__access_slot_t), 1);
    for (int i = 0; i < layout->depth; i++) {
        worker->slots[i].block = plim__arena_carve(arena, 1, layout->block, PLIM__PAGE);
        worker->slots[i].parts = plim__arena_carve(arena, layout->block / PLIM__ACCESS_PART_EACH,
                                                   sizeof(plim__access_part_t), 1);
    }
    worker->codes = plim__arena_carve(arena, PLIM__ACCESS_CHUNK, sizeof(uint16_t), PLIM__PAGE);
    worker->codes_after =
        plim__arena_carve(arena, PLIM__ACCESS_CHUNK, sizeof(uint16_t), PLIM__PAGE);
    worker->at_cut = plim__arena_carve(arena, PLIM__ACCESS_CHUNK, 1, 1);
    worker->list_bins = plim__arena_carve(arena, PLIM__ACCESS_BINS, sizeof(uint64_t), 1);
    worker->row_bins = plim__arena_carve(arena, PLIM__ACCESS_BINS, sizeof(uint64_t), 1);
}

static plim_status_t work_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                 const plim__offsets_t *offsets,
                                 const plim__access_params_t *params,
                                 plim__access_work_t **work_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__access_layout_t layout;
    plim__arena_t arena;
    PLIM_TRY(lay_out(job, info->num_nodes, params->work_bytes, &layout));
    PLIM_TRY(plim__arena_create(job->ledger, "worth", layout.bytes, &arena));
    plim__access_work_t *work = plim__arena_carve(&arena, 1, sizeof *work, 1);
    work->job = job;
    work->offsets = offsets;
    work->params = params;
    work->layout = layout;
    work->num_nodes = info->num_nodes;
    work->num_edges = info->num_edges;
    work->entry_bytes = plim__index_bytes(info->index_type);
    work->indices.fd = work->file.fd = -1;
    for (int i = 0; i < params->num_hops; i++)
        if (params->fanout[i] != 0)
            work->fanout[work->num_hops++] = params->fanout[i];
    work->chances = plim__arena_carve(&arena, PLIM__HAZARD_CODES, sizeof(float), 1);
    plim__hazard_chances(work->chances);
    work->workers =
        plim__arena_carve(&arena, (size_t)layout.workers, sizeof(plim__access_worker_t), 1);
    for (int i = 0; i < layout.workers; i++)
        carve_worker(work, &arena, &work->workers[i]);
    size_t counters = (size_t)layout.capacity * sizeof(uint32_t);
    work->counters = plim__arena_carve(&arena, 1, counters, PLIM__PAGE);
    if (!layout.in_file)
        work->codes =
            plim__arena_carve(&arena, (size_t)layout.capacity, sizeof(uint16_t), PLIM__PAGE);
    plim__arena_want_huge(work->counters, counters);
    work->arena = arena;
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
    const plim__manifest_file_t *entry =
        plim__manifest_find(plim__dataset_manifest(dataset), "indices.npy");
    if (entry == NULL)
        return plim__fail(PLIM_ERR_DATA, "%s: no indices.npy", plim__dataset_path(dataset));
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

/* What would overflow, or cannot be meant. */
static plim_status_t check_params(const plim_dataset_info_t *info,
                                  const plim__access_params_t *params)
{
    size_t of_lists, of_entries, of_rows, sum;
    bool fanouts = params->num_hops >= 0 && params->num_hops <= PLIM__HOPS_MAX;
    for (int i = 0; fanouts && i < params->num_hops; i++)
        fanouts = params->fanout[i] >= -1 && params->fanout[i] <= PLIM__FANOUT_MAX;
    if (!fanouts)
        return plim__fail(PLIM_ERR_USAGE, "0 to %d hops of a fan-out of -1 to %d are possible",
                          PLIM__HOPS_MAX, PLIM__FANOUT_MAX);
    if (!(params->share > 0 && params->share <= 1) || params->num_seeds < 0)
        return plim__fail(PLIM_ERR_USAGE, "a share of %g of %lld seeds", params->share,
                          (long long)params->num_seeds);
    if (!plim__mul_size((size_t)info->num_nodes, params->list_fixed, &of_lists) ||
        !plim__mul_size((size_t)info->num_edges, params->list_bytes, &of_entries) ||
        !plim__add_size(of_lists, of_entries, &sum) ||
        !plim__mul_size((size_t)info->num_nodes, params->row_bytes, &of_rows) ||
        !plim__add_size(sum, of_rows, &sum))
        return plim__fail(PLIM_ERR_USAGE, "lists of %zu + %zu bytes and rows of %zu are too large",
                          params->list_fixed, params->list_bytes, params->row_bytes);
    return PLIM_OK;
}

static plim_status_t run(plim__access_work_t *work, const plim_dataset_t *dataset,
                         plim__access_t *worth)
{
    int64_t ranges =
        (plim__access_chunks(work->num_nodes) * PLIM__ACCESS_CHUNK - 1) / work->layout.capacity + 1;
    /* After the last hop rows alone are looked at: lists are drawn from before it. */
    int hops = work->params->row_bytes > 0 ? work->num_hops : work->num_hops - 1;
    work->edges_total = plim__max_i64(hops, 0) * ranges * work->num_edges;
    PLIM_TRY(open_files(work, dataset));
    PLIM_TRY(plim__access_codes_start(work, &worth->rows));
    for (int hop = 0; hop < hops; hop++) {
        PLIM_TRY(plim__access_hop(work, hop));
        if (hop + 1 < work->num_hops)
            PLIM_TRY(plim__access_codes_advance(work));
    }
    return plim__admission_choose(work, worth);
}

plim_status_t plim__access_find(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__offsets_t *offsets, const plim__access_params_t *params,
                                plim__access_t *worth_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const size_t set_bytes = plim__node_set_bytes(info->num_nodes);
    plim__access_work_t *work;
    plim__access_t worth = {0};
    PLIM_TRY(check_params(info, params));
    PLIM_TRY(plim__arena_create(job->ledger, "cache sets", plim__access_estimate(info->num_nodes),
                                &worth.arena));
    worth.lists = plim__node_set_make(plim__arena_carve(&worth.arena, 1, set_bytes, PLIM__LINE),
                                      info->num_nodes);
    worth.rows = plim__node_set_make(plim__arena_carve(&worth.arena, 1, set_bytes, PLIM__LINE),
                                     info->num_nodes);
    plim_status_t status = work_create(job, dataset, offsets, params, &work);
    if (status != PLIM_OK)
        goto free_access;
    status = run(work, dataset, &worth);
    work_destroy(work);
    if (status != PLIM_OK)
        goto free_access;
    *worth_out = worth;
    return PLIM_OK;
free_access:
    plim__access_free(&worth);
    return status;
}

void plim__access_free(plim__access_t *worth)
{
    plim__arena_destroy(&worth->arena);
    *worth = (plim__access_t){0};
}
