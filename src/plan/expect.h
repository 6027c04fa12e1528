/*
 * What to expect of a run: sizes of batches, reads, and seconds by the rates of a machine
 * (plan/rates.h). An estimate, for choosing between recipes and lines and for a scheduler; nothing
 * is decided by it.
 */
#ifndef PLIM_PLAN_EXPECT_H
#define PLIM_PLAN_EXPECT_H

#include "infer/exact.h"
#include "load/plan_data.h"
#include "plan/rates.h"

#include <plimsoll/train.h>

/* Of loading alone, for a plan's recipe and choices: sets plan->expect. */
void plim__load_expect(const plim_job_t *job, const plim_dataset_t *dataset,
                       const plim__rates_t *rates, plim__load_plan_t *plan);

/* Of a whole training: sets plan->expect from the loader's. `exact`: with exact evaluations, the
 * cost of one. */
void plim__train_expect(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, const plim__rates_t *rates,
                        const plim__exact_cost_t *exact, plim__train_plan_t *plan);

#endif
