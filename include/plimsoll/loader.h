/*
 * Batches: seeds, the blocks of their drawn neighbourhoods, the rows of all nodes in them, and the
 * seeds' labels, from a dataset of any size under the job's line.
 *
 * The stream of batches depends on (dataset, recipe, split, epoch, step) alone: memory, cache,
 * window, threads and I/O engine change its speed, never its content. All state is (epoch, step).
 */
#ifndef PLIMSOLL_LOADER_H
#define PLIMSOLL_LOADER_H

#include <plimsoll/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLIM_HOPS_MAX 8

typedef enum plim_split { PLIM_TRAIN = 0, PLIM_VALID, PLIM_TEST } plim_split_t;

typedef enum plim_form {
    PLIM_NATIVE = 0, /* every node met so far draws at each hop; a batch may come in parts */
    PLIM_PYG         /* a node draws once, at the hop after it was met; never in parts */
} plim_form_t;

/* What is drawn: the same recipe gives the same batches. */
typedef struct plim_recipe {
    int64_t batch_size; /* seeds, or graphs in a dataset of many graphs */
    int num_hops; /* 0: seeds and their rows alone, no blocks; in a dataset of many graphs always 0,
                     and their own edges are the one block */
    int64_t fanout[PLIM_HOPS_MAX]; /* neighbours a node, up to 4096; -1: all */
    bool replace;                  /* draw with replacement */
    plim_form_t form;
    uint64_t seed;
    bool no_features;        /* topology only: no rows in the batches */
    bool degrees;            /* the nodes' degrees in the whole graph come with the batches */
    plim_dtype_t row_type;   /* rows as PLIM_F16 or PLIM_F32 */
    plim_dtype_t index_type; /* ids, indptr and indices as PLIM_I32 or PLIM_I64 */
} plim_recipe_t;

/* Rows come as PLIM_F32 whatever is stored; the info's feature_type saves the conversion. For a
 * dataset of many graphs set num_hops to 0. */
#define PLIM_RECIPE_INIT                                                                           \
    {                                                                                              \
        1024, 2, {10, 10, 0, 0, 0, 0, 0, 0}, false, PLIM_NATIVE, 0, false, false, PLIM_F32,        \
            PLIM_I32                                                                               \
    }

/* One hop of a batch: destination first_dst + i draws from indices[indptr[i]] … [indptr[i+1]-1]. */
typedef struct plim_block {
    int64_t num_dst;
    int64_t first_dst; /* 0 in native form */
    int64_t num_src;   /* nodes of the batch so far: sources are below it */
    int64_t num_edges;
    const void *indptr;  /* (num_dst + 1) of the recipe's index type */
    const void *indices; /* (num_edges) places in the batch's nodes */
} plim_block_t;

/*
 * A batch, or a part of one. Its memory is a slot of the loader's ring, the caller's until it has
 * released it as often as it retained it (delivery counts as once). A batch that is larger than a
 * slot, or than the plan's part_seeds, comes in parts, one after the other: each must be released
 * before the next is asked for, whereas batches whose last_part is true may be held, up to the
 * number of slots less one. How much fits a slot depends on the memory, so a caller that holds
 * batches looks at last_part, whatever it has seen so far. PyG's form never comes in parts.
 *
 * blocks[0] is the hop around the seeds; a model runs them from the last to the first. The first
 * num_seeds of the nodes are the seeds; in a dataset of many graphs seeds are graphs, and
 * graph_indptr says which nodes are whose.
 */
typedef struct plim_batch {
    int64_t epoch;
    int64_t step;         /* the batch's number in its epoch */
    int64_t first_seed;   /* where this part's seeds begin in the batch; 0 when it came whole */
    bool last_part;       /* the batch ends with this part */
    int64_t batch_seeds;  /* seeds of the whole batch (graphs, in a dataset of many graphs) */
    int64_t batch_labels; /* labels of the whole batch: seeds with a class, or values known */
    int64_t num_seeds;    /* of this part */
    int64_t num_nodes;
    int num_blocks;
    plim_block_t blocks[PLIM_HOPS_MAX];
    const void *nodes;      /* (num_nodes) ids in the dataset, of the recipe's index type */
    const void *rows;       /* (num_nodes, num_features) of the recipe's row type; NULL without */
    const void *labels;     /* (num_seeds) int64, or (num_seeds, num_targets) float; NULL without */
    const int32_t *degrees; /* (num_nodes) edges into each in the dataset; NULL without */
    const void *graph_indptr; /* (num_seeds + 1) first nodes of the graphs, index type; or NULL */
} plim_batch_t;

typedef struct plim_plan plim_plan_t; /* <plimsoll/plan.h> */
typedef struct plim_loader plim_loader_t;

/*
 * Makes a loader as planned, inside the planned accounts: reads offsets, splits and labels, fills
 * caches. PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_STOPPED. The
 * dataset and the job must outlive it. A loader belongs to one thread at a time; its batches to
 * any.
 */
PLIM_API plim_status_t plim_loader_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const plim_plan_t *plan, plim_loader_t **loader_out);

/* Every batch must have been released. NULL is harmless. */
PLIM_API void plim_loader_destroy(plim_loader_t *loader);

/* Seeds of a split that have a label: a class, or one of their values at least. */
PLIM_API int64_t plim_loader_labelled(const plim_loader_t *loader, plim_split_t split);

/* Steps in an epoch over a split. */
PLIM_API int64_t plim_loader_steps(const plim_loader_t *loader, plim_split_t split);

/*
 * Goes to a step of an epoch of a split: the training split in the epoch's own order, the others in
 * the dataset's. Batches not yet released stay valid. An error of the stream before is forgotten.
 * PLIM_ERR_USAGE when there is no such split, epoch or step (the step behind the last is one: the
 * epoch is over there); then the loader goes on as before.
 */
PLIM_API plim_status_t plim_loader_start(plim_loader_t *loader, plim_split_t split, int64_t epoch,
                                         int64_t step);

/*
 * The next batch, or part of one; NULL behind the epoch's last. Waits, or works, until it is there.
 * PLIM_ERR_USAGE when the caller holds every slot, or the part before the next one, and may call
 * again when it has released it; or when no stream was started. PLIM_ERR_IO, PLIM_ERR_DATA,
 * PLIM_ERR_BUDGET (a batch that cannot be cut does not fit a slot), PLIM_ERR_STOPPED: then only
 * plim_loader_start and plim_loader_destroy are useful.
 */
PLIM_API plim_status_t plim_loader_next(plim_loader_t *loader, plim_batch_t **batch_out);

/* Any thread. */
PLIM_API void plim_batch_retain(plim_batch_t *batch);
PLIM_API void plim_batch_release(plim_batch_t *batch);

/*
 * Folds a batch into a hash of the stream: seeds, neighbourhoods, rows and labels as a model would
 * see them, the same whether a native batch came whole or in parts. Start with 0.
 */
PLIM_API uint64_t plim_loader_hash(plim_loader_t *loader, const plim_batch_t *batch, uint64_t hash);

/* What was done since the loader was made. */
typedef struct plim_load_stats {
    int64_t batches; /* delivered, parts counted as one batch */
    int64_t parts;
    int64_t edges;
    int64_t nodes; /* rows gathered */
    int64_t windows;
    int64_t window_steps; /* of the last one */
    int64_t lists, lists_hot, list_transfers, list_bytes;
    /* rows: distinct ones a window, or a part of a batch that is too large for a window */
    int64_t rows, rows_hot, row_transfers, row_bytes;
    int64_t rows_lost;      /* hot rows that the kernel had taken back */
    double wait_seconds;    /* for I/O, summed over threads */
    double starved_seconds; /* the caller, in plim_loader_next */
} plim_load_stats_t;

PLIM_API void plim_loader_stats(const plim_loader_t *loader, plim_load_stats_t *stats_out);

#ifdef __cplusplus
}
#endif
#endif
