/*
 * Rows of an epilogue: activation and dropout with their gradients (epilogue.c), norms (norm.c),
 * and sums over columns that do not depend on the number of threads.
 */
#ifndef PLIM_NN_EPILOGUE_ROWS_H
#define PLIM_NN_EPILOGUE_ROWS_H

#include "nn/epilogue.h"

/* Columns at a time: intermediate values of a row stay in the first-level cache. */
#define PLIM__CHUNK 256

/* So many rows are summed before they join a lane's sum, for accuracy. */
#define PLIM__SUM_ROWS 64

/* Part `lane` of PLIM__LANES of all rows. */
static inline int64_t plim__lane_begin(int64_t rows, int64_t lane)
{
    return rows / PLIM__LANES * lane + plim__min_i64(rows % PLIM__LANES, lane);
}

/* Floats from one row of scratch to the next. */
static inline int64_t plim__epilogue_pitch(int64_t width)
{
    return (width + 15) / 16 * 16;
}

/* The arguments of a backward pass. */
typedef struct plim__epilogue_back {
    const plim__epilogue_t *epilogue;
    const plim__matrix_t *h;
    const float *dh;
    plim__matrix_t *dy;
    float *dresidual;
    const plim__epilogue_gradients_t *gradients;
    const float *kept;
    float *scratch;
} plim__epilogue_back_t;

/* A lane's scratch is (7, pitch): three sums over columns, each followed by its rows that are not
 * joined yet, and the gradient of one row of h. */
enum { PLIM__SUM_BIAS = 0, PLIM__SUM_GAMMA, PLIM__SUM_BETA, PLIM__SUMS };
#define PLIM__LANE_ROWS (2 * PLIM__SUMS + 1)
float *plim__epilogue_lane(const plim__epilogue_back_t *back, int64_t lane, int row);

/* Adds the rows that are not joined yet to sums [first, end) of a lane. */
void plim__epilogue_join(const plim__epilogue_back_t *back, int64_t lane, int first, int end);

/* Empties sums [first, end) of a lane. */
void plim__epilogue_clear(const plim__epilogue_back_t *back, int64_t lane, int first, int end);

/* Adds sum `which` of all lanes, in their order, to `to`; nothing when `to` is NULL. */
void plim__epilogue_total(const plim__epilogue_back_t *back, int which, float *to);

/* The gradient before dropout and activation, of one row: dh → g (width); dresidual is written. */
void plim__epilogue_gradient(const plim__epilogue_back_t *back, int64_t row, float *g);

/* One row of dy from g. */
void plim__epilogue_store(const plim__epilogue_back_t *back, int64_t row, const float *g);

/* Norms. Bytes that a norm keeps for backward: normed values and statistics. */
size_t plim__norm_kept(const plim__epilogue_t *epilogue, int64_t rows);

/* Computes batch norm's statistics of y + bias for plim__norm_rows; updates the running ones. */
void plim__norm_statistics(plim__team_t *team, const plim__epilogue_t *epilogue, int64_t rows,
                           const float *y, float *kept);

/* Replaces rows [begin, end) by norm(y + bias); y is row `begin`. kept may be NULL outside
 * training. */
void plim__norm_rows(const plim__epilogue_t *epilogue, int64_t rows, int64_t begin, int64_t end,
                     float *y, float *kept);

void plim__norm_backward(plim__team_t *team, const plim__epilogue_back_t *back);

#endif
