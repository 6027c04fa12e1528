#include "nn/attention_pass.h"
#include "nn/work_split.h"

#include <string.h>

/* Sums over rows are made of at most RANGES_MAX partial ones, of at least RANGE_ROWS rows each. */
#define RANGES_MAX 64
#define RANGE_ROWS 64
#define ALIGNMENT 64

typedef struct backward {
    const plim__edges_t *hop;
    const plim__reverse_t *reverse;
    const plim__attention_t *attention;
    const plim__matrix_t *z;
    const plim__attention_state_t *state;
    const plim__matrix_t *dout;
    plim__matrix_t *dz;
    const plim__kernels_t *kernels;
    plim__work_split_t split;
    int64_t range_rows;
    /* In the caller's scratch. */
    float *logits;   /* (num_edges + num_dst, heads) gradients of score_src + score_dst */
    float *src;      /* (num_src, heads) gradients of score_src */
    float *dst;      /* (num_dst, heads) gradients of score_dst */
    float *partials; /* (ranges, 2, width) */
} backward_t;

static int64_t count_ranges(int64_t rows)
{
    return plim__min_i64(RANGES_MAX, (rows + RANGE_ROWS - 1) / RANGE_ROWS);
}

static size_t array_bytes(int64_t rows, int64_t columns)
{
    return plim__round_up(
        plim__mul_saturating_size(plim__mul_saturating_size((size_t)rows, (size_t)columns),
                                  sizeof(float)),
        ALIGNMENT);
}

size_t plim__attention_scratch(int64_t num_src, int64_t num_dst, int64_t num_edges, int heads,
                               int64_t channels)
{
    const int64_t width = plim__mul_saturating_i64(heads, channels);
    size_t bytes = array_bytes(plim__add_saturating_i64(num_edges, num_dst), heads);
    bytes = plim__add_saturating_size(bytes, array_bytes(num_src, heads));
    bytes = plim__add_saturating_size(bytes, array_bytes(num_dst, heads));
    return plim__add_saturating_size(bytes, array_bytes(2 * count_ranges(num_src), width));
}

static void lay_out(backward_t *backward, void *scratch)
{
    const plim__edges_t *hop = backward->hop;
    const int64_t heads = backward->attention->heads;
    char *at = scratch;
    backward->logits = (float *)at;
    at += array_bytes(hop->num_edges + hop->num_dst, heads);
    backward->src = (float *)at;
    at += array_bytes(hop->num_src, heads);
    backward->dst = (float *)at;
    at += array_bytes(hop->num_dst, heads);
    backward->partials = (float *)at;
}

/* Gradients of the weights on the way from u to v, then of what the softmax was of. */
static void weight_gradients(const backward_t *backward, int64_t v, int64_t u, float *out)
{
    const plim__attention_t *attention = backward->attention;
    backward->kernels->dots(attention->heads, attention->channels,
                            plim__float_row(backward->dout, v), plim__float_row(backward->z, u),
                            out);
    if (attention->dropout > 0)
        plim__attention_drop(attention, v, u, 0, attention->heads, out);
}

/* The derivative of LeakyReLU. */
static float slope(float score)
{
    return score > 0 ? 1.0f : PLIM__LEAK;
}

/* Through the softmax and LeakyReLU of one destination and head, in place; returns the sum. */
static float through_softmax(const backward_t *backward, int64_t v, int64_t h)
{
    const plim__edges_t *hop = backward->hop;
    const int64_t heads = backward->attention->heads;
    const float *weights = backward->state->weights;
    const float *src = backward->state->score_src;
    const float dst = backward->state->score_dst[v * heads + h];
    float *logits = backward->logits;
    const int64_t self = (hop->num_edges + v) * heads + h;
    const int64_t begin = hop->indptr[v], end = hop->indptr[v + 1];
    float mean = weights[self] * logits[self];
    for (int64_t e = begin; e < end; e++)
        mean += weights[e * heads + h] * logits[e * heads + h];
    logits[self] = weights[self] * (logits[self] - mean) * slope(src[v * heads + h] + dst);
    float total = logits[self];
    for (int64_t e = begin; e < end; e++) {
        const int64_t at = e * heads + h;
        logits[at] =
            weights[at] * (logits[at] - mean) * slope(src[hop->indices[e] * heads + h] + dst);
        total += logits[at];
    }
    return total;
}

static void destinations_piece(void *context, int worker, int64_t piece)
{
    (void)worker;
    const backward_t *backward = context;
    const plim__edges_t *hop = backward->hop;
    const int64_t heads = backward->attention->heads;
    const int64_t last = plim__work_split_row(&backward->split, piece + 1);
    for (int64_t v = plim__work_split_row(&backward->split, piece); v < last; v++) {
        for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++) {
            if (e + PLIM__EDGES_AHEAD < hop->num_edges)
                plim__prefetch_row(backward->z, hop->indices[e + PLIM__EDGES_AHEAD]);
            float *out = backward->logits + e * heads;
            if (hop->indices[e] == v)
                memset(out, 0, (size_t)heads * sizeof out[0]);
            else
                weight_gradients(backward, v, hop->indices[e], out);
        }
        weight_gradients(backward, v, v, backward->logits + (hop->num_edges + v) * heads);
        for (int64_t h = 0; h < heads; h++)
            backward->dst[v * heads + h] = through_softmax(backward, v, h);
    }
}

static void add_heads(int64_t heads, const float *values, float *sums)
{
    for (int64_t h = 0; h < heads; h++)
        sums[h] += values[h];
}

/* dz[u], and the gradient of u's score on the way. */
static void source_row(const backward_t *backward, int64_t u)
{
    const plim__edges_t *hop = backward->hop;
    const plim__reverse_t *reverse = backward->reverse;
    const plim__attention_t *attention = backward->attention;
    const int64_t heads = attention->heads;
    const float *weights = backward->state->weights;
    float *dz = (float *)backward->dz->data + u * backward->dz->stride;
    float *src = backward->src + u * heads;
    memset(dz, 0, (size_t)(heads * attention->channels) * sizeof dz[0]);
    memset(src, 0, (size_t)heads * sizeof src[0]);
    for (int64_t i = reverse->indptr[u]; i < reverse->indptr[u + 1]; i++) {
        if (i + PLIM__EDGES_AHEAD < hop->num_edges)
            plim__prefetch_row(backward->dout, reverse->destinations[i + PLIM__EDGES_AHEAD]);
        const int64_t e = reverse->edges[i], v = reverse->destinations[i];
        if (u == v)
            continue;
        plim__attention_add(backward->kernels, attention, v, u, weights + e * heads,
                            plim__float_row(backward->dout, v), dz);
        add_heads(heads, backward->logits + e * heads, src);
    }
    if (u < hop->num_dst) {
        const int64_t self = (hop->num_edges + u) * heads;
        plim__attention_add(backward->kernels, attention, u, u, weights + self,
                            plim__float_row(backward->dout, u), dz);
        add_heads(heads, backward->logits + self, src);
        backward->kernels->add_scaled(heads, attention->channels, backward->dst + u * heads,
                                      attention->att_dst, dz);
    }
    backward->kernels->add_scaled(heads, attention->channels, src, attention->att_src, dz);
}

static void sources_piece(void *context, int worker, int64_t piece)
{
    (void)worker;
    const backward_t *backward = context;
    const int64_t last = plim__work_split_row(&backward->split, piece + 1);
    for (int64_t u = plim__work_split_row(&backward->split, piece); u < last; u++)
        source_row(backward, u);
}

/* The range's share of the gradients of att_src and att_dst. */
static void range_piece(void *context, int worker, int64_t piece)
{
    (void)worker;
    const backward_t *backward = context;
    const plim__edges_t *hop = backward->hop;
    const int64_t heads = backward->attention->heads, channels = backward->attention->channels;
    const int64_t width = heads * channels;
    float *partial = backward->partials + 2 * piece * width;
    memset(partial, 0, (size_t)(2 * width) * sizeof partial[0]);
    const int64_t last = plim__min_i64((piece + 1) * backward->range_rows, hop->num_src);
    for (int64_t u = piece * backward->range_rows; u < last; u++) {
        const float *z = plim__float_row(backward->z, u);
        backward->kernels->add_scaled(heads, channels, backward->src + u * heads, z, partial);
        if (u < hop->num_dst)
            backward->kernels->add_scaled(heads, channels, backward->dst + u * heads, z,
                                          partial + width);
    }
}

void plim__attention_backward(plim__team_t *team, const plim__edges_t *hop,
                              const plim__reverse_t *reverse, const plim__attention_t *attention,
                              const plim__matrix_t *z, const plim__attention_state_t *state,
                              const plim__matrix_t *dout, plim__matrix_t *dz, float *datt_src,
                              float *datt_dst, void *scratch)
{
    const int64_t width = attention->heads * attention->channels;
    const int64_t ranges = count_ranges(hop->num_src);
    const double unit = plim__work_split_cost((size_t)width * sizeof(float));
    backward_t backward = {.hop = hop,
                           .reverse = reverse,
                           .attention = attention,
                           .z = z,
                           .state = state,
                           .dout = dout,
                           .dz = dz,
                           .kernels = plim__kernels()};
    lay_out(&backward, scratch);
    backward.split = plim__work_split_make(hop->indptr, hop->num_dst, 2 * unit);
    plim__team_run(team, backward.split.pieces, backward.split.cost, destinations_piece, &backward);
    backward.split = plim__work_split_make(reverse->indptr, hop->num_src, 2 * unit);
    plim__team_run(team, backward.split.pieces, backward.split.cost, sources_piece, &backward);
    if (ranges == 0)
        return;
    backward.range_rows = (hop->num_src + ranges - 1) / ranges;
    plim__team_run(team, ranges, (int64_t)(unit * (double)backward.range_rows), range_piece,
                   &backward);
    for (int64_t i = 0; i < ranges; i++) {
        add_heads(width, backward.partials + 2 * i * width, datt_src);
        add_heads(width, backward.partials + (2 * i + 1) * width, datt_dst);
    }
}
