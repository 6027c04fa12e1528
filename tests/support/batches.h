/*
 * Batches made by hand: neighbourhoods drawn from a hash of (hop, node), so that a seed has the
 * same one whatever batch it is in.
 */
#ifndef PLIM_TESTS_BATCHES_H
#define PLIM_TESTS_BATCHES_H

#include "nn/model.h"

typedef struct test_batch_shape {
    int64_t num_nodes; /* of the graph */
    int64_t num_features;
    plim_dtype_t row_type;
    int num_hops;
    int64_t fanout[PLIM_HOPS_MAX]; /* a node draws 0 … fanout neighbours, */
    bool full;                     /* or as many as fanout */
    bool graphs;                   /* seeds are graphs of up to fanout[0] nodes, one block */
} test_batch_shape_t;

typedef struct test_batch {
    plim_batch_t batch;
    int32_t *nodes;
    int32_t *indptr[PLIM_HOPS_MAX];
    int32_t *indices[PLIM_HOPS_MAX];
    int32_t *degrees;
    int32_t *graph_indptr;
    void *rows;
    plim__batch_columns_t columns; /* all of them */
    float *edge_weights, *weight_sums;
    void *edge_features;
    int64_t *edge_types, *edge_categories, *node_categories;
} test_batch_t;

/* The columns that batches have. Features are of row_type. */
#define TEST_EDGE_FEATURES 5
#define TEST_EDGE_TYPES 4
#define TEST_EDGE_CATEGORIES                                                                       \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            3, 4                                                                                   \
        }                                                                                          \
    }
#define TEST_NODE_CATEGORIES                                                                       \
    {                                                                                              \
        3,                                                                                         \
        {                                                                                          \
            5, 2, 7                                                                                \
        }                                                                                          \
    }

/* The batch of seeds first … first + count - 1. */
void test_batch_make(const test_batch_shape_t *shape, int64_t first, int64_t count,
                     test_batch_t *batch_out);
void test_batch_free(test_batch_t *batch);

/* The columns of edges that a model of this kind may read, of those above; none for others. */
plim__columns_t test_columns_of(plim_model_kind_t kind, plim_dtype_t type);

/* In [-1, 1), of three numbers. */
float test_hash_float(uint64_t a, uint64_t b, uint64_t c);

#endif
