/*
 * What the same training takes in PyTorch Geometric: why such a job is killed, and what to ask the
 * scheduler for. An estimate, from what PyG's loaders and layers are seen to hold; its constants
 * were measured with torch 2.13, torch_geometric 2.8 and pyg-lib 0.9 on Linux, what concerns a GPU
 * is assumed.
 */
#ifndef PLIMSOLL_PYG_H
#define PLIMSOLL_PYG_H

#include <plimsoll/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plim_pyg_graph {
    PLIM_PYG_EDGE_INDEX = 0, /* int64 (2, edges), which every loader sorts for itself */
    PLIM_PYG_CSC             /* sorted already, int64, shared by all loaders */
} plim_pyg_graph_t;

typedef enum plim_pyg_rows {
    PLIM_PYG_ROWS_MEMORY = 0, /* float32 */
    PLIM_PYG_ROWS_MAPPED      /* float32 in a mapped file */
} plim_pyg_rows_t;

/* How the script is written. */
typedef struct plim_pyg_options {
    plim_pyg_graph_t graph;
    plim_pyg_rows_t rows;
    int num_loaders; /* NeighborLoaders alive at once: training, validation, test */
    int num_workers; /* of each loader */
    int prefetch;    /* batches ahead of a worker */
    bool persistent_workers;
    bool pin_memory;
    int64_t gpu_memory; /* of the GPU that computes; 0: the processor does */
} plim_pyg_options_t;

#define PLIM_PYG_OPTIONS_INIT                                                                      \
    {                                                                                              \
        PLIM_PYG_EDGE_INDEX, PLIM_PYG_ROWS_MEMORY, 3, 0, 2, false, false, 0                        \
    }

/* One after the other. */
typedef enum plim_pyg_phase {
    PLIM_PYG_START = 0, /* imports */
    PLIM_PYG_LOAD,      /* the dataset is read */
    PLIM_PYG_SORT,      /* the loaders are made */
    PLIM_PYG_TRAIN,
    PLIM_PYG_EVALUATE
} plim_pyg_phase_t;

#define PLIM_PYG_PHASES 5
#define PLIM_PYG_ACCOUNTS 16

typedef struct plim_pyg_account {
    char name[32];
    bool file;     /* pages of files: they count, but are given back before anything is killed */
    int64_t bytes; /* the most over all phases */
    int64_t phase[PLIM_PYG_PHASES];
} plim_pyg_account_t;

/* What a GPU holds, and what fits it. */
typedef struct plim_pyg_gpu {
    int64_t memory; /* 0: none was asked for */
    int64_t context, model, batch_bytes, activations;
    int64_t total;                    /* of the batch and the precision that are asked for */
    bool fits;                        /* … */
    int64_t largest_batch[2];         /* by precision; 0: none fits */
    int64_t microbatch;               /* of the batch asked for: seeds at a time; 0: none fits */
    plim_precision_t micro_precision; /* the one asked for, unless only bf16 fits */
} plim_pyg_gpu_t;

typedef struct plim_pyg_plan {
    int num_accounts;
    plim_pyg_account_t accounts[PLIM_PYG_ACCOUNTS];
    int64_t phase[PLIM_PYG_PHASES]; /* what cannot be given back, in all */
    plim_pyg_phase_t peak_phase;
    int64_t peak;
    int64_t ask;         /* the peak and a tenth, in whole GiB: for the scheduler */
    int64_t peak_csc;    /* were the edges sorted beforehand, for all loaders */
    int64_t peak_mapped; /* … and the features mapped, not loaded */
    int64_t batch_nodes, batch_edges;
    plim_pyg_gpu_t gpu;
} plim_pyg_plan_t;

/*
 * Estimates the training's peak in PyG, all processes of the job and shared memory included.
 * Batches are measured by drawing some from the dataset (a second or two; kept in the user's
 * cache), where the line has room for that; else, and of a shape, sizes follow from its degrees.
 * Only node-level tasks: PLIM_ERR_UNSUPPORTED for a dataset of many graphs; PLIM_ERR_USAGE for
 * settings that make no sense; PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED.
 */
PLIM_API plim_status_t plim_pyg_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim_training_t *training,
                                     const plim_pyg_options_t *options, plim_pyg_plan_t *plan_out);

/* The first phase that needs more than the line; -1: none does. Pure. */
PLIM_API int plim_pyg_killed(const plim_pyg_plan_t *plan, int64_t line);

/* "start", "load", "sort", "train", "evaluate". */
PLIM_API const char *plim_pyg_phase_name(plim_pyg_phase_t phase);

#ifdef __cplusplus
}
#endif
#endif
