/* Exact scores of weights in a file, for a run that trains. */
#ifndef PLIM_TRAIN_EVALUATE_H
#define PLIM_TRAIN_EVALUATE_H

#include "peers/peers.h"
#include "store/dataset.h"

#include <plimsoll/train.h>

/*
 * Computes metric and mean loss of the splits in `splits`, which have labels, by whole
 * neighbourhoods, with the weights in the file `weights` of the open `directory`. `run` is the
 * directory for intermediate layers. Other splits keep what the arrays hold. Of several ranks
 * (peers; NULL: one) rank 0 reads the file, all divide the work, and all return the same scores or
 * the same error. Uses the memory that is left under the line; errors of plim_evaluate.
 */
plim_status_t plim__evaluate_exact(const plim_job_t *job, const plim_dataset_t *dataset,
                                   const plim_training_t *training, plim__peers_t *peers,
                                   const char *run, int directory, const char *weights,
                                   unsigned splits, double score[3], double loss[3]);

#endif
