/* A trainer's inside, for the loops over epochs (train.c) and its times (timeline.c). */
#ifndef PLIM_TRAIN_TRAINER_H
#define PLIM_TRAIN_TRAINER_H

#include "base/job.h"
#include "train/checkpoint.h"
#include "train/session.h"

#include <stdatomic.h>

struct plim_trainer {
    pid_t process;
    atomic_int references;
    plim_job_t job; /* retained */
    plim__arena_t arena;
    plim_training_t settings;    /* as the caller gave them: what a checkpoint says */
    plim__session_t session;     /* its dataset is retained */
    plim__model_arrays_t arrays; /* the model's */
    plim__train_scratch_t scratch;
    plim__position_t position;
    /* Since the last update: */
    bool computed;      /* a batch was, or a part of one */
    bool taken;         /* the gradient was handed out */
    int64_t epoch;      /* of the last batch */
    int64_t step;       /* behind it */
    double part_loss;   /* of the batch under way, summed over its parts */
    double group_loss;  /* of the batches that are done */
    double group_seeds; /* the sum of the batches' weights: 0 when none had a label */
    double loss_seconds, update_seconds; /* spent since the trainer was made */
};

/* PLIM_ERR_USAGE when the plan is not of these settings: its loader would deliver other batches. */
plim_status_t plim__trainer_check_plan(const plim_dataset_info_t *info,
                                       const plim_training_t *training, const plim_plan_t *plan);

/* As plim_trainer_create by a plan that was checked, with a listener for evaluation's events. */
plim_status_t plim__trainer_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                   const plim_training_t *training, const plim__train_plan_t *plan,
                                   plim_train_event_fn events, void *user,
                                   plim_trainer_t **trainer_out);

/* PLIM_ERR_DIVERGED when a weight is not finite. */
plim_status_t plim__trainer_check_weights(const plim_trainer_t *trainer);

/* To be called when parameters and position were read from a file. */
void plim__trainer_restored(plim_trainer_t *trainer, const plim__position_t *position);

#endif
