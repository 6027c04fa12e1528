/*
 * Measures the choice of hot lists and rows alone, for one window of a whole epoch.
 *
 *     cmake --build --preset release --target bench_worth
 *     build/release/bench_worth DATASET FANOUT WORK_MIB ROOM_MIB THREADS [SHARE [uring|threads]]
 *
 * FANOUT is "15,10,5"; the seeds are train.npy's. Rows take what they take on disk, an entry of a
 * list its file's width. Prints one JSON object: seconds, what was chosen, expected hits.
 */
#include "bench_job.h"

#include "base/fail.h"
#include "sample/access.h"
#include "store/dataset.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static int64_t *read_seeds(const char *directory, int64_t count)
{
    char path[4096];
    int64_t *seeds = calloc((size_t)count + 1, sizeof *seeds);
    (void)snprintf(path, sizeof path, "%s/train.npy", directory);
    FILE *file = fopen(path, "rb");
    if (seeds == NULL || file == NULL || fseek(file, PLIM__NPY_HEADER, SEEK_SET) != 0 ||
        fread(seeds, sizeof *seeds, (size_t)count, file) != (size_t)count) {
        fprintf(stderr, "%s cannot be read\n", path);
        exit(1);
    }
    (void)fclose(file);
    return seeds;
}

static void read_fanout(const char *text, plim__access_params_t *params)
{
    for (; *text != '\0' && params->num_hops < PLIM__HOPS_MAX; text += *text == ',') {
        char *end;
        params->fanout[params->num_hops++] = strtoll(text, &end, 10);
        text = end;
    }
}

static plim_status_t measure(const plim_job_t *job, const char *directory,
                             plim__access_params_t *params)
{
    plim_dataset_t *dataset;
    plim__offsets_t *offsets;
    plim__access_t worth;
    PLIM_TRY(plim_dataset_open(job, directory, &dataset));
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    double start = now();
    PLIM_TRY(plim__offsets_create(job, dataset, &offsets));
    double opened = now();
    params->num_seeds = info->num_split[0];
    params->seeds = read_seeds(directory, params->num_seeds);
    params->row_bytes = (size_t)info->num_features * (info->feature_type == PLIM_F16 ? 2 : 4);
    params->list_bytes = info->index_type == PLIM_I32 ? 4 : 8;
    PLIM_TRY(plim__access_find(job, dataset, offsets, params, &worth));
    double found = now();
    printf("{\"offsets_seconds\": %.2f, \"seconds\": %.2f, \"lists\": %lld, \"list_bytes\": %zu, "
           "\"list_hits\": %.4f, \"rows\": %lld, \"row_bytes\": %zu, \"row_hits\": %.4f}\n",
           opened - start, found - opened, (long long)worth.lists.count, worth.list_bytes,
           worth.list_hits, (long long)worth.rows.count, worth.row_bytes, worth.row_hits);
    plim__access_free(&worth);
    plim__offsets_destroy(offsets);
    plim_dataset_release(dataset);
    free((void *)(uintptr_t)params->seeds);
    return PLIM_OK;
}

int main(int argc, char **argv)
{
    if (argc < 6) {
        fprintf(stderr,
                "bench_worth DATASET FANOUT WORK_MIB ROOM_MIB THREADS [SHARE [uring|threads]]\n");
        return 2;
    }
    plim__access_params_t params = {.share = argc > 6 ? atof(argv[6]) : 1, .tmp = "."};
    read_fanout(argv[2], &params);
    params.work_bytes = strtoull(argv[3], NULL, 10) << 20;
    params.room = params.row_room = params.list_room = strtoull(argv[4], NULL, 10) << 20;
    plim_job_t job = {.threads = 1};
    job.threads = atoi(argv[5]);
    if (argc > 7)
        job.io_engine = strcmp(argv[7], "uring") == 0 ? PLIM_IO_URING : PLIM_IO_THREADS;
    plim_status_t status = bench_job_make(INT64_MAX, &job);
    if (status == PLIM_OK)
        status = measure(&job, argv[1], &params);
    if (status != PLIM_OK)
        fprintf(stderr, "bench_worth: %s\n", plim_last_error());
    plim_job_release(&job);
    return status == PLIM_OK ? 0 : 1;
}
