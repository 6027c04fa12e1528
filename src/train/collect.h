/*
 * The rows of a pass over a split that ranks divide, collected on rank 0 in the order of the split.
 *
 * Ranks take batches in turn: of each group of R batches, rank r computes batch r, and sends its
 * rows with their labels to rank 0, which hands them on in their order. Scores are summed row by
 * row, so scores and predictions have the bits of one rank.
 */
#ifndef PLIM_TRAIN_COLLECT_H
#define PLIM_TRAIN_COLLECT_H

#include "peers/peers.h"

typedef struct plim__collect plim__collect_t;

/* Takes rows of values (rows, width) with their labels. */
typedef plim_status_t (*plim__collect_take_fn)(void *context, int64_t rows, const float *values,
                                               const void *labels);

/* For batches of `batch_rows` rows of `width` floats. Errors of plim__arena_create. */
plim_status_t plim__collect_create(plim_ledger_t *ledger, plim__peers_t *peers, int64_t batch_rows,
                                   int64_t width, size_t label_bytes,
                                   plim__collect_t **collect_out);
void plim__collect_destroy(plim__collect_t *collect);

/* Begins a pass over `rows` rows. */
void plim__collect_begin(plim__collect_t *collect, int64_t rows);

/* Adds rows of this rank's batch of the current group. */
void plim__collect_add(plim__collect_t *collect, int64_t rows, const float *values,
                       const void *labels);

int64_t plim__collect_batch_rows(const plim__collect_t *collect);

/* The batch of the rows that rank 0 hands on, as one rank counts them. */
int64_t plim__collect_step(const plim__collect_t *collect);

/* Ends a group; `last`: of the pass. Rank 0 passes its rows to `take`, whose error is returned with
 * the next group, or with this one if it is the last. All ranks return an error of one;
 * PLIM_ERR_DATA also if a rank sends rows of another width or number. */
plim_status_t plim__collect_end(plim__collect_t *collect, plim_status_t status, bool last,
                                plim__collect_take_fn take, void *context);

#endif
