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

/* What a dataset holds, from its dataset.json. Later versions add fields at the end. */
typedef struct plim_dataset_info {
    size_t size;          /* of this struct in the library that is loaded */
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
    bool multi_label; /* values are 0 and 1 (or NaN) in several columns */
    double
        feature_error; /* worst relative error of stored features against the source's; 0 = exact */
    char
        fingerprint[17]; /* hexadecimal, of all checksums: equal datasets have equal fingerprints */
    /* How the dataset was made; the texts live as long as the dataset. */
    const char *source;
    const char *options;
    const char *version; /* of the plimsoll that made it */
} plim_dataset_info_t;

typedef struct plim_dataset plim_dataset_t;

/*
 * Opens a dataset for reading: dataset.json is parsed and every file's header and size are checked
 * against it. PLIM_ERR_DATA names what does not agree; PLIM_ERR_UNSUPPORTED for a newer format;
 * PLIM_ERR_USAGE when there is no such directory.
 * `path` is copied.
 * Nothing is ever written into the directory. It keeps the job alive. PLIM_ERR_IO,
 * PLIM_ERR_BUDGET, PLIM_ERR_NOMEM. Any thread. Memory: about twice dataset.json's size; ten times
 * while it is parsed.
 */
PLIM_API plim_status_t plim_dataset_open(const plim_job_t *job, const char *path,
                                         plim_dataset_t **dataset_out);

/* One more reference, and one less: the last one closes the dataset. NULL is harmless. Any thread.
 */
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

/* The index-th file, ascending by name; false when there is none (or in a forked child, or without
 * a size). Any thread. */
PLIM_API bool plim_dataset_file(const plim_dataset_t *dataset, int index,
                                plim_dataset_file_t *file_out);

/* Statistics of floating-point values. Those of no values are 0. */
typedef struct plim_value_stats {
    int64_t count; /* values looked at, NaN and infinite ones included */
    int64_t num_nan;
    int64_t num_infinite;
    double min; /* of the finite ones, as are all below */
    double max;
    double mean;
    double deviation; /* root of the mean squared distance from the mean */
} plim_value_stats_t;

#define PLIM_DEGREE_BUCKETS 64
#define PLIM_TOP_CLASSES 10

/* What a look at a dataset's contents finds. */
typedef struct plim_dataset_report {
    size_t size;
    bool whole; /* every byte was read and found right; else rows were sampled */
    int64_t bytes_read;

    /* In-degrees. The quantiles are exact up to 2,048 and within 0.1 % above. */
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
    int64_t num_duplicates; /* entries equal to the one before in their list; -1 unless whole */

    int64_t num_unlabelled;   /* rows labelled -1, or with nothing but NaN in sampled targets */
    int64_t num_classes_seen; /* classes that occur; -1 when there are more than 65,536 */
    int num_top;              /* the most frequent classes, most frequent first */
    int64_t top_class[PLIM_TOP_CLASSES];
    int64_t top_count[PLIM_TOP_CLASSES];
    plim_value_stats_t targets; /* of labels that are values */
    plim_value_stats_t features;

    char file_system[16]; /* "ext4", "lustre", … */
    bool network;         /* the files lie on other machines */
    bool memory;          /* the files lie in memory, and count as such */
} plim_dataset_report_t;

#define PLIM_DATASET_REPORT_INIT                                                                   \
    {                                                                                              \
        .size = sizeof(plim_dataset_report_t)                                                      \
    }

/*
 * Looks into a dataset: degrees, classes, and statistics of features and target values over a
 * sample of rows evenly spread. With `whole` it reads every byte of every file once, compares the
 * checksums, checks the invariants (indptr ascending from 0 to the number of edges, lists ascending
 * and in range, labels and splits in range) and takes the statistics over all. The report is the
 * same whatever the threads, the engine and the memory. PLIM_ERR_DATA names the first file and byte
 * range that is wrong, and what is wrong there. PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM,
 * PLIM_ERR_STOPPED; PLIM_ERR_USAGE for a dataset without files. Any thread. Memory: 7 MiB a thread
 * of the job.
 */
PLIM_API plim_status_t plim_dataset_inspect(const plim_job_t *job, const plim_dataset_t *dataset,
                                            bool whole, plim_dataset_report_t *report_out);

#define PLIM_PATH_MAX 4096

/*
 * Copies the dataset to `directory`, on a disk of this machine, under a name made of its
 * fingerprint, and gives the copy's path; every checksum is compared on the way, and the copy is
 * there complete or not at all. One that is there already is verified as a whole, and refused when
 * it is damaged, belongs to another user than this one or root, or others can write to it
 * (PLIM_ERR_DATA). PLIM_ERR_SPACE before anything is written, PLIM_ERR_DATA, PLIM_ERR_IO,
 * PLIM_ERR_USAGE when another process is making the same copy. Memory: 9 MiB; and the dataset's
 * size, for as long as the job lasts, when `directory` lies in memory (tmpfs), PLIM_ERR_BUDGET when
 * that does not fit. Any thread.
 */
PLIM_API plim_status_t plim_dataset_stage(const plim_job_t *job, const plim_dataset_t *dataset,
                                          const char *directory, char path_out[PLIM_PATH_MAX]);

/* plim_dataset_inspect with `whole`, for those who need no report. */
PLIM_API plim_status_t plim_dataset_verify(const plim_job_t *job, const plim_dataset_t *dataset);

#ifdef __cplusplus
}
#endif
#endif
