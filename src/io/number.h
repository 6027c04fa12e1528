/*
 * Parses decimal numbers in text that ends with a byte which is not part of a number (the text
 * reader keeps a newline there). Each function moves *at past the number, or returns false and
 * leaves *at unchanged when there is none.
 */
#ifndef PLIM_IO_NUMBER_H
#define PLIM_IO_NUMBER_H

#include "base/check.h"

#include <locale.h>

/* An optional sign and digits, within 64 bits. */
static inline bool plim__number_i64(const char **at, int64_t *value_out)
{
    const char *p = *at;
    bool negative = *p == '-';
    p += negative || *p == '+';
    const char *digits = p;
    uint64_t value = 0;
    for (unsigned digit; (digit = (unsigned)(unsigned char)*p - '0') <= 9; p++) {
        /* 18 digits always fit. */
        if (p - digits >= 18 && (__builtin_mul_overflow(value, 10, &value) ||
                                 __builtin_add_overflow(value, digit, &value)))
            return false;
        if (p - digits < 18)
            value = value * 10 + digit;
    }
    if (p == digits || value > (uint64_t)INT64_MAX + negative)
        return false;
    *value_out = negative ? (int64_t)(0 - value) : (int64_t)value;
    *at = p;
    return true;
}

/*
 * The double nearest to the decimal, ties to even; nan, inf and infinity in any case. `c_locale` is
 * newlocale's "C", for numbers of more than 19 digits or far from 1.
 */
bool plim__number_f64(const char **at, locale_t c_locale, double *value_out);

#endif
