#include "nn/decoder.h"

#include "base/check.h"
#include "nn/sum.h"
#include "nn/vector.h"

#define PAIRS 64   /* of a task of scores */
#define COLUMNS 16 /* of a task of the gradient: a cache line, which no other task writes */

typedef struct decoding {
    const plim__pairs_t *pairs;
    int64_t num_rows, width;
    const float *rows;
    float *scores;
    const float *dscores;
    float *drows;
} decoding_t;

PLIM__KERNEL void score_body(const decoding_t *work, int64_t begin, int64_t end)
{
    const int64_t width = work->width;
    for (int64_t i = begin; i < end; i++)
        work->scores[i] = plim__sum_products(work->rows + work->pairs->sources[i] * width,
                                             work->rows + work->pairs->targets[i] * width, width);
}
PLIM__VECTORISED(score, (const decoding_t *work, int64_t begin, int64_t end), (work, begin, end))

static void score_task(void *context, int worker, int64_t task)
{
    const decoding_t *work = context;
    (void)worker;
    score(work, task * PAIRS, plim__min_i64((task + 1) * PAIRS, work->pairs->count));
}

void plim__decode(plim__team_t *team, const plim__pairs_t *pairs, int64_t width, const float *rows,
                  float *scores_out)
{
    decoding_t work = {.pairs = pairs, .width = width, .rows = rows, .scores = scores_out};
    plim__team_run(team, (pairs->count + PAIRS - 1) / PAIRS, PAIRS * (20 + width / 4), score_task,
                   &work);
}

/* to[i] += by * from[i] */
PLIM__KERNEL void add_scaled(float *restrict to, const float *restrict from, float by,
                             int64_t count)
{
    if (count == COLUMNS) {
        for (int64_t i = 0; i < COLUMNS; i++)
            to[i] += by * from[i];
        return;
    }
    for (int64_t i = 0; i < count; i++)
        to[i] += by * from[i];
}

/* Columns first … first + count - 1 of the gradient. */
PLIM__KERNEL void backward_body(const decoding_t *work, int64_t first, int64_t count)
{
    const int64_t width = work->width;
    const float *rows = work->rows + first;
    float *drows = work->drows + first;
    for (int64_t row = 0; row < work->num_rows; row++)
        for (int64_t i = 0; i < count; i++)
            drows[row * width + i] = 0.0f;
    for (int64_t i = 0; i < work->pairs->count; i++) {
        const int64_t source = work->pairs->sources[i] * width;
        const int64_t target = work->pairs->targets[i] * width;
        add_scaled(drows + source, rows + target, work->dscores[i], count);
        add_scaled(drows + target, rows + source, work->dscores[i], count);
    }
}
PLIM__VECTORISED(backward, (const decoding_t *work, int64_t first, int64_t count),
                 (work, first, count))

static void backward_task(void *context, int worker, int64_t task)
{
    const decoding_t *work = context;
    (void)worker;
    backward(work, task * COLUMNS, plim__min_i64(COLUMNS, work->width - task * COLUMNS));
}

void plim__decode_backward(plim__team_t *team, const plim__pairs_t *pairs, int64_t num_rows,
                           int64_t width, const float *rows, const float *dscores, float *drows_out)
{
    decoding_t work = {.pairs = pairs,
                       .num_rows = num_rows,
                       .width = width,
                       .rows = rows,
                       .dscores = dscores,
                       .drows = drows_out};
    plim__team_run(team, (width + COLUMNS - 1) / COLUMNS, 20 * pairs->count + 4 * num_rows,
                   backward_task, &work);
}
