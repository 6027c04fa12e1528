#include "train/output.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/npy.h"
#include "nn/score.h"
#include "store/manifest.h"
#include "train/run.h"

#include <fcntl.h>
#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)128 << 10)

#define CSV_HEADING 40 /* most bytes of a column's heading, and a line's end */
#define CSV_VALUE 16   /* most bytes of "-1.23456789e-38," */
#define CSV_INTEGER 21 /* most bytes of an id that is a number, and what follows it */
#define CSV_QUOTES 3   /* most bytes that a name takes besides its text */

static bool ends_with(const char *path, const char *ending)
{
    const size_t length = strlen(path), size = strlen(ending);
    return length > size && strcmp(path + length - size, ending) == 0;
}

/* Most bytes of `rows` names whose text is `bytes` in all; quotes in it are doubled. */
static int64_t name_bytes(int64_t bytes, int64_t rows)
{
    return plim__add_saturating_i64(plim__mul_saturating_i64(bytes, 2),
                                    plim__mul_saturating_i64(rows, CSV_QUOTES));
}

/* Most bytes of all ids as text. */
static int64_t id_bytes(const plim__output_t *output)
{
    if (!output->has_ids || !plim__row_ids_named(&output->ids))
        return plim__mul_saturating_i64(output->rows, CSV_INTEGER);
    return name_bytes(output->ids.names.text_bytes, output->rows);
}

/* Most bytes of the whole file. */
static int64_t most_bytes(const plim__output_t *output, int64_t width)
{
    const bool classes = output->kind == PLIM_PREDICT_CLASSES;
    int64_t first = PLIM__NPY_HEADER;
    int64_t row = classes ? (int64_t)sizeof(int64_t)
                          : plim__mul_saturating_i64(width, (int64_t)sizeof(float));
    if (output->csv) {
        first = plim__add_saturating_i64(plim__mul_saturating_i64(width, CSV_HEADING),
                                         id_bytes(output));
        row = plim__mul_saturating_i64(width, CSV_VALUE);
        if (classes)
            row = output->has_ids && plim__row_ids_classes(&output->ids)
                      ? name_bytes(plim__min_i64(output->ids.classes.text_bytes, PLIM__ID_TEXT_MAX),
                                   1)
                      : CSV_INTEGER;
    }
    return plim__add_saturating_i64(first, plim__mul_saturating_i64(output->rows, row));
}

static bool exists(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

/* Whether an existing file is empty, or begins as predictions of this ending do. */
static bool is_replaceable(const char *path)
{
    static const char *const headings[] = {"id\n",
                                           "id,predicted_class\n",
                                           "id,output_0",
                                           "id,embedding_0",
                                           "id,probability_0",
                                           "id,score",
                                           NULL};
    static const char *const magics[] = {"\x93NUMPY", NULL};
    char front[32];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t size = fd < 0 ? -1 : read(fd, front, sizeof front);
    if (fd >= 0)
        (void)close(fd);
    for (const char *const *text = ends_with(path, ".csv") ? headings : magics; *text != NULL;
         text++)
        if (size >= (ssize_t)strlen(*text) && memcmp(front, *text, strlen(*text)) == 0)
            return true;
    return size == 0;
}

/* Refuses a path in a dataset, and in a run a name that the run uses. */
static plim_status_t check_directory(const char *path, size_t length)
{
    const char *name = path + length;
    char file[PLIM__RUN_PATH + NAME_MAX];
    if (length + sizeof PLIM__MANIFEST_NAME > PLIM_PATH_MAX)
        return plim__fail(PLIM_ERR_USAGE, "'%.200s…' is too long a path", path);
    (void)snprintf(file, sizeof file, "%.*s%s", (int)length, path, PLIM__MANIFEST_NAME);
    if (exists(file))
        return plim__fail(PLIM_ERR_USAGE,
                          "%s would lie in a dataset, which is never written to; name a file "
                          "elsewhere",
                          path);
    (void)snprintf(file, sizeof file, "%.*s%s", (int)length, path, PLIM__RUN_JSON);
    if (exists(file) && plim__run_has_file(name))
        return plim__fail(PLIM_ERR_USAGE, "%s is a file of a run; give predictions another name",
                          path);
    return PLIM_OK;
}

/* The rename at the end replaces any file at `path`. Allow only earlier predictions. */
static plim_status_t check_place(const char *path)
{
    struct stat about;
    const char *slash = strrchr(path, '/');
    PLIM_TRY(check_directory(path, slash != NULL ? (size_t)(slash - path) + 1 : 0));
    if (lstat(path, &about) != 0)
        return PLIM_OK;
    if (!S_ISREG(about.st_mode))
        return plim__fail(PLIM_ERR_USAGE,
                          "%s is there already and is no ordinary file: predictions are written as "
                          "a file of their own; name another",
                          path);
    if (!is_replaceable(path))
        return plim__fail(
            PLIM_ERR_USAGE,
            "%s exists and is not a file of predictions, so it is not replaced; remove it, or name "
            "another",
            path);
    return PLIM_OK;
}

static plim_status_t check_ending(const char *path)
{
    if (ends_with(path, ".npy") || ends_with(path, ".csv"))
        return PLIM_OK;
    return plim__fail(PLIM_ERR_USAGE,
                      "%s: predictions are written as .npy or as .csv; end the name in one of them",
                      path);
}

/* Opens the file of the ids of an .npy, if they are not 0, 1, 2 …; refuses ids of an earlier
 * prediction, which would seem to belong to this one. */
static plim_status_t open_ids(plim__output_t *output, const char *out)
{
    static const char *const endings[] = {"npy", "csv"};
    const int stem = (int)(strlen(out) - strlen(".npy"));
    const bool named = plim__row_ids_named(&output->ids);
    const int64_t bytes =
        named ? id_bytes(output) : plim__mul_saturating_i64(output->rows, (int64_t)sizeof(int64_t));
    char path[PATH_MAX];
    for (int i = 0; i < 2; i++) {
        if (snprintf(path, sizeof path, "%.*s.ids.%s", stem, out, endings[i]) >= PATH_MAX)
            return plim__fail(PLIM_ERR_USAGE, "'%.200s…' is too long a path", out);
        if (plim__row_ids_matter(&output->ids) && named == (i == 1)) {
            PLIM_TRY(check_place(path));
            PLIM_TRY(plim__draft_open(AT_FDCWD, path, false,
                                      plim__add_saturating_i64(PLIM__NPY_HEADER, bytes),
                                      &output->ids_draft));
        } else if (exists(path)) {
            return plim__fail(
                PLIM_ERR_USAGE,
                "%s exists and would be mistaken for the ids of %s; remove it, or name "
                "another file",
                path, out);
        }
    }
    return PLIM_OK;
}

plim_status_t plim__output_open(plim_ledger_t *ledger, const char *path, plim_predict_kind_t kind,
                                const plim_dataset_t *dataset, plim_split_t split, int64_t rows,
                                int64_t most_width, plim__output_t *output_out)
{
    plim__output_t *output = output_out;
    *output = (plim__output_t){.draft.file.fd = -1,
                               .ids_draft.file.fd = -1,
                               .has_ids = dataset != NULL,
                               .kind = kind,
                               .rows = rows,
                               .width = -1,
                               .csv = ends_with(path, ".csv"),
                               .to = &output->draft.file};
    output->offset = output->csv ? 0 : PLIM__NPY_HEADER;
    PLIM_TRY(check_place(path));
    PLIM_TRY(check_ending(path));
    if (output->has_ids)
        PLIM_TRY(plim__row_ids_open(dataset, split, &output->ids));
    if (output->has_ids && !output->csv)
        PLIM_TRY(open_ids(output, path));
    PLIM_TRY(
        plim__draft_open(AT_FDCWD, path, false, most_bytes(output, most_width), &output->draft));
    PLIM_TRY(plim__arena_create(ledger, "predictions",
                                plim__arena_carve_bytes(1, BUFFER_BYTES, PLIM__PAGE),
                                &output->arena));
    output->buffer = plim__arena_carve(&output->arena, 1, BUFFER_BYTES, PLIM__PAGE);
    plim__arena_touch(&output->arena);
    return PLIM_OK;
}

static plim_status_t flush(plim__output_t *output)
{
    if (output->used == 0)
        return PLIM_OK;
    PLIM_TRY(plim__file_write_at(output->to, output->offset, output->buffer, output->used));
    output->offset += (int64_t)output->used;
    output->used = 0;
    return PLIM_OK;
}

static plim_status_t append(plim__output_t *output, const void *from, size_t size)
{
    const char *at = from;
    while (size > 0) {
        size_t part = BUFFER_BYTES - output->used;
        part = part < size ? part : size;
        memcpy(output->buffer + output->used, at, part);
        output->used += part;
        at += part;
        size -= part;
        if (output->used == BUFFER_BYTES)
            PLIM_TRY(flush(output));
    }
    return PLIM_OK;
}

/* Appends a name, in quotes if a reader of CSV needs them; a quote in it is then doubled. */
static plim_status_t append_name(plim__output_t *output, const plim__row_names_t *names)
{
    bool quoted = false;
    for (size_t i = 0; i < names->size; i++)
        quoted = quoted || strchr("\",; \t\r", names->name[i]) != NULL;
    if (!quoted)
        return append(output, names->name, names->size);
    PLIM_TRY(append(output, "\"", 1));
    for (size_t i = 0; i < names->size; i++) {
        if (names->name[i] == '"')
            PLIM_TRY(append(output, "\"", 1));
        PLIM_TRY(append(output, &names->name[i], 1));
    }
    return append(output, "\"", 1);
}

/* Appends the id of the next row as text. */
static plim_status_t append_id(plim__output_t *output, int64_t row)
{
    char text[24];
    int64_t id = row;
    if (output->has_ids)
        PLIM_TRY(plim__row_ids_next(&output->ids, &id));
    if (output->has_ids && plim__row_ids_named(&output->ids))
        return append_name(output, &output->ids.names);
    const int size = snprintf(text, sizeof text, "%" PRId64, id);
    return append(output, text, (size_t)size);
}

/* Softmax needs the largest output of a row and the sum over it. */
typedef struct softmax {
    double most;
    double sum;
} softmax_t;

static softmax_t softmax_of(const plim__output_t *output, const float *row)
{
    softmax_t softmax = {0, 0};
    if (output->kind != PLIM_PREDICT_PROBABILITIES || output->sigmoid)
        return softmax;
    softmax.most = (double)row[plim__largest_at(row, output->width)];
    for (int64_t i = 0; i < output->width; i++)
        softmax.sum += exp((double)row[i] - softmax.most);
    return softmax;
}

static float value_at(const plim__output_t *output, const softmax_t *softmax, float value)
{
    if (output->kind != PLIM_PREDICT_PROBABILITIES)
        return value;
    return output->sigmoid ? (float)(1 / (1 + exp(-(double)value)))
                           : (float)(exp((double)value - softmax->most) / softmax->sum);
}

static plim_status_t append_heading(plim__output_t *output)
{
    static const char *const names[] = {"output", "class", "embedding", "probability"};
    const bool classes = output->kind == PLIM_PREDICT_CLASSES;
    const bool scores = output->kind == PLIM_PREDICT_SCORES;
    char text[48];
    PLIM_TRY(append(output, "id", 2));
    for (int64_t i = 0; i < (classes ? 1 : output->width); i++) {
        const int size = classes || scores
                             ? snprintf(text, sizeof text, classes ? ",predicted_class" : ",score")
                             : snprintf(text, sizeof text, ",%s_%" PRId64, names[output->kind], i);
        PLIM_TRY(append(output, text, (size_t)size));
    }
    return append(output, "\n", 1);
}

/* The class at the end of a line, as the word that it was given as. */
static plim_status_t append_class(plim__output_t *output, int64_t class)
{
    char text[32];
    if (output->has_ids && plim__row_ids_classes(&output->ids)) {
        PLIM_TRY(plim__row_ids_class(&output->ids, class));
        PLIM_TRY(append(output, ",", 1));
        PLIM_TRY(append_name(output, &output->ids.classes));
        return append(output, "\n", 1);
    }
    const int size = snprintf(text, sizeof text, ",%" PRId64 "\n", class);
    return append(output, text, (size_t)size);
}

static plim_status_t append_text(plim__output_t *output, int64_t index, const float *row)
{
    char text[32];
    const softmax_t softmax = softmax_of(output, row);
    PLIM_TRY(append_id(output, index));
    if (output->kind == PLIM_PREDICT_CLASSES)
        return append_class(output, plim__largest_at(row, output->width));
    for (int64_t i = 0; i < output->width; i++) {
        /* Nine digits give the same float again. */
        const int size =
            snprintf(text, sizeof text, ",%.9g", (double)value_at(output, &softmax, row[i]));
        PLIM_TRY(append(output, text, (size_t)size));
    }
    return append(output, "\n", 1);
}

static plim_status_t append_row(plim__output_t *output, int64_t index, const float *row)
{
    if (output->csv)
        return append_text(output, index, row);
    if (output->kind == PLIM_PREDICT_CLASSES) {
        const int64_t class = plim__largest_at(row, output->width);
        return append(output, &class, sizeof class);
    }
    if (output->kind != PLIM_PREDICT_PROBABILITIES)
        return append(output, row, (size_t)output->width * sizeof *row);
    const softmax_t softmax = softmax_of(output, row);
    for (int64_t i = 0; i < output->width; i++) {
        const float value = value_at(output, &softmax, row[i]);
        PLIM_TRY(append(output, &value, sizeof value));
    }
    return PLIM_OK;
}

static plim_status_t append_rows(plim__output_t *output, int64_t rows, const float *values)
{
    if (output->csv && output->taken == 0)
        PLIM_TRY(append_heading(output));
    for (int64_t row = 0; row < rows; row++)
        PLIM_TRY(append_row(output, output->taken + row, values + row * output->width));
    output->taken += rows;
    return PLIM_OK;
}

plim_status_t plim__output_take(plim__output_t *output, int64_t rows, int64_t width,
                                const float *values)
{
    if (output->width < 0)
        output->width = width;
    if (output->width != width || rows > output->rows - output->taken)
        return plim__fail(PLIM_ERR_DATA, "%s: %lld rows of %lld values do not fit the file",
                          output->draft.path, (long long)rows, (long long)width);
    for (int64_t i = 0; i < rows * width; i++)
        if (!isfinite(values[i]))
            return plim__fail(PLIM_ERR_DIVERGED,
                              "%s: prediction %lld is not finite: the weights are too large; take "
                              "other `weights`, or train with a lower learning rate (`rate`)",
                              output->draft.path, (long long)(output->taken + i / width));
    return append_rows(output, rows, values);
}

static plim_status_t write_header(plim__draft_t *draft, const plim__npy_t *npy)
{
    unsigned char header[PLIM__NPY_HEADER];
    plim__npy_header(npy, header);
    return plim__file_write_at(&draft->file, 0, header, sizeof header);
}

/* Writes the ids of an .npy. */
static plim_status_t write_ids(plim__output_t *output)
{
    const bool named = plim__row_ids_named(&output->ids);
    const plim__npy_t npy = {.type = PLIM__NPY_I64, .num_dims = 1, .shape = {output->rows}};
    int64_t id;
    output->to = &output->ids_draft.file;
    output->offset = named ? 0 : PLIM__NPY_HEADER;
    if (named)
        PLIM_TRY(append(output, "id\n", 3));
    else
        PLIM_TRY(write_header(&output->ids_draft, &npy));
    for (int64_t row = 0; row < output->rows; row++) {
        if (named) {
            PLIM_TRY(append_id(output, row));
            PLIM_TRY(append(output, "\n", 1));
        } else {
            PLIM_TRY(plim__row_ids_next(&output->ids, &id));
            PLIM_TRY(append(output, &id, sizeof id));
        }
    }
    PLIM_TRY(flush(output));
    return plim__draft_commit(&output->ids_draft, output->offset);
}

plim_status_t plim__output_finish(plim__output_t *output)
{
    const bool classes = output->kind == PLIM_PREDICT_CLASSES;
    const plim__npy_t npy = {.type = classes ? PLIM__NPY_I64 : PLIM__NPY_F32,
                             .num_dims = classes || output->kind == PLIM_PREDICT_SCORES ? 1 : 2,
                             .shape = {output->rows, output->width}};
    if (output->taken != output->rows)
        return plim__fail(PLIM_ERR_DATA, "%s: only %lld of %lld rows were computed",
                          output->draft.path, (long long)output->taken, (long long)output->rows);
    PLIM_TRY(flush(output));
    const int64_t size = output->offset;
    if (!output->csv)
        PLIM_TRY(write_header(&output->draft, &npy));
    if (output->ids_draft.file.fd >= 0)
        PLIM_TRY(write_ids(output));
    return plim__draft_commit(&output->draft, size);
}

void plim__output_close(plim__output_t *output)
{
    plim__draft_close(&output->draft);
    plim__draft_close(&output->ids_draft);
    if (output->has_ids)
        plim__row_ids_close(&output->ids);
    plim__arena_destroy(&output->arena);
}
