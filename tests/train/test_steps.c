/* Training as steps: gradients of parts sum up to the whole's, updates are separate, and a loop of
 * one's own ends as plim_train does. */
/* labels: asan tsan */
#include "load/plan_data.h"
#include "nn/dense_object.h"
#include "nn/model_internal.h"
#include "nn/vector.h"
#include "support/loader.h"
#include "support/training.h"
#include "train/trainer.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void open_bed_as(const plim_training_t *training, const plim_plan_params_t *params,
                        test_bed_t *bed)
{
    test_bed_open(PLIM_LINE_NONE, training, params, bed);
}

static void open_bed(const plim_training_t *training, test_bed_t *bed)
{
    open_bed_as(training, NULL, bed);
}

static const float *weights_of(test_bed_t *bed)
{
    int64_t count;
    return plim_trainer_values(bed->trainer, PLIM_VALUES_WEIGHTS, &count);
}

static float *make_floats(int64_t count)
{
    float *floats = calloc((size_t)count, sizeof(float));
    assert_non_null(floats);
    return floats;
}

/* Outputs may be NULL. */
static void test_trainer_position(const plim_trainer_t *trainer, int64_t *epoch_out,
                                  int64_t *step_out, int64_t *updates_out)
{
    plim_trainer_info_t info = PLIM_TRAINER_INFO_INIT;
    assert_ok(plim_trainer_info(trainer, &info));
    if (epoch_out != NULL)
        *epoch_out = info.epoch;
    *step_out = info.step;
    if (updates_out != NULL)
        *updates_out = info.updates;
}

/* The gradient and mean loss of one batch, whole or in the parts that it comes in. */
static float *gradient_of(test_bed_t *bed, int64_t step, double *loss_out, int *parts_out)
{
    float *gradient = make_floats(bed->count);
    plim_batch_t *batch;
    bool last = false;
    *parts_out = 0;
    assert_ok(plim_stream_start(test_stream(bed->loader, PLIM_TRAIN), 0, step));
    while (!last) {
        assert_ok(plim_stream_next(test_stream(bed->loader, PLIM_TRAIN), -1, &batch));
        last = batch->last_part;
        assert_ok(plim_trainer_backward(bed->trainer, batch, 1, loss_out));
        plim_batch_release(batch);
        ++*parts_out;
    }
    assert_ok(plim_trainer_gradient(bed->trainer, gradient));
    return gradient;
}

static void test_gradients_of_parts_sum_up_to_the_batch(void **state)
{
    plim_training_t training = test_training_small();
    test_bed_t whole, parts;
    double loss, part_loss = 0, loss_sum = 0, length = 0, away = 0;
    int count;
    plim_batch_t *batch;
    (void)state;
    open_bed(&training, &whole);
    training.microbatch = 30;
    open_bed(&training, &parts);
    float *expected = gradient_of(&whole, 2, &loss, &count);
    assert_int_equal(count, 1);
    /* Each part's gradient by itself, added by the caller. */
    float *sum = make_floats(whole.count), *one = make_floats(whole.count);
    assert_ok(plim_stream_start(test_stream(parts.loader, PLIM_TRAIN), 0, 2));
    for (bool last = false; !last; count++) {
        assert_ok(plim_stream_next(test_stream(parts.loader, PLIM_TRAIN), -1, &batch));
        last = batch->last_part;
        assert_ok(plim_trainer_backward(parts.trainer, batch, 1, &part_loss));
        plim_batch_release(batch);
        assert_ok(plim_trainer_gradient(parts.trainer, one));
        plim__vector_add(sum, one, whole.count);
        loss_sum = part_loss; /* of the batch so far */
    }
    assert_true(count > 3);
    assert_true(fabs(loss_sum - loss) <= 1e-6 * loss);
    for (int64_t i = 0; i < whole.count; i++) {
        length += (double)expected[i] * (double)expected[i];
        away += pow((double)sum[i] - (double)expected[i], 2);
    }
    assert_true(length > 0 && sqrt(away) <= 1e-5 * sqrt(length));
    /* The trainer's own sum over the parts is the same within rounding, and an update takes it. */
    assert_ok(plim_trainer_update(parts.trainer, sum));
    free(expected);
    free(sum);
    free(one);
    test_bed_close(&whole);
    test_bed_close(&parts);
}

/* The gradient of one share of a batch, by a stream that loads nothing else. */
static void add_share(test_bed_t *bed, int share, int num_shares, int64_t step, float *sum,
                      int64_t *seeds, double *loss)
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *stream;
    plim_batch_t *batch;
    double part;
    float *one = make_floats(bed->count);
    params.share = share;
    params.num_shares = num_shares;
    assert_ok(plim_loader_stream(bed->loader, &params, &stream));
    assert_ok(plim_stream_start(stream, 0, step));
    assert_ok(plim_stream_next(stream, -1, &batch));
    assert_true(batch->last_part && batch->num_seeds < batch->batch_seeds);
    assert_int_equal(batch->step, step);
    assert_true(batch->batch_labels > 0);
    assert_true((batch->num_seeds == 0) == (share >= batch->batch_seeds));
    assert_true((batch->num_nodes == 0) == (batch->num_seeds == 0));
    *seeds += batch->num_seeds;
    assert_ok(plim_trainer_backward(bed->trainer, batch, 1, &part));
    plim_batch_release(batch);
    assert_ok(plim_trainer_gradient(bed->trainer, one));
    plim__vector_add(sum, one, bed->count);
    *loss += part;
    plim_stream_release(stream);
    free(one);
}

static void check_shares(const plim_plan_params_t *how)
{
    static const int shares[] = {2, 3, 7, 101}; /* of 101 some are empty */
    const plim_training_t training = test_training_small();
    test_bed_t bed;
    double loss, away;
    int count;
    open_bed_as(&training, how, &bed);
    const int64_t steps =
        (plim_dataset_info(bed.dataset)->num_split[PLIM_TRAIN] - 1) / training.recipe.batch_size +
        1;
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++) {
        /* The first batch, and the last, which is smaller. */
        for (int64_t step = 0; step < steps; step += steps - 1) {
            double share_loss = 0, length = 0;
            int64_t seeds = 0;
            float *expected = gradient_of(&bed, step, &loss, &count);
            plim_trainer_discard(bed.trainer);
            float *sum = make_floats(bed.count);
            for (int share = 0; share < shares[i]; share++)
                add_share(&bed, share, shares[i], step, sum, &seeds, &share_loss);
            away = 0;
            for (int64_t k = 0; k < bed.count; k++) {
                length += (double)expected[k] * (double)expected[k];
                away += pow((double)sum[k] - (double)expected[k], 2);
            }
            assert_true(length > 0 && sqrt(away) <= 1e-5 * sqrt(length));
            assert_true(fabs(share_loss - loss) <= 1e-6 * loss);
            assert_true(seeds == training.recipe.batch_size || step > 0);
            plim_trainer_discard(bed.trainer);
            free(expected);
            free(sum);
        }
    }
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *stream;
    params.share = params.num_shares = 4;
    assert_int_equal(plim_loader_stream(bed.loader, &params, &stream), PLIM_ERR_USAGE);
    test_bed_close(&bed);
}

static void test_a_share_with_batch_norm_is_refused(void **state)
{
    plim_training_t training = test_training_small();
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *stream;
    plim_batch_t *batch;
    test_bed_t bed;
    (void)state;
    training.model.norm = PLIM_NORM_BATCH;
    open_bed(&training, &bed);
    params.num_shares = 2;
    assert_ok(plim_loader_stream(bed.loader, &params, &stream));
    assert_ok(plim_stream_start(stream, 0, 0));
    assert_ok(plim_stream_next(stream, -1, &batch));
    assert_int_equal(plim_trainer_backward(bed.trainer, batch, 1, NULL), PLIM_ERR_USAGE);
    plim_batch_release(batch);
    plim_stream_release(stream);
    test_bed_close(&bed);
}

static void test_gradients_of_shares_sum_up_to_the_batch(void **state)
{
    plim_plan_params_t disk = PLIM_PLAN_PARAMS_INIT; /* windows of three steps */
    (void)state;
    disk.topology = disk.rows = PLIM_PLACE_DISK;
    disk.row_cache = -1;
    disk.window = 3;
    check_shares(NULL);
    check_shares(&disk);
}

/* A loader that was remade for a larger stream cuts the batches of a trainer as before. */
static void test_a_larger_stream_changes_no_gradient(void **state)
{
    static const int64_t microbatches[] = {0, 30};
    (void)state;
    for (size_t i = 0; i < sizeof microbatches / sizeof microbatches[0]; i++) {
        plim_training_t training = test_training_small();
        plim_stream_params_t larger = PLIM_STREAM_PARAMS_INIT;
        plim_stream_t *stream;
        double loss, after;
        int parts, parts_after;
        void *base, *base_after;
        size_t bytes, bytes_after;
        test_bed_t bed;
        training.microbatch = microbatches[i];
        open_bed(&training, &bed);
        float *expected = gradient_of(&bed, 2, &loss, &parts);
        larger.num_hops = PLIM_HOPS_MAX;
        for (int hop = 0; hop < PLIM_HOPS_MAX; hop++)
            larger.fanout[hop] = 30;
        plim_loader_memory(bed.loader, &base, &bytes);
        assert_ok(plim_loader_stream(bed.loader, &larger, &stream));
        plim_loader_memory(bed.loader, &base_after, &bytes_after);
        assert_true(bytes_after > bytes);
        float *gradient = gradient_of(&bed, 2, &after, &parts_after);
        assert_true(parts_after == parts && after == loss);
        assert_memory_equal(gradient, expected, (size_t)bed.count * sizeof(float));
        plim_stream_release(stream);
        free(expected);
        free(gradient);
        test_bed_close(&bed);
    }
}

/* Near the minimum line for the larger stream, with a model larger than what is left: the remade
 * loader counts the model once, and leaves the memory for saving and resuming. */
static void test_a_larger_stream_leaves_room_to_save(void **state)
{
    plim_training_t training = test_training_small();
    plim_stream_params_t larger = PLIM_STREAM_PARAMS_INIT;
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    plim_stream_t *stream;
    char path[700];
    test_bed_t bed;
    (void)state;
    training.model.hidden = 1000; /* with its moments and gradients 32 MiB */
    training.model.num_layers = training.recipe.num_hops = 3;
    training.recipe.fanout[2] = 2;
    larger.num_hops = PLIM_HOPS_MAX;
    for (int hop = 0; hop < PLIM_HOPS_MAX; hop++)
        larger.fanout[hop] = 30;
    params.streams = &larger;
    params.num_streams = 1;
    open_bed_as(&training, &params, &bed);
    const int64_t line = bed.plan->numbers.minimum + ((int64_t)16 << 20);
    test_bed_close(&bed);
    test_bed_open(line, &training, NULL, &bed);
    assert_ok(plim_loader_stream(bed.loader, &larger, &stream));
    test_training_path("saved_after.safetensors", path);
    assert_ok(plim_trainer_save(bed.trainer, path));
    assert_ok(plim_trainer_resume(bed.trainer, path));
    plim_stream_release(stream);
    test_bed_close(&bed);
}

static void test_a_gradient_changes_nothing_until_the_update(void **state)
{
    plim_training_t training = test_training_small();
    test_bed_t bed, other;
    double loss, again;
    int count;
    int64_t epoch, step, updates;
    (void)state;
    training.model.norm = PLIM_NORM_BATCH;
    open_bed(&training, &bed);
    open_bed(&training, &other);
    int64_t num_buffers;
    const float *buffers = plim_trainer_values(bed.trainer, PLIM_VALUES_BUFFERS, &num_buffers);
    assert_true(num_buffers > 0);
    float *before = make_floats(bed.count), *buffers_before = make_floats(num_buffers);
    memcpy(before, weights_of(&bed), (size_t)bed.count * 4);
    memcpy(buffers_before, buffers, (size_t)num_buffers * 4);
    float *gradient = gradient_of(&bed, 0, &loss, &count);
    assert_true(memcmp(buffers, buffers_before, (size_t)num_buffers * 4) != 0);
    assert_memory_equal(before, weights_of(&bed), (size_t)bed.count * 4);
    assert_int_equal(plim_trainer_save(bed.trainer, "nowhere"), PLIM_ERR_USAGE);
    plim_trainer_discard(bed.trainer);
    assert_memory_equal(buffers_before, buffers, (size_t)num_buffers * 4);
    assert_int_equal(plim_trainer_update(bed.trainer, gradient), PLIM_ERR_USAGE);
    assert_int_equal(plim_trainer_gradient(bed.trainer, gradient), PLIM_ERR_USAGE);
    test_trainer_position(bed.trainer, &epoch, &step, &updates);
    assert_true(epoch == 0 && step == 0 && updates == 0);
    /* Once more, applied; by an array of the caller's, and by the trainer's own. */
    float *second = gradient_of(&bed, 0, &again, &count);
    assert_memory_equal(gradient, second, (size_t)bed.count * 4);
    assert_true(loss == again);
    assert_int_equal(plim_trainer_update(bed.trainer, NULL), PLIM_ERR_USAGE);
    assert_ok(plim_trainer_update(bed.trainer, second));
    plim_batch_t *batch;
    assert_ok(plim_stream_start(test_stream(other.loader, PLIM_TRAIN), 0, 0));
    assert_ok(plim_stream_next(test_stream(other.loader, PLIM_TRAIN), -1, &batch));
    assert_ok(plim_trainer_backward(other.trainer, batch, 1, &loss));
    plim_batch_release(batch);
    assert_int_equal(plim_trainer_update(other.trainer, second), PLIM_ERR_USAGE);
    assert_ok(plim_trainer_update(other.trainer, NULL));
    assert_true(memcmp(before, weights_of(&bed), (size_t)bed.count * 4) != 0);
    assert_memory_equal(weights_of(&other), weights_of(&bed), (size_t)bed.count * 4);
    test_trainer_position(bed.trainer, &epoch, &step, &updates);
    assert_true(epoch == 0 && step == 1 && updates == 1);
    free(before);
    free(buffers_before);
    free(gradient);
    free(second);
    test_bed_close(&bed);
    test_bed_close(&other);
}

static void test_weights_are_one_array(void **state)
{
    plim_training_t training = test_training_small();
    test_bed_t bed;
    int64_t weights = 0, buffers = 0, num_buffers, num_moments;
    plim_parameter_t parameter = PLIM_PARAMETER_INIT;
    (void)state;
    training.model.norm = PLIM_NORM_BATCH;
    open_bed(&training, &bed);
    for (int i = 0; i < bed.trainer->session.num_parameters; i++) {
        assert_ok(plim_trainer_parameter(bed.trainer, i, &parameter));
        int64_t count = 1, *end = parameter.buffer ? &buffers : &weights;
        for (int k = 0; k < parameter.num_dims; k++)
            count *= parameter.shape[k];
        assert_int_equal(parameter.count, count);
        assert_int_equal(parameter.offset, *end);
        assert_int_equal(parameter.buffer, strstr(parameter.name, "running") != NULL);
        *end += count;
    }
    assert_int_equal(weights, bed.count);
    assert_int_equal(plim_trainer_parameter(bed.trainer, -1, &parameter), PLIM_ERR_USAGE);
    assert_non_null(plim_trainer_values(bed.trainer, PLIM_VALUES_BUFFERS, &num_buffers));
    assert_int_equal(buffers, num_buffers);
    assert_non_null(plim_trainer_values(bed.trainer, PLIM_VALUES_SECOND_MOMENT, &num_moments));
    assert_int_equal(weights, num_moments);
    assert_null(plim_trainer_values(bed.trainer, (plim_values_t)4, &num_moments));
    test_bed_close(&bed);
}

/* Steps from the trainer's position on; stops in front of step `until` of the last epoch. */
static void train_on(test_bed_t *bed, int64_t epochs, int64_t until)
{
    int64_t epoch, step;
    plim_batch_t *batch;
    double score, loss;
    test_trainer_position(bed->trainer, &epoch, &step, NULL);
    for (; epoch < epochs; epoch++, step = 0) {
        assert_ok(plim_stream_start(test_stream(bed->loader, PLIM_TRAIN), epoch, step));
        for (;;) {
            test_trainer_position(bed->trainer, NULL, &step, NULL);
            assert_ok(plim_stream_next(test_stream(bed->loader, PLIM_TRAIN), -1, &batch));
            if (batch == NULL || (epoch + 1 == epochs && batch->step == until))
                break;
            assert_ok(plim_trainer_backward(bed->trainer, batch, 1, NULL));
            plim_batch_release(batch);
            assert_ok(plim_trainer_update(bed->trainer, NULL));
        }
        if (batch != NULL) {
            plim_batch_release(batch);
            return;
        }
        assert_ok(plim_trainer_evaluate(bed->trainer, bed->loader, PLIM_VALID, &score, &loss));
        assert_true(score > 0 && loss > 0);
    }
}

/* Weights, buffers and moments are the same bits. */
static void assert_same_state(test_bed_t *one, test_bed_t *other)
{
    int64_t count, other_count;
    const float *arrays[] = {
        plim_trainer_values(one->trainer, PLIM_VALUES_WEIGHTS, &count),
        plim_trainer_values(other->trainer, PLIM_VALUES_WEIGHTS, &other_count)};
    assert_memory_equal(arrays[0], arrays[1], (size_t)count * sizeof(float));
    for (int i = 0; i < 2; i++) {
        arrays[0] =
            plim_trainer_values(one->trainer, (plim_values_t)(PLIM_VALUES_MOMENT + i), &count);
        arrays[1] = plim_trainer_values(other->trainer, (plim_values_t)(PLIM_VALUES_MOMENT + i),
                                        &other_count);
        assert_memory_equal(arrays[0], arrays[1], (size_t)count * sizeof(float));
    }
    arrays[0] = plim_trainer_values(one->trainer, PLIM_VALUES_BUFFERS, &count);
    arrays[1] = plim_trainer_values(other->trainer, PLIM_VALUES_BUFFERS, &other_count);
    assert_memory_equal(arrays[0], arrays[1], (size_t)count * sizeof(float));
}

static void test_own_loop_saved_and_resumed_ends_as_plim_train(void **state)
{
    plim_training_t training = test_training_small();
    plim_train_result_t result = PLIM_TRAIN_RESULT_INIT;
    char path[700], saved[800];
    test_bed_t bed, other;
    (void)state;
    training.model.norm = PLIM_NORM_BATCH;
    assert_ok(test_train("by-command", &training, &test_plain_way, &result));
    open_bed(&training, &bed);
    train_on(&bed, 2, 5);
    test_training_path("half.safetensors", path);
    assert_ok(plim_trainer_save(bed.trainer, path));
    open_bed(&training, &other);
    assert_ok(plim_trainer_resume(other.trainer, path));
    train_on(&bed, training.epochs, -1);
    train_on(&other, training.epochs, -1);
    assert_same_state(&bed, &other);
    test_bed_close(&other);
    /* The command's last checkpoint is one that a trainer reads. */
    open_bed(&training, &other);
    test_training_path("by-command", path);
    (void)snprintf(saved, sizeof saved, "%s/last.safetensors", path);
    assert_ok(plim_trainer_resume(other.trainer, saved));
    assert_same_state(&bed, &other);
    test_bed_close(&other);
    test_bed_close(&bed);
}

/* A loader over the dataset by another recipe than the trainer's plan. */
static void refuse_loader(test_bed_t *bed, const plim_dataset_t *dataset,
                          const plim_recipe_t *recipe)
{
    plim_plan_t *plan;
    plim_loader_t *loader;
    plim_batch_t *batch;
    double score, loss;
    assert_ok(plim_load_plan(&bed->job, dataset, recipe, NULL, &plan));
    assert_ok(plim_loader_create(&bed->job, dataset, plan, &loader));
    assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 0, 0));
    assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
    assert_int_equal(plim_trainer_backward(bed->trainer, batch, 1, &loss), PLIM_ERR_USAGE);
    plim_batch_release(batch);
    assert_int_equal(plim_trainer_evaluate(bed->trainer, loader, PLIM_VALID, &score, &loss),
                     PLIM_ERR_USAGE);
    plim_loader_release(loader);
    plim_plan_release(plan);
}

static void test_batches_that_the_model_cannot_read_are_refused(void **state)
{
    const plim_training_t training = test_training_two_hops(PLIM_GCN, 16, 100, 4, 3);
    plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
    plim_dataset_t *another;
    plim_recipe_t recipes[5];
    char path[700];
    test_bed_t bed, other;
    (void)state;
    open_bed(&training, &bed);
    open_bed(&training, &other);
    test_training_path("wider", path);
    options.shape = "free";
    options.target = path;
    options.num_nodes = 3000;
    options.num_edges = 24000;
    options.num_features = 32;
    options.num_classes = 9;
    options.features = PLIM_F16;
    assert_ok(plim_generate(&bed.job, &options));
    assert_ok(plim_dataset_open(&bed.job, path, &another));
    const plim_recipe_t right = bed.plan->numbers.load.recipe;
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        recipes[i] = right;
    recipes[0].row_type = PLIM_F32;
    recipes[1].index_type = PLIM_I64;
    recipes[2].degrees = false;
    recipes[3].no_features = true;
    recipes[4].num_hops = 1;
    for (size_t i = 0; i < sizeof recipes / sizeof recipes[0]; i++)
        refuse_loader(&bed, bed.dataset, &recipes[i]);
    refuse_loader(&bed, another, &right);
    plim_loader_t *loader;
    plim_trainer_t *trainer;
    assert_int_equal(plim_loader_create(&bed.job, another, bed.plan, &loader), PLIM_ERR_USAGE);
    assert_int_equal(plim_trainer_create(&bed.job, another, &training, bed.plan, &trainer),
                     PLIM_ERR_USAGE);
    plim_dataset_release(another);
    train_on(&bed, 1, 3);
    train_on(&other, 1, 3);
    assert_same_state(&bed, &other);
    test_bed_close(&bed);
    test_bed_close(&other);
}

/* After a batch that failed nothing goes on until it is discarded; then all is as before. */
/* Pairs (i, i + 1) of type i. */
static void write_typed_pairs(const char *path, int64_t count)
{
    char header[128];
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    memset(header, ' ', sizeof header);
    memcpy(header, "\x93NUMPY\x01\x00\x76\x00", 10);
    const int used = snprintf(header + 10, sizeof header - 10,
                              "{'descr': '<i8', 'fortran_order': False, 'shape': (%lld, 3), }",
                              (long long)count);
    header[10 + used] = ' ';
    header[sizeof header - 1] = '\n';
    assert_int_equal(fwrite(header, 1, sizeof header, out), sizeof header);
    for (int64_t i = 0; i < count; i++) {
        const int64_t pair[] = {i, i + 1, i};
        assert_int_equal(fwrite(pair, sizeof pair[0], 3, out), 3);
    }
    assert_int_equal(fclose(out), 0);
}

/* A decoder of one vector, and streams with the places that were planned: typed pairs, negative
 * targets, whose pairs and negatives are more, and pairs alone. */
static void test_pairs_that_were_not_planned_are_refused(void **state)
{
    enum { PAIRS = 500, PLANNED, TYPED, TARGETS, ALONE, STREAMS };
    plim_training_t training = test_training_small();
    char path[700];
    double loss;
    test_bed_t bed;
    (void)state;
    training.task = PLIM_TASK_LINK;
    training.decoder = PLIM_DECODER_DISTMULT;
    training.eval_every = 0;
    open_bed(&training, &bed);
    test_training_path("typed.npy", path);
    write_typed_pairs(path, PAIRS);
    for (int i = PLANNED; i < STREAMS; i++) {
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_links_t links = PLIM_LINKS_INIT;
        plim_stream_t *stream;
        plim_batch_t *batch;
        links.all_edges = i != TYPED;
        links.path = i == TYPED ? path : NULL;
        links.num_pairs = i == TYPED ? PAIRS : plim_dataset_info(bed.dataset)->num_edges;
        links.num_types = i == TYPED ? PAIRS : 0;
        links.negatives = i == TARGETS ? PLIM_NEGATIVE_TARGETS
                          : i == ALONE ? PLIM_NEGATIVES_NONE
                                       : PLIM_NEGATIVE_PAIRS;
        links.amount = i == TARGETS ? 2 : 1;
        params.links = &links;
        params.batch_size = i == ALONE ? 200 : 100;
        assert_ok(plim_loader_stream(bed.loader, &params, &stream));
        assert_ok(plim_stream_start(stream, 0, 0));
        assert_ok(plim_stream_next(stream, -1, &batch));
        assert_int_equal(plim_trainer_backward(bed.trainer, batch, 1, &loss),
                         i == PLANNED ? PLIM_OK : PLIM_ERR_USAGE);
        plim_batch_release(batch);
        plim_stream_release(stream);
    }
    test_bed_close(&bed);
}

static void test_a_failed_batch_must_be_discarded(void **state)
{
    static const plim_status_t failures[] = {PLIM_ERR_NOMEM, PLIM_ERR_DIVERGED};
    plim_training_t training = test_training_small();
    test_bed_t bed, other;
    double loss;
    int64_t count;
    plim_batch_t *batch;
    (void)state;
    training.model.norm = PLIM_NORM_BATCH;
    open_bed(&training, &bed);
    open_bed(&training, &other);
    float *weights = plim_trainer_values(bed.trainer, PLIM_VALUES_WEIGHTS, &count);
    float *gradient = make_floats(count);
    const float weight = weights[0];
    assert_ok(plim_stream_start(test_stream(bed.loader, PLIM_TRAIN), 0, 0));
    assert_ok(plim_stream_next(test_stream(bed.loader, PLIM_TRAIN), -1, &batch));
    for (size_t i = 0; i < sizeof failures / sizeof failures[0]; i++) {
        if (failures[i] == PLIM_ERR_NOMEM) {
            atomic_store(&bed.trainer->session.model->layers[0].product[0].dense->failed, true);
        } else {
            weights[0] = NAN;
            plim_trainer_changed(bed.trainer);
        }
        assert_int_equal(plim_trainer_backward(bed.trainer, batch, 1, &loss), failures[i]);
        assert_int_equal(plim_trainer_backward(bed.trainer, batch, 1, &loss), PLIM_ERR_USAGE);
        assert_int_equal(plim_trainer_gradient(bed.trainer, gradient), PLIM_ERR_USAGE);
        assert_int_equal(plim_trainer_update(bed.trainer, NULL), PLIM_ERR_USAGE);
        assert_int_equal(plim_trainer_save(bed.trainer, "nowhere"), PLIM_ERR_USAGE);
        plim_trainer_discard(bed.trainer);
        assert_int_equal(plim_trainer_update(bed.trainer, NULL), PLIM_ERR_USAGE);
        weights[0] = weight;
        plim_trainer_changed(bed.trainer);
    }
    plim_batch_release(batch);
    train_on(&bed, 1, 3);
    train_on(&other, 1, 3);
    assert_same_state(&bed, &other);
    free(gradient);
    test_bed_close(&bed);
    test_bed_close(&other);
}

/* A batch that was computed before a resume leaves nothing behind. */
static void test_resuming_forgets_the_batch_under_way(void **state)
{
    plim_training_t training = test_training_small();
    char path[700];
    test_bed_t bed, other;
    double loss;
    int64_t count;
    plim_batch_t *batch;
    (void)state;
    training.model.norm = PLIM_NORM_BATCH;
    open_bed(&training, &bed);
    open_bed(&training, &other);
    train_on(&bed, 1, 3);
    test_training_path("under-way.safetensors", path);
    assert_ok(plim_trainer_save(bed.trainer, path));
    assert_ok(plim_stream_start(test_stream(other.loader, PLIM_TRAIN), 0, 0));
    assert_ok(plim_stream_next(test_stream(other.loader, PLIM_TRAIN), -1, &batch));
    assert_ok(plim_trainer_backward(other.trainer, batch, 1, &loss));
    assert_ok(plim_trainer_resume(other.trainer, path));
    train_on(&bed, 1, 5);
    train_on(&other, 1, 5);
    assert_same_state(&bed, &other);
    plim_trainer_values(other.trainer, PLIM_VALUES_WEIGHTS, &count)[0] = NAN;
    plim_trainer_changed(other.trainer);
    assert_int_equal(plim_trainer_backward(other.trainer, batch, 1, &loss), PLIM_ERR_DIVERGED);
    plim_batch_release(batch);
    assert_ok(plim_trainer_resume(other.trainer, path));
    train_on(&other, 1, 5);
    assert_same_state(&bed, &other);
    test_bed_close(&bed);
    test_bed_close(&other);
}

static void test_resuming_other_settings_is_refused(void **state)
{
    plim_training_t training = test_training_small();
    char path[700];
    test_bed_t bed;
    (void)state;
    open_bed(&training, &bed);
    test_training_path("other.safetensors", path);
    assert_ok(plim_trainer_save(bed.trainer, path));
    assert_ok(plim_trainer_resume(bed.trainer, path));
    test_bed_close(&bed);
    training.optimiser.rate = 0.5;
    open_bed(&training, &bed);
    assert_int_equal(plim_trainer_resume(bed.trainer, path), PLIM_ERR_USAGE);
    assert_int_equal(plim_trainer_resume(bed.trainer, "/nowhere"), PLIM_ERR_IO);
    test_bed_close(&bed);
    plim_trainer_release(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_gradients_of_parts_sum_up_to_the_batch),
        cmocka_unit_test(test_a_share_with_batch_norm_is_refused),
        cmocka_unit_test(test_gradients_of_shares_sum_up_to_the_batch),
        cmocka_unit_test(test_a_larger_stream_changes_no_gradient),
        cmocka_unit_test(test_a_larger_stream_leaves_room_to_save),
        cmocka_unit_test(test_a_gradient_changes_nothing_until_the_update),
        cmocka_unit_test(test_weights_are_one_array),
        cmocka_unit_test(test_own_loop_saved_and_resumed_ends_as_plim_train),
        cmocka_unit_test(test_batches_that_the_model_cannot_read_are_refused),
        cmocka_unit_test(test_pairs_that_were_not_planned_are_refused),
        cmocka_unit_test(test_a_failed_batch_must_be_discarded),
        cmocka_unit_test(test_resuming_forgets_the_batch_under_way),
        cmocka_unit_test(test_resuming_other_settings_is_refused),
    };
    return cmocka_run_group_tests(tests, test_training_begin, test_training_end);
}
