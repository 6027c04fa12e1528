#include "load/plan_data.h"
#include "plan/load_plan.h"
#include "support/dataset.h"
#include "support/harness.h"
#include "support/loader.h"

#include "base/rng.h"
#include "base/threads.h"
#include "load/loader.h"
#include "load/slots.h"
#include "mem/ledger.h"

#include <plimsoll/plimsoll.h>

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MIB ((int64_t)1 << 20)

static plim_recipe_t small_recipe(void)
{
    plim_recipe_t recipe = PLIM_RECIPE_INIT;
    recipe.batch_size = 32;
    recipe.fanout[0] = 3;
    recipe.fanout[1] = 2;
    return recipe;
}

static void test_recipes_that_cannot_be(void **state)
{
    static const test_graph_t graph = {.num_nodes = 300, .num_features = 8, .num_classes = 3};
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    const plim_plan_params_t wanted = {0};
    plim__load_plan_t plan;
    (void)state;
    plim_recipe_t recipes[10];
    for (size_t i = 0; i < 10; i++)
        recipes[i] = small_recipe();
    recipes[0].batch_size = 0;
    recipes[1].num_hops = -1;
    recipes[2].num_hops = PLIM_HOPS_MAX + 1;
    recipes[3].fanout[1] = -2;
    recipes[4].fanout[0] = 4097;
    recipes[5].row_type = PLIM_I32;
    recipes[6].index_type = PLIM_F32;
    recipes[7].form = (plim_form_t)4;
    for (size_t i = 0; i < 8; i++)
        assert_int_equal(plim__load_plan(&place.job, place.dataset, &recipes[i], &wanted, &plan),
                         PLIM_ERR_USAGE);
    const plim_plan_params_t wrong[] = {
        {.topology = 3},   {.rows = (plim_place_t)-1}, {.row_cache = -2},  {.window = -1},
        {.num_slots = -1}, {.num_slots = 65},          {.num_streams = 1}, {.num_streams = -1}};
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++)
        assert_int_equal(plim__load_plan(&place.job, place.dataset, &recipes[9], &wrong[i], &plan),
                         PLIM_ERR_USAGE);
    plim_plan_t *none;
    recipes[7] = small_recipe();
    recipes[7].edge_ids = true; /* of two hops in native form */
    assert_int_equal(plim_load_plan(&place.job, place.dataset, &recipes[7], NULL, &none),
                     PLIM_ERR_USAGE);
    recipes[7].size = 0;
    assert_int_equal(plim_load_plan(&place.job, place.dataset, &recipes[7], NULL, &none),
                     PLIM_ERR_USAGE);
    recipes[8].form = PLIM_PYG;
    const plim_plan_params_t parts = {.part_seeds = 31};
    assert_int_equal(plim__load_plan(&place.job, place.dataset, &recipes[8], &parts, &plan),
                     PLIM_ERR_USAGE);
    /* A batch of 30 pairs and as many negatives has 120 seeds. */
    plim_links_t links = PLIM_LINKS_INIT;
    plim_stream_params_t pairs = PLIM_STREAM_PARAMS_INIT;
    links.num_pairs = 300;
    links.negatives = PLIM_NEGATIVE_PAIRS;
    pairs.links = &links;
    pairs.batch_size = 30;
    for (int64_t part = 119; part <= 120; part++) {
        const plim_plan_params_t of_pairs = {
            .part_seeds = part, .streams = &pairs, .num_streams = 1};
        assert_int_equal(plim__load_plan(&place.job, place.dataset, &recipes[8], &of_pairs, &plan),
                         part < 120 ? PLIM_ERR_USAGE : PLIM_OK);
    }
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipes[9], &wanted, &plan));
    test_place_close(&place);
}

static void test_recipes_for_many_graphs(void **state)
{
    static const test_graph_t graph = {
        .num_nodes = 300, .num_features = 8, .num_classes = 3, .graphs = true};
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    plim__load_plan_t plan;
    (void)state;
    assert_int_equal(plim__load_plan(&place.job, place.dataset, &recipe, NULL, &plan),
                     PLIM_ERR_USAGE);
    recipe.num_hops = 0;
    recipe.form = PLIM_PYG;
    assert_int_equal(plim__load_plan(&place.job, place.dataset, &recipe, NULL, &plan),
                     PLIM_ERR_USAGE);
    recipe.form = PLIM_NATIVE;
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, NULL, &plan));
    test_place_close(&place);
}

static void test_no_training_split(void **state)
{
    static const test_graph_t graph = {.num_nodes = 300, .bare = true};
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    plim__load_plan_t plan;
    (void)state;
    assert_int_equal(plim__load_plan(&place.job, place.dataset, &recipe, NULL, &plan),
                     PLIM_ERR_USAGE);
    assert_non_null(strstr(plim_last_error(), "training split"));
    test_place_close(&place);
}

/* Without a training split any node may be a seed: planned caches are filled, and nothing packed.
 */
static void test_caches_without_training_split(void **state)
{
    static const test_graph_t graph = {.num_nodes = 60000, .num_features = 64, .bare = true};
    static const int64_t nodes[] = {5, 7, 9000, 31, 59999};
    plim_stream_params_t stream = PLIM_STREAM_PARAMS_INIT;
    plim_plan_params_t wanted = PLIM_PLAN_PARAMS_INIT;
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    stream.nodes = nodes;
    stream.num_nodes = sizeof nodes / sizeof nodes[0];
    wanted.streams = &stream;
    wanted.num_streams = 1;
    wanted.topology = wanted.rows = PLIM_PLACE_DISK;
    wanted.scratch = place.directory;
    for (int hops = 0; hops < 3; hops++) {
        plim_recipe_t recipe = small_recipe();
        plim__load_plan_t plan;
        plim_loader_t *loader;
        recipe.num_hops = hops;
        assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
        assert_true(plan.row_cache_bytes > 0 && (plan.list_cache_bytes > 0 || hops == 0));
        assert_int_equal(plan.scratch_bytes, 0);
        assert_ok(plim__loader_create(&place.job, place.dataset, &plan, &loader));
        assert_true(loader->context.access.row_bytes > 0);
        assert_true(loader->context.access.list_bytes > 0 || hops == 0);
        plim_loader_release(loader);
    }
    test_place_close(&place);
}

/* The accounts are what the total is made of, and it stays below the line. */
static void check_sums(const plim__load_plan_t *plan)
{
    int64_t sum = 0;
    assert_in_range(plan->num_accounts, 1, PLIM__PLAN_ACCOUNTS);
    for (int i = 0; i < plan->num_accounts; i++) {
        assert_true(plan->accounts[i].bytes > 0);
        sum += plan->accounts[i].bytes;
        for (int other = plan->num_held; other < i; other++) /* a dict by name has all bytes */
            assert_string_not_equal(plan->accounts[i].name, plan->accounts[other].name);
    }
    assert_true(sum <= plan->total);
    assert_true(plan->accounts[0].bytes > 0 && strcmp(plan->accounts[0].name, "process") == 0);
    assert_true(plan->total <= plan->line);
    assert_true(plan->minimum <= plan->total);
}

/* Runs one epoch as planned and returns the most the ledger ever held. */
static int64_t run_epoch(const test_place_t *place, const plim__load_plan_t *plan,
                         uint64_t *hash_out)
{
    plim_loader_t *loader;
    plim_batch_t *batch;
    assert_ok(plim__loader_create(&place->job, place->dataset, plan, &loader));
    assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 0, 0));
    *hash_out = 0;
    while ((batch = test_next(test_stream(loader, PLIM_TRAIN))) != NULL) {
        *hash_out = plim_loader_hash(loader, batch, *hash_out);
        plim_batch_release(batch);
    }
    plim_loader_release(loader);
    return plim__ledger_peak(place->job.ledger);
}

/* What of the plan stood on the ledger before: accounts of the process and the open dataset. */
static int64_t held_before(const test_place_t *place, const plim__load_plan_t *plan)
{
    plim_account_info_t infos[PLIM__PLAN_ACCOUNTS];
    int count = plim__ledger_accounts(place->job.ledger, PLIM__PLAN_ACCOUNTS, infos);
    int64_t held = 0;
    for (int i = 0; i < plan->num_accounts; i++)
        for (int j = 0; j < count; j++)
            if (strcmp(plan->accounts[i].name, infos[j].name) == 0 && infos[j].reserved > 0)
                held += plan->accounts[i].bytes;
    return held;
}

static plim_plan_params_t random_wanted(uint64_t key)
{
    plim_plan_params_t wanted = {0};
    uint64_t counter = 100;
    wanted.topology = (plim_place_t)plim__rng_below(key, &counter, 3);
    wanted.rows = (plim_place_t)plim__rng_below(key, &counter, 3);
    wanted.num_slots = (int)plim__rng_below(key, &counter, 4);
    wanted.window = (int64_t)plim__rng_below(key, &counter, 5);
    wanted.part_seeds = 5 * (int64_t)plim__rng_below(key, &counter, 9);
    wanted.row_cache = (int64_t)plim__rng_below(key, &counter, 3) - 1;
    wanted.list_cache = (int64_t)plim__rng_below(key, &counter, 3) - 1;
    if (wanted.row_cache == 1)
        wanted.row_cache = 10000;
    if (wanted.list_cache == 1)
        wanted.list_cache = 2000;
    return wanted;
}

/*
 * Random recipes, wanted and lines: what the plan accepts runs inside its total and gives the
 * batches of an unbounded run; what it refuses is below its least line.
 */
static void test_runs_stay_inside_their_plans(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    for (uint64_t round = 0; round < 12; round++) {
        uint64_t key = plim__rng_key(7, round, 0, 0), counter = 0;
        const test_graph_t graph = {.num_nodes =
                                        200 + (int64_t)plim__rng_below(key, &counter, 3000),
                                    .num_features = 1 + (int64_t)plim__rng_below(key, &counter, 40),
                                    .num_classes = 5,
                                    .half = plim__rng_below(key, &counter, 2) == 1,
                                    .seed = round};
        test_place_t free_place = test_place_open(&graph, PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
        plim_recipe_t recipe = small_recipe();
        recipe.batch_size = 1 + (int64_t)plim__rng_below(key, &counter, 200);
        recipe.num_hops = round == 5 ? 0 : 1 + (int)plim__rng_below(key, &counter, 3);
        recipe.degrees = round % 3 == 0;
        recipe.fanout[2] = plim__rng_below(key, &counter, 2) == 1 ? -1 : 4;
        recipe.form = plim__rng_below(key, &counter, 3) == 0 ? PLIM_PYG : PLIM_NATIVE;
        recipe.edge_index = recipe.edge_ids = recipe.form == PLIM_PYG;
        recipe.seed = round;
        plim__load_plan_t plan;
        uint64_t expected, hash;
        assert_ok(plim__load_plan(&free_place.job, free_place.dataset, &recipe, NULL, &plan));
        (void)run_epoch(&free_place, &plan, &expected);
        int64_t least = plan.minimum;
        for (int64_t more = 0; more < 4; more++) {
            int threads = 1 + (int)plim__rng_below(key, &counter, 3);
            plim_plan_params_t wanted = random_wanted(plim__rng_key(key, round, (uint64_t)more, 0));
            if (recipe.form == PLIM_PYG)
                wanted.part_seeds = 0;
            test_place_t place = free_place;
            place.job = test_job_make(least + (more * more * 3 - 1) * 2 * MIB, threads,
                                      more % 2 == 0 ? PLIM_IO_AUTO : PLIM_IO_THREADS);
            assert_ok(plim_dataset_open(&place.job, place.path, &place.dataset));
            plim_status_t status =
                plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan);
            if (status == PLIM_OK) {
                check_sums(&plan);
                int64_t before = plim__ledger_reserved(place.job.ledger);
                int64_t peak = run_epoch(&place, &plan, &hash);
                assert_true(peak - before <= plan.total - held_before(&place, &plan));
                assert_int_equal(hash, expected);
            } else {
                assert_int_equal(status, PLIM_ERR_BUDGET);
                assert_non_null(strstr(plim_last_error(), "`memory`"));
            }
            plim_dataset_release(place.dataset);
            test_job_end(&place.job);
        }
        test_place_close(&free_place);
    }
}

/* Without hops the graph itself is not needed: it takes no memory to speak of. */
static void test_seeds_alone_need_no_lists(void **state)
{
    static const test_graph_t graph = {.num_nodes = 200000, .num_features = 2, .num_classes = 3};
    (void)state;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    recipe.num_hops = 0;
    plim__load_plan_t plan;
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, NULL, &plan));
    check_sums(&plan);
    assert_true(plan.rows_in_memory && !plan.topology_in_memory);
    assert_int_equal(plan.window_steps, 0);
    assert_int_equal(plan.slot_nodes, recipe.batch_size);
    for (int i = 0; i < plan.num_accounts; i++)
        assert_true(strcmp(plan.accounts[i].name, "list cache") != 0 &&
                    strcmp(plan.accounts[i].name, "window") != 0);
    test_place_close(&place);
}

static void test_least_line_is_exact(void **state)
{
    static const test_graph_t graph = {.num_nodes = 4000, .num_features = 64, .num_classes = 3};
    (void)state;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    for (int form = 0; form < 2; form++) {
        plim_recipe_t recipe = small_recipe();
        recipe.form = form == 0 ? PLIM_NATIVE : PLIM_PYG;
        for (plim_place_t where = PLIM_PLACE_AUTO; where <= PLIM_PLACE_DISK; where++) {
            plim_plan_params_t wanted = {.topology = where, .rows = where};
            plim__load_plan_t plan, other;
            assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
            wanted.memory = plan.minimum;
            assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &other));
            check_sums(&other);
            assert_int_equal(other.minimum, plan.minimum);
            assert_int_equal(other.total, plan.minimum);
            wanted.memory = plan.minimum - 1;
            assert_int_equal(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &other),
                             PLIM_ERR_BUDGET);
            char text[64];
            const int64_t enough = (plan.minimum - 1) / MIB + 1;
            (void)snprintf(text, sizeof text, "`memory` to %lldM", (long long)enough);
            assert_non_null(strstr(plim_last_error(), text));
        }
    }
    test_place_close(&place);
}

/* From refused to plenty: once it fits it always fits, with never less in memory. */
static void test_more_memory_never_hurts(void **state)
{
    static const test_graph_t graph = {.num_nodes = 60000, .num_features = 128, .num_classes = 3};
    (void)state;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    bool fitted = false, topology = false, rows = false;
    for (int64_t memory = 4 * MIB; memory < 256 * MIB; memory += 2 * MIB) {
        const plim_plan_params_t wanted = {.memory = memory};
        plim__load_plan_t plan;
        plim_status_t status = plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan);
        assert_true(status == PLIM_OK || (status == PLIM_ERR_BUDGET && !fitted));
        if (status != PLIM_OK)
            continue;
        fitted = true;
        check_sums(&plan);
        assert_true(plan.num_slots >= 1 && plan.slot_nodes >= 1);
        assert_true(plan.rows_in_memory || !rows);
        assert_true(plan.topology_in_memory || !topology);
        rows = plan.rows_in_memory;
        topology = plan.topology_in_memory;
    }
    assert_true(rows && topology);
    test_place_close(&place);
}

static int count_files(const char *path)
{
    int count = 0;
    DIR *directory = opendir(path);
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        count += entry->d_name[0] != '.';
    (void)closedir(directory);
    return count;
}

/* A process takes a little more or less at each start: the row cache stays as large. Loaders that
 * make a working set, and that find it, stay within the plan. */
static void test_packed_rows_outlast_the_process(void **state)
{
    static const test_graph_t graph = {.num_nodes = 60000, .num_features = 128, .num_classes = 3};
    static const int64_t starts[] = {900, 900, 500, 700, 1000, 1100, 1300}; /* KiB, by others */
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    const plim_recipe_t recipe = small_recipe();
    char scratch[600];
    (void)snprintf(scratch, sizeof scratch, "%s/scratch", place.directory);
    assert_int_equal(mkdir(scratch, 0700), 0);
    const plim_plan_params_t wanted = {
        .topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK, .scratch = scratch};
    const int64_t held = 64 * MIB, line = held + 100 * MIB;
    size_t kept = 0;
    for (size_t i = 0; i < sizeof starts / sizeof starts[0]; i++) {
        plim_job_t job = test_job_make(line, 2, PLIM_IO_AUTO);
        plim_dataset_t *dataset;
        plim_loader_t *loader;
        plim__load_plan_t plan;
        int account;
        assert_ok(plim_dataset_open(&job, place.path, &dataset));
        const int64_t own =
            plim__ledger_reserved(job.ledger) - plim__ledger_reserve_bytes(job.ledger);
        assert_ok(plim__ledger_reserve(job.ledger, "heap", (size_t)(held + (starts[i] << 10) - own),
                                       &account));
        assert_ok(plim__load_plan(&job, dataset, &recipe, &wanted, &plan));
        check_sums(&plan);
        assert_true(plan.working.rows > 0 && plan.working.lists > 0);
        assert_int_equal(count_files(scratch), i > 0);
        if (i == 0)
            kept = plan.row_cache_bytes;
        if (i < 2) {
            assert_ok(plim__loader_create(&job, dataset, &plan, &loader));
            assert_true(plim__ledger_peak(job.ledger) <= plan.total);
            plim_loader_release(loader);
        }
        assert_true(kept > 0 && plan.row_cache_bytes == kept);
        plim_dataset_release(dataset);
        test_job_end(&job);
    }
    assert_int_equal(count_files(scratch), 1);
    test_place_close(&place);
}

/* When the working set in this directory was made. */
static struct timespec time_of_set(const char *path)
{
    DIR *directory = opendir(path);
    struct stat about = {.st_size = 0};
    assert_non_null(directory);
    for (const struct dirent *entry; (entry = readdir(directory)) != NULL;)
        if (strncmp(entry->d_name, "working-set-", 12) == 0)
            assert_int_equal(fstatat(dirfd(directory), entry->d_name, &about, 0), 0);
    (void)closedir(directory);
    return about.st_mtim;
}

/* Makes a loader; it finds the working set that was made at `made`, if that is not NULL. */
static void load_with_set(const test_place_t *place, const plim__load_plan_t *plan,
                          const struct timespec *made)
{
    plim_loader_t *loader;
    assert_ok(plim__loader_create(&place->job, place->dataset, plan, &loader));
    plim_loader_release(loader);
    const struct timespec now = time_of_set(place->directory);
    assert_true(made == NULL || (now.tv_sec == made->tv_sec && now.tv_nsec == made->tv_nsec));
}

/* Lists that little memory, or a column that decides draws, leaves out take no disk space; a
 * working set that has them serves. */
static void test_disk_space_without_lists(void **state)
{
    static const test_graph_t graph = {.num_nodes = 60000,
                                       .num_features = 128,
                                       .num_classes = 3,
                                       .columns = PLIM_EDGE_WEIGHT,
                                       .drawable = true};
    int found = 0;
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    plim__load_plan_t plan;
    plim_plan_params_t wanted = {
        .topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK, .scratch = place.directory};
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
    assert_true(plan.working.lists > 0);
    const int64_t rows = plan.working.rows, minimum = plan.minimum;
    const int64_t bytes =
        plim__working_set_bytes(place.dataset, (plim__working_size_t){.rows = rows});
    assert_true(plan.scratch_bytes > bytes);
    load_with_set(&place, &plan, NULL);
    const struct timespec made = time_of_set(place.directory);
    for (wanted.memory = minimum; found == 0 && wanted.memory < minimum + 16 * MIB;
         wanted.memory += MIB / 8) {
        assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
        if (plan.working.rows == 0 || plan.working.lists > 0)
            continue;
        found++;
        assert_int_equal(plan.working.rows, rows);
        assert_int_equal(plan.scratch_bytes - plan.bucket_bytes, bytes);
        load_with_set(&place, &plan, &made);
    }
    assert_true(found > 0);
    wanted.memory = 0;
    recipe.draw_by = PLIM_EDGE_WEIGHT;
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
    assert_true(plan.working.rows > 0 && plan.working.lists == 0);
    assert_int_equal(plan.scratch_bytes, bytes);
    load_with_set(&place, &plan, &made);
    test_place_close(&place);
}

/* Where an epoch has several windows they are drawn ahead, within the line. */
static void test_drawn_ahead(void **state)
{
    static const test_graph_t graph = {
        .num_nodes = 400000, .num_features = 64, .num_classes = 3, .drawable = true};
    int found = 0;
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    plim__load_plan_t plan;
    plim_plan_params_t wanted = {
        .topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK, .scratch = place.directory};
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
    const int64_t minimum = plan.minimum;
    for (wanted.memory = minimum; wanted.memory < minimum + 96 * MIB; wanted.memory += MIB) {
        assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
        assert_in_range(plan.total, 1, wanted.memory);
        if (plan.ahead_draws == 0)
            continue;
        found++;
        assert_true(plan.working.rows > 0 && plan.ahead_rows > 0);
        assert_true(plan.scratch_bytes >= plan.bucket_bytes && plan.bucket_bytes > 0);
    }
    print_message("%d lines draw ahead\n", found);
    assert_true(found > 0);
    test_place_close(&place);
}

/* Draws by times of edges, with times of nodes on disk: those of an epoch's seeds are read. */
static void test_own_times_are_read(void **state)
{
    static const test_graph_t graph = {.num_nodes = 200000,
                                       .num_features = 8,
                                       .num_classes = 3,
                                       .columns = PLIM_EDGE_TIME | PLIM_NODE_TIME,
                                       .drawable = true};
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    plim__load_plan_t own;
    plim_plan_params_t wanted = {.topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK};
    recipe.disjoint = true;
    recipe.draw_by = PLIM_EDGE_TIME;
    recipe.own_times = true;
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &own));
    wanted.memory = own.minimum;
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &own));
    assert_false(own.columns_in_memory & PLIM_NODE_TIME);
    plim__load_plan_t given = own;
    given.recipe.own_times = false;
    plim__load_expect(place.dataset, &given);
    assert_true(own.expect.epoch_reads > given.expect.epoch_reads);
    assert_true(own.expect.epoch_read_bytes > given.expect.epoch_read_bytes);
    test_place_close(&place);
}

static void test_what_is_wanted_is_kept(void **state)
{
    static const test_graph_t graph = {.num_nodes = 5000, .num_features = 32, .num_classes = 3};
    (void)state;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    plim_plan_params_t wanted = {.num_slots = 3,
                                 .window = 7,
                                 .topology = PLIM_PLACE_DISK,
                                 .rows = 2,
                                 .row_cache = 100000,
                                 .list_cache = -1};
    plim__load_plan_t plan;
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
    assert_int_equal(plan.num_slots, 3);
    assert_int_equal(plan.window_steps, 7);
    assert_false(plan.topology_in_memory);
    assert_false(plan.rows_in_memory);
    assert_int_equal(plan.row_cache_bytes, 100000);
    assert_int_equal(plan.list_cache_bytes, 0);
    wanted = (plim_plan_params_t){.topology = PLIM_PLACE_MEMORY, .rows = PLIM_PLACE_MEMORY};
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
    assert_true(plan.topology_in_memory && plan.rows_in_memory);
    const int64_t whole = plan.slot_nodes;
    wanted = (plim_plan_params_t){.part_seeds = 8};
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
    assert_int_equal(plan.part_seeds, 8);
    assert_int_equal(plan.slot_nodes, whole / 4); /* of a batch of 32 */
    wanted = (plim_plan_params_t){.rows = 1, .memory = 16 * MIB, .num_slots = 64};
    recipe.batch_size = 1 << 20;
    recipe.fanout[0] = -1;
    recipe.fanout[1] = -1;
    wanted.row_cache = 0;
    recipe.form = PLIM_PYG;
    assert_int_equal(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan),
                     PLIM_ERR_BUDGET);
    test_place_close(&place);
}

/* Steps of the last window, once windows have found their size. */
static int64_t window_steps(const test_place_t *place, const plim__load_plan_t *plan,
                            int64_t *steps_out)
{
    plim_loader_t *loader;
    plim_batch_t *batch;
    plim_load_stats_t stats = PLIM_LOAD_STATS_INIT;
    assert_ok(plim__loader_create(&place->job, place->dataset, plan, &loader));
    for (int64_t epoch = 0; epoch < 8; epoch++) {
        assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), epoch, 0));
        while ((batch = test_next(test_stream(loader, PLIM_TRAIN))) != NULL) {
            plim_batch_release(batch);
        }
    }
    plim_loader_stats(loader, &stats);
    *steps_out = plim__stream_steps(test_stream(loader, PLIM_TRAIN));
    plim_loader_release(loader);
    return stats.window_steps;
}

/* With memory for it a window holds an epoch, in PyG's form too, for which it draws more than the
 * batches need. */
static void test_a_window_holds_an_epoch(void **state)
{
    static const test_graph_t graph = {.num_nodes = 20000, .num_features = 8, .num_classes = 3};
    (void)state;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    for (int form = PLIM_NATIVE; form <= PLIM_PYG; form++) {
        const plim_plan_params_t wanted = {
            .topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK, .row_cache = 16 * MIB};
        plim_recipe_t recipe = small_recipe();
        plim__load_plan_t plan;
        int64_t steps, window;
        recipe.form = form;
        recipe.num_hops = 3;
        recipe.fanout[2] = 4;
        assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
        window = window_steps(&place, &plan, &steps);
        assert_int_equal(window, steps);
    }
    test_place_close(&place);
}

/* A batch larger than every split is an epoch, and takes the room of one. */
static void test_a_batch_is_at_most_an_epoch(void **state)
{
    (void)state;
    for (int graphs = 0; graphs < 2; graphs++) {
        const test_graph_t graph = {
            .num_nodes = 3000, .num_features = 8, .num_classes = 3, .graphs = graphs == 1};
        test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
        plim_recipe_t recipe = small_recipe();
        plim__load_plan_t plan, larger;
        uint64_t hash, other;
        recipe.num_hops = graphs == 1 ? 0 : 2;
        recipe.batch_size = plim__load_largest_split(plim_dataset_info(place.dataset));
        assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, NULL, &plan));
        recipe.batch_size = INT32_MAX;
        assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, NULL, &larger));
        assert_int_equal(larger.total, plan.total);
        if (graphs == 0) {
            (void)run_epoch(&place, &plan, &hash);
            (void)run_epoch(&place, &larger, &other);
            assert_int_equal(other, hash);
        }
        test_place_close(&place);
    }
}

/* A small graph does not get large slots, however much memory there is. */
static void test_slots_are_in_proportion(void **state)
{
    static const test_graph_t graph = {.num_nodes = 3000, .num_features = 1000, .num_classes = 3};
    (void)state;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 8, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    plim__load_plan_t plan;
    plim__loader_params_t parts;
    recipe.batch_size = 1024;
    recipe.fanout[0] = recipe.fanout[1] = -1;
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, NULL, &plan));
    plim__loader_params_find(&place.job, place.dataset, &plan, &parts);
    assert_true(plan.num_slots >= 2);
    assert_true(plan.num_slots == 2 || plim__slots_estimate(&plan, &parts) <= 16 * MIB);
    assert_true(plan.slot_nodes <= 3000);
    assert_true(plan.slot_edges <=
                2 * (plim_dataset_info(place.dataset)->num_edges + plan.slot_nodes + 1));
    recipe.batch_size = 8;
    recipe.fanout[0] = recipe.fanout[1] = 2;
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, NULL, &plan));
    assert_true(plan.num_slots > 8);
    test_place_close(&place);
}

/* No room is left over while rows could be kept in it, once what fills them fits at all. */
static void test_room_is_used(void **state)
{
    static const test_graph_t graph = {.num_nodes = 60000, .num_features = 128, .num_classes = 3};
    (void)state;
    test_skip_sanitized(
        "a sixteenth of the line is more than the row cache beside what the sanitizer takes");
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    plim__load_plan_t least, plan;
    plim_plan_params_t wanted = {
        .topology = PLIM_PLACE_MEMORY, .rows = PLIM_PLACE_DISK, .row_cache = 2 * MIB};
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &least));
    wanted.row_cache = 0;
    for (int64_t more = 4; more < 14; more += 2) {
        wanted.memory = least.minimum + more * MIB;
        assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
        check_sums(&plan);
        assert_true(plan.row_cache_bytes > 0);
        assert_true(plan.line - plan.total < plan.line / 16);
    }
    test_place_close(&place);
}

static void hear(void *user, plim_log_level_t level, const char *message)
{
    (void)level;
    (void)snprintf(user, 256, "%s", message);
}

/* A plan for batches in parts says how many, and what line would have them whole: it does. */
static void test_parts_are_foretold(void **state)
{
    static const test_graph_t graph = {.num_nodes = 60000, .num_features = 128, .num_classes = 3};
    (void)state;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_AUTO);
    plim_recipe_t recipe = small_recipe();
    plim_plan_params_t wanted = {.topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK};
    plim__load_plan_t plan;
    char logged[256] = "";
    recipe.batch_size = 8192;
    plim_job_t job = place.job;
    job.log = hear;
    job.user = logged;
    assert_ok(plim__load_plan(&job, place.dataset, &recipe, &wanted, &plan));
    assert_null(strstr(logged, "parts"));
    wanted.memory = plan.minimum + MIB;
    assert_ok(plim__load_plan(&job, place.dataset, &recipe, &wanted, &plan));
    plim__job_deliver(&job);
    const char *remark = strstr(logged, "`memory` ");
    assert_non_null(remark);
    wanted.memory = strtoll(remark + strlen("`memory` "), NULL, 10) * MIB;
    logged[0] = '\0';
    assert_ok(plim__load_plan(&job, place.dataset, &recipe, &wanted, &plan));
    plim__job_deliver(&job);
    assert_null(strstr(logged, "parts"));
    test_place_close(&place);
}

/* A machine may have more threads than a loader uses. */
static void test_more_threads_than_are_used(void **state)
{
    static const test_graph_t graph = {.num_nodes = 300, .num_features = 8, .num_classes = 3};
    (void)state;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 300, PLIM_IO_AUTO);
    const plim_recipe_t recipe = small_recipe();
    plim_plan_params_t wanted = {.topology = PLIM_PLACE_MEMORY, .rows = PLIM_PLACE_MEMORY};
    plim__load_plan_t plan;
    plim__loader_params_t parts;
    uint64_t hash;
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
    assert_int_equal(plan.workers, PLIM__THREADS_MAX);
    (void)run_epoch(&place, &plan, &hash);
    wanted = (plim_plan_params_t){.topology = PLIM_PLACE_DISK, .rows = PLIM_PLACE_DISK};
    assert_ok(plim__load_plan(&place.job, place.dataset, &recipe, &wanted, &plan));
    plim__loader_params_find(&place.job, place.dataset, &plan, &parts);
    assert_int_equal(parts.builders, PLIM__THREADS_MAX);
    test_place_close(&place);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recipes_that_cannot_be),
        cmocka_unit_test(test_recipes_for_many_graphs),
        cmocka_unit_test(test_no_training_split),
        cmocka_unit_test(test_caches_without_training_split),
        cmocka_unit_test(test_runs_stay_inside_their_plans),
        cmocka_unit_test(test_seeds_alone_need_no_lists),
        cmocka_unit_test(test_least_line_is_exact),
        cmocka_unit_test(test_more_memory_never_hurts),
        cmocka_unit_test(test_packed_rows_outlast_the_process),
        cmocka_unit_test(test_disk_space_without_lists),
        cmocka_unit_test(test_drawn_ahead),
        cmocka_unit_test(test_own_times_are_read),
        cmocka_unit_test(test_what_is_wanted_is_kept),
        cmocka_unit_test(test_a_window_holds_an_epoch),
        cmocka_unit_test(test_a_batch_is_at_most_an_epoch),
        cmocka_unit_test(test_slots_are_in_proportion),
        cmocka_unit_test(test_room_is_used),
        cmocka_unit_test(test_parts_are_foretold),
        cmocka_unit_test(test_more_threads_than_are_used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
