/* Graphs with lists of chosen lengths, in memory for comparing and on disk as a dataset. */
#ifndef PLIM_TESTS_LISTS_H
#define PLIM_TESTS_LISTS_H

#include <plimsoll/dataset.h>
#include <stddef.h>

typedef struct test_lists {
    int64_t num_nodes;
    int64_t *indptr;  /* (num_nodes + 1) */
    int64_t *indices; /* (indptr[num_nodes]) ascending in each list */
    /* Columns, or NULL: of edges, and of nodes. */
    float *weights;
    int64_t *times;
    int64_t *node_times;
} test_lists_t;

/*
 * Random lists: most of 0 … 20 entries, every `long_every`-th node (0: none) of 100 to
 * `longest`. Free with test_lists_free.
 */
test_lists_t test_lists_random(int64_t num_nodes, int64_t long_every, int64_t longest,
                               uint64_t seed);
/* Turns up to `most` entries of every `every`-th list into the node itself; lists still ascend. */
void test_lists_loops(test_lists_t *lists, int64_t every, int64_t most);

/* Weights, a third of them 0, and times, many of them equal. */
void test_lists_columns(test_lists_t *lists, uint64_t seed);

void test_lists_free(test_lists_t *lists);

/* Writes them as a dataset without features and labels. */
plim_status_t test_lists_write(const plim_job_t *job, const char *path, const test_lists_t *lists);

/* Overwrites the element at `position` of DIRECTORY/name (data from byte 4096 on), `size` bytes. */
void test_overwrite(const char *directory, const char *name, int64_t position, const void *value,
                    size_t size);

#endif
