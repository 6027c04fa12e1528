/* The processors: how many this process may use, and features that __builtin_cpu_supports does not
 * know in every compiler. */
#ifndef PLIM_BASE_CPU_H
#define PLIM_BASE_CPU_H

#include <cpuid.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <unistd.h>

/* AVX2 (enabled by the system) and F16C; clang 14 only knows the former. Queried once: cpuid is
 * slow, and slower in a virtual machine. */
static inline bool plim__cpu_avx2_f16c(void)
{
    enum { UNKNOWN, NO, YES };
    static _Atomic int known = UNKNOWN;
    int answer = atomic_load_explicit(&known, memory_order_relaxed);
    if (answer == UNKNOWN) {
        unsigned eax, ebx, ecx, edx;
        __builtin_cpu_init();
        answer = __builtin_cpu_supports("avx2") && __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 &&
                         (ecx & bit_F16C) != 0
                     ? YES
                     : NO;
        atomic_store_explicit(&known, answer, memory_order_relaxed);
    }
    return answer == YES;
}

/* The number of CPUs that this process may use; less than 1 if the kernel does not say. */
static inline long plim__cpu_count(void)
{
    unsigned long mask[1024]; /* cpu_set_t ends at 1,024 CPUs, machines do not */
    memset(mask, 0, sizeof mask);
    if (sched_getaffinity(0, sizeof mask, (cpu_set_t *)mask) != 0)
        return sysconf(_SC_NPROCESSORS_ONLN);
    return CPU_COUNT_S(sizeof mask, (cpu_set_t *)mask);
}

#endif
