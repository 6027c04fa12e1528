/*
 * Training with a loop of one's own: cc step.c $(pkg-config --cflags --libs plimsoll)
 *
 *     ./a.out DATASET WEIGHTS.safetensors
 *
 * ends with the same weights, bit for bit, as
 *
 *     plimsoll train DATASET --model sage --fanout 10,5 --hidden 32 --batch 256 --dropout 0.5 \
 *         --epochs 3 --seed 1
 */
#include <plimsoll/plimsoll.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define EPOCHS 3

typedef struct world {
    plim_job_t *job;
    plim_dataset_t *dataset;
    plim_loader_t *loader;
    plim_stream_t *stream; /* over the training split */
    plim_trainer_t *trainer;
    float *gradient; /* one value for each weight */
} world_t;

/* A step behind a batch's last part. Several processes would add their gradients in between. */
static plim_status_t step(world_t *world)
{
    const plim_status_t status = plim_trainer_gradient(world->trainer, world->gradient);
    return status == PLIM_OK ? plim_trainer_update(world->trainer, world->gradient) : status;
}

static plim_status_t run_epoch(world_t *world, int64_t epoch)
{
    plim_batch_t *batch;
    double loss = 0, sum = 0, score = 0;
    int64_t batches = 0;
    plim_status_t status = plim_stream_start(world->stream, epoch, 0);
    while (status == PLIM_OK && (status = plim_stream_next(world->stream, -1, &batch)) == PLIM_OK) {
        if (batch == NULL)
            break;
        const bool last = batch->last_part; /* where memory is short, batches come in parts */
        status = plim_trainer_backward(world->trainer, batch, 1, &loss);
        plim_batch_release(batch);
        if (status == PLIM_OK && last) {
            status = step(world);
            sum += loss;
            batches++;
        }
    }
    if (status == PLIM_OK)
        status = plim_trainer_evaluate(world->trainer, world->loader, PLIM_VALID, &score, &loss);
    if (status == PLIM_OK)
        (void)printf("epoch %" PRId64 ": loss %.4f, validation %.4f\n", epoch + 1,
                     sum / (double)batches, score);
    return status;
}

static plim_status_t train(world_t *world, const char *weights)
{
    plim_trainer_info_t info = PLIM_TRAINER_INFO_INIT;
    plim_status_t status = plim_trainer_info(world->trainer, &info);
    world->gradient = malloc((size_t)info.num_weights * sizeof(float));
    if (world->gradient == NULL)
        return PLIM_ERR_NOMEM;
    for (int64_t epoch = 0; epoch < EPOCHS && status == PLIM_OK; epoch++)
        status = run_epoch(world, epoch);
    return status == PLIM_OK ? plim_trainer_save(world->trainer, weights) : status;
}

static plim_training_t settings(void)
{
    plim_training_t training = PLIM_TRAINING_INIT;
    training.model.kind = PLIM_SAGE;
    training.model.hidden = 32;
    training.model.dropout = 0.5f;
    training.recipe.batch_size = 256;
    training.recipe.fanout[0] = 10;
    training.recipe.fanout[1] = 5;
    training.recipe.seed = 1;
    training.epochs = EPOCHS;
    return training;
}

int main(int argc, char **argv)
{
    static plim_limits_t limits = PLIM_LIMITS_INIT;
    plim_plan_t *plan = NULL;
    plim_job_params_t params = PLIM_JOB_PARAMS_INIT;
    const plim_training_t training = settings();
    const plim_stream_params_t training_split = PLIM_STREAM_PARAMS_INIT;
    world_t world = {0};
    if (argc != 3)
        return 2;
    plim_status_t status = plim_limits_discover(NULL, &limits);
    params.line = limits.memory[limits.line].value;
    if (status == PLIM_OK)
        status = plim_job_create(&params, &world.job);
    if (status == PLIM_OK)
        status = plim_dataset_open(world.job, argv[1], &world.dataset);
    if (status == PLIM_OK)
        status = plim_train_plan(world.job, world.dataset, &training, NULL, &plan);
    if (status == PLIM_OK)
        status = plim_loader_create(world.job, world.dataset, plan, &world.loader);
    if (status == PLIM_OK)
        status = plim_loader_stream(world.loader, &training_split, &world.stream);
    if (status == PLIM_OK)
        status = plim_trainer_create(world.job, world.dataset, &training, plan, &world.trainer);
    if (status == PLIM_OK)
        status = train(&world, argv[2]);
    if (status != PLIM_OK)
        (void)fprintf(stderr, "%s\n", plim_last_error());
    free(world.gradient);
    plim_trainer_release(world.trainer);
    plim_stream_release(world.stream);
    plim_loader_release(world.loader);
    plim_plan_release(plan);
    plim_dataset_release(world.dataset);
    plim_job_release(world.job);
    return status != PLIM_OK;
}
