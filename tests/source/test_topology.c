/* Lists in memory: what is drawn is what indices.npy holds there, and damage is refused. */
#include "support/draws.h"
#include "support/harness.h"
#include "support/lists.h"
#include "support/sources.h"

#include "base/threads.h"
#include "source/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE ((int64_t)256 << 20)
enum { NODES = 60000, LONGEST = 2000, WORKERS = 3 };

typedef struct fixture {
    char directory[512];
    char path[600];
    plim_job_t job;
    test_lists_t lists;
    plim_dataset_t *dataset;
    plim__offsets_t *offsets;
} fixture_t;

static fixture_t fixture;

static int setup(void **state)
{
    (void)state;
    test_directory_make(fixture.directory);
    (void)snprintf(fixture.path, sizeof fixture.path, "%s/data", fixture.directory);
    fixture.job = test_job_make(LINE, 2, PLIM_IO_AUTO);
    fixture.lists = test_lists_random(NODES, 1000, LONGEST, 3);
    assert_ok(test_lists_write(&fixture.job, fixture.path, &fixture.lists));
    assert_ok(plim_dataset_open(&fixture.job, fixture.path, &fixture.dataset));
    assert_ok(plim__offsets_create(&fixture.job, fixture.dataset, false, &fixture.offsets));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plim__offsets_destroy(fixture.offsets);
    plim_dataset_release(fixture.dataset);
    test_lists_free(&fixture.lists);
    test_job_end(&fixture.job);
    test_directory_remove(fixture.directory);
    return 0;
}

static plim_status_t create(plim_job_t *job, plim__topology_t **source_out)
{
    return test_lists_cached(job, fixture.dataset, fixture.offsets, WORKERS, source_out);
}

/* Every node's answer in `drawn` is what the positions of its owner's draw say. */
static void check_drawn(const plim__draws_t *draws, const plim__drawn_t *drawn)
{
    const plim__hop_t *hop = draws->hop;
    const int64_t *nodes = draws->nodes;
    int64_t positions[PLIM__FANOUT_MAX + LONGEST];
    assert_int_equal(drawn->indptr[0], 0);
    for (int64_t i = 0; i < drawn->taken; i++) {
        const int64_t start = fixture.lists.indptr[nodes[i]];
        const int64_t degree = fixture.lists.indptr[nodes[i] + 1] - start;
        const int64_t count = plim__draw_count(hop, degree);
        assert_int_equal(drawn->indptr[i + 1] - drawn->indptr[i], count);
        test_draw_positions(hop, draws->owners[i], degree, positions);
        for (int64_t j = 0; j < count; j++) {
            assert_int_equal(drawn->ids[drawn->indptr[i] + j],
                             fixture.lists.indices[start + positions[j]]);
            assert_int_equal(drawn->positions[drawn->indptr[i] + j], start + positions[j]);
        }
    }
}

typedef struct drawing {
    plim__topology_t *source;
    plim__hop_t hop;
    int64_t nodes[5000];
    const int64_t *owners; /* (5000) */
    int64_t indptr[WORKERS][5001];
    int64_t ids[WORKERS][5000 * 50];
    int64_t positions[WORKERS][5000 * 50];
} drawing_t;

static plim_status_t draw_all(void *context, int worker)
{
    drawing_t *drawing = context;
    int64_t *indptr = drawing->indptr[worker], *ids = drawing->ids[worker];
    int64_t capacity = drawing->hop.fanout < 0 ? LONGEST + 11 : 5000 * 50;
    plim__drawn_t drawn = {.indptr = indptr,
                           .ids = ids,
                           .capacity = capacity,
                           .positions = drawing->positions[worker]};
    for (int64_t done = 0; done < 5000; done += drawn.taken) {
        const plim__draws_t draws = {&drawing->hop, drawing->nodes + done, drawing->owners + done,
                                     5000 - done, NULL};
        assert_ok(plim__topology_draw(drawing->source, worker, &draws, &drawn));
        assert_in_range(drawn.taken, 1, 5000 - done);
        check_drawn(&draws, &drawn);
    }
    return PLIM_OK;
}

static void draws_what_the_lists_hold(void **state)
{
    (void)state;
    static drawing_t drawing;
    plim__source_stats_t stats;
    const int64_t fanouts[] = {-1, 0, 1, 3, 15, 50};
    static int64_t others[5000];
    uint64_t counter = 0;
    for (int64_t i = 0; i < 5000; i++)
        others[i] = i << 40;
    assert_ok(create(&fixture.job, &drawing.source));
    for (size_t f = 0; f < sizeof fanouts / sizeof fanouts[0]; f++)
        for (int replace = 0; replace < 2; replace++) {
            for (size_t i = 0; i < 5000; i++)
                drawing.nodes[i] = (int64_t)plim__rng_below(8, &counter, NODES);
            drawing.owners = f % 2 == 0 ? drawing.nodes : others;
            drawing.hop = (plim__hop_t){4, 2, 1, fanouts[f], replace == 1};
            assert_ok(plim__parallel(WORKERS, draw_all, &drawing));
        }
    stats = plim__source_stats(drawing.source->disk);
    assert_int_equal(stats.items, 12 * WORKERS * 5000);
    assert_int_equal(stats.cached, stats.items);
    assert_int_equal(stats.transfers, 0);
    plim__topology_disk_destroy(drawing.source);
    plim__topology_disk_destroy(NULL);
}

static void takes_what_fits_and_at_least_one(void **state)
{
    (void)state;
    int64_t indptr[4], ids[64], node = 0;
    plim__topology_t *source;
    plim__drawn_t drawn = {.indptr = indptr, .ids = ids, .capacity = 64};
    plim__hop_t hop = {.fanout = -1};
    while (fixture.lists.indptr[node + 1] - fixture.lists.indptr[node] != 20)
        node++;
    const int64_t nodes[] = {node, 999, node}; /* 999 has a hundred and more */
    assert_ok(create(&fixture.job, &source));
    assert_ok(test_topology_draw(source, 0, &hop, nodes, 3, &drawn));
    assert_int_equal(drawn.taken, 1);
    drawn.capacity = 20;
    assert_ok(test_topology_draw(source, 0, &hop, nodes, 1, &drawn));
    assert_int_equal(drawn.taken, 1);
    drawn.capacity = 19;
    assert_int_equal(test_topology_draw(source, 0, &hop, nodes, 1, &drawn), PLIM_ERR_BUDGET);
    assert_ok(test_topology_draw(source, 0, &hop, nodes, 0, &drawn));
    assert_int_equal(drawn.taken, 0);
    plim__topology_disk_destroy(source);
}

static void refuses_entries_that_are_no_nodes(void **state)
{
    (void)state;
    plim__topology_t *source = NULL;
    const int64_t last = fixture.lists.indptr[NODES] - 1;
    const int64_t places[] = {0, 1, 524287, 524288, last};
    const int32_t values[] = {-1, INT32_MIN, INT32_MAX, NODES};
    for (size_t i = 0; i < sizeof places / sizeof places[0]; i++)
        for (size_t j = 0; j < sizeof values / sizeof values[0]; j++) {
            char place[32];
            const int32_t right = (int32_t)fixture.lists.indices[places[i]];
            int64_t before = plim__ledger_available(fixture.job.ledger);
            test_overwrite(fixture.path, "indices.npy", places[i], &values[j], sizeof values[j]);
            assert_int_equal(create(&fixture.job, &source), PLIM_ERR_DATA);
            (void)snprintf(place, sizeof place, "entry %lld is %d", (long long)places[i],
                           values[j]);
            assert_non_null(strstr(plim_last_error(), "indices.npy"));
            assert_non_null(strstr(plim_last_error(), place));
            assert_null(source);
            assert_int_equal(before, plim__ledger_available(fixture.job.ledger));
            test_overwrite(fixture.path, "indices.npy", places[i], &right, sizeof right);
        }
}

static plim_status_t create_and_destroy(plim_job_t *job, void *context)
{
    plim__topology_t *source;
    plim_status_t status = create(job, &source);
    (void)context;
    if (status == PLIM_OK)
        plim__topology_disk_destroy(source);
    return status;
}

static void keeps_to_its_estimate(void **state)
{
    (void)state;
    const plim__source_params_t all = test_all_lists(WORKERS);
    const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};
    test_fail_each_arena(&fixture.job, create_and_destroy, NULL);
    for (int i = 0; i < 2; i++) {
        plim__topology_t *source;
        plim_job_t job = test_job_make(LINE, 2, engines[i]);
        int64_t before = plim__ledger_reserved(job.ledger);
        assert_ok(create(&job, &source));
        assert_in_range(plim__ledger_reserved(job.ledger) - before, 0,
                        plim__topology_disk_estimate(&job, fixture.dataset, &all));
        plim__topology_disk_destroy(source);
        test_job_end(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_what_the_lists_hold),
        cmocka_unit_test(takes_what_fits_and_at_least_one),
        cmocka_unit_test(refuses_entries_that_are_no_nodes),
        cmocka_unit_test(keeps_to_its_estimate),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
