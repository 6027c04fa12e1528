/* What training holds beside its loader: one place for the plan and for those who make it. */
#ifndef PLIM_PLAN_TRAIN_COST_H
#define PLIM_PLAN_TRAIN_COST_H

#include "load/plan_data.h"
#include "nn/model.h"

/*
 * What src/train holds that grows with nothing: the trainer's own tables, an open run's, and what
 * writing a checkpoint takes besides plim__safetensors_estimate. The plan may not ask src/train,
 * which stands above it, so that is bounded here and compared by a test.
 */
#define PLIM__TRAINER_BYTES ((size_t)256 << 10)

/*
 * The model for the largest part that a slot of the plan can hold, whether cut by part_seeds or for
 * want of room. `training`: as plim__model_params_t; a team of `workers`.
 */
plim__model_params_t plim__train_model_params(const plim_dataset_info_t *info,
                                              const plim_training_t *settings,
                                              const plim__load_plan_t *plan, bool training,
                                              int workers);

/* Rows of outputs of a part, and their gradient beside them: the trainer's scratch. */
size_t plim__train_scratch_bytes(const plim__model_params_t *params);

/* Of the whole, what is there before the loader: the team and the open run. */
int64_t plim__train_early(int workers);

/* All of it, `training` as above, account by account in each phase (at most PLIM__TRAIN_ACCOUNTS;
 * NULL when not wanted); saturates at INT64_MAX. */
#define PLIM__TRAIN_ACCOUNTS 7
int64_t plim__train_cost(const plim_dataset_info_t *info, const plim_training_t *settings,
                         const plim__load_plan_t *plan, bool training,
                         plim__plan_account_t *accounts_out, int *num_accounts_out);

#endif
