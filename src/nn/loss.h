/* Losses: the sum over rows, in double precision, and the gradient of the mean. */
#ifndef PLIM_NN_LOSS_H
#define PLIM_NN_LOSS_H

#include "nn/team.h"

#include <plimsoll/train.h>

/*
 * `outputs` (rows, width) F32 are logits or values. `labels` is int64 classes (-1: no label, counts
 * as nothing) for PLIM_LOSS_CROSS_ENTROPY, else float (rows, width) with NaN for what is not known.
 * A row's loss is the mean over its known columns. `doutputs` (rows, width), NULL when not wanted,
 * gets the gradient of (sum of rows' losses) * scale. Returns the sum of rows' losses; added in an
 * order that depends on the rows alone.
 */
double plim__loss(plim__team_t *team, plim_loss_t loss, int64_t rows, int64_t width,
                  const float *outputs, const void *labels, float scale, float *doutputs);

#endif
