/* What the files of the estimate for PyTorch Geometric share. */
#ifndef PYG_INTERNAL_H
#define PYG_INTERNAL_H

#include "pyg/pyg.h"

/* pyg_step.c: bytes that one training step, or one evaluated batch, takes beside the batch. */
typedef struct pyg_step {
    double parameters; /* weights; gradients and each moment take as much again */
    double train;      /* peak of activations and their gradients */
    double evaluate;   /* peak of activations without gradients */
    double small;      /* the part of train in blocks that malloc keeps after they are freed */
} pyg_step_t;

/*
 * For a subgraph of `nodes` nodes and `edges` edges. Every layer computes the whole subgraph, as
 * PyG's examples do. Layers are those of torch_geometric.nn.models. Pure.
 */
pyg_step_t pyg_step(const plim_training_t *training, const plim_dataset_info_t *info,
                    int64_t num_outputs, double nodes, double edges);

/* The columns of edges that the model reads: a set of plim_column_t. */
unsigned pyg_columns(const plim_training_t *training);

#define PYG_SIZES 192

/* Sizes of batches for some numbers of seeds; between them sizes follow power laws. */
typedef struct pyg_sizes {
    int count;
    plim_batch_size_t at[PYG_SIZES];
} pyg_sizes_t;

/* The seeds of each batch that the estimate looks at, and powers of two between. */
void pyg_sizes_choose(const plim_dataset_info_t *info, const plim_training_t *training,
                      const pyg_params_t *params, pyg_sizes_t *sizes_out);

/* The whole estimate. */
void pyg_estimate(const plim_dataset_info_t *info, const plim_training_t *training,
                  const pyg_params_t *params, const pyg_sizes_t *sizes, pyg_plan_t *plan_out);

#endif
