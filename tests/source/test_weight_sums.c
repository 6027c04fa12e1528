/* Sums of the weights of edges are those by brute force, for any number of threads, also where
 * lists reach over several chunks. */
#include "support/dataset.h"
#include "support/harness.h"

#include "base/check.h"
#include "base/fail.h"
#include "io/npy.h"
#include "source/weight_sums.h"

#include <stdio.h>
#include <stdlib.h>

#define NODES 40000

static void *read_file(const char *directory, const char *name, int64_t *size_out)
{
    char path[700];
    (void)snprintf(path, sizeof path, "%s/%s", directory, name);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    *size_out = ftell(file) - PLIM__NPY_HEADER;
    void *data = malloc((size_t)*size_out);
    assert_int_equal(fseek(file, PLIM__NPY_HEADER, SEEK_SET), 0);
    assert_int_equal(fread(data, 1, (size_t)*size_out, file), *size_out);
    (void)fclose(file);
    return data;
}

static void check_threads(int threads, int64_t line)
{
    const test_graph_t graph = {
        .num_nodes = NODES, .columns = PLIM_EDGE_WEIGHT, .drawable = true, .seed = 4};
    test_place_t place = test_place_open(&graph, line, threads, PLIM_IO_AUTO);
    int64_t size;
    int64_t *indptr = read_file(place.path, "indptr.npy", &size);
    int32_t *indices = read_file(place.path, "indices.npy", &size);
    float *weights = read_file(place.path, "edge_weight.npy", &size);
    plim__offsets_t *offsets;
    plim__weight_sums_t sums = {.sums = NULL};
    assert_true(size > (int64_t)3 * 65536 * (int64_t)sizeof(float)); /* several chunks */
    assert_ok(plim__offsets_create(&place.job, place.dataset, false, &offsets));
    assert_ok(plim__weight_sums_create(&place.job, place.dataset, offsets, &sums));
    int64_t loops = 0;
    for (int64_t v = 0; v < NODES; v++) {
        double others = 0, own = 1;
        for (int64_t i = indptr[v]; i < indptr[v + 1]; i++) {
            loops += indices[i] == v;
            others += indices[i] == v ? 0 : (double)weights[i];
            own = indices[i] == v ? (double)weights[i] : own;
        }
        assert_true(sums.sums[v] == (float)(others + own)); /* all weights are whole numbers */
    }
    assert_true(loops > 0);
    const int64_t nodes[] = {7, 0, NODES - 1};
    float some[3];
    plim__weight_sums_of(&sums, nodes, 3, some);
    for (int i = 0; i < 3; i++)
        assert_true(some[i] == sums.sums[nodes[i]]);
    plim__weight_sums_destroy(&sums);
    plim__offsets_destroy(offsets);
    free(indptr);
    free(indices);
    free(weights);
    test_place_close(&place);
}

static void brute_force(void **state)
{
    (void)state;
    for (int threads = 1; threads <= 8; threads += 3)
        check_threads(threads, (int64_t)256 << 20);
}

static plim_status_t create_and_destroy(plim_job_t *job, void *context)
{
    plim__offsets_t *offsets;
    plim__weight_sums_t sums = {.sums = NULL};
    PLIM_TRY(plim__offsets_create(job, context, false, &offsets));
    const plim_status_t status = plim__weight_sums_create(job, context, offsets, &sums);
    plim__weight_sums_destroy(&sums);
    plim__offsets_destroy(offsets);
    return status;
}

static const test_graph_t small = {
    .num_nodes = 3000, .columns = PLIM_EDGE_WEIGHT, .drawable = true, .seed = 5};

static void every_failed_arena_is_survived(void **state)
{
    (void)state;
    test_place_t place = test_place_open(&small, (int64_t)256 << 20, 2, PLIM_IO_THREADS);
    test_fail_each_arena(&place.job, create_and_destroy, place.dataset);
    test_place_close(&place);
}

static void a_low_line_is_enough(void **state)
{
    (void)state;
    test_place_t place = test_place_open(&small, (int64_t)256 << 20, 8, PLIM_IO_THREADS);
    plim__offsets_t *offsets;
    plim__weight_sums_t sums;
    plim__arena_t rest;
    assert_ok(plim__offsets_create(&place.job, place.dataset, false, &offsets));
    const size_t minimum =
        plim__weight_sums_estimate(small.num_nodes) + plim__weight_sums_work_minimum(&place.job);
    const size_t left = (size_t)plim__ledger_available(place.job.ledger) - minimum;
    assert_ok(plim__arena_create(place.job.ledger, "rest", left / PLIM__PAGE * PLIM__PAGE, &rest));
    assert_ok(plim__weight_sums_create(&place.job, place.dataset, offsets, &sums));
    plim__weight_sums_destroy(&sums);
    plim__arena_destroy(&rest);
    plim__offsets_destroy(offsets);
    test_place_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(brute_force),
                                       cmocka_unit_test(every_failed_arena_is_survived),
                                       cmocka_unit_test(a_low_line_is_enough)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
