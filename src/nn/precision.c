/* Conversion of rows to another element type, and addition of rows. */
#include "nn/model_internal.h"

#include "base/half.h"
#include "nn/bf16.h"
#include "nn/vector.h"

#include <string.h>

#define TASK_ROWS 256
#define STRIP 512

PLIM__KERNEL void narrow_body(const float *restrict from, uint16_t *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = plim__bf16_from_f32(from[i]);
}
PLIM__VECTORISED(narrow, (const float *from, uint16_t *to, int64_t count), (from, to, count))

typedef struct pair {
    const plim__matrix_t *from;
    plim__matrix_t *to;
    plim__half_path_t path;
} pair_t;

static void convert_row(const pair_t *pair, const char *from, char *to)
{
    const plim__element_t source = pair->from->element;
    const plim__element_t target = pair->to->element;
    const int64_t width = pair->from->width;
    if (source == target) {
        memcpy(to, from, (size_t)width * plim__element_bytes(source));
    } else if (target == PLIM__F32) {
        if (source == PLIM__F16)
            plim__half_widen(pair->path, (const uint16_t *)(const void *)from, (float *)(void *)to,
                             width);
        else
            plim__vector_widen((const uint16_t *)(const void *)from, (float *)(void *)to, width);
    } else if (source == PLIM__F32) {
        narrow((const float *)(const void *)from, (uint16_t *)(void *)to, width);
    } else {
        float strip[STRIP];
        for (int64_t i = 0; i < width; i += STRIP) {
            const int64_t count = plim__min_i64(STRIP, width - i);
            plim__half_widen(pair->path, (const uint16_t *)(const void *)from + i, strip, count);
            narrow(strip, (uint16_t *)(void *)to + i, count);
        }
    }
}

static size_t row_bytes(const plim__matrix_t *matrix)
{
    return (size_t)matrix->stride * plim__element_bytes(matrix->element);
}

void plim__matrix_convert_rows(const plim__matrix_t *from, plim__matrix_t *to, int64_t first,
                               int64_t end)
{
    const pair_t pair = {from, to, plim__half_best()};
    for (int64_t row = first; row < end; row++)
        convert_row(&pair, (const char *)from->data + (size_t)row * row_bytes(from),
                    (char *)to->data + (size_t)row * row_bytes(to));
}

static void convert_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const pair_t *pair = context;
    plim__matrix_convert_rows(pair->from, pair->to, task * TASK_ROWS,
                              plim__min_i64((task + 1) * TASK_ROWS, pair->from->rows));
}

static void add_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const pair_t *pair = context;
    const int64_t end = plim__min_i64((task + 1) * TASK_ROWS, pair->from->rows);
    for (int64_t row = task * TASK_ROWS; row < end; row++)
        plim__vector_add((float *)pair->to->data + row * pair->to->stride,
                         (const float *)pair->from->data + row * pair->from->stride,
                         pair->from->width);
}

static void run_rows(plim__team_t *team, const plim__matrix_t *from, plim__matrix_t *to,
                     void (*work)(void *, int, int64_t))
{
    pair_t pair = {from, to, plim__half_best()};
    const int64_t tasks = (from->rows + TASK_ROWS - 1) / TASK_ROWS;
    plim__team_run(team, tasks, TASK_ROWS * (5 + from->width / 4), work, &pair);
}

void plim__matrix_convert(plim__team_t *team, const plim__matrix_t *from, plim__matrix_t *to)
{
    run_rows(team, from, to, convert_task);
}

void plim__matrix_add(plim__team_t *team, const plim__matrix_t *from, plim__matrix_t *to)
{
    run_rows(team, from, to, add_task);
}
