/* The generator's model: exact degrees, different sources at any density, equal vector paths. */
#include "support/harness.h"

#include "base/rng.h"
#include "generate/generate_degree.h"
#include "generate/generate_graph.h"
#include "generate/generate_noise.h"
#include "generate/generate_place.h"

#include <plimsoll/ingest.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_NODES = 400 };

/* The whole graph as a matrix: entry (destination, source) counts edges. */
static unsigned char matrix[MOST_NODES][MOST_NODES];

static plim_status_t enter(void *context, int worker, const int64_t *source,
                           const int64_t *destination, int64_t count)
{
    (void)worker;
    for (int64_t i = 0; i < count; i++) {
        assert_in_range(source[i], 0, MOST_NODES - 1);
        assert_in_range(destination[i], 0, MOST_NODES - 1);
        matrix[destination[i]][source[i]]++;
    }
    *(int64_t *)context += count;
    return PLIM_OK;
}

static void draw_all(plim_job_t *job, const plim__shape_t *shape)
{
    plim__graph_t *graph;
    int64_t edges = 0;
    memset(matrix, 0, sizeof matrix);
    assert_true(shape->num_nodes <= MOST_NODES);
    assert_ok(plim__graph_create(job, shape, &graph));
    for (int64_t block = 0; block < plim__graph_blocks(graph); block++)
        assert_ok(plim__graph_draw(graph, 0, block, enter, &edges));
    plim__graph_destroy(graph);
    assert_int_equal(edges, shape->num_edges);
    for (int64_t v = 0; v < shape->num_nodes; v++)
        for (int64_t u = 0; u < shape->num_nodes; u++) {
            assert_true(matrix[v][u] <= (u != v));
            if (shape->undirected)
                assert_int_equal(matrix[v][u], matrix[u][v]);
        }
}

static void lists_are_exact_at_any_density(void **state)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__shape_t shape;
    (void)state;
    for (int64_t nodes = 1; nodes <= 40; nodes++)
        for (int64_t part = 0; part <= 8; part++) {
            plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
            options.shape = "free";
            options.num_nodes = nodes;
            options.num_edges = nodes * (nodes - 1) * part / 8;
            options.num_features = 1;
            options.num_classes = 1 + nodes % 5;
            options.seed = (uint64_t)part;
            assert_ok(plim__shape_resolve(&options, &shape));
            draw_all(&job, &shape);
            options.num_edges = nodes * (nodes - 1) + 1;
            assert_int_equal(plim__shape_resolve(&options, &shape), PLIM_ERR_USAGE);
        }
    test_job_end(&job);
}

static void columns_have_at_most_so_many_bytes(void **state)
{
    plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
    plim__shape_t shape;
    (void)state;
    options.shape = "free";
    options.num_nodes = (int64_t)1 << 30;
    options.num_edges = (int64_t)1 << 50;
    options.num_classes = 1;
    options.features = PLIM_F32;
    options.edge_columns = "features:500,weight,types:2,time";
    assert_ok(plim__shape_resolve(&options, &shape));
    options.edge_columns = "features:1000000,time";
    assert_int_equal(plim__shape_resolve(&options, &shape), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "1125899906842624 edges with 4000008 bytes"));
}

static void named_shapes_are_exact_when_tiny(void **state)
{
    static const char *const names[] = {"papers100M", "products", "arxiv", "reddit"};
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__shape_t shape;
    int drawn = 0;
    (void)state;
    for (int i = 0; i < 4; i++)
        for (double scale = 1e-8; scale < 0.01; scale *= 1.3) {
            plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
            options.shape = names[i];
            options.scale = scale;
            if (plim__shape_resolve(&options, &shape) != PLIM_OK) {
                assert_non_null(strstr(plim_last_error(), names[i]));
                continue;
            }
            if (shape.num_nodes > MOST_NODES)
                break;
            int64_t labelled = shape.num_split[0] + shape.num_split[1] + shape.num_split[2];
            assert_true(labelled <= shape.num_core && shape.num_core <= shape.num_nodes);
            if (i > 0)
                assert_int_equal(labelled, shape.num_nodes);
            draw_all(&job, &shape);
            drawn++;
        }
    assert_true(drawn > 20);
    test_job_end(&job);
}

static void degrees_sum_up_and_keep_their_limit(void **state)
{
    enum { BLOCKS = 4 };
    static int64_t degrees[PLIM__DEGREE_BLOCK];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    (void)state;
    for (int64_t longest = 3; longest < 60000; longest *= 5) {
        plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
        static uint64_t sums[BLOCKS + 1];
        plim__degrees_t model;
        plim__shape_t shape;
        options.shape = "free";
        options.num_nodes = (BLOCKS - 1) * PLIM__DEGREE_BLOCK + 5;
        options.num_edges = options.num_nodes * 3 - 1;
        options.num_classes = 2;
        assert_ok(plim__shape_resolve(&options, &shape));
        memset(sums, 0, sizeof sums);
        assert_int_equal(plim__degrees_blocks(shape.num_nodes), BLOCKS);
        assert_ok(plim__degrees_make(&job, &shape, shape.num_edges, longest, sums, &model));
        int64_t sum = 0;
        int64_t nodes = 0;
        for (int64_t block = 0; block < BLOCKS; block++) {
            int64_t count = plim__degrees_block(&model, block, degrees);
            nodes += count;
            for (int64_t i = 0; i < count; i++) {
                assert_in_range(degrees[i], 0, longest);
                sum += degrees[i];
            }
        }
        assert_int_equal(nodes, shape.num_nodes);
        assert_int_equal(sum, shape.num_edges);
    }
    test_job_end(&job);
}

static void classes_cover_every_place(void **state)
{
    (void)state;
    for (int64_t nodes = 1; nodes < 300; nodes += 7)
        for (int64_t classes = 1; classes < 400; classes += 13) {
            plim__shape_t shape = {.num_nodes = nodes,
                                   .num_core = nodes / 3,
                                   .num_stars = nodes / 10,
                                   .num_classes = classes};
            for (int64_t place = 0; place < nodes; place++) {
                int64_t class = plim__place_class(&shape, place);
                assert_in_range(class, 0, classes - 1);
                if (place < shape.num_stars)
                    continue;
                plim__range_t range =
                    plim__place_community(&shape, plim__place_region(&shape, place), class);
                assert_true(place >= range.first && place < range.first + range.count);
            }
        }
}

static void noise_paths_are_equal(void **state)
{
    enum { MOST = 640 };
    static int16_t mean[MOST];
    static char scalar[MOST * 4];
    static char vector[MOST * 4];
    const plim_dtype_t types[] = {PLIM_F16, PLIM_F32};
    (void)state;
    if (plim__noise_best() == PLIM__NOISE_SCALAR) {
        print_message("SKIPPED: this processor has no AVX2 with F16C\n");
        skip();
    }
    for (int i = 0; i < MOST; i++)
        mean[i] = (int16_t)(i % (2 * PLIM__NOISE_MEAN_MAX + 1) - PLIM__NOISE_MEAN_MAX);
    for (uint64_t key = 0; key < 200; key++)
        for (int64_t count = 1; count <= MOST; count = count * 5 / 3 + 1)
            for (int t = 0; t < 2; t++) {
                size_t bytes = (size_t)count * (types[t] == PLIM_F16 ? 2 : 4);
                uint64_t bits = plim__rng_u64(5, key);
                plim__noise_row(PLIM__NOISE_SCALAR, bits, mean, count, types[t], scalar);
                plim__noise_row(PLIM__NOISE_AVX2, bits, mean, count, types[t], vector);
                assert_memory_equal(scalar, vector, bytes);
            }
}

static void noise_is_centred_and_wide(void **state)
{
    enum { COUNT = 64, ROWS = 20000 };
    static int16_t mean[COUNT];
    static float row[COUNT];
    double sum = 0;
    double squares = 0;
    (void)state;
    for (uint64_t i = 0; i < ROWS; i++) {
        plim__noise_row(plim__noise_best(), plim__rng_u64(9, i), mean, COUNT, PLIM_F32, row);
        for (int j = 0; j < COUNT; j++) {
            sum += row[j];
            squares += (double)row[j] * row[j];
        }
    }
    const double values = (double)COUNT * ROWS;
    const double variance =
        PLIM__NOISE_DEVIATION * PLIM__NOISE_STEP * PLIM__NOISE_DEVIATION * PLIM__NOISE_STEP;
    assert_true(sum / values < 0.005 && sum / values > -0.005);
    assert_true(squares / values > 0.99 * variance && squares / values < 1.01 * variance);
}

static plim_status_t generate_small(plim_job_t *job, void *context)
{
    char target[600];
    plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
    (void)snprintf(target, sizeof target, "%s/set", (const char *)context);
    options.shape = "free";
    options.edge_columns = "features:5,weight,types:3,time";
    options.target = target;
    options.num_nodes = 1000;
    options.num_edges = 5000;
    options.num_features = 7;
    options.num_classes = 3;
    plim_status_t status = plim_generate(job, &options);
    if (status == PLIM_OK)
        test_directory_remove(target);
    return status;
}

static void every_arena_may_fail(void **state)
{
    char directory[512];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_THREADS);
    (void)state;
    test_directory_make(directory);
    test_fail_each_arena(&job, generate_small, directory);
    test_job_end(&job);
    test_directory_remove(directory);
}

/* The number after `--memory` in the last error, which counts MiB. */
static int64_t named_least(void)
{
    const char *text = strstr(plim_last_error(), "`memory` to ");
    long long mib = 0;
    assert_non_null(text);
    assert_int_equal(sscanf(text, "`memory` to %lldM", &mib), 1);
    return (int64_t)mib << 20;
}

/* Refused with a number; with that number, accepted, and with some less refused before a file
 * exists. Beyond a few edges the build is what counts most. */
static void named_line_is_accepted(void **state)
{
    char directory[512], target[600];
    (void)state;
    test_directory_make(directory);
    (void)snprintf(target, sizeof target, "%s/made", directory);
    for (int threads = 1; threads <= 4; threads += 3) {
        plim_generate_options_t options = PLIM_GENERATE_OPTIONS_INIT;
        options.shape = "papers100M";
        options.target = target;
        options.scale = 0.0005;
        options.edge_columns = "features:300,weight,types:9,time";
        plim_job_t job = test_job_make(PLIM_LINE_NONE, threads, PLIM_IO_THREADS);
        int64_t process = plim__ledger_reserved(job.ledger);
        test_job_end(&job);
        job = test_job_make(process + ((int64_t)1 << 20), threads, PLIM_IO_THREADS);
        assert_int_equal(plim_generate(&job, &options), PLIM_ERR_BUDGET);
        int64_t least = named_least();
        test_job_end(&job);
        job = test_job_make(least - ((int64_t)2 << 20), threads, PLIM_IO_THREADS);
        assert_int_equal(plim_generate(&job, &options), PLIM_ERR_BUDGET);
        assert_in_range(named_least(), least, least + ((int64_t)(TEST_SANITIZED ? 32 : 1) << 20));
        assert_int_equal(access(target, F_OK), -1);
        test_job_end(&job);
        /* The process itself may have grown meanwhile, by megabytes under a sanitizer: the number
         * that it names then must do. */
        plim_status_t status = PLIM_ERR_BUDGET;
        for (int tries = 0; tries < 3 && status == PLIM_ERR_BUDGET; tries++) {
            least = named_least();
            job = test_job_make(least, threads, PLIM_IO_THREADS);
            status = plim_generate(&job, &options);
            test_job_end(&job);
        }
        assert_int_equal(status, PLIM_OK);
        test_directory_remove(target);
    }
    test_directory_remove(directory);
}

/* The same, found by trying. */
static void least_line_is_true(void **state)
{
    char directory[512];
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_THREADS);
    int64_t process = plim__ledger_reserved(job.ledger);
    (void)state;
    test_directory_make(directory);
    test_job_end(&job);
    int64_t low = process;
    int64_t high = process + ((int64_t)64 << 20);
    while (high - low > 4096) {
        int64_t line = low + (high - low) / 2;
        job = test_job_make(line, 4, PLIM_IO_THREADS);
        plim_status_t status = generate_small(&job, directory);
        assert_true(status == PLIM_OK || status == PLIM_ERR_BUDGET);
        if (status == PLIM_ERR_BUDGET)
            assert_non_null(strstr(plim_last_error(), "at least"));
        if (status == PLIM_OK)
            high = line;
        else
            low = line;
        test_job_end(&job);
    }
    assert_true(high < process + ((int64_t)32 << 20));
    test_directory_remove(directory);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lists_are_exact_at_any_density),
        cmocka_unit_test(columns_have_at_most_so_many_bytes),
        cmocka_unit_test(named_shapes_are_exact_when_tiny),
        cmocka_unit_test(degrees_sum_up_and_keep_their_limit),
        cmocka_unit_test(classes_cover_every_place),
        cmocka_unit_test(noise_paths_are_equal),
        cmocka_unit_test(noise_is_centred_and_wide),
        cmocka_unit_test(every_arena_may_fail),
        cmocka_unit_test(named_line_is_accepted),
        cmocka_unit_test(least_line_is_true),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
