/* Pooling against plain loops; gradients against finite differences. */
#include "nn/pooling.h"

#include "support/harness.h"
#include "support/nn.h"

#include <math.h>
#include <string.h>

enum { GRAPHS = 6, NODES = 17, WIDTH = 21 };
enum { IN = NODES * WIDTH, OUT = GRAPHS * WIDTH };
static const int32_t indptr[GRAPHS + 1] = {0, 3, 3, 4, 11, 15, 17}; /* the second is empty */

static double reference(plim_pool_t pool, const plim__matrix_t *x, int64_t graph, int64_t column,
                        int64_t at, double by)
{
    const int64_t first = indptr[graph], last = indptr[graph + 1];
    double sum = 0, largest = -INFINITY;
    for (int64_t row = first; row < last; row++) {
        const double v = test_value_at(x, row, column) + (row == at ? by : 0);
        sum += v;
        largest = fmax(largest, v);
    }
    if (first == last)
        return 0;
    if (pool == PLIM_POOL_MAX)
        return largest;
    return pool == PLIM_POOL_MEAN ? sum / (double)(last - first) : sum;
}

static void every_kind_agrees_with_plain_loops(void **state)
{
    float values[IN], out[OUT], dout[OUT];
    int32_t chosen[OUT];
    test_numbers(1, IN, 2.0f, values);
    test_numbers(2, OUT, 1.0f, dout);
    for (int kind = 0; kind < 6; kind++) {
        const plim_pool_t pool = (plim_pool_t)(kind % 3);
        plim__matrix_t x = test_rows(NODES, WIDTH, WIDTH + 2, kind < 3 ? PLIM__F32 : PLIM__BF16);
        for (int i = 0; i < IN; i++)
            test_value_set(&x, i / WIDTH, i % WIDTH, values[i]);
        plim__matrix_t dx = test_rows(NODES, WIDTH, WIDTH + 1, PLIM__F32);
        memset(dx.data, 0x55, plim__matrix_bytes(NODES, WIDTH + 1, PLIM__F32));
        plim__pooling_forward(*state, pool, GRAPHS, indptr, &x, out, chosen);
        plim__pooling_backward(*state, pool, GRAPHS, indptr, chosen, dout, &dx);
        for (int64_t i = 0; i < OUT; i++) {
            const int64_t graph = i / WIDTH, column = i % WIDTH;
            test_close((double)out[i], reference(pool, &x, graph, column, -1, 0), 1e-6, "out", i);
            for (int64_t row = indptr[graph]; row < indptr[graph + 1]; row++) {
                const double slope = (reference(pool, &x, graph, column, row, 1e-6) -
                                      reference(pool, &x, graph, column, row, -1e-6)) /
                                     2e-6;
                test_close(test_value_at(&dx, row, column), slope * (double)dout[i], 1e-6, "dx",
                           row * WIDTH + column);
            }
        }
        test_free(x.data);
        test_free(dx.data);
    }
}

static void the_first_of_equals_is_chosen(void **state)
{
    float x[4] = {-1.0f, 2.0f, 2.0f, NAN}, out[3], dx[4];
    const float dout[3] = {5, 6, 7};
    const int32_t three[4] = {0, 3, 3, 4};
    int32_t chosen[3];
    const plim__matrix_t matrix = {x, 4, 1, 1, PLIM__F32};
    plim__matrix_t gradient = {dx, 4, 1, 1, PLIM__F32};
    plim__pooling_forward(*state, PLIM_POOL_MAX, 3, three, &matrix, out, chosen);
    plim__pooling_backward(*state, PLIM_POOL_MAX, 3, three, chosen, dout, &gradient);
    assert_true(out[0] == 2 && out[1] == 0 && isnan(out[2]));
    assert_true(chosen[0] == 1 && chosen[1] == -1 && chosen[2] == 3);
    assert_true(dx[0] == 0 && dx[1] == 5 && dx[2] == 0 && dx[3] == 7);
}

enum { MANY = 700, LARGE = 64, POOLED = MANY * LARGE };

static void compute_bits(void *context, plim__team_t *team, void *out)
{
    const plim_pool_t pool = *(const plim_pool_t *)context;
    static float x[30 * POOLED];
    static int32_t begin[MANY + 1];
    for (int i = 0; i < MANY; i++)
        begin[i + 1] = begin[i] + i * 11 % 30;
    const int64_t nodes = begin[MANY];
    test_numbers(9, nodes * LARGE, 1.0f, x);
    const plim__matrix_t matrix = {x, nodes, LARGE, LARGE, PLIM__F32};
    float *pooled = out;
    int32_t *chosen = (int32_t *)(pooled + POOLED);
    plim__matrix_t dx = {chosen + POOLED, nodes, LARGE, LARGE, PLIM__F32};
    plim__pooling_forward(team, pool, MANY, begin, &matrix, pooled, chosen);
    plim__pooling_backward(team, pool, MANY, begin, chosen, pooled, &dx);
}

static void any_team_and_processor_give_the_same_bits(void **state)
{
    (void)state;
    for (int pool = PLIM_POOL_MEAN; pool <= PLIM_POOL_MAX; pool++)
        test_same_bits(compute_bits, &pool, sizeof(float) * 32 * POOLED);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_kind_agrees_with_plain_loops),
        cmocka_unit_test(the_first_of_equals_is_chosen),
        cmocka_unit_test(any_team_and_processor_give_the_same_bits),
    };
    return cmocka_run_group_tests(tests, test_team_set_up, test_team_tear_down);
}
