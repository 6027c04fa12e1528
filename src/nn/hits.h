/*
 * hits@k against a table of embeddings: the row of the table nearest to a label is the one to find,
 * and it is a hit if fewer than k rows are nearer to the output. Near is by cosine; of equally near
 * rows the first is the nearest, and an output of zeros is near to none.
 */
#ifndef PLIM_NN_HITS_H
#define PLIM_NN_HITS_H

#include "nn/team.h"

typedef struct plim__hits {
    int64_t k;
    int64_t rows, width; /* of the table */
    float *columns;      /* (width, rows) rows of length 1, stored by columns */
} plim__hits_t;

/* Writes a row of the table, divided by its length; a row of zeros stays. */
void plim__hits_put(const plim__hits_t *hits, int64_t index, const float *row);

/* Counts the hits of `outputs` (rows, width) with `labels` (rows, width); labels with unknown
 * values (NaN) are left out. Returns the number of hits; *compared_out is the number of labels
 * compared. */
int64_t plim__hits_count(const plim__hits_t *hits, plim__team_t *team, int64_t rows,
                         const float *outputs, const float *labels, int64_t *compared_out);

#endif
