/* The dataset directory: plain .npy files and dataset.json, complete or absent, never written to
 * again. */
#ifndef PLIMSOLL_DATASET_H
#define PLIMSOLL_DATASET_H

#include <plimsoll/job.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plim_dtype { PLIM_I32 = 1, PLIM_I64, PLIM_F16, PLIM_F32 } plim_dtype_t;

typedef enum plim_label_kind {
    PLIM_LABELS_NONE = 0,
    PLIM_LABELS_CLASSES, /* int64, -1 = unlabelled */
    PLIM_LABELS_VALUES   /* float32 [., T], NaN = unlabelled */
} plim_label_kind_t;

/* What a dataset holds, from its dataset.json. */
typedef struct plim_dataset_info {
    int format;           /* version of the directory's format */
    int64_t num_nodes;    /* over all graphs */
    int64_t num_edges;    /* entries of indices.npy */
    int64_t num_features; /* columns of features.npy, 0 without features */
    int64_t num_graphs;   /* 0: one graph, labels per node; else labels and splits are per graph */
    int64_t num_labels;   /* rows of labels.npy */
    int64_t num_classes;  /* for PLIM_LABELS_CLASSES */
    int64_t num_targets;  /* columns of labels.npy for PLIM_LABELS_VALUES */
    int64_t num_split[3]; /* train, valid, test */
    int64_t max_degree;   /* longest in-list */
    int64_t bytes;        /* of all files */
    plim_dtype_t index_type;   /* of indices.npy: I32 below 2^31 nodes, else I64 */
    plim_dtype_t feature_type; /* F16 or F32 */
    plim_label_kind_t label_kind;
    double
        feature_error; /* worst relative error of stored features against the source's; 0 = exact */
    char
        fingerprint[17]; /* hexadecimal, of all checksums: equal datasets have equal fingerprints */
} plim_dataset_info_t;

typedef struct plim_dataset plim_dataset_t;

/*
 * Opens a dataset for reading: dataset.json is parsed and every file's header and size are checked
 * against it. PLIM_ERR_DATA names what does not agree; PLIM_ERR_UNSUPPORTED for a newer format.
 * Memory: one account of at most 64 times dataset.json's size. `path` is copied.
 */
PLIM_API plim_status_t plim_dataset_open(const plim_job_t *job, const char *path,
                                         plim_dataset_t **dataset_out);

/* NULL is harmless. */
PLIM_API void plim_dataset_close(plim_dataset_t *dataset);

/* Lives as long as the dataset. Thread-safe. */
PLIM_API const plim_dataset_info_t *plim_dataset_info(const plim_dataset_t *dataset);

/*
 * Reads every byte of every file and compares the checksums; then the invariants: indptr ascending
 * from 0 to the number of edges, ids in range, labels and splits in range. PLIM_ERR_DATA names the
 * first file, byte range and what is wrong there. Memory: a few MiB a thread.
 */
PLIM_API plim_status_t plim_dataset_verify(const plim_job_t *job, plim_dataset_t *dataset);

#ifdef __cplusplus
}
#endif
#endif
