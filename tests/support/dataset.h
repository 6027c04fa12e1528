/* Small datasets for tests, made by the library's own writer. */
#ifndef PLIM_TESTS_DATASET_H
#define PLIM_TESTS_DATASET_H

#include "store/dataset_writer.h"

/* Writes a whole column. */
plim_status_t test_column(plim__dataset_writer_t *writer, const char *name, plim__dtype_t type,
                          int num_dims, const int64_t *shape, const void *data, size_t size);

typedef struct test_graph {
    int64_t num_nodes;
    int64_t num_features;
    int64_t num_classes;
    bool half;          /* features as f16 */
    bool graphs;        /* the nodes are parted into graphs of 5 (the last one may be smaller) */
    bool ids;           /* with ids.npy */
    bool bare;          /* neither labels nor splits, nor graphs */
    unsigned columns;   /* a set of plim_column_t, with the values of test_column_value */
    int64_t edge_width; /* features of an edge; 0: one, in a file of one dimension */
    plim_dtype_t edge_form; /* their type; 0: PLIM_F32 */
    const char *type_name;  /* the name of each of the 7 types of edges; NULL: no names */
    bool drawable;          /* weights and times have the values of test_drawable_value instead */
    uint64_t seed;
    const char *options;      /* provenance */
    plim__dtype_t label_type; /* of labels.npy; 0: the smallest */
} test_graph_t;

/* The value of a column for an edge (or node) and, of features, one of `width`; exact in any type.
 */
static inline int64_t test_column_value(plim_column_t column, int64_t at, int64_t width,
                                        int64_t feature)
{
    return column == PLIM_EDGE_TYPE ? (at * 5 + at / 3) % 7
           : column == PLIM_EDGE_ID ? at ^ 1
                                    : (at * (width > 0 ? width : 1) + feature) * 7 % 2039 - 600;
}

/* Weights that are not negative, some of them 0, and times, many of them equal. */
static inline int64_t test_drawable_value(int64_t at)
{
    return (at * 7 % 2039 + at / 5) % 10;
}

/* A random graph of that form: degrees 0 … 12, lists ascending with some duplicates and self-loops,
 * every seventh label -1, splits of thirds. */
plim_status_t test_dataset_make(const plim_job_t *job, const char *path, const test_graph_t *graph);

/* A dataset made from `graph` in a directory of its own, open. */
typedef struct test_place {
    char directory[512];
    char path[600];
    plim_job_t job;
    plim_dataset_t *dataset;
} test_place_t;

test_place_t test_place_open(const test_graph_t *graph, int64_t line, int threads,
                             plim_io_engine_t engine);
void test_place_close(test_place_t *place);

#endif
