/*
 * Rows kept in memory that the kernel may take back at any time. Rows lie packed in the order of
 * their nodes; their pages are under MADV_FREE: under pressure the kernel drops them at once
 * instead of killing somebody, and a dropped page reads as zeros.
 *
 *     page  | row 0 | row 1 | … | row 15 |     the first 8 bytes of every row, and of every
 *             ^^^^ xor KEY                     page that a row continues on, are stored xor KEY
 *
 * So a page that is still there shows a word other than zero at each of these places, and it is
 * looked at after the copy: a row whose marks are all there was copied whole. A row whose own bytes
 * equal KEY at a mark cannot be told from a dropped one and is simply read from disk. Row size is
 * rounded up to 8. A count for each page tells a copier that the page was filled anew while it
 * copied. Pages are huge ones where the kernel has them: then 2 MiB go at once.
 */
#ifndef PLIM_FEATURE_ROW_CACHE_H
#define PLIM_FEATURE_ROW_CACHE_H

#include "base/node_set.h"
#include "feature/rows.h"

typedef struct plim__row_cache plim__row_cache_t;

typedef struct plim__row_cache_params {
    const plim__node_set_t *nodes; /* sealed, borrowed; in an estimate NULL stands for any */
    int64_t most;                  /* the first so many of them */
    const char *scratch;           /* see plim__rows_disk_params_t */
    uint64_t key;
    int64_t held;
} plim__row_cache_params_t;

size_t plim__row_cache_estimate(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim__row_cache_params_t *params);

/* Of that, what is over once they are filled. */
size_t plim__row_cache_filling(const plim_job_t *job, const plim_dataset_t *dataset,
                               const plim__row_cache_params_t *params);

/* Fills it by one sequential pass over features.npy, or from the packed file. Account "hot rows".
 */
plim_status_t plim__row_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__row_cache_params_t *params,
                                     plim__row_cache_t **hot_out);
void plim__row_cache_destroy(plim__row_cache_t *hot);

/* Copies the node's row as it is stored; false when it is not there (any more). Any thread. */
bool plim__row_cache_copy(const plim__row_cache_t *hot, int64_t node, void *row_out);
void plim__row_cache_prefetch(const plim__row_cache_t *hot, int64_t node);

/* As plim__rows_disk_holds and plim__rows_disk_refresh. */
bool plim__row_cache_holds(const plim__row_cache_t *hot, int64_t node);
plim_status_t plim__row_cache_refresh(plim__row_cache_t *hot);

/*
 * How many bytes it keeps at most, and that it keeps only so many from now on: the pages of the
 * nodes of greatest rank are given back at once (where a refresh is under way, by that), and are
 * not brought back before a higher limit allows it again. Any thread, one at a time.
 */
size_t plim__row_cache_bytes(const plim__row_cache_t *hot);
void plim__row_cache_limit(plim__row_cache_t *hot, size_t bytes);

/* For tests, which drop some of them: the pages, and the hot rows of a source. */
plim__row_cache_t *plim__rows_disk_cache(plim__rows_t *source);
void plim__row_cache_pages(const plim__row_cache_t *hot, char **pages_out, int64_t *num_pages_out);

#endif
