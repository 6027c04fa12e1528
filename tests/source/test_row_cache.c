/*
 * Cached rows: equal to the dataset's whatever the kernel takes back and whenever; brought back
 * when there is room. The working set's file is in test_working_set.c.
 */
/* labels: plain */
#include "support/cgroup.h"
#include "support/pages.h"
#include "support/row_cache.h"
#include "support/wrapped.h"

#include "base/clock.h"
#include "base/fail.h"
#include "base/rng.h"
#include "base/threads.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

static void equal_the_dataset(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 3, 4, 128, 129, 5000};
    for (int s = 0; s < 6; s++) {
        for (int i = 0; i < 4; i++) {
            test_row_cache_t cache;
            test_row_cache_make(&cache, sizes[s] > 1000 ? 60 : 700, sizes[s], i % 2 == 0,
                                i / 2 == 0, engines[i / 2]);
            size_t row = (size_t)sizes[s] * (i % 2 == 0 ? 2 : 4);
            if (s % 2 == 0) /* the first ones only */
                cache.params.cache_bytes = 20 * ((row + 7) / 8 * 8) + 7;
            int64_t before = plim__ledger_reserved(cache.world.job.ledger);
            plim__rows_t *source = test_row_cache_open(&cache);
            assert_true(plim__ledger_peak(cache.world.job.ledger) - before <=
                        (int64_t)(plim__rows_disk_estimate(&cache.world.job, cache.world.dataset,
                                                           &cache.params) +
                                  plim__rows_disk_filling(&cache.world.job, cache.world.dataset,
                                                          &cache.params)));
            int64_t expected = s % 2 == 0 ? 20 : cache.set.count;
            test_features_check(&cache.world, source);
            assert_int_equal(test_row_cache_held(&cache, source), expected);
            assert_int_equal(test_row_cache_gather(&cache, source), expected);
            test_row_cache_refresh(source);
            assert_int_equal(test_row_cache_held(&cache, source), expected);
            plim__rows_disk_destroy(source);
            assert_int_equal(plim__ledger_reserved(cache.world.job.ledger), before);
            assert_string_equal(cache.log, "");
            test_row_cache_end(&cache);
        }
    }
}

/* Worlds of a page, of a part of a chunk, and of several chunks with huge pages among them. */
static const struct {
    int64_t nodes;
    int64_t features;
} shapes[] = {{6000, 1}, {6000, 100}, {6000, 128}, {100, 3000}, {40000, 128}};

enum { NUM_SHAPES = sizeof shapes / sizeof shapes[0] };

static plim__rows_t *make_shape(test_row_cache_t *cache, int shape, int packed)
{
    test_row_cache_make(cache, shapes[shape].nodes, shapes[shape].features, true, false,
                        engines[packed]);
    if (packed == 1)
        (void)test_row_cache_pack(cache);
    return test_row_cache_open(cache);
}

static void dropped_pages_are_read_and_come_back(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * NUM_SHAPES; i++) {
        test_row_cache_t cache;
        plim__source_stats_t stats;
        plim__rows_t *source = make_shape(&cache, i / 2, i % 2);
        int64_t num_pages = test_row_cache_num_pages(source);
        test_row_cache_drop(source, 0, 1);
        test_row_cache_drop(source, num_pages / 2, 1);
        test_row_cache_drop(source, num_pages - 1, 1);
        assert_int_equal(test_row_cache_held(&cache, source), cache.set.count);
        int64_t from_memory = test_row_cache_gather(&cache, source);
        assert_true(from_memory < cache.set.count);
        stats = plim__source_stats(source->disk);
        assert_true(stats.lost >= (cache.set.count - from_memory));
        test_row_cache_refresh(source);
        assert_int_equal(test_row_cache_held(&cache, source), cache.set.count);
        assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
        /* Whole chunks: found although no one has read them since they went. */
        for (int64_t page = 0; page < num_pages; page++)
            test_row_cache_drop(source, page, 1);
        test_row_cache_refresh(source);
        assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
        plim__rows_disk_destroy(source);
        test_row_cache_end(&cache);
    }
}

/* Asks the kernel itself to take the pages. */
static void assert_kernel_takes_all(test_row_cache_t *cache, plim__rows_t *source)
{
    char *pages = test_row_cache_page(source, 0);
    int64_t num_pages = test_row_cache_num_pages(source);
    size_t bytes = (size_t)num_pages * PLIM__PAGE;
    assert_int_equal(test_pages_there(pages, bytes), num_pages);
    assert_int_equal(madvise(pages, bytes, MADV_PAGEOUT), 0);
    int64_t stayed = test_pages_there(pages, bytes);
    if (stayed > 0)
        print_message("%lld of %lld pages survived MADV_PAGEOUT\n", (long long)stayed,
                      (long long)num_pages);
    assert_true(stayed <= TEST_PAGES_WAITING);
    assert_true(test_row_cache_gather(cache, source) == 0 || stayed > 0);
}

static void filled_and_refilled_pages_can_be_taken(void **state)
{
    (void)state;
    if (!test_pageout_works())
        skip();
    test_pages_pin(true);
    for (int i = 0; i < 2 * NUM_SHAPES; i++) {
        test_row_cache_t cache;
        plim__rows_t *source = make_shape(&cache, i / 2, i % 2);
        assert_kernel_takes_all(&cache, source);
        test_row_cache_refresh(source);
        assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
        assert_kernel_takes_all(&cache, source);
        plim__rows_disk_destroy(source);
        test_row_cache_end(&cache);
    }
    test_pages_pin(false);
}

/*
 * Where a whole chunk is gone while a refresh asks for huge pages, reading one row brings a huge
 * page of zeros, and the kernel says that all of the chunk is there.
 */
static void a_huge_page_of_zeros(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char row[256];
    test_row_cache_make(&cache, 20000, 128, true, true, PLIM_IO_AUTO);
    plim__rows_t *source = test_row_cache_open(&cache);
    size_t bytes = (size_t)test_row_cache_num_pages(source) * PLIM__PAGE;
    const int64_t node = (int64_t)PLIM__DROPPABLE_CHUNK / 256 + 100;
    (void)madvise(test_row_cache_page(source, 0), bytes, MADV_HUGEPAGE);
    test_row_cache_drop(source, TEST_CHUNK_PAGES, TEST_CHUNK_PAGES);
    assert_ok(plim__rows_gather(source, 0, &node, 1, PLIM_F16, row));
    test_features_compare(&cache.world, &node, 1, PLIM_F16, row);
    (void)madvise(test_row_cache_page(source, 0), bytes, MADV_NOHUGEPAGE);
    if (test_pages_there(test_row_cache_page(source, TEST_CHUNK_PAGES), PLIM__DROPPABLE_CHUNK) <
        TEST_CHUNK_PAGES)
        print_message("SKIPPED in part: this kernel brings no huge page of zeros\n");
    test_row_cache_refresh(source);
    assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
    plim__rows_disk_destroy(source);
    test_row_cache_end(&cache);
}

/* Such rows cannot be told from dropped ones: never from memory, always right. */
static void rows_that_look_dropped(void **state)
{
    (void)state;
    static const int64_t nodes[] = {0, 5, 16, 31}; /* rows of 256 bytes: two begin a page */
    test_row_cache_t cache;
    char path[700];
    uint64_t key = PLIM__ROW_CACHE_KEY;
    test_row_cache_make(&cache, 500, 128, true, true, PLIM_IO_AUTO);
    test_row_cache_features_path(&cache, path);
    for (int i = 0; i < 4; i++) {
        test_row_cache_overwrite(path, 4096 + nodes[i] * 256, &key, sizeof key);
        memcpy(cache.world.features + nodes[i] * 256, &key, sizeof key);
    }
    plim__rows_t *source = test_row_cache_open(&cache);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count - 4);
        test_row_cache_refresh(source);
        assert_int_equal(test_row_cache_held(&cache, source), cache.set.count);
    }
    plim__rows_disk_destroy(source);
    test_row_cache_end(&cache);
}

/* Gatherers, while one thread drops pages and brings them back. */
typedef struct crowd {
    test_row_cache_t *cache;
    plim__rows_t *source;
    atomic_int next;
    bool resized;          /* it also gives pages back, and may take them again */
    atomic_bool disturbed; /* enough */
} crowd_t;

enum { DISTURBANCES = TEST_SANITIZED ? 15 : 45, CROWD = 4 };

/* In turn: whole chunks, which huge pages take the place of; parts of them; single pages. */
static void drop_some(crowd_t *crowd, int turn, uint64_t *draw)
{
    int64_t num_pages = test_row_cache_num_pages(crowd->source);
    for (int i = 0; i < 5; i++) {
        int64_t first = (int64_t)plim__rng_below(6, draw, (uint64_t)num_pages);
        int64_t count = turn % 3 == 2 ? 1 : (int64_t)plim__rng_below(6, draw, 200) + 1;
        if (turn % 3 == 0) {
            first -= first % TEST_CHUNK_PAGES;
            count = TEST_CHUNK_PAGES;
        }
        if (count > num_pages - first)
            count = num_pages - first;
        test_row_cache_drop(crowd->source, first, count);
    }
}

static plim_status_t disturb(crowd_t *crowd)
{
    uint64_t draw = 0;
    plim_status_t status = PLIM_OK;
    for (int turn = 0; turn < DISTURBANCES && status == PLIM_OK; turn++) {
        drop_some(crowd, turn, &draw);
        status = plim__source_refresh(crowd->source->disk, CROWD - 1, 1000000000);
        if (crowd->resized)
            plim__droppable_limit(plim__source_memory(crowd->source->disk),
                                  (size_t)plim__rng_below(7, &draw, 9) * PLIM__DROPPABLE_CHUNK / 2);
    }
    atomic_store(&crowd->disturbed, true);
    return status;
}

static plim_status_t crowd_member(void *context, int worker)
{
    crowd_t *crowd = context;
    const test_features_t *world = &crowd->cache->world;
    (void)worker;
    int number = atomic_fetch_add(&crowd->next, 1);
    int64_t nodes[100];
    uint64_t draw = 0;
    if (number == CROWD - 1)
        return disturb(crowd);
    char *rows = malloc(100 * (size_t)world->num_features * 4);
    plim_status_t status = PLIM_OK;
    for (int round = 0; !atomic_load(&crowd->disturbed) && status == PLIM_OK; round++) {
        plim_dtype_t type = round % 8 == 0 ? PLIM_F32 : PLIM_F16;
        for (int i = 0; i < 100; i++)
            nodes[i] =
                (int64_t)plim__rng_below((uint64_t)number + 9, &draw, (uint64_t)world->num_nodes);
        status = plim__rows_gather(crowd->source, number, nodes, 100, type, rows);
        if (status == PLIM_OK)
            test_features_compare(world, nodes, 100, type, rows);
    }
    free(rows);
    return status;
}

static void dropped_and_refilled_while_others_gather(void **state)
{
    (void)state;
    for (int i = 0; i < 8; i++) {
        const int packed = i % 2;
        test_row_cache_t cache;
        plim__source_stats_t stats;
        test_row_cache_make(&cache, packed == 1 ? 28000 : 38000, packed == 1 ? 128 : 90, true, true,
                            PLIM_IO_AUTO);
        if (packed == 1)
            (void)test_row_cache_pack(&cache);
        cache.params.all = i / 4 == 1;
        plim__rows_t *source = test_row_cache_open(&cache);
        assert_true(test_row_cache_num_pages(source) > 3 * TEST_CHUNK_PAGES);
        crowd_t crowd = {.cache = &cache, .source = source, .resized = i / 2 % 2 == 1};
        assert_ok(plim__parallel(CROWD, crowd_member, &crowd));
        assert_int_equal(crowd.next, CROWD);
        stats = plim__source_stats(source->disk);
        assert_true(stats.cached > 0 && stats.cached < stats.items);
        plim__droppable_limit(plim__source_memory(source->disk), SIZE_MAX);
        (void)test_row_cache_gather(&cache, source); /* finds the single pages that are gone */
        test_row_cache_refresh(source);
        assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
        plim__rows_disk_destroy(source);
        test_row_cache_end(&cache);
    }
}

/* What is behind the limit leaves memory at once, and stays away until the limit is higher. */
static void given_back_and_taken_again(void **state)
{
    (void)state;
    test_row_cache_t cache;
    test_row_cache_make(&cache, 40000, 128, true, true, PLIM_IO_AUTO);
    plim__rows_t *source = test_row_cache_open(&cache);
    const int64_t num_pages = test_row_cache_num_pages(source);
    const size_t bytes = (size_t)num_pages * PLIM__PAGE;
    assert_int_equal(plim__source_memory(source->disk)->bytes, bytes);
    static const int chunks[] = {3, 1, 2, 0, 4, 1};
    for (int i = 0; i < 6; i++) {
        const int64_t kept = chunks[i] * TEST_CHUNK_PAGES;
        plim__droppable_limit(plim__source_memory(source->disk),
                              (size_t)chunks[i] * PLIM__DROPPABLE_CHUNK + 4097);
        assert_true(test_pages_there(test_row_cache_page(source, 0), bytes) <= kept);
        test_row_cache_refresh(source);
        assert_int_equal(test_pages_there(test_row_cache_page(source, 0), bytes), kept);
        assert_int_equal(test_row_cache_held(&cache, source), kept * 16);
        assert_int_equal(test_row_cache_gather(&cache, source), kept * 16);
        assert_int_equal(test_pages_there(test_row_cache_page(source, 0), bytes), kept);
    }
    plim__droppable_limit(plim__source_memory(source->disk), bytes);
    assert_int_equal(test_row_cache_held(&cache, source), TEST_CHUNK_PAGES * 16);
    test_row_cache_refresh(source);
    assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
    plim__rows_disk_destroy(source);
    test_row_cache_end(&cache);
}

static plim_status_t make_source(plim_job_t *job, void *context)
{
    test_row_cache_t *cache = context;
    plim__rows_t *source;
    PLIM_TRY(plim__rows_disk_create(job, cache->world.dataset, &cache->params, &source));
    plim__rows_disk_destroy(source);
    return PLIM_OK;
}

static void no_memory(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        test_row_cache_t cache;
        test_row_cache_make(&cache, 9000, 128, true, true, engines[packed]);
        if (packed == 1)
            (void)test_row_cache_pack(&cache);
        test_fail_each_arena(&cache.world.job, make_source, &cache);
        test_row_cache_end(&cache);
    }
}

static atomic_int chunks_filled;

/* The first thread waits, after its first chunk, until the other one has failed. */
static void wait_for_failure(void *user, const plim_progress_t *progress)
{
    (void)user;
    (void)progress;
    const struct timespec nap = {.tv_nsec = 20000000};
    int64_t start = plim__clock_ns();
    if (atomic_fetch_add(&chunks_filled, 1) > 0)
        return;
    while (test_map_fail_pending() != 0 && plim__clock_ns() - start < 1000000000)
        (void)nanosleep(&nap, NULL);
    (void)nanosleep(&nap, NULL);
}

static void filling_ends_with_the_first_error(void **state)
{
    (void)state;
    test_row_cache_t cache;
    plim__rows_t *source;
    plim_status_t status = PLIM_ERR_NOMEM;
    test_row_cache_make(&cache, 48000, 128, true, true, PLIM_IO_AUTO);
    cache.world.job.progress = wait_for_failure;
    for (int n = 1; status != PLIM_OK; n++) {
        int filled = 3;
        for (int i = 0; i < 20 && filled > 2; i++) { /* busy: the other fails late */
            atomic_store(&chunks_filled, 0);
            test_map_fail_at(n);
            status = plim__rows_disk_create(&cache.world.job, cache.world.dataset, &cache.params,
                                            &source);
            test_map_fail_at(0);
            filled = status == PLIM_OK ? 0 : atomic_load(&chunks_filled);
        }
        assert_true(status == PLIM_OK || status == PLIM_ERR_NOMEM);
        assert_true(filled <= 2);
    }
    plim__rows_disk_destroy(source);
    test_row_cache_end(&cache);
}

/* A neighbour in the same group: takes memory, says so, and keeps it until it is told to end. */
static pid_t neighbour(size_t bytes)
{
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        char *block = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (block == MAP_FAILED)
            _exit(1);
        memset(block, 1, bytes);
        (void)!write(ends[1], "x", 1);
        for (;;)
            pause();
    }
    (void)close(ends[1]);
    bool taken = read(ends[0], &byte, 1) == 1;
    (void)close(ends[0]);
    if (!taken) {
        (void)waitpid(child, NULL, 0);
        return -1;
    }
    return child;
}

/* In the group: 0, or the number of what went wrong. */
static int under_pressure(test_row_cache_t *cache, const test_cgroup_t *group, size_t take)
{
    plim__rows_t *source;
    if (!test_cgroup_enter(group))
        return 10;
    if (plim__rows_disk_create(&cache->world.job, cache->world.dataset, &cache->params, &source) !=
        PLIM_OK)
        return 11;
    if (test_row_cache_gather(cache, source) != cache->set.count)
        return 12;
    for (int round = 0; round < 2; round++) {
        pid_t child = neighbour(take);
        if (child < 0)
            return 13;
        int64_t during = test_row_cache_gather(cache, source);
        if (plim__source_refresh(source->disk, 3, 1000000000) != PLIM_OK)
            return 14;
        int64_t kept = test_row_cache_held(cache, source);
        if (test_row_cache_gather(cache, source) > kept)
            return 15;
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
        for (int i = 0; i < 20 && test_row_cache_held(cache, source) < cache->set.count; i++)
            if (plim__source_refresh(source->disk, 3, 1000000000) != PLIM_OK)
                return 16;
        int64_t after = test_row_cache_gather(cache, source);
        (void)fprintf(stderr, "rows from memory: all %lld; neighbour there %lld; gone again %lld\n",
                      (long long)cache->set.count, (long long)during, (long long)after);
        if (during >= cache->set.count || after != cache->set.count)
            return 17;
    }
    plim__rows_disk_destroy(source);
    return 0;
}

static void a_neighbour_takes_half(void **state)
{
    (void)state;
    test_row_cache_t cache;
    test_cgroup_t group;
    int status;
    test_skip_sanitized("a sanitizer adds memory of its own to the group");
    if (!test_cgroup_make((int64_t)(192 * MIB), &group))
        skip();
    pid_t child = fork();
    if (child == 0) {
        test_row_cache_make(&cache, (int64_t)(120 * MIB / 4096), 2048, true, true, PLIM_IO_AUTO);
        (void)test_row_cache_pack(&cache);
        const int wrong = under_pressure(&cache, &group, 96 * MIB);
        test_row_cache_end(&cache);
        _exit(wrong);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    int64_t kills = test_cgroup_kills(&group);
    test_cgroup_remove(&group);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(kills <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_the_dataset),
        cmocka_unit_test(dropped_pages_are_read_and_come_back),
        cmocka_unit_test(filled_and_refilled_pages_can_be_taken),
        cmocka_unit_test(a_huge_page_of_zeros),
        cmocka_unit_test(rows_that_look_dropped),
        cmocka_unit_test(dropped_and_refilled_while_others_gather),
        cmocka_unit_test(given_back_and_taken_again),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(filling_ends_with_the_first_error),
        cmocka_unit_test(a_neighbour_takes_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
