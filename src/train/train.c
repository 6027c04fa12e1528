/*
 * plim_train: the loop over epochs in a run's directory, built on the public functions of the
 * trainer (steps.c, epoch_end.c, pipeline.c).
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/params.h"
#include "infer/exact.h"
#include "mem/size_text.h"
#include "nn/onednn.h"
#include "plan/plan_settings.h"
#include "train/loop.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

plim_status_t plim__loop_save(plim__loop_t *loop)
{
    plim__session_t *session = &loop->trainer->session;
    plim__position_t *position = &loop->trainer->position;
    PLIM_TRY(plim__trainer_check_weights(loop->trainer));
    const int64_t began = plim__clock_ns();
    if (loop->run != NULL)
        PLIM_TRY(plim__run_save(loop->run, session->parameters, session->num_parameters, position));
    loop->saved_at = plim__clock_ns();
    loop->save_seconds = (double)(loop->saved_at - began) * 1e-9;
    loop->timeline.saving_seconds += loop->save_seconds;
    loop->saved_step = position->step;
    loop->saved_epoch = position->epoch;
    const plim_train_event_t event = plim__loop_event(loop, PLIM_EVENT_CHECKPOINT, position->step);
    plim__session_tell(session, &event);
    return PLIM_OK;
}

plim_status_t plim__loop_reserve(plim__loop_t *loop)
{
    const plim__session_t *session = &loop->trainer->session;
    const bool validates =
        loop->training->eval_every > 0 &&
        (plim__plan_settings_splits(loop->training) >> PLIM_VALID & 1) != 0 &&
        (session->labelled[PLIM_VALID] > 0 || loop->training->task == PLIM_TASK_LINK);
    if (loop->run == NULL)
        return PLIM_OK;
    return plim__run_reserve(loop->run, session->parameters, session->num_parameters, validates);
}

plim_status_t plim__loop_save_and_reserve(plim__loop_t *loop)
{
    PLIM_TRY(plim__loop_save(loop));
    const plim_status_t status = plim__loop_is_over(loop) ? PLIM_OK : plim__loop_reserve(loop);
    return status == PLIM_ERR_SPACE ? PLIM_ERR_DISK : status;
}

plim_status_t plim__loop_fail_full(const plim__loop_t *loop, const char *message)
{
    char saved[96] = "not saved yet and starts again";
    if (loop->saved_step >= 0)
        (void)snprintf(saved, sizeof saved, "saved up to epoch %" PRId64 ", step %" PRId64,
                       loop->saved_epoch + 1, loop->saved_step);
    return plim__fail(PLIM_ERR_DISK, "%.500s; the run %s is %s. Free disk space, then resume it",
                      message, loop->path, saved);
}

plim_status_t plim__loop_fail_stopped(const plim__loop_t *loop, const plim__position_t *position)
{
    return plim__fail(PLIM_ERR_STOPPED,
                      "stopped at epoch %" PRId64 ", step %" PRId64 " of %" PRId64 "; saved in %s",
                      position->epoch + 1, position->step, loop->steps, loop->path);
}

static void log_where(const plim__loop_t *loop)
{
    const plim__position_t *position = &loop->trainer->position;
    if (plim__position_begun(position) == 0)
        plim__log(loop->job, PLIM_LOG_INFO,
                  "%s: no checkpoint of a step yet; starting from the first weights", loop->path);
    else if (position->ended)
        plim__log(loop->job, PLIM_LOG_INFO, "%s: patience ended it at epoch %lld", loop->path,
                  (long long)position->epoch);
    else if (plim__loop_is_over(loop))
        plim__log(loop->job, PLIM_LOG_INFO,
                  "%s: already trained for %lld epochs; raise `epochs` to continue", loop->path,
                  (long long)position->epoch);
    else
        plim__log(loop->job, PLIM_LOG_INFO, "%s: continues at epoch %lld, step %lld of %lld",
                  loop->path, (long long)position->epoch + 1, (long long)position->step,
                  (long long)loop->steps);
}

/* Whether the run can continue after this error: it was interrupted. */
static bool is_interruption(plim_status_t status)
{
    return status == PLIM_ERR_STOPPED || status == PLIM_ERR_DISK;
}

/* Saves the run when it ends, for whatever reason. After a divergence it stays as it was last
 * saved: its weights now are of no use. */
static plim_status_t keep(plim__loop_t *loop, plim_status_t status)
{
    plim__failure_t failure;
    if (loop->trainer == NULL) /* saved before an exact evaluation, which failed */
        return status;
    plim__fail_save(&failure);
    if (status == PLIM_ERR_DIVERGED && plim__loop_has_steps(loop))
        return plim__fail(
            status, "%.700s; %s %s", failure.message, loop->path,
            plim__loop_has_saved(loop)
                ? "keeps what it saved last"
                : "has no checkpoint of a step: remove it, or begin a run in another directory");
    if (status != PLIM_OK && !is_interruption(status) &&
        (!plim__loop_has_steps(loop) || plim__loop_is_saved(loop)))
        return status;
    plim_trainer_discard(loop->trainer); /* an incomplete group */
    const plim_status_t saved = plim__loop_is_saved(loop) ? PLIM_OK : plim__loop_save(loop);
    if (status == PLIM_ERR_DISK)
        return plim__loop_fail_full(loop, failure.message);
    if (status == PLIM_OK || (status == PLIM_ERR_STOPPED && saved != PLIM_OK))
        return saved == PLIM_ERR_DISK ? plim__loop_fail_full(loop, plim_last_error()) : saved;
    if (status == PLIM_ERR_STOPPED)
        return plim__loop_fail_stopped(loop, &loop->trainer->position);
    return plim__fail_restore(status, &failure);
}

/* Warns if the disk may become too small for the layers of exact evaluations. */
static void look_at_disk(const plim__loop_t *loop)
{
    char need_text[PLIM__SIZE_TEXT], have[PLIM__SIZE_TEXT];
    plim__file_system_t system;
    int64_t space;
    if (plim__file_system(loop->path, &system) != PLIM_OK ||
        plim__file_space(loop->path, &space) != PLIM_OK)
        return;
    const int64_t need =
        plim__exact_disk_together(loop->job, &system, loop->plan->evaluation_disk_bytes);
    if (space < need)
        plim__log(loop->job, PLIM_LOG_WARNING,
                  "%s: exact evaluations need up to %s of disk space, but %s are free", loop->path,
                  plim__size_text(need, need_text), plim__size_text(space, have));
}

/* Writes what a run has before its first step. */
static plim_status_t begin_files(plim__loop_t *loop, const plim__train_plan_t *plan, bool resume)
{
    if (plim__loop_is_over(loop)) /* a finished run saves nothing more */
        return PLIM_OK;
    PLIM_TRY(plim__loop_reserve(loop));
    if (loop->training->init != NULL && loop->saved_step < 0)
        PLIM_TRY(plim__loop_save_and_reserve(loop)); /* the file of the first weights may change */
    return loop->run != NULL ? plim__timeline_plan(plan, loop->job, loop->began, resume, loop->run)
                             : PLIM_OK;
}

/* All checks before the first step. */
static plim_status_t begin(plim__loop_t *loop, const plim__train_plan_t *plan, bool resume)
{
    bool found;
    PLIM_TRY(plim__loop_open(loop, plan, resume, &found));
    look_at_disk(loop);
    if (resume)
        log_where(loop);
    return plim__loop_agree(loop, PLIM__STAGE_START, begin_files(loop, plan, resume));
}

/* Whether the epoch was interrupted because a rank needs another plan. */
static bool needs_plan(const plim__loop_t *loop, plim_status_t status)
{
    if (status == PLIM__PLAN_AGAIN)
        return true;
    if (status != PLIM_ERR_BUDGET || loop->trainer == NULL || loop->loader == NULL)
        return false;
    int64_t needs = plim__loader_governor(loop->loader)->tight;
    return plim__peers_agree(loop->peers, PLIM__STAGE_PLAN, PLIM_OK, 1, &needs, NULL, &needs) ==
               PLIM_OK &&
           needs != 0;
}

static plim_status_t train_epoch(plim__loop_t *loop)
{
    PLIM_TRY(plim__loop_steps(loop));
    return plim__loop_end_epoch(loop);
}

static plim_status_t train_epochs(plim__loop_t *loop)
{
    plim_status_t status = PLIM_OK;
    while (status == PLIM_OK && !plim__loop_is_over(loop)) {
        loop->epoch_began = plim__clock_ns();
        status = train_epoch(loop);
        while (needs_plan(loop, status)) {
            PLIM_TRY(plim__loop_replan(loop)); /* the run is saved, even if replanning fails */
            status = train_epoch(loop);
        }
    }
    return keep(loop, status);
}

/* The status of a whole stage. Ranks that have the same one keep it, with a message of their own;
 * else all get the error of the lowest rank that failed. */
static plim_status_t agree_on_end(const plim__loop_t *loop, plim_status_t status)
{
    plim__failure_t failure;
    const int64_t own = status;
    int64_t least, greatest;
    plim__fail_save(&failure);
    const plim_status_t agreed =
        plim__peers_agree(loop->peers, PLIM__STAGE_END, PLIM_OK, 1, &own, &least, &greatest);
    if (status == PLIM_OK)
        PLIM_TRY(agreed);
    else
        (void)plim__fail_restore(status, &failure);
    return agreed == PLIM_OK && least < greatest ? plim__loop_agree(loop, PLIM__STAGE_END, status)
                                                 : status;
}

/* Trains an open run from its position to the end. */
static plim_status_t train(plim__loop_t *loop, plim_train_result_t *result_out)
{
    loop->saved_at = plim__clock_ns();
    plim__timeline_restart(&loop->timeline, loop->trainer, loop->loader);
    PLIM_TRY(agree_on_end(loop, train_epochs(loop)));
    plim__loader_yield(loop->loader, false);
    /* The run is saved: report like a stop. */
    PLIM_TRY(agree_on_end(loop, keep(loop, plim__loop_score_all(loop))));
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

/* Checks settings and plan; opens or creates the run on rank 0. */
static plim_status_t open_run(plim__loop_t *loop, const plim_plan_t *plan, bool resume)
{
    const plim_dataset_info_t *info = plim_dataset_info(loop->dataset);
    PLIM_TRY(plim__plan_settings_check(loop->dataset, loop->training));
    PLIM_TRY(plim__train_check_ranks(loop->job, loop->training));
    PLIM_TRY(plim__trainer_check_plan(loop->job, info, loop->training, plan));
    if (plim__peers_rank(loop->peers) > 0)
        return PLIM_OK;
    const plim_dataset_info_t known = plim__dataset_known(loop->dataset);
    PLIM_TRY(resume ? plim__run_open(loop->job, loop->path, &known, loop->training, &loop->run)
                    : plim__run_create(loop->job, loop->path, plim__dataset_origin(loop->dataset),
                                       &known, loop->training, &loop->run));
    return plim_meter_open(loop->job, &loop->timeline.meter);
}

/* The run as rank 0 knows it. */
typedef struct run_origin {
    char path[PLIM_PATH_MAX];
    bool resume;
} run_origin_t;

/* Opens the run, or makes it, up to its first step. */
static plim_status_t start(plim__loop_t *loop, const plim_plan_t *plan, plim_training_t *training,
                           run_origin_t *origin)
{
    PLIM_TRY(plim__loop_agree(loop, PLIM__STAGE_START, open_run(loop, plan, origin->resume)));
    if (loop->run != NULL) {
        training->init = loop->run->init[0] != '\0' ? loop->run->init : NULL;
        (void)snprintf(origin->path, sizeof origin->path, "%s", loop->path);
    }
    PLIM_TRY(plim__peers_broadcast(loop->peers, PLIM__STAGE_START, 0, origin, sizeof *origin));
    origin->path[sizeof origin->path - 1] = '\0';
    loop->path = origin->path;
    loop->saved_step = -1;
    loop->training = training;
    return begin(loop, &plan->numbers, origin->resume);
}

/* Whether products have the same bits on all ranks. The library changes no setting of its process:
 * the command has set oneDNN's to the lowest (programs/command/ranks.c). */
static plim_status_t check_arithmetic(plim__peers_t *peers)
{
    if (peers == NULL)
        return PLIM_OK;
    const plim_status_t status = plim__onednn_load();
    const int64_t own[] = {plim__onednn_instructions(), plim__onednn_number()};
    int64_t least[2], greatest[2];
    PLIM_TRY(plim__peers_agree(peers, PLIM__STAGE_START, status, 2, own, least, greatest));
    if (least[0] != greatest[0])
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "ranks compute with different instructions, from %s to %s: set "
                          "ONEDNN_MAX_CPU_ISA=%s for all of them",
                          plim__onednn_instructions_name(least[0]),
                          plim__onednn_instructions_name(greatest[0]),
                          plim__onednn_instructions_name(least[0]));
    if (least[1] != greatest[1])
        return plim__fail(PLIM_ERR_UNSUPPORTED,
                          "ranks have different versions of oneDNN, this one %s: install one "
                          "version on all nodes",
                          plim__onednn_version());
    return PLIM_OK;
}

static plim_status_t run_loop(plim__loop_t *loop, const plim_plan_t *plan, bool resume,
                              plim_train_result_t *result_out)
{
    plim_training_t training = *loop->training;
    run_origin_t origin = {.resume = resume};
    PLIM_TRY(plim__output_check(result_out, "plim_train_result_t"));
    PLIM_TRY(plim__peers_open(loop->job, &loop->peers));
    plim_status_t status = check_arithmetic(loop->peers);
    if (status == PLIM_OK)
        status = start(loop, plan, &training, &origin);
    /* A disk that is full before the first step is too small, as for a plan that does not fit. */
    if (status == PLIM_ERR_DISK)
        status = PLIM_ERR_SPACE;
    const bool began = status == PLIM_OK;
    if (began)
        status = train(loop, result_out);
    const bool leaves_run =
        resume || plim__loop_has_steps(loop) || (began && is_interruption(status));
    if (status != PLIM_OK && loop->run != NULL && !leaves_run)
        plim__run_discard(loop->run);
    plim__loop_close(loop);
    plim_meter_close(loop->timeline.meter);
    plim__run_close(loop->run);
    plim__peers_close(loop->peers);
    return status;
}

static plim_status_t enter(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim_training_t *training, const plim_plan_t *plan,
                           const char *run, plim_train_event_fn events, void *user, bool resume,
                           plim_train_result_t *result_out)
{
    plim_training_t known = PLIM_TRAINING_INIT;
    const double began = plim__clock_seconds(CLOCK_REALTIME);
    PLIM_ENTER(job);
    PLIM_TRY(plim__plan_settings_take(job, dataset, training, &known));
    const plim_job_t own = plim__train_job(job);
    plim__loop_t loop = {.job = &own,
                         .dataset = dataset,
                         .training = &known,
                         .path = run,
                         .began = began,
                         .events = job->core->transport.rank == 0 ? events : NULL,
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
