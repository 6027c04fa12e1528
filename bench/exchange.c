/*
 * Beside bare MPI, in one run of all ranks: the sum of gradients (peers/reduce.h) and
 * MPI_Allreduce, the interface's all-to-all and MPI_Alltoallv, in turn. tools/prove exchange runs
 * it for each MPI.
 *
 *     mpirun -n RANKS build/release/exchange_openmpi PLUGIN     (build/release/plimsoll-openmpi.so)
 *
 * A time is that of the slowest rank; the median of the rounds is printed, one JSON line a size, by
 * rank 0. Shares are as many as ranks.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "peers/reduce.h"

#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROUNDS 15
#define ROUND_SECONDS 0.02
#define RANKS_MAX 64

typedef struct bench {
    plim__peers_t *peers;
    int rank, num_ranks;
    plim__reduce_t *reduce;
    int64_t num_weights;
    float *gradient, *sum;
    char *send, *receive;
    size_t each; /* bytes from each rank to each */
} bench_t;

static void check(plim_status_t status)
{
    if (status == PLIM_OK)
        return;
    (void)fprintf(stderr, "bench: %s\n", plim_last_error());
    (void)MPI_Abort(MPI_COMM_WORLD, 1);
}

static void bare_sum(bench_t *bench)
{
    (void)MPI_Allreduce(bench->gradient, bench->sum, (int)bench->num_weights, MPI_FLOAT, MPI_SUM,
                        MPI_COMM_WORLD);
}

static void our_sum(bench_t *bench)
{
    double loss;
    plim__reduce_add(bench->reduce, bench->gradient, 0);
    check(plim__reduce_exchange(bench->reduce, PLIM_OK, bench->sum, &loss));
}

static void bare_all_to_all(bench_t *bench)
{
    int sizes[RANKS_MAX], offsets[RANKS_MAX];
    for (int rank = 0; rank < bench->num_ranks; rank++) {
        sizes[rank] = (int)bench->each;
        offsets[rank] = rank * (int)bench->each;
    }
    (void)MPI_Alltoallv(bench->send, sizes, offsets, MPI_BYTE, bench->receive, sizes, offsets,
                        MPI_BYTE, MPI_COMM_WORLD);
}

static void our_all_to_all(bench_t *bench)
{
    size_t sizes[RANKS_MAX], offsets[RANKS_MAX], received[RANKS_MAX], places[RANKS_MAX];
    for (int rank = 0; rank < bench->num_ranks; rank++) {
        sizes[rank] = bench->each;
        offsets[rank] = (size_t)rank * bench->each;
    }
    check(plim__peers_all_to_all(bench->peers, PLIM__STAGE_STEP, bench->send, sizes, offsets,
                                 bench->receive, bench->each * (size_t)bench->num_ranks, received,
                                 places));
}

/* Seconds of one call, on the slowest rank, over `calls` calls. */
static double time_calls(void (*call)(bench_t *), bench_t *bench, int calls)
{
    double seconds, slowest;
    (void)MPI_Barrier(MPI_COMM_WORLD);
    const int64_t began = plim__clock_ns();
    for (int i = 0; i < calls; i++)
        call(bench);
    seconds = plim__clock_seconds_since(began) / calls;
    (void)MPI_Allreduce(&seconds, &slowest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return slowest;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Times both in turn and prints their medians, and that of their ratios of one round. */
static void beside(bench_t *bench, const char *what, size_t bytes, void (*bare)(bench_t *),
                   void (*ours)(bench_t *))
{
    double bare_seconds[ROUNDS], our_seconds[ROUNDS], ratios[ROUNDS];
    const double first = time_calls(bare, bench, 2) + time_calls(ours, bench, 2);
    const int calls = first < ROUND_SECONDS ? (int)(2 * ROUND_SECONDS / first) + 1 : 1;
    for (int i = 0; i < ROUNDS; i++) {
        bare_seconds[i] = time_calls(bare, bench, calls);
        our_seconds[i] = time_calls(ours, bench, calls);
        ratios[i] = our_seconds[i] / bare_seconds[i];
    }
    qsort(bare_seconds, ROUNDS, sizeof *bare_seconds, compare);
    qsort(our_seconds, ROUNDS, sizeof *our_seconds, compare);
    qsort(ratios, ROUNDS, sizeof *ratios, compare);
    if (bench->rank == 0) {
        (void)printf("{\"what\": \"%s\", \"ranks\": %d, \"bytes\": %zu, \"bare_us\": %.2f, "
                     "\"ours_us\": %.2f, \"ratio\": %.3f}\n",
                     what, bench->num_ranks, bytes, bare_seconds[ROUNDS / 2] * 1e6,
                     our_seconds[ROUNDS / 2] * 1e6, ratios[ROUNDS / 2]);
        (void)fflush(stdout);
    }
}

static void bench_sums(bench_t *bench, const plim_job_t *job)
{
    const int64_t weights[] = {5000, 285000};
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++) {
        bench->num_weights = weights[i];
        bench->gradient = calloc((size_t)weights[i], sizeof(float));
        bench->sum = calloc((size_t)weights[i], sizeof(float));
        if (bench->gradient == NULL || bench->sum == NULL)
            (void)MPI_Abort(MPI_COMM_WORLD, 1);
        for (int64_t j = 0; j < weights[i]; j++)
            bench->gradient[j] = (float)(j % 1000);
        check(plim__reduce_create(job, bench->peers, weights[i], bench->num_ranks, &bench->reduce));
        beside(bench, "sum", (size_t)weights[i] * sizeof(float), bare_sum, our_sum);
        plim__reduce_destroy(bench->reduce);
        free(bench->gradient);
        free(bench->sum);
    }
}

static void bench_all_to_alls(bench_t *bench)
{
    for (size_t bytes = (size_t)1 << 20; bytes <= (size_t)256 << 20; bytes *= 4) {
        bench->each = bytes / (size_t)bench->num_ranks;
        bench->send = malloc(bytes);
        bench->receive = malloc(bytes);
        if (bench->send == NULL || bench->receive == NULL)
            (void)MPI_Abort(MPI_COMM_WORLD, 1);
        memset(bench->send, 1, bytes);
        memset(bench->receive, 1, bytes);
        beside(bench, "all_to_all", bytes, bare_all_to_all, our_all_to_all);
        free(bench->send);
        free(bench->receive);
    }
}

int main(int argc, char **argv)
{
    plim_transport_t transport = PLIM_TRANSPORT_INIT;
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    bench_t bench = {.rank = 0};
    plim_job_t *job;
    char message[256];
    int provided;
    if (argc != 2) {
        (void)fprintf(stderr, "usage: mpirun -n RANKS %s PLUGIN\n", argv[0]);
        return 2;
    }
    (void)MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &provided);
    void *plugin = dlopen(argv[1], RTLD_NOW);
    plim_plugin_open_fn open_plugin;
    if (plugin == NULL) {
        (void)fprintf(stderr, "bench: %s\n", dlerror());
        return 1;
    }
    *(void **)&open_plugin = dlsym(plugin, PLIM_PLUGIN_OPEN);
    if (open_plugin(&transport, message, sizeof message) != PLIM_OK) {
        (void)fprintf(stderr, "bench: %s\n", message);
        return 1;
    }
    params.transport = &transport;
    check(plim_job_create(&params, &job));
    check(plim__peers_open(job, &bench.peers));
    bench.rank = plim__peers_rank(bench.peers);
    bench.num_ranks = plim__peers_num_ranks(bench.peers);
    bench_sums(&bench, job);
    bench_all_to_alls(&bench);
    plim__peers_close(bench.peers);
    plim_job_release(job);
    (void)transport.close(transport.state, 60);
    (void)MPI_Finalize();
    return 0;
}
