/* Losses: the sum over rows, in double precision, and the gradient of the mean. */
#ifndef PLIM_NN_LOSS_H
#define PLIM_NN_LOSS_H

#include "nn/team.h"

#include <plimsoll/train.h>

/*
 * `outputs` (rows, width) F32 are logits or values. `labels` is int64 classes (-1: no label, counts
 * as nothing) for PLIM_LOSS_CROSS_ENTROPY, else float (rows, width) with NaN for what is not known.
 * A row's loss is the sum over its known columns divided by `width`, so that the sum of rows'
 * losses divided by plim__loss_weight is the mean over all that is known, as PyTorch's loss of
 * outputs[known], labels[known] is. `doutputs` (rows, width), NULL when not wanted, gets the
 * gradient of (sum of rows' losses) * scale. Returns the sum of rows' losses; added in an order
 * that depends on the rows alone.
 */
double plim__loss(plim__team_t *team, plim_loss_t loss, int64_t rows, int64_t width,
                  const float *outputs, const void *labels, float scale, float *doutputs);

/* What the sum of rows' losses is divided by for their mean: known labels, counted in whole rows.
 * `known` classes, or values of rows of `width` columns. */
static inline double plim__loss_weight(plim_loss_t loss, int64_t width, int64_t known)
{
    return loss == PLIM_LOSS_CROSS_ENTROPY ? (double)known : (double)known / (double)width;
}

#endif
