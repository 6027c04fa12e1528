/*
 * Sums over an array in an order that does not depend on the instruction set: sixteen partial sums,
 * each of every sixteenth value, then one fixed tree. Written with the compiler's vector types,
 * since it vectorises plain loops of this kind badly.
 */
#ifndef PLIM_NN_SUM_H
#define PLIM_NN_SUM_H

#include <math.h>
#include <stdint.h>
#include <string.h>

typedef float plim__eight_t __attribute__((vector_size(32)));
typedef int32_t plim__eight_bits_t __attribute__((vector_size(32)));
typedef float plim__four_t __attribute__((vector_size(16)));
typedef double plim__four_wide_t __attribute__((vector_size(32)));

/* `count` < 16 values from x, then `fill`. */
static inline __attribute__((always_inline)) void plim__sum_rest(const float *x, int64_t count,
                                                                 float fill, float *rest)
{
    for (int64_t i = 0; i < 16; i++)
        rest[i] = fill;
    for (int64_t i = 0; i < count; i++)
        rest[i] = x[i];
}

static inline __attribute__((always_inline)) float plim__sum(const float *x, int64_t count)
{
    plim__eight_t a = {0}, b = {0}, v;
    float rest[16];
    for (int64_t i = 0; i < count; i += 16) {
        const float *from = x + i;
        if (count - i < 16) {
            plim__sum_rest(from, count - i, 0.0f, rest);
            from = rest;
        }
        memcpy(&v, from, sizeof v);
        a += v;
        memcpy(&v, from + 8, sizeof v);
        b += v;
    }
    a += b;
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

static inline __attribute__((always_inline)) float plim__sum_products(const float *x,
                                                                      const float *y, int64_t count)
{
    plim__eight_t a = {0}, b = {0}, v, w;
    float rest[16], others[16];
    for (int64_t i = 0; i < count; i += 16) {
        const float *from = x + i, *with = y + i;
        if (count - i < 16) {
            plim__sum_rest(from, count - i, 0.0f, rest);
            plim__sum_rest(with, count - i, 0.0f, others);
            from = rest;
            with = others;
        }
        memcpy(&v, from, sizeof v);
        memcpy(&w, with, sizeof w);
        a += v * w;
        memcpy(&v, from + 8, sizeof v);
        memcpy(&w, with + 8, sizeof w);
        b += v * w;
    }
    a += b;
    return ((a[0] + a[4]) + (a[2] + a[6])) + ((a[1] + a[5]) + (a[3] + a[7]));
}

/* The sum of squares, in double precision. */
static inline __attribute__((always_inline)) double plim__sum_squares(const float *x, int64_t count)
{
    plim__four_wide_t sums[4] = {{0}};
    float rest[16];
    for (int64_t i = 0; i < count; i += 16) {
        const float *from = x + i;
        if (count - i < 16) {
            plim__sum_rest(from, count - i, 0.0f, rest);
            from = rest;
        }
        for (int64_t k = 0; k < 4; k++) {
            plim__four_t v;
            memcpy(&v, from + 4 * k, sizeof v);
            const plim__four_wide_t wide = __builtin_convertvector(v, plim__four_wide_t);
            sums[k] += wide * wide;
        }
    }
    const plim__four_wide_t all = (sums[0] + sums[1]) + (sums[2] + sums[3]);
    return (all[0] + all[1]) + (all[2] + all[3]);
}

/* The largest value, or -infinity without any; skips NaNs. */
static inline __attribute__((always_inline)) float plim__largest(const float *x, int64_t count)
{
    plim__eight_t a, b, v, w;
    float largest = -INFINITY;
    if (count < 16) {
        for (int64_t i = 0; i < count; i++)
            largest = x[i] > largest ? x[i] : largest;
        return largest;
    }
    for (int k = 0; k < 8; k++)
        a[k] = b[k] = -INFINITY;
    for (int64_t i = 0; i < count; i += 16) {
        const float *from = x + (i < count - 16 ? i : count - 16); /* reads some values twice */
        memcpy(&v, from, sizeof v);
        memcpy(&w, from + 8, sizeof w);
        const plim__eight_bits_t more_a = v > a, more_b = w > b;
        a = (plim__eight_t)(((plim__eight_bits_t)v & more_a) | ((plim__eight_bits_t)a & ~more_a));
        b = (plim__eight_t)(((plim__eight_bits_t)w & more_b) | ((plim__eight_bits_t)b & ~more_b));
    }
    for (int k = 0; k < 8; k++) {
        largest = a[k] > largest ? a[k] : largest;
        largest = b[k] > largest ? b[k] : largest;
    }
    return largest;
}

#endif
