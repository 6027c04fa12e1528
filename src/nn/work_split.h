/* Cuts the rows of a hop, or of a reversed one, into pieces of about equally many edges. */
#ifndef PLIM_NN_WORK_SPLIT_H
#define PLIM_NN_WORK_SPLIT_H

#include <stddef.h>
#include <stdint.h>

typedef struct plim__work_split {
    const int32_t *indptr; /* (rows + 1) */
    int64_t rows;
    int64_t weight; /* of a piece: edges and rows */
    int64_t pieces;
    int64_t cost; /* of a piece, in nanoseconds */
} plim__work_split_t;

/* What an edge costs, in nanoseconds, when so many bytes are read for it. */
double plim__work_split_cost(size_t bytes);

/* `unit` is what an edge costs, in nanoseconds. */
plim__work_split_t plim__work_split_make(const int32_t *indptr, int64_t rows, double unit);

/* The first row of a piece; of the piece behind the last, the number of rows. */
int64_t plim__work_split_row(const plim__work_split_t *cut, int64_t piece);

#endif
