/*
 * Matrix products with a weight: y = x W', dx = dy W, dW += dy' x, by oneDNN (nn/onednn.h).
 *
 * Rows are worked off in tiles of fixed heights, each by one thread of the team, so that every
 * primitive exists before the first step and OpenMP never starts a thread. Scratch memory, packed
 * weights and partial sums are in the object's arena. Rows of x and dy are dense: stride is width.
 */
#ifndef PLIM_NN_DENSE_H
#define PLIM_NN_DENSE_H

#include "nn/matrix.h"
#include "nn/team.h"

#include <stdbool.h>

typedef struct plim__dense plim__dense_t;

typedef struct plim__dense_params {
    int64_t in;              /* columns of x */
    int64_t out;             /* columns of y */
    plim__element_t element; /* of x and dy: F32 or BF16 (dx, y and dW are always F32) */
    bool backward;           /* compute dW */
    bool input_gradient;     /* compute dx */
    int workers;             /* the team's size */
    int64_t rows;            /* maximum rows of x and dy; 0: any number */
    bool transposed;         /* weights and gradients are given as (width, out), not (out, width) */
} plim__dense_params_t;

/* Bytes of the object's arena. Queries oneDNN for the memory of its products (describes some,
 * creates none) and caches the answers; without oneDNN, a bound. oneDNN's own memory for primitives
 * comes out of the ledger's reserve. */
size_t plim__dense_estimate(const plim__dense_params_t *params);

/* PLIM_ERR_BUDGET, PLIM_ERR_NOMEM; PLIM_ERR_UNSUPPORTED with oneDNN's reason. */
plim_status_t plim__dense_create(plim_ledger_t *ledger, const plim__dense_params_t *params,
                                 plim__dense_t **dense_out);
void plim__dense_destroy(plim__dense_t *dense);

/*
 * Sets the weight: columns [first, first + width) of W from `weight` (out, width), row-major as in
 * PyTorch. A weight may consist of several side by side (SAGE's two). Marks it for packing, so call
 * it after each change.
 */
void plim__dense_set_weight(plim__dense_t *dense, int64_t first, int64_t width,
                            const float *weight);

/* y (rows, out) = x (rows, in) W'. y is F32 and dense. */
void plim__dense_forward(plim__dense_t *dense, plim__team_t *team, const plim__matrix_t *x,
                         float *y);

/*
 * The same by tiles, for callers that process a tile's rows while they are in the cache: prepare
 * once, then each tile, concurrently, on any worker. y is the tile's first row.
 */
void plim__dense_prepare(plim__dense_t *dense);
int64_t plim__dense_tiles(int64_t rows);
void plim__dense_tile_rows(int64_t rows, int64_t tile, int64_t *first_out, int64_t *end_out);
void plim__dense_forward_tile(plim__dense_t *dense, int worker, const plim__matrix_t *x,
                              int64_t tile, float *y);
/* PLIM_ERR_NOMEM if a product has failed since the weight was set: its results are then invalid.
 * Call it once a pass, while no thread computes. */
plim_status_t plim__dense_check(const plim__dense_t *dense);

/* Maximum rows of a tile, including padding. */
#define PLIM__TILE_ROWS 256

/* dx (rows, in) = dy (rows, out) W. dx is F32 and dense. */
void plim__dense_backward_input(plim__dense_t *dense, plim__team_t *team, const plim__matrix_t *dy,
                                float *dx);

/* Adds dy' x to the object's sum over all calls since plim__dense_gradient. Zeroes the padding rows
 * of dy and x; x may have further rows, which do not count but must be finite. */
void plim__dense_backward_weight(plim__dense_t *dense, plim__team_t *team, plim__matrix_t *dy,
                                 plim__matrix_t *x);

/* Adds columns [first, first + width) of the sum to `gradient` (out, width); `last` resets the sum
 * to zero. */
void plim__dense_gradient(plim__dense_t *dense, plim__team_t *team, int64_t first, int64_t width,
                          bool last, float *gradient);

#endif
