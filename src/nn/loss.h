/* Losses: the sum over rows, in double precision, and the gradient of the mean. */
#ifndef PLIM_NN_LOSS_H
#define PLIM_NN_LOSS_H

#include "nn/team.h"

#include <plimsoll/train.h>

/*
 * `outputs` (rows, width) F32 are logits or values. `labels` is int64 classes (-1: no label, not
 * counted) for PLIM_LOSS_CROSS_ENTROPY, otherwise float (rows, width) with NaN for unknown values.
 * A row's loss is the sum over its known columns divided by `width`, so that the sum of rows'
 * losses divided by plim__loss_weight is the mean over all known values, as PyTorch's loss of
 * outputs[known], labels[known] is. `doutputs` (rows, width), or NULL, gets the
 * gradient of (sum of rows' losses) * scale. Returns the sum of rows' losses, added in an order
 * that depends only on the number of rows.
 */
double plim__loss(plim__team_t *team, plim_loss_t loss, int64_t rows, int64_t width,
                  const float *outputs, const void *labels, float scale, float *doutputs);

/* The divisor that turns the sum of rows' losses into their mean: known labels in whole rows.
 * `known` counts classes, or values of rows of `width` columns. */
static inline double plim__loss_weight(plim_loss_t loss, int64_t width, int64_t known)
{
    return loss == PLIM_LOSS_CROSS_ENTROPY ? (double)known : (double)known / (double)width;
}

#endif
