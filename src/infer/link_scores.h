/*
 * Scores pairs of nodes by their rows, and compares a list of pairs with negatives as OGB's
 * evaluators do. Pairs and negatives are read in chunks. The scores of all pairs are in memory only
 * if they share their negatives.
 */
#ifndef PLIM_INFER_LINK_SCORES_H
#define PLIM_INFER_LINK_SCORES_H

#include "infer/exact.h"

typedef struct plim__link_scores plim__link_scores_t;

/* Pairs and what they are compared with, as in plim_inference_t. */
typedef struct plim__link_files {
    const char *pairs, *negatives;
    int64_t drawn;
    int64_t num_types; /* of the pairs, and of negatives in pairs; 0: they have none */
} plim__link_files_t;

/* The number of the pairs, whether all share the negatives, and a checksum as
 * plim__links_file_describe's. PLIM_ERR_USAGE for files of another form, and its errors. */
plim_status_t plim__link_files_describe(const plim_job_t *job, const plim__link_files_t *files,
                                        int64_t *num_pairs_out, bool *shared_out,
                                        int64_t *checksum_out);

typedef struct plim__link_scores_params {
    plim__link_files_t files;
    uint64_t seed;       /* of drawn negatives */
    int64_t width;       /* of the rows */
    const char *scratch; /* for rows that are not held in memory */
    int64_t minimum;     /* least bytes of the pass over the graph */
    bool compares;       /* with negatives; else scores of the pairs alone */
    plim__scorer_t scorer;
    const plim__parameter_t *parameters; /* among which are the decoder's */
    int num_parameters;
} plim__link_scores_params_t;

/* Bytes of memory with rows on disk, and the bytes of these rows. */
size_t plim__link_scores_estimate(const plim_job_t *job, int64_t num_pairs, int64_t num_types,
                                  bool shared, int64_t width, const plim__scorer_t *scorer);
int64_t plim__link_scores_disk(int64_t num_nodes, int64_t width);

/* Checks the files to their ends and takes memory and disk space. Account "evaluation", and those
 * of plim__node_rows_create and plim__links_file_create, with their errors. */
plim_status_t plim__link_scores_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const plim__link_scores_params_t *params,
                                       plim__link_scores_t **scores_out);
void plim__link_scores_destroy(plim__link_scores_t *scores);

int64_t plim__link_scores_pairs(const plim__link_scores_t *scores);

/* Stores the rows of the next nodes: a plim__exact_take_fn. */
plim_status_t plim__link_scores_take(void *scores, int64_t first, int64_t count, int64_t width,
                                     const float *values);

/* After all rows: compares pairs and negatives; or passes the pairs' scores to `take`.
 * PLIM_ERR_DIVERGED, PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_STOPPED, and errors of `take`. */
plim_status_t plim__link_scores_compare(plim__link_scores_t *scores, plim_link_scores_t *found_out);
plim_status_t plim__link_scores_give(plim__link_scores_t *scores, plim__exact_take_fn take,
                                     void *context);

#endif
