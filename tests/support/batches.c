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
            if (shape->row_type == PLIM_F16)
                ((uint16_t *)made->rows)[v * width + i] = plim__f16_from_f32(value);
            else
                ((float *)made->rows)[v * width + i] = value;
        }
    }
    made->batch.nodes = made->nodes;
    made->batch.rows = made->rows;
    made->batch.degrees = made->degrees;
}

/* A function of the edge's destination and its place in the list, as its source is. */
static void fill_columns(const test_batch_shape_t *shape, test_batch_t *made)
{
    const plim_batch_t *batch = &made->batch;
    int64_t edges = 0, at = 0;
    for (int i = 0; i < batch->num_blocks; i++)
        edges += batch->blocks[i].num_edges;
    made->edge_weights = allocate(edges, sizeof(float));
    for (int i = 0; i < batch->num_blocks; i++)
        for (int64_t v = 0; v < batch->blocks[i].num_dst; v++)
            for (int32_t e = made->indptr[i][v]; e < made->indptr[i][v + 1]; e++, at++) {
                const uint64_t node = (uint64_t)made->nodes[v];
                const uint64_t place = (uint64_t)(e - made->indptr[i][v]) * 8 + (uint64_t)i;
                made->edge_weights[at] = 0.6f + 0.5f * test_hash_float(node, place, 41);
            }
    made->columns.edge_weights = made->edge_weights;
    if (shape->graphs)
        return;
    made->weight_sums = allocate(batch->num_nodes, sizeof(float));
    for (int64_t v = 0; v < batch->num_nodes; v++)
        made->weight_sums[v] = 9 + 5 * test_hash_float((uint64_t)made->nodes[v], 0, 42);
    made->columns.weight_sums = made->weight_sums;
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
}
