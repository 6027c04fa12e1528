/*
 * Creates a plim__dense: first the products, for which oneDNN reports its needs, then an arena of
 * that size.
 */
#include "nn/dense_object.h"

#include "base/fail.h"

#include <pthread.h>
#include <stdatomic.h>

/* Longer sums amortise the transposed copies of dW's tiles; packed weights are equally fast for any
 * height. */
const int64_t plim__tile_heights[KINDS][HEIGHTS] = {{PLIM__TILE_ROWS, 128, PLIM__ROWS},
                                                    {PLIM__TILE_ROWS, 128, PLIM__ROWS},
                                                    {TALLEST, 128, PLIM__ROWS}};

static bool widens(const plim__dense_params_t *params)
{
    return params->element == PLIM__BF16 && !plim__onednn_has_bf16();
}

/* Without oneDNN: copies of all inputs and outputs of a tile, with sides rounded up to blocks. */
static plim__dense_needs_t needs_bound(const plim__dense_params_t *params)
{
    const size_t in = plim__round_up((size_t)params->in, 64);
    const size_t out = plim__round_up((size_t)params->out, 64);
    const size_t sides =
        plim__mul_saturating_size(plim__add_saturating_size(in, out), TALLEST * sizeof(float));
    const size_t values = plim__mul_saturating_size(in, out);
    const size_t product = plim__mul_saturating_size(values, sizeof(float));
    const size_t packed = plim__mul_saturating_size(
        values, widens(params) ? sizeof(float) : plim__element_bytes(params->element));
    const size_t scratch = plim__add_saturating_size(sides, (size_t)256 << 10);
    return (plim__dense_needs_t){plim__add_saturating_size(scratch, product),
                                 {packed, params->input_gradient ? packed : 0}};
}

/* The matrices of a product, by kind; oneDNN chooses the layout of the weight of the first two. */
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

/* The maximum of scratch over all calls, which share it, since a thread makes one call at a
 * time. */
static plim__dense_needs_t needs_of(const plim__dense_t *dense)
{
    int64_t most = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int h = 0; h < HEIGHTS; h++)
            most = plim__max_i64(most, (int64_t)dense->products[kind][h].scratch);
    for (int kind = 0; kind < WEIGHT; kind++)
        most = plim__max_i64(most, (int64_t)dense->packed[kind].packing.scratch);
    return (plim__dense_needs_t){
        (size_t)most, {dense->products[FORWARD][0].weights, dense->products[INPUT][0].weights}};
}

/* Bytes of one worker's buffers for widened rows. */
static size_t wide_bytes(const plim__dense_t *dense)
{
    const size_t width =
        plim__add_saturating_size((size_t)dense->params.in, (size_t)dense->params.out);
    return dense->widens ? plim__mul_saturating_size(width, TALLEST * sizeof(float)) : 0;
}

/* Sizes follow from params, widens and needs. */
static void lay_out(plim__arena_t *arena, void *object)
{
    plim__dense_t *dense = object;
    const plim__dense_params_t *params = &dense->params;
    const size_t workers = (size_t)params->workers;
    const size_t values = plim__mul_saturating_size((size_t)params->out, (size_t)params->in);
    dense->tools = plim__arena_carve(arena, workers, sizeof(tools_t), 1);
    dense->plain = plim__arena_carve(arena, values, sizeof(float), 1);
    if (params->backward)
        dense->lanes = plim__arena_carve(arena, values,
                                         (size_t)plim__dense_lanes_most(params) * sizeof(float), 1);
    for (int kind = 0; kind < WEIGHT; kind++)
        dense->packed[kind].data =
            plim__arena_carve(arena, 1, dense->needs.weights[kind], PLIM__PAGE);
    dense->scratch = plim__arena_carve(
        arena, workers, plim__round_up(dense->needs.scratch, PLIM__PAGE), PLIM__PAGE);
    dense->wide = plim__arena_carve(arena, workers, wide_bytes(dense), 1);
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

/* Creates a worker's calls; arguments that differ between tiles are set later. */
static plim_status_t make_tools(plim__dense_t *dense, int worker)
{
    tools_t *tools = &dense->tools[worker];
    char *scratch =
        dense->scratch + (size_t)worker * plim__round_up(dense->needs.scratch, PLIM__PAGE);
    tools->wide[0] = (float *)(void *)(dense->wide + (size_t)worker * wide_bytes(dense));
    tools->wide[1] = tools->wide[0] + dense->params.out * TALLEST;
    for (int kind = 0; kind < KINDS; kind++) {
        if (!plim__dense_wanted(&dense->params, kind))
            continue;
        for (int h = 0; h < HEIGHTS; h++) {
            plim__call_t *call = &tools->calls[kind][h];
            PLIM_TRY(plim__call_make(dense->engine, &dense->products[kind][h], false,
                                     &dense->failed, call));
            plim__call_set(call, PLIM__SCRATCH, scratch);
            if (kind != WEIGHT)
                plim__call_set(call, PLIM__WEIGHTS, dense->packed[kind].data);
        }
        if (kind != WEIGHT && worker == 0)
            PLIM_TRY(make_packing_call(dense, kind, scratch));
    }
    return PLIM_OK;
}

/* Destroys the primitives of an object that may be incomplete; its arena stays. */
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

/* oneDNN's needs for products of these parameters. */
typedef struct answer {
    plim__dense_params_t params;
    plim__dense_needs_t needs;
} answer_t;

#define ANSWERS 256

/* What oneDNN has answered; more than fit are asked again each time. An answer stays where it is,
   so readers take no lock, and writers only try to: in a child that was forked meanwhile it may
   stay locked. */
static answer_t answers[ANSWERS];
static atomic_int num_answers;
static pthread_mutex_t answers_lock = PTHREAD_MUTEX_INITIALIZER;

static bool alike(const plim__dense_params_t *a, const plim__dense_params_t *b)
{
    return a->in == b->in && a->out == b->out && a->element == b->element &&
           a->backward == b->backward && a->input_gradient == b->input_gradient;
}

/* False: oneDNN did not answer, and the needs are a bound. */
static bool ask(const plim__dense_params_t *params, plim__dense_needs_t *needs_out)
{
    plim__dense_t draft = {.params = *params, .widens = widens(params)};
    plim__failure_t failure;
    plim__fail_save(&failure);
    const int threads = plim__onednn_alone();
    const plim_status_t status = make_products(&draft, PLIM__TO_KNOW);
    plim__onednn_restore(threads);
    *needs_out = status == PLIM_OK ? needs_of(&draft) : needs_bound(params);
    end_primitives(&draft);
    if (status != PLIM_OK)
        (void)plim__fail_restore(status, &failure);
    return status == PLIM_OK;
}

static void remember(const plim__dense_params_t *params, const plim__dense_needs_t *needs)
{
    if (pthread_mutex_trylock(&answers_lock) != 0)
        return;
    const int count = atomic_load(&num_answers);
    if (count < ANSWERS) {
        answers[count] = (answer_t){*params, *needs};
        atomic_store(&num_answers, count + 1);
    }
    pthread_mutex_unlock(&answers_lock);
}

static plim__dense_needs_t needs_for(const plim__dense_params_t *params)
{
    const int count = atomic_load(&num_answers);
    for (int i = 0; i < count; i++)
        if (alike(&answers[i].params, params))
            return answers[i].needs;
    plim__dense_needs_t needs;
    if (ask(params, &needs))
        remember(params, &needs);
    return needs;
}

size_t plim__dense_estimate(const plim__dense_params_t *params)
{
    plim__dense_t draft = {.params = *params, .widens = widens(params), .needs = needs_for(params)};
    return plim__object_bytes(lay_out, &draft, sizeof draft);
}

plim_status_t plim__dense_create(plim_ledger_t *ledger, const plim__dense_params_t *params,
                                 plim__dense_t **dense_out)
{
    plim__dense_t draft = {.params = *params, .widens = widens(params)};
    plim__dense_t *dense = NULL;
    const int threads = plim__onednn_alone();
    plim_status_t status = make_products(&draft, PLIM__TO_CALL);
    if (status == PLIM_OK) {
        draft.needs = needs_of(&draft);
        status = plim__object_create(ledger, "weights and optimiser", lay_out, &draft, sizeof draft,
                                     &draft.arena, &dense);
    }
    if (status == PLIM_OK)
        plim__arena_touch(&dense->arena);
    for (int worker = 0; worker < params->workers && status == PLIM_OK; worker++)
        status = make_tools(dense, worker);
    plim__onednn_restore(threads);
    if (status == PLIM_OK) {
        *dense_out = dense;
        return PLIM_OK;
    }
    if (dense == NULL) {
        draft.tools = NULL; /* no call has been made */
        end_primitives(&draft);
    }
    plim__dense_destroy(dense);
    return status;
}

void plim__dense_destroy(plim__dense_t *dense)
{
    if (dense == NULL)
        return;
    end_primitives(dense);
    plim__arena_destroy(&dense->arena);
}
