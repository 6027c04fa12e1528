/*
 * The working set: the rows that a recipe can reach, packed in a file in the scratch directory in
 * the order of their access probability (source/node_order.h). The row cache is its beginning, and
 * rows that the cache misses are read from the rest, where few others lie between them.
 *
 *     | header, a page | rows, by place | checksum of each page | bits of the nodes | classes |
 *
 * A place holds a row rounded up to 8 bytes, as in the cache; classes begin on pages. The file
 * depends on the dataset, the fan-outs and nothing else, so all lines and jobs can share it. It
 * appears complete or not at all. Whoever reads pages of it compares their checksums; positions
 * and places are computed from the bits again. A file that is damaged or gone costs time: rows are
 * read from the dataset then.
 */
#ifndef PLIM_SOURCE_WORKING_SET_H
#define PLIM_SOURCE_WORKING_SET_H

#include "base/job.h"
#include "source/node_order.h"
#include "store/dataset.h"

#include <stdatomic.h>

typedef struct plim__working_set {
    plim__arena_t arena; /* account "working set" */
    plim_job_t job;
    plim__node_order_t order;
    int64_t row_bytes;
    int64_t stride; /* bytes between places */
    bool complete;  /* no row that can be reached is left out */
    plim__file_t file;
    _Atomic bool readable; /* rows can be read from the file */
    uint32_t *checks;      /* (pages of header and rows) */
    uint64_t key;
    char fingerprint[24];
    char path[PATH_MAX];
} plim__working_set_t;

/* Bytes of the file with so many rows at most, of the object, and of making the file besides. */
int64_t plim__working_set_bytes(const plim_dataset_t *dataset, int64_t num_rows);
size_t plim__working_set_estimate(const plim_dataset_t *dataset, int64_t num_rows);
size_t plim__working_set_making(const plim_job_t *job);

/* Creates a working set without a file, for so many rows; the caller fills its order's nodes and
 * classes. `key` identifies the recipe. PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_USAGE for a path
 * that is too long. */
plim_status_t plim__working_set_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       const char *scratch, uint64_t key, int64_t num_rows,
                                       plim__working_set_t **set_out);
void plim__working_set_destroy(plim__working_set_t *set);

/* Seals the order when all nodes have their classes. */
void plim__working_set_seal(plim__working_set_t *set);

/*
 * Opens the file of this dataset and recipe: *set_out is NULL if there is none with at most
 * `most_rows` rows that is intact. Damage is logged and is not an error. PLIM_ERR_BUDGET,
 * PLIM_ERR_NOMEM, PLIM_ERR_USAGE.
 */
plim_status_t plim__working_set_open(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const char *scratch, uint64_t key, int64_t most_rows,
                                     plim__working_set_t **set_out);

/*
 * Claims the right to make the file: false if another process is making it. *lock_out is given to
 * plim__working_set_release, and is -1 where there is no lock: on some file systems, or where
 * another user's file has its name.
 */
bool plim__working_set_claim(const plim_dataset_t *dataset, const char *scratch, uint64_t key,
                             int *lock_out);
void plim__working_set_release(const plim_dataset_t *dataset, const char *scratch, uint64_t key,
                               int lock);

/*
 * Writes the file of a sealed set in one pass over features.npy, whose checksums are compared.
 * Logs why it cannot be written, which is not an error: the set then has no file. PLIM_ERR_DATA,
 * PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM, PLIM_ERR_STOPPED.
 */
plim_status_t plim__working_set_save(plim__working_set_t *set, const plim_dataset_t *dataset,
                                     const char *scratch);

/* Reading it failed, as the last error says, which is logged: no row is read from it any more. Any
 * thread. */
void plim__working_set_lost(plim__working_set_t *set);

/* Offset of a place in the file. */
static inline int64_t plim__working_set_offset(const plim__working_set_t *set, int64_t place)
{
    return (int64_t)PLIM__PAGE + place * set->stride;
}

#endif
