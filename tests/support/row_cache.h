/* A row source with cache rows over a small dataset; its pages, dropped as the kernel would. */
#ifndef PLIM_TESTS_ROW_CACHE_H
#define PLIM_TESTS_ROW_CACHE_H

#include "support/features.h"

#include "base/node_set.h"
#include "source/row_cache.h"
#include "source/topology.h"
#include "source/working_set.h"

/* Two nodes in three are cache, or all. */
typedef struct test_row_cache {
    test_features_t world;
    plim__node_set_t set;
    plim__source_params_t params;
    plim__offsets_t *offsets; /* NULL: not read yet */
    plim__topology_t *lists;  /* all, in memory; NULL: not read yet */
    char scratch[600];
    char log[4096]; /* all warnings */
} test_row_cache_t;

void test_row_cache_make(test_row_cache_t *cache, int64_t num_nodes, int64_t num_features,
                         bool half, bool all, plim_io_engine_t engine);
void test_row_cache_end(test_row_cache_t *cache);

/* Opens the working set of cache->set in scratch, or makes it with made-up classes, with all lists
 * but each seventh node's. True if it was there. */
#define TEST_ROW_CACHE_KEY 0xabcdef
bool test_row_cache_pack(test_row_cache_t *cache);
int test_row_cache_class(int64_t node); /* half of the nodes are in the last one */

plim__rows_t *test_row_cache_open(test_row_cache_t *cache);

/* Lists on disk with the working set, and so many bytes of cache; cache->lists is read now. */
plim__topology_t *test_row_cache_open_lists(test_row_cache_t *cache, size_t cache_bytes);

/* Draws from all lists, or from the packed ones alone, by several hops, and compares with those in
 * memory. Returns how many lists were cached in one of these hops. */
int64_t test_row_cache_draw(test_row_cache_t *cache, plim__topology_t *source, bool packed);

/* Gathers every node once, as it is stored; returns how many of them came from memory. */
int64_t test_row_cache_gather(test_row_cache_t *cache, plim__rows_t *source);

/* How many nodes' rows are believed to be in memory. */
int64_t test_row_cache_held(test_row_cache_t *cache, plim__rows_t *source);

int64_t test_row_cache_num_pages(plim__rows_t *source);
char *test_row_cache_page(plim__rows_t *source, int64_t page);
void test_row_cache_drop(plim__rows_t *source, int64_t first_page, int64_t num_pages);

/* As worker 3. */
void test_row_cache_refresh(plim__rows_t *source);

#define TEST_CHUNK_PAGES ((int64_t)(PLIM__DROPPABLE_CHUNK / PLIM__PAGE))

/* Writes to a file of the dataset, or to that of the working set. */
void test_row_cache_overwrite(const char *path, int64_t offset, const void *bytes, size_t size);
void test_row_cache_features_path(const test_row_cache_t *cache, char path_out[700]);

#endif
