#include "support/lists.h"

#include "base/fail.h"
#include "base/rng.h"
#include "support/dataset.h"
#include "support/harness.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

test_lists_t test_lists_random(int64_t num_nodes, int64_t long_every, int64_t longest,
                               uint64_t seed)
{
    test_lists_t lists = {.num_nodes = num_nodes};
    uint64_t key = plim__rng_key(seed, 4, 5, 6), counter = 0;
    lists.indptr = calloc((size_t)num_nodes + 1, sizeof(int64_t));
    for (int64_t v = 0; v < num_nodes; v++) {
        bool is_long = long_every > 0 && v % long_every == long_every - 1;
        uint64_t degree = is_long ? 100 + plim__rng_below(key, &counter, (uint64_t)(longest - 99))
                                  : plim__rng_below(key, &counter, 21);
        lists.indptr[v + 1] = lists.indptr[v] + (int64_t)degree;
    }
    lists.indices = calloc((size_t)lists.indptr[num_nodes] + 1, sizeof(int64_t));
    for (int64_t v = 0; v < num_nodes; v++) {
        int64_t value = 0, degree = lists.indptr[v + 1] - lists.indptr[v];
        for (int64_t i = lists.indptr[v]; i < lists.indptr[v + 1]; i++) {
            uint64_t step = plim__rng_below(key, &counter, (uint64_t)(2 * num_nodes / degree) + 2);
            value = value + (int64_t)step < num_nodes ? value + (int64_t)step : num_nodes - 1;
            lists.indices[i] = value;
        }
    }
    return lists;
}

static int compare_ids(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x > y) - (x < y);
}

void test_lists_loops(test_lists_t *lists, int64_t every, int64_t most)
{
    for (int64_t v = 0; v < lists->num_nodes; v += every) {
        int64_t *list = lists->indices + lists->indptr[v];
        const int64_t degree = lists->indptr[v + 1] - lists->indptr[v];
        for (int64_t i = 0; i < degree && i < 1 + v / every % most; i++)
            list[i * degree / most % degree] = v;
        qsort(list, (size_t)degree, sizeof *list, compare_ids);
    }
}

void test_lists_columns(test_lists_t *lists, uint64_t seed)
{
    const uint64_t key = plim__rng_key(seed, 7, 8, 9);
    const int64_t num_edges = lists->indptr[lists->num_nodes];
    lists->weights = calloc((size_t)num_edges + 1, sizeof(float));
    lists->times = calloc((size_t)num_edges + 1, sizeof(int64_t));
    lists->node_times = calloc((size_t)lists->num_nodes, sizeof(int64_t));
    for (int64_t i = 0; i < num_edges; i++) {
        const uint64_t bits = plim__rng_u64(key, (uint64_t)i);
        lists->weights[i] = bits % 3 == 0 ? 0 : (float)(bits % 1000) * (bits % 7 == 0 ? 1e-30f : 1);
        lists->times[i] = (int64_t)(bits >> 32) % 100 - 50;
    }
    for (int64_t v = 0; v < lists->num_nodes; v++)
        lists->node_times[v] = (int64_t)(plim__rng_u64(key + 1, (uint64_t)v) % 100) - 50;
}

void test_lists_free(test_lists_t *lists)
{
    free(lists->weights);
    free(lists->times);
    free(lists->node_times);
    free(lists->indptr);
    free(lists->indices);
}

static plim_status_t write_columns(plim__dataset_writer_t *writer, const test_lists_t *lists,
                                   const int32_t *indices)
{
    int64_t num_offsets = lists->num_nodes + 1;
    int64_t num_edges = lists->indptr[lists->num_nodes];
    PLIM_TRY(test_column(writer, "indptr", PLIM__NPY_I64, 1, &num_offsets, lists->indptr,
                         (size_t)num_offsets * sizeof(int64_t)));
    PLIM_TRY(test_column(writer, "indices", PLIM__NPY_I32, 1, &num_edges, indices,
                         (size_t)num_edges * sizeof(int32_t)));
    if (lists->weights == NULL)
        return PLIM_OK;
    PLIM_TRY(test_column(writer, "edge_weight", PLIM__NPY_F32, 1, &num_edges, lists->weights,
                         (size_t)num_edges * sizeof(float)));
    PLIM_TRY(test_column(writer, "edge_time", PLIM__NPY_I64, 1, &num_edges, lists->times,
                         (size_t)num_edges * sizeof(int64_t)));
    return test_column(writer, "node_time", PLIM__NPY_I64, 1, &lists->num_nodes, lists->node_times,
                       (size_t)lists->num_nodes * sizeof(int64_t));
}

plim_status_t test_lists_write(const plim_job_t *job, const char *path, const test_lists_t *lists)
{
    plim__dataset_writer_t *writer;
    plim__dataset_facts_t facts = {.num_nodes = lists->num_nodes, .source = "test", .options = ""};
    int64_t num_edges = lists->indptr[lists->num_nodes];
    PLIM_TRY(plim__dataset_begin(job, path, &writer));
    int32_t *indices = calloc((size_t)num_edges + 1, sizeof *indices);
    for (int64_t i = 0; i < num_edges; i++)
        indices[i] = (int32_t)lists->indices[i];
    plim_status_t status = write_columns(writer, lists, indices);
    free(indices);
    if (status != PLIM_OK) {
        plim__dataset_abandon(writer);
        return status;
    }
    return plim__dataset_finish(writer, &facts);
}

void test_overwrite(const char *directory, const char *name, int64_t position, const void *value,
                    size_t size)
{
    char path[1024];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, value, size, PLIM__NPY_HEADER + position * (int64_t)size), size);
    assert_int_equal(close(fd), 0);
}
