/*
 * Measures gathering rows alone: uniformly random nodes, from memory or from disk.
 *
 *     cmake --build --preset release --target bench_gather
 *     build/release/bench_gather DIRECTORY memory|disk|hot THREADS SECONDS [f16|f32]
 * [uring|threads] [DEPTH] [ROWS] [sorted] [GAP_KIB]
 *
 * ROWS: of one gather. `hot`: every third node is kept in memory, and only those are asked for.
 * Prints one JSON object. Beside the disk figures belongs
 *     fio --name=x --filename=DIRECTORY/features.npy --readonly --rw=randread --bs=4k --direct=1
 *         --ioengine=io_uring --iodepth=DEPTH --runtime=SECONDS --time_based
 */
#include "bench_job.h"

#include "base/fail.h"
#include "base/rng.h"
#include "base/threads.h"
#include "feature/rows.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef struct run {
    plim__rows_t *source;
    uint64_t num_nodes;
    int64_t rows;
    size_t row_bytes;
    plim_dtype_t type;
    bool sorted;
    int64_t one_in; /* only multiples of this are asked for */
    double seconds;
    atomic_int next;
    atomic_llong gathered;
    atomic_llong cpu_ns;
    atomic_llong wall_ns; /* summed over threads */
} run_t;

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static int64_t cpu_ns(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

static plim_status_t gather(void *context, int ignored)
{
    (void)ignored;
    run_t *run = context;
    int worker = atomic_fetch_add(&run->next, 1);
    size_t count = (size_t)run->rows, lists = count < 65536 ? 65536 / count : 1;
    int64_t *nodes = malloc(lists * count * sizeof *nodes);
    char *rows = aligned_alloc(4096, (count * run->row_bytes + 4095) / 4096 * 4096);
    if (nodes == NULL || rows == NULL)
        abort();
    uint64_t draw = (uint64_t)worker << 40;
    plim_status_t status = PLIM_OK;
    double start = now();
    double spent = 0; /* choosing nodes, which is not measured */
    for (int64_t round = 0; status == PLIM_OK; round++) {
        if (now() - start - spent > run->seconds)
            break;
        int64_t *list = nodes + ((size_t)round % lists) * count;
        if ((size_t)round % lists == 0) {
            double before = now();
            for (size_t i = 0; i < lists * count; i++) {
                nodes[i] = (int64_t)plim__rng_below(11, &draw, run->num_nodes);
                nodes[i] -= nodes[i] % run->one_in;
            }
            for (size_t i = 0; i < lists && run->sorted; i++)
                qsort(nodes + i * count, count, sizeof *nodes, compare);
            spent += now() - before;
        }
        int64_t cpu = cpu_ns();
        status = plim__rows_gather(run->source, worker, list, run->rows, run->type, rows);
        atomic_fetch_add(&run->cpu_ns, cpu_ns() - cpu);
        atomic_fetch_add(&run->gathered, run->rows);
    }
    atomic_fetch_add(&run->wall_ns, (long long)((now() - start - spent) * 1e9));
    free(rows);
    free(nodes);
    return status;
}

static plim_status_t open_source(const plim_job_t *job, const plim_dataset_t *dataset,
                                 const char *kind, int depth, size_t gap, int64_t one_in,
                                 plim__rows_t **source_out)
{
    plim__rows_disk_params_t params = {.workers = job->threads, .depth = depth, .gap = gap};
    if (strcmp(kind, "memory") == 0)
        return plim__rows_memory_create(job, dataset, source_out);
    if (strcmp(kind, "disk") == 0)
        return plim__rows_disk_create(job, dataset, &params, source_out);
    int64_t n = plim_dataset_info(dataset)->num_nodes;
    static plim__node_set_t set;
    void *lines = aligned_alloc(64, plim__node_set_bytes(n));
    if (lines == NULL)
        abort();
    memset(lines, 0, plim__node_set_bytes(n));
    set = plim__node_set_make(lines, n);
    for (int64_t node = 0; node < n; node += one_in)
        (void)plim__node_set_add(&set, node);
    plim__node_set_seal(&set);
    params.hot = &set;
    params.cache_bytes = SIZE_MAX >> 8;
    return plim__rows_disk_create(job, dataset, &params, source_out);
}

int main(int argc, char **argv)
{
    plim_job_t job = {.threads = 1};
    plim_dataset_t *dataset;
    run_t run = {.sorted = false};
    plim__rows_stats_t stats;
    if (argc < 5) {
        (void)fprintf(stderr, "usage: see the top of bench/bench_gather.c\n");
        return 2;
    }
    job.threads = atoi(argv[3]);
    job.io_engine = argc > 6 && strcmp(argv[6], "threads") == 0 ? PLIM_IO_THREADS : PLIM_IO_AUTO;
    int depth = argc > 7 ? atoi(argv[7]) : 128;
    if (bench_job_make(PLIM_LINE_NONE, &job) != PLIM_OK ||
        plim_dataset_open(&job, argv[1], &dataset) != PLIM_OK)
        goto failed;
    run.one_in = strcmp(argv[2], "hot") != 0 ? 1 : argc > 11 ? atoll(argv[11]) : 3;
    double start = now();
    if (open_source(&job, dataset, argv[2], depth, (size_t)(argc > 10 ? atoi(argv[10]) : 0) << 10,
                    run.one_in, &run.source) != PLIM_OK)
        goto failed;
    double opened = now() - start;
    run.num_nodes = (uint64_t)plim_dataset_info(dataset)->num_nodes;
    run.type = argc > 5 && strcmp(argv[5], "f32") == 0 ? PLIM_F32 : PLIM_F16;
    run.row_bytes =
        (size_t)plim_dataset_info(dataset)->num_features * (run.type == PLIM_F32 ? 4 : 2);
    run.rows = argc > 8 ? atoll(argv[8]) : 1223;
    run.sorted = argc > 9 && strcmp(argv[9], "sorted") == 0;
    run.seconds = atof(argv[4]);
    if (plim__parallel(job.threads, gather, &run) != PLIM_OK)
        goto failed;
    plim__rows_stats(run.source, &stats);
    double rows = (double)run.gathered;
    double seconds = (double)run.wall_ns * 1e-9 / job.threads;
    (void)printf("{\"opened_s\": %.2f, \"rows_per_s\": %.0f, \"cpu_ns_per_row\": %.1f, "
                 "\"hot\": %.4f, \"transfers_per_s\": %.0f, \"bytes_per_s\": %.0f}\n",
                 opened, rows / seconds, (double)run.cpu_ns / rows,
                 (double)stats.rows_hot / (double)stats.rows, (double)stats.transfers / seconds,
                 (double)stats.bytes_read / seconds);
    plim__rows_destroy(run.source);
    plim_dataset_release(dataset);
    plim_job_release(&job);
    return 0;
failed:
    (void)fprintf(stderr, "%s\n", plim_last_error());
    return 1;
}
