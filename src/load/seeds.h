/*
 * Lists of seeds, in the order of an epoch, and their labels. A plim__seeds_t holds the dataset's
 * three splits, or one list of the caller's as its training split.
 *
 * The order of an epoch is a function of (seed, epoch, length of the list) and nothing else. Up to
 * PLIM__SEEDS_SHUFFLED entries it is a Fisher-Yates shuffle, so every order is as likely as any
 * other; it takes 4 bytes an entry, for two epochs, since windows reach into the next one. A
 * Feistel network on a few bits reaches only few of the orders, so it will not do there. Longer
 * lists are put in order by plim__permute, which takes no memory: on that many bits it mixes well
 * enough.
 */
#ifndef PLIM_LOAD_SEEDS_H
#define PLIM_LOAD_SEEDS_H

#include "store/dataset.h"

#include <plimsoll/loader.h>

#define PLIM__SEEDS_SHUFFLED ((int64_t)1 << 22)

typedef struct plim__seeds plim__seeds_t;

/* At its peak, while the labels are picked out; and what stays of it. */
size_t plim__seeds_estimate(const plim_job_t *job, const plim_dataset_t *dataset);
size_t plim__seeds_stays(const plim_dataset_t *dataset);

/*
 * Reads splits and the labels of their entries. Account "seeds and labels". PLIM_ERR_DATA for an
 * entry out of range or one that a split holds twice, and for a label that is no class.
 */
plim_status_t plim__seeds_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                 uint64_t seed, plim__seeds_t **seeds_out);
void plim__seeds_destroy(plim__seeds_t *seeds);

/*
 * The same for a list of `count` nodes (graphs, in a dataset of many graphs), which is copied. A
 * node may be in it more than once. Without `shuffled` it takes no memory for orders, and is never
 * taken shuffled. The second estimate is of what only making it takes. `checked`: labels.npy was
 * compared with its checksums before. PLIM_ERR_USAGE for an entry out of range.
 */
size_t plim__seeds_list_stays(const plim_dataset_info_t *info, int64_t count, bool shuffled);
size_t plim__seeds_list_work(const plim_job_t *job, const plim_dataset_info_t *info, int64_t count);
plim_status_t plim__seeds_create_list(const plim_job_t *job, const plim_dataset_t *dataset,
                                      uint64_t seed, const int64_t *nodes, int64_t count,
                                      bool shuffled, bool checked, plim__seeds_t **seeds_out);

int64_t plim__seeds_count(const plim__seeds_t *seeds, plim_split_t split);

/* Entries of a split that have a label: a class, or a value in one of their columns at least. */
int64_t plim__seeds_labelled(const plim__seeds_t *seeds, plim_split_t split);

/* Labels of entries first … first+count-1 of the split's order in that epoch: classes, or values
 * that are known. As plim__seeds_take besides. */
int64_t plim__seeds_labels(const plim__seeds_t *seeds, plim_split_t split, bool shuffled,
                           int64_t epoch, int64_t first, int64_t count);

/* Bytes of an entry's label; 0 without labels. */
size_t plim__seeds_label_bytes(const plim__seeds_t *seeds);

/* The ids of the whole split, in the dataset's order: nodes, or graphs. */
const int64_t *plim__seeds_ids(const plim__seeds_t *seeds, plim_split_t split);

/*
 * Makes the training split's order of an epoch, unless it is there. That of the epoch before it, or
 * behind it, stays; any other may go, so nobody may be taking seeds of a third epoch meanwhile.
 */
void plim__seeds_prepare(plim__seeds_t *seeds, int64_t epoch);

/*
 * Entries first … first+count-1 of the split: in the order of that epoch, which was prepared, when
 * `shuffled` (of the training split only), else in the dataset's or the caller's order. Ids go to
 * ids_out, and their labels (int64 or rows of float) to labels_out unless it is NULL. Any thread.
 */
void plim__seeds_take(const plim__seeds_t *seeds, plim_split_t split, bool shuffled, int64_t epoch,
                      int64_t first, int64_t count, int64_t *ids_out, void *labels_out);

#endif
