#include "train/embedding_table.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/half.h"
#include "io/npy.h"

#include <string.h>

#define BUFFER_BYTES ((size_t)64 << 10) /* of a read */

static void carve(plim__embedding_table_t *table, plim__arena_t *arena)
{
    const size_t width = (size_t)table->hits.width;
    table->hits.columns = plim__arena_carve(arena, (size_t)table->hits.rows,
                                            plim__mul_saturating_size(width, sizeof(float)), 1);
    table->stored = plim__arena_carve(arena, width, sizeof(double), 1);
    table->row = plim__arena_carve(arena, width, sizeof(float), 1);
}

static void widen(const plim__embedding_table_t *table, plim__dtype_t type)
{
    const int64_t width = table->hits.width;
    const double *doubles = table->stored;
    if (type == PLIM__NPY_F16)
        plim__half_widen(plim__half_best(), table->stored, table->row, width);
    else if (type == PLIM__NPY_F32)
        memcpy(table->row, table->stored, (size_t)width * sizeof(float));
    else
        for (int64_t i = 0; i < width; i++)
            table->row[i] = (float)doubles[i];
}

static plim_status_t read_rows(const plim_job_t *job, plim__reader_t *reader, const char *path,
                               plim__embedding_table_t *table)
{
    const int64_t width = table->hits.width;
    plim__npy_t npy;
    PLIM_TRY(plim__npy_read(reader, &npy));
    const bool floats =
        npy.type == PLIM__NPY_F16 || npy.type == PLIM__NPY_F32 || npy.type == PLIM__NPY_F64;
    if (!floats || npy.fortran || npy.num_dims != 2 || npy.shape[0] < 1 || npy.shape[1] != width)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: a table of embeddings must be an array of floats in C order, with a "
                          "column for each of the %lld values of a label",
                          path, (long long)width);
    table->hits.rows = npy.shape[0];
    plim__arena_t counting = plim__arena_counting();
    carve(table, &counting);
    PLIM_TRY(plim__arena_create(job->ledger, "embeddings", counting.used, &table->arena));
    carve(table, &table->arena);
    for (int64_t i = 0; i < table->hits.rows; i++) {
        PLIM_TRY(plim__reader_read_all(reader, table->stored,
                                       (size_t)width * plim__dtype_size(npy.type)));
        widen(table, npy.type);
        plim__hits_put(&table->hits, i, table->row);
    }
    return plim__reader_end(reader);
}

plim_status_t plim__embedding_table_read(const plim_job_t *job, const plim_dataset_t *dataset,
                                         const char *path, int64_t k,
                                         plim__embedding_table_t *table_out)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    plim__reader_t *reader;
    if (info->label_kind != PLIM_LABELS_VALUES)
        return plim__fail(PLIM_ERR_USAGE,
                          "%s: its labels are classes, which no table of embeddings can hold",
                          plim__dataset_path(dataset));
    if (k < 1)
        return plim__fail(PLIM_ERR_USAGE, "hits among the first %lld: give 1 or more",
                          (long long)k);
    table_out->hits = (plim__hits_t){.k = k, .width = info->num_targets};
    PLIM_TRY(plim__reader_file(job, path, BUFFER_BYTES, &reader));
    const plim_status_t status = read_rows(job, reader, path, table_out);
    plim__reader_close(reader);
    return status;
}
