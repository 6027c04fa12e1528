/* Attention, forward and back. */
#include "nn/attention.h"

#include "base/check.h"
#include "base/rng.h"
#include "nn/exp.h"
#include "nn/kernels.h"
#include "nn/vector.h"

#include <math.h>
#include <string.h>

#define EDGES_AHEAD 4    /* edges before its turn that a row is prefetched */
#define SCORE_ROWS 256   /* rows of one task of the scores */
#define HEADS_AT_ONCE 32 /* of dropout */

/* A sum over rows consists of at most RANGES_MAX partial sums, of at least RANGE_ROWS rows each. */
#define RANGES_MAX 64
#define RANGE_ROWS 64
#define ALIGNMENT 64

static inline const float *float_row(const plim__matrix_t *matrix, int64_t row)
{
    return (const float *)matrix->data + row * matrix->stride;
}

static inline void prefetch_row(const plim__matrix_t *matrix, int64_t row)
{
    const float *at = float_row(matrix, row);
    for (int64_t c = 0; c < matrix->width; c += 16)
        __builtin_prefetch(at + c);
}

/* Multiplies values[h] by the factor that dropout gives the weight of the edge from u to v. */
static void drop_weights(const plim__attention_t *attention, int64_t v, int64_t u, int first,
                         int count, float *values)
{
    const uint64_t key = plim__rng_prefix(attention->key, plim__node_id(&attention->nodes, v),
                                          plim__node_id(&attention->nodes, u));
    const float scale = 1.0f / (1.0f - attention->dropout);
    for (int i = 0; i < count; i++) {
        const bool dropped =
            plim__rng_double(key, (uint64_t)first + (uint64_t)i) < (double)attention->dropout;
        values[i] = dropped ? 0.0f : values[i] * scale;
    }
}

/* Adds kept[h] row[h] to sum[h] for each head h; kept are the weights of the edge from u to v after
 * dropout. */
static void add_weighted(const plim__kernels_t *kernels, const plim__attention_t *attention,
                         int64_t v, int64_t u, const float *weights, const float *row, float *sum)
{
    const int64_t channels = attention->channels;
    if (!(attention->dropout > 0)) {
        kernels->add_scaled(attention->heads, channels, weights, row, sum);
        return;
    }
    for (int first = 0; first < attention->heads; first += HEADS_AT_ONCE) {
        float kept[HEADS_AT_ONCE];
        const int count = (int)plim__min_i64(HEADS_AT_ONCE, attention->heads - first);
        memcpy(kept, weights + first, (size_t)count * sizeof kept[0]);
        drop_weights(attention, v, u, first, count, kept);
        kernels->add_scaled(count, channels, kept, row + first * channels, sum + first * channels);
    }
}

typedef struct attention_forward {
    const plim__edges_t *hop;
    const plim__attention_t *attention;
    const plim__matrix_t *z;
    const plim__attention_state_t *state;
    plim__matrix_t *out;
    const plim__kernels_t *kernels;
    plim__work_split_t split;
} attention_forward_t;

PLIM__KERNEL void exponentials_body(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = plim__expf(values[i]);
}

PLIM__VECTORISED(exponentials, (float *values, int64_t count), (values, count))

static void score_task(void *context, int worker, int64_t task)
{
    (void)worker;
    const attention_forward_t *forward = context;
    const plim__attention_t *attention = forward->attention;
    const int64_t heads = attention->heads;
    const int64_t end = plim__min_i64((task + 1) * SCORE_ROWS, forward->hop->num_src);
    for (int64_t u = task * SCORE_ROWS; u < end; u++) {
        const float *z = float_row(forward->z, u);
        forward->kernels->dots(heads, attention->channels, attention->att_src, z,
                               forward->state->score_src + u * heads);
        if (u < forward->hop->num_dst)
            forward->kernels->dots(heads, attention->channels, attention->att_dst, z,
                                   forward->state->score_dst + u * heads);
    }
}

/* The score of an edge's term, for each head. */
static void term_scores(const plim__edge_terms_t *terms, int64_t e, float *scores)
{
    const int64_t heads = terms->width;
    memset(scores, 0, (size_t)heads * sizeof scores[0]);
    for (int64_t k = 0; k < terms->entries; k++) {
        const int64_t at = e * terms->entries + k;
        const float *row = terms->table + (terms->rows != NULL ? terms->rows[at] : k) * heads;
        const float value = terms->values != NULL ? terms->values[at] : 1.0f;
        for (int64_t h = 0; h < heads; h++)
            scores[h] += value * row[h];
    }
}

static void add_heads(int64_t heads, const float *values, float *sums)
{
    for (int64_t h = 0; h < heads; h++)
        sums[h] += values[h];
}

static void divide(int64_t count, int64_t width, float *sums)
{
    for (int64_t i = 0; count > 1 && i < width; i++)
        sums[i] /= (float)count;
}

/* The scores of the terms of v's edges and of v itself, to the state. */
static void term_logits(const attention_forward_t *forward, int64_t v)
{
    const int64_t heads = forward->attention->heads;
    const plim__edges_t *hop = forward->hop;
    float *self = forward->state->terms + (hop->num_edges + v) * heads;
    int64_t count = 0;
    memset(self, 0, (size_t)heads * sizeof self[0]);
    for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
        term_scores(forward->attention->terms, e, forward->state->terms + e * heads);
        if (hop->indices[e] == v)
            continue;
        add_heads(heads, forward->state->terms + e * heads, self);
        count++;
    }
    divide(count, heads, self);
}

/* The term of an edge (GATv2) in `row`; NULL without terms. */
static const float *term_row(const plim__attention_t *attention, int64_t e, float *row)
{
    if (attention->terms == NULL)
        return NULL;
    plim__matrix_t out = plim__matrix_make(row, 1, attention->terms->width, PLIM__F32);
    plim__kernels()->terms(attention->terms, e, &out, 0, 1);
    return row;
}

static float *worker_row(const plim__attention_t *attention, int worker)
{
    return attention->terms == NULL
               ? NULL
               : attention->term_rows + (int64_t)worker * attention->heads * attention->channels;
}

/* The term of v itself (GATv2); NULL without terms. */
static const float *own_term(const plim__attention_t *attention,
                             const plim__attention_state_t *state, int64_t v)
{
    return attention->terms == NULL ? NULL
                                    : state->terms + v * attention->heads * attention->channels;
}

/* GATv2's logits, and the term of v itself. */
static void logits_v2(const attention_forward_t *forward, int worker, int64_t v, float *edges,
                      float *self)
{
    const plim__attention_t *attention = forward->attention;
    const plim__edges_t *hop = forward->hop;
    const int64_t heads = attention->heads, channels = attention->channels;
    const float *own = float_row(attention->z_dst, v);
    float *row = worker_row(attention, worker);
    float *sum = row != NULL ? forward->state->terms + v * heads * channels : NULL;
    int64_t count = 0;
    if (sum != NULL)
        memset(sum, 0, (size_t)(heads * channels) * sizeof sum[0]);
    for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++, edges += heads) {
        const int64_t u = hop->indices[e];
        if (e + EDGES_AHEAD < hop->num_edges)
            prefetch_row(forward->z, hop->indices[e + EDGES_AHEAD]);
        if (u == v) {
            for (int64_t h = 0; h < heads; h++)
                edges[h] = -INFINITY;
            continue;
        }
        const float *term = term_row(attention, e, row);
        forward->kernels->leaky_dots(heads, channels, attention->att_src, float_row(forward->z, u),
                                     own, term, edges);
        if (sum != NULL)
            plim__vector_add(sum, row, heads * channels);
        count++;
    }
    if (sum != NULL)
        divide(count, heads * channels, sum);
    forward->kernels->leaky_dots(heads, channels, attention->att_src, float_row(forward->z, v), own,
                                 sum, self);
}

/* Logits of one destination: of its edges (count, heads) and of itself (heads); with or without
 * scores of terms a copy each. */
PLIM__KERNEL void logits_with(const attention_forward_t *forward, int64_t v, bool terms,
                              float *edges, float *self)
{
    const int64_t heads = forward->attention->heads;
    const plim__edges_t *hop = forward->hop;
    const float *dst = forward->state->score_dst + v * heads;
    const float *own = forward->state->score_src + v * heads;
    const float *term = forward->state->terms;
    for (int64_t h = 0; h < heads; h++) {
        float sum = own[h] + dst[h];
        if (terms)
            sum += term[(hop->num_edges + v) * heads + h];
        self[h] = sum > 0 ? sum : sum * PLIM__LEAK;
    }
    for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++, edges += heads) {
        const int64_t u = hop->indices[e];
        const float *src = forward->state->score_src + u * heads;
        for (int64_t h = 0; h < heads; h++) {
            float sum = src[h] + dst[h];
            if (terms)
                sum += term[e * heads + h];
            edges[h] = u == v ? -INFINITY : sum > 0 ? sum : sum * PLIM__LEAK;
        }
    }
}

static void logits(const attention_forward_t *forward, int64_t v, float *edges, float *self)
{
    if (forward->attention->terms == NULL) {
        logits_with(forward, v, false, edges, self);
        return;
    }
    term_logits(forward, v);
    logits_with(forward, v, true, edges, self);
}

/* For each head, over (count, heads) edges and the self entry. */
static void softmax(int64_t count, int64_t heads, float *edges, float *self)
{
    for (int64_t h = 0; h < heads; h++) {
        float largest = self[h];
        for (int64_t i = h; i < count * heads; i += heads)
            largest = edges[i] > largest ? edges[i] : largest;
        self[h] -= largest;
        for (int64_t i = h; i < count * heads; i += heads)
            edges[i] -= largest;
    }
    exponentials(self, heads);
    exponentials(edges, count * heads);
    for (int64_t h = 0; h < heads; h++) {
        float total = self[h];
        for (int64_t i = h; i < count * heads; i += heads)
            total += edges[i];
        self[h] /= total;
        for (int64_t i = h; i < count * heads; i += heads)
            edges[i] /= total;
    }
}

static void attend_task(void *context, int worker, int64_t task)
{
    const attention_forward_t *forward = context;
    const plim__edges_t *hop = forward->hop;
    const plim__attention_t *attention = forward->attention;
    const int64_t heads = attention->heads;
    const int64_t end = plim__work_split_row(&forward->split, task + 1);
    for (int64_t v = plim__work_split_row(&forward->split, task); v < end; v++) {
        float *edges = forward->state->weights + hop->indptr[v] * heads;
        float *self = forward->state->weights + (hop->num_edges + v) * heads;
        float *out = (float *)forward->out->data + v * forward->out->stride;
        if (attention->z_dst != NULL)
            logits_v2(forward, worker, v, edges, self);
        else
            logits(forward, v, edges, self);
        softmax(hop->indptr[v + 1] - hop->indptr[v], heads, edges, self);
        memset(out, 0, (size_t)(heads * attention->channels) * sizeof out[0]);
        for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++, edges += heads) {
            if (e + EDGES_AHEAD < hop->num_edges)
                prefetch_row(forward->z, hop->indices[e + EDGES_AHEAD]);
            const int64_t u = hop->indices[e];
            if (u != v)
                add_weighted(forward->kernels, attention, v, u, edges, float_row(forward->z, u),
                             out);
        }
        add_weighted(forward->kernels, attention, v, v, self, float_row(forward->z, v), out);
    }
}

void plim__attention_forward(plim__team_t *team, const plim__edges_t *hop,
                             const plim__attention_t *attention, const plim__matrix_t *z,
                             plim__attention_state_t *state, plim__matrix_t *out)
{
    const size_t bytes = (size_t)z->width * sizeof(float);
    const double unit = plim__work_split_cost(bytes);
    attention_forward_t forward = {.hop = hop,
                                   .attention = attention,
                                   .z = z,
                                   .state = state,
                                   .out = out,
                                   .kernels = plim__kernels(),
                                   .split =
                                       plim__work_split_make(hop->indptr, hop->num_dst, 2 * unit)};
    if (attention->z_dst == NULL)
        plim__team_run(team, (hop->num_src + SCORE_ROWS - 1) / SCORE_ROWS,
                       (int64_t)(unit * SCORE_ROWS), score_task, &forward);
    plim__team_run(team, forward.split.tasks, forward.split.cost, attend_task, &forward);
}

typedef struct attention_backward {
    const plim__edges_t *hop;
    const plim__reverse_t *reverse;
    const plim__attention_t *attention;
    const plim__matrix_t *z;
    const plim__attention_state_t *state;
    const plim__matrix_t *dout;
    plim__matrix_t *dz;
    plim__matrix_t *dz_dst; /* GATv2 */
    const plim__kernels_t *kernels;
    plim__work_split_t split;
    int64_t range_rows;
    /* In the caller's scratch. */
    float *logits;   /* (num_edges + num_dst, heads) gradients of score_src + score_dst */
    float *src;      /* (num_src, heads) gradients of score_src */
    float *dst;      /* (num_dst, heads) gradients of score_dst */
    float *partials; /* (ranges, 2, width) */
} attention_backward_t;

static int64_t count_ranges(int64_t rows)
{
    return plim__min_i64(RANGES_MAX, (rows + RANGE_ROWS - 1) / RANGE_ROWS);
}

/* Takes an array of floats from scratch at *used; NULL, and only counted, without scratch. */
static float *take_floats(void *scratch, size_t *used, int64_t rows, int64_t columns)
{
    char *at = scratch == NULL ? NULL : (char *)scratch + *used;
    const size_t floats = plim__mul_saturating_size((size_t)rows, (size_t)columns);
    *used = plim__add_saturating_size(
        *used, plim__round_up(plim__mul_saturating_size(floats, sizeof(float)), ALIGNMENT));
    return (float *)(void *)at;
}

/* Lays the arrays out in scratch; returns its bytes. */
static size_t lay_out(attention_backward_t *backward, int64_t num_src, int64_t num_dst,
                      int64_t num_edges, int64_t heads, int64_t channels, void *scratch)
{
    size_t used = 0;
    backward->logits =
        take_floats(scratch, &used, plim__add_saturating_i64(num_edges, num_dst), heads);
    backward->src = take_floats(scratch, &used, num_src, heads);
    backward->dst = take_floats(scratch, &used, num_dst, heads);
    backward->partials = take_floats(scratch, &used, 2 * count_ranges(num_src),
                                     plim__mul_saturating_i64(heads, channels));
    return used;
}

size_t plim__attention_scratch(int64_t num_src, int64_t num_dst, int64_t num_edges, int heads,
                               int64_t channels)
{
    attention_backward_t counted;
    return lay_out(&counted, num_src, num_dst, num_edges, heads, channels, NULL);
}

/* Gradients of the weights of the edge from u to v. */
static void weight_gradients(const attention_backward_t *backward, int64_t v, int64_t u, float *out)
{
    const plim__attention_t *attention = backward->attention;
    backward->kernels->dots(attention->heads, attention->channels, float_row(backward->dout, v),
                            float_row(backward->z, u), out);
    if (attention->dropout > 0)
        drop_weights(attention, v, u, 0, attention->heads, out);
}

static float slope(float score)
{
    return score > 0 ? 1.0f : PLIM__LEAK;
}

/* What the logits are made of: GAT's scores, those and terms, or GATv2's, whose LeakyReLU is
 * inside. */
typedef enum logit { SCORES, SCORES_AND_TERMS, INNER } logit_t;

/* Through the softmax and LeakyReLU of one destination and head, in place; returns the sum. A copy
 * for each kind of logit. */
PLIM__KERNEL float through_softmax_of(const attention_backward_t *backward, int64_t v, int64_t h,
                                      logit_t logit)
{
    const plim__edges_t *hop = backward->hop;
    const int64_t heads = backward->attention->heads;
    const float *weights = backward->state->weights;
    const float *src = backward->state->score_src, *term = backward->state->terms;
    const float dst = logit == INNER ? 0 : backward->state->score_dst[v * heads + h];
    float *logits = backward->logits;
    const int64_t self = (hop->num_edges + v) * heads + h;
    const int64_t begin = hop->indptr[v], end = hop->indptr[v + 1];
    float mean = weights[self] * logits[self];
    for (int64_t e = begin; e < end; e++)
        mean += weights[e * heads + h] * logits[e * heads + h];
    logits[self] = weights[self] * (logits[self] - mean);
    if (logit != INNER)
        logits[self] *= slope(logit == SCORES ? src[v * heads + h] + dst
                                              : src[v * heads + h] + dst + term[self]);
    float total = logits[self];
    for (int64_t e = begin; e < end; e++) {
        const int64_t at = e * heads + h, from = hop->indices[e] * heads + h;
        logits[at] = weights[at] * (logits[at] - mean);
        if (logit != INNER)
            logits[at] *= slope(logit == SCORES ? src[from] + dst : src[from] + dst + term[at]);
        total += logits[at];
    }
    return total;
}

static float through_softmax(const attention_backward_t *backward, int64_t v, int64_t h)
{
    if (backward->attention->z_dst != NULL)
        return through_softmax_of(backward, v, h, INNER);
    if (backward->attention->terms != NULL)
        return through_softmax_of(backward, v, h, SCORES_AND_TERMS);
    return through_softmax_of(backward, v, h, SCORES);
}

/* GATv2: adds the gradient of what is inside the LeakyReLU, for the edge from u to v (e < 0: of v
 * itself), to y; with `add` false, y is overwritten. `row` is scratch of the term, and may be y. */
static void inner_gradient(const attention_backward_t *backward, int64_t v, int64_t u, int64_t e,
                           bool add, float *row, float *y)
{
    const plim__attention_t *attention = backward->attention;
    const int64_t at = e < 0 ? backward->hop->num_edges + v : e;
    const float *term =
        e < 0 ? own_term(attention, backward->state, v) : term_row(attention, e, row);
    backward->kernels->leaky_back(attention->heads, attention->channels, attention->att_src,
                                  backward->logits + at * attention->heads,
                                  float_row(backward->z, u), float_row(attention->z_dst, v), term,
                                  add, y);
}

/* GATv2: dz_dst of v, from the gradients of its logits. */
static void destination_row(const attention_backward_t *backward, int worker, int64_t v)
{
    const plim__edges_t *hop = backward->hop;
    float *row = worker_row(backward->attention, worker);
    float *dz = (float *)backward->dz_dst->data + v * backward->dz_dst->stride;
    inner_gradient(backward, v, v, -1, false, NULL, dz);
    for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++)
        if (hop->indices[e] != v)
            inner_gradient(backward, v, hop->indices[e], e, true, row, dz);
}

static void destinations_task(void *context, int worker, int64_t task)
{
    const attention_backward_t *backward = context;
    const plim__edges_t *hop = backward->hop;
    const int64_t heads = backward->attention->heads;
    const int64_t last = plim__work_split_row(&backward->split, task + 1);
    for (int64_t v = plim__work_split_row(&backward->split, task); v < last; v++) {
        for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
            if (e + EDGES_AHEAD < hop->num_edges)
                prefetch_row(backward->z, hop->indices[e + EDGES_AHEAD]);
            float *out = backward->logits + e * heads;
            if (hop->indices[e] == v)
                memset(out, 0, (size_t)heads * sizeof out[0]);
            else
                weight_gradients(backward, v, hop->indices[e], out);
        }
        weight_gradients(backward, v, v, backward->logits + (hop->num_edges + v) * heads);
        for (int64_t h = 0; h < heads; h++)
            backward->dst[v * heads + h] = through_softmax(backward, v, h);
        if (backward->dz_dst != NULL)
            destination_row(backward, worker, v);
    }
}

/* Computes dz[u] and the gradient of u's score. */
static void source_row(const attention_backward_t *backward, int worker, int64_t u)
{
    const plim__edges_t *hop = backward->hop;
    const plim__reverse_t *reverse = backward->reverse;
    const plim__attention_t *attention = backward->attention;
    const int64_t heads = attention->heads;
    const bool inner = backward->dz_dst != NULL;
    const float *weights = backward->state->weights;
    float *dz = (float *)backward->dz->data + u * backward->dz->stride;
    float *src = backward->src + u * heads;
    memset(dz, 0, (size_t)(heads * attention->channels) * sizeof dz[0]);
    memset(src, 0, (size_t)heads * sizeof src[0]);
    for (int64_t i = reverse->indptr[u]; i < reverse->indptr[u + 1]; i++) {
        if (i + EDGES_AHEAD < hop->num_edges)
            prefetch_row(backward->dout, reverse->destinations[i + EDGES_AHEAD]);
        const int64_t e = reverse->edges[i], v = reverse->destinations[i];
        if (u == v)
            continue;
        add_weighted(backward->kernels, attention, v, u, weights + e * heads,
                     float_row(backward->dout, v), dz);
        if (inner)
            inner_gradient(backward, v, u, e, true, worker_row(attention, worker), dz);
        else
            add_heads(heads, backward->logits + e * heads, src);
    }
    if (u < hop->num_dst) {
        const int64_t self = (hop->num_edges + u) * heads;
        add_weighted(backward->kernels, attention, u, u, weights + self,
                     float_row(backward->dout, u), dz);
        if (inner) {
            inner_gradient(backward, u, u, -1, true, NULL, dz);
            return;
        }
        add_heads(heads, backward->logits + self, src);
        backward->kernels->add_scaled(heads, attention->channels, backward->dst + u * heads,
                                      attention->att_dst, dz);
    }
    if (inner)
        return;
    backward->kernels->add_scaled(heads, attention->channels, src, attention->att_src, dz);
}

static void sources_task(void *context, int worker, int64_t task)
{
    const attention_backward_t *backward = context;
    const int64_t last = plim__work_split_row(&backward->split, task + 1);
    for (int64_t u = plim__work_split_row(&backward->split, task); u < last; u++)
        source_row(backward, worker, u);
}

/* GATv2: v's share of the gradient of att. */
static void att_row(const attention_backward_t *backward, int worker, int64_t v, float *datt)
{
    const plim__edges_t *hop = backward->hop;
    const plim__attention_t *attention = backward->attention;
    const int64_t heads = attention->heads, channels = attention->channels;
    const float *own = float_row(attention->z_dst, v);
    float *row = worker_row(attention, worker);
    backward->kernels->leaky_sums(heads, channels, backward->logits + (hop->num_edges + v) * heads,
                                  float_row(backward->z, v), own,
                                  own_term(attention, backward->state, v), datt);
    for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++)
        if (hop->indices[e] != v)
            backward->kernels->leaky_sums(heads, channels, backward->logits + e * heads,
                                          float_row(backward->z, hop->indices[e]), own,
                                          term_row(attention, e, row), datt);
}

/* The range's share of the gradients of att_src and att_dst. */
static void range_task(void *context, int worker, int64_t task)
{
    const attention_backward_t *backward = context;
    const plim__edges_t *hop = backward->hop;
    const int64_t heads = backward->attention->heads, channels = backward->attention->channels;
    const int64_t width = heads * channels;
    float *partial = backward->partials + 2 * task * width;
    memset(partial, 0, (size_t)(2 * width) * sizeof partial[0]);
    const int64_t rows = backward->dz_dst != NULL ? hop->num_dst : hop->num_src;
    const int64_t last = plim__min_i64((task + 1) * backward->range_rows, rows);
    for (int64_t u = task * backward->range_rows; u < last; u++) {
        if (backward->dz_dst != NULL) {
            att_row(backward, worker, u, partial);
            continue;
        }
        const float *z = float_row(backward->z, u);
        backward->kernels->add_scaled(heads, channels, backward->src + u * heads, z, partial);
        if (u < hop->num_dst)
            backward->kernels->add_scaled(heads, channels, backward->dst + u * heads, z,
                                          partial + width);
    }
}

/* The gradients of the terms. */
static void edge_gradient(const void *context, int64_t v, int64_t e, float *gradient)
{
    const attention_backward_t *backward = context;
    const int64_t heads = backward->attention->heads;
    if (backward->dz_dst != NULL)
        inner_gradient(backward, v, backward->hop->indices[e], e, false, gradient, gradient);
    else
        memcpy(gradient, backward->logits + e * heads, (size_t)heads * sizeof gradient[0]);
}

static void own_gradient(const void *context, int64_t v, float *gradient)
{
    const attention_backward_t *backward = context;
    const int64_t heads = backward->attention->heads;
    if (backward->dz_dst != NULL)
        inner_gradient(backward, v, v, -1, false, NULL, gradient);
    else
        memcpy(gradient, backward->logits + (backward->hop->num_edges + v) * heads,
               (size_t)heads * sizeof gradient[0]);
}

void plim__attention_backward(plim__team_t *team, const plim__edges_t *hop,
                              const plim__reverse_t *reverse, const plim__attention_t *attention,
                              const plim__matrix_t *z, const plim__attention_state_t *state,
                              const plim__matrix_t *dout, plim__matrix_t *dz, float *datt_src,
                              float *datt_dst, const plim__attention_gradients_t *more,
                              void *scratch)
{
    const int64_t width = attention->heads * attention->channels;
    const int64_t rows = attention->z_dst != NULL ? hop->num_dst : hop->num_src;
    const int64_t ranges = count_ranges(rows);
    const double unit = plim__work_split_cost((size_t)width * sizeof(float));
    attention_backward_t backward = {.hop = hop,
                                     .reverse = reverse,
                                     .attention = attention,
                                     .z = z,
                                     .state = state,
                                     .dout = dout,
                                     .dz = dz,
                                     .dz_dst = more != NULL ? more->dz_dst : NULL,
                                     .kernels = plim__kernels()};
    (void)lay_out(&backward, hop->num_src, hop->num_dst, hop->num_edges, attention->heads,
                  attention->channels, scratch);
    backward.split = plim__work_split_make(hop->indptr, hop->num_dst, 2 * unit);
    plim__team_run(team, backward.split.tasks, backward.split.cost, destinations_task, &backward);
    backward.split = plim__work_split_make(reverse->indptr, hop->num_src, 2 * unit);
    plim__team_run(team, backward.split.tasks, backward.split.cost, sources_task, &backward);
    if (attention->terms != NULL && more != NULL) {
        const plim__term_gradients_t gradients = {edge_gradient, own_gradient, &backward};
        plim__edge_terms_backward(team, hop, attention->terms, &gradients, more->dtable, NULL,
                                  more->scratch);
    }
    if (ranges == 0)
        return;
    backward.range_rows = (rows + ranges - 1) / ranges;
    plim__team_run(team, ranges, (int64_t)(unit * (double)backward.range_rows), range_task,
                   &backward);
    for (int64_t i = 0; i < ranges; i++) {
        add_heads(width, backward.partials + 2 * i * width, datt_src);
        if (attention->z_dst == NULL)
            add_heads(width, backward.partials + (2 * i + 1) * width, datt_dst);
    }
}
