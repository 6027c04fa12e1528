/* The state of a run while it trains, for the files of the loop: train.c, steps.c, epoch_end.c,
 * pipeline.c. */
#ifndef PLIM_TRAIN_LOOP_H
#define PLIM_TRAIN_LOOP_H

#include "base/job.h"
#include "load/loader.h"
#include "load/loader_params.h"
#include "train/run.h"
#include "train/timeline.h"

/* The state of a run. The trainer holds the position. */
typedef struct plim__loop {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_training_t *training;
    const char *path; /* the run's directory */
    double began;     /* when plim_train or plim_train_resume was called, in seconds since 1970 */
    plim_train_event_fn events;
    void *user;
    plim__peers_t *peers; /* the other ranks; NULL: there are none */
    plim__run_t *run;     /* NULL except on rank 0, which alone reads and writes files */
    plim_loader_t *loader;
    plim_stream_t *stream; /* the shares of the training split's batches */
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
    bool retargeted;                /* the caches' target was set again after the first epoch */
    bool guessed;                   /* sizes of parts are estimates: log the first cut */
    int64_t cut_step; /* last step of this epoch, from 1, that this rank cut; 0: none */
} plim__loop_t;

/* An event of this run at a step, without losses and scores. */
static inline plim_train_event_t plim__loop_event(const plim__loop_t *loop,
                                                  plim_train_event_kind_t kind, int64_t step)
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

static inline bool plim__loop_is_over(const plim__loop_t *loop)
{
    const plim__position_t *position = &loop->trainer->position;
    return position->ended || position->epoch >= loop->training->epochs;
}

/* Whether last.safetensors has the position. */
static inline bool plim__loop_is_saved(const plim__loop_t *loop)
{
    return loop->saved_step == loop->trainer->position.step &&
           loop->saved_epoch == loop->trainer->position.epoch;
}

/* Whether last.safetensors has a step. */
static inline bool plim__loop_has_saved(const plim__loop_t *loop)
{
    return loop->saved_step > 0 || loop->saved_epoch > 0;
}

/* Whether the run made a step, saved or not. Before it the weights are the first ones. */
static inline bool plim__loop_has_steps(const plim__loop_t *loop)
{
    return plim__loop_has_saved(loop) ||
           (loop->trainer != NULL && plim__position_begun(&loop->trainer->position) > 0);
}

static inline plim_status_t plim__loop_write_timeline(plim__loop_t *loop, bool force)
{
    if (loop->run == NULL)
        return PLIM_OK;
    return plim__timeline_write(&loop->timeline, loop->trainer, loop->loader, loop->run, force);
}

/* Waits for all ranks; all return an error of one. */
static inline plim_status_t plim__loop_agree(const plim__loop_t *loop, plim__stage_t stage,
                                             plim_status_t status)
{
    return plim__peers_agree(loop->peers, stage, status, 0, NULL, NULL, NULL);
}

/* Saves the run, and reserves the disk space of the next checkpoint. The last one saves during the
 * run: if the disk has no space for the next checkpoint, the run ends, fully saved. */
plim_status_t plim__loop_save(plim__loop_t *loop);
plim_status_t plim__loop_reserve(plim__loop_t *loop);
plim_status_t plim__loop_save_and_reserve(plim__loop_t *loop);

/* The errors of a full disk and of a stop: the saved position and how to continue. */
plim_status_t plim__loop_fail_full(const plim__loop_t *loop, const char *message);
plim_status_t plim__loop_fail_stopped(const plim__loop_t *loop, const plim__position_t *position);

/*
 * Creates loader and trainer by a plan, replacing existing ones; with `resume` moves them to the
 * position of last.safetensors (*found_out: it exists). So a saved run can change its plan. All
 * ranks call it, with plans of their own.
 */
plim_status_t plim__loop_open(plim__loop_t *loop, const plim__train_plan_t *plan, bool resume,
                              bool *found_out);

/* Reads last.safetensors on rank 0 and moves the trainers of all ranks there; *found_out: it
 * exists. PLIM_ERR_IO if it was saved by this process and does not exist any more. */
plim_status_t plim__loop_load(plim__loop_t *loop, bool *found_out);

/* Copies weights and buffers of rank 0's trainer to the others'. */
plim_status_t plim__loop_share_weights(plim__loop_t *loop);

/* Closes loader and trainer; the run stays open. */
void plim__loop_close(plim__loop_t *loop);

/* Whether the first plan has fitted for a while. Checks only from time to time. */
bool plim__loop_fits_again(plim__loop_t *loop);

/* Saves the run and continues it under another plan with the same cut and bits, on ranks where
 * memory is short even without caches, or the first plan fits again; the others keep their plans.
 */
plim_status_t plim__loop_replan(plim__loop_t *loop);

/* Makes one step. *status is this rank's own: an error, or PLIM__PLAN_AGAIN, goes into the
 * exchange, where all ranks learn of it. */
plim_status_t plim__loop_step(plim__loop_t *loop, plim_status_t *status);

/* Trains from the position to the end of its epoch. */
plim_status_t plim__loop_steps(plim__loop_t *loop);

/* Evaluates, and moves the position to the next epoch after the best weights are durable. */
plim_status_t plim__loop_end_epoch(plim__loop_t *loop);

/*
 * Scores the splits that have no score yet with the best weights, or all splits with the last ones
 * if none are the best. The position keeps the scores, so this happens once.
 */
plim_status_t plim__loop_score_all(plim__loop_t *loop);

#endif
