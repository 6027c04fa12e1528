/*
 * Choosing: where topology and rows lie, and how large windows, caches and slots are, so that all
 * of it fits under a line. A pure function of its arguments.
 */
#ifndef PLIM_PLAN_LOAD_FIT_H
#define PLIM_PLAN_LOAD_FIT_H

#include "load/plan_data.h"
#include "plan/load_plan.h"
#include "plan/load_size.h"
#include "store/dataset.h"

/* All streams together. */
typedef struct plim__load_streams {
    plim_recipe_t envelope; /* as the plan's */
    plim_recipe_t largest;  /* of the stream with the largest batches */
    int64_t most_seeds;     /* of the longest one */
    int64_t list_bytes;     /* that those take which bring their own seeds */
} plim__load_streams_t;

/* What is known before anything is chosen. */
typedef struct plim__load_facts {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_recipe_t *recipe; /* of the stream with the largest batches */
    const plim__load_streams_t *streams;
    const plim_plan_params_t *wishes;
    const plim__load_beside_t *beside;
    int64_t fixed;             /* on the ledger already, the reserve left out */
    int64_t epoch_seeds;       /* of the largest split */
    int64_t batch_seeds;       /* of the largest batch */
    int64_t part_seeds;        /* as many, or those of the largest part that is wanted of it */
    bool keeps_cut;            /* parts of part_seeds may take all there is, for none are smaller */
    bool modest;               /* slots and activations take at most MODEST_PERCENT of the rest */
    plim__load_size_t largest; /* nodes and edges of the largest of many graphs */
    bool largest_guessed;
    plim__load_size_t one;  /* the most that the least part of a batch can need */
    plim__load_size_t most; /* the most that part_seeds can need */
    plim__probe_t probe;    /* what some seeds came to, unless it is empty */
} plim__load_facts_t;

/* What so many seeds are expected to need: by the trial, else by what dataset.json says. */
plim__load_size_t plim__load_expected(const plim__load_facts_t *facts, int64_t num_seeds);

/* The most that so many seeds can need, whichever they are. */
plim__load_size_t plim__load_most(const plim__load_facts_t *facts, int64_t num_seeds);

/* What a slot has for so many seeds: the expected and some to spare, more of it for few seeds,
 * which differ more; so that next to none need more. */
plim__load_size_t plim__load_needed(const plim__load_facts_t *facts, int64_t num_seeds);

/* True, and the plan but for its least line, when something fits under the line. */
bool plim__load_fit(const plim__load_facts_t *facts, int64_t line, plim__load_plan_t *plan_out);

/* What stands under a line before the loader: facts->fixed and the line's reserve. */
int64_t plim__load_fixed(const plim__load_facts_t *facts, int64_t line);

/* What stands beside the loader of that plan while it is made. */
int64_t plim__load_early(const plim__load_facts_t *facts, const plim__load_plan_t *plan);

/* The smallest line under which plim__load_fit is true. */
int64_t plim__load_minimum(const plim__load_facts_t *facts);

#endif
