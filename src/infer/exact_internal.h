/* What the files of exact evaluation share. */
#ifndef PLIM_INFER_EXACT_INTERNAL_H
#define PLIM_INFER_EXACT_INTERNAL_H

#include "base/half.h"
#include "base/node_set.h"
#include "infer/exact.h"
#include "infer/exact_cost.h"
#include "infer/exact_stream.h"
#include "nn/team.h"
#include "sample/offsets.h"

#include <stdatomic.h>

/*
 * The nodes whose rows a layer gives. Numbered by rank: a matrix of their rows is as long as they
 * are many.
 */
typedef struct plim__exact_set {
    bool all; /* rank = node, and there is nothing below but the counts */
    plim__node_set_t members;
    plim__arena_t arena;
    int64_t count;
    int64_t edges; /* into them */
} plim__exact_set_t;

static inline int64_t plim__exact_node_at(const plim__exact_set_t *set, int64_t rank)
{
    return set->all ? rank : plim__node_set_select(&set->members, rank);
}

static inline int64_t plim__exact_node_after(const plim__exact_set_t *set, int64_t node)
{
    return set->all ? node + 1 : plim__node_set_next(&set->members, node + 1);
}

/* -1 for a node that is no member. */
static inline int64_t plim__exact_rank(const plim__exact_set_t *set, int64_t node)
{
    return set->all ? node : plim__node_set_rank(&set->members, node);
}

/* A layer's input, row by row: features.npy, or what the layer before has left. */
typedef struct plim__exact_source {
    const plim__file_t *file; /* NULL: in memory */
    const char *memory;
    const plim__exact_set_t *set; /* whose ranks number the rows */
    bool half;
    int64_t width;
    int64_t row_bytes;
    int64_t start;                   /* of the first row */
    int64_t piece_rows, piece_bytes; /* one piece holds all rows of a features.npy */
} plim__exact_source_t;

static inline int64_t plim__exact_row_offset(const plim__exact_source_t *source, int64_t row)
{
    return source->start + row / source->piece_rows * source->piece_bytes +
           row % source->piece_rows * source->row_bytes;
}

/* Columns that are folded at the same time. */
typedef struct plim__exact_slice {
    int64_t first, count;
    int head, heads; /* attention: those that the columns touch */
    int64_t width;   /* floats of a row: columns, and two scores a head */
    int64_t offset;  /* of its states in a piece of the store */
} plim__exact_slice_t;

/* What each of the team's threads has for itself. */
typedef struct plim__exact_batch {
    int64_t count;
    int64_t num_lists;
    int64_t places[PLIM__EXACT_BATCH];
    plim__stream_aggregate_list_t lists[PLIM__EXACT_BATCH];
} plim__exact_batch_t;

typedef struct plim__exact_worker {
    float *x; /* (PLIM__EXACT_TILE, widest) inputs of a product */
    float *a; /* (PLIM__EXACT_TILE, widest) what was folded */
    plim__exact_batch_t batches[2];
} plim__exact_worker_t;

typedef struct plim__exact {
    plim__arena_t arena;
    const plim_job_t *job;
    const plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    const plim__exact_params_t *params;
    const char *phase, *reading; /* for progress: lists, and inputs */
    plim__exact_sizes_t sizes;
    plim__exact_plan_t plans[PLIM_HOPS_MAX];
    bool stored; /* the last layer's output, before it is put into the order asked for */
    plim__half_path_t half_path;
    int num_layers;
    plim__exact_layer_t layers[PLIM_HOPS_MAX];
    plim__exact_set_t sets[PLIM_HOPS_MAX + 1]; /* [i]: inputs of layer i */
    plim__exact_set_t every;                   /* all nodes */

    plim__team_t *team;
    plim__offsets_t *offsets;
    plim__file_t indices, features;
    plim__exact_stream_t lists, rows, own, states;
    plim__exact_writer_t writer;
    plim__exact_worker_t *workers; /* (team's size) */

    float *x;     /* (piece_rows, sizes.x) the destinations' own inputs */
    float *y;     /* (piece_rows, sizes.y) between two products */
    float *h;     /* (piece_rows, sizes.h) the output, where it is not stored */
    float *state; /* a piece of the last slice's states */
    void *kept;
    float *packed_front, *packed_behind, *packed_root, *packed_second;
    float *scores; /* (2 * heads, in) attention's vectors, multiplied with the weight */

    /* Of the layer under way. */
    plim__exact_layer_t *layer;
    const plim__exact_set_t *from, *to;
    plim__exact_source_t source;
    plim__exact_choice_t choice;
    plim__arena_t resident_arena;
    float *resident; /* (choice.rows, width) of the slice's columns of the block's sources */
    plim__exact_store_t partial;
    int64_t edges_done, edges_end, edges_total; /* so far; when the pass ends; of all passes */

    _Atomic int64_t damaged; /* an entry of indices.npy that is none, or -1 */
} plim__exact_t;

/* exact_set.c */
plim_status_t plim__exact_sets_make(plim__exact_t *exact, const int64_t *nodes, int64_t count);
void plim__exact_sets_end(plim__exact_t *exact);

/* Lists of a set's members, in pieces of so many ranks; every rank is in a chunk. */
typedef struct plim__exact_lists {
    const plim__exact_t *exact;
    const plim__exact_set_t *set;
    int64_t piece_rows;
    int64_t most; /* entries of a chunk */
    int64_t rank, node;
    int64_t entry; /* where the rank's list goes on; -1: at its begin */
} plim__exact_lists_t;
plim__exact_lists_t plim__exact_lists_of(const plim__exact_t *exact, const plim__exact_set_t *set);
bool plim__exact_lists_next(void *lists, plim__exact_chunk_t *chunk_out);

/* Rows of `source` that belong to members [rank, end) of a set, in pieces of so many ranks. */
typedef struct plim__exact_rows {
    const plim__exact_source_t *source;
    const plim__exact_set_t *set;
    int64_t piece_rows;
    int64_t most; /* bytes of a chunk */
    int64_t rank, end, node;
} plim__exact_rows_t;
plim__exact_rows_t plim__exact_rows_of(const plim__exact_t *exact, const plim__exact_set_t *set,
                                       int64_t first, int64_t end);
bool plim__exact_rows_next(void *rows, plim__exact_chunk_t *chunk_out);

/* An entry of indices.npy, checked: false, and remembered, when there is no such node. */
static inline bool plim__exact_check(plim__exact_t *exact, int64_t entry, int64_t node)
{
    if ((uint64_t)node < (uint64_t)exact->info->num_nodes)
        return true;
    atomic_store_explicit(&exact->damaged, entry, memory_order_relaxed);
    return false;
}
plim_status_t plim__exact_damage(plim__exact_t *exact);

static inline int64_t plim__exact_entry(const plim__exact_t *exact, const char *data, int64_t i)
{
    if (exact->info->index_type == PLIM_I32)
        return ((const int32_t *)(const void *)data)[i];
    return ((const int64_t *)(const void *)data)[i];
}

/* exact_slice.c */
plim__exact_slice_t plim__exact_slice(const plim__exact_t *exact, int64_t index);
/* exact_fill.c: the slice's columns of sources [first, end) into memory. */
plim_status_t plim__exact_fill(plim__exact_t *exact, const plim__exact_slice_t *slice,
                               int64_t first, int64_t end);

/* One row of a source as floats: columns [first, first + count). */
static inline void plim__exact_load(const plim__exact_t *exact, const char *row, int64_t first,
                                    int64_t count, float *to)
{
    if (exact->source.half)
        plim__half_widen(exact->half_path, (const uint16_t *)(const void *)row + first, to, count);
    else
        __builtin_memcpy(to, (const float *)(const void *)row + first,
                         (size_t)count * sizeof(float));
}

/* exact_aggregate.c: folds the lists of the destinations of one piece (`states` begins with its
 * first rank) over the sources [first, end) in memory. */
plim_status_t plim__exact_aggregate_piece(plim__exact_t *exact, const plim__exact_slice_t *slice,
                                          int64_t first, int64_t end, int64_t piece, float *states);

/* exact_rows.c: y of one piece from its states (`states`: those of the slice at hand, `others` the
 * store's piece with those before it) to the layer's output. */
plim_status_t plim__exact_epilogue_piece(plim__exact_t *exact, int64_t piece, int64_t rows,
                                         const float *states, const char *others, float *h);

/* exact_pass.c: one layer. `output` takes pieces in their order. */
typedef plim_status_t (*plim__exact_output_fn)(void *context, int64_t first, int64_t rows,
                                               const float *h);
typedef struct plim__exact_sink {
    plim__exact_store_t *store; /* NULL: to `output` */
    plim__exact_output_fn output;
    void *context;
} plim__exact_sink_t;
plim_status_t plim__exact_layer_run(plim__exact_t *exact, int index,
                                    const plim__exact_sink_t *sink);

/* exact_plan.c: PLIM_ERR_SPACE, PLIM_ERR_BUDGET. */
plim_status_t plim__exact_plan_layers(plim__exact_t *exact);

/* exact_give.c: rows of `source` in the order of `nodes`, by way of exact->h. */
plim_status_t plim__exact_give(plim__exact_t *exact, const plim__exact_source_t *source,
                               const int64_t *nodes, int64_t count, plim__exact_take_fn take,
                               void *context);

/* Pieces of so many rows. */
static inline int64_t plim__exact_pieces(const plim__exact_t *exact, int64_t rows)
{
    return (rows + exact->sizes.piece_rows - 1) / exact->sizes.piece_rows;
}

#endif
