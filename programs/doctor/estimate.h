/* The training that a script or its texts show, as a question to the estimate for PyTorch
 * Geometric. */
#ifndef DOCTOR_ESTIMATE_H
#define DOCTOR_ESTIMATE_H

#include "doctor/facts.h"
#include "pyg/pyg.h"

typedef struct doctor_estimate {
    const plim_job_t *job;
    plim_dataset_t *dataset; /* the graph's shape, without files */
    plim_training_t training;
    pyg_params_t pyg;
    pyg_plan_t plan; /* of the script as it is */
} doctor_estimate_t;

/* Estimates the recipe; settings that it does not show have the defaults of PyG's examples.
 * `gpu_memory` may be 0. False when the recipe lacks the graph, or the estimate refuses it. */
bool doctor_estimate_open(const plim_job_t *job, const doctor_recipe_t *recipe, int64_t gpu_memory,
                          doctor_estimate_t *estimate_out);
void doctor_estimate_close(doctor_estimate_t *estimate);

#endif
