/*
 * Plain loops for the compiler to vectorise, compiled three times: for the baseline, for AVX2 and
 * for AVX-512, chosen at run time. Sums are written in a fixed order and nothing is fused, so all
 * three give the same bits. The AVX2 path also needs F16C.
 *
 *     PLIM__KERNEL void scale_body(float *x, float by, int64_t count) { … }
 *     PLIM__VECTORISED(scale, (float *x, float by, int64_t count), (x, by, count))
 *
 * defines scale(x, by, count).
 */
#ifndef PLIM_NN_VECTOR_H
#define PLIM_NN_VECTOR_H

#include <stdint.h>

typedef enum plim__vector_path {
    PLIM__VECTOR_BASELINE = 0,
    PLIM__VECTOR_AVX2,
    PLIM__VECTOR_AVX512
} plim__vector_path_t;

/* The best path that this processor has. */
plim__vector_path_t plim__vector_path(void);

/* to[i] += from[i]; and bfloat16 as float. The arrays do not overlap. */
void plim__vector_add(float *to, const float *from, int64_t count);
void plim__vector_widen(const uint16_t *from, float *to, int64_t count);

#define PLIM__KERNEL static inline __attribute__((always_inline))

#define PLIM__VECTORISED(name, parameters, arguments)                                              \
    __attribute__((                                                                                \
        target("avx512f,avx512bw,avx512dq,avx512vl"))) static void name##_avx512 parameters        \
    {                                                                                              \
        name##_body arguments;                                                                     \
    }                                                                                              \
    __attribute__((target("avx2"))) static void name##_avx2 parameters                             \
    {                                                                                              \
        name##_body arguments;                                                                     \
    }                                                                                              \
    static void name##_baseline parameters                                                         \
    {                                                                                              \
        name##_body arguments;                                                                     \
    }                                                                                              \
    static void name parameters                                                                    \
    {                                                                                              \
        switch (plim__vector_path()) {                                                             \
        case PLIM__VECTOR_AVX512:                                                                  \
            name##_avx512 arguments;                                                               \
            break;                                                                                 \
        case PLIM__VECTOR_AVX2:                                                                    \
            name##_avx2 arguments;                                                                 \
            break;                                                                                 \
        default:                                                                                   \
            name##_baseline arguments;                                                             \
        }                                                                                          \
    }

#endif
