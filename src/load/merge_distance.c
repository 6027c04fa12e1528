#include "load/merge_distance.h"

#include "base/check.h"
#include "base/job.h"

#include <plimsoll/bench.h>

enum {
    SMALL_READS = 6000,
    LARGE_READS = 1500,
    LEAST = 4 << 10, /* a page: closer places share one anyhow */
    MOST = 64 << 10  /* a transfer's size: farther apart they cannot be joined */
};

/* Bursts over less than this would find the disk's own cache. */
static const int64_t WORTH_MEASURING = (int64_t)1 << 30;

/* Seconds a read takes, all threads and their queues at work. */
static bool measure(const plim_job_t *job, const plim_dataset_t *dataset, const char *file,
                    int64_t reads, int64_t bytes, int depth, double *seconds_out)
{
    plim_bench_result_t result;
    if (plim_bench_reads(job, dataset, file, reads, bytes, depth, 0, &result) != PLIM_OK)
        return false;
    *seconds_out = result.seconds / (double)reads;
    return true;
}

size_t plim__merge_distance_of(double small_seconds, double large_seconds)
{
    const double byte = (large_seconds - small_seconds) / (PLIM__MERGE_LARGE - PLIM__MERGE_SMALL);
    const double call = small_seconds - PLIM__MERGE_SMALL * byte;
    if (byte <= 0 || call >= MOST * byte)
        return MOST;
    return (size_t)plim__max_i64((int64_t)(call / byte), LEAST);
}

size_t plim__merge_distance_measure(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__load_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const bool rows = !plan->rows_in_memory && info->num_features > 0;
    double small, large;
    if ((!rows && plan->topology_in_memory) || info->bytes < WORTH_MEASURING)
        return plan->merge_distance;
    const char *file = rows ? "features.npy" : "indices.npy";
    if (!measure(job, dataset, file, SMALL_READS, PLIM__MERGE_SMALL, plan->io_depth, &small) ||
        !measure(job, dataset, file, LARGE_READS, PLIM__MERGE_LARGE, plan->io_depth, &large))
        return plan->merge_distance;
    const size_t gap = plim__merge_distance_of(small, large);
    plim__log(job, PLIM_LOG_INFO,
              "on this disk one more read costs as much as moving %zu KiB: what lies closer "
              "is read as one",
              gap >> 10);
    return gap;
}
