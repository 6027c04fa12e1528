/*
 * What one ticket stands for, a batch or a planned part of one, from its seeds to its rows, in one
 * slot. What does not fit is cut in half until it does; the rest is delivered later, from the same
 * slot.
 * Cut where nothing changes: between seeds, whose neighbourhoods do not depend on their company, or
 * between graphs.
 */
#include "base/check.h"
#include "base/fail.h"
#include "load/loader.h"

/* The whole batch of a step: its first seed in the epoch, and how many it has. */
static int64_t whole_batch(const plim_stream_t *stream, int64_t step, int64_t *first_out)
{
    *first_out = step * stream->whole_size;
    return plim__min_i64(stream->whole_size,
                         plim__seeds_count(stream->seeds, stream->split) - *first_out);
}

/* Where the stream's share of a batch of so many seeds begins; returns how many it has. */
static int64_t share_of(const plim_stream_t *stream, int64_t seeds, int64_t *first_out)
{
    const int64_t each = seeds / stream->num_shares, more = seeds % stream->num_shares;
    *first_out = stream->share * each + plim__min_i64(stream->share, more);
    return each + (stream->share < more);
}

int64_t plim__stream_count(const plim_stream_t *stream)
{
    const int64_t seeds = plim__seeds_count(stream->seeds, stream->split);
    int64_t first;
    return seeds / stream->whole_size * stream->batch_size +
           share_of(stream, seeds % stream->whole_size, &first);
}

void plim__stream_take(const plim_stream_t *stream, int64_t epoch, int64_t first, int64_t count,
                       int64_t *ids_out, void *labels_out)
{
    const size_t label_bytes = plim__seeds_label_bytes(stream->seeds);
    char *labels = labels_out;
    while (count > 0) {
        int64_t batch_first, share_first;
        const int64_t seeds = whole_batch(stream, first / stream->batch_size, &batch_first);
        const int64_t share = share_of(stream, seeds, &share_first);
        const int64_t within = first % stream->batch_size;
        const int64_t part = stream->num_shares == 1 ? count : plim__min_i64(count, share - within);
        plim__seeds_take(stream->seeds, stream->split, stream->shuffled, epoch,
                         batch_first + share_first + within, part, ids_out, labels);
        ids_out += part;
        if (labels != NULL)
            labels += (size_t)part * label_bytes;
        first += part;
        count -= part;
    }
}

int64_t plim__load_ticket_seeds(const plim_stream_t *stream)
{
    const plim_loader_t *loader = stream->loader;
    const int64_t count = plim__stream_count(stream);
    int64_t part = stream->batch_size;
    if (loader->plan.part_seeds > 0)
        part = plim__min_i64(part, loader->plan.part_seeds);
    if (plim__min_i64(part, count) > loader->params.part_seeds) /* not planned: as many as fit */
        part = loader->params.part_seeds;
    return part;
}

int64_t plim__load_tickets(const plim_stream_t *stream, int64_t step)
{
    const int64_t size = stream->batch_size, part = plim__load_ticket_seeds(stream);
    const int64_t seeds = plim__min_i64(step * size, plim__stream_count(stream));
    return seeds / size * ((size - 1) / part + 1) + (seeds % size + part - 1) / part;
}

plim__load_cut_t plim__load_cut(const plim_loader_t *loader, int64_t ticket)
{
    const plim__load_run_t *run = &loader->run;
    const plim_stream_t *stream = run->of;
    const int64_t size = stream->batch_size, part = plim__load_ticket_seeds(stream);
    const int64_t number = ticket - run->first_ticket + run->first_number;
    const int64_t each = (size - 1) / part + 1;
    plim__load_cut_t cut = {.step = number / each};
    cut.batch_first = cut.step * size;
    cut.batch_seeds = plim__min_i64(size, plim__stream_count(stream) - cut.batch_first);
    cut.first = number % each * part;
    cut.end = plim__min_i64(cut.first + part, cut.batch_seeds);
    return cut;
}

bool plim__load_graph_nodes(const plim_loader_t *loader, const int64_t *graphs, int64_t num_graphs,
                            int64_t capacity, int64_t *nodes_out, int64_t *count_out)
{
    int64_t count = 0;
    for (int64_t i = 0; i < num_graphs; i++) {
        const int64_t end = loader->graph_indptr[graphs[i] + 1];
        if (end - loader->graph_indptr[graphs[i]] > capacity - count)
            return false;
        for (int64_t node = loader->graph_indptr[graphs[i]]; node < end; node++)
            nodes_out[count++] = node;
    }
    *count_out = count;
    return true;
}

/* Blocks around the first `count` of the slot's seeds, if they fit what a part may need. */
static plim_status_t try_blocks(plim_loader_t *loader, plim__load_worker_t *worker,
                                plim__slot_t *slot, const plim__load_sources_t *sources,
                                int64_t count, plim__blocks_out_t *out, bool *fits_out)
{
    const plim__load_plan_t *plan = &loader->plan;
    const int64_t *seeds = slot->seeds;
    out->node_capacity = plan->slot_nodes;
    out->edge_capacity = plan->slot_edges;
    if (plan->part_nodes > 0 && count > 1) { /* one seed cannot be halved */
        out->node_capacity = plim__min_i64(plan->part_nodes, plan->slot_nodes);
        out->edge_capacity = plim__min_i64(plan->part_edges, plan->slot_edges);
    }
    if (loader->graph_indptr != NULL) {
        *fits_out = plim__load_graph_nodes(loader, slot->seeds, count, out->node_capacity,
                                           worker->nodes, &count);
        if (!*fits_out)
            return PLIM_OK;
        seeds = worker->nodes;
    }
    return plim__blocks_build(worker->blocks, sources->topology,
                              sources->first_worker + worker->number, loader->run.epoch, seeds,
                              count, out, fits_out);
}

static plim_status_t too_large(const plim_loader_t *loader, const plim__slot_t *slot, int64_t count)
{
    const plim__load_plan_t *plan = &loader->plan;
    if (count > 1)
        return plim__fail(PLIM_ERR_BUDGET,
                          "batch %lld of epoch %lld does not fit a slot of %lld nodes and %lld "
                          "edges, and PyG's form cannot be cut into parts; raise --memory, or "
                          "make --batch or --fanout smaller",
                          (long long)slot->batch.step, (long long)slot->batch.epoch,
                          (long long)plan->slot_nodes, (long long)plan->slot_edges);
    return plim__fail(PLIM_ERR_BUDGET,
                      "%s %lld alone does not fit a slot of %lld nodes and %lld edges; raise "
                      "--memory, or make --fanout smaller",
                      loader->graph_indptr != NULL ? "graph" : "node", (long long)slot->seeds[0],
                      (long long)plan->slot_nodes, (long long)plan->slot_edges);
}

/* As many of the `wanted` seeds as fit, by halves. */
static plim_status_t fit_blocks(plim_loader_t *loader, plim__load_worker_t *worker,
                                plim__slot_t *slot, const plim__load_sources_t *sources,
                                int64_t wanted, plim__blocks_out_t *out, int64_t *count_out)
{
    bool fits;
    int64_t count = wanted;
    for (;;) {
        PLIM_TRY(try_blocks(loader, worker, slot, sources, count, out, &fits));
        if (fits)
            break;
        if (count == 1 || loader->params.blocks.form == PLIM_PYG)
            return too_large(loader, slot, count);
        count = (count + 1) / 2;
    }
    *count_out = count;
    return PLIM_OK;
}

/* Where each graph's nodes begin, and that no edge leads out of its graph. */
static plim_status_t mark_graphs(const plim_loader_t *loader, plim__slot_t *slot, int64_t count,
                                 const plim__blocks_out_t *out)
{
    int64_t at = 0;
    if (out->num_nodes > out->blocks[0].num_dst)
        return plim__fail(PLIM_ERR_DATA,
                          "%s/indices.npy: node %lld is a neighbour of a node in another graph, "
                          "but graphs must be apart; make the dataset anew",
                          plim__dataset_path(loader->dataset),
                          (long long)out->ids[out->blocks[0].num_dst]);
    for (int64_t i = 0; i <= count; i++) {
        if (out->index_type == PLIM_I32)
            ((int32_t *)slot->graph_indptr)[i] = (int32_t)at;
        else
            ((int64_t *)slot->graph_indptr)[i] = at;
        if (i < count)
            at += loader->graph_indptr[slot->seeds[i] + 1] - loader->graph_indptr[slot->seeds[i]];
    }
    return PLIM_OK;
}

static void add_array(plim__slot_t *slot, const char *name, int hop, const void *data,
                      plim_dtype_t type, int64_t rows, int64_t columns)
{
    if (data == NULL)
        return;
    slot->arrays[slot->num_arrays++] = (plim_array_t){
        name, hop, data, type, columns > 0 ? 2 : 1, {rows, columns > 0 ? columns : 1}};
}

static void describe_arrays(const plim_loader_t *loader, plim__slot_t *slot)
{
    const plim_recipe_t *recipe = &loader->plan.recipe;
    const plim_dataset_info_t *info = loader->info;
    const plim_batch_t *batch = &slot->batch;
    const bool values = info->label_kind == PLIM_LABELS_VALUES;
    slot->num_arrays = 0;
    add_array(slot, "nodes", -1, batch->nodes, recipe->index_type, batch->num_nodes, 0);
    add_array(slot, "rows", -1, batch->rows, recipe->row_type, batch->num_nodes,
              info->num_features);
    add_array(slot, "labels", -1, batch->labels, values ? PLIM_F32 : PLIM_I64, batch->num_seeds,
              values ? info->num_targets : 0);
    add_array(slot, "degrees", -1, batch->degrees, PLIM_I32, batch->num_nodes, 0);
    add_array(slot, "graph_indptr", -1, batch->graph_indptr, recipe->index_type,
              batch->num_seeds + 1, 0);
    for (int hop = 0; hop < batch->num_blocks; hop++) {
        const plim_block_t *block = &batch->blocks[hop];
        add_array(slot, "indptr", hop, block->indptr, recipe->index_type, block->num_dst + 1, 0);
        add_array(slot, "indices", hop, block->indices, recipe->index_type, block->num_edges, 0);
    }
}

static void describe(plim_loader_t *loader, plim__slot_t *slot, const plim__load_cut_t *cut,
                     int64_t count, const plim__blocks_out_t *out)
{
    plim_batch_t *batch = &slot->batch;
    batch->size = sizeof *batch;
    batch->num_seeds = count;
    batch->last_part = batch->first_seed + count == cut->batch_seeds;
    batch->num_nodes = out->num_nodes;
    batch->num_blocks = out->num_hops;
    for (int i = 0; i < out->num_hops; i++)
        batch->blocks[i] = out->blocks[i];
    batch->nodes = slot->nodes;
    batch->rows = slot->rows;
    batch->labels = plim__seeds_label_bytes(loader->seeds) > 0 ? slot->labels : NULL;
    batch->degrees = slot->degrees;
    batch->graph_indptr = slot->graph_indptr;
    describe_arrays(loader, slot);
    slot->part = count;
    slot->more = batch->first_seed + count < cut->end;
}

/* Labels of the whole batch, counted once by each worker that builds parts of it. */
static int64_t count_labels(const plim_loader_t *loader, plim__load_worker_t *worker,
                            const plim__load_cut_t *cut)
{
    const plim_stream_t *stream = loader->run.of;
    if (worker->counted.step != cut->step) {
        int64_t first;
        const int64_t seeds = whole_batch(stream, cut->step, &first);
        worker->counted.step = cut->step;
        worker->counted.labels = plim__seeds_labels(stream->seeds, stream->split, stream->shuffled,
                                                    loader->run.epoch, first, seeds);
    }
    return worker->counted.labels;
}

/* Where a ticket's first part begins, and how many seeds the part before it had: a run may go on in
 * the midst of its first ticket. */
static int64_t first_seed(const plim_loader_t *loader, const plim__slot_t *slot,
                          const plim__load_cut_t *cut, int64_t *part_out)
{
    const plim__load_run_t *run = &loader->run;
    const bool resumed = slot->ticket == run->first_ticket && run->first_part > 0;
    *part_out = resumed ? run->first_part : 0;
    return resumed ? run->first_seed : cut->first;
}

plim_status_t plim__batch_build(plim_loader_t *loader, plim__load_worker_t *worker,
                                plim__slot_t *slot)
{
    const plim_stream_t *stream = loader->run.of;
    const int64_t epoch = loader->run.epoch;
    const plim__load_sources_t sources =
        loader->builder != NULL ? plim__load_builder_sources(loader, slot->ticket) : loader->base;
    const plim__load_cut_t cut = plim__load_cut(loader, slot->ticket);
    plim_batch_t *batch = &slot->batch;
    int64_t whole_first;
    plim__blocks_out_t out = {
        .index_type = loader->plan.recipe.index_type, .nodes = slot->nodes, .edges = slot->edges};
    batch->epoch = epoch;
    batch->step = cut.step;
    batch->batch_seeds = whole_batch(stream, cut.step, &whole_first);
    batch->batch_labels = count_labels(loader, worker, &cut);
    if (slot->part == 0)
        batch->first_seed = first_seed(loader, slot, &cut, &slot->part);
    int64_t count = cut.end - batch->first_seed;
    if (slot->part > 0) /* no larger than the part before */
        count = plim__min_i64(count, slot->part);
    plim__stream_take(stream, epoch, cut.batch_first + batch->first_seed, count, slot->seeds,
                      slot->labels);
    PLIM_TRY(fit_blocks(loader, worker, slot, &sources, count, &out, &count));
    if (loader->graph_indptr != NULL)
        PLIM_TRY(mark_graphs(loader, slot, count, &out));
    if (slot->degrees != NULL)
        PLIM_TRY(plim__topology_degrees(sources.topology, sources.first_worker + worker->number,
                                        out.ids, out.num_nodes, slot->degrees));
    if (slot->rows != NULL)
        PLIM_TRY(plim__rows_gather(sources.rows, sources.first_worker + worker->number, out.ids,
                                   out.num_nodes, loader->plan.recipe.row_type, slot->rows));
    if (slot->rows != NULL && sources.direct)
        plim__load_builder_count(loader, out.ids, out.num_nodes);
    describe(loader, slot, &cut, count, &out);
    return PLIM_OK;
}
