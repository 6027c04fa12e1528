/* Vectors of 8 floats: AVX2 with F16C. The same names as in the other lanes_*.h; sums and products
 * are the compiler's own operators. */
#ifndef PLIM_NN_LANES_H
#define PLIM_NN_LANES_H

#include "nn/matrix.h"

#include <immintrin.h>

#define LANES ((int64_t)8)
#define LANES_BLOCK 8 /* vectors of sums that fit the registers */
#define LANES_TARGET __attribute__((target("avx2,f16c")))
#define LANES_INLINE LANES_TARGET static inline __attribute__((always_inline))

typedef __m256 lanes_t;
typedef __m256i lanes_int_t;
typedef __m256 lanes_mask_t;

LANES_INLINE lanes_t lanes_set(float value)
{
    return _mm256_set1_ps(value);
}

LANES_INLINE lanes_t lanes_sqrt(lanes_t a)
{
    return _mm256_sqrt_ps(a);
}

/* LANES values of any element. */
LANES_INLINE lanes_t lanes_load(const void *from, plim__element_t element)
{
    if (element == PLIM__F32)
        return _mm256_loadu_ps(from);
    const __m128i halves = _mm_loadu_si128((const __m128i *)from);
    if (element == PLIM__F16)
        return _mm256_cvtph_ps(halves);
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(halves), 16));
}

/* As F32 or BF16. */
LANES_INLINE void lanes_store(void *to, plim__element_t element, lanes_t values)
{
    if (element == PLIM__F32) {
        _mm256_storeu_ps(to, values);
        return;
    }
    const __m256i bits = _mm256_castps_si256(values);
    const __m256i odd = _mm256_and_si256(_mm256_srli_epi32(bits, 16), _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_add_epi32(bits, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    const __m256i quiet = _mm256_or_si256(bits, _mm256_set1_epi32(0x400000));
    const __m256i nan = _mm256_castps_si256(_mm256_cmp_ps(values, values, _CMP_UNORD_Q));
    const __m256i chosen = _mm256_srli_epi32(_mm256_blendv_epi8(rounded, quiet, nan), 16);
    _mm_storeu_si128((__m128i *)to, _mm_packus_epi32(_mm256_castsi256_si128(chosen),
                                                     _mm256_extracti128_si256(chosen, 1)));
}

LANES_INLINE lanes_t lanes_from_int32(const int32_t *from)
{
    return _mm256_cvtepi32_ps(_mm256_loadu_si256((const __m256i *)from));
}

/* `then` where values are positive, otherwise 0. */
LANES_INLINE lanes_t lanes_where_positive(lanes_t values, lanes_t then)
{
    return _mm256_and_ps(_mm256_cmp_ps(values, _mm256_setzero_ps(), _CMP_GT_OQ), then);
}

LANES_INLINE lanes_int_t lanes_set_int(int32_t value)
{
    return _mm256_set1_epi32(value);
}

LANES_INLINE lanes_int_t lanes_load_int(const int32_t *from)
{
    return _mm256_loadu_si256((const __m256i *)from);
}

LANES_INLINE void lanes_store_int(int32_t *to, lanes_int_t values)
{
    _mm256_storeu_si256((__m256i *)to, values);
}

/* True where a is larger than b, or a is NaN and b is not. */
LANES_INLINE lanes_mask_t lanes_exceeds(lanes_t a, lanes_t b)
{
    return _mm256_and_ps(_mm256_cmp_ps(b, b, _CMP_ORD_Q), _mm256_cmp_ps(a, b, _CMP_NLE_UQ));
}

LANES_INLINE lanes_t lanes_choose(lanes_mask_t mask, lanes_t yes, lanes_t no)
{
    return _mm256_blendv_ps(no, yes, mask);
}

LANES_INLINE lanes_int_t lanes_choose_int(lanes_mask_t mask, lanes_int_t yes, lanes_int_t no)
{
    return _mm256_blendv_epi8(no, yes, _mm256_castps_si256(mask));
}

/* `then` where a equals b, otherwise 0. */
LANES_INLINE lanes_t lanes_where_equal(lanes_int_t a, lanes_int_t b, lanes_t then)
{
    return _mm256_and_ps(_mm256_castsi256_ps(_mm256_cmpeq_epi32(a, b)), then);
}

LANES_INLINE lanes_int_t lanes_some(int64_t count)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)count),
                              _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

/* `count` floats, fewer than LANES; the other lanes are 0. */
LANES_INLINE lanes_t lanes_load_some(const float *from, int64_t count)
{
    return _mm256_maskload_ps(from, lanes_some(count));
}

LANES_INLINE void lanes_store_some(float *to, int64_t count, lanes_t values)
{
    _mm256_maskstore_ps(to, lanes_some(count), values);
}

/* The sum of sixteen lanes: each with the one eight further, four, two, one. */
typedef struct lanes_sixteen {
    lanes_t part[2];
} lanes_sixteen_t;

LANES_INLINE float lanes_total(const lanes_sixteen_t *sixteen)
{
    const __m256 eight = _mm256_add_ps(sixteen->part[0], sixteen->part[1]);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
