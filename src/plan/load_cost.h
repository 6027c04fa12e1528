/* What a loader costs, account by account, for given choices. */
#ifndef PLIM_PLAN_LOAD_COST_H
#define PLIM_PLAN_LOAD_COST_H

#include "load/plan_data.h"
#include "store/dataset.h"

/*
 * Fills the plan's accounts and `start` from its choices, and returns the accounts' sum. More than
 * that may be held while the loader is made: `start` is the most of that time, and the accounts'
 * phase[PLIM__PHASE_START] is what they have of it. Saturates at INT64_MAX. What stands on the
 * ledger already is not in it.
 */
int64_t plim__load_cost(const plim_job_t *job, const plim_dataset_t *dataset,
                        plim__load_plan_t *plan);

/* What so many bytes take, in whole pages; SIZE_MAX, of an estimate that there is none, is
 * INT64_MAX. */
int64_t plim__cost_pages(size_t bytes);

#endif
