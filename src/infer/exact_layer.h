/*
 * A model's layers as exact evaluation sees them: which columns are folded over the neighbours,
 * what they are multiplied with before and after, and how a row is finished.
 *
 *     x ─► front ─► fold over neighbours ─► behind ─┬─► finish ─► [second ─► finish] ─► h
 *     x of the node itself ─► root ─────────────────┘     ▲
 *     x of the node itself (residual) ────────────────────┘
 *
 * Where the layer is linear up to there and its outputs are fewer than its inputs, the weight
 * stands in front of the fold, else behind it. Products are of f32 whatever the model's precision.
 */
#ifndef PLIM_INFER_EXACT_LAYER_H
#define PLIM_INFER_EXACT_LAYER_H

#include "nn/optimiser.h"
#include "nn/stream_aggregate.h"

#include <plimsoll/train.h>

typedef enum plim__exact_scale {
    PLIM__EXACT_PLAIN = 0,
    /* 1/sqrt(k_u+1) sqrt(k_v+1)/(d_v+1), the node itself among its neighbours; k is the degree up
     * to the fan-out, so with all of it GCN's own 1/sqrt((d_u+1)(d_v+1)) */
    PLIM__EXACT_GCN,
    PLIM__EXACT_MEAN /* 1/d_v */
} plim__exact_scale_t;

/* What follows a product; NULL where there is none. */
typedef struct plim__exact_epilogue {
    int64_t width;
    const float *bias;
    plim_norm_t norm;
    const float *gamma, *beta, *mean, *variance;
    plim_activation_t activation;
} plim__exact_epilogue_t;

typedef struct plim__exact_layer {
    int64_t in, out;

    bool folds; /* false in an MLP */
    plim__stream_aggregate_kind_t aggregate;
    plim__exact_scale_t scale;
    int64_t fanout;     /* GCN: degrees count up to it */
    bool self;          /* the node's own row is folded with its neighbours' */
    bool skips_loops;   /* edges from a node to itself are left out */
    int64_t wide;       /* columns that are folded */
    const float *front; /* (wide, in); NULL: they are the input's */

    int heads; /* attention: wide = heads * channels */
    int64_t channels;
    const float *att_src, *att_dst; /* (heads, channels) */
    bool mean_of_heads;             /* the heads' mean comes out, `channels` columns */

    int64_t inner;       /* columns before the first finish */
    const float *behind; /* (inner, wide); NULL: what was folded is it */
    const float *root;   /* (inner, in) or NULL; */
    float root_scale;    /* times this */
    bool residual;
    plim__exact_epilogue_t epilogue;
    const float *second; /* (out, inner) or NULL */
    plim__exact_epilogue_t last;
} plim__exact_layer_t;

/* Layer `index` of the model. PLIM_ERR_USAGE names a parameter that is missing or of another
 * shape. */
plim_status_t plim__exact_layer_make(const plim_model_t *model, int64_t num_features,
                                     int64_t num_outputs, const plim__parameter_t *parameters,
                                     int count, int index, plim__exact_layer_t *layer_out);

/* The widths alone, for estimates: pointers of what there will be are not NULL, and not to be
 * read. */
void plim__exact_layer_shape(const plim_model_t *model, int64_t num_features, int64_t num_outputs,
                             int index, plim__exact_layer_t *layer_out);

/* Whether a row of the layer's input is wanted for the node itself. */
static inline bool plim__exact_wants_root(const plim__exact_layer_t *layer)
{
    return !layer->folds || layer->root != NULL || layer->residual;
}

#endif
