/* A small dataset with its features beside it, and rows compared to them. */
#ifndef PLIM_TESTS_FEATURES_H
#define PLIM_TESTS_FEATURES_H

#include "support/harness.h"

#include "source/rows.h"

/* A dataset and all its features, as they are stored. */
typedef struct test_features {
    char directory[512];
    char path[600];
    plim_job_t job; /* two threads */
    plim_dataset_t *dataset;
    plim_dtype_t type;
    int64_t num_nodes;
    int64_t num_features;
    char *features; /* (num_nodes, num_features) */
} test_features_t;

void test_features_make(test_features_t *world, int64_t num_nodes, int64_t num_features, bool half,
                        plim_io_engine_t engine);
void test_features_end(test_features_t *world);

/* Fails when a row is not the node's, in the wanted type, to the bit. */
void test_features_compare(const test_features_t *world, const int64_t *nodes, int64_t count,
                           plim_dtype_t wanted, const void *rows);

/* Gathers as f16 and as f32 into memory with a guard behind it, and compares. */
void test_features_gather(const test_features_t *world, plim__rows_t *source, int worker,
                          const int64_t *nodes, int64_t count);

/* By workers 0 and 1: counts 0 and 1; ascending, unsorted and repeated nodes; first and last. */
void test_features_check(const test_features_t *world, plim__rows_t *source);

#endif
