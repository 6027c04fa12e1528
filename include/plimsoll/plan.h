/*
 * The plan: the memory of a loader or a training, account by account. It fits under the line, or
 * planning fails before any work starts.
 */
#ifndef PLIMSOLL_PLAN_H
#define PLIMSOLL_PLAN_H

#include <plimsoll/loader.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Choices that the caller fixes; 0: the planner chooses. */
typedef struct plim_plan_params {
    size_t size;        /* of this struct, as PLIM_PLAN_PARAMS_INIT sets it */
    int64_t memory;     /* a line below the job's; 0: the job's line */
    int num_slots;      /* batches in flight */
    int64_t window;     /* maximum number of steps that are sampled together */
    int topology;       /* 1: in memory, 2: on disk */
    int rows;           /* 1: in memory, 2: on disk */
    int64_t part_seeds; /* maximum seeds in a part: batches come in parts */
    int64_t part_nodes; /* its sizes, from plim_run_read: keeps the bits of a resumed run */
    int64_t part_edges;
    int64_t row_cache;   /* bytes of the row cache; -1: none */
    int64_t list_cache;  /* bytes of the list cache; -1: none */
    const char *scratch; /* directory on a local disk for packed cached rows; NULL: none */
    bool no_reading;     /* read only dataset.json and the statistics cache */
    bool no_advice;      /* do not search for other settings that fit */
    /* Streams besides those over the three splits with the recipe's own settings; slots and windows
     * are made for the largest. Only the length of a list of nodes counts. */
    const plim_stream_params_t *streams; /* (num_streams) all of the first one's size */
    int num_streams;
    bool weigh_nodes; /* for expected reads, measure how often each node is needed: for each hop
                         a pass over the lists, once for a dataset and a recipe */
    char reserved[3];
} plim_plan_params_t;

#define PLIM_PLAN_PARAMS_INIT                                                                      \
    {                                                                                              \
        sizeof(plim_plan_params_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, false, false, NULL, 0,     \
            false, ""                                                                              \
    }

/*
 * A plan: the choices of a loader or a training under a line, and the bytes of each account. It
 * never changes; any thread may read it. It is reference-counted and keeps its job alive. The
 * getters below allocate nothing and cannot fail; in a forked child they are 0 and "{}".
 */
typedef struct plim_plan plim_plan_t;

/* Any thread. The last release destroys the plan; NULL is harmless. */
PLIM_API void plim_plan_retain(plim_plan_t *plan);
PLIM_API void plim_plan_release(plim_plan_t *plan);

/* Bytes: the line of the plan (PLIM_LINE_NONE: none); the peak, including process and reserve; and
 * the minimum, the lowest line under which the recipe runs, which is at most the peak. Below the
 * minimum of PyG's form, and at that of a counted plan, it depends on the batches drawn. */
PLIM_API int64_t plim_plan_line(const plim_plan_t *plan);
PLIM_API int64_t plim_plan_peak(const plim_plan_t *plan);
PLIM_API int64_t plim_plan_minimum(const plim_plan_t *plan);

/* Maximum seeds in a part of a batch; 0: as many as fit a slot. */
PLIM_API int64_t plim_plan_part_seeds(const plim_plan_t *plan);

/*
 * The whole plan as one JSON object: accounts, total_bytes, line_bytes (missing without a line),
 * minimum_bytes, the choices (topology and features: "memory" or "disk", workers, list_cache_bytes,
 * row_cache_bytes, window_steps, window_draws, window_rows, slots, slot_nodes, slot_edges,
 * part_seeds, part_nodes, part_edges, io_depth, io_merge_bytes, scratch_bytes), guessed, counted
 * (plim_stream_start counts batches), and the expectations for an epoch; for a training also
 * phases, peak_phase and recompute. The text belongs to the plan.
 */
PLIM_API const char *plim_plan_json(const plim_plan_t *plan);

/*
 * Fits a loader for the recipe under the job's line; params may be NULL. The planner takes steps
 * that keep the batches: rows from disk, lists from disk, smaller windows and caches, fewer and
 * smaller slots. If batch sizes are unknown, it draws the neighbourhoods of some seeds: a second or
 * two of reading, once for a dataset and a recipe, since the result is kept in the user's cache
 * ($XDG_CACHE_HOME/plimsoll, else ~/.cache/plimsoll). Whether the loader fits, and the minimum, do
 * not depend on that; they follow from dataset.json and, with many graphs, from the largest one.
 * The process counts as at least 24 MiB, so that plans do not differ by some pages.
 *
 * The caller releases the plan. Any thread. Peak memory: below the line; the plan itself 20 KiB.
 * PLIM_ERR_BUDGET, with the minimum line, if nothing fits; PLIM_ERR_USAGE for params or a recipe
 * without a size, or a recipe that the dataset cannot serve; PLIM_ERR_IO, PLIM_ERR_DATA,
 * PLIM_ERR_NOMEM, PLIM_ERR_STOPPED.
 */
PLIM_API plim_status_t plim_load_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_recipe_t *recipe, const plim_plan_params_t *params,
                                      plim_plan_t **plan_out);

#ifdef __cplusplus
}
#endif
#endif
