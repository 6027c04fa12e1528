#include "nn/lanes_16.h"

#include "nn/kernels_body.h"

const plim__kernels_t plim__kernels_avx512 = KERNELS;
