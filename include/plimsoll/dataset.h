/* The dataset directory: plain .npy files and dataset.json. It is complete or absent, and
 * read-only. */
#ifndef PLIMSOLL_DATASET_H
#define PLIMSOLL_DATASET_H

#include <plimsoll/job.h>

#ifdef __cplusplus
extern "C" {
#endif

#define PLIM_PATH_MAX 4096

typedef enum plim_dtype { PLIM_I32 = 1, PLIM_I64, PLIM_F16, PLIM_F32, PLIM_U32 } plim_dtype_t;

/* Columns: arrays with an entry for each edge, in the order of indices.npy, or for each node. A set
 * of columns is the bitwise OR of their values. */
typedef enum plim_column {
    PLIM_EDGE_FEATURES = 1, /* edge_features.npy: F16, F32 or I64 */
    PLIM_EDGE_WEIGHT = 2,   /* edge_weight.npy: F32 */
    PLIM_EDGE_TYPE = 4,     /* edge_type.npy: I32, delivered as I64 */
    PLIM_EDGE_TIME = 8,     /* edge_time.npy: I64 */
    PLIM_EDGE_ID = 16,      /* edge_id.npy: I64, each edge's number in the source */
    PLIM_NODE_TIME = 32     /* node_time.npy: I64 */
} plim_column_t;

#define PLIM_COLUMNS 6
#define PLIM_COLUMNS_OF_EDGES 31

typedef enum plim_label_kind {
    PLIM_LABELS_NONE = 0,
    PLIM_LABELS_CLASSES, /* integers, in batches int64, -1 = unlabelled */
    PLIM_LABELS_VALUES   /* float32 [., T] or [.], NaN = unlabelled */
} plim_label_kind_t;

/* The contents of a dataset, from its dataset.json. Later versions add fields at the end. */
typedef struct plim_dataset_info {
    size_t size;          /* of this struct in the loaded library */
    int format;           /* version of the directory's format */
    int64_t num_nodes;    /* over all graphs */
    int64_t num_edges;    /* entries of indices.npy */
    int64_t num_features; /* columns of features.npy, 0 without features */
    int64_t num_graphs;   /* 0: one graph, labels per node; else labels and splits are per graph */
    int64_t num_labels;   /* rows of labels.npy */
    int64_t num_classes;  /* for PLIM_LABELS_CLASSES */
    int64_t num_targets;  /* columns of labels.npy for PLIM_LABELS_VALUES */
    int64_t num_split[3]; /* train, valid, test */
    int64_t max_degree;   /* length of the longest list of in-neighbours */
    int64_t bytes;        /* of all files */
    plim_dtype_t index_type;   /* of indices.npy: I32 below 2^31 nodes, U32 or I64 below 2^32 */
    plim_dtype_t feature_type; /* F16, F32 or I64 */
    plim_label_kind_t label_kind;
    bool multi_label;     /* values are 0 and 1 (or NaN) in several columns */
    double feature_error; /* largest relative error of stored features; 0 = exact */
    char fingerprint[17]; /* hexadecimal; equal for equal data */
    /* Provenance; the strings live as long as the dataset. */
    const char *source;
    const char *options;
    const char *version;    /* version of plimsoll that made it */
    int64_t max_self_loops; /* most edges of one node to itself; -1: not known (formats before 2) */
    int label_dims;         /* dimensions of labels.npy: 1, or 2; 0 without labels */
    unsigned columns;       /* a set of plim_column_t: those that the dataset has */
    int64_t num_edge_features;      /* columns of edge_features.npy, 0 without */
    plim_dtype_t edge_feature_type; /* F16, F32 or I64 */
    int edge_feature_dims;          /* dimensions of edge_features.npy: 1 or 2; 0 without */
    int64_t num_edge_types;         /* 0 without edge_type.npy */
} plim_dataset_info_t;

typedef struct plim_dataset plim_dataset_t;

/*
 * Opens a dataset for reading: parses dataset.json and compares every file's header and size with
 * it. PLIM_ERR_DATA names the mismatch; PLIM_ERR_UNSUPPORTED for a newer format; PLIM_ERR_USAGE if
 * the directory does not exist; PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM. Copies `path`; never
 * writes into the directory; retains the job. Any thread. Memory: about twice the size of
 * dataset.json; ten times while it is parsed.
 */
PLIM_API plim_status_t plim_dataset_open(const plim_job_t *job, const char *path,
                                         plim_dataset_t **dataset_out);

/* Adds or removes a reference; the last release closes the dataset. NULL is harmless. Any
 * thread. */
PLIM_API void plim_dataset_retain(const plim_dataset_t *dataset);
PLIM_API void plim_dataset_release(const plim_dataset_t *dataset);

/* Lives as long as the dataset; NULL in a forked child. Any thread. */
PLIM_API const plim_dataset_info_t *plim_dataset_info(const plim_dataset_t *dataset);

/* One file of a dataset. */
typedef struct plim_dataset_file {
    size_t size;
    const char *name; /* "indptr.npy"; lives as long as the dataset */
    const char *type; /* NumPy's name for it: "<i8" */
    int num_dims;
    int64_t shape[4];
    int64_t bytes;
} plim_dataset_file_t;

#define PLIM_DATASET_FILE_INIT                                                                     \
    {                                                                                              \
        .size = sizeof(plim_dataset_file_t)                                                        \
    }

/* The index-th file, ascending by name; false if there is none (or in a forked child, or without a
 * size). Any thread. */
PLIM_API bool plim_dataset_file(const plim_dataset_t *dataset, int index,
                                plim_dataset_file_t *file_out);

/*
 * Reads every byte of every file once, compares the checksums and checks the invariants: indptr
 * ascends from 0 to the number of edges, lists ascend and are in range, labels and splits are in
 * range. PLIM_ERR_DATA names the first file and byte range with an error, and the error.
 * PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED; PLIM_ERR_USAGE for a dataset
 * without files. Any thread. Memory: 7 MiB a thread of the job.
 */
PLIM_API plim_status_t plim_dataset_verify(const plim_job_t *job, const plim_dataset_t *dataset);

/* What may still change; see docs/c.md. */
#ifdef PLIM_UNSTABLE

/* Statistics of floating-point values; 0 without values. */
typedef struct plim_value_stats {
    int64_t count; /* values read, including NaN and infinite ones */
    int64_t num_nan;
    int64_t num_infinite;
    double min; /* of the finite values, like all fields below */
    double max;
    double mean;
    double deviation; /* root of the mean squared distance from the mean */
} plim_value_stats_t;

#define PLIM_DEGREE_BUCKETS 64
#define PLIM_TOP_CLASSES 10
#define PLIM_TYPE_NAME 64 /* bytes of a type's name in a report, a zero byte included */

/* Results of inspecting a dataset. */
typedef struct plim_dataset_report {
    size_t size;
    bool whole; /* every byte was read and verified; false: rows were sampled */
    int64_t bytes_read;

    /* In-degrees. Quantiles are exact up to 2,048 and at most 0.1 % too small above. */
    double degree_mean;
    int64_t degree_min;
    int64_t degree_median;
    int64_t degree_p90;
    int64_t degree_p99;
    int64_t degree_p999;
    int64_t degree_max;
    int64_t degree_zero;                       /* nodes without in-edges */
    int64_t degrees_log2[PLIM_DEGREE_BUCKETS]; /* nodes of degree 0, 1, 2-3, 4-7, … */
    int64_t num_self_loops;                    /* -1 unless whole */
    int64_t num_duplicates; /* entries equal to the previous one in their list; -1 unless whole */

    int64_t num_unlabelled;   /* rows labelled -1, or with only NaN in sampled targets */
    int64_t num_classes_seen; /* classes that occur; -1 when there are more than 65,536 */
    int num_top;              /* the most frequent classes, most frequent first */
    int64_t top_class[PLIM_TOP_CLASSES];
    int64_t top_count[PLIM_TOP_CLASSES];
    plim_value_stats_t targets; /* of labels that are values */
    plim_value_stats_t features;

    char file_system[16]; /* "ext4", "lustre", … */
    bool network;         /* the files are on other machines */
    bool memory;          /* the files are in memory and count as memory */

    int num_type_names; /* of the first types of edges; 0 if they have no names */
    char type_names[PLIM_TOP_CLASSES][PLIM_TYPE_NAME]; /* shortened */
} plim_dataset_report_t;

#define PLIM_DATASET_REPORT_INIT                                                                   \
    {                                                                                              \
        .size = sizeof(plim_dataset_report_t)                                                      \
    }

/*
 * Inspects a dataset: degrees, classes, and statistics of features and target values over an evenly
 * spread sample of rows. With `whole` it reads every byte of every file once, compares the
 * checksums, checks the invariants (indptr ascends from 0 to the number of edges, lists ascend and
 * are in range, labels and splits are in range) and computes the statistics over all values. The
 * report does not depend on threads, engine and memory. PLIM_ERR_DATA names the first file and byte
 * range with an error, and the error. PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM,
 * PLIM_ERR_STOPPED; PLIM_ERR_USAGE for a dataset without files. Any thread. Memory: 7 MiB a thread
 * of the job.
 */
PLIM_API plim_status_t plim_dataset_inspect(const plim_job_t *job, const plim_dataset_t *dataset,
                                            bool whole, plim_dataset_report_t *report_out);

/*
 * Copies the dataset to `directory`, on a local disk, under a name made of its fingerprint and the
 * user's id, and returns the copy's path. Compares every checksum; the copy is complete or absent.
 * In a job of several ranks all of them call it: rank 0 reads, and the first rank of each node
 * writes. If another process is making the same copy, the call waits for it. An existing copy is
 * verified as a whole; it is refused (PLIM_ERR_DATA) if it is damaged, belongs to a user other than
 * this one and root, or can be written by others. PLIM_ERR_SPACE before the first write;
 * PLIM_ERR_DATA, PLIM_ERR_IO, PLIM_ERR_STOPPED; PLIM_ERR_USAGE if ranks have different datasets or
 * `directory` does not exist. Memory: 11 MiB; if `directory` is in memory (tmpfs), also the
 * dataset's size as long as the job lasts, PLIM_ERR_BUDGET if that does not fit. Any thread.
 */
PLIM_API plim_status_t plim_dataset_stage(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const char *directory, char path_out[PLIM_PATH_MAX]);

/*
 * Opens the copy of `dataset` at `path`. A run that is trained on it records the path of `dataset`,
 * so that it can continue after the copy was removed. PLIM_ERR_DATA if it is another dataset,
 * belongs to a user other than this one and root, or can be written by others; the errors of
 * plim_dataset_open. Any thread.
 */
PLIM_API plim_status_t plim_dataset_open_copy(const plim_job_t *job, const plim_dataset_t *dataset,
                                              const char *path, plim_dataset_t **copy_out);

#endif

#ifdef __cplusplus
}
#endif
#endif
