#include "base/half.h"

#include "base/cpu.h"

#include <immintrin.h>
#include <string.h>

plim__half_path_t plim__half_best(void)
{
    return plim__cpu_avx2_f16c() ? PLIM__HALF_AVX2 : PLIM__HALF_SCALAR;
}

uint16_t plim__f16_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    uint32_t sign = bits >> 16 & 0x8000u;
    uint32_t magnitude = bits & 0x7fffffffu;
    if (magnitude > 0x7f800000u) /* NaN: made quiet, the high bits of its payload kept */
        return (uint16_t)(sign | 0x7e00u | (magnitude >> 13 & 0x3ffu));
    if (magnitude >= 0x477ff000u) /* 65520 and more, infinity included */
        return (uint16_t)(sign | 0x7c00u);
    if (magnitude < 0x38800000u) { /* below 2^-14: subnormal, in steps of 2^-24 */
        if (magnitude < 0x33000000u)
            return (uint16_t)sign;
        uint32_t shift = 126 - (magnitude >> 23);
        uint32_t whole = (magnitude & 0x7fffffu) | 0x800000u;
        uint32_t half = whole >> shift;
        uint32_t rest = whole & ((1u << shift) - 1);
        uint32_t middle = 1u << (shift - 1);
        half += rest > middle || (rest == middle && (half & 1) != 0);
        return (uint16_t)(sign | half);
    }
    uint32_t rounded = magnitude + 0xfffu + (magnitude >> 13 & 1);
    return (uint16_t)(sign | ((rounded - 0x38000000u) >> 13));
}

float plim__f32_from_f16(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16;
    uint32_t exponent = half >> 10 & 0x1fu;
    uint32_t fraction = half & 0x3ffu;
    uint32_t bits;
    float value;
    if (exponent == 0) { /* zero or subnormal: fraction * 2^-24, exact in f32 */
        value = (float)fraction * 0x1p-24f;
        return sign != 0 ? -value : value;
    }
    if (exponent == 31)
        bits = sign | 0x7f800000u | fraction << 13 | (fraction != 0 ? 0x400000u : 0);
    else
        bits = sign | (exponent + 112) << 23 | fraction << 13;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Through memcpy: the two may share memory, and a compiler assumes that pointers to different types
 * do not. */
static void widen_scalar(const uint16_t *from, float *to, int64_t begin, int64_t count)
{
    for (int64_t i = begin; i < count; i++) {
        uint16_t half;
        memcpy(&half, from + i, sizeof half);
        float value = plim__f32_from_f16(half);
        memcpy(to + i, &value, sizeof value);
    }
}

__attribute__((target("avx2,f16c"))) static int64_t widen_avx2(const uint16_t *from, float *to,
                                                               int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm256_storeu_ps(to + i, _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(from + i))));
    return i;
}

void plim__half_widen(plim__half_path_t path, const uint16_t *from, float *to, int64_t count)
{
    int64_t done = 0;
    if (path == PLIM__HALF_AVX2)
        done = widen_avx2(from, to, count);
    widen_scalar(from, to, done, count);
}

__attribute__((target("avx2,f16c"))) static int64_t narrow_avx2(const float *from, uint16_t *to,
                                                                int64_t count)
{
    int64_t i = 0;
    for (; i + 8 <= count; i += 8)
        _mm_storeu_si128((__m128i *)(to + i),
                         _mm256_cvtps_ph(_mm256_loadu_ps(from + i), _MM_FROUND_TO_NEAREST_INT));
    return i;
}

void plim__half_narrow(plim__half_path_t path, const float *from, uint16_t *to, int64_t count)
{
    int64_t done = 0;
    if (path == PLIM__HALF_AVX2)
        done = narrow_avx2(from, to, count);
    for (; done < count; done++)
        to[done] = plim__f16_from_f32(from[done]);
}
