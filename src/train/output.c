#include "train/output.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/npy.h"
#include "nn/score.h"
#include "store/manifest.h"
#include "train/run.h"

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define BUFFER_BYTES ((size_t)128 << 10)

static size_t row_bytes(const plim__output_t *output, int64_t width)
{
    return output->kind == PLIM_PREDICT_CLASSES ? sizeof(int64_t) : (size_t)width * sizeof(float);
}

static bool exists(const char *path)
{
    struct stat about;
    return lstat(path, &about) == 0;
}

/* Whether a file that is there is an .npy, or empty. */
static bool is_replaceable(const char *path)
{
    static const char magic[] = "\x93NUMPY";
    char front[sizeof magic - 1];
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const ssize_t size = fd < 0 ? -1 : read(fd, front, sizeof front);
    if (fd >= 0)
        (void)close(fd);
    return size == 0 || (size == (ssize_t)sizeof front && memcmp(front, magic, sizeof front) == 0);
}

/* Nothing is written into a dataset, and in a run nothing under a name that the run uses. */
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

/* Predictions come under their name whole, by a rename, which would put a file in the place of
 * whatever stands there: of earlier predictions, and of nothing else. */
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
        return plim__fail(PLIM_ERR_USAGE,
                          "%s is there already and is no .npy file, so it is not replaced; remove "
                          "it or name another",
                          path);
    return PLIM_OK;
}

plim_status_t plim__output_open(plim_ledger_t *ledger, const char *path, plim_predict_kind_t kind,
                                int64_t rows, int64_t most_width, plim__output_t *output_out)
{
    plim__output_t *output = output_out;
    *output = (plim__output_t){
        .draft.file.fd = -1, .kind = kind, .rows = rows, .width = -1, .offset = PLIM__NPY_HEADER};
    PLIM_TRY(check_place(path));
    const int64_t bytes = plim__add_saturating_i64(
        PLIM__NPY_HEADER, plim__mul_saturating_i64(rows, (int64_t)row_bytes(output, most_width)));
    PLIM_TRY(plim__draft_open(path, false, bytes, &output->draft));
    PLIM_TRY(plim__arena_create(ledger, "predictions",
                                plim__arena_piece(1, BUFFER_BYTES, PLIM__PAGE), &output->arena));
    output->buffer = plim__arena_carve(&output->arena, 1, BUFFER_BYTES, PLIM__PAGE);
    plim__arena_touch(&output->arena);
    return PLIM_OK;
}

static plim_status_t flush(plim__output_t *output)
{
    if (output->used == 0)
        return PLIM_OK;
    PLIM_TRY(
        plim__file_write_at(&output->draft.file, output->offset, output->buffer, output->used));
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

plim_status_t plim__output_take(plim__output_t *output, int64_t rows, int64_t width,
                                const float *values)
{
    if (output->width < 0)
        output->width = width;
    if (output->width != width || rows > output->rows - output->taken)
        return plim__fail(PLIM_ERR_DATA, "%s: %lld rows of %lld values do not belong there",
                          output->draft.path, (long long)rows, (long long)width);
    for (int64_t i = 0; i < rows * width; i++)
        if (!isfinite(values[i]))
            return plim__fail(PLIM_ERR_DIVERGED,
                              "%s: prediction %lld is not finite: the weights are too large; take "
                              "others (--weights), or train with a lower learning rate (--lr)",
                              output->draft.path, (long long)(output->taken + i / width));
    output->taken += rows;
    if (output->kind != PLIM_PREDICT_CLASSES)
        return append(output, values, (size_t)rows * row_bytes(output, width));
    for (int64_t row = 0; row < rows; row++) {
        const int64_t class = plim__largest_at(values + row * width, width);
        PLIM_TRY(append(output, &class, sizeof class));
    }
    return PLIM_OK;
}

plim_status_t plim__output_finish(plim__output_t *output)
{
    unsigned char header[PLIM__NPY_HEADER];
    const bool classes = output->kind == PLIM_PREDICT_CLASSES;
    const plim__npy_t npy = {.type = classes ? PLIM__NPY_I64 : PLIM__NPY_F32,
                             .num_dims = classes ? 1 : 2,
                             .shape = {output->rows, output->width}};
    if (output->taken != output->rows)
        return plim__fail(PLIM_ERR_DATA, "%s: %lld rows of %lld came", output->draft.path,
                          (long long)output->taken, (long long)output->rows);
    PLIM_TRY(flush(output));
    PLIM_TRY(plim__npy_header(&npy, header));
    PLIM_TRY(plim__file_write_at(&output->draft.file, 0, header, sizeof header));
    return plim__draft_commit(&output->draft, output->offset);
}

void plim__output_close(plim__output_t *output)
{
    plim__draft_close(&output->draft);
    plim__arena_destroy(&output->arena);
}
