/*
 * Streaming aggregation: adds neighbours' rows to the states of their destinations, list by list,
 * in the order of the list. A list may arrive in chunks; the result is the same bits.
 *
 *     rows (places, row_width)       states (destinations, width)
 *     | x … |                        | sum or maximum … |
 *     | x … |                        | sum … | sum … |                      typed: of each basis
 *     | src, dst, … | z … |          | max, total, … | weighted sum … |     attention
 */
#ifndef PLIM_NN_STREAM_AGGREGATE_H
#define PLIM_NN_STREAM_AGGREGATE_H

#include <stdint.h>

typedef enum plim__stream_aggregate_kind {
    PLIM__STREAM_AGGREGATE_SUM = 0,
    PLIM__STREAM_AGGREGATE_MAX,
    PLIM__STREAM_AGGREGATE_ATTENTION,
    PLIM__STREAM_AGGREGATE_WEIGHTED, /* sum of weight x */
    PLIM__STREAM_AGGREGATE_RELU,     /* sum of max(x + term, 0); of x itself where weight is 1 */
    PLIM__STREAM_AGGREGATE_TYPED,    /* sums of weight comp[type, basis] x */
    /* GATv2: logits are att · leaky(z + z_dst + term) */
    PLIM__STREAM_AGGREGATE_ATTENTION_V2
} plim__stream_aggregate_kind_t;

/* What the edges at a batch's places carry; NULL: absent. */
typedef struct plim__stream_edges {
    float *weights; /* (places) */
    float *values;  /* (places, entries) of a term; NULL: 1 */
    int32_t *rows;  /* (places, entries) of a term's table; NULL: 0, 1, …; or types, one each */
} plim__stream_edges_t;

/* An edge's term: bias + the sum over i < entries of values[i] table[rows[i]]. Without entries
 * there is none. */
typedef struct plim__stream_terms {
    int64_t entries;
    int64_t stride;     /* floats of a row of the table */
    const float *table; /* from the first column, or head, of the aggregation on */
    const float *bias;  /* the same; or NULL */
} plim__stream_terms_t;

/*
 * Attention's columns are those from `first` on of all heads' channels. A row holds the two scores
 * of each head that the columns belong to (GATv2: of no meaning), then the columns. A state holds,
 * for each of these heads, the largest score so far and the sum of weights relative to it, then the
 * columns' weighted sums. Typed columns are those from `first` on of all bases' channels: either of
 * whole bases, whose rows are one, or a part of one basis.
 */
typedef struct plim__stream_aggregate {
    plim__stream_aggregate_kind_t kind;
    int64_t width;     /* floats of a state */
    int64_t row_width; /* floats of a row */
    int heads;         /* that the columns belong to */
    int64_t channels;  /* of a head, or of a basis */
    int64_t first;     /* column */
    const float *rows;
    plim__stream_terms_t terms; /* attention, relu */
    const float *factors;       /* typed: comp (types, bases) */
    int64_t bases;
    const float *att;   /* GATv2: (heads, channels) */
    const float *z_dst; /* GATv2: (destinations, columns) */
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
                                  const int64_t *places, const plim__stream_edges_t *edges,
                                  float *states);

#endif
