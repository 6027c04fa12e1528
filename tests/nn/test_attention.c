/* Attention against double precision: forward by its definition, backward by finite differences. */
#include "support/harness.h"
#include "support/hops.h"
#include "support/wrapped.h"

#include "base/rng.h"
#include "nn/attention.h"
#include "nn/vector.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static plim__vector_path_t best;
static plim_job_t job;
static plim__team_t *team; /* of two */

typedef struct problem {
    test_hop_t hop;
    plim__attention_t attention;
    plim__matrix_t att_src, att_dst; /* (heads, channels) */
    plim__matrix_t z, out, dout, dz;
    plim__attention_state_t state;
    int32_t *nodes;
    float *datt_src, *datt_dst;
    void *scratch;
} problem_t;

static void *zeroed(int64_t count)
{
    void *memory = calloc((size_t)count + 1, sizeof(float));
    assert_non_null(memory);
    return memory;
}

/* Everything but the hop, which is there already. */
static void problem_fill(problem_t *problem, int heads, int64_t channels, float dropout)
{
    const plim__edges_t *hop = &problem->hop.hop;
    const int64_t width = heads * channels;
    problem->att_src = test_matrix_make(31, heads, channels, channels, PLIM__F32);
    problem->att_dst = test_matrix_make(32, heads, channels, channels, PLIM__F32);
    problem->z = test_matrix_make(33, hop->num_src, width, width + 3, PLIM__F32);
    problem->dout = test_matrix_make(34, hop->num_dst, width, width + 1, PLIM__F32);
    problem->out = test_matrix_make(35, hop->num_dst, width, width + 5, PLIM__F32);
    problem->dz = test_matrix_make(36, hop->num_src, width, width + 2, PLIM__F32);
    problem->nodes = zeroed(hop->num_src);
    for (int64_t u = 0; u < hop->num_src; u++)
        problem->nodes[u] = (int32_t)(1000 - 3 * u);
    problem->attention = (plim__attention_t){.heads = heads,
                                             .channels = channels,
                                             .att_src = problem->att_src.data,
                                             .att_dst = problem->att_dst.data,
                                             .dropout = dropout,
                                             .key = 77,
                                             .nodes = {problem->nodes, false}};
    problem->state.score_src = zeroed(hop->num_src * heads);
    problem->state.score_dst = zeroed(hop->num_dst * heads);
    problem->state.weights = zeroed((hop->num_edges + hop->num_dst) * heads);
    problem->datt_src = zeroed(width);
    problem->datt_dst = zeroed(width);
    const size_t bytes =
        plim__attention_scratch(hop->num_src, hop->num_dst, hop->num_edges, heads, channels);
    problem->scratch = aligned_alloc(64, plim__round_up(bytes, 64) + 64);
    assert_non_null(problem->scratch);
}

static void problem_make(problem_t *problem, int64_t num_dst, int64_t num_src, int heads,
                         int64_t channels, float dropout)
{
    test_hop_make(41, num_dst, num_src, 3, &problem->hop);
    problem_fill(problem, heads, channels, dropout);
}

static void problem_end(problem_t *problem)
{
    test_hop_end(&problem->hop);
    test_matrix_end(&problem->att_src);
    test_matrix_end(&problem->att_dst);
    test_matrix_end(&problem->z);
    test_matrix_end(&problem->dout);
    test_matrix_end(&problem->out);
    test_matrix_end(&problem->dz);
    free(problem->nodes);
    free(problem->state.score_src);
    free(problem->state.score_dst);
    free(problem->state.weights);
    free(problem->datt_src);
    free(problem->datt_dst);
    free(problem->scratch);
}

static void problem_run(problem_t *problem, plim__team_t *who)
{
    const plim__edges_t *hop = &problem->hop.hop;
    const size_t bytes =
        (size_t)(problem->attention.heads * problem->attention.channels) * sizeof(float);
    memset(problem->datt_src, 0, bytes);
    memset(problem->datt_dst, 0, bytes);
    plim__attention_forward(who, hop, &problem->attention, &problem->z, &problem->state,
                            &problem->out);
    plim__attention_backward(who, hop, &problem->hop.reverse, &problem->attention, &problem->z,
                             &problem->state, &problem->dout, &problem->dz, problem->datt_src,
                             problem->datt_dst, NULL, problem->scratch);
}

/* The same in double precision, of parameters that may be shifted. */
typedef struct exact {
    const problem_t *problem;
    double *att_src, *att_dst, *z;
} exact_t;

static double exact_score(const exact_t *exact, const double *att, int64_t u, int64_t h)
{
    const int64_t channels = exact->problem->attention.channels;
    const int64_t width = exact->problem->attention.heads * channels;
    double sum = 0;
    for (int64_t c = 0; c < channels; c++)
        sum += att[h * channels + c] * exact->z[u * width + h * channels + c];
    return sum;
}

static double exact_kept(const exact_t *exact, int64_t v, int64_t u, int64_t h)
{
    const plim__attention_t *attention = &exact->problem->attention;
    const uint64_t key = plim__rng_prefix(attention->key, plim__node_id(&attention->nodes, v),
                                          plim__node_id(&attention->nodes, u));
    const double dropout = (double)attention->dropout;
    return plim__rng_double(key, (uint64_t)h) < dropout ? 0 : 1 / (1 - dropout);
}

/* out[v, h] (channels): the self entry is behind the last edge. */
static void exact_out(const exact_t *exact, int64_t v, int64_t h, double *out)
{
    const plim__edges_t *hop = &exact->problem->hop.hop;
    const int64_t channels = exact->problem->attention.channels;
    const int64_t width = exact->problem->attention.heads * channels;
    double total = 0;
    memset(out, 0, (size_t)channels * sizeof out[0]);
    for (int64_t e = hop->indptr[v]; e <= hop->indptr[v + 1]; e++) {
        const bool self = e == hop->indptr[v + 1];
        const int64_t u = self ? v : hop->indices[e];
        if (u == v && !self)
            continue;
        const double sum =
            exact_score(exact, exact->att_src, u, h) + exact_score(exact, exact->att_dst, v, h);
        const double weight = exp(sum > 0 ? sum : 0.2 * sum);
        total += weight;
        for (int64_t c = 0; c < channels; c++)
            out[c] += weight * exact_kept(exact, v, u, h) * exact->z[u * width + h * channels + c];
    }
    for (int64_t c = 0; c < channels; c++)
        out[c] /= total;
}

/* The sum of dout * out over everything that head h has a part in. */
static double exact_loss(const exact_t *exact, int64_t h)
{
    const problem_t *problem = exact->problem;
    const int64_t channels = problem->attention.channels;
    double out[64], loss = 0;
    for (int64_t v = 0; v < problem->hop.hop.num_dst; v++) {
        exact_out(exact, v, h, out);
        for (int64_t c = 0; c < channels; c++)
            loss += out[c] * test_matrix_at(&problem->dout, v, h * channels + c);
    }
    return loss;
}

static double *doubles(const plim__matrix_t *matrix)
{
    double *values = calloc((size_t)(matrix->rows * matrix->width), sizeof *values);
    assert_non_null(values);
    for (int64_t r = 0; r < matrix->rows; r++)
        for (int64_t c = 0; c < matrix->width; c++)
            values[r * matrix->width + c] = test_matrix_at(matrix, r, c);
    return values;
}

static exact_t exact_make(const problem_t *problem)
{
    return (exact_t){problem, doubles(&problem->att_src), doubles(&problem->att_dst),
                     doubles(&problem->z)};
}

static void exact_end(exact_t *exact)
{
    free(exact->att_src);
    free(exact->att_dst);
    free(exact->z);
}

static void assert_gradient(const exact_t *exact, double *parameter, int64_t h, double got,
                            const char *name)
{
    const double step = 1e-4, at = *parameter;
    *parameter = at + step;
    double want = exact_loss(exact, h);
    *parameter = at - step;
    want = (want - exact_loss(exact, h)) / (2 * step);
    *parameter = at;
    if (!(fabs(got - want) <= 2e-5 * (1 + fabs(want))))
        fail_msg("gradient of %s: %.9g instead of %.9g", name, got, want);
}

static void check_problem(problem_t *problem)
{
    exact_t exact = exact_make(problem);
    const int64_t channels = problem->attention.channels;
    const int64_t width = problem->attention.heads * channels;
    double out[64];
    for (int64_t v = 0; v < problem->hop.hop.num_dst; v++) {
        for (int64_t h = 0; h < problem->attention.heads; h++) {
            exact_out(&exact, v, h, out);
            for (int64_t c = 0; c < channels; c++)
                assert_true(fabs(test_matrix_at(&problem->out, v, h * channels + c) - out[c]) <=
                            3e-6);
        }
    }
    for (int64_t i = 0; i < width; i++) {
        assert_gradient(&exact, &exact.att_src[i], i / channels, (double)problem->datt_src[i],
                        "att_src");
        assert_gradient(&exact, &exact.att_dst[i], i / channels, (double)problem->datt_dst[i],
                        "att_dst");
    }
    for (int64_t u = 0; u < problem->hop.hop.num_src; u++)
        for (int64_t i = 0; i < width; i++)
            assert_gradient(&exact, &exact.z[u * width + i], i / channels,
                            test_matrix_at(&problem->dz, u, i), "z");
    exact_end(&exact);
}

static void forward_and_gradients(void **state)
{
    (void)state;
    static const struct {
        int heads;
        int64_t channels;
        float dropout;
    } shapes[] = {{1, 1, 0}, {1, 7, 0}, {8, 8, 0.5f}, {3, 16, 0}, {2, 23, 0.3f}, {40, 4, 0.2f}};
    for (int path = 0; path <= (int)best; path++) {
        test_vector_limit((plim__vector_path_t)path);
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++) {
            problem_t problem;
            problem_make(&problem, 6, 14, shapes[i].heads, shapes[i].channels, shapes[i].dropout);
            problem_run(&problem, team);
            check_problem(&problem);
            test_matrix_assert_guards(&problem.out);
            test_matrix_assert_guards(&problem.dz);
            problem_end(&problem);
        }
    }
}

/* Sums over more than one range of rows. */
static void gradients_of_attention_vectors_over_many_rows(void **state)
{
    (void)state;
    problem_t problem;
    problem_make(&problem, 60, 300, 2, 3, 0);
    problem_run(&problem, team);
    check_problem(&problem);
    problem_end(&problem);
}

static void gradients_are_added_to(void **state)
{
    (void)state;
    problem_t problem;
    problem_make(&problem, 6, 14, 2, 8, 0);
    problem_run(&problem, team);
    float once[16];
    memcpy(once, problem.datt_src, sizeof once);
    plim__attention_backward(team, &problem.hop.hop, &problem.hop.reverse, &problem.attention,
                             &problem.z, &problem.state, &problem.dout, &problem.dz,
                             problem.datt_src, problem.datt_dst, NULL, problem.scratch);
    for (int i = 0; i < 16; i++)
        assert_true(fabsf(problem.datt_src[i] - 2 * once[i]) <= 1e-5f);
    problem_end(&problem);
}

static void large_scores_do_not_overflow(void **state)
{
    (void)state;
    problem_t problem;
    problem_make(&problem, 6, 14, 2, 8, 0);
    for (int64_t i = 0; i < 14 * problem.z.stride; i++)
        ((float *)problem.z.data)[i] *= 1e4f;
    problem_run(&problem, team);
    for (int64_t v = 0; v < 6; v++)
        for (int64_t c = 0; c < 16; c++)
            assert_true(isfinite(test_matrix_at(&problem.out, v, c)));
    problem_end(&problem);
}

static void assert_same(const problem_t *got, const problem_t *want)
{
    const int64_t width = want->z.width;
    const plim__edges_t *hop = &want->hop.hop;
    assert_memory_equal(got->out.data, want->out.data,
                        (size_t)(hop->num_dst * want->out.stride) * sizeof(float));
    assert_memory_equal(got->dz.data, want->dz.data,
                        (size_t)(hop->num_src * want->dz.stride) * sizeof(float));
    assert_memory_equal(got->datt_src, want->datt_src, (size_t)width * sizeof(float));
    assert_memory_equal(got->datt_dst, want->datt_dst, (size_t)width * sizeof(float));
}

static void every_path_and_number_of_threads_gives_the_same_bits(void **state)
{
    (void)state;
    static const int64_t channels[] = {5, 8, 17, 64};
    for (int i = 0; i < 4; i++) {
        problem_t want, got;
        problem_make(&want, 1500, 4000, 4, channels[i], 0.25f);
        problem_make(&got, 1500, 4000, 4, channels[i], 0.25f);
        problem_run(&want, team);
        for (int path = 0; path < (int)best; path++) {
            test_vector_limit((plim__vector_path_t)path);
            problem_run(&got, team);
            assert_same(&got, &want);
        }
        test_vector_limit(PLIM__VECTOR_AVX512);
        for (int threads = 1; threads <= 8; threads += threads < 3 ? 1 : 5) {
            plim__team_t *many;
            assert_ok(plim__team_create(job.ledger, threads, &many));
            problem_run(&got, many);
            plim__team_destroy(many);
            assert_same(&got, &want);
        }
        problem_end(&want);
        problem_end(&got);
    }
}

/* The first destinations alone, their neighbours numbered as before. */
static void a_split_batch_gives_the_same_bits(void **state)
{
    (void)state;
    problem_t whole, part;
    problem_make(&whole, 50, 120, 4, 8, 0.5f);
    test_hop_part(&whole.hop, 0, 20, &part.hop);
    problem_fill(&part, 4, 8, 0.5f);
    problem_run(&whole, team);
    problem_run(&part, team);
    assert_memory_equal(part.out.data, whole.out.data,
                        (size_t)(20 * whole.out.stride) * sizeof(float));
    problem_end(&whole);
    problem_end(&part);
}

static void no_destination_no_gradient(void **state)
{
    (void)state;
    problem_t problem;
    problem_make(&problem, 0, 0, 2, 8, 0);
    problem_run(&problem, team);
    for (int i = 0; i < 16; i++)
        assert_true(problem.datt_src[i] == 0 && problem.datt_dst[i] == 0);
    problem_end(&problem);
}

static int setup(void **state)
{
    (void)state;
    best = plim__vector_path();
    job = test_job_make((int64_t)1 << 30, 2, PLIM_IO_AUTO);
    assert_ok(plim__team_create(job.ledger, 2, &team));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plim__team_destroy(team);
    test_job_end(&job);
    return 0;
}

int main(void)
{
    test_say_missing_paths();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(forward_and_gradients, test_every_path),
        cmocka_unit_test(gradients_of_attention_vectors_over_many_rows),
        cmocka_unit_test(gradients_are_added_to),
        cmocka_unit_test(large_scores_do_not_overflow),
        cmocka_unit_test_teardown(every_path_and_number_of_threads_gives_the_same_bits,
                                  test_every_path),
        cmocka_unit_test(a_split_batch_gives_the_same_bits),
        cmocka_unit_test(no_destination_no_gradient),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
