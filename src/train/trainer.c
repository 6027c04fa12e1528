/*
 * The epoch loop.
 *
 * Batches are put together in groups of training.accumulation, one update each; an epoch's last
 * group may be smaller. A run's state is its parameters, moments, buffers and position, and changes
 * with a group only: a group that is stopped half-way has left nothing but gradients and moved
 * buffers, which are put back, and is done again. An epoch's
 * evaluation comes behind its last step and changes nothing either; until it is done the position
 * stays at that step.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/job.h"
#include "load/governor.h"
#include "load/loader_params.h"
#include "mem/arena.h"
#include "nn/loss.h"
#include "plan/plan_settings.h"
#include "train/run.h"
#include "train/run_settings.h"
#include "train/session.h"
#include "train/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Saving after an epoch may take this share of the time: short epochs are not all saved. */
#define SAVE_SHARE 0.05

typedef struct trainer {
    plim__session_t session;
    plim__arena_t arena;
    float *doutputs; /* (seeds of the largest part, num_outputs) */
    plim__run_t *run;
    const char *path; /* of the run */
    plim__timeline_t timeline;
    plim__position_t position;
    float *buffers;      /* (plim__model_buffers) as they were at the position */
    int64_t steps;       /* of an epoch */
    double part_loss;    /* of the batch under way, summed over its parts */
    double last_loss;    /* of the last batch, the mean; NAN when it had no label */
    int64_t group_steps; /* batches of the group under way that are done, … */
    double group_loss;   /* … the sum of their losses, … */
    double group_seeds;  /* … and of their weights: 0 when none had a label */
    int64_t epoch_began; /* clock */
    int64_t saved_at;    /* clock, when the last save had ended */
    double save_seconds; /* what it took */
    int64_t saved_step;  /* position at that time: epoch and step say it all */
    int64_t saved_epoch;
    int64_t governed; /* changes by the loader's governor that were written down */
    bool diverged;    /* what it has now is not to be saved */
    bool guessed;     /* how large parts may be was: what is cut for that is still to be said */
} trainer_t;

/* The run ends here, and what was saved before it went wrong stays. */
static plim_status_t diverge(trainer_t *trainer, int64_t step, const char *what)
{
    trainer->diverged = true;
    return plim__fail(PLIM_ERR_DIVERGED,
                      "%s is not finite at step %" PRId64 " of epoch %" PRId64
                      ": the run has diverged, and what %s holds is left as it was saved last; "
                      "begin another with a lower learning rate (--lr) or with clipped gradients "
                      "(--clip), and see that all features are finite",
                      what, step, trainer->position.epoch + 1, trainer->path);
}

/* A loss is of the weights before its step: those after the last one show in themselves. */
static plim_status_t check_weights(trainer_t *trainer)
{
    const plim__session_t *session = &trainer->session;
    for (int i = 0; i < session->num_parameters; i++)
        for (int64_t j = 0; j < session->parameters[i].count; j++)
            if (!isfinite(session->parameters[i].value[j]))
                return diverge(trainer, trainer->position.step, session->parameters[i].name);
    return PLIM_OK;
}

static plim_status_t save(trainer_t *trainer)
{
    const plim__session_t *session = &trainer->session;
    PLIM_TRY(check_weights(trainer));
    const int64_t began = plim__clock_ns();
    PLIM_TRY(plim__run_save(trainer->run, session->parameters, session->num_parameters,
                            &trainer->position));
    trainer->saved_at = plim__clock_ns();
    trainer->save_seconds = (double)(trainer->saved_at - began) * 1e-9;
    trainer->timeline.saving_seconds += trainer->save_seconds;
    trainer->saved_step = trainer->position.step;
    trainer->saved_epoch = trainer->position.epoch;
    const plim_train_event_t event = {.kind = PLIM_EVENT_CHECKPOINT,
                                      .epoch = trainer->position.epoch + 1,
                                      .step = trainer->position.step,
                                      .steps = trainer->steps,
                                      .loss = NAN,
                                      .score = {NAN, NAN, NAN}};
    plim__session_tell(session, &event);
    return PLIM_OK;
}

/* Takes the room of the next checkpoint. */
static plim_status_t reserve(trainer_t *trainer)
{
    const plim__session_t *session = &trainer->session;
    return plim__run_reserve(trainer->run, session->parameters, session->num_parameters,
                             session->training.eval_every > 0 && session->labelled[PLIM_VALID] > 0);
}

static bool is_over(const trainer_t *trainer)
{
    return trainer->position.ended || trainer->position.epoch >= trainer->session.training.epochs;
}

/* Saves in mid-run: where there is no room left for the next checkpoint, the run ends while all of
 * it is saved. */
static plim_status_t save_and_reserve(trainer_t *trainer)
{
    PLIM_TRY(save(trainer));
    const plim_status_t status = is_over(trainer) ? PLIM_OK : reserve(trainer);
    return status == PLIM_ERR_SPACE ? PLIM_ERR_DISK : status;
}

static bool is_saved(const trainer_t *trainer)
{
    return trainer->saved_step == trainer->position.step &&
           trainer->saved_epoch == trainer->position.epoch;
}

static plim_status_t log_memory(trainer_t *trainer)
{
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    (void)plim_meter_read(trainer->timeline.meter, &sample);
    const plim_train_event_t event = {.kind = PLIM_EVENT_MEMORY,
                                      .epoch = trainer->position.epoch + 1,
                                      .step = trainer->position.updates,
                                      .steps = trainer->steps,
                                      .loss = NAN,
                                      .score = {NAN, NAN, NAN},
                                      .resident_bytes = sample.rss_bytes,
                                      .line_bytes =
                                          plim__ledger_line(trainer->session.job->ledger)};
    plim__session_tell(&trainer->session, &event);
    return plim__timeline_write(&trainer->timeline, &trainer->session, trainer->run,
                                &trainer->position, true);
}

/* Copies the buffers (what has no gradient) from the model, or back to it. */
static void copy_buffers(trainer_t *trainer, bool back)
{
    const plim__session_t *session = &trainer->session;
    float *kept = trainer->buffers;
    for (int i = 0; i < session->num_parameters; i++) {
        const plim__parameter_t *parameter = &session->parameters[i];
        if (parameter->gradient != NULL)
            continue;
        const size_t bytes = (size_t)parameter->count * sizeof(float);
        memcpy(back ? parameter->value : kept, back ? kept : parameter->value, bytes);
        kept += parameter->count;
    }
}

/* Batches of the group that the position stands before. */
static int64_t group_size(const trainer_t *trainer)
{
    return plim__min_i64(trainer->session.training.accumulation,
                         trainer->steps - trainer->position.step);
}

static double batch_weight(const trainer_t *trainer, int64_t labels)
{
    return plim__loss_weight(trainer->session.training.loss, trainer->session.num_outputs, labels);
}

/* Forward and back through a batch, or a part of one. */
static plim_status_t train_part(trainer_t *trainer, const plim_batch_t *batch)
{
    plim__session_t *session = &trainer->session;
    const plim_training_t *training = &session->training;
    const plim__pass_t pass = {.training = true,
                               .seed = training->recipe.seed,
                               .epoch = batch->epoch,
                               .step = batch->step};
    plim__model_output_t output;
    if (training->model.norm == PLIM_NORM_BATCH && batch->num_seeds < batch->batch_seeds)
        return plim__fail(
            PLIM_ERR_BUDGET,
            "step %lld of epoch %lld does not fit its slot as a whole, and batch norm "
            "cannot work on parts of it; raise the line, take a smaller batch, or "
            "layer norm",
            (long long)batch->step, (long long)batch->epoch + 1);
    if (batch->batch_labels == 0)
        return PLIM_OK;
    PLIM_TRY(plim__model_forward(session->model, batch, &pass, &output));
    const int64_t began = plim__clock_ns();
    const float scale =
        1.0f / (float)(batch_weight(trainer, batch->batch_labels) * (double)group_size(trainer));
    trainer->part_loss +=
        plim__loss(session->team, training->loss, batch->num_seeds, session->num_outputs,
                   output.outputs, batch->labels, scale, trainer->doutputs);
    trainer->timeline.loss_seconds += plim__clock_seconds_since(began);
    return plim__model_backward(session->model, batch, trainer->doutputs);
}

/* A part that is larger than the plan foresaw is cut by the loader. That is the recipe's cut,
 * unless the plan had to guess: then the line shows in the last bits, and that is said. */
static void look_at_cut(trainer_t *trainer, const plim_batch_t *batch)
{
    const int64_t part = trainer->position.part_seeds;
    int64_t seeds = batch->batch_seeds - batch->first_seed;
    if (part > 0 && part < seeds)
        seeds = part;
    if (batch->num_seeds >= seeds || !trainer->guessed)
        return;
    plim__log(trainer->session.job, PLIM_LOG_WARNING,
              "step %lld of epoch %lld has more neighbours than there is room for, and is computed "
              "%lld seeds at a time: losses differ from those under more memory in the last bits, "
              "which training may magnify",
              (long long)batch->step + 1, (long long)batch->epoch + 1, (long long)batch->num_seeds);
    trainer->guessed = false;
}

/* Changes the weights, unless no batch of the group had a label, and the position. */
static void end_group(trainer_t *trainer, double rate)
{
    plim__session_t *session = &trainer->session;
    plim__position_t *position = &trainer->position;
    if (trainer->group_seeds > 0) {
        plim__model_gather_gradients(session->model);
        const int64_t began = plim__clock_ns();
        plim__optimiser_step(session->team, &session->training.optimiser, rate,
                             position->updates + 1, session->parameters, session->num_parameters);
        trainer->timeline.update_seconds += plim__clock_seconds_since(began);
        plim__model_changed(session->model);
        copy_buffers(trainer, false);
        position->updates++;
    }
    position->step += trainer->group_steps;
    position->loss_sum += trainer->group_loss;
    position->loss_seeds += trainer->group_seeds;
    trainer->group_steps = 0;
    trainer->group_loss = trainer->group_seeds = 0;
}

/* A batch is done, and perhaps its group: *updated_out is whether the weights have changed. */
static plim_status_t end_batch(trainer_t *trainer, int64_t labels, double rate, bool *updated_out)
{
    const double weight = batch_weight(trainer, labels);
    const int64_t updates = trainer->position.updates;
    if (!isfinite(trainer->part_loss))
        return diverge(trainer, trainer->position.step + trainer->group_steps + 1, "the loss");
    const int64_t batches = group_size(trainer);
    trainer->last_loss = labels > 0 ? trainer->part_loss / weight : NAN;
    trainer->group_loss += trainer->part_loss;
    trainer->group_seeds += weight;
    trainer->part_loss = 0;
    trainer->timeline.steps++;
    if (++trainer->group_steps == batches)
        end_group(trainer, rate);
    *updated_out = trainer->position.updates > updates;
    return PLIM_OK;
}

/*
 * The governor has re-sized the loader's caches: that is a line of its own in the timeline. Where
 * the kernel may end the run at any moment, what was reached is saved before.
 */
static plim_status_t look_at_governor(trainer_t *trainer)
{
    const plim__governor_t *governor = plim__loader_governor(trainer->session.loader);
    if (governor->changes == trainer->governed)
        return PLIM_OK;
    trainer->governed = governor->changes;
    if (governor->tight)
        PLIM_TRY(save_and_reserve(trainer));
    return plim__timeline_write(&trainer->timeline, &trainer->session, trainer->run,
                                &trainer->position, true);
}

/* What is due between two batches; what writes the state down, behind an update only. */
static plim_status_t after_batch(trainer_t *trainer, bool updated)
{
    const plim_training_t *training = &trainer->session.training;
    const plim__position_t *position = &trainer->position;
    const plim_train_event_t event = {.kind = PLIM_EVENT_STEP,
                                      .split = PLIM_TRAIN,
                                      .epoch = position->epoch + 1,
                                      .step = position->step + trainer->group_steps,
                                      .steps = trainer->steps,
                                      .loss = trainer->last_loss,
                                      .score = {NAN, NAN, NAN}};
    plim__session_tell(&trainer->session, &event);
    if (!updated)
        return plim__job_check(trainer->session.job);
    PLIM_TRY(look_at_governor(trainer));
    if (training->memory_steps > 0 && position->updates % training->memory_steps == 0)
        PLIM_TRY(log_memory(trainer));
    const bool by_steps =
        training->checkpoint_steps > 0 && position->updates % training->checkpoint_steps == 0;
    const bool by_time =
        training->checkpoint_seconds > 0 &&
        plim__clock_seconds_since(trainer->saved_at) >= training->checkpoint_seconds;
    if (by_steps || by_time)
        PLIM_TRY(save_and_reserve(trainer));
    return plim__job_check(trainer->session.job);
}

static plim_status_t train_steps(trainer_t *trainer)
{
    plim__session_t *session = &trainer->session;
    const plim_training_t *training = &session->training;
    const plim__position_t *position = &trainer->position;
    const double rate =
        plim__schedule_rate(&training->optimiser, position->epoch, training->epochs);
    plim_batch_t *batch;
    bool updated = false;
    PLIM_TRY(plim__job_check(session->job));
    PLIM_TRY(plim_loader_start(session->loader, PLIM_TRAIN, position->epoch, position->step));
    for (;;) {
        PLIM_TRY(plim_loader_next(session->loader, &batch));
        if (batch == NULL)
            return PLIM_OK;
        const bool last = batch->last_part;
        const int64_t labels = batch->batch_labels;
        look_at_cut(trainer, batch);
        const plim_status_t status = train_part(trainer, batch);
        plim_batch_release(batch);
        if (status != PLIM_OK)
            return status;
        if (last) {
            PLIM_TRY(end_batch(trainer, labels, rate, &updated));
            PLIM_TRY(after_batch(trainer, updated));
        }
    }
}

/* Whether an epoch ends with a score of a split. */
static bool is_evaluated(const plim__session_t *session, int64_t epoch, int split)
{
    const plim_training_t *training = &session->training;
    return training->eval_every > 0 && epoch % training->eval_every == 0 &&
           session->labelled[split] > 0 && (split != PLIM_TRAIN || training->eval_train);
}

/* ,"valid":0.53; null for what is not finite. */
static int number_text(char *text, size_t size, const char *name, double value)
{
    char number[PLIM__REAL_TEXT] = "null";
    if (isfinite(value))
        (void)plim__run_settings_real(value, number);
    return snprintf(text, size, ",\"%s\":%s", name, number);
}

/* What was reached, and nothing that another try would have otherwise. */
static plim_status_t write_metrics(trainer_t *trainer, const plim_train_event_t *event)
{
    const plim_training_t *training = &trainer->session.training;
    const double rate =
        plim__schedule_rate(&training->optimiser, trainer->position.epoch, training->epochs);
    static const char *const names[] = {"train", "valid", "test"};
    char line[512];
    int used = snprintf(line, sizeof line, "{\"epoch\":%" PRId64, event->epoch);
    used += number_text(line + used, sizeof line - (size_t)used, "loss", event->loss);
    used += snprintf(line + used, sizeof line - (size_t)used, ",\"labelled\":%" PRId64,
                     event->labelled);
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if (is_evaluated(&trainer->session, event->epoch, split))
            used += number_text(line + used, sizeof line - (size_t)used, names[split],
                                event->score[split]);
    used += number_text(line + used, sizeof line - (size_t)used, "rate", rate);
    (void)snprintf(line + used, sizeof line - (size_t)used, ",\"best\":%s}",
                   event->best ? "true" : "false");
    return plim__run_metrics(trainer->run, line);
}

static plim_status_t evaluate(trainer_t *trainer, plim_train_event_t *event)
{
    plim__session_t *session = &trainer->session;
    const plim__position_t *position = &trainer->position;
    const int64_t began = plim__clock_ns();
    double loss;
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if (is_evaluated(session, event->epoch, split))
            PLIM_TRY(plim__session_evaluate(session, (plim_split_t)split, event->epoch,
                                            &event->score[split], &loss));
    const double valid = event->score[PLIM_VALID];
    event->best = isfinite(valid) && (position->best_epoch == 0 ||
                                      plim__score_better(session->training.metric, valid,
                                                         position->best_score[PLIM_VALID]));
    trainer->timeline.evaluation_seconds += plim__clock_seconds_since(began);
    return PLIM_OK;
}

/* Where the run stands behind an epoch. */
static plim__position_t next_position(const trainer_t *trainer, const plim_train_event_t *event)
{
    plim__position_t next = trainer->position;
    next.epoch++;
    next.step = 0;
    next.loss_sum = 0;
    next.loss_seeds = 0;
    next.epoch_loss = event->loss;
    if (event->best) {
        next.best_epoch = event->epoch;
        for (int split = 0; split < 3; split++)
            next.best_score[split] = event->score[split];
        next.waited = 0;
    } else if (is_evaluated(&trainer->session, event->epoch, PLIM_VALID)) {
        next.waited++;
    }
    next.ended = plim__position_ends(&next, &trainer->session.training);
    return next;
}

/* Evaluates, and moves the position to the next epoch once the best it counts is on the disk. */
static plim_status_t end_epoch(trainer_t *trainer)
{
    plim__session_t *session = &trainer->session;
    plim__position_t *position = &trainer->position;
    plim_train_event_t event = {
        .kind = PLIM_EVENT_EPOCH,
        .epoch = position->epoch + 1,
        .step = position->step,
        .steps = trainer->steps,
        .loss = position->loss_sum / position->loss_seeds,
        .labelled = session->labelled[PLIM_TRAIN],
        .score = {NAN, NAN, NAN},
    };
    PLIM_TRY(check_weights(trainer));
    PLIM_TRY(evaluate(trainer, &event));
    const plim__position_t next = next_position(trainer, &event);
    if (event.best)
        PLIM_TRY(
            plim__run_save_best(trainer->run, session->parameters, session->num_parameters, &next));
    PLIM_TRY(write_metrics(trainer, &event));
    *position = next;
    if (plim__clock_seconds_since(trainer->saved_at) * SAVE_SHARE >= trainer->save_seconds)
        PLIM_TRY(save_and_reserve(trainer));
    event.seconds = plim__clock_seconds_since(trainer->epoch_began);
    plim__session_tell(session, &event);
    return plim__timeline_write(&trainer->timeline, session, trainer->run, position, false);
}

static plim_status_t train_epochs(trainer_t *trainer)
{
    plim__position_t *position = &trainer->position;
    while (position->epoch < trainer->session.training.epochs && !position->ended) {
        trainer->epoch_began = plim__clock_ns();
        PLIM_TRY(train_steps(trainer));
        PLIM_TRY(end_epoch(trainer));
    }
    return PLIM_OK;
}

/* The training split's score, once, by the weights that the others were measured with. */
static plim_status_t score_training(trainer_t *trainer)
{
    plim__session_t *session = &trainer->session;
    plim__position_t *position = &trainer->position;
    double loss;
    if (session->training.eval_every == 0 || position->best_epoch == 0 ||
        session->training.eval_train)
        return PLIM_OK;
    const plim_status_t status = plim__run_load_best(trainer->run, position->best_epoch,
                                                     session->parameters, session->num_parameters);
    if (status == PLIM_ERR_IO || status == PLIM_ERR_DATA) {
        plim__log(session->job, PLIM_LOG_WARNING,
                  "the best weights cannot be read, so the training split has no score: %s",
                  plim_last_error());
        return PLIM_OK;
    }
    PLIM_TRY(status);
    plim__model_changed(session->model);
    return plim__session_evaluate(session, PLIM_TRAIN, position->epoch,
                                  &position->best_score[PLIM_TRAIN], &loss);
}

/* The disk is full: what of the run is on it, and how it goes on. */
static plim_status_t log_full(const trainer_t *trainer, const char *message)
{
    char saved[96] = "nothing was saved yet, so it begins anew";
    if (trainer->saved_step >= 0)
        (void)snprintf(saved, sizeof saved, "saved up to epoch %" PRId64 ", step %" PRId64,
                       trainer->saved_epoch + 1, trainer->saved_step);
    return plim__fail(PLIM_ERR_DISK,
                      "%.500s; the run is %s. When there is room, go on with: plimsoll train "
                      "--resume %s",
                      message, saved, trainer->path);
}

/* Whatever ended it, what was reached is kept. */
static plim_status_t keep(trainer_t *trainer, plim_status_t status)
{
    char message[PLIM_MESSAGE_MAX];
    const plim__position_t *position = &trainer->position;
    const bool says_more = status == PLIM_ERR_STOPPED || status == PLIM_ERR_DISK;
    if (trainer->diverged || (is_saved(trainer) && !says_more))
        return status;
    copy_buffers(trainer, true); /* a group that was not finished may have moved them */
    plim__fail_save(message, sizeof message);
    const plim_status_t saved = is_saved(trainer) ? PLIM_OK : save(trainer);
    if (status == PLIM_ERR_DISK)
        return log_full(trainer, message);
    if (status == PLIM_OK || (status == PLIM_ERR_STOPPED && saved != PLIM_OK))
        return saved == PLIM_ERR_DISK ? log_full(trainer, plim_last_error()) : saved;
    if (status == PLIM_ERR_STOPPED)
        return plim__fail(PLIM_ERR_STOPPED,
                          "stopped in epoch %" PRId64 " at step %" PRId64 " of %" PRId64
                          "; all of it is saved in %s",
                          position->epoch + 1, position->step, trainer->steps, trainer->path);
    return plim__fail_restore(status, message);
}

/* How many seeds have a label, and whether that will do. */
static plim_status_t look_at_labels(const trainer_t *trainer)
{
    static const char *const names[] = {"training", "validation", "test"};
    const plim__session_t *session = &trainer->session;
    const char *path = plim__dataset_path(session->dataset);
    if (session->labelled[PLIM_TRAIN] == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: none of the %lld seeds of its training split has a label; import "
                          "labels for them, or another split",
                          path, (long long)session->info->num_split[PLIM_TRAIN]);
    if (session->training.patience > 0 && session->labelled[PLIM_VALID] == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: no seed of its validation split has a label, so --patience has "
                          "nothing to compare; leave it out",
                          path);
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++) {
        const long long seeds = (long long)session->info->num_split[split];
        const long long labelled = (long long)session->labelled[split];
        if (labelled == 0 && seeds > 0)
            plim__log(session->job, PLIM_LOG_WARNING,
                      "none of the %lld seeds of the %s split has a label: it is not scored", seeds,
                      names[split]);
        else if (labelled < seeds)
            plim__log(session->job, PLIM_LOG_WARNING,
                      "%lld of %lld seeds of the %s split have a label; %s are over those",
                      labelled, seeds, names[split],
                      split == PLIM_TRAIN ? "loss and gradient" : "scores");
    }
    return PLIM_OK;
}

static plim_status_t open_trainer(trainer_t *trainer, const plim__train_plan_t *plan)
{
    plim__session_t *session = &trainer->session;
    PLIM_TRY(plim__session_open(session, plan, true));
    const size_t bytes = plim__train_scratch_bytes(&session->params);
    PLIM_TRY(plim__arena_create(session->job->ledger, "trainer", bytes, &trainer->arena));
    trainer->doutputs = plim__arena_carve(&trainer->arena, (size_t)session->params.max_seeds,
                                          (size_t)session->num_outputs * sizeof(float), 1);
    trainer->buffers =
        plim__arena_carve(&trainer->arena, plim__model_buffers(&session->params), sizeof(float), 1);
    if (trainer->doutputs == NULL || trainer->buffers == NULL)
        return plim__fail(PLIM_ERR_BUDGET, "the plan is not of this model: plan again");
    plim__arena_touch(&trainer->arena);
    PLIM_TRY(plim_meter_open(session->job, &trainer->timeline.meter));
    trainer->steps = plim_loader_steps(session->loader, PLIM_TRAIN);
    return look_at_labels(trainer);
}

static void end_trainer(trainer_t *trainer)
{
    plim_meter_close(trainer->timeline.meter);
    plim__arena_destroy(&trainer->arena);
    plim__session_end(&trainer->session);
    plim__run_close(trainer->run);
}

/* Whether the plan is of these settings: the loader delivers what it says. */
static plim_status_t check_plan(const plim_dataset_info_t *info, const plim_training_t *training,
                                const plim__train_plan_t *plan)
{
    const plim_recipe_t wanted = plim__plan_settings_recipe(info, training);
    const plim_recipe_t *planned = &plan->load.recipe;
    bool same = wanted.batch_size == planned->batch_size && wanted.num_hops == planned->num_hops &&
                wanted.replace == planned->replace && wanted.form == planned->form &&
                wanted.seed == planned->seed && wanted.no_features == planned->no_features &&
                wanted.degrees == planned->degrees && wanted.row_type == planned->row_type &&
                wanted.index_type == planned->index_type;
    for (int i = 0; same && i < wanted.num_hops; i++)
        same = wanted.fanout[i] == planned->fanout[i];
    return same ? PLIM_OK
                : plim__fail(PLIM_ERR_USAGE, "the plan is for another batch size, fan-out, seed or "
                                             "model than the settings say: plan again");
}

/* How many seeds are computed at a time, and whether that is as before. */
static void settle_parts(trainer_t *trainer, const plim__load_plan_t *plan, bool resumed)
{
    const plim_dataset_info_t *info = trainer->session.info;
    const int64_t whole = plim__load_part_seeds(info, &plan->recipe, 0);
    const int64_t part = plim__load_part_seeds(info, &plan->recipe, plan->part_seeds);
    const int64_t before = trainer->position.part_seeds;
    trainer->position.part_seeds = part < whole ? part : 0;
    trainer->position.part_nodes = plan->part_nodes;
    trainer->position.part_edges = plan->part_edges;
    trainer->guessed = plan->guessed;
    if (resumed && before != trainer->position.part_seeds)
        plim__log(trainer->session.job, PLIM_LOG_WARNING,
                  "%s was computed %lld seeds at a time, now it is %lld: the last bits of results "
                  "may differ from those of an uninterrupted run",
                  trainer->path, (long long)(before > 0 ? before : whole), (long long)part);
}

/* Where a resumed run goes on. */
static void log_where(const trainer_t *trainer, bool found)
{
    const plim__position_t *position = &trainer->position;
    const plim_job_t *job = trainer->session.job;
    if (!found)
        plim__log(job, PLIM_LOG_INFO, "%s: nothing was saved yet, so it begins anew",
                  trainer->path);
    else if (position->ended)
        plim__log(job, PLIM_LOG_INFO, "%s: patience ended it at epoch %lld", trainer->path,
                  (long long)position->epoch);
    else if (position->epoch >= trainer->session.training.epochs)
        plim__log(job, PLIM_LOG_INFO, "%s: all is done, %lld epochs in all; --epochs +N trains on",
                  trainer->path, (long long)position->epoch);
    else
        plim__log(job, PLIM_LOG_INFO, "%s: goes on in epoch %lld at step %lld of %lld",
                  trainer->path, (long long)position->epoch + 1, (long long)position->step,
                  (long long)trainer->steps);
}

/* A disk that is full before the first step is too small: nothing was started. */
static plim_status_t not_begun(plim_status_t status)
{
    return status == PLIM_ERR_DISK ? PLIM_ERR_SPACE : status;
}

/* From the position of an open run to its end. */
static plim_status_t train(trainer_t *trainer, const plim__train_plan_t *plan, bool resume,
                           plim_train_result_t *result_out)
{
    plim__session_t *session = &trainer->session;
    plim__position_t *position = &trainer->position;
    bool found = false;
    trainer->saved_at = trainer->timeline.at = plim__clock_ns();
    trainer->saved_step = -1;
    if (resume)
        PLIM_TRY(plim__run_load(trainer->run, session->parameters, session->num_parameters,
                                position, &found));
    if (found) {
        trainer->saved_step = position->step;
        trainer->saved_epoch = position->epoch;
        position->ended = plim__position_ends(position, &session->training);
    } else {
        plim__model_initialise(session->model, session->training.recipe.seed);
    }
    if (resume && !is_over(trainer)) /* a finished run saves nothing more */
        PLIM_TRY(not_begun(reserve(trainer)));
    settle_parts(trainer, &plan->load, found);
    if (resume)
        log_where(trainer, found);
    copy_buffers(trainer, false);
    plim__model_changed(session->model);
    PLIM_TRY(keep(trainer, train_epochs(trainer)));
    PLIM_TRY(keep(trainer, score_training(trainer))); /* all is saved: what it says when stopped */
    *result_out = (plim_train_result_t){.epochs = position->epoch,
                                        .best_epoch = position->best_epoch,
                                        .loss = position->epoch_loss,
                                        .score = {NAN, NAN, NAN},
                                        .early = position->ended};
    for (int split = 0; split < 3 && position->best_epoch > 0; split++)
        result_out->score[split] = position->best_score[split];
    return PLIM_OK;
}

static plim_status_t open_and_train(trainer_t *trainer, const plim_training_t *training,
                                    const plim__train_plan_t *plan, bool resume,
                                    plim_train_result_t *result_out)
{
    const plim__session_t *session = &trainer->session;
    PLIM_TRY(plim__plan_settings_check(session->dataset, training));
    PLIM_TRY(check_plan(session->info, training, plan));
    plim_status_t status =
        resume ? plim__run_open(session->job, trainer->path, session->info, training, &trainer->run)
               : plim__run_create(session->job, trainer->path, plim__dataset_path(session->dataset),
                                  session->info, training, &trainer->run);
    if (status != PLIM_OK)
        return not_begun(status);
    status = open_trainer(trainer, plan);
    if (status == PLIM_OK && !resume)
        status = reserve(trainer);
    status = not_begun(status);
    if (status == PLIM_OK)
        status = train(trainer, plan, resume, result_out);
    else if (!resume)
        plim__run_discard(trainer->run);
    end_trainer(trainer);
    return status;
}

static plim_status_t check_trains(const plim_plan_t *plan)
{
    return plan->trains ? PLIM_OK
                        : plim__fail(PLIM_ERR_USAGE, "the plan is of a loader alone: make it with "
                                                     "plim_train_plan");
}

PLIM_API plim_status_t plim_train(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_training_t *training, const plim_plan_t *plan,
                                  const char *run, plim_train_event_fn events, void *user,
                                  plim_train_result_t *result_out)
{
    trainer_t trainer = {.path = run, .position = PLIM__POSITION_INIT};
    PLIM_TRY(check_trains(plan));
    plim__session_begin(job, dataset, training, events, user, &trainer.session);
    return open_and_train(&trainer, training, &plan->numbers, false, result_out);
}

PLIM_API plim_status_t plim_train_resume(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_training_t *training, const plim_plan_t *plan,
                                         const char *run, plim_train_event_fn events, void *user,
                                         plim_train_result_t *result_out)
{
    trainer_t trainer = {.path = run, .position = PLIM__POSITION_INIT};
    PLIM_TRY(check_trains(plan));
    plim__session_begin(job, dataset, training, events, user, &trainer.session);
    return open_and_train(&trainer, training, &plan->numbers, true, result_out);
}
