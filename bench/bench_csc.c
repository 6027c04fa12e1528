/*
 * Measures the CSC build alone: heavy-tailed random edges in, indptr and indices out.
 *
 *     cmake --build --preset release --target bench_csc
 *     build/release/bench_csc DIRECTORY NODES EDGES MEMORY_MIB THREADS [uring|threads]
 *
 * Prints one JSON object: seconds of wall and CPU time of adding and finishing, less what making
 * the edges takes, which is measured by itself first.
 */
#include "bench_job.h"

#include "base/fail.h"
#include "base/rng.h"
#include "base/threads.h"
#include "ingest/csc.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#define PIECE 65536

typedef struct feeding {
    plim__csc_t *csc; /* NULL: edges are made and thrown away */
    uint64_t num_nodes;
    int64_t num_edges;
    atomic_llong next;
    atomic_llong sum;
} feeding_t;

/* Half of the edges go anywhere, half to few nodes, whose ids are spread by a multiplication. */
static void make_edges(const feeding_t *feeding, int64_t first, int64_t count, int64_t *source,
                       int64_t *destination)
{
    for (int64_t i = 0; i < count; i++) {
        uint64_t a = plim__rng_u64(1, (uint64_t)(first + i) * 2);
        uint64_t b = plim__rng_u64(1, (uint64_t)(first + i) * 2 + 1);
        uint64_t node = (uint64_t)((unsigned __int128)a * feeding->num_nodes >> 64);
        if ((b & 1) != 0)
            node = (uint64_t)((unsigned __int128)a * node >> 64) * 0x9e3779b1u % feeding->num_nodes;
        destination[i] = (int64_t)node;
        source[i] = (int64_t)((unsigned __int128)b * feeding->num_nodes >> 64);
    }
}

static int64_t edges[PLIM__THREADS_MAX][2][PIECE];

static plim_status_t feed(void *context, int worker)
{
    feeding_t *feeding = context;
    int64_t *source = edges[worker][0], *destination = edges[worker][1];
    for (;;) {
        int64_t first = atomic_fetch_add(&feeding->next, PIECE);
        if (first >= feeding->num_edges)
            return PLIM_OK;
        int64_t left = feeding->num_edges - first, count = left < PIECE ? left : PIECE;
        make_edges(feeding, first, count, source, destination);
        if (feeding->csc == NULL)
            atomic_fetch_add(&feeding->sum, source[0] + destination[count - 1]);
        else
            PLIM_TRY(plim__csc_add(feeding->csc, worker, source, destination, count, NULL));
    }
}

typedef struct moment {
    double wall;
    double user;
    double kernel;
} moment_t;

static moment_t now(void)
{
    struct timespec wall;
    struct rusage usage;
    (void)clock_gettime(CLOCK_MONOTONIC, &wall);
    (void)getrusage(RUSAGE_SELF, &usage);
    return (moment_t){(double)wall.tv_sec + 1e-9 * (double)wall.tv_nsec,
                      (double)usage.ru_utime.tv_sec + 1e-6 * (double)usage.ru_utime.tv_usec,
                      (double)usage.ru_stime.tv_sec + 1e-6 * (double)usage.ru_stime.tv_usec};
}

static void print_phase(const char *name, moment_t from, moment_t to)
{
    (void)printf("\"%s_wall_s\": %.2f, \"%s_user_s\": %.2f, \"%s_kernel_s\": %.2f, ", name,
                 to.wall - from.wall, name, to.user - from.user, name, to.kernel - from.kernel);
}

static plim_status_t run(const plim_job_t *job, const plim__csc_params_t *params)
{
    char target[4096];
    feeding_t feeding = {.num_nodes = (uint64_t)params->num_nodes, .num_edges = params->max_edges};
    plim__dataset_writer_t *writer = NULL;
    plim__csc_totals_t totals;
    moment_t begin = now();
    PLIM_TRY(plim__parallel(job->threads, feed, &feeding));
    atomic_store(&feeding.next, 0);
    moment_t made = now();
    (void)snprintf(target, sizeof target, "%s/bench_csc", params->tmp);
    PLIM_TRY(plim__dataset_begin(job, target, &writer));
    plim_status_t status = plim__csc_create(job, params, &feeding.csc);
    if (status == PLIM_OK)
        status = plim__parallel(job->threads, feed, &feeding);
    moment_t added = now();
    if (status == PLIM_OK)
        status = plim__csc_finish(feeding.csc, writer, &totals);
    moment_t finished = now();
    if (status == PLIM_OK) {
        (void)printf("{");
        print_phase("make", begin, made);
        print_phase("add", made, added);
        print_phase("finish", added, finished);
        (void)printf("\"spill_bytes\": %lld, \"peak_bytes\": %lld, \"edges\": %lld, "
                     "\"max_degree\": %lld}\n",
                     (long long)totals.spill_bytes, (long long)plim__ledger_peak(job->ledger),
                     (long long)totals.num_edges, (long long)totals.max_degree);
    }
    plim__csc_destroy(feeding.csc);
    plim__dataset_abandon(writer);
    return status;
}

int main(int count, char **arguments)
{
    if (count < 6) {
        (void)fprintf(stderr, "bench_csc DIRECTORY NODES EDGES MEMORY_MIB THREADS [threads]\n");
        return 2;
    }
    plim_job_t job = {.threads = 1};
    plim__csc_params_t params = {.tmp = arguments[1],
                                 .num_nodes = strtoll(arguments[2], NULL, 10),
                                 .max_edges = strtoll(arguments[3], NULL, 10),
                                 .memory = (size_t)strtoll(arguments[4], NULL, 10) << 20};
    job.threads = (int)strtol(arguments[5], NULL, 10);
    job.io_engine =
        count > 6 && strcmp(arguments[6], "threads") == 0 ? PLIM_IO_THREADS : PLIM_IO_AUTO;
    plim_status_t status = bench_job_make(PLIM_LINE_NONE, &job);
    if (status == PLIM_OK)
        status = run(&job, &params);
    if (status != PLIM_OK)
        (void)fprintf(stderr, "%s\n", plim_last_error());
    plim_job_release(&job);
    return status == PLIM_OK ? 0 : 1;
}
