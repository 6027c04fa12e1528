/*
 * The column of edges that a layer reads. It is streamed along with the lists, in the same chunks
 * of entries:
 *
 *     lists    | entries start … stop |  indices.npy
 *     edges    | entries start … stop |  edge_features.npy, edge_weight.npy or edge_type.npy
 *
 * Some layers need totals of a whole list before its first edge is added: how many edges have each
 * type, the mean of the features of the edges from other nodes, or the weight of the last
 * self-loop. A list that fits in a chunk is traversed twice; a longer one is read beforehand.
 */
#include "infer/exact_internal.h"

#include "base/check.h"
#include "base/fail.h"
#include "base/job.h"
#include "io/npy.h"
#include "source/row_form.h"

#include <math.h>
#include <string.h>

plim__exact_column_t plim__exact_column_of(const plim_dataset_info_t *info,
                                           const plim_model_t *model,
                                           const plim__columns_t *columns)
{
    const bool attends = model->kind == PLIM_GAT || model->kind == PLIM_GATV2;
    plim__exact_column_t column = {.column = 0};
    if (columns->edge_weights) {
        column.column = PLIM_EDGE_WEIGHT;
        column.totals = 1;
    } else if (columns->edge_features > 0 || columns->edge_categories.columns > 0) {
        column.column = PLIM_EDGE_FEATURES;
        column.totals = attends ? columns->edge_features + 1 : 0; /* the mean, and a count */
        column.categories = columns->edge_categories.columns > 0 ? &columns->edge_categories : NULL;
    } else if (columns->edge_types > 0) {
        column.column = PLIM_EDGE_TYPE;
        column.totals = columns->edge_types;
    } else {
        return column;
    }
    const plim__row_form_t form = plim__column_form(info, column.column);
    column.type = form.type;
    column.entries = form.num_features;
    column.bytes = (int64_t)form.bytes;
    return column;
}

bool plim__exact_edges_next(void *context, plim__exact_chunk_t *chunk_out)
{
    const plim__exact_lists_t *lists = context;
    const plim__exact_t *exact = lists->exact;
    const int64_t bytes = (int64_t)plim__index_bytes(exact->info->index_type);
    const int64_t edge = exact->sizes.column.bytes;
    if (!plim__exact_lists_next(context, chunk_out))
        return false;
    chunk_out->offset = PLIM__NPY_HEADER + (chunk_out->offset - PLIM__NPY_HEADER) / bytes * edge;
    chunk_out->size = chunk_out->size / bytes * edge;
    return true;
}

/* Records an edge that is not what dataset.json says. */
static void damage(plim__exact_t *exact, int64_t edge)
{
    atomic_store_explicit(&exact->damaged_edge, edge, memory_order_relaxed);
}

/* The type of an edge; 0 for an invalid one, which is recorded. */
static int32_t type_at(plim__exact_t *exact, int64_t edge, const char *from)
{
    int32_t type;
    memcpy(&type, from, sizeof type);
    if (type >= 0 && type < exact->params->columns.edge_types)
        return type;
    damage(exact, edge);
    return 0;
}

/* The values of an edge as floats. */
static void load_values(const plim__exact_t *exact, const char *from, float *to)
{
    const plim__exact_column_t *column = &exact->sizes.column;
    if (column->type == PLIM_F16)
        plim__half_widen(exact->half_path, (const uint16_t *)(const void *)from, to,
                         column->entries);
    else
        memcpy(to, from, (size_t)column->bytes);
}

/* Adds an edge's values to the sums before the count. */
static void add_values(const plim__exact_t *exact, const char *from, float *totals)
{
    const int64_t entries = exact->sizes.column.entries;
    if (exact->sizes.column.type == PLIM_F16) {
        for (int64_t k = 0; k < entries; k++) {
            float value;
            plim__half_widen(exact->half_path, (const uint16_t *)(const void *)from + k, &value, 1);
            totals[k] += value;
        }
    } else {
        for (int64_t k = 0; k < entries; k++)
            totals[k] += ((const float *)(const void *)from)[k];
    }
    totals[entries]++;
}

static void begin_totals(const plim__exact_t *exact, float *totals)
{
    memset(totals, 0, (size_t)exact->sizes.column.totals * sizeof *totals);
    if (exact->sizes.column.column == PLIM_EDGE_WEIGHT)
        totals[0] = 1;
}

/* Goes over entries [first, first + count) of the list of `node`. */
static void add_totals(plim__exact_t *exact, int64_t node, int64_t first, int64_t count,
                       const char *entries, const char *edges, float *totals)
{
    const plim__exact_column_t *column = &exact->sizes.column;
    for (int64_t i = 0; i < count; i++, edges += column->bytes) {
        const bool loop = plim__exact_entry(exact, entries, i) == node;
        if (column->column == PLIM_EDGE_TYPE)
            totals[type_at(exact, first + i, edges)]++;
        else if (column->column == PLIM_EDGE_WEIGHT && loop)
            memcpy(totals, edges, sizeof *totals);
        else if (column->column == PLIM_EDGE_FEATURES && !loop)
            add_values(exact, edges, totals);
    }
}

static void end_totals(const plim__exact_t *exact, float *totals)
{
    const plim__exact_column_t *column = &exact->sizes.column;
    if (column->column != PLIM_EDGE_FEATURES)
        return;
    for (int64_t k = 0; k < column->entries && totals[column->entries] > 0; k++)
        totals[k] /= totals[column->entries];
}

void plim__exact_totals(plim__exact_t *exact, int64_t node, int64_t first, int64_t count,
                        const char *entries, const char *edges, float *totals)
{
    const plim__exact_column_t *column = &exact->sizes.column;
    if (column->column == PLIM_EDGE_TYPE) { /* resets only the types that the list has */
        for (int64_t i = 0; i < count; i++)
            totals[type_at(exact, first + i, edges + i * column->bytes)] = 0;
    } else {
        begin_totals(exact, totals);
    }
    add_totals(exact, node, first, count, entries, edges, totals);
    end_totals(exact, totals);
}

/* Reads `count` rows of `bytes` bytes from row `first` of a file on. */
static plim_status_t read_part(const plim__file_t *file, int64_t first, int64_t count,
                               int64_t bytes, char *buffer, const char **data_out)
{
    const int64_t unit = (int64_t)file->align, offset = PLIM__NPY_HEADER + first * bytes;
    const int64_t start = offset / unit * unit;
    *data_out = buffer + (offset - start);
    return plim__file_read_at(
        file, start, buffer,
        plim__round_up((size_t)(offset + count * bytes - start), (size_t)unit));
}

plim_status_t plim__exact_totals_long(plim__exact_t *exact, int64_t node)
{
    const plim__list_t list = plim__offsets_list(exact->offsets, node);
    const int64_t index = (int64_t)plim__index_bytes(exact->info->index_type);
    const int64_t bytes = exact->sizes.column.bytes;
    const int64_t most = exact->sizes.chunk / plim__max_i64(index, bytes);
    float *totals = plim__exact_totals_at(exact, exact->sizes.workers);
    begin_totals(exact, totals);
    for (int64_t done = 0; done < list.degree; done += most) {
        const int64_t first = list.start + done;
        const int64_t count = plim__min_i64(most, list.degree - done);
        const char *entries, *edges;
        PLIM_TRY(plim__job_check(exact->job));
        PLIM_TRY(read_part(&exact->indices, first, count, index, exact->long_entries, &entries));
        PLIM_TRY(read_part(&exact->column, first, count, bytes, exact->long_edges, &edges));
        add_totals(exact, node, first, count, entries, edges, totals);
    }
    end_totals(exact, totals);
    return plim__exact_damage(exact);
}

/* The rows of an edge's categories in the tables of embeddings, which follow each other. */
static void put_categories(plim__exact_t *exact, int64_t edge, const char *from, int32_t *rows)
{
    const plim__categories_t *categories = exact->sizes.column.categories;
    int64_t before = 0;
    for (int c = 0; c < categories->columns; c++) {
        int64_t value;
        memcpy(&value, from + (size_t)c * sizeof value, sizeof value);
        if (value < 0 || value >= categories->counts[c]) {
            damage(exact, edge);
            value = 0;
        }
        rows[c] = (int32_t)(before + value);
        before += categories->counts[c];
    }
}

void plim__exact_embed(const plim__exact_t *exact, const char *row, int64_t first, int64_t count,
                       float *to)
{
    const plim__categories_t *categories = exact->source.categories;
    const float *table = exact->embedding + first;
    memset(to, 0, (size_t)count * sizeof *to);
    for (int c = 0; c < categories->columns; c++) {
        int64_t value;
        memcpy(&value, row + (size_t)c * sizeof value, sizeof value);
        if (value < 0 || value >= categories->counts[c]) {
            atomic_store_explicit(&((plim__exact_t *)(uintptr_t)exact)->damaged_row, true,
                                  memory_order_relaxed);
            value = 0;
        }
        const float *chosen = table + value * exact->source.width;
        for (int64_t i = 0; i < count; i++)
            to[i] += chosen[i];
        table += categories->counts[c] * exact->source.width;
    }
}

void plim__exact_edge_put(plim__exact_t *exact, int64_t edge, const char *from, const float *totals,
                          plim__stream_edges_t *edges, int64_t at)
{
    const plim__exact_column_t *column = &exact->sizes.column;
    const bool own = from == NULL;
    if (column->column == PLIM_EDGE_WEIGHT) {
        if (own)
            edges->weights[at] = totals[0];
        else
            memcpy(&edges->weights[at], from, sizeof *edges->weights);
    } else if (column->column == PLIM_EDGE_TYPE) {
        edges->rows[at] = type_at(exact, edge, from);
        edges->weights[at] = 1 / totals[edges->rows[at]];
    } else {
        edges->weights[at] = own ? 1 : 0;
        if (!own && column->categories != NULL)
            put_categories(exact, edge, from, edges->rows + at * column->entries);
        else if (!own)
            load_values(exact, from, edges->values + at * column->entries);
        else if (column->totals > 0)
            memcpy(edges->values + at * column->entries, totals,
                   (size_t)column->entries * sizeof *totals);
    }
}

/* GAT: the product of att_edge and lin_edge, a column a head; else lin_edge, transposed. */
void plim__exact_terms_make(plim__exact_t *exact, const plim__exact_layer_t *layer)
{
    const int64_t rows = layer->term_rows, width = layer->term_width;
    if (rows == 0 || exact->sizes.column.categories != NULL)
        return;
    for (int64_t f = 0; f < rows; f++)
        for (int64_t j = 0; j < width; j++) {
            float sum = 0;
            if (layer->att_edge == NULL)
                sum = layer->term_weight[j * rows + f];
            else
                for (int64_t i = j * layer->channels; i < (j + 1) * layer->channels; i++)
                    sum += layer->att_edge[i] * layer->term_weight[i * rows + f];
            exact->table[f * width + j] = sum;
        }
}

plim__stream_terms_t plim__exact_terms(const plim__exact_t *exact, const plim__exact_panel_t *panel)
{
    const plim__exact_layer_t *layer = exact->layer;
    const int64_t first = layer->att_edge != NULL ? panel->head : panel->first;
    if (layer->term_rows == 0)
        return (plim__stream_terms_t){.entries = 0};
    return (plim__stream_terms_t){
        .entries = exact->sizes.column.entries,
        .stride = layer->term_width,
        .table =
            (exact->sizes.column.categories != NULL ? layer->term_weight : exact->table) + first,
        .bias = layer->term_bias != NULL ? layer->term_bias + first : NULL};
}
