/* Rows of nodes in memory and on disk are those that were stored, and begin by being refused. */
/* labels: asan tsan unprivileged */
#include "support/harness.h"

#include "base/rng.h"
#include "infer/node_rows.h"

#include <stdlib.h>
#include <string.h>

#define NODES 70001
#define WIDTH 7
#define MOST 500

static char directory[512];

static float value_of(int64_t node, int64_t column)
{
    return (float)(plim__rng_u64(3, (uint64_t)(node * WIDTH + column)) >> 44);
}

static void store(plim__node_rows_t *rows)
{
    static float values[3000 * WIDTH];
    for (int64_t first = 0; first < NODES; first += 3000) {
        const int64_t count = NODES - first < 3000 ? NODES - first : 3000;
        for (int64_t i = 0; i < count * WIDTH; i++)
            values[i] = value_of(first + i / WIDTH, i % WIDTH);
        assert_ok(plim__node_rows_take(rows, first, count, WIDTH, values));
    }
}

static void test_found(void **state)
{
    plim_job_t job = test_job_make(64 << 20, 1, PLIM_IO_AUTO);
    (void)state;
    for (int64_t memory = 0; memory <= NODES * WIDTH * 4; memory += NODES * WIDTH * 4) {
        plim__node_rows_t *rows;
        int64_t nodes[MOST];
        const float *found;
        const int64_t *places;
        assert_ok(plim__node_rows_create(&job, directory, NODES, WIDTH, MOST, memory, &rows));
        store(rows);
        for (int round = 0; round < 20; round++) {
            const int64_t count = round == 0 ? 1 : MOST;
            for (int64_t i = 0; i < count; i++) /* some more than once, and the ends */
                nodes[i] = round < 2 ? (i % 2 == 0 ? NODES - 1 : 0)
                                     : (int64_t)(plim__rng_u64((uint64_t)round, (uint64_t)i) %
                                                 (round % 2 == 0 ? 50 : NODES));
            assert_ok(plim__node_rows_find(rows, nodes, count, &found, &places));
            for (int64_t i = 0; i < count; i++)
                for (int64_t column = 0; column < WIDTH; column++)
                    assert_true(found[places[i] * WIDTH + column] == value_of(nodes[i], column));
        }
        plim__node_rows_destroy(rows);
    }
    test_job_end(&job);
}

static void test_refused(void **state)
{
    plim_job_t job = test_job_make(64 << 20, 1, PLIM_IO_AUTO);
    plim__node_rows_t *rows;
    const float values[2 * WIDTH] = {0};
    (void)state;
    assert_int_equal(plim__node_rows_create(&job, directory, (int64_t)1 << 44, 128, MOST, 0, &rows),
                     PLIM_ERR_SPACE);
    const plim_figures_t figures = plim__fail_last_figures();
    assert_true(figures.needed > figures.available);
    assert_int_equal(plim__node_rows_create(&job, directory, NODES, 4096, MOST, INT64_MAX, &rows),
                     PLIM_ERR_BUDGET);
    assert_int_equal(plim__node_rows_create(&job, directory, NODES, WIDTH, 1 << 20, 0, &rows),
                     PLIM_ERR_UNSUPPORTED);
    assert_ok(plim__node_rows_create(&job, directory, 2, WIDTH, MOST, INT64_MAX, &rows));
    assert_int_equal(plim__node_rows_take(rows, 0, 1, WIDTH + 1, values), PLIM_ERR_DATA);
    assert_int_equal(plim__node_rows_take(rows, 1, 2, WIDTH, values), PLIM_ERR_DATA);
    plim__node_rows_destroy(rows);
    test_job_end(&job);
}

static plim_status_t create(plim_job_t *job, void *memory)
{
    plim__node_rows_t *rows;
    PLIM_TRY(plim__node_rows_create(job, directory, NODES, WIDTH, MOST, *(int64_t *)memory, &rows));
    plim__node_rows_destroy(rows);
    return PLIM_OK;
}

static void test_each_arena_fails(void **state)
{
    (void)state;
    for (int64_t memory = 0; memory <= INT32_MAX; memory += INT32_MAX) {
        plim_job_t job = test_job_make(64 << 20, 1, PLIM_IO_AUTO);
        test_fail_each_arena(&job, create, &memory);
        test_job_end(&job);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_found),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_each_arena_fails),
    };
    test_directory_make(directory);
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    test_directory_remove(directory);
    return failed;
}
