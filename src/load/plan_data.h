/*
 * The numbers of a plan, for a loader and for a whole training run, and the object that the public
 * API hands out. The planner (src/plan) fills them in; the loader and the trainer read them.
 */
#ifndef PLIM_LOAD_PLAN_DATA_H
#define PLIM_LOAD_PLAN_DATA_H

#include "base/job.h"
#include "load/probe.h"
#include "mem/arena.h"
#include "source/working_set.h"

#include <plimsoll/plan.h>

#define PLIM__PLAN_ACCOUNTS 24

typedef struct plim__plan_account {
    char name[32];
    int64_t bytes;              /* the most over all phases */
    int64_t phase[PLIM_PHASES]; /* in each of them */
} plim__plan_account_t;

/* The account of that name among `*count`, a new one where there is none. A full table counts the
 * name to its last account, so that no bytes are lost. */
plim__plan_account_t *plim__plan_account(plim__plan_account_t accounts[PLIM__PLAN_ACCOUNTS],
                                         int *count, const char *name);

/* What the plan expects of a run; 0 = unknown. */
typedef struct plim__expectation {
    int64_t batch_nodes, batch_edges; /* of a batch */
    int64_t batch_bytes;              /* of its rows and blocks */
    int64_t epoch_steps;
    int64_t epoch_reads, epoch_read_bytes; /* without evaluation */
    int64_t run_read_bytes;                /* with start and evaluations */
    int64_t disk_bytes;                    /* upper bound for the run directory and scratch */
    int64_t predict_disk_bytes;            /* upper bound for predicting all nodes afterwards */
} plim__expectation_t;

/* Bytes between two wanted places that are read as one. Below four pages most reads stay single,
 * above them most bytes read are not wanted: 12 to 64 KiB were measured as best on one disk within
 * an hour, as its host throttled requests or bytes. */
#define PLIM__MERGE_DISTANCE ((size_t)16 << 10)

typedef struct plim__load_plan plim__load_plan_t;

#define PLIM__LOAD_WAYS 4

/* What a loader that is made again needs: one more stream, or larger slots. */
typedef struct plim__load_remade {
    const plim_stream_params_t *stream; /* one more; NULL: none */
    int64_t bytes;      /* on the ledger, released before the loader is made again */
    int64_t list_bytes; /* planned for seeds of streams that were not added yet */
    bool held;          /* a batch that the caller holds keeps the old slots */
    const char *what;   /* for messages; NULL: "batches" */
    int num_ways;
    struct {
        int num_slots;          /* 0: as the planner likes */
        plim__load_size_t slot; /* its least size */
    } ways[PLIM__LOAD_WAYS];    /* the first that fits is taken */
} plim__load_remade_t;

/* The choices for a loader, and their memory. */
struct plim__load_plan {
    /* Plans a loader of `plan` again under the same line; the cut of batches stays. It reads
     * nothing, since the loader still has its memory. PLIM_ERR_BUDGET. The planner, which stands
     * above src/load, sets it. */
    plim_status_t (*again)(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim__load_plan_t *plan, const plim__load_remade_t *remade,
                           plim__load_plan_t *plan_out);
    char fingerprint[17]; /* of the dataset */
    plim_recipe_t recipe;
    /* Slots, windows and workers are made for this recipe: over all streams the largest batch, the
     * most hops and the largest fan-out of each. batch_size 0: the recipe itself. */
    plim_recipe_t envelope;
    int64_t most_seeds; /* of the longest stream; 0: of the largest split */
    int64_t list_bytes; /* of the seed lists of planned streams */
    bool links;         /* a stream has links: slots have arrays for them */
    bool looks_up;      /* negatives of one are looked up: workers have memory for it */
    int workers;        /* threads that build batches, the caller's included */
    bool topology_in_memory;
    bool offsets_on_disk; /* read where they are needed: without caches, columns and edge ids */
    bool rows_in_memory;
    unsigned columns_in_memory; /* a set of plim_column_t: those of the recipe's that are */
    size_t list_cache_bytes;
    size_t row_cache_bytes;
    bool shared; /* the loader divides the memory of caches and windows by access probability */
    int64_t window_steps; /* the most steps of a window */
    int64_t cache_steps;  /* about the steps that a window will have: caches are chosen for them */
    int64_t window_draws; /* capacity of a window: entries of draws … */
    int64_t window_rows;  /* … and rows */
    bool window_sparse;   /* their sets have lines only where they have members */
    int64_t ahead_draws;  /* capacity for the draws of several windows at once; 0: none */
    int64_t ahead_rows;   /* the most distinct rows that these windows need */
    int64_t
        bucket_bytes; /* their buckets in scratch: each row once for each window that needs it */
    int num_slots;
    int64_t slot_nodes; /* capacity of a slot */
    int64_t slot_edges;
    int64_t part_seeds; /* the most seeds of a part; 0: as many as fit a slot */
    int64_t part_nodes; /* a part with more nodes is halved even if it fits the slot, so that the
                           cut, and with it the bits, follows from the recipe; 0: slot_nodes */
    int64_t part_edges;
    bool counted; /* PyG's form: a slot may be smaller than the largest batch possible, so the
                     batches of an epoch are counted before it begins, and slots made larger if
                     needed */
    bool guessed; /* batch sizes are estimated from degrees, not drawn; with many graphs: the
                     largest graph is estimated from the mean */
    int io_depth;
    size_t merge_distance;
    char scratch[512];            /* "" : none */
    plim__working_size_t working; /* the most of a working set there; no rows: none is made */
    int64_t scratch_bytes;        /* most disk space of it */
    int64_t start;                /* peak of the loader's own memory while it is created */
    int64_t checkpoint_bytes;     /* that a trainer takes while it saves or resumes */
    plim__probe_t probe;          /* measured sizes of batches, for `expect`; empty: none */
    plim__reaches_t reaches;      /* measured, for `expect` */
    plim__expectation_t expect;   /* of loading alone */
    int64_t total;                /* memory in all, the process included */
    int64_t line;
    int64_t minimum; /* the smallest line under which this recipe runs */
    int num_accounts;
    int num_held; /* the first of them are reserved on the ledger already */
    plim__plan_account_t accounts[PLIM__PLAN_ACCOUNTS];
};

/* The plan of a training run: loader, model, optimiser, activations, checkpoint, evaluation. */
typedef struct plim__train_plan {
    plim__load_plan_t load;
    int num_accounts;
    plim__plan_account_t accounts[PLIM__PLAN_ACCOUNTS]; /* with the loader's */
    int64_t phase[PLIM_PHASES];                         /* sums of the accounts */
    plim_phase_t peak_phase;                            /* the one of `total` */
    int64_t total, line, minimum;
    int64_t model_bytes;           /* besides the loader's, over all phases */
    int64_t gradient_bytes;        /* that ranks exchange for a batch */
    bool recompute;                /* model.recompute, or chosen to fit larger parts of batches */
    int64_t evaluation_disk_bytes; /* upper bound for an exact evaluation between epochs */
    plim__expectation_t expect;
} plim__train_plan_t;

/* The public object. Its numbers are constant once it is handed out. */
struct plim_plan {
    pid_t process;
    plim_job_t job; /* retained */
    plim__arena_t arena;
    bool trains; /* false: only `numbers.load` is set */
    plim__train_plan_t numbers;
};

/*
 * Creates an empty plan, account "plan", before the numbers are computed, so that they include it.
 * PLIM_ERR_BUDGET, PLIM_ERR_NOMEM.
 */
plim_status_t plim__plan_create(const plim_job_t *job, plim_plan_t **plan_out);

/* PLIM_ERR_USAGE if the plan is for another dataset. */
plim_status_t plim__plan_check_dataset(const plim_plan_t *plan, const plim_dataset_info_t *info);

#endif
