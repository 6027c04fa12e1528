#include "load/bench_bare.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/rng.h"
#include "base/threads.h"
#include "io/npy.h"
#include "store/dataset.h"

#include <plimsoll/bench.h>

#include <stdatomic.h>
#include <string.h>

#define PIECE 4096 /* places a thread takes at a time */

struct plim__bare_lane {
    plim__arena_t arena;
    plim__engine_t *engine;
    int depth;
    size_t buffer_bytes;
    char *buffers;   /* (depth, buffer_bytes) */
    plim__op_t *ops; /* (depth) */
    int *free;       /* (num_free) numbers of ops that are not in flight */
    int num_free;
};

/* Widening may add less than a page at either end. */
static size_t buffer_bytes(size_t bytes)
{
    return plim__round_up(bytes, PLIM__PAGE) + PLIM__PAGE;
}

static size_t lane_bytes(int depth, size_t bytes)
{
    return plim__arena_piece(1, sizeof(plim__bare_lane_t), 1) +
           plim__arena_piece((size_t)depth, sizeof(plim__op_t), 1) +
           plim__arena_piece((size_t)depth, sizeof(int), 1) +
           plim__arena_piece((size_t)depth, buffer_bytes(bytes), PLIM__PAGE);
}

size_t plim__bare_lane_estimate(plim_io_engine_t kind, int depth, size_t bytes)
{
    return plim__round_up(lane_bytes(depth, bytes), PLIM__PAGE) +
           plim__engine_estimate(kind, depth);
}

plim_status_t plim__bare_lane_create(const plim_job_t *job, int depth, size_t bytes,
                                     plim__bare_lane_t **lane_out)
{
    plim__arena_t arena;
    PLIM_TRY(plim__arena_create(job->ledger, "bare reads", lane_bytes(depth, bytes), &arena));
    plim__bare_lane_t *lane = plim__arena_carve(&arena, 1, sizeof *lane, 1);
    lane->depth = depth;
    lane->buffer_bytes = buffer_bytes(bytes);
    lane->ops = plim__arena_carve(&arena, (size_t)depth, sizeof(plim__op_t), 1);
    lane->free = plim__arena_carve(&arena, (size_t)depth, sizeof(int), 1);
    lane->buffers = plim__arena_carve(&arena, (size_t)depth, lane->buffer_bytes, PLIM__PAGE);
    for (int i = 0; i < depth; i++)
        lane->free[lane->num_free++] = i;
    plim_status_t status = plim__engine_create(job, depth, &lane->engine);
    if (status != PLIM_OK) {
        plim__arena_destroy(&arena);
        return status;
    }
    lane->arena = arena;
    *lane_out = lane;
    return PLIM_OK;
}

void plim__bare_lane_destroy(plim__bare_lane_t *lane)
{
    if (lane == NULL)
        return;
    plim__engine_destroy(lane->engine);
    plim__arena_destroy(&lane->arena);
}

/* Waits for some of what is in flight; the first error is kept. */
static void retire(plim__bare_lane_t *lane, plim_status_t *status)
{
    for (plim__op_t *op = plim__engine_progress(lane->engine); op != NULL; op = op->next) {
        if (*status == PLIM_OK)
            *status = plim__engine_wait(lane->engine, op);
        lane->free[lane->num_free++] = (int)(op - lane->ops);
    }
}

plim_status_t plim__bare_lane_read(plim__bare_lane_t *lane, const plim__file_t *file,
                                   const int64_t *places, int64_t count, size_t bytes,
                                   int64_t *transfers, int64_t *bytes_read)
{
    plim_status_t status = PLIM_OK;
    int64_t unit = (int64_t)file->align;
    for (int64_t i = 0; i < count && status == PLIM_OK; i++) {
        while (lane->num_free == 0)
            retire(lane, &status);
        int number = lane->free[--lane->num_free];
        plim__op_t *op = &lane->ops[number];
        int64_t start = places[i] & ~(unit - 1);
        *op = (plim__op_t){
            .file = file,
            .offset = start,
            .size = plim__round_up((size_t)(places[i] - start) + bytes, file->align),
            .data = lane->buffers + (size_t)number * lane->buffer_bytes,
        };
        ++*transfers;
        *bytes_read += (int64_t)op->size;
        plim__engine_submit(lane->engine, op);
    }
    while (lane->num_free < lane->depth)
        retire(lane, &status);
    return status;
}

/* Random places in a file or in memory, taken by all threads piece by piece. */
typedef struct bare {
    const plim_job_t *job;
    plim__file_t file;
    char *region;       /* for copies */
    int64_t num_places; /* to choose from, `bytes` apart */
    int64_t first;      /* where the first one lies */
    int64_t count;
    size_t bytes;
    int depth;
    uint64_t key;
    _Atomic int64_t next;
    _Atomic int64_t transfers;
    _Atomic int64_t bytes_read;
    _Atomic uint64_t seen; /* of what was copied, so that it is copied */
} bare_t;

/* The next places, how many; 0 when all have been taken. */
static int64_t take_places(bare_t *bare, int64_t places[PIECE])
{
    int64_t first = atomic_fetch_add(&bare->next, PIECE);
    int64_t count = plim__min_i64(bare->count - first, PIECE);
    for (int64_t i = 0; i < count; i++) {
        unsigned __int128 wide =
            (unsigned __int128)plim__rng_u64(bare->key, (uint64_t)(first + i)) *
            (uint64_t)bare->num_places;
        places[i] = bare->first + (int64_t)(wide >> 64) * (int64_t)bare->bytes;
    }
    return count;
}

static plim_status_t read_places(void *context, int worker)
{
    bare_t *bare = context;
    plim__bare_lane_t *lane;
    int64_t places[PIECE], count, transfers = 0, bytes_read = 0;
    (void)worker;
    plim_status_t status = plim__bare_lane_create(bare->job, bare->depth, bare->bytes, &lane);
    if (status != PLIM_OK)
        return status;
    while (status == PLIM_OK && (count = take_places(bare, places)) > 0) {
        status = plim__job_check(bare->job);
        if (status == PLIM_OK)
            status = plim__bare_lane_read(lane, &bare->file, places, count, bare->bytes, &transfers,
                                          &bytes_read);
    }
    atomic_fetch_add(&bare->transfers, transfers);
    atomic_fetch_add(&bare->bytes_read, bytes_read);
    plim__bare_lane_destroy(lane);
    return status;
}

static size_t stack_bytes(const plim_job_t *job)
{
    return (size_t)(plim__job_threads(job) - 1) * PLIM__STACK_BYTES;
}

/* On all of the job's threads, whose stacks stand on the ledger meanwhile. */
static plim_status_t run_timed(const plim_job_t *job, plim_status_t (*body)(void *, int),
                               bare_t *bare, double *seconds_out)
{
    int account;
    PLIM_TRY(plim__ledger_reserve(job->ledger, "threads", stack_bytes(job), &account));
    int64_t start = plim__clock_ns();
    plim_status_t status = plim__parallel(plim__job_threads(job), body, bare);
    *seconds_out = plim__clock_seconds_since(start);
    plim__ledger_release(job->ledger, account, stack_bytes(job));
    return status;
}

PLIM_API plim_status_t plim_bench_reads(const plim_job_t *job, const plim_dataset_t *dataset,
                                        const char *file, int64_t count, int64_t bytes, int depth,
                                        uint64_t seed, plim_bench_result_t *result_out)
{
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    const plim__manifest_file_t *entry = plim__manifest_find(plim__dataset_manifest(dataset), file);
    if (entry == NULL)
        return plim__fail(PLIM_ERR_USAGE, "%s: there is no %s in it", plim__dataset_path(dataset),
                          file);
    int64_t held = entry->bytes - (int64_t)PLIM__NPY_HEADER;
    bytes = plim__max_i64(plim__min_i64(bytes, plim__min_i64(held, (int64_t)64 << 20)), 1);
    bare_t bare = {.job = job,
                   .num_places = plim__max_i64(held / bytes, 1),
                   .first = (int64_t)PLIM__NPY_HEADER,
                   .count = held > 0 ? count : 0,
                   .bytes = (size_t)bytes,
                   .depth = depth,
                   .key = plim__rng_key(seed, 1, 0, 0)};
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, &bare.file));
    double seconds;
    plim_status_t status = run_timed(job, read_places, &bare, &seconds);
    plim__file_close(&bare.file);
    if (status != PLIM_OK)
        return status;
    *result_out = (plim_bench_result_t){.count = bare.count,
                                        .bytes = bare.count * bytes,
                                        .seconds = seconds,
                                        .transfers = bare.transfers,
                                        .bytes_read = bare.bytes_read};
    return PLIM_OK;
}

enum { COPY_BYTES = 64 << 10, COPY_AHEAD = 8 };

/* Copies piece by piece into a buffer that stays in the cache, as a gather's output would not. */
static plim_status_t copy_places(void *context, int worker)
{
    bare_t *bare = context;
    int64_t places[PIECE], count;
    char buffer[COPY_BYTES];
    size_t used = 0;
    uint64_t seen = 0;
    (void)worker;
    while ((count = take_places(bare, places)) > 0) {
        PLIM_TRY(plim__job_check(bare->job));
        for (int64_t i = 0; i < count; i++) {
            if (i + COPY_AHEAD < count)
                __builtin_prefetch(bare->region + places[i + COPY_AHEAD]);
            if (used + bare->bytes > sizeof buffer)
                used = 0;
            memcpy(buffer + used, bare->region + places[i], bare->bytes);
            seen += (unsigned char)buffer[used];
            used += bare->bytes;
        }
    }
    atomic_fetch_add(&bare->seen, seen);
    return PLIM_OK;
}

PLIM_API plim_status_t plim_bench_copies(const plim_job_t *job, int64_t peak, int64_t region,
                                         int64_t count, int64_t bytes, uint64_t seed,
                                         plim_bench_result_t *result_out)
{
    PLIM_ENTER(job);
    plim__arena_t arena;
    int64_t room = plim__min_i64(plim__ledger_available(job->ledger),
                                 peak - plim__ledger_reserved(job->ledger)) -
                   (int64_t)(stack_bytes(job) + PLIM__PAGE);
    bytes = plim__max_i64(plim__min_i64(bytes, COPY_BYTES), 1);
    region = plim__max_i64(plim__min_i64(region, room), bytes);
    PLIM_TRY(plim__arena_create(job->ledger, "bare copies", (size_t)region, &arena));
    memset(arena.base, 1, arena.size);
    bare_t bare = {.job = job,
                   .region = arena.base,
                   .num_places = region / bytes,
                   .count = count,
                   .bytes = (size_t)bytes,
                   .key = plim__rng_key(seed, 2, 0, 0)};
    double seconds;
    plim_status_t status = run_timed(job, copy_places, &bare, &seconds);
    plim__arena_destroy(&arena);
    if (status != PLIM_OK)
        return status;
    *result_out = (plim_bench_result_t){.count = count, .bytes = count * bytes, .seconds = seconds};
    return PLIM_OK;
}
