/* A column wholly in memory, as it is stored. */
#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"
#include "source/row_form.h"
#include "source/rows.h"
#include "store/file_check.h"

#define AHEAD 16 /* entries that are prefetched before they are copied */

typedef struct rows_memory {
    plim__rows_t face; /* first */
    plim__arena_t arena;
    plim__row_form_t form;
    int64_t count;
    const char *name; /* of the column, for messages */
    char *data;       /* (count, form.bytes) */
} rows_memory_t;

static void lay_out(plim__arena_t *arena, void *object)
{
    rows_memory_t *rows = object;
    rows->data = plim__arena_carve(arena, (size_t)rows->count, rows->form.bytes, PLIM__PAGE);
}

static rows_memory_t draft_of(const plim_dataset_t *dataset, unsigned column)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    return (rows_memory_t){.form = plim__column_form(info, column),
                           .count = plim__column_rows(info, column),
                           .name = plim__column_names[__builtin_ctz(column)]};
}

size_t plim__rows_memory_estimate(const plim_dataset_t *dataset, unsigned column)
{
    rows_memory_t draft = draft_of(dataset, column);
    /* The file is read in whole pages. */
    return plim__add_saturating_size(plim__object_bytes(lay_out, &draft, sizeof draft), PLIM__PAGE);
}

static plim_status_t bad_row(const rows_memory_t *rows, int64_t row)
{
    return plim__fail(PLIM_ERR_USAGE, "%s.npy: there is no row %lld among %lld", rows->name,
                      (long long)row, (long long)rows->count);
}

/* Copies rows of `bytes` bytes: a constant in each call, so that a copy is a load and a store. */
static inline int64_t copy_rows(const rows_memory_t *rows, const int64_t *numbers, int64_t count,
                                size_t bytes, char *to)
{
    for (int64_t i = 0; i < count; i++) {
        const int64_t ahead = numbers[i + AHEAD < count ? i + AHEAD : i];
        if ((uint64_t)numbers[i] >= (uint64_t)rows->count)
            return i;
        __builtin_prefetch(rows->data + (size_t)ahead * bytes);
        memcpy(to + (size_t)i * bytes, rows->data + (size_t)numbers[i] * bytes, bytes);
    }
    return count;
}

static int64_t copy(const rows_memory_t *rows, const int64_t *numbers, int64_t count, char *to)
{
    switch (rows->form.bytes) {
    case 4:
        return copy_rows(rows, numbers, count, 4, to);
    case 8:
        return copy_rows(rows, numbers, count, 8, to);
    case 16:
        return copy_rows(rows, numbers, count, 16, to);
    case 32:
        return copy_rows(rows, numbers, count, 32, to);
    default:
        return copy_rows(rows, numbers, count, rows->form.bytes, to);
    }
}

static plim_status_t memory_gather(plim__rows_t *source, int worker, const int64_t *numbers,
                                   int64_t count, plim_dtype_t type, void *rows_out)
{
    const rows_memory_t *rows = (const rows_memory_t *)source;
    const size_t step = (size_t)rows->form.num_features * plim__feature_bytes(type);
    (void)worker;
    if (type == rows->form.type) {
        const int64_t good = copy(rows, numbers, count, rows_out);
        return good == count ? PLIM_OK : bad_row(rows, numbers[good]);
    }
    for (int64_t i = 0; i < count; i++) {
        if ((uint64_t)numbers[i] >= (uint64_t)rows->count)
            return bad_row(rows, numbers[i]);
        plim__row_write(&rows->form, rows->data + (size_t)numbers[i] * rows->form.bytes, type,
                        (char *)rows_out + (size_t)i * step);
    }
    return PLIM_OK;
}

plim_status_t plim__rows_memory_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                       unsigned column, plim__rows_t **source_out)
{
    const plim__manifest_t *manifest = plim__dataset_manifest(dataset);
    rows_memory_t draft = draft_of(dataset, column), *rows;
    const plim__manifest_file_t *entry = &manifest->files[manifest->columns[__builtin_ctz(column)]];
    PLIM_TRY(plim__object_create(job->ledger, "edge columns", lay_out, &draft, sizeof draft,
                                 &draft.arena, &rows));
    rows->face = (plim__rows_t){memory_gather, NULL};
    const plim_status_t status = plim__dataset_read_whole(dataset, entry, rows->data);
    if (status != PLIM_OK) {
        plim__rows_memory_destroy(&rows->face);
        return status;
    }
    *source_out = &rows->face;
    return PLIM_OK;
}

void plim__rows_memory_destroy(plim__rows_t *source)
{
    if (source != NULL) {
        plim__arena_t arena = ((rows_memory_t *)source)->arena;
        plim__arena_destroy(&arena);
    }
}
