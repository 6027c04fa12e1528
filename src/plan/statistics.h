/*
 * How large batches are: measured by drawing some seeds' neighbourhoods, which is done once and
 * kept in the user's cache, or expected by the degrees in dataset.json.
 */
#ifndef PLIM_PLAN_STATISTICS_H
#define PLIM_PLAN_STATISTICS_H

#include "load/probe.h"
#include "store/dataset.h"

/*
 * Expected by the manifest's histogram of degrees. Neighbours are taken as drawn uniformly from all
 * nodes (from `reach` of them where the manifest has that), so real batches, which meet the same
 * nodes more often, are smaller.
 */
plim__load_size_t plim__load_size_expected(const plim__manifest_t *manifest,
                                           const plim_recipe_t *recipe, int64_t num_seeds);

/*
 * Interpolated from a probe of at least two sizes by power laws. Beyond the last size this is a
 * little too much, since more seeds share more neighbours.
 */
plim__load_size_t plim__load_size_probed(const plim__probe_t *probe, int64_t num_seeds);

/*
 * The probe of a recipe: from the cache, else, if `reads`, run now and kept; the result is the
 * same. Empty, with PLIM_OK, for a dataset without files, if it is not in the cache and may not be
 * run, or if the ledger has no memory for it. Other errors as of plim__probe_run.
 */
plim_status_t plim__statistics_probe(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_recipe_t *recipe, bool reads,
                                     plim__probe_t *probe_out);

/* Which nodes a batch and an epoch of the recipe need, and how often, likewise; other errors as of
 * plim__probe_reach. */
plim_status_t plim__statistics_reach(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_recipe_t *recipe, bool reads,
                                     plim__reaches_t *reaches_out);

/* The most self-loops of a node likewise, noted in the dataset (plim__dataset_max_self_loops),
 * where dataset.json does not say; errors as of plim__offsets_create. */
plim_status_t plim__statistics_loops(const plim_job_t *job, const plim_dataset_t *dataset,
                                     bool reads);

/* The most nodes and the most edges of any graph, likewise. If they are not known they are
 * estimated as eight times the mean, and *guessed_out is true. */
plim_status_t plim__statistics_largest(const plim_job_t *job, const plim_dataset_t *dataset,
                                       bool reads, int64_t *nodes_out, int64_t *edges_out,
                                       bool *guessed_out);

#endif
