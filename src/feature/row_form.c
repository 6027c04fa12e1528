#include "feature/row_form.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"

/* So many bytes of rows are on their way while one is copied; a core keeps some tens of cache lines
 * in flight, and what is asked for beyond that waits. */
#define AHEAD_BYTES ((size_t)4096)
#define AHEAD_ROWS_MAX 32
#define AHEAD_LINES_MAX 32 /* of one row: the processor goes on with long ones by itself */

plim__row_form_t plim__row_form_make(plim_dtype_t type, int64_t num_features)
{
    return (plim__row_form_t){.type = type,
                              .num_features = num_features,
                              .bytes = (size_t)num_features * plim__feature_bytes(type),
                              .path = plim__half_best()};
}

plim__row_form_t plim__row_form_of(const plim_dataset_t *dataset)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    if (info->num_features == 0)
        return (plim__row_form_t){.type = PLIM_F16};
    return plim__row_form_make(info->feature_type, info->num_features);
}

plim_status_t plim__row_form_open(const plim_dataset_t *dataset, plim__file_t *file_out,
                                  plim__row_form_t *form_out)
{
    const plim__manifest_file_t *entry =
        plim__manifest_find(plim__dataset_manifest(dataset), "features.npy");
    if (entry == NULL || plim_dataset_info(dataset)->num_features == 0)
        return plim__fail(PLIM_ERR_USAGE, "%s has no features; import it with a features file",
                          plim__dataset_path(dataset));
    PLIM_TRY(plim__dataset_file_open(dataset, entry, true, file_out));
    *form_out = plim__row_form_of(dataset);
    return PLIM_OK;
}

plim_status_t plim__row_form_check(plim_dtype_t wanted)
{
    if (wanted == PLIM_F16 || wanted == PLIM_F32)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE, "rows are written as f16 or f32, not as type %d",
                      (int)wanted);
}

static inline void prefetch(const char *row, size_t bytes)
{
    size_t most = AHEAD_LINES_MAX * PLIM__LINE;
    const char *end = row + (bytes < most ? bytes : most);
    for (const char *line = row; line < end; line += PLIM__LINE)
        __builtin_prefetch(line);
}

/* Inlined with `bytes` constant for the common sizes, so that the copy is a handful of moves. */
static inline __attribute__((always_inline)) void
copy_rows(const char *table, size_t bytes, const int64_t *numbers, int64_t count, char *to)
{
    int64_t ahead = (int64_t)(AHEAD_BYTES / bytes) + 1;
    if (ahead > AHEAD_ROWS_MAX)
        ahead = AHEAD_ROWS_MAX;
    for (int64_t i = 0; i < ahead && i < count; i++)
        prefetch(table + (size_t)numbers[i] * bytes, bytes);
    for (int64_t i = 0; i < count; i++) {
        if (i + ahead < count)
            prefetch(table + (size_t)numbers[i + ahead] * bytes, bytes);
        memcpy(to + (size_t)i * bytes, table + (size_t)numbers[i] * bytes, bytes);
    }
}

static void convert_rows(const plim__row_form_t *form, const char *table, const int64_t *numbers,
                         int64_t count, plim_dtype_t wanted, char *to)
{
    size_t step = (size_t)form->num_features * plim__feature_bytes(wanted);
    int64_t ahead = plim__min_i64((int64_t)(AHEAD_BYTES / form->bytes) + 1, AHEAD_ROWS_MAX);
    for (int64_t i = 0; i < ahead && i < count; i++)
        prefetch(table + (size_t)numbers[i] * form->bytes, form->bytes);
    for (int64_t i = 0; i < count; i++) {
        if (i + ahead < count)
            prefetch(table + (size_t)numbers[i + ahead] * form->bytes, form->bytes);
        plim__row_write(form, table + (size_t)numbers[i] * form->bytes, wanted,
                        to + (size_t)i * step);
    }
}

void plim__row_pick(const plim__row_form_t *form, const void *table, const int64_t *numbers,
                    int64_t count, plim_dtype_t wanted, void *rows_out)
{
    if (wanted != form->type)
        convert_rows(form, table, numbers, count, wanted, rows_out);
    else if (form->bytes == 128)
        copy_rows(table, 128, numbers, count, rows_out);
    else if (form->bytes == 256)
        copy_rows(table, 256, numbers, count, rows_out);
    else if (form->bytes == 512)
        copy_rows(table, 512, numbers, count, rows_out);
    else
        copy_rows(table, form->bytes, numbers, count, rows_out);
}
