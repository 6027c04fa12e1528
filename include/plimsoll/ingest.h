/* Making datasets: by importing files, or by generating a named shape. */
#ifndef PLIMSOLL_INGEST_H
#define PLIMSOLL_INGEST_H

#include <plimsoll/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plim_self_loops {
    PLIM_SELF_LOOPS_KEEP = 0,
    PLIM_SELF_LOOPS_ADD, /* exactly one for each node */
    PLIM_SELF_LOOPS_REMOVE
} plim_self_loops_t;

/* How the columns of duplicate edges are merged when one edge is kept. */
typedef enum plim_duplicates {
    PLIM_DUPLICATES_FIRST = 0, /* those of the first edge in the source */
    PLIM_DUPLICATES_SUM,       /* features and weights are added */
    PLIM_DUPLICATES_LARGEST    /* the largest of each feature, weight and time */
} plim_duplicates_t;

/* How labels are interpreted. */
typedef enum plim_targets {
    PLIM_TARGETS_AUTO = 0, /* whole numbers in one column are classes, of graphs only if the source
                              has integers or is a text; others are values */
    PLIM_TARGETS_CLASSES,  /* classes, for classification: 0, 1, 2, …; -1 or NaN: unlabelled */
    PLIM_TARGETS_VALUES    /* values, for regression; NaN: unknown */
} plim_targets_t;

typedef struct plim_import_options {
    size_t size;
    const char *source; /* file or directory; its kind is recognised */
    const char *target; /* the dataset directory to make; must not exist */
    const char *tmp;    /* directory of temporary files; NULL: beside the target */
    bool symmetrise;    /* add the reverse of each edge; removes duplicates */
    bool remove_duplicates;
    plim_self_loops_t self_loops;
    bool relabel; /* texts: ids are names; the dataset keeps them */
    /* PLIM_F16, PLIM_F32, PLIM_I64 (all values must be whole), or 0: the source's type (f64 becomes
     * f32, integers i64, and OGB's categories of nodes are stored one-hot as f32). */
    plim_dtype_t features;
    int64_t num_nodes; /* 0: the source's number, or for edge lists the largest id plus one */
    /* Divide each row of features by its sum, or by 1 if the sum is smaller: PyG's
     * NormalizeFeatures, for features that are not negative. */
    bool normalise_features;
    plim_targets_t targets;
    /* Draw splits for a source without any: shares of the labelled nodes (or graphs) for train,
     * valid and test, at most 1 in all, drawn uniformly without replacement; all 0: none. */
    double split[3];
    uint64_t seed;                /* of that draw */
    plim_duplicates_t duplicates; /* all but FIRST also remove duplicates */
    bool edge_ids;                /* keep the number of each edge in the source, as edge_id.npy */
} plim_import_options_t;

#define PLIM_IMPORT_OPTIONS_INIT                                                                   \
    {                                                                                              \
        .size = sizeof(plim_import_options_t)                                                      \
    }

/*
 * Imports a source. Logs the kind of source and the disk space needed and free, and checks both
 * disk and memory before the first write: PLIM_ERR_SPACE, PLIM_ERR_BUDGET (with the minimum). Bad
 * input is PLIM_ERR_DATA with file, position and remedy. After a failure the target does not exist.
 * Peak memory: the ledger's line.
 */
PLIM_API plim_status_t plim_import(const plim_job_t *job, const plim_import_options_t *options);

typedef struct plim_generate_options {
    size_t size;
    const char *shape;  /* "papers100M", "products", "arxiv", "reddit", or "free" */
    const char *target; /* as above */
    const char *tmp;    /* as above */
    double scale;       /* nodes, edges and splits times this; 1 = full size */
    double spread;      /* 0: the shape's own locality … 1: no locality */
    uint64_t seed;
    int64_t num_nodes; /* "free": all four are required; otherwise 0: the shape's */
    int64_t num_edges; /* an undirected shape's count once */
    int64_t num_features;
    int64_t num_classes;
    plim_dtype_t features; /* PLIM_F16 or PLIM_F32, or 0: the shape's */
    /* NULL: none; else some of "features:8,weight,types:4,time", with any counts: features of edges
     * have the type of those of nodes, and time is of edges and of nodes. */
    const char *edge_columns;
} plim_generate_options_t;

#define PLIM_GENERATE_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(plim_generate_options_t), NULL, NULL, NULL, 1.0, 0.0, 0, 0, 0, 0, 0,                \
            (plim_dtype_t)0, NULL                                                                  \
    }

/* Generates a dataset: the same bytes for the same options, for any memory, threads, engine and
 * CPU. Does nothing if the target is that dataset already. */
PLIM_API plim_status_t plim_generate(const plim_job_t *job, const plim_generate_options_t *options);

/* What may still change; see docs/c.md. */
#ifdef PLIM_UNSTABLE

/*
 * Describes the dataset that plim_generate would make, without making it: counts, degrees and sizes
 * of files, enough for a plan. options->target may be NULL. Its path is the shape's name; reading
 * its files is PLIM_ERR_USAGE. PLIM_ERR_USAGE as for plim_generate. Release it with
 * plim_dataset_release.
 */
PLIM_API plim_status_t plim_dataset_from_shape(const plim_job_t *job,
                                               const plim_generate_options_t *options,
                                               plim_dataset_t **dataset_out);

#endif

#ifdef __cplusplus
}
#endif
#endif
