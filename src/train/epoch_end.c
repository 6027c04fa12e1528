/*
 * The end of an epoch, and of a run: evaluation, metrics, the best weights. An epoch's evaluation
 * follows its last step and changes no state; until it is done the position stays at that step.
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_write.h"
#include "plan/plan_settings.h"
#include "plan/run_settings.h"
#include "train/evaluate.h"
#include "train/loop.h"

#include <fcntl.h>
#include <math.h>

/* Bits of the splits with labels. */
static unsigned labelled_splits(const plim__loop_t *loop)
{
    unsigned splits = 0;
    if (loop->training->task == PLIM_TASK_LINK)
        return loop->training->num_valid_pairs > 0 ? 1U << PLIM_VALID : 0;
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if (loop->trainer->session.labelled[split] > 0)
            splits |= 1U << split;
    return splits;
}

/* Bits of the splits that are evaluated after this epoch. */
static unsigned evaluated_splits(const plim__loop_t *loop, int64_t epoch)
{
    const plim_training_t *training = loop->training;
    if (training->eval_every == 0 || epoch % training->eval_every != 0)
        return 0;
    return plim__plan_settings_splits(training) & labelled_splits(loop);
}

static bool is_evaluated(const plim__loop_t *loop, int64_t epoch, int split)
{
    return (evaluated_splits(loop, epoch) >> split & 1) != 0;
}

/* Writes the number with the digits that reading it needs; null if not finite. */
static void put_number(plim__json_writer_t *json, const char *name, double value)
{
    char number[PLIM__REAL_TEXT] = "null";
    if (isfinite(value))
        (void)plim__run_settings_real(value, number);
    plim__json_put_literal(json, name, number);
}

/* Writes the metrics of an epoch. They do not depend on speed or machine. */
static plim_status_t write_metrics(plim__loop_t *loop, const plim_train_event_t *event)
{
    const double rate = plim__schedule_rate(&loop->training->optimiser,
                                            loop->trainer->position.epoch, loop->training->epochs);
    static const char *const names[] = {"train", "valid", "test"};
    char line[512];
    plim__json_writer_t json = plim__json_writer(line, sizeof line);
    plim__json_open(&json, NULL, '{');
    plim__json_put_integer(&json, "epoch", event->epoch);
    put_number(&json, "loss", event->loss);
    plim__json_put_integer(&json, "labelled", event->labelled);
    for (int split = PLIM_TRAIN; split <= PLIM_TEST; split++)
        if (is_evaluated(loop, event->epoch, split))
            put_number(&json, names[split], event->score[split]);
    if (is_evaluated(loop, event->epoch, PLIM_VALID) && loop->training->task != PLIM_TASK_LINK)
        put_number(&json, "valid_loss", event->split_loss[PLIM_VALID]);
    put_number(&json, "rate", rate);
    plim__json_put_bool(&json, "best", event->best);
    plim__json_close(&json, '}');
    return loop->run != NULL ? plim__run_metrics(loop->run, line) : PLIM_OK;
}

/*
 * Scores splits exactly, on every rank alike. The pass takes the memory of loader and trainer, so
 * the run is saved and both are created again afterwards, as if it was resumed; after an error they
 * stay closed.
 */
static plim_status_t evaluate_exactly(plim__loop_t *loop, unsigned splits, bool best,
                                      double score[3], double loss[3])
{
    char weights[PLIM__RUN_PATH];
    plim__failure_t failure;
    const plim__train_plan_t plan = loop->current;
    bool found;
    PLIM_TRY(plim__run_path(loop->path, best ? PLIM__RUN_BEST : PLIM__RUN_LAST, weights));
    plim_status_t status = plim__loop_write_timeline(loop, true);
    const int64_t began = loop->timeline.at;
    if (status == PLIM_OK && !plim__loop_is_saved(loop))
        status = plim__loop_save_and_reserve(loop);
    PLIM_TRY(plim__loop_agree(loop, PLIM__STAGE_CHECKPOINT, status));
    const plim__position_t position = loop->trainer->position;
    plim__loop_close(loop);
    status = plim__evaluate_exact(loop->job, loop->dataset, loop->training, loop->peers, loop->path,
                                  loop->run != NULL ? loop->run->directory : AT_FDCWD, weights,
                                  splits, score, loss);
    plim__fail_save(&failure);
    if (status == PLIM_ERR_SPACE || status == PLIM_ERR_DISK)
        return plim__loop_fail_full(loop, failure.message);
    if (status == PLIM_ERR_STOPPED)
        return plim__loop_fail_stopped(loop, &position);
    PLIM_TRY(status);
    status = plim__loop_open(loop, &plan, true, &found);
    if (status != PLIM_OK) {
        plim__loop_close(loop); /* nothing may be saved from an incomplete trainer */
        return status;
    }
    plim__timeline_restart(&loop->timeline, loop->trainer, loop->loader);
    loop->timeline.at = began; /* the next line covers the evaluation too */
    return PLIM_OK;
}

static plim_status_t evaluate_splits(plim__loop_t *loop, unsigned splits, bool best,
                                     double score[3], double loss[3])
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
static plim_status_t evaluate(plim__loop_t *loop, plim_train_event_t *event, double score[3])
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

static plim__position_t next_position(const plim__loop_t *loop, const plim_train_event_t *event,
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

/* Writes the results of an epoch, and moves the position to the next one after the best weights are
 * durable. */
static plim_status_t keep_epoch(plim__loop_t *loop, const plim_train_event_t *event,
                                const plim__position_t *next)
{
    const plim__session_t *session = &loop->trainer->session;
    if (event->best && loop->run != NULL)
        PLIM_TRY(
            plim__run_save_best(loop->run, session->parameters, session->num_parameters, next));
    PLIM_TRY(write_metrics(loop, event));
    loop->trainer->position = *next;
    if (plim__clock_seconds_since(loop->saved_at) * PLIM__SAVE_SHARE >= loop->save_seconds)
        PLIM_TRY(plim__loop_save_and_reserve(loop));
    if (!loop->retargeted)
        plim__loader_retarget(loop->loader);
    loop->retargeted = true;
    return plim__loop_write_timeline(loop, evaluated_splits(loop, event->epoch) != 0);
}

plim_status_t plim__loop_end_epoch(plim__loop_t *loop)
{
    const plim__position_t before = loop->trainer->position;
    plim_train_event_t event = plim__loop_event(loop, PLIM_EVENT_EPOCH, before.step);
    double score[3] = {NAN, NAN, NAN};
    event.loss = before.loss_sum / before.loss_seeds;
    event.labelled = loop->training->task == PLIM_TASK_LINK
                         ? loop->training->num_pairs
                         : loop->trainer->session.labelled[PLIM_TRAIN];
    PLIM_TRY(plim__trainer_check_weights(loop->trainer));
    PLIM_TRY(evaluate(loop, &event, score));
    const plim__position_t next = next_position(loop, &event, score);
    PLIM_TRY(plim__loop_agree(loop, PLIM__STAGE_CHECKPOINT, keep_epoch(loop, &event, &next)));
    event.seconds = plim__clock_seconds_since(loop->epoch_began);
    plim__session_tell(&loop->trainer->session, &event);
    return PLIM_OK;
}

/* Reads the best weights into the trainers of all ranks; *read_out is false if they cannot be
 * read. */
static plim_status_t take_best(plim__loop_t *loop, bool *read_out)
{
    plim__session_t *session = &loop->trainer->session;
    plim_status_t status = PLIM_OK;
    int64_t read = 1;
    if (loop->run != NULL)
        status = plim__run_load_best(loop->run, loop->trainer->position.best_epoch,
                                     session->parameters, session->num_parameters);
    if (status == PLIM_ERR_IO || status == PLIM_ERR_DATA) {
        plim__log(loop->job, PLIM_LOG_WARNING,
                  "the best weights cannot be read, so some splits have no score: %s",
                  plim_last_error());
        status = PLIM_OK;
        read = 0;
    }
    PLIM_TRY(plim__peers_agree(loop->peers, PLIM__STAGE_CHECKPOINT, status, 1, &read, &read, NULL));
    *read_out = read != 0;
    return *read_out ? plim__loop_share_weights(loop) : PLIM_OK;
}

/* Saves the position with all scores. A full disk does not fail the run, which is saved. */
static plim_status_t save_scores(plim__loop_t *loop)
{
    const plim_status_t status = plim__loop_save(loop);
    if (status != PLIM_ERR_DISK)
        return status;
    plim__log(loop->job, PLIM_LOG_WARNING, "%s; the scores at the end are not saved",
              plim_last_error());
    return PLIM_OK;
}

plim_status_t plim__loop_score_all(plim__loop_t *loop)
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
        PLIM_TRY(plim__loop_load(loop, &found));
    scored.scored = true;
    loop->trainer->position = scored;
    return save_scores(loop);
}
