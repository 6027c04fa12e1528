#include "nn/lanes_4.h"

#include "nn/kernels_body.h"
#include "nn/vector.h"

const plim__kernels_t plim__kernels_baseline = KERNELS;

const plim__kernels_t *plim__kernels(void)
{
    switch (plim__vector_path()) {
    case PLIM__VECTOR_AVX512:
        return &plim__kernels_avx512;
    case PLIM__VECTOR_AVX2:
        return &plim__kernels_avx2;
    default:
        return &plim__kernels_baseline;
    }
}
