/*
 * What to expect of a run: sizes of batches, reads and disk space, for choosing between recipes and
 * lines. Nothing is decided by it. Seconds come by trial (train/trial.c).
 */
#ifndef PLIM_PLAN_EXPECT_H
#define PLIM_PLAN_EXPECT_H

#include "infer/exact.h"
#include "load/plan_data.h"

#include <plimsoll/train.h>

/* Of loading alone, for a plan's recipe and choices: sets plan->expect. */
void plim__load_expect(const plim_dataset_t *dataset, plim__load_plan_t *plan);

/* Of a whole training: completes plan->expect, which is the loader's. `exact`: with exact
 * evaluations, the cost of one. */
void plim__train_expect(const plim_dataset_t *dataset, const plim_training_t *training,
                        const plim__exact_cost_t *exact, plim__train_plan_t *plan);

#endif
