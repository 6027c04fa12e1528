/*
 * Messages of another rank: rank 1 of two answers with what this rank itself sends, as rank 1
 * would, with the input's bytes laid over it by exclusive or. So zeros are a good peer, and any
 * input reaches what lies behind the head. What is accepted lies inside its buffer and makes sense.
 */
#include "fuzz.h"

#include "base/job.h"
#include "base/printable.h"
#include "peers/reduce.h"

#include <string.h>

#define CAPACITY 4096
#define NUM_WEIGHTS 40

static struct {
    const uint8_t *data;
    size_t size;
} input;

/* Where the library may receive, and how much. */
static char *expected;
static size_t expected_size;

/* Answers `size` bytes at `receive` as rank 1 would that sent `bytes`. */
static void answer(const void *bytes, size_t bytes_size, void *receive, size_t size)
{
    char *to = receive;
    plim__peer_head_t head;
    if (expected != NULL && to >= expected && to < expected + expected_size)
        FUZZ_ASSERT(size <= (size_t)(expected + expected_size - to));
    memset(to, 0, size);
    memcpy(to, bytes, size < bytes_size ? size : bytes_size);
    if (size >= sizeof head) {
        memcpy(&head, to, sizeof head);
        head.rank = 1;
        memcpy(to, &head, sizeof head);
    }
    for (size_t i = 0; i < size && input.size > 0; i++, input.data++, input.size--)
        to[i] = (char)(to[i] ^ (char)*input.data);
}

static plim_status_t start_all_to_all(void *state, const void *send, const size_t *send_sizes,
                                      const size_t *send_offsets, void *receive,
                                      const size_t *receive_sizes, const size_t *receive_offsets)
{
    (void)state;
    if (send_sizes[0] > 0)
        memcpy((char *)receive + receive_offsets[0], (const char *)send + send_offsets[0],
               send_sizes[0]);
    answer((const char *)send + send_offsets[1], send_sizes[1],
           (char *)receive + receive_offsets[1], receive_sizes[1]);
    return PLIM_OK;
}

static plim_status_t start_all_gather(void *state, const void *send, void *receive,
                                      const size_t *sizes, const size_t *offsets)
{
    (void)state;
    memmove((char *)receive + offsets[0], send, sizes[0]);
    answer(send, sizes[0], (char *)receive + offsets[1], sizes[1]);
    return PLIM_OK;
}

static plim_status_t start_broadcast(void *state, void *buffer, size_t size, int root)
{
    (void)state;
    if (root == 1)
        answer(buffer, size, buffer, size);
    return PLIM_OK;
}

static plim_status_t test(void *state, bool *done_out)
{
    (void)state;
    *done_out = true;
    return PLIM_OK;
}

static int absent(void *state)
{
    (void)state;
    return -1;
}

static const char *message(void *state)
{
    (void)state;
    return "none";
}

static const plim_job_t *job_of_two(void)
{
    static plim_job_t *job;
    const plim_transport_t transport = {.size = sizeof transport,
                                        .num_ranks = 2,
                                        .local_ranks = 1,
                                        .start_all_to_all = start_all_to_all,
                                        .start_all_gather = start_all_gather,
                                        .start_broadcast = start_broadcast,
                                        .test = test,
                                        .absent = absent,
                                        .message = message};
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    params.transport = &transport;
    if (job == NULL)
        FUZZ_ASSERT(plim_job_create(&params, &job) == PLIM_OK);
    job->core->ranks_failed = false; /* by the input before */
    return job;
}

/* An error has a message that may be printed. */
static plim_status_t check(plim_status_t status)
{
    const char *text = plim_last_error();
    FUZZ_ASSERT(status <= PLIM_OK && status >= PLIM_ERR_TIMEOUT);
    for (size_t i = 0, length = strlen(text); status != PLIM_OK && i < length;) {
        const size_t bytes = plim__printable(text + i, length - i);
        FUZZ_ASSERT(bytes > 0);
        i += bytes;
    }
    return status;
}

static void exchange_bytes(plim__peers_t *peers)
{
    static char send[CAPACITY], receive[CAPACITY];
    const size_t sizes[] = {100, 200}, offsets[] = {0, 1000};
    size_t received[2], places[2];
    expected = receive;
    expected_size = sizeof receive;
    if (check(plim__peers_all_to_all(peers, PLIM__STAGE_STAGING, send, sizes, offsets, receive,
                                     sizeof receive, received, places)) == PLIM_OK)
        for (int i = 0; i < 2; i++)
            FUZZ_ASSERT(places[i] <= CAPACITY && received[i] <= CAPACITY - places[i]);
    expected = NULL;
    (void)check(plim__peers_all_gather(peers, PLIM__STAGE_EVALUATION, send, receive, sizes));
    (void)check(plim__peers_broadcast(peers, PLIM__STAGE_STAGING, 1, receive, 300));
}

static void exchange_numbers(plim__peers_t *peers)
{
    const int64_t numbers[] = {3, -4};
    int64_t least[2], greatest[2];
    if (check(plim__peers_agree(peers, PLIM__STAGE_PLAN, PLIM_OK, 2, numbers, least, greatest)) ==
        PLIM_OK)
        for (int i = 0; i < 2; i++)
            FUZZ_ASSERT(least[i] <= numbers[i] && numbers[i] <= greatest[i]);
}

static void exchange_sums(const plim_job_t *job, plim__peers_t *peers)
{
    const float gradient[NUM_WEIGHTS] = {1, 2, 3};
    float sum[NUM_WEIGHTS];
    plim__reduce_t *reduce;
    double loss;
    if (check(plim__reduce_create(job, peers, NUM_WEIGHTS, 4, &reduce)) != PLIM_OK)
        return;
    for (int step = 0; step < 2; step++) {
        plim__reduce_add(reduce, gradient, 1);
        plim__reduce_add(reduce, gradient, 1);
        (void)check(plim__reduce_exchange(reduce, PLIM_OK, sum, &loss));
    }
    plim__reduce_destroy(reduce);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const plim_job_t *job = job_of_two();
    const int64_t reserved = plim__ledger_reserved(job->ledger);
    const uint8_t choice = size > 0 ? data[0] % 3 : 0;
    plim__peers_t *peers;
    input.data = data + (size > 0);
    input.size = size - (size > 0);
    if (size > 0 && data[0] >= 128) { /* the greeting is of the input too */
        if (check(plim__peers_open(job, &peers)) != PLIM_OK) {
            FUZZ_ASSERT(plim__ledger_reserved(job->ledger) == reserved);
            return 0;
        }
    } else {
        const size_t rest = input.size;
        input.size = 0;
        FUZZ_ASSERT(plim__peers_open(job, &peers) == PLIM_OK);
        input.size = rest;
    }
    if (choice == 0)
        exchange_numbers(peers);
    else if (choice == 1)
        exchange_bytes(peers);
    else
        exchange_sums(job, peers);
    plim__peers_close(peers);
    FUZZ_ASSERT(plim__ledger_reserved(job->ledger) == reserved);
    return 0;
}
