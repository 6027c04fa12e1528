/*
 * A kernel handles whole vectors and stops before the first vector with a value to refuse. The
 * scalar kernel converts the rest, so that it alone decides where to stop. The relative error is a
 * correctly rounded single-precision quotient in every kernel, and its maximum does not depend on
 * the order, so it is the same everywhere.
 */
#include "ingest/feature_convert.h"

#include <immintrin.h>
#include <math.h>
#include <string.h>

/* The smallest magnitude that rounds to infinity in f16: half-way above 65504, where ties go up. */
#define F16_OVERFLOW 65520.0f

static void raise_error(float error, float *worst)
{
    if (error > *worst)
        *worst = error;
}

static int64_t f32_to_f16_scalar(const float *from, uint16_t *to, int64_t begin, int64_t count,
                                 float *worst)
{
    for (int64_t i = begin; i < count; i++) {
        float value = from[i];
        if (!(fabsf(value) < F16_OVERFLOW))
            return i;
        to[i] = plim__f16_from_f32(value);
        if (value != 0)
            raise_error(fabsf(value - plim__f32_from_f16(to[i])) / fabsf(value), worst);
    }
    return count;
}

__attribute__((target("avx2,f16c"))) static int64_t f32_to_f16_avx2(const float *from, uint16_t *to,
                                                                    int64_t count, float *worst)
{
    const __m256 magnitude = _mm256_castsi256_ps(_mm256_set1_epi32(0x7fffffff));
    const __m256 overflow = _mm256_set1_ps(F16_OVERFLOW);
    __m256 most = _mm256_setzero_ps();
    int64_t i = 0;
    for (; i + 8 <= count; i += 8) {
        __m256 value = _mm256_loadu_ps(from + i);
        __m256 size = _mm256_and_ps(value, magnitude);
        if (_mm256_movemask_ps(_mm256_cmp_ps(size, overflow, _CMP_NLT_UQ)) != 0)
            break;
        __m128i half = _mm256_cvtps_ph(value, _MM_FROUND_TO_NEAREST_INT);
        _mm_storeu_si128((__m128i *)(to + i), half);
        __m256 lost = _mm256_and_ps(_mm256_sub_ps(value, _mm256_cvtph_ps(half)), magnitude);
        /* Zeros give NaN, for which max returns its second operand. */
        most = _mm256_max_ps(_mm256_div_ps(lost, size), most);
    }
    float each[8];
    _mm256_storeu_ps(each, most);
    for (int k = 0; k < 8; k++)
        raise_error(each[k], worst);
    return i;
}

static int64_t f32_check_scalar(const float *from, int64_t begin, int64_t count)
{
    for (int64_t i = begin; i < count; i++)
        if (!isfinite(from[i]))
            return i;
    return count;
}

__attribute__((target("avx2"))) static int64_t f32_check_avx2(const float *from, int64_t count)
{
    int64_t i = 0;
    for (; i + 32 <= count; i += 32) {
        __m256 a = _mm256_loadu_ps(from + i), b = _mm256_loadu_ps(from + i + 8);
        __m256 c = _mm256_loadu_ps(from + i + 16), d = _mm256_loadu_ps(from + i + 24);
        /* Infinity minus itself is NaN, too. */
        a = _mm256_sub_ps(a, a), b = _mm256_sub_ps(b, b);
        c = _mm256_sub_ps(c, c), d = _mm256_sub_ps(d, d);
        __m256 bad =
            _mm256_or_ps(_mm256_cmp_ps(a, b, _CMP_UNORD_Q), _mm256_cmp_ps(c, d, _CMP_UNORD_Q));
        if (_mm256_movemask_ps(bad) != 0)
            break;
    }
    return i;
}

/* SSE2 is part of every x86-64. */
static int64_t f16_check(const uint16_t *from, int64_t count)
{
    const __m128i magnitude = _mm_set1_epi16(0x7fff);
    const __m128i largest = _mm_set1_epi16(0x7bff);
    int64_t i = 0;
    for (; i + 16 <= count; i += 16) {
        __m128i a = _mm_loadu_si128((const __m128i *)(from + i));
        __m128i b = _mm_loadu_si128((const __m128i *)(from + i + 8));
        __m128i bad = _mm_or_si128(_mm_cmpgt_epi16(_mm_and_si128(a, magnitude), largest),
                                   _mm_cmpgt_epi16(_mm_and_si128(b, magnitude), largest));
        if (_mm_movemask_epi8(bad) != 0)
            break;
    }
    for (; i < count; i++)
        if ((from[i] & 0x7fffu) > 0x7bffu)
            return i;
    return count;
}

/* Doubles to f32, then to f16 when `half`. The error is relative to the double. */
__attribute__((target("avx2,f16c"))) static int64_t
f64_avx2(const double *from, void *to, bool half, int64_t count, double *worst_error)
{
    const __m256d magnitude = _mm256_castsi256_pd(_mm256_set1_epi64x(INT64_MAX));
    const __m256d infinity = _mm256_set1_pd((double)INFINITY);
    __m256d most = _mm256_setzero_pd();
    int64_t i = 0;
    for (; i + 4 <= count; i += 4) {
        __m256d value = _mm256_loadu_pd(from + i);
        __m256d size = _mm256_and_pd(value, magnitude);
        __m128 single = _mm256_cvtpd_ps(value);
        __m128i packed = _mm_cvtps_ph(single, _MM_FROUND_TO_NEAREST_INT);
        __m256d stored = _mm256_cvtps_pd(half ? _mm_cvtph_ps(packed) : single);
        __m256d became = _mm256_cmp_pd(_mm256_and_pd(stored, magnitude), infinity, _CMP_EQ_OQ);
        __m256d bad = _mm256_or_pd(_mm256_cmp_pd(value, value, _CMP_UNORD_Q), became);
        if (_mm256_movemask_pd(bad) != 0)
            break;
        if (half)
            _mm_storel_epi64((__m128i *)((uint16_t *)to + i), packed);
        else
            _mm_storeu_ps((float *)to + i, single);
        __m256d lost = _mm256_and_pd(_mm256_sub_pd(value, stored), magnitude);
        most = _mm256_max_pd(_mm256_div_pd(lost, size), most);
    }
    double each[4];
    _mm256_storeu_pd(each, most);
    for (int k = 0; k < 4; k++)
        if (each[k] > *worst_error)
            *worst_error = each[k];
    return i;
}

double plim__feature_convert_value(plim__dtype_t type, const void *from, int64_t index)
{
    switch (type) {
    case PLIM__NPY_BOOL:
    case PLIM__NPY_U8:
        return ((const uint8_t *)from)[index];
    case PLIM__NPY_I8:
        return ((const int8_t *)from)[index];
    case PLIM__NPY_I16:
        return ((const int16_t *)from)[index];
    case PLIM__NPY_U16:
        return ((const uint16_t *)from)[index];
    case PLIM__NPY_I32:
        return ((const int32_t *)from)[index];
    case PLIM__NPY_U32:
        return ((const uint32_t *)from)[index];
    case PLIM__NPY_I64:
        return (double)((const int64_t *)from)[index];
    case PLIM__NPY_U64:
        return (double)((const uint64_t *)from)[index];
    case PLIM__NPY_F16:
        return (double)plim__f32_from_f16(((const uint16_t *)from)[index]);
    case PLIM__NPY_F32:
        return (double)((const float *)from)[index];
    case PLIM__NPY_F64:
        return ((const double *)from)[index];
    }
    return NAN;
}

/* Any type, one value at a time. The error is relative to the double. */
static int64_t convert_any(plim__dtype_t from_type, const void *from, plim__dtype_t to_type,
                           void *to, int64_t begin, int64_t count, double *worst_error)
{
    for (int64_t i = begin; i < count; i++) {
        double value = plim__feature_convert_value(from_type, from, i);
        float stored = (float)value;
        if (isnan(value))
            return i;
        if (to_type == PLIM__NPY_F16) {
            uint16_t half = plim__f16_from_f32(stored);
            ((uint16_t *)to)[i] = half;
            stored = plim__f32_from_f16(half);
        } else {
            ((float *)to)[i] = stored;
        }
        if (isinf(stored))
            return i;
        if (value != 0) {
            double error = fabs(value - (double)stored) / fabs(value);
            if (error > *worst_error)
                *worst_error = error;
        }
    }
    return count;
}

static int64_t f32_to_f16(plim__half_path_t path, const float *from, uint16_t *to, int64_t count,
                          double *worst_error)
{
    float worst = 0;
    int64_t done = 0;
    if (path == PLIM__HALF_AVX2)
        done = f32_to_f16_avx2(from, to, count, &worst);
    done = f32_to_f16_scalar(from, to, done, count, &worst);
    if ((double)worst > *worst_error)
        *worst_error = (double)worst;
    return done;
}

static int64_t to_integers(plim__dtype_t from_type, const void *from, int64_t *to, int64_t count)
{
    if (from_type < PLIM__NPY_F16)
        return plim__feature_convert_ids(from_type, from, to, count);
    for (int64_t i = 0; i < count; i++) {
        const double value = plim__feature_convert_value(from_type, from, i);
        if (!(fabs(value) < 0x1p53) || value != floor(value))
            return i;
        to[i] = (int64_t)value;
    }
    return count;
}

int64_t plim__feature_convert(plim__half_path_t path, plim__dtype_t from_type, const void *from,
                              plim__dtype_t to_type, void *to, int64_t count, double *worst_error)
{
    int64_t done = 0;
    if (to_type == PLIM__NPY_I64)
        return to_integers(from_type, from, to, count);
    if (from_type == PLIM__NPY_F32 && to_type == PLIM__NPY_F16)
        return f32_to_f16(path, from, to, count, worst_error);
    if (from_type == PLIM__NPY_F32) {
        if (path != PLIM__HALF_SCALAR)
            done = f32_check_avx2(from, count);
        done = f32_check_scalar(from, done, count);
        memcpy(to, from, (size_t)done * sizeof(float));
        return done;
    }
    if (from_type == PLIM__NPY_F16 && to_type == PLIM__NPY_F16) {
        done = f16_check(from, count);
        memcpy(to, from, (size_t)done * sizeof(uint16_t));
        return done;
    }
    if (from_type == PLIM__NPY_F16) {
        done = f16_check(from, count);
        plim__half_widen(path, from, to, done);
        return done;
    }
    if (from_type == PLIM__NPY_F64 && path != PLIM__HALF_SCALAR)
        done = f64_avx2(from, to, to_type == PLIM__NPY_F16, count, worst_error);
    return convert_any(from_type, from, to_type, to, done, count, worst_error);
}

#define WIDEN(type)                                                                                \
    do {                                                                                           \
        const type *narrow = from;                                                                 \
        for (int64_t i = 0; i < count; i++)                                                        \
            to[i] = (int64_t)narrow[i];                                                            \
    } while (0)

int64_t plim__feature_convert_ids(plim__dtype_t from_type, const void *from, int64_t *to,
                                  int64_t count)
{
    switch (from_type) {
    case PLIM__NPY_BOOL:
    case PLIM__NPY_U8:
        WIDEN(uint8_t);
        return count;
    case PLIM__NPY_I8:
        WIDEN(int8_t);
        return count;
    case PLIM__NPY_I16:
        WIDEN(int16_t);
        return count;
    case PLIM__NPY_U16:
        WIDEN(uint16_t);
        return count;
    case PLIM__NPY_I32:
        WIDEN(int32_t);
        return count;
    case PLIM__NPY_U32:
        WIDEN(uint32_t);
        return count;
    case PLIM__NPY_I64:
        memmove(to, from, (size_t)count * sizeof *to);
        return count;
    case PLIM__NPY_U64:
        WIDEN(uint64_t);
        for (int64_t i = 0; i < count; i++)
            if (to[i] < 0)
                return i;
        return count;
    case PLIM__NPY_F16:
    case PLIM__NPY_F32:
    case PLIM__NPY_F64:
        break;
    }
    return 0;
}
