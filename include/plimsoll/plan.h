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
typedef struct plim_load_wishes {
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
} plim_load_wishes_t;

/* What a run goes through, and holds different things in. */
typedef enum plim_phase {
    PLIM_PHASE_START = 0,  /* while the loader is made: what is hot is chosen and read */
    PLIM_PHASE_TRAIN,      /* steps */
    PLIM_PHASE_EVALUATE,   /* sampled evaluation between epochs */
    PLIM_PHASE_CHECKPOINT, /* while a checkpoint is written */
    PLIM_PHASE_PREDICT     /* exact prediction of all nodes afterwards, in a process of its own */
} plim_phase_t;

#define PLIM_PHASES 5

#define PLIM_PLAN_ACCOUNTS 24

typedef struct plim_plan_account {
    char name[32];
    int64_t bytes;              /* the most over all phases */
    int64_t phase[PLIM_PHASES]; /* in each of them */
} plim_plan_account_t;

/* What to expect of a run; 0 where nothing is known. */
typedef struct plim_expectation {
    int64_t batch_nodes, batch_edges; /* of a batch */
    int64_t batch_bytes;              /* of its rows and blocks */
    int64_t epoch_steps;
    int64_t epoch_reads, epoch_read_bytes; /* of training alone */
    double epoch_seconds;                  /* of training alone */
    int64_t disk_bytes; /* that the run directory, scratch and prediction take, at most */
} plim_expectation_t;

/* Choices and what they cost. Filled by plim_load_plan; only its numbers are looked at afterwards.
 */
struct plim_load_plan {
    plim_recipe_t recipe;
    int workers; /* threads that build batches, the caller's included */
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
    char scratch[512];         /* "" : none */
    int64_t scratch_bytes;     /* disk space that packed hot rows will take there, at most */
    int64_t held;              /* taken as held before the loader, less what grows with the line */
    int64_t spare;             /* code, which gives way where nothing fits otherwise */
    int64_t start;             /* of the loader's own, the most while it is made */
    plim_expectation_t expect; /* of loading alone */
    int64_t total;             /* memory in all, the process included */
    int64_t line;
    int64_t minimum; /* the least line under which this recipe runs */
    int num_accounts;
    int num_held; /* the first of them stand on the ledger already */
    plim_plan_account_t accounts[PLIM_PLAN_ACCOUNTS];
};

/*
 * Fits a loader for the recipe under the ledger's line; wishes may be NULL: none. Steps down by
 * itself through choices that keep the batches: rows from disk, lists from disk, smaller windows
 * and caches, fewer and smaller slots; last, code gives way (spare). PLIM_ERR_BUDGET, with the
 * least line that would do, when nothing fits; PLIM_ERR_USAGE for a recipe that the dataset cannot
 * serve. Whether it fits, and the least line, follow from dataset.json (of many graphs, also from
 * the largest one's size); where sizes would have to be guessed, neighbourhoods of some seeds are
 * drawn to know them: a second or two of reading, once for a dataset and a recipe, for what they
 * came to is kept in the user's cache ($XDG_CACHE_HOME/plimsoll, else ~/.cache/plimsoll).
 * PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED. The same arguments, the same plan,
 * up to the MiB that the process takes; where rows of this recipe are packed in wishes->scratch, as
 * when they were packed. Peak memory: below the line.
 */
PLIM_API plim_status_t plim_load_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_recipe_t *recipe, const plim_load_wishes_t *wishes,
                                      plim_load_plan_t *plan_out);

#ifdef __cplusplus
}
#endif
#endif
