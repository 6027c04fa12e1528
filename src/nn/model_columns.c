/*
 * The columns of a batch: each layer's part of the columns of edges, the terms that edges add to a
 * layer, and rows made of categories.
 */
#include "nn/model_internal.h"

#include "base/fail.h"

#include <stdio.h>
#include <string.h>

int64_t plim__categories_rows(const plim__categories_t *categories)
{
    int64_t rows = 0;
    for (int i = 0; i < categories->columns; i++)
        rows = plim__add_saturating_i64(rows, categories->counts[i]);
    return rows;
}

static plim_status_t missing(const char *what)
{
    return plim__fail(PLIM_ERR_USAGE, "the batch has no %s, which the model reads", what);
}

static plim_status_t check_categories(const plim__categories_t *categories, const int64_t *values,
                                      int64_t count, const char *what)
{
    if (categories->columns == 0)
        return PLIM_OK;
    if (values == NULL)
        return missing(what);
    for (int64_t i = 0; i < count; i++)
        for (int c = 0; c < categories->columns; c++) {
            const int64_t value = values[i * categories->columns + c];
            if (value < 0 || value >= categories->counts[c])
                return plim__fail(PLIM_ERR_DATA, "%s: column %d has the category %lld of %lld",
                                  what, c, (long long)value, (long long)categories->counts[c]);
        }
    return PLIM_OK;
}

static plim_status_t check_columns(const plim__model_t *model, int64_t num_nodes, int64_t num_edges,
                                   const plim__batch_columns_t *columns)
{
    const plim__columns_t *wanted = &model->params.columns;
    if (wanted->edge_weights && columns->edge_weights == NULL)
        return missing("weights of edges");
    if (wanted->edge_weights && columns->weight_sums == NULL && !model->params.graph_level)
        return missing("sums of the weights of edges");
    if (wanted->edge_features > 0 && columns->edge_features == NULL)
        return missing("features of edges");
    const plim__categories_t types = {wanted->edge_types > 0 ? 1 : 0, {wanted->edge_types}};
    PLIM_TRY(check_categories(&types, columns->edge_types, num_edges, "types of edges"));
    PLIM_TRY(check_categories(&wanted->edge_categories, columns->edge_categories, num_edges,
                              "categories of edges"));
    return check_categories(&wanted->node_categories, columns->node_categories, num_nodes,
                            "categories of nodes");
}

/* The columns of the edges from `first` on. */
static plim__edge_inputs_t inputs_from(const plim__model_t *model,
                                       const plim__batch_columns_t *columns, int64_t first,
                                       int64_t num_edges)
{
    const plim__columns_t *wanted = &model->params.columns;
    plim__edge_inputs_t inputs = {0};
    if (wanted->edge_weights)
        inputs.weights = columns->edge_weights + first;
    if (wanted->edge_features > 0) {
        const plim__element_t element =
            wanted->edge_feature_type == PLIM_F16 ? PLIM__F16 : PLIM__F32;
        const size_t row = (size_t)wanted->edge_features * plim__element_bytes(element);
        inputs.features = plim__matrix_make((char *)columns->edge_features + (size_t)first * row,
                                            num_edges, wanted->edge_features, element);
    }
    if (wanted->edge_types > 0)
        inputs.types = columns->edge_types + first;
    if (wanted->edge_categories.columns > 0)
        inputs.categories = columns->edge_categories + first * wanted->edge_categories.columns;
    return inputs;
}

plim_status_t plim__model_set_columns(plim__model_t *model, const plim_batch_t *batch,
                                      const plim__batch_columns_t *columns)
{
    static const plim__batch_columns_t none = {0};
    const plim__model_params_t *params = &model->params;
    const int count = params->model.num_layers;
    int64_t edges = 0;
    if (columns == NULL)
        columns = &none;
    for (int block = 0; block < batch->num_blocks; block++)
        edges += batch->blocks[block].num_edges;
    PLIM_TRY(check_columns(model, batch->num_nodes, edges, columns));
    model->weight_sums = columns->weight_sums;
    model->encoder.categories = columns->node_categories;
    int64_t first = 0;
    for (int block = 0; block < batch->num_blocks; block++) {
        const int64_t num_edges = batch->blocks[block].num_edges;
        const plim__edge_inputs_t inputs = inputs_from(model, columns, first, num_edges);
        for (int i = 0; i < count; i++)
            if (params->graph_level || i == count - 1 - block)
                model->layers[i].edges = inputs;
        first += num_edges;
    }
    return PLIM_OK;
}

/* Adds a table of embeddings for each column, one behind the other, by OGB's names; returns the
 * first. */
static plim__parameter_t *add_embeddings(plim__table_t *table, const plim__categories_t *categories,
                                         const char *list, int index, const char *name,
                                         int64_t width)
{
    plim__parameter_t *first = NULL;
    for (int c = 0; c < categories->columns; c++) {
        char full[PLIM__NAME_MAX];
        (void)snprintf(full, sizeof full, "%s.%d.weight", name, c);
        plim__parameter_t *entry =
            plim__table_add(table, plim__initial_glorot(categories->counts[c], width), list, index,
                            full, categories->counts[c], width, 0);
        first = c == 0 ? entry : first;
    }
    return first;
}

void plim__terms_parameters(const plim__model_t *model, plim__table_t *table, plim__layer_t *layer,
                            const char *linear, plim__initial_t initial, bool bias, int64_t width)
{
    const plim__columns_t *columns = &model->params.columns;
    plim__edge_terms_t *terms = &layer->terms;
    *terms = (plim__edge_terms_t){.width = width};
    if (columns->edge_categories.columns > 0) {
        terms->entries = columns->edge_categories.columns;
        terms->table_rows = plim__categories_rows(&columns->edge_categories);
        layer->term_weight = add_embeddings(table, &columns->edge_categories, "convs", layer->index,
                                            "bond_encoder.bond_embedding_list", width);
        return;
    }
    char name[PLIM__NAME_MAX];
    terms->entries = terms->table_rows = columns->edge_features;
    (void)snprintf(name, sizeof name, "%s.weight", linear);
    layer->term_weight = plim__table_add(table, initial, "convs", layer->index, name, width,
                                         columns->edge_features, 0);
    if (!bias)
        return;
    (void)snprintf(name, sizeof name, "%s.bias", linear);
    layer->term_bias = plim__table_add(table, initial, "convs", layer->index, name, width, 0, 0);
}

void plim__place_terms(const plim__model_t *model, plim__layer_t *layer,
                       plim__workspace_t *workspace)
{
    const plim__side_t kept = plim__side_kept(model, layer);
    const plim__edge_terms_t *terms = &layer->terms;
    const int64_t edges = layer->hop.num_edges;
    if (model->params.columns.edge_categories.columns > 0) {
        layer->term_rows =
            (int32_t *)(void *)plim__place_floats(workspace, kept, edges, terms->entries);
        return;
    }
    if (model->params.columns.edge_feature_type == PLIM_F16)
        layer->term_values = plim__place_floats(workspace, kept, edges, terms->entries);
    layer->term_table = plim__place_floats(workspace, kept, terms->table_rows, terms->width);
}

/* The rows of the tables of embeddings that the categories name. */
static void choose_rows(const plim__categories_t *categories, const int64_t *values, int64_t count,
                        int32_t *rows)
{
    for (int64_t i = 0; i < count; i++) {
        int64_t first = 0;
        for (int c = 0; c < categories->columns; c++) {
            *rows++ = (int32_t)(first + *values++);
            first += categories->counts[c];
        }
    }
}

static void add_transposed(const float *from, int64_t rows, int64_t columns, float *to)
{
    for (int64_t row = 0; row < rows; row++)
        for (int64_t column = 0; column < columns; column++)
            to[column * rows + row] += from[row * columns + column];
}

void plim__terms_inputs(plim__model_t *model, plim__layer_t *layer)
{
    plim__edge_terms_t *terms = &layer->terms;
    const int64_t edges = layer->hop.num_edges;
    if (model->params.columns.edge_categories.columns > 0) {
        choose_rows(&model->params.columns.edge_categories, layer->edges.categories, edges,
                    layer->term_rows);
        terms->rows = layer->term_rows;
        return;
    }
    terms->values = layer->edges.features.data;
    if (layer->term_values != NULL) {
        plim__matrix_t values =
            plim__matrix_make(layer->term_values, edges, terms->entries, PLIM__F32);
        plim__matrix_convert(model->team, &layer->edges.features, &values);
        terms->values = layer->term_values;
    }
}

void plim__terms_prepare(plim__model_t *model, plim__layer_t *layer)
{
    plim__edge_terms_t *terms = &layer->terms;
    plim__terms_inputs(model, layer);
    if (terms->rows != NULL) {
        terms->table = layer->term_weight->value;
        return;
    }
    memset(layer->term_table, 0,
           (size_t)(terms->table_rows * terms->width) * sizeof *layer->term_table);
    add_transposed(layer->term_weight->value, terms->width, terms->table_rows, layer->term_table);
    terms->table = layer->term_table;
    terms->bias = layer->term_bias != NULL ? layer->term_bias->value : NULL;
}

size_t plim__terms_scratch(const plim__edge_terms_t *terms)
{
    const size_t table = plim__mul_saturating_size((size_t)terms->table_rows, (size_t)terms->width);
    return plim__add_saturating_size(plim__mul_saturating_size(table, sizeof(float)),
                                     plim__edge_terms_scratch(terms->table_rows, terms->width));
}

float *plim__terms_gradient(const plim__layer_t *layer)
{
    const plim__edge_terms_t *terms = &layer->terms;
    if (terms->rows != NULL)
        return layer->term_weight->gradient;
    memset(layer->term_scratch, 0, (size_t)(terms->table_rows * terms->width) * sizeof(float));
    return layer->term_scratch;
}

void *plim__terms_partials(const plim__layer_t *layer)
{
    return layer->term_scratch + layer->terms.table_rows * layer->terms.width;
}

void plim__terms_learn(const plim__layer_t *layer)
{
    const plim__edge_terms_t *terms = &layer->terms;
    if (terms->rows == NULL)
        add_transposed(layer->term_scratch, terms->table_rows, terms->width,
                       layer->term_weight->gradient);
}

void plim__encoder_parameters(plim__model_t *model, plim__table_t *table)
{
    const plim__categories_t *categories = &model->params.columns.node_categories;
    plim__encoder_t *encoder = &model->encoder;
    if (categories->columns == 0)
        return;
    encoder->terms = (plim__edge_terms_t){.entries = categories->columns,
                                          .table_rows = plim__categories_rows(categories),
                                          .width = model->params.model.hidden};
    encoder->embedding = add_embeddings(table, categories, "atom_encoder", -1,
                                        "atom_embedding_list", encoder->terms.width);
}

void plim__place_encoder(plim__model_t *model, plim__workspace_t *workspace)
{
    plim__encoder_t *encoder = &model->encoder;
    const plim__edge_terms_t *terms = &encoder->terms;
    const plim__side_t side = model->pass.training ? PLIM__FRONT : PLIM__BACK;
    const int64_t rows = model->layers[0].hop.num_src;
    if (terms->entries == 0)
        return;
    encoder->rows = (int32_t *)(void *)plim__place_floats(workspace, side, rows, terms->entries);
    model->layers[0].input =
        plim__place_matrix(workspace, side, rows, terms->width, model->element);
}

void plim__place_encoder_back(plim__model_t *model, plim__workspace_t *workspace)
{
    const plim__edge_terms_t *terms = &model->encoder.terms;
    const plim__side_t side = plim__side_back(&model->layers[0]);
    if (terms->entries > 0)
        model->encoder.scratch = plim__workspace_take(
            workspace, side, plim__edge_terms_scratch(terms->table_rows, terms->width));
}

void plim__encoder_forward(plim__model_t *model)
{
    plim__encoder_t *encoder = &model->encoder;
    if (encoder->terms.entries == 0)
        return;
    choose_rows(&model->params.columns.node_categories, encoder->categories,
                model->layers[0].hop.num_src, encoder->rows);
    encoder->terms.rows = encoder->rows;
    encoder->terms.table = encoder->embedding->value;
    plim__terms_forward(model->team, &encoder->terms, &model->layers[0].input);
    plim__model_lap(model, &model->sparse_ns);
}

void plim__encoder_backward(plim__model_t *model)
{
    plim__encoder_t *encoder = &model->encoder;
    plim__layer_t *first = &model->layers[0];
    if (encoder->terms.entries == 0)
        return;
    const plim__matrix_t dinput =
        plim__matrix_make(first->dinput, first->hop.num_src, first->in, PLIM__F32);
    plim__terms_backward(model->team, &encoder->terms, &dinput, encoder->embedding->gradient,
                         encoder->scratch);
    plim__model_lap(model, &model->sparse_ns);
}
