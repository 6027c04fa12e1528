/* The spill: what is put into lists comes out of them, from memory and from disk. */
#include "support/harness.h"

#include "base/fail.h"
#include "base/threads.h"
#include "ingest/spill.h"

#include <dirent.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK ((size_t)4096)
#define CHUNK_KEYS ((int64_t)512)
#define NUM_LISTS ((int64_t)5)

typedef struct fixture {
    char directory[512];
    plim_job_t job;
    plim__arena_t arena;
    plim__spill_t *spill;
    char *pool;
} fixture_t;

static void begin(fixture_t *fixture, int64_t buffers, int64_t slots, bool file,
                  plim_io_engine_t engine)
{
    test_directory_make(fixture->directory);
    fixture->job = test_job_make(PLIM_LINE_NONE, 1, engine);
    plim__spill_params_t params = {.tmp = file ? fixture->directory : NULL,
                                   .chunk = CHUNK,
                                   .num_slots = slots,
                                   .num_buffers = buffers,
                                   .depth = 3};
    plim__arena_t counted = plim__arena_counting();
    (void)plim__spill_carve(&counted, &params);
    (void)plim__arena_carve(&counted, (size_t)buffers, CHUNK, PLIM__PAGE);
    assert_ok(plim__arena_create(fixture->job.ledger, "test", counted.used, &fixture->arena));
    fixture->spill = plim__spill_carve(&fixture->arena, &params);
    assert_non_null(fixture->spill);
    assert_ok(plim__spill_open(&fixture->job, &params, fixture->spill));
    fixture->pool = plim__arena_carve(&fixture->arena, (size_t)buffers, CHUNK, PLIM__PAGE);
    assert_non_null(fixture->pool);
    plim__spill_lend(fixture->spill, fixture->pool, buffers);
}

static void end(fixture_t *fixture)
{
    plim__spill_close(fixture->spill);
    plim__arena_destroy(&fixture->arena);
    test_job_end(&fixture->job);
    test_directory_remove(fixture->directory);
}

static int count_entries(const char *path)
{
    DIR *directory = opendir(path);
    int count = 0;
    assert_non_null(directory);
    for (struct dirent *entry = readdir(directory); entry != NULL; entry = readdir(directory))
        count += entry->d_name[0] != '.';
    (void)closedir(directory);
    return count;
}

/* `chunks` full chunks and one of `rest` keys, each key telling its list and number. */
static plim_status_t fill_list(plim__spill_t *spill, plim__spill_list_t *list, uint64_t number,
                               int64_t chunks, int64_t rest)
{
    uint64_t next = 0;
    for (int64_t i = 0; i <= chunks; i++) {
        int64_t count = i < chunks ? CHUNK_KEYS : rest;
        uint64_t *buffer;
        if (count == 0)
            break;
        PLIM_TRY(plim__spill_take(spill, &buffer));
        for (int64_t j = 0; j < count; j++)
            buffer[j] = number << 32 | next++;
        PLIM_TRY(plim__spill_put(spill, list, buffer, count));
    }
    return PLIM_OK;
}

/* Reads the list `capacity` keys at a time; each of its keys must come once. */
static void check_list(plim__spill_t *spill, plim__spill_list_t *list, uint64_t number,
                       int64_t capacity)
{
    int64_t total = list->count, seen = 0, count;
    char *here = test_calloc((size_t)total + 1, 1);
    uint64_t *keys = NULL;
    assert_int_equal(posix_memalign((void **)&keys, PLIM__PAGE, (size_t)capacity * 8), 0);
    do {
        assert_ok(plim__spill_read(spill, list, keys, capacity, &count));
        assert_true(count <= capacity);
        for (int64_t i = 0; i < count; i++) {
            assert_int_equal(keys[i] >> 32, number);
            assert_true((int64_t)(uint32_t)keys[i] < total);
            assert_int_equal(here[(uint32_t)keys[i]]++, 0);
        }
        seen += count;
    } while (count > 0);
    assert_int_equal(seen, total);
    assert_int_equal(list->count, 0);
    free(keys);
    test_free(here);
}

static void keeps_in_memory(void **state)
{
    (void)state;
    fixture_t fixture;
    plim__spill_list_t lists[NUM_LISTS];
    begin(&fixture, 40, 0, false, PLIM_IO_AUTO);
    for (int i = 0; i < NUM_LISTS; i++) {
        lists[i] = PLIM__SPILL_LIST_INIT;
        assert_ok(fill_list(fixture.spill, &lists[i], (uint64_t)i, 7, (int64_t)i * 100));
    }
    assert_int_equal(plim__spill_untouched(fixture.spill), 40 - 7 * NUM_LISTS - 4);
    for (int i = 0; i < NUM_LISTS; i++)
        check_list(fixture.spill, &lists[i], (uint64_t)i, i % 2 != 0 ? 2048 : 65536);
    assert_int_equal(plim__spill_written(fixture.spill), 0);
    uint64_t *buffer;
    while (plim__spill_untouched(fixture.spill) > 0)
        assert_ok(plim__spill_take(fixture.spill, &buffer));
    assert_int_equal(plim__spill_take(fixture.spill, &buffer), PLIM_ERR_USAGE);
    end(&fixture);
}

static void goes_to_disk(void **state)
{
    (void)state;
    const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};
    for (int engine = 0; engine < 2; engine++) {
        fixture_t fixture;
        plim__spill_list_t lists[NUM_LISTS];
        begin(&fixture, 6, 300, true, engines[engine]);
        /* Slots are used again: the third round would not fit otherwise. */
        for (int round = 0; round < 3; round++) {
            for (int i = 0; i < NUM_LISTS; i++) {
                lists[i] = PLIM__SPILL_LIST_INIT;
                assert_ok(fill_list(fixture.spill, &lists[i], (uint64_t)i, 40, (int64_t)i * 127));
            }
            assert_ok(plim__spill_flush(fixture.spill));
            for (int i = 0; i < NUM_LISTS - 1; i++)
                check_list(fixture.spill, &lists[i], (uint64_t)i, i % 2 != 0 ? 1024 : 65536);
            plim__spill_drop(fixture.spill, &lists[NUM_LISTS - 1]);
            assert_int_equal(lists[NUM_LISTS - 1].count, 0);
        }
        assert_true(plim__spill_written(fixture.spill) >= 3 * NUM_LISTS * 40 * (int64_t)CHUNK);
        assert_int_equal(count_entries(fixture.directory), 0);
        end(&fixture);
    }
}

static void refuses_more_than_its_slots(void **state)
{
    (void)state;
    fixture_t fixture;
    plim__spill_list_t list = PLIM__SPILL_LIST_INIT;
    begin(&fixture, 4, 10, true, PLIM_IO_AUTO);
    assert_int_equal(fill_list(fixture.spill, &list, 0, 20, 0), PLIM_ERR_USAGE);
    end(&fixture);
}

typedef struct filling {
    plim__spill_t *spill;
    plim__spill_list_t lists[8];
    atomic_int next;
} filling_t;

static plim_status_t fill_one(void *context, int worker)
{
    filling_t *filling = context;
    (void)worker;
    for (;;) {
        int number = atomic_fetch_add(&filling->next, 1);
        if (number >= 8)
            return PLIM_OK;
        PLIM_TRY(fill_list(filling->spill, &filling->lists[number], (uint64_t)number, 50, 9));
    }
}

static void serves_many_threads(void **state)
{
    (void)state;
    fixture_t fixture;
    filling_t filling = {.next = 0};
    begin(&fixture, 12, 500, true, PLIM_IO_AUTO);
    filling.spill = fixture.spill;
    for (int i = 0; i < 8; i++)
        filling.lists[i] = PLIM__SPILL_LIST_INIT;
    assert_ok(plim__parallel(8, fill_one, &filling));
    assert_ok(plim__spill_flush(fixture.spill));
    for (int i = 0; i < 8; i++)
        check_list(fixture.spill, &filling.lists[i], (uint64_t)i, 4096);
    end(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_in_memory),
        cmocka_unit_test(goes_to_disk),
        cmocka_unit_test(refuses_more_than_its_slots),
        cmocka_unit_test(serves_many_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
