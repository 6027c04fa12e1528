#include "load/merge_distance.h"

#include "base/check.h"
#include "base/clock.h"
#include "base/job.h"
#include "base/rng.h"
#include "base/threads.h"
#include "io/npy.h"
#include "io/reader.h"
#include "mem/arena.h"
#include "store/dataset.h"

#include <stdatomic.h>

enum {
    SMALL_READS = 6000,
    LARGE_READS = 1500,
    PIECE = 512,        /* reads that a thread takes at a time */
    MINIMUM = 4 << 10,  /* a page: reads closer than this share one */
    MAXIMUM = 64 << 10, /* the largest merged transfer */
};

/* The disk's own cache would answer reads of a smaller dataset. */
static const int64_t MEASURED_BYTES = (int64_t)1 << 30;

/* Reads of one size at random places of a file. The threads take them piece by piece. */
typedef struct burst {
    const plim_job_t *job;
    plim__file_t file;
    int64_t num_places;
    int64_t num_reads;
    size_t bytes;
    int depth;
    void *discarded; /* (bytes) every read goes here */
    _Atomic int64_t next;
} burst_t;

static plim_status_t read_places(void *context, int worker)
{
    burst_t *burst = context;
    const plim__reader_params_t params = {.depth = burst->depth, .max_read = burst->bytes};
    const uint64_t key = plim__rng_key(0, 1, 0, 0);
    plim__reader_t *reader;
    plim__read_t reads[PIECE];
    int64_t first;
    (void)worker;
    PLIM_TRY(plim__reader_create(burst->job, &params, &reader));
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK &&
           (first = atomic_fetch_add(&burst->next, PIECE)) < burst->num_reads) {
        const int64_t count = plim__min_i64(burst->num_reads - first, PIECE);
        for (int64_t i = 0; i < count; i++) {
            const uint64_t draw = plim__rng_u64(key, (uint64_t)(first + i));
            const int64_t place = (int64_t)(draw % (uint64_t)burst->num_places);
            reads[i] = (plim__read_t){(int64_t)PLIM__NPY_HEADER + place * (int64_t)burst->bytes,
                                      burst->bytes, burst->discarded};
        }
        status = plim__reader_read(reader, &burst->file, reads, count);
    }
    plim__reader_destroy(reader);
    return status;
}

/* Measures the mean seconds a read takes while all threads keep their queues full. */
static plim_status_t measure(const plim_job_t *job, const plim_dataset_t *dataset, const char *file,
                             int64_t num_reads, size_t bytes, int depth, double *seconds_out)
{
    const plim__manifest_file_t *entry = plim__manifest_find(plim__dataset_manifest(dataset), file);
    const int threads = plim__job_threads(job);
    const size_t stacks = (size_t)(threads - 1) * PLIM__STACK_BYTES;
    plim__arena_t arena;
    burst_t burst = {.job = job, .num_reads = num_reads, .bytes = bytes, .depth = depth};
    burst.num_places = (entry->bytes - (int64_t)PLIM__NPY_HEADER) / (int64_t)bytes;
    if (burst.num_places < num_reads)
        return PLIM_ERR_UNSUPPORTED;
    /* The threads' stacks are reserved with the buffer. */
    PLIM_TRY(plim__arena_create(job->ledger, "disk measurement", bytes + stacks, &arena));
    burst.discarded = arena.base;
    plim_status_t status = plim__dataset_file_open(dataset, entry, true, &burst.file);
    if (status == PLIM_OK) {
        const int64_t start = plim__clock_ns();
        status = plim__parallel(threads, read_places, &burst);
        *seconds_out = plim__clock_seconds_since(start) / (double)num_reads;
        plim__file_close(&burst.file);
    }
    plim__arena_destroy(&arena);
    return status;
}

size_t plim__merge_distance_of(double small_seconds, double large_seconds)
{
    const double byte = (large_seconds - small_seconds) / (PLIM__MERGE_LARGE - PLIM__MERGE_SMALL);
    const double call = small_seconds - PLIM__MERGE_SMALL * byte;
    if (byte <= 0 || call >= MAXIMUM * byte)
        return MAXIMUM;
    return (size_t)plim__max_i64((int64_t)(call / byte), MINIMUM);
}

size_t plim__merge_distance_measure(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__load_plan_t *plan)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const bool rows = !plan->rows_in_memory && info->num_features > 0;
    double small, large;
    if ((!rows && plan->topology_in_memory) || info->bytes < MEASURED_BYTES)
        return plan->merge_distance;
    const char *file = rows ? "features.npy" : "indices.npy";
    if (measure(job, dataset, file, SMALL_READS, PLIM__MERGE_SMALL, plan->io_depth, &small) !=
            PLIM_OK ||
        measure(job, dataset, file, LARGE_READS, PLIM__MERGE_LARGE, plan->io_depth, &large) !=
            PLIM_OK)
        return plan->merge_distance;
    const size_t distance = plim__merge_distance_of(small, large);
    plim__log(job, PLIM_LOG_INFO, "disk: merging reads less than %zu KiB apart", distance >> 10);
    return distance;
}
