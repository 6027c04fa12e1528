#include "base/permute.h"

#include <immintrin.h>

/* One pass of the network, without the walk; for vectors `count` is a multiple of sixteen. */
typedef void (*pass_fn)(const plim__permute_t *permute, int64_t *indices, int64_t count,
                        bool inverse);

static void pass_scalar(const plim__permute_t *permute, int64_t *indices, int64_t count,
                        bool inverse)
{
    for (int64_t n = 0; n < count; n++) {
        uint64_t low = (uint64_t)indices[n] & permute->low_mask;
        uint64_t high = (uint64_t)indices[n] >> permute->low_bits;
        for (int i = 0; i < PLIM__PERMUTE_ROUNDS; i++) {
            int round = inverse ? PLIM__PERMUTE_ROUNDS - 1 - i : i;
            if (round % 2 == 0)
                high ^= plim__permute_round(low, permute->keys[round]) & permute->high_mask;
            else
                low ^= plim__permute_round(high, permute->keys[round]) & permute->low_mask;
        }
        indices[n] = (int64_t)(high << permute->low_bits | low);
    }
}

#define AVX2 __attribute__((target("avx2")))

/* Sixteen indices: the multiplications' latency needs four independent vectors to hide in. */
typedef struct sixteen {
    __m256i a, b, c, d;
} sixteen_t;

AVX2 static inline __m256i round_avx2(__m256i to, __m256i from, __m256i key, __m256i mask)
{
    const __m256i first = _mm256_set1_epi64x(PLIM__PERMUTE_FIRST);
    const __m256i second = _mm256_set1_epi64x(PLIM__PERMUTE_SECOND);
    __m256i x = _mm256_mul_epu32(_mm256_xor_si256(from, key), first);
    x = _mm256_xor_si256(x, _mm256_srli_epi64(x, 32));
    x = _mm256_srli_epi64(_mm256_mul_epu32(x, second), 32);
    return _mm256_xor_si256(to, _mm256_and_si256(x, mask));
}

AVX2 static inline void step_avx2(sixteen_t *to, const sixteen_t *from, uint32_t key, __m256i mask)
{
    const __m256i keys = _mm256_set1_epi64x(key);
    to->a = round_avx2(to->a, from->a, keys, mask);
    to->b = round_avx2(to->b, from->b, keys, mask);
    to->c = round_avx2(to->c, from->c, keys, mask);
    to->d = round_avx2(to->d, from->d, keys, mask);
}

AVX2 static inline void split_avx2(const int64_t *from, __m256i mask, __m128i shift, __m256i *low,
                                   __m256i *high)
{
    __m256i x = _mm256_loadu_si256((const __m256i *)(const void *)from);
    *low = _mm256_and_si256(x, mask);
    *high = _mm256_srl_epi64(x, shift);
}

AVX2 static inline void join_avx2(int64_t *to, __m128i shift, __m256i low, __m256i high)
{
    _mm256_storeu_si256((__m256i *)(void *)to, _mm256_or_si256(_mm256_sll_epi64(high, shift), low));
}

AVX2 static void pass_avx2(const plim__permute_t *permute, int64_t *indices, int64_t count,
                           bool inverse)
{
    const uint32_t *keys = permute->keys;
    const __m256i low_mask = _mm256_set1_epi64x((long long)permute->low_mask);
    const __m256i high_mask = _mm256_set1_epi64x((long long)permute->high_mask);
    const __m128i shift = _mm_cvtsi32_si128((int)permute->low_bits);
    for (int64_t n = 0; n < count; n += 16) {
        sixteen_t low;
        sixteen_t high;
        split_avx2(indices + n, low_mask, shift, &low.a, &high.a);
        split_avx2(indices + n + 4, low_mask, shift, &low.b, &high.b);
        split_avx2(indices + n + 8, low_mask, shift, &low.c, &high.c);
        split_avx2(indices + n + 12, low_mask, shift, &low.d, &high.d);
        if (inverse)
            for (int i = PLIM__PERMUTE_ROUNDS - 2; i >= 0; i -= 2) {
                step_avx2(&low, &high, keys[i + 1], low_mask);
                step_avx2(&high, &low, keys[i], high_mask);
            }
        else
            for (int i = 0; i < PLIM__PERMUTE_ROUNDS; i += 2) {
                step_avx2(&high, &low, keys[i], high_mask);
                step_avx2(&low, &high, keys[i + 1], low_mask);
            }
        join_avx2(indices + n, shift, low.a, high.a);
        join_avx2(indices + n + 4, shift, low.b, high.b);
        join_avx2(indices + n + 8, shift, low.c, high.c);
        join_avx2(indices + n + 12, shift, low.d, high.d);
    }
}

#define WALK_CHUNK 256 /* a multiple of sixteen */
#define WALK_FEW 2     /* up to this many are passed one by one */

/* Repeats passes until all indices are inside; gathers the others, so that each pass is dense. */
void plim__permute_many(const plim__permute_t *permute, int64_t *indices, int64_t count,
                        bool inverse)
{
    pass_fn wide = __builtin_cpu_supports("avx2") ? pass_avx2 : pass_scalar;
    int64_t walking[WALK_CHUNK] = {0};
    int32_t positions[WALK_CHUNK] = {0};
    for (int64_t begin = 0; begin < count; begin += WALK_CHUNK) {
        int64_t *chunk = indices + begin;
        int32_t left = (int32_t)(count - begin < WALK_CHUNK ? count - begin : WALK_CHUNK);
        for (int32_t i = 0; i < left; i++)
            positions[i] = i;
        while (left > 0) {
            int32_t size = left;
            for (int32_t i = 0; i < size; i++)
                walking[i] = chunk[positions[i]];
            if (size <= WALK_FEW)
                pass_scalar(permute, walking, size, inverse);
            else
                wide(permute, walking, (size + 15) & ~15, inverse); /* past the end is garbage */
            left = 0;
            for (int32_t i = 0; i < size; i++) {
                chunk[positions[i]] = walking[i];
                positions[left] = positions[i];
                left += (uint64_t)walking[i] >= permute->count;
            }
        }
    }
}
