/* Layer norm and batch norm of an epilogue's rows, forward and back. */
#include "nn/epilogue_rows.h"
#include "nn/sum.h"
#include "nn/vector.h"

#include <math.h>
#include <string.h>

#define EPSILON 1e-5f
#define MOMENTUM 0.1

/* Where the parts of `kept` begin, in floats. The first part is the (rows, width) normed values. */
typedef struct norm_layout {
    size_t inverse; /* 1/deviation of each row (layer norm) or column (batch norm) */
    size_t mean;    /* batch norm: (width) */
    size_t sums;    /* batch norm: doubles (2 + PLIM__LANES, pitch) while statistics are computed */
    size_t floats;  /* of all parts */
} norm_layout_t;

static size_t take(size_t *used, int64_t rows, int64_t width)
{
    const size_t at = *used, floats = plim__mul_saturating_size((size_t)rows, (size_t)width);
    *used = plim__add_saturating_size(at, plim__round_up(floats, 16));
    return at;
}

static norm_layout_t layout_of(const plim__epilogue_t *epilogue, int64_t rows)
{
    const int64_t width = epilogue->width;
    norm_layout_t layout = {0};
    (void)take(&layout.floats, rows, width);
    layout.inverse = take(&layout.floats, epilogue->norm == PLIM_NORM_LAYER ? rows : width, 1);
    if (epilogue->norm == PLIM_NORM_BATCH) {
        layout.mean = take(&layout.floats, width, 1);
        layout.sums =
            take(&layout.floats, 2 * (2 + (int64_t)PLIM__LANES), plim__epilogue_pitch(width));
    }
    return layout;
}

size_t plim__norm_kept(const plim__epilogue_t *epilogue, int64_t rows)
{
    return plim__mul_saturating_size(layout_of(epilogue, rows).floats, sizeof(float));
}

/* One row in place: y = norm(y + bias); normed may be NULL. Returns 1/deviation. */
PLIM__KERNEL float layer_row(const plim__epilogue_t *epilogue, float *restrict y,
                             float *restrict normed)
{
    const int64_t width = epilogue->width;
    if (epilogue->bias != NULL)
        for (int64_t i = 0; i < width; i++)
            y[i] += epilogue->bias[i];
    const float mean = plim__sum(y, width) / (float)width;
    for (int64_t i = 0; i < width; i++)
        y[i] -= mean;
    const float variance = plim__sum_products(y, y, width) / (float)width;
    const float inverse = 1.0f / sqrtf(variance + EPSILON);
    for (int64_t i = 0; i < width; i++)
        y[i] *= inverse;
    if (normed != NULL)
        memcpy(normed, y, (size_t)width * sizeof *y);
    for (int64_t i = 0; i < width; i++)
        y[i] = y[i] * epilogue->gamma[i] + epilogue->beta[i];
    return inverse;
}

PLIM__KERNEL void layer_rows_body(const plim__epilogue_t *epilogue, int64_t rows, int64_t begin,
                                  int64_t end, float *y, float *kept)
{
    const size_t inverses = layout_of(epilogue, rows).inverse;
    for (int64_t row = begin; row < end; row++) {
        float *normed = kept != NULL ? kept + row * epilogue->width : NULL;
        const float inverse = layer_row(epilogue, y + (row - begin) * epilogue->width, normed);
        if (kept != NULL)
            kept[inverses + (size_t)row] = inverse;
    }
}

PLIM__VECTORISED(layer_rows,
                 (const plim__epilogue_t *epilogue, int64_t rows, int64_t begin, int64_t end,
                  float *y, float *kept),
                 (epilogue, rows, begin, end, y, kept))

/* In training: with the batch's own statistics, from kept. */
PLIM__KERNEL void batch_rows_body(const plim__epilogue_t *epilogue, int64_t rows, int64_t begin,
                                  int64_t end, float *restrict y, float *restrict kept)
{
    const int64_t width = epilogue->width;
    const norm_layout_t layout = layout_of(epilogue, rows);
    const float *mean = kept + layout.mean, *inverse = kept + layout.inverse;
    for (int64_t row = begin; row < end; row++) {
        float *values = y + (row - begin) * width;
        float *normed = kept + row * width;
        if (epilogue->bias != NULL)
            for (int64_t i = 0; i < width; i++)
                values[i] += epilogue->bias[i];
        for (int64_t i = 0; i < width; i++)
            normed[i] = (values[i] - mean[i]) * inverse[i];
        for (int64_t i = 0; i < width; i++)
            values[i] = normed[i] * epilogue->gamma[i] + epilogue->beta[i];
    }
}

PLIM__VECTORISED(batch_rows,
                 (const plim__epilogue_t *epilogue, int64_t rows, int64_t begin, int64_t end,
                  float *y, float *kept),
                 (epilogue, rows, begin, end, y, kept))

/* Outside training: with the running statistics. */
PLIM__KERNEL void running_rows_body(const plim__epilogue_t *epilogue, int64_t begin, int64_t end,
                                    float *restrict y)
{
    const int64_t width = epilogue->width;
    for (int64_t row = begin; row < end; row++) {
        float *values = y + (row - begin) * width;
        if (epilogue->bias != NULL)
            for (int64_t i = 0; i < width; i++)
                values[i] += epilogue->bias[i];
        for (int64_t i = 0; i < width; i++) {
            const float inverse = 1.0f / sqrtf(epilogue->running_var[i] + EPSILON);
            const float normed = (values[i] - epilogue->running_mean[i]) * inverse;
            values[i] = normed * epilogue->gamma[i] + epilogue->beta[i];
        }
    }
}

PLIM__VECTORISED(running_rows,
                 (const plim__epilogue_t *epilogue, int64_t begin, int64_t end, float *y),
                 (epilogue, begin, end, y))

void plim__norm_rows(const plim__epilogue_t *epilogue, int64_t rows, int64_t begin, int64_t end,
                     float *y, float *kept)
{
    if (epilogue->norm == PLIM_NORM_LAYER)
        layer_rows(epilogue, rows, begin, end, y, epilogue->training ? kept : NULL);
    else if (epilogue->training)
        batch_rows(epilogue, rows, begin, end, y, kept);
    else
        running_rows(epilogue, begin, end, y);
}

typedef struct statistics {
    const plim__epilogue_t *epilogue;
    int64_t rows;
    const float *y;
    const double *mean; /* NULL: sums of values; otherwise of squared distances from it */
    double *lanes;      /* (PLIM__LANES, pitch) */
} statistics_t;

PLIM__KERNEL void statistics_rows_body(const statistics_t *statistics, int64_t begin, int64_t end,
                                       double *restrict sums)
{
    const int64_t width = statistics->epilogue->width;
    const float *bias = statistics->epilogue->bias;
    const double *mean = statistics->mean;
    for (int64_t row = begin; row < end; row++) {
        const float *values = statistics->y + row * width;
        float v[PLIM__CHUNK];
        for (int64_t first = 0; first < width; first += PLIM__CHUNK) {
            const int64_t count = plim__min_i64(width - first, PLIM__CHUNK);
            for (int64_t i = 0; i < count; i++)
                v[i] = values[first + i];
            if (bias != NULL)
                for (int64_t i = 0; i < count; i++)
                    v[i] += bias[first + i];
            if (mean == NULL)
                for (int64_t i = 0; i < count; i++)
                    sums[first + i] += (double)v[i];
            else
                for (int64_t i = 0; i < count; i++) {
                    const double away = (double)v[i] - mean[first + i];
                    sums[first + i] += away * away;
                }
        }
    }
}

PLIM__VECTORISED(statistics_rows,
                 (const statistics_t *statistics, int64_t begin, int64_t end, double *sums),
                 (statistics, begin, end, sums))

static void statistics_lane(void *context, int worker, int64_t lane)
{
    (void)worker;
    const statistics_t *statistics = context;
    const int64_t pitch = plim__epilogue_pitch(statistics->epilogue->width);
    double *sums = statistics->lanes + lane * pitch;
    memset(sums, 0, (size_t)pitch * sizeof *sums);
    statistics_rows(statistics, plim__lane_begin(statistics->rows, lane),
                    plim__lane_begin(statistics->rows, lane + 1), sums);
}

/* Means over all rows of the lanes' sums, to `to` (width). */
static void statistics_means(plim__team_t *team, statistics_t *statistics, double *to)
{
    const int64_t width = statistics->epilogue->width;
    const int64_t cost = statistics->rows / PLIM__LANES * width / 2;
    plim__team_run(team, PLIM__LANES, cost, statistics_lane, statistics);
    for (int64_t i = 0; i < width; i++) {
        double sum = 0;
        for (int64_t lane = 0; lane < PLIM__LANES; lane++)
            sum += statistics->lanes[lane * plim__epilogue_pitch(width) + i];
        to[i] = sum / (double)statistics->rows;
    }
}

void plim__norm_statistics(plim__team_t *team, const plim__epilogue_t *epilogue, int64_t rows,
                           const float *y, float *kept)
{
    const norm_layout_t layout = layout_of(epilogue, rows);
    double *sums = (double *)(void *)(kept + layout.sums);
    const int64_t pitch = plim__epilogue_pitch(epilogue->width);
    double *exact_mean = sums, *variance = sums + pitch;
    statistics_t statistics = {epilogue, rows, y, NULL, sums + 2 * pitch};
    statistics_means(team, &statistics, exact_mean);
    statistics.mean = exact_mean;
    statistics_means(team, &statistics, variance);
    /* PyTorch's running variance is the unbiased one. */
    const double unbiased = rows > 1 ? (double)rows / (double)(rows - 1) : 1.0;
    for (int64_t i = 0; i < epilogue->width; i++) {
        kept[layout.mean + (size_t)i] = (float)exact_mean[i];
        kept[layout.inverse + (size_t)i] = (float)(1.0 / sqrt(variance[i] + (double)EPSILON));
        float *running_mean = &epilogue->running_mean[i], *running_var = &epilogue->running_var[i];
        *running_mean = (float)(*running_mean * (1 - MOMENTUM) + exact_mean[i] * MOMENTUM);
        *running_var = (float)(*running_var * (1 - MOMENTUM) + variance[i] * unbiased * MOMENTUM);
    }
}

/* Turns g (width), the gradient after the norm, into the gradient before it; adds to the sums. */
PLIM__KERNEL void layer_back_body(const plim__epilogue_t *epilogue, const float *restrict normed,
                                  float inverse, float *restrict g, float *restrict bias,
                                  float *restrict gamma, float *restrict beta)
{
    const int64_t width = epilogue->width;
    for (int64_t i = 0; i < width; i++) {
        gamma[i] += g[i] * normed[i];
        beta[i] += g[i];
        g[i] *= epilogue->gamma[i];
    }
    const float along = plim__sum(g, width) / (float)width;
    const float across = plim__sum_products(g, normed, width) / (float)width;
    for (int64_t i = 0; i < width; i++) {
        g[i] = (g[i] - along - normed[i] * across) * inverse;
        bias[i] += g[i];
    }
}

PLIM__VECTORISED(layer_back,
                 (const plim__epilogue_t *epilogue, const float *normed, float inverse, float *g,
                  float *bias, float *gamma, float *beta),
                 (epilogue, normed, inverse, g, bias, gamma, beta))

/* The rows of a sum that are not joined yet. */
static float *fresh(const plim__epilogue_back_t *back, int64_t lane, int which)
{
    return plim__epilogue_lane(back, lane, 2 * which + 1);
}

static void layer_lane(void *context, int worker, int64_t lane)
{
    (void)worker;
    const plim__epilogue_back_t *back = context;
    const int64_t rows = back->h->rows, begin = plim__lane_begin(rows, lane);
    const int64_t end = plim__lane_begin(rows, lane + 1);
    const float *inverse = back->kept + layout_of(back->epilogue, rows).inverse;
    float *g = plim__epilogue_lane(back, lane, PLIM__LANE_ROWS - 1);
    plim__epilogue_clear(back, lane, 0, PLIM__SUMS);
    for (int64_t row = begin; row < end; row++) {
        plim__epilogue_gradient(back, row, g);
        layer_back(back->epilogue, back->kept + row * back->epilogue->width, inverse[row], g,
                   fresh(back, lane, PLIM__SUM_BIAS), fresh(back, lane, PLIM__SUM_GAMMA),
                   fresh(back, lane, PLIM__SUM_BETA));
        plim__epilogue_store(back, row, g);
        if ((row - begin) % PLIM__SUM_ROWS == PLIM__SUM_ROWS - 1 || row == end - 1)
            plim__epilogue_join(back, lane, 0, PLIM__SUMS);
    }
}

PLIM__KERNEL void batch_sums_body(const float *restrict g, const float *restrict normed,
                                  int64_t width, float *restrict gamma, float *restrict beta)
{
    for (int64_t i = 0; i < width; i++) {
        gamma[i] += g[i] * normed[i];
        beta[i] += g[i];
    }
}

PLIM__VECTORISED(batch_sums,
                 (const float *g, const float *normed, int64_t width, float *gamma, float *beta),
                 (g, normed, width, gamma, beta))

static void batch_sums_lane(void *context, int worker, int64_t lane)
{
    (void)worker;
    const plim__epilogue_back_t *back = context;
    const int64_t rows = back->h->rows, begin = plim__lane_begin(rows, lane);
    const int64_t end = plim__lane_begin(rows, lane + 1), width = back->epilogue->width;
    float *g = plim__epilogue_lane(back, lane, PLIM__LANE_ROWS - 1);
    plim__epilogue_clear(back, lane, PLIM__SUM_GAMMA, PLIM__SUMS);
    for (int64_t row = begin; row < end; row++) {
        plim__epilogue_gradient(back, row, g);
        batch_sums(g, back->kept + row * width, width, fresh(back, lane, PLIM__SUM_GAMMA),
                   fresh(back, lane, PLIM__SUM_BETA));
        if ((row - begin) % PLIM__SUM_ROWS == PLIM__SUM_ROWS - 1 || row == end - 1)
            plim__epilogue_join(back, lane, PLIM__SUM_GAMMA, PLIM__SUMS);
    }
}

/* `means` is (2, pitch): of g times the normed values, of g. */
PLIM__KERNEL void batch_back_body(const plim__epilogue_t *epilogue, const float *restrict normed,
                                  const float *restrict inverse, const float *restrict means,
                                  float *restrict g, float *restrict bias)
{
    const int64_t width = epilogue->width;
    const float *along = means + plim__epilogue_pitch(width);
    for (int64_t i = 0; i < width; i++) {
        g[i] = (g[i] - along[i] - normed[i] * means[i]) * (epilogue->gamma[i] * inverse[i]);
        bias[i] += g[i];
    }
}

PLIM__VECTORISED(batch_back,
                 (const plim__epilogue_t *epilogue, const float *normed, const float *inverse,
                  const float *means, float *g, float *bias),
                 (epilogue, normed, inverse, means, g, bias))

static float *batch_means(const plim__epilogue_back_t *back)
{
    return plim__epilogue_lane(back, PLIM__LANES, 0);
}

static void batch_lane(void *context, int worker, int64_t lane)
{
    (void)worker;
    const plim__epilogue_back_t *back = context;
    const int64_t rows = back->h->rows, begin = plim__lane_begin(rows, lane);
    const int64_t end = plim__lane_begin(rows, lane + 1);
    const float *inverse = back->kept + layout_of(back->epilogue, rows).inverse;
    float *g = plim__epilogue_lane(back, lane, PLIM__LANE_ROWS - 1);
    plim__epilogue_clear(back, lane, PLIM__SUM_BIAS, PLIM__SUM_BIAS + 1);
    for (int64_t row = begin; row < end; row++) {
        plim__epilogue_gradient(back, row, g);
        batch_back(back->epilogue, back->kept + row * back->epilogue->width, inverse,
                   batch_means(back), g, fresh(back, lane, PLIM__SUM_BIAS));
        plim__epilogue_store(back, row, g);
        if ((row - begin) % PLIM__SUM_ROWS == PLIM__SUM_ROWS - 1 || row == end - 1)
            plim__epilogue_join(back, lane, PLIM__SUM_BIAS, PLIM__SUM_BIAS + 1);
    }
}

static void batch_backward(plim__team_t *team, plim__epilogue_back_t *back, int64_t cost)
{
    const int64_t width = back->epilogue->width, pitch = plim__epilogue_pitch(width);
    float *means = batch_means(back);
    plim__team_run(team, PLIM__LANES, cost, batch_sums_lane, back);
    memset(means, 0, (size_t)(2 * pitch) * sizeof *means);
    plim__epilogue_total(back, PLIM__SUM_GAMMA, means);
    plim__epilogue_total(back, PLIM__SUM_BETA, means + pitch);
    for (int64_t i = 0; i < width; i++) {
        back->gradients->gamma[i] += means[i];
        back->gradients->beta[i] += means[pitch + i];
        means[i] /= (float)back->h->rows;
        means[pitch + i] /= (float)back->h->rows;
    }
    plim__team_run(team, PLIM__LANES, cost, batch_lane, back);
}

void plim__norm_backward(plim__team_t *team, const plim__epilogue_back_t *back)
{
    plim__epilogue_back_t whole = *back;
    const int64_t cost = back->h->rows / PLIM__LANES * back->epilogue->width;
    if (back->epilogue->norm == PLIM_NORM_BATCH) {
        batch_backward(team, &whole, cost);
    } else {
        plim__team_run(team, PLIM__LANES, cost, layer_lane, &whole);
        plim__epilogue_total(back, PLIM__SUM_GAMMA, back->gradients->gamma);
        plim__epilogue_total(back, PLIM__SUM_BETA, back->gradients->beta);
    }
    plim__epilogue_total(back, PLIM__SUM_BIAS, back->gradients->bias);
}
