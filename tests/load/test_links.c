/* Streams over links: places, seeds and negatives of batches, from memory and from windows. */
#include "load/loader.h"

#include "base/fail.h"
#include "base/rng.h"
#include "io/npy.h"
#include "plan/load_plan.h"
#include "support/harness.h"
#include "support/loader.h"
#include "support/wrapped.h"

#include <math.h>
#include <plimsoll/plimsoll.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define PAIRS 250

static test_loader_t fixture;
static int64_t sources[PAIRS], targets[PAIRS];
static plim_recipe_t recipe;

static int begin(void **state)
{
    (void)test_loader_begin(state);
    fixture = test_loader_open("links", &test_plain_graph, 3, PLIM_IO_AUTO);
    recipe = test_two_hops;
    recipe.form = PLIM_PYG;
    for (int i = 0; i < PAIRS; i++) { /* some nodes are in many pairs, some pairs twice */
        sources[i] = (int64_t)(plim__rng_u64(1, (uint64_t)i) % (i % 3 == 0 ? 20 : TEST_NODES));
        targets[i] = i % 50 == 49 ? targets[i - 1] : (int64_t)(plim__rng_u64(2, (uint64_t)i) % 100);
    }
    return 0;
}

static int end(void **state)
{
    test_loader_close(&fixture);
    return test_loader_end(state);
}

static plim_links_t links_of(plim_negatives_t negatives, double amount)
{
    plim_links_t links = PLIM_LINKS_INIT;
    links.sources = sources;
    links.targets = targets;
    links.num_pairs = PAIRS;
    links.negatives = negatives;
    links.amount = amount;
    return links;
}

/* Writes the pairs to a file: as two rows of int64, or as PAIRS rows of int32. */
static void write_pairs(const char *path, bool by_rows)
{
    unsigned char header[PLIM__NPY_HEADER];
    plim__npy_t npy = {.type = by_rows ? PLIM__NPY_I32 : PLIM__NPY_I64,
                       .num_dims = 2,
                       .shape = {by_rows ? PAIRS : 2, by_rows ? 2 : PAIRS}};
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    plim__npy_header(&npy, header);
    assert_int_equal(fwrite(header, sizeof header, 1, out), 1);
    for (int i = 0; i < 2 * PAIRS; i++) {
        const int64_t wide = i < PAIRS ? sources[i] : targets[i - PAIRS];
        const int32_t narrow = (int32_t)(i % 2 == 0 ? sources[i / 2] : targets[i / 2]);
        assert_int_equal(by_rows ? fwrite(&narrow, sizeof narrow, 1, out)
                                 : fwrite(&wide, sizeof wide, 1, out),
                         1);
    }
    assert_int_equal(fclose(out), 0);
}

/* From memory, from windows of whole epochs and of a few steps, and without a window. */
#define WAYS 4

static plim__load_plan_t plan_way(int way)
{
    plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 3);
    if (way > 0)
        plan = test_plan_disk(fixture.info, &recipe, 3, way == 1 ? 1000 : 3);
    if (way == 3)
        plan.window_draws = 10;
    plan.links = plan.looks_up = true;
    plan.most_seeds = 100000;
    plan.envelope = recipe;
    plan.envelope.batch_size = 1000;
    plan.slot_nodes = TEST_NODES;
    plan.slot_edges = 40000;
    return plan;
}

static plim_loader_t *open_loader(int way)
{
    const plim__load_plan_t plan = plan_way(way);
    plim_loader_t *loader;
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
    return loader;
}

/* The node of a place of a batch. */
static int64_t node_of(const plim_batch_t *batch, int64_t place)
{
    assert_in_range(batch->pair_index[place], 0, batch->num_seeds - 1);
    return test_index_at(&recipe, batch->nodes, batch->pair_index[place]);
}

/* Checks a batch against the pairs; returns a hash of all that it has. */
static uint64_t check(plim_loader_t *loader, const plim_batch_t *batch, const plim_links_t *links,
                      uint64_t hash)
{
    const bool triples = links->negatives == PLIM_NEGATIVE_TARGETS;
    const int64_t pairs = batch->num_pairs, negatives = batch->num_negatives;
    const int64_t first = triples ? pairs : pairs + negatives; /* of the targets' places */
    const int64_t places = triples ? 2 * pairs + negatives : 2 * (pairs + negatives);
    bool *used = calloc((size_t)batch->num_seeds, sizeof *used);
    assert_non_null(used);
    assert_true(batch->last_part && batch->first_seed == 0);
    assert_int_equal(batch->batch_seeds, batch->num_seeds);
    assert_int_equal(negatives, links->negatives == PLIM_NEGATIVES_NONE
                                    ? 0
                                    : (int64_t)ceil((double)pairs * links->amount));
    for (int64_t i = 0; i < pairs; i++) {
        assert_int_equal(node_of(batch, i), sources[batch->pair_ids[i]]);
        assert_int_equal(node_of(batch, first + i), targets[batch->pair_ids[i]]);
        hash = plim__mix64(hash + (uint64_t)batch->pair_ids[i]);
    }
    for (int64_t i = 0; i < places; i++) {
        used[batch->pair_index[i]] = true;
        hash = plim__mix64(hash + (uint64_t)node_of(batch, i));
    }
    for (int64_t i = 0; i < batch->num_seeds; i++) {
        assert_true(used[i]);
        if (i > 0)
            assert_true(test_index_at(&recipe, batch->nodes, i - 1) <
                        test_index_at(&recipe, batch->nodes, i));
    }
    free(used);
    test_check_rows(&fixture, &recipe, batch);
    return plim_loader_hash(loader, batch, hash);
}

/* Whether an edge is to be left out of a batch. */
static bool is_left_out(const plim_batch_t *batch, const plim_links_t *links, int64_t source,
                        int64_t target)
{
    for (int64_t i = 0; i < batch->num_pairs; i++) {
        const int64_t pair = batch->pair_ids[i];
        if ((links->exclude != PLIM_EXCLUDE_NONE && sources[pair] == source &&
             targets[pair] == target) ||
            (links->exclude == PLIM_EXCLUDE_REVERSES && sources[pair] == target &&
             targets[pair] == source))
            return true;
    }
    return false;
}

static int64_t edge_at(const plim_batch_t *batch, int64_t place)
{
    return test_index_at(&recipe, batch->nodes, test_index_at(&recipe, batch->edge_index, place));
}

static int64_t edges_of(const plim_batch_t *batch)
{
    int64_t edges = 0;
    for (int i = 0; i < batch->num_blocks; i++)
        edges += batch->blocks[i].num_edges;
    return edges;
}

/* The batch has the edges of the whole one that are not left out, in its order. Returns how many
 * are. */
static int64_t compare(const plim_batch_t *batch, const plim_batch_t *whole,
                       const plim_links_t *links)
{
    const int64_t edges = edges_of(batch), all = edges_of(whole);
    int64_t at = 0;
    assert_int_equal(batch->num_nodes, whole->num_nodes);
    for (int64_t i = 0; i < all; i++) {
        if (is_left_out(batch, links, edge_at(whole, i), edge_at(whole, all + i)))
            continue;
        assert_int_equal(edge_at(batch, at), edge_at(whole, i));
        assert_int_equal(edge_at(batch, edges + at), edge_at(whole, all + i));
        assert_int_equal(batch->edge_ids[at++], whole->edge_ids[i]);
    }
    assert_int_equal(at, edges);
    test_check_edges(&fixture, &recipe, batch);
    return all - edges;
}

/* Makes the pairs real edges, half of them reversed: the first of each of some lists. */
static void take_edges(void)
{
    for (int64_t i = 0; i < PAIRS; i++) {
        int64_t node = 7 * i;
        while (fixture.indptr[node] == fixture.indptr[node + 1])
            node++;
        targets[i] = i % 2 == 0 ? node : fixture.indices[fixture.indptr[node]];
        sources[i] = i % 2 == 0 ? fixture.indices[fixture.indptr[node]] : node;
    }
}

static void test_left_out(void **state)
{
    int64_t left_out[3] = {0};
    (void)state;
    take_edges();
    recipe.edge_index = recipe.edge_ids = true;
    for (int way = 0; way < 2; way++)
        for (int exclude = PLIM_EXCLUDE_NONE; exclude <= PLIM_EXCLUDE_REVERSES; exclude++) {
            plim_links_t links = links_of(PLIM_NEGATIVE_PAIRS, 1);
            plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
            plim_loader_t *loader = open_loader(way);
            plim_stream_t *stream, *other;
            plim_batch_t *batch, *whole;
            params.links = &links;
            params.batch_size = 40;
            assert_ok(plim_loader_stream(loader, &params, &other));
            links.exclude = (plim_exclude_t)exclude;
            assert_ok(plim_loader_stream(loader, &params, &stream));
            for (int64_t step = 0; step < 7; step++) {
                assert_ok(plim_stream_start(stream, 1, step));
                batch = test_next(stream);
                assert_ok(plim_stream_start(other, 1, step));
                whole = test_next(other);
                left_out[exclude] += compare(batch, whole, &links);
                plim_batch_release(batch);
                plim_batch_release(whole);
            }
            plim_stream_release(stream);
            plim_stream_release(other);
            plim_loader_release(loader);
        }
    assert_true(left_out[0] == 0 && left_out[1] > 50 && left_out[2] > left_out[1]);
    recipe.edge_index = recipe.edge_ids = false;
}

/* An epoch's hash; its pairs are each of the list once. */
static uint64_t epoch_hash(plim_loader_t *loader, plim_stream_t *stream, const plim_links_t *links,
                           int64_t epoch, int64_t step)
{
    int seen[PAIRS] = {0};
    plim_batch_t *batch;
    uint64_t hash = 0;
    assert_ok(plim_stream_start(stream, epoch, step));
    while ((batch = test_next(stream)) != NULL) {
        hash = check(loader, batch, links, step == 0 ? hash : 0);
        for (int64_t i = 0; i < batch->num_pairs; i++)
            seen[batch->pair_ids[i]]++;
        plim_batch_release(batch);
    }
    for (int i = 0; i < PAIRS && step == 0; i++)
        assert_int_equal(seen[i], 1);
    return hash;
}

static void test_batches(void **state)
{
    const struct {
        plim_negatives_t negatives;
        double amount;
        bool shuffle;
    } cases[] = {{PLIM_NEGATIVES_NONE, 1, false},
                 {PLIM_NEGATIVE_PAIRS, 1, true},
                 {PLIM_NEGATIVE_PAIRS, 0.3, true},
                 {PLIM_NEGATIVE_TARGETS, 3, true},
                 {PLIM_NEGATIVE_TARGETS, 1, false}};
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const plim_links_t links = links_of(cases[i].negatives, cases[i].amount);
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        uint64_t expected = 0, last = 0;
        params.links = &links;
        params.batch_size = 40;
        params.shuffle = cases[i].shuffle;
        for (int way = 0; way < WAYS; way++) {
            plim_loader_t *loader = open_loader(way);
            plim_stream_t *stream;
            assert_ok(plim_loader_stream(loader, &params, &stream));
            assert_int_equal(plim__stream_steps(stream), 7);
            const uint64_t hash = epoch_hash(loader, stream, &links, 1, 0);
            assert_true(way == 0 || hash == expected);
            assert_true(hash != epoch_hash(loader, stream, &links, 2, 0));
            const uint64_t tail = epoch_hash(loader, stream, &links, 1, 6); /* without the others */
            assert_true(way == 0 || tail == last);
            expected = hash;
            last = tail;
            plim_stream_release(stream);
            plim_loader_release(loader);
        }
    }
}

/* The negatives of each pair in an epoch: sources, or -1, and targets. */
static void list_negatives(const plim_links_t *links, int64_t batch_size, int64_t each,
                           int64_t found[][2])
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_loader_t *loader = open_loader(1);
    plim_stream_t *stream;
    plim_batch_t *batch;
    params.links = links;
    params.batch_size = batch_size;
    assert_ok(plim_loader_stream(loader, &params, &stream));
    assert_ok(plim_stream_start(stream, 4, 0));
    while ((batch = test_next(stream)) != NULL) {
        const int64_t pairs = batch->num_pairs;
        const bool triples = links->negatives == PLIM_NEGATIVE_TARGETS;
        assert_int_equal(batch->num_negatives, each * pairs);
        for (int64_t i = 0; i < batch->num_negatives; i++) {
            const int64_t pair = batch->pair_ids[triples ? i / each : i % pairs];
            int64_t *to = found[pair * each + (triples ? i % each : i / pairs)];
            to[0] = triples ? -1 : node_of(batch, pairs + i);
            to[1] = node_of(batch, triples ? 2 * pairs + i : 2 * pairs + each * pairs + i);
        }
        plim_batch_release(batch);
    }
    plim_stream_release(stream);
    plim_loader_release(loader);
}

/* Negatives go with the place of their pair in the epoch, whatever the batches; and ranks draw
 * others. */
static void test_negatives_by_place(void **state)
{
    static int64_t found[3][3 * PAIRS][2];
    (void)state;
    for (int kind = PLIM_NEGATIVE_PAIRS; kind <= PLIM_NEGATIVE_TARGETS; kind++) {
        plim_links_t links = links_of((plim_negatives_t)kind, 3);
        int64_t same = 0;
        list_negatives(&links, 40, 3, found[0]);
        list_negatives(&links, 7, 3, found[1]);
        links.rank = 1;
        links.num_ranks = 2;
        list_negatives(&links, 40, 3, found[2]);
        assert_memory_equal(found[0], found[1], sizeof found[0]);
        for (int i = 0; i < 3 * PAIRS; i++)
            same += found[0][i][1] == found[2][i][1];
        assert_true(same < 3 * PAIRS / 10);
    }
}

static bool is_edge(int64_t source, int64_t target)
{
    for (int64_t i = fixture.indptr[target]; i < fixture.indptr[target + 1]; i++)
        if (fixture.indices[i] == source)
            return true;
    return false;
}

/* Negatives that may not be edges: the same in any way, and some would have been edges. Weights
 * leave nodes with many. */
static void test_no_edges(void **state)
{
    double sums[TEST_NODES], sum = 0;
    (void)state;
    for (int64_t i = 0; i < TEST_NODES; i++) {
        const double degree = (double)(fixture.indptr[i + 1] - fixture.indptr[i]);
        sums[i] = sum += degree * degree * degree * degree;
    }
    for (int kind = PLIM_NEGATIVE_PAIRS; kind <= PLIM_NEGATIVE_TARGETS; kind++) {
        plim_links_t links = links_of((plim_negatives_t)kind, 4);
        uint64_t expected = 0;
        links.target_sums = sums;
        for (int way = 0; way <= WAYS; way++) {
            plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
            links.no_edges = way < WAYS;
            plim_loader_t *loader = open_loader(way % WAYS);
            plim_stream_t *stream;
            plim_batch_t *batch;
            int64_t edges = 0;
            uint64_t hash = 0;
            params.links = &links;
            params.batch_size = 40;
            assert_ok(plim_loader_stream(loader, &params, &stream));
            assert_ok(plim_stream_start(stream, 4, 0));
            while ((batch = test_next(stream)) != NULL) {
                const int64_t pairs = batch->num_pairs, negatives = batch->num_negatives;
                const bool both = kind == PLIM_NEGATIVE_PAIRS;
                hash = check(loader, batch, &links, hash);
                for (int64_t i = 0; i < negatives; i++)
                    edges += is_edge(node_of(batch, both ? pairs + i : i / 4),
                                     node_of(batch, 2 * pairs + i + (both ? negatives : 0)));
                plim_batch_release(batch);
            }
            assert_true(way == WAYS ? edges > 0 : edges == 0);
            assert_true(way == 0 || (hash == expected) == links.no_edges);
            expected = hash;
            plim_stream_release(stream);
            plim_loader_release(loader);
        }
    }
}

/* The edges of a batch in native form; none of them is to be left out. */
static int64_t count_kept(const plim_batch_t *batch, const plim_links_t *links)
{
    for (int hop = 0; hop < batch->num_blocks; hop++) {
        const plim_block_t *block = &batch->blocks[hop];
        for (int64_t i = 0; i < block->num_dst; i++)
            for (int64_t j = test_index_at(&recipe, block->indptr, i);
                 j < test_index_at(&recipe, block->indptr, i + 1); j++)
                assert_false(is_left_out(
                    batch, links,
                    test_index_at(&recipe, batch->nodes, test_index_at(&recipe, block->indices, j)),
                    test_index_at(&recipe, batch->nodes, i)));
    }
    return edges_of(batch);
}

/* For native models: the same pairs, in blocks that are a chain. */
static void test_native(void **state)
{
    plim_links_t links = links_of(PLIM_NEGATIVE_PAIRS, 1);
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_plan_params_t parts = PLIM_PLAN_PARAMS_INIT;
    plim__load_plan_t plan;
    int64_t kept[3] = {0};
    recipe.form = PLIM_NATIVE;
    test_batches(state);
    params.links = &links;
    params.batch_size = 40;
    take_edges();
    for (int exclude = PLIM_EXCLUDE_NONE; exclude <= PLIM_EXCLUDE_REVERSES; exclude++) {
        plim_loader_t *loader = open_loader(1);
        plim_stream_t *stream;
        plim_batch_t *batch;
        links.exclude = (plim_exclude_t)exclude;
        assert_ok(plim_loader_stream(loader, &params, &stream));
        assert_ok(plim_stream_start(stream, 0, 0));
        while ((batch = test_next(stream)) != NULL) {
            kept[exclude] += count_kept(batch, &links);
            plim_batch_release(batch);
        }
        plim_stream_release(stream);
        plim_loader_release(loader);
    }
    assert_true(kept[0] > kept[1] && kept[1] > kept[2]);
    parts.streams = &params;
    parts.num_streams = 1;
    assert_ok(plim__load_plan(&fixture.job, fixture.dataset, &recipe, &parts, &plan));
    parts.part_seeds = 10;
    assert_int_equal(plim__load_plan(&fixture.job, fixture.dataset, &recipe, &parts, &plan),
                     PLIM_ERR_USAGE);
    recipe.form = PLIM_PYG;
}

/* Batches of pairs in a file are those of the same pairs in memory. */
static void test_file(void **state)
{
    char path[600];
    (void)state;
    (void)snprintf(path, sizeof path, "%s/pairs.npy", test_loader_directory);
    for (int way = 0; way < WAYS; way++) {
        plim_links_t links = links_of(PLIM_NEGATIVE_PAIRS, 0.3);
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_loader_t *loader = open_loader(way);
        plim_stream_t *memory, *file;
        params.links = &links;
        params.batch_size = 40;
        assert_ok(plim_loader_stream(loader, &params, &memory));
        write_pairs(path, way % 2 == 0);
        links.path = path;
        links.sources = links.targets = NULL;
        assert_ok(plim_loader_stream(loader, &params, &file));
        assert_true(epoch_hash(loader, memory, &links, 3, 0) ==
                    epoch_hash(loader, file, &links, 3, 0));
        plim_stream_release(memory);
        plim_stream_release(file);
        assert_int_equal(truncate(path, PLIM__NPY_HEADER + 100), 0);
        assert_int_equal(plim_loader_stream(loader, &params, &file), PLIM_ERR_DATA);
        plim_loader_release(loader);
    }
}

/* A shuffled file of more pairs than are read at once has the batches of the same pairs in memory,
 * in any order and of several epochs by turns. */
static void test_long_file(void **state)
{
    const int64_t count = 3 * PLIM__LINKS_AHEAD + 12345, each = 1000;
    int64_t *many[2], found[2][2000];
    char path[600];
    plim__seeds_t *seeds[2];
    unsigned char header[PLIM__NPY_HEADER];
    const plim__npy_t npy = {.type = PLIM__NPY_I64, .num_dims = 2, .shape = {count, 2}};
    (void)state;
    (void)snprintf(path, sizeof path, "%s/many.npy", test_loader_directory);
    plim__npy_header(&npy, header);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    assert_int_equal(fwrite(header, sizeof header, 1, out), 1);
    for (int end = 0; end < 2; end++) {
        many[end] = calloc((size_t)count, sizeof *many[end]);
        assert_non_null(many[end]);
        for (int64_t i = 0; i < count; i++)
            many[end][i] = (int64_t)(plim__rng_u64((uint64_t)end, (uint64_t)i) % TEST_NODES);
    }
    for (int64_t i = 0; i < count; i++)
        for (int end = 0; end < 2; end++)
            assert_int_equal(fwrite(&many[end][i], sizeof many[end][i], 1, out), 1);
    assert_int_equal(fclose(out), 0);
    for (int in_file = 0; in_file < 2; in_file++) {
        plim_links_t links = PLIM_LINKS_INIT;
        links.sources = in_file ? NULL : many[0];
        links.targets = in_file ? NULL : many[1];
        links.path = in_file ? path : NULL;
        links.num_pairs = count;
        assert_ok(plim__seeds_create_links(&fixture.job, fixture.dataset, 5, &links, NULL, each,
                                           true, false, &seeds[in_file]));
        plim__seeds_prepare(seeds[in_file], 2);
        plim__seeds_prepare(seeds[in_file], 3);
    }
    for (int64_t i = 0; i < 60; i++) {
        const int64_t step = i < 20 ? i : (i * 97) % (count / each + 1);
        const int64_t pairs = plim__min_i64(each, count - step * each);
        for (int in_file = 0; in_file < 2; in_file++)
            assert_ok(plim__seeds_take_links(seeds[in_file], NULL, true, 2 + i % 2, step * 2 * each,
                                             2 * pairs, found[in_file]));
        assert_memory_equal(found[0], found[1], (size_t)pairs * 2 * sizeof found[0][0]);
    }
    for (int i = 0; i < 2; i++) {
        plim__seeds_destroy(seeds[i]);
        free(many[i]);
    }
    assert_int_equal(unlink(path), 0);
}

/* Batches of the same seeds in other pairs have other hashes. */
static void test_hash(void **state)
{
    static const int64_t nodes[2][2] = {{5, 6}, {8, 9}}, others[] = {9, 8};
    plim_loader_t *loader = open_loader(0);
    uint64_t hashes[2];
    (void)state;
    for (int i = 0; i < 2; i++) {
        plim_links_t links = PLIM_LINKS_INIT;
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_stream_t *stream;
        links.sources = nodes[0];
        links.targets = i == 0 ? nodes[1] : others;
        links.num_pairs = 2;
        params.links = &links;
        params.batch_size = 2;
        params.shuffle = false;
        assert_ok(plim_loader_stream(loader, &params, &stream));
        assert_ok(plim_stream_start(stream, 0, 0));
        plim_batch_t *batch = test_next(stream);
        hashes[i] = plim_loader_hash(loader, batch, 0);
        plim_batch_release(batch);
        plim_stream_release(stream);
    }
    assert_true(hashes[0] != hashes[1]);
    plim_loader_release(loader);
}

/* Creating them under an allocator that fails each time later, until it succeeds. */
static void test_out_of_memory(void **state)
{
    double sums[TEST_NODES];
    plim_links_t links = links_of(PLIM_NEGATIVE_PAIRS, 1);
    char path[600];
    (void)state;
    (void)snprintf(path, sizeof path, "%s/pairs.npy", test_loader_directory);
    write_pairs(path, false);
    for (int i = 0; i < TEST_NODES; i++)
        sums[i] = i + 1;
    links.source_sums = links.target_sums = sums;
    for (int in_file = 0; in_file < 2; in_file++) {
        plim_status_t status = PLIM_ERR_NOMEM;
        const int64_t reserved = plim__ledger_reserved(fixture.job.ledger);
        links.path = in_file ? path : NULL;
        for (int n = 1; status != PLIM_OK; n++) {
            plim__seeds_t *seeds;
            test_map_fail_at(n);
            status = plim__seeds_create_links(&fixture.job, fixture.dataset, 1, &links, NULL, 10,
                                              true, false, &seeds);
            test_map_fail_at(0);
            if (status == PLIM_OK)
                plim__seeds_destroy(seeds);
            else
                assert_int_equal(status, PLIM_ERR_NOMEM);
            assert_int_equal(plim__ledger_reserved(fixture.job.ledger), reserved);
            assert_true(n < 100);
        }
    }
}

/* A loader that was planned without links is planned again for them. */
static void test_added_later(void **state)
{
    plim_links_t links = links_of(PLIM_NEGATIVE_PAIRS, 2);
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim__load_plan_t plan = test_plan_memory(fixture.info, &recipe, 2);
    plim_loader_t *loader;
    plim_stream_t *nodes, *stream;
    plim_batch_t *batch;
    (void)state;
    plan.line = INT64_MAX;
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
    assert_ok(plim_loader_stream(loader, &params, &nodes));
    params.links = &links;
    params.batch_size = 100;
    assert_ok(plim_loader_stream(loader, &params, &stream));
    const uint64_t hash = epoch_hash(loader, stream, &links, 0, 0);
    assert_ok(plim_stream_start(nodes, 0, 0));
    while ((batch = test_next(nodes)) != NULL) {
        assert_int_equal(batch->num_pairs, 0);
        plim_batch_release(batch);
    }
    assert_true(epoch_hash(loader, stream, &links, 0, 0) == hash);
    plim_stream_release(stream);
    links.no_edges = true;
    assert_ok(plim_loader_stream(loader, &params, &stream));
    assert_true(epoch_hash(loader, stream, &links, 0, 0) != hash);
    plim_stream_release(nodes);
    plim_stream_release(stream);
    plim_loader_release(loader);
}

static void refuse(plim_loader_t *loader, plim_links_t links, int64_t batch_size)
{
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim_stream_t *stream;
    params.links = &links;
    params.batch_size = batch_size;
    assert_int_equal(plim_loader_stream(loader, &params, &stream), PLIM_ERR_USAGE);
}

static void test_refused(void **state)
{
    plim_loader_t *loader = open_loader(0);
    plim_links_t links = links_of(PLIM_NEGATIVES_NONE, 1);
    (void)state;
    links.num_pairs = 0;
    refuse(loader, links, 10);
    links = links_of((plim_negatives_t)7, 1);
    refuse(loader, links, 10);
    refuse(loader, links_of(PLIM_NEGATIVE_PAIRS, 0), 10);
    refuse(loader, links_of(PLIM_NEGATIVE_PAIRS, (double)NAN), 10);
    refuse(loader, links_of(PLIM_NEGATIVE_TARGETS, 1.5), 10);
    refuse(loader, links_of(PLIM_NEGATIVE_PAIRS, 1000000), INT64_MAX / 2);
    links = links_of(PLIM_NEGATIVE_PAIRS, 1);
    links.rank = links.num_ranks = 2;
    refuse(loader, links, 10);
    links = links_of(PLIM_NEGATIVES_NONE, 1);
    links.targets = NULL;
    refuse(loader, links, 10);
    links = links_of(PLIM_NEGATIVES_NONE, 1);
    sources[3] = TEST_NODES;
    refuse(loader, links, 10);
    sources[3] = 3;
    links = links_of(PLIM_NEGATIVE_PAIRS, -1e30);
    refuse(loader, links, 10);
    assert_int_equal(plim__negatives_count(&links, 10), INT64_MAX);
    plim_dataset_info_t empty = *fixture.info; /* no edge is pair 0 of either rank */
    empty.num_edges = 0;
    links = links_of(PLIM_NEGATIVES_NONE, 1);
    links.all_edges = true;
    links.num_pairs = 1;
    links.num_ranks = 2;
    assert_int_equal(plim__links_take(&links, &empty, &recipe, 10, &links), PLIM_ERR_USAGE);
    plim_loader_release(loader);
}

/* Shares of batches of 60 pairs are batches of 20, in each form and from each source. */
static void test_shares(void **state)
{
    const plim_links_t links = links_of(PLIM_NEGATIVE_PAIRS, 1.5);
    (void)state;
    for (int way = 0; way < 2 * WAYS; way++) {
        plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
        plim_stream_t *whole;
        plim_batch_t *batch, *own;
        recipe.form = way < WAYS ? PLIM_PYG : PLIM_NATIVE;
        plim_loader_t *loader = open_loader(way % WAYS), *other = open_loader(0);
        params.links = &links;
        params.batch_size = 20;
        assert_ok(plim_loader_stream(other, &params, &whole));
        params.batch_size = 60;
        params.num_shares = 3;
        for (params.share = 0; params.share < 3; params.share += 2) {
            plim_stream_t *stream;
            params.share_count = params.share == 0 ? 2 : 1;
            assert_ok(plim_loader_stream(loader, &params, &stream));
            assert_int_equal(plim__stream_steps(stream), 5);
            assert_ok(plim_stream_start(stream, 1, 0));
            for (int64_t i = 0; i < 5 * params.share_count; i++) {
                batch = test_next(stream);
                const int64_t step = 3 * batch->step + batch->share;
                assert_int_equal(batch->step, i / params.share_count);
                assert_int_equal(batch->share, params.share + i % params.share_count);
                assert_int_equal(batch->last_part, (i + 1) % params.share_count == 0);
                assert_int_equal(batch->batch_labels, batch->step < 4 ? 3 * (20 + 30) : 10 + 15);
                assert_true(batch->pair_index != NULL && batch->num_pairs == (step < 12    ? 20
                                                                              : step == 12 ? 10
                                                                                           : 0));
                if (step < 13) {
                    assert_ok(plim_stream_start(whole, 1, step));
                    own = test_next(whole);
                    assert_int_equal(own->num_seeds, batch->num_seeds);
                    assert_int_equal(own->num_nodes, batch->num_nodes);
                    assert_memory_equal(own->pair_ids, batch->pair_ids,
                                        (size_t)own->num_pairs * sizeof *own->pair_ids);
                    assert_memory_equal(own->pair_index, batch->pair_index,
                                        2 * (size_t)(own->num_pairs + own->num_negatives) *
                                            sizeof *own->pair_index);
                    for (int64_t j = 0; j < own->num_nodes; j++)
                        assert_int_equal(test_index_at(&recipe, own->nodes, j),
                                         test_index_at(&recipe, batch->nodes, j));
                    plim_batch_release(own);
                }
                plim_batch_release(batch);
            }
            assert_null(test_next(stream));
            plim_stream_release(stream);
        }
        plim_stream_release(whole);
        plim_loader_release(other);
        plim_loader_release(loader);
    }
    recipe.form = PLIM_PYG;
}

/* Stands in for the plan of larger slots. */
static plim_status_t refuse_to_plan(const plim_job_t *job, const plim_dataset_t *dataset,
                                    const plim__load_plan_t *plan,
                                    const plim__load_remade_t *remade, plim__load_plan_t *plan_out)
{
    (void)job, (void)dataset, (void)plan, (void)remade, (void)plan_out;
    return plim__fail(PLIM_ERR_BUDGET, "the slots are too small");
}

/* A slot holds one share of a batch of links: two of three shares need no larger ones than one. */
static void test_slots_of_shares(void **state)
{
    const plim_links_t links = links_of(PLIM_NEGATIVE_PAIRS, 1.5);
    plim_stream_params_t params = PLIM_STREAM_PARAMS_INIT;
    plim__load_plan_t plan = plan_way(0);
    plim_loader_t *loader = open_loader(0);
    const plim__load_size_t one =
        plim__loader_bound(loader, recipe.num_hops, recipe.fanout, 2 * (4 + 6));
    (void)state;
    plim_loader_release(loader);
    plan.slot_nodes = one.nodes;
    plan.slot_edges = one.edges;
    plan.again = refuse_to_plan;
    params.links = &links;
    params.num_shares = 3;
    for (int size = 12; size <= 15; size += 3) {
        plim_stream_t *stream;
        int64_t batches = 0;
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        params.batch_size = size;
        for (params.share_count = 1; params.share_count <= 3; params.share_count++) {
            const plim_status_t status = plim_loader_stream(loader, &params, &stream);
            assert_int_equal(status, size == 12 ? PLIM_OK : PLIM_ERR_BUDGET);
            if (status != PLIM_OK)
                continue;
            assert_ok(plim_stream_start(stream, 0, 0));
            for (plim_batch_t *batch; (batch = test_next(stream)) != NULL; batches++) {
                assert_true(batch->num_nodes <= one.nodes);
                plim_batch_release(batch);
            }
            plim_stream_release(stream);
        }
        assert_int_equal(batches, size == 12 ? (1 + 2 + 3) * 21 : 0);
        plim_loader_release(loader);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_batches),
        cmocka_unit_test(test_file),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_added_later),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_left_out),
        cmocka_unit_test(test_hash),
        cmocka_unit_test(test_negatives_by_place),
        cmocka_unit_test(test_no_edges),
        cmocka_unit_test(test_long_file),
        cmocka_unit_test(test_native),
        cmocka_unit_test(test_shares),
        cmocka_unit_test(test_slots_of_shares),
    };
    return cmocka_run_group_tests(tests, begin, end);
}
