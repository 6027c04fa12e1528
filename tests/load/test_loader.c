/*
 * The loader's stream: batches are what the files say, and one stream, however it is made.
 */
/* labels: plain tsan unprivileged */
#include "load/loader.h"
#include "support/harness.h"
#include "support/loader.h"

#include <stdlib.h>

static void batches_are_what_the_files_say(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    for (int variant = 0; variant < 9; variant++) {
        plim_recipe_t recipe = test_two_hops;
        recipe.index_type = variant % 2 == 0 ? PLIM_I32 : PLIM_I64;
        recipe.row_type = variant % 3 == 0 ? PLIM_F16 : PLIM_F32;
        recipe.form = variant == 4 || variant >= 6 ? PLIM_PYG : PLIM_NATIVE;
        recipe.replace = variant == 5 || variant == 6;
        recipe.edge_index = variant == 6 || variant == 7;
        recipe.edge_ids = variant >= 7;
        if (variant == 7) {
            recipe.num_hops = 3;
            recipe.fanout[1] = -1;
            recipe.fanout[2] = 2;
        }
        recipe.degrees = variant != 2;
        plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 2);
        plim_loader_t *loader;
        plim_batch_t *batch;
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        for (int split = 0; split < 3; split++) {
            char *seen = calloc(TEST_NODES, 1);
            int64_t seeds = 0, steps = 0;
            assert_ok(plim_stream_start(test_stream(loader, split), 3, 0));
            for (;; steps++) {
                assert_ok(plim_stream_next(test_stream(loader, split), -1, &batch));
                if (batch == NULL)
                    break;
                assert_int_equal(batch->epoch, 3);
                assert_int_equal(batch->step, steps);
                assert_true(batch->last_part && batch->first_seed == 0);
                test_check_batch(&fixture, &recipe, batch);
                for (int64_t i = 0; i < batch->num_seeds; i++, seeds++) {
                    int64_t node = test_index_at(&recipe, batch->nodes, i);
                    assert_int_equal(node % 3, split);
                    assert_int_equal(seen[node]++, 0);
                    if (split != PLIM_TRAIN)
                        assert_int_equal(node, fixture.splits[split][seeds]);
                }
                plim_batch_release(batch);
            }
            assert_int_equal(seeds, fixture.info->num_split[split]);
            assert_int_equal(steps, plim__stream_steps(test_stream(loader, split)));
            free(seen);
        }
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

static void *reserve_elsewhere(void *ledger)
{
    int account;
    assert_ok(plim__ledger_reserve(ledger, "elsewhere", 1000000, &account));
    return NULL;
}

/* While a loader is made, another thread reserves memory under the same job. */
static void meanwhile(void *user, const plim_progress_t *progress)
{
    pthread_t thread;
    (void)progress;
    assert_int_equal(pthread_create(&thread, NULL, reserve_elsewhere, user), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void knows_its_own_bytes(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(1);
    plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 1, 4);
    plan.row_cache_bytes = TEST_NODES / 2 * 16;
    plim_loader_t *loader;
    fixture.job.progress = meanwhile;
    fixture.job.user = fixture.job.ledger;
    const int64_t before = plim__ledger_reserved(fixture.job.ledger);
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
    const int64_t taken = plim__ledger_reserved(fixture.job.ledger) - before;
    assert_true(taken - loader->bytes >= 1000000);
    assert_int_equal((taken - loader->bytes) % 1000000, 0);
    plim_loader_release(loader);
    test_loader_close(&fixture);
}

static void the_stream_is_one(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    test_loader_t threads =
        test_loader_open("test_plain_graph", &test_plain_graph, 2, PLIM_IO_THREADS);
    int64_t whole, parts;
    plim__load_plan_t plan = test_plan_memory(fixture.info, &test_two_hops, 1);
    const uint64_t expected = test_hash_of(&fixture, &plan, &whole);
    for (int workers = 1; workers <= 8; workers *= TEST_SANITIZED ? 8 : 2)
        for (int slots = 1; slots <= 5; slots += TEST_SANITIZED ? 4 : 2) {
            plan = test_plan_memory(fixture.info, &test_two_hops, workers);
            plan.num_slots = slots;
            assert_true(test_hash_of(&fixture, &plan, &parts) == expected);
            assert_int_equal(parts, whole);
            plan.part_seeds = 10; /* of 48; the last batch has fewer */
            assert_true(test_hash_of(&fixture, &plan, &parts) == expected);
            assert_in_range(parts, 4 * whole, 5 * whole);
            plan.slot_nodes = 100; /* most batches do not fit, nor do some of these parts */
            assert_true(test_hash_of(&fixture, &plan, &parts) == expected);
            assert_true(parts > 5 * whole);
            plan.part_seeds = 0;
            assert_true(test_hash_of(&fixture, &plan, &parts) == expected);
            assert_true(parts > 2 * whole);
        }
    for (int mode = 0; mode < 24; mode += TEST_SANITIZED ? 7 : 1) {
        static const int64_t windows[] = {1, 3, 1000};
        static const size_t cached[] = {0, 20000, (size_t)1 << 20};
        plan = test_plan_disk(fixture.info, &test_two_hops, mode % 3 + 1, windows[mode % 3]);
        plan.topology_in_memory = mode / 6 == 1;
        plan.rows_in_memory = mode / 6 == 2;
        plan.num_slots = mode % 5 + 1;
        plan.list_cache_bytes = cached[mode / 3 % 3];
        plan.row_cache_bytes = cached[(mode + 1) / 3 % 3];
        plan.window_sparse = mode % 2 == 1;
        plan.offsets_on_disk =
            !plan.topology_in_memory && plan.list_cache_bytes == 0 && plan.row_cache_bytes == 0;
        plan.part_seeds = mode % 4 == 2 ? 7 : 0;
        if (mode / 6 == 3)
            plan.slot_nodes = 100;
        assert_true(test_hash_of(mode % 2 == 0 ? &fixture : &threads, &plan, &parts) == expected);
        assert_true(plan.slot_nodes == 100 || plan.part_seeds > 0 ? parts > whole : parts == whole);
    }
    test_loader_close(&threads);
    test_loader_close(&fixture);
}

/* Seeds of each part of an epoch, and their number. */
static int64_t parts_of(test_loader_t *fixture, const plim__load_plan_t *plan, int64_t *seeds_out)
{
    plim_loader_t *loader;
    plim_batch_t *batch;
    int64_t count = 0;
    assert_ok(plim__loader_create(&fixture->job, fixture->dataset, plan, &loader));
    assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 0, 0));
    while ((batch = test_next(test_stream(loader, PLIM_TRAIN))) != NULL) {
        assert_true(batch->num_seeds == 1 || batch->num_nodes <= plan->part_nodes);
        assert_true(count < 1000);
        seeds_out[count++] = batch->num_seeds;
        plim_batch_release(batch);
    }
    plim_loader_release(loader);
    return count;
}

/* What a part may need is the plan's, not a slot's: the order of additions follows from it. */
static void larger_slots_cut_alike(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    const plim__load_plan_t roomy = test_plan_memory(fixture.info, &test_two_hops, 1);
    int64_t expected[1000], seeds[1000];
    plim__load_plan_t plan = roomy;
    plan.part_nodes = 150;
    plan.part_edges = roomy.slot_edges;
    const int64_t count = parts_of(&fixture, &plan, expected);
    assert_true(count > fixture.info->num_split[PLIM_TRAIN] / 48 + 1);
    for (int workers = 1; workers <= 3; workers++)
        for (int64_t nodes = 150; nodes <= roomy.slot_nodes; nodes *= 2) {
            plan.workers = workers;
            plan.slot_nodes = nodes;
            assert_int_equal(parts_of(&fixture, &plan, seeds), count);
            assert_memory_equal(seeds, expected, (size_t)count * sizeof *seeds);
        }
    plan.part_nodes = 1; /* one seed is never too many */
    assert_int_equal(parts_of(&fixture, &plan, seeds), fixture.info->num_split[PLIM_TRAIN]);
    test_loader_close(&fixture);
}

/* Degrees are the whole graph's, wherever lists lie, and leave the stream as it is. */
static void degrees_come_from_every_source(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    int64_t whole, parts;
    plim__load_plan_t plan = test_plan_memory(fixture.info, &test_two_hops, 1);
    const uint64_t expected = test_hash_of(&fixture, &plan, &whole);
    for (int mode = 0; mode < 10; mode += TEST_SANITIZED ? 3 : 1) {
        plim_loader_t *loader;
        plim_batch_t *batch;
        plan = mode < 8 ? test_plan_disk(fixture.info, &test_two_hops, 2, 3)
                        : test_plan_ahead(fixture.info, &test_two_hops, 2, 600);
        plan.recipe.degrees = true;
        plan.topology_in_memory = mode % 2 == 0;
        plan.rows_in_memory = mode / 2 % 2 == 0 && mode < 8;
        plan.offsets_on_disk = !plan.topology_in_memory && mode >= 4 && mode < 8;
        plan.window_draws = mode == 5 ? 100 : plan.window_draws; /* no batch fits a window */
        plan.slot_nodes = mode == 6 ? 100 : plan.slot_nodes;
        assert_true(test_hash_of(&fixture, &plan, &parts) == expected);
        loader = test_loader_start(&fixture, &plan);
        while ((batch = test_next(test_stream(loader, PLIM_TRAIN))) != NULL) {
            test_check_degrees(&fixture, &plan.recipe, batch);
            plim_batch_release(batch);
        }
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

/* The edges of all hops are one array of the blocks' own memory, and know their places in the
 * files, wherever lists lie. */
static void edges_come_from_every_source(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    plim_recipe_t recipe = test_two_hops;
    recipe.form = PLIM_PYG;
    recipe.index_type = PLIM_I64;
    int64_t whole, parts;
    plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 1);
    const uint64_t expected = test_hash_of(&fixture, &plan, &whole);
    recipe.edge_index = recipe.edge_ids = true;
    for (int mode = 0; mode < 8; mode += TEST_SANITIZED ? 5 : 1) {
        plim_batch_t *batch;
        plan = mode < 6 ? test_plan_disk(fixture.info, &recipe, 2, 3)
                        : test_plan_ahead(fixture.info, &recipe, 2, 600);
        plan.topology_in_memory = mode % 2 == 0;
        plan.rows_in_memory = mode / 2 % 2 == 0 && mode < 6;
        plan.offsets_on_disk = !plan.topology_in_memory && mode >= 4 && mode < 6;
        plan.window_draws = mode == 5 ? 100 : plan.window_draws; /* no batch fits a window */
        assert_true(test_hash_of(&fixture, &plan, &parts) == expected && parts == whole);
        plim_loader_t *loader = test_loader_start(&fixture, &plan);
        while ((batch = test_next(test_stream(loader, PLIM_TRAIN))) != NULL) {
            const int64_t *sources = batch->edge_index;
            test_check_batch(&fixture, &recipe, batch);
            assert_true(batch->blocks[0].indices == sources);
            assert_true(batch->blocks[1].indices == sources + batch->blocks[0].num_edges);
            plim_batch_release(batch);
        }
        plim_loader_release(loader);
    }
    recipe.form = PLIM_NATIVE;
    plan = test_plan_memory(fixture.info, &recipe, 1);
    plim_loader_t *loader;
    assert_int_equal(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader),
                     PLIM_ERR_USAGE);
    test_loader_close(&fixture);
}

/* Recipes of every kind, from memory and from windows. */
static void every_recipe_is_one_stream(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    for (int variant = 0; variant < 6; variant++) {
        plim_recipe_t recipe = test_two_hops;
        recipe.form = variant == 0 || variant == 3 ? PLIM_PYG : PLIM_NATIVE;
        recipe.replace = variant == 1;
        recipe.fanout[1] = variant == 2 || variant == 3 ? -1 : 3;
        recipe.num_hops = variant == 4 ? 3 : variant == 5 ? 0 : 2;
        recipe.fanout[2] = 2;
        recipe.no_features = variant == 1;
        recipe.index_type = variant % 2 == 0 ? PLIM_I64 : PLIM_I32;
        recipe.row_type = variant < 3 ? PLIM_F16 : PLIM_F32;
        int64_t whole, parts;
        plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 2);
        const uint64_t expected = test_hash_of(&fixture, &plan, &whole);
        plan = test_plan_disk(fixture.info, &recipe, 2, 5);
        plan.row_cache_bytes = plan.list_cache_bytes = 20000;
        assert_true(test_hash_of(&fixture, &plan, &parts) == expected);
        assert_int_equal(parts, whole);
        plan.recipe.seed++;
        if (recipe.num_hops > 0)
            assert_true(test_hash_of(&fixture, &plan, &parts) != expected);
    }
    test_loader_close(&fixture);
}

static void any_step_continues_the_stream(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    for (int mode = 0; mode < 4; mode++) {
        plim__load_plan_t plan = mode < 3 ? test_plan_disk(fixture.info, &test_two_hops, 2, 4)
                                          : test_plan_ahead(fixture.info, &test_two_hops, 2, 600);
        plan.topology_in_memory = plan.rows_in_memory = mode == 0;
        plan.slot_nodes = mode == 2 ? 100 : plan.slot_nodes;
        plan.part_seeds = mode == 1 ? 20 : 0;
        plim_loader_t *loader;
        plim_batch_t *batch;
        int64_t parts = 0;
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        const int64_t steps = plim__stream_steps(test_stream(loader, PLIM_TRAIN));
        const uint64_t expected = test_hash_from(loader, PLIM_TRAIN, 5, 0, 0, &parts);
        for (int64_t cut = 0; cut <= steps; cut += 1 + cut / 2) {
            uint64_t hash = 0;
            /* Some of another stream first, then this one up to the cut, in the middle of windows
             * and of what was built ahead. */
            assert_ok(plim_stream_start(test_stream(loader, cut % 3), cut, cut % 2));
            for (int i = 0; i < cut % 4; i++) {
                assert_ok(plim_stream_next(test_stream(loader, cut % 3), -1, &batch));
                plim_batch_release(batch);
            }
            assert_ok(plim_stream_start(test_stream(loader, PLIM_TRAIN), 5, 0));
            for (int64_t step = 0; step < cut;) {
                assert_ok(plim_stream_next(test_stream(loader, PLIM_TRAIN), -1, &batch));
                assert_int_equal(batch->step, step);
                hash = plim_loader_hash(loader, batch, hash);
                step += batch->last_part;
                plim_batch_release(batch);
            }
            assert_true(test_hash_from(loader, PLIM_TRAIN, 5, cut, hash, &parts) == expected);
        }
        assert_int_equal(plim_stream_start(test_stream(loader, PLIM_TRAIN), 0, steps + 1),
                         PLIM_ERR_USAGE);
        assert_int_equal(plim_stream_start(test_stream(loader, PLIM_TRAIN), -1, 0), PLIM_ERR_USAGE);
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

/* What it says it did, against what came out of it. */
static void counts_what_it_does(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    for (int mode = 0; mode < 3; mode++) {
        plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 2, 1000);
        plan.topology_in_memory = plan.rows_in_memory = mode == 0;
        plan.row_cache_bytes = mode == 2 ? TEST_NODES / 2 * 16 : 0;
        plan.slot_nodes = 400;
        plim_loader_t *loader;
        plim_batch_t *batch;
        plim_load_stats_t stats = PLIM_LOAD_STATS_INIT, expected = {0};
        char *seen = calloc(TEST_NODES, 1);
        int64_t distinct = 0;
        loader = test_loader_start(&fixture, &plan);
        while ((batch = test_next(test_stream(loader, PLIM_TRAIN))) != NULL) {
            expected.parts++;
            expected.batches += batch->last_part;
            expected.nodes += batch->num_nodes;
            for (int i = 0; i < batch->num_blocks; i++)
                expected.edges += batch->blocks[i].num_edges;
            for (int64_t i = 0; i < batch->num_nodes; i++)
                distinct += seen[test_index_at(&plan.recipe, batch->nodes, i)]++ == 0;
            plim_batch_release(batch);
        }
        plim_loader_stats(loader, &stats);
        assert_int_equal(stats.parts, expected.parts);
        assert_int_equal(stats.batches, plim__stream_steps(test_stream(loader, PLIM_TRAIN)));
        assert_int_equal(stats.batches, expected.batches);
        assert_int_equal(stats.nodes, expected.nodes);
        assert_int_equal(stats.edges, expected.edges);
        assert_int_equal(stats.windows, mode != 0);
        if (mode == 0) {
            assert_int_equal(stats.rows, expected.nodes);
            assert_int_equal(stats.rows_cached, stats.rows);
            assert_int_equal(stats.row_transfers + stats.list_transfers, 0);
        } else { /* the next epoch may have been read ahead, but was not served */
            assert_int_equal(stats.window_steps, stats.batches);
            assert_int_equal(stats.rows, distinct);
            assert_true(mode == 1 ? stats.rows_cached == 0
                                  : stats.rows_cached > 0 && stats.rows_cached < distinct);
            assert_true(stats.row_transfers > 0 && stats.list_transfers > 0);
        }
        free(seen);
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

/* Batches too large for a window come from the sources themselves, drawn about once each, and count
 * like others. */
static void batches_without_a_window_are_drawn_once(void **state)
{
    (void)state;
    test_loader_t fixture = test_plain_loader(2);
    for (int mode = 0; mode < 2; mode++) {
        plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 2, 1000);
        plan.window_draws = 700; /* full at the last hop */
        plan.row_cache_bytes = mode == 1 ? TEST_NODES / 2 * 16 : 0;
        plim_batch_t *batch;
        plim_load_stats_t stats = PLIM_LOAD_STATS_INIT;
        int64_t nodes = 0, lists = 0;
        plim_loader_t *loader = test_loader_start(&fixture, &plan);
        while ((batch = test_next(test_stream(loader, PLIM_TRAIN))) != NULL) {
            nodes += batch->num_nodes;
            for (int i = 0; i < batch->num_blocks; i++)
                lists += batch->blocks[i].num_dst;
            plim_batch_release(batch);
        }
        plim_loader_stats(loader, &stats);
        assert_int_equal(stats.windows,
                         plim__stream_steps(test_stream(loader, PLIM_TRAIN))); /* none shared */
        assert_int_equal(stats.rows, nodes);
        assert_true(mode == 0 ? stats.rows_cached == 0
                              : stats.rows_cached > nodes / 4 && stats.rows_cached < nodes);
        assert_in_range(stats.lists, lists, lists + lists / 3);
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_are_what_the_files_say),
        cmocka_unit_test(knows_its_own_bytes),
        cmocka_unit_test(the_stream_is_one),
        cmocka_unit_test(larger_slots_cut_alike),
        cmocka_unit_test(degrees_come_from_every_source),
        cmocka_unit_test(edges_come_from_every_source),
        cmocka_unit_test(every_recipe_is_one_stream),
        cmocka_unit_test(any_step_continues_the_stream),
        cmocka_unit_test(counts_what_it_does),
        cmocka_unit_test(batches_without_a_window_are_drawn_once),
    };
    return cmocka_run_group_tests_name("loader", tests, test_loader_begin, test_loader_end);
}
