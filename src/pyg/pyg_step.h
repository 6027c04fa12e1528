/*
 * What one training step, or one evaluated batch, takes in PyTorch Geometric: the tensors that its
 * layers make, followed from the first to the last and back.
 */
#ifndef PLIM_PYG_PYG_STEP_H
#define PLIM_PYG_PYG_STEP_H

#include <plimsoll/train.h>

/* Bytes; beside the batch itself. */
typedef struct plim__pyg_step {
    double parameters; /* weights, and as much again for each of gradients and moments */
    double train;      /* the most that activations and their gradients take at one moment */
    double evaluate;   /* the same without gradients */
    double small;      /* of train: in blocks that malloc does not give back when they are freed */
} plim__pyg_step_t;

/*
 * A subgraph of so many nodes and edges, which every layer computes whole, as PyG's examples do.
 * Layers are those of torch_geometric.nn.models. Pure.
 */
plim__pyg_step_t plim__pyg_step(const plim_training_t *training, int64_t num_features,
                                int64_t num_outputs, double nodes, double edges);

#endif
