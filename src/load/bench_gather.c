/*
 * Rows of uniformly drawn nodes, from the row source alone. Every thread takes calls from a
 * counter; what it times is the gather, or the bare reads, not the drawing of nodes.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/permute.h"
#include "base/radix.h"
#include "base/threads.h"
#include "feature/row_form.h"
#include "feature/rows.h"
#include "io/npy.h"
#include "load/bench_bare.h"
#include "load/plan_data.h"
#include "mem/arena.h"
#include "mem/footprint.h"
#include "mem/size_text.h"

#include <plimsoll/bench.h>

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

enum { DEPTH = 128, GAP = 16 << 10 };
#define MIB ((int64_t)1 << 20)

typedef struct lane {
    int64_t *nodes;  /* (batch) */
    uint64_t *spare; /* (batch) for sorting */
    char *rows;      /* (batch, num_features) */
    double seconds;
    int64_t transfers;
    int64_t bytes_read;
} lane_t;

typedef struct bench {
    const plim_job_t *job;
    plim__arena_t arena;
    plim__row_form_t form;
    plim_dtype_t row_type;
    size_t row_bytes; /* as delivered */
    int64_t batch;
    int64_t calls;
    plim__permute_t order;
    plim__rows_t *source;
    plim__file_t file;  /* bare reads */
    const char *memory; /* bare copies: as many bytes as all rows are */
    int depth;
    _Atomic int64_t next;
    lane_t *lanes; /* (threads) */
} bench_t;

static size_t bench_bytes(const plim_job_t *job, const plim_dataset_info_t *info, int64_t batch,
                          plim_dtype_t row_type)
{
    size_t threads = (size_t)plim__job_threads(job);
    size_t row = (size_t)info->num_features * plim__feature_bytes(row_type);
    size_t piece = plim__arena_piece((size_t)batch, sizeof(int64_t), 1) +
                   plim__arena_piece((size_t)batch, sizeof(uint64_t), 1) +
                   plim__arena_piece((size_t)batch, row, PLIM__PAGE);
    size_t bytes;
    if (batch > INT64_MAX / 64 || plim__arena_piece((size_t)batch, row, PLIM__PAGE) == SIZE_MAX ||
        !plim__mul_size(piece, threads, &bytes) ||
        !plim__add_size(bytes, plim__arena_piece(threads, sizeof(lane_t), 1), &bytes))
        return SIZE_MAX;
    return bytes;
}

static plim__rows_disk_params_t disk_params(const plim__load_plan_t *plan)
{
    return (plim__rows_disk_params_t){.workers = plan->workers,
                                      .depth = plan->io_depth,
                                      .gap = plan->merge_distance,
                                      .all = plan->rows_in_memory};
}

static void enter(plim__load_plan_t *plan, const char *name, size_t bytes)
{
    plim__plan_account_t *account = &plan->accounts[plan->num_accounts++];
    (void)snprintf(account->name, sizeof account->name, "%s", name);
    account->bytes =
        bytes < (size_t)INT64_MAX / 4 ? (int64_t)plim__round_up(bytes, PLIM__PAGE) : INT64_MAX / 4;
    plan->total += account->bytes;
}

/* The accounts of one way of doing it under the plan's line; their sum is the plan's total. */
static void reckon(const plim_job_t *job, const plim_dataset_t *dataset, bool in_memory, int depth,
                   plim__load_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plan->rows_in_memory = in_memory;
    plan->io_depth = in_memory ? 1 : depth;
    plan->num_accounts = 0;
    plan->total = 0;
    enter(plan, "process",
          (size_t)(plim__ledger_reserved(job->ledger) - plim__ledger_reserve_bytes(job->ledger)));
    enter(plan, "reserve", (size_t)plim__footprint_reserve(plan->line, plim__job_threads(job)));
    enter(plan, "slots", bench_bytes(job, info, plan->recipe.batch_size, plan->recipe.row_type));
    enter(plan, "thread stacks", (size_t)plan->workers * PLIM__STACK_BYTES);
    plim__rows_disk_params_t params = disk_params(plan);
    if (in_memory) {
        enter(plan, "rows",
              plim__add_saturating_size(plim__rows_disk_estimate(job, dataset, &params),
                                        plim__rows_disk_filling(job, dataset, &params)));
        return;
    }
    /* The source is gone before the bare engine begins. */
    size_t row = (size_t)info->num_features * plim__feature_bytes(info->feature_type);
    size_t bare =
        (size_t)plan->workers * plim__bare_lane_estimate(job->io_engine, plan->io_depth, row);
    size_t rows = plim__rows_disk_estimate(job, dataset, &params);
    enter(plan, "i/o", rows > bare ? rows : bare);
}

/* The least line under which rows are gathered: from memory, or from disk one read at a time. */
static int64_t minimum_line(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim_plan_params_t *wishes, const plim__load_plan_t *plan)
{
    int64_t least = INT64_MAX / 2;
    for (int where = 1; where <= 2; where++) {
        int64_t low = 0, high = INT64_MAX / 2;
        while (wishes->rows != 3 - where && high - low > 1) {
            plim__load_plan_t tried = *plan;
            tried.line = low + (high - low) / 2;
            reckon(job, dataset, where == 1, 1, &tried);
            if (tried.total <= tried.line)
                high = tried.line;
            else
                low = tried.line;
        }
        least = plim__min_i64(least, high);
    }
    return least;
}

static plim_status_t refuse(const char *path, int64_t line, int64_t least)
{
    char text[PLIM__SIZE_TEXT];
    /* Whole MiB, and one to spare: the process itself differs by some pages from run to run. */
    const int64_t given = least / MIB + (least % MIB != 0) + 1;
    return plim__fail(PLIM_ERR_BUDGET,
                      "%s: gathering rows needs at least %lld MiB in all, and the memory line is "
                      "%s; give --memory %lldM or more",
                      path, (long long)given, plim__size_text(line, text), (long long)given);
}

plim_status_t plim__bench_gather_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_recipe_t *recipe, const plim_plan_params_t *wishes,
                                      plim__load_plan_t *plan_out)
{
    plim__load_plan_t plan = {
        .recipe = *recipe, .workers = plim__job_threads(job), .merge_distance = GAP};
    const char *path = plim__dataset_path(dataset);
    PLIM_TRY(plim__row_form_check(recipe->row_type));
    if (plim_dataset_info(dataset)->num_features == 0)
        return plim__fail(PLIM_ERR_USAGE, "%s: it has no features, so no rows to gather", path);
    if (recipe->batch_size < 1)
        return plim__fail(PLIM_ERR_USAGE, "%lld rows a call; at least one is gathered",
                          (long long)recipe->batch_size);
    int64_t line = plim__ledger_line(job->ledger);
    if (wishes->memory > 0)
        line = plim__min_i64(line, wishes->memory);
    plan.line = line;
    bool fits = false;
    for (int depth = 2 * DEPTH; depth >= 1 && !fits; depth /= 2) {
        bool in_memory = depth > DEPTH; /* tried first */
        if (wishes->rows == (in_memory ? 2 : 1))
            continue;
        reckon(job, dataset, in_memory, depth, &plan);
        fits = plan.total <= line;
    }
    const int64_t least = minimum_line(job, dataset, wishes, &plan);
    if (!fits)
        return refuse(path, line, least);
    plan.minimum = least;
    *plan_out = plan;
    return PLIM_OK;
}

PLIM_API plim_status_t plim_bench_gather_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                              const plim_recipe_t *recipe,
                                              const plim_plan_params_t *params,
                                              plim_plan_t **plan_out)
{
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    plim_plan_t *plan;
    PLIM_TRY(plim__plan_create(job, &plan));
    plim_status_t status =
        plim__bench_gather_plan(job, dataset, recipe, params, &plan->numbers.load);
    if (status != PLIM_OK) {
        plim_plan_release(plan);
        return status;
    }
    plim__plan_seal(plan, false);
    *plan_out = plan;
    return PLIM_OK;
}

/* The nodes of a call: consecutive places of the permutation, around its end. */
static void draw_nodes(const bench_t *bench, int64_t call, int64_t *nodes)
{
    int64_t all = (int64_t)bench->order.count;
    int64_t place = (int64_t)((unsigned __int128)call * (uint64_t)bench->batch % (uint64_t)all);
    for (int64_t i = 0; i < bench->batch; i++) {
        nodes[i] = place;
        place = place + 1 < all ? place + 1 : 0;
    }
    plim__permute_forward_many(&bench->order, nodes, bench->batch);
}

static plim_status_t gather_calls(void *context, int worker)
{
    bench_t *bench = context;
    lane_t *lane = &bench->lanes[worker];
    int64_t call;
    while ((call = atomic_fetch_add(&bench->next, 1)) < bench->calls) {
        PLIM_TRY(plim__job_check(bench->job));
        draw_nodes(bench, call, lane->nodes);
        int64_t start = plim__clock_ns();
        PLIM_TRY(plim__rows_gather(bench->source, worker, lane->nodes, bench->batch,
                                   bench->row_type, lane->rows));
        lane->seconds += plim__clock_seconds_since(start);
    }
    return PLIM_OK;
}

/* Where the rows of these nodes begin in the file, ascending; two on the same pages are one place.
 */
static int64_t find_places(const bench_t *bench, lane_t *lane, int64_t **places_out)
{
    uint64_t *keys = (uint64_t *)lane->nodes;
    for (int64_t i = 0; i < bench->batch; i++)
        keys[i] = PLIM__NPY_HEADER + keys[i] * bench->form.bytes;
    int64_t *places = (int64_t *)plim__radix_sort(keys, lane->spare, bench->batch, 63);
    int64_t unit = (int64_t)bench->file.align, last = (int64_t)bench->form.bytes - 1, count = 0;
    for (int64_t i = 0; i < bench->batch; i++)
        if (count == 0 || places[i] / unit != places[count - 1] / unit ||
            (places[i] + last) / unit != (places[count - 1] + last) / unit)
            places[count++] = places[i];
    *places_out = places;
    return count;
}

static plim_status_t read_calls(void *context, int worker)
{
    bench_t *bench = context;
    lane_t *lane = &bench->lanes[worker];
    plim__bare_lane_t *bare;
    int64_t call;
    PLIM_TRY(plim__bare_lane_create(bench->job, bench->depth, bench->form.bytes, &bare));
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK && (call = atomic_fetch_add(&bench->next, 1)) < bench->calls) {
        int64_t *places;
        draw_nodes(bench, call, lane->nodes);
        int64_t count = find_places(bench, lane, &places);
        int64_t start = plim__clock_ns();
        status = plim__bare_lane_read(bare, &bench->file, places, count, bench->form.bytes,
                                      &lane->transfers, &lane->bytes_read);
        lane->seconds += plim__clock_seconds_since(start);
        if (status == PLIM_OK)
            status = plim__job_check(bench->job);
    }
    plim__bare_lane_destroy(bare);
    return status;
}

enum { COPY_AHEAD = 16 };

static plim_status_t copy_calls(void *context, int worker)
{
    bench_t *bench = context;
    lane_t *lane = &bench->lanes[worker];
    int64_t call;
    size_t bytes = bench->form.bytes < bench->row_bytes ? bench->form.bytes : bench->row_bytes;
    while ((call = atomic_fetch_add(&bench->next, 1)) < bench->calls) {
        PLIM_TRY(plim__job_check(bench->job));
        draw_nodes(bench, call, lane->nodes);
        int64_t start = plim__clock_ns();
        for (int64_t i = 0; i < bench->batch; i++) {
            if (i + COPY_AHEAD < bench->batch)
                __builtin_prefetch(bench->memory +
                                   (size_t)lane->nodes[i + COPY_AHEAD] * bench->form.bytes);
            memcpy(lane->rows + (size_t)i * bench->row_bytes,
                   bench->memory + (size_t)lane->nodes[i] * bench->form.bytes, bytes);
        }
        lane->seconds += plim__clock_seconds_since(start);
    }
    return PLIM_OK;
}

/* Runs the body on all threads and sums what they found; the slowest thread's time is the time. */
static plim_status_t measure(bench_t *bench, plim_status_t (*body)(void *, int),
                             plim_bench_result_t *result)
{
    int threads = plim__job_threads(bench->job);
    *result = (plim_bench_result_t){.count = bench->calls * bench->batch};
    result->bytes = result->count * (int64_t)bench->row_bytes;
    atomic_store(&bench->next, 0);
    for (int i = 0; i < threads; i++) {
        bench->lanes[i].seconds = 0;
        bench->lanes[i].transfers = 0;
        bench->lanes[i].bytes_read = 0;
    }
    PLIM_TRY(plim__parallel(threads, body, bench));
    for (int i = 0; i < threads; i++) {
        const lane_t *lane = &bench->lanes[i];
        result->transfers += lane->transfers;
        result->bytes_read += lane->bytes_read;
        result->seconds = lane->seconds > result->seconds ? lane->seconds : result->seconds;
    }
    return PLIM_OK;
}

static plim_status_t make_bench(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__load_plan_t *plan, int64_t calls, bench_t *bench)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim_recipe_t *recipe = &plan->recipe;
    *bench = (bench_t){.job = job,
                       .form = plim__row_form_of(dataset),
                       .row_type = recipe->row_type,
                       .batch = recipe->batch_size,
                       .calls = calls,
                       .depth = plan->io_depth};
    bench->row_bytes = (size_t)info->num_features * plim__feature_bytes(recipe->row_type);
    bench->order =
        plim__permute_make((uint64_t)info->num_nodes, plim__rng_key(recipe->seed, 3, 0, 0));
    PLIM_TRY(plim__arena_create(job->ledger, "slots",
                                bench_bytes(job, info, bench->batch, bench->row_type),
                                &bench->arena));
    size_t batch = (size_t)bench->batch;
    bench->lanes =
        plim__arena_carve(&bench->arena, (size_t)plim__job_threads(job), sizeof(lane_t), 1);
    for (int i = 0; i < plim__job_threads(job); i++) {
        lane_t *lane = &bench->lanes[i];
        lane->nodes = plim__arena_carve(&bench->arena, batch, sizeof(int64_t), 1);
        lane->spare = plim__arena_carve(&bench->arena, batch, sizeof(uint64_t), 1);
        lane->rows = plim__arena_carve(&bench->arena, batch, bench->row_bytes, PLIM__PAGE);
    }
    return PLIM_OK;
}

static plim_status_t gather_rows(bench_t *bench, const plim_dataset_t *dataset,
                                 const plim__load_plan_t *plan, plim_bench_result_t *result)
{
    plim__rows_stats_t stats;
    plim__rows_disk_params_t params = disk_params(plan);
    PLIM_TRY(plim__rows_disk_create(bench->job, dataset, &params, &bench->source));
    plim_status_t status = measure(bench, gather_calls, result);
    plim__rows_stats(bench->source, &stats);
    plim__rows_destroy(bench->source);
    bench->source = NULL;
    result->transfers = stats.transfers;
    result->bytes_read = stats.bytes_read;
    result->wait_seconds = (double)stats.wait_ns * 1e-9;
    return status;
}

static plim_status_t bare_rows(bench_t *bench, const plim_dataset_t *dataset, bool in_memory,
                               plim_bench_result_t *result)
{
    if (in_memory) {
        plim__arena_t arena;
        size_t bytes = (size_t)plim_dataset_info(dataset)->num_nodes * bench->form.bytes;
        PLIM_TRY(plim__arena_create(bench->job->ledger, "rows", bytes, &arena));
        memset(arena.base, 1, arena.size);
        bench->memory = arena.base;
        plim_status_t status = measure(bench, copy_calls, result);
        plim__arena_destroy(&arena);
        return status;
    }
    const plim__manifest_file_t *entry =
        plim__manifest_find(plim__dataset_manifest(dataset), "features.npy");
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &bench->file));
    plim_status_t status = measure(bench, read_calls, result);
    plim__file_close(&bench->file);
    return status;
}

plim_status_t plim__bench_gather(const plim_job_t *job, const plim_dataset_t *dataset,
                                 const plim__load_plan_t *plan, int64_t calls,
                                 plim_bench_result_t *gather_out, plim_bench_result_t *bare_out)
{
    bench_t bench;
    plim_bench_result_t gather, bare;
    if (plan->workers != plim__job_threads(job) || calls < 0)
        return plim__fail(PLIM_ERR_USAGE, "the plan is for %d threads, the job has %d",
                          plan->workers, plim__job_threads(job));
    PLIM_TRY(make_bench(job, dataset, plan, calls, &bench));
    plim_status_t status = gather_rows(&bench, dataset, plan, &gather);
    if (status == PLIM_OK)
        status = bare_rows(&bench, dataset, plan->rows_in_memory, &bare);
    plim__arena_destroy(&bench.arena);
    if (status != PLIM_OK)
        return status;
    *gather_out = gather;
    *bare_out = bare;
    return PLIM_OK;
}

PLIM_API plim_status_t plim_bench_gather(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_plan_t *plan, int64_t calls,
                                         plim_bench_result_t *gather_out,
                                         plim_bench_result_t *bare_out)
{
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    return plim__bench_gather(job, dataset, &plan->numbers.load, calls, gather_out, bare_out);
}
