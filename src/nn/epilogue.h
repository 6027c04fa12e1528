/*
 * The epilogue of a product, row by row: bias, norm, activation, dropout; and its gradient. Dropout
 * is keyed by (seed, epoch, step, layer) and the node's id in the dataset: it does not depend on
 * how a batch is split, and no mask is kept.
 */
#ifndef PLIM_NN_EPILOGUE_H
#define PLIM_NN_EPILOGUE_H

#include "nn/matrix.h"
#include "nn/team.h"

#include <plimsoll/train.h>
#include <stdbool.h>

/* A sum over rows (a bias's gradient, for example) is the sum of so many ranges of rows, added in
 * order, whatever the number of threads. */
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
    const int32_t *nodes; /* (rows) ids in the dataset; NULL without dropout */
} plim__epilogue_t;

/* Gradients of the parameters: added to; NULL where there is no parameter. */
typedef struct plim__epilogue_gradients {
    float *bias, *gamma, *beta;
} plim__epilogue_gradients_t;

/* Bytes that forward keeps for backward (`kept`): statistics of a norm, the normed values. 0
 * without norm; not needed outside training, where `kept` may be NULL. Of scratch in backward
 * (`scratch`): sums over rows. */
size_t plim__epilogue_kept(const plim__epilogue_t *epilogue, int64_t rows);
size_t plim__epilogue_scratch(const plim__epilogue_t *epilogue, int64_t rows);

/* y (rows, width) F32, with room to be overwritten → h, F32 or BF16; with `residual` (same shape,
 * F32 or BF16) not NULL it is added after the norm, before the activation. */
void plim__epilogue_forward(plim__team_t *team, const plim__epilogue_t *epilogue, float *y,
                            const plim__matrix_t *residual, plim__matrix_t *h, void *kept);

/* Rows [first, end) of the same, by the calling thread; y is row `first`. Not for batch norm in
 * training, which looks at all rows. */
void plim__epilogue_forward_rows(const plim__epilogue_t *epilogue, float *y,
                                 const plim__matrix_t *residual, plim__matrix_t *h, void *kept,
                                 int64_t first, int64_t end);

/*
 * From dh (rows, width) F32 to dy, F32 or BF16 (may be dh's own memory when F32); dresidual
 * (F32, rows x width) is overwritten when not NULL. h is what forward gave.
 */
void plim__epilogue_backward(plim__team_t *team, const plim__epilogue_t *epilogue,
                             const plim__matrix_t *h, const void *kept, const float *dh,
                             plim__matrix_t *dy, float *dresidual,
                             const plim__epilogue_gradients_t *gradients, void *scratch);

#endif
