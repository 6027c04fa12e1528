/* What the files of the estimate for PyTorch Geometric share. */
#ifndef PLIM_PYG_PYG_INTERNAL_H
#define PLIM_PYG_PYG_INTERNAL_H

#include "load/probe.h"
#include "store/manifest.h"

#include <plimsoll/pyg.h>

/* pyg_step.c: bytes that one training step, or one evaluated batch, takes beside the batch. */
typedef struct plim__pyg_step {
    double parameters; /* weights; gradients and each moment take as much again */
    double train;      /* peak of activations and their gradients */
    double evaluate;   /* peak of activations without gradients */
    double small;      /* the part of train in blocks that malloc keeps after they are freed */
} plim__pyg_step_t;

/*
 * For a subgraph of so many nodes and edges. Every layer computes the whole subgraph, as PyG's
 * examples do. Layers are those of torch_geometric.nn.models. Pure.
 */
plim__pyg_step_t plim__pyg_step(const plim_training_t *training, int64_t num_features,
                                int64_t num_outputs, double nodes, double edges);

/* The phases of a job, in their order. */
typedef enum plim__pyg_phase {
    PLIM__PYG_START = 0, /* imports */
    PLIM__PYG_LOAD,      /* reads the dataset */
    PLIM__PYG_SORT,      /* creates the loaders */
    PLIM__PYG_TRAIN,
    PLIM__PYG_EVALUATE
} plim__pyg_phase_t;

#define PLIM__PYG_PHASES 5
#define PLIM__PYG_ACCOUNTS 16

typedef struct plim__pyg_account {
    const char *name;
    bool file;     /* pages of files: the kernel takes them back before it kills anything */
    int64_t bytes; /* maximum over all phases */
    int64_t phase[PLIM__PYG_PHASES];
} plim__pyg_account_t;

/* What a GPU holds, and what fits it. */
typedef struct plim__pyg_gpu {
    int64_t context, model, batch_bytes, activations;
    int64_t total;                    /* for the requested batch and precision */
    bool fits;                        /* total fits */
    int64_t largest_batch[2];         /* by precision; 0: none fits */
    int64_t microbatch;               /* seeds of the requested batch at a time; 0: none fits */
    plim_precision_t micro_precision; /* the requested one, unless only bf16 fits */
} plim__pyg_gpu_t;

typedef struct plim__pyg_plan {
    int num_accounts;
    plim__pyg_account_t accounts[PLIM__PYG_ACCOUNTS];
    int64_t phase[PLIM__PYG_PHASES]; /* sums of the accounts that are not of files */
    plim__pyg_phase_t peak_phase;
    int64_t peak;
    int64_t ask;         /* the peak and a tenth, in whole GiB: for the scheduler */
    int64_t peak_csc;    /* if the edges were sorted beforehand, for all loaders */
    int64_t peak_mapped; /* if, in addition, the features were mapped */
    int64_t batch_nodes, batch_edges;
    plim__pyg_gpu_t gpu; /* only with params->gpu_memory */
} plim__pyg_plan_t;

/* The sources of a batch's size: probes, or the manifest where there are none. */
typedef struct plim__pyg_sizes {
    const plim__manifest_t *manifest;
    plim_recipe_t recipe;
    plim__probe_t probe;  /* empty: only the manifest is known */
    plim__probe_t before; /* of the same recipe without its last hop */
} plim__pyg_sizes_t;

/* pyg_estimate.c. The whole estimate. Pure. */
void plim__pyg_estimate(const plim_dataset_info_t *info, const plim_training_t *training,
                        const plim_pyg_params_t *params, const plim__pyg_sizes_t *sizes,
                        plim__pyg_plan_t *plan_out);

/* pyg.c. The estimate behind plim_pyg_estimate, before it becomes JSON; errors as there. */
plim_status_t plim__pyg_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                             const plim_training_t *training, const plim_pyg_params_t *params,
                             plim__pyg_plan_t *plan_out);

/* The first phase that needs more than the line; -1: none does. */
int plim__pyg_killed(const plim__pyg_plan_t *plan, int64_t line);

#endif
