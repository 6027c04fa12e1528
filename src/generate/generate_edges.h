/*
 * Columns of the generated edges, in the order of indices.npy, which is read back for them. The
 * values of an edge are a function of the seed, its source and its destination.
 *
 * They carry what rows and lists do not:
 *     features  the mean of the destination's label plus noise. Rows and lists carry its class,
 *               which a share of the labels, the label noise, is not: a model without the columns
 *               cannot pass 1 - label_noise
 *     type      that label modulo the number of types, for 3 of 4 edges; others have any type
 *     weight    is larger by 8 where both ends have the same class
 *     time      is later than the destination's time for 3 of 4 sources of its class and 1 of 4
 *               others. Where there are times, edges that are not late carry the class instead of
 *               the label: only a model that draws late edges can pass 1 - label_noise
 */
#ifndef PLIM_GENERATE_GENERATE_EDGES_H
#define PLIM_GENERATE_GENERATE_EDGES_H

#include "generate/generate_shape.h"
#include "store/dataset_writer.h"

/* Memory for reading and writing `buffer` bytes of a file at once: 1 MiB, and for each thread up to
 * 1 MiB in the account "generate edges", the readers and the open columns. 0 without columns. */
size_t plim__edges_estimate(const plim_job_t *job, const plim__shape_t *shape, size_t buffer);

/* The file of a column: its type and shape. False when the shape has no such column. */
typedef struct plim__edges_file {
    plim__dtype_t type;
    int num_dims;
    int64_t shape[2];
} plim__edges_file_t;

bool plim__edges_file(const plim__shape_t *shape, plim_column_t column,
                      plim__edges_file_t *file_out);

/* Bytes of all columns, and of the largest. */
int64_t plim__edges_bytes(const plim__shape_t *shape, int64_t *largest_out);

/* Writes the columns after indptr and indices are closed; progress is "writing edge columns", in
 * edges. PLIM_ERR_STOPPED, errors of I/O. */
plim_status_t plim__edges_write(const plim_job_t *job, const plim__shape_t *shape, size_t buffer,
                                plim__dataset_writer_t *writer);

#endif
