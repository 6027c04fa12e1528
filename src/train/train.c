/*
 * plim_train: the loop over epochs in a run's directory, built on the public functions of the
 * trainer.
 *
 * Batches form groups of training.accumulation, one update each; an epoch's last group may be
 * smaller. The position moves with a group: a group that is interrupted is discarded and repeated.
 * An epoch's evaluation follows its last step and changes no state; until it is done the position
 * stays at that step.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/job.h"
#include "base/params.h"
#include "load/loader.h"
#include "mem/headroom.h"
#include "mem/kernel_text.h"
#include "mem/size_text.h"
#include "plan/plan_settings.h"
#include "plan/train_plan.h"
#include "train/evaluate.h"
#include "train/run.h"
#include "train/run_settings.h"
#include "train/timeline.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

/* After replanning, a run returns to its first plan once that has fitted for this long. */
#define FITS_NS ((int64_t)5000000000)
#define FITS_CHECK_NS ((int64_t)1000000000)

/* Before replanning, a run waits until free memory falls by less than this in this time. */
#define FALLING_BYTES ((int64_t)1 << 20)
#define FALLING_NS 100000000L

/* A run ends after this many plans in a row without an update. */
#define REPLANS_MAX 8

/* The state of a run. The trainer holds the position. */
typedef struct loop {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_training_t *training;
    const char *path; /* the run's directory */
    plim_train_event_fn events;
    void *user;
    plim__run_t *run;
    plim_loader_t *loader;
    plim_trainer_t *trainer;
    plim__timeline_t timeline;
    int64_t steps;       /* steps in an epoch */
    int64_t group_steps; /* completed batches of the current group */
    int64_t epoch_began; /* start of the epoch */
    int64_t saved_at;    /* end of the last save */
    double save_seconds; /* duration of the last save */
    int64_t saved_step;  /* position of the last save: epoch and step; -1: none yet */
    int64_t saved_epoch;
    int64_t governed;               /* governor changes written to the timeline so far */
    const plim__train_plan_t *plan; /* the run's first plan */
    plim__train_plan_t current;     /* the plan of loader and trainer */
    int64_t missing;                /* bytes by which the current plan is smaller than the first */
    int64_t fits_since;             /* time since which the first plan fits; 0: it does not */
    int64_t next_look;              /* time of the next check */
    int replans;                    /* since the last update */
    bool goes_back;                 /* return to the first plan */
    bool rehearsed;                 /* a rehearsal was done since loader and trainer were created */
    bool settled;                   /* the caches' target was set again after the first epoch */
    bool guessed;                   /* sizes of parts are estimates; log the first cut */
} loop_t;

static plim_train_event_t event_of(const loop_t *loop, plim_train_event_kind_t kind, int64_t step)
{
    return (plim_train_event_t){.size = sizeof(plim_train_event_t),
                                .kind = kind,
                                .split = PLIM_TRAIN,
                                .epoch = loop->trainer->position.epoch + 1,
                                .step = step,
                                .steps = loop->steps,
                                .loss = NAN,
                                .score = {NAN, NAN, NAN},
                                .split_loss = {NAN, NAN, NAN}};
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

static plim_status_t reserve(loop_t *loop)
{
    const plim__session_t *session = &loop->trainer->session;
    const bool validates = loop->training->eval_every > 0 &&
                           (plim__plan_settings_splits(loop->training) >> PLIM_VALID & 1) != 0 &&
                           session->labelled[PLIM_VALID] > 0;
    return plim__run_reserve(loop->run, session->parameters, session->num_parameters, validates);
}

static bool is_over(const loop_t *loop)
{
    const plim__position_t *position = &loop->trainer->position;
    return position->ended || position->epoch >= loop->training->epochs;
}

/* Saves during the run. If the disk has no space for the next checkpoint, the run ends, fully
 * saved. */
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

/* Number of batches in the group that begins at the position. */
static int64_t group_size(const loop_t *loop)
{
    return plim__min_i64(loop->training->accumulation, loop->steps - loop->trainer->position.step);
}

/* Logs the first part that the loader halved because of estimated sizes: then the line affects the
 * last bits. With measured sizes the cut follows from the recipe. */
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
 * The rehearsal: runs an evaluation and a training step of the first batch (or its first part), and
 * a checkpoint, before the first step and without effect. Libraries and the kernel then hold the
 * memory that they allocate late, and the caches get their target.
 */
static plim_status_t rehearse(loop_t *loop, const plim_batch_t *batch)
{
    plim__session_t *session = &loop->trainer->session;
    const plim__pass_t pass = {.seed = loop->training->recipe.seed};
    plim__model_output_t output;
    PLIM_TRY(plim__model_forward(session->model, batch, &pass, &output));
    PLIM_TRY(plim__session_score(session, batch, &output));
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

/* Computes one batch or part, and updates after a group's last. */
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

/* Writes a timeline entry if the governor has resized the loader's caches. */
static plim_status_t look_at_governor(loop_t *loop)
{
    const plim__governor_t *governor = plim__loader_governor(loop->loader);
    if (governor->changes == loop->governed)
        return PLIM_OK;
    loop->governed = governor->changes;
    return write_timeline(loop, true);
}

/* Bytes that this process can still allocate under its limits, beside other processes, and under
 * its line. */
static int64_t headroom_of(const loop_t *loop)
{
    const int64_t line = plim__ledger_line(loop->job->ledger);
    const int64_t by_line =
        line == PLIM_LINE_NONE ? INT64_MAX : line - plim__kernel_own_bytes("", "VmRSS");
    return plim__min_i64(plim__headroom(""), by_line);
}

/* Whether the first plan has fitted for a while. Checks only from time to time. */
static bool fits_again(loop_t *loop)
{
    const int64_t now = plim__clock_ns();
    if (loop->missing <= 0 || now < loop->next_look)
        return false;
    loop->next_look = now + FITS_CHECK_NS;
    if (headroom_of(loop) < loop->missing + plim__ledger_reserve_bytes(loop->job->ledger))
        loop->fits_since = 0;
    else if (loop->fits_since == 0)
        loop->fits_since = now;
    return loop->fits_since != 0 && now - loop->fits_since > FITS_NS;
}

/* Work between two batches. Files are written only after an update. */
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

/* Bits of the splits with labels. */
static unsigned labelled_splits(const loop_t *loop)
{
    unsigned splits = 0;
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if (loop->trainer->session.labelled[split] > 0)
            splits |= 1U << split;
    return splits;
}

/* Bits of the splits that are evaluated after this epoch. */
static unsigned evaluated_splits(const loop_t *loop, int64_t epoch)
{
    const plim_training_t *training = loop->training;
    if (training->eval_every == 0 || epoch % training->eval_every != 0)
        return 0;
    return plim__plan_settings_splits(training) & labelled_splits(loop);
}

static bool is_evaluated(const loop_t *loop, int64_t epoch, int split)
{
    return (evaluated_splits(loop, epoch) >> split & 1) != 0;
}

/* Formats ,"valid":0.53; null if not finite. */
static int number_text(char *text, size_t size, const char *name, double value)
{
    char number[PLIM__REAL_TEXT] = "null";
    if (isfinite(value))
        (void)plim__run_settings_real(value, number);
    return snprintf(text, size, ",\"%s\":%s", name, number);
}

/* Writes the metrics of an epoch. They do not depend on speed or machine. */
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
    if (is_evaluated(loop, event->epoch, PLIM_VALID))
        used += number_text(line + used, sizeof line - (size_t)used, "valid_loss",
                            event->split_loss[PLIM_VALID]);
    used += number_text(line + used, sizeof line - (size_t)used, "rate", rate);
    (void)snprintf(line + used, sizeof line - (size_t)used, ",\"best\":%s}",
                   event->best ? "true" : "false");
    return plim__run_metrics(loop->run, line);
}

/* Counts labelled seeds, and refuses splits that cannot be trained on or compared. */
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
    if (loop->saved_step >= 0) /* logged before */
        return PLIM_OK;
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

/* Sets the number of seeds in a part, and logs a change. */
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

/* Closes loader and trainer; the run stays open. */
static void close_pipeline(loop_t *loop)
{
    plim_trainer_release(loop->trainer);
    plim_loader_release(loop->loader);
    loop->trainer = NULL;
    loop->loader = NULL;
}

/*
 * Creates loader and trainer by a plan, replacing existing ones; with `resume` moves them to the
 * position of last.safetensors (*found_out: it exists). So a saved run can change its plan.
 */
static plim_status_t open_pipeline(loop_t *loop, const plim__train_plan_t *plan, bool resume,
                                   bool *found_out)
{
    plim__position_t position = PLIM__POSITION_INIT;
    plim_training_t training = *loop->training;
    *found_out = false;
    if (loop->saved_step >= 0 || (resume && plim__run_is_saved(loop->run)))
        training.init = NULL; /* the checkpoint has the weights */
    close_pipeline(loop);
    loop->current = *plan;
    PLIM_TRY(plim__loader_create(loop->job, loop->dataset, &plan->load, &loop->loader));
    plim__loader_yield(loop->loader, true);
    loop->missing = loop->plan->total - plan->total;
    loop->fits_since = 0;
    PLIM_TRY(plim__trainer_create(loop->job, loop->dataset, &training, plan, loop->events,
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

/* Builds the error of a stop: the saved position and how to continue. */
static plim_status_t fail_stopped(const loop_t *loop, const plim__position_t *position)
{
    return plim__fail(PLIM_ERR_STOPPED,
                      "stopped at epoch %" PRId64 ", step %" PRId64 " of %" PRId64
                      "; saved in %s. Continue with: plimsoll train --resume %s",
                      position->epoch + 1, position->step, loop->steps, loop->path, loop->path);
}

/*
 * Scores splits exactly. The pass takes the memory of loader and trainer, so the run is saved and
 * both are created again afterwards, as if it was resumed; after an error they stay closed.
 */
static plim_status_t evaluate_exactly(loop_t *loop, unsigned splits, bool best, double score[3],
                                      double loss[3])
{
    char weights[PLIM__RUN_PATH], message[PLIM_MESSAGE_MAX];
    const plim__train_plan_t plan = loop->current;
    bool found;
    PLIM_TRY(plim__run_path(loop->path, best ? PLIM__RUN_BEST : PLIM__RUN_LAST, weights));
    PLIM_TRY(write_timeline(loop, true));
    const int64_t began = loop->timeline.at;
    if (!is_saved(loop))
        PLIM_TRY(save_and_reserve(loop));
    const plim__position_t position = loop->trainer->position;
    close_pipeline(loop);
    plim_status_t status = plim__evaluate_exact(loop->job, loop->dataset, loop->training,
                                                loop->path, weights, splits, score, loss);
    plim__fail_save(message, sizeof message);
    if (status == PLIM_ERR_SPACE || status == PLIM_ERR_DISK)
        return fail_full(loop, message);
    if (status == PLIM_ERR_STOPPED)
        return fail_stopped(loop, &position);
    PLIM_TRY(status);
    status = open_pipeline(loop, &plan, true, &found);
    if (status != PLIM_OK) {
        close_pipeline(loop); /* nothing may be saved from an incomplete trainer */
        return status;
    }
    plim__timeline_restart(&loop->timeline, loop->trainer, loop->loader);
    loop->timeline.at = began; /* the next line covers the evaluation too */
    return PLIM_OK;
}

static plim_status_t evaluate_splits(loop_t *loop, unsigned splits, bool best, double score[3],
                                     double loss[3])
{
    if (loop->training->eval_exact && splits != 0)
        return evaluate_exactly(loop, splits, best, score, loss);
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if ((splits >> split & 1) != 0)
            PLIM_TRY(plim_trainer_evaluate(loop->trainer, loop->loader, (plim_split_t)split,
                                           &score[split], &loss[split]));
    return PLIM_OK;
}

/* Evaluates after an epoch. The scores in `score` are of all splits that were computed: an exact
 * pass computes every split at no further cost, so that the end of a run needs no other. */
static plim_status_t evaluate(loop_t *loop, plim_train_event_t *event, double score[3])
{
    const int64_t began = plim__clock_ns();
    const unsigned splits = evaluated_splits(loop, event->epoch);
    const bool all = loop->training->eval_exact && splits != 0;
    double loss[3] = {NAN, NAN, NAN};
    PLIM_TRY(evaluate_splits(loop, all ? labelled_splits(loop) : splits, false, score, loss));
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if ((splits >> split & 1) != 0) {
            event->score[split] = score[split];
            event->split_loss[split] = loss[split];
        }
    const plim__position_t *position = &loop->trainer->position;
    const double valid = event->score[PLIM_VALID];
    event->best = isfinite(valid) && (position->best_epoch == 0 ||
                                      plim__score_better(loop->trainer->session.training.metric,
                                                         valid, position->best_score[PLIM_VALID]));
    event->sampled = splits != 0 && plim__plan_settings_sampled(loop->training);
    event->evaluation_seconds = plim__clock_seconds_since(began);
    loop->timeline.evaluation_seconds += event->evaluation_seconds;
    return PLIM_OK;
}

static plim__position_t next_position(const loop_t *loop, const plim_train_event_t *event,
                                      const double score[3])
{
    plim__position_t next = loop->trainer->position;
    const bool all = loop->training->eval_exact;           /* the best epoch scored all splits */
    for (int split = 0; split < 3 && next.scored; split++) /* the run was made longer */
        if (next.best_epoch == 0 || !(all || is_evaluated(loop, next.best_epoch, split)))
            next.best_score[split] = NAN;
    next.scored = false;
    next.epoch++;
    next.step = 0;
    next.loss_sum = 0;
    next.loss_seeds = 0;
    next.epoch_loss = event->loss;
    if (event->best) {
        next.best_epoch = event->epoch;
        for (int split = 0; split < 3; split++)
            next.best_score[split] = score[split];
        next.waited = 0;
    } else if (is_evaluated(loop, event->epoch, PLIM_VALID)) {
        next.waited++;
    }
    next.ended = plim__position_ends(&next, loop->training);
    return next;
}

/* Evaluates, and moves the position to the next epoch after the best weights are durable. */
static plim_status_t end_epoch(loop_t *loop)
{
    const plim__position_t before = loop->trainer->position;
    plim_train_event_t event = event_of(loop, PLIM_EVENT_EPOCH, before.step);
    double score[3] = {NAN, NAN, NAN};
    event.loss = before.loss_sum / before.loss_seeds;
    event.labelled = loop->trainer->session.labelled[PLIM_TRAIN];
    PLIM_TRY(plim__trainer_check_weights(loop->trainer));
    PLIM_TRY(evaluate(loop, &event, score));
    plim__session_t *session = &loop->trainer->session;
    plim__position_t *position = &loop->trainer->position;
    const plim__position_t next = next_position(loop, &event, score);
    if (event.best)
        PLIM_TRY(
            plim__run_save_best(loop->run, session->parameters, session->num_parameters, &next));
    PLIM_TRY(write_metrics(loop, &event));
    *position = next;
    if (plim__clock_seconds_since(loop->saved_at) * PLIM__SAVE_SHARE >= loop->save_seconds)
        PLIM_TRY(save_and_reserve(loop));
    if (!loop->settled)
        plim__loader_settle(loop->loader);
    loop->settled = true;
    event.seconds = plim__clock_seconds_since(loop->epoch_began);
    plim__session_tell(session, &event);
    return write_timeline(loop, evaluated_splits(loop, event.epoch) != 0);
}

static plim_status_t train_epoch(loop_t *loop)
{
    PLIM_TRY(train_steps(loop));
    return end_epoch(loop);
}

/* Reads the best weights into the trainer; *read_out is false if they cannot be read. */
static plim_status_t take_best(loop_t *loop, bool *read_out)
{
    plim__session_t *session = &loop->trainer->session;
    const plim_status_t status = plim__run_load_best(loop->run, loop->trainer->position.best_epoch,
                                                     session->parameters, session->num_parameters);
    *read_out = status == PLIM_OK;
    if (status == PLIM_ERR_IO || status == PLIM_ERR_DATA) {
        plim__log(loop->job, PLIM_LOG_WARNING,
                  "the best weights cannot be read, so some splits have no score: %s",
                  plim_last_error());
        return PLIM_OK;
    }
    plim_trainer_changed(loop->trainer);
    return status;
}

/* Puts the last weights back in the trainer. */
static plim_status_t take_last(loop_t *loop)
{
    plim__session_t *session = &loop->trainer->session;
    plim__position_t position = PLIM__POSITION_INIT;
    bool found;
    PLIM_TRY(
        plim__run_load(loop->run, session->parameters, session->num_parameters, &position, &found));
    plim__trainer_restored(loop->trainer, &position);
    return PLIM_OK;
}

/* Saves the position with all scores. A full disk does not fail the run, which is saved. */
static plim_status_t save_scores(loop_t *loop)
{
    const plim_status_t status = save(loop);
    if (status != PLIM_ERR_DISK)
        return status;
    plim__log(loop->job, PLIM_LOG_WARNING, "%s; the scores at the end are not saved",
              plim_last_error());
    return PLIM_OK;
}

/*
 * Scores the splits that have no score yet with the best weights, or all splits with the last ones
 * if none are the best. The position keeps the scores, so this happens once.
 */
static plim_status_t score_all(loop_t *loop)
{
    plim__position_t scored = loop->trainer->position;
    const bool best = scored.best_epoch > 0;
    unsigned splits = labelled_splits(loop);
    double loss[3];
    bool found = true;
    if (scored.scored || loop->training->eval_every == 0)
        return PLIM_OK;
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if (best && isfinite(scored.best_score[split]))
            splits &= ~(1U << split);
    if (best && splits != 0)
        PLIM_TRY(take_best(loop, &found));
    if (!found)
        return PLIM_OK;
    PLIM_TRY(evaluate_splits(loop, splits, best, scored.best_score, loss));
    if (best && splits != 0)
        PLIM_TRY(take_last(loop));
    scored.scored = true;
    loop->trainer->position = scored;
    return save_scores(loop);
}

/* Saves the run for any reason of its end. After a divergence the last checkpoint stays. */
static plim_status_t keep(loop_t *loop, plim_status_t status)
{
    char message[PLIM_MESSAGE_MAX];
    if (loop->trainer == NULL) /* saved before an exact evaluation, which failed */
        return status;
    const bool reports_saved = status == PLIM_ERR_STOPPED || status == PLIM_ERR_DISK;
    plim__fail_save(message, sizeof message);
    if (status == PLIM_ERR_DIVERGED)
        return plim__fail(status, "%.800s; %s keeps what it saved last", message, loop->path);
    if (is_saved(loop) && !reports_saved)
        return status;
    plim_trainer_discard(loop->trainer); /* an incomplete group */
    const plim_status_t saved = is_saved(loop) ? PLIM_OK : save(loop);
    if (status == PLIM_ERR_DISK)
        return fail_full(loop, message);
    if (status == PLIM_OK || (status == PLIM_ERR_STOPPED && saved != PLIM_OK))
        return saved == PLIM_ERR_DISK ? fail_full(loop, plim_last_error()) : saved;
    if (status == PLIM_ERR_STOPPED)
        return fail_stopped(loop, &loop->trainer->position);
    return plim__fail_restore(status, message);
}

/* Waits until the headroom stops falling, and returns it. */
static plim_status_t await_headroom(const loop_t *loop, int64_t *bytes_out)
{
    const struct timespec nap = {.tv_nsec = FALLING_NS};
    int64_t before = INT64_MAX, now = headroom_of(loop);
    while (now < before - FALLING_BYTES) {
        (void)nanosleep(&nap, NULL);
        PLIM_TRY(plim__job_check(loop->job));
        before = now;
        now = headroom_of(loop);
    }
    *bytes_out = now;
    return PLIM_OK;
}

/* Plans for the memory that is free now, with the same cut; PLIM_ERR_STOPPED if that is impossible.
 * Loader and trainer are closed. */
static plim_status_t plan_again(const loop_t *loop, const plim__position_t *position,
                                plim__train_plan_t *plan_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(loop->dataset);
    const plim__load_plan_t *first = &loop->plan->load;
    const int64_t part = plim__load_part_seeds(info, &first->recipe, position->part_seeds);
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    char left[PLIM__SIZE_TEXT];
    int64_t headroom;
    PLIM_TRY(await_headroom(loop, &headroom));
    /* The reserve stays free. */
    wanted.memory = plim__max_i64(
        1, plim__add_saturating_i64(plim__ledger_reserved(loop->job->ledger), headroom) -
               plim__ledger_reserve_bytes(loop->job->ledger));
    wanted.part_seeds = position->part_seeds;
    wanted.part_nodes = position->part_nodes;
    wanted.part_edges = position->part_edges;
    wanted.scratch = first->scratch[0] != '\0' ? first->scratch : NULL;
    wanted.no_advice = true;
    const plim_status_t status =
        plim__train_plan(loop->job, loop->dataset, loop->training, &wanted, plan_out);
    if (status == PLIM_OK && loop->replans < REPLANS_MAX &&
        plim__load_part_seeds(info, &first->recipe, plan_out->load.part_seeds) == part)
        return PLIM_OK;
    if (status != PLIM_OK && status != PLIM_ERR_BUDGET)
        return status;
    return plim__fail(PLIM_ERR_STOPPED,
                      "stopped at epoch %" PRId64 ", step %" PRId64 " of %" PRId64
                      ": %s of memory are left for this run, too little to go on with the same "
                      "bits, %" PRId64
                      " seeds at a time. Saved in %s. Continue with: plimsoll train --resume %s",
                      position->epoch + 1, position->step, loop->steps,
                      plim__size_text(wanted.memory, left), part, loop->path, loop->path);
}

/* Saves the run and continues it under another plan with the same cut and bits: memory is short
 * even without caches, or the first plan fits again. */
static plim_status_t replan(loop_t *loop)
{
    plim__train_plan_t plan = *loop->plan;
    char total[PLIM__SIZE_TEXT];
    bool found;
    plim_trainer_discard(loop->trainer);
    loop->group_steps = 0;
    plim_loader_release(loop->loader); /* first: it holds the most memory */
    loop->loader = NULL;
    loop->replans = is_saved(loop) ? loop->replans + 1 : 0;
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
    return plim__timeline_plan(&plan, false, loop->run);
}

/* A disk that is full before the first step is too small: exit as for a plan that does not fit. */
static plim_status_t not_begun(plim_status_t status)
{
    return status == PLIM_ERR_DISK ? PLIM_ERR_SPACE : status;
}

/* Warns if the disk may become too small for the layers of exact evaluations. */
static void look_at_disk(const loop_t *loop)
{
    const int64_t need = loop->plan->evaluation_disk_bytes;
    char need_text[PLIM__SIZE_TEXT], have[PLIM__SIZE_TEXT];
    int64_t space;
    if (need > 0 && plim__file_space(loop->path, &space) == PLIM_OK && space < need)
        plim__log(loop->job, PLIM_LOG_WARNING,
                  "%s: exact evaluations need up to %s of disk space, and %s are free", loop->path,
                  plim__size_text(need, need_text), plim__size_text(space, have));
}

/* All checks before the first step. */
static plim_status_t begin(loop_t *loop, const plim__train_plan_t *plan, bool resume)
{
    bool found;
    PLIM_TRY(plim_meter_open(loop->job, &loop->timeline.meter));
    PLIM_TRY(open_pipeline(loop, plan, resume, &found));
    if (!is_over(loop)) /* a finished run saves nothing more */
        PLIM_TRY(reserve(loop));
    look_at_disk(loop);
    if (resume)
        log_where(loop, found);
    return is_over(loop) ? PLIM_OK : plim__timeline_plan(plan, resume, loop->run);
}

/* Whether the epoch ended because another plan is needed. */
static bool needs_plan(const loop_t *loop, plim_status_t status)
{
    return status == PLIM_ERR_BUDGET && loop->trainer != NULL && loop->loader != NULL &&
           (loop->goes_back || plim__loader_governor(loop->loader)->tight);
}

static plim_status_t train_epochs(loop_t *loop)
{
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK && !is_over(loop)) {
        loop->epoch_began = plim__clock_ns();
        status = train_epoch(loop);
        while (needs_plan(loop, status)) {
            PLIM_TRY(replan(loop)); /* the run is saved, even if replanning fails */
            status = train_epoch(loop);
        }
    }
    return keep(loop, status);
}

/* Trains an open run from its position to the end. */
static plim_status_t train(loop_t *loop, plim_train_result_t *result_out)
{
    loop->saved_at = plim__clock_ns();
    plim__timeline_restart(&loop->timeline, loop->trainer, loop->loader);
    if (loop->training->init != NULL && loop->saved_step < 0)
        PLIM_TRY(save_and_reserve(loop)); /* the file of the first weights may change */
    PLIM_TRY(train_epochs(loop));
    plim__loader_yield(loop->loader, false);
    PLIM_TRY(keep(loop, score_all(loop))); /* the run is saved: report like a stop */
    const plim__position_t *position = &loop->trainer->position;
    plim_train_result_t result = {.epochs = position->epoch,
                                  .best_epoch = position->best_epoch,
                                  .loss = position->epoch_loss,
                                  .score = {NAN, NAN, NAN},
                                  .early = position->ended,
                                  .sampled = plim__plan_settings_sampled(loop->training)};
    const bool known = position->best_epoch > 0 || position->scored;
    for (int split = 0; split < 3 && known; split++)
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
    plim_training_t training = *loop->training;
    training.init = loop->run->init[0] != '\0' ? loop->run->init : NULL;
    loop->training = &training;
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
