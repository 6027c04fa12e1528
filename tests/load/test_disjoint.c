/*
 * Disjoint batches, by brute force: each seed's tree draws by its own keys and shares no node, in
 * native and PyG's form, uniform, by weight and by times of edges or nodes, from memory and disk,
 * with 1 to 8 threads, in parts and in shares: the same bits.
 */
/* labels: asan tsan */
#include "load/loader.h"
#include "plan/load_plan.h"
#include "support/chosen.h"
#include "support/harness.h"
#include "support/loader.h"

#include <string.h>

#define DEGREE_MOST 13
#define BATCH 48
#define SEEDS 200
#define KINDS 24

static const test_graph_t graph = {.num_nodes = TEST_NODES,
                                   .num_features = TEST_FEATURES,
                                   .num_classes = TEST_CLASSES,
                                   .half = true,
                                   .seed = 17,
                                   .columns = PLIM_EDGE_WEIGHT | PLIM_EDGE_TIME | PLIM_NODE_TIME,
                                   .drawable = true};

/* The positions that a tree's node draws from its list; returns their number. */
static int64_t draws_of(const test_loader_t *fixture, const plim_recipe_t *recipe,
                        const plim__hop_t *draw, int64_t owner, int64_t until, int64_t node,
                        int64_t *positions)
{
    const int64_t start = fixture->indptr[node], degree = fixture->indptr[node + 1] - start;
    const bool of_nodes = recipe->draw_by == PLIM_NODE_TIME;
    float weights[DEGREE_MOST];
    int64_t times[DEGREE_MOST];
    for (int64_t k = 0; k < degree; k++) {
        times[k] = test_drawable_value(of_nodes ? fixture->indices[start + k] : start + k);
        weights[k] = (float)times[k];
    }
    if (recipe->draw_by == PLIM_EDGE_WEIGHT &&
        plim__choose_needs(PLIM__CHOOSE_BY_WEIGHT, draw, degree))
        return test_chosen(PLIM__CHOOSE_BY_WEIGHT, draw, owner, weights, degree, 0, positions);
    if (plim__load_by_time(recipe))
        return test_chosen(recipe->latest ? PLIM__CHOOSE_LATEST : PLIM__CHOOSE_UP_TO, draw, owner,
                           times, degree, until, positions);
    plim__draw_positions(plim__draw_key(plim__draw_prefix(draw), owner), draw, degree, positions);
    return plim__draw_count(draw, degree);
}

/* Seeds come first, each in its own tree, and no tree has a node twice. */
static void check_trees(const plim_recipe_t *recipe, const plim_batch_t *batch)
{
    static bool met[BATCH][TEST_NODES];
    memset(met, 0, sizeof met);
    for (int64_t i = 0; i < batch->num_nodes; i++) {
        const int64_t tree = test_index_at(recipe, batch->trees, i);
        const int64_t node = test_index_at(recipe, batch->nodes, i);
        assert_in_range(tree, 0, batch->num_seeds - 1);
        assert_true(i >= batch->num_seeds || tree == i);
        assert_false(met[tree][node]);
        met[tree][node] = true;
    }
}

/* `place` is that of the batch's first seed in the epoch. */
static void check_disjoint(const test_loader_t *fixture, const plim_recipe_t *recipe,
                           const plim_batch_t *batch, int64_t place)
{
    check_trees(recipe, batch);
    test_check_rows(fixture, recipe, batch);
    test_check_edges(fixture, recipe, batch);
    for (int hop = 0; hop < batch->num_blocks; hop++) {
        const plim_block_t *block = &batch->blocks[hop];
        const plim__hop_t draw = {recipe->seed, batch->epoch, hop, recipe->fanout[hop],
                                  recipe->replace};
        for (int64_t i = 0; i < block->num_dst; i++) {
            const int64_t node = test_index_at(recipe, batch->nodes, block->first_dst + i);
            const int64_t tree = test_index_at(recipe, batch->trees, block->first_dst + i);
            const int64_t start = fixture->indptr[node];
            const int64_t first = test_index_at(recipe, block->indptr, i);
            const int64_t until = batch->seed_times != NULL ? batch->seed_times[tree] : 0;
            int64_t positions[64];
            const int64_t count =
                draws_of(fixture, recipe, &draw, plim__draw_owner(place + tree, node), until, node,
                         positions);
            assert_int_equal(test_index_at(recipe, block->indptr, i + 1) - first, count);
            for (int64_t k = 0; k < count; k++) {
                const int64_t local = test_index_at(recipe, block->indices, first + k);
                assert_int_equal(test_index_at(recipe, batch->nodes, local),
                                 fixture->indices[start + positions[k]]);
                assert_int_equal(test_index_at(recipe, batch->trees, local), tree);
            }
        }
    }
}

/* Nodes with times, some of them several times. */
static int64_t listed[SEEDS], listed_times[SEEDS];

/* Whether the seeds have times of their own: then they are listed, else they are the split's. */
static bool has_times(const plim_recipe_t *recipe)
{
    return recipe->draw_by == PLIM_EDGE_TIME ||
           (recipe->draw_by == PLIM_NODE_TIME && recipe->latest);
}

static plim_stream_t *open_stream(plim_loader_t *loader, const plim_recipe_t *recipe)
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *stream;
    for (int64_t i = 0; i < SEEDS; i++) {
        listed[i] = i % 3 == 0 ? 7 : i * 11;
        listed_times[i] = i % 11;
    }
    if (has_times(recipe)) {
        params.nodes = listed;
        params.times = listed_times;
        params.num_nodes = SEEDS;
    }
    assert_ok(plim_loader_stream(loader, &params, &stream));
    assert_ok(plim_stream_start(stream, 0, 0));
    return stream;
}

static void check_times(const plim_stream_t *stream, const plim_recipe_t *recipe,
                        const plim_batch_t *batch)
{
    int64_t ids[BATCH];
    assert_int_equal(batch->seed_times != NULL, plim__load_by_time(recipe));
    if (batch->seed_times == NULL)
        return;
    assert_ok(plim_stream_input_ids(stream, batch, ids));
    for (int64_t i = 0; i < batch->num_seeds; i++)
        assert_int_equal(batch->seed_times[i],
                         has_times(recipe)
                             ? listed_times[ids[i]]
                             : test_drawable_value(test_index_at(recipe, batch->nodes, i)));
}

static uint64_t check_epoch(const test_loader_t *fixture, const plim__load_plan_t *plan)
{
    plim_loader_t *loader;
    assert_ok(plim__loader_create(&fixture->job, fixture->dataset, plan, &loader));
    plim_stream_t *stream = open_stream(loader, &plan->recipe);
    plim_batch_t *batch;
    uint64_t hash = 0;
    while ((batch = test_next(stream)) != NULL) {
        check_times(stream, &plan->recipe, batch);
        check_disjoint(fixture, &plan->recipe, batch, batch->step * BATCH + batch->first_seed);
        hash = plim_loader_hash(loader, batch, hash);
        plim_batch_release(batch);
    }
    plim_stream_release(stream);
    plim_loader_release(loader);
    return hash;
}

static plim_recipe_t disjoint(int kind)
{
    plim_recipe_t recipe = test_two_hops;
    recipe.disjoint = true;
    recipe.form = kind % 2 == 0 ? PLIM_NATIVE : PLIM_PYG;
    recipe.edge_index = recipe.edge_ids = kind % 2 == 1;
    recipe.replace = kind / 2 % 2 == 1;
    if (kind < 8)
        recipe.draw_by = kind / 4 == 1 ? PLIM_EDGE_WEIGHT : 0;
    else
        recipe.draw_by = kind < 16 ? PLIM_EDGE_TIME : PLIM_NODE_TIME;
    recipe.latest = kind >= 8 && kind / 4 % 2 == 1;
    recipe.fanout[1] = kind % 8 / 2 == 0 ? PLIM_FANOUT_ALL : 3;
    return recipe;
}

static void every_source_draws_the_same(void **state)
{
    (void)state;
    for (int kind = 0; kind < KINDS; kind += TEST_SANITIZED ? 5 : 1) {
        const plim_recipe_t recipe = disjoint(kind);
        uint64_t hash = 0;
        for (int variant = 0; variant < 8; variant += TEST_SANITIZED ? 3 : 1) {
            const int threads = 1 << variant % 4;
            test_loader_t fixture = test_loader_open("disjoint", &graph, threads,
                                                     variant % 2 ? PLIM_IO_THREADS : PLIM_IO_AUTO);
            plim__load_plan_t plan = variant / 4 == 0
                                         ? test_plan_memory(fixture.info, &recipe, threads)
                                         : test_plan_disk(fixture.info, &recipe, threads, 1);
            plan.part_seeds = variant % 5 == 2 && kind % 2 == 0 ? 7 : 0;
            if (kind % 2 == 1 && variant % 4 == 3) { /* counted, and made again for that size */
                plan.counted = true;
                plan.slot_nodes = plan.slot_edges = 300;
            }
            const uint64_t found = check_epoch(&fixture, &plan);
            if (variant == 0)
                hash = found;
            assert_true(found == hash);
            test_loader_close(&fixture);
        }
    }
}

static void every_line_draws_the_same(void **state)
{
    (void)state;
    static const int kinds[] = {0, 1, 17};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        plim_recipe_t recipe = disjoint(kinds[i]);
        recipe.num_hops = 3;
        for (int hop = 0; hop < 3; hop++)
            recipe.fanout[hop] = PLIM_FANOUT_ALL;
        (void)test_every_line("disjoint", &graph, &recipe, (int64_t)20 << 20, (int64_t)600 << 20,
                              5);
    }
}

static void impossible_times_are_refused(void **state)
{
    (void)state;
    test_loader_t fixture = test_loader_open("disjoint", &graph, 1, PLIM_IO_AUTO);
    plim__load_plan_t plan;
    plim_recipe_t recipe = disjoint(0);
    recipe.latest = true;
    assert_int_equal(plim__load_plan(&fixture.job, fixture.dataset, &recipe, NULL, &plan),
                     PLIM_ERR_USAGE);
    recipe.draw_by = PLIM_EDGE_TIME | PLIM_EDGE_WEIGHT;
    assert_int_equal(plim__load_plan(&fixture.job, fixture.dataset, &recipe, NULL, &plan),
                     PLIM_ERR_USAGE);
    recipe.draw_by = PLIM_NODE_TIME;
    recipe.own_times = true;
    assert_int_equal(plim__load_plan(&fixture.job, fixture.dataset, &recipe, NULL, &plan),
                     PLIM_ERR_USAGE);
    recipe.own_times = false;
    recipe.draw_by = PLIM_EDGE_TIME;
    recipe.disjoint = false;
    assert_int_equal(plim__load_plan(&fixture.job, fixture.dataset, &recipe, NULL, &plan),
                     PLIM_ERR_USAGE);
    for (int kind = 0; kind < 16; kind += 8) { /* uniform, and edges without times of seeds */
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_stream_t *stream;
        plim_loader_t *loader;
        recipe = disjoint(kind);
        plan = test_plan_memory(fixture.info, &recipe, 1);
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        params.nodes = listed;
        params.num_nodes = SEEDS;
        params.times = kind == 0 ? listed_times : NULL;
        assert_int_equal(plim_loader_stream(loader, &params, &stream), PLIM_ERR_USAGE);
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

/* A rank's trees are those of the whole batch. */
static void shares_draw_the_same(void **state)
{
    (void)state;
    test_loader_t fixture = test_loader_open("disjoint", &graph, 2, PLIM_IO_AUTO);
    for (int kind = 0; kind < 2; kind++) {
        const plim_recipe_t recipe = disjoint(kind);
        const plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 2);
        plim_loader_t *loader = test_loader_start(&fixture, &plan);
        for (int share = 0; share < 5; share++) {
            plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
            plim_stream_t *stream;
            plim_batch_t *batch;
            params.share = share;
            params.num_shares = 5;
            assert_ok(plim_loader_stream(loader, &params, &stream));
            assert_ok(plim_stream_start(stream, 1, 0));
            while ((batch = test_next(stream)) != NULL) {
                const int64_t first = plim__share_first(batch->batch_seeds, 5, share);
                check_disjoint(&fixture, &recipe, batch,
                               batch->step * BATCH + first + batch->first_seed);
                plim_batch_release(batch);
            }
            plim_stream_release(stream);
        }
        plim_loader_release(loader);
    }
    test_loader_close(&fixture);
}

static void fails_cleanly(void **state)
{
    (void)state;
    test_loader_t fixture = test_loader_open("disjoint", &graph, 1, PLIM_IO_THREADS);
    const plim_recipe_t recipe = disjoint(5);
    const plim__load_plan_t plan = test_plan_disk(fixture.info, &recipe, 1, 1);
    test_loader_fails(&fixture, &plan);
    test_loader_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_source_draws_the_same), cmocka_unit_test(every_line_draws_the_same),
        cmocka_unit_test(impossible_times_are_refused), cmocka_unit_test(shares_draw_the_same),
        cmocka_unit_test(fails_cleanly)};
    return cmocka_run_group_tests(tests, test_loader_begin, test_loader_end);
}
