/*
 * oneDNN, versions 2 and 3, as far as it is needed: products of two matrices and the packing of one
 * of them, made once, called often. The only header over the only file that includes dnnl.h, and
 * that loads the library: only what trains or evaluates has it in its process.
 *
 * oneDNN takes the number of OpenMP threads from the thread that calls it, when a product is made
 * and when it runs. Between plim__onednn_alone and plim__onednn_restore that is 1: OpenMP never
 * starts a thread.
 */
#ifndef PLIM_NN_ONEDNN_H
#define PLIM_NN_ONEDNN_H

#include "nn/matrix.h"

#include <plimsoll/status.h>
#include <stdatomic.h>
#include <stdbool.h>

/* Handles of oneDNN's own. */
struct dnnl_engine;
struct dnnl_memory;
struct dnnl_primitive;
struct dnnl_primitive_desc;
struct dnnl_stream;

/* A matrix as a product sees it; strides of 0 leave the layout to oneDNN. */
typedef struct plim__view {
    int64_t rows, columns;
    int64_t row_stride, column_stride; /* in elements */
    plim__element_t element;           /* F32 or BF16 */
} plim__view_t;

/* A product, or a packing. */
typedef struct plim__product {
    struct dnnl_primitive *primitive;        /* NULL: only its needs are known */
    struct dnnl_primitive_desc *description; /* then; else NULL */
    size_t scratch;                          /* bytes that a call needs */
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

/* What one thread needs to run a product. */
typedef struct plim__call {
    struct dnnl_primitive *primitive; /* the product's */
    struct dnnl_stream *stream;
    struct dnnl_memory *memory[PLIM__OPERANDS]; /* NULL: not an operand */
    atomic_bool *failed;                        /* the owner's: set when oneDNN refuses */
} plim__call_t;

/* Loads the library, the first time. PLIM_ERR_UNSUPPORTED when it is not there or not whole. */
plim_status_t plim__onednn_load(void);

/* One OpenMP thread from here on; returns what plim__onednn_restore takes. */
int plim__onednn_alone(void);
void plim__onednn_restore(int threads);

/* Whether this processor multiplies bfloat16 (and the library is there). Elsewhere oneDNN would do
 * it by calls that take memory of their own; floats are as fast. */
bool plim__onednn_has_bf16(void);

/* "oneDNN 2.6.3"; "oneDNN is missing" when it cannot be loaded. */
const char *plim__onednn_version(void);

/*
 * All of these: PLIM_ERR_NOMEM; PLIM_ERR_UNSUPPORTED with oneDNN's reason.
 */
plim_status_t plim__onednn_engine(struct dnnl_engine **engine_out);
void plim__onednn_engine_end(struct dnnl_engine *engine);

/* What a product or a packing is made for: to be called, or to know what it would need. */
typedef enum plim__purpose { PLIM__TO_CALL = 0, PLIM__TO_KNOW } plim__purpose_t;

/* target = source x weights, or with `sum` target += …. With `like` not NULL, weights has the
 * layout that it has there. */
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

/* For one thread. Its operands have no data yet. What it made is in call_out even when it fails. */
plim_status_t plim__call_make(struct dnnl_engine *engine, const plim__product_t *product,
                              bool packs, atomic_bool *failed, plim__call_t *call_out);
void plim__call_end(plim__call_t *call);

/* oneDNN refuses for want of memory alone (RLIMIT_AS, a machine that does not overcommit): then
 * *failed is set, and the target holds anything. */
void plim__call_set(const plim__call_t *call, plim__operand_t operand, void *data);
void plim__call_run(const plim__call_t *call);

#endif
