/*
 * The parameters of a loader's parts, computed from the plan's choices in one place, so that the
 * planner estimates exactly what the loader creates.
 */
#ifndef PLIM_LOAD_LOADER_PARAMS_H
#define PLIM_LOAD_LOADER_PARAMS_H

#include "load/ahead.h"
#include "load/plan_data.h"
#include "load/window.h"
#include "sample/blocks.h"
#include "source/rows.h"
#include "source/topology.h"
#include "store/dataset.h"

#define PLIM__LOAD_WINDOWS 2 /* batches are built from one while the next is filled */

/* The arrays of a slot lie one after the other, each aligned to a cache line. */
typedef struct plim__load_slot_sizes {
    size_t nodes;        /* (slot_nodes) of the recipe's index type */
    size_t edges;        /* (slot_edges) of the same; with edge_index twice */
    size_t rows;         /* (slot_nodes, num_features) of the recipe's row type; 0 without */
    size_t seeds;        /* (seeds of a part) int64 */
    size_t places;       /* the same for each of pair_keys, pair_ids, pair_index; 0 without links */
    size_t labels;       /* as many int64, or times num_targets float; 0 without */
    size_t degrees;      /* (slot_nodes) int32; 0 without */
    size_t weight_sums;  /* (slot_nodes) float; 0 without */
    size_t graph_indptr; /* one more, of the index type; 0 in one graph */
    size_t edge_ids;     /* (slot_edges) int64, also to find columns by; 0 without */
    size_t trees;        /* (slot_nodes) of the index type; 0 unless disjoint */
    size_t seed_times;   /* (seeds of a part) int64; 0 unless times decide draws */
    size_t columns[PLIM_COLUMNS]; /* (slot_edges, or slot_nodes) entries of each; 0 without */
    size_t bytes;                 /* of all, in whole pages; saturates at SIZE_MAX */
} plim__load_slot_sizes_t;

typedef struct plim__loader_params {
    bool windowed;   /* lists or rows are on disk, and batches share draws: they are built from
                        windows */
    bool with_rows;  /* batches have rows */
    int builders;    /* threads that fill windows; 0 unless windowed */
    int num_sources; /* worker numbers of the sources: builders first, then workers */
    int64_t most_drawn;
    int64_t part_seeds;                /* most seeds of a slot */
    plim__blocks_params_t blocks;      /* of each worker */
    plim__load_window_params_t window; /* of each of PLIM__LOAD_WINDOWS */
    plim__ahead_params_t ahead;        /* without the directory; without draws: none */
    plim__source_params_t lists;       /* without the cached set */
    plim__source_params_t rows;        /* without the cached set, or the working set */
    plim__source_params_t columns;     /* of each column on disk, without the column */
    plim__load_slot_sizes_t slot;
} plim__loader_params_t;

/*
 * Whether batches can be drawn as the recipe says; the sizes of a recipe that passes can be added,
 * and multiplied by a few, without overflow. And whether its batches, or those of an envelope, may
 * come in parts of `part_seeds` seeds (0 = whole). PLIM_ERR_USAGE.
 */
plim_status_t plim__load_recipe_check(const plim_dataset_t *dataset, const plim_recipe_t *recipe);
plim_status_t plim__load_cut_check(const plim_recipe_t *recipe, int64_t part_seeds);

/* How the recipe's blocks are drawn, without their capacity and edge ids. */
plim__blocks_params_t plim__load_blocks(const plim_dataset_info_t *info,
                                        const plim_recipe_t *recipe);

/* The columns that the loader reads: those that batches carry, that which decides draws, and the
 * times of seeds. */
static inline unsigned plim__load_columns(const plim_recipe_t *recipe)
{
    return recipe->columns | recipe->draw_by | (recipe->own_times ? PLIM_NODE_TIME : 0U);
}

/* Whether batches carry sums of weights. */
static inline bool plim__load_sums(const plim_dataset_info_t *info, const plim_recipe_t *recipe)
{
    return recipe->degrees && (recipe->columns & PLIM_EDGE_WEIGHT) != 0 && info->num_graphs == 0;
}

/* Whether times decide draws. */
static inline bool plim__load_by_time(const plim_recipe_t *recipe)
{
    return (recipe->draw_by & (PLIM_EDGE_TIME | PLIM_NODE_TIME)) != 0;
}

/* The recipe that is drawn: the given one, or in a dataset of many graphs one hop over all edges.
 */
plim_recipe_t plim__load_recipe(const plim_dataset_info_t *info, const plim_recipe_t *recipe);

/* The type of a batch's nodes, whose ids may be too large for the type of its indices. */
static inline plim_dtype_t plim__load_node_type(const plim_dataset_info_t *info,
                                                const plim_recipe_t *recipe)
{
    return recipe->index_type == PLIM_I64 ? PLIM_I64 : plim__id_type(info);
}

/* Copies a caller's params, with defaults for fields that it does not know; PLIM_ERR_USAGE without
 * a size. And the recipe of such a stream. */
plim_status_t plim__load_stream_params(const plim_stream_params_t *given,
                                       plim_stream_params_t *params_out);
plim_recipe_t plim__load_stream_recipe(const plim_recipe_t *recipe,
                                       const plim_stream_params_t *params);

/* The links of a stream as given, checked, with num_pairs 0 where it has none; and the number of
 * its seeds: places, where it has links. PLIM_ERR_USAGE. */
plim_status_t plim__load_stream_links(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                      const plim_stream_params_t *params, plim_links_t *links_out);
int64_t plim__load_stream_seeds(const plim_recipe_t *recipe, const plim_stream_params_t *params,
                                int64_t split_seeds);

/* The most seeds that a stream delivers of a batch of `batch_size`. */
int64_t plim__load_share_size(const plim_stream_params_t *params, int64_t batch_size);

/* Whether a stream over a split has an order of its own: the loader shuffles only the training
 * split, by the recipe's seed. */
bool plim__load_stream_reorders(const plim_recipe_t *recipe, const plim_stream_params_t *params);

/* The plan's envelope, or its recipe if it has none; and the number of seeds of the longest stream.
 */
const plim_recipe_t *plim__load_envelope(const plim__load_plan_t *plan);
int64_t plim__load_most_seeds(const plim_dataset_info_t *info, const plim__load_plan_t *plan);

/* The longest draw of any hop, at least 1; and the number of seeds of the largest split. */
int64_t plim__load_most_drawn(const plim_recipe_t *recipe, int64_t max_degree);
int64_t plim__load_largest_split(const plim_dataset_info_t *info);

/* The most seeds of a part when parts of `wanted` seeds are asked for; 0 = whole batches. */
int64_t plim__load_part_seeds(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                              int64_t wanted);

/* The most bytes of rows that the loader may cache: it divides shared memory anew. */
size_t plim__load_most_cached(const plim__load_plan_t *plan, size_t row_bytes);

/* `bytes` in whole pages; INT64_MAX for SIZE_MAX, an estimate that overflowed. */
int64_t plim__cost_pages(size_t bytes);

/* Reads the plan's recipe and choices, not its sums. */
void plim__loader_params_find(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim__load_plan_t *plan, plim__loader_params_t *parts_out);

#endif
