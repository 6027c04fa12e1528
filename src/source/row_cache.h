/*
 * The row cache: rows of some nodes, or of all, in memory that can be dropped (mem/droppable.h).
 * Rows lie packed in the order of their nodes, or by place in a working set, whose beginning the
 * cache then is:
 *
 *     page  | row 0 | row 1 | … | row 15 |     the first 8 bytes of every row, and of every
 *             ^^^^ xor KEY                     page that a row continues on, are stored xor KEY
 *
 * A word of zero at one of these places means that the page was dropped. A row whose own bytes
 * equal KEY at a mark looks dropped and is read from disk. The size of a row is rounded up to 8.
 */
#ifndef PLIM_SOURCE_ROW_CACHE_H
#define PLIM_SOURCE_ROW_CACHE_H

#include "source/cache.h"
#include "source/row_form.h"

#define PLIM__ROW_CACHE_KEY UINT64_C(0x9ddfea08eb382d69)
#define PLIM__ROW_READ_MAX ((size_t)64 << 10) /* of a read, unless a row is longer */

typedef struct plim__row_cache plim__row_cache_t;

/* Number of rows that the cache holds at most: of the working set, of params->cached (NULL: any
 * nodes), or of all. */
int64_t plim__row_cache_rows(const plim_dataset_t *dataset, const plim__source_params_t *params);

/* Bytes of the cache, and additional bytes while it is filled. */
size_t plim__row_cache_estimate(const plim_dataset_t *dataset, const plim__source_params_t *params);
size_t plim__row_cache_filling(const plim_job_t *job, const plim__source_params_t *params);

/*
 * Creates and fills the cache from features.npy (all rows: in one pass that compares the file's
 * checksums), or from the working set. Account "row cache". PLIM_ERR_BUDGET, PLIM_ERR_NOMEM,
 * PLIM_ERR_IO, PLIM_ERR_DATA, PLIM_ERR_STOPPED.
 */
plim_status_t plim__row_cache_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                     const plim__source_params_t *params, plim__source_t *source,
                                     plim__row_cache_t **cache_out);
void plim__row_cache_destroy(plim__row_cache_t *cache);

/*
 * Writes the cached rows of nodes[0 … count-1] to the target, and the indices of the other nodes,
 * ascending, to missing_out (count); returns their number. *lost_out counts rows that were cached
 * and dropped. Reads as reader `reader`.
 */
int64_t plim__row_cache_take(plim__row_cache_t *cache, int reader, const int64_t *nodes,
                             int64_t count, const plim__row_target_t *target, uint64_t *missing_out,
                             int64_t *lost_out);

/* Whether the node's row is cached; it may be dropped at any time. Any thread. */
bool plim__row_cache_holds(const plim__row_cache_t *cache, int64_t node);

#endif
