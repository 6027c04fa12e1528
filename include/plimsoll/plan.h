/*
 * The plan: what a loader or a training will hold in memory, account by account. It fits under the
 * line, or planning fails before anything is started.
 */
#ifndef PLIMSOLL_PLAN_H
#define PLIMSOLL_PLAN_H

#include <plimsoll/loader.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the caller fixes; 0 leaves the choice to the plan. */
typedef struct plim_plan_params {
    size_t size;        /* of this struct, as PLIM_PLAN_PARAMS_INIT sets it */
    int64_t memory;     /* a line below the job's; 0: the job's line */
    int num_slots;      /* batches in flight */
    int64_t window;     /* steps that are sampled together, at most */
    int topology;       /* 1: in memory, 2: on disk */
    int rows;           /* 1: in memory, 2: on disk */
    int64_t part_seeds; /* seeds at a time, at most: batches come in parts */
    int64_t part_nodes; /* sizes of such a part, from plim_run_read: a resumed run keeps its bits */
    int64_t part_edges;
    int64_t row_cache;   /* bytes of rows kept in memory, -1: none */
    int64_t list_cache;  /* bytes of lists kept in memory, -1: none */
    const char *scratch; /* a directory on a local disk for packed cached rows; NULL: none */
    bool no_reading;     /* read nothing but dataset.json and the statistics cache */
    bool no_advice;      /* do not search for other settings that would fit */
    /* Streams besides those over the three splits with the recipe's own settings; slots and windows
     * are made for the largest. Only the length of a list of nodes counts. */
    const plim_stream_params_t *streams; /* (num_streams) all of the first one's size */
    int num_streams;
} plim_plan_params_t;

#define PLIM_PLAN_PARAMS_INIT                                                                      \
    {                                                                                              \
        sizeof(plim_plan_params_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, false, false, NULL, 0      \
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

/* Bytes: the line that it was made for (PLIM_LINE_NONE: none); the peak, process and reserve
 * included; and the minimum, the lowest line under which the recipe runs, which is at most the
 * peak.
 */
PLIM_API int64_t plim_plan_line(const plim_plan_t *plan);
PLIM_API int64_t plim_plan_peak(const plim_plan_t *plan);
PLIM_API int64_t plim_plan_minimum(const plim_plan_t *plan);

/* Batches come in parts of at most so many seeds; 0: as many as fit a slot. */
PLIM_API int64_t plim_plan_part_seeds(const plim_plan_t *plan);

/*
 * All of the plan as one JSON object: accounts, total_bytes, line_bytes (none: left out),
 * minimum_bytes (the minimum), the choices (topology and features: "memory" or "disk", workers,
 * list_cache_bytes, row_cache_bytes, window_steps, window_draws, window_rows, slots, slot_nodes,
 * slot_edges, part_seeds, part_nodes, part_edges, io_depth, io_merge_bytes, scratch_bytes),
 * guessed, and what to expect of an epoch; of a training also phases, peak_phase and recompute. The
 * text belongs to the plan.
 */
PLIM_API const char *plim_plan_json(const plim_plan_t *plan);

/*
 * Fits a loader for the recipe under the job's line; params may be NULL. The plan steps down
 * through choices that keep the batches: rows from disk, lists from disk, smaller windows and
 * caches, fewer and smaller slots. Where batch sizes would have to be guessed, the neighbourhoods
 * of some seeds are drawn: a second or two of reading, once for a dataset and a recipe, since the
 * result is kept in the user's cache ($XDG_CACHE_HOME/plimsoll, else ~/.cache/plimsoll). Whether
 * the loader fits, and the minimum, do not depend on that; they follow from dataset.json and, with
 * many graphs, from the largest one. The process counts as at least 24 MiB, so that plans do not
 * differ by some pages.
 *
 * The caller releases the plan. Any thread. Peak memory: below the line; the plan itself 20 KiB.
 * PLIM_ERR_BUDGET, with the minimum line, when nothing fits; PLIM_ERR_USAGE for params or a recipe
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
