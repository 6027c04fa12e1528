#include "nn/hits.h"

#include "base/check.h"
#include "nn/vector.h"

#include <math.h>
#include <stdatomic.h>
#include <stdbool.h>

#define BLOCK 512 /* rows of the table whose sums are in the first-level cache */

typedef struct hits_work {
    const plim__hits_t *hits;
    const float *outputs;
    const float *labels;
    _Atomic int64_t found, compared;
} hits_work_t;

/* The factor that gives a row length 1; NAN if a value is unknown. */
static double scale_of(const float *row, int64_t width)
{
    double sum = 0;
    for (int64_t i = 0; i < width; i++)
        sum += (double)row[i] * (double)row[i];
    return sum > 0 ? 1 / sqrt(sum) : sum;
}

void plim__hits_put(const plim__hits_t *hits, int64_t index, const float *row)
{
    const double scale = scale_of(row, hits->width);
    for (int64_t i = 0; i < hits->width; i++)
        hits->columns[i * hits->rows + index] = (float)((double)row[i] * scale);
}

/* Products of x with the rows first … first + count - 1 of the table. */
PLIM__KERNEL void products_body(const plim__hits_t *hits, const float *x, int64_t first,
                                int64_t count, float *sums)
{
    for (int64_t j = 0; j < count; j++)
        sums[j] = 0;
    for (int64_t i = 0; i < hits->width; i++) {
        const float *column = hits->columns + i * hits->rows + first;
        for (int64_t j = 0; j < count; j++)
            sums[j] += x[i] * column[j];
    }
}

PLIM__VECTORISED(products,
                 (const plim__hits_t *hits, const float *x, int64_t first, int64_t count,
                  float *sums),
                 (hits, x, first, count, sums))

/* The row of the table nearest to x, the first of equals. */
static int64_t nearest(const plim__hits_t *hits, const float *x)
{
    float sums[BLOCK], most = -INFINITY;
    int64_t at = 0;
    for (int64_t first = 0; first < hits->rows; first += BLOCK) {
        const int64_t count = plim__min_i64(hits->rows - first, BLOCK);
        products(hits, x, first, count, sums);
        for (int64_t j = 0; j < count; j++)
            if (sums[j] > most) {
                most = sums[j];
                at = first + j;
            }
    }
    return at;
}

/* Whether fewer than k rows of the table are nearer to x than row `wanted`; of equally near ones
 * the first is the nearest, as above. Nothing is near to zeros. */
static bool is_hit(const plim__hits_t *hits, const float *x, int64_t wanted)
{
    float sums[BLOCK], own;
    int64_t nearer = 0;
    products(hits, x, wanted, 1, &own);
    for (int64_t first = 0; first < hits->rows && nearer < hits->k; first += BLOCK) {
        const int64_t count = plim__min_i64(hits->rows - first, BLOCK);
        products(hits, x, first, count, sums);
        for (int64_t j = 0; j < count; j++)
            nearer += sums[j] > own || (sums[j] == own && first + j < wanted);
    }
    return nearer < hits->k && scale_of(x, hits->width) > 0;
}

static void rank_row(void *context, int worker, int64_t row)
{
    hits_work_t *work = context;
    const plim__hits_t *hits = work->hits;
    const float *label = work->labels + row * hits->width;
    (void)worker;
    if (isnan(scale_of(label, hits->width)))
        return;
    atomic_fetch_add(&work->compared, 1);
    if (is_hit(hits, work->outputs + row * hits->width, nearest(hits, label)))
        atomic_fetch_add(&work->found, 1);
}

int64_t plim__hits_count(const plim__hits_t *hits, plim__team_t *team, int64_t rows,
                         const float *outputs, const float *labels, int64_t *compared_out)
{
    hits_work_t work = {.hits = hits, .outputs = outputs, .labels = labels};
    plim__team_run(team, rows, hits->rows * hits->width / 4 + 100, rank_row, &work);
    *compared_out = atomic_load(&work.compared);
    return atomic_load(&work.found);
}
