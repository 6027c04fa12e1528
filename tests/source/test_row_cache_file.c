/* The packed file of the row cache: a warm start from it, and never a wrong row because of it. */
/* labels: asan tsan unprivileged */
#include "support/row_cache.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

static void packed_path(const test_row_cache_t *cache, char path_out[900])
{
    (void)snprintf(path_out, 900, "%s/row-cache-%s-%016llx-%ld.plim", cache->scratch,
                   plim_dataset_info(cache->world.dataset)->fingerprint,
                   (unsigned long long)cache->params.cache_key, (long)geteuid());
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

/* The next start takes its rows from the packed file and not from features.npy, which is spoilt
 * meanwhile; so do refills. */
static void warm_start(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 128, 1001};
    for (int s = 0; s < 3; s++) {
        test_row_cache_t cache;
        char features[700], packed[900], spoilt[4096];
        test_row_cache_make(&cache, sizes[s] == 1 ? 100000 : 4000, sizes[s], true, true,
                            engines[s % 2]);
        cache.params.scratch = cache.scratch;
        test_row_cache_features_path(&cache, features);
        packed_path(&cache, packed);
        plim__rows_t *source = test_row_cache_open(&cache);
        plim__rows_disk_destroy(source);
        assert_int_equal(entries(cache.scratch), 1);
        assert_true(file_size(packed) > cache.set.count * (int64_t)sizes[s] * 2);
        memset(spoilt, 0x77, sizeof spoilt);
        for (int64_t at = 4096; at + 4096 <= file_size(features); at += 4096)
            test_row_cache_overwrite(features, at, spoilt, sizeof spoilt);
        source = test_row_cache_open(&cache);
        assert_int_equal(test_row_cache_held(&cache, source), cache.set.count);
        assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
        test_row_cache_drop(source, 0, 1);
        test_row_cache_drop(source, 1, 1);
        test_row_cache_refresh(source);
        assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
        plim__rows_disk_destroy(source);
        assert_string_equal(cache.log, "");
        test_row_cache_end(&cache);
    }
}

/* Opens with what lies at the packed file's place: it must be made again, and be right. */
static void assert_made_again(test_row_cache_t *cache, const char *message)
{
    char packed[900];
    packed_path(cache, packed);
    cache->log[0] = '\0';
    plim__rows_t *source = test_row_cache_open(cache);
    assert_non_null(strstr(cache->log, message));
    assert_int_equal(test_row_cache_gather(cache, source), cache->set.count);
    plim__rows_disk_destroy(source);
    cache->log[0] = '\0';
    source = test_row_cache_open(cache);
    assert_string_equal(cache->log, "");
    assert_int_equal(test_row_cache_gather(cache, source), cache->set.count);
    plim__rows_disk_destroy(source);
    assert_int_equal(entries(cache->scratch), 1);
}

static void bad_packed_files(void **state)
{
    (void)state;
    test_row_cache_t cache, other;
    char packed[900], foreign[900];
    test_row_cache_make(&cache, 20000, 100, true, false, PLIM_IO_AUTO);
    cache.params.scratch = cache.scratch;
    packed_path(&cache, packed);
    plim__rows_disk_destroy(test_row_cache_open(&cache));
    int64_t size = file_size(packed);
    test_row_cache_overwrite(packed, 4096 + 1500000, "x", 1);
    assert_made_again(&cache, "damaged between 4096 and 2101248");
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

    /* Another choice of nodes under the same key, as many of them. */
    int64_t first = plim__node_set_next(&cache.set, 0), free_node = 0;
    while (plim__node_set_has(&cache.set, free_node))
        free_node++;
    cache.set.lines[first / 448].bits[first % 448 / 64] &= ~((uint64_t)1 << first % 448 % 64);
    (void)plim__node_set_add(&cache.set, free_node);
    plim__node_set_seal(&cache.set);
    assert_made_again(&cache, "holds other rows");

    /* Another dataset's, of the same shape. */
    test_row_cache_make(&other, 20000, 100, true, false, PLIM_IO_AUTO);
    other.params.scratch = other.scratch;
    char path[700];
    test_row_cache_features_path(&other, path);
    plim__rows_disk_destroy(test_row_cache_open(&other));
    packed_path(&other, foreign);
    int fd = open(foreign, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "0123456789abcdef", 16, 8), 16);
    assert_int_equal(close(fd), 0);
    assert_made_again(&other, "damaged at its start");
    test_row_cache_end(&other);
    test_row_cache_end(&cache);
}

static void without_a_place_to_keep_them(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char missing[700];
    test_row_cache_make(&cache, 1000, 16, true, false, PLIM_IO_AUTO);
    (void)snprintf(missing, sizeof missing, "%s/nowhere", cache.scratch);
    cache.params.scratch = missing;
    plim__rows_t *source = test_row_cache_open(&cache);
    assert_non_null(strstr(cache.log, "nowhere"));
    assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
    plim__rows_disk_destroy(source);
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
    cache.params.scratch = "/dev/shm";
    plim__rows_t *source = test_row_cache_open(&cache);
    assert_non_null(strstr(cache.log, "/dev/shm"));
    assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
    plim__rows_disk_destroy(source);
    test_row_cache_end(&cache);
}

/* A write that fails (here at the largest size a file may have) costs the packed file only. */
static void no_room_on_the_disk(void **state)
{
    (void)state;
    test_row_cache_t cache;
    struct rlimit before, small;
    test_row_cache_make(&cache, 9000, 128, true, true, PLIM_IO_AUTO);
    cache.params.scratch = cache.scratch;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = MIB;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    plim__rows_t *source = test_row_cache_open(&cache);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(cache.log, "going on without packed rows"));
    assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
    test_row_cache_drop(source, 0, 1);
    test_row_cache_refresh(source);
    assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
    plim__rows_disk_destroy(source);
    assert_int_equal(entries(cache.scratch), 0);
    test_row_cache_end(&cache);
}

/* Lost rows are read from the dataset once the packed file fails. */
static void packed_file_ends_meanwhile(void **state)
{
    (void)state;
    test_row_cache_t cache;
    char packed[900];
    test_row_cache_make(&cache, 9000, 128, true, true, PLIM_IO_AUTO);
    cache.params.scratch = cache.scratch;
    packed_path(&cache, packed);
    plim__rows_t *source = test_row_cache_open(&cache);
    assert_int_equal(truncate(packed, 8192), 0);
    for (int64_t page = 0; page < 9; page += 4) {
        test_row_cache_drop(source, page, 1);
        (void)test_row_cache_gather(&cache, source);
        test_row_cache_refresh(source);
        assert_int_equal(test_row_cache_gather(&cache, source), cache.set.count);
    }
    assert_non_null(strstr(cache.log, "truncated"));
    assert_non_null(strstr(cache.log, "going on without packed rows"));
    plim__rows_disk_destroy(source);
    test_row_cache_end(&cache);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(warm_start),
        cmocka_unit_test(bad_packed_files),
        cmocka_unit_test(without_a_place_to_keep_them),
        cmocka_unit_test(not_in_memory),
        cmocka_unit_test(no_room_on_the_disk),
        cmocka_unit_test(packed_file_ends_meanwhile),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
