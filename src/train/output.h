/*
 * A file of predictions, .npy or .csv by the ending of its name, written row by row. It appears
 * complete or not at all. A .csv begins each row with the node's id, and names classes by the words
 * that they were given as; the ids of out.npy are in out.ids.npy, or out.ids.csv if they are names.
 */
#ifndef PLIM_TRAIN_OUTPUT_H
#define PLIM_TRAIN_OUTPUT_H

#include "io/commit.h"
#include "mem/arena.h"
#include "train/row_ids.h"

#include <plimsoll/train.h>

typedef struct plim__output {
    plim__arena_t arena;
    plim__draft_t draft;
    plim__draft_t ids_draft; /* of the ids of an .npy; fd -1: none */
    plim__row_ids_t ids;
    bool has_ids;
    bool csv;
    bool sigmoid; /* probabilities of independent labels, not of one class; set by the caller */
    plim_predict_kind_t kind;
    int64_t rows;
    int64_t logits; /* columns of the model's outputs; set by the caller */
    int64_t width;  /* columns of the rows so far; -1 before the first row */
    int64_t taken;  /* rows written so far */
    char *buffer;
    plim__file_t *to; /* file being written */
    size_t used;      /* bytes in the buffer */
    int64_t offset;   /* file offset of the buffer */
} plim__output_t;

/*
 * Opens the file for `rows` rows of at most `most_width` floats: of the nodes (or graphs) of a
 * dataset's split, or of PLIM_ALL_NODES. Without a dataset (NULL) a .csv has the ids 0, 1, 2 … It
 * replaces only earlier predictions; PLIM_ERR_USAGE for other files, for ids of an earlier
 * prediction that would seem to belong to the new one, for a name that ends neither in .npy nor in
 * .csv, for a path in a dataset, and for a name that a run uses in its directory. PLIM_ERR_SPACE
 * for too little disk space, PLIM_ERR_IO, PLIM_ERR_BUDGET. Call plim__output_close in the end, also
 * after an error.
 */
plim_status_t plim__output_open(plim_ledger_t *ledger, const char *path, plim_predict_kind_t kind,
                                const plim_dataset_t *dataset, plim_split_t split, int64_t rows,
                                int64_t most_width, plim__output_t *output_out);

/* Appends rows in order; converts logits to classes or probabilities if the output wants those. */
plim_status_t plim__output_take(plim__output_t *output, int64_t rows, int64_t width,
                                const float *values);

/* Names the file after all rows are written. */
plim_status_t plim__output_finish(plim__output_t *output);
void plim__output_close(plim__output_t *output);

#endif
