/*
 * Measures the sampler alone, from memory: blocks around permuted training seeds.
 *
 *     cmake --preset release && cmake --build build/release --target bench_sample
 *     build/release/bench_sample DIR [--batch 1024] [--fanout 15,10,5] [--threads 2]
 *                                    [--batches 1000] [--repeat 3] [--pyg] [--wide] [--replace]
 *
 * Each thread builds whole batches. Prints one JSON object: batches/s and edges/s by the clock, the
 * seconds of processor time a batch took, and a hash of all batches, the same for any number of
 * threads.
 */
#include "bench_job.h"

#include "base/fail.h"
#include "base/permute.h"
#include "base/threads.h"
#include "io/stream.h"
#include "mem/arena.h"
#include "sample/blocks.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct options {
    const char *path;
    int64_t batch;
    int64_t batches;
    int threads;
    int repeat;
    bool wide; /* 64-bit indices */
    plim__blocks_params_t params;
} options_t;

typedef struct worker {
    plim__blocks_t *blocks;
    plim__blocks_out_t out;
    int64_t *seeds; /* (batch) */
    double seconds; /* of its thread's processor time */
} worker_t;

typedef struct bench {
    plim__arena_t arena;
    const options_t *options;
    plim__topology_t *source;
    int64_t *split; /* (num_split) the training nodes */
    int64_t num_split;
    worker_t *workers; /* (threads) */
    atomic_llong next;
    atomic_llong edges;
    atomic_llong nodes;
    atomic_ullong hash;
} bench_t;

static double seconds_of(clockid_t clock)
{
    struct timespec now;
    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* The seeds of batch `number` of the permuted training set. */
static int64_t take_seeds(const bench_t *bench, int64_t number, int64_t *seeds, int64_t *epoch_out)
{
    int64_t steps = (bench->num_split + bench->options->batch - 1) / bench->options->batch;
    int64_t epoch = number / steps, first = number % steps * bench->options->batch;
    int64_t left = bench->num_split - first;
    int64_t count = left < bench->options->batch ? left : bench->options->batch;
    plim__permute_t permute = plim__permute_make((uint64_t)bench->num_split, (uint64_t)epoch);
    for (int64_t i = 0; i < count; i++)
        seeds[i] = first + i;
    plim__permute_forward_many(&permute, seeds, count);
    for (int64_t i = 0; i < count; i++)
        seeds[i] = bench->split[seeds[i]];
    *epoch_out = epoch;
    return count;
}

static uint64_t hash_of(const plim__blocks_out_t *out, int64_t number)
{
    uint64_t hash = plim__rng_key((uint64_t)number, (uint64_t)out->num_nodes,
                                  (uint64_t)out->ids[out->num_nodes - 1], 0);
    for (int i = 0; i < out->num_hops; i++)
        hash = plim__mix64(hash ^ (uint64_t)out->blocks[i].num_edges);
    return hash;
}

static plim_status_t work(void *context, int number)
{
    bench_t *bench = context;
    worker_t *worker = &bench->workers[number];
    double begin = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    for (;;) {
        bool fits;
        int64_t epoch, edges = 0;
        int64_t batch = atomic_fetch_add(&bench->next, 1);
        if (batch >= bench->options->batches)
            break;
        int64_t count = take_seeds(bench, batch, worker->seeds, &epoch);
        PLIM_TRY(plim__blocks_build(worker->blocks, bench->source, number, epoch, worker->seeds,
                                    count, &worker->out, &fits));
        if (!fits)
            return plim__fail(PLIM_ERR_DATA, "batch %lld does not fit", (long long)batch);
        for (int i = 0; i < worker->out.num_hops; i++)
            edges += worker->out.blocks[i].num_edges;
        atomic_fetch_add(&bench->edges, edges);
        atomic_fetch_add(&bench->nodes, worker->out.num_nodes);
        atomic_fetch_add(&bench->hash, hash_of(&worker->out, batch));
    }
    worker->seconds += seconds_of(CLOCK_THREAD_CPUTIME_ID) - begin;
    return PLIM_OK;
}

static plim_status_t make_workers(const plim_job_t *job, bench_t *bench,
                                  const plim_dataset_info_t *info)
{
    const options_t *options = bench->options;
    plim__blocks_params_t params = options->params;
    size_t width = options->wide ? sizeof(int64_t) : sizeof(int32_t);
    int64_t nodes, edges;
    plim__blocks_bound(&params, info->num_nodes, info->max_degree, options->batch, &nodes, &edges);
    params.node_capacity = nodes < INT32_MAX ? nodes : INT32_MAX;
    params.most_drawn = info->max_degree > PLIM__FANOUT_MAX ? info->max_degree : PLIM__FANOUT_MAX;
    size_t threads = (size_t)options->threads, batch = (size_t)options->batch;
    size_t size = plim__arena_piece(threads, sizeof(worker_t), 1) +
                  plim__arena_piece((size_t)bench->num_split, sizeof(int64_t), 1) +
                  threads * (plim__arena_piece(batch, sizeof(int64_t), 1) +
                             plim__arena_piece((size_t)params.node_capacity, width, 1) +
                             plim__arena_piece((size_t)edges, width, 1));
    PLIM_TRY(plim__arena_create(job->ledger, "bench", size, &bench->arena));
    bench->split = plim__arena_carve(&bench->arena, (size_t)bench->num_split, sizeof(int64_t), 1);
    bench->workers = plim__arena_carve(&bench->arena, threads, sizeof(worker_t), 1);
    for (size_t i = 0; i < threads; i++) {
        worker_t *worker = &bench->workers[i];
        worker->seeds = plim__arena_carve(&bench->arena, batch, sizeof(int64_t), 1);
        worker->out = (plim__blocks_out_t){
            .index_type = options->wide ? PLIM_I64 : PLIM_I32,
            .nodes = plim__arena_carve(&bench->arena, (size_t)params.node_capacity, width, 1),
            .node_capacity = params.node_capacity,
            .edges = plim__arena_carve(&bench->arena, (size_t)edges, width, 1),
            .edge_capacity = edges};
        PLIM_TRY(plim__blocks_create(job, &params, &worker->blocks));
    }
    return PLIM_OK;
}

static plim_status_t read_split(const plim_job_t *job, bench_t *bench)
{
    char path[4096];
    plim__stream_t *stream;
    plim__npy_t npy;
    (void)snprintf(path, sizeof path, "%s/train.npy", bench->options->path);
    PLIM_TRY(plim__stream_file(job, path, (size_t)1 << 20, &stream));
    plim_status_t status = plim__npy_read(stream, &npy);
    if (status == PLIM_OK)
        status =
            plim__stream_read_all(stream, bench->split, (size_t)bench->num_split * sizeof(int64_t));
    plim__stream_close(stream);
    return status;
}

static void clear(bench_t *bench)
{
    atomic_store(&bench->next, 0);
    atomic_store(&bench->edges, 0);
    atomic_store(&bench->nodes, 0);
    atomic_store(&bench->hash, 0);
    for (int i = 0; i < bench->options->threads; i++)
        bench->workers[i].seconds = 0;
}

/* The best of several runs, each by itself: other work on the machine only ever takes time. */
static plim_status_t measure(bench_t *bench)
{
    const options_t *options = bench->options;
    double wall = 0, seconds = 0;
    PLIM_TRY(plim__parallel(options->threads, work, bench)); /* warms tables up */
    for (int run = 0; run < options->repeat; run++) {
        clear(bench);
        double begin = seconds_of(CLOCK_MONOTONIC), used = 0;
        PLIM_TRY(plim__parallel(options->threads, work, bench));
        double took = seconds_of(CLOCK_MONOTONIC) - begin;
        for (int i = 0; i < options->threads; i++)
            used += bench->workers[i].seconds;
        wall = run == 0 || took < wall ? took : wall;
        seconds = run == 0 || used < seconds ? used : seconds;
    }
    double batches = (double)options->batches, edges = (double)atomic_load(&bench->edges);
    (void)printf("{\"batches_s\": %.1f, \"edges_s\": %.0f, \"cpu_us_a_batch\": %.2f, "
                 "\"edges_a_batch\": %.1f, \"nodes_a_batch\": %.1f, \"ns_an_edge\": %.2f, "
                 "\"hash\": \"%016llx\"}\n",
                 batches / wall, edges / wall, 1e6 * seconds / batches, edges / batches,
                 (double)atomic_load(&bench->nodes) / batches, 1e9 * seconds / edges,
                 (unsigned long long)atomic_load(&bench->hash));
    return PLIM_OK;
}

static plim_status_t run(const plim_job_t *job, const options_t *options)
{
    bench_t bench = {.options = options};
    plim_dataset_t *dataset = NULL;
    plim__offsets_t *offsets = NULL;
    double begin = seconds_of(CLOCK_MONOTONIC);
    plim_status_t status = plim_dataset_open(job, options->path, &dataset);
    if (status == PLIM_OK)
        status = plim__offsets_create(job, dataset, &offsets);
    if (status == PLIM_OK)
        status =
            plim__topology_memory_create(job, dataset, offsets, options->threads, &bench.source);
    if (status == PLIM_OK) {
        (void)fprintf(stderr, "read in %.2f s\n", seconds_of(CLOCK_MONOTONIC) - begin);
        bench.num_split = plim_dataset_info(dataset)->num_split[0];
        status = make_workers(job, &bench, plim_dataset_info(dataset));
    }
    if (status == PLIM_OK)
        status = read_split(job, &bench);
    if (status == PLIM_OK)
        status = measure(&bench);
    for (int i = 0; i < options->threads && bench.workers != NULL; i++)
        plim__blocks_destroy(bench.workers[i].blocks);
    plim__arena_destroy(&bench.arena);
    plim__topology_destroy(bench.source);
    plim__offsets_destroy(offsets);
    plim_dataset_release(dataset);
    return status;
}

static void take_fanout(options_t *options, char *text)
{
    options->params.num_hops = 0;
    for (char *rest = text; *rest != '\0' && options->params.num_hops < PLIM__HOPS_MAX;) {
        options->params.fanout[options->params.num_hops++] = strtoll(rest, &rest, 10);
        rest += *rest == ',';
    }
}

int main(int count, char **arguments)
{
    options_t options = {.batch = 1024,
                         .batches = 1000,
                         .threads = 2,
                         .repeat = 3,
                         .params = {.num_hops = 3, .fanout = {15, 10, 5}}};
    plim_job_t job = {.threads = 1};
    for (int i = 1; i < count; i++) {
        char *value = i + 1 < count ? arguments[i + 1] : "";
        if (strcmp(arguments[i], "--batch") == 0 && ++i)
            options.batch = strtoll(value, NULL, 10);
        else if (strcmp(arguments[i], "--batches") == 0 && ++i)
            options.batches = strtoll(value, NULL, 10);
        else if (strcmp(arguments[i], "--threads") == 0 && ++i)
            options.threads = (int)strtol(value, NULL, 10);
        else if (strcmp(arguments[i], "--repeat") == 0 && ++i)
            options.repeat = (int)strtol(value, NULL, 10);
        else if (strcmp(arguments[i], "--fanout") == 0 && ++i)
            take_fanout(&options, value);
        else if (strcmp(arguments[i], "--pyg") == 0)
            options.params.form = PLIM_PYG;
        else if (strcmp(arguments[i], "--wide") == 0)
            options.wide = true;
        else if (strcmp(arguments[i], "--replace") == 0)
            options.params.replace = true;
        else
            options.path = arguments[i];
    }
    if (options.path == NULL || options.batch < 1 || options.batches < 1 || options.threads < 1 ||
        options.repeat < 1) {
        (void)fprintf(stderr, "bench_sample DIR [--batch N] [--fanout K,K,…] [--threads N] "
                              "[--batches N] [--repeat N] [--pyg] [--wide] [--replace]\n");
        return 2;
    }
    job.threads = options.threads;
    plim_status_t status = bench_job_make(PLIM_LINE_NONE, &job);
    if (status == PLIM_OK)
        status = run(&job, &options);
    if (status != PLIM_OK)
        (void)fprintf(stderr, "%s\n", plim_last_error());
    plim_job_release(&job);
    return status == PLIM_OK ? 0 : 1;
}
