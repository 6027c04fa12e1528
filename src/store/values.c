#include "store/values.h"

#include "base/cpu.h"
#include "base/half.h"

#include <immintrin.h>
#include <math.h>

void plim__values_start(plim__values_t *values)
{
    *values = (plim__values_t){.count = 0};
    for (int i = 0; i < PLIM__LANES; i++) {
        values->min[i] = INFINITY;
        values->max[i] = -INFINITY;
    }
}

static inline void add_one(plim__values_t *values, size_t lane, float value)
{
    if (!isfinite(value)) {
        if (isnan(value))
            values->num_nan++;
        else
            values->num_infinite++;
        return;
    }
    values->sum[lane] += (double)value;
    values->squares[lane] += (double)value * (double)value;
    values->min[lane] = value < values->min[lane] ? value : values->min[lane];
    values->max[lane] = value > values->max[lane] ? value : values->max[lane];
}

void plim__values_add_plain(plim__values_t *values, plim__dtype_t type, const void *data,
                            size_t count)
{
    if (type == PLIM__NPY_F16) {
        const uint16_t *halves = data;
        for (size_t i = 0; i < count; i++)
            add_one(values, i % PLIM__LANES, plim__f32_from_f16(halves[i]));
    } else if (type == PLIM__NPY_I64) {
        const int64_t *integers = data;
        for (size_t i = 0; i < count; i++)
            add_one(values, i % PLIM__LANES, (float)integers[i]);
    } else {
        const float *floats = data;
        for (size_t i = 0; i < count; i++)
            add_one(values, i % PLIM__LANES, floats[i]);
    }
    values->count += (int64_t)count;
}

/* Keeps the eight lanes in registers. Stops before eight values if one of them is not finite. */
__attribute__((target("avx2,f16c"))) static size_t
add_vectors(plim__values_t *values, plim__dtype_t type, const void *data, size_t count)
{
    const __m256i infinite = _mm256_set1_epi32(0x7f800000);
    __m256d sum_low = _mm256_loadu_pd(values->sum);
    __m256d sum_high = _mm256_loadu_pd(values->sum + 4);
    __m256d squares_low = _mm256_loadu_pd(values->squares);
    __m256d squares_high = _mm256_loadu_pd(values->squares + 4);
    __m256 min = _mm256_loadu_ps(values->min);
    __m256 max = _mm256_loadu_ps(values->max);
    size_t i = 0;
    for (; i + PLIM__LANES <= count; i += PLIM__LANES) {
        __m256 value =
            type == PLIM__NPY_F16
                ? _mm256_cvtph_ps(_mm_loadu_si128((const void *)((const uint16_t *)data + i)))
                : _mm256_loadu_ps((const float *)data + i);
        __m256i exponent = _mm256_and_si256(_mm256_castps_si256(value), infinite);
        if (_mm256_movemask_epi8(_mm256_cmpeq_epi32(exponent, infinite)) != 0)
            break;
        __m256d low = _mm256_cvtps_pd(_mm256_castps256_ps128(value));
        __m256d high = _mm256_cvtps_pd(_mm256_extractf128_ps(value, 1));
        sum_low = _mm256_add_pd(sum_low, low);
        sum_high = _mm256_add_pd(sum_high, high);
        squares_low = _mm256_add_pd(squares_low, _mm256_mul_pd(low, low));
        squares_high = _mm256_add_pd(squares_high, _mm256_mul_pd(high, high));
        min = _mm256_min_ps(value, min);
        max = _mm256_max_ps(value, max);
    }
    _mm256_storeu_pd(values->sum, sum_low);
    _mm256_storeu_pd(values->sum + 4, sum_high);
    _mm256_storeu_pd(values->squares, squares_low);
    _mm256_storeu_pd(values->squares + 4, squares_high);
    _mm256_storeu_ps(values->min, min);
    _mm256_storeu_ps(values->max, max);
    values->count += (int64_t)i;
    return i;
}

void plim__values_add(plim__values_t *values, plim__dtype_t type, const void *data, size_t count)
{
    if (plim__cpu_avx2_f16c() && type != PLIM__NPY_I64) {
        const char *at = data;
        size_t width = plim__dtype_size(type);
        while (count >= PLIM__LANES) {
            size_t done = add_vectors(values, type, at, count);
            at += done * width;
            count -= done;
            if (count < PLIM__LANES)
                break;
            plim__values_add_plain(values, type, at, PLIM__LANES);
            at += PLIM__LANES * width;
            count -= PLIM__LANES;
        }
        data = at;
    }
    plim__values_add_plain(values, type, data, count);
}

void plim__values_sum(plim__values_sum_t *sum, const plim__values_t *values)
{
    if (sum->count == 0) {
        sum->min = (double)INFINITY;
        sum->max = -(double)INFINITY;
    }
    for (int i = 0; i < PLIM__LANES; i++) {
        sum->sum += values->sum[i];
        sum->squares += values->squares[i];
        sum->min = fmin(sum->min, (double)values->min[i]);
        sum->max = fmax(sum->max, (double)values->max[i]);
    }
    sum->count += values->count;
    sum->num_nan += values->num_nan;
    sum->num_infinite += values->num_infinite;
}

void plim__values_stats(const plim__values_sum_t *sum, plim_value_stats_t *stats_out)
{
    plim_value_stats_t stats = {
        .count = sum->count, .num_nan = sum->num_nan, .num_infinite = sum->num_infinite};
    int64_t finite = sum->count - sum->num_nan - sum->num_infinite;
    if (finite > 0) {
        double variance;
        stats.min = sum->min;
        stats.max = sum->max;
        stats.mean = sum->sum / (double)finite;
        variance = sum->squares / (double)finite - stats.mean * stats.mean;
        stats.deviation = variance > 0 ? sqrt(variance) : 0;
    }
    *stats_out = stats;
}
