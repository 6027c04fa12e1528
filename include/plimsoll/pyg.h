/*
 * Estimates the memory that the same training takes in PyTorch Geometric (PyG): where such a job
 * is killed, and how much to request from the scheduler. The estimate follows the tensors that
 * PyG's loaders and layers hold. Its constants were measured with torch 2.13, torch_geometric 2.8
 * and pyg-lib 0.9 on Linux; the constants for a GPU are assumptions.
 */
#ifndef PLIMSOLL_PYG_H
#define PLIMSOLL_PYG_H

#include <plimsoll/train.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plim_pyg_graph {
    PLIM_PYG_EDGE_INDEX = 0, /* int64 (2, edges); every loader sorts it for itself */
    PLIM_PYG_CSC             /* int64, sorted beforehand, shared by all loaders */
} plim_pyg_graph_t;

/* How the PyG script is written. */
typedef struct plim_pyg_params {
    size_t size; /* of this struct, as PLIM_PYG_PARAMS_INIT sets it */
    plim_pyg_graph_t graph;
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
    char reserved[7]; /* 0 */
} plim_pyg_params_t;

#define PLIM_PYG_PARAMS_INIT                                                                       \
    {                                                                                              \
        sizeof(plim_pyg_params_t), PLIM_PYG_EDGE_INDEX, false, 3, 0, 2, false, false, 0, 0, false, \
            ""                                                                                     \
    }

#define PLIM_PYG_JSON_MAX 8192 /* bytes of the longest answer, its NUL included */

/*
 * Estimates the peak of all processes of the job, shared memory included, and writes it to `json`
 * (size bytes; PLIM_PYG_JSON_MAX is always enough) as one JSON object:
 *
 *   accounts       array of {name, bytes, reclaimable, phases}: bytes is the account's maximum over
 *                  all phases; reclaimable: pages of files, which the kernel takes back before it
 *                  kills anything, so that sums leave them out
 *   phases         {start, load, sort, train, evaluate}: bytes of all other accounts in each phase
 *   peak_phase, total_bytes   the largest of these
 *   ask_bytes      the peak and a tenth, rounded up to whole GiB: for the scheduler
 *   csc_bytes, csc_mapped_bytes   the peak if the edges were sorted beforehand; and if, in
 *                  addition, features were mapped
 *   batch_nodes, batch_edges      of a batch
 *   line_bytes, fits, killed_phase   only with params->line: the first phase above it, if any
 *   gpu            only with params->gpu_memory: {memory_bytes, context_bytes, model_bytes,
 *                  batch_bytes, activation_bytes, total_bytes, fits, largest_batch: {f32, bf16},
 *                  microbatch, microbatch_precision}; a batch or microbatch of 0: none fits
 *
 * Draws some batches from the dataset to measure their size (a second or two; the result is kept
 * in the user's cache) if the job's line has room for that; otherwise, and for a dataset that is
 * only a shape, the size follows from the degrees. params may be NULL: the defaults. Any thread.
 *
 * PLIM_ERR_UNSUPPORTED for a dataset of many graphs; PLIM_ERR_USAGE for settings that make no sense
 * or a buffer that is too small; PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED.
 * Memory: what drawing the batches takes, at most the job's line; then less than 100 KiB.
 */
PLIM_API plim_status_t plim_pyg_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const plim_training_t *training,
                                         const plim_pyg_params_t *params, char *json, size_t size);

#ifdef __cplusplus
}
#endif
#endif
