/*
 * A minimal interface to oneDNN, versions 2 and 3: products of two matrices and the packing of one
 * of them, created once, called often. onednn.c alone includes dnnl.h and loads the library, so
 * only training and evaluation load it into the process. The Python wheel has it linked in.
 *
 * oneDNN takes the number of OpenMP threads from the calling thread, when a product is created and
 * when it runs. Between plim__onednn_alone and plim__onednn_restore that is 1, so OpenMP never
 * starts a thread.
 */
#ifndef PLIM_NN_ONEDNN_H
#define PLIM_NN_ONEDNN_H

#include "nn/matrix.h"

#include <plimsoll/status.h>
#include <stdatomic.h>
#include <stdbool.h>

/* oneDNN's handles. */
struct dnnl_engine;
struct dnnl_memory;
struct dnnl_primitive;
struct dnnl_primitive_desc;
struct dnnl_stream;

/* A matrix of a product; strides of 0 let oneDNN choose the layout. */
typedef struct plim__view {
    int64_t rows, columns;
    int64_t row_stride, column_stride; /* in elements */
    plim__element_t element;           /* F32 or BF16 */
} plim__view_t;

/* A product, or a packing. */
typedef struct plim__product {
    struct dnnl_primitive *primitive;        /* NULL: only its needs are known */
    struct dnnl_primitive_desc *description; /* only then; otherwise NULL */
    size_t scratch;                          /* bytes of scratch for a call */
    size_t weights;                          /* bytes of the second matrix, in its layout */
} plim__product_t;

/* The operands of a call. A packing reads its source and writes its target. */
typedef enum plim__operand {
    PLIM__SOURCE = 0,
    PLIM__WEIGHTS,
    PLIM__TARGET,
    PLIM__SCRATCH,
    PLIM__OPERANDS
} plim__operand_t;

/* The state of one thread for running a product. */
typedef struct plim__call {
    struct dnnl_primitive *primitive; /* of the product */
    struct dnnl_stream *stream;
    struct dnnl_memory *memory[PLIM__OPERANDS]; /* NULL: not an operand */
    atomic_bool *failed;                        /* of the owner; set if oneDNN fails */
} plim__call_t;

/* Loads the library once. PLIM_ERR_UNSUPPORTED if it is missing or incomplete. */
plim_status_t plim__onednn_load(void);

/* What the bits of a product depend on: the instruction sets that oneDNN uses, as its mask, and its
 * version as one number. 0 if it is not loaded. */
int64_t plim__onednn_instructions(void);
int64_t plim__onednn_number(void);

/* A mask as ONEDNN_MAX_CPU_ISA names it. */
const char *plim__onednn_instructions_name(int64_t mask);

/* Sets one OpenMP thread; returns the argument for plim__onednn_restore. */
int plim__onednn_alone(void);
void plim__onednn_restore(int threads);

/* Whether this processor multiplies bfloat16 (and the library is loaded). On others oneDNN would
 * allocate memory in calls; floats are as fast. */
bool plim__onednn_has_bf16(void);

/* "oneDNN 2.6.3"; "oneDNN is missing" when it cannot be loaded. */
const char *plim__onednn_version(void);

/*
 * These functions: PLIM_ERR_NOMEM; PLIM_ERR_UNSUPPORTED with oneDNN's reason.
 */
plim_status_t plim__onednn_engine(struct dnnl_engine **engine_out);
void plim__onednn_engine_end(struct dnnl_engine *engine);

/* The purpose of a product or a packing: to call it, or only to learn its needs. */
typedef enum plim__purpose { PLIM__TO_CALL = 0, PLIM__TO_KNOW } plim__purpose_t;

/* target = source x weights, or with `sum` target += …. If `like` is not NULL, weights has the same
 * layout as there. */
plim_status_t plim__product_make(struct dnnl_engine *engine, const plim__view_t *source,
                                 const plim__view_t *weights, const plim__view_t *target,
                                 const plim__product_t *like, bool sum, plim__purpose_t purpose,
                                 plim__product_t *product_out);

/* Copies `plain` into the layout of the product's weights. */
plim_status_t plim__packing_make(struct dnnl_engine *engine, const plim__view_t *plain,
                                 const plim__product_t *product, plim__purpose_t purpose,
                                 plim__product_t *packing_out);

/* A zeroed one is harmless. */
void plim__product_end(plim__product_t *product);

/* For one thread. Its operands have no data yet. call_out holds the created objects even after a
 * failure. */
plim_status_t plim__call_make(struct dnnl_engine *engine, const plim__product_t *product,
                              bool packs, atomic_bool *failed, plim__call_t *call_out);
void plim__call_end(plim__call_t *call);

/* oneDNN fails only for lack of memory (RLIMIT_AS, a machine that does not overcommit): *failed is
 * then set, and the target is undefined. */
void plim__call_set(const plim__call_t *call, plim__operand_t operand, void *data);
void plim__call_run(const plim__call_t *call);

#endif
