/*
 * How many reads a second does gathering rows from disk make? Gathers the rows of uniformly drawn
 * nodes on one thread, without a cache. tools/prove gather compares it with fio.
 *
 *     cmake --build --preset release --target bench_gather
 *     build/release/bench_gather DIRECTORY ENGINE ROWS CALLS     (ENGINE: uring or threads)
 *
 * No node is drawn twice before all have been. Only the gather is timed. Prints one JSON object.
 */
#include "bench_job.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/permute.h"
#include "source/row_form.h"
#include "source/rows.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static plim_status_t gather(plim__rows_t *source, const plim__permute_t *order, int64_t batch,
                            int64_t calls, plim_dtype_t type, int64_t *nodes, void *rows,
                            double *seconds)
{
    for (int64_t call = 0; call < calls; call++) {
        for (int64_t i = 0; i < batch; i++)
            nodes[i] = (call * batch + i) % (int64_t)order->count;
        plim__permute_many(order, nodes, batch, false);
        const int64_t start = plim__clock_ns();
        PLIM_TRY(plim__rows_gather(source, 0, nodes, batch, type, rows));
        *seconds += plim__clock_seconds_since(start);
    }
    return PLIM_OK;
}

static plim_status_t run(const plim_job_t *job, const char *path, int64_t batch, int64_t calls)
{
    const plim__source_params_t params = {.workers = 1, .depth = 128, .merge_distance = 16 << 10};
    plim_dataset_t *dataset;
    plim__rows_t *source;
    plim__arena_t arena;
    double seconds = 0;
    PLIM_TRY(plim_dataset_open(job, path, &dataset));
    const plim__row_form_t form = plim__row_form_of(dataset);
    const plim__permute_t order = plim__permute_make(
        (uint64_t)plim_dataset_info(dataset)->num_nodes, plim__rng_key(0, 3, 0, 0));
    PLIM_TRY(plim__arena_create(job->ledger, "bench",
                                (size_t)batch * (form.bytes + sizeof(int64_t)) + 2 * PLIM__PAGE,
                                &arena));
    int64_t *nodes = plim__arena_carve(&arena, (size_t)batch, sizeof *nodes, 1);
    void *rows = plim__arena_carve(&arena, (size_t)batch, form.bytes, PLIM__PAGE);
    PLIM_TRY(plim__rows_disk_create(job, dataset, &params, &source));
    PLIM_TRY(gather(source, &order, batch, calls, form.type, nodes, rows, &seconds));
    const plim__source_stats_t stats = plim__source_stats(source->disk);
    printf("{\"rows\": %" PRId64 ", \"seconds\": %.6f, \"transfers\": %" PRId64
           ", \"bytes_read\": %" PRId64 "}\n",
           stats.items, seconds, stats.transfers, stats.bytes_read);
    return PLIM_OK;
}

int main(int argc, char **argv)
{
    plim_job_t job = {.threads = 1};
    if (argc != 5) {
        (void)fprintf(stderr, "usage: bench_gather DIRECTORY ENGINE ROWS CALLS\n");
        return 2;
    }
    job.io_engine = strcmp(argv[2], "threads") == 0 ? PLIM_IO_THREADS : PLIM_IO_URING;
    plim_status_t status = bench_job_make(PLIM_LINE_NONE, &job);
    if (status == PLIM_OK)
        status = run(&job, argv[1], atoll(argv[3]), atoll(argv[4]));
    if (status != PLIM_OK)
        (void)fprintf(stderr, "bench_gather: %s\n", plim_last_error());
    return status == PLIM_OK ? 0 : 1;
}
