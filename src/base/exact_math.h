/*
 * Exponentials and logarithms from additions, multiplications and divisions alone, so that tables
 * made with them have the same bits on every machine; libm may differ in the last bit.
 */
#ifndef PLIM_BASE_EXACT_MATH_H
#define PLIM_BASE_EXACT_MATH_H

#include <math.h>

/* 2^x for |x| < 1000, within a few units of the last place. */
static inline double plim__exp2(double x)
{
    int whole = (int)floor(x);
    double y = (x - whole) * 0.69314718055994530942;
    double term = 1;
    double sum = 1;
    for (int i = 1; i <= 24; i++) {
        term *= y / i;
        sum += term;
    }
    return ldexp(sum, whole);
}

static inline double plim__exp(double x)
{
    return plim__exp2(x * 1.44269504088896340736);
}

/* The binary logarithm of x > 0. */
static inline double plim__log2(double x)
{
    int exponent;
    double mantissa = frexp(x, &exponent); /* in [1/2, 1): t below is in [-1/3, 0) */
    double t = (mantissa - 1) / (mantissa + 1);
    double power = t;
    double sum = 0;
    for (int i = 1; i < 70; i += 2) {
        sum += power / i;
        power *= t * t;
    }
    return exponent + sum * 2 * 1.44269504088896340736;
}

#endif
