#include "io/number.h"

#include <math.h>
#include <stdlib.h>
#include <strings.h>

/* 5^27 is the largest power of five below 2^63. */
#define POWERS 28

static const uint64_t powers_of_five[POWERS] = {
    1u,
    5u,
    25u,
    125u,
    625u,
    3125u,
    15625u,
    78125u,
    390625u,
    1953125u,
    9765625u,
    48828125u,
    244140625u,
    1220703125u,
    6103515625u,
    30517578125u,
    152587890625u,
    762939453125u,
    3814697265625u,
    19073486328125u,
    95367431640625u,
    476837158203125u,
    2384185791015625u,
    11920928955078125u,
    59604644775390625u,
    298023223876953125u,
    1490116119384765625u,
    7450580596923828125u,
};

static const double powers_of_ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                       1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                       1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};

/* Rounds value * 2^exponent. `value` has at least 54 bits; `inexact`: nonzero bits were cut off. */
static double round_to_double(uint64_t value, bool inexact, int exponent)
{
    int drop = 64 - __builtin_clzll(value) - 53;
    uint64_t kept = value >> drop;
    uint64_t cut = value & (((uint64_t)1 << drop) - 1);
    uint64_t half = (uint64_t)1 << (drop - 1);
    if (cut > half || (cut == half && (inexact || (kept & 1) != 0)))
        kept++;
    return ldexp((double)kept, exponent + drop);
}

/* digits * 10^power for digits > 0 and |power| < POWERS: exact, then rounded once. */
static double scale(uint64_t digits, int power)
{
    int shift = __builtin_clzll(digits);
    unsigned __int128 wide = digits << shift;
    if (power >= 0) {
        wide *= powers_of_five[power];
        int high_bits = 64 - __builtin_clzll(powers_of_five[power]);
        uint64_t top = (uint64_t)(wide >> high_bits);
        /* The product of a 64-bit and a high_bits-bit number has 63 + high_bits bits or one more.
         */
        bool inexact = (wide & (((unsigned __int128)1 << high_bits) - 1)) != 0;
        return round_to_double(top, inexact, power - shift + high_bits);
    }
    uint64_t divisor = powers_of_five[-power];
    int widen = 63 - __builtin_clzll(divisor);
    wide <<= widen;
    uint64_t quotient = (uint64_t)(wide / divisor);
    return round_to_double(quotient, wide % divisor != 0, power - shift - widen);
}

/* A decimal number: digits * 10^power. */
typedef struct decimal {
    uint64_t digits;
    int64_t power;
    int64_t num_digits; /* significant digits; only the first 19 are in `digits` */
} decimal_t;

static const char *take_digits(const char *p, decimal_t *decimal, bool fraction)
{
    for (unsigned digit; (digit = (unsigned)(unsigned char)*p - '0') <= 9; p++) {
        if (decimal->num_digits < 19)
            decimal->digits = decimal->digits * 10 + digit;
        decimal->num_digits += decimal->digits != 0;
        decimal->power -= fraction;
    }
    return p;
}

static const char *take_exponent(const char *p, decimal_t *decimal)
{
    const char *q = p + 1;
    bool negative = *q == '-';
    int64_t exponent = 0;
    q += negative || *q == '+';
    if (*q < '0' || *q > '9')
        return p;
    for (; *q >= '0' && *q <= '9'; q++)
        exponent = exponent < 1000000 ? exponent * 10 + (*q - '0') : exponent;
    decimal->power += negative ? -exponent : exponent;
    return q;
}

static bool take_word(const char **at, bool negative, double *value_out)
{
    /* strncasecmp stops at the byte that ends the field, since no word contains it. */
    static const struct {
        const char *text;
        int size;
        double value;
    } words[] = {{"infinity", 8, INFINITY}, {"inf", 3, INFINITY}, {"nan", 3, NAN}};
    for (int i = 0; i < 3; i++) {
        if (strncasecmp(*at, words[i].text, (size_t)words[i].size) == 0) {
            *at += words[i].size;
            *value_out = negative ? -words[i].value : words[i].value;
            return true;
        }
    }
    return false;
}

bool plim__number_f64(const char **at, locale_t c_locale, double *value_out)
{
    const char *p = *at;
    bool negative = *p == '-';
    p += negative || *p == '+';
    const char *begin = p;
    decimal_t decimal = {0, 0, 0};
    p = take_digits(p, &decimal, false);
    int64_t seen = p - begin;
    if (*p == '.') {
        const char *dot = p;
        p = take_digits(p + 1, &decimal, true);
        seen += p - dot - 1;
    }
    if (seen == 0) {
        if (!take_word(&begin, negative, value_out))
            return false;
        *at = begin;
        return true;
    }
    if (*p == 'e' || *p == 'E')
        p = take_exponent(p, &decimal);
    double value;
    if (decimal.digits == 0)
        value = 0;
    else if (decimal.digits <= (uint64_t)1 << 53 && decimal.power >= -22 && decimal.power <= 22 &&
             decimal.num_digits <= 19)
        value = decimal.power < 0 ? (double)decimal.digits / powers_of_ten[-decimal.power]
                                  : (double)decimal.digits * powers_of_ten[decimal.power];
    else if (decimal.num_digits <= 19 && decimal.power > -POWERS && decimal.power < POWERS)
        value = scale(decimal.digits, (int)decimal.power);
    else
        value = strtod_l(begin, NULL, c_locale);
    *at = p;
    *value_out = negative ? -value : value;
    return true;
}
