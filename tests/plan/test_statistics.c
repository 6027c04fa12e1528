/* What was read for one plan serves the next, and what is wrong in the cache serves none. */
#include "load/plan_data.h"
#include "plan/load_plan.h"
#include "plan/train_plan.h"
#include "support/dataset.h"
#include "support/harness.h"

#include "io/cache_file.h"
#include "plan/statistics.h"

#include <plimsoll/plimsoll.h>

#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MIB ((int64_t)1 << 20)

static const test_graph_t medium = {
    .num_nodes = 60000, .num_features = 64, .num_classes = 7, .half = true};

typedef struct cached {
    test_place_t place;
    char cache[512];
    plim_training_t training;
    plim_plan_params_t wanted; /* under which sizes must be known */
} cached_t;

static cached_t open_cached(void)
{
    cached_t cached = {.training = PLIM_TRAINING_INIT};
    test_directory_make(cached.cache);
    assert_int_equal(setenv("XDG_CACHE_HOME", cached.cache, 1), 0);
    cached.place = test_place_open(&medium, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    cached.training.recipe.batch_size = 512;
    cached.training.recipe.num_hops = 2;
    cached.training.recipe.fanout[0] = 10;
    cached.training.recipe.fanout[1] = 10;
    plim__train_plan_t plan;
    assert_ok(
        plim__train_plan(&cached.place.job, cached.place.dataset, &cached.training, NULL, &plan));
    cached.wanted.memory = plan.minimum + 24 * MIB;
    return cached;
}

static void close_cached(cached_t *cached)
{
    test_place_close(&cached->place);
    test_directory_remove(cached->cache);
}

static plim_status_t plan(const cached_t *cached, plim__train_plan_t *plan_out)
{
    return plim__train_plan(&cached->place.job, cached->place.dataset, &cached->training,
                            &cached->wanted, plan_out);
}

/* Without its lists a dataset cannot be tried. */
static void hide_lists(const cached_t *cached)
{
    char path[700];
    (void)snprintf(path, sizeof path, "%s/indices.npy", cached->place.path);
    assert_int_equal(unlink(path), 0);
}

/* The only file of that kind that is kept. */
static void find_kept(const cached_t *cached, const char *kind, char path_out[1200])
{
    char directory[600];
    (void)snprintf(directory, sizeof directory, "%s/plimsoll", cached->cache);
    DIR *list = opendir(directory);
    int count = 0;
    assert_non_null(list);
    for (struct dirent *entry; (entry = readdir(list)) != NULL;)
        if (strncmp(entry->d_name, kind, strlen(kind)) == 0) {
            (void)snprintf(path_out, 1200, "%s/%s", directory, entry->d_name);
            count++;
        }
    (void)closedir(list);
    assert_int_equal(count, 1);
}

static void the_second_plan_reads_nothing(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    cached_t cached = open_cached();
    plim__train_plan_t first, second, other;
    assert_ok(plan(&cached, &first));
    hide_lists(&cached);
    assert_ok(plan(&cached, &second));
    assert_int_equal(first.total, second.total);
    assert_int_equal(first.minimum, second.minimum);
    assert_int_equal(first.load.slot_nodes, second.load.slot_nodes);
    assert_int_equal(first.load.part_seeds, second.load.part_seeds);
    assert_int_equal(first.load.window_rows, second.load.window_rows);
    cached.training.recipe.seed = 7; /* is not what it depends on */
    assert_ok(plan(&cached, &other));
    cached.training.recipe.fanout[1] = 9;
    assert_int_equal(plan(&cached, &other), PLIM_ERR_IO);
    cached.wanted.no_reading = true;
    assert_ok(plan(&cached, &other));
    close_cached(&cached);
}

/* Where the user's cache cannot be written, the open dataset keeps the sizes. */
static void the_second_plan_reads_nothing_without_a_cache(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    cached_t cached = open_cached();
    plim__train_plan_t first, second;
    cached.training.recipe.fanout[1] = 8;
    assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null", 1), 0);
    assert_ok(plan(&cached, &first));
    hide_lists(&cached);
    assert_ok(plan(&cached, &second));
    assert_int_equal(first.load.slot_nodes, second.load.slot_nodes);
    close_cached(&cached);
}

/* Whatever a byte of it is changed to, or wherever it ends: it is read anew, and that fails. */
static void what_is_damaged_is_not_used(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    cached_t cached = open_cached();
    char path[1200], text[1024];
    plim__train_plan_t first;
    assert_ok(plan(&cached, &first));
    find_kept(&cached, "probe-", path);
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    const size_t size = fread(text, 1, sizeof text, file);
    (void)fclose(file);
    assert_in_range(size, 20, sizeof text - 1);
    hide_lists(&cached);
    for (size_t i = 0; i < size; i += 3) {
        file = fopen(path, "w");
        assert_non_null(file);
        (void)fwrite(text, 1, i, file);
        if (i % 2 == 0) {
            (void)fputc(text[i] ^ 1, file);
            (void)fwrite(text + i + 1, 1, size - i - 1, file);
        }
        (void)fclose(file);
        assert_int_equal(plan(&cached, &first), PLIM_ERR_IO);
    }
    close_cached(&cached);
}

/* A dataset that does not say how many self-loops a node has is read once for it. */
static void self_loops_are_counted_once(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    cached_t cached = open_cached();
    const plim_dataset_t *dataset = cached.place.dataset;
    char path[1200];
    plim__train_plan_t first;
    assert_ok(plan(&cached, &first));
    const int64_t most = plim__dataset_max_self_loops(dataset);
    assert_in_range(most, 1, 12);
    find_kept(&cached, "loops-", path);
    hide_lists(&cached);
    plim__dataset_note_self_loops(dataset, -1);
    assert_ok(plan(&cached, &first));
    assert_int_equal(plim__dataset_max_self_loops(dataset), most);
    plim__cache_write(strrchr(path, '/') + 1, "1000\n"); /* more than the longest list */
    plim__dataset_note_self_loops(dataset, -1);
    assert_int_equal(plan(&cached, &first), PLIM_ERR_IO);
    close_cached(&cached);
}

/* Of many graphs the largest decides what fits: a plan that did not read its size says so. */
static void a_guessed_largest_graph_says_so(void **state)
{
    (void)state;
    static const test_graph_t many = {
        .num_nodes = 3000, .num_features = 8, .num_classes = 3, .graphs = true};
    char cache[512], path[1200];
    test_directory_make(cache);
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    cached_t cached = {.place = test_place_open(&many, PLIM_LINE_NONE, 2, PLIM_IO_AUTO)};
    (void)snprintf(cached.cache, sizeof cached.cache, "%s", cache);
    plim_recipe_t recipe = PLIM_RECIPE_INIT;
    recipe.num_hops = 0;
    const plim_plan_params_t blind = {.no_reading = true};
    plim__load_plan_t load;
    assert_ok(plim__load_plan(&cached.place.job, cached.place.dataset, &recipe, &blind, &load));
    assert_true(load.guessed);
    assert_ok(plim__load_plan(&cached.place.job, cached.place.dataset, &recipe, NULL, &load));
    assert_false(load.guessed);
    assert_ok(plim__load_plan(&cached.place.job, cached.place.dataset, &recipe, &blind, &load));
    assert_false(load.guessed);
    find_kept(&cached, "largest-", path);
    plim__cache_write(strrchr(path, '/') + 1, "0 0\n"); /* less than the mean */
    assert_ok(plim__load_plan(&cached.place.job, cached.place.dataset, &recipe, &blind, &load));
    assert_true(load.guessed);
    close_cached(&cached);
}

/* Names and numbers as they were kept; nothing where there is no place for them. */
static void texts_are_kept(void **state)
{
    (void)state;
    char cache[512], text[PLIM__CACHE_TEXT];
    test_directory_make(cache);
    assert_int_equal(setenv("XDG_CACHE_HOME", cache, 1), 0);
    assert_false(plim__cache_read("a", text));
    plim__cache_write("a", "1 2 3\n");
    assert_true(plim__cache_read("a", text));
    assert_string_equal(text, "1 2 3\n");
    plim__cache_write("a", "4\n");
    assert_true(plim__cache_read("a", text));
    assert_string_equal(text, "4\n");
    assert_false(plim__cache_read("b", text));
    assert_int_equal(setenv("XDG_CACHE_HOME", "/dev/null", 1), 0);
    plim__cache_write("a", "5\n");
    assert_false(plim__cache_read("a", text));
    assert_int_equal(setenv("XDG_CACHE_HOME", "here", 1), 0); /* not absolute: not meant */
    assert_int_equal(setenv("HOME", cache, 1), 0);
    plim__cache_write("a", "6\n");
    assert_true(plim__cache_read("a", text));
    assert_string_equal(text, "6\n");
    test_directory_remove(cache);
}

/* Rows that the seeds of a reach need together. */
static double rows_of(const plim__reach_t *reach)
{
    double rows = 0;
    for (int i = 0; i < PLIM__REACH_BINS; i++)
        rows += ldexp((double)reach->bins[PLIM__REACH_ROWS][i].needs, -28);
    return rows;
}

static void nodes_are_weighed_once(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    cached_t cached = open_cached();
    plim__train_plan_t first, second;
    cached.wanted.rows = 2; /* on disk */
    assert_ok(plan(&cached, &first));
    assert_int_equal(first.load.reaches.batch.seeds, 0);
    cached.wanted.weigh_nodes = true;
    assert_ok(plan(&cached, &first));
    const plim__reaches_t *reaches = &first.load.reaches;
    assert_int_equal(reaches->batch.seeds, 512);
    assert_true(fabs(rows_of(&reaches->batch) / (double)first.expect.batch_nodes - 1) < 0.1);
    assert_true(rows_of(&reaches->epoch) > rows_of(&reaches->batch));
    hide_lists(&cached);
    cached.wanted.weigh_nodes = false;
    assert_ok(plan(&cached, &second));
    assert_memory_equal(reaches, &second.load.reaches, sizeof *reaches);
    assert_int_equal(first.expect.epoch_read_bytes, second.expect.epoch_read_bytes);
    cached.training.recipe.batch_size = 256;
    assert_ok(plan(&cached, &second));
    assert_int_equal(second.load.reaches.batch.seeds, 0);
    close_cached(&cached);
}

/* Reads and bytes go down as memory goes up, to nothing; all of it of every epoch. */
static void reads_less(bool weighed)
{
    cached_t cached = open_cached();
    cached.wanted.weigh_nodes = weighed;
    const plim_dataset_info_t *info = plim_dataset_info(cached.place.dataset);
    plim__train_plan_t now;
    int64_t bytes = INT64_MAX;
    for (int64_t more = 0; more <= 256; more += 32) {
        plim_plan_params_t wanted = cached.wanted;
        wanted.memory += more * MIB;
        assert_ok(plim__train_plan(&cached.place.job, cached.place.dataset, &cached.training,
                                   &wanted, &now));
        const plim__expectation_t *expect = &now.expect;
        assert_int_equal(expect->epoch_steps, (info->num_split[PLIM_TRAIN] + 511) / 512);
        assert_true(expect->batch_nodes > 512 && expect->batch_nodes <= info->num_nodes);
        assert_true(expect->batch_edges > expect->batch_nodes / 2);
        assert_true(expect->batch_bytes > expect->batch_nodes * 128);
        assert_true(expect->epoch_steps > 0 && expect->disk_bytes > 0);
        assert_true(expect->epoch_read_bytes <= bytes);
        bytes = expect->epoch_read_bytes;
    }
    assert_int_equal(bytes, 0);
    assert_int_equal(now.expect.epoch_reads, 0);
    close_cached(&cached);
}

static void more_memory_reads_less(void **state)
{
    (void)state;
    reads_less(false);
    reads_less(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_second_plan_reads_nothing),
        cmocka_unit_test(the_second_plan_reads_nothing_without_a_cache),
        cmocka_unit_test(what_is_damaged_is_not_used),
        cmocka_unit_test(self_loops_are_counted_once),
        cmocka_unit_test(a_guessed_largest_graph_says_so),
        cmocka_unit_test(texts_are_kept),
        cmocka_unit_test(nodes_are_weighed_once),
        cmocka_unit_test(more_memory_reads_less),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
