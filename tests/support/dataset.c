#include "support/dataset.h"

#include "base/fail.h"
#include "base/half.h"
#include "base/rng.h"
#include "store/labels.h"
#include "store/manifest.h"
#include "support/harness.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define BUFFER ((size_t)64 << 10)

plim_status_t test_column(plim__dataset_writer_t *writer, const char *name, plim__dtype_t type,
                          int num_dims, const int64_t *shape, const void *data, size_t size)
{
    plim__column_t *column;
    PLIM_TRY(
        plim__column_open(writer, name, type, num_dims, shape, (int64_t)size, BUFFER, &column));
    PLIM_TRY(plim__column_write(column, data, size));
    return plim__column_close(column);
}

static int compare(const void *a, const void *b)
{
    int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static plim_status_t write_lists(plim__dataset_writer_t *writer, const test_graph_t *graph,
                                 uint64_t key, int64_t *num_edges_out)
{
    int64_t n = graph->num_nodes;
    uint64_t counter = 0;
    int64_t *indptr = calloc((size_t)n + 1, sizeof *indptr);
    int32_t *indices = calloc((size_t)n * 12 + 1, sizeof *indices);
    for (int64_t v = 0; v < n; v++) {
        int64_t degree = (int64_t)plim__rng_below(key, &counter, 13);
        for (int64_t i = 0; i < degree; i++)
            indices[indptr[v] + i] = (int32_t)plim__rng_below(key, &counter, (uint64_t)n);
        qsort(indices + indptr[v], (size_t)degree, sizeof *indices, compare);
        indptr[v + 1] = indptr[v] + degree;
    }
    plim_status_t status = test_column(writer, "indptr", PLIM__NPY_I64, 1, (int64_t[]){n + 1},
                                       indptr, (size_t)(n + 1) * sizeof *indptr);
    if (status == PLIM_OK)
        status = test_column(writer, "indices", PLIM__NPY_I32, 1, (int64_t[]){-1}, indices,
                             (size_t)indptr[n] * sizeof *indices);
    *num_edges_out = indptr[n];
    free(indices);
    free(indptr);
    return status;
}

static plim_status_t write_features(plim__dataset_writer_t *writer, const test_graph_t *graph,
                                    uint64_t key)
{
    size_t count = (size_t)(graph->num_nodes * graph->num_features);
    size_t width = graph->half ? 2 : 4;
    char *data = calloc(count + 1, width);
    for (size_t i = 0; i < count; i++) {
        float value = (float)plim__rng_double(key, i) - 0.5f;
        uint16_t half = (uint16_t)(0x3800 + (plim__rng_u64(key, i) & 0x83ff)); /* ±0.5 … ±1 */
        memcpy(data + i * width, graph->half ? (const void *)&half : (const void *)&value, width);
    }
    plim_status_t status =
        test_column(writer, "features", graph->half ? PLIM__NPY_F16 : PLIM__NPY_F32, 2,
                    (int64_t[]){graph->num_nodes, graph->num_features}, data, count * width);
    free(data);
    return status;
}

static plim_status_t write_labels(plim__dataset_writer_t *writer, const test_graph_t *graph,
                                  int64_t rows, uint64_t key)
{
    static const char *const splits[] = {"train", "valid", "test"};
    int64_t *data = calloc((size_t)rows + 1, sizeof *data);
    uint64_t counter = 0;
    for (int64_t i = 0; i < rows; i++)
        data[i] =
            i % 7 == 3 ? -1 : (int64_t)plim__rng_below(key, &counter, (uint64_t)graph->num_classes);
    const plim__dtype_t type =
        graph->label_type != 0 ? graph->label_type : plim__label_type(graph->num_classes);
    void *narrow = calloc((size_t)rows + 1, sizeof *data);
    plim__labels_narrow(type, data, rows, narrow);
    plim_status_t status = test_column(writer, "labels", type, 1, &rows, narrow,
                                       (size_t)rows * plim__dtype_size(type));
    free(narrow);
    for (int64_t s = 0; s < 3 && status == PLIM_OK; s++) {
        int64_t count = 0;
        for (int64_t i = s; i < rows; i += 3)
            data[count++] = i;
        status = test_column(writer, splits[s], PLIM__NPY_I64, 1, &count, data,
                             (size_t)count * sizeof *data);
    }
    free(data);
    return status;
}

/* 0, step, 2 step … `last` under the given name. */
static plim_status_t write_steps(plim__dataset_writer_t *writer, const char *name, int64_t count,
                                 int64_t step, int64_t last)
{
    int64_t *data = calloc((size_t)count, sizeof *data);
    for (int64_t i = 0; i < count; i++)
        data[i] = i * step < last ? i * step : last;
    plim_status_t status =
        test_column(writer, name, PLIM__NPY_I64, 1, &count, data, (size_t)count * sizeof *data);
    free(data);
    return status;
}

/* Names the 7 types of edges, all alike. */
static plim_status_t write_type_names(plim__dataset_writer_t *writer, const char *name)
{
    const int64_t length = (int64_t)strlen(name), total = 7 * length;
    char *text = calloc((size_t)total + 1, 1);
    for (int i = 0; i < 7; i++)
        memcpy(text + i * length, name, (size_t)length);
    plim_status_t status =
        test_column(writer, PLIM__TYPE_TEXT, PLIM__NPY_U8, 1, &total, text, (size_t)total);
    free(text);
    return status == PLIM_OK ? write_steps(writer, PLIM__TYPE_OFFSETS, 8, length, total) : status;
}

static void put_value(plim__dtype_t type, void *to, int64_t at, int64_t value)
{
    if (type == PLIM__NPY_F16)
        ((uint16_t *)to)[at] = plim__f16_from_f32((float)value);
    else if (type == PLIM__NPY_F32)
        ((float *)to)[at] = (float)value;
    else if (type == PLIM__NPY_I32)
        ((int32_t *)to)[at] = (int32_t)value;
    else
        ((int64_t *)to)[at] = value;
}

static plim_status_t write_values(plim__dataset_writer_t *writer, const test_graph_t *graph,
                                  plim_column_t column, int64_t rows)
{
    const bool features = column == PLIM_EDGE_FEATURES;
    const int64_t width = features && graph->edge_width > 0 ? graph->edge_width : 1;
    const plim__dtype_t type = column == PLIM_EDGE_TYPE                    ? PLIM__NPY_I32
                               : column == PLIM_EDGE_WEIGHT                ? PLIM__NPY_F32
                               : !features || graph->edge_form == PLIM_I64 ? PLIM__NPY_I64
                               : graph->edge_form == PLIM_F16              ? PLIM__NPY_F16
                                                                           : PLIM__NPY_F32;
    const size_t bytes = (size_t)(rows * width) * plim__dtype_size(type);
    char *data = calloc(bytes + 1, 1);
    const bool drawable =
        graph->drawable && (column & (PLIM_EDGE_WEIGHT | PLIM_EDGE_TIME | PLIM_NODE_TIME)) != 0;
    for (int64_t i = 0; i < rows * width; i++)
        put_value(type, data, i,
                  drawable ? test_drawable_value(i)
                           : test_column_value(column, i / width, width, i % width));
    const plim_status_t status = test_column(
        writer, plim__column_names[__builtin_ctz((unsigned)column)], type,
        features && graph->edge_width > 0 ? 2 : 1, (int64_t[]){rows, width}, data, bytes);
    free(data);
    return status;
}

static plim_status_t write_columns(plim__dataset_writer_t *writer, const test_graph_t *graph,
                                   int64_t num_graphs)
{
    uint64_t key = plim__rng_key(graph->seed, 1, 2, 3);
    int64_t n = graph->num_nodes, num_edges;
    PLIM_TRY(write_lists(writer, graph, key, &num_edges));
    for (unsigned column = 1; column < 1u << PLIM_COLUMNS; column <<= 1)
        if ((graph->columns & column) != 0)
            PLIM_TRY(write_values(writer, graph, (plim_column_t)column,
                                  column == PLIM_NODE_TIME ? n : num_edges));
    if (graph->type_name != NULL)
        PLIM_TRY(write_type_names(writer, graph->type_name));
    if (graph->num_features > 0)
        PLIM_TRY(write_features(writer, graph, key + 1));
    if (graph->bare)
        return PLIM_OK;
    PLIM_TRY(write_labels(writer, graph, num_graphs > 0 ? num_graphs : n, key + 2));
    if (graph->ids)
        PLIM_TRY(write_steps(writer, "ids", n, 1000003, INT64_MAX));
    return num_graphs > 0 ? write_steps(writer, "graph_indptr", num_graphs + 1, 5, n) : PLIM_OK;
}

plim_status_t test_dataset_make(const plim_job_t *job, const char *path, const test_graph_t *graph)
{
    plim__dataset_writer_t *writer;
    int64_t num_graphs = graph->graphs ? (graph->num_nodes + 4) / 5 : 0;
    plim__dataset_facts_t facts = {.num_nodes = graph->num_nodes,
                                   .num_graphs = num_graphs,
                                   .num_classes = graph->bare ? 0 : graph->num_classes,
                                   .num_edge_types = (graph->columns & PLIM_EDGE_TYPE) != 0 ? 7 : 0,
                                   .feature_error = graph->half ? 0.1 / 3 : 0,
                                   .source = "test \"quoted\" \xc3\xa9",
                                   .options = graph->options != NULL ? graph->options : ""};
    PLIM_TRY(plim__dataset_begin(job, path, &writer));
    plim_status_t status = write_columns(writer, graph, num_graphs);
    if (status != PLIM_OK) {
        plim__dataset_abandon(writer);
        return status;
    }
    return plim__dataset_finish(writer, &facts);
}

test_place_t test_place_open(const test_graph_t *graph, int64_t line, int threads,
                             plim_io_engine_t engine)
{
    test_place_t place;
    test_directory_make(place.directory);
    (void)snprintf(place.path, sizeof place.path, "%s/graph", place.directory);
    place.job = test_job_make(line, threads, engine);
    assert_ok(test_dataset_make(&place.job, place.path, graph));
    assert_ok(plim_dataset_open(&place.job, place.path, &place.dataset));
    return place;
}

void test_place_close(test_place_t *place)
{
    plim_dataset_release(place->dataset);
    test_job_end(&place->job);
    test_directory_remove(place->directory);
}
