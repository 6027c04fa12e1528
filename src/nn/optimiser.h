/* Optimisers and learning-rate schedules, as in PyTorch. */
#ifndef PLIM_NN_OPTIMISER_H
#define PLIM_NN_OPTIMISER_H

#include "nn/team.h"

#include <plimsoll/train.h>

#define PLIM__NAME_MAX 96

/* A learnt tensor or a buffer. Its values are in the model's arrays (plim__model_arrays). */
typedef struct plim__parameter {
    char name[PLIM__NAME_MAX]; /* PyG's name: "convs.0.lin_l.weight" */
    int num_dims;
    int64_t shape[4];
    int64_t count;
    float *value;
    float *gradient;  /* NULL: a buffer, saved but not learnt (running_mean) */
    float *moment[2]; /* optimiser moments: Adam's exp_avg, exp_avg_sq; SGD's momentum; else NULL */
} plim__parameter_t;

/* Number of moments for each value: 0, 1 or 2. */
int plim__optimiser_moments(const plim_optimiser_t *optimiser);

/* The learning rate at an epoch (from 0) of `epochs`. */
double plim__schedule_rate(const plim_optimiser_t *optimiser, int64_t epoch, int64_t epochs);

/* The Euclidean norm of all gradients, added in a fixed order. */
double plim__gradient_norm(plim__team_t *team, const plim__parameter_t *parameters, int count);

/*
 * Makes step number `step` (from 1) and zeroes the gradients, which are scaled down to clip_norm if
 * they are longer (0: never). Arithmetic of torch.optim's single-tensor forms.
 */
void plim__optimiser_step(plim__team_t *team, const plim_optimiser_t *optimiser, double rate,
                          int64_t step, plim__parameter_t *parameters, int count);

#endif
