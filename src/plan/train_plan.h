/* The plans of a training and of an evaluation, as numbers. */
#ifndef PLIM_PLAN_TRAIN_PLAN_H
#define PLIM_PLAN_TRAIN_PLAN_H

#include "load/plan_data.h"
#include "load/probe.h"
#include "store/dataset.h"

#include <plimsoll/train.h>

/* plim_train_plan, as numbers alone. */
plim_status_t plim__train_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_training_t *training, const plim_plan_params_t *wishes,
                               plim__train_plan_t *plan_out);

/* As plim_train_plan, for a model that only computes batches forward: no gradients, no moments, no
 * layers kept. Batches may be cut whatever the norm. */
plim_status_t plim__evaluation_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim_training_t *training, plim__train_plan_t *plan_out);

/* As plim_train_plan for training alone, without what comes afterwards; nothing is read and nothing
 * said. Batches that must be cut are cut into single seeds: no larger cut is looked for. `known`:
 * what seeds of this recipe come to; NULL: what dataset.json says. */
plim_status_t plim__train_plan_quiet(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_training_t *training,
                                     const plim_plan_params_t *wishes, const plim__probe_t *known,
                                     plim__train_plan_t *plan_out);

/* As plim__evaluation_plan, under that line; nothing is read and nothing said. */
plim_status_t plim__evaluation_plan_quiet(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const plim_training_t *training, int64_t memory,
                                          plim__train_plan_t *plan_out);

#endif
