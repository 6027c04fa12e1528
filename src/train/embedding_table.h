/* A table of embeddings, read from a .npy file, for hits@k. */
#ifndef PLIM_TRAIN_EMBEDDING_TABLE_H
#define PLIM_TRAIN_EMBEDDING_TABLE_H

#include "mem/arena.h"
#include "nn/hits.h"
#include "store/dataset.h"

typedef struct plim__embedding_table {
    plim__arena_t arena;
    plim__hits_t hits;
    void *stored; /* a row as in the file */
    float *row;   /* (width) */
} plim__embedding_table_t;

/*
 * Reads the file into memory, account "embeddings". PLIM_ERR_USAGE for a dataset whose labels are
 * not values, for k below 1, and for an array that has not a row of floats, as wide as the labels,
 * for each embedding; PLIM_ERR_DATA, PLIM_ERR_IO, PLIM_ERR_BUDGET. Destroy the arena in the end,
 * also after an error.
 */
plim_status_t plim__embedding_table_read(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const char *path, int64_t k,
                                         plim__embedding_table_t *table_out);

#endif
