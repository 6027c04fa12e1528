/*
 * One layer: for each panel of columns and block of sources, a pass over the lists.
 *
 *     fill       the panel's columns of the block's sources, computed from the layer's input, into
 *                memory
 *     aggregate  the lists of each range of destinations over these rows, into the range's states
 *     put        the states to a store, or, in the layer's last pass, on to exact_output.c
 *
 * Aggregation looks at list entries in their order. An entry whose source is in memory gets a place
 * in a batch, and its row is prefetched; the batch before it, whose rows have arrived, is then
 * aggregated. A node's own row comes where its id would be in its ascending list, so that a sum has
 * one order however the sources are divided into blocks.
 *
 * Peers fill a block together, stripe by stripe; each then aggregates the lists of its own
 * destinations.
 */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/npy.h"
#include "nn/tile.h"

#include <math.h>
#include <string.h>

#define TILE PLIM__EXACT_TILE
#define LISTS 128     /* lists in a unit of work */
#define FETCH_LINES 8 /* cache lines of a row that are prefetched; the processor does the rest */
#define POSITION_AHEAD 24 /* entries between a position's prefetch and its use */
#define LOOKS 16          /* times that peers look after each other in a pass */

typedef struct fill {
    plim__exact_t *exact;
    const plim__exact_panel_t *panel;
    int64_t first;             /* position of the first row in memory */
    plim__exact_chunk_t chunk; /* of this peer's sources */
    int64_t whole;             /* position of its first among all sources */
    const char *data;
} fill_t;

/* Packs the panel's part of the front weight, attention's scores before it. */
static void pack_front(plim__exact_t *exact, const plim__exact_panel_t *panel)
{
    const plim__exact_layer_t *layer = exact->layer;
    const int64_t scores = 2 * (int64_t)panel->heads;
    if (scores > 0)
        plim__tile_pack(exact->scores + (int64_t)2 * panel->head * layer->in, layer->in, 0, scores,
                        exact->packed_front);
    plim__tile_pack(layer->front + panel->first * layer->in, layer->in, scores, panel->count,
                    exact->packed_front);
}

/* Loads rows position … position+rows-1 of this peer's input: all columns to `x` if a product
 * follows, otherwise the panel's columns to `to`. */
static void load_rows(const fill_t *fill, int64_t position, int64_t rows, float *x, float *to)
{
    const plim__exact_t *exact = fill->exact;
    const plim__exact_layer_t *layer = exact->layer;
    const plim__exact_panel_t *panel = fill->panel;
    const int64_t first = panel->first % layer->in; /* R-GCN's bases have the same columns */
    int64_t node = plim__exact_node_at(exact->held, position);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t place = plim__exact_position(exact->source.set, node);
        const char *row =
            fill->data + (plim__exact_row_offset(&exact->source, place) - fill->chunk.offset);
        if (layer->front != NULL)
            plim__exact_load(exact, row, 0, layer->in, x + i * layer->in);
        else
            plim__exact_load(exact, row, first, panel->row_width, to + i * panel->row_width);
        if (i + 1 < rows)
            node = plim__exact_node_after(exact->held, node);
    }
}

/* Multiplies each row by the source's factor of GCN's weights. */
static void scale_rows(const fill_t *fill, int64_t position, int64_t rows, float *to)
{
    const plim__exact_t *exact = fill->exact;
    const bool weighted = exact->layer->scale == PLIM__EXACT_GCN_WEIGHTED;
    int64_t node = plim__exact_node_at(exact->held, position);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t degree = plim__offsets_degree(exact->offsets, node);
        const float scale =
            weighted ? plim__exact_weighted_src(exact, node)
                     : 1.0f / sqrtf((float)(plim__min_i64(degree, exact->layer->fanout) + 1));
        float *row = to + i * fill->panel->width;
        for (int64_t j = 0; j < fill->panel->width; j++)
            row[j] *= scale;
        if (i + 1 < rows)
            node = plim__exact_node_after(exact->held, node);
    }
}

/* Adds GATv2's bias to the columns of each row. */
static void add_bias(const fill_t *fill, int64_t rows, float *to)
{
    const plim__exact_panel_t *panel = fill->panel;
    const float *bias = fill->exact->layer->front_bias + panel->first;
    for (int64_t i = 0; i < rows; i++) {
        float *row = to + i * panel->row_width + 2 * (int64_t)panel->heads;
        for (int64_t j = 0; j < panel->count; j++)
            row[j] += bias[j];
    }
}

static void fill_tile(void *context, int worker, int64_t tile)
{
    const fill_t *fill = context;
    const plim__exact_t *exact = fill->exact;
    const plim__exact_layer_t *layer = exact->layer;
    const int64_t position = fill->chunk.first + tile * TILE;
    const int64_t rows = plim__min_i64(TILE, fill->chunk.end - position);
    const int64_t width = fill->panel->row_width;
    float *x = plim__exact_tile(exact, worker);
    float *to = exact->resident + (fill->whole + tile * TILE - fill->first) * width;
    load_rows(fill, position, rows, x, to);
    if (layer->front != NULL)
        plim__tile_product(exact->packed_front, layer->in, width, rows, x, layer->in, false, to,
                           width);
    if (layer->front_bias != NULL)
        add_bias(fill, rows, to);
    if (layer->scale == PLIM__EXACT_GCN || layer->scale == PLIM__EXACT_GCN_WEIGHTED)
        scale_rows(fill, position, rows, to);
}

/* Passes over the lists that the layer takes. */
static int64_t num_passes(const plim__exact_t *exact)
{
    return exact->plan->choice.panels * exact->plan->choice.blocks;
}

/* Computes the columns of this peer's sources before position `end`. */
static plim_status_t fill_until(fill_t *fill, int64_t end)
{
    plim__exact_t *exact = fill->exact;
    const int64_t cost = 100 + exact->layer->in * (fill->panel->row_width + 16) / 32;
    for (;;) {
        const plim__exact_chunk_t *next = plim__exact_reader_peek(&exact->rows);
        char *data;
        if (next == NULL || next->first >= end)
            return PLIM_OK;
        PLIM_TRY(plim__exact_reader_take(&exact->rows, &fill->chunk, &data));
        fill->data = data;
        fill->whole = plim__exact_whole(exact->held, fill->chunk.first);
        plim__team_run(exact->team, (fill->chunk.end - fill->chunk.first + TILE - 1) / TILE,
                       TILE * cost, fill_tile, fill);
        if (num_passes(exact) == 1) /* with more, the progress of the lists is enough */
            plim__progress(exact->job, exact->reading, "rows", fill->chunk.end, exact->held->count);
    }
}

/* Computes the panel's columns of sources [first, end), each peer those of its own. */
static plim_status_t fill_rows(plim__exact_t *exact, const plim__exact_panel_t *panel,
                               int64_t first, int64_t end)
{
    plim__exact_rows_t rows =
        plim__exact_rows_of(exact, exact->held, plim__exact_part_before(exact->held, first),
                            plim__exact_part_before(exact->held, end));
    fill_t fill = {.exact = exact, .panel = panel, .first = first};
    if (exact->layer->front != NULL)
        pack_front(exact, panel);
    plim__exact_reader_start(&exact->rows, exact->source.file, exact->source.memory,
                             plim__exact_rows_next, &rows);
    for (int64_t at = first; at < end;) {
        const int64_t stop = plim__exact_group_end(exact, at, end);
        const plim_status_t status = fill_until(&fill, plim__exact_part_before(exact->held, stop));
        PLIM_TRY(plim__exact_gather(exact, at, stop, status, panel->row_width,
                                    exact->resident + (at - first) * panel->row_width));
        at = stop;
    }
    return PLIM_OK;
}

/* One pass over the lists. */
typedef struct exact_pass {
    plim__exact_t *exact;
    plim__exact_panel_t panel;
    int64_t first, end; /* sources in memory */
    bool begins, ends;  /* the panel's first pass, the layer's last */
    const plim__exact_sink_t *sink;
    int64_t range, offset, size; /* the part of each range of stored states that is read */
} exact_pass_t;

/* The aggregation of one range of destinations. */
typedef struct aggregation {
    plim__exact_t *exact;
    plim__stream_aggregate_t rule;
    int64_t first, end;  /* sources in memory */
    int64_t first_state; /* position */
    float *states;
    plim__exact_chunk_t chunk;
    const char *data;
    const char *edges;   /* the column of its entries; NULL: none is read */
    int64_t start, stop; /* the chunk's entries */
    bool own_done;       /* the chunk's first list continues and has its own row */
    bool own_left;       /* own_done of the next chunk */
} aggregation_t;

/* One thread's walk over some lists. */
typedef struct list_walk {
    aggregation_t *aggregation;
    plim__exact_batch_t *batch, *other;
    int64_t lines;  /* cache lines of a row to prefetch */
    bool straddles; /* a row may reach into one more line */
    int64_t most;   /* capacity of a batch */
    float *totals;  /* of the current list */
} list_walk_t;

static void aggregate_batch(const aggregation_t *aggregation, plim__exact_batch_t *batch)
{
    plim__stream_aggregate_lists(&aggregation->rule, batch->lists, batch->num_lists, batch->places,
                                 &batch->edges, aggregation->states);
    batch->count = batch->num_lists = 0;
}

/* What the edge of an entry of the chunk carries. */
static inline const char *edge_at(const aggregation_t *aggregation, int64_t entry)
{
    return aggregation->edges +
           (entry - aggregation->start) * aggregation->exact->sizes.column.bytes;
}

#define OWN (-1)

/* Adds the row of an entry's source to the batch, or the node's OWN; `state` and `own` belong to
 * its list. */
static inline void push(list_walk_t *walk, int64_t place, int64_t state, int64_t own, int64_t entry)
{
    const aggregation_t *aggregation = walk->aggregation;
    plim__exact_batch_t *batch = walk->batch;
    if (batch->count == walk->most) {
        aggregate_batch(aggregation, walk->other);
        walk->batch = walk->other;
        walk->other = batch;
        batch = walk->batch;
    }
    const char *row = (const char *)(aggregation->rule.rows + place * aggregation->rule.row_width);
    for (int64_t line = 0; line < walk->lines; line++)
        __builtin_prefetch(row + line * (int64_t)PLIM__LINE);
    if (walk->straddles)
        __builtin_prefetch(row + aggregation->rule.row_width * (int64_t)sizeof(float) - 1);
    if (aggregation->edges != NULL)
        plim__exact_edge_put(aggregation->exact, entry,
                             entry == OWN ? NULL : edge_at(aggregation, entry), walk->totals,
                             &batch->edges, batch->count);
    batch->places[batch->count++] = place;
    if (batch->num_lists == 0 || batch->lists[batch->num_lists - 1].state != state)
        batch->lists[batch->num_lists++] =
            (plim__stream_aggregate_list_t){.state = state, .own = own};
    batch->lists[batch->num_lists - 1].end = batch->count;
}

/* Goes over entries [i, stop) of the list of `node`. Returns whether its own row was added. */
static bool walk_list(list_walk_t *walk, int64_t node, int64_t i, int64_t stop, int64_t state,
                      bool own_done)
{
    const aggregation_t *aggregation = walk->aggregation;
    plim__exact_t *exact = aggregation->exact;
    const plim__exact_set_t *from = exact->from;
    const bool skips = exact->layer->skips_loops;
    const uint64_t held = (uint64_t)(aggregation->end - aggregation->first);
    const int64_t own =
        own_done && !skips ? -1 : plim__exact_position(from, node) - aggregation->first;
    for (; i < stop; i++) {
        const int64_t source = plim__exact_entry(exact, aggregation->data, i - aggregation->start);
        if (!plim__exact_check(exact, i, source))
            return own_done;
        if (!from->all && i + POSITION_AHEAD < stop) {
            const int64_t later = plim__exact_entry(exact, aggregation->data,
                                                    i + POSITION_AHEAD - aggregation->start);
            if ((uint64_t)later < (uint64_t)exact->info->num_nodes)
                plim__node_set_prefetch(&from->members, later);
        }
        if (!own_done && source >= node) {
            own_done = true;
            if ((uint64_t)own < held)
                push(walk, own, state, own, OWN);
        }
        if (skips && source == node)
            continue;
        const int64_t position = plim__exact_position(from, source);
        if (position < 0) {
            (void)plim__exact_check(exact, i, -1);
            return own_done;
        }
        if ((uint64_t)(position - aggregation->first) < held)
            push(walk, position - aggregation->first, state, own, i);
    }
    return own_done;
}

/* The totals of the list of `node`, of which entries [begin, stop) are in the chunk. */
static void take_totals(list_walk_t *walk, int worker, int64_t node, const plim__list_t *list,
                        int64_t begin, int64_t stop)
{
    const aggregation_t *aggregation = walk->aggregation;
    plim__exact_t *exact = aggregation->exact;
    const bool whole = list->degree == 0 || stop - begin == list->degree;
    walk->totals = plim__exact_totals_at(exact, whole ? worker : exact->sizes.workers);
    if (!whole)
        return;
    const int64_t count = list->degree, first = count > 0 ? begin - aggregation->start : 0;
    plim__exact_totals(exact, node, begin, count,
                       aggregation->data +
                           first * (int64_t)plim__index_bytes(exact->info->index_type),
                       aggregation->edges + first * exact->sizes.column.bytes, walk->totals);
}

static void aggregate_lists(void *context, int worker, int64_t task)
{
    aggregation_t *aggregation = context;
    plim__exact_t *exact = aggregation->exact;
    const int64_t bytes = aggregation->rule.row_width * (int64_t)sizeof(float);
    list_walk_t walk = {.aggregation = aggregation,
                        .batch = &exact->batches[worker][0],
                        .other = &exact->batches[worker][1],
                        .lines = plim__min_i64(
                            (bytes + (int64_t)PLIM__LINE - 1) / (int64_t)PLIM__LINE, FETCH_LINES),
                        .straddles = bytes % (int64_t)PLIM__LINE != 0,
                        .most = plim__max_i64(16, plim__min_i64(PLIM__EXACT_BATCH, 32768 / bytes))};
    const int64_t first = aggregation->chunk.first + task * LISTS;
    const int64_t end = plim__min_i64(first + LISTS, aggregation->chunk.end);
    int64_t node = plim__exact_node_at(exact->to, first);
    for (int64_t position = first; position < end; position++) {
        const plim__list_t list = plim__offsets_list(exact->offsets, node);
        const int64_t list_end = list.start + list.degree;
        const int64_t begin = plim__max_i64(list.start, aggregation->start);
        const int64_t stop = plim__min_i64(list_end, aggregation->stop);
        const int64_t state = position - aggregation->first_state;
        /* The start of an empty list may be outside of the chunk. */
        const bool continues = list.degree > 0 && begin > list.start;
        bool own_done = continues ? aggregation->own_done : !exact->layer->self;
        if (exact->sizes.column.totals > 0)
            take_totals(&walk, worker, node, &list, begin, stop);
        own_done = walk_list(&walk, node, begin, stop, state, own_done);
        if (list.degree > 0 && stop < list_end) {
            aggregation->own_left = own_done; /* the chunk's last list: one thread writes this */
        } else if (!own_done) {
            const int64_t own = plim__exact_position(exact->from, node) - aggregation->first;
            if ((uint64_t)own < (uint64_t)(aggregation->end - aggregation->first))
                push(&walk, own, state, own, OWN);
        }
        node = plim__exact_node_after(exact->to, node);
    }
    aggregate_batch(aggregation, walk.other);
    aggregate_batch(aggregation, walk.batch);
}

static plim__stream_aggregate_t rule_of(const plim__exact_t *exact,
                                        const plim__exact_panel_t *panel)
{
    const plim__exact_layer_t *layer = exact->layer;
    const bool v2 = layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION_V2;
    return (plim__stream_aggregate_t){.kind = layer->aggregate,
                                      .width = panel->width,
                                      .row_width = panel->row_width,
                                      .heads = panel->heads,
                                      .channels = layer->channels,
                                      .first = panel->first,
                                      .rows = exact->resident,
                                      .terms = plim__exact_terms(exact, panel),
                                      .factors = layer->comp,
                                      .bases = layer->heads,
                                      .att = v2 ? layer->att_src + panel->first : NULL,
                                      .z_dst = exact->z};
}

/* Takes the chunk of the column that belongs to the chunk of the lists; if a list that is longer
 * begins with it, its totals. */
static plim_status_t take_edges(aggregation_t *aggregation)
{
    plim__exact_t *exact = aggregation->exact;
    const plim__exact_chunk_t *chunk = &aggregation->chunk;
    plim__exact_chunk_t edges;
    char *data;
    if (exact->sizes.column.column == 0)
        return PLIM_OK;
    PLIM_TRY(plim__exact_reader_take(&exact->edges, &edges, &data));
    aggregation->edges = data;
    if (exact->sizes.column.totals == 0)
        return PLIM_OK;
    const int64_t node = plim__exact_node_at(exact->to, chunk->end - 1);
    const plim__list_t list = plim__offsets_list(exact->offsets, node);
    const bool cut = list.start + list.degree > aggregation->stop;
    return list.degree > 0 && cut && list.start >= aggregation->start
               ? plim__exact_totals_long(exact, node)
               : PLIM_OK;
}

/* Aggregates the lists of one range of destinations over the sources in memory. */
static plim_status_t aggregate_range(const exact_pass_t *pass, const plim__stream_aggregate_t *rule,
                                     int64_t range, float *states)
{
    plim__exact_t *exact = pass->exact;
    const int64_t bytes = (int64_t)plim__index_bytes(exact->info->index_type);
    aggregation_t aggregation = {.exact = exact,
                                 .rule = *rule,
                                 .first = pass->first,
                                 .end = pass->end,
                                 .first_state = range * exact->sizes.range_rows,
                                 .states = states};
    for (;;) {
        const plim__exact_chunk_t *next = plim__exact_reader_peek(&exact->lists);
        char *data;
        if (next == NULL || next->range != range)
            return PLIM_OK;
        PLIM_TRY(plim__exact_reader_take(&exact->lists, &aggregation.chunk, &data));
        aggregation.data = data;
        aggregation.start = (aggregation.chunk.offset - PLIM__NPY_HEADER) / bytes;
        aggregation.stop = aggregation.start + aggregation.chunk.size / bytes;
        aggregation.own_done = aggregation.own_left;
        PLIM_TRY(take_edges(&aggregation));
        const int64_t lists = aggregation.chunk.end - aggregation.chunk.first;
        plim__team_run(exact->team, (lists + LISTS - 1) / LISTS,
                       10 * (aggregation.stop - aggregation.start) * LISTS / lists + 100,
                       aggregate_lists, &aggregation);
        PLIM_TRY(plim__exact_damage(exact));
        exact->edges_done += aggregation.stop - aggregation.start;
        plim__progress(exact->job, exact->phase, "edges",
                       plim__min_i64(exact->edges_done, exact->edges_end), exact->edges_total);
    }
}

static bool next_states(void *context, plim__exact_chunk_t *chunk_out)
{
    exact_pass_t *pass = context;
    if (pass->range >= plim__exact_num_ranges(pass->exact, pass->exact->to->count))
        return false;
    *chunk_out = (plim__exact_chunk_t){.offset = pass->range * pass->exact->partial.range_bytes +
                                                 pass->offset,
                                       .size = pass->size,
                                       .range = pass->range};
    pass->range++;
    return true;
}

/* Starts reading the states for this pass: those of its panel; in the last pass, those of all
 * panels. */
static void start_states(exact_pass_t *pass)
{
    plim__exact_t *exact = pass->exact;
    const int64_t panels = exact->plan->stored_panels;
    const int64_t slot = panels > 0 ? exact->partial.range_bytes / panels : 0;
    pass->offset = pass->ends ? 0 : pass->panel.offset;
    pass->size = pass->ends ? slot * panels : pass->begins ? 0 : slot;
    if (pass->size > 0)
        plim__exact_reader_start(&exact->states, &exact->partial.file, NULL, next_states, pass);
}

/* Computes a range of the layer's output and passes it to the sink. */
static plim_status_t put_output(exact_pass_t *pass, int64_t range, int64_t rows,
                                const float *states, const char *others)
{
    plim__exact_t *exact = pass->exact;
    const plim__exact_sink_t *sink = pass->sink;
    void *h = exact->h;
    if (sink->store != NULL)
        PLIM_TRY(plim__exact_writer_place(&exact->writer, sink->store,
                                          range * sink->store->range_bytes, &h));
    PLIM_TRY(plim__exact_output_range(exact, range, rows, states, others, h));
    if (sink->store == NULL)
        return sink->take(sink->context, range * exact->sizes.range_rows, rows, exact->layer->out,
                          h);
    plim__exact_writer_put(&exact->writer, sink->store, range * sink->store->range_bytes,
                           rows * exact->layer->out * (int64_t)sizeof(float));
    return PLIM_OK;
}

static plim_status_t run_range(exact_pass_t *pass, int64_t range)
{
    plim__exact_t *exact = pass->exact;
    const int64_t rows =
        plim__min_i64(exact->sizes.range_rows, exact->to->count - range * exact->sizes.range_rows);
    const int64_t size = rows * pass->panel.width * (int64_t)sizeof(float);
    const int64_t place = range * exact->partial.range_bytes + pass->panel.offset;
    void *states = exact->state;
    char *read = NULL;
    plim__exact_chunk_t chunk;
    if (!exact->layer->aggregates)
        return put_output(pass, range, rows, NULL, NULL);
    const plim__stream_aggregate_t rule = rule_of(exact, &pass->panel);
    if (!pass->ends)
        PLIM_TRY(plim__exact_writer_place(&exact->writer, &exact->partial, place, &states));
    if (pass->size > 0)
        PLIM_TRY(plim__exact_reader_take(&exact->states, &chunk, &read));
    if (pass->begins)
        plim__stream_aggregate_begin(&rule, rows, states);
    else if (read != NULL)
        memcpy(states, read + (pass->panel.offset - pass->offset), (size_t)size);
    if (exact->layer->front_dst != NULL)
        PLIM_TRY(plim__exact_output_dst(exact, &pass->panel, range, rows));
    PLIM_TRY(aggregate_range(pass, &rule, range, states));
    if (pass->ends)
        return put_output(pass, range, rows, states, read);
    plim__exact_writer_put(&exact->writer, &exact->partial, place, size);
    return PLIM_OK;
}

static plim_status_t run_pass(exact_pass_t *pass)
{
    plim__exact_t *exact = pass->exact;
    const int64_t ranges = plim__exact_num_ranges(exact, exact->to->count);
    const int looks = exact->peers != NULL ? LOOKS : 1;
    plim_status_t status = PLIM_OK;
    int64_t range = 0;
    plim__exact_lists_t lists = plim__exact_lists_of(exact, exact->to), edges = lists;
    plim__exact_rows_t own = plim__exact_rows_of(exact, exact->to, 0, exact->to->count);
    if (exact->layer->aggregates) {
        start_states(pass);
        plim__exact_reader_start(&exact->lists, &exact->indices, NULL, plim__exact_lists_next,
                                 &lists);
    }
    if (exact->layer->aggregates && exact->sizes.column.column != 0)
        plim__exact_reader_start(&exact->edges, &exact->column, NULL, plim__exact_edges_next,
                                 &edges);
    if ((pass->ends && plim__exact_wants_root(exact->layer)) || exact->layer->front_dst != NULL)
        plim__exact_reader_start(&exact->own, exact->source.file, exact->source.memory,
                                 plim__exact_rows_next, &own);
    for (int look = 1; look <= looks; look++) {
        for (; status == PLIM_OK && range < ranges * look / looks; range++)
            status = run_range(pass, range);
        if (status == PLIM_OK && look == looks)
            status = plim__exact_writer_flush(&exact->writer);
        PLIM_TRY(plim__exact_agree(exact, status));
    }
    return PLIM_OK;
}

/* Attention's score of a row is linear in the layer's input: (W' att) x, for each head and both of
 * its vectors. */
static void make_scores(const plim__exact_t *exact, const plim__exact_layer_t *layer)
{
    for (int head = 0; head < layer->heads; head++)
        for (int64_t k = 0; k < layer->in; k++) {
            double src = 0, dst = 0;
            for (int64_t j = 0; j < layer->channels; j++) {
                const int64_t row = head * layer->channels + j;
                src += (double)layer->att_src[row] * (double)layer->front[row * layer->in + k];
                dst += (double)layer->att_dst[row] * (double)layer->front[row * layer->in + k];
            }
            exact->scores[(int64_t)2 * head * layer->in + k] = (float)src;
            exact->scores[((int64_t)2 * head + 1) * layer->in + k] = (float)dst;
        }
}

/* Packs a weight (out, in), or with `transposed` (in, out). */
static void pack_weight(const float *weight, bool transposed, int64_t in, int64_t out,
                        float *packed)
{
    if (transposed)
        plim__tile_pack_transposed(weight, in, out, packed);
    else
        plim__tile_pack(weight, in, 0, out, packed);
}

/* Packs the layer's weights for products of tiles. */
static void pack(plim__exact_t *exact, const plim__exact_layer_t *layer)
{
    if (layer->behind != NULL)
        pack_weight(layer->behind, layer->transposed, layer->wide, layer->inner,
                    exact->packed_behind);
    if (layer->root != NULL) {
        pack_weight(layer->root, layer->transposed, layer->in, layer->inner, exact->packed_root);
        const size_t values = plim__tile_bytes(layer->in, layer->inner) / sizeof(float);
        for (size_t i = 0; i < values && layer->root_scale != 1.0f; i++)
            exact->packed_root[i] *= layer->root_scale;
    }
    if (layer->second != NULL)
        plim__tile_pack(layer->second, layer->inner, 0, layer->out, exact->packed_second);
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION)
        make_scores(exact, layer);
    else if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION_V2)
        memset(exact->scores, 0, 2 * (size_t)(layer->heads * layer->in) * sizeof *exact->scores);
    plim__exact_terms_make(exact, layer);
}

static plim_status_t run_passes(plim__exact_t *exact, const plim__exact_sink_t *sink)
{
    const plim__exact_choice_t *choice = &exact->plan->choice;
    for (int64_t s = 0; s < choice->panels; s++) {
        const plim__exact_panel_t panel = plim__exact_panel(exact, s);
        for (int64_t b = 0; b < choice->blocks; b++) {
            exact_pass_t pass = {.exact = exact,
                                 .panel = panel,
                                 .first = b * choice->rows,
                                 .end = plim__min_i64((b + 1) * choice->rows, exact->from->count),
                                 .begins = b == 0,
                                 .ends = s == choice->panels - 1 && b == choice->blocks - 1,
                                 .sink = sink};
            exact->edges_done = exact->edges_end;
            exact->edges_end += exact->to->edges;
            if (num_passes(exact) > 1)
                plim__progress(exact->job, exact->phase, "edges", exact->edges_done,
                               exact->edges_total);
            PLIM_TRY(fill_rows(exact, &panel, pass.first, pass.end));
            PLIM_TRY(run_pass(&pass));
        }
    }
    if (exact->edges_total > 0)
        plim__progress(exact->job, exact->phase, "edges", exact->edges_total, exact->edges_total);
    return PLIM_OK;
}

/* Waits for everything in flight and frees the layer's memory, after success or failure. */
static void end_layer(plim__exact_t *exact)
{
    plim__failure_t failure;
    plim__fail_save(&failure);
    plim__exact_reader_drop(&exact->lists);
    plim__exact_reader_drop(&exact->rows);
    plim__exact_reader_drop(&exact->own);
    plim__exact_reader_drop(&exact->states);
    plim__exact_reader_drop(&exact->edges);
    (void)plim__exact_writer_flush(&exact->writer);
    (void)plim__fail_restore(PLIM_OK, &failure);
    plim__exact_store_destroy(&exact->partial);
    plim__arena_destroy(&exact->resident_arena);
    exact->resident_arena = (plim__arena_t){0};
}

static plim_status_t make_memory(plim__exact_t *exact)
{
    const plim__exact_plan_t *plan = exact->plan;
    const size_t bytes = plim__exact_resident_bytes(&plan->choice);
    const int64_t ranges = plim__exact_num_ranges(exact, plim__max_i64(exact->to->count, 1));
    PLIM_TRY(plim__arena_create(exact->job->ledger, "exact rows", bytes, &exact->resident_arena));
    exact->resident = plim__arena_carve(&exact->resident_arena, 1, bytes, PLIM__PAGE);
    plim__arena_want_huge(exact->resident_arena.base, exact->resident_arena.size);
    /* One thread touches the pages: if several threads fault on a huge page at once, the kernel
     * charges one to each of them. */
    plim__arena_touch(&exact->resident_arena);
    if (plan->stored_panels == 0)
        return PLIM_OK;
    return plim__exact_store_create(&exact->partial, exact->job, exact->params->scratch, false,
                                    plan->state_bytes / ranges, ranges);
}

plim_status_t plim__exact_layer_run(plim__exact_t *exact, int index, const plim__exact_sink_t *sink)
{
    plim_status_t status = PLIM_OK;
    exact->layer = &exact->layers[index];
    exact->plan = &exact->plans[index];
    exact->from = &exact->sets[index];
    exact->held = &exact->parts[index];
    exact->to = &exact->parts[index + 1];
    exact->edges_done = exact->edges_end = 0;
    exact->edges_total = exact->to->edges * num_passes(exact);
    if (exact->sets[index + 1].count == 0)
        return PLIM_OK;
    pack(exact, exact->layer);
    if (exact->layer->aggregates) {
        status = plim__exact_agree(exact, make_memory(exact));
        if (status == PLIM_OK)
            status = run_passes(exact, sink);
    } else {
        exact_pass_t pass = {.exact = exact, .ends = true, .sink = sink};
        status = run_pass(&pass);
    }
    end_layer(exact);
    return status;
}
