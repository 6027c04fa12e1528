/*
 * Neighbours' rows folded into the states of their destinations, list by list and in the order of
 * the list: a list may come in pieces, and the result is the same bits.
 *
 *     rows (places, width)           states (destinations, width)
 *     | x … |                        | sum or largest … |
 *     | src, dst, … | z … |          | most, total, … | weighted sum … |     attention
 */
#ifndef PLIM_NN_STREAM_AGGREGATE_H
#define PLIM_NN_STREAM_AGGREGATE_H

#include <stdint.h>

typedef enum plim__stream_aggregate_kind {
    PLIM__STREAM_AGGREGATE_SUM = 0,
    PLIM__STREAM_AGGREGATE_MAX,
    PLIM__STREAM_AGGREGATE_ATTENTION
} plim__stream_aggregate_kind_t;

/*
 * Attention's columns are those from `first` on of all heads' channels. A row holds for each head
 * that they touch its two scores, then the columns; a state the largest score so far and the sum of
 * weights relative to it, then the columns' weighted sums.
 */
typedef struct plim__stream_aggregate {
    plim__stream_aggregate_kind_t kind;
    int64_t width;    /* floats of a row, and of a state */
    int heads;        /* that the columns touch */
    int64_t channels; /* of a head */
    int64_t first;    /* column */
    const float *rows;
} plim__stream_aggregate_t;

/* What a state begins with. */
void plim__stream_aggregate_begin(const plim__stream_aggregate_t *fold, int64_t count,
                                  float *states);

/* A destination's part of a batch: the places up to `end`, from the end of the one before it on. */
typedef struct plim__stream_aggregate_list {
    int64_t state;
    int64_t end;
    int64_t own; /* attention: the destination's own place */
} plim__stream_aggregate_list_t;

/* Folds the rows at `places` into the states of their lists. */
void plim__stream_aggregate_lists(const plim__stream_aggregate_t *fold,
                                  const plim__stream_aggregate_list_t *lists, int64_t count,
                                  const int64_t *places, float *states);

#endif
