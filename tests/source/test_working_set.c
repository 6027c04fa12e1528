/* The working set's file: rows and lists come from it in few reads, and never a wrong one because
 * of it. */
/* labels: asan tsan unprivileged */
#include "support/row_cache.h"

#include "base/check.h"
#include "base/rng.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#define MIB ((size_t)1 << 20)

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

static void set_path(const test_row_cache_t *cache, char path_out[900])
{
    (void)snprintf(path_out, 900, "%s/working-set-%s-%016llx-%ld.plim", cache->scratch,
                   plim_dataset_info(cache->world.dataset)->fingerprint,
                   (unsigned long long)TEST_ROW_CACHE_KEY, (long)geteuid());
}

static int entries(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
        count += entry->d_name[0] != '.' || strlen(entry->d_name) > 2;
    (void)closedir(directory);
    return count;
}

static int64_t file_size(const char *path)
{
    struct stat about;
    return stat(path, &about) == 0 ? about.st_size : -1;
}

static void spoil(const test_row_cache_t *cache, const char *name)
{
    char path[700], spoilt[4096];
    (void)snprintf(path, sizeof path, "%s/%s", cache->world.path, name);
    memset(spoilt, 0x77, sizeof spoilt);
    for (int64_t at = 4096; at < file_size(path); at += 4096)
        test_row_cache_overwrite(path, at, spoilt,
                                 (size_t)plim__min_i64(4096, file_size(path) - at));
}

/* Gathers the members of the set alone, each once, and compares them. */
static void gather_members(test_row_cache_t *cache, plim__rows_t *source)
{
    const test_features_t *world = &cache->world;
    int64_t *nodes = malloc((size_t)cache->set.count * sizeof *nodes);
    char *rows = malloc((size_t)cache->set.count * (size_t)world->num_features * 4);
    assert_non_null(nodes);
    assert_non_null(rows);
    assert_int_equal(plim__node_set_list(&cache->set, 0, cache->set.count, nodes),
                     cache->set.count);
    assert_ok(plim__rows_gather(source, 0, nodes, cache->set.count, world->type, rows));
    test_features_compare(world, nodes, cache->set.count, world->type, rows);
    plim__job_deliver(&cache->world.job);
    free(nodes);
    free(rows);
}

/* The next start takes all rows of the set from its file, cached or not, and none of them from
 * features.npy, which is spoilt meanwhile; so do refills. */
static void rows_come_from_the_file(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 128, 1001};
    for (int s = 0; s < 6; s++) {
        test_row_cache_t cache;
        char packed[900];
        test_row_cache_make(&cache, s % 3 == 0 ? 100000 : 4000, sizes[s % 3], true, s < 3,
                            engines[s % 2]);
        set_path(&cache, packed);
        assert_false(test_row_cache_pack(&cache));
        assert_int_equal(entries(cache.scratch), 1);
        assert_true(file_size(packed) > cache.set.count * (int64_t)sizes[s % 3] * 2);
        spoil(&cache, "features.npy");
        for (int part = 1; part < 3; part++) {
            assert_true(test_row_cache_pack(&cache));
            const int64_t places = cache.params.working_set->order.first[PLIM__ORDER_CLASSES];
            cache.params.cache_bytes =
                (size_t)(places * cache.params.working_set->stride / 2 * part);
            plim__rows_t *source = test_row_cache_open(&cache);
            const int64_t held = test_row_cache_held(&cache, source);
            assert_true(part == 2 ? held == cache.set.count : held > 0 && held < cache.set.count);
            gather_members(&cache, source);
            test_row_cache_drop(source, 0, 1);
            gather_members(&cache, source);
            test_row_cache_refresh(source);
            assert_int_equal(test_row_cache_held(&cache, source), held);
            gather_members(&cache, source);
            assert_int_equal(plim__source_stats(source->disk).lost > 0, 1);
            plim__rows_disk_destroy(source);
        }
        assert_string_equal(cache.log, "");
        test_row_cache_end(&cache);
    }
}

/* The same of lists. */
static void lists_come_from_the_file(void **state)
{
    (void)state;
    for (int s = 0; s < 4; s++) {
        test_row_cache_t cache;
        test_row_cache_make(&cache, s % 2 == 0 ? 50000 : 4000, 1, true, s < 2, engines[s % 2]);
        assert_false(test_row_cache_pack(&cache));
        plim__topology_disk_destroy(test_row_cache_open_lists(&cache, 0));
        spoil(&cache, "indices.npy");
        for (size_t part = 0; part < 4; part++) {
            assert_true(test_row_cache_pack(&cache));
            const plim__working_set_t *set = cache.params.working_set;
            const size_t all = (size_t)(set->class_entries[PLIM__ORDER_CLASSES] * set->width);
            plim__topology_t *source =
                test_row_cache_open_lists(&cache, part == 3 ? SIZE_MAX >> 8 : all * part / 3);
            const int64_t held = test_row_cache_draw(&cache, source, true);
            assert_true(part == 0   ? held == 0
                        : part == 3 ? held == set->num_lists
                                    : held > 0 && held < set->num_lists);
            if (part > 0) {
                const plim__droppable_t *memory = plim__source_memory(source->disk);
                assert_int_equal(madvise(memory->base, PLIM__PAGE, MADV_DONTNEED), 0);
                assert_true(test_row_cache_draw(&cache, source, true) < held);
                assert_ok(plim__source_refresh(source->disk, 0, 1000000000));
                assert_int_equal(test_row_cache_draw(&cache, source, true), held);
            }
            plim__topology_disk_destroy(source);
        }
        const plim_dataset_info_t *info = plim_dataset_info(cache.world.dataset);
        const plim__working_size_t most = {info->num_nodes, 0, info->num_edges};
        plim__working_set_destroy(cache.params.working_set);
        assert_ok(plim__working_set_open(&cache.world.job, cache.world.dataset, cache.offsets,
                                         cache.scratch, TEST_ROW_CACHE_KEY, most,
                                         &cache.params.working_set));
        assert_int_equal(cache.params.working_set->num_lists, 0); /* a plan without their memory */
        plim__rows_t *rows = test_row_cache_open(&cache);
        gather_members(&cache, rows);
        plim__rows_disk_destroy(rows);
        assert_string_equal(cache.log, "");
        test_row_cache_end(&cache);
    }
}

/* What caches hold is the first classes, and rows behind them are read together: a gather in the
 * order of nodes makes about as many reads as 64 KiB go into what it needs. */
static void few_large_reads(void **state)
{
    (void)state;
    test_row_cache_t cache;
    test_row_cache_make(&cache, 60000, 128, true, false, PLIM_IO_AUTO);
    (void)test_row_cache_pack(&cache);
    const plim__node_order_t *order = &cache.params.working_set->order;
    cache.params.cache_bytes =
        (size_t)(order->first[PLIM__ORDER_CLASSES - 1] * cache.params.working_set->stride);
    plim__rows_t *source = test_row_cache_open(&cache);
    int64_t node = -1;
    for (int64_t i = 0; i < cache.set.count; i++) {
        node = plim__node_set_next(&cache.set, node + 1);
        assert_int_equal(plim__rows_disk_holds(source, node),
                         test_row_cache_class(node) < PLIM__ORDER_CLASSES - 1);
    }
    gather_members(&cache, source);
    const plim__source_stats_t stats = plim__source_stats(source->disk);
    const int64_t bytes = order->counts[PLIM__ORDER_CLASSES - 1] * cache.params.working_set->stride;
    assert_true(stats.items - stats.cached == order->counts[PLIM__ORDER_CLASSES - 1]);
    assert_true(stats.bytes_read < bytes + bytes / 4);
    assert_true(stats.transfers < bytes / (64 << 10) * 5 / 4 + 8);
    plim__rows_disk_destroy(source);
    test_row_cache_end(&cache);
}

/* Opens with what lies at the file's place: it must be made again, and be right. */
static void assert_made_again(test_row_cache_t *cache, const char *message)
{
    cache->log[0] = '\0';
    assert_false(test_row_cache_pack(cache));
    assert_non_null(strstr(cache->log, message));
    plim__rows_t *source = test_row_cache_open(cache);
    assert_int_equal(test_row_cache_gather(cache, source), cache->set.count);
    plim__rows_disk_destroy(source);
    cache->log[0] = '\0';
    assert_true(test_row_cache_pack(cache));
    assert_string_equal(cache->log, "");
    assert_int_equal(entries(cache->scratch), 1);
}

/* Rows on damaged pages are noticed when they are read, whether for the cache or later. */
static void assert_damage_found(test_row_cache_t *cache, size_t cache_bytes)
{
    cache->log[0] = '\0';
    cache->params.cache_bytes = cache_bytes;
    assert_true(test_row_cache_pack(cache));
    plim__rows_t *source = test_row_cache_open(cache);
    (void)test_row_cache_gather(cache, source);
    assert_non_null(strstr(cache->log, "damaged between"));
    assert_non_null(strstr(cache->log, "going on without packed rows"));
    plim__rows_disk_destroy(source);
}

/* The same of lists; those that are not packed come from the dataset. */
static void damaged_lists(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char packed[900];
    test_row_cache_make(&cache, 20000, 8, true, false, PLIM_IO_AUTO);
    set_path(&cache, packed);
    (void)test_row_cache_pack(&cache);
    const plim__working_set_t *set = cache.params.working_set;
    const int64_t end = set->class_entries[PLIM__ORDER_CLASSES];
    for (size_t bytes = 0; bytes < 3; bytes++) {
        plim__topology_t *source = test_row_cache_open_lists(&cache, bytes * 50000);
        (void)test_row_cache_draw(&cache, source, false);
        assert_string_equal(cache.log, "");
        plim__topology_disk_destroy(source);
    }
    test_row_cache_overwrite(packed, plim__working_set_entry_offset(set, 20), "abcdefgh", 8);
    test_row_cache_overwrite(packed, plim__working_set_entry_offset(set, end / 2), "abcdefgh", 8);
    for (size_t bytes = 0; bytes < 3; bytes++) {
        cache.log[0] = '\0';
        assert_true(test_row_cache_pack(&cache));
        plim__topology_t *source = test_row_cache_open_lists(&cache, bytes * 50000);
        for (int i = 0; i < 2; i++) {
            const int64_t held = test_row_cache_draw(&cache, source, false);
            assert_true(bytes == 0 ? held == 0 : held > 0);
            if (bytes > 0) {
                const plim__droppable_t *memory = plim__source_memory(source->disk);
                assert_int_equal(madvise(memory->base, memory->bytes, MADV_DONTNEED), 0);
                assert_ok(plim__source_refresh(source->disk, 0, 1000000000));
                assert_int_equal(test_row_cache_draw(&cache, source, false), held);
            }
        }
        assert_non_null(strstr(cache.log, "damaged between"));
        assert_non_null(strstr(cache.log, "going on without packed rows"));
        plim__topology_disk_destroy(source);
    }
    test_row_cache_end(&cache);
}

static void damaged_files(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char packed[900];
    test_row_cache_make(&cache, 20000, 100, true, false, PLIM_IO_AUTO);
    set_path(&cache, packed);
    (void)test_row_cache_pack(&cache);
    const int64_t size = file_size(packed);
    test_row_cache_overwrite(packed, 4096 + 1500000, "x", 1);
    assert_damage_found(&cache, SIZE_MAX >> 8);
    assert_damage_found(&cache, 100000);
    cache.params.cache_bytes = SIZE_MAX >> 8;
    test_row_cache_overwrite(packed, 60, "x", 1);
    assert_made_again(&cache, "damaged at its start");
    test_row_cache_overwrite(packed, size - 4096, "x", 1);
    assert_made_again(&cache, "damaged at its end");
    assert_int_equal(truncate(packed, size - 4096), 0);
    assert_made_again(&cache, "not of the size");
    assert_int_equal(truncate(packed, 0), 0);
    assert_made_again(&cache, "not of the size");
    assert_int_equal(chmod(packed, 0666), 0);
    assert_made_again(&cache, "written by others");
    test_row_cache_end(&cache);
}

/* Each bit that flips anywhere in the file is found, or changes nothing. */
static void flipped_bits(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char packed[900];
    test_row_cache_make(&cache, 3000, 33, true, false, PLIM_IO_AUTO);
    set_path(&cache, packed);
    (void)test_row_cache_pack(&cache);
    for (uint64_t i = 0; i < 200; i += TEST_SANITIZED ? 7 : 1) {
        const int64_t size = file_size(packed);
        const uint64_t draw = plim__rng_u64(5, i);
        const int64_t at = (int64_t)(draw % (uint64_t)(i % 4 == 0 ? 4096 : size));
        unsigned char byte;
        const int fd = open(packed, O_RDWR | O_CLOEXEC);
        assert_int_equal(pread(fd, &byte, 1, at), 1);
        byte ^= (unsigned char)(1 << (draw >> 40) % 8);
        assert_int_equal(pwrite(fd, &byte, 1, at), 1);
        assert_int_equal(close(fd), 0);
        cache.log[0] = '\0';
        cache.params.cache_bytes = i % 3 == 0 ? 50000 : SIZE_MAX >> 8;
        (void)test_row_cache_pack(&cache);
        plim__rows_t *source = test_row_cache_open(&cache);
        (void)test_row_cache_gather(&cache, source);
        plim__rows_disk_destroy(source);
        plim__topology_t *lists = test_row_cache_open_lists(&cache, i % 2 == 0 ? 30000 : 0);
        (void)test_row_cache_draw(&cache, lists, false);
        plim__topology_disk_destroy(lists);
        byte ^= (unsigned char)(1 << (draw >> 40) % 8);
        if (strstr(cache.log, "packing the rows again") == NULL)
            test_row_cache_overwrite(packed, at, &byte, 1);
    }
    cache.log[0] = '\0';
    assert_true(test_row_cache_pack(&cache));
    assert_string_equal(cache.log, "");
    test_row_cache_end(&cache);
}

/* Headers with a right hash and wrong numbers: refused, whatever they claim. */
static void hostile_headers(void **state)
{
    (void)state;
    enum { FIELDS = 32, NEEDS_AT = 8 + 24 + 6 * 8 + 16 * 24, HASH_AT = NEEDS_AT + 2 * 8 * 16 * 8 };
    static const uint64_t values[] = {0, 1, UINT64_MAX, (uint64_t)1 << 62, 4096, 3999, 8192};
    test_row_cache_t cache;
    char packed[900];
    _Alignas(8) unsigned char header[HASH_AT + 8], changed[HASH_AT + 8];
    test_row_cache_make(&cache, 4000, 8, true, false, PLIM_IO_AUTO);
    set_path(&cache, packed);
    (void)test_row_cache_pack(&cache);
    const int fd = open(packed, O_RDONLY | O_CLOEXEC);
    assert_int_equal(pread(fd, header, sizeof header, 0), sizeof header);
    assert_int_equal(close(fd), 0);
    uint64_t hash = XXH3_64bits(header, HASH_AT);
    assert_memory_equal(&hash, header + HASH_AT, 8); /* the layout above is the file's */
    for (size_t at = 32; at < 32 + FIELDS * 8 && at < HASH_AT; at += 8)
        for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
            memcpy(changed, header, sizeof header);
            memcpy(changed + at, &values[i], 8);
            if (memcmp(changed, header, sizeof header) == 0)
                continue;
            hash = XXH3_64bits(changed, HASH_AT);
            memcpy(changed + HASH_AT, &hash, 8);
            test_row_cache_overwrite(packed, 0, changed, sizeof changed);
            cache.log[0] = '\0';
            const bool found = test_row_cache_pack(&cache);
            assert_true(!found || at == 32 + 4 * 8); /* whether it is complete may be any bit */
            test_row_cache_overwrite(packed, 0, header, sizeof header);
        }
    test_row_cache_end(&cache);
}

/* The table of how often classes are needed, changed so that its hash is right: no class is needed
 * by more than all its members, or less often by a longer window. */
static void forged_needs(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char packed[900];
    test_row_cache_make(&cache, 4000, 8, true, false, PLIM_IO_AUTO);
    set_path(&cache, packed);
    (void)test_row_cache_pack(&cache);
    for (int i = 0; i < 4; i++) {
        plim__working_set_t *set = cache.params.working_set;
        uint64_t *needs = i % 2 == 0 ? set->needs.rows[4] : set->needs.lists[4];
        const int64_t count = i % 2 == 0 ? set->order.counts[4] : set->lists.counts[4];
        needs[i / 2 * 8] = i < 2 ? (uint64_t)((double)count * PLIM__WORKING_ONE) + 1 : 1;
        assert_int_equal(unlink(packed), 0);
        assert_ok(plim__working_set_save(set, cache.world.dataset, cache.scratch));
        cache.log[0] = '\0';
        assert_int_equal(test_row_cache_pack(&cache), false);
        assert_non_null(strstr(cache.log, "damaged at its start"));
    }
    test_row_cache_end(&cache);
}

static void assert_not_packed(test_row_cache_t *cache, const char *message)
{
    assert_false(test_row_cache_pack(cache));
    assert_non_null(strstr(cache->log, message));
    plim__rows_t *source = test_row_cache_open(cache);
    assert_int_equal(test_row_cache_gather(cache, source), cache->set.count);
    test_row_cache_drop(source, 0, 1);
    test_row_cache_refresh(source);
    assert_int_equal(test_row_cache_gather(cache, source), cache->set.count);
    plim__rows_disk_destroy(source);
}

static void without_a_place_for_it(void **state)
{
    (void)state;
    test_row_cache_t cache;
    test_row_cache_make(&cache, 1000, 16, true, false, PLIM_IO_AUTO);
    (void)snprintf(cache.scratch, sizeof cache.scratch, "%s/nowhere", cache.world.directory);
    assert_not_packed(&cache, "nowhere");
    test_row_cache_end(&cache);
}

/* tmpfs is memory: what is kept there would count against the line. */
static void not_in_memory(void **state)
{
    (void)state;
    test_row_cache_t cache;
    plim__file_system_t system;
    if (plim__file_system("/dev/shm", &system) != PLIM_OK || !system.memory ||
        access("/dev/shm", W_OK) != 0) {
        print_message("SKIPPED: /dev/shm is no tmpfs that can be written\n");
        skip();
    }
    test_row_cache_make(&cache, 1000, 16, true, false, PLIM_IO_AUTO);
    (void)snprintf(cache.scratch, sizeof cache.scratch, "/dev/shm");
    assert_not_packed(&cache, "/dev/shm");
    test_row_cache_end(&cache);
}

/* A write that fails (here at the largest size a file may have) costs the file only. */
static void no_room_on_the_disk(void **state)
{
    (void)state;
    test_row_cache_t cache;
    struct rlimit before, small;
    test_row_cache_make(&cache, 9000, 128, true, true, PLIM_IO_AUTO);
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = MIB;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    assert_false(test_row_cache_pack(&cache));
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(cache.log, "going on without packed rows"));
    plim__rows_t *source = test_row_cache_open(&cache);
    assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
    plim__rows_disk_destroy(source);
    assert_int_equal(entries(cache.scratch), 0);
    test_row_cache_end(&cache);
}

/* Rows are read from the dataset once the file fails. */
static void the_file_ends_meanwhile(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char packed[900];
    test_row_cache_make(&cache, 9000, 128, true, true, PLIM_IO_AUTO);
    set_path(&cache, packed);
    (void)test_row_cache_pack(&cache);
    plim__rows_t *source = test_row_cache_open(&cache);
    assert_int_equal(truncate(packed, 8192), 0);
    for (int64_t page = 0; page < 9; page += 4) {
        test_row_cache_drop(source, page, 1);
        assert_true(test_row_cache_gather(&cache, source) < cache.set.count); /* each counts once */
        test_row_cache_refresh(source);
        assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
    }
    assert_non_null(strstr(cache.log, "going on without packed rows"));
    plim__rows_disk_destroy(source);
    test_row_cache_end(&cache);
}

/* What indices.npy is to blame for does not make the packed lists unusable. */
static void other_lists_fail(void **state)
{
    (void)state;
    for (int shorter = 0; shorter < 2; shorter++) {
        test_row_cache_t cache;
        char path[700];
        test_row_cache_make(&cache, 9000, 8, true, true, engines[shorter]);
        (void)test_row_cache_pack(&cache);
        plim__topology_t *source = test_row_cache_open_lists(&cache, 0);
        (void)snprintf(path, sizeof path, "%s/indices.npy", cache.world.path);
        if (shorter)
            assert_int_equal(truncate(path, 8192), 0);
        else
            spoil(&cache, "indices.npy");
        enum { COUNT = 4000 };
        static int64_t nodes[COUNT], indptr[COUNT + 1], ids[COUNT * 3], positions[COUNT * 3];
        const plim__hop_t hop = {1, 0, 0, 3, false};
        plim__drawn_t drawn = {indptr, ids, COUNT * 3, 0, positions};
        for (int64_t i = 0; i < COUNT; i++)
            nodes[i] = 4000 + i;
        const plim__draws_t draws = {&hop, nodes, nodes, COUNT, NULL};
        assert_true(plim__topology_draw(source, 0, &draws, &drawn) != PLIM_OK);
        assert_non_null(strstr(plim_last_error(), "indices.npy"));
        plim__job_deliver(&cache.world.job);
        assert_string_equal(cache.log, "");
        assert_true(atomic_load(&cache.params.working_set->readable));
        plim__topology_disk_destroy(source);
        test_row_cache_end(&cache);
    }
}

/* Objects of a parent are not used in a child. */
static void open_in_child(test_row_cache_t *cache)
{
    cache->world.job = test_job_make(PLIM_LINE_NONE, 2, PLIM_IO_THREADS);
    cache->params.working_set = NULL;
    cache->offsets = NULL;
    assert_ok(plim_dataset_open(&cache->world.job, cache->world.path, &cache->world.dataset));
}

/* A process that is killed while it packs leaves nothing, or the complete file. */
static void killed_while_it_packs(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char packed[900];
    int complete = 0, absent = 0;
    test_row_cache_make(&cache, 60000, 128, true, true, PLIM_IO_THREADS);
    set_path(&cache, packed);
    for (int i = 0; i < 50; i += TEST_SANITIZED ? 7 : 1) {
        const pid_t child = fork();
        if (child == 0) {
            open_in_child(&cache);
            (void)test_row_cache_pack(&cache);
            (void)pause();
        }
        const struct timespec nap = {.tv_nsec = (long)i * (long)i * 40000};
        (void)nanosleep(&nap, NULL);
        for (int wait = 0; i >= 45 && wait < 60000 && access(packed, F_OK) != 0; wait++)
            (void)usleep(1000);
        assert_int_equal(kill(child, SIGKILL), 0);
        assert_int_equal(waitpid(child, NULL, 0), child);
        if (access(packed, F_OK) != 0) {
            absent++;
            continue;
        }
        complete++;
        cache.log[0] = '\0';
        assert_true(test_row_cache_pack(&cache));
        assert_string_equal(cache.log, "");
        plim__working_set_destroy(cache.params.working_set);
        cache.params.working_set = NULL;
        assert_int_equal(unlink(packed), 0);
    }
    print_message("killed: %d absent, %d complete\n", absent, complete);
    assert_true(absent > 0 && complete > 0);
    assert_false(test_row_cache_pack(&cache));
    assert_true(test_row_cache_pack(&cache));
    test_row_cache_end(&cache);
}

/* Of two processes one makes the file; a claim ends with its process. */
static void one_makes_it(void **state)
{
    (void)state;
    test_row_cache_t cache;
    int lock, other;
    test_row_cache_make(&cache, 1000, 16, true, false, PLIM_IO_AUTO);
    const plim_dataset_t *dataset = cache.world.dataset;
    assert_true(plim__working_set_claim(dataset, cache.scratch, 1, &lock));
    assert_false(plim__working_set_claim(dataset, cache.scratch, 1, &other));
    assert_true(plim__working_set_claim(dataset, cache.scratch, 2, &other));
    plim__working_set_release(dataset, cache.scratch, 2, other);
    plim__working_set_release(dataset, cache.scratch, 1, lock);
    assert_int_equal(entries(cache.scratch), 0);
    const pid_t child = fork();
    if (child == 0) {
        open_in_child(&cache);
        _exit(plim__working_set_claim(cache.world.dataset, cache.scratch, 1, &lock) ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(entries(cache.scratch), 1);
    assert_true(plim__working_set_claim(dataset, cache.scratch, 1, &lock));
    plim__working_set_release(dataset, cache.scratch, 1, lock);
    assert_int_equal(entries(cache.scratch), 0);
    test_row_cache_end(&cache);
}

/* Nobody else's lock keeps a user from making the file, or is removed. */
static void others_do_not_claim_it(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char path[920];
    int lock;
    if (geteuid() != 0) {
        print_message("SKIPPED: only root can give a file away\n");
        skip();
    }
    test_row_cache_make(&cache, 1000, 16, true, false, PLIM_IO_AUTO);
    set_path(&cache, path);
    (void)strcat(path, ".lock");
    const int foreign = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    assert_int_equal(fchown(foreign, 65534, 65534), 0);
    assert_int_equal(flock(foreign, LOCK_EX), 0);
    assert_true(
        plim__working_set_claim(cache.world.dataset, cache.scratch, TEST_ROW_CACHE_KEY, &lock));
    plim__working_set_release(cache.world.dataset, cache.scratch, TEST_ROW_CACHE_KEY, lock);
    assert_int_equal(entries(cache.scratch), 1);
    assert_int_equal(close(foreign), 0);
    test_row_cache_end(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rows_come_from_the_file), cmocka_unit_test(lists_come_from_the_file),
        cmocka_unit_test(few_large_reads),         cmocka_unit_test(damaged_lists),
        cmocka_unit_test(damaged_files),           cmocka_unit_test(flipped_bits),
        cmocka_unit_test(hostile_headers),         cmocka_unit_test(without_a_place_for_it),
        cmocka_unit_test(not_in_memory),           cmocka_unit_test(no_room_on_the_disk),
        cmocka_unit_test(the_file_ends_meanwhile), cmocka_unit_test(other_lists_fail),
        cmocka_unit_test(killed_while_it_packs),   cmocka_unit_test(one_makes_it),
        cmocka_unit_test(others_do_not_claim_it),  cmocka_unit_test(forged_needs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
