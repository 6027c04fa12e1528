/*
 * e to the x in single precision, without branches and without fused arithmetic: vectorised in a
 * loop, the same bits everywhere, at most 2 units in the last place from the true
 * value (1 in normal numbers, mostly). Overflow gives infinity, NaN gives NaN.
 */
#ifndef PLIM_NN_EXP_H
#define PLIM_NN_EXP_H

#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) float plim__exp_power_of_two(uint32_t exponent)
{
    const uint32_t bits = (exponent + 127u) << 23;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline __attribute__((always_inline)) float plim__expf(float x)
{
    x = x > 89.0f ? 89.0f : x;
    x = x < -104.0f ? -104.0f : x;
    /* x = n ln 2 + r: adding 1.5 * 2^23 rounds to a whole number, which is then in the low bits. */
    const float shifted = x * 1.44269504f + 12582912.0f;
    const float n = shifted - 12582912.0f;
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = (p * (r * r) + r) + 1.0f;
    /* Times 2^n in two steps, so that subnormal results and overflow need no special case. */
    uint32_t whole;
    memcpy(&whole, &shifted, sizeof whole);
    whole -= 0x4b400000u;
    const uint32_t half = (whole >> 1) | (whole & 0x80000000u);
    return p * plim__exp_power_of_two(half) * plim__exp_power_of_two(whole - half);
}

#endif
