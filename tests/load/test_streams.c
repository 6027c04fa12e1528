/* Streams over one loader: any seeds, in any order, interrupted at will. */
#include "load/loader.h"

#include "base/rng.h"
#include "plan/load_plan.h"
#include "support/harness.h"
#include "support/loader.h"
#include "support/wrapped.h"

#include <plimsoll/plimsoll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static test_loader_t fixture;

static int begin(void **state)
{
    (void)test_loader_begin(state);
    fixture = test_loader_open("streams", &test_plain_graph, 3, PLIM_IO_AUTO);
    return 0;
}

static int end(void **state)
{
    test_loader_close(&fixture);
    return test_loader_end(state);
}

/* Loaders whose batches come from memory, from windows (whole epochs, a few steps, and drawn
 * ahead), and in parts. */
#define WAYS 5

static plim__load_plan_t plan_as(const plim_recipe_t *recipe, int way)
{
    plim__load_plan_t plan = test_plan_memory(fixture.info, recipe, 3);
    if (way == 1 || way == 2)
        plan = test_plan_disk(fixture.info, recipe, 3, way == 1 ? 1000 : 3);
    if (way == 3)
        plan = test_plan_ahead(fixture.info, recipe, 3, 600);
    if (way == 4) { /* halved by what fits, and cut by number */
        plan.slot_nodes = 200;
        plan.slot_edges = 700;
        plan.part_seeds = 20;
    }
    return plan;
}

static plim_loader_t *open_planned(const plim__load_plan_t *plan)
{
    plim_loader_t *loader;
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, plan, &loader));
    return loader;
}

static plim_loader_t *open_loader(int way)
{
    const plim__load_plan_t plan = plan_as(&test_two_hops, way);
    return open_planned(&plan);
}

static plim_stream_t *open_stream(plim_loader_t *loader, const plim_stream_params_t *params)
{
    plim_stream_t *stream;
    assert_ok(plim_loader_stream(loader, params, &stream));
    return stream;
}

/* Takes up to `most` parts of a stream; false at the epoch's end. */
static bool take(plim_loader_t *loader, plim_stream_t *stream, int64_t most, uint64_t *hash)
{
    plim_batch_t *batch;
    for (int64_t i = 0; i < most; i++) {
        assert_ok(plim_stream_next(stream, -1, &batch));
        if (batch == NULL)
            return false;
        *hash = plim_loader_hash(loader, batch, *hash);
        plim_batch_release(batch);
    }
    return true;
}

static uint64_t whole(plim_loader_t *loader, plim_stream_t *stream, int64_t epoch)
{
    uint64_t hash = 0;
    assert_ok(plim_stream_start(stream, epoch, 0));
    (void)take(loader, stream, INT64_MAX, &hash);
    return hash;
}

/* The training split as a list is the training split: shuffled by the same orders, in parts by the
 * same cuts. */
static void test_a_list_is_like_a_split(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        plim_loader_t *loader = open_loader(way);
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_stream_t *split = open_stream(loader, &params);
        params.nodes = fixture.splits[PLIM_TRAIN];
        params.num_nodes = fixture.info->num_split[PLIM_TRAIN];
        plim_stream_t *list = open_stream(loader, &params);
        assert_int_equal(plim__stream_count(list), plim__stream_count(split));
        for (int64_t epoch = 0; epoch < 3; epoch++)
            assert_true(whole(loader, split, epoch) == whole(loader, list, epoch));
        assert_true(whole(loader, split, 1) != whole(loader, list, 2));
        params = (plim_stream_params_t)PLIM_STREAM_PARAMS_INIT;
        params.split = PLIM_VALID;
        params.shuffle = false;
        plim_stream_t *valid = open_stream(loader, &params);
        params.nodes = fixture.splits[PLIM_VALID];
        params.num_nodes = fixture.info->num_split[PLIM_VALID];
        plim_stream_t *other = open_stream(loader, &params);
        assert_true(whole(loader, valid, 0) == whole(loader, other, 0));
        plim_stream_release(split);
        plim_stream_release(list);
        plim_stream_release(valid);
        plim_stream_release(other);
        plim_loader_release(loader);
    }
}

/* Streams over one list, in different epochs: their orders take the same memory. */
static void test_streams_over_one_list(void **state)
{
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT;
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        uint64_t expected = 0, last = 0;
        plim_loader_t *loader = open_loader(way);
        plim_stream_t *one = open_stream(loader, &usual), *other = open_stream(loader, &usual);
        const int64_t late = plim__stream_steps(other) - 2;
        assert_ok(plim_stream_start(other, 3, late));
        (void)take(loader, other, INT64_MAX, &last);
        expected = whole(loader, one, 1);
        for (int64_t taken = 1; taken < late; taken += 4) {
            uint64_t hash = 0, other_hash = 0;
            assert_ok(plim_stream_start(one, 1, 0));
            assert_true(take(loader, one, taken, &hash));
            assert_ok(plim_stream_start(other, 3, late));
            assert_true(take(loader, other, 1, &other_hash));
            assert_true(take(loader, one, 1, &hash));
            assert_false(take(loader, other, INT64_MAX, &other_hash));
            assert_false(take(loader, one, INT64_MAX, &hash));
            assert_true(hash == expected && other_hash == last);
        }
        plim_stream_release(one);
        plim_stream_release(other);
        plim_loader_release(loader);
    }
}

/* The nodes of a list come in its order, as often as they are in it, with their labels. */
static void test_a_list_keeps_its_order(void **state)
{
    static const int64_t nodes[] = {7, 2999, 7, 0, 7, 1500, 0};
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_batch_t *batch;
    (void)state;
    params.nodes = nodes;
    params.num_nodes = 7;
    params.shuffle = false;
    params.batch_size = 3;
    for (int way = 0; way < WAYS; way++) {
        plim_loader_t *loader = open_loader(way);
        plim_stream_t *stream = open_stream(loader, &params);
        int64_t at = 0;
        assert_int_equal(plim__stream_steps(stream), 3);
        assert_ok(plim_stream_start(stream, 4, 0));
        while ((batch = test_next(stream)) != NULL) {
            assert_int_equal(batch->batch_seeds, batch->step < 2 ? 3 : 1);
            for (int64_t i = 0; i < batch->num_seeds; i++, at++) {
                assert_int_equal(test_index_at(&test_two_hops, batch->nodes, i), nodes[at]);
                assert_int_equal(((const int64_t *)batch->labels)[i], fixture.labels[nodes[at]]);
            }
            test_check_rows(&fixture, &test_two_hops, batch);
            plim_batch_release(batch);
        }
        assert_int_equal(at, 7);
        plim_stream_release(stream);
        plim_loader_release(loader);
    }
}

/* All nodes are a list that the caller need not have. */
static void test_all_nodes_need_no_list(void **state)
{
    int64_t nodes[TEST_NODES];
    (void)state;
    for (int64_t i = 0; i < TEST_NODES; i++)
        nodes[i] = i;
    for (int shuffle = 0; shuffle < 2; shuffle++) {
        uint64_t hashes[2];
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_stream_t *stream;
        params.shuffle = shuffle != 0;
        params.num_nodes = TEST_NODES;
        for (int given = 0; given < 2; given++) {
            plim_loader_t *loader = open_loader(0);
            params.nodes = given ? nodes : NULL;
            stream = open_stream(loader, &params);
            hashes[given] = whole(loader, stream, 1);
            plim_stream_release(stream);
            plim_loader_release(loader);
        }
        assert_true(hashes[0] == hashes[1]);
    }
}

/* Three streams with batches and fan-outs of their own, taken from at random: each gives what it
 * gives undisturbed, and its position is exact. */
static void test_interrupted_streams_go_on(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        plim_loader_t *loader = open_loader(way);
        plim_stream_params_t params[3] = {PLIM_STREAM_PARAMS_INIT, PLIM_STREAM_PARAMS_INIT,
                                          PLIM_STREAM_PARAMS_INIT};
        plim_stream_t *streams[3];
        uint64_t expected[3], hashes[3] = {0}, counter = 0;
        int64_t epoch, step;
        bool going[3] = {true, true, true};
        params[1].split = PLIM_VALID;
        params[1].shuffle = false;
        params[1].batch_size = 11;
        params[1].num_hops = 1;
        params[1].fanout[0] = 3;
        params[2].nodes = fixture.splits[PLIM_TEST];
        params[2].num_nodes = fixture.info->num_split[PLIM_TEST];
        params[2].num_hops = 0;
        for (int i = 0; i < 3; i++) {
            streams[i] = open_stream(loader, &params[i]);
            expected[i] = whole(loader, streams[i], i);
            assert_ok(plim_stream_start(streams[i], i, 0));
        }
        while (going[0] || going[1] || going[2]) {
            const int i = (int)plim__rng_below(5, &counter, 3);
            const int64_t parts = (int64_t)plim__rng_below(5, &counter, 9);
            if (going[i])
                going[i] = take(loader, streams[i], parts, &hashes[i]);
            test_position(streams[i], &epoch, &step);
            assert_int_equal(epoch, i);
            if (!going[i])
                assert_int_equal(step, plim__stream_steps(streams[i]));
        }
        for (int i = 0; i < 3; i++) {
            assert_true(hashes[i] == expected[i]);
            plim_stream_release(streams[i]);
        }
        plim_loader_release(loader);
    }
}

/* A position that was written down is where another loader goes on. */
static void test_positions_can_be_resumed(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS - 1; way++) {
        const plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_loader_t *loader = open_loader(way);
        plim_stream_t *stream = open_stream(loader, &params);
        int64_t epoch, step;
        const uint64_t expected = whole(loader, stream, 3);
        uint64_t hash = 0;
        assert_ok(plim_stream_start(stream, 3, 0));
        assert_true(take(loader, stream, 5, &hash));
        test_position(stream, &epoch, &step);
        assert_int_equal(epoch, 3);
        assert_int_equal(step, 5);
        plim_stream_release(stream);
        plim_loader_release(loader);
        loader = open_loader(way);
        stream = open_stream(loader, &params);
        assert_ok(plim_stream_start(stream, epoch, step));
        (void)take(loader, stream, INT64_MAX, &hash);
        assert_true(hash == expected);
        plim_stream_release(stream);
        plim_loader_release(loader);
    }
}

static int64_t lists_drawn(const plim_loader_t *loader)
{
    plim_load_stats_t stats = PLIM_LOAD_STATS_INIT;
    plim_loader_stats(loader, &stats);
    return stats.lists;
}

/* Short interruptions cost a training epoch no window: it goes on with the one it had. */
static void test_windows_outlast_interruptions(void **state)
{
    plim_loader_t *loader = open_loader(1);
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *train = open_stream(loader, &params);
    uint64_t hash = 0;
    (void)state;
    params.split = PLIM_VALID;
    params.shuffle = false;
    params.batch_size = fixture.info->num_split[PLIM_VALID] / 2 + 1; /* two steps */
    params.num_hops = 1;
    params.fanout[0] = 1;
    plim_stream_t *valid = open_stream(loader, &params);
    const uint64_t expected = whole(loader, valid, 0);
    const int64_t first = lists_drawn(loader);
    (void)whole(loader, train, 0);
    const int64_t alone = lists_drawn(loader) - first;
    assert_ok(plim_stream_start(train, 7, 0)); /* not what was guessed */
    for (int i = 0; i < 5; i++) {
        assert_true(take(loader, train, 1, &hash));
        assert_true(whole(loader, valid, 0) == expected);
    }
    (void)take(loader, train, INT64_MAX, &hash);
    /* The epoch, windows guessed ahead, five validations; without the windows it would be six
     * epochs. */
    assert_true(lists_drawn(loader) - first - alone <= 4 * alone + 6 * first);
    plim_stream_release(train);
    plim_stream_release(valid);
    plim_loader_release(loader);
}

/* Reads an epoch, or its first half as an end before the epoch's; the hash is that of the half.
 * Returns the lists drawn. */
static int64_t read_until(int way, bool ends, uint64_t *hash_out)
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_loader_t *loader = open_loader(way);
    plim_stream_t *stream = open_stream(loader, &params);
    const int64_t end = plim__stream_steps(stream) / 2;
    int64_t steps = 0;
    plim_batch_t *batch;
    assert_true(end > 0);
    *hash_out = 0;
    stream->end_step = ends ? end : INT64_MAX;
    assert_ok(plim_stream_start(stream, 0, 0));
    while ((batch = test_next(stream)) != NULL) {
        if (batch->step < end)
            *hash_out = plim_loader_hash(loader, batch, *hash_out);
        steps = batch->step + 1;
        plim_batch_release(batch);
    }
    assert_int_equal(steps, ends ? end : plim__stream_steps(stream));
    const int64_t lists = lists_drawn(loader);
    plim_stream_release(stream);
    plim_loader_release(loader);
    return lists;
}

/* A stream with an end before the epoch's delivers the same batches up to it, and reads no others.
 */
static void test_nothing_is_built_past_the_end(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        uint64_t whole, half;
        const int64_t lists = read_until(way, false, &whole);
        int64_t least = read_until(way, true, &half);
        assert_true(whole == half);
        if (way != 1)
            continue;
        /* One window, of an epoch or of its half; at times the window of the next epoch, guessed
         * ahead, is built before its lists are counted. */
        for (int more = 0; more < 20 && least >= lists; more++)
            least = read_until(way, true, &half);
        assert_true(least < lists);
    }
}

static void test_next_can_be_tried_and_timed(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        const plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_loader_t *loader = open_loader(way);
        plim_stream_t *stream = open_stream(loader, &params);
        plim_batch_t *batch;
        uint64_t hash = 0;
        int64_t tries = 0;
        plim_status_t status;
        const uint64_t expected = whole(loader, stream, 0);
        assert_int_equal(plim_stream_start(stream, 0, -1), PLIM_ERR_USAGE);
        assert_int_equal(plim_stream_start(stream, 0, plim__stream_steps(stream) + 1),
                         PLIM_ERR_USAGE);
        assert_ok(plim_stream_start(stream, 0, 0));
        for (;;) {
            status = plim_stream_next(stream, tries++ % 2 == 0 ? 0 : 0.001, &batch);
            if (status == PLIM_ERR_TIMEOUT)
                continue;
            assert_ok(status);
            if (batch == NULL)
                break;
            hash = plim_loader_hash(loader, batch, hash);
            plim_batch_release(batch);
        }
        assert_true(hash == expected);
        plim_stream_release(stream);
        plim_loader_release(loader);
    }
}

static void check_arrays(const plim_batch_t *batch, const char *base, size_t bytes)
{
    const plim_array_t *array;
    int count = 0, hops = 0;
    for (; (array = plim_batch_array(batch, count)) != NULL; count++) {
        assert_true((const char *)array->data >= base && (const char *)array->data < base + bytes);
        assert_true(array->ndim == 1 ? array->shape[1] == 1 : array->ndim == 2);
        if (strcmp(array->name, "nodes") == 0) {
            assert_ptr_equal(array->data, batch->nodes);
            assert_int_equal(array->type, PLIM_I32);
            assert_int_equal(array->shape[0], batch->num_nodes);
        } else if (strcmp(array->name, "rows") == 0) {
            assert_ptr_equal(array->data, batch->rows);
            assert_int_equal(array->ndim, 2);
            assert_int_equal(array->shape[0], batch->num_nodes);
            assert_int_equal(array->shape[1], fixture.info->num_features);
        } else if (strcmp(array->name, "labels") == 0) {
            assert_int_equal(array->type, PLIM_I64);
            assert_int_equal(array->shape[0], batch->num_seeds);
        } else {
            const plim_block_t *block = &batch->blocks[array->hop];
            const bool indptr = strcmp(array->name, "indptr") == 0;
            assert_ptr_equal(array->data, indptr ? block->indptr : block->indices);
            assert_int_equal(array->shape[0], indptr ? block->num_dst + 1 : block->num_edges);
            hops += indptr;
        }
    }
    assert_int_equal(hops, batch->num_blocks);
    assert_int_equal(count, 3 + 2 * batch->num_blocks);
    assert_null(plim_batch_array(batch, -1));
    assert_int_equal(batch->size, sizeof *batch);
}

/* A batch outlives its loader, and takes the slots' memory with it when it goes. */
static void test_a_batch_outlives_its_loader(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS - 1; way++) {
        const int64_t before = plim__ledger_reserved(fixture.job.ledger);
        const plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_loader_t *loader = open_loader(way);
        plim_stream_t *stream = open_stream(loader, &params);
        plim_batch_t *first, *second;
        void *base;
        size_t bytes;
        assert_ok(plim_stream_start(stream, 0, 0));
        assert_ok(plim_stream_next(stream, -1, &first));
        assert_ok(plim_stream_next(stream, -1, &second));
        plim_batch_retain(first);
        plim_batch_release(first);
        plim_loader_memory(loader, &base, &bytes);
        check_arrays(first, base, bytes);
        plim_loader_release(loader); /* the stream holds it */
        plim_batch_release(second);
        plim_stream_release(stream);
        assert_true(plim__ledger_reserved(fixture.job.ledger) > before);
        test_check_batch(&fixture, &test_two_hops, first);
        check_arrays(first, base, bytes);
        plim_batch_release(first);
        plim_batch_release(NULL);
        assert_int_equal(plim__ledger_reserved(fixture.job.ledger), before);
    }
}

static void test_streams_that_cannot_be(void **state)
{
    static const int64_t nodes[] = {5, 3000, 1};
    plim_loader_t *loader = open_loader(0);
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *streams[PLIM_STREAMS_MAX], *stream;
    plim_batch_t *batch;
    int count = 0;
    (void)state;
    params.nodes = nodes;
    params.num_nodes = 3;
    assert_int_equal(plim_loader_stream(loader, &params, &stream), PLIM_ERR_USAGE);
    params.num_nodes = 1;
    params.size = 0;
    assert_int_equal(plim_loader_stream(loader, &params, &stream), PLIM_ERR_USAGE);
    params.size = sizeof params;
    params.nodes = NULL; /* and neither 0 nor all of them */
    assert_int_equal(plim_loader_stream(loader, &params, &stream), PLIM_ERR_USAGE);
    params.nodes = nodes;
    params.batch_size = -1;
    params.num_hops = 9;
    assert_int_equal(plim_loader_stream(loader, &params, &stream), PLIM_ERR_USAGE);
    params = (plim_stream_params_t)PLIM_STREAM_PARAMS_INIT;
    params.split = (plim_split_t)3;
    assert_int_equal(plim_loader_stream(loader, &params, &stream), PLIM_ERR_USAGE);
    params.split = PLIM_TRAIN;
    while (plim_loader_stream(loader, &params, &streams[count]) == PLIM_OK)
        count++;
    assert_int_equal(count, PLIM_STREAMS_MAX);
    assert_int_equal(plim_stream_next(streams[0], -1, &batch), PLIM_ERR_USAGE); /* not started */
    for (int i = 0; i < count; i++)
        plim_stream_release(streams[i]);
    plim_stream_release(NULL);
    plim_loader_release(loader);
    plim_loader_release(NULL);
}

/* Three streams planned together take hardly more than the largest of them, and what they take was
 * planned. */
static void test_streams_are_planned_together(void **state)
{
    plim_stream_params_t params[2] = {PLIM_STREAM_PARAMS_INIT, PLIM_STREAM_PARAMS_INIT};
    int64_t nodes[500];
    (void)state;
    for (int64_t i = 0; i < 500; i++)
        nodes[i] = (i * 7919) % TEST_NODES;
    params[0].split = PLIM_VALID;
    params[0].shuffle = true;
    params[0].batch_size = 90;
    params[1].num_nodes = 500;
    params[1].num_hops = 3;
    params[1].fanout[0] = params[1].fanout[1] = params[1].fanout[2] = 5;
    params[1].batch_size = 10;
    for (plim_place_t where = PLIM_PLACE_MEMORY; where <= PLIM_PLACE_DISK; where++) {
        plim_plan_params_t wanted = {
            .topology = where, .rows = where, .row_cache = -1, .list_cache = -1};
        const int64_t before = plim__ledger_reserved(fixture.job.ledger);
        plim_stream_t *train, *valid, *list;
        plim__load_plan_t alone, plan;
        plim_loader_t *loader;
        uint64_t hash = 0;
        assert_ok(plim__load_plan(&fixture.job, fixture.dataset, &test_two_hops, &wanted, &alone));
        wanted.streams = params;
        wanted.num_streams = 2;
        params[1].nodes = NULL; /* only the number counts */
        assert_ok(plim__load_plan(&fixture.job, fixture.dataset, &test_two_hops, &wanted, &plan));
        assert_int_equal(plan.recipe.batch_size, test_two_hops.batch_size);
        params[1].nodes = nodes;
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT;
        train = open_stream(loader, &usual);
        valid = open_stream(loader, &params[0]);
        list = open_stream(loader, &params[1]);
        hash += whole(loader, list, 0);
        hash += whole(loader, valid, 0);
        hash += whole(loader, train, 0);
        assert_true(hash != 0);
        assert_true(plim__ledger_reserved(fixture.job.ledger) <= plan.total);
        plim_stream_release(train);
        plim_stream_release(valid);
        plim_stream_release(list);
        plim_loader_release(loader);
        assert_int_equal(plim__ledger_reserved(fixture.job.ledger), before);
    }
}

/* A stream with its own seed gives the batches of a loader whose recipe has that seed, and leaves
 * the others theirs. */
static void test_a_stream_has_its_own_seed(void **state)
{
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT, own = PLIM_STREAM_PARAMS_INIT;
        plim_stream_params_t valid = PLIM_STREAM_PARAMS_INIT;
        plim__load_plan_t plan = plan_as(&test_two_hops, way);
        plim_loader_t *loader = open_planned(&plan);
        plan.recipe.seed = 1234;
        plim_loader_t *other = open_planned(&plan);
        own.has_seed = valid.has_seed = true;
        own.seed = valid.seed = 1234;
        valid.split = PLIM_VALID;
        valid.shuffle = way % 2 == 0;
        plim_stream_t *streams[] = {open_stream(loader, &usual), open_stream(loader, &own),
                                    open_stream(loader, &valid)};
        own.seed = test_two_hops.seed;
        plim_stream_t *same = open_stream(loader, &own);
        plim_stream_t *expected = open_stream(other, &usual);
        valid.has_seed = false;
        plim_stream_t *expected_valid = open_stream(other, &valid);
        for (int64_t epoch = 0; epoch < 2; epoch++) {
            const uint64_t hash = whole(loader, streams[0], epoch);
            assert_true(whole(loader, streams[1], epoch) == whole(other, expected, epoch));
            assert_true(whole(loader, streams[2], epoch) == whole(other, expected_valid, epoch));
            assert_true(whole(loader, streams[1], epoch) != hash);
            assert_true(whole(loader, same, epoch) == hash);
            assert_true(whole(loader, streams[0], epoch) == hash);
        }
        for (int i = 0; i < 3; i++)
            plim_stream_release(streams[i]);
        plim_stream_release(same);
        plim_stream_release(expected);
        plim_stream_release(expected_valid);
        plim_loader_release(loader);
        plim_loader_release(other);
    }
}

/* Takes an epoch and compares each seed with the entry of the list at its input id. */
static void check_input_ids(plim_stream_t *stream, const int64_t *list, int64_t epoch)
{
    plim_batch_t *batch;
    int64_t ids[64];
    assert_ok(plim_stream_start(stream, epoch, 0));
    while ((batch = test_next(stream)) != NULL) {
        assert_true(batch->num_seeds <= 64);
        assert_ok(plim_stream_input_ids(stream, batch, ids));
        for (int64_t i = 0; i < batch->num_seeds; i++)
            assert_int_equal(list[ids[i]], ((const int32_t *)batch->nodes)[i]);
        plim_batch_release(batch);
    }
}

static void test_input_ids_are_positions_in_the_list(void **state)
{
    plim_batch_t other = {.step = 1 << 20, .num_seeds = 1};
    int64_t ids[1];
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        plim_loader_t *loader = open_loader(way);
        for (int kind = 0; kind < 6; kind++) {
            plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
            params.shuffle = kind % 2 == 0;
            if (kind >= 2) {
                params.nodes = fixture.splits[PLIM_TRAIN];
                params.num_nodes = fixture.info->num_split[PLIM_TRAIN];
            }
            if (kind >= 4) {
                params.share = 1;
                params.num_shares = 3;
            }
            plim_stream_t *stream = open_stream(loader, &params);
            for (int64_t epoch = 0; epoch < 3; epoch++)
                check_input_ids(stream, fixture.splits[PLIM_TRAIN], epoch);
            assert_int_equal(plim_stream_input_ids(stream, &other, ids), PLIM_ERR_USAGE);
            plim_stream_release(stream);
        }
        plim_loader_release(loader);
    }
}

/* A share of a batch takes the memory of a batch of its size. */
static void test_shares_are_planned_as_such(void **state)
{
    plim_recipe_t recipe = test_two_hops;
    plim_stream_params_t stream = PLIM_STREAM_PARAMS_INIT;
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    plim_plan_t *plan;
    int64_t nodes[3]; /* of a slot */
    (void)state;
    recipe.form = PLIM_PYG;
    recipe.batch_size = 8;
    params.streams = &stream;
    params.num_streams = 1;
    params.num_slots = 4;
    for (int i = 0; i < 3; i++) { /* the size of a share; a share; the whole */
        stream.batch_size = i == 0 ? 8 : 64;
        stream.num_shares = i == 1 ? 8 : 1;
        assert_ok(plim_load_plan(&fixture.job, fixture.dataset, &recipe, &params, &plan));
        plim_plan_info_t info = PLIM_PLAN_INFO_INIT;
        assert_ok(plim_plan_info(plan, &info));
        nodes[i] = info.slot_nodes;
        plim_plan_release(plan);
    }
    assert_int_equal(nodes[0], nodes[1]);
    assert_true(nodes[1] < nodes[2]);
}

/* Of 60 shares of batches of 48 seeds the last 12 are always empty, others in the last batch. */
static void test_shares_may_be_empty(void **state)
{
    static const int shares[] = {0, 47, 48, 59};
    const int64_t all = fixture.info->num_split[PLIM_TRAIN];
    (void)state;
    for (int i = 0; i < 4 * WAYS; i++) {
        plim_loader_t *loader = open_loader(i / 4);
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_batch_t *batch;
        int64_t step = 0;
        params.share = shares[i % 4];
        params.num_shares = 60;
        plim_stream_t *stream = open_stream(loader, &params);
        assert_int_equal(plim__stream_steps(stream), (all - 1) / 48 + 1);
        assert_ok(plim_stream_start(stream, 0, 0));
        for (assert_ok(plim_stream_next(stream, -1, &batch)); batch != NULL;
             assert_ok(plim_stream_next(stream, -1, &batch)), step++) {
            const int64_t seeds = step < all / 48 ? 48 : all % 48;
            assert_true(batch->step == step && batch->last_part && batch->batch_seeds == seeds);
            assert_int_equal(batch->num_seeds, params.share < seeds ? 1 : 0);
            assert_true(batch->num_seeds > 0 || batch->num_nodes == 0);
            assert_int_equal(batch->num_blocks, 2);
            plim_batch_release(batch);
        }
        assert_int_equal(step, plim__stream_steps(stream));
        plim_stream_release(stream);
        plim_loader_release(loader);
    }
}

/* Seeds of the training split's first epoch, in its order. */
static int64_t *epoch_order(plim_loader_t *loader)
{
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *stream = open_stream(loader, &usual);
    int64_t *order = malloc((size_t)fixture.info->num_split[PLIM_TRAIN] * sizeof *order), count = 0;
    plim_batch_t *batch;
    assert_non_null(order);
    assert_ok(plim_stream_start(stream, 0, 0));
    while ((batch = test_next(stream)) != NULL) {
        for (int64_t i = 0; i < batch->num_seeds; i++)
            order[count++] = ((const int32_t *)batch->nodes)[i];
        plim_batch_release(batch);
    }
    assert_int_equal(count, fixture.info->num_split[PLIM_TRAIN]);
    plim_stream_release(stream);
    return order;
}

/* Takes an epoch of a stream of shares, interrupted after every third part by another stream, and
 * compares each part with its place in the order. */
static void check_shares(plim_loader_t *loader, const plim_stream_params_t *params,
                         const int64_t *order, plim_stream_t *other)
{
    const int64_t all = fixture.info->num_split[PLIM_TRAIN];
    const int64_t end = params->share + params->share_count;
    plim_stream_t *stream = open_stream(loader, params);
    int64_t step = 0, seed = 0, seeds = 0, parts = 0;
    int share = params->share;
    plim_batch_t *batch;
    uint64_t hash = 0;
    assert_ok(plim_stream_start(stream, 0, 0));
    assert_ok(plim_stream_start(other, 0, 0));
    while ((batch = test_next(stream)) != NULL) {
        const int64_t size = plim__min_i64(48, all - step * 48);
        const int64_t first = plim__share_first(size, params->num_shares, params->share);
        const int64_t stop = plim__share_first(size, params->num_shares, share + 1) - first;
        assert_true(batch->step == step && batch->batch_seeds == size);
        assert_true(batch->share == share && batch->num_shares == params->num_shares);
        assert_true(batch->first_seed == seed && seed + batch->num_seeds <= stop);
        for (int64_t i = 0; i < batch->num_seeds; i++)
            assert_int_equal(((const int32_t *)batch->nodes)[i],
                             order[step * 48 + first + seed + i]);
        seed += batch->num_seeds;
        seeds += batch->num_seeds;
        share += seed == stop;
        assert_int_equal(batch->last_part, share == end);
        if (share == end) {
            share = params->share;
            seed = 0;
            step++;
        }
        plim_batch_release(batch);
        if (++parts % 3 == 0)
            (void)take(loader, other, 1, &hash);
    }
    assert_int_equal(step, plim__stream_steps(stream));
    assert_int_equal(seeds, plim__stream_count(stream));
    plim_stream_release(stream);
}

/* Shares of a stream come one after the other, no part has seeds of two, and an interrupted stream
 * goes on where it was, also among shares without seeds. */
static void test_a_stream_delivers_several_shares(void **state)
{
    static const int cases[][3] = {{0, 3, 3}, {1, 2, 3}, {2, 4, 7}, {40, 15, 60}, {0, 60, 60}};
    static const int wrong[][3] = {{0, 0, 3}, {0, 4, 3}, {2, 2, 3}, {-1, 1, 3}};
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        plim_loader_t *loader = open_loader(way);
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_stream_t *stream;
        params.split = PLIM_VALID;
        plim_stream_t *other = open_stream(loader, &params);
        int64_t *order = epoch_order(loader);
        params.split = PLIM_TRAIN;
        for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
            params.share = cases[i][0];
            params.share_count = cases[i][1];
            params.num_shares = cases[i][2];
            check_shares(loader, &params, order, other);
        }
        for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
            params.share = wrong[i][0];
            params.share_count = wrong[i][1];
            params.num_shares = wrong[i][2];
            assert_int_equal(plim_loader_stream(loader, &params, &stream), PLIM_ERR_USAGE);
        }
        free(order);
        plim_stream_release(other);
        plim_loader_release(loader);
    }
}

/* A stream with more hops and larger batches than test_two_hops. */
static plim_stream_params_t larger_stream(void)
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    params.nodes = fixture.splits[PLIM_TEST];
    params.num_nodes = fixture.info->num_split[PLIM_TEST];
    params.batch_size = 130;
    params.num_hops = 3;
    params.fanout[0] = params.fanout[1] = params.fanout[2] = 6;
    return params;
}

/* Hashes of a training epoch and of the larger stream's, of a loader that was planned for both. */
static void hash_planned(const plim_recipe_t *recipe, uint64_t *train_out, uint64_t *larger_out)
{
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT, larger = larger_stream();
    plim_plan_params_t params = PLIM_PLAN_PARAMS_INIT;
    plim__load_plan_t plan;
    params.streams = &larger;
    params.num_streams = 1;
    assert_ok(plim__load_plan(&fixture.job, fixture.dataset, recipe, &params, &plan));
    plim_loader_t *loader = open_planned(&plan);
    plim_stream_t *train = open_stream(loader, &usual), *other = open_stream(loader, &larger);
    *train_out = whole(loader, train, 1);
    *larger_out = whole(loader, other, 0);
    plim_stream_release(train);
    plim_stream_release(other);
    plim_loader_release(loader);
}

/* A stream whose seeds are replaced gives the batches of a stream over them, without labels. */
static void test_seeds_are_replaced(void **state)
{
    const int64_t *train = fixture.splits[PLIM_TRAIN], *valid = fixture.splits[PLIM_VALID];
    const int64_t outside = fixture.info->num_nodes;
    (void)state;
    for (int way = 0; way < WAYS; way++) {
        plim_loader_t *loader = open_loader(way);
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_batch_t *batch;
        params.shuffle = false;
        params.nodes = train;
        params.num_nodes = 60;
        params.no_labels = true;
        plim_stream_t *replaced = open_stream(loader, &params);
        uint64_t before = whole(loader, replaced, 1), hash = 0;
        for (int64_t count = 60; count > 0; count -= 29) {
            params.nodes = valid;
            params.num_nodes = count;
            plim_stream_t *other = open_stream(loader, &params);
            assert_ok(plim_stream_start(replaced, 1, 0));
            assert_true(take(loader, replaced, 1, &hash)); /* in the middle of a run */
            assert_ok(plim_stream_reseed(replaced, valid, count));
            assert_int_equal(plim_stream_next(replaced, -1, &batch), PLIM_ERR_USAGE);
            assert_int_equal(plim__stream_count(replaced), count);
            const uint64_t expected = whole(loader, other, 1);
            assert_true(whole(loader, replaced, 1) == expected && expected != before);
            plim_stream_release(other);
            before = expected;
        }
        assert_int_equal(plim_stream_reseed(replaced, train, 61), PLIM_ERR_USAGE);
        assert_int_equal(plim_stream_reseed(replaced, train, 0), PLIM_ERR_USAGE);
        assert_int_equal(plim_stream_reseed(replaced, &outside, 1), PLIM_ERR_USAGE);
        assert_true(whole(loader, replaced, 1) == before);
        assert_ok(plim_stream_start(replaced, 0, 0));
        assert_ok(plim_stream_next(replaced, -1, &batch));
        assert_null(batch->labels);
        plim_batch_release(batch);
        assert_int_equal(plim_stream_reseed(test_stream(loader, PLIM_TRAIN), train, 1),
                         PLIM_ERR_USAGE);
        params.no_labels = false;
        plim_stream_t *labelled = open_stream(loader, &params);
        assert_int_equal(plim_stream_reseed(labelled, train, 1), PLIM_ERR_USAGE);
        plim_stream_release(labelled);
        plim_stream_release(replaced);
        plim_loader_release(loader);
    }
}

static void test_the_headroom_of_a_loader(void **state)
{
    plim_headroom_t room = PLIM_HEADROOM_INIT, more = PLIM_HEADROOM_INIT, wrong = {.size = 0};
    const size_t size = (size_t)64 << 20;
    (void)state;
    plim_loader_t *loader = open_loader(0);
    assert_ok(plim_loader_headroom(loader, &room));
    char *taken = malloc(size);
    assert_non_null(taken);
    memset(taken, 1, size);
    assert_ok(plim_loader_headroom(loader, &more));
    free(taken);
    assert_in_range(more.held - room.held, size / 2, 2 * size); /* the workers hold more or less */
    assert_true(more.held > 0 && more.bound > more.held && more.files > 0 && more.reserve > 0);
    assert_true(strlen(more.source) > 0 && more.cached >= 0);
    assert_int_equal(plim_loader_headroom(loader, &wrong), PLIM_ERR_USAGE);
    plim_loader_release(loader);
}

/* A stream that is larger than planned is added in the middle of an epoch: both give the batches of
 * a loader that was planned for both. */
static void test_a_larger_stream_is_added(void **state)
{
    const int64_t before = plim__ledger_reserved(fixture.job.ledger);
    (void)state;
    for (int way = 0; way < 2 * WAYS - 1; way++) { /* PyG's form does not come in parts */
        const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT, larger = larger_stream();
        plim_recipe_t recipe = test_two_hops;
        uint64_t expected_train, expected, hash = 0, larger_hash = 0;
        int64_t epoch, step, old_epoch, old_step;
        plim_batch_t *batch;
        plim_stream_t *other;
        recipe.form = way < WAYS ? PLIM_NATIVE : PLIM_PYG;
        hash_planned(&recipe, &expected_train, &expected);
        const plim__load_plan_t plan = plan_as(&recipe, way % WAYS);
        plim_loader_t *loader = open_planned(&plan);
        plim_stream_t *train = open_stream(loader, &usual);
        assert_ok(plim_stream_start(train, 1, 0));
        assert_true(take(loader, train, 3, &hash));
        assert_ok(plim_stream_next(train, -1, &batch));
        hash = plim_loader_hash(loader, batch, hash);
        test_position(train, &old_epoch, &old_step);
        other = open_stream(loader, &larger); /* while a batch is held, which keeps its slots */
        plim_batch_release(batch);
        assert_int_equal(loader->context.plan.num_slots, plan.num_slots);
        assert_int_equal(loader->context.plan.part_seeds, plan.part_seeds);
        test_position(train, &epoch, &step);
        assert_true(epoch == old_epoch && step == old_step);
        assert_ok(plim_stream_start(other, 0, 0));
        assert_true(take(loader, other, 1, &larger_hash));
        assert_true(take(loader, train, 1, &hash));
        assert_false(take(loader, other, INT64_MAX, &larger_hash));
        assert_false(take(loader, train, INT64_MAX, &hash));
        assert_true(hash == expected_train && larger_hash == expected);
        plim_stream_release(other);
        other = open_stream(loader, &larger); /* fits now */
        assert_true(whole(loader, other, 0) == expected);
        plim_stream_release(train);
        plim_stream_release(other);
        plim_loader_release(loader);
        assert_int_equal(plim__ledger_reserved(fixture.job.ledger), before);
    }
}

/* When remaking fails, the loader is as before. */
static void test_a_loader_survives_a_failure_to_remake_it(void **state)
{
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT, larger = larger_stream();
    (void)state;
    for (int way = 0; way < 2; way++) {
        plim_loader_t *loader = open_loader(way);
        plim_stream_t *train = open_stream(loader, &usual), *other;
        const uint64_t expected = whole(loader, train, 2);
        plim_status_t status = PLIM_ERR_NOMEM;
        int failures = 0;
        while (status == PLIM_ERR_NOMEM) {
            uint64_t hash = 0;
            assert_ok(plim_stream_start(train, 2, 0));
            assert_true(take(loader, train, 2, &hash));
            test_map_fail_at(failures + 1);
            status = plim_loader_stream(loader, &larger, &other);
            test_map_fail_at(0);
            failures += status == PLIM_ERR_NOMEM;
            assert_false(take(loader, train, INT64_MAX, &hash));
            assert_true(hash == expected);
        }
        assert_ok(status);
        assert_true(failures > 5);
        plim_stream_release(train);
        plim_stream_release(other);
        plim_loader_release(loader);
    }
}

/* Under a line that is too low for it the stream is refused, and the others continue. */
static void test_a_stream_too_large_for_the_line_is_refused(void **state)
{
    const int64_t num_many = (int64_t)4 << 20;
    int64_t *many = calloc((size_t)num_many, sizeof *many);
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT;
    plim_stream_params_t larger = PLIM_STREAM_PARAMS_INIT;
    plim_recipe_t recipe = test_two_hops;
    plim__load_plan_t plan;
    plim_loader_t *loader;
    plim_stream_t *other;
    uint64_t hash = 0;
    (void)state;
    plim_job_t job = test_job_make((int64_t)96 << 20, 2, PLIM_IO_AUTO);
    recipe.replace = true;
    larger.num_hops = 2;
    larger.fanout[0] = larger.fanout[1] = 4096;
    assert_ok(plim__load_plan(&job, fixture.dataset, &recipe, NULL, &plan));
    assert_ok(plim__loader_create(&job, fixture.dataset, &plan, &loader));
    plim_stream_t *train = open_stream(loader, &usual);
    const uint64_t expected = whole(loader, train, 0);
    assert_ok(plim_stream_start(train, 0, 0));
    assert_true(take(loader, train, 2, &hash));
    const int64_t reserved = plim__ledger_reserved(job.ledger);
    assert_int_equal(plim_loader_stream(loader, &larger, &other), PLIM_ERR_BUDGET);
    assert_int_equal(plim__ledger_reserved(job.ledger), reserved);
    assert_false(take(loader, train, INT64_MAX, &hash));
    assert_true(hash == expected);
    larger.fanout[0] = larger.fanout[1] = 40;
    larger.nodes = many; /* there is no memory for such a list, wherever it would be taken from */
    larger.num_nodes = num_many;
    assert_int_equal(plim_loader_stream(loader, &larger, &other), PLIM_ERR_BUDGET);
    assert_true(whole(loader, train, 0) == expected);
    free(many);
    larger.nodes = NULL;
    larger.num_nodes = 0;
    other = open_stream(loader, &larger);
    assert_true(whole(loader, other, 0) != expected);
    assert_true(whole(loader, train, 0) == expected);
    assert_true(plim__ledger_reserved(job.ledger) > reserved);
    plim_stream_release(train);
    plim_stream_release(other);
    plim_loader_release(loader);
    test_job_end(&job);
}

/* A loader that cannot be made again says so in every call, and can be released. */
static void test_a_loader_whose_files_are_gone(void **state)
{
    const plim_stream_params_t usual = PLIM_STREAM_PARAMS_INIT, larger = larger_stream();
    test_loader_t other = test_loader_open("gone", &test_plain_graph, 2, PLIM_IO_AUTO);
    const plim__load_plan_t plan = test_plan_disk(other.info, &test_two_hops, 2, 3);
    const int64_t before = plim__ledger_reserved(other.job.ledger);
    plim_loader_t *loader;
    plim_stream_t *stream;
    plim_batch_t *batch;
    plim_load_stats_t stats = PLIM_LOAD_STATS_INIT;
    void *base;
    size_t bytes;
    char path[600];
    (void)state;
    assert_ok(plim__loader_create(&other.job, other.dataset, &plan, &loader));
    plim_stream_t *train = open_stream(loader, &usual);
    assert_ok(plim_stream_start(train, 0, 0));
    assert_ok(plim_stream_next(train, -1, &batch));
    plim_batch_release(batch);
    (void)snprintf(path, sizeof path, "%s/gone/features.npy", test_loader_directory);
    assert_int_equal(unlink(path), 0);
    const plim_status_t status = plim_loader_stream(loader, &larger, &stream);
    assert_true(status != PLIM_OK);
    assert_int_equal(plim_loader_stream(loader, &usual, &stream), status);
    assert_int_equal(plim_stream_start(train, 0, 0), status);
    assert_int_equal(plim_stream_next(train, -1, &batch), status);
    plim_loader_memory(loader, &base, &bytes);
    plim_loader_stats(loader, &stats);
    assert_true(base == NULL && bytes == 0 && stats.batches == 1);
    plim_stream_release(train);
    plim_loader_release(loader);
    assert_int_equal(plim__ledger_reserved(other.job.ledger), before);
    test_loader_close(&other);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_list_is_like_a_split),
        cmocka_unit_test(test_streams_over_one_list),
        cmocka_unit_test(test_a_list_keeps_its_order),
        cmocka_unit_test(test_all_nodes_need_no_list),
        cmocka_unit_test(test_interrupted_streams_go_on),
        cmocka_unit_test(test_positions_can_be_resumed),
        cmocka_unit_test(test_windows_outlast_interruptions),
        cmocka_unit_test(test_nothing_is_built_past_the_end),
        cmocka_unit_test(test_next_can_be_tried_and_timed),
        cmocka_unit_test(test_a_batch_outlives_its_loader),
        cmocka_unit_test(test_streams_that_cannot_be),
        cmocka_unit_test(test_streams_are_planned_together),
        cmocka_unit_test(test_a_stream_has_its_own_seed),
        cmocka_unit_test(test_input_ids_are_positions_in_the_list),
        cmocka_unit_test(test_shares_are_planned_as_such),
        cmocka_unit_test(test_shares_may_be_empty),
        cmocka_unit_test(test_a_stream_delivers_several_shares),
        cmocka_unit_test(test_seeds_are_replaced),
        cmocka_unit_test(test_the_headroom_of_a_loader),
        cmocka_unit_test(test_a_larger_stream_is_added),
        cmocka_unit_test(test_a_loader_survives_a_failure_to_remake_it),
        cmocka_unit_test(test_a_stream_too_large_for_the_line_is_refused),
        cmocka_unit_test(test_a_loader_whose_files_are_gone),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
