/* A loader's plan with something beside it that grows with its slots: a model's activations. */
#ifndef PLIM_PLAN_LOAD_PLAN_H
#define PLIM_PLAN_LOAD_PLAN_H

#include "load/plan_data.h"
#include "load/probe.h"
#include "store/dataset.h"

typedef struct plim__load_beside {
    /* Bytes that stand beside a loader of these choices; no less for larger slots. Pure. */
    int64_t (*bytes)(const void *context, const plim__load_plan_t *plan);
    const void *context;
    const void *tighter; /* another context, which takes less and computes longer; NULL: none */
    int64_t (*early)(int workers); /* of the bytes, those there while the loader is made; NULL: 0 */
    bool whole;                    /* batches may not be cut */
    bool cuts;    /* one that must be is cut at a number of seeds that the plan chooses */
    bool any_cut; /* the plan is asked only whether it cuts: one seed at a time will do */
    bool bits;    /* a cut changes the last bits of what is computed */
    bool quiet;   /* nothing is read, and nothing said but in errors */
    const plim__probe_t *known; /* where quiet: what seeds came to; NULL: what dataset.json says */
    const char *what;           /* the memory is for: "batches", "training on batches" */
    const char *remedies;       /* besides --memory: ", or …" */
} plim__load_beside_t;

/*
 * plim_load_plan with all of that under the same line, in total and least; NULL: nothing. The
 * tighter context is taken, and *tight_out true, where batches would be cut without it and are cut
 * less with it; tight_out may be NULL where there is none. Where `bits`, batches are cut as for the
 * nominal process (mem/footprint.h): if a larger process leaves no room for that, it is refused and
 * a --microbatch that fits is named.
 */
plim_status_t plim__load_plan_beside(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_recipe_t *recipe, const plim_plan_params_t *wishes,
                                     const plim__load_beside_t *beside, plim__load_plan_t *plan_out,
                                     bool *tight_out);

/* plim_load_plan, as numbers alone. */
plim_status_t plim__load_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim_recipe_t *recipe, const plim_plan_params_t *wishes,
                              plim__load_plan_t *plan_out);

/*
 * Bytes of the ledger's accounts besides the reserve. The process counts as at least the nominal
 * one, a larger one in steps of 8 MiB, so that a plan is the same from run to run.
 */
int64_t plim__plan_fixed(plim_ledger_t *ledger);

/* The line that a plan is made for: the ledger's, or less where that is wished for. */
int64_t plim__load_line(const plim_job_t *job, const plim_plan_params_t *wishes);

#endif
