/* The accounts of a whole run, in each of its phases, under the names that users know. */
#ifndef PLIM_PLAN_TRAIN_ACCOUNTS_H
#define PLIM_PLAN_TRAIN_ACCOUNTS_H

#include "load/plan_data.h"
#include <plimsoll/train.h>

/*
 * Adds accounts to the plan's: those that users need not tell apart under one name, phase by phase.
 * What stands on the ledger already, and will in a later process too, is there in every phase.
 */
void plim__train_accounts_add(plim__train_plan_t *plan, const plim__plan_account_t *accounts,
                              int count);

/* Adds bytes of one phase to the account of that name. */
void plim__train_accounts_enter(plim__train_plan_t *plan, const char *name, plim__phase_t phase,
                                int64_t bytes);

/* The phases' sums, the greatest of them as the total, and each account's most. Prediction does not
 * count where it is past the line: training fits without it. */
void plim__train_accounts_sum(plim__train_plan_t *plan);

#endif
