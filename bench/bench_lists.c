/*
 * Measures drawing from lists on disk: the hops of one epoch over all training nodes, each hop's
 * destinations ascending, as a window of a whole epoch draws them.
 *
 *     cmake --preset release && cmake --build build/release --target bench_lists
 *     build/release/bench_lists DIR [--fanout 3,2] [--threads 2] [--depth 128] [--gap 16384]
 *                                   [--hot MIB] [--engine uring|threads]
 *
 * With --hot, the lists that the epoch draws from are kept in memory as far as they fit, and the
 * epoch is drawn twice more: from pages not touched before, and from warm ones. Prints a JSON
 * object for each hop: destinations, lists found in memory, transfers, bytes, seconds by the clock
 * and of the processor for a list, and a hash.
 */
#include "bench_job.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/threads.h"
#include "io/stream.h"
#include "mem/arena.h"
#include "sample/topology.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define TURN ((int64_t)64 << 10) /* nodes that a thread takes at a time */

typedef struct options {
    const char *path;
    int num_hops;
    int64_t fanout[PLIM__HOPS_MAX];
    int threads;
    size_t cache_bytes;
    plim__topology_disk_params_t disk;
    plim_io_engine_t engine;
} options_t;

typedef struct bench {
    plim__arena_t arena;
    const options_t *options;
    plim__topology_t *source;
    plim__node_set_t sets[2]; /* destinations of this hop, and of the next */
    int64_t *nodes;           /* (threads, TURN) */
    plim__drawn_t drawn[PLIM__THREADS_MAX];
    plim__hop_t hop;
    atomic_llong next; /* node to go on with */
    atomic_llong processor_ns;
    atomic_ullong hash;
} bench_t;

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* Each thread takes the destinations of a range of nodes. */
static plim_status_t work(void *context, int worker)
{
    bench_t *bench = context;
    plim__drawn_t *drawn = &bench->drawn[worker];
    int64_t *nodes = bench->nodes + worker * TURN;
    const int64_t range = TURN * 16;
    double spent = 0;
    for (;;) {
        int64_t from = atomic_fetch_add(&bench->next, range);
        int64_t end = plim__min_i64(from + range, bench->sets[0].universe);
        uint64_t sum = 0;
        if (from >= bench->sets[0].universe)
            break;
        while (from < end) {
            int64_t count = plim__node_set_list(&bench->sets[0], from, TURN, nodes);
            while (count > 0 && nodes[count - 1] >= end)
                count--;
            from = count > 0 ? nodes[count - 1] + 1 : end;
            double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
            PLIM_TRY(plim__topology_draw(bench->source, worker, &bench->hop, nodes, count, drawn));
            spent += seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin;
            if (drawn->taken != count)
                return plim__fail(PLIM_ERR_DATA, "a draw was cut short");
            for (int64_t i = 0; i < drawn->indptr[count]; i++) {
                sum += plim__mix64((uint64_t)drawn->ids[i]);
                (void)plim__node_set_add(&bench->sets[1], drawn->ids[i]);
            }
        }
        atomic_fetch_add(&bench->hash, sum);
    }
    atomic_fetch_add(&bench->processor_ns, (long long)(1e9 * spent));
    return PLIM_OK;
}

static plim_status_t draw_hop(bench_t *bench, int hop)
{
    plim__topology_stats_t before, after;
    bench->hop = (plim__hop_t){.hop = hop, .fanout = bench->options->fanout[hop]};
    atomic_store(&bench->next, 0);
    atomic_store(&bench->processor_ns, 0);
    atomic_store(&bench->hash, 0);
    memcpy(bench->sets[1].lines, bench->sets[0].lines,
           plim__node_set_bytes(bench->sets[0].universe));
    plim__topology_stats(bench->source, &before);
    double begin = seconds_of(CLOCK_MONOTONIC);
    PLIM_TRY(plim__parallel(bench->options->threads, work, bench));
    double wall = seconds_of(CLOCK_MONOTONIC) - begin;
    plim__topology_stats(bench->source, &after);
    int64_t lists = after.lists - before.lists;
    int64_t transfers = after.transfers - before.transfers;
    int64_t bytes = after.bytes_read - before.bytes_read;
    (void)printf("{\"hop\": %d, \"lists\": %lld, \"lists_hot\": %lld, \"transfers\": %lld, "
                 "\"bytes\": %lld, \"seconds\": %.3f, \"transfers_s\": %.0f, \"bytes_s\": %.3g, "
                 "\"wait_s\": %.3f, \"cpu_ns_a_list\": %.1f, \"hash\": \"%016llx\"}\n",
                 hop, (long long)lists, (long long)(after.lists_hot - before.lists_hot),
                 (long long)transfers, (long long)bytes, wall, (double)transfers / wall,
                 (double)bytes / wall, 1e-9 * (double)(after.wait_ns - before.wait_ns),
                 (double)atomic_load(&bench->processor_ns) / (double)lists,
                 (unsigned long long)atomic_load(&bench->hash));
    (void)fflush(stdout);
    plim__node_set_t swap = bench->sets[0];
    bench->sets[0] = bench->sets[1];
    bench->sets[1] = swap;
    plim__node_set_seal(&bench->sets[0]);
    return PLIM_OK;
}

static plim_status_t seed_set(const plim_job_t *job, bench_t *bench, int64_t num_seeds)
{
    char path[4096];
    plim__stream_t *stream;
    plim__npy_t npy;
    int64_t seed;
    (void)snprintf(path, sizeof path, "%s/train.npy", bench->options->path);
    PLIM_TRY(plim__stream_file(job, path, (size_t)1 << 20, &stream));
    plim_status_t status = plim__npy_read(stream, &npy);
    plim__node_set_clear(&bench->sets[0]);
    for (int64_t i = 0; i < num_seeds && status == PLIM_OK; i++) {
        status = plim__stream_read_all(stream, &seed, sizeof seed);
        if (status == PLIM_OK)
            (void)plim__node_set_add(&bench->sets[0], seed);
    }
    plim__stream_close(stream);
    plim__node_set_seal(&bench->sets[0]);
    return status;
}

static plim_status_t make_room(const plim_job_t *job, bench_t *bench,
                               const plim_dataset_info_t *info)
{
    size_t threads = (size_t)bench->options->threads;
    size_t set = plim__node_set_bytes(info->num_nodes);
    int64_t most = 0;
    for (int i = 0; i < bench->options->num_hops; i++)
        most = plim__max_i64(most, bench->options->fanout[i]);
    size_t capacity = (size_t)(TURN * most);
    PLIM_TRY(plim__arena_create(job->ledger, "bench",
                                2 * plim__arena_piece(1, set, 1) +
                                    plim__arena_piece(threads * TURN, sizeof(int64_t), 1) +
                                    threads * (plim__arena_piece(TURN + 1, sizeof(int64_t), 1) +
                                               plim__arena_piece(capacity, sizeof(int64_t), 1)),
                                &bench->arena));
    for (int i = 0; i < 2; i++)
        bench->sets[i] =
            plim__node_set_make(plim__arena_carve(&bench->arena, 1, set, 1), info->num_nodes);
    bench->nodes = plim__arena_carve(&bench->arena, threads * TURN, sizeof(int64_t), 1);
    for (size_t i = 0; i < threads; i++)
        bench->drawn[i] = (plim__drawn_t){
            .indptr = plim__arena_carve(&bench->arena, TURN + 1, sizeof(int64_t), 1),
            .ids = plim__arena_carve(&bench->arena, capacity, sizeof(int64_t), 1),
            .capacity = (int64_t)capacity};
    return PLIM_OK;
}

/* Draws the epoch with the lists of `hot` in memory, or none. */
static plim_status_t draw_epoch(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__offsets_t *offsets, const plim__node_set_t *hot,
                                bench_t *bench)
{
    plim__topology_disk_params_t params = bench->options->disk;
    params.hot = hot;
    params.cache_bytes = bench->options->cache_bytes;
    double begin = seconds_of(CLOCK_MONOTONIC);
    PLIM_TRY(plim__topology_disk_create(job, dataset, offsets, &params, &bench->source));
    (void)fprintf(stderr, "source made in %.2f s\n", seconds_of(CLOCK_MONOTONIC) - begin);
    plim_status_t status = PLIM_OK;
    for (int turn = 0; turn < (hot != NULL ? 2 : 1) && status == PLIM_OK; turn++) {
        status = seed_set(job, bench, plim_dataset_info(dataset)->num_split[0]);
        for (int hop = 0; hop < bench->options->num_hops && status == PLIM_OK; hop++)
            status = draw_hop(bench, hop);
    }
    plim__topology_destroy(bench->source);
    return status;
}

static plim_status_t run(const plim_job_t *job, const options_t *options)
{
    static bench_t bench;
    plim_dataset_t *dataset = NULL;
    plim__offsets_t *offsets = NULL;
    plim__arena_t hot_arena = {0};
    bench.options = options;
    plim_status_t status = plim_dataset_open(job, options->path, &dataset);
    if (status == PLIM_OK)
        status = plim__offsets_create(job, dataset, &offsets);
    if (status == PLIM_OK)
        status = make_room(job, &bench, plim_dataset_info(dataset));
    if (status == PLIM_OK)
        status = draw_epoch(job, dataset, offsets, NULL, &bench);
    if (status == PLIM_OK && options->cache_bytes > 0) {
        size_t bytes = plim__node_set_bytes(bench.sets[1].universe);
        status = plim__arena_create(job->ledger, "hot sets", bytes, &hot_arena);
        if (status == PLIM_OK) {
            plim__node_set_t hot = plim__node_set_make(hot_arena.base, bench.sets[1].universe);
            memcpy(hot.lines, bench.sets[1].lines, bytes); /* the last hop's destinations */
            plim__node_set_seal(&hot);
            status = draw_epoch(job, dataset, offsets, &hot, &bench);
        }
    }
    plim__arena_destroy(&hot_arena);
    plim__arena_destroy(&bench.arena);
    plim__offsets_destroy(offsets);
    plim_dataset_release(dataset);
    return status;
}

static bool parse(int argc, char **argv, options_t *options)
{
    if (argc < 2)
        return false;
    options->path = argv[1];
    for (int i = 2; i + 1 < argc; i += 2) {
        char *value = argv[i + 1];
        if (strcmp(argv[i], "--fanout") == 0) {
            options->num_hops = 0;
            for (char *end = value; *value != '\0' && options->num_hops < PLIM__HOPS_MAX;
                 value = *end == ',' ? end + 1 : end)
                options->fanout[options->num_hops++] = strtoll(value, &end, 10);
        } else if (strcmp(argv[i], "--threads") == 0)
            options->threads = atoi(value);
        else if (strcmp(argv[i], "--depth") == 0)
            options->disk.depth = atoi(value);
        else if (strcmp(argv[i], "--gap") == 0)
            options->disk.gap = (size_t)strtoull(value, NULL, 10);
        else if (strcmp(argv[i], "--hot") == 0)
            options->cache_bytes = (size_t)strtoull(value, NULL, 10) << 20;
        else if (strcmp(argv[i], "--engine") == 0)
            options->engine = strcmp(value, "threads") == 0 ? PLIM_IO_THREADS : PLIM_IO_URING;
        else
            return false;
    }
    options->disk.workers = options->threads;
    return options->threads >= 1 && options->threads <= PLIM__THREADS_MAX;
}

int main(int argc, char **argv)
{
    options_t options = {
        .num_hops = 2, .fanout = {3, 2}, .threads = 2, .disk = {.depth = 128, .gap = 16384}};
    plim_job_t job = {.threads = 1};
    if (!parse(argc, argv, &options)) {
        (void)fprintf(stderr, "see the top of bench_lists.c\n");
        return 2;
    }
    job.threads = options.threads;
    job.io_engine = options.engine;
    plim_status_t status = bench_job_make(PLIM_LINE_NONE, &job);
    if (status == PLIM_OK)
        status = run(&job, &options);
    if (status != PLIM_OK)
        (void)fprintf(stderr, "%s\n", plim_last_error());
    plim_job_release(&job);
    return status == PLIM_OK ? 0 : 1;
}
