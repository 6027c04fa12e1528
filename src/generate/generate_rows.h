/*
 * Features, labels and splits of the generated nodes, in the order of ids, written to the columns
 * "features", "labels", "train", "valid" and "test".
 *
 * A row is the mean of its node's class plus noise. Means lie in a space of few dimensions, so that
 * narrow models can tell classes apart, and those of a subject's classes are closer to each other.
 * The rows of stars, which all classes draw, are noise.
 * A share of the labels is another class, so the accuracy of a model is at most 1 - label_noise.
 * Only nodes of a split have labels. Splits are exact shares of the core by a keyed permutation.
 */
#ifndef PLIM_GENERATE_GENERATE_ROWS_H
#define PLIM_GENERATE_GENERATE_ROWS_H

#include "generate/generate_shape.h"
#include "store/dataset_writer.h"

/*
 * Memory for writing `buffer` bytes (a multiple of 64 KiB) of features at once: 1-2 MiB a thread in
 * the account "generate rows", and the open columns.
 */
size_t plim__rows_estimate(const plim_job_t *job, const plim__shape_t *shape, size_t buffer);

int64_t plim__rows_bytes(const plim__shape_t *shape);

/* Writes all rows; progress is "writing features", in rows. PLIM_ERR_STOPPED, errors of I/O. */
plim_status_t plim__rows_write(const plim_job_t *job, const plim__shape_t *shape, size_t buffer,
                               plim__dataset_writer_t *writer);

#endif
