/* Vectors of 16 floats: AVX-512. The same names as in the other lanes_*.h; sums and products are
 * the compiler's own operators. */
#ifndef PLIM_NN_LANES_H
#define PLIM_NN_LANES_H

#include "nn/matrix.h"

#include <immintrin.h>

#define LANES ((int64_t)16)
#define LANES_BLOCK 8 /* vectors of sums that fit the registers */
#define LANES_TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl")))
#define LANES_INLINE LANES_TARGET static inline __attribute__((always_inline))

typedef __m512 lanes_t;
typedef __m512i lanes_int_t;
typedef __mmask16 lanes_mask_t;

LANES_INLINE lanes_t lanes_set(float value)
{
    return _mm512_set1_ps(value);
}

LANES_INLINE lanes_t lanes_sqrt(lanes_t a)
{
    return _mm512_sqrt_ps(a);
}

/* LANES values of any element. */
LANES_INLINE lanes_t lanes_load(const void *from, plim__element_t element)
{
    if (element == PLIM__F32)
        return _mm512_loadu_ps(from);
    const __m256i halves = _mm256_loadu_si256((const __m256i *)from);
    if (element == PLIM__F16)
        return _mm512_cvtph_ps(halves);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

/* As F32 or BF16. */
LANES_INLINE void lanes_store(void *to, plim__element_t element, lanes_t values)
{
    if (element == PLIM__F32) {
        _mm512_storeu_ps(to, values);
        return;
    }
    const __m512i bits = _mm512_castps_si512(values);
    const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
    const __m512i rounded =
        _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    const __m512i quiet = _mm512_or_si512(bits, _mm512_set1_epi32(0x400000));
    const __mmask16 nan = _mm512_cmp_ps_mask(values, values, _CMP_UNORD_Q);
    const __m512i chosen = _mm512_mask_blend_epi32(nan, rounded, quiet);
    _mm256_storeu_si256((__m256i *)to, _mm512_cvtepi32_epi16(_mm512_srli_epi32(chosen, 16)));
}

LANES_INLINE lanes_t lanes_from_int32(const int32_t *from)
{
    return _mm512_cvtepi32_ps(_mm512_loadu_si512(from));
}

/* `then` where values are positive, otherwise 0. */
LANES_INLINE lanes_t lanes_where_positive(lanes_t values, lanes_t then)
{
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(values, _mm512_setzero_ps(), _CMP_GT_OQ), then);
}

LANES_INLINE lanes_int_t lanes_set_int(int32_t value)
{
    return _mm512_set1_epi32(value);
}

LANES_INLINE lanes_int_t lanes_load_int(const int32_t *from)
{
    return _mm512_loadu_si512(from);
}

LANES_INLINE void lanes_store_int(int32_t *to, lanes_int_t values)
{
    _mm512_storeu_si512(to, values);
}

/* True where a is larger than b, or a is NaN and b is not. */
LANES_INLINE lanes_mask_t lanes_exceeds(lanes_t a, lanes_t b)
{
    return _mm512_mask_cmp_ps_mask(_mm512_cmp_ps_mask(b, b, _CMP_ORD_Q), a, b, _CMP_NLE_UQ);
}

LANES_INLINE lanes_t lanes_choose(lanes_mask_t mask, lanes_t yes, lanes_t no)
{
    return _mm512_mask_blend_ps(mask, no, yes);
}

LANES_INLINE lanes_int_t lanes_choose_int(lanes_mask_t mask, lanes_int_t yes, lanes_int_t no)
{
    return _mm512_mask_blend_epi32(mask, no, yes);
}

/* `then` where a equals b, otherwise 0. */
LANES_INLINE lanes_t lanes_where_equal(lanes_int_t a, lanes_int_t b, lanes_t then)
{
    return _mm512_maskz_mov_ps(_mm512_cmpeq_epi32_mask(a, b), then);
}

/* `count` floats, fewer than LANES; the other lanes are 0. */
LANES_INLINE lanes_t lanes_load_some(const float *from, int64_t count)
{
    return _mm512_maskz_loadu_ps((__mmask16)((1u << count) - 1), from);
}

LANES_INLINE void lanes_store_some(float *to, int64_t count, lanes_t values)
{
    _mm512_mask_storeu_ps(to, (__mmask16)((1u << count) - 1), values);
}

/* The sum of sixteen lanes: each with the one eight further, four, two, one. */
typedef struct lanes_sixteen {
    lanes_t part[1];
} lanes_sixteen_t;

LANES_INLINE float lanes_total(const lanes_sixteen_t *sixteen)
{
    const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(sixteen->part[0]),
                                       _mm512_extractf32x8_ps(sixteen->part[0], 1));
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
