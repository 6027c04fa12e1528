/*
 * Writing a dataset directory: columns from front to back, several at a time, then one commit.
 *
 *     begin → column_open … column_write … column_close (any number) → finish (dataset.json,
 * commit)
 */
#ifndef PLIM_STORE_WRITER_H
#define PLIM_STORE_WRITER_H

#include "io/npy.h"
#include "io/writer.h"

#include <plimsoll/dataset.h>

typedef struct plim__dataset_writer plim__dataset_writer_t;
typedef struct plim__column plim__column_t;

/* Facts for dataset.json that the columns do not tell by themselves. */
typedef struct plim__dataset_facts {
    int64_t num_nodes;
    int64_t num_graphs;
    int64_t num_classes;
    int64_t max_degree;
    double feature_error;
    const char *source;  /* provenance: "import papers100M-bin.zip (OGB binary)" */
    const char *options; /* provenance: "--symmetrise --features f16" */
} plim__dataset_facts_t;

/* Makes the staging directory. `target` is copied. */
plim_status_t plim__dataset_begin(const plim_job_t *job, const char *target,
                                  plim__dataset_writer_t **writer_out);

/* Where the columns are being written, for files that need a neighbour. Lives as long as the
 * writer. */
const char *plim__dataset_staging(const plim__dataset_writer_t *writer);

/*
 * Opens `name`.npy ("indptr", "indices", "features", "labels", "train", …) with the given type and
 * shape. shape[0] may be -1: it is then settled by what has been written when the column is closed
 * (the header is rewritten). `buffer` as for plim__writer; memory as plim__column_estimate.
 */
size_t plim__column_estimate(plim_io_engine_t kind, size_t buffer, int64_t max_bytes);
plim_status_t plim__column_open(plim__dataset_writer_t *writer, const char *name,
                                plim__dtype_t type, int num_dims, const int64_t *shape,
                                int64_t max_bytes, size_t buffer, plim__column_t **column_out);
plim_status_t plim__column_write(plim__column_t *column, const void *from, size_t size);

/* Takes the column's checksums into the dataset. A size that is not the shape's is PLIM_ERR_USAGE.
 */
plim_status_t plim__column_close(plim__column_t *column);

/* Writes dataset.json and commits. On failure everything is removed. Frees the writer in either
 * case. */
plim_status_t plim__dataset_finish(plim__dataset_writer_t *writer,
                                   const plim__dataset_facts_t *facts);

/* Removes everything, columns still open included. NULL is harmless. */
void plim__dataset_abandon(plim__dataset_writer_t *writer);

#endif
