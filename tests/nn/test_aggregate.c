/* Sums over neighbours and back, against sums in double precision; the same bits on every path,
 * for any number of threads and however a batch is split. */
#include "support/harness.h"
#include "support/hops.h"
#include "support/wrapped.h"

#include "base/rng.h"
#include "nn/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUM_DST ((int64_t)23)
#define NUM_SRC ((int64_t)61)

static plim__vector_path_t best;
static plim_job_t job;
static plim__team_t *team; /* of two */

static const int64_t widths[] = {1, 7, 16, 100, 128, 200, 256, 1433};
#define NUM_WIDTHS (int)(sizeof widths / sizeof widths[0])

#define MANY 9000
static float scale_src[MANY], scale_dst[MANY], scale_self[MANY];
static float scale_edge[10 * MANY];

static int setup(void **state)
{
    (void)state;
    best = plim__vector_path();
    job = test_job_make((int64_t)1 << 30, 2, PLIM_IO_AUTO);
    assert_ok(plim__team_create(job.ledger, 2, &team));
    for (uint64_t i = 0; i < MANY; i++) {
        scale_src[i] = (float)plim__rng_double(5, i) + 0.25f;
        scale_dst[i] = (float)plim__rng_double(6, i) + 0.25f;
        scale_self[i] = (float)plim__rng_double(7, i) - 0.5f;
    }
    for (uint64_t i = 0; i < 10 * MANY; i++)
        scale_edge[i] = (float)plim__rng_double(8, i) - 0.5f;
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    test_vector_limit(PLIM__VECTOR_AVX512);
    plim__team_destroy(team);
    test_job_end(&job);
    return 0;
}

static double scale(const float *scales, int64_t at, double otherwise)
{
    return scales != NULL ? (double)scales[at] : otherwise;
}

/* `size` is the sum of the terms' magnitudes. */
static void assert_near(const plim__matrix_t *matrix, int64_t row, int64_t column, double want,
                        double size)
{
    const double got = test_matrix_at(matrix, row, column);
    const double unit = matrix->element == PLIM__BF16 ? 0x1p-8 : 0;
    if (!(fabs(got - want) <= 2e-6 * size + unit * fabs(want)))
        fail_msg("row %lld column %lld: %.9g instead of %.9g", (long long)row, (long long)column,
                 got, want);
}

/* All rows, in two ranges. */
static void sum_forward(const plim__edges_t *hop, const plim__scales_t *scales,
                        const plim__matrix_t *x, plim__matrix_t *out, plim__matrix_t *root)
{
    const int64_t middle = hop->num_dst / 3;
    plim__aggregate_forward_rows(hop, scales, x, out, root, middle, hop->num_dst);
    plim__aggregate_forward_rows(hop, scales, x, out, root, 0, middle);
}

static void max_forward(const plim__edges_t *hop, const plim__matrix_t *x, plim__matrix_t *out,
                        int32_t *chosen, plim__matrix_t *root)
{
    const int64_t middle = hop->num_dst / 3;
    plim__aggregate_max_forward_rows(hop, x, out, chosen, root, middle, hop->num_dst);
    plim__aggregate_max_forward_rows(hop, x, out, chosen, root, 0, middle);
}

static void check_forward(const plim__edges_t *hop, const plim__scales_t *scales,
                          const plim__matrix_t *x, const plim__matrix_t *out)
{
    for (int64_t v = 0; v < hop->num_dst; v++) {
        for (int64_t c = 0; c < x->width; c++) {
            const double dst = scale(scales->dst, v, 1);
            double sum = scale(scales->self, v, 0) * test_matrix_at(x, v, c), size = fabs(sum);
            for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
                const int64_t u = hop->indices[e];
                const double term = dst * scale(scales->src, u, 1) * scale(scales->edge, e, 1) *
                                    test_matrix_at(x, u, c);
                sum += term;
                size += fabs(term);
            }
            assert_near(out, v, c, sum, size);
        }
    }
}

static void check_root(const plim__matrix_t *x, const plim__matrix_t *root)
{
    for (int64_t v = 0; v < root->rows; v++)
        for (int64_t c = 0; c < x->width; c++)
            assert_near(root, v, c, test_matrix_at(x, v, c), 0);
}

static void forward_one(const test_hop_t *hop, int64_t width, plim__element_t element,
                        plim__element_t to, const plim__scales_t *scales)
{
    plim__matrix_t x = test_matrix_make(1, NUM_SRC, width, width + 3, element);
    plim__matrix_t out = test_matrix_make(2, NUM_DST, width, 2 * width + 5, to);
    plim__matrix_t root = test_matrix_make(3, NUM_DST, width, width + 1, to);
    sum_forward(&hop->hop, scales, &x, &out, NULL);
    check_forward(&hop->hop, scales, &x, &out);
    test_matrix_assert_guards(&out);
    memset(out.data, 0x55, (size_t)(out.rows * out.stride) * plim__element_bytes(to));
    sum_forward(&hop->hop, scales, &x, &out, &root);
    check_forward(&hop->hop, scales, &x, &out);
    check_root(&x, &root);
    test_matrix_assert_guards(&out);
    test_matrix_assert_guards(&root);
    test_matrix_end(&x);
    test_matrix_end(&out);
    test_matrix_end(&root);
}

static void forward_is_the_sum(void **state)
{
    (void)state;
    static const plim__element_t elements[] = {PLIM__F32, PLIM__BF16, PLIM__F16};
    const plim__scales_t scales[] = {
        {0},
        {.src = scale_src, .dst = scale_dst, .self = scale_self},
        {.dst = scale_dst},
        {.edge = scale_edge},
        {.src = scale_src, .dst = scale_dst, .self = scale_self, .edge = scale_edge}};
    test_hop_t hop;
    test_hop_make(11, NUM_DST, NUM_SRC, 4, &hop);
    for (int path = 0; path <= (int)best; path++) {
        test_vector_limit((plim__vector_path_t)path);
        for (int w = 0; w < NUM_WIDTHS; w++)
            for (int e = 0; e < 3; e++)
                for (int s = 0; s < 5; s++)
                    forward_one(&hop, widths[w], elements[e], s == 2 ? PLIM__BF16 : PLIM__F32,
                                &scales[s]);
    }
    test_hop_end(&hop);
}

static void check_backward(const plim__edges_t *hop, const plim__scales_t *scales,
                           const plim__matrix_t *dout, const plim__matrix_t *droot,
                           const plim__matrix_t *dx)
{
    const int64_t width = dx->width;
    double *want = calloc((size_t)(hop->num_src * width), sizeof *want);
    double *size = calloc((size_t)(hop->num_src * width), sizeof *size);
    for (int64_t v = 0; v < hop->num_dst; v++) {
        for (int64_t c = 0; c < width; c++) {
            const double d = test_matrix_at(dout, v, c);
            const double root = droot != NULL ? test_matrix_at(droot, v, c) : 0;
            want[v * width + c] += scale(scales->self, v, 0) * d + root;
            size[v * width + c] += fabs(scale(scales->self, v, 0) * d) + fabs(root);
            for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
                const int64_t u = hop->indices[e];
                const double term = scale(scales->src, u, 1) * scale(scales->dst, v, 1) *
                                    scale(scales->edge, e, 1) * d;
                want[u * width + c] += term;
                size[u * width + c] += fabs(term);
            }
        }
    }
    for (int64_t u = 0; u < hop->num_src; u++)
        for (int64_t c = 0; c < width; c++)
            assert_near(dx, u, c, want[u * width + c], size[u * width + c]);
    free(want);
    free(size);
}

static void backward_is_the_transpose(void **state)
{
    (void)state;
    const plim__scales_t scales[] = {
        {0},
        {.src = scale_src, .dst = scale_dst, .self = scale_self},
        {.src = scale_src, .dst = scale_dst, .self = scale_self, .edge = scale_edge}};
    test_hop_t hop;
    test_hop_make(12, NUM_DST, NUM_SRC, 5, &hop);
    for (int path = 0; path <= (int)best; path++) {
        test_vector_limit((plim__vector_path_t)path);
        for (int w = 0; w < NUM_WIDTHS; w++) {
            plim__matrix_t dout = test_matrix_make(4, NUM_DST, widths[w], widths[w] + 2, PLIM__F32);
            plim__matrix_t droot = test_matrix_make(5, NUM_DST, widths[w], widths[w], PLIM__F32);
            plim__matrix_t dx = test_matrix_make(6, NUM_SRC, widths[w], widths[w] + 7, PLIM__F32);
            for (int s = 0; s < 3; s++) {
                plim__aggregate_backward(team, &hop.hop, &hop.reverse, &scales[s], &dout,
                                         s == 0 ? &droot : NULL, &dx);
                check_backward(&hop.hop, &scales[s], &dout, s == 0 ? &droot : NULL, &dx);
                test_matrix_assert_guards(&dx);
            }
            test_matrix_end(&dout);
            test_matrix_end(&droot);
            test_matrix_end(&dx);
        }
    }
    test_hop_end(&hop);
}

/* What the header says, of values in x: NaN is larger than all. */
static int32_t first_largest(const plim__edges_t *hop, const plim__matrix_t *x, int64_t v,
                             int64_t c)
{
    int64_t chosen = -1;
    for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
        const double value = test_matrix_at(x, hop->indices[e], c);
        const double most = chosen < 0 ? 0 : test_matrix_at(x, hop->indices[chosen], c);
        if (chosen < 0 || (!isnan(most) && (isnan(value) || value > most)))
            chosen = e;
    }
    return (int32_t)chosen;
}

static void check_max(const plim__edges_t *hop, const plim__matrix_t *x, const plim__matrix_t *out,
                      const int32_t *chosen)
{
    for (int64_t v = 0; v < hop->num_dst; v++) {
        for (int64_t c = 0; c < x->width; c++) {
            const int32_t want = first_largest(hop, x, v, c);
            assert_int_equal(chosen[v * x->width + c], want);
            const double value = want < 0 ? 0 : test_matrix_at(x, hop->indices[want], c);
            if (isnan(value))
                assert_true(isnan(test_matrix_at(out, v, c)));
            else
                assert_near(out, v, c, value, 0);
        }
    }
}

static void check_max_backward(const plim__edges_t *hop, const int32_t *chosen,
                               const plim__matrix_t *dout, const plim__matrix_t *droot,
                               const plim__matrix_t *dx)
{
    const int64_t width = dx->width;
    double *want = calloc((size_t)(hop->num_src * width), sizeof *want);
    for (int64_t v = 0; v < hop->num_dst; v++) {
        for (int64_t c = 0; c < width; c++) {
            want[v * width + c] += droot != NULL ? test_matrix_at(droot, v, c) : 0;
            if (chosen[v * width + c] >= 0)
                want[hop->indices[chosen[v * width + c]] * width + c] += test_matrix_at(dout, v, c);
        }
    }
    for (int64_t u = 0; u < hop->num_src; u++)
        for (int64_t c = 0; c < width; c++)
            assert_near(dx, u, c, want[u * width + c], 4);
    free(want);
}

static void max_one(const test_hop_t *hop, int64_t width, plim__element_t element,
                    plim__element_t to)
{
    plim__matrix_t x = test_matrix_make(1, NUM_SRC, width, width + 3, element);
    plim__matrix_t out = test_matrix_make(2, NUM_DST, width, width + 5, to);
    plim__matrix_t root = test_matrix_make(3, NUM_DST, width, width + 1, to);
    plim__matrix_t dout = test_matrix_make(4, NUM_DST, width, width + 2, PLIM__F32);
    plim__matrix_t dx = test_matrix_make(5, NUM_SRC, width, width + 9, PLIM__F32);
    plim__matrix_t droot = test_matrix_make(6, NUM_DST, width, width + 4, PLIM__F32);
    int32_t *chosen = calloc((size_t)(NUM_DST * width), sizeof *chosen);
    max_forward(&hop->hop, &x, &out, chosen, &root);
    check_max(&hop->hop, &x, &out, chosen);
    check_root(&x, &root);
    max_forward(&hop->hop, &x, &out, NULL, NULL);
    check_max(&hop->hop, &x, &out, chosen);
    plim__aggregate_max_backward(team, &hop->hop, &hop->reverse, chosen, &dout, NULL, &dx);
    check_max_backward(&hop->hop, chosen, &dout, NULL, &dx);
    plim__aggregate_max_backward(team, &hop->hop, &hop->reverse, chosen, &dout, &droot, &dx);
    check_max_backward(&hop->hop, chosen, &dout, &droot, &dx);
    test_matrix_assert_guards(&out);
    test_matrix_assert_guards(&root);
    test_matrix_assert_guards(&dx);
    free(chosen);
    test_matrix_end(&x);
    test_matrix_end(&out);
    test_matrix_end(&root);
    test_matrix_end(&dout);
    test_matrix_end(&dx);
    test_matrix_end(&droot);
}

static void max_is_the_first_largest_and_back(void **state)
{
    (void)state;
    static const plim__element_t elements[] = {PLIM__F32, PLIM__BF16, PLIM__F16};
    test_hop_t hop;
    test_hop_make(18, NUM_DST, NUM_SRC, 4, &hop);
    for (int path = 0; path <= (int)best; path++) {
        test_vector_limit((plim__vector_path_t)path);
        for (int w = 0; w < NUM_WIDTHS; w++)
            for (int e = 0; e < 3; e++)
                max_one(&hop, widths[w], elements[e], e == 2 ? PLIM__BF16 : PLIM__F32);
    }
    test_hop_end(&hop);
}

static void max_of_equals_nan_and_infinity(void **state)
{
    (void)state;
    static const float values[] = {0.0f, -0.0f, NAN, 1.0f, 1.0f, INFINITY, -INFINITY};
    test_hop_t hop;
    test_hop_make(19, NUM_DST, NUM_SRC, 3, &hop);
    plim__matrix_t x = test_matrix_make(1, NUM_SRC, 33, 33, PLIM__F32);
    plim__matrix_t out = test_matrix_make(2, NUM_DST, 33, 33, PLIM__F32);
    static int32_t chosen[NUM_DST * 33];
    for (int64_t i = 0; i < NUM_SRC * 33; i++)
        ((float *)x.data)[i] = values[plim__rng_u64(20, (uint64_t)i) % 7];
    for (int path = 0; path <= (int)best; path++) {
        test_vector_limit((plim__vector_path_t)path);
        max_forward(&hop.hop, &x, &out, chosen, NULL);
        for (int64_t v = 0; v < NUM_DST; v++)
            for (int64_t c = 0; c < 33; c++)
                assert_int_equal(chosen[v * 33 + c], first_largest(&hop.hop, &x, v, c));
    }
    test_matrix_end(&x);
    test_matrix_end(&out);
    test_hop_end(&hop);
}

static void reverse_has_every_edge_once_in_order(void **state)
{
    (void)state;
    test_hop_t hop;
    test_hop_make(13, 200, 777, 6, &hop);
    const plim__reverse_t *reverse = &hop.reverse;
    assert_int_equal(reverse->indptr[0], 0);
    assert_int_equal(reverse->indptr[hop.hop.num_src], hop.hop.num_edges);
    for (int64_t u = 0; u < hop.hop.num_src; u++) {
        for (int64_t i = reverse->indptr[u]; i < reverse->indptr[u + 1]; i++) {
            const int64_t e = reverse->edges[i], v = reverse->destinations[i];
            assert_int_equal(hop.hop.indices[e], u);
            assert_in_range(e, hop.hop.indptr[v], hop.hop.indptr[v + 1] - 1);
            if (i > reverse->indptr[u])
                assert_true(reverse->edges[i - 1] < e);
        }
    }
    test_hop_end(&hop);
}

static void nothing_drawn_gives_zeros(void **state)
{
    (void)state;
    const int32_t indptr[4] = {0};
    int32_t reverse_indptr[6], none[1];
    const plim__edges_t hop = {3, 5, 0, indptr, none};
    plim__reverse_t reverse = {reverse_indptr, none, none};
    plim__reverse_make(&hop, &reverse);
    plim__matrix_t x = test_matrix_make(1, 5, 33, 33, PLIM__F16);
    plim__matrix_t out = test_matrix_make(2, 3, 33, 33, PLIM__F32);
    plim__matrix_t dx = test_matrix_make(3, 5, 33, 33, PLIM__F32);
    const plim__scales_t scales = {0};
    sum_forward(&hop, &scales, &x, &out, NULL);
    plim__aggregate_backward(team, &hop, &reverse, &scales, &out, NULL, &dx);
    for (int64_t i = 0; i < out.rows * out.width; i++)
        assert_true(((float *)out.data)[i] == 0);
    for (int64_t i = 0; i < dx.rows * dx.width; i++)
        assert_true(((float *)dx.data)[i] == 0);
    const plim__edges_t empty = {0, 0, 0, indptr, none};
    plim__reverse_make(&empty, &reverse);
    sum_forward(&empty, &scales, &x, &out, NULL);
    plim__aggregate_backward(team, &empty, &reverse, &scales, &out, NULL, &dx);
    test_matrix_end(&x);
    test_matrix_end(&out);
    test_matrix_end(&dx);
}

static void assert_close(float got, double want)
{
    if (!(fabs((double)got - want) <= 2.5e-7 * fabs(want)))
        fail_msg("%.9g instead of %.9g", (double)got, want);
}

static void scales_are_the_formulas(void **state)
{
    (void)state;
    test_hop_t hop;
    test_hop_make(14, NUM_DST, NUM_SRC, 4, &hop);
    int32_t degrees[NUM_SRC];
    for (int64_t i = 0; i < NUM_SRC; i++)
        degrees[i] = (int32_t)(plim__rng_u64(8, (uint64_t)i) % 1000);
    degrees[3] = INT32_MAX;
    degrees[1] = 0;
    for (int path = 0; path <= (int)best; path++) {
        float src[NUM_SRC + 1], dst[NUM_DST + 1], self[NUM_DST + 1], mean[NUM_DST + 1];
        src[NUM_SRC] = dst[NUM_DST] = self[NUM_DST] = mean[NUM_DST] = 7;
        test_vector_limit((plim__vector_path_t)path);
        const double fanout = path % 2 == 0 ? 5 : INFINITY;
        plim__scales_gcn(&hop.hop, degrees, path % 2 == 0 ? 5 : 0, src, dst, self);
        plim__scales_mean(&hop.hop, mean);
        for (int64_t u = 0; u < NUM_SRC; u++)
            assert_close(src[u], 1 / sqrt(fmin(degrees[u], fanout) + 1));
        for (int64_t v = 0; v < NUM_DST; v++) {
            const double drawn = hop.hop.indptr[v + 1] - hop.hop.indptr[v];
            const double scale =
                drawn > fanout ? sqrt(fanout + 1) / (drawn + 1) : 1 / sqrt(drawn + 1);
            assert_close(dst[v], scale);
            assert_close(self[v], (double)src[v] * scale);
            assert_close(mean[v], drawn > 0 ? 1 / drawn : 0);
        }
        assert_true(src[NUM_SRC] == 7 && dst[NUM_DST] == 7);
        assert_true(self[NUM_DST] == 7 && mean[NUM_DST] == 7);
    }
    test_hop_end(&hop);
}

/* The degree as PyG's gcn_norm computes it: the last weight of a self-loop is the node's own. */
static double own_weight(const plim__edges_t *hop, const float *weights, int64_t v, double *sum_out)
{
    double own = 1;
    *sum_out = 0;
    for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
        if (hop->indices[e] == v)
            own = (double)weights[e];
        else
            *sum_out += (double)weights[e];
    }
    *sum_out += own;
    return own;
}

static void weighted_scales_are_those_of_gcn_norm(void **state)
{
    (void)state;
    enum { ROWS = 61 };
    float weights[ROWS * 20], edge[ROWS * 20], src[ROWS], dst[ROWS], self[ROWS], sums[ROWS];
    int32_t degrees[ROWS];
    test_hop_t hop;
    test_hop_make(18, ROWS, ROWS, 5, &hop);
    assert_true(hop.hop.num_edges <= ROWS * 20);
    for (int64_t e = 0; e < hop.hop.num_edges; e++)
        weights[e] = (float)(e % 5 - 2) * 0.5f; /* of both signs, and 0 */
    for (int64_t v = 0; v < ROWS; v += 4)       /* self-loops */
        if (hop.hop.indptr[v + 1] > hop.hop.indptr[v])
            ((int32_t *)hop.hop.indices)[hop.hop.indptr[v]] = (int32_t)v;
    plim__scales_gcn_weighted(&hop.hop, weights, NULL, NULL, 0, edge, src, dst, self);
    bool zero = false, negative = false, loop = false;
    for (int64_t v = 0; v < ROWS; v++) {
        double sum;
        const double own = own_weight(&hop.hop, weights, v, &sum);
        zero = zero || sum == 0;
        negative = negative || sum < 0;
        if (sum < 0) {
            assert_true(isnan(dst[v]) && isnan(src[v]));
            continue;
        }
        assert_close(dst[v], sum == 0 ? 0 : 1 / sqrt(sum));
        assert_close(src[v], (double)dst[v]);
        assert_close(self[v], sum == 0 ? 0 : own / sum);
        for (int64_t e = hop.hop.indptr[v]; e < hop.hop.indptr[v + 1]; e++) {
            loop = loop || hop.hop.indices[e] == v;
            assert_true(edge[e] == (hop.hop.indices[e] == v ? 0 : weights[e]));
        }
    }
    assert_true(zero && negative && loop);
    /* Weights of 1 give the scales of drawn edges. */
    float plain_src[ROWS], plain_dst[ROWS], plain_self[ROWS];
    for (int64_t v = 0; v < ROWS; v++) {
        degrees[v] = (int32_t)(v % 9);
        sums[v] = (float)degrees[v] + 1;
    }
    for (int64_t e = 0; e < hop.hop.num_edges; e++) {
        weights[e] = 1;
        if (hop.hop.indices[e] < ROWS / 2)
            ((int32_t *)hop.hop.indices)[e] = ROWS - 1; /* no self-loops, but of the last */
    }
    for (int64_t fanout = 0; fanout < 6; fanout += 2) {
        plim__scales_gcn_weighted(&hop.hop, weights, sums, degrees, fanout, edge, src, dst, self);
        plim__scales_gcn(&hop.hop, degrees, fanout, plain_src, plain_dst, plain_self);
        for (int64_t v = 0; v < ROWS / 2; v++) {
            const int32_t drawn = hop.hop.indptr[v + 1] - hop.hop.indptr[v];
            assert_close(src[v], (double)plain_src[v]);
            if (fanout == 0 || drawn <= fanout || drawn == degrees[v]) {
                assert_close(dst[v], (double)plain_dst[v]);
                assert_close(self[v], (double)plain_self[v]);
            }
        }
    }
    test_hop_end(&hop);
}

/* Forward and backward, into fresh memory; `first` is where the hop's destinations begin in the
 * batch that it is a part of. */
static void linear_into(plim__team_t *who, const test_hop_t *hop, int64_t first, int64_t width,
                        plim__matrix_t out[2])
{
    const plim__scales_t scales = {.src = scale_src, .dst = scale_dst + first};
    plim__matrix_t x = test_matrix_make(1, hop->hop.num_src, width, width, PLIM__F16);
    out[0] = test_matrix_make(2, hop->hop.num_dst, width, width, PLIM__F32);
    out[1] = test_matrix_make(3, hop->hop.num_src, width, width, PLIM__F32);
    sum_forward(&hop->hop, &scales, &x, &out[0], NULL);
    plim__aggregate_backward(who, &hop->hop, &hop->reverse, &scales, &out[0], NULL, &out[1]);
    test_matrix_end(&x);
}

static void assert_same_and_end(plim__matrix_t got[2], const plim__matrix_t want[2])
{
    for (int i = 0; i < 2; i++) {
        assert_memory_equal(got[i].data, want[i].data,
                            (size_t)(want[i].rows * want[i].stride) * sizeof(float));
        test_matrix_end(&got[i]);
    }
}

static void every_path_gives_the_same_bits(void **state)
{
    (void)state;
    test_hop_t hop;
    test_hop_make(15, NUM_DST, NUM_SRC, 6, &hop);
    for (int w = 0; w < NUM_WIDTHS; w++) {
        plim__matrix_t want[2], got[2];
        test_vector_limit(PLIM__VECTOR_BASELINE);
        linear_into(team, &hop, 0, widths[w], want);
        for (int path = 1; path <= (int)best; path++) {
            test_vector_limit((plim__vector_path_t)path);
            linear_into(team, &hop, 0, widths[w], got);
            assert_same_and_end(got, want);
        }
        test_matrix_end(&want[0]);
        test_matrix_end(&want[1]);
    }
    test_hop_end(&hop);
}

static void any_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    test_hop_t hop;
    test_hop_make(16, 3000, 9000, 10, &hop);
    plim__matrix_t want[2], got[2];
    for (int threads = 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
        plim__team_t *many;
        assert_ok(plim__team_create(job.ledger, threads, &many));
        linear_into(many, &hop, 0, 130, threads == 1 ? want : got);
        plim__team_destroy(many);
        if (threads > 1)
            assert_same_and_end(got, want);
    }
    test_matrix_end(&want[0]);
    test_matrix_end(&want[1]);
    test_hop_end(&hop);
}

static void a_split_batch_gives_the_same_bits(void **state)
{
    (void)state;
    test_hop_t whole, part;
    test_hop_make(17, 1000, 2000, 8, &whole);
    plim__matrix_t want[2], got[2];
    linear_into(team, &whole, 0, 128, want);
    for (int64_t first = 0; first < 1000; first += 333) {
        const int64_t last = first + 333 < 1000 ? first + 333 : 1000;
        test_hop_part(&whole, first, last, &part);
        linear_into(team, &part, first, 128, got);
        assert_memory_equal(got[0].data, (const float *)want[0].data + first * 128,
                            (size_t)(last - first) * 128 * sizeof(float));
        test_matrix_end(&got[0]);
        test_matrix_end(&got[1]);
        test_hop_end(&part);
    }
    test_matrix_end(&want[0]);
    test_matrix_end(&want[1]);
    test_hop_end(&whole);
}

int main(void)
{
    test_say_missing_paths();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(forward_is_the_sum, test_every_path),
        cmocka_unit_test_teardown(backward_is_the_transpose, test_every_path),
        cmocka_unit_test_teardown(max_is_the_first_largest_and_back, test_every_path),
        cmocka_unit_test_teardown(max_of_equals_nan_and_infinity, test_every_path),
        cmocka_unit_test(reverse_has_every_edge_once_in_order),
        cmocka_unit_test(nothing_drawn_gives_zeros),
        cmocka_unit_test_teardown(scales_are_the_formulas, test_every_path),
        cmocka_unit_test(weighted_scales_are_those_of_gcn_norm),
        cmocka_unit_test_teardown(every_path_gives_the_same_bits, test_every_path),
        cmocka_unit_test(any_number_of_threads_gives_the_same_bits),
        cmocka_unit_test(a_split_batch_gives_the_same_bits),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
