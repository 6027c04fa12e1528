#include "train/output.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/commit.h"
#include "io/npy.h"

#include <stdio.h>
#include <string.h>

#define BUFFER_BYTES ((size_t)1 << 20)

size_t plim__output_estimate(void)
{
    return plim__arena_piece(1, BUFFER_BYTES, PLIM__PAGE);
}

static size_t row_bytes(const plim__output_t *output, int64_t width)
{
    return output->kind == PLIM_PREDICT_CLASSES ? sizeof(int64_t) : (size_t)width * sizeof(float);
}

plim_status_t plim__output_open(plim_ledger_t *ledger, const char *path, plim_predict_kind_t kind,
                                int64_t rows, int64_t most_width, plim__output_t *output_out)
{
    plim__output_t *output = output_out;
    int64_t space;
    char need[24], have[24];
    *output = (plim__output_t){
        .file.fd = -1, .kind = kind, .rows = rows, .width = -1, .offset = PLIM__NPY_HEADER};
    if (snprintf(output->path, sizeof output->path, "%s", path) >= (int)sizeof output->path ||
        path[0] == '\0' || path[strlen(path) - 1] == '/')
        return plim__fail(PLIM_ERR_USAGE, "'%s' is no name of a file", path);
    (void)snprintf(output->directory, sizeof output->directory, "%s", path);
    char *slash = strrchr(output->directory, '/');
    if (slash == NULL)
        memcpy(output->directory, ".", 2);
    else
        slash[slash == output->directory] = '\0';
    PLIM_TRY(plim__file_space(output->directory, &space));
    const int64_t bytes = plim__mul_saturating_i64(rows, (int64_t)row_bytes(output, most_width));
    if (space < bytes)
        return plim__fail(PLIM_ERR_SPACE,
                          "%s: predictions take %s, and there is room for %s; write "
                          "them elsewhere, or fewer of them",
                          path, plim_size_text(bytes, need), plim_size_text(space, have));
    PLIM_TRY(plim__file_open(output->directory, PLIM__FILE_TEMPORARY, false, &output->file));
    PLIM_TRY(plim__arena_create(ledger, "predictions", plim__output_estimate(), &output->arena));
    output->buffer = plim__arena_carve(&output->arena, 1, BUFFER_BYTES, PLIM__PAGE);
    return PLIM_OK;
}

static plim_status_t flush(plim__output_t *output)
{
    if (output->used == 0)
        return PLIM_OK;
    PLIM_TRY(plim__file_write_at(&output->file, output->offset, output->buffer, output->used));
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

/* The first of the largest, as argmax has it. */
static int64_t largest(const float *values, int64_t width)
{
    int64_t best = 0;
    for (int64_t i = 1; i < width; i++)
        if (values[i] > values[best])
            best = i;
    return best;
}

plim_status_t plim__output_take(plim__output_t *output, int64_t rows, int64_t width,
                                const float *values)
{
    if (output->width < 0)
        output->width = width;
    if (output->width != width || rows > output->rows - output->taken)
        return plim__fail(PLIM_ERR_DATA, "%s: %lld rows of %lld values do not belong there",
                          output->path, (long long)rows, (long long)width);
    output->taken += rows;
    if (output->kind != PLIM_PREDICT_CLASSES)
        return append(output, values, (size_t)rows * row_bytes(output, width));
    for (int64_t row = 0; row < rows; row++) {
        const int64_t class = largest(values + row * width, width);
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
        return plim__fail(PLIM_ERR_DATA, "%s: %lld rows of %lld came", output->path,
                          (long long)output->taken, (long long)output->rows);
    PLIM_TRY(flush(output));
    PLIM_TRY(plim__npy_header(&npy, header));
    PLIM_TRY(plim__file_write_at(&output->file, 0, header, sizeof header));
    return plim__commit_nameless(&output->file, output->path);
}

void plim__output_close(plim__output_t *output)
{
    if (output->file.fd >= 0)
        plim__file_close(&output->file);
    plim__arena_destroy(&output->arena);
}
