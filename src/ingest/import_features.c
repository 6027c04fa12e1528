/* Checks and converts features and writes features.npy. */
#include "ingest/import.h"

#include "base/bounds.h"
#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/range_reader.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* Most bytes of a slab of rows when columns are transposed to rows. */
#define SLAB_BYTES ((int64_t)64 << 20)

/* Most bytes from a text, whose number of rows is unknown; its checksums take 512 KiB. */
#define OPEN_BYTES ((int64_t)1 << 42)

/* Source and destination of features. */
typedef struct feature_sink {
    plim__import_t *import;
    const char *name;
    const plim__text_lines_t *lines; /* for a text, else NULL: messages then give lines, */
    int64_t first_column;            /* and columns from 1 instead of 0 */
    int64_t columns;
    plim__dtype_t from_type;
    plim__dtype_t to_type;
    plim__column_t *column;
    int64_t done;   /* values so far */
    float *row;     /* (columns) the current row, if rows are divided by their sums; else NULL */
    int64_t in_row; /* values of it so far, not counted in `done` */
} feature_sink_t;

plim__dtype_t plim__import_stored_type(const plim__import_t *import, plim__dtype_t source)
{
    if (import->options->features == PLIM_F16)
        return PLIM__NPY_F16;
    if (import->options->features == PLIM_F32)
        return PLIM__NPY_F32;
    if (import->options->features == PLIM_I64 || plim__dtype_is_integer(source))
        return PLIM__NPY_I64;
    return source == PLIM__NPY_F16 ? PLIM__NPY_F16 : PLIM__NPY_F32;
}

int64_t plim__import_feature_bytes(const plim__import_t *import, const plim__npy_t *npy)
{
    int64_t bytes;
    int64_t size = (int64_t)plim__dtype_size(plim__import_stored_type(import, npy->type));
    return plim__mul_i64(npy->count, size, &bytes) ? bytes : INT64_MAX;
}

/* Integers may be categories, whose size means nothing: converting them is the user's choice. */
static plim_status_t check_integers(const plim__import_t *import, const feature_sink_t *sink)
{
    if (sink->to_type != PLIM__NPY_I64)
        return PLIM_OK;
    if (import->options->normalise_features)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: features are integers, so rows cannot be divided by their sums; "
                          "give `features` f32 to convert them",
                          sink->name);
    if (import->options->features == 0)
        plim__log(import->job, PLIM_LOG_INFO,
                  "%s: features are integers and stay so (int64); if they are numbers to train "
                  "on, give `features` f32",
                  sink->name);
    return PLIM_OK;
}

static plim_status_t begin(plim__import_t *import, feature_sink_t *sink, int64_t rows)
{
    int64_t bytes = OPEN_BYTES;
    int64_t shape[2] = {rows, sink->columns};
    if (import->features_done)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: features were already read from %s; keep one of the two", sink->name,
                          import->features_from);
    PLIM_TRY(check_integers(import, sink));
    if (sink->columns < 1)
        return plim__fail(PLIM_ERR_DATA, "%s: its rows have no columns", sink->name);
    if (sink->columns > PLIM__COLUMNS_MAX)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: its rows have %" PRId64 " columns; at most %" PRId64
                          " are supported",
                          sink->name, sink->columns, PLIM__COLUMNS_MAX);
    if (rows >= 0 && (!plim__mul_i64(rows, sink->columns, &bytes) ||
                      !plim__mul_i64(bytes, (int64_t)plim__dtype_size(sink->to_type), &bytes)))
        return plim__fail(PLIM_ERR_DATA, "%s: its shape is too large", sink->name);
    (void)snprintf(import->features_from, sizeof import->features_from, "%s", sink->name);
    PLIM_TRY(plim__import_begin(import));
    if (import->options->normalise_features) {
        PLIM_TRY(plim__arena_create(import->job->ledger, "import blocks",
                                    (size_t)sink->columns * sizeof(float), &import->row));
        sink->row = (void *)import->row.base;
    }
    return plim__column_open(import->writer, "features", sink->to_type, 2, shape, bytes,
                             import->buffer, &sink->column);
}

/* Reports the value at `from[at]`, `at` values after those of the sink. */
static plim_status_t bad_value(const feature_sink_t *sink, const void *from, int64_t at)
{
    int64_t number = sink->done + sink->in_row + at;
    double value = plim__feature_convert_value(sink->from_type, from, at);
    int64_t row = number / sink->columns;
    int64_t line = sink->lines != NULL ? plim__text_line_of(sink->lines, row) : 0;
    const char *row_name = line > 0 ? "line" : "row";
    int64_t column = sink->first_column + number % sink->columns;
    if (!isfinite(value))
        return plim__fail(
            PLIM_ERR_DATA,
            "%s: %s %" PRId64 ", column %" PRId64 ": %s is not allowed; write a number, such as 0",
            sink->name, row_name, line > 0 ? line : row, column, isnan(value) ? "NaN" : "infinity");
    if (sink->row != NULL && value < 0)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: %s %" PRId64 ", column %" PRId64 ": %g is negative, so rows cannot "
                          "be divided by their sums; omit `normalise_features`",
                          sink->name, row_name, line > 0 ? line : row, column, value);
    if (sink->to_type == PLIM__NPY_I64)
        return plim__fail(PLIM_ERR_DATA,
                          "%s: %s %" PRId64 ", column %" PRId64 ": %.17g is not an integer of 64 "
                          "bits; import with `features` f32",
                          sink->name, row_name, line > 0 ? line : row, column, value);
    return plim__fail(PLIM_ERR_DATA,
                      "%s: %s %" PRId64 ", column %" PRId64 ": %g is too large for %s; %s",
                      sink->name, row_name, line > 0 ? line : row, column, value,
                      sink->to_type == PLIM__NPY_F16 ? "f16 (65504 at most)" : "f32",
                      sink->to_type == PLIM__NPY_F16 && fabs(value) < 3.4e38
                          ? "import with `features` f32"
                          : "scale the features before importing them");
}

/* Converts `count` values of `type` directly into the column's buffers. */
static plim_status_t store(feature_sink_t *sink, plim__dtype_t type, const void *from,
                           int64_t count)
{
    const char *next = from;
    size_t to_size = plim__dtype_size(sink->to_type);
    while (count > 0) {
        void *to;
        size_t room;
        PLIM_TRY(plim__column_space(sink->column, &to, &room));
        int64_t part = plim__min_i64(count, (int64_t)(room / to_size));
        int64_t good = plim__feature_convert(sink->import->path, type, next, sink->to_type, to,
                                             part, &sink->import->feature_error);
        if (good < part)
            return bad_value(sink, next, good);
        PLIM_TRY(plim__column_advance(sink->column, (size_t)part * to_size));
        next += (size_t)part * plim__dtype_size(type);
        sink->done += part;
        count -= part;
    }
    return PLIM_OK;
}

/* Divides the complete row by its sum, or by 1 if that is larger, and stores it. */
static plim_status_t store_divided(feature_sink_t *sink)
{
    double sum = 0;
    for (int64_t i = 0; i < sink->columns; i++)
        sum += (double)sink->row[i];
    if (!isfinite(sum))
        return plim__fail(PLIM_ERR_DATA,
                          "%s: the sum of row %" PRId64 " is infinite, so the row cannot be "
                          "divided by it; omit `normalise_features`",
                          sink->name, sink->done / sink->columns);
    const double divisor = sum > 1 ? sum : 1;
    for (int64_t i = 0; i < sink->columns; i++)
        sink->row[i] = (float)((double)sink->row[i] / divisor);
    sink->in_row = 0;
    return store(sink, PLIM__NPY_F32, sink->row, sink->columns);
}

/* Adds `count` values, as they are or row by row. */
static plim_status_t put(feature_sink_t *sink, const void *from, int64_t count)
{
    const char *next = from;
    if (sink->row == NULL)
        return store(sink, sink->from_type, from, count);
    while (count > 0) {
        float *row = sink->row + sink->in_row;
        int64_t part = plim__min_i64(count, sink->columns - sink->in_row);
        int64_t good =
            plim__feature_convert(sink->import->path, sink->from_type, next, PLIM__NPY_F32, row,
                                  part, &sink->import->feature_error);
        for (int64_t i = 0; i < good; i++)
            if (row[i] < 0)
                good = i;
        if (good < part)
            return bad_value(sink, next, good);
        next += (size_t)part * plim__dtype_size(sink->from_type);
        sink->in_row += part;
        count -= part;
        if (sink->in_row == sink->columns)
            PLIM_TRY(store_divided(sink));
    }
    return PLIM_OK;
}

static plim_status_t finish(feature_sink_t *sink)
{
    plim__import_t *import = sink->import;
    import->features_done = true;
    import->feature_rows = sink->done / sink->columns;
    return plim__column_close(sink->column);
}

static plim_status_t copy_values(feature_sink_t *sink, plim__reader_t *reader, int64_t count,
                                 char *raw, size_t capacity)
{
    size_t size = plim__dtype_size(sink->from_type);
    for (int64_t read = 0, part; read < count; read += part) {
        part = plim__min_i64(count - read, (int64_t)(capacity / size));
        PLIM_TRY(plim__job_check(sink->import->job));
        PLIM_TRY(plim__reader_read_all(reader, raw, (size_t)part * size));
        PLIM_TRY(put(sink, raw, part));
        plim__progress(sink->import->job, "reading features", "rows", sink->done / sink->columns,
                       count / sink->columns);
    }
    return plim__reader_end(reader);
}

static plim_status_t check_shape(const plim__npy_t *npy, const char *name)
{
    if (npy->num_dims == 1 || npy->num_dims == 2)
        return PLIM_OK;
    return plim__fail(PLIM_ERR_DATA,
                      "%s: features must have the shape [N, F], but it has %d dimensions", name,
                      npy->num_dims);
}

/* Buffers for transposing columns to rows. */
typedef struct transpose {
    plim__arena_t arena;
    size_t size; /* of a value */
    size_t num_from, num_to, num_reads;
    char *from;          /* (num_from) values as they come: column by column */
    char *to;            /* (num_to) values row by row */
    plim__read_t *reads; /* (num_reads) */
} transpose_t;

static void lay_out(plim__arena_t *arena, void *object)
{
    transpose_t *transpose = object;
    transpose->from = plim__arena_carve(arena, transpose->num_from, transpose->size, PLIM__PAGE);
    transpose->to = plim__arena_carve(arena, transpose->num_to, transpose->size, PLIM__PAGE);
    transpose->reads = plim__arena_carve(arena, transpose->num_reads, sizeof(plim__read_t), 1);
}

static plim_status_t transpose_create(const plim__import_t *import, transpose_t draft,
                                      transpose_t **transpose_out)
{
    return plim__object_create(import->job->ledger, "import transpose", lay_out, &draft,
                               sizeof draft, &draft.arena, transpose_out);
}

/*
 * Transposes the whole array in memory and writes it. plim__import_features_slabs reads files that
 * are too large for that.
 */
static plim_status_t features_fortran(plim__import_t *import, plim__reader_t *reader,
                                      const plim__npy_t *npy)
{
    size_t size = plim__dtype_size(npy->type);
    int64_t rows = npy->shape[0], columns = npy->shape[1];
    feature_sink_t sink = {.import = import,
                           .name = reader->name,
                           .columns = columns,
                           .from_type = npy->type,
                           .to_type = plim__import_stored_type(import, npy->type)};
    transpose_t *transpose;
    PLIM_TRY(plim__import_agree(&import->nodes, "nodes", rows, reader->name));
    PLIM_TRY(begin(import, &sink, rows));
    plim_status_t status = transpose_create(
        import, (transpose_t){.size = size, .num_from = (size_t)rows, .num_to = (size_t)npy->count},
        &transpose);
    if (status != PLIM_OK)
        return plim__fail_prefix(status,
                                 "%s is in Fortran order inside an archive; save it in C order "
                                 "(numpy.ascontiguousarray), or unpack the archive",
                                 reader->name);
    for (int64_t c = 0; c < columns && status == PLIM_OK; c++) {
        status = plim__reader_read_all(reader, transpose->from, (size_t)rows * size);
        for (int64_t r = 0; r < rows && status == PLIM_OK; r++)
            memcpy(transpose->to + (size_t)(r * columns + c) * size,
                   transpose->from + (size_t)r * size, size);
    }
    if (status == PLIM_OK)
        status = put(&sink, transpose->to, npy->count);
    plim__arena_destroy(&transpose->arena);
    PLIM_TRY(status);
    PLIM_TRY(plim__reader_end(reader));
    return finish(&sink);
}

plim_status_t plim__import_features_npy(plim__import_t *import, plim__reader_t *reader,
                                        const plim__npy_t *npy)
{
    PLIM_TRY(check_shape(npy, reader->name));
    feature_sink_t sink = {.import = import,
                           .name = reader->name,
                           .columns = npy->num_dims == 2 ? npy->shape[1] : 1,
                           .from_type = npy->type,
                           .to_type = plim__import_stored_type(import, npy->type)};
    plim__arena_t arena;
    if (npy->fortran)
        return features_fortran(import, reader, npy);
    PLIM_TRY(plim__import_agree(&import->nodes, "nodes", npy->shape[0], reader->name));
    PLIM_TRY(begin(import, &sink, npy->shape[0]));
    size_t capacity = import->buffer / 4;
    PLIM_TRY(plim__arena_create(import->job->ledger, "import blocks", capacity, &arena));
    plim_status_t status = copy_values(&sink, reader, npy->count, arena.base, capacity);
    plim__arena_destroy(&arena);
    return status == PLIM_OK ? finish(&sink) : status;
}

/* Reads the parts of all columns for one slab, transposes and writes them. */
static plim_status_t copy_slab(feature_sink_t *sink, plim__range_reader_t *reader,
                               const plim__file_t *file, const plim__npy_t *npy, int64_t first,
                               int64_t rows, transpose_t *transpose)
{
    size_t size = transpose->size;
    int64_t columns = sink->columns;
    for (int64_t c = 0; c < columns; c++)
        transpose->reads[c] =
            (plim__read_t){.offset = npy->header_size + (c * npy->shape[0] + first) * (int64_t)size,
                           .size = (size_t)rows * size,
                           .to = transpose->from + (size_t)(c * rows) * size};
    PLIM_TRY(plim__range_reader_read(reader, file, transpose->reads, columns));
    for (int64_t c = 0; c < columns; c++)
        for (int64_t r = 0; r < rows; r++)
            memcpy(transpose->to + (size_t)(r * columns + c) * size,
                   transpose->from + (size_t)(c * rows + r) * size, size);
    return put(sink, transpose->to, rows * columns);
}

static plim_status_t copy_slabs(feature_sink_t *sink, const char *path, const plim__npy_t *npy,
                                int64_t slab, plim__range_reader_t *reader)
{
    transpose_t *transpose;
    plim__file_t file;
    size_t values = (size_t)(slab * sink->columns);
    PLIM_TRY(transpose_create(sink->import,
                              (transpose_t){.size = plim__dtype_size(npy->type),
                                            .num_from = values,
                                            .num_to = values,
                                            .num_reads = (size_t)sink->columns},
                              &transpose));
    plim_status_t status = plim__file_open(path, PLIM__FILE_READ, true, &file);
    if (status != PLIM_OK)
        goto destroy_arena;
    for (int64_t first = 0; first < npy->shape[0] && status == PLIM_OK; first += slab) {
        int64_t rows = plim__min_i64(slab, npy->shape[0] - first);
        status = plim__job_check(sink->import->job);
        if (status == PLIM_OK)
            status = copy_slab(sink, reader, &file, npy, first, rows, transpose);
        plim__progress(sink->import->job, "reading features", "rows", first + rows, npy->shape[0]);
    }
    plim__file_close(&file);
destroy_arena:
    plim__arena_destroy(&transpose->arena);
    return status;
}

plim_status_t plim__import_features_slabs(plim__import_t *import, const char *path,
                                          const plim__npy_t *npy)
{
    size_t size = plim__dtype_size(npy->type);
    plim__range_reader_t *reader;
    PLIM_TRY(check_shape(npy, path));
    feature_sink_t sink = {.import = import,
                           .name = path,
                           .columns = npy->shape[1],
                           .from_type = npy->type,
                           .to_type = plim__import_stored_type(import, npy->type)};
    PLIM_TRY(plim__import_agree(&import->nodes, "nodes", npy->shape[0], path));
    PLIM_TRY(begin(import, &sink, npy->shape[0]));
    /* Two slabs, and as much again for the reader's transfers. */
    int64_t share = plim__min_i64(plim__ledger_available(import->job->ledger) / 8, SLAB_BYTES);
    int64_t slab = plim__max_i64(share / (npy->shape[1] * (int64_t)size), 16);
    slab = plim__min_i64(slab, npy->shape[0]);
    plim__range_reader_params_t params = {.depth = 8,
                                          .max_read =
                                              plim__round_up((size_t)slab * size, PLIM__PAGE),
                                          .merge_distance = 0};
    PLIM_TRY(plim__range_reader_create(import->job, &params, &reader));
    plim_status_t status = copy_slabs(&sink, path, npy, slab, reader);
    plim__range_reader_destroy(reader);
    return status == PLIM_OK ? finish(&sink) : status;
}

static plim_status_t copy_lines(feature_sink_t *sink, plim__text_t *text, void *rows,
                                int64_t capacity)
{
    const int64_t all_columns = sink->columns + sink->first_column - 1 + sink->import->label_last;
    int64_t got;
    do {
        PLIM_TRY(plim__job_check(sink->import->job));
        PLIM_TRY(sink->from_type == PLIM__NPY_F64
                     ? plim__text_rows_f64(text, all_columns, sink->columns, capacity, rows, &got)
                     : plim__text_rows_f32(text, all_columns, sink->columns, capacity, rows, &got));
        PLIM_TRY(put(sink, rows, got * sink->columns));
        plim__progress(sink->import->job, "reading features", "rows", sink->done / sink->columns,
                       sink->import->nodes.value < 0 ? 0 : sink->import->nodes.value);
    } while (got == capacity);
    return PLIM_OK;
}

plim_status_t plim__import_features_text(plim__import_t *import, plim__text_t *text,
                                         const char *name)
{
    plim__text_line_t line;
    plim__arena_t arena;
    PLIM_TRY(plim__import_rows_begin(import, text, true, &line));
    line.columns -= import->label_last;
    feature_sink_t sink = {.import = import,
                           .name = name,
                           .lines = plim__text_lines(text),
                           .first_column = line.ids ? 2 : 1,
                           .columns = line.columns,
                           .to_type = plim__import_stored_type(import, PLIM__NPY_F32)};
    const int64_t stored = (int64_t)plim__dtype_size(sink.to_type) * line.columns;
    int64_t bytes;
    sink.from_type = sink.to_type == PLIM__NPY_I64 ? PLIM__NPY_F64 : PLIM__NPY_F32;
    if (import->nodes.value > 0 && plim__mul_i64(import->nodes.value, stored, &bytes)) {
        plim__import_needs_t needs = {.feature_bytes = bytes, .what = "for the features"};
        PLIM_TRY(plim__import_plan(import, &needs));
    }
    PLIM_TRY(begin(import, &sink, -1));
    const int64_t read = (int64_t)plim__dtype_size(sink.from_type) * line.columns;
    int64_t rows = plim__max_i64(1, (int64_t)(import->buffer / 4) / read);
    PLIM_TRY(
        plim__arena_create(import->job->ledger, "import blocks", (size_t)(rows * read), &arena));
    plim_status_t status = copy_lines(&sink, text, arena.base, rows);
    plim__arena_destroy(&arena);
    return status == PLIM_OK ? finish(&sink) : status;
}
