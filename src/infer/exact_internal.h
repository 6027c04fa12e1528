/*
 * What the files of exact evaluation share. One evaluation goes through them in this order:
 *
 *     exact.c         creates the evaluation, runs layer after layer
 *     exact_layer.c   turns the model's parameters into layers
 *     exact_plan.c    buffer sizes, panels and blocks of each layer, memory and disk
 *     exact_set.c     the nodes that each layer needs, and the file ranges of their lists and rows
 *     exact_pass.c    one layer: fills rows into memory, aggregates lists over them
 *     exact_columns.c a column of edges: read along with the lists, given to the aggregation
 *     exact_output.c  from aggregated states to the layer's output rows
 *     exact_reorder.c puts the outputs into the requested order
 *     exact_reader.c  reads ahead, writes behind
 *     exact_peers.c   what the ranks of a job exchange
 *
 * A position is the index of a node in a set. The ranks of a job are called peers here: see
 * plim__exact_set_t for what each of them computes.
 */
#ifndef PLIM_INFER_EXACT_INTERNAL_H
#define PLIM_INFER_EXACT_INTERNAL_H

#include "base/half.h"
#include "base/node_set.h"
#include "infer/exact.h"
#include "io/engine.h"
#include "mem/arena.h"
#include "nn/epilogue.h"
#include "nn/stream_aggregate.h"
#include "nn/team.h"
#include "peers/peers.h"
#include "source/offsets.h"
#include "source/weight_sums.h"

#include <stdatomic.h>

#define PLIM__EXACT_AHEAD 6        /* maximum number of chunks of a reader in memory */
#define PLIM__EXACT_AHEAD_STATES 3 /* the same for ranges of states, which are larger */
#define PLIM__EXACT_TILE 32        /* rows of one product call of a worker */
#define PLIM__EXACT_BATCH 256      /* neighbours' rows that are prefetched together */

typedef enum plim__exact_scale {
    PLIM__EXACT_PLAIN = 0,
    /* 1/sqrt(k_u+1) sqrt(k_v+1)/(d_v+1), with the node once among its own neighbours; d is the
     * number of edges from others, k is d capped at the fan-out, so without a cap this is GCN's
     * 1/sqrt((d_u+1)(d_v+1)) */
    PLIM__EXACT_GCN,
    PLIM__EXACT_MEAN, /* 1/d_v */
    /* GCN with sums of weights in place of k+1 and d+1; the node's own weight is that of its last
     * self-loop, else 1 */
    PLIM__EXACT_GCN_WEIGHTED
} plim__exact_scale_t;

/*
 * A model's layer as exact evaluation computes it:
 *
 *     x ─► front ─► aggregate over neighbours ─► behind ─┬─► epilogue ─► [second ─► last] ─► h
 *     x of the node itself ─► root ──────────────────────┘      ▲                    ▲
 *     x of the node itself (residual) ──────────────────────────┴────────────────────┘
 *
 * Where the layer is linear up to `behind` and has fewer outputs than inputs, its weight is
 * `front`, otherwise `behind`. Products are of f32 whatever the model's precision.
 */
typedef struct plim__exact_layer {
    int64_t in, out;

    bool aggregates; /* false in an MLP */
    plim__stream_aggregate_kind_t aggregate;
    plim__exact_scale_t scale;
    int64_t fanout;     /* GCN: cap of degrees */
    bool self;          /* aggregates the node's own row with its neighbours' */
    bool skips_loops;   /* leaves out edges from a node to itself */
    int64_t wide;       /* columns that are aggregated */
    const float *front; /* (wide, in); NULL: the input's columns are aggregated */

    int heads; /* attention: wide = heads * channels; R-GCN: bases, wide = bases * in */
    int64_t channels;
    const float *att_src, *att_dst; /* (heads, channels); GATv2 has only the first */
    bool mean_of_heads;             /* the result is the mean over heads, `channels` columns */
    const float *front_bias;        /* GATv2: (wide) */
    const float *front_dst;         /* GATv2: (wide, in) of the destinations' own rows */
    const float *dst_bias;          /* GATv2: (wide) */

    /* The terms of edges. For values: a linear layer (term_width, entries) and, in GAT, attention
     * (heads, channels). For categories: embeddings, which are the rows of the table. */
    int64_t term_rows, term_width; /* of the table; 0: edges have no terms */
    const float *term_weight, *term_bias, *att_edge;
    const float *comp; /* R-GCN: (types, bases) */

    int64_t inner;       /* columns of the first epilogue */
    const float *behind; /* (inner, wide); NULL: no product after the aggregation */
    const float *root;   /* (inner, in) or NULL */
    bool transposed;     /* R-GCN: these are (wide, inner) and (in, inner) */
    float root_scale;    /* multiplies root */
    bool residual;       /* added by the last epilogue */
    plim__epilogue_t epilogue;
    const float *second; /* (out, inner) or NULL */
    plim__epilogue_t last;
} plim__exact_layer_t;

/* Layer `index` of the model. PLIM_ERR_USAGE names a parameter that is missing or of another
 * shape. */
plim_status_t plim__exact_layer_make(const plim_model_t *model, const plim__columns_t *columns,
                                     int64_t num_features, int64_t num_outputs,
                                     const plim__parameter_t *parameters, int count, int index,
                                     plim__exact_layer_t *layer_out);

/* The tables of embeddings of integer features of nodes, which follow each other; unchanged if
 * there are none. */
plim_status_t plim__exact_embedding(const plim_model_t *model, const plim__columns_t *columns,
                                    const plim__parameter_t *parameters, int count,
                                    const float **embedding_out);

/*
 * Shapes of the layers that are computed: all, or for embeddings all but the last. Pointers to
 * parameters that will exist are not NULL and must not be read.
 */
void plim__exact_layers_shape(const plim_dataset_info_t *info, const plim_model_t *model,
                              const plim__columns_t *columns, int64_t num_outputs, bool embeddings,
                              int *num_layers_out, plim__exact_layer_t *layers_out);

/* Whether the layer is attention: columns belong to heads, and rows and states have two more floats
 * for each head. */
static inline bool plim__exact_attends(const plim__exact_layer_t *layer)
{
    return layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION ||
           layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION_V2;
}

/* Whether the layer reads a destination's own input row apart from the aggregation. */
static inline bool plim__exact_wants_root(const plim__exact_layer_t *layer)
{
    return !layer->aggregates || layer->root != NULL || layer->residual;
}

/* The column of edges that a model reads, which is one at most. */
typedef struct plim__exact_column {
    unsigned column; /* a plim_column_t; 0: none */
    plim_dtype_t type;
    int64_t entries;                      /* of an edge */
    int64_t bytes;                        /* of an edge */
    int64_t totals;                       /* floats of a list's totals: see exact_columns.c */
    const plim__categories_t *categories; /* of integers; NULL: they are values */
} plim__exact_column_t;
plim__exact_column_t plim__exact_column_of(const plim_dataset_info_t *info,
                                           const plim_model_t *model,
                                           const plim__columns_t *columns);

/* A range of bytes of a file, and the positions whose rows or lists it holds. */
typedef struct plim__exact_chunk {
    int64_t offset, size;
    int64_t range;
    int64_t first, end; /* positions */
} plim__exact_chunk_t;

/* Returns the next range, at most the reader's capacity; false after the last. */
typedef bool (*plim__exact_next_fn)(void *context, plim__exact_chunk_t *chunk_out);

/* Reads ranges of a file or of memory ahead and returns them in order. */
typedef struct plim__exact_reader {
    const plim_job_t *job;
    plim__engine_t *engine;
    int ahead; /* 2 … PLIM__EXACT_AHEAD */
    int64_t capacity;
    char *buffers[PLIM__EXACT_AHEAD];
    plim__op_t ops[PLIM__EXACT_AHEAD];
    plim__exact_chunk_t chunks[PLIM__EXACT_AHEAD];
    int64_t begun, ended; /* ranges requested, ranges handed over */

    const plim__file_t *file; /* NULL: `memory` */
    const char *memory;
    plim__exact_next_fn next;
    void *context;
    bool more;
} plim__exact_reader_t;

/* Carves the buffers for `ahead` ranges of at most `capacity` bytes. */
void plim__exact_reader_lay_out(plim__arena_t *arena, plim__exact_reader_t *reader, int ahead,
                                int64_t capacity);
plim_status_t plim__exact_reader_open(plim__exact_reader_t *reader, const plim_job_t *job);
void plim__exact_reader_close(plim__exact_reader_t *reader);

/* Starts reading the ranges that `next` returns, from the file or the memory. Drops earlier
 * ranges. */
void plim__exact_reader_start(plim__exact_reader_t *reader, const plim__file_t *file,
                              const char *memory, plim__exact_next_fn next, void *context);

/* Waits for the reads in flight and drops them. */
void plim__exact_reader_drop(plim__exact_reader_t *reader);

/* The next chunk; NULL after the last. */
const plim__exact_chunk_t *plim__exact_reader_peek(plim__exact_reader_t *reader);

/* Waits for the next chunk. Its bytes stay valid until the next call. PLIM_ERR_IO, PLIM_ERR_DATA,
 * PLIM_ERR_STOPPED. */
plim_status_t plim__exact_reader_take(plim__exact_reader_t *reader, plim__exact_chunk_t *chunk_out,
                                      char **data_out);

/* A matrix between two layers, or states between two passes, in memory or in a nameless file. Each
 * range begins at a page. */
typedef struct plim__exact_store {
    plim__arena_t memory; /* base NULL: in the file */
    plim__file_t file;
    plim_ledger_t *ledger;
    int account;
    size_t charged; /* bytes on the ledger for a file system in memory */
    int64_t range_bytes;
} plim__exact_store_t;

/* PLIM_ERR_IO, PLIM_ERR_BUDGET, PLIM_ERR_NOMEM. A zeroed store is harmless to destroy. */
plim_status_t plim__exact_store_create(plim__exact_store_t *store, const plim_job_t *job,
                                       const char *scratch, bool in_memory, int64_t range_bytes,
                                       int64_t ranges);
void plim__exact_store_destroy(plim__exact_store_t *store);

/* Writes ranges to a store while the next ones are computed. */
typedef struct plim__exact_writer {
    plim__engine_t *engine;
    char *buffers[2];
    plim__op_t ops[2];
    bool busy[2];
    int turn;
} plim__exact_writer_t;

/* Carves the buffers for ranges of at most `capacity` bytes. */
void plim__exact_writer_lay_out(plim__arena_t *arena, plim__exact_writer_t *writer,
                                int64_t capacity);

/* Returns the memory for the range at `offset` of the store; put() then writes it. */
plim_status_t plim__exact_writer_place(plim__exact_writer_t *writer, plim__exact_store_t *store,
                                       int64_t offset, void **to_out);
void plim__exact_writer_put(plim__exact_writer_t *writer, plim__exact_store_t *store,
                            int64_t offset, int64_t size);

plim_status_t plim__exact_writer_flush(plim__exact_writer_t *writer);

/* Sizes of the units of reading, writing and computing. */
typedef struct plim__exact_sizes {
    int workers;        /* threads of the team */
    int64_t chunk;      /* bytes of a read */
    int64_t range_rows; /* destinations whose outputs are computed together */
    int64_t states;     /* bytes of a range of states, of all panels */
    int64_t written;    /* bytes of a range of a matrix or of one panel's states */
    int64_t x, y, h;    /* floats a row of these */
    int64_t tile;       /* floats a row of a worker's tile */
    size_t kept;        /* bytes of an epilogue's statistics, for a range */
    size_t front, behind, root, second, scores, dst, table; /* bytes of these weights */
    int64_t z;                                              /* floats a row: GATv2's destinations */
    plim__exact_column_t column;
    int peers;
    size_t bytes; /* the arena, engines and threads */
} plim__exact_sizes_t;

/* How a layer is computed under the line: its columns in `panels`, its sources in `blocks`. */
typedef struct plim__exact_choice {
    int64_t panels;
    int64_t columns; /* columns of a panel; the last panel may have fewer */
    int64_t blocks;
    int64_t rows;      /* rows of a block */
    int64_t width;     /* floats of a state of the widest panel */
    int64_t row_width; /* floats of a row */
} plim__exact_choice_t;

typedef struct plim__exact_plan {
    plim__exact_choice_t choice;
    int64_t capacity;      /* floats that a pass may hold in memory */
    bool in_memory;        /* keeps its output in memory, if that is stored */
    int64_t state_bytes;   /* bytes of the stored states; 0: none */
    int64_t stored_panels; /* panels whose states are stored */
} plim__exact_plan_t;

/* Columns that are aggregated in one pass. */
typedef struct plim__exact_panel {
    int64_t first, count;
    int head, heads;   /* attention: the heads that the columns belong to */
    int64_t width;     /* floats of a state: the columns, and two scores a head */
    int64_t row_width; /* floats of a row: the same, but R-GCN's bases have one row */
    int64_t offset;    /* offset of its states in a range of the store */
} plim__exact_panel_t;

#define PLIM__EXACT_STRIPES 128 /* maximum number of stripes of a peer */

/*
 * Nodes whose rows a layer computes or reads. A matrix of their rows is numbered by position.
 *
 * Peers divide the nodes in stripes, ranges of 448 << shift node ids that they take in turn, so
 * that each has a part of every block of sources, of the requested nodes, and of long lists:
 *
 *     node       0 ─────► L ─────► 2L ─────► 3L ─────►
 *     peer          0         1         0         1
 *
 * A peer's part of a set is a set too, with positions of its own: `peers` is then their number. A
 * peer computes and keeps the rows of its part; a layer's product goes to all peers when it is
 * formed, since sums need rows of any source.
 */
typedef struct plim__exact_set {
    bool all; /* every node, or every node of the stripes; `members` is then not used */
    plim__node_set_t members;
    plim__arena_t arena;
    int64_t count;
    int64_t edges; /* edges into the members */
    int peers;     /* 0: the set has the nodes of all stripes */
    int peer;
    int shift;
    int64_t before[PLIM__EXACT_STRIPES + 1]; /* members in the peer's stripes before this one */
} plim__exact_set_t;

/* The shift of the stripes of `num_nodes` nodes. */
int plim__exact_stripe_shift(int64_t num_nodes, int peers);

/* The stripe of a node. */
static inline int64_t plim__exact_stripe(int shift, int64_t node)
{
    return (int64_t)((uint64_t)node / PLIM__NODE_SET_BITS) >> shift;
}

/* The number of nodes, or of members of a set, in the stripes before `stripe`. */
static inline int64_t plim__exact_stripe_node(int shift, int64_t stripe)
{
    return (stripe << shift) * PLIM__NODE_SET_BITS;
}

int64_t plim__exact_stripe_position(const plim__exact_set_t *set, int shift, int64_t stripe);

/* For positions and nodes of a peer's part. */
int64_t plim__exact_part_whole(const plim__exact_set_t *part, int64_t position);
int64_t plim__exact_part_skip(const plim__exact_set_t *part, int64_t node);

/* The position in the whole set of the part's member `position`. */
static inline int64_t plim__exact_whole(const plim__exact_set_t *part, int64_t position)
{
    return part->peers == 0 ? position : plim__exact_part_whole(part, position);
}

static inline int64_t plim__exact_node_at(const plim__exact_set_t *set, int64_t position)
{
    const int64_t whole = plim__exact_whole(set, position);
    return set->all ? whole : plim__node_set_select(&set->members, whole);
}

static inline int64_t plim__exact_node_after(const plim__exact_set_t *set, int64_t node)
{
    const int64_t next = set->all ? node + 1 : plim__node_set_next(&set->members, node + 1);
    const bool near = set->peers == 0 ||
                      plim__exact_stripe(set->shift, next) == plim__exact_stripe(set->shift, node);
    return near ? next : plim__exact_part_skip(set, next);
}

/* The position of a node; -1 if it is not a member. */
static inline int64_t plim__exact_position(const plim__exact_set_t *set, int64_t node)
{
    const int64_t position = set->all ? node : plim__node_set_position(&set->members, node);
    if (set->peers == 0 || position < 0)
        return position;
    const int64_t stripe = plim__exact_stripe(set->shift, node);
    if (stripe % set->peers != set->peer)
        return -1;
    return set->before[stripe / set->peers] + position -
           plim__exact_stripe_position(set, set->shift, stripe);
}

/* The end of the positions from `position` on that follow each other in the whole set too. */
int64_t plim__exact_run_end(const plim__exact_set_t *set, int64_t position);

/* The number of the part's members whose position in the whole set is below `whole`. */
int64_t plim__exact_part_before(const plim__exact_set_t *part, int64_t whole);

/* A layer's input, row by row: features.npy, or the output of the layer before. */
typedef struct plim__exact_source {
    const plim__file_t *file; /* NULL: in memory */
    const char *memory;
    const plim__exact_set_t *set; /* its positions number the rows */
    bool half;
    const plim__categories_t *categories; /* of integers, whose embeddings are the row; or NULL */
    int64_t width;
    int64_t row_bytes;
    int64_t start;                   /* offset of the first row */
    int64_t range_rows, range_bytes; /* features.npy is one range */
} plim__exact_source_t;

static inline int64_t plim__exact_row_offset(const plim__exact_source_t *source, int64_t row)
{
    return source->start + row / source->range_rows * source->range_bytes +
           row % source->range_rows * source->row_bytes;
}

/* Rows that one thread prefetches and then aggregates. */
typedef struct plim__exact_batch {
    int64_t count;
    int64_t num_lists;
    int64_t places[PLIM__EXACT_BATCH];
    plim__stream_aggregate_list_t lists[PLIM__EXACT_BATCH];
    plim__stream_edges_t edges;
} plim__exact_batch_t;

typedef struct plim__exact {
    plim__arena_t arena;
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    const plim__exact_params_t *params;
    const char *phase, *reading; /* names for progress: reading lists, reading inputs */
    plim__exact_sizes_t sizes;
    plim__exact_plan_t plans[PLIM_HOPS_MAX];
    bool stored; /* stores the last layer's output, to put it into the requested order */
    plim__half_path_t half_path;
    int num_layers;
    plim__exact_layer_t layers[PLIM_HOPS_MAX];
    plim__exact_set_t sets[PLIM_HOPS_MAX + 1];  /* [i]: inputs of layer i */
    plim__exact_set_t parts[PLIM_HOPS_MAX + 1]; /* this peer's part of each */
    plim__exact_set_t all_nodes;

    plim__peers_t *peers; /* NULL: there are no others */
    int64_t round_rows;   /* rows that are taken together, by all peers */
    size_t *send_sizes, *send_offsets, *receive_sizes, *receive_offsets; /* (sizes.peers) */

    plim__team_t *team;
    plim__offsets_t *offsets;
    plim__file_t indices, features, column;
    plim__weight_sums_t weight_sums;
    plim__exact_reader_t lists, rows, own, states, edges;
    plim__exact_writer_t writer;
    plim__exact_batch_t (*batches)[2]; /* (workers) */
    float *edge_values;                /* (workers, 2, PLIM__EXACT_BATCH, column.entries + 1) */
    float *totals; /* (workers + 1, column.totals); the last of the list of several chunks */
    char *long_entries, *long_edges; /* (chunk) a part of such a list */
    float *tiles;                    /* (workers, PLIM__EXACT_TILE, sizes.tile): plim__exact_tile */

    float *x;     /* (range_rows, sizes.x) the destinations' own inputs */
    float *y;     /* (range_rows, sizes.y) between two products */
    float *h;     /* (range_rows, sizes.h) the output, if it is not stored */
    float *state; /* a range of the last panel's states */
    void *kept;   /* an epilogue's statistics */
    float *packed_front, *packed_behind, *packed_root, *packed_second, *packed_dst;
    const float *embedding; /* (categories, source.width) of integer features; NULL: none */
    float *table;           /* (term_rows, term_width) of the terms of edges */
    float *z;               /* (range_rows, sizes.z) GATv2: of a range of destinations */
    float *scores;          /* (2 * heads, in) attention's vectors, multiplied with the weight */

    /* The current layer: */
    plim__exact_layer_t *layer;
    const plim__exact_set_t *from; /* sources, of all peers */
    const plim__exact_set_t *held; /* those of this peer */
    const plim__exact_set_t *to;   /* destinations of this peer */
    plim__exact_source_t source;
    const plim__exact_plan_t *plan;
    plim__arena_t resident_arena;
    float *resident; /* (plan->choice.rows, row_width) the panel's columns of the block's sources */
    plim__exact_store_t partial;                /* states between two passes */
    int64_t edges_done, edges_end, edges_total; /* so far; at the end of the pass; in all */

    _Atomic int64_t damaged;      /* an entry of indices.npy that is no valid node, or -1 */
    _Atomic int64_t damaged_edge; /* an edge with an invalid type or category, or -1 */
    _Atomic bool damaged_row;     /* a node has an invalid category */
} plim__exact_t;

static inline float *plim__exact_tile(const plim__exact_t *exact, int worker)
{
    return exact->tiles + (int64_t)worker * PLIM__EXACT_TILE * exact->sizes.tile;
}

/* Number of ranges of `rows` rows. */
static inline int64_t plim__exact_num_ranges(const plim__exact_t *exact, int64_t rows)
{
    return (rows + exact->sizes.range_rows - 1) / exact->sizes.range_rows;
}

/* exact_columns.c. Columns [first, first + count) of the sum of the embeddings of a row. */
void plim__exact_embed(const plim__exact_t *exact, const char *row, int64_t first, int64_t count,
                       float *to);

/* One row of the source as floats: columns [first, first + count). */
static inline void plim__exact_load(const plim__exact_t *exact, const char *row, int64_t first,
                                    int64_t count, float *to)
{
    if (exact->source.categories != NULL)
        plim__exact_embed(exact, row, first, count, to);
    else if (exact->source.half)
        plim__half_widen(exact->half_path, (const uint16_t *)(const void *)row + first, to, count);
    else
        __builtin_memcpy(to, (const float *)(const void *)row + first,
                         (size_t)count * sizeof(float));
}

/* exact_plan.c. The layout of a plim__exact_t whose sizes are set. */
void plim__exact_lay_out(plim__arena_t *arena, void *exact);

/* The largest buffers that are a small part of `available` bytes. Pure. */
plim__exact_sizes_t plim__exact_sizes_fit(const plim_job_t *job, const plim_dataset_info_t *info,
                                          const plim__exact_column_t *column,
                                          const plim__exact_layer_t *layers, int num_layers,
                                          size_t available);

/* Plans every layer within the ledger, after the sets are known. PLIM_ERR_SPACE,
 * PLIM_ERR_BUDGET. */
plim_status_t plim__exact_plan_layers(plim__exact_t *exact);

plim__exact_panel_t plim__exact_panel(const plim__exact_t *exact, int64_t index);

/* Bytes of a set's members, and of the rows that a pass holds in memory. */
size_t plim__exact_set_bytes(int64_t num_nodes);
size_t plim__exact_resident_bytes(const plim__exact_choice_t *choice);

/* exact_set.c. Makes the sets and this peer's parts. */
plim_status_t plim__exact_sets_make(plim__exact_t *exact, const int64_t *nodes, int64_t count);
void plim__exact_sets_end(plim__exact_t *exact);

/* Iterates over the lists of a set's members, in ranges of range_rows positions. Every position is
 * in a chunk, and a chunk is in one stripe. */
typedef struct plim__exact_lists {
    const plim__exact_t *exact;
    const plim__exact_set_t *set;
    int64_t range_rows;
    int64_t most; /* maximum entries of a chunk */
    int64_t position, node;
    int64_t entry; /* entry at which the position's list continues; -1: its first */
} plim__exact_lists_t;
plim__exact_lists_t plim__exact_lists_of(const plim__exact_t *exact, const plim__exact_set_t *set);
bool plim__exact_lists_next(void *lists, plim__exact_chunk_t *chunk_out);

/* Iterates over the rows of `source` that belong to members [position, end) of a set, in ranges of
 * range_rows positions. A chunk is in one stripe. */
typedef struct plim__exact_rows {
    const plim__exact_source_t *source;
    const plim__exact_set_t *set;
    int64_t range_rows;
    int64_t most; /* maximum bytes of a chunk */
    int64_t position, end, node;
} plim__exact_rows_t;
plim__exact_rows_t plim__exact_rows_of(const plim__exact_t *exact, const plim__exact_set_t *set,
                                       int64_t first, int64_t end);
bool plim__exact_rows_next(void *rows, plim__exact_chunk_t *chunk_out);

static inline int64_t plim__exact_entry(const plim__exact_t *exact, const char *data, int64_t i)
{
    return plim__index_at(data, exact->info->index_type == PLIM_I64, i);
}

/* Whether an entry of indices.npy is a node. Stores an invalid one for plim__exact_damage. Any
 * thread. */
static inline bool plim__exact_check(plim__exact_t *exact, int64_t entry, int64_t node)
{
    if ((uint64_t)node < (uint64_t)exact->info->num_nodes)
        return true;
    atomic_store_explicit(&exact->damaged, entry, memory_order_relaxed);
    return false;
}

/* PLIM_ERR_DATA if plim__exact_check has found an invalid entry, or an edge or a node had an
 * invalid type or category. */
plim_status_t plim__exact_damage(plim__exact_t *exact);

/* exact_columns.c. Gives the chunk of the column for each chunk of the lists: a plim__exact_next_fn
 * whose context is a plim__exact_lists_t of its own. */
bool plim__exact_edges_next(void *lists, plim__exact_chunk_t *chunk_out);

/* Computes the totals of the list of `node` from its entries [first, first + count), whose indices
 * begin at `entries` and whose column begins at `edges`. Any thread. */
void plim__exact_totals(plim__exact_t *exact, int64_t node, int64_t first, int64_t count,
                        const char *entries, const char *edges, float *totals);

/* The same for a list that does not fit in a chunk: reads it, and stores the totals as the last
 * ones. PLIM_ERR_IO, PLIM_ERR_DATA. */
plim_status_t plim__exact_totals_long(plim__exact_t *exact, int64_t node);
static inline float *plim__exact_totals_at(const plim__exact_t *exact, int worker)
{
    return exact->totals + worker * exact->sizes.column.totals;
}

/* Stores the column of edge `edge`, which is at `from`, at place `at`; from NULL: of the node's own
 * row. */
void plim__exact_edge_put(plim__exact_t *exact, int64_t edge, const char *from, const float *totals,
                          plim__stream_edges_t *edges, int64_t at);

/* Makes the layer's table of terms, and the terms of a panel of its columns. */
void plim__exact_terms_make(plim__exact_t *exact, const plim__exact_layer_t *layer);
plim__stream_terms_t plim__exact_terms(const plim__exact_t *exact,
                                       const plim__exact_panel_t *panel);

/* exact_pass.c: one layer. Ranges of its output go to the store, or to `take` in their order. */
typedef struct plim__exact_sink {
    plim__exact_store_t *store; /* NULL: to `take` */
    plim__exact_take_fn take;
    void *context;
} plim__exact_sink_t;
plim_status_t plim__exact_layer_run(plim__exact_t *exact, int index,
                                    const plim__exact_sink_t *sink);

/*
 * exact_output.c: computes the layer's output h (rows, out) of one range from its aggregated
 * states. `states` holds those of the last panel, `others` the store's range with those of the
 * panels before it.
 */
plim_status_t plim__exact_output_range(plim__exact_t *exact, int64_t range, int64_t rows,
                                       const float *states, const char *others, float *h);

/* Loads the own inputs of a range's destinations, and computes GATv2's z of the panel for them;
 * plim__exact_output_range then finds these inputs. */
plim_status_t plim__exact_output_dst(plim__exact_t *exact, const plim__exact_panel_t *panel,
                                     int64_t range, int64_t rows);

/* GCN's factor of a source, and of a destination, by its sum of weights. */
float plim__exact_weighted_src(const plim__exact_t *exact, int64_t node);

/* exact_peers.c. Waits for all peers; all return an error of one. */
plim_status_t plim__exact_agree(const plim__exact_t *exact, plim_status_t status);

/* Adds the members of all peers' sets to each of them; their positions are then not valid. */
plim_status_t plim__exact_unite(plim__exact_t *exact, plim__node_set_t *members);

/* The end of the group of sources that begins at position `first`, at most `end`. Peers form a
 * group together: one stripe of each, or all sources if there is one peer. */
int64_t plim__exact_group_end(const plim__exact_t *exact, int64_t first, int64_t end);

/* Gathers the rows of the group [first, end), which lie from `rows` on, from their peers. `status`
 * is that of this peer's rows. */
plim_status_t plim__exact_gather(plim__exact_t *exact, int64_t first, int64_t end,
                                 plim_status_t status, int64_t width, float *rows);

/* Collects on peer 0, at `rows_out` (count, width), the rows of `nodes` in their order. Each peer
 * has those of its part in exact->h, in the same order; `status` is that of these. */
plim_status_t plim__exact_collect(plim__exact_t *exact, plim_status_t status, const int64_t *nodes,
                                  int64_t first, int64_t count, int64_t width, float *rows_out);

/* exact_reorder.c. Passes the rows of the peers' stores, which are by ascending node, to `take` in
 * the order of `nodes`; and the memory that this takes for rows of `width` floats. */
plim_status_t plim__exact_reorder(plim__exact_t *exact, const plim__exact_source_t *source,
                                  const int64_t *nodes, int64_t count, plim__exact_take_fn take,
                                  void *context);
size_t plim__exact_reorder_bytes(const plim_job_t *job, int64_t range_rows, int64_t width);

#endif
