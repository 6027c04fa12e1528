/*
 * The seeds of an epoch, in its order, and their labels: the splits' ids and labels packed in
 * memory, and a keyed permutation for the training split.
 */
#ifndef PLIM_LOAD_SEEDS_H
#define PLIM_LOAD_SEEDS_H

#include "store/dataset.h"

#include <plimsoll/loader.h>

typedef struct plim__seeds plim__seeds_t;

size_t plim__seeds_estimate(const plim_job_t *job, const plim_dataset_t *dataset);

/* Reads splits and the labels of their entries. Account "seeds and labels". */
plim_status_t plim__seeds_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                 uint64_t seed, plim__seeds_t **seeds_out);
void plim__seeds_destroy(plim__seeds_t *seeds);

int64_t plim__seeds_count(const plim__seeds_t *seeds, plim_split_t split);

/* The ids of the whole split, in the dataset's order: nodes, or graphs. */
const int64_t *plim__seeds_ids(const plim__seeds_t *seeds, plim_split_t split);

/*
 * Entries first … first+count-1 of the split's order in that epoch: ids to ids_out, and their
 * labels (int64 or rows of float) to labels_out unless it is NULL. Any thread.
 */
void plim__seeds_take(const plim__seeds_t *seeds, plim_split_t split, int64_t epoch, int64_t first,
                      int64_t count, int64_t *ids_out, void *labels_out);

#endif
