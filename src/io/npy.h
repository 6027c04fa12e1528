/* Reads and writes NumPy's .npy header. */
#ifndef PLIM_IO_NPY_H
#define PLIM_IO_NPY_H

#include "io/reader.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum plim__dtype {
    PLIM__NPY_BOOL,
    PLIM__NPY_I8,
    PLIM__NPY_U8,
    PLIM__NPY_I16,
    PLIM__NPY_U16,
    PLIM__NPY_I32,
    PLIM__NPY_U32,
    PLIM__NPY_I64,
    PLIM__NPY_U64,
    PLIM__NPY_F16,
    PLIM__NPY_F32,
    PLIM__NPY_F64
} plim__dtype_t;

/* Bytes of one element, and NumPy's name for it ("<i8"). */
size_t plim__dtype_size(plim__dtype_t type);
const char *plim__dtype_name(plim__dtype_t type);

static inline bool plim__dtype_is_integer(plim__dtype_t type)
{
    return type > PLIM__NPY_BOOL && type < PLIM__NPY_F16;
}

/* Whether arrays of it may hold ids of nodes, and the i-th of these. */
static inline bool plim__dtype_is_id(plim__dtype_t type)
{
    return type == PLIM__NPY_I32 || type == PLIM__NPY_U32 || type == PLIM__NPY_I64;
}

static inline int64_t plim__id_at(plim__dtype_t type, const void *ids, int64_t i)
{
    if (type == PLIM__NPY_I64)
        return ((const int64_t *)ids)[i];
    if (type == PLIM__NPY_U32)
        return ((const uint32_t *)ids)[i];
    return ((const int32_t *)ids)[i];
}

#define PLIM__NPY_DIMS 4
#define PLIM__NPY_HEADER 4096 /* bytes of a header that we write, so that the data is aligned */

typedef struct plim__npy {
    plim__dtype_t type;
    bool fortran; /* column-major; false when at most one dimension is larger than 1 */
    int num_dims; /* 0 … PLIM__NPY_DIMS */
    int64_t shape[PLIM__NPY_DIMS];
    int64_t count;       /* product of the shape, checked */
    int64_t header_size; /* offset of the data */
} plim__npy_t;

/*
 * Reads a header (format 1.0, 2.0, 3.0; little-endian or single bytes) and leaves the reader at the
 * data. PLIM_ERR_DATA for a wrong magic number, dtype or shape.
 */
plim_status_t plim__npy_read(plim__reader_t *reader, plim__npy_t *npy_out);

/* Writes the padded header for a C-ordered array. */
void plim__npy_header(const plim__npy_t *npy, unsigned char header_out[PLIM__NPY_HEADER]);

#endif
