/* Random batches through either engine equal pread of the same ranges, and fail as it does. */
/* labels: asan tsan unprivileged */
#include "support/harness.h"

#include "base/rng.h"
#include "io/range_reader.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};

#define FILE_BYTES 1000003 /* ends inside a sector */
#define READS 500

typedef struct world {
    char directory[512];
    char path[600];
    char *bytes;
} world_t;

static void world_make(world_t *world)
{
    test_directory_make(world->directory);
    (void)snprintf(world->path, sizeof world->path, "%s/file", world->directory);
    world->bytes = malloc(FILE_BYTES + 8);
    assert_non_null(world->bytes);
    for (size_t i = 0; i < FILE_BYTES; i += 8) {
        uint64_t word = plim__rng_u64(1, i);
        memcpy(world->bytes + i, &word, 8);
    }
    int fd = open(world->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(write(fd, world->bytes, FILE_BYTES), FILE_BYTES);
    assert_int_equal(close(fd), 0);
}

static void world_end(world_t *world)
{
    free(world->bytes);
    test_directory_remove(world->directory);
}

static int by_offset(const void *a, const void *b)
{
    int64_t x = ((const plim__read_t *)a)->offset, y = ((const plim__read_t *)b)->offset;
    return (x > y) - (x < y);
}

/* A batch of one kind: `unit` aligns offsets, sizes and (then) destinations. */
static void read_batch(plim__range_reader_t *reader, const plim__file_t *file, const world_t *world,
                       uint64_t key, size_t max_read, size_t unit, bool sorted)
{
    static plim__read_t reads[READS];
    size_t stride = (max_read + 64 + 4095) / 4096 * 4096;
    char *to = aligned_alloc(4096, READS * stride);
    uint64_t draw = 0;
    assert_non_null(to);
    for (int i = 0; i < READS; i++) {
        size_t size = (size_t)plim__rng_below(key, &draw, max_read + 1) / unit * unit;
        int64_t last = FILE_BYTES - (int64_t)size;
        int64_t offset = i % 50 == 0 && unit == 1
                             ? last /* the tail */
                             : (int64_t)plim__rng_below(key, &draw, (uint64_t)last + 1);
        size_t skew = unit == 1 ? (size_t)plim__rng_below(key, &draw, 64) : 0;
        reads[i].offset = offset / (int64_t)unit * (int64_t)unit;
        reads[i].size = size;
        reads[i].to = to + (size_t)i * stride + skew;
    }
    if (sorted)
        qsort(reads, READS, sizeof reads[0], by_offset);
    memset(to, 0x5a, READS * stride);
    assert_ok(plim__range_reader_read(reader, file, reads, READS));
    for (int i = 0; i < READS; i++)
        assert_memory_equal(reads[i].to, world->bytes + reads[i].offset, reads[i].size);
    free(to);
}

static void equals_pread(void **state)
{
    (void)state;
    world_t world;
    world_make(&world);
    static const plim__range_reader_params_t params[] = {
        {1, 1, 0},        {3, 100, 0},    {64, 600, 512},
        {32, 5000, 4096}, {8, 100000, 0}, {200, 4096, 65536},
    };
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e]);
        int64_t before = plim__ledger_reserved(job.ledger);
        for (size_t p = 0; p < 2 * sizeof params / sizeof params[0]; p++) {
            plim__file_t file;
            plim__range_reader_t *reader;
            const plim__range_reader_params_t *param = &params[p / 2];
            assert_ok(plim__file_open(world.path, PLIM__FILE_READ, p % 2 == 0, &file));
            assert_ok(plim__range_reader_create(&job, param, &reader));
            assert_true(plim__ledger_reserved(job.ledger) - before <=
                        (int64_t)plim__range_reader_estimate(engines[e], param));
            read_batch(reader, &file, &world, 2 * p, param->max_read, 1, true);
            read_batch(reader, &file, &world, 2 * p + 1, param->max_read, 1, false);
            if (param->max_read >= 4096)
                read_batch(reader, &file, &world, 99, param->max_read, 4096, true);
            assert_ok(plim__range_reader_read(reader, &file, NULL, 0));
            plim__range_reader_destroy(reader);
            plim__file_close(&file);
        }
        assert_int_equal(plim__ledger_reserved(job.ledger), before);
        test_job_end(&job);
    }
    world_end(&world);
}

static void joins_neighbours(void **state)
{
    (void)state;
    world_t world;
    world_make(&world);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim__range_reader_params_t params = {4, 256, 4096};
    plim__range_reader_t *reader;
    plim__file_t file;
    plim__read_t reads[64];
    char to[64][256];
    int64_t transfers, bytes;
    assert_ok(plim__file_open(world.path, PLIM__FILE_READ, true, &file));
    assert_ok(plim__range_reader_create(&job, &params, &reader));
    for (int i = 0; i < 64; i++) /* 64 rows, each 1,000 bytes behind the last: one transfer */
        reads[i] = (plim__read_t){8192 + 1000 * i, 256, to[i]};
    assert_ok(plim__range_reader_read(reader, &file, reads, 64));
    plim__range_reader_totals(reader, &transfers, &bytes);
    assert_int_equal(transfers, 1);
    assert_true(bytes <= 65536);
    for (int i = 0; i < 64; i++)
        assert_memory_equal(to[i], world.bytes + reads[i].offset, 256);
    for (int i = 0; i < 64; i++) /* further apart than the merge distance: none is joined */
        reads[i].offset = 12000 * i;
    assert_ok(plim__range_reader_read(reader, &file, reads, 64));
    plim__range_reader_totals(reader, &transfers, &bytes);
    assert_int_equal(transfers, 65);
    plim__range_reader_destroy(reader);
    plim__file_close(&file);
    test_job_end(&job);
    world_end(&world);
}

static void reports_what_cannot_be_read(void **state)
{
    (void)state;
    world_t world;
    world_make(&world);
    plim__range_reader_params_t params = {16, 1000, 0};
    for (size_t e = 0; e < 2 * sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e / 2]);
        plim__range_reader_t *reader;
        plim__file_t file;
        plim__read_t reads[3];
        char to[3][1000];
        assert_ok(plim__file_open(world.path, PLIM__FILE_READ, e % 2 == 0, &file));
        assert_ok(plim__range_reader_create(&job, &params, &reader));
        /* One byte past the end, inside the last sector; and far past it. */
        int64_t beyond[] = {FILE_BYTES - 999, FILE_BYTES, FILE_BYTES + 50000, INT64_MAX / 2};
        for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
            reads[0] = (plim__read_t){0, 1000, to[0]};
            reads[1] = (plim__read_t){beyond[i], 1000, to[1]};
            reads[2] = (plim__read_t){50000, 1000, to[2]};
            assert_int_equal(plim__range_reader_read(reader, &file, reads, 3), PLIM_ERR_DATA);
            assert_non_null(strstr(plim_last_error(), world.path));
            assert_non_null(strstr(plim_last_error(), "truncated"));
        }
        reads[1] = (plim__read_t){0, 1001, to[1]};
        assert_int_equal(plim__range_reader_read(reader, &file, reads, 3), PLIM_ERR_USAGE);
        reads[1] = (plim__read_t){-1, 10, to[1]};
        assert_int_equal(plim__range_reader_read(reader, &file, reads, 3), PLIM_ERR_USAGE);
        reads[1] = (plim__read_t){INT64_MAX, 10, to[1]};
        assert_int_equal(plim__range_reader_read(reader, &file, reads, 3), PLIM_ERR_USAGE);
        /* It is as good as new afterwards. */
        reads[1] = (plim__read_t){FILE_BYTES - 1000, 1000, to[1]};
        assert_ok(plim__range_reader_read(reader, &file, reads, 3));
        assert_memory_equal(to[1], world.bytes + FILE_BYTES - 1000, 1000);
        plim__range_reader_destroy(reader);
        plim__file_close(&file);
        test_job_end(&job);
    }
    world_end(&world);
}

/* A batch may take long on a slow disk, so it ends early when the job is told to stop. */
static void stops_within_a_batch(void **state)
{
    static char to[READS][100];
    static plim__read_t reads[READS];
    (void)state;
    world_t world;
    world_make(&world);
    for (int i = 0; i < READS; i++)
        reads[i] = (plim__read_t){(int64_t)i * 2000, 100, to[i]};
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        int stop = 0;
        int64_t transfers, bytes;
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e]);
        plim__range_reader_params_t params = {8, 100, 0};
        plim__range_reader_t *reader;
        plim__file_t file;
        job.stop = &stop;
        assert_ok(plim__file_open(world.path, PLIM__FILE_READ, true, &file));
        assert_ok(plim__range_reader_create(&job, &params, &reader));
        stop = 1;
        assert_int_equal(plim__range_reader_read(reader, &file, reads, READS), PLIM_ERR_STOPPED);
        plim__range_reader_totals(reader, &transfers, &bytes);
        assert_int_equal(transfers, 0);
        stop = 0;
        assert_ok(plim__range_reader_read(reader, &file, reads, READS));
        for (int i = 0; i < READS; i++)
            assert_memory_equal(to[i], world.bytes + (size_t)i * 2000, 100);
        plim__range_reader_destroy(reader);
        plim__file_close(&file);
        test_job_end(&job);
    }
    world_end(&world);
}

static void count_line(void *user, plim_log_level_t level, const char *message)
{
    (void)level;
    (void)message;
    ++*(int *)user;
}

/* A cache reads while it holds its lock, so a read calls no callback. */
static void delivers_no_messages(void **state)
{
    (void)state;
    world_t world;
    char to[100];
    int lines = 0;
    const plim__range_reader_params_t params = {8, 100, 0};
    const plim__read_t read = {0, sizeof to, to};
    plim__range_reader_t *reader;
    plim__file_t file;
    world_make(&world);
    plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    job.log = count_line;
    job.user = &lines;
    assert_ok(plim__file_open(world.path, PLIM__FILE_READ, true, &file));
    assert_ok(plim__range_reader_create(&job, &params, &reader));
    plim__log(&job, PLIM_LOG_INFO, "queued");
    lines = 0;
    assert_ok(plim__range_reader_read(reader, &file, &read, 1));
    assert_int_equal(lines, 0);
    assert_ok(plim__job_check(&job));
    assert_true(lines > 0);
    plim__range_reader_destroy(reader);
    plim__file_close(&file);
    test_job_end(&job);
    world_end(&world);
}

static plim_status_t make_one(plim_job_t *job, void *context)
{
    plim__range_reader_t *reader;
    plim__range_reader_params_t params = {16, 1000, 0};
    (void)context;
    plim_status_t status = plim__range_reader_create(job, &params, &reader);
    if (status == PLIM_OK)
        plim__range_reader_destroy(reader);
    return status;
}

static void survives_refused_memory(void **state)
{
    (void)state;
    for (size_t e = 0; e < sizeof engines / sizeof engines[0]; e++) {
        plim_job_t job = test_job_make(PLIM_LINE_NONE, 1, engines[e]);
        test_fail_each_arena(&job, make_one, NULL);
        test_job_end(&job);
    }
    plim__range_reader_destroy(NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_pread),
        cmocka_unit_test(joins_neighbours),
        cmocka_unit_test(reports_what_cannot_be_read),
        cmocka_unit_test(stops_within_a_batch),
        cmocka_unit_test(delivers_no_messages),
        cmocka_unit_test(survives_refused_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
