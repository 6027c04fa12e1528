/*
 * The rows behind plim__epilogue: activation and dropout with their gradients (epilogue.c), norms
 * (norm.c), and sums over columns that do not depend on the threads.
 */
#ifndef PLIM_NN_EPILOGUE_ROWS_H
#define PLIM_NN_EPILOGUE_ROWS_H

#include "nn/epilogue.h"

/* Columns at a time: what is between two steps of a row stays in the nearest cache. */
#define PLIM__CHUNK 256

/* Sums over rows are gathered over so many rows before they join a lane's, for accuracy. */
#define PLIM__SUM_ROWS 64

/* Piece `lane` of PLIM__LANES of all rows. */
static inline int64_t plim__lane_begin(int64_t rows, int64_t lane)
{
    return rows / PLIM__LANES * lane + plim__min_i64(rows % PLIM__LANES, lane);
}

/* Floats from one row of scratch to the next. */
static inline int64_t plim__epilogue_pitch(int64_t width)
{
    return (width + 15) / 16 * 16;
}

/* A backward pass: its arguments, and what they imply. */
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

/* Three sums over columns of a lane, each with the rows not yet joined: (6, pitch) of scratch; and
 * a seventh row for the gradient of one row of h. */
enum { PLIM__SUM_BIAS = 0, PLIM__SUM_GAMMA, PLIM__SUM_BETA, PLIM__SUMS };
#define PLIM__LANE_ROWS (2 * PLIM__SUMS + 1)
float *plim__epilogue_lane(const plim__epilogue_back_t *back, int64_t lane, int row);

/* The rows not yet joined of sums [first, end) join their lane's. */
void plim__epilogue_join(const plim__epilogue_back_t *back, int64_t lane, int first, int end);

/* Empties sums [first, end) of a lane. */
void plim__epilogue_clear(const plim__epilogue_back_t *back, int64_t lane, int first, int end);

/* Lane after lane: to[column] += sum `which`; nothing when `to` is NULL. */
void plim__epilogue_total(const plim__epilogue_back_t *back, int which, float *to);

/* The gradient before dropout and activation, of one row: dh → g (width); dresidual is written. */
void plim__epilogue_gradient(const plim__epilogue_back_t *back, int64_t row, float *g);

/* One row of dy from g. */
void plim__epilogue_store(const plim__epilogue_back_t *back, int64_t row, const float *g);

/*
 * Norms. `kept` is (rows, width) normed values, then 1/deviation of each row (layer norm) or column
 * (batch norm), then (batch norm) the mean of each column and room for lanes' sums.
 */
size_t plim__norm_kept(const plim__epilogue_t *epilogue, int64_t rows);

/* Batch norm's statistics of y + bias: what plim__norm_rows reads; moves the running ones. */
void plim__norm_statistics(plim__team_t *team, const plim__epilogue_t *epilogue, int64_t rows,
                           const float *y, float *kept);

/* Rows [begin, end), of which y is the first, become norm(y + bias). kept may be NULL outside
 * training. */
void plim__norm_rows(const plim__epilogue_t *epilogue, int64_t rows, int64_t begin, int64_t end,
                     float *y, float *kept);

void plim__norm_backward(plim__team_t *team, const plim__epilogue_back_t *back);

#endif
