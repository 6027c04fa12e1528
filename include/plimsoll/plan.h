/*
 * The plan: what a loader will hold in memory, account by account, so that it fits under the line
 * or says so before anything is started.
 */
#ifndef PLIMSOLL_PLAN_H
#define PLIMSOLL_PLAN_H

#include <plimsoll/loader.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What the user may insist on; 0 leaves the choice to the plan. */
typedef struct plim_plan_params {
    size_t size;        /* of this struct, as PLIM_PLAN_PARAMS_INIT sets it */
    int64_t memory;     /* stay below this many bytes in all; 0: the ledger's line */
    int num_slots;      /* batches in flight */
    int64_t window;     /* steps sampled as a whole, at most */
    int topology;       /* 1: in memory, 2: on disk */
    int rows;           /* 1: in memory, 2: on disk */
    int64_t part_seeds; /* at most so many seeds at once: batches come in parts */
    int64_t part_nodes; /* as the plan's, of a run that is to go on bit for bit */
    int64_t part_edges;
    int64_t row_cache;   /* bytes of rows kept in memory, -1: none */
    int64_t list_cache;  /* bytes of lists kept in memory, -1: none */
    const char *scratch; /* a directory on a disk of this machine for packed hot rows; NULL: none */
    bool no_reading;     /* plan by dataset.json and what is in the cache alone */
    bool no_advice;      /* a refusal need not name other settings that would fit */
    /* Streams beside those over the three splits with the recipe's own settings: slots and windows
     * are made for the largest of them. Of lists of nodes only the number counts. */
    const plim_stream_params_t *streams; /* (num_streams) all of the first one's size */
    int num_streams;
} plim_plan_params_t;

#define PLIM_PLAN_PARAMS_INIT                                                                      \
    {                                                                                              \
        sizeof(plim_plan_params_t), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, NULL, false, false, NULL, 0      \
    }

/*
 * A plan: which choices a loader or a training makes under a line, and what each account will hold.
 * It never changes once it has been made; any thread may read it. Reference-counted: it lives until
 * it was released as often as it was made and retained, and keeps its job alive.
 */
typedef struct plim_plan plim_plan_t;

PLIM_API void plim_plan_retain(plim_plan_t *plan);
PLIM_API void plim_plan_release(plim_plan_t *plan); /* NULL is harmless */

/* Bytes: the line it was made for (PLIM_LINE_NONE: none), the most that will be held under it, the
 * process included, and the lowest line under which the same recipe runs. */
PLIM_API int64_t plim_plan_line(const plim_plan_t *plan);
PLIM_API int64_t plim_plan_peak(const plim_plan_t *plan);
PLIM_API int64_t plim_plan_minimum(const plim_plan_t *plan);

/* Seeds that are built, or computed, at a time: batches come in parts of at most so many; 0: as
 * many as fit a slot. */
PLIM_API int64_t plim_plan_part_seeds(const plim_plan_t *plan);

/*
 * All of the plan as one JSON object: accounts, total_bytes, line_bytes (none: left out),
 * least_bytes, the choices (topology and features: "memory" or "disk", workers, hot_list_bytes,
 * hot_row_bytes, window_steps, window_draws, window_rows, slots, slot_nodes, slot_edges,
 * part_seeds, part_nodes, part_edges, io_depth, io_gap_bytes, scratch_bytes), guessed, and what to
 * expect of an epoch; of a training also phases, peak_phase and recompute. The text belongs to the
 * plan.
 */
PLIM_API const char *plim_plan_json(const plim_plan_t *plan);

/*
 * Fits a loader for the recipe under the ledger's line; params may be NULL: none. Steps down by
 * itself through choices that keep the batches: rows from disk, lists from disk, smaller windows
 * and caches, fewer and smaller slots. PLIM_ERR_BUDGET, with the minimum line, when nothing fits;
 * PLIM_ERR_USAGE for a recipe that the dataset cannot serve. Whether it fits, and the minimum line,
 * follow from dataset.json (of many graphs, also from the largest one's size); where sizes would
 * have to be guessed, neighbourhoods of some seeds are drawn to know them: a second or two of
 * reading, once for a dataset and a recipe, for what they came to is kept in the user's cache
 * ($XDG_CACHE_HOME/plimsoll, else ~/.cache/plimsoll). PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_NOMEM,
 * PLIM_ERR_STOPPED. The process counts as at least 24 MiB: a smaller one gets the same plan each
 * time. Peak memory: below the line.
 */
PLIM_API plim_status_t plim_load_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_recipe_t *recipe, const plim_plan_params_t *params,
                                      plim_plan_t **plan_out);

#ifdef __cplusplus
}
#endif
#endif
