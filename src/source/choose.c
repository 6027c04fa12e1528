/*
 * The picks are a heap, the largest key at the root, until they are sorted. With replacement they
 * are the draws: the sum that each waits for, and its number.
 */
#include "source/choose.h"

#include <float.h>
#include <string.h>

/* Weighs an entry of weight 0, so that it comes after all others: the least weight is 1e-45. */
#define NOTHING 1e-80

/* (0, 1), 52 bits and a half. */
static inline double uniform(uint64_t key, int64_t number)
{
    return ((double)(plim__rng_u64(key, (uint64_t)number) >> 12) + 0.5) * 0x1p-52;
}

/* The natural logarithm of x in (0, 1], from additions, multiplications and divisions alone. */
static double log_of(double x)
{
    static const double inverse[] = {1.0 / 3,  1.0 / 5,  1.0 / 7,  1.0 / 9,  1.0 / 11,
                                     1.0 / 13, 1.0 / 15, 1.0 / 17, 1.0 / 19, 1.0 / 21};
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    int exponent = (int)(bits >> 52) - 1023;
    bits = (bits & 0x000fffffffffffffu) | 0x3ff0000000000000u;
    double mantissa;
    memcpy(&mantissa, &bits, sizeof mantissa);
    if (mantissa > 1.41421356237309505) {
        mantissa /= 2;
        exponent++;
    }
    const double t = (mantissa - 1) / (mantissa + 1), square = t * t;
    double sum = 0;
    for (int i = (int)(sizeof inverse / sizeof inverse[0]) - 1; i >= 0; i--)
        sum = (sum + inverse[i]) * square;
    return exponent * 0.69314718055994530942 + 2 * t * (1 + sum);
}

/* Positive doubles are ordered as their bits. */
static inline uint64_t bits_of(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline bool is_less(plim__pick_t a, plim__pick_t b)
{
    return a.key < b.key || (a.key == b.key && a.position < b.position);
}

static void sift_down(plim__pick_t *picks, int64_t count, int64_t at)
{
    const plim__pick_t pick = picks[at];
    for (int64_t child; (child = 2 * at + 1) < count; at = child) {
        child += child + 1 < count && is_less(picks[child], picks[child + 1]);
        if (!is_less(pick, picks[child]))
            break;
        picks[at] = picks[child];
    }
    picks[at] = pick;
}

static void make_heap(plim__pick_t *picks, int64_t count)
{
    for (int64_t i = count / 2 - 1; i >= 0; i--)
        sift_down(picks, count, i);
}

/* Sorts a heap, ascending. */
static void sort_heap(plim__pick_t *picks, int64_t count)
{
    for (int64_t last = count - 1; last > 0; last--) {
        const plim__pick_t largest = picks[0];
        picks[0] = picks[last];
        picks[last] = largest;
        sift_down(picks, last, 0);
    }
}

/* Keeps the smallest picks, as many as the fan-out. */
static inline void keep(plim__choosing_t *choosing, uint64_t key, int64_t position)
{
    const plim__pick_t pick = {key, position};
    if (choosing->count < choosing->hop->fanout) {
        choosing->picks[choosing->count++] = pick;
        if (choosing->count == choosing->hop->fanout)
            make_heap(choosing->picks, choosing->count);
    } else if (is_less(pick, choosing->picks[0])) {
        choosing->picks[0] = pick;
        sift_down(choosing->picks, choosing->count, 0);
    }
}

bool plim__choose_needs(plim__choice_t choice, const plim__hop_t *hop, int64_t degree)
{
    if (degree == 0 || hop->fanout == 0)
        return false;
    return choice != PLIM__CHOOSE_BY_WEIGHT ||
           (hop->fanout > 0 && (hop->replace || degree > hop->fanout));
}

static int64_t valid(const float *weights, int64_t count)
{
    int64_t i = 0;
    while (i < count && weights[i] >= 0 && weights[i] <= FLT_MAX)
        i++;
    return i;
}

static void choose_by_weight(plim__choosing_t *choosing, const float *weights, int64_t first,
                             int64_t count)
{
    const bool replace = choosing->hop->replace;
    for (int64_t i = 0; i < count && replace; i++)
        choosing->total += (double)weights[i];
    for (int64_t i = 0; i < count && !replace; i++) {
        const double u = uniform(choosing->key, first + i);
        const double weight = weights[i] > 0 ? (double)weights[i] : NOTHING;
        /* -log(1 - u) is at least u, so most entries of a long list need no logarithm. */
        if (choosing->count == choosing->hop->fanout &&
            u * 0.999999 > of_bits(choosing->picks[0].key) * weight)
            continue;
        keep(choosing, bits_of(-log_of(1 - u) / weight), first + i);
    }
}

static void choose_by_time(plim__choosing_t *choosing, const int64_t *times, int64_t first,
                           int64_t count)
{
    const int64_t fanout = choosing->hop->fanout;
    for (int64_t i = 0; i < count; i++) {
        if (times[i] > choosing->until)
            continue;
        choosing->eligible++;
        if (fanout < 0)
            choosing->positions[choosing->count++] = first + i;
        else if (choosing->choice == PLIM__CHOOSE_LATEST) /* descending by time and position */
            keep(choosing, ~((uint64_t)times[i] ^ (uint64_t)1 << 63), -(first + i));
        else if (!choosing->hop->replace)
            keep(choosing, bits_of(uniform(choosing->key, first + i)), first + i);
    }
    choosing->total = (double)choosing->eligible;
}

int64_t plim__choose(plim__choosing_t *choosing, const void *values, int64_t first, int64_t count)
{
    if (choosing->choice != PLIM__CHOOSE_BY_WEIGHT) {
        choose_by_time(choosing, values, first, count);
        return count;
    }
    const int64_t good = valid(values, count);
    choose_by_weight(choosing, values, first, good);
    choosing->eligible += good;
    return good;
}

bool plim__choose_twice(plim__choosing_t *choosing)
{
    const plim__hop_t *hop = choosing->hop;
    if (!hop->replace || hop->fanout < 0 || choosing->eligible == 0 ||
        choosing->choice == PLIM__CHOOSE_LATEST)
        return false;
    choosing->equal = choosing->choice != PLIM__CHOOSE_BY_WEIGHT || choosing->total == 0;
    if (choosing->equal)
        choosing->total = (double)choosing->eligible;
    choosing->count = hop->fanout;
    for (int64_t i = 0; i < choosing->count; i++)
        choosing->picks[i] =
            (plim__pick_t){bits_of(uniform(choosing->key, i) * choosing->total), i};
    make_heap(choosing->picks, choosing->count);
    sort_heap(choosing->picks, choosing->count);
    return true;
}

void plim__choose_again(plim__choosing_t *choosing, const void *values, int64_t first,
                        int64_t count)
{
    const bool weighs = choosing->choice == PLIM__CHOOSE_BY_WEIGHT;
    for (int64_t i = 0; i < count && choosing->next < choosing->count; i++) {
        if (!weighs && ((const int64_t *)values)[i] > choosing->until)
            continue;
        choosing->sum += choosing->equal ? 1 : (double)((const float *)values)[i];
        for (; choosing->next < choosing->count; choosing->next++) {
            const plim__pick_t pick = choosing->picks[choosing->next];
            if (of_bits(pick.key) >= choosing->sum)
                break;
            choosing->positions[pick.position] = first + i;
        }
    }
}

/* The latest, ascending by time; with replacement, draws from them. */
static int64_t end_latest(plim__choosing_t *choosing)
{
    const int64_t last = choosing->count - 1;
    int64_t count = choosing->count;
    uint64_t counter = 0;
    if (choosing->hop->replace && count > 0) {
        count = choosing->hop->fanout;
        for (int64_t i = 0; i < count; i++) {
            const uint64_t drawn =
                plim__rng_below(choosing->key, &counter, (uint64_t)choosing->count);
            choosing->positions[i] = -choosing->picks[last - (int64_t)drawn].position;
        }
    } else {
        for (int64_t i = 0; i < count; i++)
            choosing->positions[i] = -choosing->picks[last - i].position;
    }
    return count;
}

int64_t plim__choose_end(plim__choosing_t *choosing)
{
    const plim__hop_t *hop = choosing->hop;
    if (hop->fanout < 0 || (hop->replace && choosing->choice != PLIM__CHOOSE_LATEST))
        return choosing->count;
    const bool all = choosing->eligible <= hop->fanout;
    if (all && choosing->choice == PLIM__CHOOSE_UP_TO)
        for (int64_t i = 0; i < choosing->count; i++) /* in the order of the list */
            choosing->picks[i].key = 0;
    if (all) /* not a heap yet, or with other keys */
        make_heap(choosing->picks, choosing->count);
    sort_heap(choosing->picks, choosing->count);
    if (choosing->choice == PLIM__CHOOSE_LATEST)
        return end_latest(choosing);
    for (int64_t i = 0; i < choosing->count; i++)
        choosing->positions[i] = choosing->picks[i].position;
    return choosing->count;
}
