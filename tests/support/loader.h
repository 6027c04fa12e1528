/* Loaders under test: a dataset with its files in memory, plans made by hand, checks and hashes. */
#ifndef PLIM_TESTS_LOADER_H
#define PLIM_TESTS_LOADER_H

#include "load/plan_data.h"
#include "support/dataset.h"
#include "support/harness.h"

#define TEST_NODES 3000
#define TEST_FEATURES 7
#define TEST_CLASSES 5

/* A group's fixtures: a fresh directory for all of its datasets. */
extern char test_loader_directory[512];
int test_loader_begin(void **state);
int test_loader_end(void **state);

/* A dataset, and its files in memory for those who check. */
typedef struct test_loader {
    plim_job_t job;
    plim_dataset_t *dataset;
    const plim_dataset_info_t *info;
    int64_t *indptr;
    int32_t *indices;
    char *features;
    int64_t *labels;
    int64_t *splits[3];
    int64_t *graph_indptr;
} test_loader_t;

/* Opens the dataset of that name in the group's directory, made from `graph` unless it is there. */
test_loader_t test_loader_open(const char *name, const test_graph_t *graph, int threads,
                               plim_io_engine_t engine);
test_loader_t test_plain_loader(int threads); /* of test_plain_graph */
void test_loader_close(test_loader_t *fixture);

extern const test_graph_t test_plain_graph;
extern const plim_recipe_t test_two_hops;

/* Everything in memory, slots large enough for any batch; and everything on disk. */
plim__load_plan_t test_plan_memory(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                   int workers);
plim__load_plan_t test_plan_disk(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                 int workers, int64_t window_steps);

/* The same with windows of at most that many rows, drawn ahead. */
plim__load_plan_t test_plan_ahead(const plim_dataset_info_t *info, const plim_recipe_t *recipe,
                                  int workers, int64_t window_rows);

/* The next step of a stream. */
static inline void test_position(const plim_stream_t *stream, int64_t *epoch_out, int64_t *step_out)
{
    plim_stream_info_t info = PLIM_STREAM_INFO_INIT;
    assert_ok(plim_stream_info(stream, &info));
    *epoch_out = info.epoch;
    *step_out = info.step;
}

/* An entry of an array of the recipe's index type. */
int64_t test_index_at(const plim_recipe_t *recipe, const void *array, int64_t i);

/* Rows, degrees, edge_index and edge_ids, and whole batches with every draw, against the files. */
void test_check_edges(const test_loader_t *fixture, const plim_recipe_t *recipe,
                      const plim_batch_t *batch);
void test_check_degrees(const test_loader_t *fixture, const plim_recipe_t *recipe,
                        const plim_batch_t *batch);
void test_check_rows(const test_loader_t *fixture, const plim_recipe_t *recipe,
                     const plim_batch_t *batch);
void test_check_batch(const test_loader_t *fixture, const plim_recipe_t *recipe,
                      const plim_batch_t *batch);

/* The loader's stream over a split as its recipe says, shuffled if it is the training split. Made
 * when it is first asked for; it ends with the loader. */
plim_stream_t *test_stream(plim_loader_t *loader, plim_split_t split);

/* A new loader by the plan, and its training stream at the beginning of epoch 0. */
plim_loader_t *test_loader_start(const test_loader_t *fixture, const plim__load_plan_t *plan);

/* The next batch of a stream, or part of one; NULL at the end of the epoch. */
static inline plim_batch_t *test_next(plim_stream_t *stream)
{
    plim_batch_t *batch;
    assert_ok(plim_stream_next(stream, -1, &batch));
    return batch;
}

/* The hash of the rest of an epoch from a step on; counts its parts. */
uint64_t test_hash_from(plim_loader_t *loader, plim_split_t split, int64_t epoch, int64_t step,
                        uint64_t hash, int64_t *parts);

/*
 * Plans, makes and uses a loader under lines from `lowest` to `highest`, each larger than the one
 * before by a `part`-th: refused until a line fits, never past the plan, and with the same epoch
 * under every line that fits. Returns the plan of the highest.
 */
plim__load_plan_t test_every_line(const char *name, const test_graph_t *graph,
                                  const plim_recipe_t *recipe, int64_t lowest, int64_t highest,
                                  int64_t part);

/* Makes loaders by the plan, each with another arena failing. */
void test_loader_fails(const test_loader_t *fixture, const plim__load_plan_t *plan);

/* Of a loader of its own: training epochs, validation and test among them. */
uint64_t test_hash_of(const test_loader_t *fixture, const plim__load_plan_t *plan, int64_t *parts);

#endif
