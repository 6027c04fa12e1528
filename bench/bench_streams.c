/*
 * Measures what several streams over one loader cost: memory beside one stream, and five
 * validations inside a training epoch beside both alone.
 *
 *     cmake --build --preset release --target bench_streams
 *     build/release/bench_streams DIRECTORY MEMORY STREAMS [ROUNDS]     (STREAMS: 1 or 3)
 *
 * Two threads.
 *
 * Workload: batches of 1,024 with a fan-out of 5,5; validation in batches of 2,048 with 5,3; the
 * third stream is a list of every hundredth node. Prints one JSON object: the plan's peak and the
 * process's own in bytes, and for each round the seconds and bytes read of the epoch, of five
 * validations, and of both together.
 */
#include <plimsoll/plimsoll.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <time.h>

#define VALIDATIONS 5

typedef struct bench {
    plim_job_t *job;
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    plim_loader_t *loader;
    plim_stream_params_t params[3]; /* train, validation, list */
    plim_stream_t *streams[3];
    int64_t *nodes;
} bench_t;

static double now(void)
{
    struct timespec time;
    (void)clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

/* Takes batches until the stream is at `step`, or behind its last. */
static plim_status_t take(plim_stream_t *stream, int64_t step)
{
    plim_batch_t *batch;
    plim_stream_info_t info = PLIM_STREAM_INFO_INIT;
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK && info.step < step) {
        status = plim_stream_next(stream, -1, &batch);
        if (status != PLIM_OK || batch == NULL)
            break;
        plim_batch_release(batch);
        status = plim_stream_info(stream, &info);
    }
    return status;
}

static plim_status_t whole(plim_stream_t *stream, int64_t epoch)
{
    const plim_status_t status = plim_stream_start(stream, epoch, 0);
    return status == PLIM_OK ? take(stream, INT64_MAX) : status;
}

/* An epoch of training with so many validations, spread over it. */
static plim_status_t train(const bench_t *bench, int64_t epoch, int validations)
{
    plim_stream_info_t info = PLIM_STREAM_INFO_INIT;
    (void)plim_stream_info(bench->streams[0], &info);
    const int64_t steps = info.steps;
    plim_status_t status = plim_stream_start(bench->streams[0], epoch, 0);
    for (int i = 1; i <= validations && status == PLIM_OK; i++) {
        status = take(bench->streams[0], steps * i / (validations + 1));
        if (status == PLIM_OK)
            status = whole(bench->streams[1], 0);
    }
    return status == PLIM_OK ? take(bench->streams[0], INT64_MAX) : status;
}

static int64_t bytes_read(const bench_t *bench)
{
    plim_load_stats_t stats = PLIM_LOAD_STATS_INIT;
    plim_loader_stats(bench->loader, &stats);
    return stats.list_bytes + stats.row_bytes;
}

static plim_status_t measure(const bench_t *bench, int64_t round)
{
    double at[4] = {now()};
    int64_t bytes[4] = {bytes_read(bench)};
    plim_status_t status = train(bench, 3 * round, 0);
    at[1] = now();
    bytes[1] = bytes_read(bench);
    for (int i = 0; i < VALIDATIONS && status == PLIM_OK; i++)
        status = whole(bench->streams[1], 0);
    at[2] = now();
    bytes[2] = bytes_read(bench);
    if (status == PLIM_OK)
        status = train(bench, 3 * round + 1, VALIDATIONS);
    at[3] = now();
    bytes[3] = bytes_read(bench);
    static const char *const names[3] = {"epoch", "validations", "both"};
    (void)printf("%s{", round > 0 ? ", " : "");
    for (int i = 0; i < 3; i++)
        (void)printf("%s\"%s\": {\"seconds\": %.3f, \"bytes_read\": %" PRId64 "}",
                     i > 0 ? ", " : "", names[i], at[i + 1] - at[i], bytes[i + 1] - bytes[i]);
    (void)printf("}");
    return status;
}

static plim_status_t set_up(bench_t *bench, const char *path, const char *memory, int streams)
{
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT;
    plim_job_params_t job = PLIM_JOB_PARAMS_INIT;
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    plim_recipe_t recipe = PLIM_RECIPE_INIT;
    plim_status_t status = plim_size_parse(memory, &job.line);
    job.threads = 2;
    if (status == PLIM_OK)
        status = plim_job_create(&job, &bench->job);
    if (status == PLIM_OK)
        status = plim_dataset_open(bench->job, path, &bench->dataset);
    if (status != PLIM_OK)
        return status;
    const plim_dataset_info_t *info = plim_dataset_info(bench->dataset);
    recipe.fanout[0] = recipe.fanout[1] = 5;
    recipe.row_type = info->feature_type;
    for (int i = 0; i < 3; i++)
        bench->params[i] = usual;
    bench->params[1].split = PLIM_VALID;
    bench->params[1].shuffle = false;
    bench->params[1].batch_size = 2048;
    bench->params[1].num_hops = 2;
    bench->params[1].fanout[0] = 5;
    bench->params[1].fanout[1] = 3;
    bench->params[2].num_nodes = info->num_nodes / 100;
    bench->nodes = calloc((size_t)bench->params[2].num_nodes, sizeof *bench->nodes);
    if (bench->nodes == NULL)
        return PLIM_ERR_NOMEM;
    for (int64_t i = 0; i < bench->params[2].num_nodes; i++)
        bench->nodes[i] = 100 * i;
    bench->params[2].nodes = bench->nodes;
    wanted.streams = bench->params;
    wanted.num_streams = streams;
    status = plim_load_plan(bench->job, bench->dataset, &recipe, &wanted, &bench->plan);
    if (status == PLIM_OK)
        status = plim_loader_create(bench->job, bench->dataset, bench->plan, &bench->loader);
    for (int i = 0; i < streams && status == PLIM_OK; i++)
        status = plim_loader_stream(bench->loader, &bench->params[i], &bench->streams[i]);
    return status;
}

static void tear_down(const bench_t *bench)
{
    for (int i = 0; i < 3; i++)
        plim_stream_release(bench->streams[i]);
    plim_loader_release(bench->loader);
    plim_plan_release(bench->plan);
    plim_dataset_release(bench->dataset);
    plim_job_release(bench->job);
    free(bench->nodes);
}

int main(int argc, char **argv)
{
    bench_t bench = {0};
    struct rusage usage;
    plim_plan_info_t info = PLIM_PLAN_INFO_INIT;
    if (argc < 4)
        return 2;
    const int streams = atoi(argv[3]), rounds = argc > 4 ? atoi(argv[4]) : 3;
    plim_status_t status = set_up(&bench, argv[1], argv[2], streams);
    if (status == PLIM_OK)
        status = train(&bench, 1000, 0); /* warm */
    for (int i = 1; i < streams && status == PLIM_OK; i++)
        status = whole(bench.streams[i], 0);
    (void)printf("{\"rounds\": [");
    for (int64_t i = 0; i < rounds && streams == 3 && status == PLIM_OK; i++)
        status = measure(&bench, i);
    if (status == PLIM_OK)
        status = plim_plan_info(bench.plan, &info);
    if (status == PLIM_OK && getrusage(RUSAGE_SELF, &usage) == 0)
        (void)printf("], \"planned_bytes\": %" PRId64 ", \"peak_bytes\": %" PRId64 "}\n", info.peak,
                     (int64_t)usage.ru_maxrss * 1024);
    if (status != PLIM_OK)
        (void)fprintf(stderr, "%s\n", plim_last_error());
    tear_down(&bench);
    return status != PLIM_OK;
}
