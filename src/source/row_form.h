/* The stored form of rows, and conversion to the requested type. */
#ifndef PLIM_SOURCE_ROW_FORM_H
#define PLIM_SOURCE_ROW_FORM_H

#include "base/half.h"
#include "mem/arena.h"
#include "store/dataset.h"

#include <string.h>

typedef struct plim__row_form {
    plim_dtype_t type; /* PLIM_F16, PLIM_F32 or PLIM_I64; of columns also PLIM_I32 */
    int64_t num_features;
    size_t bytes; /* bytes of a row */
    plim__half_path_t path;
} plim__row_form_t;

plim__row_form_t plim__row_form_make(plim_dtype_t type, int64_t num_features);

/* The form of the rows in features.npy; row i begins at PLIM__NPY_HEADER + i x bytes. All zeros
 * without features. */
plim__row_form_t plim__row_form_of(const plim_dataset_t *dataset);

/* The type in which rows are delivered where they are wanted as `row_type`: integers stay. */
static inline plim_dtype_t plim__row_type(const plim_dataset_info_t *info, plim_dtype_t row_type)
{
    return info->feature_type == PLIM_I64 ? PLIM_I64 : row_type;
}

/* The form of a column's entries, which lie in its file in the same way; their number; and the type
 * in which they are delivered where rows are wanted as `row_type`. */
plim__row_form_t plim__column_form(const plim_dataset_info_t *info, unsigned column);
int64_t plim__column_rows(const plim_dataset_info_t *info, unsigned column);
plim_dtype_t plim__column_type(const plim_dataset_info_t *info, unsigned column,
                               plim_dtype_t row_type);

/* Whether rows of that form need twice the bytes as `wanted`. */
static inline bool plim__row_widens(const plim__row_form_t *form, plim_dtype_t wanted)
{
    return plim__feature_bytes(wanted) == 2 * plim__feature_bytes(form->type);
}

/* Integers of 32 bits as ones of 64, by copies: `from` may be the second half of `to`. */
static inline void plim__row_widen_integers(const char *from, char *to, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        int32_t narrow;
        memcpy(&narrow, from + (size_t)i * sizeof narrow, sizeof narrow);
        const int64_t wide = narrow;
        memcpy(to + (size_t)i * sizeof wide, &wide, sizeof wide);
    }
}

/*
 * Writes one row as `wanted`. The source of a row that widens may be the second half of its
 * destination.
 */
static inline void plim__row_write(const plim__row_form_t *form, const void *from,
                                   plim_dtype_t wanted, void *to)
{
    if (wanted == form->type)
        memcpy(to, from, form->bytes);
    else if (wanted == PLIM_I64)
        plim__row_widen_integers(from, to, form->num_features);
    else if (wanted == PLIM_F32)
        plim__half_widen(form->path, from, to, form->num_features);
    else
        plim__half_narrow(form->path, from, to, form->num_features);
}

/* Destination of gathered rows: row i goes to to + i x step. Rows of another type are read to
 * stored + i x stored_step and converted from there. */
typedef struct plim__row_target {
    plim_dtype_t type;
    char *to;
    size_t step;
    char *stored;
    size_t stored_step;
} plim__row_target_t;

/* Converts a row that was read to target->stored. */
static inline void plim__row_arrived(const plim__row_form_t *form, const plim__row_target_t *target,
                                     size_t index)
{
    if (target->type != form->type)
        plim__row_write(form, target->stored + index * target->stored_step, target->type,
                        target->to + index * target->step);
}

/* Prefetches a row's cache lines; for a long row only the first ones, since the hardware prefetches
 * the rest. */
static inline void plim__row_prefetch(const char *row, size_t bytes)
{
    const size_t most = 32 * PLIM__LINE;
    const char *end = row + (bytes < most ? bytes : most);
    for (const char *line = row; line < end; line += PLIM__LINE)
        __builtin_prefetch(line);
}

#endif
