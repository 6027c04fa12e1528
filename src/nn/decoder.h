/*
 * Scores of pairs of nodes from the rows that a model computes for the nodes. Without a decoder a
 * score is the dot product of the two rows. A decoder learns a function of their product, element
 * by element: PyG's MLP([width, width, 1], norm=None), or DistMult, the dot product with a vector
 * of the pair's type.
 */
#ifndef PLIM_NN_DECODER_H
#define PLIM_NN_DECODER_H

#include "nn/model.h"

#include <stdbool.h>

/* Pairs of rows. */
typedef struct plim__pairs {
    int64_t count;
    const int64_t *sources, *targets; /* (count) */
    const int64_t *types;             /* (num_typed) of pair i types[i % num_typed]; NULL: 0 */
    int64_t num_typed;
} plim__pairs_t;

/* A decoder that learns. Its parameters are those of a model, "decoder.lins.0.weight" and so on, or
 * "decoder.rel_emb.weight". */
typedef struct plim__decoder plim__decoder_t;

typedef struct plim__decoder_params {
    plim__scorer_t scorer; /* not of dot products */
    int64_t width;         /* of the rows */
    int64_t max_pairs;     /* of a call */
    bool training;         /* with gradients */
    int workers;           /* the team's size */
} plim__decoder_params_t;

size_t plim__decoder_estimate(const plim__decoder_params_t *params);

/* `parameters` are the model's, which outlives the decoder. PLIM_ERR_BUDGET, PLIM_ERR_NOMEM,
 * PLIM_ERR_UNSUPPORTED. */
plim_status_t plim__decoder_create(plim_ledger_t *ledger, const plim__decoder_params_t *params,
                                   const plim__parameter_t *parameters, int num_parameters,
                                   plim__decoder_t **decoder_out);
void plim__decoder_destroy(plim__decoder_t *decoder);

/* PLIM_ERR_NOMEM if a product has failed since the last call: its results are then invalid. */
plim_status_t plim__decoder_check(const plim__decoder_t *decoder);

/* rows (…, width) F32; scores_out (count). `decoder` NULL: dot products. */
void plim__decode(plim__team_t *team, plim__decoder_t *decoder, const plim__pairs_t *pairs,
                  int64_t width, const float *rows, float *scores_out);

/*
 * drows_out (num_rows, width), the gradient of the rows, is overwritten: the sum of what each pair
 * adds, in the order of the pairs. dscores (count). Adds to the gradients of the decoder's
 * parameters, after plim__decode of the same pairs.
 */
void plim__decode_backward(plim__team_t *team, plim__decoder_t *decoder, const plim__pairs_t *pairs,
                           int64_t num_rows, int64_t width, const float *rows, const float *dscores,
                           float *drows_out);

#endif
