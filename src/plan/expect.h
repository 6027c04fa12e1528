/*
 * What to expect of an epoch: reads and bytes, and seconds by the rates of one kind of machine. An
 * estimate, for choosing between recipes and lines; nothing is decided by it.
 */
#ifndef PLIM_PLAN_EXPECT_H
#define PLIM_PLAN_EXPECT_H

#include "load/plan_data.h"
#include "plan/load_facts.h"

#include <plimsoll/train.h>

/* Of loading alone, for a plan's choices. Pure. */
plim__expectation_t plim__load_expect(const plim__load_facts_t *facts,
                                      const plim__load_plan_t *plan);

/* Adds what the model computes to the seconds of loading, and the run directory to the disk space.
 */
void plim__train_expect(const plim_job_t *job, const plim_dataset_t *dataset,
                        const plim_training_t *training, plim__train_plan_t *plan);

#endif
