#include "nn/stream_aggregate.h"

#include "nn/exp.h"
#include "nn/kernels.h"
#include "nn/vector.h"

#include <math.h>
#include <string.h>

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
    if (rule->kind == PLIM__STREAM_AGGREGATE_MAX) {
        for (int64_t i = 0; i < values; i++)
            states[i] = -INFINITY;
        return;
    }
    memset(states, 0, (size_t)values * sizeof *states);
    if (rule->kind != PLIM__STREAM_AGGREGATE_ATTENTION &&
        rule->kind != PLIM__STREAM_AGGREGATE_ATTENTION_V2)
        return;
    for (int64_t i = 0; i < count; i++)
        for (int head = 0; head < rule->heads; head++)
            states[i * rule->width + (int64_t)2 * head] = -INFINITY;
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

/* Sums of each row by its own factor. */
#define SCALED_COLUMNS(vector)                                                                     \
    do {                                                                                           \
        vector sum, x;                                                                             \
        memcpy(&sum, state + column, sizeof sum);                                                  \
        for (int64_t i = 0; i < count; i++) {                                                      \
            memcpy(&x, rows + places[i] * pitch + column, sizeof x);                               \
            sum += factors[i] * x;                                                                 \
        }                                                                                          \
        memcpy(state + column, &sum, sizeof sum);                                                  \
    } while (0)

PLIM__KERNEL void scaled_rows(const float *rows, int64_t pitch, int64_t width,
                              const int64_t *places, const float *factors, int64_t count,
                              float *state)
{
    int64_t column = 0;
    for (; column + 16 <= width; column += 16)
        SCALED_COLUMNS(v16_t);
    if (column + 8 <= width) {
        SCALED_COLUMNS(v8_t);
        column += 8;
    }
    if (column + 4 <= width) {
        SCALED_COLUMNS(v4_t);
        column += 4;
    }
    for (; column < width; column++)
        SCALED_COLUMNS(float);
}

#define FACTORS 64 /* that are computed together */

PLIM__KERNEL void typed_rows(const plim__stream_aggregate_t *rule,
                             const plim__stream_edges_t *edges, int64_t begin, int64_t count,
                             const int64_t *places, float *state)
{
    const int64_t basis = rule->first / rule->channels;
    const int64_t bases = (rule->width + rule->row_width - 1) / rule->row_width;
    float factors[FACTORS];
    for (int64_t i = 0; i < count; i += FACTORS) {
        const int64_t some = count - i < FACTORS ? count - i : FACTORS;
        for (int64_t b = 0; b < bases; b++) {
            for (int64_t k = 0; k < some; k++)
                factors[k] = edges->weights[begin + i + k] *
                             rule->factors[edges->rows[begin + i + k] * rule->bases + basis + b];
            scaled_rows(rule->rows, rule->row_width, rule->row_width, places + begin + i, factors,
                        some, state + b * rule->row_width);
        }
    }
}

/* Columns from `column` on of the term of the edge at place `at`. */
#define ADD_TERM(vector, total, terms, edges, at, column)                                          \
    do {                                                                                           \
        vector part;                                                                               \
        if ((terms)->bias != NULL) {                                                               \
            memcpy(&part, (terms)->bias + (column), sizeof part);                                  \
            (total) += part;                                                                       \
        }                                                                                          \
        for (int64_t k = 0; k < (terms)->entries; k++) {                                           \
            const int64_t entry = (at) * (terms)->entries + k;                                     \
            const int64_t table_row = (edges)->rows != NULL ? (edges)->rows[entry] : k;            \
            memcpy(&part, (terms)->table + table_row * (terms)->stride + (column), sizeof part);   \
            (total) += ((edges)->values != NULL ? (edges)->values[entry] : 1.0f) * part;           \
        }                                                                                          \
    } while (0)

#define RELU_COLUMNS(vector, mask)                                                                 \
    do {                                                                                           \
        vector sum, x;                                                                             \
        memcpy(&sum, state + column, sizeof sum);                                                  \
        for (int64_t i = begin; i < begin + count; i++) {                                          \
            memcpy(&x, rule->rows + places[i] * width + column, sizeof x);                         \
            if (edges->weights[i] == 0.0f) {                                                       \
                ADD_TERM(vector, x, &rule->terms, edges, i, column);                               \
                x = (vector)((mask)(x > 0) & (mask)x);                                             \
            }                                                                                      \
            sum += x;                                                                              \
        }                                                                                          \
        memcpy(state + column, &sum, sizeof sum);                                                  \
    } while (0)

PLIM__KERNEL void relu_rows(const plim__stream_aggregate_t *rule, const plim__stream_edges_t *edges,
                            int64_t begin, int64_t count, const int64_t *places, float *state)
{
    const int64_t width = rule->width;
    int64_t column = 0;
    for (; column + 16 <= width; column += 16)
        RELU_COLUMNS(v16_t, m16_t);
    if (column + 8 <= width) {
        RELU_COLUMNS(v8_t, m8_t);
        column += 8;
    }
    if (column + 4 <= width) {
        RELU_COLUMNS(v4_t, m4_t);
        column += 4;
    }
    for (; column < width; column++) {
        float sum = state[column];
        for (int64_t i = begin; i < begin + count; i++) {
            float x = rule->rows[places[i] * width + column];
            if (edges->weights[i] == 0.0f) {
                ADD_TERM(float, x, &rule->terms, edges, i, column);
                x = x > 0 ? x : 0;
            }
            sum += x;
        }
        state[column] = sum;
    }
}

PLIM__KERNEL void attend_rows(const plim__stream_aggregate_t *rule,
                              const plim__stream_edges_t *edges, int64_t begin, int64_t count,
                              const int64_t *places, const float *own, float *state)
{
    const int64_t scores = 2 * (int64_t)rule->heads;
    const int64_t columns = rule->width - scores;
    const int64_t skipped = rule->first % rule->channels; /* of the first head */
    for (int head = 0; head < rule->heads; head++) {
        const int64_t from = head == 0 ? 0 : head * rule->channels - skipped;
        const int64_t ahead = (head + 1) * rule->channels - skipped;
        const int64_t end = ahead < columns ? ahead : columns;
        for (int64_t i = begin; i < begin + count; i++) {
            const float *row = rule->rows + places[i] * rule->width;
            float sum = row[(int64_t)2 * head] + own[(int64_t)2 * head + 1];
            if (rule->terms.entries > 0)
                ADD_TERM(float, sum, &rule->terms, edges, i, head);
            attend(sum > 0 ? sum : sum * PLIM__LEAK, end - from, row + scores + from,
                   state + (int64_t)2 * head, state + scores + from);
        }
    }
}

#define LEAKY_COLUMNS(vector, mask, total)                                                         \
    do {                                                                                           \
        vector t, other;                                                                           \
        memcpy(&t, z + column, sizeof t);                                                          \
        memcpy(&other, z_dst + column, sizeof other);                                              \
        t += other;                                                                                \
        ADD_TERM(vector, t, terms, edges, at, first + column);                                     \
        memcpy(&other, att + column, sizeof other);                                                \
        const mask above = (mask)(t > 0);                                                          \
        (total) += other * (vector)((above & (mask)t) | (~above & (mask)(t * PLIM__LEAK)));        \
    } while (0)

/* A head's logit: sums of 16 columns, then of 4, then the rest. `first`: the head's column. */
PLIM__KERNEL float leaky_logit(const plim__stream_terms_t *terms, const plim__stream_edges_t *edges,
                               int64_t at, int64_t first, int64_t channels, const float *att,
                               const float *z, const float *z_dst)
{
    v16_t sixteen = {0};
    v4_t four = {0};
    float total = 0;
    int64_t column = 0;
    for (; column + 16 <= channels; column += 16)
        LEAKY_COLUMNS(v16_t, m16_t, sixteen);
    for (; column + 4 <= channels; column += 4)
        LEAKY_COLUMNS(v4_t, m4_t, four);
    for (; column < channels; column++) {
        float t = z[column] + z_dst[column];
        ADD_TERM(float, t, terms, edges, at, first + column);
        total += att[column] * (t > 0 ? t : t * PLIM__LEAK);
    }
    for (int i = 0; i < 16; i++)
        four[i % 4] += sixteen[i];
    return total + ((four[0] + four[1]) + (four[2] + four[3]));
}

PLIM__KERNEL void attend_rows_v2(const plim__stream_aggregate_t *rule,
                                 const plim__stream_edges_t *edges, int64_t begin, int64_t count,
                                 const int64_t *places, const float *z_dst, float *state)
{
    const int64_t scores = 2 * (int64_t)rule->heads;
    for (int64_t i = begin; i < begin + count; i++) {
        const float *z = rule->rows + places[i] * rule->width + scores;
        for (int head = 0; head < rule->heads; head++) {
            const int64_t first = head * rule->channels;
            const float logit = leaky_logit(&rule->terms, edges, i, first, rule->channels,
                                            rule->att + first, z + first, z_dst + first);
            attend(logit, rule->channels, z + first, state + (int64_t)2 * head,
                   state + scores + first);
        }
    }
}

PLIM__KERNEL void fold_all_body(const plim__stream_aggregate_t *rule,
                                const plim__stream_aggregate_list_t *lists, int64_t count,
                                const int64_t *places, const plim__stream_edges_t *edges,
                                float *states)
{
    int64_t begin = 0;
    for (int64_t i = 0; i < count; i++) {
        float *state = states + lists[i].state * rule->width;
        const int64_t length = lists[i].end - begin;
        switch (rule->kind) {
        case PLIM__STREAM_AGGREGATE_SUM:
            sum_rows(rule->rows, rule->width, places + begin, length, state);
            break;
        case PLIM__STREAM_AGGREGATE_MAX:
            max_rows(rule->rows, rule->width, places + begin, length, state);
            break;
        case PLIM__STREAM_AGGREGATE_ATTENTION:
            attend_rows(rule, edges, begin, length, places, rule->rows + lists[i].own * rule->width,
                        state);
            break;
        case PLIM__STREAM_AGGREGATE_WEIGHTED:
            scaled_rows(rule->rows, rule->width, rule->width, places + begin,
                        edges->weights + begin, length, state);
            break;
        case PLIM__STREAM_AGGREGATE_RELU:
            relu_rows(rule, edges, begin, length, places, state);
            break;
        case PLIM__STREAM_AGGREGATE_TYPED:
            typed_rows(rule, edges, begin, length, places, state);
            break;
        case PLIM__STREAM_AGGREGATE_ATTENTION_V2:
            attend_rows_v2(rule, edges, begin, length, places,
                           rule->z_dst + lists[i].state * (rule->width - 2 * (int64_t)rule->heads),
                           state);
            break;
        }
        begin = lists[i].end;
    }
}

PLIM__VECTORISED(fold_all,
                 (const plim__stream_aggregate_t *rule, const plim__stream_aggregate_list_t *lists,
                  int64_t count, const int64_t *places, const plim__stream_edges_t *edges,
                  float *states),
                 (rule, lists, count, places, edges, states))

void plim__stream_aggregate_lists(const plim__stream_aggregate_t *rule,
                                  const plim__stream_aggregate_list_t *lists, int64_t count,
                                  const int64_t *places, const plim__stream_edges_t *edges,
                                  float *states)
{
    fold_all(rule, lists, count, places, edges, states);
}
