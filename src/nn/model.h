/*
 * A model: layers over blocks, its parameters, and the workspace for one part of a batch, forward
 * and backward. Everything is in one arena, made for the largest part that a slot can hold; each
 * part carves its matrices from it.
 *
 * Every layer computes only destinations. It aggregates a neighbourhood before it multiplies,
 * except in GAT. Names and shapes of parameters are those of PyG's BasicGNN (MLP's for an MLP):
 * convs.0.lin_l.weight, norms.0.module.weight, …; for graph-level tasks those of jk='last':
 * lin.weight after the pooling. With `residual`, every layer as wide as its input adds it before
 * the activation; the head does not.
 */
#ifndef PLIM_NN_MODEL_H
#define PLIM_NN_MODEL_H

#include "nn/optimiser.h"
#include "nn/team.h"

#include <plimsoll/loader.h>
#include <plimsoll/train.h>

typedef struct plim__model plim__model_t;

/* Whether the model reads batches and degrees without self-loops: GCN adds the node itself. */
static inline bool plim__model_skips_loops(const plim_model_t *model)
{
    return model->kind == PLIM_GCN && !model->loops_twice;
}

/* Integer columns, each of values 0 … counts[column] - 1. */
typedef struct plim__categories {
    int columns;
    int64_t counts[PLIM_CATEGORIES_MAX];
} plim__categories_t;

/* Columns that a model reads in addition to the rows; zeros: none. */
typedef struct plim__columns {
    bool edge_weights;                  /* GCN */
    int64_t edge_features;              /* values of an edge: GINE, GAT, GATv2 */
    plim_dtype_t edge_feature_type;     /* PLIM_F16 or PLIM_F32 */
    plim__categories_t edge_categories; /* in place of edge_features: GINE */
    int64_t edge_types, bases;          /* R-GCN */
    plim__categories_t node_categories; /* in place of rows: the sum of their embeddings, `hidden`
                                           wide */
} plim__columns_t;

/* How a model of links scores pairs (nn/decoder.h); zeros: by dot products. */
typedef struct plim__scorer {
    plim_decoder_t kind;
    int64_t types; /* PLIM_DECODER_DISTMULT: how many vectors it has */
} plim__scorer_t;

/* Columns of the first layer's input, of rows with so many features. */
static inline int64_t plim__model_input(const plim_model_t *model, const plim__columns_t *columns,
                                        int64_t num_features)
{
    return columns->node_categories.columns > 0 ? model->hidden : num_features;
}

/* The columns of a batch. Those of edges are in the order of edge_ids: block by block, in the order
 * of indices. NULL: absent. */
typedef struct plim__batch_columns {
    const float *edge_weights;      /* (edges) */
    const float *weight_sums;       /* (num_nodes) of all edges into each in the dataset and its own
                                       (1, or its self-loop's); whole graphs need none */
    const void *edge_features;      /* (edges, edge_features) */
    const int64_t *edge_types;      /* (edges) 0 … edge_types - 1 */
    const int64_t *edge_categories; /* (edges, edge_categories.columns) */
    const int64_t *node_categories; /* (num_nodes, node_categories.columns) */
} plim__batch_columns_t;

/* Parameters of a model. */
typedef struct plim__model_params {
    plim_model_t model; /* num_layers, hidden, … */
    int64_t num_features;
    int64_t num_outputs;
    plim_dtype_t row_type; /* of the batches' rows: PLIM_F16 or PLIM_F32 */
    plim__scorer_t scorer; /* of the outputs, with its parameters */
    bool graph_level;      /* batches of whole graphs: one block, used by every layer */
    bool training;         /* with gradients, moments and the backward pass */
    int moments;           /* moments of the optimiser for each value */
    int workers;           /* the team's size */
    /* Sizes of the largest part: max_dst[i] destinations of layer i (layer 0 reads the rows),
     * max_src sources of layer 0, edges of all blocks together. An MLP reads max_seeds rows, or for
     * graphs max_src. */
    int64_t max_dst[PLIM_HOPS_MAX];
    int64_t max_src;
    int64_t max_edges;
    int64_t fanout[PLIM_HOPS_MAX]; /* of layer i; 0 or less: whole neighbourhoods */
    int64_t max_seeds;
    plim__columns_t columns;
} plim__model_params_t;

/* Bytes of the model with its products, without oneDNN's own memory. SIZE_MAX for settings that
 * plim__model_create refuses. */
size_t plim__model_estimate(const plim__model_params_t *params);

/* The part of it for activations, which grows with the largest part. */
size_t plim__model_activations(const plim__model_params_t *params);

/* Number of learnt values, which have a gradient. */
size_t plim__model_weights(const plim__model_params_t *params);

/* Number of buffer values: those that a forward pass of training changes (batch norm's
 * statistics). */
size_t plim__model_buffers(const plim__model_params_t *params);

/* Number of parameters and buffers. */
int plim__model_tensors(const plim__model_params_t *params);

/* PLIM_ERR_USAGE for invalid settings, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_UNSUPPORTED. The
 * team must outlive the model. */
plim_status_t plim__model_create(plim_ledger_t *ledger, plim__team_t *team,
                                 const plim__model_params_t *params, plim__model_t **model_out);
void plim__model_destroy(plim__model_t *model);

/* The table of parameters and buffers, in a fixed order; lives as long as the model. */
plim__parameter_t *plim__model_parameters(plim__model_t *model, int *count_out);

/*
 * The arrays behind that table. `weights` holds the learnt parameters in the table's order without
 * gaps; gradients and moments have the same layout. `buffers` holds the buffers likewise.
 */
typedef struct plim__model_arrays {
    int64_t num_weights;
    int64_t num_buffers;
    float *weights;   /* (num_weights) */
    float *buffers;   /* (num_buffers) batch norm's running statistics */
    float *gradient;  /* (num_weights); NULL outside training */
    float *moment[2]; /* (num_weights) each; NULL if the optimiser has none */
} plim__model_arrays_t;
const plim__model_arrays_t *plim__model_arrays(const plim__model_t *model);

/* Sets initial values from the seed, by PyG's distributions. */
void plim__model_initialise(plim__model_t *model, uint64_t seed);

/* Packs the weights; call it after each change of values. */
void plim__model_changed(plim__model_t *model);

typedef struct plim__pass {
    bool training; /* applies dropout and keeps activations for backward */
    uint64_t seed;
    int64_t epoch;
    int64_t step;
    bool embeddings;                      /* compute embeddings too; not in training */
    const plim__batch_columns_t *columns; /* those of the model's params; valid until backward */
} plim__pass_t;

/* Results of a forward pass; valid until the next one. */
typedef struct plim__model_output {
    const float *outputs;    /* (num_seeds, num_outputs) */
    const float *embeddings; /* (num_seeds, embedding_width) if requested, else NULL */
    int64_t embedding_width;
} plim__model_output_t;

/* PLIM_ERR_USAGE, before any change, if the part does not fit the model's sizes. The caller checks
 * that its arrays have the model's types and widths. PLIM_ERR_NOMEM if oneDNN failed for lack of
 * memory: the results are then invalid. */
plim_status_t plim__model_forward(plim__model_t *model, const plim_batch_t *batch,
                                  const plim__pass_t *pass, plim__model_output_t *output_out);

/* Adds to the gradients; doutputs (num_seeds, num_outputs) belongs to the previous pass, with the
 * same batch. PLIM_ERR_NOMEM as above. */
plim_status_t plim__model_backward(plim__model_t *model, const plim_batch_t *batch,
                                   const float *doutputs);

/* Ends a step's accumulation: adds the products' sums to the parameters' gradients. */
void plim__model_gather_gradients(plim__model_t *model);

/* Seconds spent in parts of the work since the model was created, for the timeline. */
typedef struct plim__model_times {
    double dense, sparse, finish;
    double dense_flops;
} plim__model_times_t;
void plim__model_times(const plim__model_t *model, plim__model_times_t *times_out);

#endif
