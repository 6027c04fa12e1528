/*
 * The epilogue of a product, row by row: bias, norm, activation, dropout; and its gradient. Dropout
 * is keyed by (seed, epoch, step, layer) and the node's id in the dataset: it does not depend on
 * how a batch is split, and no mask is kept.
 */
#ifndef PLIM_NN_EPILOGUE_H
#define PLIM_NN_EPILOGUE_H

#include "nn/matrix.h"
#include "nn/node_ids.h"
#include "nn/team.h"

#include <plimsoll/train.h>
#include <stdbool.h>

/* A sum over rows (such as a bias's gradient) is the sum over this many ranges of rows, added in
 * order for any number of threads. */
#define PLIM__LANES 8

typedef struct plim__epilogue {
    int64_t width;
    const float *bias; /* (width) or NULL */
    plim_norm_t norm;
    const float *gamma, *beta; /* (width) of the norm */
    float *running_mean,
        *running_var; /* (width) of batch norm: updated in training, used outside */
    plim_activation_t activation;
    float dropout; /* share of values that become 0; the others are divided by (1 - dropout) */
    bool training; /* dropout, and batch norm by the batch's own statistics */
    uint64_t key;  /* of the dropout */
    plim__node_ids_t nodes; /* of the rows */
} plim__epilogue_t;

/* Gradients of the parameters, which are added to; NULL for a missing parameter. */
typedef struct plim__epilogue_gradients {
    float *bias, *gamma, *beta;
} plim__epilogue_gradients_t;

/* Bytes that forward keeps for backward (`kept`): statistics of a norm and the normed values; 0
 * without norm. Outside training `kept` may be NULL. And bytes of scratch in backward: sums over
 * rows. */
size_t plim__epilogue_kept(const plim__epilogue_t *epilogue, int64_t rows);
size_t plim__epilogue_scratch(const plim__epilogue_t *epilogue);

/* y (rows, width) F32, which is overwritten, → h, F32 or BF16; `residual` (same shape, F32 or BF16)
 * is added after the norm, before the activation, if not NULL. */
void plim__epilogue_forward(plim__team_t *team, const plim__epilogue_t *epilogue, float *y,
                            const plim__matrix_t *residual, plim__matrix_t *h, void *kept);

/* Computes rows [first, end) of the same on the calling thread; y is row `first`. Not for batch
 * norm in training, which needs all rows. */
void plim__epilogue_forward_rows(const plim__epilogue_t *epilogue, float *y,
                                 const plim__matrix_t *residual, plim__matrix_t *h, void *kept,
                                 int64_t first, int64_t end);

/*
 * From dh (rows, width) F32 to dy, F32 or BF16 (may be dh's own memory if F32); overwrites
 * dresidual (F32, rows x width) if not NULL. h is forward's result.
 */
void plim__epilogue_backward(plim__team_t *team, const plim__epilogue_t *epilogue,
                             const plim__matrix_t *h, const void *kept, const float *dh,
                             plim__matrix_t *dy, float *dresidual,
                             const plim__epilogue_gradients_t *gradients, void *scratch);

#endif
