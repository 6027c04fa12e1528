/*
 * The plan of exact evaluation: buffer sizes and layouts, then for each layer the number of panels
 * of columns and of blocks of sources.
 *
 * A pass holds (rows of a block) x (columns of a panel) in memory and streams the lists once. With
 * S panels and B blocks, X bytes of input, I bytes of lists, E edges, and D bytes of states of all
 * columns, a layer costs
 *
 *     disk    S X + S B I + 2 D (B - 1) + 2 D (S - 1) / S
 *     memory  S E random fetches of rows of W/S columns, some cache lines each; S B E list entries
 *
 * A panel reads the input again, a block reads and writes the states again: where states are small
 * beside the input, blocks are cheaper, and their rows fill whole cache lines; where states are
 * large, panels are. papers100M, 128 columns of f16 to 16 of f32, in 4 GiB: two blocks (28 + 13 +
 * 14 GB if all nodes are destinations) beat two panels (57 + 13 + 7 GB), and take half the fetches.
 */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "mem/headroom.h"
#include "mem/size_text.h"
#include "nn/tile.h"

#include <stdio.h>

/* Bytes a second from disk; cache lines fetched at random, and list entries, a second by all
 * threads. Measured on two cores; only their ratio counts. */
#define DISK_RATE 2.5e9
#define FETCH_RATE 80e6
#define ENTRY_RATE 800e6

#define BLOCKS_MAX 4096
#define PANELS_MAX 64 /* attention may have more, since it has no blocks */

#define PARTS_MAX 16 /* of a basis */

#define UNIT_MAX ((int64_t)1 << 20) /* bytes of a chunk */
#define UNIT_MIN ((int64_t)1 << 16)
#define RANGE_UNITS 4 /* approximate chunks in a range's matrices */
#define RANGE_ROWS_MAX 65536

static float *carve_floats(plim__arena_t *arena, int64_t rows, int64_t width)
{
    return plim__arena_carve(arena, (size_t)rows, (size_t)width * sizeof(float), 1);
}

static size_t *carve_sizes(plim__arena_t *arena, int peers)
{
    return plim__arena_carve(arena, (size_t)peers, sizeof(size_t), 1);
}

void plim__exact_lay_out(plim__arena_t *arena, void *object)
{
    plim__exact_t *exact = object;
    const plim__exact_sizes_t *sizes = &exact->sizes;
    const int64_t rows = sizes->range_rows, workers = sizes->workers;
    exact->batches = plim__arena_carve(arena, (size_t)workers, sizeof *exact->batches, 1);
    exact->edge_values =
        carve_floats(arena, sizes->column.column != 0 ? 2 * workers * PLIM__EXACT_BATCH : 0,
                     sizes->column.entries + 1);
    exact->totals = carve_floats(arena, workers + 1, sizes->column.totals);
    const size_t part = sizes->column.totals > 0 ? (size_t)sizes->chunk + 2 * PLIM__PAGE : 0;
    exact->long_entries = plim__arena_carve(arena, 1, part, PLIM__PAGE);
    exact->long_edges = plim__arena_carve(arena, 1, part, PLIM__PAGE);
    exact->tiles = carve_floats(arena, workers * PLIM__EXACT_TILE, sizes->tile);
    exact->x = carve_floats(arena, rows, sizes->x);
    exact->y = carve_floats(arena, rows, sizes->y);
    exact->h = carve_floats(arena, rows, sizes->h);
    exact->state =
        plim__arena_carve(arena, 1, (size_t)sizes->written + (size_t)sizes->peers * PLIM__LINE, 1);
    exact->packed_front = plim__arena_carve(arena, 1, sizes->front, 1);
    exact->packed_behind = plim__arena_carve(arena, 1, sizes->behind, 1);
    exact->packed_root = plim__arena_carve(arena, 1, sizes->root, 1);
    exact->packed_second = plim__arena_carve(arena, 1, sizes->second, 1);
    exact->packed_dst = plim__arena_carve(arena, 1, sizes->dst, 1);
    exact->table = plim__arena_carve(arena, 1, sizes->table, 1);
    exact->z = carve_floats(arena, rows, sizes->z);
    exact->scores = plim__arena_carve(arena, 1, sizes->scores, 1);
    exact->kept = plim__arena_carve(arena, 1, sizes->kept, 1);
    exact->send_sizes = carve_sizes(arena, sizes->peers);
    exact->send_offsets = carve_sizes(arena, sizes->peers);
    exact->receive_sizes = carve_sizes(arena, sizes->peers);
    exact->receive_offsets = carve_sizes(arena, sizes->peers);
    plim__exact_reader_lay_out(arena, &exact->lists, PLIM__EXACT_AHEAD, sizes->chunk);
    plim__exact_reader_lay_out(arena, &exact->rows, PLIM__EXACT_AHEAD, sizes->chunk);
    plim__exact_reader_lay_out(arena, &exact->own, PLIM__EXACT_AHEAD, sizes->chunk);
    plim__exact_reader_lay_out(arena, &exact->states, PLIM__EXACT_AHEAD_STATES, sizes->states);
    if (sizes->column.column != 0)
        plim__exact_reader_lay_out(arena, &exact->edges, PLIM__EXACT_AHEAD, sizes->chunk);
    plim__exact_writer_lay_out(arena, &exact->writer, sizes->written);
}

size_t plim__exact_set_bytes(int64_t num_nodes)
{
    return plim__round_up(plim__node_set_bytes(num_nodes), PLIM__PAGE);
}

/* Bytes of (rows, width) floats in whole pages. */
static int64_t matrix_bytes(int64_t rows, int64_t width)
{
    return (int64_t)plim__round_up(
        plim__mul_saturating_size((size_t)rows, (size_t)width * sizeof(float)), PLIM__PAGE);
}

size_t plim__exact_resident_bytes(const plim__exact_choice_t *choice)
{
    return (size_t)matrix_bytes(choice->rows, choice->row_width);
}

/* Floats of a state of so many columns. */
static int64_t panel_width(const plim__exact_layer_t *layer, int64_t columns)
{
    if (!plim__exact_attends(layer))
        return columns;
    /* Whole heads, or a part of one: see panel_columns. */
    const int64_t heads = (columns + layer->channels - 1) / layer->channels;
    return columns + 2 * heads;
}

/* Floats of a row: R-GCN's bases have the same. */
static int64_t panel_row_width(const plim__exact_layer_t *layer, int64_t columns)
{
    return layer->aggregate == PLIM__STREAM_AGGREGATE_TYPED
               ? plim__min_i64(columns, layer->channels)
               : panel_width(layer, columns);
}

/* Whether panels are whole heads (or bases), or a part of one. */
static bool by_heads(const plim__exact_layer_t *layer)
{
    return plim__exact_attends(layer) || layer->aggregate == PLIM__STREAM_AGGREGATE_TYPED;
}

/* Columns of each of `panels` of about equal width; a panel of attention is whole heads, or a part
 * of one head. */
static int64_t panel_columns(const plim__exact_layer_t *layer, int64_t panels)
{
    if (!by_heads(layer))
        return (layer->wide + panels - 1) / panels;
    if (panels <= layer->heads)
        return (layer->heads + panels - 1) / panels * layer->channels;
    const int64_t parts = (panels + layer->heads - 1) / layer->heads;
    return (layer->channels + parts - 1) / parts;
}

static int64_t count_panels(const plim__exact_layer_t *layer, int64_t columns)
{
    if (!by_heads(layer) || columns >= layer->channels)
        return (layer->wide + columns - 1) / columns;
    return layer->heads * ((layer->channels + columns - 1) / columns);
}

static int64_t panels_max(const plim__exact_layer_t *layer)
{
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION)
        return layer->wide;
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION_V2) /* logits need whole heads */
        return layer->heads;
    return plim__min_i64(layer->wide, by_heads(layer) ? layer->heads * PARTS_MAX : PANELS_MAX);
}

static double seconds(const plim__exact_layer_t *layer, const plim__exact_choice_t *choice,
                      int64_t num_dst, int64_t edges, int64_t input_bytes, int64_t index_bytes)
{
    const double panels = (double)choice->panels, blocks = (double)choice->blocks;
    const double states = (double)num_dst * (double)(panel_width(layer, layer->wide) * 4);
    const double disk = panels * (double)input_bytes + panels * blocks * (double)index_bytes +
                        2 * states * (blocks - 1 + (panels - 1) / panels);
    const double lines = (double)(choice->row_width * 4 + 48) / 64; /* mean over all alignments */
    return disk / DISK_RATE + panels * (double)edges * (lines < 1 ? 1 : lines) / FETCH_RATE +
           panels * blocks * (double)edges / ENTRY_RATE;
}

/* The minimum of floats that a pass over the layer holds. */
static int64_t minimum_floats(const plim__exact_layer_t *layer, int64_t num_src)
{
    if (!layer->aggregates)
        return 0;
    /* Attention finds a destination's scores in its own row: all rows must be in memory. */
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION)
        return plim__mul_saturating_i64(num_src, 3);
    if (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION_V2) {
        const int64_t width = panel_width(layer, layer->channels);
        return plim__mul_saturating_i64(num_src / (BLOCKS_MAX / 2) + 1, width) + 1024;
    }
    const int64_t wide = layer->aggregate == PLIM__STREAM_AGGREGATE_TYPED
                             ? layer->channels * (PANELS_MAX / PARTS_MAX)
                             : layer->wide;
    return plim__max_i64(num_src / 16, (wide + PANELS_MAX - 1) / PANELS_MAX) + 1024;
}

/* The fastest choice within `capacity` floats; 0 panels if that is too little. */
static plim__exact_choice_t choose(const plim__exact_layer_t *layer, int64_t num_src,
                                   int64_t num_dst, int64_t edges, int64_t input_bytes,
                                   int64_t index_bytes, int64_t capacity)
{
    plim__exact_choice_t best = {0};
    double best_seconds = 0;
    for (int64_t panels = 1; panels <= panels_max(layer); panels++) {
        plim__exact_choice_t choice = {.columns = panel_columns(layer, panels)};
        choice.panels = count_panels(layer, choice.columns);
        choice.width = panel_width(layer, choice.columns);
        choice.row_width = panel_row_width(layer, choice.columns);
        choice.rows = plim__min_i64(capacity / choice.row_width, num_src);
        if (choice.rows < 1 ||
            (layer->aggregate == PLIM__STREAM_AGGREGATE_ATTENTION && choice.rows < num_src))
            continue;
        choice.blocks = (num_src + choice.rows - 1) / choice.rows;
        choice.rows = (num_src + choice.blocks - 1) / choice.blocks;
        if (choice.blocks > BLOCKS_MAX)
            continue;
        const double took = seconds(layer, &choice, num_dst, edges, input_bytes, index_bytes);
        if (best.panels == 0 || took < best_seconds) {
            best = choice;
            best_seconds = took;
        }
    }
    return best;
}

plim__exact_panel_t plim__exact_panel(const plim__exact_t *exact, int64_t index)
{
    const plim__exact_layer_t *layer = exact->layer;
    const plim__exact_choice_t *choice = &exact->plan->choice;
    plim__exact_panel_t panel = {.first = index * choice->columns};
    int64_t end = layer->wide;
    if (by_heads(layer) && choice->columns < layer->channels) {
        const int64_t parts = choice->panels / layer->heads;
        const int64_t head = index / parts;
        panel.first = head * layer->channels + index % parts * choice->columns;
        end = (head + 1) * layer->channels;
    }
    panel.count = plim__min_i64(choice->columns, end - panel.first);
    panel.width = panel.count;
    panel.row_width = panel_row_width(layer, panel.count);
    panel.offset = index * matrix_bytes(exact->sizes.range_rows, choice->width);
    if (plim__exact_attends(layer)) {
        panel.head = (int)(panel.first / layer->channels);
        panel.heads = (int)((panel.first + panel.count - 1) / layer->channels) - panel.head + 1;
        panel.width += 2 * (int64_t)panel.heads;
        panel.row_width = panel.width;
    }
    return panel;
}

/* Floats of a state, and of a row, of all columns. */
static int64_t state_floats(const plim__exact_layer_t *layer)
{
    return layer->aggregates ? panel_width(layer, layer->wide) : 0;
}

static int64_t row_floats(const plim__exact_layer_t *layer)
{
    return layer->aggregates ? panel_row_width(layer, layer->wide) : 0;
}

/* Maximum floats of the states of all panels: every panel of attention repeats the scores. */
static int64_t stored_floats(const plim__exact_layer_t *layer)
{
    if (!layer->aggregates)
        return 0;
    return plim__exact_attends(layer) ? 3 * layer->wide : layer->wide;
}

static size_t larger(size_t a, size_t b)
{
    return a > b ? a : b;
}

static int64_t choose_rows(const plim__exact_layer_t *layers, int num_layers, int64_t num_nodes,
                           int64_t unit)
{
    int64_t floats = 1;
    for (int i = 0; i < num_layers; i++) {
        const plim__exact_layer_t *layer = &layers[i];
        floats = plim__max_i64(floats, (plim__exact_wants_root(layer) ? layer->in : 0) +
                                           (layer->front_dst != NULL ? layer->wide : 0) +
                                           2 * layer->out + 2 * state_floats(layer));
    }
    int64_t rows = RANGE_UNITS * unit / (4 * floats);
    rows = plim__min_i64(plim__max_i64(rows, PLIM__EXACT_TILE), RANGE_ROWS_MAX);
    rows = plim__min_i64(rows, plim__max_i64(num_nodes, 1));
    return (int64_t)plim__round_up((size_t)rows, PLIM__EXACT_TILE);
}

/* Enlarges the sizes for the layer. */
static void add_layer(plim__exact_sizes_t *sizes, const plim__exact_layer_t *layer)
{
    const int64_t rows = sizes->range_rows, states = state_floats(layer);
    sizes->chunk = plim__max_i64(sizes->chunk, layer->in * (int64_t)sizeof(float));
    sizes->states = plim__max_i64(sizes->states, matrix_bytes(rows, stored_floats(layer)) +
                                                     (layer->aggregates ? panels_max(layer) : 0) *
                                                         (int64_t)PLIM__PAGE);
    sizes->written =
        plim__max_i64(sizes->written, matrix_bytes(rows, plim__max_i64(layer->out, states)));
    if (plim__exact_wants_root(layer) || layer->front_dst != NULL)
        sizes->x = plim__max_i64(sizes->x, layer->in);
    if (layer->front_dst != NULL) {
        sizes->z = plim__max_i64(sizes->z, layer->wide);
        sizes->dst = larger(sizes->dst, plim__tile_bytes(layer->in, layer->wide));
    }
    if (sizes->column.categories == NULL)
        sizes->table = larger(sizes->table,
                              plim__mul_saturating_size((size_t)layer->term_rows,
                                                        (size_t)layer->term_width * sizeof(float)));
    if (layer->second != NULL)
        sizes->y = plim__max_i64(sizes->y, layer->inner);
    sizes->h = plim__max_i64(sizes->h, layer->out);
    sizes->tile = plim__max_i64(sizes->tile, plim__max_i64(layer->in, layer->wide));
    sizes->kept = larger(sizes->kept, plim__epilogue_kept(&layer->epilogue, rows));
    if (layer->second != NULL) {
        sizes->kept = larger(sizes->kept, plim__epilogue_kept(&layer->last, rows));
        sizes->second = larger(sizes->second, plim__tile_bytes(layer->inner, layer->out));
    }
    if (layer->front != NULL)
        sizes->front = larger(sizes->front, plim__tile_bytes(layer->in, states));
    if (layer->behind != NULL)
        sizes->behind = larger(sizes->behind, plim__tile_bytes(layer->wide, layer->inner));
    if (layer->root != NULL)
        sizes->root = larger(sizes->root, plim__tile_bytes(layer->in, layer->inner));
    if (plim__exact_attends(layer))
        sizes->scores =
            larger(sizes->scores, (size_t)layer->heads * 2 * (size_t)layer->in * sizeof(float));
}

static plim__exact_sizes_t sizes_of(const plim_job_t *job, const plim_dataset_info_t *info,
                                    const plim__exact_column_t *column,
                                    const plim__exact_layer_t *layers, int num_layers, int64_t unit)
{
    plim__exact_t draft = {
        .sizes = {.workers = plim__job_threads(job),
                  .peers = job->core->transport.num_ranks,
                  .column = *column,
                  .chunk = plim__max_i64(plim__max_i64(unit, column->bytes),
                                         job->core->transport.num_ranks *
                                             (int64_t)sizeof(plim__node_set_line_t)),
                  .range_rows = choose_rows(layers, num_layers, info->num_nodes, unit)}};
    plim__exact_sizes_t *sizes = &draft.sizes;
    for (int i = 0; i < num_layers; i++)
        add_layer(sizes, &layers[i]);
    sizes->chunk = (int64_t)plim__round_up((size_t)sizes->chunk, PLIM__PAGE);
    sizes->bytes =
        plim__object_bytes(plim__exact_lay_out, &draft, sizeof draft) +
        plim__team_estimate(sizes->workers) +
        (column->column != 0 ? 4 : 3) * plim__engine_estimate(job->io_engine, PLIM__EXACT_AHEAD) +
        plim__engine_estimate(job->io_engine, PLIM__EXACT_AHEAD_STATES) +
        plim__engine_estimate(job->io_engine, 2);
    return *sizes;
}

plim__exact_sizes_t plim__exact_sizes_fit(const plim_job_t *job, const plim_dataset_info_t *info,
                                          const plim__exact_column_t *column,
                                          const plim__exact_layer_t *layers, int num_layers,
                                          size_t available)
{
    int64_t unit = UNIT_MAX;
    plim__exact_sizes_t sizes = sizes_of(job, info, column, layers, num_layers, unit);
    while (unit > UNIT_MIN && sizes.bytes > available / 8) {
        unit /= 2;
        sizes = sizes_of(job, info, column, layers, num_layers, unit);
    }
    return sizes;
}

size_t plim__exact_cost_first(const plim_dataset_t *dataset, const plim_model_t *model,
                              const plim__columns_t *columns)
{
    const int64_t num_nodes = plim_dataset_info(dataset)->num_nodes;
    const size_t offsets = plim__offsets_estimate(dataset, plim__exact_skips_loops(model, columns));
    return plim__add_saturating_size(plim__round_up(offsets, PLIM__PAGE),
                                     columns->edge_weights ? plim__weight_sums_estimate(num_nodes)
                                                           : 0);
}

size_t plim__exact_cost_minimum(const plim_job_t *job, const plim_dataset_t *dataset,
                                const plim_model_t *model, const plim__columns_t *columns,
                                int64_t num_outputs, bool embeddings)
{
    const plim_dataset_info_t *info = plim_dataset_info(dataset);
    const plim__exact_column_t column = plim__exact_column_of(info, model, columns);
    plim__exact_layer_t layers[PLIM_HOPS_MAX] = {{0}};
    int num_layers;
    int64_t floats = 0;
    plim__exact_layers_shape(info, model, columns, num_outputs, embeddings, &num_layers, layers);
    for (int i = 0; i < num_layers; i++)
        floats = plim__max_i64(floats, minimum_floats(&layers[i], info->num_nodes));
    const plim__exact_sizes_t sizes = sizes_of(job, info, &column, layers, num_layers, UNIT_MIN);
    const size_t parts[] = {
        (size_t)matrix_bytes(floats, 1),
        plim__exact_reorder_bytes(job, sizes.range_rows, layers[num_layers - 1].out),
        (size_t)(num_layers + 1) * plim__exact_set_bytes(info->num_nodes)};
    size_t bytes = sizes.bytes;
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++)
        bytes = plim__add_saturating_size(bytes, parts[i]);
    /* These are read before anything else is allocated. */
    bytes = larger(bytes, plim__offsets_work_minimum(job));
    if (columns->edge_weights)
        bytes = larger(bytes, plim__weight_sums_work_minimum(job));
    return plim__add_saturating_size(bytes, plim__exact_cost_first(dataset, model, columns));
}

/* The nodes and edges to compute: count[i] and edges[i] are those of the inputs of layer i. */
typedef struct exact_work {
    const plim_dataset_info_t *info;
    int num_layers;
    const plim__exact_layer_t *layers; /* (num_layers) */
    int64_t count[PLIM_HOPS_MAX + 1];  /* nodes */
    int64_t own[PLIM_HOPS_MAX + 1];    /* nodes of this peer */
    int64_t edges[PLIM_HOPS_MAX + 1];  /* edges into all of them */
    int64_t capacity[PLIM_HOPS_MAX];   /* most floats of a pass, for all peers; 0: not agreed yet */
    int64_t range_rows;
    int64_t edge_bytes;  /* of a list's entry, and of what its edge carries */
    int64_t most_rows;   /* as in plim__exact_params_t */
    bool stored;         /* stores the last layer's output */
    bool scratch_counts; /* scratch is a file system in memory */
} exact_work_t;

typedef struct fit {
    plim__exact_plan_t plans[PLIM_HOPS_MAX];
    int64_t held;   /* peak in memory: rows, and outputs that stay there */
    int64_t disk;   /* peak in scratch */
    int64_t needed; /* if it does not fit: bytes that would be needed */
} fit_t;

static int64_t resident_bytes(const exact_work_t *work, int index)
{
    return index >= work->num_layers
               ? 0
               : plim__mul_saturating_i64(work->count[index], 4 * row_floats(&work->layers[index]));
}

/* The same, but at least the minimum of a pass over it. */
static int64_t pass_bytes(const exact_work_t *work, int index)
{
    const int64_t resident = resident_bytes(work, index);
    if (index >= work->num_layers || !work->layers[index].aggregates)
        return resident;
    return plim__max_i64(resident,
                         matrix_bytes(minimum_floats(&work->layers[index], work->count[index]), 1));
}

/* Bytes of a store of so many floats for each of the layer's destinations. */
static int64_t store_bytes(const exact_work_t *work, int index, int64_t width)
{
    const int64_t rows = plim__max_i64(work->own[index + 1], 1);
    const int64_t ranges = (rows + work->range_rows - 1) / work->range_rows;
    return plim__mul_saturating_i64(matrix_bytes(work->range_rows, width), ranges);
}

static int64_t output_bytes(const exact_work_t *work, int index)
{
    const bool stored = index < work->num_layers - 1 || work->stored;
    if (index < 0 || !stored)
        return 0;
    return store_bytes(work, index, work->layers[index].out);
}

/* Plans one layer within `available` bytes, including `input` bytes of its input. False, with the
 * bytes that would be needed, if that is too little. */
static bool fit_layer(const exact_work_t *work, int index, int64_t available, int64_t input,
                      plim__exact_plan_t *plan, int64_t *needed_out)
{
    const plim__exact_layer_t *layer = &work->layers[index];
    const int64_t from = work->count[index], to = work->count[index + 1];
    const int64_t edges = work->edges[index + 1];
    const int64_t output = output_bytes(work, index);
    const int64_t all = plim__add_saturating_i64(input, output);
    plan->in_memory = work->most_rows == 0 &&
                      plim__add_saturating_i64(all, pass_bytes(work, index)) <= available &&
                      plim__add_saturating_i64(output, pass_bytes(work, index + 1)) <= available;
    int64_t left = available - input - (plan->in_memory || work->scratch_counts ? output : 0);
    if (!layer->aggregates || to == 0) {
        *needed_out = available - left;
        return left >= 0;
    }
    const int64_t row = index > 0 ? 4 * layer->in
                                  : work->info->num_features *
                                        (int64_t)plim__feature_bytes(work->info->feature_type);
    const int64_t states = plim__mul_saturating_i64(work->own[index + 1], 4 * stored_floats(layer));
    if (work->scratch_counts && resident_bytes(work, index) > left)
        left -= states + states / 16;
    int64_t floats = left / (int64_t)PLIM__PAGE * (int64_t)(PLIM__PAGE / sizeof(float));
    if (work->most_rows > 0)
        floats = plim__min_i64(floats, work->most_rows / (int64_t)sizeof(float));
    if (work->capacity[index] > 0)
        floats = plim__min_i64(floats, work->capacity[index]);
    plan->capacity = floats;
    const int64_t lists =
        plim__mul_saturating_i64(plim__min_i64(work->info->num_edges, edges), work->edge_bytes);
    if (floats > 0)
        plan->choice =
            choose(layer, from, to, edges, plim__mul_saturating_i64(from, row), lists, floats);
    if (plan->choice.panels == 0) {
        *needed_out = available - left + matrix_bytes(minimum_floats(layer, from), 1);
        return false;
    }
    plan->stored_panels = plan->choice.panels - (plan->choice.blocks > 1 ? 0 : 1);
    plan->state_bytes = plan->stored_panels * store_bytes(work, index, plan->choice.width);
    return true;
}

/* Plans each layer within `available` bytes; false if that is too little. */
static bool fit_layers(const exact_work_t *work, int64_t available, fit_t *fit_out)
{
    fit_t fit = {.held = 0};
    int64_t held = 0, on_disk = 0;
    for (int i = 0; i < work->num_layers; i++) {
        plim__exact_plan_t *plan = &fit.plans[i];
        if (!fit_layer(work, i, available, held, plan, &fit.needed)) {
            *fit_out = fit;
            return false;
        }
        const int64_t output = output_bytes(work, i);
        const int64_t stored = plan->in_memory ? 0 : output;
        const int64_t kept = plan->in_memory || work->scratch_counts ? output : 0;
        const int64_t rows = (int64_t)plim__exact_resident_bytes(&plan->choice);
        fit.disk = plim__max_i64(fit.disk, on_disk + stored + plan->state_bytes);
        fit.held = plim__max_i64(fit.held, held + kept + rows);
        held = kept;
        on_disk = stored;
    }
    *fit_out = fit;
    return true;
}

/* The most nodes that a peer has of all. */
static int64_t most_own(int64_t num_nodes, int peers)
{
    const int shift = plim__exact_stripe_shift(num_nodes, peers);
    const int64_t stripes = plim__exact_stripe(shift, plim__max_i64(num_nodes - 1, 0)) + 1;
    return plim__min_i64(num_nodes, plim__exact_stripe_node(shift, (stripes + peers - 1) / peers));
}

static int64_t edge_bytes(const plim_dataset_info_t *info, const plim__exact_column_t *column)
{
    return (int64_t)plim__index_bytes(info->index_type) + column->bytes;
}

bool plim__exact_cost(const plim_job_t *job, const plim_dataset_info_t *info,
                      const plim_model_t *model, const plim__columns_t *columns,
                      int64_t num_outputs, int64_t available, plim__exact_cost_t *cost_out)
{
    const plim__exact_column_t column = plim__exact_column_of(info, model, columns);
    plim__exact_layer_t layers[PLIM_HOPS_MAX] = {{0}};
    fit_t fit;
    int num_layers;
    if (available < 0)
        return false;
    plim__exact_layers_shape(info, model, columns, num_outputs, false, &num_layers, layers);
    const plim__exact_sizes_t sizes =
        plim__exact_sizes_fit(job, info, &column, layers, num_layers, (size_t)available);
    exact_work_t work = {.info = info,
                         .num_layers = num_layers,
                         .layers = layers,
                         .range_rows = sizes.range_rows,
                         .edge_bytes = edge_bytes(info, &column),
                         .stored = sizes.peers > 1};
    for (int i = 0; i <= num_layers; i++) {
        work.count[i] = info->num_nodes;
        work.own[i] = most_own(info->num_nodes, sizes.peers);
        work.edges[i] = info->num_edges;
    }
    const int64_t buffers = (int64_t)plim__round_up(sizes.bytes, PLIM__PAGE);
    const int64_t reorder = (int64_t)plim__round_up(
        plim__exact_reorder_bytes(job, sizes.range_rows, layers[num_layers - 1].out), PLIM__PAGE);
    if (available < buffers + reorder || !fit_layers(&work, available - buffers - reorder, &fit))
        return false;
    *cost_out = (plim__exact_cost_t){
        .bytes = buffers + fit.held, .disk = fit.disk, .column_bytes = column.bytes};
    for (int i = 0; i < num_layers; i++) {
        const plim__exact_choice_t *choice = &fit.plans[i].choice;
        cost_out->layers[i].panels = choice->panels;
        cost_out->layers[i].blocks = choice->blocks;
        cost_out->layers[i].columns = choice->columns;
        cost_out->layers[i].stored = i < num_layers - 1 && !fit.plans[i].in_memory;
    }
    return true;
}

/* `available` bytes are left for the layers. The ledger holds the reserve of the whole line. */
static void log_plan(const plim__exact_t *exact, int64_t available, const fit_t *fit)
{
    const int64_t line = plim__ledger_line(exact->job->ledger);
    const int64_t used =
        line - available + fit->held - plim__ledger_reserve_bytes(exact->job->ledger);
    const int64_t total = plim__footprint_minimum(used, plim__job_threads(exact->job));
    char most[PLIM__SIZE_TEXT], limit[PLIM__SIZE_TEXT], bytes[PLIM__SIZE_TEXT], disk[64] = "";
    if (fit->disk > 0)
        (void)snprintf(disk, sizeof disk, ", and %s on disk between layers",
                       plim__size_text(fit->disk, bytes));
    plim__log(exact->job, PLIM_LOG_INFO, "planned: at most %s of %s%s",
              plim__size_text(plim__min_i64(total, line), most), plim__size_text(line, limit),
              disk);
}

static void log_layer(const plim__exact_t *exact, int index)
{
    const plim__exact_layer_t *layer = &exact->layers[index];
    const plim__exact_set_t *from = &exact->sets[index], *to = &exact->parts[index + 1];
    const plim__exact_choice_t *choice = &exact->plans[index].choice;
    const int64_t passes = choice->panels * choice->blocks;
    if (passes > 0)
        plim__log(exact->job, PLIM_LOG_INFO,
                  "exact layer %d: %lld nodes, %lld edges, in %lld pass%s: %lld of %lld columns, "
                  "of %lld of %lld nodes' rows, at a time",
                  index + 1, (long long)to->count, (long long)to->edges, (long long)passes,
                  passes == 1 ? "" : "es", (long long)choice->columns, (long long)layer->wide,
                  (long long)choice->rows, (long long)from->count);
}

/*
 * Plans all layers. Peers must have the same blocks and panels: all take the least capacity of any,
 * which fits on each, and so make the same choice.
 */
static plim_status_t fit_peers(plim__exact_t *exact, exact_work_t *work, int64_t available,
                               int64_t reorder, fit_t *fit_out)
{
    int64_t numbers[PLIM_HOPS_MAX + 1] = {0};
    plim_status_t status = PLIM_OK;
    for (int round = 0; round < (exact->peers != NULL ? 2 : 1); round++) {
        const int64_t planned = exact->params->most_bytes - (int64_t)exact->sizes.bytes;
        const bool fits = exact->params->most_bytes > 0 && planned < available &&
                          fit_layers(work, planned, fit_out);
        if (!fits && !fit_layers(work, available, fit_out))
            status = plim__ledger_refuse(
                exact->job->ledger, plim__dataset_path(exact->dataset), "exact evaluation",
                (size_t)plim__add_saturating_i64(fit_out->needed, reorder));
        for (int i = 0; i < exact->num_layers; i++)
            numbers[i] = fit_out->plans[i].capacity;
        numbers[exact->num_layers] = exact->sizes.range_rows;
        PLIM_TRY(plim__peers_agree(exact->peers, PLIM__STAGE_EVALUATION, status,
                                   exact->num_layers + 1, numbers, numbers, NULL));
        for (int i = 0; i < exact->num_layers; i++)
            work->capacity[i] = numbers[i];
    }
    exact->round_rows = numbers[exact->num_layers];
    return exact->round_rows > 0
               ? PLIM_OK
               : plim__fail(PLIM_ERR_DATA,
                            "the ranks agreed on %lld rows at a time, which is impossible",
                            (long long)exact->round_rows);
}

int64_t plim__exact_disk_together(const plim_job_t *job, const plim__file_system_t *system,
                                  int64_t bytes)
{
    const plim_transport_t *transport = &job->core->transport;
    return plim__mul_saturating_i64(bytes, system->network ? transport->num_ranks
                                                           : transport->local_ranks);
}

plim_status_t plim__exact_plan_layers(plim__exact_t *exact)
{
    const plim__exact_layer_t *last = &exact->layers[exact->num_layers - 1];
    const int64_t reorder =
        (int64_t)plim__exact_reorder_bytes(exact->job, exact->sizes.range_rows, last->out);
    const int64_t available = plim__ledger_available(exact->job->ledger) - reorder;
    const char *scratch = exact->params->scratch;
    plim__file_system_t system;
    fit_t fit;
    PLIM_TRY(plim__exact_agree(exact, plim__file_system(scratch, &system)));
    exact_work_t work = {.info = exact->info,
                         .num_layers = exact->num_layers,
                         .layers = exact->layers,
                         .range_rows = exact->sizes.range_rows,
                         .edge_bytes = edge_bytes(exact->info, &exact->sizes.column),
                         .most_rows = exact->params->most_rows,
                         .stored = exact->stored,
                         .scratch_counts = system.memory};
    for (int i = 0; i <= exact->num_layers; i++) {
        work.count[i] = exact->sets[i].count;
        work.own[i] = exact->parts[i].count;
        work.edges[i] = exact->sets[i].edges;
    }
    PLIM_TRY(fit_peers(exact, &work, available, reorder, &fit));
    if (!exact->params->quiet)
        log_plan(exact, available, &fit);
    for (int i = 0; i < exact->num_layers; i++) {
        exact->plans[i] = fit.plans[i];
        if (!exact->params->quiet)
            log_layer(exact, i);
    }
    const int64_t need = plim__exact_disk_together(exact->job, &system, fit.disk);
    return plim__exact_agree(
        exact, plim__file_check_space(scratch, need, scratch, "the layers in between need",
                                      "free some, or choose another `scratch` directory"));
}
