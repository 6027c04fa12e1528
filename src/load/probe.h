/*
 * A trial: neighbourhoods of some training seeds drawn for real, to see how large they are. What
 * dataset.json says of degrees bounds this, but which nodes are drawn again and again, and how long
 * the lists of those are, only drawing shows.
 */
#ifndef PLIM_LOAD_PROBE_H
#define PLIM_LOAD_PROBE_H

#include "store/dataset.h"

#include <plimsoll/loader.h>

#define PLIM__PROBE_SIZES 3

/* What the seeds of one trial came to, taken as one batch. */
typedef struct plim__probe_size {
    int64_t seeds;
    int64_t nodes;
    int64_t edges; /* places for indptr and indices of every hop */
} plim__probe_size_t;

typedef struct plim__probe {
    int count;
    plim__probe_size_t sizes[PLIM__PROBE_SIZES]; /* ascending by seeds */
} plim__probe_t;

/* What a trial holds while it runs; SIZE_MAX when none is possible. */
size_t plim__probe_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                            const plim_recipe_t *recipe);

/*
 * Draws for a few numbers of seeds, spread over the training split, each four times the one before,
 * from lists on disk. The result depends on the dataset and on how the recipe
 * draws alone, not on its seed. PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_STOPPED.
 */
plim_status_t plim__probe_run(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_recipe_t *recipe, plim__probe_t *trial_out);

#endif
