/*
 * Making a plim__dense: the products first, whose needs oneDNN tells, then an arena of that size.
 */
#include "nn/dense_object.h"

#include "base/fail.h"

#include <pthread.h>

/* Longer sums pay the transposed copies of dW's tiles; a packed weight is read as fast by any. */
const int64_t plim__tile_heights[KINDS][HEIGHTS] = {{PLIM__TILE_ROWS, 128, PLIM__ROWS},
                                                    {PLIM__TILE_ROWS, 128, PLIM__ROWS},
                                                    {TALLEST, 128, PLIM__ROWS}};

static bool widens(const plim__dense_params_t *params)
{
    return params->element == PLIM__BF16 && !plim__onednn_has_bf16();
}

/* Three sizes multiplied, in bytes of an arena. */
static size_t piece(size_t a, size_t b, size_t c, size_t align)
{
    return plim__arena_piece(plim__mul_saturating_size(a, b), c, align);
}

/* Sizes that oneDNN decides: bytes of scratch of a worker, and of packed weights. */
typedef struct needs {
    size_t scratch;
    size_t weights[WEIGHT];
} needs_t;

/* What is carved apart from packed weights and scratch, on whose sizes oneDNN decides. */
static size_t own_bytes(const plim__dense_params_t *params)
{
    const size_t in = (size_t)params->in, out = (size_t)params->out;
    const size_t workers = (size_t)params->workers;
    size_t bytes = piece(1, 1, sizeof(plim__dense_t), 1);
    bytes = plim__add_saturating_size(bytes, piece(workers, 1, sizeof(tools_t), 1));
    bytes = plim__add_saturating_size(bytes, piece(out, in, sizeof(float), 1));
    if (params->backward)
        bytes = plim__add_saturating_size(
            bytes, piece(out, in, (size_t)plim__dense_lanes_most(params) * sizeof(float), 1));
    if (widens(params))
        bytes = plim__add_saturating_size(
            bytes,
            plim__mul_saturating_size(workers, piece(plim__add_saturating_size(in, out), TALLEST,
                                                     sizeof(float), 2 * PLIM__LINE)));
    return bytes;
}

/* Copies of all that a tile reads and writes, its sides rounded up to blocks. */
static size_t scratch_bound(const plim__dense_params_t *params)
{
    const size_t in = plim__round_up((size_t)params->in, 64);
    const size_t out = plim__round_up((size_t)params->out, 64);
    const size_t sides = piece(plim__add_saturating_size(in, out), TALLEST, sizeof(float), 1);
    return plim__add_saturating_size(plim__add_saturating_size(sides, (size_t)256 << 10),
                                     piece(in, out, sizeof(float), 1));
}

static size_t packed_bound(const plim__dense_params_t *params)
{
    return piece(plim__round_up((size_t)params->in, 64), plim__round_up((size_t)params->out, 64),
                 widens(params) ? sizeof(float) : plim__element_bytes(params->element), PLIM__PAGE);
}

static needs_t needs_bound(const plim__dense_params_t *params)
{
    const size_t packed = packed_bound(params);
    return (needs_t){scratch_bound(params), {packed, params->input_gradient ? packed : 0}};
}

/* The matrices of a product, by kind; the weight of the first two in a layout of oneDNN's choice.
 */
static void product_views(const plim__dense_t *dense, int kind, int64_t rows, plim__view_t views[3])
{
    const int64_t in = dense->params.in, out = dense->params.out;
    const plim__element_t element = dense->widens ? PLIM__F32 : dense->params.element;
    if (kind == WEIGHT) {
        views[PLIM__SOURCE] = (plim__view_t){out, rows, 1, out, element};
        views[PLIM__WEIGHTS] = (plim__view_t){rows, in, in, 1, element};
        views[PLIM__TARGET] = (plim__view_t){out, in, in, 1, PLIM__F32};
        return;
    }
    const int64_t from = kind == FORWARD ? in : out;
    const int64_t to = kind == FORWARD ? out : in;
    views[PLIM__SOURCE] = (plim__view_t){rows, from, from, 1, element};
    views[PLIM__WEIGHTS] = (plim__view_t){from, to, 0, 0, element};
    views[PLIM__TARGET] = (plim__view_t){rows, to, to, 1, PLIM__F32};
}

/* `plain` as a product of the kind sees it: (in, out) or (out, in). */
static plim__view_t plain_view(const plim__dense_params_t *params, int kind)
{
    if (kind == FORWARD)
        return (plim__view_t){params->in, params->out, 1, params->in, PLIM__F32};
    return (plim__view_t){params->out, params->in, params->in, 1, PLIM__F32};
}

static plim_status_t make_kind(plim__dense_t *dense, int kind, plim__purpose_t purpose)
{
    plim__product_t *products = dense->products[kind];
    plim__view_t views[3];
    for (int h = 0; h < HEIGHTS; h++) {
        /* One packing serves all heights. */
        const plim__product_t *like = h > 0 && kind != WEIGHT ? &products[0] : NULL;
        product_views(dense, kind, plim__tile_heights[kind][h], views);
        PLIM_TRY(plim__product_make(dense->engine, &views[PLIM__SOURCE], &views[PLIM__WEIGHTS],
                                    &views[PLIM__TARGET], like, kind == WEIGHT, purpose,
                                    &products[h]));
    }
    if (kind == WEIGHT)
        return PLIM_OK;
    const plim__view_t plain = plain_view(&dense->params, kind);
    return plim__packing_make(dense->engine, &plain, &products[0], purpose,
                              &dense->packed[kind].packing);
}

static plim_status_t make_products(plim__dense_t *dense, plim__purpose_t purpose)
{
    PLIM_TRY(plim__onednn_engine(&dense->engine));
    for (int kind = 0; kind < KINDS; kind++)
        if (plim__dense_wanted(&dense->params, kind))
            PLIM_TRY(make_kind(dense, kind, purpose));
    return PLIM_OK;
}

/* Of scratch the most that any call needs: they share it, for a thread makes one at a time. */
static needs_t needs_of(const plim__dense_t *dense)
{
    int64_t most = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int h = 0; h < HEIGHTS; h++)
            most = plim__max_i64(most, (int64_t)dense->products[kind][h].scratch);
    for (int kind = 0; kind < WEIGHT; kind++)
        most = plim__max_i64(most, (int64_t)dense->packed[kind].packing.scratch);
    return (needs_t){(size_t)most,
                     {dense->products[FORWARD][0].weights, dense->products[INPUT][0].weights}};
}

/* The arena of an object with these needs. */
static size_t arena_bytes(const plim__dense_params_t *params, const needs_t *needs)
{
    size_t bytes = own_bytes(params);
    for (int kind = 0; kind < WEIGHT; kind++)
        bytes = plim__add_saturating_size(bytes, piece(1, 1, needs->weights[kind], PLIM__PAGE));
    return plim__add_saturating_size(
        bytes, plim__mul_saturating_size((size_t)params->workers,
                                         piece(1, 1, needs->scratch, PLIM__PAGE)));
}

/* Moves the object into an arena of the size that its products ask for. */
static plim_status_t settle(plim_ledger_t *ledger, plim__dense_t *draft, plim__dense_t **dense_out)
{
    const plim__dense_params_t *params = &draft->params;
    const size_t workers = (size_t)params->workers;
    const needs_t needs = needs_of(draft);
    draft->scratch = needs.scratch;
    PLIM_TRY(plim__arena_create(ledger, "products", arena_bytes(params, &needs), &draft->arena));
    plim__arena_touch(&draft->arena);
    const size_t values = (size_t)params->out * (size_t)params->in;
    plim__dense_t *dense = plim__arena_carve(&draft->arena, 1, sizeof *dense, 1);
    draft->tools = plim__arena_carve(&draft->arena, workers, sizeof(tools_t), 1);
    draft->plain = plim__arena_carve(&draft->arena, values, sizeof(float), 1);
    if (params->backward)
        draft->lanes = plim__arena_carve(&draft->arena, values,
                                         (size_t)plim__dense_lanes_most(params) * sizeof(float), 1);
    for (int kind = 0; kind < WEIGHT; kind++)
        if (plim__dense_wanted(params, kind))
            draft->packed[kind].data =
                plim__arena_carve(&draft->arena, 1, draft->products[kind][0].weights, PLIM__PAGE);
    *dense = *draft;
    *dense_out = dense;
    return PLIM_OK;
}

static plim_status_t make_packing_call(plim__dense_t *dense, int kind, void *scratch)
{
    packed_t *packed = &dense->packed[kind];
    packed->stale = true;
    PLIM_TRY(plim__call_make(dense->engine, &packed->packing, true, &dense->failed, &packed->call));
    plim__call_set(&packed->call, PLIM__SOURCE, dense->plain);
    plim__call_set(&packed->call, PLIM__TARGET, packed->data);
    plim__call_set(&packed->call, PLIM__SCRATCH, scratch);
    return PLIM_OK;
}

/* Everything that a worker holds; what differs from tile to tile is set later. */
static plim_status_t make_tools(plim__dense_t *dense, int worker)
{
    tools_t *tools = &dense->tools[worker];
    tools->scratch = plim__arena_carve(&dense->arena, 1, dense->scratch, PLIM__PAGE);
    if (dense->widens) {
        tools->wide[0] =
            plim__arena_carve(&dense->arena, (size_t)dense->params.out, TALLEST * sizeof(float), 1);
        tools->wide[1] =
            plim__arena_carve(&dense->arena, (size_t)dense->params.in, TALLEST * sizeof(float), 1);
    }
    for (int kind = 0; kind < KINDS; kind++) {
        if (!plim__dense_wanted(&dense->params, kind))
            continue;
        for (int h = 0; h < HEIGHTS; h++) {
            plim__call_t *call = &tools->calls[kind][h];
            PLIM_TRY(plim__call_make(dense->engine, &dense->products[kind][h], false,
                                     &dense->failed, call));
            plim__call_set(call, PLIM__SCRATCH, tools->scratch);
            if (kind != WEIGHT)
                plim__call_set(call, PLIM__WEIGHTS, dense->packed[kind].data);
        }
        if (kind != WEIGHT && worker == 0)
            PLIM_TRY(make_packing_call(dense, kind, tools->scratch));
    }
    return PLIM_OK;
}

/* Ends the primitives of an object that may be half made; its arena stays. */
static void end_primitives(plim__dense_t *dense)
{
    for (int worker = 0; dense->tools != NULL && worker < dense->params.workers; worker++)
        for (int kind = 0; kind < KINDS; kind++)
            for (int h = 0; h < HEIGHTS; h++)
                plim__call_end(&dense->tools[worker].calls[kind][h]);
    for (int kind = 0; kind < WEIGHT; kind++) {
        plim__call_end(&dense->packed[kind].call);
        plim__product_end(&dense->packed[kind].packing);
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (int h = 0; h < HEIGHTS; h++)
            plim__product_end(&dense->products[kind][h]);
    plim__onednn_engine_end(dense->engine);
}

/* What oneDNN said of products like these. */
typedef struct answer {
    plim__dense_params_t params; /* in = 0: none yet */
    needs_t needs;
} answer_t;

#define ANSWERS 64

static pthread_mutex_t answers_lock = PTHREAD_MUTEX_INITIALIZER;
static answer_t answers[ANSWERS]; /* under the lock; the oldest goes first */
static int next_answer;

static bool alike(const plim__dense_params_t *a, const plim__dense_params_t *b)
{
    return a->in == b->in && a->out == b->out && a->element == b->element &&
           a->backward == b->backward && a->input_gradient == b->input_gradient;
}

static needs_t ask(const plim__dense_params_t *params)
{
    plim__dense_t draft = {.params = *params, .widens = widens(params)};
    char message[PLIM_MESSAGE_MAX];
    plim__fail_save(message, sizeof message);
    const int threads = plim__onednn_alone();
    const plim_status_t status = make_products(&draft, PLIM__TO_KNOW);
    plim__onednn_restore(threads);
    const needs_t needs = status == PLIM_OK ? needs_of(&draft) : needs_bound(params);
    end_primitives(&draft);
    if (status != PLIM_OK)
        (void)plim__fail_restore(status, message);
    return needs;
}

static needs_t needs_for(const plim__dense_params_t *params)
{
    pthread_mutex_lock(&answers_lock);
    int i = 0;
    while (i < ANSWERS && !(answers[i].params.in > 0 && alike(&answers[i].params, params)))
        i++;
    if (i == ANSWERS) {
        i = next_answer++ % ANSWERS;
        answers[i] = (answer_t){*params, ask(params)};
    }
    const needs_t needs = answers[i].needs;
    pthread_mutex_unlock(&answers_lock);
    return needs;
}

size_t plim__dense_estimate(const plim__dense_params_t *params)
{
    const needs_t needs = needs_for(params);
    return plim__round_up(arena_bytes(params, &needs), PLIM__PAGE);
}

plim_status_t plim__dense_create(plim_ledger_t *ledger, const plim__dense_params_t *params,
                                 plim__dense_t **dense_out)
{
    plim__dense_t draft = {.params = *params, .widens = widens(params)};
    plim__dense_t *dense = NULL;
    const int threads = plim__onednn_alone();
    plim_status_t status = make_products(&draft, PLIM__TO_CALL);
    if (status == PLIM_OK)
        status = settle(ledger, &draft, &dense);
    for (int worker = 0; worker < params->workers && status == PLIM_OK; worker++)
        status = make_tools(dense, worker);
    plim__onednn_restore(threads);
    if (status == PLIM_OK) {
        *dense_out = dense;
        return PLIM_OK;
    }
    end_primitives(dense != NULL ? dense : &draft);
    plim__arena_destroy(&draft.arena);
    return status;
}

void plim__dense_destroy(plim__dense_t *dense)
{
    if (dense == NULL)
        return;
    end_primitives(dense);
    plim__arena_destroy(&dense->arena);
}
