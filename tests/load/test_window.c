/*
 * Windows against the sources they were drawn from: what a batch finds in a window is what it would
 * have found below, for every form, type, capacity and number of threads.
 */
/* labels: asan tsan */
#include "base/fail.h"
#include "base/half.h"
#include "base/job.h"
#include "base/rng.h"
#include "base/threads.h"
#include "io/file.h"
#include "load/ahead.h"
#include "load/window.h"
#include "support/dataset.h"
#include "support/draws.h"
#include "support/harness.h"
#include "support/sources.h"

#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#define NODES ((int64_t)6000)
#define DEGREE_MOST ((int64_t)40)
#define FEATURES ((int64_t)5)
#define BATCH ((int64_t)37)
#define BATCHES ((int64_t)12)
#define WORKERS_MOST 24

/* A computed graph and computed rows as sources, which also check that a worker's number is used by
 * one thread at a time, and fail when they are told to. */
typedef struct fake_graph {
    plim__topology_t source;
    atomic_int busy[WORKERS_MOST];
    int64_t bad_node; /* -1: none */
    atomic_llong drawn;
} fake_graph_t;

typedef struct fake_rows {
    plim__rows_t source;
    atomic_int busy[WORKERS_MOST];
    int64_t bad_node;
    atomic_llong gathered;
} fake_rows_t;

static int64_t degree_of(int64_t node)
{
    return node % 11 == 3 ? 0 : (int64_t)(plim__rng_u64(1, (uint64_t)node) % (DEGREE_MOST + 1));
}

static int64_t neighbour_of(int64_t node, int64_t i)
{
    uint64_t wide = plim__rng_u64((uint64_t)node + 7, (uint64_t)i);
    return (int64_t)(wide % 3 == 0 ? wide / 3 % 100 : wide / 3 % NODES);
}

static void enter(atomic_int *busy, int worker)
{
    assert_in_range(worker, 0, WORKERS_MOST - 1);
    assert_int_equal(atomic_fetch_add(&busy[worker], 1), 0);
}

static plim_status_t leave(atomic_int *busy, int worker, plim_status_t status)
{
    atomic_fetch_sub(&busy[worker], 1);
    return status;
}

static plim_status_t fake_draw(plim__topology_t *source, int worker, const plim__draws_t *draws,
                               plim__drawn_t *drawn)
{
    fake_graph_t *fake = (fake_graph_t *)source;
    const plim__hop_t *hop = draws->hop;
    int64_t at = 0, done = 0;
    enter(fake->busy, worker);
    drawn->indptr[0] = 0;
    for (; done < draws->count; done++) {
        int64_t node = draws->nodes[done], degree = degree_of(node);
        int64_t wanted = plim__draw_count(hop, degree);
        if (node == fake->bad_node)
            return leave(fake->busy, worker, plim__fail(PLIM_ERR_IO, "list %d", (int)node));
        if (at + wanted > drawn->capacity)
            break;
        uint64_t key =
            plim__rng_key(hop->seed, (uint64_t)hop->epoch, (uint64_t)hop->hop, (uint64_t)node);
        for (int64_t i = 0; i < wanted; i++)
            drawn->ids[at++] = neighbour_of(
                node, wanted == degree
                          ? i
                          : (int64_t)(plim__rng_u64(key, (uint64_t)i) % (uint64_t)degree));
        drawn->indptr[done + 1] = at;
    }
    drawn->taken = done;
    atomic_fetch_add(&fake->drawn, done);
    return leave(fake->busy, worker, PLIM_OK);
}

/* Exact as f16. */
static float value_of(int64_t node, int64_t feature)
{
    return (float)((node * 8 + feature) * 37 % 2048) / 64;
}

static plim_status_t fake_gather(plim__rows_t *source, int worker, const int64_t *nodes,
                                 int64_t count, plim_dtype_t type, void *rows_out)
{
    fake_rows_t *fake = (fake_rows_t *)source;
    enter(fake->busy, worker);
    for (int64_t i = 0; i < count; i++) {
        if (nodes[i] == fake->bad_node)
            return leave(fake->busy, worker, plim__fail(PLIM_ERR_IO, "row %d", (int)nodes[i]));
        for (int64_t j = 0; j < FEATURES; j++)
            if (type == PLIM_F32)
                ((float *)rows_out)[i * FEATURES + j] = value_of(nodes[i], j);
            else
                ((uint16_t *)rows_out)[i * FEATURES + j] =
                    plim__f16_from_f32(value_of(nodes[i], j));
    }
    atomic_fetch_add(&fake->gathered, count);
    return leave(fake->busy, worker, PLIM_OK);
}

static fake_graph_t fake_graph(void)
{
    return (fake_graph_t){.source = {.draw = fake_draw}, .bad_node = -1};
}

static fake_rows_t fake_rows(void)
{
    return (fake_rows_t){.source = {.gather = fake_gather}, .bad_node = -1};
}

/* BATCHES batches of distinct seeds, the last one shorter. */
static int64_t seeds[BATCH * BATCHES];
static int64_t bounds[BATCHES + 1];

static void seeds_make(void)
{
    for (int64_t i = 0; i < BATCH * BATCHES; i++)
        seeds[i] = (i * 1471 + 5) % NODES;
    for (int64_t i = 0; i <= BATCHES; i++)
        bounds[i] = i * BATCH;
    bounds[BATCHES] -= 11;
}

static plim__load_window_params_t params_of(int num_hops, const int64_t *fanout)
{
    plim__load_window_params_t params = {.num_hops = num_hops,
                                         .seed = 99,
                                         .num_nodes = NODES,
                                         .index_type = PLIM_I32,
                                         .most_drawn = DEGREE_MOST,
                                         .draws = 4 * NODES * (DEGREE_MOST + 2),
                                         .rows = NODES,
                                         .row_bytes = FEATURES * sizeof(float),
                                         .row_type = PLIM_F32,
                                         .num_features = FEATURES,
                                         .builders = 2,
                                         .workers = 2};
    for (int hop = 0; hop < num_hops; hop++)
        params.fanout[hop] = fanout[hop];
    return params;
}

static void make_sparse(plim__load_window_params_t *params)
{
    params->sparse = true;
    params->draws = 16 * NODES;
    params->num_nodes = 2 * PLIM__NODE_SET_BITS * params->draws; /* so that they are smaller */
}

/* Draws for `count` nodes, as often as it takes, with room for `capacity` ids at a time. */
static int64_t draw_all(plim__topology_t *source, int worker, const plim__hop_t *hop,
                        const int64_t *nodes, int64_t count, int64_t capacity, int64_t *indptr,
                        int64_t *ids)
{
    int64_t at = 0, part[NODES + 1];
    for (int64_t done = 0; done < count;) {
        plim__drawn_t drawn = {.indptr = part, .ids = ids + at, .capacity = capacity};
        assert_ok(test_topology_draw(source, worker, hop, nodes + done, count - done, &drawn));
        assert_in_range(drawn.taken, 1, count - done);
        assert_int_equal(part[0], 0);
        for (int64_t i = 0; i <= drawn.taken; i++)
            indptr[done + i] = at + part[i];
        at += part[drawn.taken];
        done += drawn.taken;
    }
    return at;
}

#define DRAWS_MOST ((int64_t)NODES * (DEGREE_MOST + 1))

/* What one thread of a check works with. */
typedef struct walker {
    int64_t nodes[NODES];
    bool met[NODES];
    int64_t indptr[2][NODES + 1];
    int64_t ids[2][DRAWS_MOST];
    char rows[NODES * FEATURES * sizeof(float)];
} walker_t;

static void check_rows(walker_t *walker, plim__load_window_t *window, int worker, int64_t count)
{
    plim__rows_t *rows = plim__load_window_rows(window);
    assert_ok(plim__rows_gather(rows, worker, walker->nodes, count, PLIM_F32, walker->rows));
    for (int64_t i = 0; i < count * FEATURES; i++)
        assert_true(((float *)(void *)walker->rows)[i] ==
                    value_of(walker->nodes[i / FEATURES], i % FEATURES));
    assert_ok(plim__rows_gather(rows, worker, walker->nodes, count, PLIM_F16, walker->rows));
    for (int64_t i = 0; i < count * FEATURES; i++)
        assert_int_equal(((uint16_t *)(void *)walker->rows)[i],
                         plim__f16_from_f32(value_of(walker->nodes[i / FEATURES], i % FEATURES)));
}

/* Expands a batch as blocks are built and compares each hop's draws, then the rows. */
static void check_batch(walker_t *walker, plim__load_window_t *window,
                        const plim__load_window_params_t *params, plim_form_t form, int worker,
                        int64_t epoch, int64_t batch)
{
    fake_graph_t truth = fake_graph();
    int64_t count = 0, first = 0;
    memset(walker->met, 0, sizeof walker->met);
    for (int64_t i = bounds[batch]; i < bounds[batch + 1]; i++) {
        walker->nodes[count++] = seeds[i];
        walker->met[seeds[i]] = true;
    }
    for (int number = 0; number < params->num_hops; number++) {
        plim__hop_t hop = {params->seed, epoch, number, params->fanout[number], params->replace};
        int64_t begin = form == PLIM_PYG ? first : 0, known = count;
        int64_t drawn = draw_all(&truth.source, 0, &hop, walker->nodes + begin, known - begin,
                                 DRAWS_MOST, walker->indptr[0], walker->ids[0]);
        int64_t found =
            draw_all(plim__load_window_topology(window), worker, &hop, walker->nodes + begin,
                     known - begin, number % 2 == 0 ? DEGREE_MOST + worker : DRAWS_MOST - 2 * NODES,
                     walker->indptr[1], walker->ids[1]);
        assert_int_equal(found, drawn);
        assert_memory_equal(walker->indptr[0], walker->indptr[1],
                            (size_t)(known - begin + 1) * sizeof(int64_t));
        assert_memory_equal(walker->ids[0], walker->ids[1], (size_t)drawn * sizeof(int64_t));
        first = known;
        for (int64_t i = 0; i < drawn; i++)
            if (!walker->met[walker->ids[0][i]]) {
                walker->met[walker->ids[0][i]] = true;
                walker->nodes[count++] = walker->ids[0][i];
            }
    }
    if (params->rows > 0)
        check_rows(walker, window, worker, count);
}

/* Several threads expand a window's batches at once, one each in turn. */
typedef struct crowd {
    plim__load_window_t *window;
    const plim__load_window_params_t *params;
    walker_t *walkers; /* one a worker */
    int64_t epoch, end;
    atomic_llong next;
} crowd_t;

static plim_status_t crowd_work(void *context, int worker)
{
    crowd_t *crowd = context;
    int64_t batch;
    while ((batch = atomic_fetch_add(&crowd->next, 1)) < crowd->end)
        for (int form = PLIM_NATIVE; form <= PLIM_PYG; form++)
            check_batch(&crowd->walkers[worker], crowd->window, crowd->params, form, worker,
                        crowd->epoch, batch);
    return PLIM_OK;
}

/* An epoch in as many windows as it takes; returns how many. */
static int check_epoch(plim__load_window_t *window, const plim__load_window_params_t *params,
                       int64_t epoch)
{
    int windows = 0;
    walker_t *walkers = calloc((size_t)params->workers, sizeof *walkers);
    assert_non_null(walkers);
    for (int64_t batch = 0; batch < BATCHES; windows++) {
        int64_t taken = 0, draws, rows;
        assert_ok(plim__load_window_build(window, epoch, seeds, bounds + batch, BATCHES - batch,
                                          false, &taken));
        assert_in_range(taken, 1, BATCHES - batch);
        plim__load_window_used(window, &draws, &rows);
        assert_in_range(draws, 0, params->draws);
        assert_in_range(rows, 0, params->rows);
        crowd_t crowd = {window, params, walkers, epoch, batch + taken, batch};
        assert_ok(plim__parallel(params->workers, crowd_work, &crowd));
        batch += taken;
    }
    free(walkers);
    return windows;
}

static int check(const plim__load_window_params_t *params, int epochs)
{
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    fake_graph_t graph = fake_graph();
    fake_rows_t rows = fake_rows();
    plim__load_window_t *window = NULL;
    int windows = 0;
    int64_t before = plim__ledger_reserved(job.ledger);
    assert_ok(plim__load_window_create(&job, params, &graph.source,
                                       params->rows > 0 ? &rows.source : NULL, &window));
    for (int epoch = 0; epoch < epochs; epoch++)
        windows = check_epoch(window, params, epoch);
    assert_int_equal(plim__ledger_reserved(job.ledger) - before,
                     plim__load_window_estimate(params));
    plim__load_window_destroy(window);
    assert_int_equal(plim__ledger_reserved(job.ledger), before);
    test_job_end(&job);
    return windows;
}

static void test_forms_and_fanouts(void **state)
{
    const int64_t fanouts[][3] = {{3, 2, 4}, {-1, 2, 3}, {2, -1, 0}, {0, 5, 1}, {60, 2, 1}};
    (void)state;
    for (size_t i = 0; i < sizeof fanouts / sizeof *fanouts; i++)
        for (int variant = 0; variant < 4; variant++) {
            plim__load_window_params_t params = params_of(3, fanouts[i]);
            params.replace = (variant & 1) != 0;
            params.most_drawn = params.replace ? 60 : DEGREE_MOST;
            params.index_type = (variant & 2) != 0 ? PLIM_I64 : PLIM_I32;
            if (variant == 2)
                params.rows = 0;
            if (variant == 3) {
                params.row_type = PLIM_F16;
                params.row_bytes = FEATURES * sizeof(uint16_t);
            }
            if (fanouts[i][0] == 60 && params.replace)
                continue; /* more than the walker has room for */
            assert_int_equal(check(&params, 1), 1);
            make_sparse(&params);
            assert_in_range(check(&params, 1), 1, BATCHES);
        }
}

static void test_threads(void **state)
{
    const int threads[] = {1, 2, 8};
    (void)state;
    for (int i = 0; i < 9; i++) {
        plim__load_window_params_t params = params_of(2, (int64_t[]){7, 3});
        params.builders = threads[i % 3];
        params.workers = threads[i / 3];
        params.index_type = i % 2 == 0 ? PLIM_I32 : PLIM_I64;
        if (i % 2 == 1)
            make_sparse(&params);
        assert_int_equal(check(&params, 2), 1);
    }
}

/* Small capacities cut an epoch into windows; the first guess may be too large or too small. */
static void test_cuts(void **state)
{
    (void)state;
    int most = 0;
    for (int64_t share = 1; share <= 4; share++) {
        plim__load_window_params_t params = params_of(2, (int64_t[]){7, -1});
        params.draws = NODES * share;
        int by_draws = check(&params, 3);
        params = params_of(2, (int64_t[]){7, 3});
        params.rows = 500 + 250 * share;
        int by_rows = check(&params, 3);
        most = by_draws > most ? by_draws : most;
        assert_in_range(by_rows, 2, BATCHES);
    }
    assert_in_range(most, 2, BATCHES);
}

static void test_one_batch_too_large(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    fake_graph_t graph = fake_graph();
    fake_rows_t rows = fake_rows();
    for (int i = 0; i < 3; i++) {
        plim__load_window_params_t params = params_of(2, (int64_t[]){7, 3});
        plim__load_window_t *window;
        int64_t taken = -5;
        if (i < 2)
            params.draws = i == 0 ? BATCH - 1 : 6 * BATCH;
        else
            params.rows = 3 * BATCH;
        assert_ok(plim__load_window_create(&job, &params, &graph.source, &rows.source, &window));
        atomic_store(&rows.gathered, 0);
        assert_ok(plim__load_window_build(window, 0, seeds, bounds, BATCHES, false, &taken));
        assert_int_equal(taken, 0);
        assert_int_equal(atomic_load(&rows.gathered), 0);
        assert_int_equal(
            plim__load_window_build(window, 0, seeds, (int64_t[]){0, 1}, 1, false, &taken),
            PLIM_OK);
        assert_int_equal(taken, 1);
        plim__load_window_destroy(window);
    }
    test_job_end(&job);
}

/* Errors from below come through, and leave a window that answers nothing until it is built anew.
 */
static void test_errors_below(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    volatile int stop = 0;
    job.stop = &stop;
    for (int builders = 1; builders <= 8; builders *= 8) {
        fake_graph_t graph = fake_graph();
        fake_rows_t rows = fake_rows();
        plim__load_window_params_t params = params_of(2, (int64_t[]){7, 3});
        plim__load_window_t *window;
        int64_t taken, node = seeds[0], indptr[2], ids[DEGREE_MOST];
        float row[FEATURES];
        plim__hop_t hop = {params.seed, 4, 0, 7, false};
        plim__drawn_t drawn = {.indptr = indptr, .ids = ids, .capacity = DEGREE_MOST};
        params.builders = builders;
        assert_ok(plim__load_window_create(&job, &params, &graph.source, &rows.source, &window));
        for (int i = 0; i < 4; i++) {
            graph.bad_node = i == 0 ? seeds[3] : -1;
            rows.bad_node = i == 1 ? seeds[5] : -1;
            stop = i == 2;
            plim_status_t status =
                plim__load_window_build(window, 4, seeds, bounds, BATCHES, false, &taken);
            assert_int_equal(status, i < 2 ? PLIM_ERR_IO : i == 2 ? PLIM_ERR_STOPPED : PLIM_OK);
            if (i < 2)
                assert_non_null(strstr(plim_last_error(), i == 0 ? "list" : "row"));
        }
        assert_ok(
            test_topology_draw(plim__load_window_topology(window), 0, &hop, &node, 1, &drawn));
        assert_ok(plim__rows_gather(plim__load_window_rows(window), 0, &node, 1, PLIM_F32, row));
        plim__load_window_destroy(window);
    }
    test_job_end(&job);
}

static void test_wrong_use(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    fake_graph_t graph = fake_graph();
    fake_rows_t rows = fake_rows();
    plim__load_window_params_t params = params_of(2, (int64_t[]){2, 2});
    plim__load_window_t *window;
    int64_t taken, indptr[2], ids[2];
    assert_ok(plim__load_window_create(&job, &params, &graph.source, &rows.source, &window));
    plim__topology_t *topology = plim__load_window_topology(window);
    assert_ok(plim__load_window_build(window, 1, seeds, bounds, 1, false, &taken));
    const plim__hop_t good = {params.seed, 1, 0, 2, false};
    plim__drawn_t drawn = {.indptr = indptr, .ids = ids, .capacity = 2};
    const int64_t strangers[] = {seeds[BATCH + 1], -1, NODES, INT64_MAX};
    for (size_t i = 0; i < sizeof strangers / sizeof *strangers; i++)
        assert_int_equal(test_topology_draw(topology, 0, &good, &strangers[i], 1, &drawn),
                         PLIM_ERR_USAGE);
    assert_ok(test_topology_draw(topology, 0, &good, seeds, 1, &drawn));
    const plim__draws_t foreign = {&good, seeds, seeds + 1, 1, NULL};
    assert_int_equal(plim__topology_draw(topology, 0, &foreign, &drawn), PLIM_ERR_UNSUPPORTED);
    drawn.capacity = 0;
    assert_in_range(degree_of(seeds[0]), 1, DEGREE_MOST);
    assert_int_equal(test_topology_draw(topology, 0, &good, seeds, 1, &drawn), PLIM_ERR_BUDGET);
    plim__load_window_destroy(window);
    plim__load_window_destroy(NULL);
    test_job_end(&job);
}

static plim_status_t create_and_build(plim_job_t *job, void *context)
{
    fake_graph_t graph = fake_graph();
    fake_rows_t rows = fake_rows();
    plim__load_window_t *window = NULL;
    int64_t taken;
    PLIM_TRY(plim__load_window_create(job, context, &graph.source, &rows.source, &window));
    plim_status_t status =
        plim__load_window_build(window, 0, seeds, bounds, BATCHES, false, &taken);
    plim__load_window_destroy(window);
    return status;
}

static void test_fails_each_arena(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__load_window_params_t params = params_of(2, (int64_t[]){2, 2});
    test_fail_each_arena(&job, create_and_build, &params);
    test_job_end(&job);
}

/* Rows that the disk source holds in memory are not stored, and come from it. */
static void test_held_rows(void **state)
{
    (void)state;
    char directory[512], path[600];
    test_directory_make(directory);
    (void)snprintf(path, sizeof path, "%s/data", directory);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    test_graph_t shape = {
        .num_nodes = NODES, .num_features = FEATURES, .num_classes = 2, .seed = 8};
    plim_dataset_t *dataset;
    plim__rows_t *truth, *disk;
    assert_ok(test_dataset_make(&job, path, &shape));
    assert_ok(plim_dataset_open(&job, path, &dataset));
    assert_ok(test_rows_cached(&job, dataset, &truth));
    static _Alignas(64) plim__node_set_line_t lines[NODES / PLIM__NODE_SET_BITS + 1];
    plim__node_set_t cached = plim__node_set_make(lines, NODES);
    for (int64_t node = 0; node < NODES; node += 3)
        (void)plim__node_set_add(&cached, node);
    plim__node_set_seal(&cached);
    plim__source_params_t disk_params = {.workers = 4,
                                         .depth = 16,
                                         .merge_distance = 4096,
                                         .cached = &cached,
                                         .cache_bytes = (size_t)1 << 20};
    assert_ok(plim__rows_disk_create(&job, dataset, &disk_params, &disk));
    plim__load_window_params_t params = params_of(2, (int64_t[]){7, 3});
    fake_graph_t graph = fake_graph();
    plim__load_window_t *window;
    int64_t taken, draws, used, held = 0;
    assert_ok(plim__load_window_create(&job, &params, &graph.source, disk, &window));
    assert_ok(plim__load_window_build(window, 0, seeds, bounds, BATCHES, false, &taken));
    assert_int_equal(taken, BATCHES);
    static int64_t nodes[NODES];
    static float rows[2][NODES * FEATURES];
    for (int64_t node = NODES - 1; node >= 0; node--)
        nodes[NODES - 1 - node] = node;
    assert_ok(plim__rows_gather(truth, 0, nodes, NODES, PLIM_F32, rows[0]));
    plim__source_stats_t before, after;
    before = plim__source_stats(disk->disk);
    assert_ok(
        plim__rows_gather(plim__load_window_rows(window), 1, nodes, NODES, PLIM_F32, rows[1]));
    after = plim__source_stats(disk->disk);
    assert_memory_equal(rows[0], rows[1], sizeof rows[0]);
    for (int64_t node = 0; node < NODES; node++)
        held += plim__rows_disk_holds(disk, node);
    assert_in_range(held, 1, cached.count);
    plim__load_window_used(window, &draws, &used);
    assert_int_equal(after.items - before.items, NODES - used); /* the stored ones came from it */
    assert_in_range(used, 1, NODES - held);
    assert_in_range(plim__load_window_held(window), 1, held);
    plim__load_window_destroy(window);
    plim__rows_disk_destroy(disk);
    plim__rows_disk_destroy(truth);
    plim_dataset_release(dataset);
    test_job_end(&job);
    test_directory_remove(directory);
}

/* Windows drawn ahead, which hold few batches each. */
typedef struct ahead_case {
    plim_job_t job;
    char directory[512];
    fake_graph_t graph;
    fake_rows_t rows;
    plim__load_window_params_t small;
    plim__ahead_params_t params;
    plim__load_window_t *window;
    plim__ahead_t *ahead;
    int warnings;
} ahead_case_t;

static void ahead_begin(ahead_case_t *c, const char *directory)
{
    c->warnings = 0;
    test_directory_make(c->directory);
    c->job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    c->graph = fake_graph();
    c->rows = fake_rows();
    c->small = params_of(2, (int64_t[]){4, 2});
    c->params = (plim__ahead_params_t){.draws = c->small,
                                       .row_bytes = c->small.row_bytes,
                                       .bucket_bytes = (int64_t)64 << 20,
                                       .directory = directory != NULL ? directory : c->directory};
    c->params.draws.row_bytes = 0;
    c->small.rows = 1100; /* two or three batches */
    assert_ok(plim__load_window_create(&c->job, &c->small, &c->graph.source, &c->rows.source,
                                       &c->window));
    const int64_t before = plim__ledger_reserved(c->job.ledger);
    assert_ok(
        plim__ahead_create(&c->job, &c->params, &c->graph.source, &c->rows.source, &c->ahead));
    assert_int_equal(plim__ledger_reserved(c->job.ledger) - before,
                     plim__ahead_estimate(&c->params));
}

static void ahead_end(ahead_case_t *c)
{
    plim__ahead_destroy(c->ahead);
    plim__load_window_destroy(c->window);
    test_job_end(&c->job);
    test_directory_remove(c->directory);
}

static plim__ahead_steps_t ahead_steps(const ahead_case_t *c, int64_t epoch, int64_t batch,
                                       int64_t count)
{
    return (plim__ahead_steps_t){.stream = c,
                                 .draw_seed = c->small.seed,
                                 .num_hops = c->small.num_hops,
                                 .fanout = c->small.fanout,
                                 .epoch = epoch,
                                 .first = batch,
                                 .seeds = seeds,
                                 .bounds = bounds + batch,
                                 .count = count};
}

static void ahead_draw(ahead_case_t *c, int64_t epoch, int64_t batch)
{
    const plim__ahead_steps_t steps = ahead_steps(c, epoch, batch, BATCHES - batch);
    assert_true(plim__ahead_is_free(c->ahead, c, epoch, batch));
    assert_ok(plim__ahead_draw(c->ahead, &steps, c->window));
}

/* Fills windows from this batch to the end of the epoch, and compares them; returns how many. */
static int ahead_check(ahead_case_t *c, int64_t epoch, int64_t batch)
{
    walker_t *walkers = calloc((size_t)c->small.workers, sizeof *walkers);
    int windows = 0;
    assert_non_null(walkers);
    for (int64_t taken, left; batch < BATCHES; batch += taken, windows++) {
        if (plim__ahead_left(c->ahead, c, epoch, batch) == 0)
            ahead_draw(c, epoch, batch);
        left = plim__ahead_left(c->ahead, c, epoch, batch);
        assert_in_range(left, 1, BATCHES - batch);
        const plim__ahead_steps_t steps = ahead_steps(c, epoch, batch, left);
        assert_ok(plim__ahead_fill(c->ahead, &steps, c->window, &taken));
        assert_int_equal(taken, left);
        crowd_t crowd = {c->window, &c->small, walkers, epoch, batch + taken, batch};
        assert_ok(plim__parallel(c->small.workers, crowd_work, &crowd));
    }
    free(walkers);
    return windows;
}

/* The distinct rows of an epoch's first batches, as one window has them. */
static int64_t distinct_rows(ahead_case_t *c, int64_t epoch, int64_t batches)
{
    fake_graph_t graph = fake_graph();
    fake_rows_t rows = fake_rows();
    plim__load_window_params_t params = c->small;
    plim__load_window_t *window;
    int64_t taken, draws, used;
    params.rows = NODES;
    assert_ok(plim__load_window_create(&c->job, &params, &graph.source, &rows.source, &window));
    assert_ok(plim__load_window_build(window, epoch, seeds, bounds, batches, true, &taken));
    assert_int_equal(taken, batches);
    plim__load_window_used(window, &draws, &used);
    plim__load_window_destroy(window);
    return used;
}

/* Buckets are files, so they need a disk. */
static void ahead_begin_on_disk(ahead_case_t *c)
{
    plim__file_system_t system;
    ahead_begin(c, NULL);
    assert_ok(plim__file_system(c->directory, &system));
    if (!system.memory)
        return;
    ahead_end(c);
    print_message("SKIPPED: buckets are not in memory; set TMPDIR to a disk\n");
    skip();
}

/* Each list is drawn from once a hop, and each row read once, however many windows need them. */
static void test_drawn_ahead(void **state)
{
    ahead_case_t c;
    (void)state;
    ahead_begin_on_disk(&c);
    for (int epoch = 0; epoch < 3; epoch++) {
        atomic_store(&c.graph.drawn, 0);
        atomic_store(&c.rows.gathered, 0);
        ahead_draw(&c, epoch, 0);
        const int64_t drawn = atomic_load(&c.graph.drawn), read = atomic_load(&c.rows.gathered);
        assert_int_equal(read, distinct_rows(&c, epoch, BATCHES));
        assert_in_range(drawn, BATCH * BATCHES, 2 * NODES);
        assert_false(plim__ahead_is_free(c.ahead, &epoch, 0, 0)); /* for another stream */
        assert_in_range(ahead_check(&c, epoch, 0), PLIM__AHEAD_PAYS, BATCHES);
        assert_true(plim__ahead_is_free(c.ahead, &epoch, 0, 0));
        assert_int_equal(atomic_load(&c.graph.drawn), drawn);
        assert_int_equal(atomic_load(&c.rows.gathered), read);
        assert_int_equal(plim__ahead_left(c.ahead, &c, epoch + 1, 0), 0);
    }
    ahead_end(&c);
}

/* A stream that was interrupted continues within a window, and one that resumes within an epoch. */
static void test_ahead_from_any_step(void **state)
{
    ahead_case_t c;
    (void)state;
    ahead_begin(&c, NULL);
    ahead_draw(&c, 1, 0);
    for (int64_t batch = BATCHES - 1; batch >= 0; batch--)
        (void)ahead_check(&c, 1, batch);
    ahead_draw(&c, 2, 5);
    assert_int_equal(plim__ahead_left(c.ahead, &c, 2, 4), 0);
    (void)ahead_check(&c, 2, 5);
    plim__ahead_forget(c.ahead, &c.rows); /* another stream */
    assert_in_range(plim__ahead_left(c.ahead, &c, 2, 5), 1, BATCHES);
    plim__ahead_forget(c.ahead, &c);
    assert_int_equal(plim__ahead_left(c.ahead, &c, 2, 5), 0);
    ahead_end(&c);
}

/* Overwrites a page of each open file without a name. */
static int damage_nameless(void)
{
    int damaged = 0;
    for (int fd = 3; fd < 64; fd++) {
        char link[64], target[600];
        static _Alignas(4096) char page[4096];
        (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
        const ssize_t length = readlink(link, target, sizeof target - 1);
        if (length < 0)
            continue;
        target[length] = '\0';
        if (strstr(target, "(deleted)") != NULL && pwrite(fd, page, sizeof page, 0) > 0)
            damaged++;
    }
    return damaged;
}

static void count_warning(void *user, plim_log_level_t level, const char *message)
{
    ahead_case_t *c = user;
    assert_non_null(strstr(message, c->directory));
    c->warnings += level == PLIM_LOG_WARNING;
}

/* What a bucket cannot give comes from the dataset, and that is logged once. */
static void test_ahead_damaged(void **state)
{
    ahead_case_t c;
    (void)state;
    ahead_begin_on_disk(&c);
    c.job.log = count_warning;
    c.job.user = &c;
    ahead_draw(&c, 0, 0);
    const int64_t read = atomic_load(&c.rows.gathered);
    assert_int_equal(damage_nameless(), 1);
    (void)ahead_check(&c, 0, 0);
    assert_true(atomic_load(&c.rows.gathered) > read);
    plim__job_deliver(&c.job);
    assert_int_equal(c.warnings, 1);
    ahead_end(&c);
}

/* So does all when the disk is full: here the process may not write larger files. */
static void test_ahead_disk_full(void **state)
{
    ahead_case_t c;
    struct rlimit before, few;
    (void)state;
    ahead_begin_on_disk(&c);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    few = before;
    few.rlim_cur = 4096;
    void (*const handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &few), 0);
    ahead_draw(&c, 0, 0);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    (void)signal(SIGXFSZ, handler);
    (void)ahead_check(&c, 0, 0);
    ahead_draw(&c, 1, 0);
    (void)ahead_check(&c, 1, 0);
    ahead_end(&c);
}

/* Stopped while it draws, or fills buckets, nothing is drawn; it can be drawn again. */
static void test_ahead_stopped(void **state)
{
    ahead_case_t c;
    volatile int stop = 1;
    (void)state;
    ahead_begin(&c, NULL);
    const plim__ahead_steps_t steps = ahead_steps(&c, 0, 0, BATCHES);
    for (int i = 0; i < 3; i++) {
        c.job.stop = i == 0 ? &stop : NULL;
        c.rows.bad_node = i == 1 ? seeds[7] : -1;
        const plim_status_t status = plim__ahead_draw(c.ahead, &steps, c.window);
        assert_int_equal(status, i == 0 ? PLIM_ERR_STOPPED : i == 1 ? PLIM_ERR_IO : PLIM_OK);
        assert_int_equal(plim__ahead_left(c.ahead, &c, 0, 0) > 0, i == 2);
    }
    (void)ahead_check(&c, 0, 0);
    ahead_end(&c);
}

static plim_status_t create_ahead(plim_job_t *job, void *context)
{
    fake_graph_t graph = fake_graph();
    fake_rows_t rows = fake_rows();
    plim__ahead_t *ahead = NULL;
    PLIM_TRY(plim__ahead_create(job, context, &graph.source, &rows.source, &ahead));
    plim__ahead_destroy(ahead);
    return PLIM_OK;
}

static void test_ahead_fails_each_arena(void **state)
{
    ahead_case_t c;
    (void)state;
    ahead_begin(&c, NULL);
    test_fail_each_arena(&c.job, create_ahead, &c.params);
    ahead_end(&c);
}

/* Without a file windows read for themselves, from the draws of all. */
static void test_ahead_without_file(void **state)
{
    ahead_case_t c;
    (void)state;
    ahead_begin(&c, "/nonexistent");
    ahead_draw(&c, 0, 0);
    assert_int_equal(atomic_load(&c.rows.gathered), 0);
    const int64_t drawn = atomic_load(&c.graph.drawn);
    (void)ahead_check(&c, 0, 0);
    assert_int_equal(atomic_load(&c.graph.drawn), drawn);
    ahead_end(&c);
}

/* Steps for which neither draws nor buckets have space are left out, and their rows are not read.
 */
static void test_ahead_bounded(void **state)
{
    ahead_case_t c;
    (void)state;
    ahead_begin(&c, NULL);
    plim__ahead_destroy(c.ahead);
    c.params.bucket_bytes = 4 * (int64_t)PLIM__AHEAD_CHUNK;
    assert_ok(plim__ahead_create(&c.job, &c.params, &c.graph.source, &c.rows.source, &c.ahead));
    ahead_draw(&c, 0, 0);
    int64_t end = 0;
    for (int64_t left; (left = plim__ahead_left(c.ahead, &c, 0, end)) > 0;)
        end += left;
    assert_in_range(end, 1, BATCHES - 1);
    const int64_t read = atomic_load(&c.rows.gathered);
    assert_true(read == 0 /* no disk */ || read == distinct_rows(&c, 0, end));
    plim__ahead_destroy(c.ahead);
    c.params.bucket_bytes = (int64_t)64 << 20;
    for (int i = 0; i < 2; i++) { /* the first batch has more of either */
        c.params.draws.draws = i == 0 ? 10 : c.small.draws;
        c.params.draws.rows = i == 0 ? NODES : 10;
        assert_ok(plim__ahead_create(&c.job, &c.params, &c.graph.source, &c.rows.source, &c.ahead));
        ahead_draw(&c, 0, 0);
        assert_int_equal(plim__ahead_left(c.ahead, &c, 0, 0), 0);
        assert_false(plim__ahead_is_free(c.ahead, &c, 0, 0));
        assert_true(plim__ahead_is_free(c.ahead, &c, 0, 1));
        assert_true(plim__ahead_is_free(c.ahead, &c, 1, 0));
        if (i == 0)
            plim__ahead_destroy(c.ahead);
    }
    ahead_end(&c);
}

int main(void)
{
    seeds_make();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_forms_and_fanouts),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_cuts),
        cmocka_unit_test(test_one_batch_too_large),
        cmocka_unit_test(test_errors_below),
        cmocka_unit_test(test_wrong_use),
        cmocka_unit_test(test_fails_each_arena),
        cmocka_unit_test(test_held_rows),
        cmocka_unit_test(test_drawn_ahead),
        cmocka_unit_test(test_ahead_from_any_step),
        cmocka_unit_test(test_ahead_damaged),
        cmocka_unit_test(test_ahead_disk_full),
        cmocka_unit_test(test_ahead_stopped),
        cmocka_unit_test(test_ahead_fails_each_arena),
        cmocka_unit_test(test_ahead_without_file),
        cmocka_unit_test(test_ahead_bounded),
    };
    return cmocka_run_group_tests_name("load.window", tests, NULL, NULL);
}
