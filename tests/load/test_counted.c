/* Batches in PyG's form that are counted before their epoch, and the slots that are made for them.
 */
#include "load/loader.h"

#include "base/check.h"
#include "plan/load_plan.h"
#include "support/harness.h"
#include "support/loader.h"
#include "support/wrapped.h"

#include <plimsoll/plimsoll.h>
#include <string.h>

#define MIB ((int64_t)1 << 20)

static test_loader_t fixture;

static int begin(void **state)
{
    (void)test_loader_begin(state);
    fixture = test_loader_open("counted", &test_plain_graph, 3, PLIM_IO_AUTO);
    return 0;
}

static int end(void **state)
{
    test_loader_close(&fixture);
    return test_loader_end(state);
}

/* Batches from memory, from windows (with rows, and of lists alone), and without the windows that
 * are too small for them. */
#define WAYS 4

static plim__load_plan_t plan_as(const plim_recipe_t *recipe, int way)
{
    plim__load_plan_t plan = test_plan_memory(fixture.info, recipe, 3);
    if (way > 0)
        plan = test_plan_disk(fixture.info, recipe, 3, 4);
    plan.rows_in_memory = way == 0 || way == 2;
    plan.window_draws = way == 3 ? 100 : plan.window_draws;
    plan.counted = true;
    return plan;
}

/* The same with slots that hold hardly more than seeds. */
static plim__load_plan_t small_plan_as(const plim_recipe_t *recipe, int way)
{
    plim__load_plan_t plan = plan_as(recipe, way);
    plan.slot_nodes = 60;
    plan.slot_edges = 70;
    plan.num_slots = 3;
    return plan;
}

static plim_loader_t *open_planned(const plim__load_plan_t *plan)
{
    plim_loader_t *loader;
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, plan, &loader));
    return loader;
}

static plim_stream_t *open_stream(plim_loader_t *loader, const plim_stream_params_t *params)
{
    plim_stream_t *stream;
    assert_ok(plim_loader_stream(loader, params, &stream));
    return stream;
}

static plim__load_size_t size_of(const plim_batch_t *batch)
{
    plim__load_size_t size = {batch->num_nodes, 0};
    for (int i = 0; i < batch->num_blocks; i++)
        size.edges += batch->blocks[i].num_dst + 1 + batch->blocks[i].num_edges;
    return size;
}

/* The hash of up to `most` batches, all of them whole, and the largest size among them. */
static uint64_t take(plim_loader_t *loader, plim_stream_t *stream, int64_t most, uint64_t hash,
                     plim__load_size_t *largest)
{
    plim_batch_t *batch;
    for (int64_t i = 0; i < most; i++) {
        assert_ok(plim_stream_next(stream, -1, &batch));
        if (batch == NULL)
            break;
        const plim__load_size_t size = size_of(batch);
        assert_true(batch->last_part && batch->first_seed == 0);
        hash = plim_loader_hash(loader, batch, hash);
        largest->nodes = plim__max_i64(largest->nodes, size.nodes);
        largest->edges = plim__max_i64(largest->edges, size.edges);
        plim_batch_release(batch);
    }
    return hash;
}

static uint64_t whole(plim_loader_t *loader, plim_stream_t *stream, int64_t epoch, int64_t step)
{
    plim__load_size_t largest = {0, 0};
    assert_ok(plim_stream_start(stream, epoch, step));
    return take(loader, stream, INT64_MAX, 0, &largest);
}

static plim_recipe_t recipe_of(int kind)
{
    plim_recipe_t recipe = test_two_hops;
    recipe.form = PLIM_PYG;
    recipe.edge_index = recipe.edge_ids = true;
    recipe.index_type = kind % 2 == 0 ? PLIM_I64 : PLIM_I32;
    recipe.disjoint = kind == 3;
    recipe.num_hops = kind == 0 ? 2 : 3;
    recipe.fanout[0] = kind == 1 ? -1 : 4;
    recipe.fanout[2] = 5;
    recipe.replace = kind == 2;
    return recipe;
}

/* A count is the size of the largest batch that is then built, from any step on, also of a list
 * that repeats nodes and of a share. */
static void counts_are_exact(void **state)
{
    int64_t list[130];
    (void)state;
    for (int i = 0; i < 130; i++)
        list[i] = i % 3 == 0 ? 7 : 11 * i;
    for (int i = 0; i < 4 * WAYS; i++) {
        const plim_recipe_t recipe = recipe_of(i / WAYS);
        const plim__load_plan_t plan = plan_as(&recipe, i % WAYS);
        plim_loader_t *loader = open_planned(&plan);
        for (int kind = 0; kind < 3; kind++) {
            plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
            plim__load_size_t counted, largest = {0, 0};
            const int64_t step = kind;
            if (kind == 1) {
                params.nodes = list;
                params.num_nodes = 130;
            }
            params.num_shares = kind == 2 ? 2 : 1;
            params.share = kind == 2;
            plim_stream_t *stream = open_stream(loader, &params);
            assert_ok(plim__stream_count_batches(stream, 3, step, &counted));
            assert_ok(plim_stream_start(stream, 3, step));
            (void)take(loader, stream, INT64_MAX, 0, &largest);
            assert_int_equal(counted.nodes, largest.nodes);
            assert_int_equal(counted.edges, largest.edges);
            plim_stream_release(stream);
        }
        plim_loader_release(loader);
    }
}

/* Small slots become large enough before the first batch; another epoch, a step in the middle of
 * one, and an interrupted stream give the batches of large slots. */
static void slots_are_made_for_the_largest_batch(void **state)
{
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT;
    const int64_t before = plim__ledger_reserved(fixture.job.ledger);
    plim_stream_params_t short_one = PLIM_STREAM_PARAMS_INIT;
    (void)state;
    short_one.split = PLIM_VALID;
    short_one.num_hops = 1;
    short_one.fanout[0] = 2;
    for (int i = 0; i < 2 * WAYS; i++) {
        const int way = i % WAYS;
        const plim_recipe_t recipe = recipe_of(i < WAYS ? 0 : 3);
        const plim__load_plan_t large = test_plan_memory(fixture.info, &recipe, 2);
        const plim__load_plan_t small = small_plan_as(&recipe, way);
        plim__load_size_t largest = {0, 0};
        plim_loader_t *expected = open_planned(&large), *loader = open_planned(&small);
        plim_stream_t *all = open_stream(expected, &usual), *stream = open_stream(loader, &usual);
        plim_stream_t *other_all = open_stream(expected, &short_one);
        plim_stream_t *other = open_stream(loader, &short_one);
        assert_true(whole(loader, other, 0, 0) == whole(expected, other_all, 0, 0));
        for (int64_t epoch = 0; epoch < 3; epoch++)
            assert_true(whole(loader, stream, epoch, 0) == whole(expected, all, epoch, 0));
        assert_true(loader->context.plan.slot_nodes > small.slot_nodes);
        assert_true(loader->context.plan.counted);
        assert_true(whole(loader, stream, 7, 5) == whole(expected, all, 7, 5));
        assert_ok(plim_stream_start(stream, 8, 0));
        uint64_t hash = take(loader, stream, 3, 0, &largest);
        assert_true(whole(loader, other, 1, 2) == whole(expected, other_all, 1, 2));
        hash = take(loader, stream, INT64_MAX, hash, &largest);
        assert_true(hash == whole(expected, all, 8, 0));
        plim_stream_release(all);
        plim_stream_release(stream);
        plim_stream_release(other_all);
        plim_stream_release(other);
        plim_loader_release(expected);
        plim_loader_release(loader);
        assert_int_equal(plim__ledger_reserved(fixture.job.ledger), before);
    }
}

/* A loop may hold the last batch of one epoch when the next begins: it stays valid, and so do the
 * loader's own figures of its memory. */
static void a_batch_is_held_while_slots_are_replaced(void **state)
{
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT;
    const int64_t before = plim__ledger_reserved(fixture.job.ledger);
    const plim_recipe_t recipe = recipe_of(0);
    const plim__load_plan_t plan = small_plan_as(&recipe, 1);
    plim_stream_params_t tiny = PLIM_STREAM_PARAMS_INIT;
    plim_batch_t *batch;
    (void)state;
    tiny.batch_size = 1;
    tiny.num_hops = 1;
    tiny.fanout[0] = 1;
    plim_loader_t *loader = open_planned(&plan);
    plim_stream_t *first = open_stream(loader, &tiny), *stream = open_stream(loader, &usual);
    assert_ok(plim_stream_start(first, 0, 0));
    assert_ok(plim_stream_next(first, -1, &batch));
    const int64_t *sources = batch->edge_index, node = *(const int64_t *)batch->nodes;
    const int64_t edges = batch->blocks[0].num_edges;
    assert_ok(plim_stream_start(stream, 0, 0)); /* remakes the loader */
    assert_true(loader->context.plan.slot_nodes > plan.slot_nodes);
    assert_int_equal(node, *(const int64_t *)batch->nodes);
    assert_true(batch->blocks[0].num_edges == edges && batch->edge_index == sources);
    const int64_t held = plim__ledger_reserved(fixture.job.ledger);
    plim_batch_release(batch);
    const int64_t old_slots = held - plim__ledger_reserved(fixture.job.ledger);
    assert_true(old_slots > 0);
    assert_ok(plim_stream_next(stream, -1, &batch));
    plim_batch_release(batch);
    const int64_t bytes = loader->bytes;
    plim_stream_release(first);
    plim_stream_release(stream);
    const int64_t reserved = plim__ledger_reserved(fixture.job.ledger);
    plim_loader_release(loader);
    assert_int_equal(reserved - plim__ledger_reserved(fixture.job.ledger), bytes);
    assert_int_equal(plim__ledger_reserved(fixture.job.ledger), before);
}

/* What fails while batches are counted, or slots made for them, leaves the stream where it was. */
static void failures_change_nothing(void **state)
{
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT;
    const plim_recipe_t recipe = recipe_of(0);
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        const plim__load_plan_t plan = small_plan_as(&recipe, way);
        plim_loader_t *loader = open_planned(&plan);
        plim_stream_t *stream = open_stream(loader, &usual);
        volatile int stop = 1;
        plim_batch_t *batch;
        plim_status_t status = PLIM_ERR_NOMEM;
        int64_t epoch, step;
        int failures = 0;
        loader->made_with.stop = &stop;
        assert_int_equal(plim_stream_start(stream, 0, 0), PLIM_ERR_STOPPED);
        loader->made_with.stop = NULL;
        assert_int_equal(plim_stream_next(stream, -1, &batch), PLIM_ERR_USAGE); /* not started */
        assert_int_equal(plim_stream_start(stream, 0, 1 << 20), PLIM_ERR_USAGE);
        for (; status == PLIM_ERR_NOMEM; failures += status == PLIM_ERR_NOMEM) {
            test_map_fail_at(failures + 1);
            status = plim_stream_start(stream, 1, 2);
            test_map_fail_at(0);
            test_position(stream, &epoch, &step);
            assert_true(status == PLIM_OK || (epoch == 0 && step == 0));
        }
        assert_ok(status);
        assert_true(failures > 3 && epoch == 1 && step == 2);
        plim_loader_t *other = open_planned(&plan);
        plim_stream_t *same = open_stream(other, &usual);
        assert_true(whole(loader, stream, 1, 2) == whole(other, same, 1, 2));
        plim_stream_release(same);
        plim_stream_release(stream);
        plim_loader_release(other);
        plim_loader_release(loader);
    }
}

/* A stream of 50 batches of 8 seeds, that could have six times the nodes that they have. */
static plim_stream_params_t line_stream(int64_t list[400])
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    for (int64_t i = 0; i < 400; i++)
        list[i] = i * 23;
    params.nodes = list;
    params.num_nodes = 400;
    return params;
}

/* What became of a line. */
typedef struct outcome {
    bool planned, counted, started;
    uint64_t hash;       /* of two epochs */
    int64_t slot_nodes;  /* at the end */
    int64_t least, peak; /* line, bytes */
} outcome_t;

static outcome_t run_under(const test_place_t *free_place, const plim_recipe_t *recipe,
                           int64_t line)
{
    int64_t list[400];
    const plim_stream_params_t stream_params = line_stream(list);
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    outcome_t outcome = {0};
    test_place_t place = *free_place;
    plim__load_plan_t plan;
    plim_loader_t *loader;
    plim_batch_t *batch;
    params.streams = &stream_params;
    params.num_streams = 1;
    place.job = test_job_make(line, 2, PLIM_IO_THREADS);
    assert_ok(plim_dataset_open(&place.job, place.path, &place.dataset));
    plim_status_t status = plim__load_plan(&place.job, place.dataset, recipe, &params, &plan);
    assert_true(status == PLIM_OK || status == PLIM_ERR_BUDGET);
    outcome.planned = status == PLIM_OK;
    if (outcome.planned) {
        outcome.counted = plan.counted;
        outcome.least = plan.minimum;
        assert_ok(plim__loader_create(&place.job, place.dataset, &plan, &loader));
        plim_stream_t *stream = open_stream(loader, &stream_params);
        const int64_t reserved = plim__ledger_reserved(place.job.ledger);
        status = plim_stream_start(stream, 0, 0);
        outcome.started = status == PLIM_OK;
        if (outcome.started) {
            outcome.hash = whole(loader, stream, 0, 0) ^ whole(loader, stream, 1, 0) << 1;
        } else { /* before the first batch, with what to do, and nothing has changed */
            assert_int_equal(status, PLIM_ERR_BUDGET);
            assert_non_null(strstr(plim_last_error(), "`memory`"));
            assert_int_equal(plim_stream_next(stream, -1, &batch), PLIM_ERR_USAGE);
            assert_int_equal(plim__ledger_reserved(place.job.ledger), reserved);
            plim_stream_params_t seeds_alone = stream_params;
            seeds_alone.num_hops = 0;
            plim_stream_t *other = open_stream(loader, &seeds_alone);
            (void)whole(loader, other, 0, 0);
            plim_stream_release(other);
        }
        outcome.slot_nodes = loader->context.plan.slot_nodes;
        plim_stream_release(stream);
        plim_loader_release(loader);
    }
    outcome.peak = plim__ledger_peak(place.job.ledger);
    plim_dataset_release(place.dataset);
    test_job_end(&place.job);
    return outcome;
}

/* From the line at which all possible batches fit downwards: first batches are counted and run, the
 * same ones, below the line; then the epoch is refused before it begins, or the loader is. */
static void check_lines(bool disjoint)
{
    static const test_graph_t graph = {.num_nodes = 12000, .num_features = 128, .num_classes = 3};
    plim_recipe_t recipe = PLIM_RECIPE_INIT;
    int ran = 0, refused = 0;
    test_place_t place = test_place_open(&graph, PLIM_LINE_NONE, 2, PLIM_IO_THREADS);
    recipe.form = PLIM_PYG;
    recipe.disjoint = disjoint;
    recipe.batch_size = 8;
    recipe.num_hops = 3;
    recipe.fanout[0] = recipe.fanout[1] = recipe.fanout[2] = -1;
    recipe.index_type = PLIM_I64;
    recipe.edge_index = recipe.edge_ids = true;
    const outcome_t free_one = run_under(&place, &recipe, PLIM_LINE_NONE);
    assert_true(free_one.started && !free_one.counted);
    const outcome_t least = run_under(&place, &recipe, free_one.least);
    assert_true(least.started && !least.counted && least.hash == free_one.hash);
    for (int64_t line = free_one.least - MIB / 2;; line -= MIB / 2) {
        const outcome_t outcome = run_under(&place, &recipe, line);
        assert_true(outcome.peak <= line);
        if (!outcome.planned)
            break;
        assert_true(outcome.counted && outcome.slot_nodes < least.slot_nodes);
        assert_true(!outcome.started || outcome.hash == free_one.hash);
        assert_true(!outcome.started || refused == 0);
        ran += outcome.started;
        refused += !outcome.started;
    }
    assert_true(ran > 2);
    test_place_close(&place);
}

static void lines_below_the_bound(void **state)
{
    (void)state;
    test_skip_sanitized(TEST_LINE_NEAR);
    check_lines(false);
    check_lines(true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counts_are_exact),
        cmocka_unit_test(slots_are_made_for_the_largest_batch),
        cmocka_unit_test(a_batch_is_held_while_slots_are_replaced),
        cmocka_unit_test(failures_change_nothing),
        cmocka_unit_test(lines_below_the_bound),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
