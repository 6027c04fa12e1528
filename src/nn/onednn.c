#include "nn/onednn.h"

#include "base/fail.h"

#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>

#if DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_TBB
#error "this oneDNN runs on TBB, which starts threads of its own; take one with OpenMP"
#endif

/* Of whichever OpenMP oneDNN brings along; absent when it was built without. */
extern void omp_set_num_threads(int count) __attribute__((weak));
extern int omp_get_max_threads(void) __attribute__((weak));

int plim__onednn_alone(void)
{
    if (omp_set_num_threads == NULL || omp_get_max_threads == NULL)
        return 1;
    int threads = omp_get_max_threads();
    if (threads != 1)
        omp_set_num_threads(1);
    return threads;
}

void plim__onednn_restore(int threads)
{
    if (threads != 1)
        omp_set_num_threads(threads);
}

static bool has_isa(dnnl_cpu_isa_t isa)
{
    return ((unsigned)dnnl_get_effective_cpu_isa() & (unsigned)isa) == (unsigned)isa;
}

bool plim__onednn_has_bf16(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core);
}

bool plim__onednn_fast_bf16(void)
{
    return has_isa(dnnl_cpu_isa_avx512_core_bf16);
}

static char version_text[64];

static void write_version(void)
{
    const dnnl_version_t *version = dnnl_version();
    (void)snprintf(version_text, sizeof version_text, "oneDNN %d.%d.%d", version->major,
                   version->minor, version->patch);
}

const char *plim__onednn_version(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, write_version);
    return version_text;
}

void plim__onednn_keep_nothing(void)
{
    (void)dnnl_set_primitive_cache_capacity(0);
}

static const char *reason(dnnl_status_t status)
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

/* The status of a failed or successful call, `what` being what it makes. */
static plim_status_t checked(dnnl_status_t status, const char *what)
{
    if (status == dnnl_success)
        return PLIM_OK;
    return plim__fail(status == dnnl_out_of_memory ? PLIM_ERR_NOMEM : PLIM_ERR_UNSUPPORTED,
                      "%s cannot make %s: %s", plim__onednn_version(), what, reason(status));
}

#define TRY_DNNL(call)                                                                             \
    do {                                                                                           \
        dnnl_status_t try_dnnl_ = (call);                                                          \
        if (try_dnnl_ != dnnl_success)                                                             \
            return try_dnnl_;                                                                      \
    } while (0)

/* A memory descriptor is a structure in version 2 and an object in version 3; layout_t is what
 * functions take. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t layout_t;
#define LAYOUT(description) (description)
#define describe_any dnnl_memory_desc_create_with_tag
#define describe_strides dnnl_memory_desc_create_with_strides
#else
typedef const dnnl_memory_desc_t *layout_t;
#define LAYOUT(description) (&(description))
#define describe_any dnnl_memory_desc_init_by_tag
#define describe_strides dnnl_memory_desc_init_by_strides
#endif

/* What of a primitive is made with: descriptions of up to three matrices, and attributes. */
typedef struct recipe {
    dnnl_memory_desc_t views[3];
    int num_views;
    dnnl_primitive_attr_t attributes;
} recipe_t;

static dnnl_status_t describe(const plim__view_t *view, dnnl_memory_desc_t *description_out)
{
    const dnnl_data_type_t type = view->element == PLIM__BF16 ? dnnl_bf16 : dnnl_f32;
    const dnnl_dims_t shape = {view->rows, view->columns};
    const dnnl_dims_t strides = {view->row_stride, view->column_stride};
    if (view->row_stride == 0)
        return describe_any(description_out, 2, shape, type, dnnl_format_tag_any);
    return describe_strides(description_out, 2, shape, type, strides);
}

static dnnl_status_t add_sum(dnnl_primitive_attr_t attributes)
{
    dnnl_post_ops_t post;
    TRY_DNNL(dnnl_post_ops_create(&post));
#if DNNL_VERSION_MAJOR >= 3
    dnnl_status_t status = dnnl_post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef);
#else
    dnnl_status_t status = dnnl_post_ops_append_sum(post, 1.0f);
#endif
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_post_ops(attributes, post);
    (void)dnnl_post_ops_destroy(post);
    return status;
}

/* Scratch memory is the caller's. */
static dnnl_status_t recipe_make(const plim__view_t *const *views, int count, bool sum,
                                 recipe_t *recipe)
{
    for (; recipe->num_views < count; recipe->num_views++)
        TRY_DNNL(describe(views[recipe->num_views], &recipe->views[recipe->num_views]));
    TRY_DNNL(dnnl_primitive_attr_create(&recipe->attributes));
    TRY_DNNL(
        dnnl_primitive_attr_set_scratchpad_mode(recipe->attributes, dnnl_scratchpad_mode_user));
    return sum ? add_sum(recipe->attributes) : dnnl_success;
}

static void recipe_end(recipe_t *recipe)
{
#if DNNL_VERSION_MAJOR >= 3
    for (int i = 0; i < recipe->num_views; i++)
        (void)dnnl_memory_desc_destroy(recipe->views[i]);
#endif
    if (recipe->attributes != NULL)
        (void)dnnl_primitive_attr_destroy(recipe->attributes);
}

static layout_t layout_of(dnnl_primitive_t primitive, dnnl_query_t what)
{
    const_dnnl_primitive_desc_t description = NULL;
    if (dnnl_primitive_get_primitive_desc(primitive, &description) != dnnl_success)
        return NULL;
    return dnnl_primitive_desc_query_md(description, what, 0);
}

/* From a description that is used up. */
static dnnl_status_t finish(dnnl_primitive_desc_t description, plim__product_t *product_out)
{
    dnnl_primitive_t primitive;
    dnnl_status_t status = dnnl_primitive_create(&primitive, description);
    (void)dnnl_primitive_desc_destroy(description);
    if (status == dnnl_success)
        *product_out = (plim__product_t){
            primitive, dnnl_memory_desc_get_size(layout_of(primitive, dnnl_query_scratchpad_md)),
            dnnl_memory_desc_get_size(layout_of(primitive, dnnl_query_weights_md))};
    return status;
}

static dnnl_status_t product_make(dnnl_engine_t engine, const recipe_t *recipe,
                                  const plim__product_t *like, plim__product_t *product_out)
{
    dnnl_primitive_desc_t description;
    const layout_t source = LAYOUT(recipe->views[0]);
    const layout_t weights =
        like != NULL ? layout_of(like->primitive, dnnl_query_weights_md) : LAYOUT(recipe->views[1]);
    const layout_t target = LAYOUT(recipe->views[2]);
#if DNNL_VERSION_MAJOR >= 3
    TRY_DNNL(dnnl_matmul_primitive_desc_create(&description, engine, source, weights, NULL, target,
                                               recipe->attributes));
#else
    dnnl_matmul_desc_t matmul;
    TRY_DNNL(dnnl_matmul_desc_init(&matmul, source, weights, NULL, target));
    TRY_DNNL(dnnl_primitive_desc_create(&description, &matmul, recipe->attributes, engine, NULL));
#endif
    return finish(description, product_out);
}

plim_status_t plim__product_make(struct dnnl_engine *engine, const plim__view_t *source,
                                 const plim__view_t *weights, const plim__view_t *target,
                                 const plim__product_t *like, bool sum,
                                 plim__product_t *product_out)
{
    const plim__view_t *const views[] = {source, weights, target};
    recipe_t recipe = {.num_views = 0};
    dnnl_status_t status = recipe_make(views, 3, sum, &recipe);
    if (status == dnnl_success)
        status = product_make(engine, &recipe, like, product_out);
    recipe_end(&recipe);
    char what[128];
    (void)snprintf(what, sizeof what, "a %s product of %lld x %lld with %lld x %lld",
                   source->element == PLIM__BF16 ? "bfloat16" : "float", (long long)source->rows,
                   (long long)source->columns, (long long)weights->rows,
                   (long long)weights->columns);
    return checked(status, what);
}

static dnnl_status_t packing_make(dnnl_engine_t engine, const recipe_t *recipe, layout_t to,
                                  plim__product_t *packing_out)
{
    dnnl_primitive_desc_t description;
    TRY_DNNL(dnnl_reorder_primitive_desc_create(&description, LAYOUT(recipe->views[0]), engine, to,
                                                engine, recipe->attributes));
    return finish(description, packing_out);
}

plim_status_t plim__packing_make(struct dnnl_engine *engine, const plim__view_t *plain,
                                 const plim__product_t *product, plim__product_t *packing_out)
{
    recipe_t recipe = {.num_views = 0};
    dnnl_status_t status = recipe_make(&plain, 1, false, &recipe);
    if (status == dnnl_success)
        status = packing_make(engine, &recipe, layout_of(product->primitive, dnnl_query_weights_md),
                              packing_out);
    recipe_end(&recipe);
    return checked(status, "the packing of a weight");
}

void plim__product_end(plim__product_t *product)
{
    if (product->primitive != NULL)
        (void)dnnl_primitive_destroy(product->primitive);
}

plim_status_t plim__onednn_engine(struct dnnl_engine **engine_out)
{
    return checked(dnnl_engine_create(engine_out, dnnl_cpu, 0), "an engine");
}

void plim__onednn_engine_end(struct dnnl_engine *engine)
{
    if (engine != NULL)
        (void)dnnl_engine_destroy(engine);
}

static const dnnl_query_t queries[PLIM__OPERANDS] = {dnnl_query_src_md, dnnl_query_weights_md,
                                                     dnnl_query_dst_md, dnnl_query_scratchpad_md};

static const int names[PLIM__OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                          DNNL_ARG_SCRATCHPAD};

plim_status_t plim__call_make(struct dnnl_engine *engine, const plim__product_t *product,
                              bool packs, atomic_bool *failed, plim__call_t *call_out)
{
    *call_out = (plim__call_t){.primitive = product->primitive, .failed = failed};
    dnnl_status_t status = dnnl_stream_create(&call_out->stream, engine, dnnl_stream_default_flags);
    for (int i = 0; i < PLIM__OPERANDS && status == dnnl_success; i++)
        if (i != PLIM__WEIGHTS || !packs)
            status =
                dnnl_memory_create(&call_out->memory[i], layout_of(product->primitive, queries[i]),
                                   engine, DNNL_MEMORY_NONE);
    return checked(status, "the memory of a product");
}

void plim__call_end(plim__call_t *call)
{
    for (int i = 0; i < PLIM__OPERANDS; i++)
        if (call->memory[i] != NULL)
            (void)dnnl_memory_destroy(call->memory[i]);
    if (call->stream != NULL)
        (void)dnnl_stream_destroy(call->stream);
}

void plim__call_set(const plim__call_t *call, plim__operand_t operand, void *data)
{
    if (dnnl_memory_set_data_handle(call->memory[operand], data) != dnnl_success)
        atomic_store_explicit(call->failed, true, memory_order_relaxed);
}

void plim__call_run(const plim__call_t *call)
{
    dnnl_exec_arg_t arguments[PLIM__OPERANDS];
    int count = 0;
    for (int i = 0; i < PLIM__OPERANDS; i++)
        if (call->memory[i] != NULL)
            arguments[count++] = (dnnl_exec_arg_t){names[i], call->memory[i]};
    if (dnnl_primitive_execute(call->primitive, call->stream, count, arguments) != dnnl_success)
        atomic_store_explicit(call->failed, true, memory_order_relaxed);
}
