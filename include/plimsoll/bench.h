/*
 * Measuring: rows gathered from the row source alone, and the bare engine or bare memory beside
 * it, so that a figure can be judged by what the machine allows.
 */
#ifndef PLIMSOLL_BENCH_H
#define PLIMSOLL_BENCH_H

#include <plimsoll/plan.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plim_bench_result {
    int64_t count;  /* rows, reads or copies done */
    int64_t bytes;  /* moved to where they were wanted */
    double seconds; /* from first to last, all threads at once */
    int64_t transfers;
    int64_t bytes_read;  /* by them */
    double wait_seconds; /* for I/O, summed over threads */
} plim_bench_result_t;

/*
 * Fits gathers of recipe->batch_size rows a call under the line, rows in memory where they fit
 * (params->rows decides otherwise), without cache. Of the recipe only batch_size, row_type and seed
 * count. PLIM_ERR_BUDGET with the least line; PLIM_ERR_USAGE when the dataset has no features.
 */
PLIM_API plim_status_t plim_bench_gather_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                              const plim_recipe_t *recipe,
                                              const plim_plan_params_t *params,
                                              plim_plan_t **plan_out);

/*
 * Gathers the rows of nodes drawn uniformly (a keyed permutation, so none twice until all have
 * been), `calls` times a batch, on all threads; then has the bare machine do the same: from disk
 * the engine reads the same aligned places, each for itself, at the same depth; in memory as many
 * bytes are copied from the same places. Memory: as planned. PLIM_ERR_IO, PLIM_ERR_DATA,
 * PLIM_ERR_NOMEM, PLIM_ERR_BUDGET, PLIM_ERR_STOPPED.
 */
PLIM_API plim_status_t plim_bench_gather(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_plan_t *plan, int64_t calls,
                                         plim_bench_result_t *gather_out,
                                         plim_bench_result_t *bare_out);

/*
 * Reads `count` times `bytes` (widened to what the file system takes) at random places of a file of
 * the dataset ("features.npy"), `depth` at once on every thread. Memory: depth buffers a thread.
 */
PLIM_API plim_status_t plim_bench_reads(const plim_job_t *job, const plim_dataset_t *dataset,
                                        const char *file, int64_t count, int64_t bytes, int depth,
                                        uint64_t seed, plim_bench_result_t *result_out);

/*
 * Copies `count` times `bytes` from random places of `region` bytes of memory, or as many as
 * `peak` (a plan's) leaves beside what is held, on all threads.
 */
PLIM_API plim_status_t plim_bench_copies(const plim_job_t *job, int64_t peak, int64_t region,
                                         int64_t count, int64_t bytes, uint64_t seed,
                                         plim_bench_result_t *result_out);

#ifdef __cplusplus
}
#endif
#endif
