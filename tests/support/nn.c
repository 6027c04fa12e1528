#include "support/nn.h"

#include "base/rng.h"
#include "nn/bf16.h"
#include "nn/vector.h"
#include "support/harness.h"
#include "support/wrapped.h"

#include <math.h>
#include <string.h>

void test_numbers(uint64_t seed, int64_t count, float scale, float *out)
{
    for (int64_t i = 0; i < count; i++)
        out[i] = scale * (float)(2 * plim__rng_double(seed, (uint64_t)i) - 1);
}

plim__matrix_t test_rows(int64_t rows, int64_t width, int64_t stride, plim__element_t element)
{
    const size_t bytes = plim__matrix_bytes(rows, stride, element);
    plim__matrix_t matrix = {test_malloc(bytes), rows, width, stride, element};
    memset(matrix.data, 0, bytes);
    return matrix;
}

double test_value_at(const plim__matrix_t *matrix, int64_t row, int64_t column)
{
    const int64_t at = row * matrix->stride + column;
    if (matrix->element == PLIM__F32)
        return (double)((const float *)matrix->data)[at];
    return (double)plim__f32_from_bf16(((const uint16_t *)matrix->data)[at]);
}

void test_value_set(plim__matrix_t *matrix, int64_t row, int64_t column, float value)
{
    const int64_t at = row * matrix->stride + column;
    if (matrix->element == PLIM__F32)
        ((float *)matrix->data)[at] = value;
    else
        ((uint16_t *)matrix->data)[at] = plim__bf16_from_f32(value);
}

void test_close(double got, double want, double tolerance, const char *what, int64_t at)
{
    if (fabs(got - want) <= tolerance * fmax(1.0, fabs(want)))
        return;
    fail_msg("%s[%lld] is %.9g, not %.9g", what, (long long)at, got, want);
}

static plim_job_t team_job;

int test_team_set_up(void **state)
{
    plim__team_t *team;
    team_job = test_job_make((int64_t)1 << 30, 1, PLIM_IO_AUTO);
    assert_ok(plim__team_create(team_job.ledger, 2, &team));
    *state = team;
    return 0;
}

int test_team_tear_down(void **state)
{
    plim__team_destroy(*state);
    test_job_end(&team_job);
    return 0;
}

void test_same_bits(void (*compute)(void *context, plim__team_t *team, void *out), void *context,
                    size_t bytes)
{
    static const int sizes[] = {1, 2, 3, 8};
    plim_job_t job = test_job_make((int64_t)1 << 30, 1, PLIM_IO_AUTO);
    void *want = test_calloc(1, bytes), *got = test_calloc(1, bytes);
    for (int path = PLIM__VECTOR_BASELINE; path <= PLIM__VECTOR_AVX512; path++) {
        test_vector_limit((plim__vector_path_t)path);
        for (int i = 0; i < 4; i++) {
            plim__team_t *team;
            assert_ok(plim__team_create(job.ledger, sizes[i], &team));
            memset(got, 0, bytes);
            compute(context, team, got);
            if (path == PLIM__VECTOR_BASELINE && i == 0)
                memcpy(want, got, bytes);
            else if (memcmp(got, want, bytes) != 0)
                fail_msg("other bits with %d threads on path %d", sizes[i], path);
            plim__team_destroy(team);
        }
    }
    test_vector_limit(PLIM__VECTOR_AVX512);
    test_free(want);
    test_free(got);
    test_job_end(&job);
}
