/*
 * plim_train: the loop over epochs, in a run's directory. It trains by the functions of the trainer
 * that callers with a loop of their own use.
 *
 * Batches form groups of training.accumulation, one update each; an epoch's last group may be
 * smaller. The position moves with a group: a group that is stopped half-way is discarded and done
 * again. An epoch's evaluation follows its last step and changes nothing; until it is done the
 * position stays at that step.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "load/loader.h"
#include "mem/headroom.h"
#include "mem/size_text.h"
#include "plan/plan_settings.h"
#include "plan/train_plan.h"
#include "train/run.h"
#include "train/run_settings.h"
#include "train/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* After replanning, a run returns to its first plan when that has fitted for so long. */
#define FITS_NS ((int64_t)5000000000)
#define FITS_CHECK_NS ((int64_t)1000000000)

/* Before it plans again, a run waits until free memory falls by less than this in this time. */
#define FALLING_BYTES ((int64_t)1 << 20)
#define FALLING_NS 100000000L

/* Saving after an epoch may take this share of the time: short epochs are not all saved. */
#define SAVE_SHARE 0.05

/* A run under way. The position is the trainer's. */
typedef struct loop {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_training_t *training;
    const char *path; /* of the run */
    plim_train_event_fn events;
    void *user;
    plim__run_t *run;
    plim_loader_t *loader;
    plim_trainer_t *trainer;
    plim__timeline_t timeline;
    int64_t steps;       /* of an epoch */
    int64_t group_steps; /* batches of the group under way that are done */
    int64_t epoch_began; /* clock */
    int64_t saved_at;    /* clock, when the last save had ended */
    double save_seconds; /* what it took */
    int64_t saved_step;  /* position at that time: epoch and step say it all; -1: none was */
    int64_t saved_epoch;
    int64_t governed;               /* changes by the loader's governor that were written down */
    const plim__train_plan_t *plan; /* that the run began with */
    int64_t missing;                /* bytes that the plan in use has less than that */
    int64_t fits_since;             /* clock: since when the first plan fits; 0: it does not */
    int64_t next_look;              /* clock: time of the next check */
    bool goes_back;                 /* return to the first plan */
    bool rehearsed; /* since loader and trainer were made; then the caches have their target */
    bool settled;   /* the target was set again, after the first epoch */
    bool guessed;   /* the sizes of parts were: the first batch that is cut for that is logged */
} loop_t;

/* An event at the trainer's position. */
static plim_train_event_t event_of(const loop_t *loop, plim_train_event_kind_t kind, int64_t step)
{
    return (plim_train_event_t){.size = sizeof(plim_train_event_t),
                                .kind = kind,
                                .split = PLIM_TRAIN,
                                .epoch = loop->trainer->position.epoch + 1,
                                .step = step,
                                .steps = loop->steps,
                                .loss = NAN,
                                .score = {NAN, NAN, NAN}};
}

static plim_status_t save(loop_t *loop)
{
    plim__session_t *session = &loop->trainer->session;
    plim__position_t *position = &loop->trainer->position;
    PLIM_TRY(plim__trainer_check_weights(loop->trainer));
    const int64_t began = plim__clock_ns();
    PLIM_TRY(plim__run_save(loop->run, session->parameters, session->num_parameters, position));
    loop->saved_at = plim__clock_ns();
    loop->save_seconds = (double)(loop->saved_at - began) * 1e-9;
    loop->timeline.saving_seconds += loop->save_seconds;
    loop->saved_step = position->step;
    loop->saved_epoch = position->epoch;
    const plim_train_event_t event = event_of(loop, PLIM_EVENT_CHECKPOINT, position->step);
    plim__session_tell(session, &event);
    return PLIM_OK;
}

/* Reserves disk space for the next checkpoint. */
static plim_status_t reserve(loop_t *loop)
{
    const plim__session_t *session = &loop->trainer->session;
    return plim__run_reserve(loop->run, session->parameters, session->num_parameters,
                             loop->training->eval_every > 0 && session->labelled[PLIM_VALID] > 0);
}

static bool is_over(const loop_t *loop)
{
    const plim__position_t *position = &loop->trainer->position;
    return position->ended || position->epoch >= loop->training->epochs;
}

/* Saves in mid-run. Where the disk has no space left for the next checkpoint, the run ends while
 * all of it is saved. */
static plim_status_t save_and_reserve(loop_t *loop)
{
    PLIM_TRY(save(loop));
    const plim_status_t status = is_over(loop) ? PLIM_OK : reserve(loop);
    return status == PLIM_ERR_SPACE ? PLIM_ERR_DISK : status;
}

static bool is_saved(const loop_t *loop)
{
    return loop->saved_step == loop->trainer->position.step &&
           loop->saved_epoch == loop->trainer->position.epoch;
}

static plim_status_t write_timeline(loop_t *loop, bool force)
{
    return plim__timeline_write(&loop->timeline, loop->trainer, loop->loader, loop->run, force);
}

static plim_status_t log_memory(loop_t *loop)
{
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    (void)plim_meter_read(loop->timeline.meter, &sample);
    plim_train_event_t event = event_of(loop, PLIM_EVENT_MEMORY, loop->trainer->position.updates);
    event.resident_bytes = sample.rss_bytes;
    event.line_bytes = plim__ledger_line(loop->job->ledger);
    plim__session_tell(&loop->trainer->session, &event);
    return write_timeline(loop, true);
}

/* Batches of the group that the position stands before. */
static int64_t group_size(const loop_t *loop)
{
    return plim__min_i64(loop->training->accumulation, loop->steps - loop->trainer->position.step);
}

/* The loader cuts a part that is larger than the plan foresaw. That cut follows from the recipe,
 * unless the plan had to guess sizes: then the line shows in the last bits, which is logged. */
static void look_at_cut(loop_t *loop, const plim_batch_t *batch)
{
    const int64_t part = loop->trainer->position.part_seeds;
    int64_t seeds = batch->batch_seeds - batch->first_seed;
    if (part > 0 && part < seeds)
        seeds = part;
    if (batch->num_seeds >= seeds || !loop->guessed)
        return;
    plim__log(loop->job, PLIM_LOG_WARNING,
              "step %lld of epoch %lld has more neighbours than fit in memory, and is computed "
              "%lld seeds at a time: losses differ from those under more memory in the last bits, "
              "which training may magnify",
              (long long)batch->step + 1, (long long)batch->epoch + 1, (long long)batch->num_seeds);
    loop->guessed = false;
}

/*
 * The rehearsal: everything that a run does is done once before its first step, so that memory
 * which libraries and the kernel take late is there when the caches get their target: an evaluation
 * and a training step of the first batch (or its first part), and a checkpoint. Nothing of it
 * stays.
 */
static plim_status_t rehearse(loop_t *loop, const plim_batch_t *batch)
{
    plim__session_t *session = &loop->trainer->session;
    const plim__pass_t pass = {.seed = loop->training->recipe.seed};
    plim__model_output_t output;
    PLIM_TRY(plim__model_forward(session->model, batch, &pass, &output));
    PLIM_TRY(plim__session_score(session, batch, 0, &output));
    plim__score_reset(session->score);
    PLIM_TRY(plim_trainer_backward(loop->trainer, batch, 1, NULL));
    plim_trainer_discard(loop->trainer);
    PLIM_TRY(plim__run_rehearse_save(loop->run, session->parameters, session->num_parameters,
                                     &loop->trainer->position));
    plim__loader_settle(loop->loader);
    loop->rehearsed = true;
    plim__timeline_restart(&loop->timeline, loop->trainer, loop->loader);
    return PLIM_OK;
}

/* One batch, or a part of one, and an update behind a group's last. */
static plim_status_t train_batch(loop_t *loop, const plim_batch_t *batch, double *loss_out,
                                 bool *updated_out)
{
    const int64_t updates = loop->trainer->position.updates;
    if (!loop->rehearsed)
        PLIM_TRY(rehearse(loop, batch));
    PLIM_TRY(plim_trainer_backward(loop->trainer, batch, group_size(loop), loss_out));
    if (!batch->last_part)
        return PLIM_OK;
    loop->timeline.steps++;
    if (++loop->group_steps == group_size(loop)) {
        PLIM_TRY(plim_trainer_update(loop->trainer, NULL));
        loop->group_steps = 0;
    }
    *updated_out = loop->trainer->position.updates > updates;
    return PLIM_OK;
}

/* The governor has re-sized the loader's caches: that is a line of its own in the timeline. */
static plim_status_t look_at_governor(loop_t *loop)
{
    const plim__governor_t *governor = plim__loader_governor(loop->loader);
    if (governor->changes == loop->governed)
        return PLIM_OK;
    loop->governed = governor->changes;
    return write_timeline(loop, true);
}

/* Whether the first plan has fitted for a while. Checks from time to time. */
static bool fits_again(loop_t *loop)
{
    const int64_t now = plim__clock_ns();
    if (loop->missing <= 0 || now < loop->next_look)
        return false;
    loop->next_look = now + FITS_CHECK_NS;
    if (plim__headroom("") < loop->missing + plim__ledger_reserve_bytes(loop->job->ledger))
        loop->fits_since = 0;
    else if (loop->fits_since == 0)
        loop->fits_since = now;
    return loop->fits_since != 0 && now - loop->fits_since > FITS_NS;
}

/* Work between two batches. State is written only after an update. */
static plim_status_t after_batch(loop_t *loop, double loss, bool updated)
{
    const plim_training_t *training = loop->training;
    const plim__position_t *position = &loop->trainer->position;
    plim_train_event_t event = event_of(loop, PLIM_EVENT_STEP, position->step + loop->group_steps);
    event.loss = loss;
    plim__session_tell(&loop->trainer->session, &event);
    if (!updated)
        return plim__job_check(loop->job);
    PLIM_TRY(look_at_governor(loop));
    loop->goes_back = fits_again(loop);
    if (loop->goes_back)
        return plim__fail(PLIM_ERR_BUDGET, "the first plan fits again");
    if (training->memory_steps > 0 && position->updates % training->memory_steps == 0)
        PLIM_TRY(log_memory(loop));
    const bool by_steps =
        training->checkpoint_steps > 0 && position->updates % training->checkpoint_steps == 0;
    const bool by_time = training->checkpoint_seconds > 0 &&
                         plim__clock_seconds_since(loop->saved_at) >= training->checkpoint_seconds;
    if (by_steps || by_time)
        PLIM_TRY(save_and_reserve(loop));
    return plim__job_check(loop->job);
}

static plim_status_t train_steps(loop_t *loop)
{
    const plim__position_t *position = &loop->trainer->position;
    plim_batch_t *batch;
    PLIM_TRY(plim__job_check(loop->job));
    PLIM_TRY(plim__loader_start(loop->loader, PLIM_TRAIN, position->epoch, position->step));
    for (;;) {
        double loss = NAN;
        bool updated = false;
        PLIM_TRY(plim__loader_next(loop->loader, &batch));
        if (batch == NULL)
            return PLIM_OK;
        const bool last = batch->last_part;
        look_at_cut(loop, batch);
        const plim_status_t status = train_batch(loop, batch, &loss, &updated);
        plim_batch_release(batch);
        PLIM_TRY(status);
        if (last)
            PLIM_TRY(after_batch(loop, loss, updated));
    }
}

/* Whether an epoch ends with a score of a split. */
static bool is_evaluated(const loop_t *loop, int64_t epoch, int split)
{
    const plim_training_t *training = loop->training;
    return training->eval_every > 0 && epoch % training->eval_every == 0 &&
           loop->trainer->session.labelled[split] > 0 &&
           (split != PLIM_TRAIN || training->eval_train);
}

/* ,"valid":0.53; null for what is not finite. */
static int number_text(char *text, size_t size, const char *name, double value)
{
    char number[PLIM__REAL_TEXT] = "null";
    if (isfinite(value))
        (void)plim__run_settings_real(value, number);
    return snprintf(text, size, ",\"%s\":%s", name, number);
}

/* Writes the metrics of an epoch. Nothing in them depends on speed or machine. */
static plim_status_t write_metrics(loop_t *loop, const plim_train_event_t *event)
{
    const double rate = plim__schedule_rate(&loop->training->optimiser,
                                            loop->trainer->position.epoch, loop->training->epochs);
    static const char *const names[] = {"train", "valid", "test"};
    char line[512];
    int used = snprintf(line, sizeof line, "{\"epoch\":%" PRId64, event->epoch);
    used += number_text(line + used, sizeof line - (size_t)used, "loss", event->loss);
    used += snprintf(line + used, sizeof line - (size_t)used, ",\"labelled\":%" PRId64,
                     event->labelled);
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if (is_evaluated(loop, event->epoch, split))
            used += number_text(line + used, sizeof line - (size_t)used, names[split],
                                event->score[split]);
    used += number_text(line + used, sizeof line - (size_t)used, "rate", rate);
    (void)snprintf(line + used, sizeof line - (size_t)used, ",\"best\":%s}",
                   event->best ? "true" : "false");
    return plim__run_metrics(loop->run, line);
}

static plim_status_t evaluate(loop_t *loop, plim_train_event_t *event)
{
    const plim__position_t *position = &loop->trainer->position;
    const int64_t began = plim__clock_ns();
    double loss;
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if (is_evaluated(loop, event->epoch, split))
            PLIM_TRY(plim_trainer_evaluate(loop->trainer, loop->loader, (plim_split_t)split,
                                           &event->score[split], &loss));
    const double valid = event->score[PLIM_VALID];
    event->best = isfinite(valid) && (position->best_epoch == 0 ||
                                      plim__score_better(loop->trainer->session.training.metric,
                                                         valid, position->best_score[PLIM_VALID]));
    loop->timeline.evaluation_seconds += plim__clock_seconds_since(began);
    return PLIM_OK;
}

/* Where the run stands behind an epoch. */
static plim__position_t next_position(const loop_t *loop, const plim_train_event_t *event)
{
    plim__position_t next = loop->trainer->position;
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
    } else if (is_evaluated(loop, event->epoch, PLIM_VALID)) {
        next.waited++;
    }
    next.ended = plim__position_ends(&next, loop->training);
    return next;
}

/* Evaluates, and moves the position to the next epoch once the best weights it counts are durable.
 */
static plim_status_t end_epoch(loop_t *loop)
{
    plim__session_t *session = &loop->trainer->session;
    plim__position_t *position = &loop->trainer->position;
    plim_train_event_t event = event_of(loop, PLIM_EVENT_EPOCH, position->step);
    event.loss = position->loss_sum / position->loss_seeds;
    event.labelled = session->labelled[PLIM_TRAIN];
    PLIM_TRY(plim__trainer_check_weights(loop->trainer));
    PLIM_TRY(evaluate(loop, &event));
    const plim__position_t next = next_position(loop, &event);
    if (event.best)
        PLIM_TRY(
            plim__run_save_best(loop->run, session->parameters, session->num_parameters, &next));
    PLIM_TRY(write_metrics(loop, &event));
    *position = next;
    if (plim__clock_seconds_since(loop->saved_at) * SAVE_SHARE >= loop->save_seconds)
        PLIM_TRY(save_and_reserve(loop));
    if (!loop->settled)
        plim__loader_settle(loop->loader);
    loop->settled = true;
    event.seconds = plim__clock_seconds_since(loop->epoch_began);
    plim__session_tell(session, &event);
    return write_timeline(loop, false);
}

static plim_status_t train_epoch(loop_t *loop)
{
    PLIM_TRY(train_steps(loop));
    return end_epoch(loop);
}

/* The training split's score, once, by the weights that the others were measured with. */
static plim_status_t score_training(loop_t *loop)
{
    plim__session_t *session = &loop->trainer->session;
    plim__position_t *position = &loop->trainer->position;
    double loss;
    if (loop->training->eval_every == 0 || position->best_epoch == 0 || loop->training->eval_train)
        return PLIM_OK;
    const plim_status_t status = plim__run_load_best(loop->run, position->best_epoch,
                                                     session->parameters, session->num_parameters);
    if (status == PLIM_ERR_IO || status == PLIM_ERR_DATA) {
        plim__log(loop->job, PLIM_LOG_WARNING,
                  "the best weights cannot be read, so the training split has no score: %s",
                  plim_last_error());
        return PLIM_OK;
    }
    PLIM_TRY(status);
    plim_trainer_changed(loop->trainer);
    return plim__session_evaluate(session, loop->loader, PLIM_TRAIN, position->epoch,
                                  &position->best_score[PLIM_TRAIN], &loss);
}

/* Builds the disk-full error: the last saved position and how to continue. */
static plim_status_t fail_full(const loop_t *loop, const char *message)
{
    char saved[96] = "not saved yet and starts again";
    if (loop->saved_step >= 0)
        (void)snprintf(saved, sizeof saved, "saved up to epoch %" PRId64 ", step %" PRId64,
                       loop->saved_epoch + 1, loop->saved_step);
    return plim__fail(PLIM_ERR_DISK,
                      "%.500s; the run is %s. Free disk space, then continue with: plimsoll train "
                      "--resume %s",
                      message, saved, loop->path);
}

/* Saves the run, whatever ended it. After a divergence the last checkpoint stays. */
static plim_status_t keep(loop_t *loop, plim_status_t status)
{
    char message[PLIM_MESSAGE_MAX];
    const plim__position_t *position = &loop->trainer->position;
    const bool reports_saved = status == PLIM_ERR_STOPPED || status == PLIM_ERR_DISK;
    plim__fail_save(message, sizeof message);
    if (status == PLIM_ERR_DIVERGED)
        return plim__fail(status, "%.800s; %s keeps what it saved last", message, loop->path);
    if (is_saved(loop) && !reports_saved)
        return status;
    plim_trainer_discard(loop->trainer); /* a group that was not finished */
    const plim_status_t saved = is_saved(loop) ? PLIM_OK : save(loop);
    if (status == PLIM_ERR_DISK)
        return fail_full(loop, message);
    if (status == PLIM_OK || (status == PLIM_ERR_STOPPED && saved != PLIM_OK))
        return saved == PLIM_ERR_DISK ? fail_full(loop, plim_last_error()) : saved;
    if (status == PLIM_ERR_STOPPED)
        return plim__fail(PLIM_ERR_STOPPED,
                          "stopped at epoch %" PRId64 ", step %" PRId64 " of %" PRId64
                          "; saved in %s. Continue with: plimsoll train --resume %s",
                          position->epoch + 1, position->step, loop->steps, loop->path, loop->path);
    return plim__fail_restore(status, message);
}

/* Counts the seeds that have a label, and refuses what cannot be trained or compared. */
static plim_status_t look_at_labels(loop_t *loop)
{
    static const char *const names[] = {"training", "validation", "test"};
    plim__session_t *session = &loop->trainer->session;
    const char *path = plim__dataset_path(loop->dataset);
    plim__session_count_labels(session, loop->loader);
    if (session->labelled[PLIM_TRAIN] == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: none of the %lld seeds of its training split has a label; import "
                          "labels for them, or another split",
                          path, (long long)session->info->num_split[PLIM_TRAIN]);
    if (loop->training->patience > 0 && session->labelled[PLIM_VALID] == 0)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: no seed of its validation split has a label, so --patience has "
                          "nothing to compare; leave it out",
                          path);
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++) {
        const long long seeds = (long long)session->info->num_split[split];
        const long long labelled = (long long)session->labelled[split];
        if (labelled == 0 && seeds > 0)
            plim__log(loop->job, PLIM_LOG_WARNING,
                      "none of the %lld seeds of the %s split has a label: it is not scored", seeds,
                      names[split]);
        else if (labelled < seeds)
            plim__log(loop->job, PLIM_LOG_WARNING,
                      "%lld of %lld seeds of the %s split have a label; %s are over those",
                      labelled, seeds, names[split],
                      split == PLIM_TRAIN ? "loss and gradient" : "scores");
    }
    return PLIM_OK;
}

/* Sets how many seeds are computed at a time, and logs where that is not as before. */
static void settle_parts(loop_t *loop, const plim__load_plan_t *plan, bool resumed)
{
    const plim_dataset_info_t *info = plim_dataset_info(loop->dataset);
    plim__position_t *position = &loop->trainer->position;
    const int64_t whole = plim__load_part_seeds(info, &plan->recipe, 0);
    const int64_t part = plim__load_part_seeds(info, &plan->recipe, plan->part_seeds);
    const int64_t before = position->part_seeds;
    position->part_seeds = part < whole ? part : 0;
    position->part_nodes = plan->part_nodes;
    position->part_edges = plan->part_edges;
    loop->guessed = plan->guessed;
    if (resumed && before != position->part_seeds)
        plim__log(loop->job, PLIM_LOG_WARNING,
                  "%s was computed %lld seeds at a time, now it is %lld: the last bits of results "
                  "may differ from those of an uninterrupted run",
                  loop->path, (long long)(before > 0 ? before : whole), (long long)part);
}

/* Logs where a resumed run continues. */
static void log_where(const loop_t *loop, bool found)
{
    const plim__position_t *position = &loop->trainer->position;
    if (!found)
        plim__log(loop->job, PLIM_LOG_INFO, "%s: no checkpoint yet; starting from the beginning",
                  loop->path);
    else if (position->ended)
        plim__log(loop->job, PLIM_LOG_INFO, "%s: patience ended it at epoch %lld", loop->path,
                  (long long)position->epoch);
    else if (is_over(loop))
        plim__log(loop->job, PLIM_LOG_INFO,
                  "%s: already trained for %lld epochs; use --epochs +N to continue", loop->path,
                  (long long)position->epoch);
    else
        plim__log(loop->job, PLIM_LOG_INFO, "%s: continues at epoch %lld, step %lld of %lld",
                  loop->path, (long long)position->epoch + 1, (long long)position->step,
                  (long long)loop->steps);
}

/* Loader and trainer end; the run stays open. */
static void close_pipeline(loop_t *loop)
{
    plim_trainer_release(loop->trainer);
    plim_loader_release(loop->loader);
    loop->trainer = NULL;
    loop->loader = NULL;
}

/*
 * Makes loader and trainer by a plan, in place of those there are, and with `resume` goes to where
 * last.safetensors ends (*found_out: there is one). So a run can change its plan wherever it has
 * been saved.
 */
static plim_status_t open_pipeline(loop_t *loop, const plim__train_plan_t *plan, bool resume,
                                   bool *found_out)
{
    plim__position_t position = PLIM__POSITION_INIT;
    *found_out = false;
    close_pipeline(loop);
    PLIM_TRY(plim__loader_create(loop->job, loop->dataset, &plan->load, &loop->loader));
    plim__loader_yield(loop->loader, true);
    loop->missing = loop->plan->total - plan->total;
    loop->fits_since = 0;
    PLIM_TRY(plim__trainer_create(loop->job, loop->dataset, loop->training, plan, loop->events,
                                  loop->user, &loop->trainer));
    PLIM_TRY(look_at_labels(loop));
    loop->steps = plim_stream_steps(plim__loader_split(loop->loader, PLIM_TRAIN));
    loop->governed = 0;
    loop->rehearsed = loop->settled = false;
    plim__session_t *session = &loop->trainer->session;
    if (resume)
        PLIM_TRY(plim__run_load(loop->run, session->parameters, session->num_parameters, &position,
                                found_out));
    if (*found_out) {
        loop->saved_step = position.step;
        loop->saved_epoch = position.epoch;
        position.ended = plim__position_ends(&position, loop->training);
        plim__trainer_restored(loop->trainer, &position);
    }
    settle_parts(loop, &plan->load, *found_out);
    return PLIM_OK;
}

/* How much more this process can hold, once that does not become less any more. */
static plim_status_t await_headroom(const loop_t *loop, int64_t *bytes_out)
{
    const struct timespec nap = {.tv_nsec = FALLING_NS};
    int64_t before = INT64_MAX, now = plim__headroom("");
    while (now < before - FALLING_BYTES) {
        (void)nanosleep(&nap, NULL);
        PLIM_TRY(plim__job_check(loop->job));
        before = now;
        now = plim__headroom("");
    }
    *bytes_out = now;
    return PLIM_OK;
}

/* Plans for the memory that is free now, with the same cut; otherwise PLIM_ERR_STOPPED. Loader and
 * trainer are closed. */
static plim_status_t plan_again(const loop_t *loop, const plim__position_t *position,
                                plim__train_plan_t *plan_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(loop->dataset);
    const plim__load_plan_t *first = &loop->plan->load;
    const int64_t part = plim__load_part_seeds(info, &first->recipe, position->part_seeds);
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    char left[PLIM__SIZE_TEXT], minimum[PLIM__SIZE_TEXT];
    int64_t headroom;
    PLIM_TRY(await_headroom(loop, &headroom));
    /* The reserve stays free. */
    wanted.memory = plim__ledger_reserved(loop->job->ledger) + headroom -
                    plim__ledger_reserve_bytes(loop->job->ledger);
    wanted.part_seeds = position->part_seeds;
    wanted.part_nodes = position->part_nodes;
    wanted.part_edges = position->part_edges;
    wanted.scratch = first->scratch[0] != '\0' ? first->scratch : NULL;
    wanted.no_advice = true;
    const plim_status_t status =
        plim__train_plan(loop->job, loop->dataset, loop->training, &wanted, plan_out);
    if (status == PLIM_OK &&
        plim__load_part_seeds(info, &first->recipe, plan_out->load.part_seeds) == part)
        return PLIM_OK;
    if (status != PLIM_OK && status != PLIM_ERR_BUDGET)
        return status;
    return plim__fail(PLIM_ERR_STOPPED,
                      "stopped at epoch %" PRId64 ", step %" PRId64 " of %" PRId64
                      ": other processes leave this run %s of memory; its minimum is %s. "
                      "Saved in %s. Continue with: plimsoll train --resume %s",
                      position->epoch + 1, position->step, loop->steps,
                      plim__size_text(plim__max_i64(wanted.memory, 0), left),
                      plim__size_text(loop->plan->minimum, minimum), loop->path, loop->path);
}

/* Saves the run and continues it under another plan with the same cut and the same bits: memory is
 * too short even without caches, or the first plan fits again. */
static plim_status_t replan(loop_t *loop)
{
    plim__train_plan_t plan = *loop->plan;
    char total[PLIM__SIZE_TEXT];
    bool found;
    plim_trainer_discard(loop->trainer);
    loop->group_steps = 0;
    plim_loader_release(loop->loader); /* first: it holds most, and saving waits for a disk */
    loop->loader = NULL;
    if (!is_saved(loop))
        PLIM_TRY(save_and_reserve(loop));
    const plim__position_t position = loop->trainer->position;
    close_pipeline(loop);
    if (!loop->goes_back)
        PLIM_TRY(plan_again(loop, &position, &plan));
    loop->goes_back = false;
    plim__log(loop->job, PLIM_LOG_INFO,
              "new plan with a peak of %s at epoch %" PRId64 ", step %" PRId64
              "; the result stays the same",
              plim__size_text(plan.total, total), position.epoch + 1, position.step);
    PLIM_TRY(open_pipeline(loop, &plan, true, &found));
    plim__timeline_restart(&loop->timeline, loop->trainer, loop->loader);
    return PLIM_OK;
}

/* A disk that is full before the first step is too small: nothing was started. */
static plim_status_t not_begun(plim_status_t status)
{
    return status == PLIM_ERR_DISK ? PLIM_ERR_SPACE : status;
}

/* All that can be refused before the first step. */
static plim_status_t begin(loop_t *loop, const plim__train_plan_t *plan, bool resume)
{
    bool found;
    PLIM_TRY(plim_meter_open(loop->job, &loop->timeline.meter));
    PLIM_TRY(open_pipeline(loop, plan, resume, &found));
    if (!is_over(loop)) /* a finished run saves nothing more */
        PLIM_TRY(reserve(loop));
    if (resume)
        log_where(loop, found);
    return PLIM_OK;
}

/* Whether the epoch has ended for want of another plan. */
static bool needs_plan(const loop_t *loop, plim_status_t status)
{
    return status == PLIM_ERR_BUDGET &&
           (loop->goes_back || plim__loader_governor(loop->loader)->tight);
}

/* All epochs, where need be by several plans. */
static plim_status_t train_epochs(loop_t *loop)
{
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK && !is_over(loop)) {
        loop->epoch_began = plim__clock_ns();
        status = train_epoch(loop);
        while (needs_plan(loop, status)) {
            PLIM_TRY(replan(loop)); /* all is saved, also where that fails */
            status = train_epoch(loop);
        }
    }
    return keep(loop, status);
}

/* From the position of an open run to its end. */
static plim_status_t train(loop_t *loop, plim_train_result_t *result_out)
{
    loop->saved_at = plim__clock_ns();
    plim__timeline_restart(&loop->timeline, loop->trainer, loop->loader);
    PLIM_TRY(train_epochs(loop));
    plim__loader_yield(loop->loader, false);
    PLIM_TRY(keep(loop, score_training(loop))); /* all is saved: what it says when stopped */
    const plim__position_t *position = &loop->trainer->position;
    plim_train_result_t result = {.epochs = position->epoch,
                                  .best_epoch = position->best_epoch,
                                  .loss = position->epoch_loss,
                                  .score = {NAN, NAN, NAN},
                                  .early = position->ended};
    for (int split = 0; split < 3 && position->best_epoch > 0; split++)
        result.score[split] = position->best_score[split];
    plim__output_give(result_out, &result, sizeof result);
    return PLIM_OK;
}

static plim_status_t run_loop(loop_t *loop, const plim_plan_t *plan, bool resume,
                              plim_train_result_t *result_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(loop->dataset);
    PLIM_TRY(plim__output_check(result_out, "plim_train_result_t"));
    PLIM_TRY(plim__plan_settings_check(loop->dataset, loop->training));
    PLIM_TRY(plim__trainer_check_plan(info, loop->training, plan));
    plim_status_t status =
        resume ? plim__run_open(loop->job, loop->path, info, loop->training, &loop->run)
               : plim__run_create(loop->job, loop->path, plim__dataset_path(loop->dataset), info,
                                  loop->training, &loop->run);
    if (status != PLIM_OK)
        return not_begun(status);
    loop->saved_step = -1;
    status = not_begun(begin(loop, &plan->numbers, resume));
    if (status == PLIM_OK)
        status = train(loop, result_out);
    else if (!resume)
        plim__run_discard(loop->run);
    close_pipeline(loop);
    plim_meter_close(loop->timeline.meter);
    plim__run_close(loop->run);
    return status;
}

static plim_status_t enter(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim_training_t *training, const plim_plan_t *plan,
                           const char *run, plim_train_event_fn events, void *user, bool resume,
                           plim_train_result_t *result_out)
{
    plim_training_t known = PLIM_TRAINING_INIT;
    PLIM_ENTER(job);
    PLIM_TRY(plim__dataset_check(dataset));
    PLIM_TRY(plim__params_take(training, "plim_training_t", &known, sizeof known));
    loop_t loop = {.job = job,
                   .dataset = dataset,
                   .training = &known,
                   .path = run,
                   .events = events,
                   .user = user,
                   .plan = &plan->numbers};
    return run_loop(&loop, plan, resume, result_out);
}

PLIM_API plim_status_t plim_train(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_training_t *training, const plim_plan_t *plan,
                                  const char *run, plim_train_event_fn events, void *user,
                                  plim_train_result_t *result_out)
{
    return enter(job, dataset, training, plan, run, events, user, false, result_out);
}

PLIM_API plim_status_t plim_train_resume(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_training_t *training, const plim_plan_t *plan,
                                         const char *run, plim_train_event_fn events, void *user,
                                         plim_train_result_t *result_out)
{
    return enter(job, dataset, training, plan, run, events, user, true, result_out);
}
