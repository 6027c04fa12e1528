/*
 * Checkpoints: a training's parameters, moments and position as one safetensors file, written for
 * whoever resumes it and read back with suspicion. Notes in the header hold the position and where
 * the file comes from: the dataset's fingerprint, the settings, the machine.
 */
#ifndef PLIM_TRAIN_CHECKPOINT_H
#define PLIM_TRAIN_CHECKPOINT_H

#include "io/safetensors.h"
#include "mem/arena.h"
#include "nn/optimiser.h"
#include "train/run_json.h"

#include <math.h>
#include <plimsoll/train.h>

/* Where a training stands; with the parameters and moments, all that a resumed one needs. */
typedef struct plim__position {
    int64_t epoch;      /* epochs done */
    int64_t step;       /* steps of the next one done */
    int64_t updates;    /* optimiser's steps in all */
    int64_t part_seeds; /* seeds computed at a time, which decide the last bits; 0: whole batches */
    int64_t part_nodes; /* what they may need before they are halved, which does so too; */
    int64_t part_edges; /* 0: not known */
    double loss_sum;    /* of the epoch under way */
    double loss_seeds;  /* its seeds with a label; a part of a seed's values counts as that part */
    double epoch_loss;  /* of the last whole epoch */
    int64_t best_epoch; /* 0: none */
    double best_score[3];  /* NAN where there is none */
    int64_t waited;        /* evaluations since */
    int64_t metrics_bytes; /* length of metrics.jsonl */
    int64_t metrics_crc;   /* CRC-32 of it; -1: unknown */
    bool ended;            /* by patience */
} plim__position_t;

/* Before the first step. */
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

/* Epochs done, and the one under way. */
static inline int64_t plim__position_begun(const plim__position_t *position)
{
    return position->epoch + (position->step > 0);
}

#define PLIM__CHECKPOINT_SETTINGS 2048 /* bytes of the settings' text */

/* What all checkpoints of one training have in common. */
typedef struct plim__checkpoint {
    const plim_job_t *job;
    plim_training_t training;
    char fingerprint[17];    /* the dataset's */
    plim__machine_t machine; /* this one */
    char settings[PLIM__CHECKPOINT_SETTINGS];
    plim__tensor_t *tensors; /* (PLIM__TENSORS_MAX) of the file being written */
} plim__checkpoint_t;

/* Carves the table of tensors. */
void plim__checkpoint_carve(plim__checkpoint_t *checkpoint, plim__arena_t *arena);

/* Fills in the rest. PLIM_ERR_USAGE for settings that cannot be written down. */
plim_status_t plim__checkpoint_describe(plim__checkpoint_t *checkpoint, const plim_job_t *job,
                                        const plim_dataset_info_t *dataset,
                                        const plim_training_t *training);

/* Bytes of the file at most: parameters and, with `moments`, the optimiser's. PLIM_ERR_UNSUPPORTED
 * for more tensors than a file may have; `path` is for the message. */
plim_status_t plim__checkpoint_most(plim__checkpoint_t *checkpoint, const char *path,
                                    const plim__parameter_t *parameters, int count, bool moments,
                                    int64_t *bytes_out);

/* Writes parameters, moments and position into a draft of plim__checkpoint_most bytes and, with
 * `commit`, gives it its name. Without, the draft stays one: it can be written once more. */
plim_status_t plim__checkpoint_write(plim__checkpoint_t *checkpoint, plim__draft_t *draft,
                                     const plim__parameter_t *parameters, int count,
                                     const plim__position_t *position, bool commit);

/* Writes the parameters alone, those of the position's best epoch, and what they scored. */
plim_status_t plim__checkpoint_write_best(plim__checkpoint_t *checkpoint, plim__draft_t *draft,
                                          const plim__parameter_t *parameters, int count,
                                          const plim__position_t *position);

/* Reads parameters, moments and position. PLIM_ERR_DATA for a file of another dataset, or of other
 * settings that decide the result. */
plim_status_t plim__checkpoint_read(const plim__checkpoint_t *checkpoint, const char *path,
                                    plim__parameter_t *parameters, int count,
                                    plim__position_t *position_out);

/* Reads the position alone. */
plim_status_t plim__checkpoint_position(const plim_job_t *job, const char *path,
                                        plim__position_t *position_out);

/* Reads the values of parameters from any file that has all of them. With `epoch` > 0 it must hold
 * the best weights of that epoch: PLIM_ERR_DATA. */
plim_status_t plim__checkpoint_weights(const plim_job_t *job, const char *path, int64_t epoch,
                                       plim__parameter_t *parameters, int count);

#endif
