/* Batches in shares: gradients and losses are those of the shares alone, added in the order of the
 * share tree, whatever computes them. */
/* labels: asan tsan */
#include "load/slot_ring.h"
#include "nn/vector.h"
#include "support/loader.h"
#include "support/training.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static plim_stream_t *open_shares(test_bed_t *bed, int share, int share_count, int num_shares)
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *stream;
    params.share = share;
    params.share_count = share_count;
    params.num_shares = num_shares;
    assert_ok(plim_loader_stream(bed->loader, &params, &stream));
    return stream;
}

/* Computes a step's batch, or the stream's shares of it; returns the loss. */
static double compute(test_bed_t *bed, plim_stream_t *stream, int64_t step, int64_t batches)
{
    double loss = NAN;
    plim_batch_t *batch;
    assert_ok(plim_stream_start(stream, 0, step));
    for (bool last = false; !last;) {
        assert_ok(plim_stream_next(stream, -1, &batch));
        last = batch->last_part;
        assert_ok(plim_trainer_backward(bed->trainer, batch, batches, &loss));
        plim_batch_release(batch);
    }
    return loss;
}

/* Gradient and loss of one share of a batch, by a trainer without shares. */
static float *share_gradient(test_bed_t *bed, int share, int num_shares, int64_t step,
                             double *loss_out)
{
    float *gradient = calloc((size_t)bed->count, sizeof *gradient);
    plim_stream_t *stream = open_shares(bed, share, 1, num_shares);
    assert_non_null(gradient);
    *loss_out = compute(bed, stream, step, 1);
    assert_ok(plim_trainer_gradient(bed->trainer, gradient));
    plim_trainer_discard(bed->trainer);
    plim_stream_release(stream);
    return gradient;
}

/* The sum of shares [begin, end) by the definition of the tree: the left child of a node has a
 * power of two of leaves. */
static float *tree_sum(test_bed_t *bed, int begin, int end, int num_shares, int64_t step,
                       double *loss_out)
{
    int half = 1;
    double right_loss;
    if (end - begin == 1)
        return share_gradient(bed, begin, num_shares, step, loss_out);
    while (2 * half < end - begin)
        half *= 2;
    float *sum = tree_sum(bed, begin, begin + half, num_shares, step, loss_out);
    float *right = tree_sum(bed, begin + half, end, num_shares, step, &right_loss);
    plim__vector_add(sum, right, bed->count);
    *loss_out += right_loss;
    free(right);
    return sum;
}

static const int share_counts[] = {2, 3, 5, 8, 101}; /* of 101 one or more are empty */

static void test_shares_are_added_in_the_order_of_the_tree(void **state)
{
    static const int64_t microbatches[] = {0, 7};
    plim_training_t training = test_training_small();
    (void)state;
    for (size_t i = 0; i < 2 * sizeof share_counts / sizeof share_counts[0]; i++) {
        const int shares = share_counts[i / 2];
        test_bed_t plain, bed;
        double expected_loss;
        training.shares = 1;
        training.microbatch = microbatches[i % 2];
        test_bed_open(PLIM_LINE_NONE, &training, NULL, &plain);
        training.shares = shares;
        test_bed_open(PLIM_LINE_NONE, &training, NULL, &bed);
        const int64_t steps = plim__stream_steps(test_stream(bed.loader, PLIM_TRAIN));
        float *gradient = calloc((size_t)bed.count, sizeof *gradient);
        plim_stream_t *stream = open_shares(&bed, 0, shares, shares);
        for (int64_t step = 0; step < steps; step += steps - 1) {
            float *expected = tree_sum(&plain, 0, shares, shares, step, &expected_loss);
            const double loss = compute(&bed, stream, step, 1);
            assert_ok(plim_trainer_gradient(bed.trainer, gradient));
            assert_memory_equal(gradient, expected, (size_t)bed.count * sizeof *gradient);
            assert_true(fabs(loss - expected_loss) <= 1e-14 * loss);
            plim_trainer_discard(bed.trainer);
            free(expected);
        }
        free(gradient);
        plim_stream_release(stream);
        test_bed_close(&plain);
        test_bed_close(&bed);
    }
}

/* An update of several batches takes the sum of their gradients, in their order. */
static void test_batches_of_an_update_are_added_in_order(void **state)
{
    plim_training_t training = test_training_small();
    test_bed_t bed;
    (void)state;
    training.shares = 4;
    test_bed_open(PLIM_LINE_NONE, &training, NULL, &bed);
    plim_stream_t *stream = open_shares(&bed, 0, 4, 4);
    const size_t bytes = (size_t)bed.count * sizeof(float);
    float *sum = calloc((size_t)bed.count, sizeof *sum), *one = malloc(bytes);
    for (int64_t step = 0; step < 3; step++) {
        (void)compute(&bed, stream, step, 3);
        assert_ok(plim_trainer_gradient(bed.trainer, one));
        if (step == 0)
            memcpy(sum, one, bytes);
        else
            plim__vector_add(sum, one, bed.count);
    }
    plim_trainer_discard(bed.trainer);
    for (int64_t step = 0; step < 3; step++)
        (void)compute(&bed, stream, step, 3);
    assert_ok(plim_trainer_gradient(bed.trainer, one));
    assert_memory_equal(one, sum, bytes);
    free(sum);
    free(one);
    plim_stream_release(stream);
    test_bed_close(&bed);
}

static void test_a_trainer_refuses_other_shares(void **state)
{
    static const int wrong[][3] = {{0, 1, 1}, {1, 3, 4}, {0, 3, 3}};
    plim_training_t training = test_training_small();
    plim_batch_t *batch;
    test_bed_t bed;
    (void)state;
    training.shares = 4;
    test_bed_open(PLIM_LINE_NONE, &training, NULL, &bed);
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        plim_stream_t *stream = open_shares(&bed, wrong[i][0], wrong[i][1], wrong[i][2]);
        assert_ok(plim_stream_start(stream, 0, 0));
        assert_ok(plim_stream_next(stream, -1, &batch));
        assert_int_equal(plim_trainer_backward(bed.trainer, batch, 1, NULL), PLIM_ERR_USAGE);
        plim_batch_release(batch);
        plim_stream_release(stream);
    }
    test_bed_close(&bed);
}

/* Scores count the same seeds; their losses are added in another order. */
static void test_evaluation_is_summed_by_shares(void **state)
{
    plim_training_t training = test_training_small();
    double score, loss, expected, expected_loss;
    test_bed_t plain, bed;
    (void)state;
    test_bed_open(PLIM_LINE_NONE, &training, NULL, &plain);
    training.shares = 5;
    test_bed_open(PLIM_LINE_NONE, &training, NULL, &bed);
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++) {
        assert_ok(plim_trainer_evaluate(plain.trainer, plain.loader, (plim_split_t)split, &expected,
                                        &expected_loss));
        assert_ok(
            plim_trainer_evaluate(bed.trainer, bed.loader, (plim_split_t)split, &score, &loss));
        assert_true(score == expected && fabs(loss - expected_loss) <= 1e-12 * loss);
    }
    test_bed_close(&plain);
    test_bed_close(&bed);
}

static plim_training_t in_shares(int64_t shares)
{
    plim_training_t training = test_training_small();
    training.shares = shares;
    training.accumulation = 2;
    return training;
}

/* Threads, places of the data and interruptions change no bit. */
static void test_runs_have_the_same_bits(void **state)
{
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    plim_training_t training = in_shares(6);
    test_way_t way = test_plain_way;
    (void)state;
    assert_ok(test_train("plain", &training, &way, &result));
    way.threads = 3;
    way.wanted.topology = way.wanted.rows = PLIM_PLACE_DISK;
    way.wanted.row_cache = -1;
    way.wanted.window = 3;
    training.epochs = 1;
    assert_ok(test_train("other", &training, &way, &result));
    way.resume = true;
    training.epochs = in_shares(6).epochs;
    assert_ok(test_train("other", &training, &way, &result));
    test_assert_same_run("plain", "other");
    training.shares = 5;
    training.epochs++;
    assert_int_equal(test_train("other", &training, &way, &result), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "shares"));
}

static void test_impossible_shares_are_refused(void **state)
{
    static const int64_t wrong[] = {0, -1, PLIM_SHARES_MAX + 1};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_training_t training = test_training_small();
    plim_dataset_t *dataset;
    plim_plan_t *plan;
    (void)state;
    assert_ok(plim_dataset_open(&job, test_training_graph(), &dataset));
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        training.shares = wrong[i];
        assert_int_equal(plim_train_plan(&job, dataset, &training, NULL, &plan), PLIM_ERR_USAGE);
    }
    training.shares = 2;
    training.model.norm = PLIM_NORM_BATCH;
    assert_int_equal(plim_train_plan(&job, dataset, &training, NULL, &plan), PLIM_ERR_USAGE);
    plim_dataset_release(dataset);
    test_job_end(&job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shares_are_added_in_the_order_of_the_tree),
        cmocka_unit_test(test_batches_of_an_update_are_added_in_order),
        cmocka_unit_test(test_a_trainer_refuses_other_shares),
        cmocka_unit_test(test_evaluation_is_summed_by_shares),
        cmocka_unit_test(test_runs_have_the_same_bits),
        cmocka_unit_test(test_impossible_shares_are_refused),
    };
    return cmocka_run_group_tests(tests, test_training_begin, test_training_end);
}
