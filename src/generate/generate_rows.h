/*
 * What the generated nodes carry: features, labels and the splits, in the order of ids, written to
 * the columns "features", "labels", "train", "valid" and "test".
 *
 * A row is the mean of its node's class plus noise; a share of the nodes has another class's row,
 * and, drawn apart from that, a share of the labels is another class's. So a model that sees rows
 * alone is right at most (1 - row_noise) (1 - label_noise) of the time, one that sees the graph too
 * at most 1 - label_noise, however many nodes there are to learn from. Only nodes of a split have
 * labels; splits are exact shares of the core by a keyed permutation.
 */
#ifndef PLIM_GENERATE_GENERATE_ROWS_H
#define PLIM_GENERATE_GENERATE_ROWS_H

#include "generate/generate_shape.h"
#include "store/dataset_writer.h"

/*
 * Memory, for `buffer` bytes (a multiple of 64 KiB) of features written at once: in the account
 * "generate rows" 1-2 MiB a thread, and the open columns'.
 */
size_t plim__rows_estimate(const plim_job_t *job, const plim__shape_t *shape, size_t buffer);

/* Bytes of the columns. */
int64_t plim__rows_bytes(const plim__shape_t *shape);

/* Writes all rows; progress is "writing features", in rows. PLIM_ERR_STOPPED, errors of I/O. */
plim_status_t plim__rows_write(const plim_job_t *job, const plim__shape_t *shape, size_t buffer,
                               plim__dataset_writer_t *writer);

#endif
