/* What a loader costs, account by account, for given choices. */
#ifndef PLIM_PLAN_LOAD_COST_H
#define PLIM_PLAN_LOAD_COST_H

#include "store/dataset.h"

#include <plimsoll/plan.h>

/*
 * Fills the plan's accounts from its choices, and returns the most that is held at one time, which
 * may be while the loader is made. Saturates at INT64_MAX. What stands on the ledger already is not
 * in it.
 */
int64_t plim__load_cost(const plim_job_t *job, const plim_dataset_t *dataset,
                        plim_load_plan_t *plan);

#endif
