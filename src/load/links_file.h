/* Pairs of nodes in a .npy file of any size: read by their places, never held whole. */
#ifndef PLIM_LOAD_LINKS_FILE_H
#define PLIM_LOAD_LINKS_FILE_H

#include <plimsoll/dataset.h>
#include <plimsoll/job.h>

typedef struct plim__links_file plim__links_file_t;

size_t plim__links_file_estimate(const plim_job_t *job, const char *path);

/*
 * Opens integers of shape (2, num_pairs) or (num_pairs, 2); of (2, 2) the first. Account "seeds and
 * labels". PLIM_ERR_USAGE for another shape or type, PLIM_ERR_IO, PLIM_ERR_DATA.
 */
plim_status_t plim__links_file_create(const plim_job_t *job, const char *path, int64_t num_pairs,
                                      int64_t num_nodes, plim__links_file_t **file_out);
void plim__links_file_destroy(plim__links_file_t *file);

/* Its path, which lives as long as it. */
const char *plim__links_file_path(const plim__links_file_t *file);

/*
 * Reads the pairs at these positions, which may be those of sources_out or targets_out. Any thread;
 * one reads at a time. PLIM_ERR_DATA for a node that does not exist, PLIM_ERR_IO,
 * PLIM_ERR_STOPPED.
 */
plim_status_t plim__links_file_read(plim__links_file_t *file, const int64_t *positions,
                                    int64_t count, int64_t *sources_out, int64_t *targets_out);

#endif
