/*
 * Lists of seeds, in the order of an epoch, and their labels. A plim__seeds_t holds the dataset's
 * three splits, or one list of the caller's as its training split: nodes, graphs or links (see
 * load/links.h). Classes are held in the type of labels.npy and handed out as int64.
 *
 * The order of an epoch is a function of (seed, epoch, length of the list) alone. Up to
 * PLIM__SEEDS_SHUFFLED entries it is a Fisher-Yates shuffle, so that all orders are equally likely;
 * it takes 4 bytes an entry for each of two epochs, since the window builder works ahead. Longer
 * lists are ordered by plim__permute, a Feistel network, which takes no memory. On few bits it
 * would reach only few of the orders; on that many it mixes well enough.
 */
#ifndef PLIM_LOAD_SEEDS_H
#define PLIM_LOAD_SEEDS_H

#include "load/links.h"

#define PLIM__SEEDS_SHUFFLED ((int64_t)1 << 22)

typedef struct plim__seeds plim__seeds_t;

/* Peak memory, while the labels are read; and the memory that stays. */
size_t plim__seeds_estimate(const plim_job_t *job, const plim_dataset_t *dataset);
size_t plim__seeds_stays(const plim_dataset_t *dataset);

/*
 * Reads the splits and their labels. Account "seeds and labels". PLIM_ERR_DATA for an entry that is
 * out of range or occurs twice in a split, and for a label that is not a class.
 */
plim_status_t plim__seeds_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                 uint64_t seed, plim__seeds_t **seeds_out);
void plim__seeds_destroy(plim__seeds_t *seeds);

/*
 * The same for a list of `count` nodes (graphs, in a dataset of many graphs), which is copied and
 * may repeat nodes; NULL, with the number of all: these, ascending. Without `shuffled` it has no
 * memory for orders and is never taken shuffled; without `labels` none are read. times[i] goes with
 * nodes[i]; NULL: none. The second estimate is the memory used only during creation. The checksums
 * of labels.npy were compared before. PLIM_ERR_USAGE for an entry out of range.
 */
size_t plim__seeds_list_stays(const plim_dataset_t *dataset, int64_t count, bool shuffled,
                              bool times);
size_t plim__seeds_list_work(const plim_job_t *job, const plim_dataset_t *dataset, int64_t count);
plim_status_t plim__seeds_create_list(const plim_job_t *job, const plim_dataset_t *dataset,
                                      uint64_t seed, const int64_t *nodes, const int64_t *times,
                                      int64_t count, bool shuffled, bool labels,
                                      plim__seeds_t **seeds_out);

/* The same for links, `batch_pairs` in a batch: without labels, and without memory used only during
 * creation. An entry is a place; times[i] goes with pair i. PLIM_ERR_USAGE also for weights that
 * are negative, not finite or all 0. */
size_t plim__seeds_links_stays(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim_links_t *links, bool shuffled, bool times);
plim_status_t plim__seeds_create_links(const plim_job_t *job, const plim_dataset_t *dataset,
                                       uint64_t seed, const plim_links_t *links,
                                       const int64_t *times, int64_t batch_pairs, bool shuffled,
                                       bool disjoint, plim__seeds_t **seeds_out);

/* The links; NULL: the seeds are nodes or graphs. And the pairs of a batch of them. */
const plim_links_t *plim__seeds_links(const plim__seeds_t *seeds);
int64_t plim__seeds_batch_pairs(const plim__seeds_t *seeds);

/* The bytes that were planned for a list or links. */
size_t plim__seeds_own_stays(const plim_job_t *job, const plim_dataset_t *dataset,
                             const plim__seeds_t *seeds);

/* Replaces the entries of a list without labels by at most as many as it was created with.
 * PLIM_ERR_USAGE. */
plim_status_t plim__seeds_replace(plim__seeds_t *seeds, const plim_dataset_info_t *info,
                                  const int64_t *nodes, int64_t count);

int64_t plim__seeds_count(const plim__seeds_t *seeds, plim_split_t split);

/* How many entries of a list of nodes repeat an earlier one. */
int64_t plim__seeds_repeats(const plim__seeds_t *seeds, int64_t num_nodes);

/* The number of entries of a split with a label: a class, or at least one known value. */
int64_t plim__seeds_labelled(const plim__seeds_t *seeds, plim_split_t split);

/* The number of labels (classes, or known values) of the entries that plim__seeds_take would take.
 */
int64_t plim__seeds_labels(const plim__seeds_t *seeds, plim_split_t split, bool shuffled,
                           int64_t epoch, int64_t first, int64_t count);

/* Bytes of one label as it is handed out; 0 without labels. */
size_t plim__seeds_label_bytes(const plim__seeds_t *seeds);

/* The ids of the whole split, in the dataset's order: nodes, or graphs. */
const int64_t *plim__seeds_ids(const plim__seeds_t *seeds, plim_split_t split);

/*
 * Computes the training split's order of an epoch, unless it is present. The orders of an even and
 * of an odd epoch are kept: no thread may take seeds of another epoch of the same parity meanwhile.
 */
void plim__seeds_prepare(plim__seeds_t *seeds, int64_t epoch);

/*
 * Entries first … first+count-1 of the split, not of links: in the order of that epoch, which was
 * prepared, when `shuffled` (of the training split only), else in the dataset's or the caller's
 * order. Ids go to ids_out, and their labels (int64 or rows of float) to labels_out unless it is
 * NULL. Any thread.
 */
void plim__seeds_take(const plim__seeds_t *seeds, plim_split_t split, bool shuffled, int64_t epoch,
                      int64_t first, int64_t count, int64_t *ids_out, void *labels_out);

/* The times of the entries that plim__seeds_take, or of links plim__seeds_take_links, would take;
 * false for seeds without times. */
bool plim__seeds_times(const plim__seeds_t *seeds, bool shuffled, int64_t epoch, int64_t first,
                       int64_t count, int64_t *times_out);

/* The same of links: the nodes of whole batches of places. `negatives` is the thread's own, NULL
 * where none is looked up. Errors of plim__links_file_read and plim__negatives_draw. */
plim_status_t plim__seeds_take_links(const plim__seeds_t *seeds, plim__negatives_t *negatives,
                                     bool shuffled, int64_t epoch, int64_t first, int64_t count,
                                     int64_t *ids_out);

/* The types of pairs first … first + count - 1 of an epoch, of links with types. `negatives` as
 * above; `positions` those of plim__seeds_positions. Errors of plim__links_file_read. */
plim_status_t plim__seeds_link_types(const plim__seeds_t *seeds, const plim__negatives_t *negatives,
                                     bool shuffled, int64_t epoch, int64_t first, int64_t count,
                                     const int64_t *positions, int64_t *types_out);

/* The positions in the split of the entries that plim__seeds_take would take (of links: of pairs
 * first … first+count-1); false when the epoch's order is not present. */
bool plim__seeds_positions(const plim__seeds_t *seeds, bool shuffled, int64_t epoch, int64_t first,
                           int64_t count, int64_t *positions_out);

/* Lists the nodes of graphs one after the other; false when they are more than `capacity`. */
bool plim__graph_nodes(const int64_t *graph_indptr, const int64_t *graphs, int64_t num_graphs,
                       int64_t capacity, int64_t *nodes_out, int64_t *count_out);

#endif
