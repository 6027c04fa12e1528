/*
 * Estimates the memory that the same training takes in PyTorch Geometric (PyG): where such a job
 * is killed, and how much to request from the scheduler. The estimate follows the tensors that
 * PyG's loaders and layers hold. Its constants were measured with torch 2.13, torch_geometric 2.8
 * and pyg-lib 0.9 on Linux; the constants for a GPU are assumptions.
 */
#ifndef PYG_H
#define PYG_H

#include <jansson.h>
#include <plimsoll/train.h>

/* Measured: anonymous memory of Python with torch and PyG after the imports, and private copies of
 * pages that a worker writes to. */
#define PYG_PYTHON_BYTES ((int64_t)234 << 20)
#define PYG_WORKER_BYTES ((int64_t)10 << 20)

typedef enum pyg_graph {
    PYG_EDGE_INDEX = 0, /* int64 (2, edges); every loader sorts it for itself */
    PYG_CSC             /* int64, sorted beforehand, shared by all loaders */
} pyg_graph_t;

/* How the PyG script is written. */
typedef struct pyg_params {
    pyg_graph_t graph;
    bool mapped_features; /* float32 in a mapped file; else float32 in memory */
    int num_loaders;      /* NeighborLoaders alive at once (train, validation, test): 1 to 3 */
    int num_workers;      /* of each loader: 0 to 1024 */
    int prefetch;         /* batches that each worker prepares ahead: 1 to 1024 */
    bool persistent_workers;
    bool pin_memory;
    int64_t gpu_memory; /* bytes of the GPU that computes; 0: the CPU computes */
    int64_t line;       /* the job's memory limit, which the peak is compared with; 0: unknown */
    /* The loaders but the first are made after the first epoch: the sort of their edges then comes
     * on top of what training holds, in phase `evaluate`. */
    bool late_loaders;
} pyg_params_t;

#define PYG_PARAMS_INIT                                                                            \
    {                                                                                              \
        .num_loaders = 3, .prefetch = 2                                                            \
    }

/* The phases of a job, in their order. */
typedef enum pyg_phase {
    PYG_START = 0, /* imports */
    PYG_LOAD,      /* reads the dataset */
    PYG_SORT,      /* creates the loaders */
    PYG_TRAIN,
    PYG_EVALUATE
} pyg_phase_t;

#define PYG_PHASES 5
#define PYG_ACCOUNTS 16

/* "start", "load", … */
extern const char *const pyg_phase_names[PYG_PHASES];

typedef struct pyg_account {
    const char *name;
    bool file;     /* pages of files: the kernel takes them back before it kills anything */
    int64_t bytes; /* maximum over all phases */
    int64_t phase[PYG_PHASES];
} pyg_account_t;

/* What a GPU holds, and what fits it. */
typedef struct pyg_gpu {
    int64_t context, model, batch_bytes, activations;
    int64_t total;                    /* for the requested batch and precision */
    bool fits;                        /* total fits */
    int64_t largest_batch[2];         /* by precision; 0: none fits */
    int64_t microbatch;               /* seeds of the requested batch at a time; 0: none fits */
    plim_precision_t micro_precision; /* the requested one, unless only bf16 fits */
} pyg_gpu_t;

typedef struct pyg_plan {
    int num_accounts;
    pyg_account_t accounts[PYG_ACCOUNTS];
    int64_t phase[PYG_PHASES]; /* sums of the accounts that are not of files */
    pyg_phase_t peak_phase;
    int64_t peak;
    int64_t ask;          /* the peak and a tenth, in whole GiB: for the scheduler */
    int64_t peak_csc;     /* if the edges were sorted beforehand, for all loaders */
    int64_t peak_mapped;  /* if, in addition, the features were mapped */
    int64_t batch_graphs; /* 0: the dataset is one graph */
    int64_t batch_nodes, batch_edges;
    pyg_gpu_t gpu; /* only with params->gpu_memory */
} pyg_plan_t;

/*
 * Estimates the peak of all processes of the job, shared memory included. Draws some batches from
 * the dataset to measure their size (a second or two; the result is kept in the user's cache) if
 * the job's line has room for that; otherwise, and for a dataset that is only a shape, the size
 * follows from the degrees.
 *
 * A dataset of many graphs is an InMemoryDataset with DataLoaders, its batches of graphs of the
 * mean size.
 *
 * PLIM_ERR_USAGE for settings that make no sense; PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_NOMEM,
 * PLIM_ERR_STOPPED. Failures as in base/fail.h.
 */
plim_status_t pyg_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                       const plim_training_t *training, const pyg_params_t *params,
                       pyg_plan_t *plan_out);

/* The first phase that needs more than the line; -1: none does. */
int pyg_killed(const pyg_plan_t *plan, int64_t line);

/*
 * The estimate as JSON; NULL without memory:
 *
 *   accounts       array of {name, bytes, reclaimable, phases}: bytes is the account's maximum over
 *                  all phases; reclaimable: pages of files, which the kernel takes back before it
 *                  kills anything, so that sums leave them out
 *   phases         {start, load, sort, train, evaluate}: bytes of all other accounts in each phase
 *   peak_phase, total_bytes   the largest of these
 *   ask_bytes      the peak and a tenth, rounded up to whole GiB: for the scheduler
 *   csc_bytes, csc_mapped_bytes   the peak if the edges were sorted beforehand; and if, in
 *                  addition, features were mapped
 *   batch_nodes, batch_edges      of a batch; batch_graphs only of a dataset of many graphs
 *   line_bytes, fits, killed_phase   only with params->line: the first phase above it, if any
 *   gpu            only with params->gpu_memory: {memory_bytes, context_bytes, model_bytes,
 *                  batch_bytes, activation_bytes, total_bytes, fits, largest_batch: {f32, bf16},
 *                  microbatch, microbatch_precision}; a batch or microbatch of 0: none fits
 */
json_t *pyg_json(const pyg_plan_t *plan, const pyg_params_t *params);

#endif
