/* Overflow-checked arithmetic on sizes and counts: true when the result is exact; or saturating. */
#ifndef PLIM_BASE_CHECK_H
#define PLIM_BASE_CHECK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

static inline bool plim__add_i64(int64_t a, int64_t b, int64_t *sum_out)
{
    return !__builtin_add_overflow(a, b, sum_out);
}

static inline bool plim__mul_i64(int64_t a, int64_t b, int64_t *product_out)
{
    return !__builtin_mul_overflow(a, b, product_out);
}

static inline bool plim__add_size(size_t a, size_t b, size_t *sum_out)
{
    return !__builtin_add_overflow(a, b, sum_out);
}

static inline bool plim__mul_size(size_t a, size_t b, size_t *product_out)
{
    return !__builtin_mul_overflow(a, b, product_out);
}

/* For non-negative numbers: the result, or the largest number of the type. */
static inline int64_t plim__add_saturating_i64(int64_t a, int64_t b)
{
    int64_t sum;
    return plim__add_i64(a, b, &sum) ? sum : INT64_MAX;
}

static inline int64_t plim__mul_saturating_i64(int64_t a, int64_t b)
{
    int64_t product;
    return plim__mul_i64(a, b, &product) ? product : INT64_MAX;
}

static inline size_t plim__add_saturating_size(size_t a, size_t b)
{
    size_t sum;
    return plim__add_size(a, b, &sum) ? sum : SIZE_MAX;
}

static inline size_t plim__mul_saturating_size(size_t a, size_t b)
{
    size_t product;
    return plim__mul_size(a, b, &product) ? product : SIZE_MAX;
}

/* The smallest multiple of `unit` (a power of two) not below `size`; sizes near SIZE_MAX saturate
 * there. */
static inline size_t plim__round_up(size_t size, size_t unit)
{
    size_t sum;
    return plim__add_size(size, unit - 1, &sum) ? sum & ~(unit - 1) : SIZE_MAX & ~(unit - 1);
}

static inline int64_t plim__min_i64(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t plim__max_i64(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

#endif
