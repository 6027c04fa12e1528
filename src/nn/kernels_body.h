/* All kernels on whichever lanes_*.h was included before: for the files kernels_*.c only. */
#ifndef PLIM_NN_KERNELS_BODY_H
#define PLIM_NN_KERNELS_BODY_H

#include "nn/kernels_heads.h"
#include "nn/kernels_max.h"
#include "nn/kernels_scales.h"
#include "nn/kernels_sum.h"

#define KERNELS                                                                                    \
    {                                                                                              \
        .sum = sum_rows, .max = max_rows, .max_back = max_back_rows, .scales_gcn = scales_gcn,     \
        .scales_mean = scales_mean, .dots = dots, .add_scaled = add_scaled,                        \
    }

#endif
