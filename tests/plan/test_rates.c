/* Rates: measured once and kept, brought as a file, and refused when damaged. */
#include "plan/rates.h"
#include "support/dataset.h"
#include "support/harness.h"

#include "mem/arena.h"
#include "plan/train_plan.h"

#include <plimsoll/plimsoll.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const test_graph_t medium = {
    .num_nodes = 60000, .num_features = 64, .num_classes = 7, .half = true};

typedef struct cached {
    test_place_t place;
    char cache[512];
    char file[600];
} cached_t;

static cached_t open_cached(void)
{
    cached_t cached = {.place = test_place_open(&medium, PLIM_LINE_NONE, 2, PLIM_IO_AUTO)};
    test_directory_make(cached.cache);
    assert_int_equal(setenv("XDG_CACHE_HOME", cached.cache, 1), 0);
    (void)snprintf(cached.file, sizeof cached.file, "%s/rates", cached.cache);
    return cached;
}

static void close_cached(cached_t *cached)
{
    test_place_close(&cached->place);
    test_directory_remove(cached->cache);
}

static plim__rates_t find(const cached_t *cached, const char *file)
{
    plim__rates_t rates;
    assert_ok(plim__rates_find(&cached->place.job, cached->place.dataset, file, &rates));
    return rates;
}

static void are_measured_once_and_kept(void **state)
{
    (void)state;
    cached_t cached = open_cached();
    plim__rates_t rates = find(&cached, NULL);
    assert_false(rates.computing_known || rates.disk_known);
    const int64_t before = plim__ledger_reserved(cached.place.job.ledger);
    assert_ok(plim_rates_measure(&cached.place.job, cached.place.dataset, cached.file));
    assert_int_equal(plim__ledger_reserved(cached.place.job.ledger), before);
    rates = find(&cached, NULL);
    assert_true(rates.computing_known && rates.disk_known && !rates.from_file);
    for (int i = 0; i < PLIM__NUM_RATES; i++)
        for (int point = 0; point < plim__rate_points((plim__rate_t)i); point++)
            assert_true(rates.cost[i][point] > 0 && rates.cost[i][point] < 1);
    /* A product of 256 x 256 is more work than one of 16 x 16, an I/O of 64 KiB than one of 4. */
    assert_true(rates.cost[PLIM__RATE_F32_FORWARD][3] > rates.cost[PLIM__RATE_F32_FORWARD][0]);
    assert_true(rates.cost[PLIM__RATE_READ][1] > rates.cost[PLIM__RATE_READ][0]);
    /* A second call measures nothing: it is much faster than the measurement. */
    const plim__rates_t again = find(&cached, NULL);
    assert_ok(plim_rates_measure(&cached.place.job, cached.place.dataset, NULL));
    assert_memory_equal(&again, &rates, sizeof rates);
    const plim__rates_t brought = find(&cached, cached.file);
    assert_true(brought.computing_known && brought.disk_known && brought.from_file);
    assert_memory_equal(brought.cost, rates.cost, sizeof rates.cost);
    assert_int_equal(brought.threads, 2);
    close_cached(&cached);
}

static void damaged_files_are_refused(void **state)
{
    (void)state;
    cached_t cached = open_cached();
    plim__rates_t rates = plim__rates_default(), found;
    char text[4096];
    rates.computing_known = rates.disk_known = true;
    assert_ok(plim__rates_write(&cached.place.job, &rates, cached.file));
    FILE *file = fopen(cached.file, "re");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof text, file);
    (void)fclose(file);
    assert_in_range(size, 100, sizeof text - 1);
    for (size_t end = 0; end < size - 100; end += 7) { /* truncated, but for the disk's lines */
        assert_int_equal(truncate(cached.file, 0), 0);
        file = fopen(cached.file, "we");
        assert_int_equal(fwrite(text, 1, end, file), end);
        (void)fclose(file);
        assert_int_equal(
            plim__rates_find(&cached.place.job, cached.place.dataset, cached.file, &found),
            PLIM_ERR_USAGE);
    }
    static const char *const lines[] = {"f32-forward 0 1 1 1\n", "f32-forward nan 1 1 1\n",
                                        "f32-forward 1 1 1\n", "f32-forward 1e9 1 1 1\n",
                                        "other 1 1 1 1\n"};
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        file = fopen(cached.file, "we");
        (void)fprintf(file, "%.*s%s%s", (int)(strchr(text, '\n') - text + 1), text, lines[i],
                      strchr(strchr(text, '\n') + 1, '\n') + 1);
        (void)fclose(file);
        assert_int_equal(
            plim__rates_find(&cached.place.job, cached.place.dataset, cached.file, &found),
            PLIM_ERR_USAGE);
    }
    assert_int_equal(plim__rates_find(&cached.place.job, cached.place.dataset, "/", &found),
                     PLIM_ERR_USAGE);
    close_cached(&cached);
}

/* Between its points, and beyond the second, a cost follows the line through them. */
static void costs_follow_a_line(void **state)
{
    (void)state;
    plim__rates_t rates = plim__rates_default();
    const double cost[PLIM__RATE_POINTS] = {1, 3, 5, 11};
    memcpy(rates.cost[PLIM__RATE_F32_FORWARD], cost, sizeof cost);
    for (int point = 0; point < PLIM__RATE_POINTS; point++)
        assert_true(fabs(plim__rate_at(&rates, PLIM__RATE_F32_FORWARD,
                                       plim__rate_x(PLIM__RATE_F32_FORWARD, point),
                                       plim__rate_y(PLIM__RATE_F32_FORWARD, point)) -
                         cost[point]) < 1e-9);
    assert_true(fabs(plim__rate_at(&rates, PLIM__RATE_F32_FORWARD, 136, 136) - 5) < 1e-9);
    assert_true(fabs(plim__rate_at(&rates, PLIM__RATE_F32_FORWARD, 496, 16) - 9) < 1e-9);
    assert_true(fabs(plim__rate_at(&rates, PLIM__RATE_F32_FORWARD, 1, 1) - 1) < 1e-9);
}

/* A machine that computes half as fast takes longer, by at most twice. */
static void slower_rates_take_longer(void **state)
{
    (void)state;
    cached_t cached = open_cached();
    plim_training_t training = PLIM_TRAINING_INIT;
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    plim__train_plan_t fast, slow;
    plim__rates_t rates = plim__rates_default();
    training.recipe.batch_size = 512;
    training.recipe.num_hops = 2;
    training.recipe.fanout[0] = training.recipe.fanout[1] = 10;
    assert_ok(plim__train_plan(&cached.place.job, cached.place.dataset, &training, &params, &fast));
    for (int i = 0; i < PLIM__NUM_RATES; i++)
        for (int point = 0; point < PLIM__RATE_POINTS; point++)
            rates.cost[i][point] *= 2;
    rates.computing_known = rates.disk_known = true;
    assert_ok(plim__rates_write(&cached.place.job, &rates, cached.file));
    params.rates = cached.file;
    assert_ok(plim__train_plan(&cached.place.job, cached.place.dataset, &training, &params, &slow));
    assert_true(fabs(slow.expect.epoch_seconds / fast.expect.epoch_seconds - 2) < 1e-3);
    assert_true(slow.expect.run_seconds > 10 * slow.expect.epoch_seconds);
    assert_int_equal(slow.total, fast.total);
    assert_true(slow.expect.rates_from_file && !fast.expect.computing_measured);
    close_cached(&cached);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(are_measured_once_and_kept),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(costs_follow_a_line),
        cmocka_unit_test(slower_rates_take_longer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
