/* Lists on disk, some of them in memory too, answer as lists in memory do, or with an error. */
/* labels: plain */
#include "support/dataset.h"
#include "support/harness.h"
#include "support/lists.h"
#include "support/pages.h"
#include "support/sources.h"

#include "base/fail.h"
#include "base/threads.h"
#include "mem/headroom.h"
#include "source/list_cache.h"
#include "source/topology.h"
#include "support/draws.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define NODES ((int64_t)20000) /* more than are drawn for at once */
#define LONGEST ((int64_t)300000)
#define WORKERS 4
#define SECOND ((int64_t)1000000000)

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

static const plim__hop_t hops[] = {
    {1, 0, 0, 1, false},   {1, 0, 1, 3, false}, {2, 5, 0, 15, false}, {2, 5, 2, 600, false},
    {3, 1, 0, 15, true},   {3, 1, 1, 1, true},  {4, 0, 0, -1, false}, {4, 0, 0, -1, true},
    {4, 0, 0, 4096, true}, {4, 0, 0, 0, false},
};
#define HOPS ((int)(sizeof hops / sizeof hops[0]))

static char directory[512];
static char dataset_path[600];
static char indices_path[700];
static int64_t num_edges;

/* No lists, short ones, long ones, and one that is longer than anything is at once. */
static int64_t degree_of(int64_t node)
{
    if (node == 5)
        return LONGEST;
    if (node % 4000 == 7)
        return 20000;
    if (node % 97 == 0)
        return 200 + (int64_t)(plim__rng_u64(1, (uint64_t)node) % 2000);
    return node % 5 == 0 ? 0 : (int64_t)(plim__rng_u64(2, (uint64_t)node) % 40);
}

static int32_t entry_of(int64_t number)
{
    return (int32_t)(plim__rng_u64(3, (uint64_t)number) % NODES);
}

static int make_dataset(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__dataset_writer_t *writer;
    int64_t *indptr = calloc((size_t)NODES + 1, sizeof *indptr);
    for (int64_t v = 0; v < NODES; v++)
        indptr[v + 1] = indptr[v] + degree_of(v);
    num_edges = indptr[NODES];
    int32_t *indices = calloc((size_t)num_edges, sizeof *indices);
    for (int64_t i = 0; i < num_edges; i++)
        indices[i] = entry_of(i);
    test_directory_make(directory);
    (void)snprintf(dataset_path, sizeof dataset_path, "%s/graph", directory);
    (void)snprintf(indices_path, sizeof indices_path, "%s/indices.npy", dataset_path);
    assert_ok(plim__dataset_begin(&job, dataset_path, &writer));
    assert_ok(test_column(writer, "indptr", PLIM__NPY_I64, 1, (int64_t[]){NODES + 1}, indptr,
                          (size_t)(NODES + 1) * sizeof *indptr));
    assert_ok(test_column(writer, "indices", PLIM__NPY_I32, 1, (int64_t[]){num_edges}, indices,
                          (size_t)num_edges * sizeof *indices));
    plim__dataset_facts_t facts = {.num_nodes = NODES, .source = "test", .options = ""};
    assert_ok(plim__dataset_finish(writer, &facts));
    free(indices);
    free(indptr);
    test_job_end(&job);
    return 0;
}

static int remove_dataset(void **state)
{
    (void)state;
    test_directory_remove(directory);
    return 0;
}

/* What all tests have open. */
typedef struct world {
    plim_job_t job;
    plim_dataset_t *dataset;
    plim__offsets_t *offsets;
    plim__topology_t *memory;
} world_t;

static void world_make(world_t *world, plim_io_engine_t engine)
{
    world->job = test_job_make(PLIM_LINE_NONE, 2, engine);
    assert_ok(plim_dataset_open(&world->job, dataset_path, &world->dataset));
    assert_ok(plim__offsets_create(&world->job, world->dataset, false, &world->offsets));
    assert_ok(
        test_lists_cached(&world->job, world->dataset, world->offsets, WORKERS, &world->memory));
}

static void world_end(world_t *world)
{
    plim__topology_disk_destroy(world->memory);
    plim__offsets_destroy(world->offsets);
    plim_dataset_release(world->dataset);
    test_job_end(&world->job);
}

/* Ascending from `from` on in steps of `step`, or shuffled with repetitions. */
static int64_t *make_nodes(int64_t count, int64_t step, bool shuffled)
{
    int64_t *nodes = calloc((size_t)count + 1, sizeof *nodes);
    for (int64_t i = 0; i < count; i++)
        nodes[i] = shuffled ? (int64_t)(plim__rng_u64(9, (uint64_t)i) % NODES) : i * step % NODES;
    return nodes;
}

static plim__drawn_t drawn_make(int64_t count, int64_t capacity)
{
    return (plim__drawn_t){.indptr = calloc((size_t)count + 1, sizeof(int64_t)),
                           .ids = calloc((size_t)capacity + 1, sizeof(int64_t)),
                           .capacity = capacity,
                           .positions = calloc((size_t)capacity + 1, sizeof(int64_t))};
}

static void drawn_free(plim__drawn_t *drawn)
{
    free(drawn->indptr);
    free(drawn->ids);
    free(drawn->positions);
}

/* All of the nodes' draws, at most `capacity` ids at a time, are what memory draws; each second
 * node has an owner of another number. */
static void compare(const world_t *world, plim__topology_t *source, int worker,
                    const plim__hop_t *hop, const int64_t *nodes, int64_t count, int64_t capacity)
{
    if (hop->fanout >= 0 && capacity > count * hop->fanout)
        capacity = count * hop->fanout;
    plim__drawn_t expected = drawn_make(count, capacity);
    plim__drawn_t drawn = drawn_make(count, capacity);
    int64_t *owners = calloc((size_t)count + 1, sizeof *owners), done = 0;
    for (int64_t i = 0; i < count; i++)
        owners[i] = nodes[i] + i % 2 * 1000003;
    do {
        const plim__draws_t draws = {hop, nodes + done, owners + done, count - done, NULL};
        drawn.taken = -1;
        assert_ok(plim__topology_draw(world->memory, worker, &draws, &expected));
        assert_ok(plim__topology_draw(source, worker, &draws, &drawn));
        assert_int_equal(drawn.taken, expected.taken);
        assert_memory_equal(drawn.indptr, expected.indptr,
                            (size_t)(drawn.taken + 1) * sizeof(int64_t));
        assert_memory_equal(drawn.ids, expected.ids,
                            (size_t)drawn.indptr[drawn.taken] * sizeof(int64_t));
        assert_memory_equal(drawn.positions, expected.positions,
                            (size_t)drawn.indptr[drawn.taken] * sizeof(int64_t));
        done += drawn.taken;
    } while (done < count);
    free(owners);
    drawn_free(&drawn);
    drawn_free(&expected);
}

/* All hops, ascending and not, with room enough. Under a sanitizer every third for all nodes. */
static void compare_all(const world_t *world, plim__topology_t *source)
{
    int64_t *ascending = make_nodes(NODES, 1, false);
    int64_t *shuffled = make_nodes(2000, 1, true);
    for (int h = 0; h < HOPS; h++) {
        bool large = hops[h].fanout > 15 && hops[h].replace;
        const int64_t all = TEST_SANITIZED && h % 3 != 0 ? NODES / 10 : NODES;
        compare(world, source, 0, &hops[h], ascending, large ? 200 : all, 2000000);
        compare(world, source, h % WORKERS, &hops[h], shuffled, large ? 100 : 1000, 2000000);
    }
    free(ascending);
    free(shuffled);
}

static void equals_memory(void **state)
{
    (void)state;
    static const plim__source_params_t params[] = {
        {.workers = WORKERS, .depth = 32, .merge_distance = 0},
        {.workers = WORKERS, .depth = 128, .merge_distance = 16384},
        {.workers = WORKERS, .depth = 3, .merge_distance = 512},
    };
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        world_t world;
        world_make(&world, engines[e]);
        for (size_t p = 0; p < sizeof params / sizeof params[0]; p++) {
            plim__topology_t *source;
            int64_t before = plim__ledger_reserved(world.job.ledger);
            assert_ok(plim__topology_disk_create(
                &world.job, world.dataset, p == 1 ? NULL : world.offsets, &params[p], &source));
            int64_t reserved = plim__ledger_reserved(world.job.ledger) - before;
            assert_true(reserved <= (int64_t)plim__topology_disk_estimate(&world.job, world.dataset,
                                                                          &params[p]));
            compare_all(&world, source);
            plim__topology_disk_destroy(source);
            assert_int_equal(plim__ledger_reserved(world.job.ledger), before);
        }
        world_end(&world);
    }
}

/* With the lists of `cached` in memory, as many as fit. */
static plim__topology_t *open_cached(const world_t *world, const plim__node_set_t *cached,
                                     size_t bytes)
{
    const plim__source_params_t params = {.workers = WORKERS,
                                          .depth = 64,
                                          .merge_distance = 16384,
                                          .cached = cached,
                                          .cache_bytes = bytes};
    plim__topology_t *source;
    assert_ok(
        plim__topology_disk_create(&world->job, world->dataset, world->offsets, &params, &source));
    return source;
}

static plim__topology_t *open_source(const world_t *world)
{
    return open_cached(world, NULL, 0);
}

/* Every step-th node; the lines are the caller's to free. */
static plim__node_set_t make_cached(int64_t step)
{
    size_t bytes = plim__node_set_bytes(NODES);
    void *lines = aligned_alloc(64, bytes);
    memset(lines, 0, bytes);
    plim__node_set_t set = plim__node_set_make(lines, NODES);
    for (int64_t node = 0; node < NODES; node += step)
        (void)plim__node_set_add(&set, node);
    plim__node_set_seal(&set);
    return set;
}

static void cached_lists_change_nothing(void **state)
{
    (void)state;
    static const struct {
        int64_t step;
        size_t bytes;
    } cases[] = {{1, SIZE_MAX / 2}, {3, SIZE_MAX / 2}, {2, 200000}, {1, 5000}, {5, 0}};
    world_t world;
    world_make(&world, PLIM_IO_AUTO);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plim__node_set_t cached = make_cached(cases[i].step);
        const plim__source_params_t params = {.workers = WORKERS,
                                              .depth = 64,
                                              .merge_distance = 16384,
                                              .cached = &cached,
                                              .cache_bytes = cases[i].bytes};
        plim__source_params_t bare = params;
        bare.cached = NULL;
        size_t estimate = plim__topology_disk_estimate(&world.job, world.dataset, &params);
        assert_true(estimate - plim__topology_disk_estimate(&world.job, world.dataset, &bare) <=
                    cases[i].bytes + PLIM__STACK_BYTES);
        int64_t before = plim__ledger_reserved(world.job.ledger);
        plim__topology_t *source = open_cached(&world, &cached, cases[i].bytes);
        assert_true(plim__ledger_reserved(world.job.ledger) - before <= (int64_t)estimate);
        compare_all(&world, source);
        plim__topology_disk_destroy(source);
        assert_int_equal(plim__ledger_reserved(world.job.ledger), before);
        free(cached.lines);
    }
    world_end(&world);
}

/* What is in memory is not read: with all lists cached there is no I/O at all. */
static void cached_lists_are_not_read(void **state)
{
    (void)state;
    world_t world;
    plim__source_stats_t stats;
    world_make(&world, PLIM_IO_AUTO);
    plim__node_set_t cached = make_cached(1);
    plim__topology_t *source = open_cached(&world, &cached, SIZE_MAX / 2);
    compare_all(&world, source);
    stats = plim__source_stats(source->disk);
    assert_true(stats.items > NODES);
    assert_int_equal(stats.cached, stats.items);
    assert_int_equal(stats.transfers, 0);
    assert_int_equal(stats.bytes_read, 0);
    plim__topology_disk_destroy(source);
    free(cached.lines);
    world_end(&world);
}

/* The kernel takes some pages, then all that it may. */
static void dropped_pages_are_read_again(void **state)
{
    (void)state;
    world_t world;
    plim__source_stats_t stats;
    world_make(&world, PLIM_IO_AUTO);
    plim__node_set_t cached = make_cached(2);
    plim__topology_t *source = open_cached(&world, &cached, SIZE_MAX / 2);
    const plim__droppable_t *memory = plim__source_memory(source->disk);
    const size_t bytes = memory->bytes;
    char *pages = memory->base;
    for (size_t at = 0; at < bytes; at += 3 * PLIM__PAGE)
        assert_int_equal(madvise(pages + at, PLIM__PAGE, MADV_DONTNEED), 0);
    compare_all(&world, source);
    stats = plim__source_stats(source->disk);
    assert_true(stats.cached > 0 && stats.cached < stats.items / 2);
    assert_true(stats.transfers > 0);

    compare_all(&world, source);
    assert_int_equal(madvise(pages, bytes, MADV_DONTNEED), 0);
    stats = plim__source_stats(source->disk);
    int64_t hits = stats.cached;
    compare(&world, source, 0, &hops[1], (int64_t[]){2, 4, 6, 8}, 4, 100);
    stats = plim__source_stats(source->disk);
    assert_int_equal(stats.cached, hits);

    if (plim__headroom("") > (int64_t)64 << 20) {
        assert_ok(plim__source_refresh(source->disk, 1, SECOND));
        assert_ok(plim__source_refresh(world.memory->disk, 1, SECOND));
        int64_t *nodes = make_nodes(NODES / 2, 2, false);
        compare(&world, source, 0, &hops[6], nodes, NODES / 2, 4000000);
        stats = plim__source_stats(source->disk);
        assert_int_equal(stats.cached, hits + NODES / 2);
        free(nodes);
    } else {
        print_message("SKIPPED in part: no room in memory for a refresh\n");
    }
    plim__topology_disk_destroy(source);
    free(cached.lines);
    world_end(&world);
}

/* Entries of graphs of 2^31 nodes and more: the open dataset's manifest is told that this is one,
 * and the file is written anew. */
static void check_entries(plim__dtype_t npy, plim_dtype_t type)
{
    world_t world;
    world_make(&world, PLIM_IO_AUTO);
    plim__manifest_t *manifest =
        (plim__manifest_t *)(uintptr_t)plim__dataset_manifest(world.dataset);
    plim__manifest_file_t *file =
        (plim__manifest_file_t *)(uintptr_t)plim__manifest_find(manifest, "indices.npy");
    const int64_t size = (int64_t)plim__dtype_size(npy);
    int64_t *wide = calloc((size_t)num_edges, sizeof *wide);
    for (int64_t i = 0; i < num_edges; i++)
        if (size == sizeof(int64_t))
            wide[i] = entry_of(i);
        else
            ((uint32_t *)wide)[i] = (uint32_t)entry_of(i);
    int fd = open(indices_path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, wide, (size_t)(num_edges * size), PLIM__NPY_HEADER),
                     num_edges * size);
    assert_int_equal(close(fd), 0);
    file->type = npy;
    file->bytes = PLIM__NPY_HEADER + num_edges * size;
    manifest->info.index_type = type;
    plim__node_set_t cached = make_cached(3);
    plim__topology_t *source = open_cached(&world, &cached, SIZE_MAX / 2);
    compare_all(&world, source);
    plim__topology_disk_destroy(source);
    free(cached.lines);
    free(wide);
    world_end(&world);
    test_directory_remove(directory);
    (void)make_dataset(NULL);
}

static void wide_entries_are_read(void **state)
{
    (void)state;
    check_entries(PLIM__NPY_I64, PLIM_I64);
    check_entries(PLIM__NPY_U32, PLIM_U32);
}

static void offsets_on_disk_are_checked(void **state)
{
    (void)state;
    const plim__source_params_t params = {.workers = 1, .depth = 8, .merge_distance = 0};
    const int64_t nodes[] = {100, 99}, wrong[] = {-1, INT64_MAX, INT64_MIN, 0};
    world_t world;
    world_make(&world, PLIM_IO_AUTO);
    const plim__list_t list = plim__offsets_list(world.offsets, 100);
    plim__topology_t *source;
    assert_ok(plim__topology_disk_create(&world.job, world.dataset, NULL, &params, &source));
    plim__drawn_t drawn = drawn_make(2, 10);
    int32_t found[2];
    for (int i = 0; i < 4; i++) {
        test_overwrite(dataset_path, "indptr.npy", 100, &wrong[i], sizeof wrong[i]);
        assert_int_equal(test_topology_draw(source, 0, &hops[1], nodes, 2, &drawn), PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), "indptr.npy"));
        assert_int_equal(plim__topology_degrees(source, 0, nodes, 2, found), PLIM_ERR_DATA);
    }
    test_overwrite(dataset_path, "indptr.npy", 100, &list.start, sizeof list.start);
    assert_ok(plim__topology_degrees(source, 0, nodes, 2, found));
    assert_int_equal(found[0], list.degree);
    assert_int_equal(found[1], plim__offsets_degree(world.offsets, 99));
    drawn_free(&drawn);
    plim__topology_disk_destroy(source);
    world_end(&world);
}

static void large_ids_are_loaded(void **state)
{
    (void)state;
    const uint32_t stored[] = {~(uint32_t)0, ~(uint32_t)INT32_MAX - 1, 1, ~(uint32_t)7, 0};
    plim__list_cache_t cache = {.width = sizeof(uint32_t), .base.memory.base = (char *)stored};
    int64_t ids[] = {0, 2, 1, 3};
    assert_true(plim__list_cache_load(&cache, ids, 4));
    assert_int_equal(ids[0], 0);
    assert_int_equal(ids[1], UINT32_MAX - 1);
    assert_int_equal(ids[2], (int64_t)INT32_MAX + 1);
    assert_int_equal(ids[3], 7);
    ids[0] = 4; /* dropped */
    ids[1] = 3;
    assert_false(plim__list_cache_load(&cache, ids, 2));
}

static void stops_where_ids_are_full(void **state)
{
    (void)state;
    world_t world;
    world_make(&world, PLIM_IO_AUTO);
    plim__topology_t *source = open_source(&world);
    int64_t *nodes = make_nodes(3000, 7, false);
    int64_t *shuffled = make_nodes(3000, 7, true);
    compare(&world, source, 0, &hops[1], nodes, 3000, 3);
    compare(&world, source, 0, &hops[2], nodes, 3000, 15);
    compare(&world, source, 0, &hops[2], shuffled, 3000, 1111);
    compare(&world, source, 0, &hops[3], nodes, 3000, 20001);
    compare(&world, source, 0, &hops[6], shuffled, 3000, LONGEST);
    compare(&world, source, 0, &hops[6], nodes, 0, 0);

    plim__drawn_t drawn = drawn_make(1, LONGEST - 1);
    drawn.taken = 77;
    nodes[0] = 5;
    assert_int_equal(test_topology_draw(source, 0, &hops[6], nodes, 1, &drawn), PLIM_ERR_BUDGET);
    assert_non_null(strstr(plim_last_error(), "node 5"));
    assert_int_equal(drawn.taken, 77);
    drawn_free(&drawn);
    free(shuffled);
    free(nodes);
    plim__topology_disk_destroy(source);
    world_end(&world);
}

/* Also what two chunks of the filling share, and what a refresh has brought back. */
static void the_kernel_may_take_all(void **state)
{
    (void)state;
    world_t world;
    if (!test_pageout_works())
        skip();
    test_pages_pin(true);
    world_make(&world, PLIM_IO_THREADS);
    plim__node_set_t cached = make_cached(1);
    plim__topology_t *source = open_cached(&world, &cached, SIZE_MAX / 2);
    const plim__droppable_t *memory = plim__source_memory(source->disk);
    const size_t bytes = memory->bytes;
    assert_int_equal(test_pages_there(memory->base, bytes),
                     (int64_t)((bytes + PLIM__PAGE - 1) / PLIM__PAGE));
    for (int round = 0; round < 2; round++) {
        assert_int_equal(madvise(memory->base, bytes, MADV_PAGEOUT), 0);
        assert_int_equal(test_pages_there(memory->base, bytes), 0);
        compare(&world, source, 0, &hops[1], (int64_t[]){2, 4, 6, 8}, 4, 100);
        assert_ok(plim__source_refresh(source->disk, 1, SECOND));
    }
    plim__topology_disk_destroy(source);
    free(cached.lines);
    world_end(&world);
    test_pages_pin(false);
}

typedef struct drawing {
    const world_t *world;
    plim__topology_t *source;
    int next;
    pthread_mutex_t disturbing;
} drawing_t;

/* The kernel takes pages of the cached lists, and the target moves. Between refreshes: no page that
 * is being filled can be taken. */
static plim_status_t disturb(plim__topology_t *source, int worker, int turn)
{
    plim__droppable_t *memory = plim__source_memory(source->disk);
    PLIM_TRY(plim__source_refresh(source->disk, worker, SECOND));
    for (int i = 0; i < 8; i++) {
        const size_t at = (size_t)(turn + 8 * i) * 37 * PLIM__PAGE % memory->bytes;
        assert_int_equal(madvise(memory->base + at, PLIM__PAGE, MADV_DONTNEED), 0);
    }
    plim__droppable_limit(memory, turn % 3 == 0 ? memory->bytes / 2 : SIZE_MAX);
    return PLIM_OK;
}

static plim_status_t draw_as_worker(void *context, int worker)
{
    drawing_t *drawing = context;
    int64_t *nodes = make_nodes(2000, 3, worker % 2 == 1);
    for (int turn; (turn = __atomic_fetch_add(&drawing->next, 1, __ATOMIC_RELAXED)) < 24;) {
        /* By the turn, not by the worker: a worker can miss all turns. Its own draws then read
         * pages that no other disturbance has filled again. */
        const bool disturbs = turn % WORKERS == 1;
        if (disturbs) {
            (void)pthread_mutex_lock(&drawing->disturbing);
            PLIM_TRY(disturb(drawing->source, worker, turn));
        }
        compare(drawing->world, drawing->source, worker, &hops[turn % 6], nodes, 2000, 2000000);
        if (disturbs)
            (void)pthread_mutex_unlock(&drawing->disturbing);
    }
    free(nodes);
    return PLIM_OK;
}

static void workers_draw_at_once(void **state)
{
    (void)state;
    for (size_t e = 0; e < 4; e++) {
        world_t world;
        world_make(&world, engines[e % 2]);
        plim__node_set_t cached = make_cached(3);
        plim__source_params_t params = {.workers = WORKERS,
                                        .depth = 64,
                                        .merge_distance = 16384,
                                        .all = e / 2 == 1,
                                        .cached = &cached,
                                        .cache_bytes = SIZE_MAX / 2};
        drawing_t drawing = {.world = &world, .disturbing = PTHREAD_MUTEX_INITIALIZER};
        assert_ok(plim__topology_disk_create(&world.job, world.dataset, world.offsets, &params,
                                             &drawing.source));
        plim__source_stats_t stats;
        assert_ok(plim__parallel(WORKERS, draw_as_worker, &drawing));
        stats = plim__source_stats(drawing.source->disk);
        assert_int_equal(stats.items, 24 * 2000);
        assert_true(stats.cached > 0);
        assert_true(stats.transfers > 0 && stats.bytes_read >= 512 * stats.transfers);
        plim__topology_disk_destroy(drawing.source);
        free(cached.lines);
        world_end(&world);
    }
}

/* The answer to one draw from one node. */
static plim_status_t draw_one(plim__topology_t *source, const plim__hop_t *hop, int64_t node)
{
    plim__drawn_t drawn = drawn_make(1, LONGEST);
    plim_status_t status = test_topology_draw(source, 0, hop, &node, 1, &drawn);
    drawn_free(&drawn);
    return status;
}

static void write_entry(int64_t number, int32_t value)
{
    int fd = open(indices_path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, &value, sizeof value, PLIM__NPY_HEADER + number * 4), 4);
    assert_int_equal(fsync(fd), 0);
    assert_int_equal(close(fd), 0);
}

static void says_which_entry_is_no_node(void **state)
{
    (void)state;
    static const int32_t values[] = {-1, INT32_MIN, (int32_t)NODES, INT32_MAX};
    world_t world;
    char expected[64];
    world_make(&world, PLIM_IO_AUTO);
    plim__topology_t *source = open_source(&world);
    const int64_t last = num_edges - 1;
    int64_t node = NODES - 1;
    while (degree_of(node) == 0)
        node--;
    (void)snprintf(expected, sizeof expected, "indices.npy: entry %lld", (long long)last);
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        write_entry(last, values[i]);
        assert_int_equal(draw_one(source, &hops[6], node), PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), expected));

        plim__node_set_t cached = make_cached(1);
        plim__topology_t *unmade = NULL;
        const plim__source_params_t params = {
            .workers = 2, .depth = 8, .cached = &cached, .cache_bytes = SIZE_MAX / 2};
        int64_t before = plim__ledger_reserved(world.job.ledger);
        assert_int_equal(
            plim__topology_disk_create(&world.job, world.dataset, world.offsets, &params, &unmade),
            PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), expected));
        assert_null(unmade);
        assert_int_equal(plim__ledger_reserved(world.job.ledger), before);
        free(cached.lines);
    }
    write_entry(last, entry_of(last));
    assert_ok(draw_one(source, &hops[6], node));
    plim__topology_disk_destroy(source);
    world_end(&world);
}

static void says_that_the_file_was_cut(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        world_t world;
        world_make(&world, engines[e]);
        plim__topology_t *source = open_source(&world);
        assert_int_equal(truncate(indices_path, PLIM__NPY_HEADER + 5000), 0);
        for (int h = 0; h < HOPS - 1; h++) {
            assert_int_equal(draw_one(source, &hops[h], 7), PLIM_ERR_DATA);
            assert_non_null(strstr(plim_last_error(), "indices.npy"));
        }
        plim__topology_disk_destroy(source);
        world_end(&world);
        test_directory_remove(directory);
        (void)make_dataset(NULL);
    }
}

static plim_status_t create_and_destroy(plim_job_t *job, void *context)
{
    const world_t *world = context;
    plim__node_set_t cached = make_cached(4);
    const plim__source_params_t params = {.workers = 2,
                                          .depth = 8,
                                          .merge_distance = 4096,
                                          .cached = &cached,
                                          .cache_bytes = 1000000};
    plim__topology_t *source;
    plim_status_t status =
        plim__topology_disk_create(job, world->dataset, world->offsets, &params, &source);
    if (status == PLIM_OK)
        plim__topology_disk_destroy(source);
    free(cached.lines);
    return status;
}

static void fails_cleanly_without_memory(void **state)
{
    (void)state;
    world_t world;
    world_make(&world, PLIM_IO_THREADS);
    test_fail_each_arena(&world.job, create_and_destroy, &world);
    world_end(&world);
    plim__topology_disk_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_memory),
        cmocka_unit_test(cached_lists_change_nothing),
        cmocka_unit_test(cached_lists_are_not_read),
        cmocka_unit_test(dropped_pages_are_read_again),
        cmocka_unit_test(the_kernel_may_take_all),
        cmocka_unit_test(wide_entries_are_read),
        cmocka_unit_test(large_ids_are_loaded),
        cmocka_unit_test(offsets_on_disk_are_checked),
        cmocka_unit_test(stops_where_ids_are_full),
        cmocka_unit_test(workers_draw_at_once),
        cmocka_unit_test(says_which_entry_is_no_node),
        cmocka_unit_test(says_that_the_file_was_cut),
        cmocka_unit_test(fails_cleanly_without_memory),
    };
    return cmocka_run_group_tests_name("sample.topology_disk", tests, make_dataset, remove_dataset);
}
