/*
 * A model's inside, shared by its layers' files.
 *
 * A layer is an input (the sum over neighbours, or rows as they are), one or two products, and an
 * epilogue (bias, norm, activation, dropout):
 *
 *     input ─► x ─► product ─► y ─► epilogue ─► h    forward
 *     dinput ◄── dx ◄── dy ◄────────── dh            backward
 *
 * plim__model_place decides before a pass where everything is, from the part's sizes alone; the
 * estimate calls it for the largest part. In training, what backward needs is taken from the front,
 * layer after layer, each layer's h last. Gradients dh alternate, those of even layers at the back,
 * those of odd layers in front, so that a layer's dh and dinput never overlap. Outside training the
 * h of two adjacent layers are at the two ends, and nothing else is kept.
 */
#ifndef PLIM_NN_MODEL_INTERNAL_H
#define PLIM_NN_MODEL_INTERNAL_H

#include "nn/aggregate.h"
#include "nn/attention.h"
#include "nn/dense.h"
#include "nn/epilogue.h"
#include "nn/model.h"
#include "nn/pooling.h"
#include "nn/workspace.h"

#include "base/clock.h"

/* How a parameter's values start. */
typedef struct plim__initial {
    double bound; /* uniform between -bound and bound; 0: the constant */
    float constant;
    bool buffer; /* saved, not learnt */
} plim__initial_t;

/* Parameters in the making; without entries they are only counted. */
typedef struct plim__table {
    plim__parameter_t *entries;
    plim__initial_t *initial;
    int count;
    size_t weights; /* values of learnt parameters */
    size_t buffers; /* values of buffers */
} plim__table_t;

/* A product and the weights that stand side by side in it, each in / num_weights wide. */
typedef struct plim__linear {
    plim__dense_t *dense;
    int64_t in;
    int64_t out;
    int num_weights;
    plim__parameter_t *weight[2];
} plim__linear_t;

/* The parameters of an epilogue; NULL where there is none. */
typedef struct plim__epilogue_parameters {
    int64_t width;
    plim__parameter_t *bias, *gamma, *beta, *mean, *variance;
} plim__epilogue_parameters_t;

typedef struct plim__layer {
    int index;
    int64_t in;         /* columns of the input */
    int64_t out;        /* columns of h */
    bool plain;         /* bias only: it gives the outputs */
    bool residual;      /* its input is added to its output */
    int64_t channels;   /* GAT: of one head */
    int heads;          /* GAT */
    bool mean_of_heads; /* GAT: instead of one beside the other */
    plim__linear_t product[2];
    plim__parameter_t *attention_src, *attention_dst; /* GAT */
    plim__parameter_t *epsilon;                       /* GIN */
    plim__epilogue_parameters_t inner;                /* GIN: between its products */
    plim__epilogue_parameters_t after;

    /* Of the part under way: sizes, */
    plim__edges_t hop;
    int64_t rows;         /* of h */
    plim__matrix_t input; /* (num_src, in): h of the layer before, or the batch's rows */
    /* then places: of forward, */
    float *scale_src, *scale_dst, *scale_self;
    int32_t *chosen;
    plim__matrix_t x; /* what the first product reads */
    plim__matrix_t z; /* GAT: what it gives, (num_src, heads * channels) */
    plim__attention_state_t attention_state;
    plim__matrix_t heads_out; /* GAT: before the mean over heads */
    float *inner_y;           /* GIN */
    plim__matrix_t inner_h;
    void *inner_kept;
    float *y;                 /* (rows, out) */
    plim__matrix_t converted; /* input's own rows, where the residual needs them in another form */
    void *kept;
    plim__matrix_t h; /* (rows, out) */
    /* and of backward. */
    const float *dh; /* (rows, out) */
    plim__matrix_t dy;
    float *dresidual; /* (rows, out) */
    void *scratch;
    plim__matrix_t again;   /* x, computed again or as it was kept */
    plim__matrix_t z_again; /* GAT: z likewise */
    float *inner_dh;        /* GIN: (rows, out) */
    plim__matrix_t inner_dy;
    void *inner_scratch;
    plim__matrix_t dheads;  /* GAT: (rows, heads * channels) */
    plim__matrix_t dz;      /* GAT: (num_src, heads * channels) */
    plim__matrix_t dz_read; /* dz as products read it */
    void *attention_scratch;
    plim__reverse_t reverse;
    plim__matrix_t dx; /* of x */
    float *dinput;     /* (num_src, in) of the input: dh of the layer before */
    size_t begin;      /* of the front, before this layer */
    size_t before_h;
} plim__layer_t;

/* Graph-level tasks: pooling, then one product. */
typedef struct plim__head {
    plim__linear_t product;
    plim__epilogue_parameters_t after;
    float *pooled; /* (num_graphs, hidden) */
    int32_t *chosen;
    plim__matrix_t x; /* pooled, as the product reads it */
    float *y;
    void *kept;
    plim__matrix_t h;
    plim__matrix_t dy;
    void *scratch;
    float *dpooled;
} plim__head_t;

typedef struct plim__conv plim__conv_t;

/* Of one worker, in a pass by tiles; on a line of its own. */
typedef struct plim__worker_times {
    _Alignas(64) int64_t dense_ns;
    int64_t sparse_ns, finish_ns;
} plim__worker_times_t;

struct plim__model {
    plim__arena_t arena;
    plim__model_params_t params;
    const plim__conv_t *conv;
    plim__element_t element; /* of what products read */
    plim__team_t *team;
    plim_ledger_t *ledger;
    plim__table_t table;
    plim__model_arrays_t arrays;
    plim__layer_t layers[PLIM_HOPS_MAX];
    plim__head_t head;
    plim__workspace_t workspace;
    plim__worker_times_t *times; /* (workers) */
    float *tiles;                /* (workers, tile_floats): products that do not stay */
    int64_t tile_floats;
    float *embeddings;      /* in another form than the last layer reads them */
    plim__pass_t pass;      /* under way */
    const int32_t *nodes;   /* of the part */
    const int32_t *degrees; /* of the part */
    int64_t num_seeds;
    int64_t lap_ns;
    int64_t dense_ns, sparse_ns, finish_ns;
    double dense_flops;
};

/*
 * What differs between kinds of layers. `place` and `place_back` take memory and touch none.
 * `prepare` comes before the first of `rows`, which computes rows [first, end) of x by the calling
 * thread; NULL where there is nothing to do. `forward`, up to y, is for a layer that is more than a
 * product of x; NULL for the others.
 */
struct plim__conv {
    void (*parameters)(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer);
    void (*place)(const plim__model_t *model, plim__layer_t *layer, plim__workspace_t *workspace);
    void (*prepare)(plim__model_t *model, plim__layer_t *layer);
    void (*rows)(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x, int64_t first,
                 int64_t end);
    void (*forward)(plim__model_t *model, plim__layer_t *layer);
    void (*place_back)(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace);
    void (*backward)(plim__model_t *model, plim__layer_t *layer);
};

extern const plim__conv_t plim__conv_mlp;
extern const plim__conv_t plim__conv_gcn;
extern const plim__conv_t plim__conv_sage;
extern const plim__conv_t plim__conv_gat;
extern const plim__conv_t plim__conv_gin;

/* model_parameters.c */

/* One more, named "list.index.name" ("list.name" for index -1), of up to three dimensions, 0 behind
 * the last; NULL when only counted. */
plim__parameter_t *plim__table_add(plim__table_t *table, plim__initial_t initial, const char *list,
                                   int index, const char *name, int64_t shape0, int64_t shape1,
                                   int64_t shape2);
/* Adds the parameters of the norm "list.index.name…" to the epilogue. */
void plim__table_norm(plim__table_t *table, plim_norm_t norm, const char *list, int index,
                      const char *name, plim__epilogue_parameters_t *parameters);
/* All of the model's, linked to its layers; widths of layers are set. */
void plim__model_describe(plim__model_t *model, plim__table_t *table);
plim__initial_t plim__initial_glorot(int64_t rows, int64_t columns);
plim__initial_t plim__initial_linear(int64_t in);

/* model_place.c */

/* Sizes of layers are set; decides where everything of this pass lies. */
void plim__model_place(plim__model_t *model, plim__workspace_t *workspace);
size_t plim__model_workspace_bytes(plim__model_t *model);

/* A matrix with its spare rows, on a side of the workspace. */
plim__matrix_t plim__place_matrix(plim__workspace_t *workspace, plim__side_t side, int64_t rows,
                                  int64_t width, plim__element_t element);
float *plim__place_floats(plim__workspace_t *workspace, plim__side_t side, int64_t rows,
                          int64_t width);
/* Memory for what an epilogue keeps for backward; none outside training. */
void *plim__place_kept(plim__workspace_t *workspace, plim__side_t side,
                       const plim__epilogue_t *epilogue, int64_t rows);
void plim__place_reverse(plim__workspace_t *workspace, plim__side_t side, plim__layer_t *layer);
/* Rows of the input as products read them: a copy in layer 0, the input itself behind it. */
void plim__place_rows(const plim__model_t *model, plim__layer_t *layer,
                      plim__workspace_t *workspace);
/* x in backward: where it was kept, or memory to compute it again. */
void plim__place_again(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace);
/* Backward of a layer that sums over neighbours: x again, dx, and the way to the input's. */
void plim__place_sum_back(const plim__model_t *model, plim__layer_t *layer,
                          plim__workspace_t *workspace);

/* Sides of a layer's matrices: what backward needs; what only the layer needs; and in backward. */
plim__side_t plim__side_kept(const plim__model_t *model, const plim__layer_t *layer);
plim__side_t plim__side_temporary(const plim__model_t *model, const plim__layer_t *layer);
plim__side_t plim__side_back(const plim__layer_t *layer);
/* The side of x, which need not be kept if backward computes it again. */
plim__side_t plim__side_x(const plim__model_t *model, const plim__layer_t *layer);

plim__epilogue_t plim__model_epilogue(const plim__model_t *model,
                                      const plim__epilogue_parameters_t *parameters, bool plain,
                                      bool dropout, int layer);
plim__epilogue_t plim__layer_epilogue(const plim__model_t *model, const plim__layer_t *layer);
plim__epilogue_t plim__layer_inner(const plim__model_t *model, const plim__layer_t *layer);
plim__epilogue_gradients_t
plim__model_epilogue_gradients(const plim__epilogue_parameters_t *parameters);
/* Of a dropout: kind 0 behind a layer, 1 of its attention. */
uint64_t plim__model_key(const plim__model_t *model, int layer, int kind);

/* model_tiles.c */

/* Whether layers go forward by tiles in this pass. */
bool plim__layer_tiled(const plim__model_t *model);
void plim__layer_forward_tiles(plim__model_t *model, plim__layer_t *layer,
                               const plim__matrix_t *residual);
/* All rows of x. */
void plim__layer_input(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x);

/* precision.c: rows in another element; rows of `from` added to the first ones of `to` (both F32).
 */
void plim__matrix_convert_rows(const plim__matrix_t *from, plim__matrix_t *to, int64_t first,
                               int64_t end);
void plim__matrix_convert(plim__team_t *team, const plim__matrix_t *from, plim__matrix_t *to);
void plim__matrix_add(plim__team_t *team, const plim__matrix_t *from, plim__matrix_t *to);

/* Time since the last lap goes to one of the model's parts. */
static inline void plim__model_lap(plim__model_t *model, int64_t *part)
{
    const int64_t now = plim__clock_ns();
    *part += now - model->lap_ns;
    model->lap_ns = now;
}

/* model.c: whether oneDNN did all that was asked of it. PLIM_ERR_NOMEM. */
plim_status_t plim__model_check(plim__model_t *model);

/* A product forward, and back, timed and counted. */
void plim__linear_forward(plim__model_t *model, plim__linear_t *product, const plim__matrix_t *x,
                          float *y);
void plim__linear_backward(plim__model_t *model, plim__linear_t *product, plim__matrix_t *dy,
                           plim__matrix_t *x, float *dx);

/* x for the backward pass, computed again where it was not kept. */
plim__matrix_t *plim__layer_x(plim__model_t *model, plim__layer_t *layer);
/* From dx, along the reversed hop, to dinput; the residual's share is added. Nothing in layer 0. */
void plim__sum_backward(plim__model_t *model, plim__layer_t *layer, const plim__scales_t *scales);
/* The residual's share added to dinput. */
void plim__layer_add_residual(plim__model_t *model, plim__layer_t *layer);

static inline plim__matrix_t plim__matrix_make(void *data, int64_t rows, int64_t width,
                                               plim__element_t element)
{
    return (plim__matrix_t){data, rows, width, width, element};
}

#endif
