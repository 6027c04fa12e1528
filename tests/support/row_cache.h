/* A row source with hot rows over a small dataset; its pages, dropped as the kernel would. */
#ifndef PLIM_TESTS_ROW_CACHE_H
#define PLIM_TESTS_ROW_CACHE_H

#include "support/features.h"

#include "base/node_set.h"
#include "feature/row_cache.h"

/* Two nodes in three are hot, or all. */
typedef struct test_hot {
    test_features_t world;
    plim__node_set_t set;
    plim__rows_disk_params_t params;
    char scratch[600];
    char log[4096]; /* all warnings */
} test_hot_t;

void test_hot_make(test_hot_t *hot, int64_t num_nodes, int64_t num_features, bool half, bool all,
                   plim_io_engine_t engine);
void test_hot_end(test_hot_t *hot);

plim__rows_t *test_hot_open(test_hot_t *hot);

/* Gathers every node once, as it is stored; returns how many of them came from memory. */
int64_t test_hot_gather(test_hot_t *hot, plim__rows_t *source);

/* How many nodes' rows are believed to be in memory. */
int64_t test_hot_held(test_hot_t *hot, plim__rows_t *source);

int64_t test_hot_num_pages(plim__rows_t *source);
char *test_hot_page(plim__rows_t *source, int64_t page);
void test_hot_drop(plim__rows_t *source, int64_t first_page, int64_t num_pages);

/* As worker 3. */
void test_hot_refresh(plim__rows_t *source);

#define TEST_CHUNK_PAGES ((int64_t)(PLIM__DROPPABLE_CHUNK / PLIM__PAGE))

/* Writes to a file of the dataset, or to the packed one. */
void test_hot_overwrite(const char *path, int64_t offset, const void *bytes, size_t size);
void test_hot_features_path(const test_hot_t *hot, char path_out[700]);

#endif
