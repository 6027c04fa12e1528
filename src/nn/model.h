/*
 * A model: layers over blocks, its parameters, and the room that one part of a batch takes on its
 * way forward and back. Everything is in one arena (and oneDNN's account), made for the largest
 * part that a slot can hold; each part carves what it needs.
 *
 * Every layer computes destinations only. A neighbourhood is summed before it is multiplied, except
 * in GAT. Names and shapes of parameters are PyG's BasicGNN's (MLP's for an MLP):
 * convs.0.lin_l.weight, norms.0.module.weight, …; for graph-level tasks those of jk='last':
 * lin.weight behind the pooling. With `residual`, every layer as wide as its input adds it, before
 * the activation; the head does not.
 */
#ifndef PLIM_NN_MODEL_H
#define PLIM_NN_MODEL_H

#include "nn/optimiser.h"
#include "nn/team.h"

#include <plimsoll/loader.h>
#include <plimsoll/train.h>

typedef struct plim__model plim__model_t;

/* What a model is made for. */
typedef struct plim__model_params {
    plim_model_t model; /* num_layers, hidden, … */
    int64_t num_features;
    int64_t num_outputs;
    plim_dtype_t row_type; /* of the batches' rows: PLIM_F16 or PLIM_F32 */
    bool graph_level;      /* batches of whole graphs: one block, used by every layer */
    bool training;         /* gradients, moments and the backward pass are wanted */
    int moments;           /* of the optimiser, for each value */
    int workers;           /* the team's size */
    /* Of the largest part: max_dst[i] destinations of layer i (layer 0 reads the rows), max_src of
     * layer 0's sources, edges of all blocks together. An MLP reads max_seeds rows, or, of graphs,
     * max_src. */
    int64_t max_dst[PLIM_HOPS_MAX];
    int64_t max_src;
    int64_t max_edges;
    int64_t fanout[PLIM_HOPS_MAX]; /* of layer i; 0 or less: whole neighbourhoods */
    int64_t max_seeds;
} plim__model_params_t;

/* The products' memory included; what oneDNN takes itself is not. SIZE_MAX for
 * settings that plim__model_create refuses. */
size_t plim__model_estimate(const plim__model_params_t *params);

/* Of that, the room of a pass: what grows with the largest part. */
size_t plim__model_activations(const plim__model_params_t *params);

/* Values of its buffers: what a forward pass of training moves (batch norm's statistics). */
size_t plim__model_buffers(const plim__model_params_t *params);

/* How many parameters and buffers it has. */
int plim__model_tensors(const plim__model_params_t *params);

/* PLIM_ERR_USAGE for settings that make no model, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM,
 * PLIM_ERR_UNSUPPORTED. The team must outlive it. */
plim_status_t plim__model_create(plim_ledger_t *ledger, plim__team_t *team,
                                 const plim__model_params_t *params, plim__model_t **model_out);
void plim__model_destroy(plim__model_t *model);

/* The table of parameters and buffers, in a fixed order; lives as long as the model. */
plim__parameter_t *plim__model_parameters(plim__model_t *model, int *count_out);

/*
 * The values behind that table. Learnt parameters stand one behind the other in the table's order,
 * without a gap, in `weights`; so do their gradients and moments. Buffers stand alike in `buffers`.
 */
typedef struct plim__model_arrays {
    int64_t num_weights;
    int64_t num_buffers;
    float *weights;   /* (num_weights) */
    float *buffers;   /* (num_buffers) batch norm's running statistics */
    float *gradient;  /* (num_weights); NULL outside training */
    float *moment[2]; /* (num_weights) each; NULL where the optimiser has none */
} plim__model_arrays_t;
const plim__model_arrays_t *plim__model_arrays(const plim__model_t *model);

/* Values at the start of training, of PyG's distributions, from the seed alone. */
void plim__model_initialise(plim__model_t *model, uint64_t seed);

/* Packs the weights; after each change of values, from wherever it came. */
void plim__model_changed(plim__model_t *model);

typedef struct plim__pass {
    bool training; /* dropout and what else differs; activations are kept for backward */
    uint64_t seed;
    int64_t epoch;
    int64_t step;
    bool embeddings; /* are wanted too; not in training */
} plim__pass_t;

/* What a forward pass gave: valid until the next one. */
typedef struct plim__model_output {
    const float *outputs;    /* (num_seeds, num_outputs) */
    const float *embeddings; /* (num_seeds, embedding_width): what the last layer, or the head,
                                read; NULL unless the pass asks for them */
    int64_t embedding_width;
} plim__model_output_t;

/* PLIM_ERR_DATA when the part is larger than the model was made for (a bug elsewhere);
 * PLIM_ERR_NOMEM when oneDNN failed for want of memory: what was computed is worth nothing. */
plim_status_t plim__model_forward(plim__model_t *model, const plim_batch_t *batch,
                                  const plim__pass_t *pass, plim__model_output_t *output_out);

/* Adds to the gradients; doutputs (num_seeds, num_outputs) belongs to the pass before, same batch.
 * PLIM_ERR_NOMEM as above. */
plim_status_t plim__model_backward(plim__model_t *model, const plim_batch_t *batch,
                                   const float *doutputs);

/* Ends a step's accumulation: the products' sums go into the parameters' gradients. */
void plim__model_gather_gradients(plim__model_t *model);

/* Seconds spent in parts of the work since the model was made, for `bench train`. */
typedef struct plim__model_times {
    double dense, sparse, finish;
    double dense_flops;
} plim__model_times_t;
void plim__model_times(const plim__model_t *model, plim__model_times_t *times_out);

#endif
