/* Terms of edges: sums with them and back against sums in double precision; the same bits on every
 * path and for any number of threads. */
#include "support/harness.h"
#include "support/hops.h"
#include "support/nn.h"
#include "support/wrapped.h"

#include "base/rng.h"
#include "nn/edge_terms.h"
#include "nn/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define NUM_DST ((int64_t)21)
#define NUM_SRC ((int64_t)57)
#define ENTRIES 3
#define TABLE_ROWS 5
#define MOST_EDGES 2000

static plim__vector_path_t best;

static const int64_t widths[] = {1, 7, 16, 24, 100, 131};
#define NUM_WIDTHS (int)(sizeof widths / sizeof widths[0])

/* Terms of values (a linear layer), or of categories. */
typedef struct made {
    plim__edge_terms_t terms;
    float values[MOST_EDGES * ENTRIES];
    int32_t rows[MOST_EDGES * ENTRIES];
    float table[TABLE_ROWS * 131], bias[131];
} made_t;

static void make_terms(int64_t width, bool categories, made_t *made)
{
    test_numbers(3, MOST_EDGES * ENTRIES, 1, made->values);
    test_numbers(4, TABLE_ROWS * width, 1, made->table);
    test_numbers(5, width, 1, made->bias);
    for (int64_t i = 0; i < MOST_EDGES * ENTRIES; i++)
        made->rows[i] = (int32_t)(plim__rng_key(6, (uint64_t)i, 0, 0) % TABLE_ROWS);
    made->terms = (plim__edge_terms_t){.entries = ENTRIES,
                                       .values = categories ? NULL : made->values,
                                       .rows = categories ? made->rows : NULL,
                                       .table_rows = categories ? TABLE_ROWS : ENTRIES,
                                       .width = width,
                                       .table = made->table,
                                       .bias = categories ? NULL : made->bias};
}

static int64_t row_of(const plim__edge_terms_t *terms, int64_t e, int64_t k)
{
    return terms->rows != NULL ? terms->rows[e * ENTRIES + k] : k;
}

static double value_of(const plim__edge_terms_t *terms, int64_t e, int64_t k)
{
    return terms->values != NULL ? (double)terms->values[e * ENTRIES + k] : 1;
}

static double message(const plim__edge_terms_t *terms, const plim__matrix_t *x, int64_t e,
                      int64_t u, int64_t c)
{
    double sum = test_matrix_at(x, u, c) + (terms->bias != NULL ? (double)terms->bias[c] : 0);
    for (int64_t k = 0; k < ENTRIES; k++)
        sum += value_of(terms, e, k) * (double)terms->table[row_of(terms, e, k) * terms->width + c];
    return sum;
}

/* Everything that is computed from one hop. */
typedef struct result {
    plim__matrix_t out, dx;
    float dtable[TABLE_ROWS * 131], dbias[131];
} result_t;

typedef struct problem {
    test_hop_t hop;
    made_t made;
    float self[NUM_DST];
    plim__matrix_t x, dout, droot;
} problem_t;

static problem_t problem; /* large */

static void problem_make(int64_t width, plim__element_t element, bool categories)
{
    test_hop_make(51, NUM_DST, NUM_SRC, 4, &problem.hop);
    assert_true(problem.hop.hop.num_edges <= MOST_EDGES);
    make_terms(width, categories, &problem.made);
    test_numbers(7, NUM_DST, 1, problem.self);
    problem.x = test_matrix_make(1, NUM_SRC, width, width + 3, element);
    problem.dout = test_matrix_make(2, NUM_DST, width, width + 1, PLIM__F32);
    problem.droot = test_matrix_make(8, NUM_DST, width, width, PLIM__F32);
}

static void problem_end(void)
{
    test_hop_end(&problem.hop);
    test_matrix_end(&problem.x);
    test_matrix_end(&problem.dout);
    test_matrix_end(&problem.droot);
}

static void compute(plim__team_t *team, result_t *result)
{
    const plim__edges_t *hop = &problem.hop.hop;
    const plim__edge_terms_t *terms = &problem.made.terms;
    const int64_t width = terms->width;
    void *scratch = malloc(plim__edge_terms_scratch(terms->table_rows, width));
    assert_non_null(scratch);
    memset(result->dtable, 0, sizeof result->dtable);
    memset(result->dbias, 0, sizeof result->dbias);
    result->out = test_matrix_make(9, NUM_DST, width, width, PLIM__F32);
    result->dx = test_matrix_make(10, NUM_SRC, width, width, PLIM__F32);
    plim__relu_sum_rows(hop, terms, problem.self, &problem.x, &result->out, 5, NUM_DST);
    plim__relu_sum_rows(hop, terms, problem.self, &problem.x, &result->out, 0, 5);
    plim__relu_sum_backward(team, hop, &problem.hop.reverse, terms, problem.self, &problem.x,
                            &problem.dout, &problem.droot, &result->dx);
    plim__relu_sum_terms(team, hop, terms, &problem.x, &problem.dout, result->dtable, result->dbias,
                         scratch);
    free(scratch);
}

static void result_end(result_t *result)
{
    test_matrix_end(&result->out);
    test_matrix_end(&result->dx);
}

static void check_result(const result_t *result)
{
    const plim__edges_t *hop = &problem.hop.hop;
    const plim__edge_terms_t *terms = &problem.made.terms;
    const int64_t width = terms->width;
    for (int64_t c = 0; c < width; c++) {
        double dx[NUM_SRC] = {0}, dtable[TABLE_ROWS] = {0}, dbias = 0;
        for (int64_t v = 0; v < NUM_DST; v++) {
            const double own = (double)problem.self[v], d = test_matrix_at(&problem.dout, v, c);
            double sum = own * test_matrix_at(&problem.x, v, c);
            dx[v] += own * d + test_matrix_at(&problem.droot, v, c);
            for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
                const double term = message(terms, &problem.x, e, hop->indices[e], c);
                if (!(term > 0))
                    continue;
                sum += term;
                dx[hop->indices[e]] += d;
                dbias += d;
                for (int64_t k = 0; k < ENTRIES; k++)
                    dtable[row_of(terms, e, k)] += value_of(terms, e, k) * d;
            }
            test_close(test_matrix_at(&result->out, v, c), sum, 1e-5, "sum", v);
        }
        for (int64_t u = 0; u < NUM_SRC; u++)
            test_close(test_matrix_at(&result->dx, u, c), dx[u], 1e-5, "dx", u);
        for (int64_t row = 0; row < terms->table_rows; row++)
            test_close((double)result->dtable[row * width + c], dtable[row], 1e-5, "table", row);
        test_close((double)result->dbias[c], terms->bias != NULL ? dbias : 0, 1e-5, "bias", c);
    }
}

static void sums_and_gradients_are_right(void **state)
{
    static const plim__element_t elements[] = {PLIM__F32, PLIM__BF16, PLIM__F16};
    static result_t result;
    for (int w = 0; w < NUM_WIDTHS; w++)
        for (int i = 0; i < 6; i++) {
            problem_make(widths[w], elements[i % 3], i >= 3);
            compute(*state, &result);
            check_result(&result);
            result_end(&result);
            problem_end();
        }
}

static void same_bits(const result_t *a, const result_t *b)
{
    assert_memory_equal(a->out.data, b->out.data,
                        (size_t)(a->out.rows * a->out.stride) * sizeof(float));
    assert_memory_equal(a->dx.data, b->dx.data,
                        (size_t)(a->dx.rows * a->dx.stride) * sizeof(float));
    assert_memory_equal(a->dtable, b->dtable, sizeof a->dtable);
    assert_memory_equal(a->dbias, b->dbias, sizeof a->dbias);
}

static void every_path_and_team_gives_the_same_bits(void **state)
{
    (void)state;
    static result_t want, got;
    plim_job_t job = test_job_make((int64_t)1 << 30, 8, PLIM_IO_AUTO);
    for (int threads = 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
        plim__team_t *team;
        assert_ok(plim__team_create(job.ledger, threads, &team));
        for (int w = 0; w < NUM_WIDTHS; w++) {
            problem_make(widths[w], PLIM__F16, w % 2 == 0);
            test_vector_limit(PLIM__VECTOR_BASELINE);
            compute(team, &want);
            for (int path = 1; path <= (int)best; path++) {
                test_vector_limit((plim__vector_path_t)path);
                compute(team, &got);
                same_bits(&got, &want);
                result_end(&got);
            }
            result_end(&want);
            problem_end();
        }
        plim__team_destroy(team);
    }
    test_job_end(&job);
}

/* GATv2's kernels, by their definition, and the same bits of each path. */
static void leaky_kernels_are_right(void **state)
{
    (void)state;
    enum { HEADS = 3, MOST = 70 };
    static const int64_t channels[] = {1, 3, 4, 8, 15, 16, 17, 33, 64, 70};
    float att[HEADS * MOST], a[HEADS * MOST], b[HEADS * MOST], term[HEADS * MOST], scales[HEADS];
    test_numbers(11, HEADS * MOST, 1, att);
    test_numbers(12, HEADS * MOST, 1, a);
    test_numbers(13, HEADS * MOST, 1, b);
    test_numbers(14, HEADS * MOST, 1, term);
    test_numbers(15, HEADS, 1, scales);
    for (size_t i = 0; i < 2 * sizeof channels / sizeof *channels; i++) {
        const int64_t width = channels[i / 2];
        const float *added = i % 2 == 0 ? NULL : term;
        float first[3][HEADS * MOST], got[3][HEADS * MOST];
        for (int path = 0; path <= (int)best; path++) {
            test_vector_limit((plim__vector_path_t)path);
            const plim__kernels_t *kernels = plim__kernels();
            memset(got, 0, sizeof got);
            memcpy(got[2], term, sizeof term);
            kernels->leaky_dots(HEADS, width, att, a, b, added, got[0]);
            kernels->leaky_sums(HEADS, width, scales, a, b, added, got[1]);
            kernels->leaky_back(HEADS, width, att, scales, a, b, got[2], false, got[2]);
            kernels->leaky_back(HEADS, width, att, scales, a, b, added, true, got[2]);
            if (path == 0)
                memcpy(first, got, sizeof first);
            assert_memory_equal(first, got, sizeof first);
        }
        for (int64_t h = 0; h < HEADS; h++) {
            double dot = 0;
            for (int64_t k = h * width; k < (h + 1) * width; k++) {
                const double plain = (double)a[k] + (double)b[k], with = plain + (double)term[k];
                const double t = added != NULL ? with : plain;
                const double slopes = (t > 0 ? 1 : 0.2) + (with > 0 ? 1 : 0.2);
                dot += (double)att[k] * (t > 0 ? t : 0.2 * t);
                test_close((double)got[1][k], (double)scales[h] * (t > 0 ? t : 0.2 * t), 1e-6,
                           "sum", k);
                test_close((double)got[2][k], (double)scales[h] * (double)att[k] * slopes, 1e-6,
                           "back", k);
            }
            test_close((double)got[0][h], dot, 1e-6, "dot", h);
        }
    }
}

int main(void)
{
    test_say_missing_paths();
    best = plim__vector_path();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sums_and_gradients_are_right),
        cmocka_unit_test_teardown(every_path_and_team_gives_the_same_bits, test_every_path),
        cmocka_unit_test_teardown(leaky_kernels_are_right, test_every_path),
    };
    return cmocka_run_group_tests(tests, test_team_set_up, test_team_tear_down);
}
