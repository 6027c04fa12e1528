#include "support/chosen.h"

#include <math.h>
#include <stdlib.h>

typedef struct entry {
    double key;
    int64_t time, position;
} entry_t;

static double uniform(uint64_t key, int64_t number)
{
    return ((double)(plim__rng_u64(key, (uint64_t)number) / 4096) + 0.5) / 4503599627370496.0;
}

static int by_key(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    return (x->position > y->position) - (x->position < y->position);
}

/* The latest first, of equal times the last of the list. */
static int by_time(const void *a, const void *b)
{
    const entry_t *x = a, *y = b;
    if (x->time != y->time)
        return x->time > y->time ? -1 : 1;
    return (x->position < y->position) - (x->position > y->position);
}

/* Draws in proportion to the entries' weights, by their sums. */
static int64_t draw_again(uint64_t key, const entry_t *entries, const double *weights,
                          int64_t count, int64_t fanout, int64_t *out)
{
    double total = 0;
    for (int64_t i = 0; i < count; i++)
        total += weights[i];
    for (int64_t j = 0; j < fanout; j++) {
        double sum = 0;
        for (int64_t i = 0; i < count; i++) {
            sum += weights[i];
            out[j] = entries[i].position;
            if (uniform(key, j) * total < sum)
                break;
        }
    }
    return count > 0 ? fanout : 0;
}

int64_t test_chosen(plim__choice_t choice, const plim__hop_t *hop, int64_t owner,
                    const void *values, int64_t degree, int64_t until, int64_t *positions_out)
{
    const uint64_t key = plim__draw_key(plim__draw_prefix(hop), owner);
    entry_t *entries = calloc((size_t)degree + 1, sizeof *entries);
    double *weights = calloc((size_t)degree + 1, sizeof *weights), total = 0;
    int64_t count = 0, drawn;
    const bool weighs = choice == PLIM__CHOOSE_BY_WEIGHT;
    for (int64_t i = 0; i < degree; i++) {
        const int64_t time = weighs ? 0 : ((const int64_t *)values)[i];
        const double weight = weighs ? (double)((const float *)values)[i] : 1;
        if (!weighs && time > until)
            continue;
        weights[count] = weight;
        total += weight;
        entries[count++] = (entry_t){
            weighs ? -log1p(-uniform(key, i)) / (weight > 0 ? weight : 1e-80) : uniform(key, i),
            time, i};
    }
    for (int64_t i = 0; i < count && total == 0; i++)
        weights[i] = 1;
    drawn = hop->fanout < 0 || count < hop->fanout ? count : hop->fanout;
    if (choice == PLIM__CHOOSE_LATEST && hop->fanout >= 0) {
        qsort(entries, (size_t)count, sizeof *entries, by_time);
        for (int64_t i = 0; i < drawn; i++)
            positions_out[i] = entries[drawn - 1 - i].position;
        uint64_t counter = 0;
        for (int64_t i = 0; hop->replace && drawn > 0 && i < hop->fanout; i++)
            positions_out[i] = /* the latest is picked last */
                entries[drawn - 1 - (int64_t)plim__rng_below(key, &counter, (uint64_t)drawn)]
                    .position;
        drawn = hop->replace && drawn > 0 ? hop->fanout : drawn;
    } else if (hop->replace && hop->fanout >= 0) {
        drawn = draw_again(key, entries, weights, count, hop->fanout, positions_out);
    } else {
        if (count > drawn)
            qsort(entries, (size_t)count, sizeof *entries, by_key);
        for (int64_t i = 0; i < drawn; i++)
            positions_out[i] = entries[i].position;
    }
    free(entries);
    free(weights);
    return drawn;
}
