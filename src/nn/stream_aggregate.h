/*
 * Streaming aggregation: adds neighbours' rows to the states of their destinations, list by list,
 * in the order of the list. A list may arrive in chunks; the result is the same bits.
 *
 *     rows (places, width)           states (destinations, width)
 *     | x … |                        | sum or maximum … |
 *     | src, dst, … | z … |          | max, total, … | weighted sum … |      attention
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
 * Attention's columns are those from `first` on of all heads' channels. A row holds the two scores
 * of each head that the columns belong to, then the columns. A state holds, for each of these
 * heads, the largest score so far and the sum of weights relative to it, then the columns' weighted
 * sums.
 */
typedef struct plim__stream_aggregate {
    plim__stream_aggregate_kind_t kind;
    int64_t width;    /* floats of a row, and of a state */
    int heads;        /* that the columns belong to */
    int64_t channels; /* of a head */
    int64_t first;    /* column */
    const float *rows;
} plim__stream_aggregate_t;

void plim__stream_aggregate_begin(const plim__stream_aggregate_t *rule, int64_t count,
                                  float *states);

/* A destination's part of a batch: the places from the end of the part before up to `end`. */
typedef struct plim__stream_aggregate_list {
    int64_t state;
    int64_t end;
    int64_t own; /* attention: the destination's own place */
} plim__stream_aggregate_list_t;

/* Adds the rows at `places` to the states of their lists. */
void plim__stream_aggregate_lists(const plim__stream_aggregate_t *rule,
                                  const plim__stream_aggregate_list_t *lists, int64_t count,
                                  const int64_t *places, float *states);

#endif
