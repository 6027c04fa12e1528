/* How much some seeds are expected to need. */
#ifndef PLIM_PLAN_LOAD_SIZE_H
#define PLIM_PLAN_LOAD_SIZE_H

#include "load/probe.h"
#include "store/manifest.h"

#include <plimsoll/loader.h>

/* Of a batch, or of a window of batches taken as one. */
typedef struct plim__load_size {
    int64_t nodes; /* distinct ones, seeds included */
    int64_t edges; /* places for indptr and indices of every hop */
} plim__load_size_t;

/*
 * From what dataset.json says of the graph: its degrees, counted by powers of two. Neighbours are
 * taken as drawn from all nodes alike (of a dataset without files, from those that it says), so
 * that real ones, which are drawn from fewer, meet more often.
 */
plim__load_size_t plim__load_size_expected(const plim__manifest_t *manifest,
                                           const plim_recipe_t *recipe, int64_t num_seeds);

/*
 * From a trial of at least two sizes: between them by powers, beyond them by the last power, which
 * is a little too much, since more seeds share more.
 */
plim__load_size_t plim__load_size_tried(const plim__probe_t *trial, int64_t num_seeds);

#endif
