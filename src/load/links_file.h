/*
 * Pairs of nodes in a .npy file of any size, or the edges of a dataset: read by their places, never
 * held whole. They may have types: a third number in the file, or edge_type.npy.
 *
 * In a shuffled order a pair would be a read by itself. So the pairs of PLIM__LINKS_AHEAD places of
 * the epoch are read at once, by ascending position, where close ones are one read. Some such
 * windows of pairs are kept: batches are built from one while the loader lists seeds of a later
 * one.
 */
#ifndef PLIM_LOAD_LINKS_FILE_H
#define PLIM_LOAD_LINKS_FILE_H

#include "source/offsets.h"

#include <plimsoll/job.h>
#include <plimsoll/loader.h>

#define PLIM__LINKS_AHEAD ((int64_t)1 << 18)

typedef struct plim__links_file plim__links_file_t;

/* Output arrays for pairs; NULL: not wanted. Sources and targets are wanted together. */
typedef struct plim__links_out {
    int64_t *sources, *targets, *types;
} plim__links_out_t;

/* Columns of a file of pairs: source, target and, with types, the type. */
static inline int64_t plim__links_columns(int64_t num_types)
{
    return num_types > 0 ? 3 : 2;
}

/*
 * The number of its pairs, where num_pairs_out is not NULL, and a checksum of its size, its header,
 * and its first and last MiB: reading all may take as long as an epoch. Errors of
 * plim__links_file_create.
 */
plim_status_t plim__links_file_describe(const plim_job_t *job, const char *path, bool types,
                                        int64_t *num_pairs_out, int64_t *checksum_out);

size_t plim__links_file_estimate(const plim_job_t *job, const plim_links_t *links, bool shuffled);

/*
 * Opens links->path, integers of shape (2, num_pairs) or (num_pairs, 2), with types (3, num_pairs)
 * or (num_pairs, 3); of a square the first; or indices.npy. Account "seeds and labels".
 * PLIM_ERR_USAGE for another shape or type, PLIM_ERR_IO, PLIM_ERR_DATA.
 */
plim_status_t plim__links_file_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                      const plim_links_t *links, bool shuffled,
                                      plim__links_file_t **file_out);
void plim__links_file_destroy(plim__links_file_t *file);

/* Its path, which lives as long as it; NULL of edges. */
const char *plim__links_file_path(const plim__links_file_t *file);

/*
 * Reads the pairs at these positions, which may be out.sources or out.targets. Any thread; one
 * reads at a time. `offsets` tell the targets of edges. PLIM_ERR_DATA for a node or type that does
 * not exist, PLIM_ERR_IO, PLIM_ERR_STOPPED.
 */
plim_status_t plim__links_file_read(plim__links_file_t *file, const plim__offsets_t *offsets,
                                    const int64_t *positions, int64_t count, plim__links_out_t out);

/* The positions of the pairs at places first … first + count - 1 of a shuffled epoch. */
typedef void (*plim__links_order_t)(const void *context, int64_t epoch, int64_t first,
                                    int64_t count, int64_t *positions_out);

/* The same for the pairs at these places of an epoch; of a file created as shuffled. */
plim_status_t plim__links_file_take(plim__links_file_t *file, const plim__offsets_t *offsets,
                                    plim__links_order_t order, const void *context, int64_t epoch,
                                    int64_t first, int64_t count, plim__links_out_t out);

#endif
