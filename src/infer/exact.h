/*
 * Exact outputs: layer by layer over whole neighbourhoods, for graphs and layers larger than
 * memory.
 *
 * A layer's input X (num_nodes, in) is features.npy or a nameless file. What is linear is
 * multiplied first where that is narrower; then the indices are streamed once for each slice of
 * columns of the product that fits in memory. The last layer is computed for the wanted nodes
 * alone.
 */
#ifndef PLIM_INFER_EXACT_H
#define PLIM_INFER_EXACT_H

#include "nn/model.h"
#include "store/dataset.h"

typedef struct plim__exact_params {
    plim_model_t model;
    int64_t fanout[PLIM_HOPS_MAX]; /* drawn in training, as the recipe has it: GCN's degrees count
                                      up to it; 0 or less: all */
    int64_t num_outputs;
    const plim__parameter_t *parameters; /* values by PyG's names */
    int num_parameters;
    bool embeddings;     /* what the last layer reads is wanted, not what it gives */
    const char *scratch; /* directory of the nameless files */
    int64_t most_rows;   /* bytes of a layer's rows in memory at most; 0: all that is left */
    int64_t
        most_bytes; /* of buffers and layers in memory, where that is enough; 0: all that is left */
} plim__exact_params_t;

/* The least memory: everything beyond what the ledger holds now. */
size_t plim__exact_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                           const plim__exact_params_t *params);

/* Rows of outputs, in the order asked for; called from one thread, pieces ascending. */
typedef plim_status_t (*plim__exact_take_fn)(void *context, int64_t first, int64_t rows,
                                             int64_t width, const float *outputs);

/*
 * Outputs for `nodes` (count; NULL: all nodes in order) to `take`. Uses whatever is left under the
 * line. PLIM_ERR_SPACE and PLIM_ERR_BUDGET before anything is started; PLIM_ERR_IO, PLIM_ERR_DATA,
 * PLIM_ERR_STOPPED. Progress is reported on the job.
 */
plim_status_t plim__exact_run(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim__exact_params_t *params, const int64_t *nodes,
                              int64_t count, plim__exact_take_fn take, void *context);

#endif
