/* Checks a training's settings against a dataset, and derives outputs and recipe from both. */
#ifndef PLIM_PLAN_PLAN_SETTINGS_H
#define PLIM_PLAN_PLAN_SETTINGS_H

#include "store/dataset.h"

#include <plimsoll/train.h>

/* PLIM_ERR_USAGE names settings that do not fit together, and ones that would;
 * PLIM_ERR_UNSUPPORTED for graphs whose ids need 64 bits. */
plim_status_t plim__plan_settings_check(const plim_dataset_t *dataset,
                                        const plim_training_t *training);

/* Columns of the model's outputs. */
int64_t plim__plan_settings_outputs(const plim_dataset_info_t *info);

/* The recipe of the training's batches: what the model decides is set here. */
plim_recipe_t plim__plan_settings_recipe(const plim_dataset_info_t *info,
                                         const plim_training_t *training);

#endif
