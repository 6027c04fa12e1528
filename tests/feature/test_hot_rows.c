/*
 * Hot rows: equal to the dataset's whatever the kernel takes back and whenever; brought back when
 * there is room; warm at the next start.
 */
#include "support/cgroup.h"
#include "support/features.h"

#include "base/fail.h"
#include "base/rng.h"
#include "base/threads.h"
#include "feature/hot_internal.h"

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

/* A world whose hot nodes are `two in three`, or all. */
typedef struct hot_world {
    test_features_t world;
    plim__node_set_t set;
    plim__rows_disk_params_t params;
    char scratch[600];
    char log[4096]; /* all warnings */
} hot_world_t;

static void keep_log(void *user, plim_log_level_t level, const char *message)
{
    hot_world_t *hot = user;
    size_t length = strlen(hot->log);
    if (level == PLIM_LOG_WARNING)
        (void)snprintf(hot->log + length, sizeof hot->log - length, "%s\n", message);
}

static void choose_nodes(hot_world_t *hot, bool all)
{
    int64_t n = hot->world.num_nodes;
    void *lines = aligned_alloc(64, plim__node_set_bytes(n));
    assert_non_null(lines);
    memset(lines, 0, plim__node_set_bytes(n));
    hot->set = plim__node_set_make(lines, n);
    for (int64_t node = 0; node < n; node++)
        if (all || plim__rng_u64(77, (uint64_t)node) % 3 != 0)
            (void)plim__node_set_add(&hot->set, node);
    plim__node_set_seal(&hot->set);
    hot->params = (plim__rows_disk_params_t){.workers = 4,
                                             .depth = 8,
                                             .gap = 4096,
                                             .hot = &hot->set,
                                             .hot_bytes = SIZE_MAX >> 8,
                                             .hot_key = 0xabcdef};
}

static void hot_make(hot_world_t *hot, int64_t num_nodes, int64_t num_features, bool half, bool all,
                     plim_io_engine_t engine)
{
    memset(hot, 0, sizeof *hot);
    test_features_make(&hot->world, num_nodes, num_features, half, engine);
    choose_nodes(hot, all);
    hot->world.job.log = keep_log;
    hot->world.job.user = hot;
    (void)snprintf(hot->scratch, sizeof hot->scratch, "%s/scratch", hot->world.directory);
    assert_int_equal(mkdir(hot->scratch, 0700), 0);
}

static void hot_end(hot_world_t *hot)
{
    free(hot->set.lines);
    test_features_end(&hot->world);
}

static plim__rows_t *open_source(hot_world_t *hot)
{
    plim__rows_t *source;
    assert_ok(plim__rows_disk_create(&hot->world.job, hot->world.dataset, &hot->params, &source));
    return source;
}

static void pages_of(plim__rows_t *source, char **pages_out, int64_t *num_pages_out)
{
    plim__hot_rows_pages(plim__rows_disk_hot(source), pages_out, num_pages_out);
}

static void drop(plim__rows_t *source, int64_t page)
{
    char *pages;
    int64_t num_pages;
    pages_of(source, &pages, &num_pages);
    assert_true(page < num_pages);
    assert_int_equal(madvise(pages + (size_t)page * PLIM__PAGE, PLIM__PAGE, MADV_DONTNEED), 0);
}

/* Gathers every node once, as it is stored; returns how many of them came from memory. */
static int64_t gather_all(hot_world_t *hot, plim__rows_t *source)
{
    enum { PIECE = 512 };
    const test_features_t *world = &hot->world;
    plim__rows_stats_t before, after;
    int64_t nodes[PIECE];
    char *rows = malloc(PIECE * (size_t)world->num_features * 4);
    assert_non_null(rows);
    plim__rows_stats(source, &before);
    for (int64_t first = 0; first < world->num_nodes; first += PIECE) {
        int64_t left = world->num_nodes - first, count = left < PIECE ? left : PIECE;
        for (int64_t i = 0; i < count; i++)
            nodes[i] = first + i;
        assert_ok(plim__rows_gather(source, 0, nodes, count, world->type, rows));
        test_features_compare(world, nodes, count, world->type, rows);
    }
    plim__rows_stats(source, &after);
    free(rows);
    assert_int_equal(after.rows - before.rows, world->num_nodes);
    return after.rows_hot - before.rows_hot;
}

static int64_t held(hot_world_t *hot, plim__rows_t *source)
{
    int64_t count = 0;
    for (int64_t node = 0; node < hot->world.num_nodes; node++)
        count += plim__rows_disk_holds(source, node);
    return count;
}

static void equal_the_dataset(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 3, 4, 128, 129, 5000};
    for (int s = 0; s < 6; s++) {
        for (int i = 0; i < 4; i++) {
            hot_world_t hot;
            hot_make(&hot, sizes[s] > 1000 ? 60 : 700, sizes[s], i % 2 == 0, i / 2 == 0,
                     engines[i / 2]);
            size_t row = (size_t)sizes[s] * (i % 2 == 0 ? 2 : 4);
            if (s % 2 == 0) /* the first ones only */
                hot.params.hot_bytes = 20 * ((row + 7) / 8 * 8) + 7;
            int64_t before = plim_ledger_reserved(hot.world.job.ledger);
            plim__rows_t *source = open_source(&hot);
            assert_true(
                plim_ledger_peak(hot.world.job.ledger) - before <=
                (int64_t)plim__rows_disk_estimate(&hot.world.job, hot.world.dataset, &hot.params));
            int64_t expected = s % 2 == 0 ? 20 : hot.set.count;
            test_features_check(&hot.world, source);
            assert_int_equal(held(&hot, source), expected);
            assert_int_equal(gather_all(&hot, source), expected);
            assert_ok(plim__rows_disk_refresh(source));
            assert_int_equal(held(&hot, source), expected);
            plim__rows_destroy(source);
            assert_int_equal(plim_ledger_reserved(hot.world.job.ledger), before);
            assert_string_equal(hot.log, "");
            hot_end(&hot);
        }
    }
}

static void dropped_pages_are_read_and_come_back(void **state)
{
    (void)state;
    static const int64_t sizes[] = {1, 100, 128, 3000};
    for (int s = 0; s < 4; s++) {
        for (int packed = 0; packed < 2; packed++) {
            hot_world_t hot;
            plim__rows_stats_t stats;
            char *pages;
            int64_t num_pages;
            hot_make(&hot, sizes[s] > 1000 ? 100 : 6000, sizes[s], true, false, engines[packed]);
            hot.params.scratch = packed == 1 ? hot.scratch : NULL;
            plim__rows_t *source = open_source(&hot);
            pages_of(source, &pages, &num_pages);
            drop(source, 0);
            drop(source, num_pages / 2);
            drop(source, num_pages - 1);
            assert_int_equal(held(&hot, source), hot.set.count);
            int64_t from_memory = gather_all(&hot, source);
            assert_true(from_memory < hot.set.count);
            plim__rows_stats(source, &stats);
            assert_true(stats.rows_lost >= (hot.set.count - from_memory));
            assert_ok(plim__rows_disk_refresh(source));
            assert_int_equal(held(&hot, source), hot.set.count);
            assert_int_equal(gather_all(&hot, source), hot.set.count);
            /* Found although nobody has read them since they went. */
            for (int64_t page = 0; page < num_pages; page++)
                drop(source, page);
            assert_ok(plim__rows_disk_refresh(source));
            assert_int_equal(gather_all(&hot, source), hot.set.count);
            /* Refilled pages may be dropped again: the kernel itself is asked to. */
            (void)madvise(pages, (size_t)num_pages * PLIM__PAGE, MADV_PAGEOUT);
            from_memory = gather_all(&hot, source);
            print_message("%lld of %lld rows survived MADV_PAGEOUT\n", (long long)from_memory,
                          (long long)hot.set.count);
            plim__rows_destroy(source);
            hot_end(&hot);
        }
    }
}

static void overwrite(const hot_world_t *hot, const char *path, int64_t offset, const void *bytes,
                      size_t size)
{
    (void)hot;
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    assert_int_equal(pwrite(fd, bytes, size, offset), (ssize_t)size);
    assert_int_equal(close(fd), 0);
}

static void features_path(const hot_world_t *hot, char path_out[700])
{
    (void)snprintf(path_out, 700, "%s/features.npy", hot->world.path);
}

/* Such rows cannot be told from dropped ones: never from memory, always right. */
static void rows_that_look_dropped(void **state)
{
    (void)state;
    static const int64_t nodes[] = {0, 5, 16, 31}; /* rows of 256 bytes: two begin a page */
    hot_world_t hot;
    char path[700];
    uint64_t key = PLIM__HOT_KEY;
    hot_make(&hot, 500, 128, true, true, PLIM_IO_AUTO);
    features_path(&hot, path);
    for (int i = 0; i < 4; i++) {
        overwrite(&hot, path, 4096 + nodes[i] * 256, &key, sizeof key);
        memcpy(hot.world.features + nodes[i] * 256, &key, sizeof key);
    }
    plim__rows_t *source = open_source(&hot);
    for (int round = 0; round < 3; round++) {
        assert_int_equal(gather_all(&hot, source), hot.set.count - 4);
        assert_ok(plim__rows_disk_refresh(source));
        assert_int_equal(held(&hot, source), hot.set.count);
    }
    plim__rows_destroy(source);
    hot_end(&hot);
}

/* Gatherers, while one thread drops pages and brings them back. */
typedef struct crowd {
    hot_world_t *hot;
    plim__rows_t *source;
    atomic_int next;
    atomic_int gathering;
} crowd_t;

static plim_status_t disturb(crowd_t *crowd)
{
    uint64_t draw = 0;
    char *pages;
    int64_t num_pages;
    pages_of(crowd->source, &pages, &num_pages);
    while (atomic_load(&crowd->gathering) > 0) {
        for (int i = 0; i < 20; i++)
            drop(crowd->source, (int64_t)plim__rng_below(6, &draw, (uint64_t)num_pages));
        PLIM_TRY(plim__rows_disk_refresh(crowd->source));
    }
    return PLIM_OK;
}

static plim_status_t crowd_member(void *context, int worker)
{
    crowd_t *crowd = context;
    const test_features_t *world = &crowd->hot->world;
    (void)worker;
    int number = atomic_fetch_add(&crowd->next, 1);
    int64_t nodes[100];
    uint64_t draw = 0;
    if (number == 3)
        return disturb(crowd);
    char *rows = malloc(100 * (size_t)world->num_features * 4);
    plim_status_t status = PLIM_OK;
    for (int round = 0; round < 300 && status == PLIM_OK; round++) {
        for (int i = 0; i < 100; i++)
            nodes[i] =
                (int64_t)plim__rng_below((uint64_t)number + 9, &draw, (uint64_t)world->num_nodes);
        status = plim__rows_gather(crowd->source, number, nodes, 100, PLIM_F32, rows);
        if (status == PLIM_OK)
            test_features_compare(world, nodes, 100, PLIM_F32, rows);
    }
    free(rows);
    atomic_fetch_sub(&crowd->gathering, 1);
    return status;
}

static void dropped_and_refilled_while_others_gather(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        hot_world_t hot;
        hot_make(&hot, 3000, packed == 1 ? 64 : 90, true, true, PLIM_IO_AUTO);
        hot.params.scratch = packed == 1 ? hot.scratch : NULL;
        plim__rows_t *source = open_source(&hot);
        crowd_t crowd = {.hot = &hot, .source = source, .gathering = 3};
        assert_ok(plim__parallel(4, crowd_member, &crowd));
        assert_int_equal(crowd.next, 4);
        plim__rows_destroy(source);
        hot_end(&hot);
    }
}

static void packed_path(const hot_world_t *hot, char path_out[900])
{
    (void)snprintf(path_out, 900, "%s/hot-rows-%s-%016llx.plim", hot->scratch,
                   plim_dataset_info(hot->world.dataset)->fingerprint,
                   (unsigned long long)hot->params.hot_key);
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
        hot_world_t hot;
        char features[700], packed[900], spoilt[4096];
        hot_make(&hot, sizes[s] == 1 ? 100000 : 4000, sizes[s], true, true, engines[s % 2]);
        hot.params.scratch = hot.scratch;
        features_path(&hot, features);
        packed_path(&hot, packed);
        plim__rows_t *source = open_source(&hot);
        plim__rows_destroy(source);
        assert_int_equal(entries(hot.scratch), 1);
        assert_true(file_size(packed) > hot.set.count * (int64_t)sizes[s] * 2);
        memset(spoilt, 0x77, sizeof spoilt);
        for (int64_t at = 4096; at + 4096 <= file_size(features); at += 4096)
            overwrite(&hot, features, at, spoilt, sizeof spoilt);
        source = open_source(&hot);
        assert_int_equal(held(&hot, source), hot.set.count);
        assert_int_equal(gather_all(&hot, source), hot.set.count);
        drop(source, 0);
        drop(source, 1);
        assert_ok(plim__rows_disk_refresh(source));
        assert_int_equal(gather_all(&hot, source), hot.set.count);
        plim__rows_destroy(source);
        assert_string_equal(hot.log, "");
        hot_end(&hot);
    }
}

/* Opens with what lies at the packed file's place: it must be made again, and be right. */
static void assert_made_again(hot_world_t *hot, const char *said)
{
    char packed[900];
    packed_path(hot, packed);
    hot->log[0] = '\0';
    plim__rows_t *source = open_source(hot);
    assert_non_null(strstr(hot->log, said));
    assert_int_equal(gather_all(hot, source), hot->set.count);
    plim__rows_destroy(source);
    hot->log[0] = '\0';
    source = open_source(hot);
    assert_string_equal(hot->log, "");
    assert_int_equal(gather_all(hot, source), hot->set.count);
    plim__rows_destroy(source);
    assert_int_equal(entries(hot->scratch), 1);
}

static void bad_packed_files(void **state)
{
    (void)state;
    hot_world_t hot, other;
    char packed[900], foreign[900];
    hot_make(&hot, 20000, 100, true, false, PLIM_IO_AUTO);
    hot.params.scratch = hot.scratch;
    packed_path(&hot, packed);
    plim__rows_destroy(open_source(&hot));
    int64_t size = file_size(packed);
    overwrite(&hot, packed, 4096 + 1500000, "x", 1);
    assert_made_again(&hot, "damaged between 4096 and 2101248");
    overwrite(&hot, packed, 60, "x", 1);
    assert_made_again(&hot, "damaged at its start");
    overwrite(&hot, packed, size - 4096, "x", 1);
    assert_made_again(&hot, "damaged at its end");
    assert_int_equal(truncate(packed, size - 4096), 0);
    assert_made_again(&hot, "not of the size");
    assert_int_equal(truncate(packed, 0), 0);
    assert_made_again(&hot, "not of the size");
    assert_int_equal(chmod(packed, 0666), 0);
    assert_made_again(&hot, "written by others");

    /* Another choice of nodes under the same key, as many of them. */
    int64_t first = plim__node_set_next(&hot.set, 0), free_node = 0;
    while (plim__node_set_has(&hot.set, free_node))
        free_node++;
    hot.set.lines[first / 448].bits[first % 448 / 64] &= ~((uint64_t)1 << first % 448 % 64);
    (void)plim__node_set_add(&hot.set, free_node);
    plim__node_set_seal(&hot.set);
    assert_made_again(&hot, "holds other rows");

    /* Another dataset's, of the same shape. */
    hot_make(&other, 20000, 100, true, false, PLIM_IO_AUTO);
    other.params.scratch = other.scratch;
    char path[700];
    features_path(&other, path);
    plim__rows_destroy(open_source(&other));
    packed_path(&other, foreign);
    int fd = open(foreign, O_WRONLY | O_CLOEXEC);
    assert_int_equal(pwrite(fd, "0123456789abcdef", 16, 8), 16);
    assert_int_equal(close(fd), 0);
    assert_made_again(&other, "damaged at its start");
    hot_end(&other);
    hot_end(&hot);
}

static void without_a_place_to_keep_them(void **state)
{
    (void)state;
    hot_world_t hot;
    char missing[700];
    hot_make(&hot, 1000, 16, true, false, PLIM_IO_AUTO);
    (void)snprintf(missing, sizeof missing, "%s/nowhere", hot.scratch);
    hot.params.scratch = missing;
    plim__rows_t *source = open_source(&hot);
    assert_non_null(strstr(hot.log, "nowhere"));
    assert_int_equal(gather_all(&hot, source), hot.set.count);
    plim__rows_destroy(source);
    hot_end(&hot);
}

/* tmpfs is memory: what is kept there would count against the line. */
static void not_in_memory(void **state)
{
    (void)state;
    hot_world_t hot;
    plim__file_system_t system;
    if (plim__file_system("/dev/shm", &system) != PLIM_OK || !system.memory ||
        access("/dev/shm", W_OK) != 0) {
        print_message("SKIPPED: /dev/shm is no tmpfs that can be written\n");
        skip();
    }
    hot_make(&hot, 1000, 16, true, false, PLIM_IO_AUTO);
    hot.params.scratch = "/dev/shm";
    plim__rows_t *source = open_source(&hot);
    assert_non_null(strstr(hot.log, "/dev/shm lies in memory"));
    assert_int_equal(gather_all(&hot, source), hot.set.count);
    plim__rows_destroy(source);
    hot_end(&hot);
}

/* A write that fails (here at the largest size a file may have) costs the packed file only. */
static void no_room_on_the_disk(void **state)
{
    (void)state;
    hot_world_t hot;
    struct rlimit before, small;
    hot_make(&hot, 9000, 128, true, true, PLIM_IO_AUTO);
    hot.params.scratch = hot.scratch;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &before), 0);
    small = before;
    small.rlim_cur = MIB;
    (void)signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    plim__rows_t *source = open_source(&hot);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &before), 0);
    assert_non_null(strstr(hot.log, "going on without packed rows"));
    assert_int_equal(gather_all(&hot, source), hot.set.count);
    drop(source, 0);
    assert_ok(plim__rows_disk_refresh(source));
    assert_int_equal(gather_all(&hot, source), hot.set.count);
    plim__rows_destroy(source);
    assert_int_equal(entries(hot.scratch), 0);
    hot_end(&hot);
}

/* Lost rows are read from the dataset once the packed file fails. */
static void packed_file_ends_meanwhile(void **state)
{
    (void)state;
    hot_world_t hot;
    char packed[900];
    hot_make(&hot, 9000, 128, true, true, PLIM_IO_AUTO);
    hot.params.scratch = hot.scratch;
    packed_path(&hot, packed);
    plim__rows_t *source = open_source(&hot);
    assert_int_equal(truncate(packed, 8192), 0);
    for (int64_t page = 0; page < 9; page += 4) {
        drop(source, page);
        assert_ok(plim__rows_disk_refresh(source));
        assert_int_equal(gather_all(&hot, source), hot.set.count);
    }
    assert_non_null(strstr(hot.log, "truncated"));
    assert_non_null(strstr(hot.log, "going on without packed rows"));
    plim__rows_destroy(source);
    hot_end(&hot);
}

static plim_status_t make_source(plim_job_t *job, void *context)
{
    hot_world_t *hot = context;
    plim__rows_t *source;
    PLIM_TRY(plim__rows_disk_create(job, hot->world.dataset, &hot->params, &source));
    plim__rows_destroy(source);
    return PLIM_OK;
}

static void no_memory(void **state)
{
    (void)state;
    for (int packed = 0; packed < 2; packed++) {
        hot_world_t hot;
        hot_make(&hot, 9000, 128, true, true, engines[packed]);
        hot.params.scratch = packed == 1 ? hot.scratch : NULL;
        test_fail_each_arena(&hot.world.job, make_source, &hot);
        hot_end(&hot);
    }
}

/* A neighbour in the same group: takes memory, says so, and keeps it until it is told to end. */
static pid_t neighbour(size_t bytes)
{
    int said[2];
    char byte;
    assert_int_equal(pipe(said), 0);
    pid_t child = fork();
    if (child == 0) {
        char *piece = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (piece == MAP_FAILED)
            _exit(1);
        memset(piece, 1, bytes);
        (void)!write(said[1], "x", 1);
        for (;;)
            pause();
    }
    (void)close(said[1]);
    bool taken = read(said[0], &byte, 1) == 1;
    (void)close(said[0]);
    if (!taken) {
        (void)waitpid(child, NULL, 0);
        return -1;
    }
    return child;
}

/* In the group: 0, or the number of what went wrong. */
static int under_pressure(hot_world_t *hot, const test_cgroup_t *group, size_t take)
{
    plim__rows_t *source;
    if (!test_cgroup_enter(group))
        return 10;
    if (plim__rows_disk_create(&hot->world.job, hot->world.dataset, &hot->params, &source) !=
        PLIM_OK)
        return 11;
    if (gather_all(hot, source) != hot->set.count)
        return 12;
    for (int round = 0; round < 2; round++) {
        pid_t child = neighbour(take);
        if (child < 0)
            return 13;
        int64_t during = gather_all(hot, source);
        if (plim__rows_disk_refresh(source) != PLIM_OK)
            return 14;
        int64_t kept = held(hot, source);
        if (gather_all(hot, source) > kept)
            return 15;
        (void)kill(child, SIGKILL);
        (void)waitpid(child, NULL, 0);
        for (int i = 0; i < 20 && held(hot, source) < hot->set.count; i++)
            if (plim__rows_disk_refresh(source) != PLIM_OK)
                return 16;
        int64_t after = gather_all(hot, source);
        (void)fprintf(stderr, "rows from memory: all %lld; neighbour there %lld; gone again %lld\n",
                      (long long)hot->set.count, (long long)during, (long long)after);
        if (during >= hot->set.count || after != hot->set.count)
            return 17;
    }
    plim__rows_destroy(source);
    return 0;
}

static void a_neighbour_takes_half(void **state)
{
    (void)state;
    hot_world_t hot;
    test_cgroup_t group;
    int status;
    if (TEST_SANITIZED) {
        print_message("SKIPPED: a sanitizer adds memory of its own to the group\n");
        skip();
    }
    if (!test_cgroup_make((int64_t)(192 * MIB), &group))
        skip();
    hot_make(&hot, (int64_t)(120 * MIB / 4096), 2048, true, true, PLIM_IO_AUTO);
    hot.params.scratch = hot.scratch;
    pid_t child = fork();
    if (child == 0)
        _exit(under_pressure(&hot, &group, 96 * MIB));
    assert_int_equal(waitpid(child, &status, 0), child);
    int64_t kills = test_cgroup_kills(&group);
    test_cgroup_remove(&group);
    hot_end(&hot);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 0);
    assert_true(kills <= 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_the_dataset),
        cmocka_unit_test(dropped_pages_are_read_and_come_back),
        cmocka_unit_test(rows_that_look_dropped),
        cmocka_unit_test(dropped_and_refilled_while_others_gather),
        cmocka_unit_test(warm_start),
        cmocka_unit_test(bad_packed_files),
        cmocka_unit_test(without_a_place_to_keep_them),
        cmocka_unit_test(not_in_memory),
        cmocka_unit_test(no_room_on_the_disk),
        cmocka_unit_test(packed_file_ends_meanwhile),
        cmocka_unit_test(no_memory),
        cmocka_unit_test(a_neighbour_takes_half),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
