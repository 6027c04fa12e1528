/*
 * Batches: seeds, the blocks of their drawn neighbourhoods, the rows of all nodes in them, and the
 * seeds' labels, from a dataset of any size under the job's line.
 *
 *     loader ─┬─ stream over the training split ─► batch, batch, …
 *             ├─ stream over the validation split
 *             └─ stream over any list of nodes
 *
 * The streams of a loader share its caches, windows and slots. One of them is served at a time: the
 * first plim_stream_next of another one interrupts it, and it goes on later where it was, with the
 * same batches. What a stream gives depends on (dataset, recipe, its params, epoch, step) alone:
 * memory, caches, windows, threads, I/O engine and other streams change its speed, never its
 * content.
 *
 * A loader and its streams belong to one thread at a time; batches to any.
 */
#ifndef PLIMSOLL_LOADER_H
#define PLIMSOLL_LOADER_H

#include <plimsoll/dataset.h>
#include <stddef.h>

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
    size_t size;        /* of this struct, as PLIM_RECIPE_INIT sets it */
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
        sizeof(plim_recipe_t), 1024, 2, {10, 10, 0, 0, 0, 0, 0, 0}, false, PLIM_NATIVE, 0, false,  \
            false, PLIM_F32, PLIM_I32                                                              \
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
 * An array of a batch, described so that a DLPack tensor can be filled from it alone. It is C
 * contiguous and lives as long as the batch.
 */
typedef struct plim_array {
    const char
        *name; /* "nodes", "rows", "labels", "degrees", "graph_indptr", "indptr", "indices" */
    int hop;   /* of indptr and indices: the block; else -1 */
    const void *data; /* on a boundary of 64 bytes, except for indptr and indices */
    plim_dtype_t type;
    int ndim;         /* 1 or 2 */
    int64_t shape[2]; /* shape[1] is 1 where ndim is 1 */
} plim_array_t;

/*
 * A batch, or a part of one; the library makes it, callers read it. Its memory is a slot of the
 * loader's ring, the caller's until it has released it as often as it retained it (delivery counts
 * as once); a batch may outlive its loader. A batch that is larger than a slot, or than the plan's
 * part_seeds, comes in parts, one after the other: each must be released before the next is asked
 * for, whereas batches whose last_part is true may be held, up to the number of slots less one. How
 * much fits a slot depends on the memory, so a caller that holds batches looks at last_part,
 * whatever it has seen so far. PyG's form never comes in parts.
 *
 * blocks[0] is the hop around the seeds; a model runs them from the last to the first. The first
 * num_seeds of the nodes are the seeds; in a dataset of many graphs seeds are graphs, and
 * graph_indptr says which nodes are whose. A node that a list holds twice is two seeds: it stands
 * twice among the nodes, and neighbours of others refer to the first.
 */
typedef struct plim_batch {
    size_t size; /* of this struct in the library; later versions append fields */
    int64_t epoch;
    int64_t step;         /* the batch's number in its epoch */
    int64_t first_seed;   /* where this part's seeds begin in the batch, or in the stream's share
                             of it; 0 when that came whole */
    bool last_part;       /* the batch, or the stream's share of it, ends with this part */
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
typedef struct plim_stream plim_stream_t;

/* Seeds, and how their batches are drawn. */
typedef struct plim_stream_params {
    size_t size;
    plim_split_t split;   /* whose seeds, unless nodes are given */
    const int64_t *nodes; /* (num_nodes) any nodes (graphs, in a dataset of many graphs), in any
                             order, also more than once; copied */
    int64_t num_nodes;
    bool shuffle;       /* a new order each epoch, by the recipe's seed; else as they are listed */
    int64_t batch_size; /* 0: the recipe's */
    int num_hops;       /* -1: the recipe's, with its fan-outs */
    int64_t fanout[PLIM_HOPS_MAX];
    /* Batches are cut by position into equal shares (the first ones have one more seed where it
     * does not come out even), of which only this one is loaded and delivered: so that processes
     * can divide batches. */
    int share;      /* from 0 */
    int num_shares; /* 1: whole batches; no batch may have fewer seeds */
} plim_stream_params_t;

/* The training split, shuffled, as the recipe says. */
#define PLIM_STREAM_PARAMS_INIT                                                                    \
    {                                                                                              \
        sizeof(plim_stream_params_t), PLIM_TRAIN, NULL, 0, true, 0, -1, {0, 0, 0, 0, 0, 0, 0, 0},  \
            0, 1                                                                                   \
    }

/* Streams that a loader has at once, at most. */
#define PLIM_STREAMS_MAX 16

/*
 * Makes a loader as planned, inside the planned accounts: reads offsets, splits and labels, fills
 * caches. PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_STOPPED. It
 * keeps the dataset and the job alive. Peak memory: the plan's.
 */
PLIM_API plim_status_t plim_loader_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const plim_plan_t *plan, plim_loader_t **loader_out);

/* A loader lives until it was released as often as it was made and retained, and no stream of it is
 * left. Batches may be held longer. NULL is harmless. Any thread may retain. */
PLIM_API void plim_loader_retain(plim_loader_t *loader);
PLIM_API void plim_loader_release(plim_loader_t *loader);

/* Seeds of a split that have a label: a class, or one of their values at least; -1 in a forked
 * child. */
PLIM_API int64_t plim_loader_labelled(const plim_loader_t *loader, plim_split_t split);

/* The memory of the loader's slots, in which all of its batches lie: for a caller that pins it. It
 * stays where it is for the loader's life, unless a stream is added that was not planned. */
PLIM_API void plim_loader_memory(const plim_loader_t *loader, void **base_out, size_t *bytes_out);

/*
 * Adds a stream; its seeds and their labels are copied and read now. The loader's plan should have
 * been told of it (plim_plan_params_t); its seeds take memory in any case, at most 32 bytes each
 * and their label. Where slots and windows were planned for fewer hops or longer draws, they are
 * made anew, which takes its memory out of the caches. PLIM_ERR_USAGE for settings that the dataset
 * cannot serve, a node out of range, more than PLIM_STREAMS_MAX streams, or while batches are held
 * and slots would have to be made anew; PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_IO,
 * PLIM_ERR_DATA, PLIM_ERR_STOPPED.
 */
PLIM_API plim_status_t plim_loader_stream(plim_loader_t *loader, const plim_stream_params_t *params,
                                          plim_stream_t **stream_out);

/* A stream keeps its loader alive. The last release ends it. NULL is harmless. */
PLIM_API void plim_stream_retain(plim_stream_t *stream);
PLIM_API void plim_stream_release(plim_stream_t *stream);

/* Seeds of the stream (of its share of each batch), steps of an epoch, and where it is: the step
 * that comes next, which is plim_stream_steps behind the epoch's last. A batch of which parts are
 * still to come counts as next. */
PLIM_API int64_t plim_stream_seeds(const plim_stream_t *stream);
PLIM_API int64_t plim_stream_steps(const plim_stream_t *stream);
PLIM_API void plim_stream_position(const plim_stream_t *stream, int64_t *epoch_out,
                                   int64_t *step_out);

/*
 * Goes to a step of an epoch. Batches not yet released stay valid, an error of the stream is
 * forgotten. A stream that is being served stays so until another one is asked for a batch.
 * PLIM_ERR_USAGE when there is no such epoch or step (the step behind the last is one: the epoch is
 * over there); then the stream goes on as before.
 */
PLIM_API plim_status_t plim_stream_start(plim_stream_t *stream, int64_t epoch, int64_t step);

/*
 * The next batch, or part of one; NULL behind the epoch's last. `timeout` is in seconds: negative
 * waits, and works, until the batch is there; 0 takes it only if it is ready; else waits at most so
 * long. PLIM_ERR_TIMEOUT when it was not ready in time: call again. Without a timeout the calling
 * thread builds batches too; with one it builds only where the job has a single thread, and the
 * call then takes as long as that does.
 *
 * PLIM_ERR_USAGE when the caller holds every slot, or the part before the next one, and may call
 * again when it has released it; or when the stream was not started. PLIM_ERR_IO, PLIM_ERR_DATA,
 * PLIM_ERR_BUDGET (a batch that cannot be cut does not fit a slot), PLIM_ERR_STOPPED: then the
 * stream must be started again.
 */
PLIM_API plim_status_t plim_stream_next(plim_stream_t *stream, double timeout,
                                        plim_batch_t **batch_out);

/* Any thread. A batch keeps all slots of its loader in memory. NULL is harmless to release. */
PLIM_API void plim_batch_retain(plim_batch_t *batch);
PLIM_API void plim_batch_release(plim_batch_t *batch);

/* The index-th array of a batch, NULL behind the last: those that it has of nodes, rows, labels,
 * degrees and graph_indptr, then indptr and indices of each block. Any thread. */
PLIM_API const plim_array_t *plim_batch_array(const plim_batch_t *batch, int index);

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
    double starved_seconds; /* the caller, in plim_stream_next */
} plim_load_stats_t;

PLIM_API void plim_loader_stats(const plim_loader_t *loader, plim_load_stats_t *stats_out);

#ifdef __cplusplus
}
#endif
#endif
