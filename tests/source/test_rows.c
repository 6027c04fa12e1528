/* Rows from memory and from disk equal the dataset's, in either type, by either engine. */
/* labels: asan tsan */
#include "support/dataset.h"
#include "support/features.h"
#include "support/sources.h"

#include "base/fail.h"
#include "base/rng.h"
#include "base/threads.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

static plim__source_params_t disk_params(size_t merge_distance)
{
    return (plim__source_params_t){.workers = 2, .depth = 16, .merge_distance = merge_distance};
}

static void equal_the_dataset(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 3, 64, 128, 129, 256, 5000};
    for (int s = 0; s < 7; s++) {
        for (int half = 0; half < 2; half++) {
            test_features_t world;
            plim__rows_t *source;
            test_features_make(&world, sizes[s] > 1000 ? 60 : 700, sizes[s], half == 1,
                               engines[(s + half) % 2]);
            int64_t before = plim__ledger_reserved(world.job.ledger);
            assert_ok(test_rows_cached(&world.job, world.dataset, &source));
            plim__source_params_t all = test_all_rows(4);
            assert_true(plim__ledger_reserved(world.job.ledger) - before <=
                        (int64_t)plim__rows_disk_estimate(&world.job, world.dataset, &all));
            test_features_check(&world, source);
            plim__rows_disk_destroy(source);
            for (size_t merge_distance = 0; merge_distance <= 16384; merge_distance += 16384) {
                plim__source_params_t params = disk_params(merge_distance);
                assert_ok(plim__rows_disk_create(&world.job, world.dataset, &params, &source));
                assert_true(plim__ledger_reserved(world.job.ledger) - before <=
                            (int64_t)plim__rows_disk_estimate(&world.job, world.dataset, &params));
                test_features_check(&world, source);
                plim__rows_disk_destroy(source);
            }
            assert_int_equal(plim__ledger_reserved(world.job.ledger), before);
            test_features_end(&world);
        }
    }
}

/* More rows than one chunk of a gather, in descending order, each of them twice. */
static void long_gathers(void **state)
{
    (void)state;
    enum { NODES = 20000, COUNT = 2 * NODES };
    for (int half = 0; half < 2; half++) {
        test_features_t world;
        plim__rows_t *source;
        plim__source_stats_t stats;
        plim__source_params_t params = disk_params(4096);
        int64_t *nodes = malloc(COUNT * sizeof *nodes);
        assert_non_null(nodes);
        for (int64_t i = 0; i < COUNT; i++)
            nodes[i] = (COUNT - 1 - i) / 2;
        test_features_make(&world, NODES, 20, half == 1, PLIM_IO_AUTO);
        assert_ok(plim__rows_disk_create(&world.job, world.dataset, &params, &source));
        test_features_gather(&world, source, 0, nodes, COUNT);
        stats = plim__source_stats(source->disk);
        assert_int_equal(stats.items, 2 * COUNT);
        assert_int_equal(stats.cached, 0);
        /* Joined: every chunk reads its part of the file about once. */
        int64_t file_bytes = (int64_t)NODES * 20 * (half == 1 ? 2 : 4);
        assert_true(stats.transfers > 0 && stats.transfers < 200);
        assert_true(stats.bytes_read >= 2 * file_bytes && stats.bytes_read < 3 * file_bytes);
        plim__rows_disk_destroy(source);
        free(nodes);
        test_features_end(&world);
    }
}

typedef struct crowd {
    const test_features_t *world;
    plim__rows_t *source;
    atomic_int next;
} crowd_t;

static plim_status_t crowd_member(void *context, int worker)
{
    (void)worker;
    crowd_t *crowd = context;
    int number = crowd->next++;
    int64_t nodes[200];
    uint64_t draw = 0;
    for (int round = 0; round < 20; round++) {
        for (int i = 0; i < 200; i++)
            nodes[i] = (int64_t)plim__rng_below((uint64_t)number + 100, &draw,
                                                (uint64_t)crowd->world->num_nodes);
        size_t bytes = 200 * (size_t)crowd->world->num_features * 4;
        char *rows = malloc(bytes);
        PLIM_TRY(plim__rows_gather(crowd->source, number, nodes, 200, PLIM_F32, rows));
        test_features_compare(crowd->world, nodes, 200, PLIM_F32, rows);
        free(rows);
    }
    return PLIM_OK;
}

static void several_workers(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++) {
        test_features_t world;
        test_features_make(&world, 3000, 32, true, engines[e]);
        plim__source_params_t params = {.workers = 4, .depth = 8, .merge_distance = 1024};
        plim__rows_t *sources[2];
        assert_ok(plim__rows_disk_create(&world.job, world.dataset, &params, &sources[0]));
        assert_ok(test_rows_cached(&world.job, world.dataset, &sources[1]));
        for (int i = 0; i < 2; i++) {
            plim__source_stats_t stats;
            crowd_t crowd = {.world = &world, .source = sources[i]};
            assert_ok(plim__parallel(4, crowd_member, &crowd));
            stats = plim__source_stats(sources[i]->disk);
            assert_int_equal(stats.items, (int64_t)crowd.next * 20 * 200);
            plim__rows_disk_destroy(sources[i]);
        }
        test_features_end(&world);
    }
}

static void what_cannot_be_gathered(void **state)
{
    (void)state;
    test_features_t world;
    plim__rows_t *source;
    float row[8];
    int64_t bad[] = {100};
    test_features_make(&world, 100, 8, true, PLIM_IO_AUTO);
    plim__source_params_t params = disk_params(0);
    assert_ok(plim__rows_disk_create(&world.job, world.dataset, &params, &source));
    assert_int_equal(plim__rows_gather(source, 0, bad, 1, PLIM_F32, row), PLIM_ERR_USAGE);
    bad[0] = -1;
    assert_int_equal(plim__rows_gather(source, 0, bad, 1, PLIM_F32, row), PLIM_ERR_USAGE);
    plim__rows_disk_destroy(source);
    test_features_end(&world);
}

static void without_features(void **state)
{
    (void)state;
    test_features_t world;
    plim__rows_t *source;
    plim__source_params_t params = disk_params(0);
    test_graph_t graph = {.num_nodes = 50, .num_classes = 2, .bare = true};
    test_directory_make(world.directory);
    (void)snprintf(world.path, sizeof world.path, "%s/data", world.directory);
    world.job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    assert_ok(test_dataset_make(&world.job, world.path, &graph));
    assert_ok(plim_dataset_open(&world.job, world.path, &world.dataset));
    assert_int_equal(test_rows_cached(&world.job, world.dataset, &source), PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "no features"));
    assert_int_equal(plim__rows_disk_create(&world.job, world.dataset, &params, &source),
                     PLIM_ERR_USAGE);
    plim_dataset_release(world.dataset);
    test_job_end(&world.job);
    test_directory_remove(world.directory);
}

/* The file is cut after the dataset was opened, and after the source was made. */
static void cut_under_it(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++) {
        test_features_t world;
        plim__rows_t *source;
        char name[700];
        int64_t last[] = {4999};
        float row[16];
        plim__source_params_t params = disk_params(0);
        test_features_make(&world, 5000, 16, true, engines[e]);
        (void)snprintf(name, sizeof name, "%s/features.npy", world.path);
        assert_ok(plim__rows_disk_create(&world.job, world.dataset, &params, &source));
        assert_int_equal(truncate(name, 100000), 0);
        assert_int_equal(plim__rows_gather(source, 0, last, 1, PLIM_F32, row), PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), "features.npy"));
        last[0] = 0;
        assert_ok(plim__rows_gather(source, 0, last, 1, PLIM_F32, row));
        plim__rows_disk_destroy(source);
        assert_int_equal(test_rows_cached(&world.job, world.dataset, &source), PLIM_ERR_DATA);
        assert_int_equal(plim__rows_disk_create(&world.job, world.dataset, &params, &source),
                         PLIM_ERR_DATA);
        test_features_end(&world);
    }
}

static plim_status_t make_memory(plim_job_t *job, void *context)
{
    plim__rows_t *source;
    PLIM_TRY(test_rows_cached(job, context, &source));
    plim__rows_disk_destroy(source);
    return PLIM_OK;
}

static plim_status_t make_disk(plim_job_t *job, void *context)
{
    plim__rows_t *source;
    plim__source_params_t params = disk_params(0);
    PLIM_TRY(plim__rows_disk_create(job, context, &params, &source));
    plim__rows_disk_destroy(source);
    return PLIM_OK;
}

static void no_memory(void **state)
{
    (void)state;
    for (int e = 0; e < 2; e++) {
        test_features_t world;
        test_features_make(&world, 200, 7, false, engines[e]);
        test_fail_each_arena(&world.job, make_memory, world.dataset);
        test_fail_each_arena(&world.job, make_disk, world.dataset);
        test_features_end(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_the_dataset), cmocka_unit_test(long_gathers),
        cmocka_unit_test(several_workers),   cmocka_unit_test(what_cannot_be_gathered),
        cmocka_unit_test(without_features),  cmocka_unit_test(cut_under_it),
        cmocka_unit_test(no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
