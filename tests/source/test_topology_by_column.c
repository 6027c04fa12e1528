/*
 * Draws that a column decides, from random multigraphs with self-loops, empty lists and hubs: what
 * source/choose.h says, whatever is in memory or on disk, cached or dropped, by several threads.
 */
/* labels: asan tsan */
#include "source/topology.h"

#include "base/threads.h"
#include "support/chosen.h"
#include "support/harness.h"
#include "support/lists.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LINE ((int64_t)256 << 20)
enum { NODES = 3000, LONGEST = 9000, WORKERS = 3, DRAWS = 250, CAPACITY = 60000 };

typedef struct world {
    char directory[512];
    char path[600];
    plim_job_t job;
    test_lists_t lists;
    plim_dataset_t *dataset;
    plim__offsets_t *offsets;
} world_t;

static world_t world;

static int setup(void **state)
{
    (void)state;
    test_directory_make(world.directory);
    (void)snprintf(world.path, sizeof world.path, "%s/data", world.directory);
    world.job = test_job_make(LINE, WORKERS, PLIM_IO_AUTO);
    world.lists = test_lists_random(NODES, 500, LONGEST, 3);
    test_lists_loops(&world.lists, 7, 3);
    test_lists_columns(&world.lists, 5);
    assert_ok(test_lists_write(&world.job, world.path, &world.lists));
    assert_ok(plim_dataset_open(&world.job, world.path, &world.dataset));
    assert_ok(plim__offsets_create(&world.job, world.dataset, false, &world.offsets));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plim__offsets_destroy(world.offsets);
    plim_dataset_release(world.dataset);
    test_lists_free(&world.lists);
    test_job_end(&world.job);
    test_directory_remove(world.directory);
    return 0;
}

/* What decides: the column, and whether it is of nodes. */
typedef struct deciding {
    plim__choice_t choice;
    unsigned column;
} deciding_t;

static const deciding_t decidings[] = {
    {PLIM__CHOOSE_BY_WEIGHT, PLIM_EDGE_WEIGHT}, {PLIM__CHOOSE_UP_TO, PLIM_EDGE_TIME},
    {PLIM__CHOOSE_LATEST, PLIM_EDGE_TIME},      {PLIM__CHOOSE_UP_TO, PLIM_NODE_TIME},
    {PLIM__CHOOSE_LATEST, PLIM_NODE_TIME},
};

/* Lists on disk, some of them cached, or all in memory; the column in memory or on disk. */
typedef struct sources {
    const deciding_t *by;
    plim__topology_t *lists, *drawn;
    plim__rows_t *column;
    plim__node_set_t cached;
    void *lines;
} sources_t;

static sources_t open_sources(const deciding_t *by, int variant)
{
    sources_t sources = {.by = by};
    plim__source_params_t params = {.workers = WORKERS, .depth = 8, .merge_distance = 4096};
    sources.lines = aligned_alloc(64, plim__node_set_bytes(NODES));
    sources.cached = plim__node_set_make(sources.lines, NODES);
    plim__node_set_clear(&sources.cached);
    for (int64_t v = 0; v < NODES; v += 2)
        (void)plim__node_set_add(&sources.cached, v);
    plim__node_set_seal(&sources.cached);
    params.all = variant % 3 == 0;
    if (variant % 3 == 1) {
        params.cached = &sources.cached;
        params.cache_bytes = (size_t)1 << 20;
    }
    assert_ok(plim__topology_disk_create(&world.job, world.dataset, world.offsets, &params,
                                         &sources.lists));
    params = (plim__source_params_t){
        .workers = WORKERS, .depth = 8, .merge_distance = 4096, .column = by->column};
    if (variant / 3 == 0)
        assert_ok(plim__rows_memory_create(&world.job, world.dataset, by->column, &sources.column));
    else
        assert_ok(plim__rows_disk_create(&world.job, world.dataset, &params, &sources.column));
    const plim__topology_by_column_params_t drawn = {.below = sources.lists,
                                                     .column = sources.column,
                                                     .choice = by->choice,
                                                     .of_nodes = by->column == PLIM_NODE_TIME,
                                                     .workers = WORKERS};
    assert_ok(plim__topology_by_column_create(&world.job, &drawn, &sources.drawn));
    return sources;
}

static void close_sources(sources_t *sources)
{
    plim__topology_by_column_destroy(sources->drawn);
    plim__topology_disk_destroy(sources->lists);
    if (sources->column->disk != NULL)
        plim__rows_disk_destroy(sources->column);
    else
        plim__rows_memory_destroy(sources->column);
    free(sources->lines);
}

/* The values of a node's list. */
static const void *values_of(const deciding_t *by, int64_t node, int64_t *scratch)
{
    const int64_t start = world.lists.indptr[node], end = world.lists.indptr[node + 1];
    if (by->column == PLIM_EDGE_WEIGHT)
        return world.lists.weights + start;
    if (by->column == PLIM_EDGE_TIME)
        return world.lists.times + start;
    for (int64_t i = start; i < end; i++)
        scratch[i - start] = world.lists.node_times[world.lists.indices[i]];
    return scratch;
}

static void check_draw(const deciding_t *by, const plim__draws_t *draws, int64_t i,
                       const plim__drawn_t *drawn, int64_t at, int64_t *scratch, int64_t *expected)
{
    const int64_t node = draws->nodes[i], start = world.lists.indptr[node];
    const int64_t degree = world.lists.indptr[node + 1] - start;
    int64_t count = test_chosen(by->choice, draws->hop, draws->owners[i],
                                values_of(by, node, scratch), degree, draws->until[i], expected);
    if (!plim__choose_needs(by->choice, draws->hop, degree)) {
        count = plim__draw_count(draws->hop, degree);
        for (int64_t k = 0; k < count; k++)
            expected[k] = k;
    }
    assert_int_equal(drawn->indptr[at + 1] - drawn->indptr[at], count);
    for (int64_t k = 0; k < count; k++) {
        const int64_t position = start + expected[k];
        assert_int_equal(drawn->ids[drawn->indptr[at] + k], world.lists.indices[position]);
        if (drawn->positions != NULL)
            assert_int_equal(drawn->positions[drawn->indptr[at] + k], position);
        if (by->column == PLIM_EDGE_TIME)
            assert_true(world.lists.times[position] <= draws->until[i]);
        if (by->column == PLIM_NODE_TIME)
            assert_true(world.lists.node_times[world.lists.indices[position]] <= draws->until[i]);
    }
}

typedef struct drawing {
    const sources_t *sources;
    plim__hop_t hop;
    int64_t nodes[DRAWS], owners[DRAWS], until[DRAWS];
} drawing_t;

static plim_status_t draw_all(void *context, int worker)
{
    const drawing_t *drawing = context;
    int64_t *ids = calloc(CAPACITY, sizeof *ids), *positions = calloc(CAPACITY, sizeof *ids);
    int64_t *scratch = calloc(LONGEST, sizeof *ids), *expected = calloc(CAPACITY, sizeof *ids);
    int64_t indptr[DRAWS + 1];
    plim__drawn_t drawn = {.indptr = indptr,
                           .ids = ids,
                           .capacity = CAPACITY,
                           .positions = worker == 1 ? NULL : positions};
    for (int64_t done = 0; done < DRAWS; done += drawn.taken) {
        const plim__draws_t draws = {&drawing->hop, drawing->nodes + done, drawing->owners + done,
                                     DRAWS - done, drawing->until + done};
        assert_ok(plim__topology_draw(drawing->sources->drawn, worker, &draws, &drawn));
        assert_in_range(drawn.taken, 1, DRAWS - done);
        for (int64_t i = 0; i < drawn.taken; i++)
            check_draw(drawing->sources->by, &draws, i, &drawn, i, scratch, expected);
    }
    free(ids);
    free(positions);
    free(scratch);
    free(expected);
    return PLIM_OK;
}

/* Fan-outs below, at and above lengths; nodes in any order, hubs among them. */
static void draws_what_the_column_says(void **state)
{
    (void)state;
    static drawing_t drawing;
    const int64_t fanouts[] = {-1, 0, 1, 5, 15, PLIM__FANOUT_MAX};
    uint64_t counter = 0;
    for (size_t by = 0; by < sizeof decidings / sizeof decidings[0]; by++)
        for (int variant = 0; variant < 6; variant++) {
            sources_t sources = open_sources(&decidings[by], variant);
            drawing.sources = &sources;
            for (size_t f = 0; f < sizeof fanouts / sizeof fanouts[0]; f++) {
                drawing.hop = (plim__hop_t){4, 2, 1, fanouts[f], (f + (size_t)variant) % 2 == 1};
                if (drawing.hop.replace && fanouts[f] > 100)
                    drawing.hop.fanout = 40;
                for (size_t i = 0; i < DRAWS; i++) {
                    const bool hub = i % 100 == 50;
                    drawing.nodes[i] =
                        hub ? 499 + 500 * (int64_t)plim__rng_below(8, &counter, NODES / 500)
                            : (int64_t)plim__rng_below(8, &counter, NODES);
                    if (f % 2 == 0 && i > 0 && !hub)
                        drawing.nodes[i] = (drawing.nodes[i - 1] + 1) % NODES;
                    drawing.owners[i] = (int64_t)(i << 40) + drawing.nodes[i];
                    drawing.until[i] = (int64_t)plim__rng_below(8, &counter, 120) - 60;
                }
                assert_ok(plim__parallel(WORKERS, draw_all, &drawing));
            }
            close_sources(&sources);
        }
}

/* Lists that the kernel took back are read again. */
static void dropped_lists_are_read_again(void **state)
{
    (void)state;
    static drawing_t drawing;
    for (int variant = 0; variant < 2; variant++) {
        sources_t sources = open_sources(&decidings[variant], variant);
        plim__droppable_t *memory = plim__source_memory(sources.lists->disk);
        drawing.sources = &sources;
        drawing.hop = (plim__hop_t){4, 2, 1, 5, false};
        for (int64_t i = 0; i < DRAWS; i++)
            drawing.nodes[i] = drawing.owners[i] = i * 4 % NODES;
        for (int64_t kept = (int64_t)1 << 20; kept >= 0; kept -= (int64_t)1 << 18) {
            plim__droppable_limit(memory, (size_t)kept);
            assert_ok(plim__parallel(WORKERS, draw_all, &drawing));
        }
        assert_true(plim__source_stats(sources.lists->disk).transfers > 0);
        close_sources(&sources);
    }
}

static void takes_what_fits_and_at_least_one(void **state)
{
    (void)state;
    int64_t indptr[4], ids[64], node = 0, until[] = {100, 100, 100};
    sources_t sources = open_sources(&decidings[1], 0);
    plim__drawn_t drawn = {.indptr = indptr, .ids = ids, .capacity = 64};
    const plim__hop_t hop = {.fanout = -1};
    while (world.lists.indptr[node + 1] - world.lists.indptr[node] != 20)
        node++;
    const int64_t nodes[] = {node, 499, node}; /* 499 is a hub */
    plim__draws_t draws = {&hop, nodes, nodes, 3, until};
    assert_ok(plim__topology_draw(sources.drawn, 0, &draws, &drawn));
    assert_int_equal(drawn.taken, 1);
    draws.nodes = draws.owners = nodes + 1;
    assert_int_equal(plim__topology_draw(sources.drawn, 0, &draws, &drawn), PLIM_ERR_BUDGET);
    draws.count = 0;
    assert_ok(plim__topology_draw(sources.drawn, 0, &draws, &drawn));
    assert_int_equal(drawn.taken, 0);
    close_sources(&sources);
}

static void bad_weights_are_refused(void **state)
{
    (void)state;
    const float bad[] = {-1, NAN, INFINITY};
    const plim__hop_t hop = {.fanout = 5};
    int64_t indptr[2], ids[64];
    plim__drawn_t drawn = {.indptr = indptr, .ids = ids, .capacity = 64};
    for (int64_t which = 0; which < 2; which++) {
        int64_t node = which == 0 ? 0 : 499;
        while (which == 0 && world.lists.indptr[node + 1] - world.lists.indptr[node] < 10)
            node++;
        const int64_t last = world.lists.indptr[node + 1] - 1;
        const plim__draws_t draws = plim__draws_of(&hop, &node, 1);
        for (size_t i = 0; i < 3; i++) {
            char place[32];
            sources_t sources = open_sources(&decidings[0], 4);
            test_overwrite(world.path, "edge_weight.npy", last, &bad[i], sizeof bad[i]);
            assert_int_equal(plim__topology_draw(sources.drawn, 0, &draws, &drawn), PLIM_ERR_DATA);
            (void)snprintf(place, sizeof place, "entry %lld is", (long long)last);
            assert_non_null(strstr(plim_last_error(), place));
            test_overwrite(world.path, "edge_weight.npy", last, &world.lists.weights[last],
                           sizeof(float));
            close_sources(&sources);
        }
    }
}

static plim_status_t create(plim_job_t *job, void *context)
{
    const sources_t *sources = context;
    const plim__topology_by_column_params_t params = {
        .below = sources->lists, .column = sources->column, .workers = WORKERS};
    plim__topology_t *drawn;
    const int64_t before = plim__ledger_reserved(job->ledger);
    PLIM_TRY(plim__topology_by_column_create(job, &params, &drawn));
    assert_in_range(plim__ledger_reserved(job->ledger) - before, 0,
                    plim__topology_by_column_estimate(WORKERS));
    plim__topology_by_column_destroy(drawn);
    return PLIM_OK;
}

static void keeps_to_its_estimate(void **state)
{
    (void)state;
    sources_t sources = open_sources(&decidings[0], 0);
    test_fail_each_arena(&world.job, create, &sources);
    plim__topology_by_column_destroy(NULL);
    close_sources(&sources);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(draws_what_the_column_says),
        cmocka_unit_test(dropped_lists_are_read_again),
        cmocka_unit_test(takes_what_fits_and_at_least_one),
        cmocka_unit_test(bad_weights_are_refused),
        cmocka_unit_test(keeps_to_its_estimate),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
