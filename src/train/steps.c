/*
 * The steps of an epoch. Batches form groups of training.accumulation, one update each; an epoch's
 * last group may be smaller. The position moves with a group: a group that is interrupted is
 * discarded and repeated.
 */
#include "base/check.h"
#include "base/clock.h"
#include "base/fail.h"
#include "plan/plan_settings.h"
#include "train/loop.h"

#include <math.h>

static plim_status_t log_memory(plim__loop_t *loop)
{
    plim_sample_t sample = PLIM_SAMPLE_INIT;
    if (loop->run == NULL)
        return PLIM_OK;
    (void)plim_meter_read(loop->timeline.meter, &sample);
    plim_train_event_t event =
        plim__loop_event(loop, PLIM_EVENT_MEMORY, loop->trainer->position.updates);
    event.resident_bytes = sample.rss_bytes;
    event.line_bytes = plim__ledger_line(loop->job->ledger);
    plim__session_tell(&loop->trainer->session, &event);
    return plim__loop_write_timeline(loop, true);
}

/* Number of batches in the group that begins at the position. */
static int64_t group_size(const plim__loop_t *loop)
{
    return plim__min_i64(loop->training->accumulation, loop->steps - loop->trainer->position.step);
}

/* Logs the first step that the loader cut into smaller parts because of estimated sizes: then the
 * line affects the last bits. With measured sizes the cut follows from the recipe. */
static void log_cut(plim__loop_t *loop, int64_t step)
{
    if (step > 0 && loop->guessed)
        plim__log(loop->job, PLIM_LOG_WARNING,
                  "step %lld of epoch %lld has more neighbours than fit in memory, and is computed "
                  "in smaller parts: the last bits of losses differ from those of whole batches, "
                  "which training may magnify",
                  (long long)step, (long long)loop->trainer->position.epoch + 1);
    loop->guessed = loop->guessed && step == 0;
}

static void look_at_cut(plim__loop_t *loop, const plim_batch_t *batch)
{
    const plim__slot_t *slot = (const plim__slot_t *)(const void *)batch;
    if (!slot->more || !loop->guessed)
        return;
    loop->cut_step = batch->step + 1;
    log_cut(loop, loop->cut_step);
}

/*
 * The rehearsal: runs an evaluation and a training step of the first batch (or its first part), and
 * a checkpoint, before the first step and without effect. Libraries and the kernel then hold the
 * memory that they allocate late, and the caches get their target.
 */
static plim_status_t rehearse(plim__loop_t *loop, const plim_batch_t *batch)
{
    plim__session_t *session = &loop->trainer->session;
    const plim__batch_columns_t columns = plim__plan_settings_batch(batch);
    const plim__pass_t pass = {.seed = loop->training->recipe.seed, .columns = &columns};
    plim__model_output_t output;
    PLIM_TRY(plim__model_forward(session->model, batch, &pass, &output));
    if (session->score != NULL) {
        PLIM_TRY(plim__session_score(session, batch->num_seeds, &output, batch->labels));
        plim__score_reset(session->score);
    }
    PLIM_TRY(plim__trainer_compute(loop->trainer, batch, 1, NULL));
    plim_trainer_discard(loop->trainer);
    if (loop->run != NULL)
        PLIM_TRY(plim__run_rehearse_save(loop->run, session->parameters, session->num_parameters,
                                         &loop->trainer->position));
    plim__loader_retarget(loop->loader);
    loop->rehearsed = true;
    plim__timeline_restart(&loop->timeline, loop->trainer, loop->loader);
    return PLIM_OK;
}

/* Computes this rank's shares of the next batch, part by part. */
static plim_status_t compute_batch(plim__loop_t *loop)
{
    for (bool last = false; !last;) {
        plim_batch_t *batch;
        PLIM_TRY(plim_stream_next(loop->stream, -1, &batch));
        last = batch->last_part;
        look_at_cut(loop, batch);
        const bool rehearses = !loop->rehearsed && batch->num_seeds > 0;
        plim_status_t status = rehearses ? rehearse(loop, batch) : PLIM_OK;
        if (status == PLIM_OK)
            status = plim__trainer_compute(loop->trainer, batch, group_size(loop), NULL);
        plim_batch_release(batch);
        PLIM_TRY(status);
    }
    return PLIM_OK;
}

/* Ends a batch, and updates after a group's last. */
static plim_status_t end_batch(plim__loop_t *loop, plim_status_t status, double *loss_out,
                               bool *updated_out)
{
    const int64_t updates = loop->trainer->position.updates;
    PLIM_TRY(plim__trainer_end_batch(loop->trainer, status, loss_out));
    loop->timeline.steps++;
    if (++loop->group_steps == group_size(loop)) {
        PLIM_TRY(plim_trainer_update(loop->trainer, NULL));
        loop->group_steps = 0;
    }
    *updated_out = loop->trainer->position.updates > updates;
    return PLIM_OK;
}

/* Writes a timeline entry if the governor has resized the loader's caches. */
static plim_status_t look_at_governor(plim__loop_t *loop)
{
    const plim__governor_t *governor = plim__loader_governor(loop->loader);
    if (governor->changes == loop->governed)
        return PLIM_OK;
    loop->governed = governor->changes;
    return plim__loop_write_timeline(loop, true);
}

/* Work between two batches. Files are written only after an update. */
static plim_status_t after_batch(plim__loop_t *loop, double loss, bool updated)
{
    const plim_training_t *training = loop->training;
    const plim__position_t *position = &loop->trainer->position;
    plim_train_event_t event =
        plim__loop_event(loop, PLIM_EVENT_STEP, position->step + loop->group_steps);
    event.loss = loss;
    plim__session_tell(&loop->trainer->session, &event);
    if (!updated)
        return plim__job_check(loop->job);
    PLIM_TRY(look_at_governor(loop));
    loop->goes_back = plim__loop_fits_again(loop);
    if (loop->goes_back)
        return PLIM__PLAN_AGAIN;
    if (training->memory_steps > 0 && position->updates % training->memory_steps == 0)
        PLIM_TRY(log_memory(loop));
    const bool by_steps =
        training->checkpoint_steps > 0 && position->updates % training->checkpoint_steps == 0;
    const bool by_time = training->checkpoint_seconds > 0 &&
                         plim__clock_seconds_since(loop->saved_at) >= training->checkpoint_seconds;
    if (by_steps || by_time)
        PLIM_TRY(plim__loop_save_and_reserve(loop));
    return plim__job_check(loop->job);
}

plim_status_t plim__loop_step(plim__loop_t *loop, plim_status_t *status)
{
    double loss = NAN;
    bool updated;
    if (*status == PLIM_OK)
        *status = compute_batch(loop);
    PLIM_TRY(end_batch(loop, *status, &loss, &updated));
    *status = after_batch(loop, loss, updated);
    return PLIM_OK;
}

plim_status_t plim__loop_steps(plim__loop_t *loop)
{
    const plim__position_t *position = &loop->trainer->position;
    plim_status_t status = plim__job_check(loop->job);
    if (status == PLIM_OK)
        status = plim_stream_start(loop->stream, position->epoch, position->step);
    while (position->step + loop->group_steps < loop->steps)
        PLIM_TRY(plim__loop_step(loop, &status));
    /* Only rank 0 logs: it learns here of a cut on another rank. */
    int64_t cut = loop->cut_step;
    loop->cut_step = 0;
    PLIM_TRY(plim__peers_agree(loop->peers, PLIM__STAGE_STEP, status, 1, &cut, NULL, &cut));
    log_cut(loop, cut);
    return PLIM_OK;
}
