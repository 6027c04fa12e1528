#include "load/batch_build.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/rng.h"
#include "source/row_form.h"

#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

/* Builds the blocks of the first `count` seeds of the slot, if they fit the size of a part. */
static plim_status_t try_blocks(const plim__load_context_t *context, plim__load_worker_t *worker,
                                plim__slot_t *slot, const plim__load_sources_t *sources,
                                int64_t count, plim__blocks_out_t *out, bool *fits_out)
{
    const plim__load_plan_t *plan = &context->plan;
    const int64_t *seeds = slot->seeds;
    out->node_capacity = plan->slot_nodes;
    out->edge_capacity = plan->slot_edges;
    out->trees = slot->trees;
    if (plan->part_nodes > 0 && count > 1) { /* a single seed may fill the slot */
        out->node_capacity = plim__min_i64(plan->part_nodes, plan->slot_nodes);
        out->edge_capacity = plim__min_i64(plan->part_edges, plan->slot_edges);
    }
    if (context->graph_indptr != NULL) {
        *fits_out = plim__graph_nodes(context->graph_indptr, slot->seeds, count, out->node_capacity,
                                      worker->nodes, &count);
        if (!*fits_out)
            return PLIM_OK;
        seeds = worker->nodes;
    }
    return plim__blocks_build(worker->blocks, sources->topologies[0],
                              sources->first_worker + worker->number, slot->batch.epoch, seeds,
                              count, out, fits_out);
}

static plim_status_t too_large(const plim__load_context_t *context, const plim__slot_t *slot,
                               int64_t count)
{
    const plim__load_plan_t *plan = &context->plan;
    if (count > 1)
        return plim__fail(PLIM_ERR_BUDGET,
                          "batch %lld of epoch %lld does not fit a slot of %lld nodes and %lld "
                          "edges, and batches %s cannot come in parts; raise `memory`, or reduce "
                          "`batch_size` or `fanout`",
                          (long long)slot->batch.step, (long long)slot->batch.epoch,
                          (long long)plan->slot_nodes, (long long)plan->slot_edges,
                          slot->batch.num_pairs > 0 ? "of links" : "in PyG's form");
    return plim__fail(PLIM_ERR_BUDGET,
                      "%s %lld alone does not fit a slot of %lld nodes and %lld edges; raise "
                      "`memory`, or reduce `fanout`",
                      context->graph_indptr != NULL ? "graph" : "node", (long long)slot->seeds[0],
                      (long long)plan->slot_nodes, (long long)plan->slot_edges);
}

/* Builds the blocks of as many of the `wanted` seeds as fit, halving their number. */
static plim_status_t fit_blocks(const plim__load_context_t *context, plim__load_worker_t *worker,
                                plim__slot_t *slot, const plim__load_sources_t *sources,
                                int64_t wanted, plim__blocks_out_t *out, int64_t *count_out)
{
    bool fits;
    int64_t count = wanted;
    for (;;) {
        PLIM_TRY(try_blocks(context, worker, slot, sources, count, out, &fits));
        if (fits)
            break;
        if (count == 1 || context->params.blocks.form == PLIM_PYG || slot->batch.num_pairs > 0)
            return too_large(context, slot, count);
        count = (count + 1) / 2;
    }
    *count_out = count;
    return PLIM_OK;
}

/* Writes where each graph's nodes begin, and checks that no edge leaves its graph. */
static plim_status_t mark_graphs(const plim__load_context_t *context, plim__slot_t *slot,
                                 int64_t count, const plim__blocks_out_t *out)
{
    int64_t at = 0;
    if (out->num_nodes > out->blocks[0].num_dst)
        return plim__fail(PLIM_ERR_DATA,
                          "%s/indices.npy: node %lld is a neighbour of a node in another graph, "
                          "but graphs must be separate; make the dataset again",
                          plim__dataset_path(context->dataset),
                          (long long)out->ids[out->blocks[0].num_dst]);
    for (int64_t i = 0; i <= count; i++) {
        if (out->index_type == PLIM_I32)
            ((int32_t *)slot->graph_indptr)[i] = (int32_t)at;
        else
            ((int64_t *)slot->graph_indptr)[i] = at;
        if (i < count)
            at += context->graph_indptr[slot->seeds[i] + 1] - context->graph_indptr[slot->seeds[i]];
    }
    return PLIM_OK;
}

#define ONE_DIMENSION (-1) /* as the number of columns */

static void add_array(plim__slot_t *slot, const char *name, int hop, const void *data,
                      plim_dtype_t type, int64_t rows, int64_t columns)
{
    const bool vector = columns == ONE_DIMENSION;
    if (data == NULL)
        return;
    slot->arrays[slot->num_arrays++] =
        (plim_array_t){name, hop, data, type, vector ? 1 : 2, {rows, vector ? 1 : columns}};
}

static void add_columns(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                        plim__slot_t *slot, int64_t num_edges)
{
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        const unsigned column = 1u << i;
        const bool matrix = column == PLIM_EDGE_FEATURES && info->edge_feature_dims == 2;
        if (slot->columns[i] != NULL)
            add_array(slot, plim__column_names[i], -1, slot->columns[i],
                      plim__column_type(info, column, recipe->row_type),
                      column == PLIM_NODE_TIME ? slot->batch.num_nodes : num_edges,
                      matrix ? info->num_edge_features : ONE_DIMENSION);
    }
}

/* The pairs of a batch of links, and the local ids of its places. */
static void add_pairs(const plim_links_t *links, plim__slot_t *slot)
{
    const plim_batch_t *batch = &slot->batch;
    const int64_t pairs = batch->num_pairs, negatives = batch->num_negatives;
    add_array(slot, "pair_ids", -1, slot->pair_ids, PLIM_I64, pairs, ONE_DIMENSION);
    if (links->negatives == PLIM_NEGATIVE_TARGETS)
        add_array(slot, "pair_index", -1, slot->pair_index, PLIM_I64, 2 * pairs + negatives,
                  ONE_DIMENSION);
    else
        add_array(slot, "pair_index", -1, slot->pair_index, PLIM_I64, 2, pairs + negatives);
    if (batch->pair_types != NULL)
        add_array(slot, "pair_types", -1, batch->pair_types, PLIM_I64, pairs, ONE_DIMENSION);
}

static void describe_arrays(const plim__load_context_t *context, const plim_links_t *links,
                            plim__slot_t *slot, int64_t num_edges)
{
    const plim_recipe_t *recipe = &context->plan.recipe;
    const plim_dataset_info_t *info = context->info;
    const plim_batch_t *batch = &slot->batch;
    const bool values = info->label_kind == PLIM_LABELS_VALUES;
    slot->num_arrays = 0;
    add_array(slot, "nodes", -1, batch->nodes, batch->node_type, batch->num_nodes, ONE_DIMENSION);
    add_array(slot, "rows", -1, batch->rows, plim__row_type(info, recipe->row_type),
              batch->num_nodes, info->num_features);
    add_array(slot, "labels", -1, batch->labels, values ? PLIM_F32 : PLIM_I64, batch->num_seeds,
              info->label_dims == 2 ? info->num_targets : ONE_DIMENSION);
    if (links != NULL)
        add_pairs(links, slot);
    add_array(slot, "degrees", -1, batch->degrees, PLIM_I32, batch->num_nodes, ONE_DIMENSION);
    add_array(slot, "graph_indptr", -1, batch->graph_indptr, recipe->index_type,
              batch->num_seeds + 1, ONE_DIMENSION);
    add_array(slot, "edge_index", -1, batch->edge_index, recipe->index_type, 2, num_edges);
    add_array(slot, "edge_ids", -1, batch->edge_ids, PLIM_I64, num_edges, ONE_DIMENSION);
    add_columns(info, recipe, slot, num_edges);
    add_array(slot, "trees", -1, batch->trees, recipe->index_type, batch->num_nodes, ONE_DIMENSION);
    add_array(slot, "seed_times", -1, batch->seed_times, PLIM_I64, batch->num_seeds, ONE_DIMENSION);
    for (int hop = 0; hop < batch->num_blocks; hop++) {
        const plim_block_t *block = &batch->blocks[hop];
        add_array(slot, "indptr", hop, block->indptr, recipe->index_type, block->num_dst + 1,
                  ONE_DIMENSION);
        add_array(slot, "indices", hop, block->indices, recipe->index_type, block->num_edges,
                  ONE_DIMENSION);
    }
}

static void *column_of(const plim__slot_t *slot, plim_column_t column)
{
    return slot->columns[__builtin_ctz((unsigned)column)];
}

static void describe_columns(plim__slot_t *slot)
{
    plim_batch_t *batch = &slot->batch;
    batch->edge_features = column_of(slot, PLIM_EDGE_FEATURES);
    batch->edge_weight = column_of(slot, PLIM_EDGE_WEIGHT);
    batch->edge_type = column_of(slot, PLIM_EDGE_TYPE);
    batch->edge_time = column_of(slot, PLIM_EDGE_TIME);
    batch->edge_number = column_of(slot, PLIM_EDGE_ID);
    batch->node_time = column_of(slot, PLIM_NODE_TIME);
}

/* Gathers the columns: those of edges at the drawn positions, those of nodes by the nodes. */
static plim_status_t gather_columns(const plim__load_context_t *context, int worker,
                                    plim__slot_t *slot, const plim__blocks_out_t *out)
{
    for (int i = 0; i < PLIM_COLUMNS; i++) {
        const unsigned column = 1u << i;
        const bool of_nodes = column == PLIM_NODE_TIME;
        if (slot->columns[i] != NULL)
            PLIM_TRY(plim__rows_gather(
                context->sources.columns[i], worker, of_nodes ? out->ids : out->edge_ids,
                of_nodes ? out->num_nodes : out->num_edges,
                plim__column_type(context->info, column, context->plan.recipe.row_type),
                slot->columns[i]));
    }
    return PLIM_OK;
}

static void describe(const plim__load_context_t *context, const plim_stream_t *stream,
                     plim__slot_t *slot, const plim__load_cut_t *cut, int64_t count,
                     const plim__blocks_out_t *out)
{
    plim_batch_t *batch = &slot->batch;
    const plim_links_t *links = plim__seeds_links(stream->seeds);
    batch->size = sizeof *batch;
    batch->num_seeds = count;
    batch->share = cut->share;
    batch->num_shares = stream->num_shares;
    batch->last_part = batch->first_seed + count == cut->batch_seeds &&
                       cut->share + 1 == stream->share + stream->share_count;
    batch->num_nodes = out->num_nodes;
    batch->num_blocks = out->num_hops;
    for (int i = 0; i < out->num_hops; i++)
        batch->blocks[i] = out->blocks[i];
    batch->nodes = slot->nodes;
    batch->node_type = out->node_type;
    batch->rows = slot->rows;
    batch->labels = plim__seeds_label_bytes(stream->seeds) > 0 ? slot->labels : NULL;
    batch->degrees = slot->degrees;
    batch->graph_indptr = slot->graph_indptr;
    batch->edge_index = out->with_targets ? slot->edges : NULL;
    batch->edge_ids = context->plan.recipe.edge_ids ? slot->edge_ids : NULL;
    describe_columns(slot);
    batch->trees = slot->trees;
    batch->seed_times = slot->seed_times;
    describe_arrays(context, links, slot, out->num_edges);
    slot->part = count;
    slot->more = batch->first_seed + count < cut->end;
}

/* The number of labels of the whole batch. Each worker that builds parts of it counts once. */
static int64_t count_labels(const plim__load_run_t *run, plim__load_worker_t *worker,
                            const plim__load_cut_t *cut)
{
    const plim_stream_t *stream = run->of;
    if (worker->counted.step != cut->step) {
        int64_t first;
        const int64_t seeds = plim__stream_batch(stream, cut->step, &first);
        worker->counted.step = cut->step;
        worker->counted.labels = plim__seeds_labels(stream->seeds, stream->split, stream->shuffled,
                                                    run->epoch, first, seeds);
    }
    return worker->counted.labels;
}

/* The first seed of a microbatch's first part, and the number of seeds of the part before it: a run
 * may continue in the middle of its first microbatch. */
static int64_t first_seed(const plim__load_run_t *run, const plim__slot_t *slot,
                          const plim__load_cut_t *cut, int64_t *part_out)
{
    const bool resumed = slot->sequence == run->first_sequence && run->first_part > 0;
    *part_out = resumed ? run->first_part : 0;
    return resumed ? run->first_seed : cut->first;
}

/* Counts the rows of a batch that was read from disk without a window. */
static void count_rows(const plim__load_sources_t *sources, const int64_t *nodes, int64_t num_nodes)
{
    int64_t cached = 0;
    for (int64_t i = 0; i < num_nodes; i++)
        cached += plim__rows_disk_holds(sources->tables[0], nodes[i]);
    atomic_fetch_add(&sources->counts->rows, num_nodes);
    atomic_fetch_add(&sources->counts->cached, cached);
}

/* The latest times of the slot's seeds, from that place in the epoch on: those that were given with
 * them, or their own. */
static plim_status_t take_times(const plim__load_context_t *context, const plim__load_run_t *run,
                                const plim__load_worker_t *worker, int64_t place, int64_t count,
                                plim__slot_t *slot)
{
    const plim_stream_t *stream = run->of;
    if (plim__seeds_times(stream->seeds, stream->shuffled, run->epoch, place, count,
                          slot->seed_times))
        return PLIM_OK;
    return plim__rows_gather(context->sources.columns[__builtin_ctz(PLIM_NODE_TIME)],
                             context->first_column_worker + worker->number, slot->seeds, count,
                             PLIM_I64, slot->seed_times);
}

/* Makes the seeds of a batch of links from its places, and returns their number. */
static int64_t unite_links(const plim__load_context_t *context, plim__slot_t *slot, int64_t places)
{
    for (int64_t i = 0; i < places && context->plan.recipe.disjoint; i++)
        slot->pair_index[i] = i;
    return context->plan.recipe.disjoint
               ? places
               : plim__links_unite(slot->seeds, places, context->info->num_nodes, slot->pair_keys,
                                   slot->pair_index);
}

/* Takes the seeds of the slot, or the places of links. Their negatives follow from times, so the
 * times of pairs are taken first, and those of other seeds last. */
static plim_status_t take_seeds(const plim__load_context_t *context, const plim__load_run_t *run,
                                plim__load_worker_t *worker, const plim__load_cut_t *cut,
                                int64_t first, int64_t count, plim__slot_t *slot, void *labels)
{
    const plim_stream_t *stream = run->of;
    const bool links = plim__seeds_links(stream->seeds) != NULL;
    if (slot->seed_times != NULL && links)
        PLIM_TRY(take_times(context, run, worker, cut->place + first, count, slot));
    if (worker->negatives != NULL)
        worker->negatives->times = slot->seed_times;
    PLIM_TRY(plim__stream_take(stream, worker->negatives, run->epoch, cut->batch_first + first,
                               count, slot->seeds, labels));
    return slot->seed_times != NULL && !links
               ? take_times(context, run, worker, cut->place + first, count, slot)
               : PLIM_OK;
}

/* The number of pairs and negatives in `places` places; each share of links is a batch by itself.
 */
static int64_t count_pairs(const plim_stream_t *stream, int64_t places)
{
    const plim_links_t *links = plim__seeds_links(stream->seeds);
    const int64_t each = plim__seeds_batch_pairs(stream->seeds);
    const int64_t rest = plim__links_pairs(links, places % plim__links_places(links, each));
    return places / plim__links_places(links, each) * (each + plim__negatives_count(links, each)) +
           rest + plim__negatives_count(links, rest);
}

/* Makes the seeds of a batch of links, and lists the edges to leave out. The batch, or the share of
 * one, is whole. */
static void begin_links(const plim__load_context_t *context, const plim_stream_t *stream,
                        plim__slot_t *slot, plim__load_cut_t *cut, int64_t *count,
                        plim__blocks_out_t *out)
{
    plim_batch_t *batch = &slot->batch;
    const plim_links_t *links = plim__seeds_links(stream->seeds);
    batch->num_pairs = batch->num_negatives = 0;
    batch->pair_ids = batch->pair_index = batch->pair_types = NULL;
    if (links == NULL)
        return;
    batch->batch_labels = count_pairs(stream, batch->batch_seeds);
    batch->num_pairs = plim__links_pairs(links, *count);
    batch->num_negatives = plim__negatives_count(links, batch->num_pairs);
    batch->pair_ids = slot->pair_ids;
    batch->pair_index = slot->pair_index;
    *count = unite_links(context, slot, *count);
    batch->batch_seeds = cut->batch_seeds = cut->end = *count;
    batch->first_seed = 0;
    out->excluded = plim__links_excluded(
        links, batch->num_pairs, context->plan.recipe.disjoint ? slot->seeds : slot->pair_index,
        slot->pair_keys, (uint64_t *)slot->pair_ids, &out->num_excluded);
}

/* Finds the places of the pairs in the list, and their types; the memory was used until the draw.
 */
static plim_status_t place_pairs(const plim_stream_t *stream, const plim__load_worker_t *worker,
                                 const plim__load_cut_t *cut, plim__slot_t *slot)
{
    plim_batch_t *batch = &slot->batch;
    const plim__seeds_t *seeds = stream->seeds;
    if (batch->num_pairs == 0)
        return PLIM_OK;
    const int64_t first =
        (batch->step * stream->num_shares + cut->share) * plim__seeds_batch_pairs(seeds);
    (void)plim__seeds_positions(seeds, stream->shuffled, batch->epoch, first, batch->num_pairs,
                                slot->pair_ids);
    if (plim__seeds_links(seeds)->num_types == 0)
        return PLIM_OK;
    int64_t *types = (int64_t *)slot->pair_keys;
    batch->pair_types = types;
    return plim__seeds_link_types(seeds, worker->negatives, stream->shuffled, batch->epoch, first,
                                  batch->num_pairs, slot->pair_ids, types);
}

plim_status_t plim__batch_build(const plim__load_context_t *context, const plim__load_run_t *run,
                                const plim__load_sources_t *sources, plim__load_worker_t *worker,
                                plim__slot_t *slot)
{
    const plim_stream_t *stream = run->of;
    const int64_t epoch = run->epoch;
    const int number = sources->first_worker + worker->number;
    plim__load_cut_t cut = plim__load_cut(run, slot->sequence);
    plim_batch_t *batch = &slot->batch;
    int64_t whole_first;
    const plim_recipe_t *recipe = &context->plan.recipe;
    plim__blocks_out_t out = {.index_type = recipe->index_type,
                              .node_type = plim__load_node_type(context->info, recipe),
                              .nodes = slot->nodes,
                              .edges = slot->edges,
                              .edge_ids = slot->edge_ids,
                              .with_targets = recipe->edge_index};
    batch->epoch = epoch;
    batch->step = cut.step;
    batch->batch_seeds = plim__stream_batch(stream, cut.step, &whole_first);
    batch->batch_labels = count_labels(run, worker, &cut);
    if (slot->part == 0)
        batch->first_seed = first_seed(run, slot, &cut, &slot->part);
    int64_t count = cut.end - batch->first_seed;
    if (slot->part > 0) /* no larger than the part before */
        count = plim__min_i64(count, slot->part);
    PLIM_TRY(take_seeds(context, run, worker, &cut, batch->first_seed, count, slot, slot->labels));
    plim__blocks_trees(worker->blocks, cut.place + batch->first_seed, slot->seed_times);
    begin_links(context, stream, slot, &cut, &count, &out);
    PLIM_TRY(fit_blocks(context, worker, slot, sources, count, &out, &count));
    PLIM_TRY(place_pairs(stream, worker, &cut, slot));
    if (context->graph_indptr != NULL)
        PLIM_TRY(mark_graphs(context, slot, count, &out));
    if (slot->degrees != NULL)
        PLIM_TRY(plim__topology_degrees(sources->topologies[0], number, out.ids, out.num_nodes,
                                        slot->degrees));
    if (slot->weight_sums != NULL)
        plim__weight_sums_of(&context->weight_sums, out.ids, out.num_nodes, slot->weight_sums);
    if (slot->rows != NULL)
        PLIM_TRY(plim__rows_gather(sources->tables[0], number, out.ids, out.num_nodes,
                                   plim__row_type(context->info, recipe->row_type), slot->rows));
    if (recipe->columns != 0)
        PLIM_TRY(
            gather_columns(context, context->first_column_worker + worker->number, slot, &out));
    if (slot->rows != NULL && sources->counts != NULL)
        count_rows(sources, out.ids, out.num_nodes);
    describe(context, stream, slot, &cut, count, &out);
    return PLIM_OK;
}

/* Counts disjoint trees one by one. One that does not fit a slot counts as its upper bound. */
static plim_status_t count_trees(const plim__load_context_t *context, const plim__load_run_t *run,
                                 const plim__load_sources_t *sources, plim__load_worker_t *worker,
                                 const plim__load_cut_t *cut, const plim__blocks_params_t *params,
                                 plim__slot_t *slot)
{
    const plim_dataset_info_t *info = context->info;
    const int number = sources->first_worker + worker->number;
    plim__load_size_t *sum = &slot->counted;
    *sum = (plim__load_size_t){0, params->num_hops}; /* a block has one entry more than nodes */
    for (int64_t i = cut->first; i < cut->end; i++) {
        plim__blocks_out_t out = {.index_type = context->plan.recipe.index_type,
                                  .node_capacity = context->plan.slot_nodes,
                                  .edges = slot->edges,
                                  .edge_capacity = context->plan.slot_edges};
        int64_t nodes, edges = 0;
        bool fits;
        plim__blocks_trees(worker->blocks, cut->place + i,
                           slot->seed_times != NULL ? slot->seed_times + (i - cut->first) : NULL);
        PLIM_TRY(plim__blocks_build(worker->blocks, sources->topologies[0], number, run->epoch,
                                    &slot->seeds[i - cut->first], 1, &out, &fits));
        nodes = out.num_nodes;
        for (int hop = 0; hop < out.num_hops; hop++)
            edges += out.blocks[hop].num_dst + out.blocks[hop].num_edges;
        if (!fits)
            plim__blocks_bound(params, info->num_nodes, info->num_edges, info->max_degree, 1,
                               &nodes, &edges);
        sum->nodes = plim__add_saturating_i64(sum->nodes, nodes);
        sum->edges = plim__add_saturating_i64(sum->edges, edges);
    }
    return PLIM_OK;
}

plim_status_t plim__batch_count(const plim__load_context_t *context, const plim__load_run_t *run,
                                const plim__load_sources_t *sources, plim__load_worker_t *worker,
                                plim__slot_t *slot)
{
    const plim_stream_t *stream = run->of;
    const plim__load_cut_t cut = plim__load_cut(run, slot->sequence);
    plim__blocks_params_t params = context->params.blocks;
    params.seed = stream->draw_seed;
    params.num_hops = stream->num_hops;
    memcpy(params.fanout, stream->fanout, sizeof stream->fanout);
    int64_t count = cut.end - cut.first;
    PLIM_TRY(take_seeds(context, run, worker, &cut, cut.first, count, slot, NULL));
    if (plim__seeds_links(stream->seeds) != NULL)
        count = unite_links(context, slot, count);
    slot->more = false;
    if (params.node_bits > 0)
        return count_trees(context, run, sources, worker, &cut, &params, slot);
    return plim__block_count_run(worker->count, sources->topologies[0],
                                 sources->first_worker + worker->number, &params, run->epoch,
                                 slot->seeds, count, &slot->counted.nodes, &slot->counted.edges);
}

/*
 * The hash is computed as a model computes: from the rows of the outermost nodes inwards, hop by
 * hop, each destination from itself and its drawn sources in order, at last the seeds in order. So
 * it covers what a model sees. It does not change when a batch is cut into parts, although local
 * ids and node lists do.
 */
static uint64_t hash_add(uint64_t hash, uint64_t value)
{
    return plim__mix64(hash * 0x9e3779b97f4a7c15u + value + 0xd1b54a32d192ed03u);
}

static int64_t at(plim_dtype_t type, const void *array, int64_t i)
{
    return type == PLIM_I32 ? ((const int32_t *)array)[i] : ((const int64_t *)array)[i];
}

/* The nodes themselves. */
static void hash_nodes(const plim__load_context_t *context, const plim_batch_t *batch,
                       uint64_t *hashes)
{
    const plim_recipe_t *recipe = &context->plan.recipe;
    const size_t size = (size_t)context->info->num_features *
                        plim__feature_bytes(plim__row_type(context->info, recipe->row_type));
    for (int64_t i = 0; i < batch->num_nodes; i++) {
        uint64_t row = 0;
        if (batch->rows != NULL)
            row = XXH3_64bits((const char *)batch->rows + (size_t)i * size, size);
        hashes[i] = hash_add(row, (uint64_t)at(batch->node_type, batch->nodes, i));
        if (batch->node_time != NULL)
            hashes[i] = hash_add(hashes[i], (uint64_t)batch->node_time[i]);
    }
}

/* An edge's columns; `edge` counts over all blocks. */
static uint64_t hash_edge(const plim__load_context_t *context, const plim_batch_t *batch,
                          int64_t edge, uint64_t hash)
{
    const plim_dataset_info_t *info = context->info;
    const void *const columns[] = {batch->edge_features, batch->edge_weight, batch->edge_type,
                                   batch->edge_time, batch->edge_number};
    for (int i = 0; i < (int)(sizeof columns / sizeof columns[0]); i++) {
        if (columns[i] == NULL)
            continue;
        const plim_dtype_t type = plim__column_type(info, 1u << i, context->plan.recipe.row_type);
        const size_t size =
            (size_t)plim__column_form(info, 1u << i).num_features * plim__feature_bytes(type);
        hash = hash_add(hash, XXH3_64bits((const char *)columns[i] + (size_t)edge * size, size));
    }
    return hash;
}

/* One hop inwards. A layer must not see its own results, so they are computed apart first.
 * `first_edge`: edges of the blocks before this one. */
static void hash_block(const plim__load_context_t *context, const plim_batch_t *batch,
                       const plim_block_t *block, int64_t first_edge, uint64_t *hashes,
                       uint64_t *results)
{
    const plim_dtype_t type = context->plan.recipe.index_type;
    const bool columns = (context->plan.recipe.columns & PLIM_COLUMNS_OF_EDGES) != 0;
    for (int64_t i = 0; i < block->num_dst; i++) {
        const int64_t end = at(type, block->indptr, i + 1);
        uint64_t hash = hashes[block->first_dst + i];
        for (int64_t j = at(type, block->indptr, i); j < end; j++) {
            hash = hash_add(hash, hashes[at(type, block->indices, j)]);
            if (columns)
                hash = hash_edge(context, batch, first_edge + j, hash);
        }
        results[i] = hash_add(hash, 0);
    }
    memcpy(hashes + block->first_dst, results, (size_t)block->num_dst * sizeof *results);
}

/* Which of the seeds are pairs. */
static uint64_t hash_pairs(const plim_batch_t *batch, uint64_t hash)
{
    const plim_array_t *array;
    for (int i = 0; (array = plim_batch_array(batch, i)) != NULL; i++) {
        const size_t count = (size_t)(array->shape[0] * array->shape[1]);
        if (array->data == batch->pair_ids || array->data == batch->pair_index ||
            (batch->pair_types != NULL && array->data == batch->pair_types))
            hash = hash_add(hash, XXH3_64bits(array->data, count * sizeof(int64_t)));
    }
    return hash;
}

uint64_t plim__batch_hash(const plim__load_context_t *context, const plim__slots_t *slots,
                          const plim_batch_t *batch, uint64_t hash)
{
    const plim_dtype_t type = context->plan.recipe.index_type;
    const size_t label_bytes = plim__seeds_label_bytes(context->seeds);
    uint64_t *hashes = slots->hashes;
    hash_nodes(context, batch, hashes);
    int64_t first_edge = 0;
    for (int hop = 0; hop < batch->num_blocks; hop++)
        first_edge += batch->blocks[hop].num_edges;
    for (int hop = batch->num_blocks - 1; hop >= 0; hop--) {
        const plim_block_t *block = &batch->blocks[hop];
        first_edge -= block->num_edges;
        hash_block(context, batch, block, first_edge, hashes, hashes + context->plan.slot_nodes);
    }
    for (int64_t i = 0; i < batch->num_seeds; i++) {
        uint64_t seed = hash_add((uint64_t)batch->epoch, (uint64_t)batch->step);
        seed = hash_add(seed, (uint64_t)(batch->first_seed + i));
        if (batch->labels != NULL)
            seed = hash_add(seed, XXH3_64bits((const char *)batch->labels + (size_t)i * label_bytes,
                                              label_bytes));
        int64_t first = i, end = i + 1;
        if (batch->graph_indptr != NULL) {
            first = at(type, batch->graph_indptr, i);
            end = at(type, batch->graph_indptr, i + 1);
        }
        for (int64_t j = first; j < end; j++)
            seed = hash_add(seed, hashes[j]);
        hash = hash_add(hash, seed);
    }
    return batch->num_pairs > 0 ? hash_pairs(batch, hash) : hash;
}
