/* The plan of a loader, alone or with the model that uses its batches under the same line. */
#ifndef PLIM_PLAN_LOAD_PLAN_H
#define PLIM_PLAN_LOAD_PLAN_H

#include "plan/load_facts.h"

/*
 * plim_load_plan with the client's memory in total and minimum; NULL: no client. The plan takes the
 * client's tighter context, and sets *tight_out (may be NULL without one), where that cuts batches
 * less. Where the cut decides bits, batches are cut as for the nominal process (mem/headroom.h); a
 * larger process that has no memory for such parts is refused, and the message names a --microbatch
 * that fits.
 */
plim_status_t plim__load_plan_for(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim_recipe_t *recipe, const plim_plan_params_t *params,
                                  const plim__load_client_t *client, plim__load_plan_t *plan_out,
                                  bool *tight_out);

/* The `again` of every plan (load/plan_data.h). */
plim_status_t plim__load_plan_again(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__load_plan_t *old, const plim__load_remade_t *remade,
                                    plim__load_plan_t *plan_out);

/*
 * Alternatives, which are compared and not planned: whether the loader fits beside its client under
 * `line`, and the smallest such line, or else whole MiB above it; 0 for none. `whole`: with as many
 * seeds at a time as asked for. params->memory is not looked at.
 */
bool plim__load_fits(const plim_job_t *job, const plim_dataset_t *dataset,
                     const plim_recipe_t *recipe, const plim_plan_params_t *params,
                     const plim__load_client_t *client, int64_t line, bool whole);
int64_t plim__load_minimum_for(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_recipe_t *recipe, const plim_plan_params_t *params,
                               const plim__load_client_t *client, bool whole);

/* plim_load_plan, as numbers alone. */
plim_status_t plim__load_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_recipe_t *recipe, const plim_plan_params_t *params,
                              plim__load_plan_t *plan_out);

#endif
