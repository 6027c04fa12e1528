#include "nn/attention_pass.h"
#include "nn/exp.h"
#include "nn/vector.h"
#include "nn/work_split.h"

#include <math.h>
#include <string.h>

/* Rows of one piece of the scores. */
#define SCORE_ROWS 256

typedef struct forward {
    const plim__edges_t *hop;
    const plim__attention_t *attention;
    const plim__matrix_t *z;
    const plim__attention_state_t *state;
    plim__matrix_t *out;
    const plim__kernels_t *kernels;
    plim__work_split_t split;
} forward_t;

PLIM__KERNEL void exponentials_body(float *values, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        values[i] = plim__expf(values[i]);
}

PLIM__VECTORISED(exponentials, (float *values, int64_t count), (values, count))

static void score_piece(void *context, int worker, int64_t piece)
{
    (void)worker;
    const forward_t *forward = context;
    const plim__attention_t *attention = forward->attention;
    const int64_t heads = attention->heads;
    const int64_t end = plim__min_i64((piece + 1) * SCORE_ROWS, forward->hop->num_src);
    for (int64_t u = piece * SCORE_ROWS; u < end; u++) {
        const float *z = plim__float_row(forward->z, u);
        forward->kernels->dots(heads, attention->channels, attention->att_src, z,
                               forward->state->score_src + u * heads);
        if (u < forward->hop->num_dst)
            forward->kernels->dots(heads, attention->channels, attention->att_dst, z,
                                   forward->state->score_dst + u * heads);
    }
}

/* The weights of one destination: `edges` (count, heads) and `self` (heads) get logits first. */
static void logits(const forward_t *forward, int64_t v, float *edges, float *self)
{
    const int64_t heads = forward->attention->heads;
    const plim__edges_t *hop = forward->hop;
    const float *dst = forward->state->score_dst + v * heads;
    const float *own = forward->state->score_src + v * heads;
    for (int64_t h = 0; h < heads; h++) {
        const float sum = own[h] + dst[h];
        self[h] = sum > 0 ? sum : sum * PLIM__LEAK;
    }
    for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++, edges += heads) {
        const int64_t u = hop->indices[e];
        const float *src = forward->state->score_src + u * heads;
        for (int64_t h = 0; h < heads; h++) {
            const float sum = src[h] + dst[h];
            edges[h] = u == v ? -INFINITY : sum > 0 ? sum : sum * PLIM__LEAK;
        }
    }
}

/* Over (count, heads) edges and the self entry, for each head. */
static void softmax(int64_t count, int64_t heads, float *edges, float *self)
{
    for (int64_t h = 0; h < heads; h++) {
        float most = self[h];
        for (int64_t i = h; i < count * heads; i += heads)
            most = edges[i] > most ? edges[i] : most;
        self[h] -= most;
        for (int64_t i = h; i < count * heads; i += heads)
            edges[i] -= most;
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

static void attend_piece(void *context, int worker, int64_t piece)
{
    (void)worker;
    const forward_t *forward = context;
    const plim__edges_t *hop = forward->hop;
    const plim__attention_t *attention = forward->attention;
    const int64_t heads = attention->heads;
    const int64_t end = plim__work_split_row(&forward->split, piece + 1);
    for (int64_t v = plim__work_split_row(&forward->split, piece); v < end; v++) {
        float *edges = forward->state->weights + hop->indptr[v] * heads;
        float *self = forward->state->weights + (hop->num_edges + v) * heads;
        float *out = (float *)forward->out->data + v * forward->out->stride;
        logits(forward, v, edges, self);
        softmax(hop->indptr[v + 1] - hop->indptr[v], heads, edges, self);
        memset(out, 0, (size_t)(heads * attention->channels) * sizeof out[0]);
        for (int64_t e = hop->indptr[v]; e < hop->indptr[v + 1]; e++, edges += heads) {
            if (e + PLIM__EDGES_AHEAD < hop->num_edges)
                plim__prefetch_row(forward->z, hop->indices[e + PLIM__EDGES_AHEAD]);
            const int64_t u = hop->indices[e];
            if (u != v)
                plim__attention_add(forward->kernels, attention, v, u, edges,
                                    plim__float_row(forward->z, u), out);
        }
        plim__attention_add(forward->kernels, attention, v, v, self, plim__float_row(forward->z, v),
                            out);
    }
}

void plim__attention_forward(plim__team_t *team, const plim__edges_t *hop,
                             const plim__attention_t *attention, const plim__matrix_t *z,
                             plim__attention_state_t *state, plim__matrix_t *out)
{
    const size_t bytes = (size_t)z->width * sizeof(float);
    const double unit = plim__work_split_cost(bytes);
    forward_t forward = {.hop = hop,
                         .attention = attention,
                         .z = z,
                         .state = state,
                         .out = out,
                         .kernels = plim__kernels(),
                         .split = plim__work_split_make(hop->indptr, hop->num_dst, 2 * unit)};
    plim__team_run(team, (hop->num_src + SCORE_ROWS - 1) / SCORE_ROWS, (int64_t)(unit * SCORE_ROWS),
                   score_piece, &forward);
    plim__team_run(team, forward.split.pieces, forward.split.cost, attend_piece, &forward);
}
