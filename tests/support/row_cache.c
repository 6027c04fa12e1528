#include "support/row_cache.h"

#include "support/sources.h"

#include "base/rng.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static void keep_log(void *user, plim_log_level_t level, const char *message)
{
    test_row_cache_t *cache = user;
    size_t length = strlen(cache->log);
    if (level == PLIM_LOG_WARNING)
        (void)snprintf(cache->log + length, sizeof cache->log - length, "%s\n", message);
}

static void choose_nodes(test_row_cache_t *cache, bool all)
{
    int64_t n = cache->world.num_nodes;
    void *lines = aligned_alloc(64, plim__node_set_bytes(n));
    assert_non_null(lines);
    memset(lines, 0, plim__node_set_bytes(n));
    cache->set = plim__node_set_make(lines, n);
    for (int64_t node = 0; node < n; node++)
        if (all || plim__rng_u64(77, (uint64_t)node) % 3 != 0)
            (void)plim__node_set_add(&cache->set, node);
    plim__node_set_seal(&cache->set);
    cache->params = (plim__source_params_t){.workers = 4,
                                            .depth = 8,
                                            .merge_distance = 4096,
                                            .cached = &cache->set,
                                            .cache_bytes = SIZE_MAX >> 8};
}

void test_row_cache_make(test_row_cache_t *cache, int64_t num_nodes, int64_t num_features,
                         bool half, bool all, plim_io_engine_t engine)
{
    memset(cache, 0, sizeof *cache);
    test_features_make(&cache->world, num_nodes, num_features, half, engine);
    choose_nodes(cache, all);
    cache->world.job.log = keep_log;
    cache->world.job.user = cache;
    (void)snprintf(cache->scratch, sizeof cache->scratch, "%s/scratch", cache->world.directory);
    assert_int_equal(mkdir(cache->scratch, 0700), 0);
}

int test_row_cache_class(int64_t node)
{
    const uint64_t draw = plim__rng_u64(78, (uint64_t)node) % 128;
    return draw == 0 ? 0 : 64 - __builtin_clzll(draw);
}

/* Whether the list of a member is packed. */
static bool is_packed(const test_row_cache_t *cache, int64_t node)
{
    return node % 7 != 3 && plim__offsets_list(cache->offsets, node).degree > 0;
}

static void make_set(test_row_cache_t *cache, plim__working_set_t **set_out)
{
    plim__working_set_t *set;
    plim__working_size_t size = {.rows = cache->set.count};
    int64_t node = -1;
    for (int64_t i = 0; i < cache->set.count; i++) {
        node = plim__node_set_next(&cache->set, node + 1);
        size.lists += is_packed(cache, node);
        size.entries +=
            is_packed(cache, node) ? plim__offsets_list(cache->offsets, node).degree : 0;
    }
    assert_ok(plim__working_set_create(&cache->world.job, cache->world.dataset, cache->offsets,
                                       cache->scratch, TEST_ROW_CACHE_KEY, size, &set));
    memcpy(set->order.nodes.lines, cache->set.lines, plim__node_set_bytes(cache->world.num_nodes));
    plim__node_set_seal(&set->order.nodes);
    node = -1;
    for (int64_t i = 0; i < cache->set.count; i++) {
        node = plim__node_set_next(&cache->set, node + 1);
        plim__node_order_set(&set->order, i, test_row_cache_class(node));
        if (is_packed(cache, node))
            plim__node_order_set(&set->lists, i, 1 + (int)(plim__rng_u64(79, (uint64_t)node) % 7));
    }
    set->complete = set->with_lists = true;
    assert_true(plim__working_set_seal(set));
    assert_ok(plim__working_set_save(set, cache->world.dataset, cache->scratch));
    *set_out = set;
}

bool test_row_cache_pack(test_row_cache_t *cache)
{
    plim__working_set_t *set;
    const plim_dataset_info_t *info = plim_dataset_info(cache->world.dataset);
    const plim__working_size_t most = {info->num_nodes, info->num_nodes, info->num_edges};
    plim__working_set_destroy(cache->params.working_set);
    if (cache->offsets == NULL)
        assert_ok(
            plim__offsets_create(&cache->world.job, cache->world.dataset, false, &cache->offsets));
    assert_ok(plim__working_set_open(&cache->world.job, cache->world.dataset, cache->offsets,
                                     cache->scratch, TEST_ROW_CACHE_KEY, most, &set));
    const bool found = set != NULL;
    if (!found)
        make_set(cache, &set);
    plim__job_deliver(&cache->world.job);
    cache->params.working_set = set;
    return found;
}

void test_row_cache_end(test_row_cache_t *cache)
{
    plim__working_set_destroy(cache->params.working_set);
    plim__topology_disk_destroy(cache->lists);
    plim__offsets_destroy(cache->offsets);
    free(cache->set.lines);
    test_features_end(&cache->world);
}

plim__rows_t *test_row_cache_open(test_row_cache_t *cache)
{
    plim__rows_t *source;
    assert_ok(
        plim__rows_disk_create(&cache->world.job, cache->world.dataset, &cache->params, &source));
    plim__job_deliver(&cache->world.job);
    return source;
}

plim__topology_t *test_row_cache_open_lists(test_row_cache_t *cache, size_t cache_bytes)
{
    plim__topology_t *source;
    plim__source_params_t params = cache->params;
    params.cache_bytes = cache_bytes;
    if (cache->lists == NULL)
        assert_ok(test_lists_cached(&cache->world.job, cache->world.dataset, cache->offsets, 1,
                                    &cache->lists));
    assert_ok(plim__topology_disk_create(&cache->world.job, cache->world.dataset, cache->offsets,
                                         &params, &source));
    plim__job_deliver(&cache->world.job);
    return source;
}

static void draw_all(plim__topology_t *source, const plim__hop_t *hop, const int64_t *nodes,
                     int64_t count, plim__drawn_t *drawn)
{
    const plim__draws_t draws = {hop, nodes, nodes, count, NULL};
    assert_ok(plim__topology_draw(source, 0, &draws, drawn));
    assert_int_equal(drawn->taken, count);
}

int64_t test_row_cache_draw(test_row_cache_t *cache, plim__topology_t *source, bool packed)
{
    static const plim__hop_t hops[] = {
        {1, 0, 0, 3, false}, {1, 0, 1, -1, false}, {1, 1, 1, 2, true}};
    const int64_t num_nodes = cache->world.num_nodes;
    int64_t count = 0, before = 0, cached = 0;
    int64_t *nodes = calloc((size_t)num_nodes, sizeof *nodes), *memory[6];
    for (int i = 0; i < 6; i++)
        memory[i] = calloc((size_t)num_nodes * 13 + 1, sizeof(int64_t));
    plim__drawn_t wanted = {memory[0], memory[1], num_nodes * 13, 0, memory[2]};
    plim__drawn_t drawn = {memory[3], memory[4], num_nodes * 13, 0, memory[5]};
    for (int64_t node = 0; node < num_nodes; node++)
        if (!packed || (plim__node_set_has(&cache->set, node) && is_packed(cache, node)))
            nodes[count++] = node;
    for (int h = 0; h < 3; h++) {
        for (int64_t i = 0; h == 2 && i < count; i += 3) { /* not ascending */
            const int64_t other = (int64_t)(plim__rng_u64(80, (uint64_t)i) % (uint64_t)count);
            const int64_t node = nodes[i];
            nodes[i] = nodes[other];
            nodes[other] = node;
        }
        draw_all(cache->lists, &hops[h], nodes, count, &wanted);
        draw_all(source, &hops[h], nodes, count, &drawn);
        plim__job_deliver(&cache->world.job);
        const size_t ids = (size_t)wanted.indptr[count] * sizeof(int64_t);
        assert_memory_equal(drawn.indptr, wanted.indptr, (size_t)(count + 1) * sizeof(int64_t));
        assert_memory_equal(drawn.ids, wanted.ids, ids);
        assert_memory_equal(drawn.positions, wanted.positions, ids);
        for (int64_t i = 0; i < count; i++) /* the same by position */
            for (int64_t k = drawn.indptr[i]; k < drawn.indptr[i + 1]; k++)
                drawn.positions[k] -= plim__offsets_list(cache->offsets, nodes[i]).start;
        if (!packed) {
            assert_ok(
                plim__topology_entries(source, 0, nodes, drawn.indptr, count, drawn.positions));
            assert_memory_equal(drawn.positions, wanted.ids, ids);
        }
        cached = (plim__source_stats(source->disk).cached - before) / (packed ? 1 : 2);
        before = plim__source_stats(source->disk).cached;
    }
    for (int i = 0; i < 6; i++)
        free(memory[i]);
    free(nodes);
    return cached;
}

int64_t test_row_cache_num_pages(plim__rows_t *source)
{
    return (int64_t)(plim__source_memory(source->disk)->bytes / PLIM__PAGE);
}

char *test_row_cache_page(plim__rows_t *source, int64_t page)
{
    return plim__source_memory(source->disk)->base + (size_t)page * PLIM__PAGE;
}

void test_row_cache_refresh(plim__rows_t *source)
{
    assert_ok(plim__source_refresh(source->disk, 3, 1000000000));
}

void test_row_cache_drop(plim__rows_t *source, int64_t first_page, int64_t num_pages)
{
    assert_true(first_page + num_pages <= test_row_cache_num_pages(source));
    assert_int_equal(madvise(test_row_cache_page(source, first_page),
                             (size_t)num_pages * PLIM__PAGE, MADV_DONTNEED),
                     0);
}

int64_t test_row_cache_gather(test_row_cache_t *cache, plim__rows_t *source)
{
    enum { PIECE = 512 };
    const test_features_t *world = &cache->world;
    plim__source_stats_t before, after;
    int64_t nodes[PIECE];
    char *rows = malloc(PIECE * (size_t)world->num_features * 4);
    assert_non_null(rows);
    before = plim__source_stats(source->disk);
    for (int64_t first = 0; first < world->num_nodes; first += PIECE) {
        int64_t left = world->num_nodes - first, count = left < PIECE ? left : PIECE;
        for (int64_t i = 0; i < count; i++)
            nodes[i] = first + i;
        assert_ok(plim__rows_gather(source, 0, nodes, count, world->type, rows));
        test_features_compare(world, nodes, count, world->type, rows);
    }
    after = plim__source_stats(source->disk);
    free(rows);
    plim__job_deliver(&world->job);
    assert_int_equal(after.items - before.items, world->num_nodes);
    return after.cached - before.cached;
}

int64_t test_row_cache_held(test_row_cache_t *cache, plim__rows_t *source)
{
    int64_t count = 0;
    for (int64_t node = 0; node < cache->world.num_nodes; node++)
        count += plim__rows_disk_holds(source, node);
    return count;
}

void test_row_cache_overwrite(const char *path, int64_t offset, const void *bytes, size_t size)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, offset), (ssize_t)size);
    assert_int_equal(close(fd), 0);
}

void test_row_cache_features_path(const test_row_cache_t *cache, char path_out[700])
{
    (void)snprintf(path_out, 700, "%s/features.npy", cache->world.path);
}
