/* Models with weights by PyG's names, computed by plain loops in double precision. */
#ifndef PLIM_TESTS_REFERENCE_H
#define PLIM_TESTS_REFERENCE_H

#include "support/loader.h"

#include "nn/model.h"

#define TEST_PARAMETERS_MAX 64

/* A model with weights of all names that PyG would give it. */
typedef struct test_weights {
    plim_model_t model;
    plim__columns_t columns;
    int64_t num_features;
    int64_t num_outputs;
    int count;
    plim__parameter_t table[TEST_PARAMETERS_MAX];
} test_weights_t;

/* Weights of a model, drawn once and for all. */
test_weights_t test_weights_make(const plim_model_t *model, int64_t num_features,
                                 int64_t num_outputs);
/* The same for a model that reads columns of edges; it has no reference. */
test_weights_t test_weights_of(const plim_model_t *model, const plim__columns_t *columns,
                               int64_t num_features, int64_t num_outputs);
void test_weights_free(test_weights_t *weights);

/* (nodes, width) after so many layers; the caller's. Not for datasets of many graphs. */
double *test_reference(const test_weights_t *weights, const test_loader_t *world, int layers);

#endif
