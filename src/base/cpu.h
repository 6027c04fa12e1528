/* What this processor can do, where the compilers' own question does not know the word. */
#ifndef PLIM_BASE_CPU_H
#define PLIM_BASE_CPU_H

#include <stdbool.h>

#if defined(__x86_64__)
#include <cpuid.h>

/* AVX2 (with the system's consent to its registers) and F16C, of which clang 14 knows the first
 * only. */
static inline bool plim__cpu_avx2_f16c(void)
{
    unsigned eax, ebx, ecx, edx;
    __builtin_cpu_init();
    return __builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
           (ecx & bit_F16C) != 0;
}
#endif

#endif
