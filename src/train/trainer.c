/*
 * Training as steps: forward and backward passes over batches sum gradients, and an update changes
 * the weights.
 *
 * The state of a training is its parameters, moments, buffers and position. Only an update changes
 * it: between updates there are only gradients and moved buffers, which plim_trainer_discard
 * restores.
 */
#include "train/trainer.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/params.h"
#include "base/process.h"
#include "load/slot_ring.h"
#include "nn/decoder.h"
#include "nn/loss.h"
#include "nn/vector.h"
#include "plan/plan_settings.h"
#include "train/run.h"

#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <string.h>
#include <unistd.h>

plim_status_t plim__trainer_check_plan(const plim_job_t *job, const plim_dataset_info_t *info,
                                       const plim_training_t *training, const plim_plan_t *plan)
{
    if (!plan->trains)
        return plim__fail(PLIM_ERR_USAGE,
                          "the plan is of a loader alone: make it with plim_train_plan");
    PLIM_TRY(plim__plan_check_dataset(plan, info));
    const plim_recipe_t wanted = plim__plan_settings_recipe(info, training);
    const plim_recipe_t *planned = &plan->numbers.load.recipe;
    bool same =
        wanted.batch_size == planned->batch_size && wanted.num_hops == planned->num_hops &&
        wanted.seed == planned->seed && wanted.degrees == planned->degrees &&
        wanted.skip_loops == planned->skip_loops && wanted.columns == planned->columns &&
        wanted.draw_by == planned->draw_by && wanted.latest == planned->latest &&
        plan->numbers.load.links == (training->task == PLIM_TASK_LINK) &&
        plim__train_model_bytes(job, info, training, &plan->numbers) == plan->numbers.model_bytes;
    for (int i = 0; same && i < wanted.num_hops; i++)
        same = wanted.fanout[i] == planned->fanout[i];
    return same ? PLIM_OK
                : plim__fail(PLIM_ERR_USAGE,
                             "the settings draw other batches than the plan, or their model, "
                             "optimiser or metric needs other memory: plan again");
}

/* Copies the buffers for plim_trainer_discard. */
static void keep_buffers(plim_trainer_t *trainer)
{
    memcpy(trainer->scratch.buffers, trainer->arrays.buffers,
           (size_t)trainer->arrays.num_buffers * sizeof(float));
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim_trainer_t *trainer = object;
    trainer->scratch =
        plim__train_scratch_carve(arena, &trainer->session.params, &trainer->settings);
}

static plim_status_t open_trainer(plim_trainer_t *trainer, const plim__train_plan_t *plan)
{
    plim__session_t *session = &trainer->session;
    PLIM_TRY(plim__session_open(session, plan, true));
    trainer->arrays = *plim__model_arrays(session->model);
    plim__arena_touch(&trainer->arena);
    plim__model_initialise(session->model, session->training.recipe.seed);
    if (trainer->settings.init != NULL) {
        PLIM_TRY(plim__run_weights(session->job, AT_FDCWD, "", trainer->settings.init,
                                   session->parameters, session->num_parameters));
        plim__model_changed(session->model);
        trainer->settings.init = session->training.init = NULL; /* the caller's text */
    }
    trainer->settings.pairs = session->training.pairs = NULL; /* the same */
    keep_buffers(trainer);
    return PLIM_OK;
}

plim_status_t plim__trainer_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                   const plim_training_t *training, const plim__train_plan_t *plan,
                                   plim_train_event_fn events, void *user,
                                   plim_trainer_t **trainer_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim_trainer_t *trainer,
        draft = {.job = *job, .position = PLIM__POSITION_INIT, .settings = *training};
    draft.session.params =
        plim__train_model_params(info, training, &plan->load, true, plim__job_threads(job));
    PLIM_TRY(plim__object_create(job->ledger, "activations", lay_out, &draft, sizeof draft,
                                 &draft.arena, &trainer));
    trainer->process = getpid();
    plim_job_retain(job);
    plim_dataset_retain(dataset);
    plim__session_begin(&trainer->job, dataset, training, events, user, &trainer->session);
    const plim_status_t status = open_trainer(trainer, plan);
    if (status != PLIM_OK) {
        plim_trainer_release(trainer);
        return status;
    }
    *trainer_out = trainer;
    return PLIM_OK;
}

plim_status_t plim__trainer_connect(plim_trainer_t *trainer, plim__peers_t *peers)
{
    trainer->session.peers = peers;
    if (peers == NULL && trainer->settings.shares == 1)
        return PLIM_OK;
    return plim__reduce_create(&trainer->job, peers, trainer->arrays.num_weights,
                               trainer->settings.shares, &trainer->reduce);
}

PLIM_API plim_status_t plim_trainer_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                           const plim_training_t *training, const plim_plan_t *plan,
                                           plim_trainer_t **trainer_out)
{
    plim_training_t known = PLIM_TRAINING_INIT;
    PLIM_ENTER(job);
    PLIM_TRY(plim__plan_settings_take(job, dataset, training, &known));
    PLIM_TRY(plim__plan_settings_check(dataset, &known));
    PLIM_TRY(plim__trainer_check_plan(job, plim_dataset_info(dataset), &known, plan));
    plim_trainer_t *trainer;
    PLIM_TRY(plim__trainer_create(job, dataset, &known, &plan->numbers, NULL, NULL, &trainer));
    const plim_status_t status = plim__trainer_connect(trainer, NULL);
    if (status != PLIM_OK) {
        plim_trainer_release(trainer);
        return status;
    }
    *trainer_out = trainer;
    return PLIM_OK;
}

PLIM_API void plim_trainer_release(plim_trainer_t *trainer)
{
    if (trainer == NULL || !plim__process_is(trainer->process))
        return;
    const plim_job_t job = trainer->job;
    const plim_dataset_t *dataset = trainer->session.dataset;
    plim__arena_t arena = trainer->arena;
    plim__reduce_destroy(trainer->reduce);
    plim__session_end(&trainer->session);
    plim__arena_destroy(&arena);
    plim_dataset_release(dataset);
    plim_job_release(&job);
}

static plim_status_t fail_diverged(const char *what, int64_t epoch, int64_t step)
{
    return plim__fail(
        PLIM_ERR_DIVERGED,
        "%s is not finite at step %" PRId64 " of epoch %" PRId64
        ": training has diverged; use a lower learning rate (`rate`) or clip gradients "
        "(`clip_norm`), and check that all features are finite",
        what, step, epoch + 1);
}

plim_status_t plim__trainer_check_weights(const plim_trainer_t *trainer)
{
    const plim__session_t *session = &trainer->session;
    const plim__position_t *position = &trainer->position;
    for (int i = 0; i < session->num_parameters; i++)
        for (int64_t j = 0; j < session->parameters[i].count; j++)
            if (!isfinite(session->parameters[i].value[j]))
                return fail_diverged(session->parameters[i].name, position->epoch, position->step);
    return PLIM_OK;
}

/* Computes the loss of the batch's pairs (label 1) and negatives (label 0, with the type of their
 * pair), and the gradient of their nodes' rows. */
static double link_loss(plim_trainer_t *trainer, const plim_batch_t *batch, const float *rows,
                        float scale)
{
    const plim__session_t *session = &trainer->session;
    const plim__train_scratch_t *scratch = &trainer->scratch;
    const int64_t count = batch->num_pairs + batch->num_negatives;
    const plim__pairs_t pairs = {count, batch->pair_index, batch->pair_index + count,
                                 batch->pair_types, batch->num_pairs};
    for (int64_t i = 0; i < count; i++)
        scratch->labels[i] = i < batch->num_pairs ? 1.0f : 0.0f;
    plim__decode(session->team, session->decoder, &pairs, session->num_outputs, rows,
                 scratch->scores);
    const double loss = plim__loss(session->team, PLIM_LOSS_BCE, count, 1, scratch->scores,
                                   scratch->labels, scale, scratch->dscores);
    plim__decode_backward(session->team, session->decoder, &pairs, batch->num_seeds,
                          session->num_outputs, rows, scratch->dscores, scratch->doutputs);
    return loss;
}

/* Computes forward, loss and backward; adds the loss of this part's seeds to part_loss and
 * share_loss. */
static plim_status_t compute(plim_trainer_t *trainer, const plim_batch_t *batch, double weight)
{
    plim__session_t *session = &trainer->session;
    const plim__batch_columns_t columns = plim__plan_settings_batch(batch);
    const plim__pass_t pass = {.training = true,
                               .seed = session->training.recipe.seed,
                               .epoch = batch->epoch,
                               .step = batch->step,
                               .columns = &columns};
    plim__model_output_t output;
    PLIM_TRY(plim__model_forward(session->model, batch, &pass, &output));
    const int64_t began = plim__clock_ns();
    const float scale = 1.0f / (float)weight;
    const double loss = batch->num_pairs > 0
                            ? link_loss(trainer, batch, output.outputs, scale)
                            : plim__loss(session->team, session->training.loss, batch->num_seeds,
                                         session->num_outputs, output.outputs, batch->labels, scale,
                                         trainer->scratch.doutputs);
    trainer->part_loss += loss;
    trainer->share_loss += loss;
    trainer->loss_seconds += plim__clock_seconds_since(began);
    PLIM_TRY(plim__decoder_check(session->decoder));
    return plim__model_backward(session->model, batch, trainer->scratch.doutputs);
}

/* PLIM_ERR_USAGE when the sum of gradients is not whole. */
static plim_status_t check_whole(const plim_trainer_t *trainer)
{
    return trainer->failed
               ? plim__fail(PLIM_ERR_USAGE, "the last plim_trainer_backward failed: call "
                                            "plim_trainer_discard and compute its update again")
               : PLIM_OK;
}

static size_t gradient_bytes(const plim_trainer_t *trainer)
{
    return (size_t)trainer->arrays.num_weights * sizeof(float);
}

/* With shares: the batch must belong to the share that comes next. */
static plim_status_t check_share(const plim_trainer_t *trainer, const plim_batch_t *batch)
{
    if (trainer->reduce == NULL)
        return PLIM_OK;
    const plim__share_range_t range = plim__reduce_shares(trainer->reduce);
    if (batch->num_shares == trainer->settings.shares &&
        batch->share == range.begin + trainer->shares_done)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "share %d of %d, but the trainer computes shares %lld to %lld of %lld, in "
                      "order: take batches from a stream with these shares",
                      batch->share, batch->num_shares, (long long)range.begin,
                      (long long)range.end - 1, (long long)trainer->settings.shares);
}

/* Adds the gradient of a share to the others' when its last part was computed. */
static void end_share(plim_trainer_t *trainer, const plim_batch_t *batch)
{
    const int64_t shares = trainer->settings.shares;
    const int64_t begin = plim__reduce_shares(trainer->reduce).begin;
    const int64_t end = plim__share_first(batch->batch_seeds, shares, batch->share + 1) -
                        plim__share_first(batch->batch_seeds, shares, begin);
    const bool links = trainer->settings.task == PLIM_TASK_LINK; /* whole shares */
    if (!links && batch->first_seed + batch->num_seeds < end)
        return;
    plim__model_gather_gradients(trainer->session.model);
    plim__reduce_add(trainer->reduce, trainer->arrays.gradient, trainer->share_loss);
    memset(trainer->arrays.gradient, 0, gradient_bytes(trainer));
    trainer->share_loss = 0;
    trainer->shares_done++;
}

plim_status_t plim__trainer_compute(plim_trainer_t *trainer, const plim_batch_t *batch,
                                    int64_t batches, double *loss_out)
{
    PLIM_TRY(check_whole(trainer));
    PLIM_TRY(plim__session_check_batch(&trainer->session, batch));
    const plim_training_t *training = &trainer->session.training;
    if (batches < 1)
        return plim__fail(PLIM_ERR_USAGE, "an update has %lld batches; it must have at least one",
                          (long long)batches);
    if (training->model.norm == PLIM_NORM_BATCH && batch->num_seeds < batch->batch_seeds)
        return plim__fail(PLIM_ERR_USAGE,
                          "batch norm needs all %lld seeds of step %lld of epoch %lld at once, and "
                          "this part or share has %lld: use whole batches, or layer norm",
                          (long long)batch->batch_seeds, (long long)batch->step,
                          (long long)batch->epoch + 1, (long long)batch->num_seeds);
    PLIM_TRY(check_share(trainer, batch));
    const int64_t labels = batch->batch_labels;
    const int64_t columns = training->task == PLIM_TASK_LINK ? 1 : trainer->session.num_outputs;
    const double weight = plim__loss_weight(training->loss, columns, labels);
    const bool begins =
        !trainer->computed || trainer->epoch != batch->epoch || trainer->step != batch->step + 1;
    plim_status_t status = PLIM_OK;
    if (labels > 0 && batch->num_seeds > 0)
        status = compute(trainer, batch, weight * (double)batches);
    if (status == PLIM_OK && !isfinite(trainer->part_loss))
        status = fail_diverged("the loss", batch->epoch, batch->step + 1);
    if (status != PLIM_OK) {
        trainer->failed = status != PLIM_ERR_USAGE; /* a refused batch changes nothing */
        return status;
    }
    trainer->computed = true;
    trainer->taken = false;
    trainer->epoch = batch->epoch;
    trainer->step = batch->step + 1;
    if (begins) {
        trainer->batch_weight = weight;
        trainer->group_seeds += weight;
    }
    if (trainer->reduce != NULL)
        end_share(trainer, batch);
    if (loss_out != NULL)
        *loss_out = labels > 0 ? trainer->part_loss / weight : NAN;
    return PLIM_OK;
}

plim_status_t plim__trainer_end_batch(plim_trainer_t *trainer, plim_status_t status,
                                      double *loss_out)
{
    plim__reduce_t *reduce = trainer->reduce;
    float *sum = trainer->grouped ? trainer->arrays.gradient : trainer->scratch.group;
    if (reduce != NULL)
        status = plim__reduce_exchange(reduce, status, sum, &trainer->part_loss);
    if (status != PLIM_OK) {
        trainer->failed = trainer->failed || trainer->computed;
        return status;
    }
    if (reduce != NULL && trainer->grouped) {
        plim__vector_add(trainer->scratch.group, sum, trainer->arrays.num_weights);
        memset(sum, 0, gradient_bytes(trainer));
    }
    trainer->grouped = reduce != NULL;
    trainer->shares_done = 0;
    if (loss_out != NULL && trainer->batch_weight > 0)
        *loss_out = trainer->part_loss / trainer->batch_weight;
    trainer->group_loss += trainer->part_loss;
    trainer->part_loss = 0;
    return PLIM_OK;
}

PLIM_API plim_status_t plim_trainer_backward(plim_trainer_t *trainer, const plim_batch_t *batch,
                                             int64_t batches, double *loss_out)
{
    PLIM_ENTER(&trainer->job);
    PLIM_TRY(plim__trainer_compute(trainer, batch, batches, loss_out));
    return batch->last_part ? plim__trainer_end_batch(trainer, PLIM_OK, loss_out) : PLIM_OK;
}

/* PLIM_ERR_USAGE when there is no whole gradient. */
static plim_status_t check_computed(const plim_trainer_t *trainer)
{
    PLIM_TRY(check_whole(trainer));
    return trainer->computed
               ? PLIM_OK
               : plim__fail(
                     PLIM_ERR_USAGE,
                     "no batch was computed since the last update: call plim_trainer_backward");
}

/* Moves the group's sum to the model's gradient. */
static void gather_group(plim_trainer_t *trainer)
{
    plim__model_gather_gradients(trainer->session.model);
    if (trainer->grouped)
        memcpy(trainer->arrays.gradient, trainer->scratch.group, gradient_bytes(trainer));
    trainer->grouped = false;
}

PLIM_API plim_status_t plim_trainer_gradient(plim_trainer_t *trainer, float *gradient_out)
{
    PLIM_ENTER(&trainer->job);
    PLIM_TRY(check_computed(trainer));
    gather_group(trainer);
    memcpy(gradient_out, trainer->arrays.gradient, gradient_bytes(trainer));
    memset(trainer->arrays.gradient, 0, gradient_bytes(trainer));
    trainer->taken = true;
    return PLIM_OK;
}

/* Resets the sums since the last update. */
static void begin_group(plim_trainer_t *trainer)
{
    trainer->computed = trainer->taken = trainer->failed = trainer->grouped = false;
    trainer->part_loss = trainer->share_loss = trainer->group_loss = trainer->group_seeds = 0;
    trainer->shares_done = 0;
    if (trainer->reduce != NULL)
        plim__reduce_discard(trainer->reduce);
}

/* Moves the weights by the model's gradient and zeroes the gradient. */
static void step_weights(plim_trainer_t *trainer)
{
    plim__session_t *session = &trainer->session;
    const plim_training_t *training = &session->training;
    const double rate = plim__schedule_rate(&training->optimiser, trainer->epoch, training->epochs);
    const int64_t began = plim__clock_ns();
    plim__optimiser_step(session->team, &training->optimiser, rate, ++trainer->position.updates,
                         session->parameters, session->num_parameters);
    trainer->update_seconds += plim__clock_seconds_since(began);
    plim__model_changed(session->model);
    keep_buffers(trainer);
}

PLIM_API plim_status_t plim_trainer_update(plim_trainer_t *trainer, const float *gradient)
{
    PLIM_ENTER(&trainer->job);
    plim__position_t *position = &trainer->position;
    PLIM_TRY(check_computed(trainer));
    if ((gradient != NULL) != trainer->taken)
        return plim__fail(PLIM_ERR_USAGE, gradient != NULL
                                              ? "the trainer's own gradient was not taken: call "
                                                "plim_trainer_gradient, or update with NULL"
                                              : "the trainer's gradient was taken: hand it to "
                                                "plim_trainer_update");
    if (gradient != NULL)
        memcpy(trainer->arrays.gradient, gradient, gradient_bytes(trainer));
    else
        gather_group(trainer);
    if (trainer->group_seeds > 0)
        step_weights(trainer);
    else
        memset(trainer->arrays.gradient, 0, gradient_bytes(trainer));
    if (position->epoch != trainer->epoch)
        position->loss_sum = position->loss_seeds = 0;
    position->epoch = trainer->epoch;
    position->step = trainer->step;
    position->loss_sum += trainer->group_loss;
    position->loss_seeds += trainer->group_seeds;
    begin_group(trainer);
    return PLIM_OK;
}

PLIM_API void plim_trainer_discard(plim_trainer_t *trainer)
{
    if (!plim__process_is(trainer->process))
        return;
    plim__model_gather_gradients(trainer->session.model);
    memset(trainer->arrays.gradient, 0, gradient_bytes(trainer));
    memcpy(trainer->arrays.buffers, trainer->scratch.buffers,
           (size_t)trainer->arrays.num_buffers * sizeof(float));
    plim__model_changed(trainer->session.model); /* it forgets a failure, too */
    begin_group(trainer);
}

PLIM_API plim_status_t plim_trainer_info(const plim_trainer_t *trainer,
                                         plim_trainer_info_t *info_out)
{
    PLIM_TRY(plim__process_check(trainer->process));
    PLIM_TRY(plim__output_check(info_out, "plim_trainer_info_t"));
    const plim_trainer_info_t info = {.epoch = trainer->position.epoch,
                                      .step = trainer->position.step,
                                      .updates = trainer->position.updates,
                                      .num_weights = trainer->arrays.num_weights,
                                      .num_parameters = trainer->session.num_parameters};
    plim__output_give(info_out, &info, sizeof info);
    return PLIM_OK;
}

PLIM_API plim_status_t plim_trainer_parameter(const plim_trainer_t *trainer, int index,
                                              plim_parameter_t *parameter_out)
{
    PLIM_ENTER(&trainer->job);
    PLIM_TRY(plim__output_check(parameter_out, "plim_parameter_t"));
    if (index < 0 || index >= trainer->session.num_parameters)
        return plim__fail(PLIM_ERR_USAGE, "there is no parameter %d: the model has %d", index,
                          trainer->session.num_parameters);
    const plim__parameter_t *from = &trainer->session.parameters[index];
    const plim__model_arrays_t *arrays = &trainer->arrays;
    plim_parameter_t parameter = {.name = from->name,
                                  .num_dims = from->num_dims,
                                  .count = from->count,
                                  .buffer = from->gradient == NULL};
    memcpy(parameter.shape, from->shape, sizeof parameter.shape);
    parameter.offset = from->value - (parameter.buffer ? arrays->buffers : arrays->weights);
    plim__output_give(parameter_out, &parameter, sizeof parameter);
    return PLIM_OK;
}

PLIM_API float *plim_trainer_values(plim_trainer_t *trainer, plim_values_t which,
                                    int64_t *count_out)
{
    const plim__model_arrays_t *arrays = &trainer->arrays;
    float *const values[] = {arrays->weights, arrays->buffers, arrays->moment[0],
                             arrays->moment[1]};
    float *found = NULL;
    if (plim__process_is(trainer->process) && which <= PLIM_VALUES_SECOND_MOMENT)
        found = values[which];
    *count_out = found == NULL                  ? 0
                 : which == PLIM_VALUES_BUFFERS ? arrays->num_buffers
                                                : arrays->num_weights;
    return found;
}

PLIM_API void plim_trainer_changed(plim_trainer_t *trainer)
{
    if (!plim__process_is(trainer->process))
        return;
    plim__model_changed(trainer->session.model);
    keep_buffers(trainer);
}

PLIM_API plim_status_t plim_trainer_evaluate(plim_trainer_t *trainer, plim_loader_t *loader,
                                             plim_split_t split, double *score_out,
                                             double *loss_out)
{
    PLIM_ENTER(&trainer->job);
    if (trainer->settings.task == PLIM_TASK_LINK)
        return plim__fail(PLIM_ERR_USAGE, "trainings of links are not evaluated");
    return plim__session_evaluate(&trainer->session, loader, split, trainer->position.epoch + 1,
                                  score_out, loss_out);
}

void plim__trainer_restored(plim_trainer_t *trainer, const plim__position_t *position)
{
    trainer->position = *position;
    plim_trainer_changed(trainer);
    plim_trainer_discard(trainer);
}

/* Makes the checkpoint that describes this training; the caller destroys the arena. */
static plim_status_t make_checkpoint(const plim_trainer_t *trainer, plim__arena_t *arena,
                                     plim__checkpoint_t *checkpoint)
{
    const plim__session_t *session = &trainer->session;
    const plim_dataset_info_t info = plim__dataset_known(session->dataset);
    *arena = plim__arena_counting();
    plim__checkpoint_carve(checkpoint, arena);
    PLIM_TRY(plim__arena_create(session->job->ledger, "checkpoint", arena->used, arena));
    plim__checkpoint_carve(checkpoint, arena);
    const plim_status_t status =
        plim__checkpoint_describe(checkpoint, session->job, &info, &trainer->settings);
    if (status != PLIM_OK)
        plim__arena_destroy(arena);
    return status;
}

static plim_status_t write_checkpoint(const plim_trainer_t *trainer, plim__checkpoint_t *checkpoint,
                                      const char *path)
{
    const plim__session_t *session = &trainer->session;
    plim__draft_t draft;
    int64_t bytes;
    PLIM_TRY(plim__checkpoint_most(checkpoint, path, session->parameters, session->num_parameters,
                                   true, &bytes));
    plim_status_t status = plim__draft_open(AT_FDCWD, path, true, bytes, &draft);
    if (status == PLIM_OK)
        status = plim__checkpoint_write(checkpoint, &draft, session->parameters,
                                        session->num_parameters, &trainer->position, true);
    plim__draft_close(&draft);
    return status;
}

PLIM_API plim_status_t plim_trainer_save(plim_trainer_t *trainer, const char *path)
{
    PLIM_ENTER(&trainer->job);
    plim__checkpoint_t checkpoint;
    plim__arena_t arena;
    PLIM_TRY(check_whole(trainer));
    if (trainer->computed)
        return plim__fail(PLIM_ERR_USAGE, "a batch was computed since the last update: call "
                                          "plim_trainer_update or plim_trainer_discard, then save");
    PLIM_TRY(plim__trainer_check_weights(trainer));
    PLIM_TRY(make_checkpoint(trainer, &arena, &checkpoint));
    const plim_status_t status = write_checkpoint(trainer, &checkpoint, path);
    plim__arena_destroy(&arena);
    return status;
}

PLIM_API plim_status_t plim_trainer_resume(plim_trainer_t *trainer, const char *path)
{
    PLIM_ENTER(&trainer->job);
    const plim__session_t *session = &trainer->session;
    plim__checkpoint_t checkpoint;
    plim__position_t position;
    plim__arena_t arena;
    PLIM_TRY(make_checkpoint(trainer, &arena, &checkpoint));
    const plim_status_t status = plim__checkpoint_read(
        &checkpoint, AT_FDCWD, path, session->parameters, session->num_parameters, &position);
    plim__arena_destroy(&arena);
    PLIM_TRY(status);
    plim__trainer_restored(trainer, &position);
    return PLIM_OK;
}
