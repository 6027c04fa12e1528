/*
 * Exact outputs of a model: layer by layer over whole neighbourhoods, for graphs and layers larger
 * than memory.
 *
 * A layer's input X (num_nodes, in) is features.npy or a nameless file. Where a layer is linear and
 * its product is narrower than its input, the product is computed first. The neighbour lists are
 * then streamed once for each panel of columns (or block of rows) of the product that fits in
 * memory. The last layer is computed for the requested nodes only. The ranks of a job divide the
 * nodes; each computes and keeps the rows of its own.
 */
#ifndef PLIM_INFER_EXACT_H
#define PLIM_INFER_EXACT_H

#include "io/file.h"
#include "nn/model.h"
#include "peers/peers.h"
#include "store/dataset.h"

typedef struct plim__exact_params {
    plim_model_t model;
    plim__columns_t columns;       /* of edges, that the model reads */
    int64_t fanout[PLIM_HOPS_MAX]; /* of the training: caps of GCN degrees; 0 or less: no cap */
    int64_t num_outputs;
    const plim__parameter_t *parameters; /* values by PyG's names */
    int num_parameters;
    bool embeddings;      /* return the last layer's input instead of its output */
    const char *scratch;  /* directory for the nameless files */
    int64_t most_rows;    /* maximum bytes of a layer's rows in memory; 0: all available */
    int64_t most_bytes;   /* the same for buffers and layers, if that is enough */
    bool quiet;           /* do not log the plan */
    plim__peers_t *peers; /* ranks that divide the work; NULL: there are none */
} plim__exact_params_t;

/* Minimum memory of an evaluation of any nodes, in addition to the ledger's current reservations.
 * Pure. */
size_t plim__exact_cost_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim_model_t *model, const plim__columns_t *columns,
                                int64_t num_outputs, bool embeddings);

/* Whether exact passes leave edges from a node to itself out of its degree: with weights they are
 * read, since they are the node's own. */
static inline bool plim__exact_skips_loops(const plim_model_t *model,
                                           const plim__columns_t *columns)
{
    return plim__model_skips_loops(model) && !columns->edge_weights;
}

/* The part of that minimum that is read first and stays: offsets, and sums of weights. */
size_t plim__exact_cost_first(const plim_dataset_t *dataset, const plim_model_t *model,
                              const plim__columns_t *columns);

/* What an evaluation of all nodes takes. */
typedef struct plim__exact_cost {
    int64_t bytes;        /* of memory: buffers and layers */
    int64_t disk;         /* most bytes of layers in between, of this rank */
    int64_t column_bytes; /* read of an edge in addition to its source */
    struct {
        int64_t panels, blocks; /* the layer goes through the lists panels x blocks times */
        int64_t columns;        /* of a panel */
        bool stored;            /* its output goes to disk */
    } layers[PLIM_HOPS_MAX];
} plim__exact_cost_t;

/* The cost with `available` bytes for buffers and layers; false if that is too little. Pure. */
bool plim__exact_cost(const plim_job_t *job, const plim_dataset_info_t *info,
                      const plim_model_t *model, const plim__columns_t *columns,
                      int64_t num_outputs, int64_t available, plim__exact_cost_t *cost_out);

/* Bytes that all ranks on a file system take together, if each takes `bytes`: all ranks share a
 * network file system, and the ranks of a node share any other. */
int64_t plim__exact_disk_together(const plim_job_t *job, const plim__file_system_t *system,
                                  int64_t bytes);

/* Receives rows of outputs in the requested order; called from one thread, ranges ascending. */
typedef plim_status_t (*plim__exact_take_fn)(void *context, int64_t first, int64_t rows,
                                             int64_t width, const float *outputs);

/*
 * Passes the outputs of `nodes` (count; NULL: all nodes in order) to `take`. Of several ranks all
 * call this, with the same nodes; `take` is called on rank 0, and an error of one rank, also of
 * `take`, is returned on all. Uses all memory that is left under the line. PLIM_ERR_SPACE and
 * PLIM_ERR_BUDGET before any work; PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_STOPPED. Reports progress
 * on the job.
 */
plim_status_t plim__exact_run(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim__exact_params_t *params, const int64_t *nodes,
                              int64_t count, plim__exact_take_fn take, void *context);

#endif
