#include "nn/lanes_4.h"

#include "nn/kernels_body.h"

const plim__kernels_t plim__kernels_baseline = KERNELS;
