#include "nn/vector.h"

#include "base/cpu.h"

#include <stdatomic.h>

static _Atomic int limit = PLIM__VECTOR_AVX512;

void plim__vector_limit(plim__vector_path_t most)
{
    atomic_store_explicit(&limit, (int)most, memory_order_relaxed);
}

plim__vector_path_t plim__vector_path(void)
{
    const int most = atomic_load_explicit(&limit, memory_order_relaxed);
    if (most >= PLIM__VECTOR_AVX512 && __builtin_cpu_supports("avx512f") &&
        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
        __builtin_cpu_supports("avx512vl"))
        return PLIM__VECTOR_AVX512;
    if (most >= PLIM__VECTOR_AVX2 && plim__cpu_avx2_f16c())
        return PLIM__VECTOR_AVX2;
    return PLIM__VECTOR_BASELINE;
}
