#include "nn/vector.h"

#include "base/cpu.h"
#include "nn/bf16.h"

plim__vector_path_t plim__vector_path(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return PLIM__VECTOR_AVX512;
    if (plim__cpu_avx2_f16c())
        return PLIM__VECTOR_AVX2;
    return PLIM__VECTOR_BASELINE;
}

PLIM__KERNEL void add_body(float *restrict to, const float *restrict from, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += from[i];
}
PLIM__VECTORISED(add, (float *to, const float *from, int64_t count), (to, from, count))

void plim__vector_add(float *to, const float *from, int64_t count)
{
    add(to, from, count);
}

PLIM__KERNEL void widen_body(const uint16_t *restrict from, float *restrict to, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = plim__f32_from_bf16(from[i]);
}
PLIM__VECTORISED(widen, (const uint16_t *from, float *to, int64_t count), (from, to, count))

void plim__vector_widen(const uint16_t *from, float *to, int64_t count)
{
    widen(from, to, count);
}
