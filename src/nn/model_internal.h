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
#include "nn/edge_terms.h"
#include "nn/epilogue.h"
#include "nn/model.h"
#include "nn/pooling.h"
#include "nn/workspace.h"

#include "base/clock.h"

/* Initial values of a parameter. */
typedef struct plim__initial {
    double bound; /* uniform between -bound and bound; 0: `constant` */
    float constant;
    bool buffer; /* saved, not learnt */
} plim__initial_t;

/* A table under construction; without entries it only counts. */
typedef struct plim__table {
    plim__parameter_t *entries;
    plim__initial_t *initial;
    int count;
    size_t weights; /* values of learnt parameters */
    size_t buffers; /* values of buffers */
} plim__table_t;

/* A product and its weights side by side, each in / num_weights wide. If transposed, the first
 * holds all of them but the last. */
typedef struct plim__linear {
    plim__dense_t *dense;
    int64_t in;
    int64_t out;
    int num_weights;
    bool transposed; /* (width, out), one behind the other */
    plim__parameter_t *weight[2];
} plim__linear_t;

/* The parameters of an epilogue; NULL if missing. */
typedef struct plim__epilogue_parameters {
    int64_t width;
    plim__parameter_t *bias, *gamma, *beta, *mean, *variance;
} plim__epilogue_parameters_t;

typedef struct plim__layer {
    int index;
    int64_t in;         /* columns of the input */
    int64_t out;        /* columns of h */
    bool plain;         /* only a bias: the layer computes the outputs */
    bool residual;      /* adds its input to its output */
    bool raw;           /* reads the batch's rows, which need no gradient */
    bool needs_dx;      /* backward needs the gradient of x */
    int64_t channels;   /* GAT: channels of one head */
    int heads;          /* GAT */
    bool mean_of_heads; /* GAT: mean of heads instead of concatenation */
    plim__linear_t product[2];
    plim__parameter_t *attention_src, *attention_dst; /* GAT; GATv2 has one att, the first */
    plim__parameter_t *attention_edge;                /* GAT with features of edges */
    plim__epilogue_parameters_t left, right;          /* GATv2: biases of its products */
    plim__parameter_t *comp;                          /* R-GCN: (types, bases) */
    plim__parameter_t *epsilon;                       /* GIN */
    plim__epilogue_parameters_t inner;                /* GIN: between its products */
    plim__epilogue_parameters_t after;
    plim__parameter_t *term_weight, *term_bias; /* of edges: a linear layer, or embeddings */

    /* The current part: sizes, */
    plim__edges_t hop;
    plim__edge_inputs_t edges;
    int64_t rows;         /* rows of h */
    plim__matrix_t input; /* (num_src, in): h of the layer before, or the batch's rows */
    /* then matrices of forward, */
    float *scale_src, *scale_dst, *scale_self, *scale_edge;
    int32_t *chosen;
    float *counts;            /* R-GCN: (workers, types) */
    plim__edge_terms_t terms; /* GINE, and attention with features of edges */
    float *term_values;       /* (num_edges, entries), if the batch's are of another element */
    int32_t *term_rows;       /* (num_edges, entries) of categories */
    float *term_table;        /* (table_rows, width) the linear layer's weight, transposed */
    plim__matrix_t x;         /* input of the first product */
    plim__matrix_t z;         /* GAT: its result, (num_src, heads * channels) */
    plim__matrix_t z_dst;     /* GATv2: that of the second, (rows, heads * channels) */
    float *term_row;          /* GATv2: (workers, heads * channels) scratch for edges' terms */
    plim__attention_state_t attention_state;
    plim__matrix_t heads_out; /* GAT: before the mean over heads */
    float *inner_y;           /* GIN */
    plim__matrix_t inner_h;
    void *inner_kept;
    float *y;                 /* (rows, out) */
    plim__matrix_t converted; /* the input's own rows, if the residual needs another element */
    void *kept;
    plim__matrix_t h; /* (rows, out) */
    /* and of backward. */
    const float *dh; /* (rows, out) */
    plim__matrix_t dy;
    float *dresidual; /* (rows, out) */
    void *scratch;
    plim__matrix_t again;   /* x, recomputed or kept */
    plim__matrix_t z_again; /* GAT: z, recomputed or kept */
    float *inner_dh;        /* GIN: (rows, out) */
    plim__matrix_t inner_dy;
    void *inner_scratch;
    float *term_scratch;    /* (table_rows, width) gradient of a linear layer, and partial sums */
    plim__matrix_t dheads;  /* GAT: (rows, heads * channels) */
    plim__matrix_t dz;      /* GAT: (num_src, heads * channels) */
    plim__matrix_t dz_read; /* dz in the element of the products */
    /* GATv2: the same of the second product, */
    plim__matrix_t z_dst_again, dz_dst, dz_dst_read;
    float *term_row_back;
    float *dx_dst;      /* (rows, in) its gradient of x, */
    void *bias_scratch; /* and of either bias */
    void *attention_scratch;
    plim__reverse_t reverse;
    plim__matrix_t dx; /* gradient of x */
    float *dinput;     /* (num_src, in) gradient of the input: dh of the previous layer */
    size_t begin;      /* front of the workspace before this layer */
    size_t before_h;
} plim__layer_t;

/* Rows made of categories; without entries there are none. */
typedef struct plim__encoder {
    plim__parameter_t *embedding; /* the first column's */
    plim__edge_terms_t terms;
    const int64_t *categories; /* of the part: (num_src, entries) */
    int32_t *rows;             /* (num_src, entries) of all tables as one */
    void *scratch;
} plim__encoder_t;

/* Graph-level tasks: pooling, then one product. */
typedef struct plim__head {
    plim__linear_t product;
    plim__epilogue_parameters_t after;
    float *pooled; /* (num_graphs, hidden) */
    int32_t *chosen;
    plim__matrix_t x; /* pooled, in the element of the product */
    void *kept;
    plim__matrix_t h; /* the product's result; the epilogue works in place */
    plim__matrix_t dy;
    void *scratch;
    float *dpooled;
} plim__head_t;

typedef struct plim__conv plim__conv_t;

/* Times of one worker in a pass by tiles, on its own cache line. */
typedef struct plim__worker_times {
    _Alignas(64) int64_t dense_ns;
    int64_t sparse_ns, finish_ns;
} plim__worker_times_t;

struct plim__model {
    plim__arena_t arena;
    plim__arena_t activations; /* the memory of `workspace` */
    plim__model_params_t params;
    const plim__conv_t *conv;
    plim__element_t element; /* element of the products' inputs */
    plim__team_t *team;
    plim_ledger_t *ledger;
    plim__table_t table;
    plim__model_arrays_t arrays;
    plim__encoder_t encoder;
    plim__layer_t layers[PLIM_HOPS_MAX];
    plim__head_t head;
    plim__workspace_t workspace;
    plim__worker_times_t *times; /* (workers) */
    float *tiles;                /* (workers, tile_floats): results of products that are not kept */
    int64_t tile_floats;
    float *embeddings;        /* embeddings, if the last layer reads another element */
    plim__pass_t pass;        /* current pass */
    plim__node_ids_t nodes;   /* of the part */
    const int32_t *degrees;   /* of the part */
    const float *weight_sums; /* of the part */
    int64_t num_seeds;
    int64_t lap_ns;
    int64_t dense_ns, sparse_ns, finish_ns;
    double dense_flops;
};

/*
 * Functions of a kind of layer. `place` and `place_back` take memory without touching it. `prepare`
 * precedes the first of `rows`, which computes rows [first, end) of x on the calling thread; NULL
 * if nothing is needed. `forward`, up to y, is for a layer that is more than a product of x;
 * otherwise NULL.
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
extern const plim__conv_t plim__conv_rgcn;

/* model_parameters.c */

/* Adds a parameter named "list.index.name" ("list.name" for index -1), of up to three dimensions, 0
 * after the last; NULL if it only counts. */
plim__parameter_t *plim__table_add(plim__table_t *table, plim__initial_t initial, const char *list,
                                   int index, const char *name, int64_t shape0, int64_t shape1,
                                   int64_t shape2);
/* Adds the parameters of the norm "list.index.name…" to the epilogue. */
void plim__table_norm(plim__table_t *table, plim_norm_t norm, const char *list, int index,
                      const char *name, plim__epilogue_parameters_t *parameters);
/* Adds all parameters of the model and links them to its layers, whose widths are set. */
void plim__model_describe(plim__model_t *model, plim__table_t *table);
plim__initial_t plim__initial_glorot(int64_t rows, int64_t columns);
plim__initial_t plim__initial_linear(int64_t in);

/* model_place.c */

/* Places all matrices of this pass; the sizes of layers are set. */
void plim__model_place(plim__model_t *model, plim__workspace_t *workspace);
size_t plim__model_workspace_bytes(plim__model_t *model);

/* A matrix with its padding rows, on a side of the workspace. */
plim__matrix_t plim__place_matrix(plim__workspace_t *workspace, plim__side_t side, int64_t rows,
                                  int64_t width, plim__element_t element);
float *plim__place_floats(plim__workspace_t *workspace, plim__side_t side, int64_t rows,
                          int64_t width);
/* Memory for what an epilogue keeps for backward; none outside training. */
void *plim__place_kept(plim__workspace_t *workspace, plim__side_t side,
                       const plim__epilogue_t *epilogue, int64_t rows);
void plim__place_reverse(plim__workspace_t *workspace, plim__side_t side, plim__layer_t *layer);
/* Rows of the input in the element of the products: a copy in layer 0, otherwise the input
 * itself. */
void plim__place_rows(const plim__model_t *model, plim__layer_t *layer,
                      plim__workspace_t *workspace);
/* x in backward: the kept one, or memory to recompute it. */
void plim__place_again(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace);
/* Places backward of a layer that sums over neighbours: x, dx, and the gradient of the input. */
void plim__place_sum_back(const plim__model_t *model, plim__layer_t *layer,
                          plim__workspace_t *workspace);

/* Sides of a layer's matrices: kept for backward; used only in the layer; used in backward. */
plim__side_t plim__side_kept(const plim__model_t *model, const plim__layer_t *layer);
plim__side_t plim__side_temporary(const plim__model_t *model, const plim__layer_t *layer);
plim__side_t plim__side_back(const plim__layer_t *layer);
/* The side of x, which need not be kept if backward recomputes it. */
plim__side_t plim__side_x(const plim__model_t *model, const plim__layer_t *layer);

plim__epilogue_t plim__model_epilogue(const plim__model_t *model,
                                      const plim__epilogue_parameters_t *parameters, bool plain,
                                      bool dropout, int layer);
plim__epilogue_t plim__layer_epilogue(const plim__model_t *model, const plim__layer_t *layer);
plim__epilogue_t plim__layer_inner(const plim__model_t *model, const plim__layer_t *layer);
plim__epilogue_gradients_t
plim__model_epilogue_gradients(const plim__epilogue_parameters_t *parameters);
/* Key of a dropout: kind 0 after a layer, 1 in its attention. */
uint64_t plim__model_key(const plim__model_t *model, int layer, int kind);

/* model_columns.c */

/* Values of all columns together. */
int64_t plim__categories_rows(const plim__categories_t *categories);
/* Gives the layers and the encoder their columns (NULL: none). PLIM_ERR_USAGE if one is missing,
 * PLIM_ERR_DATA for a category out of range. */
plim_status_t plim__model_set_columns(plim__model_t *model, const plim_batch_t *batch,
                                      const plim__batch_columns_t *columns);

/* The terms of edges: adds their parameters, a linear layer of this name (or embeddings, which have
 * names of their own); places their arrays, which plim__terms_prepare fills before a pass. */
void plim__terms_parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer,
                            const char *linear, plim__initial_t initial, bool bias, int64_t width);
void plim__place_terms(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace);
void plim__terms_prepare(plim__model_t *model, plim__layer_t *layer);
/* The part of it that sets the edges' values or rows. */
void plim__terms_inputs(plim__model_t *model, plim__layer_t *layer);
/* Backward: the bytes of layer->term_scratch; the table's gradient, which the caller adds to, and
 * scratch for its partial sums; plim__terms_learn then adds it to the parameters' gradients. */
size_t plim__terms_scratch(const plim__edge_terms_t *terms);
float *plim__terms_gradient(const plim__layer_t *layer);
void *plim__terms_partials(const plim__layer_t *layer);
void plim__terms_learn(const plim__layer_t *layer);

/* Rows made of categories: layer 0's input. Nothing without them. */
void plim__encoder_parameters(plim__model_t *model, plim__table_t *table);
void plim__place_encoder(plim__model_t *model, plim__workspace_t *workspace);
void plim__place_encoder_back(plim__model_t *model, plim__workspace_t *workspace);
void plim__encoder_forward(plim__model_t *model);
void plim__encoder_backward(plim__model_t *model);

/* model_tiles.c */

/* Whether layers of this pass run by tiles. */
bool plim__layer_tiled(const plim__model_t *model);
void plim__layer_forward_tiles(plim__model_t *model, plim__layer_t *layer,
                               const plim__matrix_t *residual);
/* Computes all rows of x. */
void plim__layer_input(plim__model_t *model, plim__layer_t *layer, plim__matrix_t *x);

/* precision.c: converts rows to another element; adds rows of `from` to the first rows of `to`
 * (both F32). */
void plim__matrix_convert_rows(const plim__matrix_t *from, plim__matrix_t *to, int64_t first,
                               int64_t end);
void plim__matrix_convert(plim__team_t *team, const plim__matrix_t *from, plim__matrix_t *to);
void plim__matrix_add(plim__team_t *team, const plim__matrix_t *from, plim__matrix_t *to);

static inline bool plim__attends(plim_model_kind_t kind)
{
    return kind == PLIM_GAT || kind == PLIM_GATV2;
}

/* Adds the time since the last lap to a part of the model's times. */
static inline void plim__model_lap(plim__model_t *model, int64_t *part)
{
    const int64_t now = plim__clock_ns();
    *part += now - model->lap_ns;
    model->lap_ns = now;
}

/* model.c: PLIM_ERR_NOMEM if a oneDNN call has failed. */
plim_status_t plim__model_check(plim__model_t *model);

/* A product forward and backward, timed and counted. */
void plim__linear_forward(plim__model_t *model, plim__linear_t *product, const plim__matrix_t *x,
                          float *y);
void plim__linear_backward(plim__model_t *model, plim__linear_t *product, plim__matrix_t *dy,
                           plim__matrix_t *x, float *dx);

/* x for the backward pass, recomputed if it was not kept. */
plim__matrix_t *plim__layer_x(plim__model_t *model, plim__layer_t *layer);
/* Computes dinput from dx along the reversed hop and adds the residual's share. Nothing in a layer
 * that reads the batch's rows. */
void plim__sum_backward(plim__model_t *model, plim__layer_t *layer, const plim__scales_t *scales);
void plim__layer_add_residual(plim__model_t *model, plim__layer_t *layer);

#endif
