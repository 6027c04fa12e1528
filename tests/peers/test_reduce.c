/* The sum over ranks: the same bits for any number of them; a failure and a stop reach all. */
#include "support/harness.h"
#include "support/ranks.h"

#include "base/fail.h"
#include "base/rng.h"
#include "peers/reduce.h"

#include <stdlib.h>
#include <string.h>

#define TIMEOUT 60
#define STEPS 3

typedef struct trial {
    int64_t num_weights, num_shares;
    float *expected; /* (STEPS, num_weights): the sums of one rank */
    double losses[STEPS];
} trial_t;

/* The gradient of a share: numbers whose sum depends on the order. */
static void make_gradient(float *gradient, int64_t num_weights, int step, int64_t share)
{
    for (int64_t i = 0; i < num_weights; i++) {
        const uint64_t draw = plim__rng_u64((uint64_t)(step * 1000 + share), (uint64_t)i);
        gradient[i] = ((float)(draw >> 40) - 8e6f) * (draw % 7 == 0 ? 1e-3f : 1e-6f);
    }
}

/* Sums STEPS batches; the first rank's sums are kept where there is one, else compared. */
static void sum_batches(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    (void)rank;
    trial_t *trial = context;
    const int64_t count = trial->num_weights;
    plim__peers_t *peers;
    plim__reduce_t *reduce;
    float *gradient = malloc((size_t)count * sizeof *gradient);
    float *sum = malloc((size_t)count * sizeof *sum);
    rank_assert(gradient != NULL && sum != NULL);
    rank_ok(plim__peers_open(job, &peers));
    rank_ok(plim__reduce_create(job, peers, count, trial->num_shares, &reduce));
    const plim__share_range_t shares = plim__reduce_shares(reduce);
    for (int step = 0; step < STEPS; step++) {
        float *expected = trial->expected + step * count;
        double loss;
        for (int64_t share = shares.begin; share < shares.end; share++) {
            make_gradient(gradient, count, step, share);
            plim__reduce_add(reduce, gradient, (double)gradient[0] * 1e-3 + (double)share);
        }
        rank_ok(plim__reduce_exchange(reduce, PLIM_OK, sum, &loss));
        if (num_ranks == 1) {
            memcpy(expected, sum, (size_t)count * sizeof *sum);
            trial->losses[step] = loss;
        }
        rank_assert(memcmp(sum, expected, (size_t)count * sizeof *sum) == 0);
        rank_assert(memcmp(&loss, &trial->losses[step], sizeof loss) == 0);
    }
    plim__reduce_destroy(reduce);
    plim__peers_close(peers);
    free(gradient);
    free(sum);
}

/* The sum of one rank is that of the tree, defined by recursion. */
static float tree_sum(const trial_t *trial, int64_t begin, int64_t size, int64_t weight)
{
    float gradient[8];
    if (size == 1) {
        make_gradient(gradient, 8, 0, begin);
        return gradient[weight];
    }
    const float left = tree_sum(trial, begin, size / 2, weight);
    return begin + size / 2 < trial->num_shares
               ? left + tree_sum(trial, begin + size / 2, size / 2, weight)
               : left;
}

static void same_bits_for_any_number_of_ranks(void **state)
{
    const int64_t weights[] = {8, 15, 16, 17, 5000, 70001};
    const int64_t shares[] = {1, 2, 3, 5, 7, 8, 16, 21};
    (void)state;
    for (size_t i = 0; i < sizeof weights / sizeof weights[0]; i++)
        for (size_t j = 0; j < sizeof shares / sizeof shares[0]; j++) {
            trial_t trial = {.num_weights = weights[i], .num_shares = shares[j]};
            trial.expected = calloc((size_t)(STEPS * weights[i]), sizeof *trial.expected);
            assert_non_null(trial.expected);
            test_ranks_threads(1, TIMEOUT, NULL, sum_batches, &trial);
            for (int64_t k = 0; k < 8; k++) {
                int64_t size = 1;
                while (size < shares[j])
                    size *= 2;
                const float sum = tree_sum(&trial, 0, size, k);
                assert_memory_equal(&trial.expected[k], &sum, sizeof sum);
            }
            for (int ranks = 2; ranks <= 5 && ranks <= shares[j]; ranks++) {
                const test_fault_t late = {.kind = TEST_LATE, .rank = 1, .micros = 200};
                test_ranks_threads(ranks, TIMEOUT, &late, sum_batches, &trial);
            }
            free(trial.expected);
        }
}

static void processes_do_as_threads(void **state)
{
    trial_t trial = {.num_weights = 5000, .num_shares = 5};
    int codes[3];
    (void)state;
    trial.expected = calloc((size_t)(STEPS * trial.num_weights), sizeof *trial.expected);
    assert_non_null(trial.expected);
    test_ranks_threads(1, TIMEOUT, NULL, sum_batches, &trial);
    test_ranks_processes(3, TIMEOUT, NULL, sum_batches, &trial, codes);
    for (int i = 0; i < 3; i++)
        assert_int_equal(codes[i], 0);
    free(trial.expected);
}

static void fail_in_a_step(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    plim__reduce_t *reduce;
    float gradient[40], sum[40] = {-1};
    double loss = -1;
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    rank_ok(plim__reduce_create(job, peers, 40, 6, &reduce));
    make_gradient(gradient, 40, 0, 0);
    plim__reduce_add(reduce, gradient, 1);
    if (rank != 2)
        plim__reduce_add(reduce, gradient, 1);
    rank_assert(plim__reduce_exchange(
                    reduce, rank == 2 ? plim__fail(PLIM_ERR_DIVERGED, "not finite") : PLIM_OK, sum,
                    &loss) == PLIM_ERR_DIVERGED);
    rank_assert(strcmp(plim_last_error(), "rank 2: not finite") == 0);
    rank_assert(loss == -1 && sum[0] == -1);
    /* The next batch begins anew, in step. */
    for (int i = 0; i < 2; i++)
        plim__reduce_add(reduce, gradient, 2);
    rank_ok(plim__reduce_exchange(reduce, PLIM_OK, sum, &loss));
    rank_assert(loss == 12);
    /* A missing share is noticed by all. */
    if (rank != 0)
        plim__reduce_add(reduce, gradient, 2);
    plim__reduce_add(reduce, gradient, 2);
    rank_assert(plim__reduce_exchange(reduce, PLIM_OK, sum, &loss) == PLIM_ERR_USAGE);
    plim__reduce_destroy(reduce);
    plim__peers_close(peers);
}

static void a_failed_step_fails_on_all(void **state)
{
    (void)state;
    test_ranks_threads(3, TIMEOUT, NULL, fail_in_a_step, NULL);
}

static void differ(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    plim__reduce_t *reduce;
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    rank_assert(plim__reduce_create(job, peers, rank == 1 ? 41 : 40, 4, &reduce) == PLIM_ERR_USAGE);
    rank_assert(plim__reduce_create(job, peers, 40, 4 + rank, &reduce) == PLIM_ERR_USAGE);
    rank_assert(plim__reduce_create(job, peers, 40, 2, &reduce) == PLIM_ERR_USAGE);
    rank_assert(plim__ledger_reserved(job->ledger) ==
                plim__ledger_reserved(job->ledger)); /* nothing is left but the peers */
    plim__peers_close(peers);
}

static void ranks_must_have_the_same_model(void **state)
{
    (void)state;
    test_ranks_threads(3, TIMEOUT, NULL, differ, NULL);
}

/* Whether a damaged message of a step is noticed: each byte of its head. */
static void expect_damage(const plim_job_t *job, int rank, int num_ranks, void *context)
{
    plim__peers_t *peers;
    plim__reduce_t *reduce;
    float gradient[64] = {1}, sum[64];
    double loss;
    (void)num_ranks;
    (void)context;
    rank_ok(plim__peers_open(job, &peers));
    rank_ok(plim__reduce_create(job, peers, 64, 2, &reduce));
    plim__reduce_add(reduce, gradient, 1);
    const plim_status_t status = plim__reduce_exchange(reduce, PLIM_OK, sum, &loss);
    rank_assert(status == (rank == 0 ? PLIM_ERR_IO : PLIM_ERR_DATA));
    plim__reduce_destroy(reduce);
    plim__peers_close(peers);
}

static void damaged_heads_are_errors(void **state)
{
    (void)state;
    for (size_t byte = 0; byte < sizeof(plim__peer_head_t); byte++) {
        /* Flags may be any; a status that is one would be asked for. */
        const test_fault_t damage = {.kind = TEST_DAMAGES, .rank = 0, .at = 2, .byte = byte};
        if (byte < offsetof(plim__peer_head_t, status) ||
            byte >= offsetof(plim__peer_head_t, reserved))
            test_ranks_threads(2, TIMEOUT, &damage, expect_damage, NULL);
    }
}

static plim_status_t create_one(plim_job_t *job, void *context)
{
    plim__reduce_t *reduce;
    (void)context;
    PLIM_TRY(plim__reduce_create(job, NULL, 1000, 8, &reduce));
    plim__reduce_destroy(reduce);
    return PLIM_OK;
}

static void memory_is_as_estimated(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__reduce_t *reduce;
    (void)state;
    for (int64_t shares = 1; shares <= 64; shares *= 4) {
        const int64_t before = plim__ledger_reserved(job.ledger);
        assert_ok(plim__reduce_create(&job, NULL, 12345, shares, &reduce));
        assert_int_equal(plim__ledger_reserved(job.ledger) - before,
                         plim__reduce_bytes(12345, shares, 0, 1));
        plim__reduce_destroy(reduce);
        assert_int_equal(plim__ledger_reserved(job.ledger), before);
    }
    test_fail_each_arena(&job, create_one, NULL);
    test_job_end(&job);
}

static void all_ranks_count_the_largest(void **state)
{
    (void)state;
    for (int64_t shares = 2; shares <= 40; shares++)
        for (int ranks = 1; ranks <= shares && ranks <= 9; ranks++) {
            size_t most = 0;
            for (int rank = 0; rank < ranks; rank++) {
                const size_t bytes = plim__reduce_bytes(12345, shares, rank, ranks);
                most = bytes > most ? bytes : most;
            }
            assert_int_equal(plim__reduce_bytes_most(12345, shares, ranks), most);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_do_as_threads),
        cmocka_unit_test(memory_is_as_estimated),
        cmocka_unit_test(all_ranks_count_the_largest),
        cmocka_unit_test(same_bits_for_any_number_of_ranks),
        cmocka_unit_test(a_failed_step_fails_on_all),
        cmocka_unit_test(ranks_must_have_the_same_model),
        cmocka_unit_test(damaged_heads_are_errors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
