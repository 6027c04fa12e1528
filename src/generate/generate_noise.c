/*
 * 32 random bits make two values. Each is the sum of two bytes minus its expectation: a triangular
 * distribution from -255 to 255. The bits of lane k are a hash of k and the 64-bit key of the row,
 * by operations on 32-bit vector lanes.
 */
#include "generate/generate_noise.h"

#include "base/cpu.h"
#include "base/half.h"

#include <immintrin.h>

#define LANE_STEP 0x9e3779b9u
#define FIRST 0x85ebca6bu
#define SECOND 0xc2b2ae35u
#define CENTRE 255 /* expectation of two bytes' sum */

plim__noise_path_t plim__noise_best(void)
{
    return plim__cpu_avx2_f16c() ? PLIM__NOISE_AVX2 : PLIM__NOISE_SCALAR;
}

static inline uint32_t lane_bits(uint64_t key, uint32_t lane)
{
    uint32_t x = (uint32_t)key + lane * LANE_STEP;
    x = (x ^ x >> 16) * FIRST;
    x = ((x ^ x >> 13) + (uint32_t)(key >> 32)) * SECOND;
    return x ^ x >> 16;
}

static void row_scalar(uint64_t key, const int16_t *mean, int64_t count, plim_dtype_t type,
                       void *to)
{
    for (int64_t i = 0; i < count; i++) {
        uint32_t bits = lane_bits(key, (uint32_t)(i / 2)) >> 16 * (i % 2);
        int sum = (int)(bits & 0xff) + (int)(bits >> 8 & 0xff);
        float value = (float)(mean[i] + sum - CENTRE) * (float)PLIM__NOISE_STEP;
        if (type == PLIM_F16)
            ((uint16_t *)to)[i] = plim__f16_from_f32(value);
        else
            ((float *)to)[i] = value;
    }
}

#define AVX2 __attribute__((target("avx2,f16c")))

/* Sixteen values as 16-bit integers. */
AVX2 static inline __m256i sums_avx2(__m256i lanes, __m256i high, const int16_t *mean)
{
    const __m256i byte = _mm256_set1_epi16(0xff);
    __m256i x = _mm256_xor_si256(lanes, _mm256_srli_epi32(lanes, 16));
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)FIRST));
    x = _mm256_add_epi32(_mm256_xor_si256(x, _mm256_srli_epi32(x, 13)), high);
    x = _mm256_mullo_epi32(x, _mm256_set1_epi32((int)SECOND));
    x = _mm256_xor_si256(x, _mm256_srli_epi32(x, 16));
    x = _mm256_add_epi16(_mm256_and_si256(x, byte), _mm256_srli_epi16(x, 8));
    __m256i shift = _mm256_loadu_si256((const __m256i *)(const void *)mean);
    return _mm256_add_epi16(x, _mm256_sub_epi16(shift, byte));
}

AVX2 static inline __m256 floats_avx2(__m128i integers)
{
    return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_cvtepi16_epi32(integers)),
                         _mm256_set1_ps((float)PLIM__NOISE_STEP));
}

AVX2 static void row_avx2(uint64_t key, const int16_t *mean, int64_t count, plim_dtype_t type,
                          void *to)
{
    const __m256i numbers = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i step = _mm256_set1_epi32((int)(8 * LANE_STEP));
    const __m256i high = _mm256_set1_epi32((int)(uint32_t)(key >> 32));
    __m256i lanes =
        _mm256_add_epi32(_mm256_set1_epi32((int)(uint32_t)key),
                         _mm256_mullo_epi32(numbers, _mm256_set1_epi32((int)LANE_STEP)));
    for (int64_t i = 0; i < count; i += PLIM__NOISE_LANES) {
        __m256i values = sums_avx2(lanes, high, mean + i);
        __m256 low_half = floats_avx2(_mm256_castsi256_si128(values));
        __m256 high_half = floats_avx2(_mm256_extracti128_si256(values, 1));
        if (type == PLIM_F16) {
            __m128i a = _mm256_cvtps_ph(low_half, _MM_FROUND_TO_NEAREST_INT);
            __m128i b = _mm256_cvtps_ph(high_half, _MM_FROUND_TO_NEAREST_INT);
            _mm256_storeu_si256((__m256i *)(void *)((uint16_t *)to + i), _mm256_set_m128i(b, a));
        } else {
            _mm256_storeu_ps((float *)to + i, low_half);
            _mm256_storeu_ps((float *)to + i + 8, high_half);
        }
        lanes = _mm256_add_epi32(lanes, step);
    }
}

void plim__noise_row(plim__noise_path_t path, uint64_t key, const int16_t *mean, int64_t count,
                     plim_dtype_t type, void *to)
{
    int64_t padded = (count + PLIM__NOISE_LANES - 1) / PLIM__NOISE_LANES * PLIM__NOISE_LANES;
    if (path == PLIM__NOISE_AVX2)
        row_avx2(key, mean, padded, type, to);
    else
        row_scalar(key, mean, padded, type, to);
}
