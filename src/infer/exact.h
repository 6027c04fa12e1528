/*
 * Exact outputs of a model: layer by layer over whole neighbourhoods, for graphs and layers larger
 * than memory.
 *
 * A layer's input X (num_nodes, in) is features.npy or a nameless file. Where a layer is linear and
 * its product is narrower than its input, the product is computed first. The neighbour lists are
 * then streamed once for each slice of columns (or block of rows) of the product that fits in
 * memory. The last layer is computed for the requested nodes only.
 */
#ifndef PLIM_INFER_EXACT_H
#define PLIM_INFER_EXACT_H

#include "nn/model.h"
#include "store/dataset.h"

typedef struct plim__exact_params {
    plim_model_t model;
    int64_t fanout[PLIM_HOPS_MAX]; /* the training recipe's: GCN counts degrees up to it; 0 or
                                      less: no bound */
    int64_t num_outputs;
    const plim__parameter_t *parameters; /* values by PyG's names */
    int num_parameters;
    bool embeddings;     /* return the last layer's input instead of its output */
    const char *scratch; /* directory for the nameless files */
    int64_t most_rows;   /* bytes of a layer's rows in memory at most; 0: whatever is available */
    int64_t most_bytes;  /* bytes of buffers and layers in memory, if that is enough; 0: whatever is
                            available */
} plim__exact_params_t;

/* Minimum memory of an evaluation of any nodes, beyond what the ledger holds now. Pure. */
size_t plim__exact_cost_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim_model_t *model, int64_t num_outputs, bool embeddings);

/*
 * Memory and disk that an evaluation of all nodes takes when `available` bytes are left for its
 * buffers and layers; false when that is too little. Pure.
 */
bool plim__exact_cost(const plim_job_t *job, const plim_dataset_info_t *info,
                      const plim_model_t *model, int64_t num_outputs, int64_t available,
                      int64_t *bytes_out, int64_t *disk_out);

/* Receives rows of outputs in the requested order; called from one thread, pieces ascending. */
typedef plim_status_t (*plim__exact_take_fn)(void *context, int64_t first, int64_t rows,
                                             int64_t width, const float *outputs);

/*
 * Passes the outputs of `nodes` (count; NULL: all nodes in order) to `take`. Uses whatever memory
 * is left under the line. PLIM_ERR_SPACE and PLIM_ERR_BUDGET before any work; PLIM_ERR_IO,
 * PLIM_ERR_DATA, PLIM_ERR_STOPPED. Reports progress on the job.
 */
plim_status_t plim__exact_run(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim__exact_params_t *params, const int64_t *nodes,
                              int64_t count, plim__exact_take_fn take, void *context);

#endif
