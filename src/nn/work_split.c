#include "nn/work_split.h"

#include "base/check.h"

/* What a piece should take: long beside handing it out, short beside the whole. */
#define PIECE_NANOSECONDS 40000.0

#define BYTES_PER_NANOSECOND 20.0
#define EDGE_NANOSECONDS 3.0

double plim__work_split_cost(size_t bytes)
{
    return EDGE_NANOSECONDS + (double)bytes / BYTES_PER_NANOSECOND;
}

plim__work_split_t plim__work_split_make(const int32_t *indptr, int64_t rows, double unit)
{
    const int64_t total = indptr[rows] + rows;
    const int64_t weight = plim__max_i64(1, (int64_t)(PIECE_NANOSECONDS / unit));
    const int64_t pieces = plim__max_i64(1, total / weight);
    const int64_t even = (total + pieces - 1) / pieces;
    return (plim__work_split_t){indptr, rows, even, pieces, (int64_t)((double)even * unit) + 1};
}

int64_t plim__work_split_row(const plim__work_split_t *cut, int64_t piece)
{
    if (piece >= cut->pieces)
        return cut->rows;
    const int64_t wanted = piece * cut->weight;
    int64_t low = 0, high = cut->rows;
    while (low < high) {
        const int64_t middle = low + (high - low) / 2;
        if (cut->indptr[middle] + middle < wanted)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}
