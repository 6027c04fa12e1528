/*
 * The build of edges with columns against a brute force; and the same files in one run in memory,
 * in many runs on disk, and by any engine.
 */
#include "support/harness.h"

#include "base/fail.h"
#include "base/rng.h"
#include "ingest/edge_sort.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 3

/* The values of an edge as they are added. */
typedef struct __attribute__((packed)) values {
    float features[WIDTH];
    float weight;
    int32_t type;
    int64_t time;
} values_t;

typedef struct edge {
    int64_t destination, source, number;
    values_t values;
} edge_t;

typedef struct graph {
    int64_t num_nodes, num_edges;
    int64_t *source, *destination;
    values_t *values;
} graph_t;

static const char *const files[] = {"indptr",      "indices",   "edge_features",
                                    "edge_weight", "edge_type", "edge_time"};

#define NUM_FILES 6

typedef struct result {
    char *data[NUM_FILES];
    size_t sizes[NUM_FILES];
} result_t;

static graph_t graph_random(int64_t num_nodes, int64_t num_edges, uint64_t seed)
{
    uint64_t counter = 0;
    graph_t graph = {num_nodes, num_edges, test_malloc((size_t)num_edges * sizeof(int64_t) + 1),
                     test_malloc((size_t)num_edges * sizeof(int64_t) + 1),
                     test_malloc((size_t)num_edges * sizeof(values_t) + 1)};
    for (int64_t i = 0; i < num_edges; i++) {
        const uint64_t kind = plim__rng_below(seed, &counter, 8);
        graph.destination[i] = kind == 0
                                   ? num_nodes / 2
                                   : (int64_t)plim__rng_below(seed, &counter, (uint64_t)num_nodes);
        graph.source[i] = kind == 1 ? graph.destination[i]
                                    : (int64_t)plim__rng_below(seed, &counter, (uint64_t)num_nodes);
        if (kind == 2 && i > 0) {
            graph.source[i] = graph.source[i - 1];
            graph.destination[i] = graph.destination[i - 1];
        }
        for (int j = 0; j < WIDTH; j++)
            graph.values[i].features[j] = (float)plim__rng_below(seed, &counter, 1000) - 500;
        graph.values[i].weight = (float)plim__rng_below(seed, &counter, 1000);
        graph.values[i].type = (int32_t)plim__rng_below(seed, &counter, 5);
        graph.values[i].time = (int64_t)plim__rng_below(seed, &counter, 1000) - 500;
    }
    return graph;
}

static void graph_free(graph_t *graph)
{
    test_free(graph->source);
    test_free(graph->destination);
    test_free(graph->values);
}

static plim__edge_sort_params_t params_of(const graph_t *graph, const char *directory)
{
    return (plim__edge_sort_params_t){.num_nodes = graph->num_nodes,
                                      .max_edges = graph->num_edges,
                                      .tmp = directory,
                                      .num_fields = 4,
                                      .fields = {{PLIM_EDGE_FEATURES, PLIM__NPY_F32, 2, WIDTH},
                                                 {PLIM_EDGE_WEIGHT, PLIM__NPY_F32, 1, 1},
                                                 {PLIM_EDGE_TYPE, PLIM__NPY_I32, 1, 1},
                                                 {PLIM_EDGE_TIME, PLIM__NPY_I64, 1, 1}}};
}

static void read_result(const char *directory, result_t *result)
{
    for (int i = 0; i < NUM_FILES; i++) {
        char path[1024];
        (void)snprintf(path, sizeof path, "%s/%s.npy", directory, files[i]);
        FILE *file = fopen(path, "rb");
        assert_non_null(file);
        (void)fseek(file, 0, SEEK_END);
        result->sizes[i] = (size_t)ftell(file);
        rewind(file);
        result->data[i] = test_malloc(result->sizes[i] + 1);
        assert_int_equal(fread(result->data[i], 1, result->sizes[i], file), result->sizes[i]);
        (void)fclose(file);
    }
}

static void result_free(result_t *result)
{
    for (int i = 0; i < NUM_FILES; i++)
        test_free(result->data[i]);
}

static plim_status_t build(plim_job_t *job, const plim__edge_sort_params_t *params,
                           const graph_t *graph, result_t *result)
{
    char target[1024];
    plim__dataset_writer_t *writer;
    plim__edge_sort_t *sort;
    (void)snprintf(target, sizeof target, "%s/graph", params->tmp);
    PLIM_TRY(plim__dataset_begin(job, target, &writer));
    const int64_t before = plim__ledger_reserved(job->ledger);
    plim_status_t status = plim__edge_sort_create(job, params, &sort);
    if (status == PLIM_OK) {
        int64_t bad;
        for (int64_t i = 0, part; i < graph->num_edges && status == PLIM_OK; i += part) {
            part = graph->num_edges - i < 777 ? graph->num_edges - i : 777;
            status = plim__edge_sort_add(sort, graph->source + i, graph->destination + i,
                                         graph->values + i, part, &bad);
        }
        if (status == PLIM_OK)
            status = plim__edge_sort_finish(sort, writer);
        plim__edge_sort_destroy(sort);
    }
    if (status == PLIM_OK && plim__ledger_line(job->ledger) == PLIM_LINE_NONE)
        assert_true(plim__ledger_peak(job->ledger) - before <= (int64_t)params->memory);
    if (status == PLIM_OK && result != NULL)
        read_result(plim__dataset_staging(writer), result);
    plim__dataset_abandon(writer);
    return status;
}

static int compare(const void *a, const void *b)
{
    const edge_t *x = a, *y = b;
    if (x->destination != y->destination)
        return x->destination < y->destination ? -1 : 1;
    if (x->source != y->source)
        return x->source < y->source ? -1 : 1;
    return (x->number > y->number) - (x->number < y->number);
}

static void combine(values_t *to, const values_t *from, plim_duplicates_t duplicates)
{
    const bool sums = duplicates == PLIM_DUPLICATES_SUM;
    if (duplicates == PLIM_DUPLICATES_FIRST)
        return;
    for (int j = 0; j < WIDTH; j++) {
        const float value = from->features[j];
        to->features[j] = sums                      ? to->features[j] + value
                          : value > to->features[j] ? value
                                                    : to->features[j];
    }
    to->weight = sums                        ? to->weight + from->weight
                 : from->weight > to->weight ? from->weight
                                             : to->weight;
    if (!sums && from->time > to->time)
        to->time = from->time;
}

static void check(const graph_t *graph, const plim__edge_sort_params_t *params,
                  const result_t *result)
{
    edge_t *edges = test_malloc((size_t)(2 * graph->num_edges + 1) * sizeof *edges);
    int64_t count = 0, kept = 0, next = 0;
    for (int64_t i = 0; i < graph->num_edges; i++) {
        const int64_t s = graph->source[i], d = graph->destination[i];
        if (s == d && params->remove_loops)
            continue;
        edges[count++] = (edge_t){d, s, i, graph->values[i]};
        if (params->symmetrise && s != d)
            edges[count++] = (edge_t){s, d, i, graph->values[i]};
    }
    qsort(edges, (size_t)count, sizeof *edges, compare);
    for (int64_t i = 0; i < count; i++) {
        edge_t *last = kept > 0 ? &edges[kept - 1] : NULL;
        if ((params->symmetrise || params->remove_duplicates) && last != NULL &&
            last->destination == edges[i].destination && last->source == edges[i].source)
            combine(&last->values, &edges[i].values, params->duplicates);
        else
            edges[kept++] = edges[i];
    }
    const size_t sizes[] = {sizeof(int64_t), sizeof(int32_t), WIDTH * sizeof(float),
                            sizeof(float),   sizeof(int32_t), sizeof(int64_t)};
    for (int i = 1; i < NUM_FILES; i++)
        assert_int_equal(result->sizes[i], 4096 + (size_t)kept * sizes[i]);
    for (int64_t node = 0; node <= graph->num_nodes; node++) {
        int64_t offset;
        while (next < kept && edges[next].destination < node)
            next++;
        memcpy(&offset, result->data[0] + 4096 + node * 8, sizeof offset);
        assert_int_equal(offset, next);
    }
    for (int64_t i = 0; i < kept; i++) {
        const int32_t source = (int32_t)edges[i].source;
        const values_t *values = &edges[i].values;
        const void *const right[] = {NULL,          &source,      values->features, &values->weight,
                                     &values->type, &values->time};
        for (int j = 1; j < NUM_FILES; j++)
            assert_memory_equal(result->data[j] + 4096 + (size_t)i * sizes[j], right[j], sizes[j]);
    }
    test_free(edges);
}

static void is_as_by_brute_force_with_any_memory(void **state)
{
    static const int64_t sizes[][2] = {{1, 0},   {1, 900},   {3, 7},
                                       {500, 0}, {40, 5000}, {3000, 90000}};
    (void)state;
    char directory[512];
    int64_t spilled = 0;
    test_directory_make(directory);
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        for (int option = 0; option < 12; option++) {
            graph_t graph = graph_random(sizes[i][0], sizes[i][1], i + 1);
            plim__edge_sort_params_t params = params_of(&graph, directory);
            params.symmetrise = option % 2 == 1;
            params.remove_duplicates = option % 4 >= 2;
            params.duplicates = (plim_duplicates_t)(option / 4);
            params.remove_loops = option % 3 == 2;
            result_t whole, least;
            plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
            params.memory = (size_t)1 << 30;
            assert_int_equal(plim__edge_sort_spill(&job, &params), 0);
            assert_ok(build(&job, &params, &graph, &whole));
            test_job_end(&job);
            job = test_job_make(PLIM_LINE_NONE, 1, option % 2 ? PLIM_IO_THREADS : PLIM_IO_AUTO);
            params.memory = plim__edge_sort_minimum(&job, &params);
            spilled += plim__edge_sort_spill(&job, &params);
            assert_ok(build(&job, &params, &graph, &least));
            test_job_end(&job);
            check(&graph, &params, &whole);
            for (int f = 0; f < NUM_FILES; f++) {
                assert_int_equal(whole.sizes[f], least.sizes[f]);
                assert_memory_equal(whole.data[f], least.data[f], whole.sizes[f]);
            }
            result_free(&whole);
            result_free(&least);
            graph_free(&graph);
        }
    test_directory_remove(directory);
    assert_true(spilled > 0);
}

/* A random graph to build in a directory of its own. */
typedef struct attempt {
    char directory[512];
    plim_job_t job;
    graph_t graph;
    plim__edge_sort_params_t params;
} attempt_t;

static void attempt_open(int64_t num_nodes, int64_t num_edges, attempt_t *attempt)
{
    test_directory_make(attempt->directory);
    attempt->job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    attempt->graph = graph_random(num_nodes, num_edges, 3);
    attempt->params = params_of(&attempt->graph, attempt->directory);
    attempt->params.memory = plim__edge_sort_minimum(&attempt->job, &attempt->params);
}

static void attempt_close(attempt_t *attempt)
{
    graph_free(&attempt->graph);
    test_job_end(&attempt->job);
    test_directory_remove(attempt->directory);
}

static plim_status_t try_build(plim_job_t *job, void *context)
{
    attempt_t *attempt = context;
    return build(job, &attempt->params, &attempt->graph, NULL);
}

static void many_runs_are_merged(void **state)
{
    (void)state;
    attempt_t attempt;
    result_t least;
    attempt_open(5000, TEST_SANITIZED ? 200000 : 1500000, &attempt);
    assert_true(attempt.params.memory < (size_t)16 << 20);
    assert_true(plim__edge_sort_spill(&attempt.job, &attempt.params) >=
                attempt.graph.num_edges * (int64_t)(8 + sizeof(values_t)));
    assert_ok(build(&attempt.job, &attempt.params, &attempt.graph, &least));
    check(&attempt.graph, &attempt.params, &least);
    result_free(&least);
    attempt_close(&attempt);
}

static void fails_cleanly(void **state)
{
    (void)state;
    attempt_t attempt;
    attempt_open(100, 60000, &attempt);
    test_fail_each_arena(&attempt.job, try_build, &attempt);
    attempt.params.memory -= (size_t)1 << 20;
    assert_int_equal(try_build(&attempt.job, &attempt), PLIM_ERR_BUDGET);
    attempt.params.memory = SIZE_MAX / 4;
    attempt.params.max_edges--;
    assert_int_equal(try_build(&attempt.job, &attempt), PLIM_ERR_USAGE);
    attempt.params.max_edges++;
    attempt.graph.source[500] = 100;
    assert_int_equal(try_build(&attempt.job, &attempt), PLIM_ERR_DATA);
    attempt.graph.source[500] = -1;
    assert_int_equal(try_build(&attempt.job, &attempt), PLIM_ERR_DATA);
    attempt.params.num_nodes = PLIM__EDGE_SORT_NODES + 1;
    assert_int_equal(try_build(&attempt.job, &attempt), PLIM_ERR_USAGE);
    assert_int_equal(plim__edge_sort_minimum(&attempt.job, &attempt.params), SIZE_MAX);
    attempt_close(&attempt);
}

/* Two edges whose weights add up to what no float holds. */
static void sums_that_overflow_are_refused(void **state)
{
    (void)state;
    attempt_t attempt;
    attempt_open(1, 2, &attempt);
    attempt.params.memory = (size_t)64 << 20;
    attempt.params.remove_duplicates = true;
    attempt.params.duplicates = PLIM_DUPLICATES_SUM;
    attempt.graph.values[0].weight = attempt.graph.values[1].weight = 3e38f;
    assert_int_equal(try_build(&attempt.job, &attempt), PLIM_ERR_DATA);
    attempt.params.duplicates = PLIM_DUPLICATES_LARGEST;
    assert_ok(try_build(&attempt.job, &attempt));
    attempt_close(&attempt);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_as_by_brute_force_with_any_memory),
                                       cmocka_unit_test(many_runs_are_merged),
                                       cmocka_unit_test(fails_cleanly),
                                       cmocka_unit_test(sums_that_overflow_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
