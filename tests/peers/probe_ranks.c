/*
 * probe_ranks PLUGIN SECONDS [FAULT]: a rank of a job that a launcher has started, over the MPI
 * plugin. All ranks move bytes, agree, and sum gradients of 12 shares; the sums must have the bits
 * that one rank alone computes. Rank 0 prints the number of ranks.
 *
 * FAULT, of rank 1, after the sums: "silent" (it sleeps, and the wait of the others ends after
 * SECONDS), "broadcast" (the same in the midst of a broadcast), "exits" (it returns early with code
 * 7), "fails" (an error that all agree on: all end with code 3).
 */
#include "base/fail.h"
#include "base/rng.h"
#include "peers/reduce.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define NUM_SHARES 12
#define NUM_WEIGHTS 30011
#define STEPS 20

static float gradient[NUM_WEIGHTS], sum[NUM_WEIGHTS], expected[NUM_WEIGHTS];

static void make_gradient(int step, int64_t share)
{
    for (int64_t i = 0; i < NUM_WEIGHTS; i++)
        gradient[i] = (float)(plim__rng_u64((uint64_t)(step * 100 + share), (uint64_t)i) >> 40);
}

/* One batch; the shares of `reduce`. */
static plim_status_t sum_batch(plim__reduce_t *reduce, int step, float *sum_out, double *loss_out)
{
    const plim__share_range_t shares = plim__reduce_shares(reduce);
    for (int64_t share = shares.begin; share < shares.end; share++) {
        make_gradient(step, share);
        plim__reduce_add(reduce, gradient, 0.1 * (double)(share + step));
    }
    return plim__reduce_exchange(reduce, PLIM_OK, sum_out, loss_out);
}

static plim_status_t check_sums(const plim_job_t *job, plim__peers_t *peers)
{
    plim__reduce_t *alone, *together;
    double loss, expected_loss;
    PLIM_TRY(plim__reduce_create(job, NULL, NUM_WEIGHTS, NUM_SHARES, &alone));
    PLIM_TRY(plim__reduce_create(job, peers, NUM_WEIGHTS, NUM_SHARES, &together));
    for (int step = 0; step < STEPS; step++) {
        PLIM_TRY(sum_batch(alone, step, expected, &expected_loss));
        PLIM_TRY(sum_batch(together, step, sum, &loss));
        if (memcmp(sum, expected, sizeof sum) != 0 ||
            memcmp(&loss, &expected_loss, sizeof loss) != 0)
            return plim__fail(PLIM_ERR_DATA, "the sum of step %d has other bits", step);
    }
    plim__reduce_destroy(alone);
    plim__reduce_destroy(together);
    return PLIM_OK;
}

/* Rank r sends (r + to) mod 3 MiB to rank `to`, and gets its own back. */
static plim_status_t check_bytes(plim__peers_t *peers)
{
    enum { MOST = 2 << 20, RANKS = 16 };
    const int rank = plim__peers_rank(peers), num_ranks = plim__peers_num_ranks(peers);
    char *send = calloc(1, (size_t)RANKS * MOST), *receive = calloc(1, (size_t)RANKS * MOST);
    size_t sizes[RANKS], offsets[RANKS], received[RANKS], places[RANKS];
    if (send == NULL || receive == NULL || num_ranks > RANKS)
        return plim__fail(PLIM_ERR_NOMEM, "no memory");
    for (int to = 0; to < num_ranks; to++) {
        sizes[to] = (size_t)((rank + to) % 3) << 20;
        offsets[to] = (size_t)to * MOST;
        memset(send + offsets[to], rank * 16 + to, sizes[to]);
    }
    PLIM_TRY(plim__peers_all_to_all(peers, PLIM__STAGE_STAGING, send, sizes, offsets, receive,
                                    (size_t)RANKS * MOST, received, places));
    for (int from = 0; from < num_ranks; from++)
        for (size_t i = 0; i < received[from]; i++)
            if (received[from] != (size_t)((rank + from) % 3) << 20 ||
                receive[places[from] + i] != (char)(from * 16 + rank))
                return plim__fail(PLIM_ERR_DATA, "byte %zu of rank %d is wrong", i, from);
    memset(send, rank, MOST);
    PLIM_TRY(plim__peers_broadcast(peers, PLIM__STAGE_STAGING, num_ranks - 1, send, MOST));
    for (size_t i = 0; i < MOST; i++)
        if (send[i] != num_ranks - 1)
            return plim__fail(PLIM_ERR_DATA, "byte %zu of the broadcast is wrong", i);
    free(send);
    free(receive);
    return PLIM_OK;
}

static plim_status_t run(const plim_job_t *job, const char *fault, int rank)
{
    plim__peers_t *peers;
    PLIM_TRY(plim__peers_open(job, &peers));
    PLIM_TRY(check_bytes(peers));
    PLIM_TRY(check_sums(job, peers));
    plim_status_t status = PLIM_OK;
    if (rank == 1 && strcmp(fault, "silent") == 0)
        (void)sleep(1000);
    if (rank == 1 && strcmp(fault, "exits") == 0)
        _exit(7);
    if (rank == 1 && strcmp(fault, "fails") == 0)
        status = plim__fail(PLIM_ERR_BUDGET, "it does not fit");
    PLIM_TRY(plim__peers_agree(peers, PLIM__STAGE_EVALUATION, status, 0, NULL, NULL, NULL));
    if (rank == 0)
        (void)printf("%d\n", plim__peers_num_ranks(peers));
    plim__peers_close(peers);
    return PLIM_OK;
}

static plim_status_t never_broadcast(void *state, void *buffer, size_t size, int root)
{
    (void)state;
    (void)buffer;
    (void)size;
    (void)root;
    (void)sleep(1000);
    return PLIM_OK;
}

int main(int argc, char **argv)
{
    plim_transport_t transport = PLIM_TRANSPORT_INIT;
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_plugin_open_fn open_plugin;
    char message[512] = "usage: probe_ranks PLUGIN SECONDS [FAULT]";
    plim_job_t *job;
    void *plugin = argc >= 3 ? dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL) : NULL;
    void *address = plugin != NULL ? dlsym(plugin, PLIM_PLUGIN_OPEN) : NULL;
    memcpy(&open_plugin, &address, sizeof open_plugin);
    if (address == NULL || open_plugin(&transport, message, sizeof message) != PLIM_OK) {
        (void)fprintf(stderr, "%s\n", plugin != NULL ? message : dlerror());
        return 2;
    }
    transport.timeout_seconds = atof(argv[2]);
    if (transport.rank == 1 && argc > 3 && strcmp(argv[3], "broadcast") == 0)
        transport.start_broadcast = never_broadcast;
    params.transport = &transport;
    plim_status_t status = plim_job_create(&params, &job);
    if (status == PLIM_OK) {
        status = run(job, argc > 3 ? argv[3] : "", transport.rank);
        plim_job_release(job);
    }
    if (status != PLIM_OK)
        (void)fprintf(stderr, "rank %d: %s\n", transport.rank, plim_last_error());
    const int code = status == PLIM_OK ? 0 : status == PLIM_ERR_BUDGET ? 3 : 1;
    if (transport.close(transport.state, 5) != PLIM_OK)
        transport.abort(transport.state, code);
    return code;
}
