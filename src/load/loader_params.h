/*
 * What a loader is made of: the parameters of every part, worked out from the plan's choices in one
 * place, so that the plan reckons with exactly what the loader makes.
 */
#ifndef PLIM_LOAD_LOADER_PARAMS_H
#define PLIM_LOAD_LOADER_PARAMS_H

#include "feature/rows.h"
#include "load/plan_data.h"
#include "load/window.h"
#include "sample/blocks.h"
#include "sample/topology.h"

#define PLIM__LOAD_WINDOWS 2 /* one is consumed while the next is prepared */

/* One slot: its arrays lie one after the other, each on a cache line's boundary. */
typedef struct plim__load_slot_sizes {
    size_t nodes;        /* (slot_nodes) of the recipe's index type */
    size_t edges;        /* (slot_edges) of the same */
    size_t rows;         /* (slot_nodes, num_features) of the recipe's row type; 0 without */
    size_t seeds;        /* (of a part) int64 */
    size_t labels;       /* as many int64, or times num_targets float; 0 without */
    size_t degrees;      /* (slot_nodes) int32; 0 without */
    size_t graph_indptr; /* one more, of the index type; 0 in one graph */
    size_t bytes;        /* all of it, a whole number of pages; saturates at SIZE_MAX */
} plim__load_slot_sizes_t;

typedef struct plim__loader_params {
    bool windowed;   /* something lies on disk: batches are built from windows */
    bool with_rows;  /* batches have rows */
    int builders;    /* threads that prepare windows; 0 unless windowed */
    int num_sources; /* worker numbers that sources serve: builders first, then workers */
    int64_t most_drawn;
    int64_t part_seeds;                 /* seeds that a slot has room for */
    plim__blocks_params_t blocks;       /* of each worker's scratch */
    plim__load_window_params_t window;  /* of each of PLIM__LOAD_WINDOWS */
    plim__topology_disk_params_t lists; /* all but the hot set */
    plim__rows_disk_params_t rows;      /* all but the hot set and its key */
    plim__load_slot_sizes_t slot;
} plim__loader_params_t;

/* plim_loader_create by numbers alone. */
plim_status_t plim__loader_create(const plim_job_t *job, const plim_dataset_t *dataset,
                                  const plim__load_plan_t *plan, plim_loader_t **loader_out);

/* The loader's own stream over a split, as the recipe says. Not to be released. */
plim_stream_t *plim__loader_split(plim_loader_t *loader, plim_split_t split);

/* Starts that stream, and waits for the next batch of the one started last. */
plim_status_t plim__loader_start(plim_loader_t *loader, plim_split_t split, int64_t epoch,
                                 int64_t step);
plim_status_t plim__loader_next(plim_loader_t *loader, plim_batch_t **batch_out);

/* What is drawn for it: the wish itself, or one hop over all edges in a dataset of many graphs. */
plim_recipe_t plim__load_recipe(const plim_dataset_info_t *info, const plim_recipe_t *recipe);

/* A caller's params, with the defaults of what it does not know (PLIM_ERR_USAGE: no size), and the
 * recipe that such a stream draws by. */
plim_status_t plim__load_stream_params(const plim_stream_params_t *given,
                                       plim_stream_params_t *params_out);
plim_recipe_t plim__load_stream_recipe(const plim_recipe_t *recipe,
                                       const plim_stream_params_t *params);

/* The plan's envelope, or its recipe where it has none; and how many seeds the longest stream has.
 */
const plim_recipe_t *plim__load_envelope(const plim__load_plan_t *plan);
int64_t plim__load_most_seeds(const plim_dataset_info_t *info, const plim__load_plan_t *plan);

/* The longest draw of any of its hops, at least 1; and the most seeds that an epoch has. */
int64_t plim__load_most_drawn(const plim_recipe_t *recipe, int64_t max_degree);
int64_t plim__load_largest_split(const plim_dataset_info_t *info);

/* The most seeds that a part has when `wanted` are asked for; 0: whole batches. */
int64_t plim__load_part_seeds(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                              int64_t wanted);

/* Looks at the plan's recipe and choices, not at its sums; borrows plan->scratch. */
void plim__loader_params_find(const plim_job_t *job, const plim_dataset_t *dataset,
                              const plim__load_plan_t *plan, plim__loader_params_t *parts_out);

#endif
