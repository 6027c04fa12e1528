/* Whether batches can be drawn as a recipe says: asked by the plan, and by the loader again, whose
 * plan may have been made by hand. */
#ifndef PLIM_LOAD_RECIPE_H
#define PLIM_LOAD_RECIPE_H

#include "store/dataset.h"

#include <plimsoll/loader.h>

/* PLIM_ERR_USAGE, with what would do. A recipe that passes has sizes that can be added and
 * multiplied by a few without overflow. */
plim_status_t plim__load_recipe_check(const plim_dataset_t *dataset, const plim_recipe_t *recipe);

/* Whether its batches may come in parts of so many seeds; 0: whole. PLIM_ERR_USAGE. */
plim_status_t plim__load_cut_check(const plim_recipe_t *recipe, int64_t part_seeds);

#endif
