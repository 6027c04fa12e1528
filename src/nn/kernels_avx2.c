#include "nn/lanes_8.h"

#include "nn/kernels_body.h"

const plim__kernels_t plim__kernels_avx2 = KERNELS;
