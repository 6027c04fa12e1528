/* The choice of cached lists and rows against the formula in double precision, and against epochs
 * that are really drawn. */
/* labels: plain */
#include "support/harness.h"
#include "support/lists.h"

#include "base/check.h"
#include "base/permute.h"
#include "sample/access.h"
#include "support/draws.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LINE ((int64_t)256 << 20)
#define PLENTY ((size_t)64 << 20)
/* Codes are processed 65,536 nodes at a time: two such chunks under a sanitizer, else three. */
enum { NODES = TEST_SANITIZED ? 70000 : 140000, SEEDS = 3000, SMALL = 3000, SMALL_SEEDS = 150 };

typedef struct world {
    char directory[512];
    char path[600];
    plim_job_t job;
    test_lists_t lists;
    plim_dataset_t *dataset;
    plim__offsets_t *offsets;
    int64_t *seeds;
    int64_t num_seeds;
    double *before; /* (num_nodes) chances before the last hop, and after it */
    double *after;
} world_t;

/* A graph in which low numbers are drawn much more often than high ones; seeds anywhere. */
static void world_make(world_t *world, int64_t num_nodes, int64_t long_every, int64_t longest,
                       int64_t num_seeds)
{
    *world = (world_t){.num_seeds = num_seeds};
    test_directory_make(world->directory);
    (void)snprintf(world->path, sizeof world->path, "%s/data", world->directory);
    world->job = test_job_make(LINE, 2, PLIM_IO_AUTO);
    world->lists = test_lists_random(num_nodes, long_every, longest, 11);
    for (int64_t i = 0; i < world->lists.indptr[num_nodes]; i++) {
        double place = (double)world->lists.indices[i] / (double)num_nodes;
        world->lists.indices[i] = (int64_t)(place * place * place * (double)num_nodes);
    }
    assert_ok(test_lists_write(&world->job, world->path, &world->lists));
    assert_ok(plim_dataset_open(&world->job, world->path, &world->dataset));
    assert_ok(plim__offsets_create(&world->job, world->dataset, false, &world->offsets));
    plim__permute_t permute = plim__permute_make((uint64_t)num_nodes, 77);
    world->seeds = calloc((size_t)num_seeds + 1, sizeof(int64_t));
    for (int64_t i = 0; i < num_seeds; i++)
        world->seeds[i] = (int64_t)plim__permute_forward(&permute, (uint64_t)i);
    world->before = calloc((size_t)num_nodes, sizeof(double));
    world->after = calloc((size_t)num_nodes, sizeof(double));
}

static void world_end(world_t *world)
{
    free(world->before);
    free(world->after);
    free(world->seeds);
    plim__offsets_destroy(world->offsets);
    plim_dataset_release(world->dataset);
    test_lists_free(&world->lists);
    test_job_end(&world->job);
    test_directory_remove(world->directory);
}

static int64_t degree_of(const world_t *world, int64_t node)
{
    return world->lists.indptr[node + 1] - world->lists.indptr[node];
}

static plim__access_params_t params_of(const world_t *world, size_t room)
{
    return (plim__access_params_t){.num_hops = 2,
                                   .fanout = {3, 2},
                                   .seeds = world->seeds,
                                   .num_seeds = world->num_seeds,
                                   .share = 1,
                                   .row_bytes = 100,
                                   .list_bytes = 4,
                                   .list_fixed = 8,
                                   .row_capacity = room,
                                   .list_capacity = room,
                                   .capacity = room,
                                   .work_bytes = PLENTY,
                                   .tmp = world->directory};
}

static double chance_drawn(const plim__access_params_t *params, int hop, int64_t degree)
{
    double k = (double)params->fanout[hop], d = (double)degree;
    if (k < 0)
        return 1;
    return params->replace ? 1 - pow(1 - 1 / d, k) : fmin(1, k / d);
}

/* The header's formula, as it stands. */
static void brute_force(world_t *world, const plim__access_params_t *params)
{
    const test_lists_t *lists = &world->lists;
    const size_t bytes = (size_t)lists->num_nodes * sizeof(double);
    memset(world->before, 0, bytes);
    memset(world->after, 0, bytes);
    for (int64_t i = 0; i < world->num_seeds; i++)
        world->after[world->seeds[i]] = params->share;
    for (int hop = 0; hop < params->num_hops; hop++) {
        if (params->fanout[hop] == 0)
            continue;
        memcpy(world->before, world->after, bytes);
        for (int64_t v = 0; v < lists->num_nodes; v++) {
            int64_t degree = degree_of(world, v);
            if (world->before[v] == 0 || degree == 0)
                continue;
            double x = world->before[v] * chance_drawn(params, hop, degree);
            for (int64_t i = lists->indptr[v]; i < lists->indptr[v + 1]; i++) {
                int64_t u = lists->indices[i];
                world->after[u] = 1 - (1 - world->after[u]) * (1 - x);
            }
        }
    }
}

static size_t list_size(const world_t *world, const plim__access_params_t *params, int64_t node)
{
    return params->list_fixed + params->list_bytes * (size_t)degree_of(world, node);
}

/* What is chosen, what is left out, and and the probabilities by brute force. */
typedef struct judged {
    double chosen;
    double all;
    size_t bytes;
    double least_in; /* density of the least dense one chosen, and … */
    double most_out; /* … of the densest one not chosen, of those that may be */
    int64_t count;
    int64_t possible; /* with any access probability */
    size_t largest;   /* of those */
} judged_t;

static void judge(judged_t *judged, bool chosen, double gain, size_t bytes)
{
    double density = gain / (double)bytes;
    judged->all += gain;
    judged->possible += gain > 0;
    if (gain > 0 && bytes > judged->largest)
        judged->largest = bytes;
    if (chosen) {
        assert_true(gain > 0);
        judged->chosen += gain;
        judged->bytes += bytes;
        judged->count++;
        judged->least_in = fmin(judged->least_in, density);
    } else {
        judged->most_out = fmax(judged->most_out, density);
    }
}

static void judge_all(const world_t *world, const plim__access_params_t *params,
                      const plim__access_t *access, judged_t *lists_out, judged_t *rows_out)
{
    *lists_out = *rows_out = (judged_t){.least_in = HUGE_VAL};
    for (int64_t node = 0; node < world->lists.num_nodes; node++) {
        if (params->list_bytes > 0 && degree_of(world, node) > 0)
            judge(lists_out, plim__node_set_has(&access->lists, node), world->before[node],
                  list_size(world, params, node));
        else
            assert_false(plim__node_set_has(&access->lists, node));
        if (params->row_bytes > 0)
            judge(rows_out, plim__node_set_has(&access->rows, node), world->after[node],
                  params->row_bytes);
        else
            assert_false(plim__node_set_has(&access->rows, node));
    }
    assert_int_equal(lists_out->bytes, access->list_bytes);
    assert_int_equal(rows_out->bytes, access->row_bytes);
    assert_int_equal(lists_out->count, access->lists.count);
    assert_int_equal(rows_out->count, access->rows.count);
    assert_true(access->list_bytes <= params->list_capacity);
    assert_true(access->row_bytes <= params->row_capacity);
    assert_true(access->list_bytes + access->row_bytes <= params->capacity);
}

static void assert_near(double value, double expected, double relative)
{
    if (fabs(value - expected) > relative * fabs(expected))
        fail_msg("%.9g is not %.9g within %g", value, expected, relative);
}

/* Two steps of 0.2 % in density, and what a hop's code may round off. */
#define SLACK 1.006

/* The choice is the greedy one: nothing left out is denser than what was taken of its kind, and of
 * the other kind when `both` compete for one room. */
/* All nodes with any access probability, but for those whose access was rounded to nothing. */
static void check_reach(const plim__reach_bin_t bins[PLIM__REACH_BINS], const judged_t *judged)
{
    int64_t nodes = 0;
    for (int i = 0; i < PLIM__REACH_BINS; i++)
        nodes += bins[i].nodes;
    assert_in_range(nodes, judged->possible - judged->possible / 100, judged->possible);
}

static void check_choice(world_t *world, const plim__access_params_t *params, bool both)
{
    plim__access_t access;
    judged_t lists, rows;
    assert_ok(plim__access_find(&world->job, world->dataset, world->offsets, params, &access));
    judge_all(world, params, &access, &lists, &rows);
    assert_true(lists.most_out <= lists.least_in * SLACK);
    assert_true(rows.most_out <= rows.least_in * SLACK);
    if (both && params->list_bytes > 0 && params->row_bytes > 0) {
        assert_true(lists.most_out <= rows.least_in * SLACK);
        assert_true(rows.most_out <= lists.least_in * SLACK);
    }
    /* A room with something left out is full. */
    size_t left = params->capacity - access.list_bytes - access.row_bytes;
    if (lists.count < lists.possible)
        assert_true(left < lists.largest ||
                    params->list_capacity - access.list_bytes < lists.largest);
    if (rows.count < rows.possible)
        assert_true(left < lists.largest + params->row_bytes ||
                    params->row_capacity - access.row_bytes < params->row_bytes);
    if (params->list_bytes > 0)
        check_reach(access.reach.bins[PLIM__REACH_LISTS], &lists);
    if (params->row_bytes > 0)
        check_reach(access.reach.bins[PLIM__REACH_ROWS], &rows);
    assert_near(access.list_hits, lists.all > 0 ? lists.chosen / lists.all : 0, 1e-3);
    assert_near(access.row_hits, rows.all > 0 ? rows.chosen / rows.all : 0, 1e-3);
    plim__access_free(&access);
}

static void equals_brute_force(void **state)
{
    (void)state;
    static const struct {
        int num_hops;
        int64_t fanout[3];
        bool replace;
        double share;
    } cases[] = {
        {2, {3, 2}, false, 1},     {3, {15, 10, 5}, false, 1},   {2, {3, 2}, true, 1},
        {2, {3, 2}, false, 0.002}, {2, {-1, 4}, false, 0.5},     {3, {0, 5, 0}, false, 1},
        {0, {0}, false, 1},        {3, {4096, 1, 1}, true, 0.1},
    };
    world_t world;
    world_make(&world, NODES, 30000, 100000, SEEDS);
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        plim__access_params_t params = params_of(&world, 0);
        params.num_hops = cases[i].num_hops;
        memcpy(params.fanout, cases[i].fanout, sizeof cases[i].fanout);
        params.replace = cases[i].replace;
        params.share = cases[i].share;
        params.row_bytes = i % 3 == 1 ? 0 : 100;
        brute_force(&world, &params);
        for (size_t room = 50000; room <= 5000000; room *= TEST_SANITIZED ? 100 : 10) {
            params.capacity = params.list_capacity = params.row_capacity = room;
            check_choice(&world, &params, true);
        }
    }
    world_end(&world);
}

/* Rooms of their own, tight or wide, and none at all. */
static void keeps_to_each_room(void **state)
{
    (void)state;
    static const size_t rooms[] = {0, 99, 7000, 23456, 70000, SIZE_MAX};
    const int many = sizeof rooms / sizeof rooms[0];
    world_t world;
    world_make(&world, SMALL, 50, 300, SMALL_SEEDS);
    plim__access_params_t params = params_of(&world, 0);
    brute_force(&world, &params);
    for (int i = 0; i < many; i++)
        for (int j = 0; j < many; j++)
            for (int k = 0; k < many; k += 1 + (i + j) % 3) {
                params.capacity = rooms[k];
                params.list_capacity = rooms[i];
                params.row_capacity = rooms[j];
                check_choice(&world, &params, rooms[i] >= rooms[k] && rooms[j] >= rooms[k]);
            }
    world_end(&world);
}

/* A number for the whole result. */
static uint64_t digest(const plim__access_t *access)
{
    uint64_t hash = (uint64_t)access->list_bytes, bits;
    hash = plim__mix64(hash) ^ access->row_bytes;
    memcpy(&bits, &access->list_hits, sizeof bits);
    hash = plim__mix64(hash) ^ bits;
    memcpy(&bits, &access->row_hits, sizeof bits);
    hash = plim__mix64(hash) ^ bits;
    for (int64_t i = 0; i < access->lists.num_lines; i++)
        for (int j = 0; j < 7; j++) {
            hash = plim__mix64(hash) ^ access->lists.lines[i].bits[j];
            hash = plim__mix64(hash) ^ access->rows.lines[i].bits[j];
        }
    return hash;
}

/* The rows that a window misses have room beside what is kept, or nothing is changed for them. */
static void leaves_room_for_misses(void **state)
{
    (void)state;
    world_t world;
    world_make(&world, NODES, 30000, 100000, SEEDS);
    plim__access_params_t params = params_of(&world, 0);
    int shared = 0, kept_more = 0;
    for (size_t room = 500000; room <= 20000000; room *= 2) {
        plim__access_t plain, access;
        params.capacity = params.list_capacity = params.row_capacity = room;
        params.miss_capacity = room / 2;
        params.miss_min = room / 3;
        params.miss_bytes = 0;
        assert_ok(plim__access_find(&world.job, world.dataset, world.offsets, &params, &plain));
        params.list_capacity = params.row_capacity = room + params.miss_capacity;
        for (params.miss_bytes = 100; params.miss_bytes <= 800; params.miss_bytes *= 2) {
            assert_ok(
                plim__access_find(&world.job, world.dataset, world.offsets, &params, &access));
            size_t kept = access.list_bytes + access.row_bytes;
            double needed = (double)kept + access.rows_missed * (double)params.miss_bytes;
            bool fits = needed <= 1.01 * (double)(room + params.miss_capacity);
            assert_true(fits || digest(&access) == digest(&plain));
            assert_true(kept >= plain.list_bytes + plain.row_bytes);
            assert_true(kept + params.miss_min <= room + params.miss_capacity);
            shared += fits;
            kept_more += kept > plain.list_bytes + plain.row_bytes;
            plim__access_free(&access);
        }
        plim__access_free(&plain);
    }
    assert_true(shared > 5 && kept_more > 2);
    world_end(&world);
}

/* Finds under a job of its own, and sees that it keeps to its memory. */
static uint64_t find_with(const world_t *world, int threads, plim_io_engine_t engine,
                          const plim__access_params_t *params)
{
    plim_job_t job = test_job_make(LINE, threads, engine);
    plim__access_t access;
    int64_t reserved = plim__ledger_reserved(job.ledger);
    size_t stays = plim__access_estimate(world->lists.num_nodes, false);
    assert_ok(plim__access_find(&job, world->dataset, world->offsets, params, &access));
    assert_true(plim__ledger_peak(job.ledger) - reserved <= (int64_t)(stays + params->work_bytes));
    assert_int_equal(plim__ledger_reserved(job.ledger) - reserved, stays);
    uint64_t hash = digest(&access);
    plim__access_free(&access);
    assert_int_equal(plim__ledger_reserved(job.ledger), reserved);
    test_job_end(&job);
    return hash;
}

static void is_the_same_however_it_is_found(void **state)
{
    (void)state;
    static const int threads[] = {1, 2, 8};
    static const plim_io_engine_t engines[] = {PLIM_IO_AUTO, PLIM_IO_THREADS};
    static const int64_t fanouts[][3] = {{3, 2, 0}, {15, 10, 5}};
    world_t world;
    world_make(&world, NODES, 30000, 100000, SEEDS);
    for (int f = 0; f < 2; f++) {
        plim__access_params_t params = params_of(&world, 1234567);
        params.num_hops = 3;
        memcpy(params.fanout, fanouts[f], sizeof fanouts[f]);
        uint64_t expected = find_with(&world, 1, PLIM_IO_AUTO, &params);
        for (int t = TEST_SANITIZED ? 1 : 0; t < 3; t++)
            for (int e = 0; e < 2; e++) {
                plim_job_t job = world.job;
                job.threads = threads[t];
                job.io_engine = engines[e];
                size_t least = plim__access_work_minimum(&job, NODES);
                const size_t first = TEST_SANITIZED ? 12900000 : 300000;
                for (size_t more = 0; more < PLENTY; more = more * 6 + first) {
                    params.work_bytes = least + more;
                    assert_int_equal(find_with(&world, threads[t], engines[e], &params), expected);
                }
                params.work_bytes = least - 1;
                plim__access_t access;
                assert_int_equal(
                    plim__access_find(&job, world.dataset, world.offsets, &params, &access),
                    PLIM_ERR_BUDGET);
            }
    }
    world_end(&world);
}

/* In little memory the counters of many nodes take many passes over the lists. */
static void estimates_what_it_reads(void **state)
{
    (void)state;
    plim_job_t job = test_job_make(LINE, 2, PLIM_IO_AUTO);
    const plim_dataset_info_t info = {
        .num_nodes = 2200000000, .num_edges = 2200000000, .index_type = PLIM_U32};
    const int64_t lists = 4 * info.num_edges, codes = 2 * info.num_nodes;
    const int64_t few = plim__access_reads(&job, &info, 2, (size_t)16 << 30);
    const int64_t many = plim__access_reads(&job, &info, 2, (size_t)240 << 20);
    assert_int_equal(few, 2 * lists);
    assert_true(many > 60 * (lists + codes) && many < 90 * (lists + codes));
    assert_true(plim__access_reads(&job, &info, 2, 1) == INT64_MAX);
    test_job_end(&job);
}

/* Draws an epoch as the sampler does and marks whose lists and rows it needs. */
static void draw_epoch(const world_t *world, const plim__access_params_t *params, int64_t epoch,
                       bool *lists, bool *rows)
{
    int64_t positions[PLIM__FANOUT_MAX];
    const int64_t num_nodes = world->lists.num_nodes;
    memset(rows, 0, (size_t)num_nodes);
    for (int64_t i = 0; i < world->num_seeds; i++)
        rows[world->seeds[i]] =
            plim__rng_double(99, (uint64_t)(epoch * num_nodes + i)) < params->share;
    for (int h = 0; h < params->num_hops; h++) {
        plim__hop_t hop = {.seed = 5,
                           .epoch = epoch,
                           .hop = h,
                           .fanout = params->fanout[h],
                           .replace = params->replace};
        memcpy(lists, rows, (size_t)num_nodes);
        for (int64_t v = 0; v < num_nodes; v++) {
            int64_t degree = degree_of(world, v);
            if (!lists[v] || degree == 0)
                continue;
            test_draw_positions(&hop, v, degree, positions);
            for (int64_t i = 0; i < plim__draw_count(&hop, degree); i++)
                rows[world->lists.indices[world->lists.indptr[v] + positions[i]]] = true;
        }
    }
}

enum { EPOCHS = 200 };

/* Draws EPOCHS epochs: how often each node's list and row was needed. */
static void draw_epochs(const world_t *world, const plim__access_params_t *params, int *list_needs,
                        int *row_needs)
{
    static bool lists[SMALL], rows[SMALL];
    memset(list_needs, 0, SMALL * sizeof *list_needs);
    memset(row_needs, 0, SMALL * sizeof *row_needs);
    for (int64_t epoch = 0; epoch < EPOCHS; epoch++) {
        draw_epoch(world, params, epoch, lists, rows);
        for (int64_t node = 0; node < SMALL; node++) {
            list_needs[node] += lists[node] && degree_of(world, node) > 0;
            row_needs[node] += rows[node];
        }
    }
}

static double share_of(const int *needs, const plim__node_set_t *set)
{
    double all = 0, hits = 0;
    for (int64_t node = 0; node < SMALL; node++) {
        all += needs[node];
        hits += plim__node_set_has(set, node) ? needs[node] : 0;
    }
    return hits / all;
}

/* The mean over all nodes of the squared distance between how often one was needed and how often it
 * should have been, in variances of a coin of that chance: 1 when the chances are right. */
static double distance(const int *needs, const double *chances)
{
    double sum = 0, count = 0;
    for (int64_t node = 0; node < SMALL; node++) {
        double chance = chances[node], away = needs[node] - EPOCHS * chance;
        if (chance < 0.05 || chance > 0.95)
            continue;
        sum += away * away / (EPOCHS * chance * (1 - chance));
        count++;
    }
    return sum / count;
}

/* The chances, and the hits expected from them, are those of epochs really drawn. A small part of
 * the seeds makes what they lead to less independent than the formula takes it. */
static void foretells_what_is_drawn(void **state)
{
    (void)state;
    static int list_needs[SMALL], row_needs[SMALL];
    world_t world;
    world_make(&world, SMALL, 50, 300, SMALL_SEEDS);
    for (int i = 0; i < 4; i++) {
        plim__access_params_t params = params_of(&world, i < 2 ? 20000 : 80000);
        plim__access_t access;
        params.share = i % 2 == 0 ? 1 : 0.1;
        params.replace = i == 3;
        double tolerance = i % 2 == 0 ? 0.01 : 0.08;
        assert_ok(plim__access_find(&world.job, world.dataset, world.offsets, &params, &access));
        draw_epochs(&world, &params, list_needs, row_needs);
        assert_near(access.list_hits, share_of(list_needs, &access.lists), tolerance);
        assert_near(access.row_hits, share_of(row_needs, &access.rows), tolerance);
        assert_true(access.list_hits > 0.2 && access.row_hits > 0.05);
        brute_force(&world, &params);
        assert_true(distance(row_needs, world.after) < 1.5);
        plim__access_free(&access);
    }
    world_end(&world);
}

static void takes_all_there_is_or_nothing(void **state)
{
    (void)state;
    plim__access_t access;
    judged_t lists, rows;
    world_t world;
    world_make(&world, SMALL, 50, 300, SMALL_SEEDS);
    plim__access_params_t params = params_of(&world, SIZE_MAX);
    brute_force(&world, &params);
    assert_ok(plim__access_find(&world.job, world.dataset, world.offsets, &params, &access));
    judge_all(&world, &params, &access, &lists, &rows);
    assert_int_equal(lists.count, lists.possible);
    assert_int_equal(rows.count, rows.possible);
    assert_true(access.list_hits == 1 && access.row_hits == 1);
    plim__access_free(&access);

    params.num_seeds = 0;
    assert_ok(plim__access_find(&world.job, world.dataset, world.offsets, &params, &access));
    assert_int_equal(access.lists.count + access.rows.count, 0);
    assert_true(access.list_hits == 0 && access.row_hits == 0);
    plim__access_free(&access);
    plim__access_free(&access);
    world_end(&world);
}

static plim_status_t find_and_free(plim_job_t *job, void *context)
{
    const world_t *world = context;
    plim__access_params_t params = params_of(world, 10000);
    plim__access_t access;
    params.work_bytes = plim__access_work_minimum(job, world->lists.num_nodes) + 100000;
    plim_status_t status = plim__access_find(job, world->dataset, world->offsets, &params, &access);
    if (status == PLIM_OK)
        plim__access_free(&access);
    return status;
}

static void fails_cleanly(void **state)
{
    (void)state;
    plim__access_t access;
    world_t world;
    world_make(&world, SMALL, 50, 300, SMALL_SEEDS);
    plim_job_t *job = &world.job;
    plim__access_params_t params = params_of(&world, 10000);
    test_fail_each_arena(job, find_and_free, &world);

    const volatile int stop = 1;
    job->stop = &stop;
    assert_int_equal(plim__access_find(job, world.dataset, world.offsets, &params, &access),
                     PLIM_ERR_STOPPED);
    job->stop = NULL;
    world.seeds[7] = SMALL;
    assert_int_equal(plim__access_find(job, world.dataset, world.offsets, &params, &access),
                     PLIM_ERR_DATA);
    world_end(&world);
}

static void says_what_is_wrong_with_the_file(void **state)
{
    (void)state;
    static const int32_t wrong[] = {-1, SMALL, INT32_MIN, INT32_MAX};
    char path[700], place[64];
    plim__access_t access;
    world_t world;
    world_make(&world, SMALL, 50, 300, SMALL);
    plim__access_params_t params = params_of(&world, 10000);
    for (int i = 0; i < 4; i++) {
        int64_t entry = world.lists.indptr[SMALL] * i / 4 + 1;
        int32_t right = (int32_t)world.lists.indices[entry];
        test_overwrite(world.path, "indices.npy", entry, &wrong[i], sizeof wrong[i]);
        assert_int_equal(
            plim__access_find(&world.job, world.dataset, world.offsets, &params, &access),
            PLIM_ERR_DATA);
        (void)snprintf(place, sizeof place, "indices.npy: entry %lld is %d,", (long long)entry,
                       (int)wrong[i]);
        assert_non_null(strstr(plim_last_error(), place));
        test_overwrite(world.path, "indices.npy", entry, &right, sizeof right);
    }
    (void)snprintf(path, sizeof path, "%s/indices.npy", world.path);
    assert_int_equal(truncate(path, 4096 + 5000), 0);
    assert_int_equal(plim__access_find(&world.job, world.dataset, world.offsets, &params, &access),
                     PLIM_ERR_DATA);
    assert_non_null(strstr(plim_last_error(), "indices.npy"));
    world_end(&world);
}

/* Lists are packed with all rows, the densest first as far as there is room. */
static void check_packed_lists(const world_t *world, const plim__working_set_t *set, int64_t most)
{
    int64_t reached = 0;
    double least[PLIM__ORDER_CLASSES + 1], left_out = 0;
    for (int class = 0; class <= PLIM__ORDER_CLASSES; class ++)
        least[class] = 1;
    for (int64_t node = 0; node < NODES; node++) {
        const int64_t position = plim__node_set_position(&set->order.nodes, node);
        const int class =
            position < 0 || set->num_lists == 0 ? 0 : plim__node_order_class(&set->lists, position);
        const int64_t degree = world->lists.indptr[node + 1] - world->lists.indptr[node];
        const double density = world->before[node] / (double)(8 + 4 * degree);
        reached += world->before[node] > 1e-6 && degree > 0;
        assert_true(class == 0 || degree > 0);
        if (class == 0 && degree > 0)
            left_out = fmax(left_out, density);
        least[class] = fmin(least[class], density);
    }
    for (int class = 1; class < PLIM__ORDER_CLASSES; class ++)
        assert_true(least[class] == 1 || left_out <= least[class] * 1.02 + 1e-6);
    if (set->complete)
        assert_true(set->num_lists > (most == NODES ? reached / 20 * 19 : most / 8));
    else
        assert_int_equal(set->num_lists, 0);
    assert_true(set->num_lists <= most);
}

/* The rows of a working set are the most probable ones, in descending classes, however it is made;
 * seeds count alike in whichever list they are. */
static void packs_the_most_probable(void **state)
{
    (void)state;
    world_t world;
    world_make(&world, NODES, 30000, 100000, SEEDS);
    plim__access_params_t params = params_of(&world, 0);
    params.share = 0.1;
    brute_force(&world, &params);
    int64_t reached = 0;
    for (int64_t node = 0; node < NODES; node++)
        reached += world.after[node] > 1e-6;
    for (int i = 0; i < 6; i++) {
        const int64_t most = i % 2 == 0 ? NODES : reached / 2;
        double least[PLIM__ORDER_CLASSES + 1], left_out = 0;
        plim__working_set_t *set;
        plim_job_t job = world.job;
        job.threads = 1 + i;
        params.work_bytes =
            i < 4 ? (size_t)PLENTY : plim__access_work_minimum(&job, NODES) + (200 << 10);
        params.num_seeds = i < 2 ? SEEDS : SEEDS / 2;
        params.others[0] = world.seeds + SEEDS / 2;
        params.num_others[0] = i < 2 ? 0 : SEEDS - SEEDS / 2;
        assert_ok(plim__access_pack(
            &job, world.dataset, world.offsets, &params, world.directory, 7,
            (plim__working_size_t){most, i < 2 ? NODES : reached / 4, world.lists.indptr[NODES]},
            &set));
        check_packed_lists(&world, set, i < 2 ? NODES : reached / 4);
        const plim__node_order_t *order = &set->order;
        assert_int_equal(set->complete, i % 2 == 0);
        assert_true(order->nodes.count <= most);
        assert_true(order->nodes.count >= (i % 2 == 0 ? reached / 20 * 19 : most / 2));
        for (int class = 0; class <= PLIM__ORDER_CLASSES; class ++)
            least[class] = 1;
        for (int64_t node = 0; node < NODES; node++) {
            const int64_t position = plim__node_set_position(&order->nodes, node);
            if (position < 0) {
                left_out = fmax(left_out, world.after[node]);
                continue;
            }
            double *bound = &least[plim__node_order_class(order, position)];
            *bound = fmin(*bound, world.after[node]);
        }
        for (int64_t node = 0; node < NODES; node++) {
            const int64_t position = plim__node_set_position(&order->nodes, node);
            const int class = position < 0 ? 0 : plim__node_order_class(order, position);
            for (int higher = 0; higher < class; higher++)
                assert_true(world.after[node] <= least[higher] * 1.02 + 1e-5);
        }
        for (int class = 0; class < PLIM__ORDER_CLASSES; class ++)
            assert_true(order->counts[class] == 0 || left_out <= least[class] * 1.02 + 1e-5);
        assert_true(order->counts[0] > 0 && order->counts[0] < order->nodes.count / 4);
        plim__working_set_destroy(set);
    }
    world_end(&world);
}

/* The chance that each node's row, or list, is needed, by brute force. */
static const double *chances_of(const world_t *world, bool lists)
{
    return lists ? world->before : world->after;
}

static int class_of(const plim__working_set_t *set, int64_t node, bool lists)
{
    const int64_t position = plim__node_set_position(&set->order.nodes, node);
    return position < 0 ? -1 : plim__node_order_class(lists ? &set->lists : &set->order, position);
}

/* Rows, or lists, that a window needs, of the first bytes of a set: whole classes, and a part of
 * the next. */
static double needed_of(const world_t *world, const plim__access_params_t *params,
                        const plim__working_set_t *set, bool lists, size_t bytes)
{
    double sums[PLIM__ORDER_CLASSES] = {0}, sizes[PLIM__ORDER_CLASSES] = {0}, needed = 0;
    for (int64_t node = 0; node < NODES; node++) {
        const int class = class_of(set, node, lists);
        if (class < lists || (lists && degree_of(world, node) == 0))
            continue;
        sums[class] += chances_of(world, lists)[node];
        sizes[class] += lists ? (double)params->list_bytes * (double)degree_of(world, node)
                              : (double)params->row_bytes;
    }
    double left = (double)bytes;
    for (int class = lists; class < PLIM__ORDER_CLASSES && left > 0; class ++) {
        const double part = sizes[class] > 0 ? fmin(left / sizes[class], 1) : 0;
        needed += sums[class] * part;
        left -= sizes[class] * part;
    }
    return needed;
}

/* A set's classes tell how often windows of any length need them, and how its beginnings share
 * memory with each other and with missed rows, about as well as weighing does. */
static void is_chosen_by_classes(void **state)
{
    (void)state;
    static const double shares[] = {0.125, 1, 0.7, 0.04, 0.003};
    world_t world;
    plim__working_set_t *set;
    plim__access_t weighed, chosen;
    world_make(&world, NODES, 30000, 3000, SEEDS);
    plim__access_params_t params = params_of(&world, 0);
    params.share = shares[0];
    assert_ok(plim__access_pack(&world.job, world.dataset, world.offsets, &params, world.directory,
                                7, (plim__working_size_t){NODES, NODES, world.lists.indptr[NODES]},
                                &set));
    assert_true(set->complete && set->num_lists > 0);
    for (int s = 0; s < 5; s++) {
        const double near = s == 0 ? 0.02 : 0.1;
        params.share = shares[s];
        brute_force(&world, &params);
        for (size_t room = 800000; room < 20000000; room *= 3) {
            params.capacity = room;
            params.row_capacity = room / 2;
            params.list_capacity = room;
            params.miss_bytes = 0;
            plim__access_of_set(set, &params, &chosen);
            const size_t bytes = chosen.list_bytes + chosen.row_bytes;
            const double lists = needed_of(&world, &params, set, true, chosen.list_bytes);
            const double rows = needed_of(&world, &params, set, false, chosen.row_bytes);
            const double all = needed_of(&world, &params, set, false, SIZE_MAX);
            assert_true(bytes <= room && chosen.row_bytes <= room / 2);
            assert_true(bytes + 200 > room || chosen.row_bytes + 200 > room / 2);
            assert_near(chosen.row_hits, rows / all, near);
            assert_near(chosen.list_hits, lists / needed_of(&world, &params, set, true, SIZE_MAX),
                        near);
            assert_true(fabs(chosen.rows_missed - (all - rows)) <= near * all);
            assert_ok(
                plim__access_find(&world.job, world.dataset, world.offsets, &params, &weighed));
            assert_true(weighed.row_hits + weighed.list_hits > 0.8 * (rows / all));
            assert_true(lists + rows >= 0.7 * (double)weighed.row_hits * all);
            plim__access_free(&weighed);

            params.row_capacity = params.list_capacity = room * 3 / 2;
            params.miss_capacity = room / 2;
            params.miss_min = room / 3;
            params.miss_bytes = 400;
            plim__access_of_set(set, &params, &chosen);
            const size_t kept = chosen.list_bytes + chosen.row_bytes;
            assert_true(kept + params.miss_min <= room + params.miss_capacity);
            assert_true(kept <= room + 200 ||
                        (double)kept + chosen.rows_missed * (double)params.miss_bytes <=
                            1.01 * (double)(room + params.miss_capacity));
        }
    }
    params.list_bytes = params.list_capacity = 0;
    params.row_capacity = params.capacity = 1000;
    plim__access_of_set(set, &params, &chosen);
    assert_true(chosen.row_bytes == 1000 && chosen.list_bytes == 0 && chosen.lists.count == 0);
    plim__working_set_destroy(set);
    world_end(&world);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(equals_brute_force),
        cmocka_unit_test(estimates_what_it_reads),
        cmocka_unit_test(keeps_to_each_room),
        cmocka_unit_test(leaves_room_for_misses),
        cmocka_unit_test(is_the_same_however_it_is_found),
        cmocka_unit_test(foretells_what_is_drawn),
        cmocka_unit_test(takes_all_there_is_or_nothing),
        cmocka_unit_test(fails_cleanly),
        cmocka_unit_test(says_what_is_wrong_with_the_file),
        cmocka_unit_test(packs_the_most_probable),
        cmocka_unit_test(is_chosen_by_classes),
    };
    return cmocka_run_group_tests_name("sample.access", tests, NULL, NULL);
}
