/*
 * Matrices between layers, row after row in arena memory.
 *
 * A matrix that a product reads or writes has memory for its rows rounded up to PLIM__ROWS. The
 * rows after the last have no defined values and may be overwritten at any time.
 */
#ifndef PLIM_NN_MATRIX_H
#define PLIM_NN_MATRIX_H

#include "base/check.h"

#include <stddef.h>
#include <stdint.h>

#define PLIM__ROWS 32

/* How a value is stored. Sums, gradients and weights are F32, always. */
typedef enum plim__element {
    PLIM__F32 = 0, /* float */
    PLIM__BF16,    /* the upper half of a float, rounded to nearest even */
    PLIM__F16      /* binary16: rows of a dataset, read only */
} plim__element_t;

typedef struct plim__matrix {
    void *data; /* (rows, stride) of `element`, on a boundary of PLIM__LINE */
    int64_t rows;
    int64_t width;  /* columns */
    int64_t stride; /* elements from a row to the next, at least width */
    plim__element_t element;
} plim__matrix_t;

static inline size_t plim__element_bytes(plim__element_t element)
{
    return element == PLIM__F32 ? 4 : 2;
}

/* A matrix whose rows are dense. */
static inline plim__matrix_t plim__matrix_make(void *data, int64_t rows, int64_t width,
                                               plim__element_t element)
{
    return (plim__matrix_t){data, rows, width, width, element};
}

/* Columns [first, first + width) of a matrix. */
static inline plim__matrix_t plim__matrix_columns(const plim__matrix_t *matrix, int64_t first,
                                                  int64_t width)
{
    plim__matrix_t columns = *matrix;
    columns.width = width;
    if (matrix->data != NULL)
        columns.data = (char *)matrix->data + (size_t)first * plim__element_bytes(matrix->element);
    return columns;
}

/* Memory of a matrix whose rows are dense, its padding rows included; saturates. */
static inline size_t plim__matrix_bytes(int64_t rows, int64_t width, plim__element_t element)
{
    const size_t padded = plim__round_up((size_t)rows, PLIM__ROWS);
    return plim__round_up(
        plim__mul_saturating_size(plim__mul_saturating_size(padded, (size_t)width),
                                  plim__element_bytes(element)),
        64);
}

#endif
