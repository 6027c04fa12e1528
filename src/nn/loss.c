#include "nn/loss.h"

#include "base/check.h"
#include "nn/exp.h"
#include "nn/sum.h"
#include "nn/vector.h"

#include <math.h>
#include <string.h>

/* Rows whose losses are summed separately; the sums are added in order. Depends on the number of
 * rows alone. */
#define TASKS_MAX 64

/* Columns at a time. */
#define CHUNK 256

typedef struct loss_work {
    plim_loss_t loss;
    int64_t rows, width;
    const float *outputs;
    const void *labels;
    float scale;
    float *doutputs;
    int64_t rows_per_task;
    double sums[TASKS_MAX];
} loss_work_t;

/*
 * Sixteen columns at a time; the last sixteen may overlap those before and write the same results
 * again. So no loop has a remainder, unless the row is shorter.
 */
PLIM__KERNEL void exponentials(const float *x, float largest, int64_t count, float *terms)
{
    if (count < 16) {
        for (int64_t i = 0; i < count; i++)
            terms[i] = plim__expf(x[i] - largest);
        return;
    }
    for (int64_t i = 0; i < count; i += 16) {
        const int64_t first = plim__min_i64(i, count - 16);
        for (int64_t k = first; k < first + 16; k++)
            terms[k] = plim__expf(x[k] - largest);
    }
}

PLIM__KERNEL void scaled(const float *terms, float factor, int64_t count, float *restrict dx)
{
    if (count < 16) {
        for (int64_t i = 0; i < count; i++)
            dx[i] = terms[i] * factor;
        return;
    }
    for (int64_t i = 0; i < count; i += 16) {
        const int64_t first = plim__min_i64(i, count - 16);
        for (int64_t k = first; k < first + 16; k++)
            dx[k] = terms[k] * factor;
    }
}

PLIM__KERNEL double cross_entropy_row(const float *x, int64_t class, int64_t width, float scale,
                                      float *dx)
{
    if (class < 0 || class >= width) {
        for (int64_t i = 0; dx != NULL && i < width; i++)
            dx[i] = 0.0f;
        return 0.0;
    }
    float terms[CHUNK];
    const float largest = plim__largest(x, width);
    double sum = 0;
    for (int64_t first = 0; first < width; first += CHUNK) {
        const int64_t count = plim__min_i64(width - first, CHUNK);
        const int64_t filled = (count + 15) / 16 * 16;
        for (int64_t i = filled - 16; i < filled; i++)
            terms[i] = 0.0f;
        exponentials(x + first, largest, count, terms);
        sum += (double)plim__sum(terms, filled);
    }
    const double loss = log(sum) - ((double)x[class] - (double)largest);
    if (dx != NULL) {
        for (int64_t first = 0; first < width; first += CHUNK) {
            const int64_t count = plim__min_i64(width - first, CHUNK);
            if (width > CHUNK)
                exponentials(x + first, largest, count, terms);
            scaled(terms, (float)((double)scale / sum), count, dx + first);
        }
        dx[class] -= scale;
    }
    return loss;
}

static inline double value_loss(plim_loss_t loss, float x, float label, float *slope_out)
{
    const double away = (double)x - (double)label;
    if (loss == PLIM_LOSS_BCE) {
        const double small = exp(-fabs((double)x));
        const double share = x >= 0 ? 1.0 / (1.0 + small) : small / (1.0 + small);
        *slope_out = (float)(share - (double)label);
        return fmax((double)x, 0.0) - (double)x * (double)label + log1p(small);
    }
    if (loss == PLIM_LOSS_MAE) {
        *slope_out = away > 0 ? 1.0f : away < 0 ? -1.0f : 0.0f;
        return fabs(away);
    }
    *slope_out = (float)(2.0 * away);
    return away * away;
}

static double values_row(const loss_work_t *work, const float *x, const float *labels, float *dx)
{
    double sum = 0;
    const double share = 1.0 / (double)work->width;
    for (int64_t i = 0; i < work->width; i++) {
        float slope = 0.0f;
        if (!isnan(labels[i]))
            sum += value_loss(work->loss, x[i], labels[i], &slope);
        if (dx != NULL)
            dx[i] = (float)((double)slope * share * (double)work->scale);
    }
    return sum * share;
}

PLIM__KERNEL void rows_body(loss_work_t *work, int64_t begin, int64_t end, double *sum_out)
{
    double sum = 0;
    for (int64_t row = begin; row < end; row++) {
        const float *x = work->outputs + row * work->width;
        float *dx = work->doutputs != NULL ? work->doutputs + row * work->width : NULL;
        if (work->loss == PLIM_LOSS_CROSS_ENTROPY)
            sum += cross_entropy_row(x, ((const int64_t *)work->labels)[row], work->width,
                                     work->scale, dx);
        else
            sum += values_row(work, x, (const float *)work->labels + row * work->width, dx);
    }
    *sum_out = sum;
}

PLIM__VECTORISED(rows, (loss_work_t * work, int64_t begin, int64_t end, double *sum_out),
                 (work, begin, end, sum_out))

static void loss_task(void *context, int worker, int64_t task)
{
    (void)worker;
    loss_work_t *work = context;
    const int64_t begin = task * work->rows_per_task;
    rows(work, begin, plim__min_i64(work->rows, begin + work->rows_per_task), &work->sums[task]);
}

double plim__loss(plim__team_t *team, plim_loss_t loss, int64_t rows_, int64_t width,
                  const float *outputs, const void *labels, float scale, float *doutputs)
{
    loss_work_t work = {loss, rows_, width, outputs, labels, scale, doutputs, 1, {0}};
    if (rows_ == 0)
        return 0.0;
    /* Large enough tasks, and never more than TASKS_MAX. */
    work.rows_per_task = plim__max_i64((rows_ - 1) / TASKS_MAX + 1, 4096 / (width + 1) + 1);
    const int64_t tasks = (rows_ - 1) / work.rows_per_task + 1;
    const int64_t each = loss == PLIM_LOSS_CROSS_ENTROPY ? 1 : 20;
    plim__team_run(team, tasks, work.rows_per_task * (20 + width * each), loss_task, &work);
    double sum = 0;
    for (int64_t task = 0; task < tasks; task++)
        sum += work.sums[task];
    return sum;
}
