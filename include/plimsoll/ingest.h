/* Making datasets: from data people have, or from a named shape. */
#ifndef PLIMSOLL_INGEST_H
#define PLIMSOLL_INGEST_H

#include <plimsoll/dataset.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum plim_self_loops {
    PLIM_SELF_LOOPS_KEEP = 0,
    PLIM_SELF_LOOPS_ADD, /* exactly one at every node */
    PLIM_SELF_LOOPS_REMOVE
} plim_self_loops_t;

typedef struct plim_import_options {
    size_t size;
    const char *source; /* file or directory; its kind is recognised */
    const char *target; /* the dataset directory to make; must not exist */
    const char *tmp;    /* directory of temporary files; NULL: beside the target */
    bool symmetrise;    /* add the reverse of each edge; duplicates go */
    bool remove_duplicates;
    plim_self_loops_t self_loops;
    bool relabel;          /* text edge lists: ids are names; ids.npy keeps them */
    plim_dtype_t features; /* PLIM_F16, PLIM_F32, or 0: as the source has them (f64 becomes f32) */
    int64_t num_nodes;     /* 0: as the source says, or for edge lists the greatest id plus one */
    /* Divide each row of features by its sum, or by 1 when that is less: PyG's NormalizeFeatures,
     * for features that are not negative. */
    bool normalise_features;
} plim_import_options_t;

#define PLIM_IMPORT_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(plim_import_options_t), NULL, NULL, NULL, false, false, PLIM_SELF_LOOPS_KEEP,       \
            false, (plim_dtype_t)0, 0, false                                                       \
    }

/*
 * Imports. Says through job->log what it recognised, how much disk it needs and what it has, and
 * refuses first: PLIM_ERR_SPACE, PLIM_ERR_BUDGET (with the least memory that would do). Bad input
 * is PLIM_ERR_DATA with file, position and remedy. On any failure the target does not exist. Peak
 * memory: the ledger's line.
 */
PLIM_API plim_status_t plim_import(const plim_job_t *job, const plim_import_options_t *options);

typedef struct plim_generate_options {
    size_t size;
    const char *shape;  /* "papers100M", "products", "arxiv", "reddit", or "free" */
    const char *target; /* as above */
    const char *tmp;    /* as above */
    double scale;       /* nodes, edges and splits times this; 1 = full size */
    double spread;      /* 0: the shape's own locality … 1: neighbours without any */
    uint64_t seed;
    int64_t num_nodes; /* "free": all four must be set; else 0: the shape's */
    int64_t num_edges;
    int64_t num_features;
    int64_t num_classes;
    plim_dtype_t features; /* PLIM_F16 or PLIM_F32, or 0: the shape's */
} plim_generate_options_t;

#define PLIM_GENERATE_OPTIONS_INIT                                                                 \
    {                                                                                              \
        sizeof(plim_generate_options_t), NULL, NULL, NULL, 1.0, 0.0, 0, 0, 0, 0, 0,                \
            (plim_dtype_t)0                                                                        \
    }

/* Generates: the same bytes for the same options, whatever the memory, threads, engine and CPU. */
PLIM_API plim_status_t plim_generate(const plim_job_t *job, const plim_generate_options_t *options);

/*
 * What plim_generate would make, without making it: counts, degrees and sizes of files, enough for
 * a plan. options->target may be NULL. Its path is the shape's name; reading any of it is
 * PLIM_ERR_USAGE. PLIM_ERR_USAGE as plim_generate's. Closed by plim_dataset_release.
 */
PLIM_API plim_status_t plim_dataset_from_shape(const plim_job_t *job,
                                               const plim_generate_options_t *options,
                                               plim_dataset_t **dataset_out);

#ifdef __cplusplus
}
#endif
#endif
