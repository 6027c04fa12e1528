/* What was read of a dataset for a plan, kept for the next one: sizes of drawn neighbourhoods, and
 * of the largest of many graphs. */
#ifndef PLIM_PLAN_STATISTICS_H
#define PLIM_PLAN_STATISTICS_H

#include "load/probe.h"
#include "store/dataset.h"

/*
 * The trial of that recipe: from the cache, else, where `reads` allows it, run now and kept. The
 * same either way. A dataset without files has none. Empty, and PLIM_OK, when there is
 * none or the ledger has no room for it; else errors as of plim__probe_run.
 */
plim_status_t plim__statistics_probe(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_recipe_t *recipe, bool reads,
                                     plim__probe_t *trial_out);

/* Nodes and edges of the largest graph likewise; taken as eight times the mean, *guessed_out, where
 * they are not known. */
plim_status_t plim__statistics_largest(const plim_job_t *job, const plim_dataset_t *dataset,
                                       bool reads, int64_t *nodes_out, int64_t *edges_out,
                                       bool *guessed_out);

#endif
