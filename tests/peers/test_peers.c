/* Operations between ranks: what arrives, and what happens when a rank fails, is silent, dies or
 * sends what it should not. */
/* labels: asan tsan unprivileged */
#include "support/harness.h"
#include "support/ranks.h"

#include "base/fail.h"
#include "base/rng.h"
#include "peers/peers.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define TIMEOUT 60

/* The byte that rank `from` sends to rank `to` at position i. */
static char byte_of(int from, int to, size_t i)
{
    return (char)plim__rng_u64((uint64_t)(from * 64 + to), i);
}

static void agree(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    int64_t least[2], greatest[2];
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    rank_assert(plim__peers_rank(peers) == rank && plim__peers_num_ranks(peers) == num_ranks);
    for (int turn = 0; turn < 20; turn++) {
        const int64_t numbers[] = {INT64_MIN + rank, (rank + turn) % num_ranks};
        rank_ok(plim__peers_agree(peers, PLIM__STAGE_PLAN, PLIM_OK, 2, numbers, least, greatest));
        rank_assert(least[0] == INT64_MIN && greatest[0] == INT64_MIN + num_ranks - 1);
        rank_assert(least[1] == 0 && greatest[1] == num_ranks - 1);
        rank_ok(plim__peers_agree(peers, PLIM__STAGE_END, PLIM_OK, 0, NULL, NULL, NULL));
    }
    plim__peers_close(peers);
}

static void ranks_agree(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) {
        const test_fault_t late = {.kind = TEST_LATE, .rank = ranks - 1, .micros = 300};
        test_ranks_threads(ranks, TIMEOUT, NULL, agree, NULL);
        /* One rank alone sends nothing. */
        assert_true((atomic_load(&test_ranks_bytes) > 0) == (ranks > 1));
        test_ranks_threads(ranks, TIMEOUT, &late, agree, NULL);
    }
}

static void fail_on_two(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    const plim_status_t own = rank == 1   ? plim__fail(PLIM_ERR_BUDGET, "it needs\n%d MiB", 7)
                              : rank == 2 ? plim__fail(PLIM_ERR_DISK, "full")
                                          : PLIM_OK;
    rank_assert(plim__peers_agree(peers, PLIM__STAGE_PLAN, own, 0, NULL, NULL, NULL) ==
                PLIM_ERR_BUDGET);
    rank_assert(strcmp(plim_last_error(), "rank 1: it needs?7 MiB") == 0);
    /* An agreed error leaves the ranks in step. */
    rank_ok(plim__peers_agree(peers, PLIM__STAGE_END, PLIM_OK, 0, NULL, NULL, NULL));
    plim__peers_close(peers);
}

static void compare_texts(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    static const char *const texts[] = {"a is 1\nb is 2\n", "a is 1\nb is \001\n"};
    plim__peers_t *peers;
    const int other = *(const int *)context;
    (void)num_ranks;
    rank_ok(plim__peers_open(job, &peers));
    rank_ok(plim__peers_compare(peers, PLIM__STAGE_START, texts[0]));
    rank_assert(plim__peers_compare(peers, PLIM__STAGE_START, texts[rank == other]) ==
                PLIM_ERR_USAGE);
    rank_assert(strstr(plim_last_error(), other == 0 ? "rank 1: b is 2, but on rank 0 b is ?:"
                                                     : "rank 2: b is ?, but on rank 0 b is 2:"));
    /* A text that ends sooner differs, too. */
    rank_assert(plim__peers_compare(peers, PLIM__STAGE_START, rank == 0 ? "a is 1\n" : texts[0]) ==
                PLIM_ERR_USAGE);
    rank_ok(plim__peers_agree(peers, PLIM__STAGE_END, PLIM_OK, 0, NULL, NULL, NULL));
    plim__peers_close(peers);
}

static void other_texts_are_named(void **state)
{
    (void)state;
    for (int other = 0; other <= 2; other += 2)
        test_ranks_threads(3, TIMEOUT, NULL, compare_texts, &other);
}

static void an_error_is_everybodys(void **state)
{
    (void)state;
    test_ranks_threads(4, TIMEOUT, NULL, fail_on_two, NULL);
}

static size_t size_of(int from, int to, int turn)
{
    const uint64_t draw = plim__rng_u64(77, (uint64_t)((turn * 64 + from) * 64 + to));
    return draw % 4 == 0 ? 0 : (size_t)(draw % (turn == 3 ? 400000 : 500));
}

static void move_bytes(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    enum { CAPACITY = TEST_RANKS_MAX * 400064 };
    plim__peers_t *peers;
    char *send = malloc(CAPACITY), *receive = malloc(CAPACITY);
    size_t sizes[TEST_RANKS_MAX], offsets[TEST_RANKS_MAX];
    size_t received[TEST_RANKS_MAX], places[TEST_RANKS_MAX];
    (void)context;
    rank_assert(send != NULL && receive != NULL);
    rank_ok(plim__peers_open(job, &peers));
    for (int turn = 0; turn < 5; turn++) {
        size_t used = 0;
        for (int to = 0; to < num_ranks; to++) {
            offsets[to] = used;
            sizes[to] = size_of(rank, to, turn);
            for (size_t i = 0; i < sizes[to]; i++)
                send[used++] = byte_of(rank, to, i);
        }
        rank_ok(plim__peers_all_to_all(peers, PLIM__STAGE_STAGING, send, sizes, offsets, receive,
                                       CAPACITY, received, places));
        for (int from = 0; from < num_ranks; from++) {
            rank_assert(received[from] == size_of(from, rank, turn));
            rank_assert(places[from] % 64 == 0);
            for (size_t i = 0; i < received[from]; i++)
                rank_assert(receive[places[from] + i] == byte_of(from, rank, i));
        }
        used = 0;
        for (int from = 0; from < num_ranks; from++)
            sizes[from] = size_of(from, 0, turn);
        for (size_t i = 0; i < sizes[rank]; i++)
            send[i] = byte_of(rank, 9, i);
        rank_ok(plim__peers_all_gather(peers, PLIM__STAGE_EVALUATION, send, receive, sizes));
        for (int from = 0; from < num_ranks; from++)
            for (size_t i = 0; i < sizes[from]; i++)
                rank_assert(receive[used++] == byte_of(from, 9, i));
        const int root = turn % num_ranks;
        for (size_t i = 0; i < 3000; i++)
            send[i] = byte_of(rank, 8, i);
        rank_ok(plim__peers_broadcast(peers, PLIM__STAGE_STAGING, root, send, 3000));
        for (size_t i = 0; i < 3000; i++)
            rank_assert(send[i] == byte_of(root, 8, i));
    }
    plim__peers_close(peers);
    free(send);
    free(receive);
}

static void bytes_arrive(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++) {
        const test_fault_t late = {.kind = TEST_LATE, .rank = 0, .micros = 2000};
        test_ranks_threads(ranks, TIMEOUT, &late, move_bytes, NULL);
    }
}

static void send_too_much(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    static char bytes[3][512], receive[3][512];
    const size_t sizes[] = {100, 100, rank == 1 ? 129 : 100}, offsets[] = {0, 128, 256};
    size_t received[3], places[3];
    plim__peers_t *peers;
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    const plim_status_t status = plim__peers_all_to_all(
        peers, PLIM__STAGE_STEP, bytes[rank], sizes, offsets, receive[rank], 356, received, places);
    /* Two of 100 take 256 bytes: the third may have 100. Rank 2 gets 129 from rank 1. */
    if (rank == 2) {
        rank_assert(status == PLIM_ERR_DATA);
        /* It is out of step from now on, and sends nothing more. */
        rank_assert(plim__peers_agree(peers, PLIM__STAGE_END, PLIM_OK, 0, NULL, NULL, NULL) ==
                    PLIM_ERR_USAGE);
    } else {
        rank_assert(status == PLIM_ERR_IO);
    }
    plim__peers_close(peers);
}

static void more_than_fits_is_refused(void **state)
{
    (void)state;
    test_ranks_threads(3, TIMEOUT, NULL, send_too_much, NULL);
}

static void be_elsewhere(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    rank_assert(plim__peers_agree(peers, rank == 1 ? PLIM__STAGE_CHECKPOINT : PLIM__STAGE_STEP,
                                  PLIM_OK, 0, NULL, NULL, NULL) == PLIM_ERR_DATA);
    rank_assert(strstr(plim_last_error(), "checkpoint") != NULL);
    rank_assert(strstr(plim_last_error(), "step") != NULL);
    plim__peers_close(peers);
}

static void another_stage_is_an_error(void **state)
{
    (void)state;
    test_ranks_threads(3, TIMEOUT, NULL, be_elsewhere, NULL);
}

/* Rank 1 damages one byte of its head: all others notice, whichever byte it is. */
static void expect_damage(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    const size_t byte = *(const size_t *)context;
    const int64_t number = 5;
    int64_t least, greatest;
    plim__peers_t *peers;
    (void)num_ranks;
    rank_ok(plim__peers_open(job, &peers));
    const plim_status_t status =
        plim__peers_agree(peers, PLIM__STAGE_PLAN, PLIM_OK, 1, &number, &least, &greatest);
    if (rank == 1)
        rank_assert(status == PLIM_OK || status == PLIM_ERR_IO);
    else if (byte < sizeof(plim__peer_head_t))
        rank_assert(status == PLIM_ERR_DATA);
    else
        rank_assert(status == PLIM_OK && least != greatest);
    plim__peers_close(peers);
}

static void damaged_heads_are_errors(void **state)
{
    (void)state;
    for (size_t byte = 0; byte < 72; byte++) {
        const test_fault_t damage = {.kind = TEST_DAMAGES, .rank = 1, .at = 1, .byte = byte};
        test_ranks_threads(3, TIMEOUT, &damage, expect_damage, &byte);
    }
}

static void expect_short(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    const plim_status_t status =
        plim__peers_agree(peers, PLIM__STAGE_PLAN, PLIM_OK, 0, NULL, NULL, NULL);
    rank_assert(rank == 1 || status == PLIM_ERR_IO);
    plim__peers_close(peers);
}

static void truncated_messages_are_errors(void **state)
{
    (void)state;
    for (size_t size = 0; size < 80; size += 13) {
        const test_fault_t cut = {.kind = TEST_TRUNCATES, .rank = 1, .at = 1, .byte = size};
        test_ranks_threads(3, TIMEOUT, &cut, expect_short, NULL);
    }
}

static void wait_for_silent(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    rank_assert(plim__peers_agree(peers, PLIM__STAGE_EVALUATION, PLIM_OK, 0, NULL, NULL, NULL) ==
                PLIM_ERR_TIMEOUT);
    if (rank != 2) {
        rank_assert(strstr(plim_last_error(), "evaluation") != NULL);
        rank_assert(strstr(plim_last_error(), "for rank 2") != NULL);
    } else {
        (void)sleep(5); /* its sockets stay: it is silent, not gone */
    }
    plim__peers_close(peers);
}

static void a_silent_rank_is_named(void **state)
{
    const test_fault_t silent = {.kind = TEST_SILENT, .rank = 2, .at = 1};
    (void)state;
    test_ranks_threads(4, 5, &silent, wait_for_silent, NULL);
}

/* A stop alone ends no wait: it is for the next message to carry. */
static void stop_first(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    if (rank == 0)
        __atomic_store_n(&job->core->stop, 1, __ATOMIC_RELAXED);
    rank_ok(plim__peers_agree(peers, PLIM__STAGE_STEP, PLIM_OK, 0, NULL, NULL, NULL));
    plim__peers_close(peers);
}

static void a_stop_ends_no_wait(void **state)
{
    const test_fault_t late = {.kind = TEST_LATE, .rank = 1, .micros = 200000};
    (void)state;
    test_ranks_threads(2, TIMEOUT, &late, stop_first, NULL);
}

static void outlive(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    plim_status_t status = plim__peers_open(job, &peers);
    (void)num_ranks;
    (void)context;
    rank_ok(status);
    for (int turn = 0; status == PLIM_OK && turn < 10; turn++)
        status = plim__peers_agree(peers, PLIM__STAGE_STEP, PLIM_OK, 0, NULL, NULL, NULL);
    rank_assert(rank != 1 && status == PLIM_ERR_IO);
    rank_assert(strstr(plim_last_error(), "is gone") != NULL);
    plim__peers_close(peers);
}

static void a_dead_rank_ends_the_others(void **state)
{
    const test_fault_t dies = {.kind = TEST_DIES, .rank = 1, .at = 4, .exit_code = 9};
    int codes[3];
    (void)state;
    test_ranks_processes(3, TIMEOUT, &dies, outlive, NULL, codes);
    assert_int_equal(codes[0], 0);
    assert_int_equal(codes[1], 9);
    assert_int_equal(codes[2], 0);
}

static void processes_do_as_threads(void **state)
{
    int codes[4];
    (void)state;
    test_ranks_processes(4, TIMEOUT, NULL, move_bytes, NULL, codes);
    for (int i = 0; i < 4; i++)
        assert_int_equal(codes[i], 0);
}

static void bad_transports_are_refused(void **state)
{
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    plim_transport_t transport = PLIM_TRANSPORT_INIT;
    plim_job_t *job;
    (void)state;
    params.transport = &transport;
    assert_ok(plim_job_create(&params, &job));
    plim_job_release(job);
    transport.num_ranks = 2; /* and no functions */
    assert_int_equal(plim_job_create(&params, &job), PLIM_ERR_USAGE);
    transport.num_ranks = 0;
    assert_int_equal(plim_job_create(&params, &job), PLIM_ERR_USAGE);
    transport.num_ranks = 1;
    transport.rank = 1;
    assert_int_equal(plim_job_create(&params, &job), PLIM_ERR_USAGE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        /* Processes first, while there is one thread. */
        cmocka_unit_test(a_dead_rank_ends_the_others),
        cmocka_unit_test(processes_do_as_threads),
        cmocka_unit_test(bad_transports_are_refused),
        cmocka_unit_test(ranks_agree),
        cmocka_unit_test(an_error_is_everybodys),
        cmocka_unit_test(other_texts_are_named),
        cmocka_unit_test(bytes_arrive),
        cmocka_unit_test(more_than_fits_is_refused),
        cmocka_unit_test(another_stage_is_an_error),
        cmocka_unit_test(damaged_heads_are_errors),
        cmocka_unit_test(truncated_messages_are_errors),
        cmocka_unit_test(a_silent_rank_is_named),
        cmocka_unit_test(a_stop_ends_no_wait),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
