#include "support/batches.h"

#include "base/half.h"
#include "base/rng.h"
#include "support/harness.h"

#include <stdlib.h>
#include <string.h>

static void *allocate(int64_t count, size_t size)
{
    void *memory = calloc((size_t)count + 1, size);
    assert_non_null(memory);
    return memory;
}

float test_hash_float(uint64_t a, uint64_t b, uint64_t c)
{
    return (float)(2 * plim__rng_double(plim__rng_key(7, a, b, c), 0) - 1);
}

static int64_t below(uint64_t a, uint64_t b, uint64_t c, int64_t bound)
{
    return (int64_t)(plim__rng_key(11, a, b, c) % (uint64_t)bound);
}

/* Every node met so far draws, as in native blocks. */
static void draw_hop(const test_batch_shape_t *shape, int hop, test_batch_t *made, int32_t *place)
{
    plim_batch_t *batch = &made->batch;
    plim_block_t *block = &batch->blocks[hop];
    const int64_t fanout = shape->fanout[hop];
    block->num_dst = batch->num_nodes;
    made->indptr[hop] = allocate(block->num_dst, sizeof(int32_t));
    made->indices[hop] = allocate(block->num_dst * fanout, sizeof(int32_t));
    made->nodes = realloc(made->nodes, (size_t)(block->num_dst * (fanout + 1) + 1) * 4);
    assert_non_null(made->nodes);
    int32_t edges = 0;
    for (int64_t v = 0; v < block->num_dst; v++) {
        const uint64_t node = (uint64_t)made->nodes[v];
        const int64_t drawn = shape->full ? fanout : below(node, (uint64_t)hop, 1, fanout + 1);
        for (int64_t k = 0; k < drawn; k++) {
            const int64_t source = below(node, (uint64_t)hop, 2 + (uint64_t)k, shape->num_nodes);
            if (place[source] < 0) {
                place[source] = (int32_t)batch->num_nodes;
                made->nodes[batch->num_nodes++] = (int32_t)source;
            }
            made->indices[hop][edges++] = place[source];
        }
        made->indptr[hop][v + 1] = edges;
    }
    block->num_edges = edges;
    block->num_src = batch->num_nodes;
    block->indptr = made->indptr[hop];
    block->indices = made->indices[hop];
}

static void draw_neighbours(const test_batch_shape_t *shape, int64_t first, int64_t count,
                            test_batch_t *made)
{
    int32_t *place = allocate(shape->num_nodes, sizeof(int32_t));
    memset(place, -1, (size_t)shape->num_nodes * sizeof(int32_t));
    made->nodes = allocate(count, sizeof(int32_t));
    for (int64_t i = 0; i < count; i++) {
        made->nodes[i] = (int32_t)(first + i);
        place[first + i] = (int32_t)i;
    }
    made->batch.num_nodes = count;
    made->batch.num_blocks = shape->num_hops;
    for (int hop = 0; hop < shape->num_hops; hop++)
        draw_hop(shape, hop, made, place);
    free(place);
}

/* Graph g has 0 … fanout[0] nodes, each with up to two neighbours in it. */
static void make_graphs(const test_batch_shape_t *shape, int64_t first, int64_t count,
                        test_batch_t *made)
{
    const int64_t most = shape->fanout[0];
    plim_batch_t *batch = &made->batch;
    made->graph_indptr = allocate(count + 1, sizeof(int32_t));
    made->nodes = allocate(count * most, sizeof(int32_t));
    made->indptr[0] = allocate(count * most + 1, sizeof(int32_t));
    made->indices[0] = allocate(count * most * 2, sizeof(int32_t));
    int32_t edges = 0;
    for (int64_t g = 0; g < count; g++) {
        const uint64_t id = (uint64_t)(first + g);
        const int64_t size = below(id, 0, 0, most + 1);
        const int64_t begin = batch->num_nodes;
        for (int64_t v = 0; v < size; v++) {
            made->nodes[begin + v] = (int32_t)((int64_t)id * most + v);
            const int64_t drawn = below(id, 1, (uint64_t)v, 3);
            for (int64_t k = 0; k < drawn; k++)
                made->indices[0][edges++] =
                    (int32_t)(begin + below(id, 2 + (uint64_t)k, (uint64_t)v, size));
            made->indptr[0][begin + v + 1] = edges;
        }
        batch->num_nodes += size;
        made->graph_indptr[g + 1] = (int32_t)batch->num_nodes;
    }
    batch->num_blocks = 1;
    batch->blocks[0] = (plim_block_t){batch->num_nodes, 0, batch->num_nodes, edges, NULL, NULL};
    batch->blocks[0].indptr = made->indptr[0];
    batch->blocks[0].indices = made->indices[0];
    batch->graph_indptr = made->graph_indptr;
}

static void set_value(plim_dtype_t type, void *values, int64_t at, float value)
{
    if (type == PLIM_F16)
        ((uint16_t *)values)[at] = plim__f16_from_f32(value);
    else
        ((float *)values)[at] = value;
}

static void fill_rows(const test_batch_shape_t *shape, test_batch_t *made)
{
    const int64_t count = made->batch.num_nodes;
    const int64_t width = shape->num_features;
    made->rows = allocate(count * width, sizeof(float));
    made->degrees = allocate(count, sizeof(int32_t));
    for (int64_t v = 0; v < count; v++) {
        const uint64_t node = (uint64_t)made->nodes[v];
        made->degrees[v] = (int32_t)(16 + below(node, 99, 0, 10));
        for (int64_t i = 0; i < width; i++) {
            const float value = test_hash_float(node, (uint64_t)i, 5);
            set_value(shape->row_type, made->rows, v * width + i, value);
        }
    }
    made->batch.nodes = made->nodes;
    made->batch.node_type = PLIM_I32;
    made->batch.rows = made->rows;
    made->batch.degrees = made->degrees;
}

static void set_categories(const plim__categories_t *categories, uint64_t a, uint64_t b,
                           int64_t *values)
{
    for (int c = 0; c < categories->columns; c++)
        values[c] = below(a, b, 43 + (uint64_t)c, categories->counts[c]);
}

/* What an edge carries is a function of its destination and its place in the list, as its source
 * is. */
static void fill_edge(const test_batch_shape_t *shape, test_batch_t *made, int64_t at,
                      uint64_t node, uint64_t place)
{
    const plim__categories_t categories = TEST_EDGE_CATEGORIES;
    made->edge_weights[at] = 0.6f + 0.5f * test_hash_float(node, place, 41);
    for (int64_t i = 0; i < TEST_EDGE_FEATURES; i++)
        set_value(shape->row_type, made->edge_features, at * TEST_EDGE_FEATURES + i,
                  test_hash_float(node, place, 60 + (uint64_t)i));
    made->edge_types[at] = below(node, place, 70, TEST_EDGE_TYPES);
    set_categories(&categories, node, place, made->edge_categories + at * categories.columns);
}

static void fill_columns(const test_batch_shape_t *shape, test_batch_t *made)
{
    const plim__categories_t edge_categories = TEST_EDGE_CATEGORIES;
    const plim__categories_t node_categories = TEST_NODE_CATEGORIES;
    const plim_batch_t *batch = &made->batch;
    int64_t edges = 0, at = 0;
    for (int i = 0; i < batch->num_blocks; i++)
        edges += batch->blocks[i].num_edges;
    made->edge_weights = allocate(edges, sizeof(float));
    made->edge_features = allocate(edges * TEST_EDGE_FEATURES, sizeof(float));
    made->edge_types = allocate(edges, sizeof(int64_t));
    made->edge_categories = allocate(edges * edge_categories.columns, sizeof(int64_t));
    for (int i = 0; i < batch->num_blocks; i++)
        for (int64_t v = 0; v < batch->blocks[i].num_dst; v++)
            for (int32_t e = made->indptr[i][v]; e < made->indptr[i][v + 1]; e++, at++)
                fill_edge(shape, made, at, (uint64_t)made->nodes[v],
                          (uint64_t)(e - made->indptr[i][v]) * 8 + (uint64_t)i);
    made->node_categories = allocate(batch->num_nodes * node_categories.columns, sizeof(int64_t));
    made->weight_sums = allocate(batch->num_nodes, sizeof(float));
    for (int64_t v = 0; v < batch->num_nodes; v++) {
        const uint64_t node = (uint64_t)made->nodes[v];
        made->weight_sums[v] = 9 + 5 * test_hash_float(node, 0, 42);
        set_categories(&node_categories, node, 1,
                       made->node_categories + v * node_categories.columns);
    }
    made->columns = (plim__batch_columns_t){
        .edge_weights = made->edge_weights,
        .weight_sums = shape->graphs ? NULL : made->weight_sums,
        .edge_features = made->edge_features,
        .edge_types = made->edge_types,
        .edge_categories = made->edge_categories,
        .node_categories = made->node_categories,
    };
}

plim__columns_t test_columns_of(plim_model_kind_t kind, plim_dtype_t type)
{
    plim__columns_t columns = {.edge_feature_type = type};
    columns.edge_weights = kind == PLIM_GCN;
    if (kind == PLIM_GINE || kind == PLIM_GAT || kind == PLIM_GATV2)
        columns.edge_features = TEST_EDGE_FEATURES;
    if (kind == PLIM_RGCN) {
        columns.edge_types = TEST_EDGE_TYPES;
        columns.bases = 3;
    }
    return columns;
}

void test_batch_make(const test_batch_shape_t *shape, int64_t first, int64_t count,
                     test_batch_t *batch_out)
{
    *batch_out = (test_batch_t){.batch = {.last_part = true, .batch_seeds = count}};
    batch_out->batch.num_seeds = count;
    if (shape->graphs)
        make_graphs(shape, first, count, batch_out);
    else
        draw_neighbours(shape, first, count, batch_out);
    fill_rows(shape, batch_out);
    fill_columns(shape, batch_out);
}

void test_batch_free(test_batch_t *batch)
{
    for (int hop = 0; hop < PLIM_HOPS_MAX; hop++) {
        free(batch->indptr[hop]);
        free(batch->indices[hop]);
    }
    free(batch->nodes);
    free(batch->degrees);
    free(batch->graph_indptr);
    free(batch->rows);
    free(batch->edge_weights);
    free(batch->weight_sums);
    free(batch->edge_features);
    free(batch->edge_types);
    free(batch->edge_categories);
    free(batch->node_categories);
}
