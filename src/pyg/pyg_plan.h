/* The estimate of a training in PyTorch Geometric, apart from how large its batches are. */
#ifndef PLIM_PYG_PYG_PLAN_H
#define PLIM_PYG_PYG_PLAN_H

#include "load/probe.h"
#include "store/manifest.h"

#include <plimsoll/pyg.h>

/* From which the nodes and edges of a batch follow. */
typedef struct plim__pyg_sizes {
    const plim__manifest_t *manifest;
    plim_recipe_t recipe;
    plim__probe_t probe;  /* empty: only the manifest is known */
    plim__probe_t before; /* the same without the last hop */
} plim__pyg_sizes_t;

/* Distinct nodes and drawn edges of a batch of so many seeds. */
void plim__pyg_batch(const plim__pyg_sizes_t *sizes, int64_t num_seeds, double *nodes_out,
                     double *edges_out);

/* The whole estimate. Pure. */
void plim__pyg_estimate(const plim_dataset_info_t *info, const plim_training_t *training,
                        const plim_pyg_options_t *options, const plim__pyg_sizes_t *sizes,
                        plim_pyg_plan_t *plan_out);

#endif
