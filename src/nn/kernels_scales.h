/* Scales of linear sums: plim__kernels_t.scales_gcn, scales_mean. */
#ifndef PLIM_NN_KERNELS_SCALES_H
#define PLIM_NN_KERNELS_SCALES_H

#include "nn/kernels_common.h"

/* LANES numbers from `from` on, of which `count` are there. */
LANES_INLINE lanes_t load_int32(const int32_t *from, int64_t count)
{
    if (count >= LANES)
        return lanes_from_int32(from);
    int32_t copy[LANES] = {0};
    memcpy(copy, from, (size_t)count * sizeof copy[0]);
    return lanes_from_int32(copy);
}

LANES_INLINE void store_count(float *to, int64_t count, lanes_t values)
{
    store_part(to, PLIM__F32, count >= LANES ? 0 : count, values);
}

/* Edges of LANES destinations, of which `count` are there. */
LANES_INLINE lanes_t load_drawn(const int32_t *indptr, int64_t count)
{
    int32_t drawn[LANES] = {0};
    for (int64_t i = 0; i < LANES && i < count; i++)
        drawn[i] = indptr[i + 1] - indptr[i];
    return lanes_from_int32(drawn);
}

LANES_TARGET static void scales_gcn(const int32_t *indptr, const int32_t *degrees, int64_t most,
                                    int64_t num_dst, int64_t num_src, float *src, float *dst,
                                    float *self)
{
    const lanes_t one = lanes_set(1);
    const lanes_t cap = lanes_set((float)most);
    for (int64_t u = 0; u < num_src; u += LANES) {
        const lanes_t whole = load_int32(degrees + u, num_src - u);
        const lanes_t degree = lanes_choose(lanes_exceeds(whole, cap), cap, whole);
        store_count(src + u, num_src - u, lanes_div(one, lanes_sqrt(lanes_add(degree, one))));
    }
    for (int64_t v = 0; v < num_dst; v += LANES) {
        const int64_t count = num_dst - v;
        const lanes_t drawn = lanes_add(load_drawn(indptr + v, count), one);
        const lanes_t scale = lanes_div(one, lanes_sqrt(drawn));
        store_count(dst + v, count, scale);
        store_count(self + v, count,
                    lanes_mul(scale, load_part(src + v, PLIM__F32, count >= LANES ? 0 : count)));
    }
}

LANES_TARGET static void scales_mean(const int32_t *indptr, int64_t num_dst, float *dst)
{
    for (int64_t v = 0; v < num_dst; v += LANES) {
        const lanes_t drawn = load_drawn(indptr + v, num_dst - v);
        store_count(dst + v, num_dst - v,
                    lanes_where_positive(drawn, lanes_div(lanes_set(1), drawn)));
    }
}

#endif
