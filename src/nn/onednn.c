#include "nn/onednn.h"

#include "base/fail.h"

#include <dnnl.h>
#include <pthread.h>
#include <stdio.h>
#ifndef PLIM_ONEDNN_STATIC
#include <dlfcn.h>
#endif

#if defined PLIM_ONEDNN_STATIC && DNNL_CPU_THREADING_RUNTIME != DNNL_RUNTIME_SEQ
#error "a static oneDNN must be built with ONEDNN_CPU_RUNTIME=SEQ: the process may have an OpenMP"
#elif DNNL_CPU_THREADING_RUNTIME == DNNL_RUNTIME_TBB
#error "this oneDNN runs on TBB, which starts threads of its own; take one with OpenMP"
#endif

/* Functions of the library that are used, by name without "dnnl_". */
#define FUNCTIONS(X)                                                                               \
    X(engine_create)                                                                               \
    X(engine_destroy)                                                                              \
    X(get_effective_cpu_isa)                                                                       \
    X(memory_create)                                                                               \
    X(memory_desc_get_size)                                                                        \
    X(memory_destroy)                                                                              \
    X(memory_set_data_handle)                                                                      \
    X(post_ops_append_sum)                                                                         \
    X(post_ops_create)                                                                             \
    X(post_ops_destroy)                                                                            \
    X(primitive_attr_create)                                                                       \
    X(primitive_attr_destroy)                                                                      \
    X(primitive_attr_set_post_ops)                                                                 \
    X(primitive_attr_set_scratchpad_mode)                                                          \
    X(primitive_create)                                                                            \
    X(primitive_desc_destroy)                                                                      \
    X(primitive_desc_query_md)                                                                     \
    X(primitive_destroy)                                                                           \
    X(primitive_execute)                                                                           \
    X(primitive_get_primitive_desc)                                                                \
    X(reorder_primitive_desc_create)                                                               \
    X(stream_create)                                                                               \
    X(stream_destroy)                                                                              \
    X(version)                                                                                     \
    FUNCTIONS_OF_VERSION(X)
#if DNNL_VERSION_MAJOR >= 3
#define FUNCTIONS_OF_VERSION(X)                                                                    \
    X(matmul_primitive_desc_create)                                                                \
    X(memory_desc_create_with_strides)                                                             \
    X(memory_desc_create_with_tag)                                                                 \
    X(memory_desc_destroy)
#else
#define FUNCTIONS_OF_VERSION(X)                                                                    \
    X(matmul_desc_init)                                                                            \
    X(memory_desc_init_by_strides)                                                                 \
    X(memory_desc_init_by_tag)                                                                     \
    X(primitive_desc_create)
#endif

#define MEMBER(name) __typeof__(dnnl_##name) *name;

/* The library once it is loaded; written once, under `once`. */
static struct {
    FUNCTIONS(MEMBER)
    /* From the OpenMP that oneDNN uses; NULL if it was built without. */
    void (*omp_set_num_threads)(int count);
    int (*omp_get_max_threads)(void);
    char version_text[64];
} onednn;
static pthread_once_t once = PTHREAD_ONCE_INIT;
static char why_not[256]; /* empty: the library is loaded */

#ifdef PLIM_ONEDNN_STATIC

static void find_functions(void)
{
#define TAKE(name) onednn.name = dnnl_##name;
    FUNCTIONS(TAKE)
}

#else

/* POSIX guarantees that a pointer to void holds a function's address; ISO C does not. */
static void look_up(void *library, const char *name, bool needed, void *function_out)
{
    void *address = dlsym(library, name);
    if (address == NULL && needed && why_not[0] == '\0')
        (void)snprintf(why_not, sizeof why_not, "it lacks %s", name);
    *(void **)function_out = address;
}

static void find_functions(void)
{
    void *library = dlopen(PLIM_ONEDNN_SONAME, RTLD_LAZY | RTLD_LOCAL);
    if (library == NULL) {
        const char *reason = dlerror();
        (void)snprintf(why_not, sizeof why_not, "%s", reason != NULL ? reason : "no reason given");
        return;
    }
#define LOOK_UP(name) look_up(library, "dnnl_" #name, true, &onednn.name);
    FUNCTIONS(LOOK_UP)
    look_up(library, "omp_set_num_threads", false, &onednn.omp_set_num_threads);
    look_up(library, "omp_get_max_threads", false, &onednn.omp_get_max_threads);
}

#endif

static void load(void)
{
    find_functions();
    if (why_not[0] != '\0')
        return;
    const dnnl_version_t *version = onednn.version();
    (void)snprintf(onednn.version_text, sizeof onednn.version_text, "oneDNN %d.%d.%d",
                   version->major, version->minor, version->patch);
}

static bool loaded(void)
{
    (void)pthread_once(&once, load);
    return why_not[0] == '\0';
}

plim_status_t plim__onednn_load(void)
{
    if (loaded())
        return PLIM_OK;
    return plim__fail(PLIM_ERR_UNSUPPORTED,
                      "training and evaluation need oneDNN, and " PLIM_ONEDNN_SONAME
                      " cannot be loaded: %s; install it (package libdnnl%d on Debian, onednn "
                      "elsewhere) or name its directory in LD_LIBRARY_PATH",
                      why_not, DNNL_VERSION_MAJOR);
}

int plim__onednn_alone(void)
{
    if (!loaded() || onednn.omp_set_num_threads == NULL || onednn.omp_get_max_threads == NULL)
        return 1;
    int threads = onednn.omp_get_max_threads();
    if (threads != 1)
        onednn.omp_set_num_threads(1);
    return threads;
}

void plim__onednn_restore(int threads)
{
    if (threads != 1)
        onednn.omp_set_num_threads(threads);
}

bool plim__onednn_has_bf16(void)
{
    const unsigned wanted = dnnl_cpu_isa_avx512_core_bf16;
    return loaded() && ((unsigned)onednn.get_effective_cpu_isa() & wanted) == wanted;
}

int64_t plim__onednn_instructions(void)
{
    return loaded() ? (int64_t)(unsigned)onednn.get_effective_cpu_isa() : 0;
}

int64_t plim__onednn_number(void)
{
    const dnnl_version_t *version = loaded() ? onednn.version() : NULL;
    return version != NULL
               ? (version->major * INT64_C(1000) + version->minor) * 1000 + version->patch
               : 0;
}

const char *plim__onednn_instructions_name(int64_t mask)
{
    static const struct {
        unsigned mask;
        const char *name;
    } names[] = {{dnnl_cpu_isa_avx512_core_amx, "AVX512_CORE_AMX"},
                 {dnnl_cpu_isa_avx512_core_bf16, "AVX512_CORE_BF16"},
                 {dnnl_cpu_isa_avx512_core_vnni, "AVX512_CORE_VNNI"},
                 {dnnl_cpu_isa_avx512_core, "AVX512_CORE"},
                 {dnnl_cpu_isa_avx2, "AVX2"},
                 {dnnl_cpu_isa_avx, "AVX"}};
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        if (((uint64_t)mask & names[i].mask) == names[i].mask)
            return names[i].name;
    return "SSE41";
}

const char *plim__onednn_version(void)
{
    return loaded() ? onednn.version_text : "oneDNN is missing";
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

/* The status of a call; `what` names the object that it creates. */
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

/* A memory descriptor is a structure in version 2 and an object in version 3; onednn_layout_t is
 * the type that functions take. */
#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t onednn_layout_t;
#define LAYOUT(description) (description)
#define describe_any onednn.memory_desc_create_with_tag
#define describe_strides onednn.memory_desc_create_with_strides
#else
typedef const dnnl_memory_desc_t *onednn_layout_t;
#define LAYOUT(description) (&(description))
#define describe_any onednn.memory_desc_init_by_tag
#define describe_strides onednn.memory_desc_init_by_strides
#endif

/* Inputs for creating a primitive: descriptions of up to three matrices, and attributes. */
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
    TRY_DNNL(onednn.post_ops_create(&post));
#if DNNL_VERSION_MAJOR >= 3
    dnnl_status_t status = onednn.post_ops_append_sum(post, 1.0f, 0, dnnl_data_type_undef);
#else
    dnnl_status_t status = onednn.post_ops_append_sum(post, 1.0f);
#endif
    if (status == dnnl_success)
        status = onednn.primitive_attr_set_post_ops(attributes, post);
    (void)onednn.post_ops_destroy(post);
    return status;
}

/* The caller provides scratch memory. */
static dnnl_status_t recipe_make(const plim__view_t *const *views, int count, bool sum,
                                 recipe_t *recipe)
{
    for (; recipe->num_views < count; recipe->num_views++)
        TRY_DNNL(describe(views[recipe->num_views], &recipe->views[recipe->num_views]));
    TRY_DNNL(onednn.primitive_attr_create(&recipe->attributes));
    TRY_DNNL(
        onednn.primitive_attr_set_scratchpad_mode(recipe->attributes, dnnl_scratchpad_mode_user));
    return sum ? add_sum(recipe->attributes) : dnnl_success;
}

static void recipe_end(recipe_t *recipe)
{
#if DNNL_VERSION_MAJOR >= 3
    for (int i = 0; i < recipe->num_views; i++)
        (void)onednn.memory_desc_destroy(recipe->views[i]);
#endif
    if (recipe->attributes != NULL)
        (void)onednn.primitive_attr_destroy(recipe->attributes);
}

static onednn_layout_t layout_of(const plim__product_t *product, dnnl_query_t what)
{
    const_dnnl_primitive_desc_t description = product->description;
    if (product->primitive != NULL &&
        onednn.primitive_get_primitive_desc(product->primitive, &description) != dnnl_success)
        return NULL;
    return onednn.primitive_desc_query_md(description, what, 0);
}

/* Creates a product from a description, which it consumes. */
static dnnl_status_t finish(dnnl_primitive_desc_t description, plim__purpose_t purpose,
                            plim__product_t *product_out)
{
    plim__product_t product = {.description = description};
    dnnl_status_t status = dnnl_success;
    if (purpose == PLIM__TO_CALL) {
        status = onednn.primitive_create(&product.primitive, description);
        (void)onednn.primitive_desc_destroy(description);
        product.description = NULL;
    }
    if (status != dnnl_success)
        return status;
    product.scratch = onednn.memory_desc_get_size(layout_of(&product, dnnl_query_scratchpad_md));
    product.weights = onednn.memory_desc_get_size(layout_of(&product, dnnl_query_weights_md));
    *product_out = product;
    return dnnl_success;
}

static dnnl_status_t product_make(dnnl_engine_t engine, const recipe_t *recipe,
                                  const plim__product_t *like, plim__purpose_t purpose,
                                  plim__product_t *product_out)
{
    dnnl_primitive_desc_t description;
    const onednn_layout_t source = LAYOUT(recipe->views[0]);
    const onednn_layout_t weights =
        like != NULL ? layout_of(like, dnnl_query_weights_md) : LAYOUT(recipe->views[1]);
    const onednn_layout_t target = LAYOUT(recipe->views[2]);
#if DNNL_VERSION_MAJOR >= 3
    TRY_DNNL(onednn.matmul_primitive_desc_create(&description, engine, source, weights, NULL,
                                                 target, recipe->attributes));
#else
    dnnl_matmul_desc_t matmul;
    TRY_DNNL(onednn.matmul_desc_init(&matmul, source, weights, NULL, target));
    TRY_DNNL(onednn.primitive_desc_create(&description, &matmul, recipe->attributes, engine, NULL));
#endif
    return finish(description, purpose, product_out);
}

plim_status_t plim__product_make(struct dnnl_engine *engine, const plim__view_t *source,
                                 const plim__view_t *weights, const plim__view_t *target,
                                 const plim__product_t *like, bool sum, plim__purpose_t purpose,
                                 plim__product_t *product_out)
{
    const plim__view_t *const views[] = {source, weights, target};
    recipe_t recipe = {.num_views = 0};
    dnnl_status_t status = recipe_make(views, 3, sum, &recipe);
    if (status == dnnl_success)
        status = product_make(engine, &recipe, like, purpose, product_out);
    recipe_end(&recipe);
    char what[128];
    (void)snprintf(what, sizeof what, "a %s product of %lld x %lld with %lld x %lld",
                   source->element == PLIM__BF16 ? "bfloat16" : "float", (long long)source->rows,
                   (long long)source->columns, (long long)weights->rows,
                   (long long)weights->columns);
    return checked(status, what);
}

static dnnl_status_t packing_make(dnnl_engine_t engine, const recipe_t *recipe, onednn_layout_t to,
                                  plim__purpose_t purpose, plim__product_t *packing_out)
{
    dnnl_primitive_desc_t description;
    TRY_DNNL(onednn.reorder_primitive_desc_create(&description, LAYOUT(recipe->views[0]), engine,
                                                  to, engine, recipe->attributes));
    return finish(description, purpose, packing_out);
}

plim_status_t plim__packing_make(struct dnnl_engine *engine, const plim__view_t *plain,
                                 const plim__product_t *product, plim__purpose_t purpose,
                                 plim__product_t *packing_out)
{
    recipe_t recipe = {.num_views = 0};
    dnnl_status_t status = recipe_make(&plain, 1, false, &recipe);
    if (status == dnnl_success)
        status = packing_make(engine, &recipe, layout_of(product, dnnl_query_weights_md), purpose,
                              packing_out);
    recipe_end(&recipe);
    return checked(status, "the packing of a weight");
}

void plim__product_end(plim__product_t *product)
{
    if (product->primitive != NULL)
        (void)onednn.primitive_destroy(product->primitive);
    if (product->description != NULL)
        (void)onednn.primitive_desc_destroy(product->description);
}

plim_status_t plim__onednn_engine(struct dnnl_engine **engine_out)
{
    PLIM_TRY(plim__onednn_load());
    return checked(onednn.engine_create(engine_out, dnnl_cpu, 0), "an engine");
}

void plim__onednn_engine_end(struct dnnl_engine *engine)
{
    if (engine != NULL)
        (void)onednn.engine_destroy(engine);
}

static const dnnl_query_t queries[PLIM__OPERANDS] = {dnnl_query_src_md, dnnl_query_weights_md,
                                                     dnnl_query_dst_md, dnnl_query_scratchpad_md};

static const int names[PLIM__OPERANDS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST,
                                          DNNL_ARG_SCRATCHPAD};

plim_status_t plim__call_make(struct dnnl_engine *engine, const plim__product_t *product,
                              bool packs, atomic_bool *failed, plim__call_t *call_out)
{
    *call_out = (plim__call_t){.primitive = product->primitive, .failed = failed};
    dnnl_status_t status =
        onednn.stream_create(&call_out->stream, engine, dnnl_stream_default_flags);
    for (int i = 0; i < PLIM__OPERANDS && status == dnnl_success; i++)
        if (i != PLIM__WEIGHTS || !packs)
            status = onednn.memory_create(&call_out->memory[i], layout_of(product, queries[i]),
                                          engine, DNNL_MEMORY_NONE);
    return checked(status, "the memory of a product");
}

void plim__call_end(plim__call_t *call)
{
    for (int i = 0; i < PLIM__OPERANDS; i++)
        if (call->memory[i] != NULL)
            (void)onednn.memory_destroy(call->memory[i]);
    if (call->stream != NULL)
        (void)onednn.stream_destroy(call->stream);
}

void plim__call_set(const plim__call_t *call, plim__operand_t operand, void *data)
{
    if (onednn.memory_set_data_handle(call->memory[operand], data) != dnnl_success)
        atomic_store_explicit(call->failed, true, memory_order_relaxed);
}

void plim__call_run(const plim__call_t *call)
{
    dnnl_exec_arg_t arguments[PLIM__OPERANDS];
    int count = 0;
    for (int i = 0; i < PLIM__OPERANDS; i++)
        if (call->memory[i] != NULL)
            arguments[count++] = (dnnl_exec_arg_t){names[i], call->memory[i]};
    if (onednn.primitive_execute(call->primitive, call->stream, count, arguments) != dnnl_success)
        atomic_store_explicit(call->failed, true, memory_order_relaxed);
}
