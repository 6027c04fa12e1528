/*
 * Checkpoints: a training's parameters, moments and position as one safetensors file. Readers do
 * not trust the file. Notes in its header hold the position and the origin: the dataset's
 * fingerprint, the settings, the machine.
 */
#ifndef PLIM_TRAIN_CHECKPOINT_H
#define PLIM_TRAIN_CHECKPOINT_H

#include "io/safetensors.h"
#include "mem/arena.h"
#include "nn/optimiser.h"
#include "train/run_json.h"

#include <math.h>
#include <plimsoll/train.h>

/* The position of a training; with parameters and moments, its whole state. */
typedef struct plim__position {
    int64_t epoch;         /* completed epochs */
    int64_t step;          /* completed steps of the current epoch */
    int64_t updates;       /* optimiser steps so far */
    int64_t part_seeds;    /* seeds in a part, which decide the last bits; 0: whole batches */
    int64_t part_nodes;    /* nodes and edges above which the loader halves a part; */
    int64_t part_edges;    /* they decide bits too; 0: unknown */
    double loss_sum;       /* of the current epoch */
    double loss_seeds;     /* its labelled seeds; fractional if some values have no label */
    double epoch_loss;     /* of the last completed epoch */
    int64_t best_epoch;    /* 0: no evaluation yet */
    double best_score[3];  /* NAN: not evaluated */
    int64_t waited;        /* evaluations since the best epoch */
    int64_t metrics_bytes; /* length of metrics.jsonl */
    int64_t metrics_crc;   /* CRC-32 of metrics.jsonl; -1: unknown */
    bool ended;            /* patience has ended the training */
    bool scored;           /* best_score has all splits: of the best weights, else of the last */
} plim__position_t;

/* The position before the first step. */
#define PLIM__POSITION_INIT                                                                        \
    {                                                                                              \
        .best_score = {NAN, NAN, NAN}, .metrics_crc = -1                                           \
    }

/* Whether patience ends the training here. */
static inline bool plim__position_ends(const plim__position_t *position,
                                       const plim_training_t *training)
{
    return training->patience > 0 && position->waited >= training->patience;
}

/* Completed epochs, and the current one if a step of it is done. */
static inline int64_t plim__position_begun(const plim__position_t *position)
{
    return position->epoch + (position->step > 0);
}

#define PLIM__CHECKPOINT_SETTINGS 2048 /* maximum length of the settings' text */

/* Data that all checkpoints of one training share. */
typedef struct plim__checkpoint {
    const plim_job_t *job;
    plim_training_t training;
    char fingerprint[17];    /* of the dataset */
    bool loops;              /* it has self-loops, or may have */
    plim__machine_t machine; /* this machine */
    char settings[PLIM__CHECKPOINT_SETTINGS];
    plim__tensor_t *tensors; /* (PLIM__TENSORS_MAX) tensors of the file being written */
} plim__checkpoint_t;

void plim__checkpoint_carve(plim__checkpoint_t *checkpoint, plim__arena_t *arena);

/* Fills in the other fields. PLIM_ERR_USAGE for settings that JSON cannot represent. */
plim_status_t plim__checkpoint_describe(plim__checkpoint_t *checkpoint, const plim_job_t *job,
                                        const plim_dataset_info_t *dataset,
                                        const plim_training_t *training);

/* Maximum bytes of the file: parameters and, with `moments`, the optimiser's moments.
 * PLIM_ERR_UNSUPPORTED for more tensors than a file may have; `path` is for the message. */
plim_status_t plim__checkpoint_most(plim__checkpoint_t *checkpoint, const char *path,
                                    const plim__parameter_t *parameters, int count, bool moments,
                                    int64_t *bytes_out);

/* Writes parameters, moments and position into a draft of plim__checkpoint_most bytes. With
 * `commit` the draft gets its name; without, it can be written again. */
plim_status_t plim__checkpoint_write(plim__checkpoint_t *checkpoint, plim__draft_t *draft,
                                     const plim__parameter_t *parameters, int count,
                                     const plim__position_t *position, bool commit);

/* Writes only the parameters, those of the position's best epoch, and their scores. */
plim_status_t plim__checkpoint_write_best(plim__checkpoint_t *checkpoint, plim__draft_t *draft,
                                          const plim__parameter_t *parameters, int count,
                                          const plim__position_t *position);

/* Reads parameters, moments and position. PLIM_ERR_USAGE for a checkpoint of another dataset, or of
 * settings that change the result. */
plim_status_t plim__checkpoint_read(const plim__checkpoint_t *checkpoint, int directory,
                                    const char *path, plim__parameter_t *parameters, int count,
                                    plim__position_t *position_out);

plim_status_t plim__checkpoint_position(const plim_job_t *job, int directory, const char *path,
                                        plim__position_t *position_out);

/* Reads parameter values from any file that has all of them. With `epoch` > 0 the file must hold
 * the best weights of that epoch: PLIM_ERR_DATA. */
plim_status_t plim__checkpoint_weights(const plim_job_t *job, int directory, const char *path,
                                       int64_t epoch, plim__parameter_t *parameters, int count);

#endif
