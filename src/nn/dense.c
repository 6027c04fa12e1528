/*
 * The tiles of a product, by rows alone:
 *
 *     |   256   |   256   |   256   |32|32|3.|      the last one reads and writes spare rows
 *
 * A tile of y = x W' and of dx = dy W is a product of its own, whose weight has been packed into
 * the layout that oneDNN asked for. dW = dy' x is a sum over rows: its tiles are cut into lanes,
 * each lane is summed by one thread into a matrix of its own, and the lanes are added in their
 * order at the end.
 *
 * oneDNN takes the number of OpenMP threads from the thread that calls it. It is set to 1 around
 * every call, so OpenMP never starts one.
 */
#include "nn/dense.h"

#include "base/check.h"
#include "base/fail.h"
#include "mem/arena.h"

#include <assert.h>
#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if DNNL_CPU_RUNTIME == DNNL_RUNTIME_TBB
#error "this oneDNN runs on TBB, which starts threads; take one built with OpenMP or none"
#endif

#define TALL 256
#define LANES_MAX 8
/* A lane is worth its own sum from so many rows on. */
#define LANE_ROWS 512

enum { FORWARD, INPUT, WEIGHT, KINDS };
enum { TILE_TALL, TILE_SHORT, HEIGHTS };
enum { SOURCE, WEIGHTS, TARGET, SCRATCH, ARGUMENTS };

static const int64_t heights[HEIGHTS] = {TALL, PLIM__ROWS};

/* What oneDNN takes from the heap for a primitive, and for the memory objects of a worker. */
#define PRIMITIVE_BYTES ((size_t)96 << 10)
#define WORKER_BYTES ((size_t)32 << 10)
#define LIBRARY_BYTES ((size_t)64 << 20)

typedef struct product {
    dnnl_primitive_t primitive;
    size_t scratch;
} product_t;

/* Of one worker. */
typedef struct tools {
    dnnl_stream_t stream;
    dnnl_exec_arg_t arguments[KINDS][HEIGHTS][ARGUMENTS];
} tools_t;

/* A weight in the layout of a product, and the way there from `plain`. */
typedef struct packed {
    dnnl_primitive_t reorder;
    dnnl_exec_arg_t arguments[3]; /* from, to, scratchpad */
    size_t bytes;
    size_t scratch;
    void *data;
    bool stale;
} packed_t;

struct plim__dense {
    plim__arena_t arena;
    plim__dense_params_t params;
    size_t foreign;
    int foreign_account;
    dnnl_engine_t engine;
    product_t products[KINDS][HEIGHTS];
    packed_t packed[2]; /* for FORWARD and INPUT */
    float *plain;       /* (out, in) */
    float *lanes;       /* (LANES_MAX, out, in) */
    int64_t lanes_used; /* since the last plim__dense_gradient; the others are zero */
    tools_t *tools;     /* (workers) */
};

/* OpenMP's, of whichever library oneDNN brings along; absent when it was built without. */
extern void omp_set_num_threads(int count) __attribute__((weak));
extern int omp_get_max_threads(void) __attribute__((weak));

/* One OpenMP thread from here on; returns what to give back to end_alone. */
static int begin_alone(void)
{
    if (omp_set_num_threads == NULL || omp_get_max_threads == NULL)
        return 1;
    int before = omp_get_max_threads();
    if (before != 1)
        omp_set_num_threads(1);
    return before;
}

static void end_alone(int before)
{
    if (before != 1)
        omp_set_num_threads(before);
}

static const char *status_text(dnnl_status_t status)
{
    switch (status) {
    case dnnl_out_of_memory:
        return "out of memory";
    case dnnl_invalid_arguments:
        return "invalid arguments";
    case dnnl_unimplemented:
        return "not implemented for this processor";
    default:
        return "run-time error";
    }
}

static plim_status_t fail_dnnl(dnnl_status_t status, const plim__dense_params_t *params)
{
    return plim__fail(status == dnnl_out_of_memory ? PLIM_ERR_NOMEM : PLIM_ERR_UNSUPPORTED,
                      "%s cannot make a %s product with a weight of %lld x %lld: %s",
                      plim__dense_library_version(),
                      params->element == PLIM__BF16 ? "bfloat16" : "float", (long long)params->out,
                      (long long)params->in, status_text(status));
}

#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t try_dnnl_ = (call);                                                          \
        if (try_dnnl_ != dnnl_success)                                                             \
            return try_dnnl_;                                                                      \
    } while (0)

/* A matrix as oneDNN shall see it; strides 0 leave the layout to it. */
typedef struct view {
    dnnl_dim_t rows, columns;
    dnnl_dim_t row_stride, column_stride;
    dnnl_data_type_t type;
} view_t;

/* Memory descriptors are structures in version 2 and objects in version 3. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t layout_t;

static dnnl_status_t view_layout(const view_t *view, dnnl_memory_desc_t *layout_out)
{
    const dnnl_dims_t shape = {view->rows, view->columns};
    const dnnl_dims_t strides = {view->row_stride, view->column_stride};
    if (view->row_stride == 0)
        return dnnl_memory_desc_create_with_tag(layout_out, 2, shape, view->type,
                                                dnnl_format_tag_any);
    return dnnl_memory_desc_create_with_strides(layout_out, 2, shape, view->type, strides);
}

static void layout_end(dnnl_memory_desc_t *layout)
{
    if (*layout != NULL)
        (void)dnnl_memory_desc_destroy(*layout);
}

#define LAYOUT_NONE NULL
#define LAYOUT_OF(layout) (layout)
#else
typedef const dnnl_memory_desc_t *layout_t;

static dnnl_status_t view_layout(const view_t *view, dnnl_memory_desc_t *layout_out)
{
    const dnnl_dims_t shape = {view->rows, view->columns};
    const dnnl_dims_t strides = {view->row_stride, view->column_stride};
    if (view->row_stride == 0)
        return dnnl_memory_desc_init_by_tag(layout_out, 2, shape, view->type, dnnl_format_tag_any);
    return dnnl_memory_desc_init_by_strides(layout_out, 2, shape, view->type, strides);
}

static void layout_end(dnnl_memory_desc_t *layout)
{
    (void)layout;
}

#define LAYOUT_NONE                                                                                \
    {                                                                                              \
        0                                                                                          \
    }
#define LAYOUT_OF(layout) (&(layout))
#endif

static dnnl_status_t matmul_description(dnnl_engine_t engine, layout_t source, layout_t weights,
                                        layout_t target, dnnl_primitive_attr_t attributes,
                                        dnnl_primitive_desc_t *description_out)
{
#if DNNL_VERSION_MAJOR >= 3
    return dnnl_matmul_primitive_desc_create(description_out, engine, source, weights, NULL, target,
                                             attributes);
#else
    dnnl_matmul_desc_t matmul;
    TRY_DNNL(dnnl_matmul_desc_init(&matmul, source, weights, NULL, target));
    return dnnl_primitive_desc_create(description_out, &matmul, attributes, engine, NULL);
#endif
}

/* Scratchpads are ours; with `sum` the product is added to what is there. */
static dnnl_status_t make_attributes(bool sum, dnnl_primitive_attr_t *attributes_out)
{
    dnnl_post_ops_t post = NULL;
    TRY_DNNL(dnnl_primitive_attr_create(attributes_out));
    dnnl_status_t status =
        dnnl_primitive_attr_set_scratchpad_mode(*attributes_out, dnnl_scratchpad_mode_user);
    if (sum && status == dnnl_success)
        status = dnnl_post_ops_create(&post);
    if (sum && status == dnnl_success)
#if DNNL_VERSION_MAJOR >= 3
        status = dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef);
#else
        status = dnnl_post_ops_append_sum(post, 1.0f);
#endif
    if (sum && status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(*attributes_out, post);
    if (post != NULL)
        (void)dnnl_post_ops_destroy(post);
    if (status != dnnl_success)
        (void)dnnl_primitive_attr_destroy(*attributes_out);
    return status;
}

static layout_t layout_of(dnnl_primitive_t primitive, dnnl_query_t what)
{
    const_dnnl_primitive_desc_t description;
    if (dnnl_primitive_get_primitive_desc(primitive, &description) != dnnl_success)
        return NULL;
    return dnnl_primitive_desc_query_md(description, what, 0);
}

static size_t scratch_of(dnnl_primitive_t primitive)
{
    return dnnl_memory_desc_get_size(layout_of(primitive, dnnl_query_scratchpad_md));
}

/* From a description that is used up. */
static dnnl_status_t make_primitive(dnnl_status_t described, dnnl_primitive_desc_t description,
                                    dnnl_primitive_t *primitive_out, size_t *scratch_out)
{
    TRY_DNNL(described);
    dnnl_status_t status = dnnl_primitive_create(primitive_out, description);
    (void)dnnl_primitive_desc_destroy(description);
    if (status == dnnl_success)
        *scratch_out = scratch_of(*primitive_out);
    return status;
}

/* `given`, when not NULL, is the weights' layout instead of weights'. */
static dnnl_status_t make_product(dnnl_engine_t engine, const view_t views[3], layout_t given,
                                  bool sum, product_t *product)
{
    dnnl_memory_desc_t layouts[3] = {LAYOUT_NONE, LAYOUT_NONE, LAYOUT_NONE};
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t description = NULL;
    dnnl_status_t status = dnnl_success;
    for (int i = 0; i < 3 && status == dnnl_success; i++)
        status = view_layout(&views[i], &layouts[i]);
    if (status == dnnl_success)
        status = make_attributes(sum, &attributes);
    if (status == dnnl_success) {
        status = matmul_description(engine, LAYOUT_OF(layouts[SOURCE]),
                                    given != NULL ? given : LAYOUT_OF(layouts[WEIGHTS]),
                                    LAYOUT_OF(layouts[TARGET]), attributes, &description);
        status = make_primitive(status, description, &product->primitive, &product->scratch);
        (void)dnnl_primitive_attr_destroy(attributes);
    }
    for (int i = 0; i < 3; i++)
        layout_end(&layouts[i]);
    return status;
}

/* The weight as a product of the kind reads it, before it is packed: (in, out) or (out, in). */
static view_t plain_view(const plim__dense_params_t *params, int kind)
{
    if (kind == FORWARD)
        return (view_t){params->in, params->out, 1, params->in, dnnl_f32};
    return (view_t){params->out, params->in, params->in, 1, dnnl_f32};
}

static dnnl_status_t make_reorder(dnnl_engine_t engine, const view_t *plain, layout_t to,
                                  packed_t *packed)
{
    dnnl_memory_desc_t from = LAYOUT_NONE;
    dnnl_primitive_attr_t attributes = NULL;
    dnnl_primitive_desc_t description = NULL;
    TRY_DNNL(view_layout(plain, &from));
    dnnl_status_t status = make_attributes(false, &attributes);
    if (status == dnnl_success) {
        status = dnnl_reorder_primitive_desc_create(&description, LAYOUT_OF(from), engine, to,
                                                    engine, attributes);
        status = make_primitive(status, description, &packed->reorder, &packed->scratch);
        (void)dnnl_primitive_attr_destroy(attributes);
    }
    layout_end(&from);
    packed->bytes = dnnl_memory_desc_get_size(to);
    return status;
}

static bool wanted(const plim__dense_params_t *params, int kind)
{
    return kind == FORWARD || (kind == INPUT ? params->input_gradient : params->backward);
}

static dnnl_status_t make_kind(plim__dense_t *dense, int kind)
{
    const plim__dense_params_t *params = &dense->params;
    const dnnl_data_type_t type = params->element == PLIM__BF16 ? dnnl_bf16 : dnnl_f32;
    const int64_t in = params->in, out = params->out;
    const int64_t from = kind == FORWARD ? in : out, to = kind == FORWARD ? out : in;
    for (int h = 0; h < HEIGHTS; h++) {
        product_t *product = &dense->products[kind][h];
        const int64_t rows = heights[h];
        if (kind == WEIGHT) {
            const view_t views[] = {
                {out, rows, 1, out, type}, {rows, in, in, 1, type}, {out, in, in, 1, dnnl_f32}};
            TRY_DNNL(make_product(dense->engine, views, NULL, true, product));
            continue;
        }
        /* The tall tile's packing serves both. */
        const view_t views[] = {
            {rows, from, from, 1, type}, {from, to, 0, 0, type}, {rows, to, to, 1, dnnl_f32}};
        layout_t given =
            h == 0 ? NULL : layout_of(dense->products[kind][0].primitive, dnnl_query_weights_md);
        TRY_DNNL(make_product(dense->engine, views, given, false, product));
    }
    if (kind == WEIGHT)
        return dnnl_success;
    const view_t plain = plain_view(params, kind);
    return make_reorder(dense->engine, &plain,
                        layout_of(dense->products[kind][0].primitive, dnnl_query_weights_md),
                        &dense->packed[kind]);
}

static size_t scratch_bytes(const plim__dense_t *dense)
{
    size_t most = 0;
    for (int kind = 0; kind < KINDS; kind++)
        for (int h = 0; h < HEIGHTS; h++)
            if (dense->products[kind][h].scratch > most)
                most = dense->products[kind][h].scratch;
    for (int kind = 0; kind < WEIGHT; kind++)
        if (dense->packed[kind].scratch > most)
            most = dense->packed[kind].scratch;
    return most;
}

static size_t weight_bytes(const plim__dense_params_t *params, size_t element)
{
    return plim__mul_saturating_size(
        plim__mul_saturating_size((size_t)params->out, (size_t)params->in), element);
}

/* All that is carved but packed weights and scratch, which oneDNN decides on. */
static size_t own_bytes(const plim__dense_params_t *params)
{
    size_t bytes = plim__arena_piece(1, sizeof(plim__dense_t), 1);
    bytes = plim__add_saturating_size(
        bytes, plim__arena_piece((size_t)params->workers, sizeof(tools_t), 1));
    bytes = plim__add_saturating_size(bytes, plim__arena_piece(1, weight_bytes(params, 4), 1));
    if (params->backward)
        bytes = plim__add_saturating_size(bytes,
                                          plim__arena_piece(LANES_MAX, weight_bytes(params, 4), 1));
    return bytes;
}

static size_t foreign_bytes(const plim__dense_params_t *params)
{
    int primitives = 0;
    for (int kind = 0; kind < KINDS; kind++)
        primitives += wanted(params, kind) ? HEIGHTS + (kind != WEIGHT) : 0;
    return (size_t)primitives * PRIMITIVE_BYTES + (size_t)params->workers * WORKER_BYTES;
}

static size_t scratch_bound(const plim__dense_params_t *params)
{
    /* Copies of everything that a tile reads and writes, in float, blocks rounded up. */
    const size_t in = plim__round_up((size_t)params->in, 64);
    const size_t out = plim__round_up((size_t)params->out, 64);
    size_t values = plim__mul_saturating_size(plim__add_saturating_size(in, out), 2 * TALL);
    values = plim__add_saturating_size(values, plim__mul_saturating_size(in, out));
    return plim__add_saturating_size(plim__mul_saturating_size(values, 4), (size_t)1 << 18);
}

static size_t packed_bound(const plim__dense_params_t *params)
{
    const size_t in = plim__round_up((size_t)params->in, 64);
    const size_t out = plim__round_up((size_t)params->out, 64);
    return plim__add_saturating_size(
        plim__mul_saturating_size(plim__mul_saturating_size(in, out),
                                  plim__element_bytes(params->element)),
        PLIM__PAGE);
}

size_t plim__dense_estimate(const plim__dense_params_t *params)
{
    size_t bytes = plim__add_saturating_size(own_bytes(params), foreign_bytes(params));
    const size_t packings = params->input_gradient ? 2 : 1;
    bytes = plim__add_saturating_size(
        bytes, plim__arena_piece(packings, packed_bound(params), PLIM__PAGE));
    bytes = plim__add_saturating_size(
        bytes, plim__mul_saturating_size((size_t)params->workers,
                                         plim__arena_piece(1, scratch_bound(params), PLIM__PAGE)));
    return plim__round_up(plim__add_saturating_size(bytes, 2 * PLIM__PAGE), PLIM__PAGE);
}

static dnnl_status_t make_memory(plim__dense_t *dense, layout_t layout, int name, void *data,
                                 dnnl_exec_arg_t *argument)
{
    argument->arg = name;
    return dnnl_memory_create(&argument->memory, layout, dense->engine, data);
}

/* A worker's view of a product; data that differ from tile to tile are set later. */
static dnnl_status_t make_arguments(plim__dense_t *dense, int kind, int h, void *scratch,
                                    dnnl_exec_arg_t arguments[ARGUMENTS])
{
    dnnl_primitive_t primitive = dense->products[kind][h].primitive;
    void *weights = kind == WEIGHT ? DNNL_MEMORY_NONE : dense->packed[kind].data;
    TRY_DNNL(make_memory(dense, layout_of(primitive, dnnl_query_src_md), DNNL_ARG_SRC,
                         DNNL_MEMORY_NONE, &arguments[SOURCE]));
    TRY_DNNL(make_memory(dense, layout_of(primitive, dnnl_query_weights_md), DNNL_ARG_WEIGHTS,
                         weights, &arguments[WEIGHTS]));
    TRY_DNNL(make_memory(dense, layout_of(primitive, dnnl_query_dst_md), DNNL_ARG_DST,
                         DNNL_MEMORY_NONE, &arguments[TARGET]));
    return make_memory(dense, layout_of(primitive, dnnl_query_scratchpad_md), DNNL_ARG_SCRATCHPAD,
                       scratch, &arguments[SCRATCH]);
}

static dnnl_status_t make_packing(plim__dense_t *dense, int kind, void *scratch)
{
    packed_t *packed = &dense->packed[kind];
    packed->stale = true;
    TRY_DNNL(make_memory(dense, layout_of(packed->reorder, dnnl_query_src_md), DNNL_ARG_FROM,
                         dense->plain, &packed->arguments[0]));
    TRY_DNNL(make_memory(dense, layout_of(packed->reorder, dnnl_query_dst_md), DNNL_ARG_TO,
                         packed->data, &packed->arguments[1]));
    return make_memory(dense, layout_of(packed->reorder, dnnl_query_scratchpad_md),
                       DNNL_ARG_SCRATCHPAD, scratch, &packed->arguments[2]);
}

static dnnl_status_t make_tools(plim__dense_t *dense)
{
    const size_t scratch = scratch_bytes(dense);
    for (int worker = 0; worker < dense->params.workers; worker++) {
        tools_t *tools = &dense->tools[worker];
        void *room = plim__arena_carve(&dense->arena, 1, scratch, PLIM__PAGE);
        TRY_DNNL(dnnl_stream_create(&tools->stream, dense->engine, dnnl_stream_default_flags));
        for (int kind = 0; kind < KINDS; kind++)
            for (int h = 0; h < HEIGHTS && wanted(&dense->params, kind); h++)
                TRY_DNNL(make_arguments(dense, kind, h, room, tools->arguments[kind][h]));
        for (int kind = 0; kind < WEIGHT && worker == 0; kind++)
            if (wanted(&dense->params, kind))
                TRY_DNNL(make_packing(dense, kind, room));
    }
    return dnnl_success;
}

static void end_arguments(dnnl_exec_arg_t *arguments, int count)
{
    for (int i = 0; i < count; i++)
        if (arguments[i].memory != NULL)
            (void)dnnl_memory_destroy(arguments[i].memory);
}

static void end_tools(plim__dense_t *dense)
{
    for (int worker = 0; dense->tools != NULL && worker < dense->params.workers; worker++) {
        tools_t *tools = &dense->tools[worker];
        end_arguments(&tools->arguments[0][0][0], KINDS * HEIGHTS * ARGUMENTS);
        if (tools->stream != NULL)
            (void)dnnl_stream_destroy(tools->stream);
    }
}

/* Of an object that may be half made; its arena stays. */
static void end_foreign(plim__dense_t *dense)
{
    end_tools(dense);
    for (int kind = 0; kind < WEIGHT; kind++) {
        end_arguments(dense->packed[kind].arguments, 3);
        if (dense->packed[kind].reorder != NULL)
            (void)dnnl_primitive_destroy(dense->packed[kind].reorder);
    }
    for (int kind = 0; kind < KINDS; kind++)
        for (int h = 0; h < HEIGHTS; h++)
            if (dense->products[kind][h].primitive != NULL)
                (void)dnnl_primitive_destroy(dense->products[kind][h].primitive);
    if (dense->engine != NULL)
        (void)dnnl_engine_destroy(dense->engine);
}

static dnnl_status_t make_products(plim__dense_t *dense)
{
    TRY_DNNL(dnnl_engine_create(&dense->engine, dnnl_cpu, 0));
    for (int kind = 0; kind < KINDS; kind++)
        if (wanted(&dense->params, kind))
            TRY_DNNL(make_kind(dense, kind));
    return dnnl_success;
}

/* Moves the object into an arena of the size that its primitives ask for. */
static plim_status_t settle(plim_ledger_t *ledger, plim__dense_t *draft, plim__dense_t **dense_out)
{
    const plim__dense_params_t *params = &draft->params;
    size_t bytes = own_bytes(params);
    for (int kind = 0; kind < WEIGHT; kind++)
        bytes = plim__add_saturating_size(
            bytes, plim__arena_piece(1, draft->packed[kind].bytes, PLIM__PAGE));
    bytes = plim__add_saturating_size(
        bytes, plim__mul_saturating_size((size_t)params->workers,
                                         plim__arena_piece(1, scratch_bytes(draft), PLIM__PAGE)));
    PLIM_TRY(plim__arena_create(ledger, "products", bytes, &draft->arena));
    const size_t values = (size_t)params->out * (size_t)params->in;
    plim__dense_t *dense = plim__arena_carve(&draft->arena, 1, sizeof *dense, 1);
    draft->tools = plim__arena_carve(&draft->arena, (size_t)params->workers, sizeof(tools_t), 1);
    draft->plain = plim__arena_carve(&draft->arena, values, sizeof(float), 1);
    if (params->backward)
        draft->lanes = plim__arena_carve(&draft->arena, LANES_MAX * values, sizeof(float), 1);
    for (int kind = 0; kind < WEIGHT; kind++)
        if (draft->packed[kind].bytes > 0)
            draft->packed[kind].data =
                plim__arena_carve(&draft->arena, 1, draft->packed[kind].bytes, PLIM__PAGE);
    *dense = *draft;
    *dense_out = dense;
    return PLIM_OK;
}

plim_status_t plim__dense_create(plim_ledger_t *ledger, const plim__dense_params_t *params,
                                 plim__dense_t **dense_out)
{
    plim__dense_t draft = {.params = *params, .foreign = foreign_bytes(params)};
    plim__dense_t *dense = NULL;
    PLIM_TRY(plim__ledger_reserve(ledger, "oneDNN", draft.foreign, &draft.foreign_account));
    const int before = begin_alone();
    dnnl_status_t made = make_products(&draft);
    plim_status_t status = made == dnnl_success ? settle(ledger, &draft, &dense) : PLIM_OK;
    if (dense != NULL)
        made = make_tools(dense);
    end_alone(before);
    if (made != dnnl_success)
        status = fail_dnnl(made, params);
    if (status == PLIM_OK) {
        *dense_out = dense;
        return PLIM_OK;
    }
    end_foreign(dense != NULL ? dense : &draft);
    plim__arena_destroy(&draft.arena);
    plim__ledger_release(ledger, draft.foreign_account, draft.foreign);
    return status;
}

void plim__dense_destroy(plim__dense_t *dense)
{
    if (dense == NULL)
        return;
    end_foreign(dense);
    plim__ledger_release(dense->arena.ledger, dense->foreign_account, dense->foreign);
    plim__arena_destroy(&dense->arena);
}

void plim__dense_set_weight(plim__dense_t *dense, plim__team_t *team, int64_t first, int64_t width,
                            const float *weight)
{
    (void)team;
    const int64_t in = dense->params.in;
    for (int64_t row = 0; row < dense->params.out; row++)
        memcpy(dense->plain + row * in + first, weight + row * width,
               (size_t)width * sizeof(float));
    dense->packed[FORWARD].stale = true;
    dense->packed[INPUT].stale = true;
}

/* Only before the first use: a weight may be set in several parts. */
static void pack(plim__dense_t *dense, int kind)
{
    packed_t *packed = &dense->packed[kind];
    if (!packed->stale)
        return;
    const int before = begin_alone();
    (void)dnnl_primitive_execute(packed->reorder, dense->tools[0].stream, 3, packed->arguments);
    end_alone(before);
    packed->stale = false;
}

/* A product over all rows: what its tiles need. */
typedef struct pass {
    plim__dense_t *dense;
    int kind;
    char *source;
    size_t source_row; /* bytes of a row */
    char *target;
    size_t target_row;
    int64_t tall;  /* tiles of TALL rows */
    int64_t tiles; /* in all */
    int64_t lanes; /* of WEIGHT */
} pass_t;

static int64_t tall_tiles(int64_t rows)
{
    return rows / TALL;
}

static int64_t all_tiles(int64_t rows)
{
    return rows / TALL + (rows % TALL + PLIM__ROWS - 1) / PLIM__ROWS;
}

static int64_t tile_start(const pass_t *pass, int64_t tile)
{
    return tile < pass->tall ? tile * TALL : pass->tall * TALL + (tile - pass->tall) * PLIM__ROWS;
}

static void run_tile(const pass_t *pass, int worker, int64_t tile, float *sum)
{
    tools_t *tools = &pass->dense->tools[worker];
    const int h = tile < pass->tall ? TILE_TALL : TILE_SHORT;
    const size_t row = (size_t)tile_start(pass, tile);
    dnnl_exec_arg_t *arguments = tools->arguments[pass->kind][h];
    char *source = pass->source + row * pass->source_row;
    char *target = pass->target + row * pass->target_row;
    (void)dnnl_memory_set_data_handle(arguments[SOURCE].memory, source);
    (void)dnnl_memory_set_data_handle(arguments[sum != NULL ? WEIGHTS : TARGET].memory, target);
    if (sum != NULL)
        (void)dnnl_memory_set_data_handle(arguments[TARGET].memory, sum);
    (void)dnnl_primitive_execute(pass->dense->products[pass->kind][h].primitive, tools->stream,
                                 ARGUMENTS, arguments);
}

static void tile_work(void *context, int worker, int64_t tile)
{
    const int before = begin_alone();
    run_tile(context, worker, tile, NULL);
    end_alone(before);
}

/* Nanoseconds of a product over so many rows, roughly. */
static int64_t cost(const plim__dense_t *dense, int64_t rows)
{
    const double rate = dense->params.element == PLIM__BF16 ? 400 : 100;
    return (int64_t)(2.0 * (double)rows * (double)dense->params.in * (double)dense->params.out /
                     rate);
}

static void run_rows(plim__dense_t *dense, plim__team_t *team, int kind, const plim__matrix_t *from,
                     float *to)
{
    const int64_t width = kind == FORWARD ? dense->params.out : dense->params.in;
    assert(from->stride == from->width);
    pass_t pass = {.dense = dense,
                   .kind = kind,
                   .source = from->data,
                   .source_row = (size_t)from->width * plim__element_bytes(from->element),
                   .target = (char *)to,
                   .target_row = (size_t)width * sizeof(float),
                   .tall = tall_tiles(from->rows)};
    const int64_t tiles = all_tiles(from->rows);
    if (tiles == 0)
        return;
    pack(dense, kind);
    plim__team_run(team, tiles, cost(dense, from->rows) / tiles, tile_work, &pass);
}

void plim__dense_forward(plim__dense_t *dense, plim__team_t *team, const plim__matrix_t *x,
                         float *y)
{
    run_rows(dense, team, FORWARD, x, y);
}

void plim__dense_backward_input(plim__dense_t *dense, plim__team_t *team, const plim__matrix_t *dy,
                                float *dx)
{
    run_rows(dense, team, INPUT, dy, dx);
}

static void lane_work(void *context, int worker, int64_t lane)
{
    const pass_t *pass = context;
    const plim__dense_params_t *params = &pass->dense->params;
    float *sum = pass->dense->lanes + (size_t)lane * (size_t)params->out * (size_t)params->in;
    const int64_t end = (lane + 1) * pass->tiles / pass->lanes;
    const int before = begin_alone();
    for (int64_t tile = lane * pass->tiles / pass->lanes; tile < end; tile++)
        run_tile(pass, worker, tile, sum);
    end_alone(before);
}

static void zero_spare_rows(plim__matrix_t *matrix)
{
    const size_t row = (size_t)matrix->stride * plim__element_bytes(matrix->element);
    const size_t rows = plim__round_up((size_t)matrix->rows, PLIM__ROWS);
    memset((char *)matrix->data + (size_t)matrix->rows * row, 0,
           (rows - (size_t)matrix->rows) * row);
}

void plim__dense_backward_weight(plim__dense_t *dense, plim__team_t *team, plim__matrix_t *dy,
                                 plim__matrix_t *x)
{
    assert(dy->stride == dy->width && x->stride == x->width);
    const size_t element = plim__element_bytes(dense->params.element);
    pass_t pass = {.dense = dense,
                   .kind = WEIGHT,
                   .source = dy->data,
                   .source_row = (size_t)dy->width * element,
                   .target = x->data,
                   .target_row = (size_t)x->width * element,
                   .tall = tall_tiles(x->rows),
                   .tiles = all_tiles(x->rows)};
    if (pass.tiles == 0)
        return;
    pass.lanes = plim__max_i64(1, plim__min_i64(x->rows / LANE_ROWS, LANES_MAX));
    zero_spare_rows(dy);
    zero_spare_rows(x);
    plim__team_run(team, pass.lanes, cost(dense, x->rows) / pass.lanes, lane_work, &pass);
    dense->lanes_used = plim__max_i64(dense->lanes_used, pass.lanes);
}

typedef struct collection {
    const plim__dense_t *dense;
    int64_t first, width;
    float *gradient;
} collection_t;

static void collect_row(void *context, int worker, int64_t row)
{
    (void)worker;
    const collection_t *collection = context;
    const plim__dense_t *dense = collection->dense;
    const int64_t in = dense->params.in;
    const float *sum = dense->lanes + row * in + collection->first;
    float *gradient = collection->gradient + row * collection->width;
    for (int64_t lane = 0; lane < dense->lanes_used; lane++)
        for (int64_t i = 0; i < collection->width; i++)
            gradient[i] += sum[lane * dense->params.out * in + i];
}

void plim__dense_gradient(plim__dense_t *dense, plim__team_t *team, int64_t first, int64_t width,
                          bool last, float *gradient)
{
    collection_t collection = {dense, first, width, gradient};
    plim__team_run(team, dense->params.out, dense->lanes_used * width / 4 + 1, collect_row,
                   &collection);
    if (!last)
        return;
    memset(dense->lanes, 0,
           (size_t)dense->lanes_used * weight_bytes(&dense->params, sizeof(float)));
    dense->lanes_used = 0;
}

/* Who holds the library's memory, and how often. */
typedef struct holder {
    plim_ledger_t *ledger; /* NULL: free */
    int account;
    int depth;
} holder_t;

static pthread_mutex_t holders_lock = PTHREAD_MUTEX_INITIALIZER;
static holder_t holders[16]; /* under the lock */

static holder_t *find_holder(const plim_ledger_t *ledger)
{
    for (size_t i = 0; i < sizeof holders / sizeof *holders; i++)
        if (holders[i].ledger == ledger)
            return &holders[i];
    return NULL;
}

plim_status_t plim__dense_library_begin(plim_ledger_t *ledger)
{
    plim_status_t status = PLIM_OK;
    int account;
    pthread_mutex_lock(&holders_lock);
    holder_t *holder = find_holder(ledger);
    holder_t *empty = holder == NULL ? find_holder(NULL) : NULL;
    if (holder != NULL) {
        holder->depth++;
    } else if (empty == NULL) {
        status = plim__fail(PLIM_ERR_NOMEM, "too many runs train at once in this process");
    } else {
        status = plim__ledger_reserve(ledger, "oneDNN", LIBRARY_BYTES, &account);
        if (status == PLIM_OK)
            *empty = (holder_t){ledger, account, 1};
        /* Primitives go when their object does. */
        (void)dnnl_set_primitive_cache_capacity(0);
    }
    pthread_mutex_unlock(&holders_lock);
    return status;
}

void plim__dense_library_end(plim_ledger_t *ledger)
{
    pthread_mutex_lock(&holders_lock);
    holder_t *holder = find_holder(ledger);
    if (holder != NULL && --holder->depth == 0) {
        plim__ledger_release(ledger, holder->account, LIBRARY_BYTES);
        *holder = (holder_t){0};
    }
    pthread_mutex_unlock(&holders_lock);
}

size_t plim__dense_library_bytes(void)
{
    return LIBRARY_BYTES;
}

static char version_text[64];

static void write_version(void)
{
    const dnnl_version_t *version = dnnl_version();
    (void)snprintf(version_text, sizeof version_text, "oneDNN %d.%d.%d", version->major,
                   version->minor, version->patch);
}

const char *plim__dense_library_version(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, write_version);
    return version_text;
}

bool plim__dense_has_bf16(void)
{
    const unsigned least = (unsigned)dnnl_cpu_isa_avx512_core_bf16;
    return ((unsigned)dnnl_get_effective_cpu_isa() & least) == least;
}
