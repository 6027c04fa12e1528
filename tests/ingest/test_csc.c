/*
 * The CSC build against a brute force that sorts all edges, for graphs of every awkward kind and
 * all options; and the same files for every budget, number of threads and engine.
 */
#include "support/harness.h"

#include "base/fail.h"
#include "base/rng.h"
#include "base/threads.h"
#include "ingest/csc_internal.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

typedef struct graph {
    int64_t num_nodes;
    int64_t num_edges;
    int64_t *source;
    int64_t *destination;
} graph_t;

typedef struct edge {
    int64_t destination;
    int64_t source;
} edge_t;

/* A file's bytes. */
typedef struct bytes {
    char *data;
    size_t size;
} bytes_t;

/* What a build wrote: both files whole, headers included. */
typedef struct result {
    bytes_t indptr;
    bytes_t indices;
    plim__csc_totals_t totals;
} result_t;

static graph_t graph_make(int64_t num_nodes, int64_t num_edges)
{
    size_t size = (size_t)num_edges * sizeof(int64_t) + 1;
    return (graph_t){num_nodes, num_edges, test_malloc(size), test_malloc(size)};
}

static void graph_free(graph_t *graph)
{
    test_free(graph->source);
    test_free(graph->destination);
}

/* Random edges; destinations heavy-tailed (an exponent of 1 is none), some edges twice or loops. */
static graph_t graph_random(int64_t num_nodes, int64_t num_edges, int power)
{
    graph_t graph = graph_make(num_nodes, num_edges);
    uint64_t key = plim__rng_key(1, (uint64_t)num_nodes, (uint64_t)num_edges, (uint64_t)power);
    for (int64_t i = 0; i < num_edges; i++) {
        double draw = plim__rng_double(key, (uint64_t)i * 3);
        double skewed = draw;
        for (int j = 1; j < power; j++)
            skewed *= draw;
        graph.destination[i] = (int64_t)(skewed * (double)num_nodes);
        graph.source[i] = (int64_t)(plim__rng_double(key, (uint64_t)i * 3 + 1) * (double)num_nodes);
        uint64_t kind = plim__rng_u64(key, (uint64_t)i * 3 + 2) % 16;
        if (kind == 0)
            graph.source[i] = graph.destination[i];
        if (kind == 1 && i > 0) {
            graph.source[i] = graph.source[i - 1];
            graph.destination[i] = graph.destination[i - 1];
        }
    }
    return graph;
}

static int compare(const void *a, const void *b)
{
    const edge_t *x = a, *y = b;
    if (x->destination != y->destination)
        return x->destination < y->destination ? -1 : 1;
    return (x->source > y->source) - (x->source < y->source);
}

/* Compares what was written with a plain sort of all edges. */
static void check_against_sort(const graph_t *graph, const plim__csc_params_t *params,
                               const result_t *result)
{
    size_t most = (size_t)(graph->num_edges * 2 + graph->num_nodes) + 1;
    edge_t *edges = test_malloc(most * sizeof *edges);
    int64_t count = 0, kept = 0, max_degree = 0, max_self_loops = 0;
    for (int64_t i = 0; i < graph->num_edges; i++) {
        edge_t edge = {graph->destination[i], graph->source[i]};
        if (edge.source == edge.destination && params->self_loops != PLIM_SELF_LOOPS_KEEP)
            continue;
        edges[count++] = edge;
        if (params->symmetrise)
            edges[count++] = (edge_t){edge.source, edge.destination};
    }
    for (int64_t i = 0; i < graph->num_nodes && params->self_loops == PLIM_SELF_LOOPS_ADD; i++)
        edges[count++] = (edge_t){i, i};
    qsort(edges, (size_t)count, sizeof *edges, compare);
    for (int64_t i = 0; i < count; i++)
        if (!(params->remove_duplicates || params->symmetrise) || kept == 0 ||
            compare(&edges[kept - 1], &edges[i]) != 0)
            edges[kept++] = edges[i];

    const int64_t *indptr = (const int64_t *)(const void *)(result->indptr.data + 4096);
    const int32_t *narrow = (const int32_t *)(const void *)(result->indices.data + 4096);
    const int64_t *wide = (const int64_t *)(const void *)narrow;
    bool is_narrow = graph->num_nodes <= INT32_MAX;
    assert_int_equal(result->indptr.size, 4096 + (graph->num_nodes + 1) * 8);
    assert_int_equal(result->indices.size, 4096 + kept * (is_narrow ? 4 : 8));
    assert_int_equal(result->totals.num_edges, kept);
    int64_t next = 0;
    for (int64_t node = 0; node < graph->num_nodes; node++) {
        int64_t first = next, loops = 0;
        if (indptr[node] != next)
            fail_msg("indptr[%lld] is %lld, not %lld", (long long)node, (long long)indptr[node],
                     (long long)next);
        for (; next < kept && edges[next].destination == node; next++) {
            loops += edges[next].source == node;
            if ((is_narrow ? narrow[next] : wide[next]) != edges[next].source)
                fail_msg("indices[%lld] is wrong", (long long)next);
        }
        max_self_loops = loops > max_self_loops ? loops : max_self_loops;
        max_degree = next - first > max_degree ? next - first : max_degree;
    }
    assert_int_equal(indptr[graph->num_nodes], kept);
    assert_int_equal(result->totals.max_degree, max_degree);
    assert_int_equal(result->totals.max_self_loops, max_self_loops);
    test_free(edges);
}

static bytes_t read_file(const char *directory, const char *name)
{
    char path[1024];
    struct stat about;
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &about), 0);
    bytes_t bytes = {test_malloc((size_t)about.st_size + 1), (size_t)about.st_size};
    assert_int_equal(fread(bytes.data, 1, bytes.size, file), bytes.size);
    (void)fclose(file);
    return bytes;
}

static void result_free(result_t *result)
{
    test_free(result->indptr.data);
    test_free(result->indices.data);
}

/* Edges are added in chunks by all workers at once, in an order that chance decides. */
typedef struct feeding {
    plim__csc_t *csc;
    const graph_t *graph;
    int64_t chunk;
    atomic_llong next;
} feeding_t;

static plim_status_t feed(void *context, int worker)
{
    feeding_t *feeding = context;
    for (;;) {
        int64_t begin = atomic_fetch_add(&feeding->next, feeding->chunk);
        if (begin >= feeding->graph->num_edges)
            return PLIM_OK;
        int64_t left = feeding->graph->num_edges - begin;
        PLIM_TRY(plim__csc_add(feeding->csc, worker, feeding->graph->source + begin,
                               feeding->graph->destination + begin,
                               left < feeding->chunk ? left : feeding->chunk, NULL));
    }
}

/* The whole build into `directory`, without commit; the files are read when `result` is given. */
static plim_status_t build(plim_job_t *job, const plim__csc_params_t *params, const graph_t *graph,
                           const char *directory, result_t *result)
{
    char target[1024];
    plim__dataset_writer_t *writer = NULL;
    feeding_t feeding = {.graph = graph, .chunk = 777};
    plim__csc_totals_t totals;
    (void)snprintf(target, sizeof target, "%s/graph", directory);
    PLIM_TRY(plim__dataset_begin(job, target, &writer));
    int64_t before = plim__ledger_reserved(job->ledger);
    plim_status_t status = plim__csc_create(job, params, &feeding.csc);
    if (status != PLIM_OK)
        goto abandon;
    status = plim__parallel(job->threads, feed, &feeding);
    if (status == PLIM_OK)
        status = plim__csc_finish(feeding.csc, writer, &totals);
    if (status == PLIM_OK && plim__ledger_line(job->ledger) == PLIM_LINE_NONE)
        assert_true(plim__ledger_peak(job->ledger) - before <= (int64_t)params->memory ||
                    params->memory > INT64_MAX);
    if (status == PLIM_OK && result != NULL) {
        result->totals = totals;
        result->indptr = read_file(plim__dataset_staging(writer), "indptr.npy");
        result->indices = read_file(plim__dataset_staging(writer), "indices.npy");
    }
    plim__csc_destroy(feeding.csc);
abandon:
    plim__dataset_abandon(writer);
    return status;
}

/* `extra`: memory beyond the least, or SIZE_MAX for no limit. */
static result_t build_with(const plim__csc_params_t *params, size_t extra, int threads,
                           plim_io_engine_t engine, const graph_t *graph, const char *directory)
{
    result_t result;
    plim__csc_params_t own = *params;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, threads, engine);
    own.tmp = directory;
    own.num_nodes = graph->num_nodes;
    own.max_edges = graph->num_edges;
    own.memory = extra == SIZE_MAX ? extra : plim__csc_minimum(&job, &own) + extra;
    assert_ok(build(&job, &own, graph, directory, &result));
    test_job_end(&job);
    return result;
}

static void assert_same(const result_t *a, const result_t *b)
{
    assert_int_equal(a->indptr.size, b->indptr.size);
    assert_int_equal(a->indices.size, b->indices.size);
    assert_memory_equal(a->indptr.data, b->indptr.data, a->indptr.size);
    assert_memory_equal(a->indices.data, b->indices.data, a->indices.size);
    assert_int_equal(a->totals.num_edges, b->totals.num_edges);
    assert_int_equal(a->totals.max_degree, b->totals.max_degree);
    assert_int_equal(a->totals.max_self_loops, b->totals.max_self_loops);
}

static const plim__csc_params_t options[] = {
    {.self_loops = PLIM_SELF_LOOPS_KEEP},
    {.self_loops = PLIM_SELF_LOOPS_ADD},
    {.self_loops = PLIM_SELF_LOOPS_REMOVE},
    {.self_loops = PLIM_SELF_LOOPS_KEEP, .remove_duplicates = true},
    {.self_loops = PLIM_SELF_LOOPS_ADD, .remove_duplicates = true},
    {.self_loops = PLIM_SELF_LOOPS_REMOVE, .remove_duplicates = true},
    {.self_loops = PLIM_SELF_LOOPS_KEEP, .symmetrise = true},
    {.self_loops = PLIM_SELF_LOOPS_ADD, .symmetrise = true},
    {.self_loops = PLIM_SELF_LOOPS_REMOVE, .symmetrise = true},
};

#define NUM_OPTIONS (sizeof options / sizeof options[0])

/* Each option once, with the least memory and with all there is in turn: `turn` says which. */
static void check_all_options(graph_t graph, size_t turn)
{
    char directory[512];
    test_directory_make(directory);
    for (size_t i = 0; i < NUM_OPTIONS; i++) {
        size_t extra = (i + turn) % 2 == 0 ? 0 : SIZE_MAX;
        result_t result = build_with(&options[i], extra, 2, PLIM_IO_AUTO, &graph, directory);
        check_against_sort(&graph, &options[i], &result);
        if (extra == SIZE_MAX)
            assert_int_equal(result.totals.spill_bytes, 0);
        result_free(&result);
    }
    test_directory_remove(directory);
    graph_free(&graph);
}

static void builds_small_graphs(void **state)
{
    (void)state;
    const int64_t sizes[][2] = {{0, 0},     {1, 0},    {1, 1},    {1, 5000},    {2, 3},
                                {1000, 10}, {1000, 0}, {5, 2000}, {1000, 20000}};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        check_all_options(graph_random(sizes[i][0], sizes[i][1], 1), i);
}

static void builds_skewed_graphs(void **state)
{
    (void)state;
    check_all_options(graph_random(70000, 60000, 4), 0);
    check_all_options(graph_random(3000, 80000, 12), 1);
}

/* One node with a million in-edges, far more than the least memory holds. */
static void builds_a_hub(void **state)
{
    (void)state;
    char directory[512];
    graph_t graph = graph_random(1000003, 1100000, 1);
    test_directory_make(directory);
    for (int64_t i = 0; i < 1000000; i++) {
        graph.destination[i] = 77777;
        graph.source[i] = i * 7 % 1000003;
    }
    for (size_t i = 0; i < NUM_OPTIONS; i += TEST_SANITIZED ? NUM_OPTIONS : 4) {
        result_t least = build_with(&options[i], 0, 2, PLIM_IO_AUTO, &graph, directory);
        check_against_sort(&graph, &options[i], &least);
        assert_true(least.totals.spill_bytes > (int64_t)16 * 1000000);
        result_free(&least);
    }
    test_directory_remove(directory);
    graph_free(&graph);
}

/* The same edge again and again: in the end only its count matters. */
static void builds_one_edge_many_times(void **state)
{
    (void)state;
    char directory[512];
    test_directory_make(directory);
    for (int64_t loop = 0; loop <= 1; loop++) {
        graph_t graph = graph_make(30000, 100000);
        for (int64_t i = 0; i < graph.num_edges; i++) {
            graph.destination[i] = 29999;
            graph.source[i] = loop != 0 ? 29999 : 5;
        }
        for (size_t i = 0; i < NUM_OPTIONS; i++) {
            result_t least = build_with(&options[i], 0, 2, PLIM_IO_AUTO, &graph, directory);
            check_against_sort(&graph, &options[i], &least);
            result_free(&least);
        }
        graph_free(&graph);
    }
    test_directory_remove(directory);
}

/* Ids that need 64 bits in the file, and of which a key no longer holds two. Their offsets alone
 * would be terabytes, so it ends before the columns. */
static void builds_wide_ids(void **state)
{
    (void)state;
    char directory[512];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    test_directory_make(directory);
    plim__csc_params_t params = {
        .num_nodes = (int64_t)1 << 40, .max_edges = 10, .memory = SIZE_MAX, .tmp = directory};
    plim__csc_t *csc;
    assert_ok(plim__csc_create(&job, &params, &csc));
    const int64_t last = params.num_nodes - 1, beyond = params.num_nodes;
    const int64_t source[] = {last, 5, last, 0}, destination[] = {last, last - 1, last, last};
    int64_t bad = -1, count;
    assert_ok(plim__csc_add(csc, 0, source, destination, 4, NULL));
    assert_ok(plim__csc_gathered(csc));
    uint64_t keys[2][512] __attribute__((aligned(4096)));
    int64_t range = csc->shape.num_ranges - 1, first = plim__csc_range_first(csc, range);
    plim__csc_sorter_t sorter = {.area = (char *)keys};
    csc->capacity = 512;
    csc->output.index_size = sizeof(int64_t);
    assert_ok(plim__spill_read(csc->spill, &csc->ranges[range].list, keys[0], 512, &count));
    assert_int_equal(count, 4);
    plim__csc_prepare(csc, &sorter, count, 64, first);
    const int64_t expected[] = {5, 0, last, last};
    assert_int_equal(sorter.num_sources, 4);
    assert_memory_equal(sorter.sources, expected, sizeof expected);
    assert_int_equal(sorter.num_records, 2);
    assert_int_equal(first + (int64_t)(sorter.records[0] >> csc->shape.source_bits), last - 1);
    assert_int_equal(first + (int64_t)(sorter.records[1] >> csc->shape.source_bits), last);
    assert_int_equal(plim__csc_add(csc, 0, &last, &beyond, 1, &bad), PLIM_ERR_DATA);
    assert_int_equal(bad, 0);
    plim__csc_destroy(csc);
    params.num_nodes++;
    assert_int_equal(plim__csc_create(&job, &params, &csc), PLIM_ERR_USAGE);
    test_job_end(&job);
    test_directory_remove(directory);
}

static void gives_the_same_bytes(void **state)
{
    (void)state;
    const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};
    const int threads[] = {1, 2, 8};
    const size_t extras[] = {0, (size_t)1 << 20, (size_t)64 << 20};
    char directory[512];
    graph_t graph = graph_random(50000, 120000, 3);
    test_directory_make(directory);
    for (size_t i = 0; i < NUM_OPTIONS; i += TEST_SANITIZED ? NUM_OPTIONS : 4) {
        result_t first = build_with(&options[i], SIZE_MAX, 1, PLIM_IO_AUTO, &graph, directory);
        check_against_sort(&graph, &options[i], &first);
        for (int j = 0; j < 6; j++) {
            for (size_t k = 0; k < sizeof extras / sizeof extras[0]; k++) {
                result_t other = build_with(&options[i], extras[k], threads[j % 3], engines[j / 3],
                                            &graph, directory);
                assert_same(&first, &other);
                result_free(&other);
            }
        }
        result_free(&first);
    }
    test_directory_remove(directory);
    graph_free(&graph);
}

/* The spill's engine and the columns', which sanitizers make larger. */
static size_t engines_minimum(const plim_job_t *job)
{
    return plim__engine_estimate(job->io_engine, 4) + 2 * plim__engine_estimate(job->io_engine, 2);
}

/* From the least memory on, in small steps, every budget is accepted and kept to. */
static void accepts_every_budget(void **state)
{
    (void)state;
    char directory[512];
    graph_t graph = graph_random(50000, 100000, 2);
    test_directory_make(directory);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim__csc_params_t params = {
        .num_nodes = graph.num_nodes, .max_edges = graph.num_edges, .tmp = directory};
    size_t least = plim__csc_minimum(&job, &params);
    plim__csc_t *csc;
    assert_true(least < ((size_t)2 << 20) + engines_minimum(&job));
    params.memory = least / 2;
    assert_int_equal(plim__csc_create(&job, &params, &csc), PLIM_ERR_BUDGET);
    test_job_end(&job);
    for (size_t extra = 0; extra < least; extra += least / 8 + 12345) {
        result_t result = build_with(&params, extra, 2, PLIM_IO_AUTO, &graph, directory);
        check_against_sort(&graph, &params, &result);
        result_free(&result);
    }
    test_directory_remove(directory);
    graph_free(&graph);
}

/* The least memory of huge builds grows by the table of chunks alone. */
static void needs_little(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim__csc_params_t params = {.num_nodes = 111059956, .max_edges = 1615685872, .tmp = "."};
    assert_true(plim__csc_minimum(&job, &params) < ((size_t)6 << 20) + engines_minimum(&job));
    params.num_nodes = 3500000000;
    params.max_edges = 128000000000;
    assert_true(plim__csc_minimum(&job, &params) < ((size_t)24 << 20) + engines_minimum(&job));
    for (size_t memory = plim__csc_minimum(&job, &params); memory < (size_t)1 << 30; memory *= 3) {
        plim__csc_t *csc;
        char directory[512];
        test_directory_make(directory);
        params.tmp = directory;
        params.memory = memory;
        assert_ok(plim__csc_create(&job, &params, &csc));
        plim__csc_destroy(csc);
        test_directory_remove(directory);
    }
    test_job_end(&job);
}

static void refuses_bad_edges(void **state)
{
    (void)state;
    char directory[512];
    test_directory_make(directory);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim__csc_params_t params = {
        .num_nodes = 10, .max_edges = 4, .memory = SIZE_MAX, .tmp = directory};
    const int64_t good[] = {0, 9, 5, 5}, high[] = {1, 2, 10, 3}, low[] = {1, -1, 2, 3};
    int64_t bad = -1;
    plim__csc_t *csc;
    assert_ok(plim__csc_create(&job, &params, &csc));
    assert_int_equal(plim__csc_add(csc, 0, high, good, 4, &bad), PLIM_ERR_DATA);
    assert_int_equal(bad, 2);
    assert_non_null(strstr(plim_last_error(), "10"));
    plim__csc_destroy(csc);
    assert_ok(plim__csc_create(&job, &params, &csc));
    assert_int_equal(plim__csc_add(csc, 1, good, low, 4, &bad), PLIM_ERR_DATA);
    assert_int_equal(bad, 1);
    plim__csc_destroy(csc);
    assert_ok(plim__csc_create(&job, &params, &csc));
    assert_ok(plim__csc_add(csc, 1, good, good, 3, NULL));
    assert_int_equal(plim__csc_add(csc, 0, good, good, 2, NULL), PLIM_ERR_USAGE);
    plim__csc_destroy(csc);
    plim__csc_destroy(NULL);
    params.tmp = "/nonexistent/directory";
    params.max_edges = 1000000;
    params.memory = plim__csc_minimum(&job, &params);
    assert_int_equal(plim__csc_create(&job, &params, &csc), PLIM_ERR_IO);
    test_job_end(&job);
    test_directory_remove(directory);
}

static void stops_on_request(void **state)
{
    (void)state;
    char directory[512];
    volatile int stop = 1;
    test_directory_make(directory);
    graph_t graph = graph_random(1000, 10000, 1);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim__csc_params_t params = {.num_nodes = 1000, .max_edges = 10000, .tmp = directory};
    params.memory = SIZE_MAX;
    job.stop = &stop;
    assert_int_equal(build(&job, &params, &graph, directory, NULL), PLIM_ERR_STOPPED);
    test_job_end(&job);
    graph_free(&graph);
    test_directory_remove(directory);
}

typedef struct attempt {
    const plim__csc_params_t *params;
    const graph_t *graph;
    const char *directory;
} attempt_t;

static plim_status_t attempt_build(plim_job_t *job, void *context)
{
    const attempt_t *attempt = context;
    return build(job, attempt->params, attempt->graph, attempt->directory, NULL);
}

static void survives_refused_memory(void **state)
{
    (void)state;
    char directory[512];
    test_directory_make(directory);
    graph_t graph = graph_random(1000, 10000, 1);
    const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};
    for (int i = 0; i < 4; i++) {
        plim_job_t job = test_job_make((int64_t)1 << 30, 2, engines[i / 2]);
        plim__csc_params_t params = {.num_nodes = 1000, .max_edges = 10000, .tmp = directory};
        params.memory = i % 2 != 0 ? (size_t)64 << 20 : plim__csc_minimum(&job, &params);
        attempt_t attempt = {&params, &graph, directory};
        test_fail_each_arena(&job, attempt_build, &attempt);
        test_job_end(&job);
    }
    graph_free(&graph);
    test_directory_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(builds_small_graphs),
        cmocka_unit_test(builds_skewed_graphs),
        cmocka_unit_test(builds_a_hub),
        cmocka_unit_test(builds_one_edge_many_times),
        cmocka_unit_test(builds_wide_ids),
        cmocka_unit_test(gives_the_same_bytes),
        cmocka_unit_test(accepts_every_budget),
        cmocka_unit_test(needs_little),
        cmocka_unit_test(refuses_bad_edges),
        cmocka_unit_test(stops_on_request),
        cmocka_unit_test(survives_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
