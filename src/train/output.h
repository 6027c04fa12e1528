/* An .npy file of predictions, written row after row, there whole or not at all. */
#ifndef PLIM_TRAIN_OUTPUT_H
#define PLIM_TRAIN_OUTPUT_H

#include "io/commit.h"
#include "mem/arena.h"

#include <plimsoll/train.h>

typedef struct plim__output {
    plim__arena_t arena;
    plim__draft_t draft;
    plim_predict_kind_t kind;
    int64_t rows;
    int64_t logits; /* columns of a model's outputs, for whoever hands rows over */
    int64_t width;  /* of what is taken; -1 before the first row */
    int64_t taken;  /* rows */
    char *buffer;
    size_t used;    /* bytes of it */
    int64_t offset; /* of the buffer in the file */
} plim__output_t;

/*
 * For `rows` rows of at most `most_width` floats. It replaces a file that is an .npy itself, and
 * nothing else: PLIM_ERR_USAGE, also for a place in a dataset or a name that a run's file has in
 * its directory. PLIM_ERR_SPACE when the disk has no room for
 * them, PLIM_ERR_IO, PLIM_ERR_BUDGET. plim__output_close ends it, also after an error.
 */
plim_status_t plim__output_open(plim_ledger_t *ledger, const char *path, plim_predict_kind_t kind,
                                int64_t rows, int64_t most_width, plim__output_t *output_out);

/* Rows in order; of logits their classes are taken when those are wanted. */
plim_status_t plim__output_take(plim__output_t *output, int64_t rows, int64_t width,
                                const float *values);

/* Gives the file its name once all rows are there. */
plim_status_t plim__output_finish(plim__output_t *output);
void plim__output_close(plim__output_t *output);

#endif
