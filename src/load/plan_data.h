/*
 * What a plan consists of: the choices and sizes of a loader, those of a whole training, and the
 * object that the public API hands out. The planner (src/plan) fills them; the loader and the
 * trainer read them.
 */
#ifndef PLIM_LOAD_PLAN_DATA_H
#define PLIM_LOAD_PLAN_DATA_H

#include "base/job.h"
#include "mem/arena.h"

#include <plimsoll/plan.h>
#include <stdatomic.h>

/* The phases of a run; each holds different memory. */
typedef enum plim__phase {
    PLIM__PHASE_START = 0,  /* the loader is made: the caches are chosen and filled */
    PLIM__PHASE_TRAIN,      /* steps */
    PLIM__PHASE_EVALUATE,   /* sampled evaluation between epochs */
    PLIM__PHASE_CHECKPOINT, /* a checkpoint is written */
    PLIM__PHASE_PREDICT     /* exact prediction of all nodes afterwards, in a process of its own */
} plim__phase_t;

#define PLIM__PHASES 5

#define PLIM__PLAN_ACCOUNTS 24

typedef struct plim__plan_account {
    char name[32];
    int64_t bytes;               /* the most over all phases */
    int64_t phase[PLIM__PHASES]; /* in each of them */
} plim__plan_account_t;

/* What to expect of a run; 0 where nothing is known. */
typedef struct plim__expectation {
    int64_t batch_nodes, batch_edges; /* of a batch */
    int64_t batch_bytes;              /* of its rows and blocks */
    int64_t epoch_steps;
    int64_t epoch_reads, epoch_read_bytes; /* of training alone */
    double epoch_seconds;                  /* of training alone */
    int64_t disk_bytes; /* that the run directory, scratch and prediction take, at most */
} plim__expectation_t;

/* A loader's choices and what they cost. */
typedef struct plim__load_plan {
    plim_recipe_t recipe;
    /* What slots, windows and workers are made for: of all streams the largest batch, the most hops
     * and the largest fan-out of each. batch_size 0: the recipe itself. */
    plim_recipe_t envelope;
    int64_t most_seeds; /* of the longest stream; 0: of the largest split */
    int64_t list_bytes; /* of the lists that planned streams bring */
    int workers;        /* threads that build batches, the caller's included */
    bool topology_in_memory;
    bool rows_in_memory;
    size_t list_cache_bytes;
    size_t row_cache_bytes;
    bool shared; /* hot lists, hot rows and the windows' rows share their room: what is worth
                    keeping decides, once that is known */
    int64_t window_steps; /* at most so many at once */
    int64_t window_draws; /* entries that a window's draws may take */
    int64_t window_rows;  /* rows that a window may hold */
    int num_slots;
    int64_t slot_nodes; /* capacity of a slot */
    int64_t slot_edges;
    int64_t part_seeds; /* at most so many in a part; 0: as many as fit a slot */
    int64_t part_nodes; /* seeds that need more than this are halved, whatever a slot has room for:
                           the cut, and with it the bits, is the recipe's; 0: what a slot holds */
    int64_t part_edges;
    bool guessed; /* how large batches are follows from degrees: none were drawn; of
                     many graphs: how large the largest is follows from the mean */
    int io_depth;
    size_t merge_distance;
    char scratch[512];          /* "" : none */
    int64_t scratch_bytes;      /* disk space that packed hot rows will take there, at most */
    int64_t start;              /* of the loader's own, the most while it is made */
    plim__expectation_t expect; /* of loading alone */
    int64_t total;              /* memory in all, the process included */
    int64_t line;
    int64_t minimum; /* the least line under which this recipe runs */
    int num_accounts;
    int num_held; /* the first of them stand on the ledger already */
    plim__plan_account_t accounts[PLIM__PLAN_ACCOUNTS];
} plim__load_plan_t;

/*
 * A whole run's plan: the loader's and, beside it, model, optimiser, activations, checkpoint and
 * evaluation.
 */
typedef struct plim__train_plan {
    plim__load_plan_t load;
    int num_accounts;
    plim__plan_account_t accounts[PLIM__PLAN_ACCOUNTS]; /* all, the loader's included */
    int64_t phase[PLIM__PHASES];                        /* sums of the accounts */
    plim__phase_t peak_phase;                           /* the one of `total` */
    int64_t total, line, minimum;
    bool recompute; /* model.recompute, or chosen so that larger parts of batches fit */
    plim__expectation_t expect;
} plim__train_plan_t;

/* The public object. Its numbers do not change once it has been made. */
struct plim_plan {
    pid_t process;
    plim_job_t job; /* retained */
    plim__arena_t arena;
    atomic_int references;
    bool trains; /* else only `numbers.load` counts */
    plim__train_plan_t numbers;
    char *json; /* (PLIM__PLAN_JSON) */
};

/* Bytes that the JSON text of any plan fits in: 24 accounts of at most 330 bytes, and the rest. */
#define PLIM__PLAN_JSON 12288

/*
 * An empty plan, account "plan". It is made before the numbers are worked out, so that these count
 * it among what is held. PLIM_ERR_BUDGET, PLIM_ERR_NOMEM.
 */
plim_status_t plim__plan_create(const plim_job_t *job, plim_plan_t **plan_out);

/* Writes the JSON text of the numbers, which are there now. */
void plim__plan_seal(plim_plan_t *plan, bool trains);

#endif
