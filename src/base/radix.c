/*
 * Radix sort, from the top while a run is larger than the cache, then from the bottom.
 *
 * A run of more than RUN_MAX keys is scattered once by its highest digit into parts of about
 * RUN_AIM keys, and each part is sorted by itself: a key crosses memory once a level, and all other
 * passes stay in the second-level cache. A part is sorted digit by digit from the lowest. One
 * reading makes up to four histograms; digits that are equal in all keys are skipped.
 */
#include "base/radix.h"

#include <stdbool.h>
#include <string.h>

enum {
    RUN_MAX = 64 << 10, /* keys; two buffers of them are one megabyte */
    RUN_AIM = 16 << 10, /* far below, so that few parts of skewed keys are scattered again */
    RUN_FEW = 24,       /* sorted by insertion */
    TOP_BITS = 8,       /* at most in one scatter from the top */
    LOW_BITS = 9,       /* at most in one pass from the bottom */
    LOW_PASSES = 8
};

static void sort_few(uint64_t *keys, int64_t count)
{
    for (int64_t i = 1; i < count; i++) {
        uint64_t key = keys[i];
        int64_t j = i;
        for (; j > 0 && keys[j - 1] > key; j--)
            keys[j] = keys[j - 1];
        keys[j] = key;
    }
}

/* Converts counts to first positions; false if one digit has all keys, so that no pass is
 * needed. */
static bool count_to_first(uint32_t *counts, int digits, uint32_t total)
{
    uint32_t first = 0;
    for (int i = 0; i < digits; i++) {
        uint32_t count = counts[i];
        if (count == total)
            return false;
        counts[i] = first;
        first += count;
    }
    return true;
}

/* Counts four digits in one reading, so that the increments are independent. */
static void count_four(const uint64_t *keys, int64_t count, int shift, int width,
                       uint32_t counts[4][1 << LOW_BITS])
{
    uint64_t mask = ((uint64_t)1 << width) - 1;
    for (int64_t i = 0; i < count; i++) {
        uint64_t key = keys[i] >> shift;
        counts[0][key & mask]++;
        counts[1][key >> width & mask]++;
        counts[2][key >> 2 * width & mask]++;
        counts[3][key >> 3 * width & mask]++;
    }
}

static void count_one(const uint64_t *keys, int64_t count, int shift, int width, uint32_t *counts)
{
    uint64_t mask = ((uint64_t)1 << width) - 1;
    for (int64_t i = 0; i < count; i++)
        counts[keys[i] >> shift & mask]++;
}

/* Sorts at most RUN_MAX keys and LOW_PASSES x LOW_BITS bits, from the bottom; returns the
 * result. */
static uint64_t *sort_low(uint64_t *from, uint64_t *to, int64_t count, int bits)
{
    uint32_t counts[LOW_PASSES][1 << LOW_BITS];
    int passes = (bits + LOW_BITS - 1) / LOW_BITS;
    if (passes == 0)
        return from;
    int width = (bits + passes - 1) / passes;
    uint64_t mask = ((uint64_t)1 << width) - 1;
    memset(counts, 0, (size_t)passes * sizeof counts[0]);
    int counted = 0;
    for (; counted + 4 <= passes; counted += 4)
        count_four(from, count, counted * width, width, counts + counted);
    for (; counted < passes; counted++)
        count_one(from, count, counted * width, width, counts[counted]);
    for (int pass = 0; pass < passes; pass++) {
        uint32_t *next = counts[pass];
        int shift = pass * width;
        if (!count_to_first(next, 1 << width, (uint32_t)count))
            continue;
        for (int64_t i = 0; i < count; i++) {
            uint64_t key = from[i];
            to[next[key >> shift & mask]++] = key;
        }
        uint64_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

static void sort_run(uint64_t *from, uint64_t *other, int64_t count, int bits, uint64_t *result);

/* Scatters `from` to `other` by the highest bits, then sorts each part into `result`. */
static void sort_top(uint64_t *from, uint64_t *other, int64_t count, int bits, uint64_t *result)
{
    int64_t ends[1 << TOP_BITS] = {0};
    int width = 1;
    while (width < TOP_BITS && width < bits && count >> width > RUN_AIM)
        width++;
    int shift = bits - width;
    uint64_t mask = ((uint64_t)1 << width) - 1;
    for (int64_t i = 0; i < count; i++)
        ends[from[i] >> shift & mask]++;
    int64_t first = 0;
    for (int i = 0; i < 1 << width; i++) {
        int64_t part = ends[i];
        ends[i] = first;
        first += part;
    }
    for (int64_t i = 0; i < count; i++) {
        uint64_t key = from[i];
        other[ends[key >> shift & mask]++] = key;
    }
    first = 0;
    for (int i = 0; i < 1 << width; i++) {
        sort_run(other + first, from + first, ends[i] - first, shift,
                 result == from ? from + first : other + first);
        first = ends[i];
    }
}

/* Sorts the run at `from` into `result`, which is `from` or `other`. */
static void sort_run(uint64_t *from, uint64_t *other, int64_t count, int bits, uint64_t *result)
{
    if (count > RUN_MAX && bits > 0) {
        sort_top(from, other, count, bits, result);
        return;
    }
    uint64_t *sorted = from;
    if (count <= RUN_FEW)
        sort_few(from, count);
    else
        sorted = sort_low(from, other, count, bits);
    if (sorted != result)
        memcpy(result, sorted, (size_t)count * sizeof *result);
}

uint64_t *plim__radix_sort(uint64_t *keys, uint64_t *scratch, int64_t count, int bits)
{
    if (count <= RUN_MAX && count > RUN_FEW)
        return sort_low(keys, scratch, count, bits);
    /* Low bit of the digit that gives parts of about RUN_AIM keys. */
    int low = bits;
    bool swapped = false;
    for (int64_t part = count; part > RUN_MAX && low > 0; swapped = !swapped)
        for (int width = 0; width < TOP_BITS && low > 0 && (width == 0 || part > RUN_AIM);
             width++) {
            part /= 2;
            low--;
        }
    if ((low + LOW_BITS - 1) / LOW_BITS % 2 != 0)
        swapped = !swapped;
    uint64_t *result = swapped && count > RUN_FEW ? scratch : keys;
    sort_run(keys, scratch, count, bits, result);
    return result;
}
