/* Blocks against a naive sampler written from the headers' words alone, and what any block keeps.
 */
#include "support/harness.h"
#include "support/lists.h"
#include "support/sources.h"

#include "sample/blocks.h"

#include <stdio.h>
#include <string.h>

#define LINE ((int64_t)64 << 20)
enum {
    CHUNK = 510,
    NODES = 600,
    LONGEST = 300,
    MOST_NODES = NODES,
    MOST_EDGES = 200000,
    TREES_NODES = 10 * NODES,
    FIRST_TREE = 41
};

/* What a naive build comes to: hops one after the other, as lists of sources. */
typedef struct naive {
    int64_t nodes[TREES_NODES];
    int64_t trees[TREES_NODES]; /* all 0 unless disjoint */
    int64_t num_nodes;
    int64_t first[PLIM__HOPS_MAX], num_dst[PLIM__HOPS_MAX], num_src[PLIM__HOPS_MAX];
    int64_t indptr[PLIM__HOPS_MAX][TREES_NODES + 1];
    int64_t *indices[PLIM__HOPS_MAX];
} naive_t;

static naive_t naive;
static int64_t naive_indices[PLIM__HOPS_MAX][MOST_EDGES];

static int64_t naive_local(int64_t tree, int64_t node)
{
    for (int64_t i = 0; i < naive.num_nodes; i++)
        if (naive.nodes[i] == node && naive.trees[i] == tree)
            return i;
    naive.trees[naive.num_nodes] = tree;
    naive.nodes[naive.num_nodes] = node;
    return naive.num_nodes++;
}

static int64_t naive_draw(const test_lists_t *lists, const plim__blocks_params_t *params,
                          int64_t epoch, int hop, int64_t node, int64_t owner, int64_t *drawn)
{
    uint64_t key = plim__rng_key(params->seed, (uint64_t)epoch, (uint64_t)hop, (uint64_t)owner);
    uint64_t counter = 0;
    const int64_t *list = lists->indices + lists->indptr[node];
    int64_t d = lists->indptr[node + 1] - lists->indptr[node], k = params->fanout[hop];
    bool all = k == -1 || (!params->replace && d <= k);
    int64_t count = all ? d : d == 0 ? 0 : k;
    int64_t taken[LONGEST + 1] = {0};
    for (int64_t i = 0; i < count; i++) {
        int64_t position = i;
        if (!all && params->replace)
            position = (int64_t)plim__rng_below(key, &counter, (uint64_t)d);
        if (!all && !params->replace) {
            int64_t j = d - k + i;
            position = (int64_t)plim__rng_below(key, &counter, (uint64_t)j + 1);
            if (taken[position])
                position = j;
            taken[position] = 1;
        }
        drawn[i] = list[position];
    }
    return count;
}

static void naive_build(const test_lists_t *lists, const plim__blocks_params_t *params,
                        int64_t epoch, const int64_t *seeds, int64_t count)
{
    int64_t drawn[LONGEST + PLIM__FANOUT_MAX], first = 0;
    memset(&naive, 0, sizeof naive);
    for (int64_t i = 0; i < count; i++)
        (void)naive_local(params->node_bits > 0 ? i : 0, seeds[i]);
    for (int hop = 0; hop < params->num_hops; hop++) {
        int64_t end = naive.num_nodes, edges = 0;
        naive.indices[hop] = naive_indices[hop];
        for (int64_t i = first; i < end; i++) {
            const int64_t node = naive.nodes[i], tree = naive.trees[i];
            const int64_t owner =
                params->node_bits > 0 ? plim__draw_owner(FIRST_TREE + tree, node) : node;
            int64_t many = naive_draw(lists, params, epoch, hop, node, owner, drawn);
            assert_true(edges + many <= MOST_EDGES);
            for (int64_t j = 0; j < many; j++)
                if (!params->skip_loops || drawn[j] != naive.nodes[i])
                    naive.indices[hop][edges++] = naive_local(tree, drawn[j]);
            naive.indptr[hop][i - first + 1] = edges;
        }
        naive.first[hop] = first;
        naive.num_dst[hop] = end - first;
        naive.num_src[hop] = naive.num_nodes;
        if (params->form == PLIM_PYG)
            first = end;
    }
}

static int64_t at(const void *array, plim_dtype_t type, int64_t place)
{
    return type == PLIM_I32 ? ((const int32_t *)array)[place] : ((const int64_t *)array)[place];
}

/* The result equals the naive one, value for value. */
static void compare(const plim__blocks_out_t *out, int num_hops)
{
    plim_dtype_t type = out->index_type;
    assert_int_equal(out->num_hops, num_hops);
    assert_int_equal(out->num_nodes, naive.num_nodes);
    for (int64_t i = 0; i < naive.num_nodes; i++) {
        assert_int_equal(at(out->nodes, type, i), naive.nodes[i]);
        assert_int_equal(out->ids[i], naive.nodes[i]);
        if (out->trees != NULL)
            assert_int_equal(at(out->trees, type, i), naive.trees[i]);
    }
    for (int hop = 0; hop < num_hops; hop++) {
        const plim_block_t *block = &out->blocks[hop];
        assert_int_equal(block->first_dst, naive.first[hop]);
        assert_int_equal(block->num_dst, naive.num_dst[hop]);
        assert_int_equal(block->num_src, naive.num_src[hop]);
        assert_int_equal(block->num_edges, naive.indptr[hop][block->num_dst]);
        for (int64_t i = 0; i <= block->num_dst; i++)
            assert_int_equal(at(block->indptr, type, i), naive.indptr[hop][i]);
        for (int64_t i = 0; i < block->num_edges; i++)
            assert_int_equal(at(block->indices, type, i), naive.indices[hop][i]);
    }
}

typedef struct fixture {
    char directory[512];
    char path[600];
    plim_job_t job;
    test_lists_t lists;
    plim_dataset_t *dataset;
    plim__offsets_t *offsets;
    plim__topology_t *source;
} fixture_t;

static fixture_t fixture;
static int64_t nodes_room[TREES_NODES];
static int64_t trees_room[TREES_NODES];
static int64_t edges_room[MOST_EDGES];

static int setup(void **state)
{
    (void)state;
    test_directory_make(fixture.directory);
    (void)snprintf(fixture.path, sizeof fixture.path, "%s/data", fixture.directory);
    fixture.job = test_job_make(LINE, 2, PLIM_IO_AUTO);
    fixture.lists = test_lists_random(NODES, 37, LONGEST, 1);
    test_lists_loops(&fixture.lists, 3, 2);
    assert_ok(test_lists_write(&fixture.job, fixture.path, &fixture.lists));
    assert_ok(plim_dataset_open(&fixture.job, fixture.path, &fixture.dataset));
    assert_ok(plim__offsets_create(&fixture.job, fixture.dataset, false, &fixture.offsets));
    assert_ok(
        test_lists_cached(&fixture.job, fixture.dataset, fixture.offsets, 1, &fixture.source));
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    plim__topology_disk_destroy(fixture.source);
    plim__offsets_destroy(fixture.offsets);
    plim_dataset_release(fixture.dataset);
    test_lists_free(&fixture.lists);
    test_job_end(&fixture.job);
    test_directory_remove(fixture.directory);
    return 0;
}

static plim__blocks_params_t params_of(int num_hops, const int64_t *fanout)
{
    plim__blocks_params_t params = {
        .num_hops = num_hops, .seed = 99, .node_capacity = MOST_NODES, .most_drawn = LONGEST};
    memcpy(params.fanout, fanout, (size_t)num_hops * sizeof *fanout);
    return params;
}

static plim__blocks_out_t room_of(plim_dtype_t type)
{
    return (plim__blocks_out_t){.index_type = type,
                                .node_type = type,
                                .nodes = nodes_room,
                                .node_capacity = MOST_NODES,
                                .edges = edges_room,
                                .edge_capacity = MOST_EDGES};
}

/* `count` distinct seeds that follow from `key`. */
static void choose_seeds(uint64_t key, int64_t count, int64_t *seeds_out)
{
    for (int64_t i = 0; i < count; i++)
        seeds_out[i] = (int64_t)((key * 131 + (uint64_t)i * 7) % NODES); /* 7 and 600 share none */
}

static const struct {
    int num_hops;
    int64_t fanout[4];
} recipes[] = {{1, {3}},          {2, {3, 2}}, {3, {15, 10, 5}}, {2, {-1, 4}},  {2, {5, -1}},
               {4, {2, 2, 2, 2}}, {2, {0, 3}}, {1, {64}},        {2, {40, 130}}};
enum { RECIPES = sizeof recipes / sizeof recipes[0] };

static void check_recipe(size_t recipe, plim_form_t form, bool replace, bool skip_loops)
{
    int64_t seeds[64];
    plim__blocks_t *blocks;
    plim__blocks_params_t params = params_of(recipes[recipe].num_hops, recipes[recipe].fanout);
    params.form = form;
    params.replace = replace;
    params.skip_loops = skip_loops;
    assert_ok(plim__blocks_create(&fixture.job, &params, &blocks));
    for (int64_t epoch = 0; epoch < 6; epoch++) {
        int64_t count = epoch * epoch * 2; /* 0 … 50: grows, so that the table must */
        plim__blocks_out_t out = room_of(epoch % 2 == 0 ? PLIM_I32 : PLIM_I64);
        bool fits = false;
        choose_seeds((uint64_t)epoch, count, seeds);
        naive_build(&fixture.lists, &params, epoch, seeds, count);
        assert_ok(plim__blocks_build(blocks, fixture.source, 0, epoch, seeds, count, &out, &fits));
        assert_true(fits);
        compare(&out, params.num_hops);
    }
    plim__blocks_destroy(blocks);
}

static void equal_the_naive_ones(void **state)
{
    (void)state;
    for (size_t recipe = 0; recipe < RECIPES; recipe++)
        for (int variant = 0; variant < 8; variant++)
            check_recipe(recipe, variant % 2 == 0 ? PLIM_NATIVE : PLIM_PYG, variant / 2 % 2 == 1,
                         variant / 4 == 1);
}

/* Each seed's tree is that of the naive sampler with (tree, node) in place of nodes. Of two equal
 * seeds each has its own; and a tree is the same in another batch that begins with another tree. */
static void disjoint_ones_equal_the_naive_ones(void **state)
{
    (void)state;
    for (size_t recipe = 0; recipe < RECIPES; recipe++)
        for (int variant = 0; variant < 8; variant++) {
            int64_t seeds[10], nodes, edges, needed = 0;
            plim__blocks_t *blocks;
            plim__blocks_params_t params =
                params_of(recipes[recipe].num_hops, recipes[recipe].fanout);
            params.form = variant % 2 == 0 ? PLIM_NATIVE : PLIM_PYG;
            params.replace = variant / 2 % 2 == 1;
            params.skip_loops = variant / 4 == 1;
            params.node_bits = plim__blocks_node_bits(NODES);
            params.node_capacity = TREES_NODES;
            assert_ok(plim__blocks_create(&fixture.job, &params, &blocks));
            const int64_t count = recipes[recipe].fanout[0] == 40 ? 3 : 9;
            plim__blocks_out_t out = room_of(variant % 2 == 0 ? PLIM_I32 : PLIM_I64);
            bool fits = false;
            out.trees = trees_room;
            out.node_capacity = TREES_NODES;
            choose_seeds(recipe, count, seeds);
            seeds[count - 1] = seeds[0];
            naive_build(&fixture.lists, &params, 4, seeds, count);
            plim__blocks_trees(blocks, FIRST_TREE, NULL);
            assert_ok(plim__blocks_build(blocks, fixture.source, 0, 4, seeds, count, &out, &fits));
            assert_true(fits);
            compare(&out, params.num_hops);
            for (int hop = 0; hop < params.num_hops; hop++)
                needed += naive.num_dst[hop] + 1 + naive.indptr[hop][naive.num_dst[hop]];
            plim__blocks_bound(&params, NODES, fixture.lists.indptr[NODES], LONGEST, count, &nodes,
                               &edges);
            assert_true(nodes >= naive.num_nodes && edges >= needed);
            plim__blocks_destroy(blocks);
        }
}

/* Seeds first, every source met, every node but the seeds drawn by somebody. */
static void keep_their_invariants(void **state)
{
    (void)state;
    int64_t seeds[20];
    bool drawn[MOST_NODES] = {false}, fits = false;
    plim__blocks_t *blocks;
    plim__blocks_params_t params = params_of(3, (const int64_t[]){4, 3, 2});
    plim__blocks_out_t out = room_of(PLIM_I32);
    choose_seeds(5, 20, seeds);
    assert_ok(plim__blocks_create(&fixture.job, &params, &blocks));
    assert_ok(plim__blocks_build(blocks, fixture.source, 0, 3, seeds, 20, &out, &fits));
    assert_true(fits);
    assert_memory_equal(out.ids, seeds, sizeof seeds);
    for (int hop = 0; hop < 3; hop++) {
        const plim_block_t *block = &out.blocks[hop];
        const int32_t *indptr = block->indptr, *indices = block->indices;
        assert_int_equal(block->num_dst, hop == 0 ? 20 : out.blocks[hop - 1].num_src);
        assert_int_equal(indptr[0], 0);
        for (int64_t i = 0; i < block->num_dst; i++)
            assert_in_range(indptr[i + 1], indptr[i], indptr[i] + params.fanout[hop]);
        for (int64_t i = 0; i < block->num_edges; i++) {
            assert_in_range(indices[i], 0, block->num_src - 1);
            drawn[indices[i]] = true;
        }
    }
    for (int64_t i = 20; i < out.num_nodes; i++)
        assert_true(drawn[i]);
    plim__blocks_destroy(blocks);
}

/* A native neighbourhood is the same alone and in company. */
static void a_seed_keeps_its_neighbourhood_in_any_company(void **state)
{
    (void)state;
    int64_t seeds[30], alone[3][64];
    bool fits = false;
    plim__blocks_t *blocks;
    plim__blocks_params_t params = params_of(2, (const int64_t[]){4, 3});
    plim__blocks_out_t out = room_of(PLIM_I64);
    assert_ok(plim__blocks_create(&fixture.job, &params, &blocks));
    choose_seeds(9, 30, seeds);
    for (int64_t s = 0; s < 30; s++) {
        int64_t many[2] = {0, 0};
        assert_ok(plim__blocks_build(blocks, fixture.source, 0, 1, &seeds[s], 1, &out, &fits));
        assert_true(fits);
        for (int hop = 0; hop < 2; hop++) {
            const int64_t *indptr = out.blocks[hop].indptr, *indices = out.blocks[hop].indices;
            for (int64_t i = 0; i < indptr[1]; i++)
                alone[hop][many[hop]++] = out.ids[indices[i]];
        }
        assert_ok(plim__blocks_build(blocks, fixture.source, 0, 1, seeds, 30, &out, &fits));
        for (int hop = 0; hop < 2; hop++) {
            const int64_t *indptr = out.blocks[hop].indptr, *indices = out.blocks[hop].indices;
            assert_int_equal(indptr[s + 1] - indptr[s], many[hop]);
            for (int64_t i = 0; i < many[hop]; i++)
                assert_int_equal(out.ids[indices[indptr[s] + i]], alone[hop][i]);
        }
    }
    plim__blocks_destroy(blocks);
}

/* A source of its own: node v draws three of 500 nodes that differ in bits above the 33rd only. */
static plim_status_t draw_far(plim__topology_t *source, int worker, const plim__draws_t *draws,
                              plim__drawn_t *drawn)
{
    const plim__hop_t *hop = draws->hop;
    (void)source;
    (void)worker;
    drawn->indptr[0] = 0;
    for (int64_t i = 0; i < draws->count; i++) {
        for (uint64_t j = 0; j < 3; j++) {
            uint64_t key =
                plim__rng_key(hop->seed, (uint64_t)hop->hop, (uint64_t)draws->owners[i], j);
            drawn->ids[3 * i + (int64_t)j] = (int64_t)(key % 500) << 34 | 7;
        }
        drawn->indptr[i + 1] = 3 * (i + 1);
    }
    drawn->taken = draws->count;
    return PLIM_OK;
}

static void ids_may_be_of_any_size(void **state)
{
    (void)state;
    plim__topology_t source = {.draw = draw_far};
    const int64_t seeds[] = {7, (int64_t)1 << 62, ((int64_t)3 << 34) | 7};
    bool fits = false;
    plim__blocks_t *blocks;
    plim__blocks_params_t params = params_of(5, (const int64_t[]){3, 3, 3, 3, 3});
    plim__blocks_out_t out = room_of(PLIM_I64);
    int64_t indptr[CHUNK + 1], ids[3 * CHUNK];
    plim__drawn_t drawn = {.indptr = indptr, .ids = ids, .capacity = 3 * CHUNK};
    assert_ok(plim__blocks_create(&fixture.job, &params, &blocks));
    assert_ok(plim__blocks_build(blocks, &source, 0, 0, seeds, 3, &out, &fits));
    assert_true(fits);
    memset(&naive, 0, sizeof naive);
    for (int i = 0; i < 3; i++)
        (void)naive_local(0, seeds[i]);
    for (int hop = 0; hop < 5; hop++) {
        const plim__hop_t which = {.seed = params.seed, .hop = hop};
        const int64_t *indices = out.blocks[hop].indices;
        int64_t destinations = naive.num_nodes;
        assert_in_range(destinations, 3, CHUNK);
        const plim__draws_t draws = plim__draws_of(&which, naive.nodes, destinations);
        assert_ok(draw_far(&source, 0, &draws, &drawn));
        assert_int_equal(out.blocks[hop].num_edges, 3 * destinations);
        for (int64_t i = 0; i < 3 * destinations; i++)
            assert_int_equal(indices[i], naive_local(0, ids[i]));
    }
    assert_int_equal(out.num_nodes, naive.num_nodes);
    assert_memory_equal(out.ids, naive.nodes, (size_t)naive.num_nodes * sizeof(int64_t));
    plim__blocks_destroy(blocks);
}

/* Exactly enough fits, one less does not: nodes of the result, nodes of the scratch, edges. */
static void capacities_are_kept(void **state)
{
    (void)state;
    int64_t seeds[40], edges = 0;
    bool fits = false;
    plim__blocks_t *blocks;
    plim__blocks_params_t params = params_of(2, (const int64_t[]){7, 5});
    plim__blocks_out_t out = room_of(PLIM_I32);
    choose_seeds(2, 40, seeds);
    assert_ok(plim__blocks_create(&fixture.job, &params, &blocks));
    assert_ok(plim__blocks_build(blocks, fixture.source, 0, 0, seeds, 40, &out, &fits));
    assert_true(fits);
    int64_t nodes = out.num_nodes;
    for (int hop = 0; hop < 2; hop++)
        edges += out.blocks[hop].num_dst + 1 + out.blocks[hop].num_edges;
    for (int64_t less = 0; less < 3; less++)
        for (int which = 0; which < 2; which++) {
            out = room_of(PLIM_I32);
            out.node_capacity = which == 0 ? nodes - less : MOST_NODES;
            out.edge_capacity = which == 1 ? edges - less : MOST_EDGES;
            assert_ok(plim__blocks_build(blocks, fixture.source, 0, 0, seeds, 40, &out, &fits));
            assert_int_equal(fits, less == 0);
        }
    plim__blocks_destroy(blocks);
    for (int64_t capacity = 1; capacity <= nodes + 1; capacity += capacity < nodes - 2 ? 13 : 1) {
        params.node_capacity = capacity;
        assert_ok(plim__blocks_create(&fixture.job, &params, &blocks));
        for (int64_t room = 0; room < 2; room++) {
            out = room_of(PLIM_I64);
            out.edge_capacity = room == 0 ? MOST_EDGES : capacity;
            assert_ok(plim__blocks_build(blocks, fixture.source, 0, 0, seeds, 40, &out, &fits));
            assert_int_equal(fits, capacity >= nodes && room == 0);
        }
        plim__blocks_destroy(blocks);
    }
}

static void bounds_hold_and_saturate(void **state)
{
    (void)state;
    int64_t seeds[50], nodes, edges;
    for (size_t recipe = 0; recipe < RECIPES; recipe++)
        for (int variant = 0; variant < 4; variant++) {
            plim__blocks_params_t params =
                params_of(recipes[recipe].num_hops, recipes[recipe].fanout);
            params.form = variant % 2 == 0 ? PLIM_NATIVE : PLIM_PYG;
            params.replace = variant / 2 == 1;
            choose_seeds(recipe, 50, seeds);
            naive_build(&fixture.lists, &params, 7, seeds, 50);
            int64_t needed = 0;
            for (int hop = 0; hop < params.num_hops; hop++)
                needed += naive.num_dst[hop] + 1 + naive.indptr[hop][naive.num_dst[hop]];
            plim__blocks_bound(&params, NODES, fixture.lists.indptr[NODES], LONGEST, 50, &nodes,
                               &edges);
            assert_in_range(nodes, naive.num_nodes, NODES);
            assert_true(edges >= needed);
        }
    plim__blocks_params_t params = params_of(3, (const int64_t[]){15, 10, 5});
    plim__blocks_bound(&params, (int64_t)1 << 40, INT64_MAX, 1000, 1024, &nodes, &edges);
    assert_int_equal(nodes, 1024 * 16 * 11 * 6);
    assert_int_equal(edges,
                     1024 * (15 + 1) + 1 + 1024 * 16 * (10 + 1) + 1 + 1024 * 16 * 11 * (5 + 1) + 1);
    plim__blocks_bound(&params, (int64_t)1 << 40, 5000, 1000, 1024, &nodes, &edges);
    assert_int_equal(nodes, 1024 + 3 * 5000);
    assert_int_equal(edges, 3 * (1024 + 1) + 5000 + 2 * 5000 + 3 * 5000);
    params.form = PLIM_PYG;
    plim__blocks_bound(&params, (int64_t)1 << 40, INT64_MAX, 1000, 1024, &nodes, &edges);
    assert_int_equal(nodes, 1024 * (1 + 15 * (1 + 10 * (1 + 5))));
    params.fanout[0] = params.fanout[1] = params.fanout[2] = -1;
    plim__blocks_bound(&params, INT64_MAX, INT64_MAX, INT64_MAX / 2, 1024, &nodes, &edges);
    assert_int_equal(nodes, INT64_MAX);
    assert_int_equal(edges, INT64_MAX);
}

static plim_status_t create_and_destroy(plim_job_t *job, void *context)
{
    plim__blocks_t *blocks;
    plim_status_t status = plim__blocks_create(job, context, &blocks);
    if (status == PLIM_OK)
        plim__blocks_destroy(blocks);
    return status;
}

static void scratch_keeps_to_its_estimate(void **state)
{
    (void)state;
    plim__blocks_t *blocks;
    plim__blocks_params_t params = params_of(2, (const int64_t[]){7, 5});
    int64_t before = plim__ledger_available(fixture.job.ledger);
    assert_ok(plim__blocks_create(&fixture.job, &params, &blocks));
    assert_int_equal(before - plim__ledger_available(fixture.job.ledger),
                     plim__blocks_estimate(&params));
    plim__blocks_destroy(blocks);
    plim__blocks_destroy(NULL);
    test_fail_each_arena(&fixture.job, create_and_destroy, &params);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equal_the_naive_ones),
        cmocka_unit_test(disjoint_ones_equal_the_naive_ones),
        cmocka_unit_test(keep_their_invariants),
        cmocka_unit_test(a_seed_keeps_its_neighbourhood_in_any_company),
        cmocka_unit_test(ids_may_be_of_any_size),
        cmocka_unit_test(capacities_are_kept),
        cmocka_unit_test(bounds_hold_and_saturate),
        cmocka_unit_test(scratch_keeps_to_its_estimate),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
