#include "nn/decoder.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"
#include "nn/dense.h"
#include "nn/sum.h"
#include "nn/vector.h"

#include <string.h>

#define PAIRS 64   /* of a task of scores */
#define COLUMNS 16 /* of a task of the gradient: a cache line, which no other task writes */

enum { WEIGHT, BIAS, LAST_WEIGHT, LAST_BIAS, VECTORS, PARAMETERS };

static const char *const names[PARAMETERS] = {"decoder.lins.0.weight", "decoder.lins.0.bias",
                                              "decoder.lins.1.weight", "decoder.lins.1.bias",
                                              "decoder.rel_emb.weight"};

struct plim__decoder {
    plim__arena_t arena;
    plim__decoder_params_t params;
    const plim__parameter_t *parameters[PARAMETERS];
    plim__dense_t *dense; /* of an MLP, as y and dx */
    float *x;             /* (max_pairs, width) products of rows */
    float *y;             /* (max_pairs, width) hidden values; in backward their gradient */
    float *dx;            /* (max_pairs, width) in training */
};

typedef struct decoding {
    const plim__pairs_t *pairs;
    const plim__decoder_t *decoder; /* NULL: dot products */
    int64_t num_rows, width;
    const float *rows;
    float *scores;
    const float *dscores;
    float *drows;
} decoding_t;

static bool is_mlp(const plim__decoder_params_t *params)
{
    return params->scorer.kind == PLIM_DECODER_MLP;
}

static void lay_out(plim__arena_t *arena, void *object)
{
    plim__decoder_t *decoder = object;
    const plim__decoder_params_t *params = &decoder->params;
    const size_t bytes = plim__matrix_bytes(params->max_pairs, params->width, PLIM__F32);
    decoder->x = plim__arena_carve(arena, 1, bytes, 1);
    if (is_mlp(params))
        decoder->y = plim__arena_carve(arena, 1, bytes, 1);
    if (is_mlp(params) && params->training)
        decoder->dx = plim__arena_carve(arena, 1, bytes, 1);
}

static plim__dense_params_t dense_params(const plim__decoder_params_t *params)
{
    return (plim__dense_params_t){.in = params->width,
                                  .out = params->width,
                                  .backward = params->training,
                                  .input_gradient = params->training,
                                  .workers = params->workers,
                                  .rows = params->max_pairs};
}

size_t plim__decoder_estimate(const plim__decoder_params_t *params)
{
    plim__decoder_t draft = {.params = *params};
    const plim__dense_params_t dense = dense_params(params);
    return plim__add_saturating_size(plim__object_bytes(lay_out, &draft, sizeof draft),
                                     is_mlp(params) ? plim__dense_estimate(&dense) : 0);
}

plim_status_t plim__decoder_create(plim_ledger_t *ledger, const plim__decoder_params_t *params,
                                   const plim__parameter_t *parameters, int num_parameters,
                                   plim__decoder_t **decoder_out)
{
    const plim__dense_params_t dense = dense_params(params);
    plim__decoder_t draft = {.params = *params}, *decoder;
    for (int i = 0; i < num_parameters; i++)
        for (int k = 0; k < PARAMETERS; k++)
            if (strcmp(parameters[i].name, names[k]) == 0)
                draft.parameters[k] = &parameters[i];
    PLIM_TRY(plim__object_create(ledger, "activations", lay_out, &draft, sizeof draft, &draft.arena,
                                 &decoder));
    plim__arena_touch(&decoder->arena);
    const plim_status_t status =
        is_mlp(params) ? plim__dense_create(ledger, &dense, &decoder->dense) : PLIM_OK;
    if (status != PLIM_OK) {
        plim__decoder_destroy(decoder);
        return status;
    }
    *decoder_out = decoder;
    return PLIM_OK;
}

void plim__decoder_destroy(plim__decoder_t *decoder)
{
    if (decoder == NULL)
        return;
    plim__dense_destroy(decoder->dense);
    plim__arena_t arena = decoder->arena;
    plim__arena_destroy(&arena);
}

plim_status_t plim__decoder_check(const plim__decoder_t *decoder)
{
    return decoder == NULL || decoder->dense == NULL ? PLIM_OK : plim__dense_check(decoder->dense);
}

PLIM__KERNEL void multiply_body(const decoding_t *work, int64_t begin, int64_t end)
{
    const int64_t width = work->width;
    for (int64_t i = begin; i < end; i++) {
        const float *restrict source = work->rows + work->pairs->sources[i] * width;
        const float *restrict target = work->rows + work->pairs->targets[i] * width;
        float *restrict x = work->decoder->x + i * width;
        for (int64_t k = 0; k < width; k++)
            x[k] = source[k] * target[k];
    }
}
PLIM__VECTORISED(multiply, (const decoding_t *work, int64_t begin, int64_t end), (work, begin, end))

/* The type of pair i, and its vector. */
static inline int64_t type_of(const plim__pairs_t *pairs, int64_t i)
{
    return pairs->types != NULL ? pairs->types[i % pairs->num_typed] : 0;
}

static inline const float *vector_of(const decoding_t *work, int64_t i)
{
    return work->decoder->parameters[VECTORS]->value + type_of(work->pairs, i) * work->width;
}

PLIM__KERNEL void score_body(const decoding_t *work, int64_t begin, int64_t end)
{
    const int64_t width = work->width;
    const plim__decoder_t *decoder = work->decoder;
    for (int64_t i = begin; i < end; i++) {
        if (decoder == NULL) {
            work->scores[i] =
                plim__sum_products(work->rows + work->pairs->sources[i] * width,
                                   work->rows + work->pairs->targets[i] * width, width);
            continue;
        }
        if (decoder->dense == NULL) {
            work->scores[i] = plim__sum_products(decoder->x + i * width, vector_of(work, i), width);
            continue;
        }
        const float *restrict bias = decoder->parameters[BIAS]->value;
        float *restrict y = decoder->y + i * width;
        for (int64_t k = 0; k < width; k++)
            y[k] = y[k] + bias[k] > 0.0f ? y[k] + bias[k] : 0.0f;
        work->scores[i] = decoder->parameters[LAST_BIAS]->value[0] +
                          plim__sum_products(y, decoder->parameters[LAST_WEIGHT]->value, width);
    }
}
PLIM__VECTORISED(score, (const decoding_t *work, int64_t begin, int64_t end), (work, begin, end))

static void multiply_task(void *context, int worker, int64_t task)
{
    const decoding_t *work = context;
    (void)worker;
    multiply(work, task * PAIRS, plim__min_i64((task + 1) * PAIRS, work->pairs->count));
}

static void score_task(void *context, int worker, int64_t task)
{
    const decoding_t *work = context;
    (void)worker;
    score(work, task * PAIRS, plim__min_i64((task + 1) * PAIRS, work->pairs->count));
}

void plim__decode(plim__team_t *team, plim__decoder_t *decoder, const plim__pairs_t *pairs,
                  int64_t width, const float *rows, float *scores_out)
{
    decoding_t work = {
        .pairs = pairs, .decoder = decoder, .width = width, .rows = rows, .scores = scores_out};
    const int64_t tasks = (pairs->count + PAIRS - 1) / PAIRS, cost = PAIRS * (20 + width / 4);
    if (decoder != NULL)
        plim__team_run(team, tasks, cost, multiply_task, &work);
    if (decoder != NULL && decoder->dense != NULL) {
        const plim__matrix_t x = plim__matrix_make(decoder->x, pairs->count, width, PLIM__F32);
        plim__dense_set_weight(decoder->dense, 0, width, decoder->parameters[WEIGHT]->value);
        plim__dense_forward(decoder->dense, team, &x, decoder->y);
    }
    plim__team_run(team, tasks, cost, score_task, &work);
}

/* to[i] += by * from[i] */
PLIM__KERNEL void add_scaled(float *restrict to, const float *restrict from, float by,
                             int64_t count)
{
    if (count == COLUMNS) {
        for (int64_t i = 0; i < COLUMNS; i++)
            to[i] += by * from[i];
        return;
    }
    for (int64_t i = 0; i < count; i++)
        to[i] += by * from[i];
}

/* to[i] = by * from[i] */
PLIM__KERNEL void scale(float *restrict to, const float *restrict from, float by, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] = by * from[i];
}

/* to[i] += by[i] * from[i] */
PLIM__KERNEL void add_products(float *restrict to, const float *restrict from,
                               const float *restrict by, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        to[i] += by[i] * from[i];
}

/* Columns first … first + count - 1 of the gradients of the last layer and of the hidden values,
 * which their gradient replaces. */
PLIM__KERNEL void hidden_body(const decoding_t *work, int64_t first, int64_t count)
{
    const plim__decoder_t *decoder = work->decoder;
    const float *weight = decoder->parameters[LAST_WEIGHT]->value + first;
    float *dweight = decoder->parameters[LAST_WEIGHT]->gradient + first;
    float *dbias = decoder->parameters[BIAS]->gradient + first;
    for (int64_t i = 0; i < work->pairs->count; i++) {
        float *y = decoder->y + i * work->width + first;
        const float dscore = work->dscores[i];
        for (int64_t k = 0; k < count; k++) {
            const float dy = y[k] > 0.0f ? dscore * weight[k] : 0.0f;
            dweight[k] += dscore * y[k];
            dbias[k] += dy;
            y[k] = dy;
        }
    }
}
PLIM__VECTORISED(hidden, (const decoding_t *work, int64_t first, int64_t count),
                 (work, first, count))

static void hidden_task(void *context, int worker, int64_t task)
{
    const decoding_t *work = context;
    (void)worker;
    hidden(work, task * COLUMNS, plim__min_i64(COLUMNS, work->width - task * COLUMNS));
}

/* Columns first … first + count - 1 of the gradients of the vectors. */
PLIM__KERNEL void vectors_body(const decoding_t *work, int64_t first, int64_t count)
{
    float *gradient = work->decoder->parameters[VECTORS]->gradient + first;
    for (int64_t i = 0; i < work->pairs->count; i++)
        add_scaled(gradient + type_of(work->pairs, i) * work->width,
                   work->decoder->x + i * work->width + first, work->dscores[i], count);
}
PLIM__VECTORISED(vectors, (const decoding_t *work, int64_t first, int64_t count),
                 (work, first, count))

static void vectors_task(void *context, int worker, int64_t task)
{
    const decoding_t *work = context;
    (void)worker;
    vectors(work, task * COLUMNS, plim__min_i64(COLUMNS, work->width - task * COLUMNS));
}

/* The gradients of the decoder's parameters, and of an MLP's inputs. */
static void learn(plim__team_t *team, plim__decoder_t *decoder, decoding_t *work)
{
    const int64_t count = work->pairs->count, width = work->width;
    const int64_t tasks = (width + COLUMNS - 1) / COLUMNS;
    if (decoder->dense == NULL) {
        plim__team_run(team, tasks, 20 * count, vectors_task, work);
        return;
    }
    plim__matrix_t x = plim__matrix_make(decoder->x, count, width, PLIM__F32);
    plim__matrix_t dy = plim__matrix_make(decoder->y, count, width, PLIM__F32);
    for (int64_t i = 0; i < count; i++)
        decoder->parameters[LAST_BIAS]->gradient[0] += work->dscores[i];
    plim__team_run(team, tasks, 20 * count, hidden_task, work);
    plim__dense_backward_weight(decoder->dense, team, &dy, &x);
    plim__dense_gradient(decoder->dense, team, 0, width, true,
                         decoder->parameters[WEIGHT]->gradient);
    plim__dense_backward_input(decoder->dense, team, &dy, decoder->dx);
}

/* Columns first … first + count - 1 of the gradient. */
PLIM__KERNEL void backward_body(const decoding_t *work, int64_t first, int64_t count)
{
    const int64_t width = work->width;
    const float *rows = work->rows + first;
    float *drows = work->drows + first;
    for (int64_t row = 0; row < work->num_rows; row++)
        for (int64_t i = 0; i < count; i++)
            drows[row * width + i] = 0.0f;
    for (int64_t i = 0; i < work->pairs->count; i++) {
        const int64_t source = work->pairs->sources[i] * width;
        const int64_t target = work->pairs->targets[i] * width;
        float own[COLUMNS];
        if (work->decoder != NULL) {
            const float *dx = own;
            if (work->decoder->dense != NULL)
                dx = work->decoder->dx + i * width + first;
            else
                scale(own, vector_of(work, i) + first, work->dscores[i], count);
            add_products(drows + source, rows + target, dx, count);
            add_products(drows + target, rows + source, dx, count);
            continue;
        }
        add_scaled(drows + source, rows + target, work->dscores[i], count);
        add_scaled(drows + target, rows + source, work->dscores[i], count);
    }
}
PLIM__VECTORISED(backward, (const decoding_t *work, int64_t first, int64_t count),
                 (work, first, count))

static void backward_task(void *context, int worker, int64_t task)
{
    const decoding_t *work = context;
    (void)worker;
    backward(work, task * COLUMNS, plim__min_i64(COLUMNS, work->width - task * COLUMNS));
}

void plim__decode_backward(plim__team_t *team, plim__decoder_t *decoder, const plim__pairs_t *pairs,
                           int64_t num_rows, int64_t width, const float *rows, const float *dscores,
                           float *drows_out)
{
    decoding_t work = {.pairs = pairs,
                       .decoder = decoder,
                       .num_rows = num_rows,
                       .width = width,
                       .rows = rows,
                       .dscores = dscores,
                       .drows = drows_out};
    if (decoder != NULL)
        learn(team, decoder, &work);
    plim__team_run(team, (width + COLUMNS - 1) / COLUMNS, 20 * pairs->count + 4 * num_rows,
                   backward_task, &work);
}
