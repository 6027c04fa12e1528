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

/* Where a dataset's lists, or its rows, are while it is used. */
typedef enum plim_place {
    PLIM_PLACE_AUTO = 0, /* the planner chooses */
    PLIM_PLACE_MEMORY,
    PLIM_PLACE_DISK /* behind a cache */
} plim_place_t;

#define PLIM_CACHE_NONE (-1)

/* Choices that the caller fixes; 0: the planner chooses. */
typedef struct plim_plan_params {
    size_t size;    /* of this struct, as PLIM_PLAN_PARAMS_INIT sets it */
    int64_t memory; /* a line below the job's; 0: the job's line */
    int num_slots;  /* batches in flight */
    int64_t window; /* maximum number of steps that are sampled together */
    plim_place_t topology;
    plim_place_t rows;
    int64_t part_seeds; /* maximum seeds in a part: batches come in parts */
    int64_t part_nodes; /* its sizes, from plim_run_read: keeps the bits of a resumed run */
    int64_t part_edges;
    int64_t row_cache;   /* bytes of the row cache, or PLIM_CACHE_NONE */
    int64_t list_cache;  /* bytes of the list cache, or PLIM_CACHE_NONE */
    const char *scratch; /* directory on a local disk for the working set; NULL: none */
    bool no_reading;     /* read only dataset.json and the statistics cache */
    bool no_advice;      /* do not search for other settings that fit */
    /* Streams in addition to those over the three splits with the recipe's own settings; slots and
     * windows are made for the largest. Of a list of nodes only its length counts. */
    const plim_stream_params_t *streams; /* (num_streams) all of the first one's size */
    int num_streams;
    bool weigh_nodes; /* for expected reads, measure how often each node is needed: for each hop
                         a pass over the lists, once for a dataset and a recipe */
} plim_plan_params_t;

#define PLIM_PLAN_PARAMS_INIT                                                                      \
    {                                                                                              \
        .size = sizeof(plim_plan_params_t)                                                         \
    }

/*
 * A plan: the choices of a loader or a training under a line, and the bytes of each account. It
 * never changes; any thread may read it. It keeps its job alive.
 */
typedef struct plim_plan plim_plan_t;

/* Objects that were made by the plan do not need it any more. NULL is harmless. Any thread. */
PLIM_API void plim_plan_release(plim_plan_t *plan);

/* The phases of a run; each holds different memory. */
typedef enum plim_phase {
    PLIM_PHASE_START = 0,  /* the loader is made: the caches are chosen and filled */
    PLIM_PHASE_TRAIN,      /* steps */
    PLIM_PHASE_EVALUATE,   /* evaluation between epochs */
    PLIM_PHASE_CHECKPOINT, /* a checkpoint is written */
    PLIM_PHASE_PREDICT     /* exact prediction of all nodes afterwards, in a process of its own */
} plim_phase_t;

#define PLIM_PHASES 5

/* The figures of a plan. Bytes unless a field says otherwise. */
typedef struct plim_plan_info {
    size_t size;     /* of this struct */
    int64_t line;    /* of the plan; PLIM_LINE_NONE: none */
    int64_t peak;    /* including process and reserve */
    int64_t minimum; /* the lowest line under which the recipe runs, at most the peak. Below the
                        minimum of PyG's form, and at that of a counted plan, it depends on the
                        batches drawn */
    /* The loader. */
    plim_place_t topology, rows;
    int workers; /* threads that build batches, the caller's included */
    int slots;   /* batches in flight */
    int64_t list_cache_bytes;
    int64_t row_cache_bytes;
    int64_t window_steps; /* maximum number of steps that are sampled together */
    int64_t window_draws; /* entries of draws that a window holds */
    int64_t window_rows;  /* rows that it holds */
    int64_t ahead_draws;  /* entries drawn for several windows at once; 0: each draws for itself */
    int64_t slot_nodes;   /* capacity of a slot */
    int64_t slot_edges;
    int64_t part_seeds; /* maximum seeds in a part of a batch; 0: as many as fit a slot */
    int64_t part_nodes; /* a part with more nodes is halved; 0: slot_nodes */
    int64_t part_edges;
    bool counted; /* plim_stream_start counts the batches of an epoch */
    bool guessed; /* batch sizes are estimated from degrees, not drawn; with many graphs: the
                     largest graph is estimated from the mean */
    int io_depth; /* reads in flight */
    int64_t io_merge_bytes; /* reads closer than this are merged */
    int64_t scratch_bytes;  /* maximum disk space of the working set and of rows drawn ahead */
    /* A training; false and 0 for a loader alone. */
    bool trains;
    bool recompute; /* layers' inputs are computed again */
    plim_phase_t peak_phase;
    int64_t phase_bytes[PLIM_PHASES]; /* sums of the accounts */
    int64_t gradient_bytes;           /* that ranks exchange for a batch */
    /* Expectations; 0: unknown. */
    int64_t batch_nodes, batch_edges; /* numbers, of a batch */
    int64_t batch_bytes;              /* of its rows and blocks */
    int64_t epoch_steps;
    int64_t epoch_reads; /* their number, without evaluation */
    int64_t epoch_read_bytes;
    int64_t run_read_bytes;     /* of a training, with start and evaluations */
    int64_t disk_bytes;         /* upper bound for the run directory and scratch */
    int64_t predict_disk_bytes; /* upper bound for predicting all nodes afterwards */
} plim_plan_info_t;

#define PLIM_PLAN_INFO_INIT                                                                        \
    {                                                                                              \
        .size = sizeof(plim_plan_info_t)                                                           \
    }

/* PLIM_ERR_USAGE for an output without a size, or in a forked child. Any thread; allocates
 * nothing. */
PLIM_API plim_status_t plim_plan_info(const plim_plan_t *plan, plim_plan_info_t *info_out);

/* One account of a plan. */
typedef struct plim_plan_account {
    size_t size;                      /* of this struct */
    char name[32];                    /* "row cache" */
    int64_t bytes;                    /* its maximum over all phases */
    int64_t phase_bytes[PLIM_PHASES]; /* of a training; 0 for a loader alone */
} plim_plan_account_t;

#define PLIM_PLAN_ACCOUNT_INIT                                                                     \
    {                                                                                              \
        .size = sizeof(plim_plan_account_t)                                                        \
    }

/* The index-th account, in the order of the plan; false if there is none (or in a forked child, or
 * without a size). Any thread. */
PLIM_API bool plim_plan_account(const plim_plan_t *plan, int index,
                                plim_plan_account_t *account_out);

/*
 * Fits a loader for the recipe under the job's line; params may be NULL. The planner takes steps
 * that keep the batches: rows from disk, lists from disk, smaller windows and caches, fewer and
 * smaller slots. If batch sizes are unknown, it draws the neighbourhoods of some seeds: a second or
 * two of reading, once for a dataset and a recipe, since the result is kept in the user's cache
 * ($XDG_CACHE_HOME/plimsoll, else ~/.cache/plimsoll). Whether the loader fits, and the minimum, do
 * not depend on that; they follow from dataset.json and, with many graphs, from the largest one.
 * The process counts as at least 24 MiB, so that plans do not differ by some pages.
 *
 * The caller releases the plan. Any thread. Peak memory: below the line; the plan itself 12 KiB.
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
