/* Vectors of 4 floats: SSE4, which every processor has that the library is built for. The same
 * names as in the other lanes_*.h; sums and products are the compiler's own operators. */
#ifndef PLIM_NN_LANES_H
#define PLIM_NN_LANES_H

#include "base/half.h"
#include "nn/matrix.h"

#include <immintrin.h>
#include <string.h>

#define LANES ((int64_t)4)
#define LANES_BLOCK 8 /* vectors of sums that fit the registers */
#define LANES_TARGET
#define LANES_INLINE static inline __attribute__((always_inline))

typedef __m128 lanes_t;
typedef __m128i lanes_int_t;
typedef __m128 lanes_mask_t;

LANES_INLINE lanes_t lanes_set(float value)
{
    return _mm_set1_ps(value);
}

LANES_INLINE lanes_t lanes_sqrt(lanes_t a)
{
    return _mm_sqrt_ps(a);
}

/* LANES values of any element. */
LANES_INLINE lanes_t lanes_load(const void *from, plim__element_t element)
{
    if (element == PLIM__F32)
        return _mm_loadu_ps(from);
    if (element == PLIM__BF16)
        return _mm_castsi128_ps(
            _mm_slli_epi32(_mm_cvtepu16_epi32(_mm_loadl_epi64((const __m128i *)from)), 16));
    uint16_t halves[4];
    memcpy(halves, from, sizeof halves);
    return _mm_setr_ps(plim__f32_from_f16(halves[0]), plim__f32_from_f16(halves[1]),
                       plim__f32_from_f16(halves[2]), plim__f32_from_f16(halves[3]));
}

/* As F32 or BF16. */
LANES_INLINE void lanes_store(void *to, plim__element_t element, lanes_t values)
{
    if (element == PLIM__F32) {
        _mm_storeu_ps(to, values);
        return;
    }
    const __m128i bits = _mm_castps_si128(values);
    const __m128i odd = _mm_and_si128(_mm_srli_epi32(bits, 16), _mm_set1_epi32(1));
    const __m128i rounded = _mm_add_epi32(bits, _mm_add_epi32(odd, _mm_set1_epi32(0x7fff)));
    const __m128i quiet = _mm_or_si128(bits, _mm_set1_epi32(0x400000));
    const __m128i nan = _mm_castps_si128(_mm_cmpunord_ps(values, values));
    const __m128i chosen = _mm_srli_epi32(_mm_blendv_epi8(rounded, quiet, nan), 16);
    _mm_storel_epi64((__m128i *)to, _mm_packus_epi32(chosen, chosen));
}

LANES_INLINE lanes_t lanes_from_int32(const int32_t *from)
{
    return _mm_cvtepi32_ps(_mm_loadu_si128((const __m128i *)from));
}

/* `then` where values are positive, otherwise 0. */
LANES_INLINE lanes_t lanes_where_positive(lanes_t values, lanes_t then)
{
    return _mm_and_ps(_mm_cmpgt_ps(values, _mm_setzero_ps()), then);
}

LANES_INLINE lanes_int_t lanes_set_int(int32_t value)
{
    return _mm_set1_epi32(value);
}

LANES_INLINE lanes_int_t lanes_load_int(const int32_t *from)
{
    return _mm_loadu_si128((const __m128i *)from);
}

LANES_INLINE void lanes_store_int(int32_t *to, lanes_int_t values)
{
    _mm_storeu_si128((__m128i *)to, values);
}

/* True where a is larger than b, or a is NaN and b is not. */
LANES_INLINE lanes_mask_t lanes_exceeds(lanes_t a, lanes_t b)
{
    return _mm_and_ps(_mm_cmpord_ps(b, b), _mm_cmpnle_ps(a, b));
}

LANES_INLINE lanes_t lanes_choose(lanes_mask_t mask, lanes_t yes, lanes_t no)
{
    return _mm_blendv_ps(no, yes, mask);
}

LANES_INLINE lanes_int_t lanes_choose_int(lanes_mask_t mask, lanes_int_t yes, lanes_int_t no)
{
    return _mm_blendv_epi8(no, yes, _mm_castps_si128(mask));
}

/* `then` where a equals b, otherwise 0. */
LANES_INLINE lanes_t lanes_where_equal(lanes_int_t a, lanes_int_t b, lanes_t then)
{
    return _mm_and_ps(_mm_castsi128_ps(_mm_cmpeq_epi32(a, b)), then);
}

/* `count` floats, fewer than LANES; the other lanes are 0. */
LANES_INLINE lanes_t lanes_load_some(const float *from, int64_t count)
{
    return _mm_setr_ps(count > 0 ? from[0] : 0, count > 1 ? from[1] : 0, count > 2 ? from[2] : 0,
                       0);
}

LANES_INLINE void lanes_store_some(float *to, int64_t count, lanes_t values)
{
    float copy[LANES];
    _mm_storeu_ps(copy, values);
    for (int64_t i = 0; i < count; i++)
        to[i] = copy[i];
}

/* The sum of sixteen lanes: each with the one eight further, four, two, one. */
typedef struct lanes_sixteen {
    lanes_t part[4];
} lanes_sixteen_t;

LANES_INLINE float lanes_total(const lanes_sixteen_t *sixteen)
{
    const __m128 four = _mm_add_ps(_mm_add_ps(sixteen->part[0], sixteen->part[2]),
                                   _mm_add_ps(sixteen->part[1], sixteen->part[3]));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#endif
