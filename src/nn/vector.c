#include "nn/vector.h"

#include "base/cpu.h"

plim__vector_path_t plim__vector_path(void)
{
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
        return PLIM__VECTOR_AVX512;
    if (plim__cpu_avx2_f16c())
        return PLIM__VECTOR_AVX2;
    return PLIM__VECTOR_BASELINE;
}
