/* Converts categories to one-hot columns: one for each category from 0 to the maximum of each
 * column. */
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "ingest/import_files.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define CATEGORIES_MAX 65536 /* columns in all; detects ids that are not categories */
#define COLUMNS_MAX 1024

typedef struct one_hot {
    plim__import_t *import;
    const char *path;
    int64_t columns;
    int64_t begin[COLUMNS_MAX + 1]; /* first category of each column */
    int64_t row[COLUMNS_MAX];
    unsigned char ones[CATEGORIES_MAX * 4]; /* the row as it is stored */
} one_hot_t;

/* Calls `take` for each row of the file. */
static plim_status_t each_row(one_hot_t *hot, void *context,
                              plim_status_t (*take)(one_hot_t *hot, void *context, int64_t row))
{
    plim__reader_t *reader;
    plim__npy_t npy;
    plim__ids_npy_t ids;
    int64_t got;
    PLIM_TRY(plim__files_array(hot->import, hot->path, &reader, &npy));
    plim_status_t status = plim__ids_npy_open(&ids, reader, npy.type, npy.count);
    for (int64_t row = 0; row < npy.shape[0] && status == PLIM_OK; row++) {
        if (row % 1024 == 0)
            status = plim__job_check(hot->import->job);
        if (status == PLIM_OK)
            status = ids.ids.read(&ids.ids, hot->row, hot->columns, &got);
        if (status == PLIM_OK)
            status = take(hot, context, row);
    }
    plim__reader_close(reader);
    return status;
}

static plim_status_t find_most(one_hot_t *hot, void *context, int64_t row)
{
    int64_t *most = context;
    for (int64_t c = 0; c < hot->columns; c++) {
        if (hot->row[c] < 0 || hot->row[c] >= CATEGORIES_MAX)
            return plim__fail(PLIM_ERR_DATA,
                              "%s: row %" PRId64 ", column %" PRId64 ": %" PRId64
                              " is not a category from 0 to %d",
                              hot->path, row, c, hot->row[c], CATEGORIES_MAX - 1);
        most[c] = plim__max_i64(most[c], hot->row[c]);
    }
    return PLIM_OK;
}

/* Stores a row: a one in each column's range, divided by the row's sum if asked for. Clears the row
 * afterwards. */
static plim_status_t write_row(one_hot_t *hot, void *context, int64_t row)
{
    const bool divided = hot->import->options->normalise_features;
    const float one_f32 = divided ? 1.0f / (float)hot->columns : 1.0f;
    uint16_t one_f16;
    bool half = hot->import->options->features == PLIM_F16;
    size_t size = half ? 2 : 4;
    (void)row;
    plim__half_narrow(hot->import->path, &one_f32, &one_f16, 1);
    for (int64_t c = 0; c < hot->columns; c++)
        memcpy(hot->ones + (size_t)(hot->begin[c] + hot->row[c]) * size,
               half ? (const void *)&one_f16 : (const void *)&one_f32, size);
    plim_status_t status =
        plim__column_write(context, hot->ones, (size_t)hot->begin[hot->columns] * size);
    for (int64_t c = 0; c < hot->columns; c++)
        memset(hot->ones + (size_t)(hot->begin[c] + hot->row[c]) * size, 0, size);
    return status;
}

static plim_status_t one_hot(one_hot_t *hot, int64_t rows)
{
    plim__import_t *import = hot->import;
    int64_t most[COLUMNS_MAX] = {0};
    plim__column_t *column;
    for (int64_t c = 0; c < hot->columns; c++)
        most[c] = -1;
    PLIM_TRY(each_row(hot, most, find_most));
    hot->begin[0] = 0;
    for (int64_t c = 0; c < hot->columns; c++)
        hot->begin[c + 1] = hot->begin[c] + most[c] + 1;
    int64_t shape[2] = {rows, hot->begin[hot->columns]};
    if (shape[1] < 1 || shape[1] > CATEGORIES_MAX)
        return plim__fail(PLIM_ERR_DATA, "%s: %" PRId64 " categories in all; 1 to %d are supported",
                          hot->path, shape[1], CATEGORIES_MAX);
    plim__log(import->job, PLIM_LOG_INFO,
              "%s: %" PRId64 " columns of categories, stored one-hot as %" PRId64, hot->path,
              hot->columns, shape[1]);
    bool half = import->options->features == PLIM_F16;
    int64_t bytes;
    if (!plim__mul_i64(shape[0] * (half ? 2 : 4), shape[1], &bytes))
        return plim__fail(PLIM_ERR_DATA, "%s: too many rows", hot->path);
    plim__import_needs_t needs = {.feature_bytes = bytes, .what = "for the features"};
    PLIM_TRY(plim__import_plan(import, &needs));
    PLIM_TRY(plim__import_begin(import));
    PLIM_TRY(plim__column_open(import->writer, "features", half ? PLIM__NPY_F16 : PLIM__NPY_F32, 2,
                               shape, bytes, import->buffer, &column));
    PLIM_TRY(each_row(hot, column, write_row));
    import->features_done = true;
    import->feature_rows = rows;
    (void)snprintf(import->features_from, sizeof import->features_from, "%s", hot->path);
    return plim__column_close(column);
}

plim_status_t plim__import_features_one_hot(plim__import_t *import, const char *path)
{
    plim__arena_t arena;
    plim__npy_t npy;
    PLIM_TRY(plim__files_header(import, path, &npy));
    int64_t columns = npy.num_dims == 2 ? npy.shape[1] : 1;
    if (npy.num_dims < 1 || npy.num_dims > 2 || columns < 1 || columns > COLUMNS_MAX || npy.fortran)
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: categories must have the shape [N] or [N, C] in C order, with at most %d "
            "columns",
            path, COLUMNS_MAX);
    PLIM_TRY(plim__import_agree(&import->nodes, "nodes", npy.shape[0], path));
    PLIM_TRY(plim__arena_create(import->job->ledger, "import blocks", sizeof(one_hot_t), &arena));
    one_hot_t *hot = (void *)arena.base;
    hot->import = import;
    hot->path = path;
    hot->columns = columns;
    plim_status_t status = one_hot(hot, npy.shape[0]);
    plim__arena_destroy(&arena);
    return status;
}
