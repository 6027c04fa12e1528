/*
 * The plan of a loader, alone or with the model that uses its batches under the same line. The
 * second part is for load_plan.c, load_facts.c, load_fit.h and expect.c.
 */
#ifndef PLIM_PLAN_LOAD_PLAN_H
#define PLIM_PLAN_LOAD_PLAN_H

#include "load/plan_data.h"
#include "plan/statistics.h"

/* What happens to a batch that is too large for the line. */
typedef enum plim__load_cut_by {
    PLIM__CUT_BY_LOADER = 0, /* the loader halves it until a part fits a slot */
    PLIM__CUT_NEVER,         /* batch norm: such a line is refused */
    PLIM__CUT_BY_PLAN,       /* the plan chooses at how many seeds batches are cut */
    PLIM__CUT_AS_NOMINAL     /* the same; a cut changes the last bits of the result, so batches are
                                cut as for the nominal process (mem/headroom.h) */
} plim__load_cut_by_t;

/* The model that uses the batches: what it holds beside the loader, and how it takes batches. */
typedef struct plim__load_client {
    /* Bytes that it holds besides a loader of this plan; no less for larger slots. Pure. */
    int64_t (*bytes)(const void *context, const plim__load_plan_t *plan);
    const void *context;
    const void *tighter; /* another context, which holds less and computes longer; NULL: none */
    int64_t (*early)(int workers); /* bytes of these held before the loader is made; NULL: 0 */
    plim__load_cut_by_t cut_by;
    bool any_cut; /* a batch that does not fit whole is cut into single seeds: the caller only asks
                     whether it fits whole */
    bool quiet;   /* read nothing and log nothing */
    const plim__load_plan_t *old;      /* of a loader that is made again, and … */
    const plim__load_remade_t *remade; /* … what it needs; NULL: a new loader */
    /* One more stream, NULL: none. Its batches may come in parts of any size, so that only the
     * smallest part must fit. */
    const plim_stream_params_t *evaluation;
    const plim__probe_t *known; /* of an alternative: sizes of batches; NULL: not known */
    const char *what;           /* for messages: "batches", "training on batches" */
    bool one;                   /* `what` is singular */
    const char *remedies;       /* besides `memory`: ", or …" */
} plim__load_client_t;

static inline bool plim__load_plan_cuts(const plim__load_client_t *client)
{
    return client->cut_by == PLIM__CUT_BY_PLAN || client->cut_by == PLIM__CUT_AS_NOMINAL;
}

/*
 * plim_load_plan with the client's memory in total and minimum; NULL: no client. The plan takes the
 * client's tighter context, and sets *tight_out (may be NULL without one), where that cuts batches
 * less. With PLIM__CUT_AS_NOMINAL a process larger than the nominal one that has no memory for such
 * parts is refused, and the message names a `microbatch` that fits.
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

/* What is known before anything is chosen: the streams, the line, sizes of batches, and the model
 * that uses them. */

/* All streams together. */
typedef struct plim__load_streams {
    plim_recipe_t envelope; /* as the plan's */
    plim_recipe_t largest;  /* recipe of the stream with the largest batches */
    int64_t most_seeds;     /* of the longest stream */
    int64_t list_bytes;     /* for the seeds of streams that bring their own */
    bool links;             /* one has links … */
    bool looks_up;          /* … whose negatives are looked up in the lists */
} plim__load_streams_t;

/* Facts about one plan. It borrows all that it points to. */
typedef struct plim__load_facts {
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_recipe_t *recipe; /* of the stream with the largest batches */
    const plim__load_streams_t *streams;
    const plim_plan_params_t *params;
    const plim__load_client_t *client;
    int64_t line;
    int64_t fixed;             /* bytes on the ledger already, without the reserve */
    int64_t epoch_seeds;       /* of the longest stream */
    int64_t batch_seeds;       /* of the largest batch */
    int64_t part_seeds;        /* seeds computed at a time, at most batch_seeds */
    bool keeps_cut;            /* part_seeds may not become fewer: slots take what they need */
    bool slots_only;           /* the caller reads only slots and arrangement of the plan */
    bool modest;               /* slots and model take at most MODEST_PERCENT of the free memory */
    plim__load_size_t largest; /* the largest graph of a dataset of many */
    bool largest_guessed;
    bool counted;           /* as the plan's */
    plim__load_size_t slot; /* the least size of one, of a loader that is made again */
    plim__load_size_t one;  /* upper bound for the smallest part of a batch, or, when batches are
                               counted, a usual batch; not measured: lower bound for a batch */
    plim__load_size_t most; /* upper bound for part_seeds seeds */
    plim__probe_t probe;    /* measured sizes of batches; empty: not measured */
} plim__load_facts_t;

/* Size that `num_seeds` seeds are expected to need, by the probe, else by dataset.json. */
plim__load_size_t plim__load_expected(const plim__load_facts_t *facts, int64_t num_seeds);

/* Upper bound of the size, whichever seeds they are. */
plim__load_size_t plim__load_most(const plim__load_facts_t *facts, int64_t num_seeds);

/* Size of a slot for `num_seeds` seeds: the expected one and a margin, larger for few seeds, whose
 * sizes vary more. */
plim__load_size_t plim__load_needed(const plim__load_facts_t *facts, int64_t num_seeds);

/* Bytes in whole MiB, rounded up: a line as messages name it. */
int64_t plim__whole_mib(int64_t bytes);

/*
 * Bytes of the ledger's accounts without the reserve and `released` bytes. The process counts as at
 * least the nominal one with the transport's memory, in steps of 8 MiB, so that a plan is the same
 * from run to run.
 */
int64_t plim__plan_fixed(const plim_job_t *job, int64_t released);

/* The line that a plan is made for: the ledger's, or params->memory if that is less. */
int64_t plim__load_line(const plim_job_t *job, const plim_plan_params_t *params);

/* Whether the plan may read the dataset. */
bool plim__load_may_read(const plim__load_facts_t *facts);

/* Finds `one` and `most` again, after `counted` or `slot` changed. */
plim_status_t plim__load_bounds_find(plim__load_facts_t *facts);

/* The same facts for batches that are cut at `seeds` seeds. */
plim__load_facts_t plim__load_cut_at(const plim__load_facts_t *facts, int64_t seeds);

/*
 * Checks recipe and params, and finds the facts; the facts point to *streams_out. Errors of
 * plim_load_plan.
 */
plim_status_t plim__load_facts_find(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim_recipe_t *recipe, const plim_plan_params_t *params,
                                    const plim__load_client_t *client,
                                    plim__load_streams_t *streams_out,
                                    plim__load_facts_t *facts_out);

/*
 * Fits a loader (load_fit.h): chooses where topology and rows lie and how large windows, caches and
 * slots are, and adds up what the choices cost. Pure functions of their arguments.
 */

/* True, and all of the plan but its minimum, when something fits under facts->line. */
bool plim__load_fit(const plim__load_facts_t *facts, plim__load_plan_t *plan_out);

/* Bytes under the line before the loader: facts->fixed and the line's reserve. */
int64_t plim__load_fixed(const plim__load_facts_t *facts);

/* Bytes that the client holds while the loader of that plan is made. */
int64_t plim__load_early(const plim__load_facts_t *facts, const plim__load_plan_t *plan);

/* The smallest line under which plim__load_fit is true. */
int64_t plim__load_minimum(const plim__load_facts_t *facts);

/* Of loading alone, what to expect of a plan's recipe and choices: sets plan->expect (expect.c). */
void plim__load_expect(const plim_dataset_t *dataset, plim__load_plan_t *plan);

#endif
