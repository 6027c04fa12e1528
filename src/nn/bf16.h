/* bfloat16, the upper half of a float: rounded to nearest, ties to even; a NaN becomes a
 * quiet NaN. Without branches, so that loops over it are vectorised. */
#ifndef PLIM_NN_BF16_H
#define PLIM_NN_BF16_H

#include <stdint.h>
#include <string.h>

static inline __attribute__((always_inline)) uint16_t plim__bf16_from_f32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    const uint32_t rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    const uint32_t quiet = bits | 0x400000u;
    return (uint16_t)(((bits & 0x7fffffffu) > 0x7f800000u ? quiet : rounded) >> 16);
}

static inline __attribute__((always_inline)) float plim__f32_from_bf16(uint16_t half)
{
    const uint32_t bits = (uint32_t)half << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

#endif
