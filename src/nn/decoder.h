/* Scores of pairs of nodes, from the rows that an encoder gives for the nodes: dot products. */
#ifndef PLIM_NN_DECODER_H
#define PLIM_NN_DECODER_H

#include "nn/team.h"

/* Pairs of rows. */
typedef struct plim__pairs {
    int64_t count;
    const int64_t *sources, *targets; /* (count) */
} plim__pairs_t;

/* rows (…, width) F32; scores_out (count). */
void plim__decode(plim__team_t *team, const plim__pairs_t *pairs, int64_t width, const float *rows,
                  float *scores_out);

/*
 * drows_out (num_rows, width), the gradient of the rows, is overwritten: the sum of what each pair
 * adds, in the order of the pairs. dscores (count).
 */
void plim__decode_backward(plim__team_t *team, const plim__pairs_t *pairs, int64_t num_rows,
                           int64_t width, const float *rows, const float *dscores,
                           float *drows_out);

#endif
