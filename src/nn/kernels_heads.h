/* Products of rows that consist of heads: plim__kernels_t.dots, add_scaled. */
#ifndef PLIM_NN_KERNELS_HEADS_H
#define PLIM_NN_KERNELS_HEADS_H

#include "nn/kernels_common.h"

#define SIXTEEN (16 / LANES)

/* Column c is added in lane c % 16, whatever the vectors' width: so the bits are the same. */
LANES_INLINE float dot(const float *a, const float *b, int64_t count)
{
    lanes_sixteen_t sums;
    UNROLL
    for (int i = 0; i < SIXTEEN; i++)
        sums.part[i] = lanes_set(0);
    int64_t c = 0;
    for (; c + 16 <= count; c += 16) {
        UNROLL
        for (int i = 0; i < SIXTEEN; i++)
            sums.part[i] =
                lanes_add(sums.part[i], lanes_mul(lanes_load(a + c + i * LANES, PLIM__F32),
                                                  lanes_load(b + c + i * LANES, PLIM__F32)));
    }
    UNROLL
    for (int i = 0; i < SIXTEEN; i++, c += LANES) {
        const int64_t left = count - c;
        if (left >= LANES)
            sums.part[i] = lanes_add(sums.part[i], lanes_mul(lanes_load(a + c, PLIM__F32),
                                                             lanes_load(b + c, PLIM__F32)));
        else if (left > 0)
            sums.part[i] = lanes_add(sums.part[i], lanes_mul(lanes_load_some(a + c, left),
                                                             lanes_load_some(b + c, left)));
    }
    return lanes_total(&sums);
}

LANES_TARGET static void dots(int64_t heads, int64_t channels, const float *a, const float *b,
                              float *out)
{
    for (int64_t h = 0; h < heads; h++)
        out[h] = dot(a + h * channels, b + h * channels, channels);
}

LANES_TARGET static void add_scaled(int64_t heads, int64_t channels, const float *scales,
                                    const float *x, float *y)
{
    for (int64_t h = 0; h < heads; h++, x += channels, y += channels) {
        const lanes_t scale = lanes_set(scales[h]);
        int64_t c = 0;
        for (; c + LANES <= channels; c += LANES)
            lanes_store(y + c, PLIM__F32,
                        lanes_add(lanes_load(y + c, PLIM__F32),
                                  lanes_mul(scale, lanes_load(x + c, PLIM__F32))));
        if (c < channels)
            lanes_store_some(y + c, channels - c,
                             lanes_add(lanes_load_some(y + c, channels - c),
                                       lanes_mul(scale, lanes_load_some(x + c, channels - c))));
    }
}

#endif
