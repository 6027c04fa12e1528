#include "nn/epilogue.h"

#include "base/rng.h"
#include "nn/bf16.h"
#include "nn/epilogue_rows.h"
#include "nn/exp.h"
#include "nn/vector.h"

#include <math.h>
#include <string.h>

/* The draws of PLIM__CHUNK columns of a row, four from each number. */
typedef union draws {
    uint64_t wide[PLIM__CHUNK / 4];
    uint16_t of[PLIM__CHUNK];
} draws_t;

/* Dropout keeps a value when its draw is not below the threshold. */
typedef struct dropping {
    bool any;
    uint32_t threshold; /* of 65536 */
    float scale;        /* of kept values */
} dropping_t;

static const float zeros[PLIM__CHUNK];

static dropping_t dropping_of(const plim__epilogue_t *epilogue)
{
    dropping_t dropping = {false, 0, 1.0f};
    if (!epilogue->training || !(epilogue->dropout > 0))
        return dropping;
    dropping.threshold = (uint32_t)lrintf(fminf(epilogue->dropout, 1.0f) * 65536.0f);
    dropping.any = dropping.threshold > 0;
    dropping.scale =
        dropping.threshold < 65536 ? 65536.0f / (float)(65536 - dropping.threshold) : 0.0f;
    return dropping;
}

/* Draws of columns [first, first + count) of a row; `first` is a multiple of 4. */
PLIM__KERNEL void draw(const plim__epilogue_t *epilogue, int64_t row, int64_t first, int64_t count,
                       uint64_t *wide)
{
    const uint64_t key = plim__rng_key_of(epilogue->key, plim__node_id(&epilogue->nodes, row));
    const uint64_t counter = (uint64_t)first / 4;
    for (int64_t i = 0; i < (count + 3) / 4; i++)
        wide[i] = plim__rng_u64(key, counter + (uint64_t)i);
}

/* For `count` values from column `first` on: of one row, or of whole narrow rows (rows_at_once). */
PLIM__KERNEL void draw_chunk(const plim__epilogue_t *epilogue, int64_t row, int64_t first,
                             int64_t count, draws_t *draws)
{
    const int64_t width = epilogue->width;
    if (first + count <= width) {
        draw(epilogue, row, first, count, draws->wide);
        return;
    }
    for (int64_t at = 0; at < count; at += width)
        draw(epilogue, row + at / width, 0, width, draws->wide + at / 4);
}

/* `activation` and `drop` are constants where this is inlined. */
PLIM__KERNEL void activate(plim_activation_t activation, bool drop, const dropping_t *dropping,
                           const draws_t *draws, int64_t count, const float *y, const float *bias,
                           float *out)
{
    const uint32_t threshold = dropping->threshold;
    const float scale = dropping->scale;
    for (int64_t i = 0; i < count; i++) {
        float v = y[i] + bias[i];
        if (activation == PLIM_RELU)
            v = v <= 0.0f ? 0.0f : v; /* a NaN stays NaN: a diverged model must not look healthy */
        if (activation == PLIM_ELU) {
            const float below = plim__expf(v > 0.0f ? 0.0f : v) - 1.0f;
            v = v > 0.0f ? v : below;
        }
        if (drop) {
            v *= scale;
            v = draws->of[i] >= threshold ? v : 0.0f;
        }
        out[i] = v;
    }
}

/* The gradient before dropout and activation; h shows on which side of 0 a value was. */
PLIM__KERNEL void derive(plim_activation_t activation, bool drop, const dropping_t *dropping,
                         const draws_t *draws, int64_t count, const float *dh, const float *h,
                         float *out)
{
    const uint32_t threshold = dropping->threshold;
    const float scale = dropping->scale;
    const float back = scale > 0.0f ? 1.0f / scale : 0.0f;
    for (int64_t i = 0; i < count; i++) {
        float g = dh[i];
        if (drop)
            g *= scale;
        if (activation == PLIM_RELU)
            g = h[i] > 0.0f ? g : 0.0f;
        if (activation == PLIM_ELU) {
            const float slope = (drop ? h[i] * back : h[i]) + 1.0f;
            g = h[i] > 0.0f ? g : g * slope;
        }
        if (drop && activation != PLIM_RELU)
            g = draws->of[i] >= threshold ? g : 0.0f;
        out[i] = g;
    }
}

/* Narrow adjacent rows are processed together, as many as make a chunk. */
static int64_t rows_at_once(const plim__epilogue_t *epilogue, bool dense)
{
    const int64_t width = epilogue->width;
    const bool whole = epilogue->dropout <= 0 || width % 4 == 0; /* draws come by four */
    return dense && whole && width <= PLIM__CHUNK / 2 ? PLIM__CHUNK / width : 1;
}

/* `row` (count), repeated. */
PLIM__KERNEL void tile(const float *row, int64_t count, float *tiles)
{
    for (int64_t at = 0; at + count <= PLIM__CHUNK; at += count)
        for (int64_t i = 0; i < count; i++)
            tiles[at + i] = row[i];
}

/* Calls `kernel` with activation and drop as constants. */
#define SPECIALISED(kernel, activation, drop, ...)                                                 \
    do {                                                                                           \
        if ((drop) && (activation) == PLIM_RELU)                                                   \
            kernel(PLIM_RELU, true, __VA_ARGS__);                                                  \
        else if ((drop) && (activation) == PLIM_ELU)                                               \
            kernel(PLIM_ELU, true, __VA_ARGS__);                                                   \
        else if (drop)                                                                             \
            kernel(PLIM_ACTIVATION_NONE, true, __VA_ARGS__);                                       \
        else if ((activation) == PLIM_RELU)                                                        \
            kernel(PLIM_RELU, false, __VA_ARGS__);                                                 \
        else if ((activation) == PLIM_ELU)                                                         \
            kernel(PLIM_ELU, false, __VA_ARGS__);                                                  \
        else                                                                                       \
            kernel(PLIM_ACTIVATION_NONE, false, __VA_ARGS__);                                      \
    } while (0)

/* Columns [first, first + count) of a row as floats: in place, or converted to `copy`. */
PLIM__KERNEL const float *load(const plim__matrix_t *matrix, int64_t row, int64_t first,
                               int64_t count, float *copy)
{
    const int64_t at = row * matrix->stride + first;
    if (matrix->element == PLIM__F32)
        return (const float *)matrix->data + at;
    const uint16_t *from = (const uint16_t *)matrix->data + at;
    for (int64_t i = 0; i < count; i++)
        copy[i] = plim__f32_from_bf16(from[i]);
    return copy;
}

PLIM__KERNEL void store(const plim__matrix_t *matrix, int64_t row, int64_t first, int64_t count,
                        const float *from)
{
    const int64_t at = row * matrix->stride + first;
    if (matrix->element == PLIM__F32) {
        float *to = (float *)matrix->data + at;
        for (int64_t i = 0; i < count; i++)
            to[i] = from[i];
        return;
    }
    uint16_t *to = (uint16_t *)matrix->data + at;
    for (int64_t i = 0; i < count; i++)
        to[i] = plim__bf16_from_f32(from[i]);
}

typedef struct epilogue_forward {
    const plim__epilogue_t *epilogue;
    dropping_t dropping;
    float *y; /* row y_row */
    int64_t y_row;
    const plim__matrix_t *residual;
    plim__matrix_t *h;
    float *kept;
    int64_t rows_per_task, at_once;
} epilogue_forward_t;

/* `count` values of y, after the norm if there is one, to h. */
PLIM__KERNEL void forward_chunk(const epilogue_forward_t *forward, int64_t row, int64_t first,
                                int64_t count, const float *bias)
{
    const plim__epilogue_t *epilogue = forward->epilogue;
    const bool drop = forward->dropping.any;
    draws_t draws;
    float out[PLIM__CHUNK], sum[PLIM__CHUNK], copy[PLIM__CHUNK];
    const float *y = forward->y + (row - forward->y_row) * epilogue->width + first;
    if (forward->residual != NULL) {
        const float *more = load(forward->residual, row, first, count, copy);
        for (int64_t i = 0; i < count; i++)
            sum[i] = bias[i] + more[i];
        bias = sum;
    }
    if (drop)
        draw_chunk(epilogue, row, first, count, &draws);
    SPECIALISED(activate, epilogue->activation, drop, &forward->dropping, &draws, count, y, bias,
                out);
    store(forward->h, row, first, count, out);
}

PLIM__KERNEL void forward_rows_body(const epilogue_forward_t *forward, int64_t begin, int64_t end)
{
    const int64_t width = forward->epilogue->width, at_once = forward->at_once;
    const float *bias = forward->epilogue->norm == PLIM_NORM_NONE ? forward->epilogue->bias : NULL;
    float tiles[PLIM__CHUNK] = {0};
    if (at_once > 1) {
        if (bias != NULL)
            tile(bias, width, tiles);
        for (int64_t row = begin; row < end; row += at_once)
            forward_chunk(forward, row, 0, plim__min_i64(at_once, end - row) * width,
                          bias != NULL ? tiles : zeros);
        return;
    }
    for (int64_t row = begin; row < end; row++)
        for (int64_t first = 0; first < width; first += PLIM__CHUNK)
            forward_chunk(forward, row, first, plim__min_i64(width - first, PLIM__CHUNK),
                          bias != NULL ? bias + first : zeros);
}

PLIM__VECTORISED(forward_rows, (const epilogue_forward_t *forward, int64_t begin, int64_t end),
                 (forward, begin, end))

static void forward_range(const epilogue_forward_t *forward, int64_t begin, int64_t end)
{
    float *y = forward->y + (begin - forward->y_row) * forward->epilogue->width;
    if (forward->epilogue->norm != PLIM_NORM_NONE)
        plim__norm_rows(forward->epilogue, forward->h->rows, begin, end, y, forward->kept);
    forward_rows(forward, begin, end);
}

static void forward_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const epilogue_forward_t *forward = context;
    const int64_t begin = task * forward->rows_per_task;
    forward_range(forward, begin, plim__min_i64(forward->h->rows, begin + forward->rows_per_task));
}

static epilogue_forward_t forward_make(const plim__epilogue_t *epilogue, float *y,
                                       const plim__matrix_t *residual, plim__matrix_t *h,
                                       void *kept)
{
    const int64_t width = epilogue->width;
    epilogue_forward_t forward = {epilogue, dropping_of(epilogue), y, 0, residual, h, kept, 0, 0};
    forward.at_once = rows_at_once(epilogue, h->stride == width &&
                                                 (residual == NULL || residual->stride == width));
    /* The rows of a task stay in the second-level cache between norm and activation. */
    forward.rows_per_task = plim__max_i64(1, 32768 / width);
    return forward;
}

void plim__epilogue_forward(plim__team_t *team, const plim__epilogue_t *epilogue, float *y,
                            const plim__matrix_t *residual, plim__matrix_t *h, void *kept)
{
    if (h->rows == 0 || epilogue->width == 0)
        return;
    epilogue_forward_t forward = forward_make(epilogue, y, residual, h, kept);
    if (epilogue->norm == PLIM_NORM_BATCH && epilogue->training)
        plim__norm_statistics(team, epilogue, h->rows, y, kept);
    const int64_t tasks = (h->rows - 1) / forward.rows_per_task + 1;
    const int64_t rows = plim__min_i64(h->rows, forward.rows_per_task);
    const int64_t cost = rows * epilogue->width * (forward.dropping.any ? 2 : 1) / 2;
    plim__team_run(team, tasks, cost, forward_task, &forward);
}

void plim__epilogue_forward_rows(const plim__epilogue_t *epilogue, float *y,
                                 const plim__matrix_t *residual, plim__matrix_t *h, void *kept,
                                 int64_t first, int64_t end)
{
    epilogue_forward_t forward = forward_make(epilogue, y, residual, h, kept);
    forward.y_row = first;
    forward_range(&forward, first, end);
}

size_t plim__epilogue_kept(const plim__epilogue_t *epilogue, int64_t rows)
{
    return epilogue->norm == PLIM_NORM_NONE ? 0 : plim__norm_kept(epilogue, rows);
}

/* The lanes' scratch, then two rows for batch norm's means. */
size_t plim__epilogue_scratch(const plim__epilogue_t *epilogue)
{
    const size_t row = plim__mul_saturating_size((size_t)plim__epilogue_pitch(epilogue->width), 4);
    return plim__mul_saturating_size(row, PLIM__LANES * PLIM__LANE_ROWS + 2);
}

float *plim__epilogue_lane(const plim__epilogue_back_t *back, int64_t lane, int row)
{
    return back->scratch +
           (lane * PLIM__LANE_ROWS + row) * plim__epilogue_pitch(back->epilogue->width);
}

void plim__epilogue_clear(const plim__epilogue_back_t *back, int64_t lane, int first, int end)
{
    const size_t bytes = (size_t)plim__epilogue_pitch(back->epilogue->width) * sizeof(float);
    memset(plim__epilogue_lane(back, lane, 2 * first), 0, (size_t)(2 * (end - first)) * bytes);
}

PLIM__KERNEL void join_rows_body(float *to, float *from, int64_t count)
{
    for (int64_t i = 0; i < count; i++) {
        to[i] += from[i];
        from[i] = 0.0f;
    }
}

PLIM__VECTORISED(join_rows, (float *to, float *from, int64_t count), (to, from, count))

void plim__epilogue_join(const plim__epilogue_back_t *back, int64_t lane, int first, int end)
{
    for (int which = first; which < end; which++)
        join_rows(plim__epilogue_lane(back, lane, 2 * which),
                  plim__epilogue_lane(back, lane, 2 * which + 1), back->epilogue->width);
}

void plim__epilogue_total(const plim__epilogue_back_t *back, int which, float *to)
{
    if (to == NULL)
        return;
    float *total = plim__epilogue_lane(back, 0, 2 * which);
    for (int64_t lane = 1; lane < PLIM__LANES; lane++)
        join_rows(total, plim__epilogue_lane(back, lane, 2 * which), back->epilogue->width);
    join_rows(to, total, back->epilogue->width);
}

PLIM__KERNEL void gradient_chunk(const plim__epilogue_back_t *back, const dropping_t *dropping,
                                 int64_t row, int64_t first, int64_t count, float *g)
{
    const plim__epilogue_t *epilogue = back->epilogue;
    const bool drop = dropping->any;
    draws_t draws;
    float copy[PLIM__CHUNK];
    if (drop && epilogue->activation != PLIM_RELU)
        draw_chunk(epilogue, row, first, count, &draws);
    const float *h = load(back->h, row, first, count, copy);
    const float *dh = back->dh + row * epilogue->width + first;
    SPECIALISED(derive, epilogue->activation, drop, dropping, &draws, count, dh, h, g);
    if (back->dresidual != NULL)
        memcpy(back->dresidual + row * epilogue->width + first, g, (size_t)count * sizeof *g);
}

PLIM__KERNEL void gradient_row_body(const plim__epilogue_back_t *back, const dropping_t *dropping,
                                    int64_t row, float *g)
{
    float out[PLIM__CHUNK];
    for (int64_t first = 0; first < back->epilogue->width; first += PLIM__CHUNK) {
        const int64_t count = plim__min_i64(back->epilogue->width - first, PLIM__CHUNK);
        gradient_chunk(back, dropping, row, first, count, out);
        memcpy(g + first, out, (size_t)count * sizeof *g);
    }
}

PLIM__VECTORISED(gradient_row,
                 (const plim__epilogue_back_t *back, const dropping_t *dropping, int64_t row,
                  float *g),
                 (back, dropping, row, g))

void plim__epilogue_gradient(const plim__epilogue_back_t *back, int64_t row, float *g)
{
    const dropping_t dropping = dropping_of(back->epilogue);
    gradient_row(back, &dropping, row, g);
}

PLIM__KERNEL void store_row_body(const plim__matrix_t *dy, int64_t row, const float *g)
{
    store(dy, row, 0, dy->width, g);
}

PLIM__VECTORISED(store_row, (const plim__matrix_t *dy, int64_t row, const float *g), (dy, row, g))

void plim__epilogue_store(const plim__epilogue_back_t *back, int64_t row, const float *g)
{
    store_row(back->dy, row, g);
}

PLIM__KERNEL void backward_chunk(const plim__epilogue_back_t *back, const dropping_t *dropping,
                                 int64_t row, int64_t first, int64_t count, float *sums)
{
    float g[PLIM__CHUNK];
    gradient_chunk(back, dropping, row, first, count, g);
    store(back->dy, row, first, count, g);
    for (int64_t i = 0; i < count; i++)
        sums[i] += g[i];
}

/* Rows [begin, end) without norm: dy, and the bias's sum of rows that are not joined yet. */
PLIM__KERNEL void backward_rows_body(const plim__epilogue_back_t *back, const dropping_t *dropping,
                                     int64_t begin, int64_t end, float *sums)
{
    const int64_t width = back->epilogue->width;
    const int64_t at_once =
        rows_at_once(back->epilogue, back->h->stride == width && back->dy->stride == width);
    if (at_once > 1) {
        float tiles[PLIM__CHUNK] = {0};
        for (int64_t row = begin; row < end; row += at_once)
            backward_chunk(back, dropping, row, 0, plim__min_i64(at_once, end - row) * width,
                           tiles);
        for (int64_t at = 0; at < at_once * width; at += width)
            for (int64_t i = 0; i < width; i++)
                sums[i] += tiles[at + i];
        return;
    }
    for (int64_t row = begin; row < end; row++)
        for (int64_t first = 0; first < width; first += PLIM__CHUNK)
            backward_chunk(back, dropping, row, first, plim__min_i64(width - first, PLIM__CHUNK),
                           sums + first);
}

PLIM__VECTORISED(backward_rows,
                 (const plim__epilogue_back_t *back, const dropping_t *dropping, int64_t begin,
                  int64_t end, float *sums),
                 (back, dropping, begin, end, sums))

static void backward_lane(void *context, int worker, int64_t lane)
{
    (void)worker;
    const plim__epilogue_back_t *back = context;
    const dropping_t dropping = dropping_of(back->epilogue);
    const int64_t end = plim__lane_begin(back->h->rows, lane + 1);
    plim__epilogue_clear(back, lane, PLIM__SUM_BIAS, PLIM__SUM_BIAS + 1);
    float *sums = plim__epilogue_lane(back, lane, 2 * PLIM__SUM_BIAS + 1);
    for (int64_t row = plim__lane_begin(back->h->rows, lane); row < end; row += PLIM__SUM_ROWS) {
        backward_rows(back, &dropping, row, plim__min_i64(end, row + PLIM__SUM_ROWS), sums);
        plim__epilogue_join(back, lane, PLIM__SUM_BIAS, PLIM__SUM_BIAS + 1);
    }
}

void plim__epilogue_backward(plim__team_t *team, const plim__epilogue_t *epilogue,
                             const plim__matrix_t *h, const void *kept, const float *dh,
                             plim__matrix_t *dy, float *dresidual,
                             const plim__epilogue_gradients_t *gradients, void *scratch)
{
    plim__epilogue_back_t back = {epilogue, h, dh, dy, dresidual, gradients, kept, scratch};
    if (h->rows == 0 || epilogue->width == 0)
        return;
    if (epilogue->norm != PLIM_NORM_NONE) {
        plim__norm_backward(team, &back);
        return;
    }
    const int64_t cost = h->rows / PLIM__LANES * epilogue->width / 2;
    plim__team_run(team, PLIM__LANES, cost, backward_lane, &back);
    plim__epilogue_total(&back, PLIM__SUM_BIAS, gradients->bias);
}
