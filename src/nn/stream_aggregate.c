#include "nn/stream_aggregate.h"

#include "nn/exp.h"
#include "nn/vector.h"

#include <math.h>
#include <string.h>

#define SLOPE 0.2f /* of GAT's leaky ReLU below zero */

typedef float v4_t __attribute__((vector_size(16), aligned(4)));
typedef float v8_t __attribute__((vector_size(32), aligned(4)));
typedef float v16_t __attribute__((vector_size(64), aligned(4)));
typedef int32_t m4_t __attribute__((vector_size(16), aligned(4)));
typedef int32_t m8_t __attribute__((vector_size(32), aligned(4)));
typedef int32_t m16_t __attribute__((vector_size(64), aligned(4)));

void plim__stream_aggregate_begin(const plim__stream_aggregate_t *rule, int64_t count,
                                  float *states)
{
    const int64_t values = count * rule->width;
    if (rule->kind == PLIM__STREAM_AGGREGATE_SUM) {
        memset(states, 0, (size_t)values * sizeof *states);
        return;
    }
    if (rule->kind == PLIM__STREAM_AGGREGATE_MAX) {
        for (int64_t i = 0; i < values; i++)
            states[i] = -INFINITY;
        return;
    }
    for (int64_t i = 0; i < count; i++) {
        float *state = states + i * rule->width;
        memset(state, 0, (size_t)rule->width * sizeof *state);
        for (int head = 0; head < rule->heads; head++)
            state[(int64_t)2 * head] = -INFINITY;
    }
}

/* Columns that fill one vector; the state stays in a register over the whole list. */
#define SUM_COLUMNS(vector)                                                                        \
    do {                                                                                           \
        vector sum, x;                                                                             \
        memcpy(&sum, state + column, sizeof sum);                                                  \
        for (int64_t i = 0; i < count; i++) {                                                      \
            memcpy(&x, rows + places[i] * width + column, sizeof x);                               \
            sum += x;                                                                              \
        }                                                                                          \
        memcpy(state + column, &sum, sizeof sum);                                                  \
    } while (0)

/* Skips a NaN among the neighbours, as a comparison does. */
#define MAX_COLUMNS(vector, mask)                                                                  \
    do {                                                                                           \
        vector most, x;                                                                            \
        memcpy(&most, state + column, sizeof most);                                                \
        for (int64_t i = 0; i < count; i++) {                                                      \
            memcpy(&x, rows + places[i] * width + column, sizeof x);                               \
            const mask larger = (mask)(x > most);                                                  \
            most = (vector)((larger & (mask)x) | (~larger & (mask)most));                          \
        }                                                                                          \
        memcpy(state + column, &most, sizeof most);                                                \
    } while (0)

PLIM__KERNEL void sum_rows(const float *rows, int64_t width, const int64_t *places, int64_t count,
                           float *state)
{
    int64_t column = 0;
    for (; column + 16 <= width; column += 16)
        SUM_COLUMNS(v16_t);
    if (column + 8 <= width) {
        SUM_COLUMNS(v8_t);
        column += 8;
    }
    if (column + 4 <= width) {
        SUM_COLUMNS(v4_t);
        column += 4;
    }
    for (; column < width; column++)
        SUM_COLUMNS(float);
}

PLIM__KERNEL void max_rows(const float *rows, int64_t width, const int64_t *places, int64_t count,
                           float *state)
{
    int64_t column = 0;
    for (; column + 16 <= width; column += 16)
        MAX_COLUMNS(v16_t, m16_t);
    if (column + 8 <= width) {
        MAX_COLUMNS(v8_t, m8_t);
        column += 8;
    }
    if (column + 4 <= width) {
        MAX_COLUMNS(v4_t, m4_t);
        column += 4;
    }
    for (; column < width; column++)
        for (int64_t i = 0; i < count; i++) {
            const float x = rows[places[i] * width + column];
            state[column] = x > state[column] ? x : state[column];
        }
}

/* Adds one neighbour to one head's columns. When its score is the largest so far, the state is
 * rescaled to it. */
PLIM__KERNEL void attend(float score, int64_t columns, const float *z, float *seen, float *sums)
{
    float weight = 1;
    if (score > seen[0]) {
        const float less = plim__expf(seen[0] - score);
        seen[0] = score;
        seen[1] *= less;
        for (int64_t j = 0; j < columns; j++)
            sums[j] *= less;
    } else {
        weight = plim__expf(score - seen[0]);
    }
    seen[1] += weight;
    for (int64_t j = 0; j < columns; j++)
        sums[j] += weight * z[j];
}

PLIM__KERNEL void attend_rows(const plim__stream_aggregate_t *rule, const int64_t *places,
                              int64_t count, const float *own, float *state)
{
    const int64_t scores = 2 * (int64_t)rule->heads;
    const int64_t columns = rule->width - scores;
    const int64_t skipped = rule->first % rule->channels; /* of the first head */
    for (int head = 0; head < rule->heads; head++) {
        const int64_t begin = head == 0 ? 0 : head * rule->channels - skipped;
        const int64_t ahead = (head + 1) * rule->channels - skipped;
        const int64_t end = ahead < columns ? ahead : columns;
        for (int64_t i = 0; i < count; i++) {
            const float *row = rule->rows + places[i] * rule->width;
            const float sum = row[(int64_t)2 * head] + own[(int64_t)2 * head + 1];
            attend(sum > 0 ? sum : sum * SLOPE, end - begin, row + scores + begin,
                   state + (int64_t)2 * head, state + scores + begin);
        }
    }
}

PLIM__KERNEL void fold_all_body(const plim__stream_aggregate_t *rule,
                                const plim__stream_aggregate_list_t *lists, int64_t count,
                                const int64_t *places, float *states)
{
    int64_t begin = 0;
    for (int64_t i = 0; i < count; i++) {
        float *state = states + lists[i].state * rule->width;
        const int64_t length = lists[i].end - begin;
        if (rule->kind == PLIM__STREAM_AGGREGATE_SUM)
            sum_rows(rule->rows, rule->width, places + begin, length, state);
        else if (rule->kind == PLIM__STREAM_AGGREGATE_MAX)
            max_rows(rule->rows, rule->width, places + begin, length, state);
        else
            attend_rows(rule, places + begin, length, rule->rows + lists[i].own * rule->width,
                        state);
        begin = lists[i].end;
    }
}

PLIM__VECTORISED(fold_all,
                 (const plim__stream_aggregate_t *rule, const plim__stream_aggregate_list_t *lists,
                  int64_t count, const int64_t *places, float *states),
                 (rule, lists, count, places, states))

void plim__stream_aggregate_lists(const plim__stream_aggregate_t *rule,
                                  const plim__stream_aggregate_list_t *lists, int64_t count,
                                  const int64_t *places, float *states)
{
    fold_all(rule, lists, count, places, states);
}
