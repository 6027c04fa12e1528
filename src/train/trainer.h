/* The trainer's internals, for the epoch loop (train.c) and its times (timeline.c). */
#ifndef PLIM_TRAIN_TRAINER_H
#define PLIM_TRAIN_TRAINER_H

#include "base/job.h"
#include "peers/reduce.h"
#include "train/checkpoint.h"
#include "train/session.h"

struct plim_trainer {
    pid_t process;
    plim_job_t job; /* retained */
    plim__arena_t arena;
    plim_training_t settings;    /* the caller's settings; stored in checkpoints */
    plim__session_t session;     /* retains its dataset */
    plim__model_arrays_t arrays; /* of the model */
    plim__train_scratch_t scratch;
    plim__reduce_t *reduce; /* adds the shares of a batch; NULL: batches have one */
    plim__position_t position;
    /* Since the last update: */
    bool computed;                       /* a batch or a part of one was computed */
    bool taken;                          /* the caller has taken the gradient */
    bool failed;                         /* a batch failed: sums and buffers are incomplete */
    bool grouped;                        /* scratch.group holds the sum of completed batches */
    int64_t shares_done;                 /* of the current batch */
    double share_loss;                   /* loss of the current share, summed over its parts */
    int64_t epoch;                       /* epoch of the last batch */
    int64_t step;                        /* step after the last batch */
    double part_loss;                    /* loss of the current batch, summed over its parts */
    double group_loss;                   /* loss of the completed batches */
    double batch_weight;                 /* weight of the current batch: labels in whole rows */
    double group_seeds;                  /* sum of the batches' weights; 0 if no seed had a label */
    double loss_seconds, update_seconds; /* since the trainer was created */
};

/* PLIM_ERR_USAGE if the plan is for another dataset, its loader would deliver other batches, or the
 * trainer would need other memory. The settings were checked. */
plim_status_t plim__trainer_check_plan(const plim_job_t *job, const plim_dataset_info_t *info,
                                       const plim_training_t *training, const plim_plan_t *plan);

/* Like plim_trainer_create with a checked plan and a listener for evaluation events. */
plim_status_t plim__trainer_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                   const plim_training_t *training, const plim__train_plan_t *plan,
                                   plim_train_event_fn events, void *user,
                                   plim_trainer_t **trainer_out);

/* Connects a trainer with the other ranks, which do the same (NULL: there are none): from now on it
 * computes its own shares of a batch. Errors of plim__reduce_create. */
plim_status_t plim__trainer_connect(plim_trainer_t *trainer, plim__peers_t *peers);

/* plim_trainer_backward without the exchange of a batch's end. */
plim_status_t plim__trainer_compute(plim_trainer_t *trainer, const plim_batch_t *batch,
                                    int64_t batches, double *loss_out);

/*
 * Ends a batch: with shares it adds up the gradients and losses of all of them, of all ranks. Each
 * rank gives the status of its own shares; if one is not PLIM_OK, every rank gets that error.
 * *loss_out (may be NULL) is the batch's mean loss.
 */
plim_status_t plim__trainer_end_batch(plim_trainer_t *trainer, plim_status_t status,
                                      double *loss_out);

/* PLIM_ERR_DIVERGED if a weight is not finite. */
plim_status_t plim__trainer_check_weights(const plim_trainer_t *trainer);

/* Call after parameters and position were read from a file. */
void plim__trainer_restored(plim_trainer_t *trainer, const plim__position_t *position);

#endif
