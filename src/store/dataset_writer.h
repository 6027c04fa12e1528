/*
 * Writes a dataset directory: columns front to back, several at a time, then one commit.
 *
 *     begin ─► column_open ─► column_write … ─► column_close   (any number of columns)
 *           ─► finish (dataset.json, commit)
 *
 * Different threads may write different columns at the same time; one thread at a time calls the
 * other functions. The bytes of the directory depend on the columns' bytes and the facts only, not
 * on the order in which columns are opened and closed.
 */
#ifndef PLIM_STORE_DATASET_WRITER_H
#define PLIM_STORE_DATASET_WRITER_H

#include "io/npy.h"
#include "io/writer.h"

#include <plimsoll/dataset.h>

typedef struct plim__dataset_writer plim__dataset_writer_t;
typedef struct plim__column plim__column_t;

/* Facts for dataset.json that do not follow from the columns. */
typedef struct plim__dataset_facts {
    int64_t num_nodes;
    int64_t num_graphs;     /* 0: one graph; else there is a column graph_indptr */
    int64_t num_classes;    /* 0 unless labels are classes */
    bool multi_label;       /* values of 0 and 1 in several columns */
    int64_t num_edge_types; /* 0 without the column edge_type */
    double feature_error;   /* worst relative error of stored features; 0: exact */
    const char *source;     /* provenance: "import papers100M-bin.zip (OGB binary)" */
    const char *options;    /* provenance, in the command's words; "" when there are none */
} plim__dataset_facts_t;

/*
 * Creates the staging directory beside `target`. The caller checks the disk space. The job's ledger
 * must outlive the writer. Errors of plim__staging_begin, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM. Memory:
 * 20 KiB, and 12 KiB a column (plus 8 bytes for each 64 MiB) until the end.
 */
plim_status_t plim__dataset_begin(const plim_job_t *job, const char *target,
                                  plim__dataset_writer_t **writer_out);

/* The staging directory, for temporary files, by its descriptor: others may change its name. Valid
 * as long as the writer. */
const char *plim__dataset_staging(const plim__dataset_writer_t *writer);

/* Notes the most edges of one node to itself, for dataset.json. */
void plim__dataset_self_loops(plim__dataset_writer_t *writer, int64_t most);

/*
 * Opens NAME.npy for `name` = "indptr", "indices", "features", "labels", "train", … with the given
 * type and shape. shape[0] may be -1; closing the column then sets it by the bytes written.
 * `max_bytes`: maximum bytes of data; `buffer` as for plim__writer_create. PLIM_ERR_USAGE for an
 * impossible shape or max_bytes; PLIM_ERR_IO when the name was opened before; the errors of
 * plim__writer_create.
 */
plim_status_t plim__column_open(plim__dataset_writer_t *writer, const char *name,
                                plim__dtype_t type, int num_dims, const int64_t *shape,
                                int64_t max_bytes, size_t buffer, plim__column_t **column_out);

/* Memory of a column while it is open. */
size_t plim__column_estimate(plim_io_engine_t kind, size_t buffer, int64_t max_bytes);

/* Appends bytes of the array, any number of bytes at a time. PLIM_ERR_USAGE past max_bytes,
 * PLIM_ERR_IO. */
plim_status_t plim__column_write(plim__column_t *column, const void *from, size_t size);

/* Appending without a copy, as plim__writer_space and plim__writer_advance do. */
plim_status_t plim__column_space(plim__column_t *column, void **to_out, size_t *size_out);
plim_status_t plim__column_advance(plim__column_t *column, size_t size);

/*
 * Makes the file durable and keeps its checksums. The writer owns the column from then on, also on
 * failure. PLIM_ERR_USAGE when the size does not match the shape, or an indptr does not ascend from
 * 0.
 */
plim_status_t plim__column_close(plim__column_t *column);

/*
 * Writes dataset.json and commits. PLIM_ERR_DATA when columns and facts do not match (see
 * docs/format.md), PLIM_ERR_USAGE when a column is still open. On failure everything is removed.
 * Frees the writer in any case.
 */
plim_status_t plim__dataset_finish(plim__dataset_writer_t *writer,
                                   const plim__dataset_facts_t *facts);

/* Removes everything, columns still open included. NULL is harmless. */
void plim__dataset_abandon(plim__dataset_writer_t *writer);

#endif
