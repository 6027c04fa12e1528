/* The governor: when it shrinks and grows, and that batches stay as they are whatever it does. */
/* labels: plain tsan */
#include "load/loader.h"
#include "support/harness.h"
#include "support/loader.h"

#include "base/rng.h"

#define MIB ((int64_t)1 << 20)
#define MS ((int64_t)1000000)
#define LOOK (250 * MS)

/* MiB. A process that holds FIXED besides its caches, under a line that leaves them all they want.
 */
enum { LINE = 3300, RESERVE = 100, FIXED = 1600, CACHE = 1600, DEAD = RESERVE / 4 };

/* So many looks, 250 ms apart, at so much room, with so much held besides; how often the target
 * changed. */
static int look_beside(plim__governor_t *governor, int64_t *now, int64_t room, int64_t fixed,
                       int looks)
{
    int changes = 0;
    for (int i = 0; i < looks; i++) {
        const plim__headroom_bound_t bound = {
            .bytes = room * MIB, .limit = room * MIB, .file = "memory.max", .fixed = fixed * MIB};
        *now += LOOK;
        changes += plim__governor_see(governor, *now, &bound);
    }
    return changes;
}

static int look(plim__governor_t *governor, int64_t *now, int64_t room, int looks)
{
    return look_beside(governor, now, room, FIXED, looks);
}

static plim__governor_t start(int64_t cache)
{
    plim__governor_t governor;
    plim__governor_start(&governor, LINE * MIB, RESERVE * MIB, cache * MIB);
    return governor;
}

static void shrinks_by_what_is_missing(void **state)
{
    (void)state;
    plim__governor_t governor = start(CACHE);
    int64_t now = 0;
    assert_int_equal(look(&governor, &now, LINE, 100), 0);
    assert_int_equal(look(&governor, &now, 2600, 8), 1);
    assert_int_equal(governor.target, (2600 - RESERVE - FIXED) * MIB);
    assert_int_equal(governor.bound.bytes, 2600 * MIB);
    assert_false(governor.tight);
    assert_int_equal(look(&governor, &now, LINE, 100), 1);
    assert_int_equal(governor.target, CACHE * MIB);
    assert_int_equal(governor.changes, 2);
}

/* What the process takes besides its caches counts like a neighbour's, also where the line is the
 * only bound. */
static void makes_room_for_the_process_itself(void **state)
{
    (void)state;
    plim__governor_t governor = start(CACHE);
    int64_t now = 0;
    assert_int_equal(look_beside(&governor, &now, 100000, FIXED + 300, 8), 1);
    assert_int_equal(governor.target, (CACHE - 300) * MIB);
    assert_int_equal(governor.bound.limit, LINE * MIB);
    assert_int_equal(look_beside(&governor, &now, 100000, FIXED, 100), 1);
    assert_int_equal(governor.target, CACHE * MIB);
    governor.line = PLIM_LINE_NONE; /* and nothing else */
    const plim__headroom_bound_t none = {
        .bytes = INT64_MAX, .limit = INT64_MAX, .fixed = 9000 * MIB};
    assert_false(plim__governor_see(&governor, now, &none));
}

/* A moment, or less than a quarter of the reserve. */
static void leaves_small_and_short_things_alone(void **state)
{
    (void)state;
    plim__governor_t governor = start(CACHE);
    int64_t now = 0;
    for (int i = 0; i < 50; i++) {
        assert_int_equal(look(&governor, &now, 1800, 2), 0);
        assert_int_equal(look(&governor, &now, LINE, 3), 0);
    }
    assert_int_equal(look(&governor, &now, LINE - DEAD, 100), 0);
    assert_int_equal(look(&governor, &now, 2450, 10), 1);
    for (int i = 0; i < 50; i++)
        assert_int_equal(look(&governor, &now, i % 2 == 0 ? 2450 - DEAD : 2450 + DEAD, 10), 0);
}

/* At once and exactly: after a rehearsal. */
static void settles(void **state)
{
    (void)state;
    plim__governor_t governor = start(CACHE);
    plim__headroom_bound_t bound = {.bytes = LINE * MIB, .limit = LINE * MIB, .fixed = FIXED * MIB};
    assert_false(plim__governor_retarget(&governor, &bound));
    bound.fixed += MIB;
    assert_true(plim__governor_retarget(&governor, &bound));
    assert_int_equal(governor.target, (CACHE - 1) * MIB);
    bound.fixed -= 9 * MIB;
    assert_true(plim__governor_retarget(&governor, &bound));
    assert_int_equal(governor.target, CACHE * MIB);
}

/* A neighbour that comes back soon after each growth makes the next one later: few changes. */
static void does_not_flap(void **state)
{
    (void)state;
    plim__governor_t governor = start(CACHE);
    int64_t now = 0;
    int changes = 0;
    for (int i = 0; i < 60; i++) { /* ten minutes */
        changes += look(&governor, &now, 2000, 20);
        changes += look(&governor, &now, LINE, 20);
    }
    assert_true(changes <= 3);
    assert_int_equal(look(&governor, &now, LINE, 4 * 61), 1);
    assert_int_equal(governor.target, CACHE * MIB);
    look(&governor, &now, LINE, 4 * 61); /* after a minute all is forgotten */
    assert_int_equal(look(&governor, &now, 2000, 8) + look(&governor, &now, LINE, 15), 2);
}

/* A neighbour that takes memory in many steps makes the next growth no later than one that takes it
 * at once. */
static void steps_of_one_neighbour_count_once(void **state)
{
    (void)state;
    plim__governor_t governor = start(CACHE);
    int64_t now = 0;
    assert_int_equal(look(&governor, &now, 2000, 8) + look(&governor, &now, LINE, 20), 2);
    for (int room = 3000; room >= 2000; room -= 200)
        assert_int_equal(look(&governor, &now, room, 4), 1);
    assert_int_equal(look(&governor, &now, LINE, 4 * 7), 1);
    assert_int_equal(governor.target, CACHE * MIB);
}

static void knows_when_nothing_helps(void **state)
{
    (void)state;
    plim__governor_t governor = start(CACHE);
    int64_t now = 0;
    assert_int_equal(look(&governor, &now, FIXED + RESERVE - RESERVE / 4, 8), 1);
    assert_int_equal(governor.target, 0);
    assert_false(governor.tight);
    assert_int_equal(look(&governor, &now, FIXED + RESERVE - RESERVE / 4 - 1, 1), 1); /* at once */
    assert_true(governor.tight);
    assert_int_equal(look(&governor, &now, 100, 50), 0);
    assert_int_equal(look(&governor, &now, LINE, 20), 1);
    assert_false(governor.tight);
    governor = start(0); /* without a cache */
    assert_int_equal(look(&governor, &now, FIXED + RESERVE - RESERVE / 4, 20), 0);
    assert_int_equal(look(&governor, &now, FIXED + RESERVE - RESERVE / 4 - 1, 1), 1);
    assert_true(governor.tight && governor.target == 0);
    assert_int_equal(look(&governor, &now, LINE, 20), 1);
    assert_false(governor.tight);
}

/* As if the governor had set that target. */
static void resize(plim_loader_t *loader, int64_t target)
{
    loader->stale |= loader->builder != NULL && target < loader->governor.target;
    loader->governor.target = target;
    plim__governor_apply(&loader->governor, &loader->context);
}

/* The rest of an epoch, the caches re-sized at random between its batches. */
static uint64_t disturbed_hash(plim_loader_t *loader, plim_split_t split, int64_t epoch,
                               int64_t step, uint64_t hash, uint64_t *draw)
{
    const int64_t cache = loader->governor.cache;
    plim_batch_t *batch;
    assert_ok(plim_stream_start(test_stream(loader, split), epoch, step));
    for (;;) {
        if (plim__rng_below(3, draw, 4) == 0)
            resize(loader, plim__rng_below(4, draw, 3) == 0
                               ? cache
                               : (int64_t)plim__rng_below(5, draw, (uint64_t)cache + 1));
        assert_ok(plim_stream_next(test_stream(loader, split), -1, &batch));
        if (batch == NULL)
            return hash;
        hash = plim_loader_hash(loader, batch, hash);
        plim_batch_release(batch);
    }
}

static void batches_stay_the_same(void **state)
{
    (void)state;
    static const int64_t parts[] = {0, 3, 7};
    test_loader_t fixture = test_loader_open("plain", &test_plain_graph, 3, PLIM_IO_AUTO);
    for (int mode = 0; mode < 6; mode += TEST_SANITIZED ? 5 : 1) {
        plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 1 + mode % 3, 9);
        plim_loader_t *loader;
        uint64_t draw = (uint64_t)mode, wanted = 0, hash = 0;
        int64_t num_parts = 0;
        plan.part_seeds = parts[mode / 2];
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            wanted = test_hash_from(loader, PLIM_TRAIN, epoch, epoch, wanted, &num_parts);
            wanted = test_hash_from(loader, PLIM_VALID, epoch, 0, wanted, &num_parts);
        }
        plim_loader_release(loader);
        plan.row_cache_bytes = plan.list_cache_bytes = (size_t)MIB;
        plan.window_rows = mode % 2 == 0 ? plan.window_rows : 600;
        assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
        assert_true(loader->governor.cache > 8 * 4096);
        for (int64_t epoch = 0; epoch < 4; epoch++) {
            hash = disturbed_hash(loader, PLIM_TRAIN, epoch, epoch, hash, &draw);
            hash = disturbed_hash(loader, PLIM_VALID, epoch, 0, hash, &draw);
        }
        plim_loader_release(loader);
        assert_true(hash == wanted);
    }
    test_loader_close(&fixture);
}

/* Where caches hold all rows that training needs, windows do not take the memory that is left: it
 * could not be given back. */
static void windows_take_no_more_than_they_need(void **state)
{
    (void)state;
    test_loader_t fixture = test_loader_open("plain", &test_plain_graph, 2, PLIM_IO_AUTO);
    plim__load_plan_t plan = test_plan_disk(fixture.info, &test_two_hops, 2, 9);
    plim_loader_t *loader;
    plan.shared = true;
    plan.cache_steps = plan.window_steps;
    plan.row_cache_bytes = plan.list_cache_bytes = (size_t)(8 * MIB);
    plan.window_rows = 600;
    assert_ok(plim__loader_create(&fixture.job, fixture.dataset, &plan, &loader));
    assert_true(loader->context.plan.row_cache_bytes < (size_t)(8 * MIB));
    assert_int_equal(loader->context.plan.window_rows, 600);
    plim_loader_release(loader);
    test_loader_close(&fixture);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shrinks_by_what_is_missing),
        cmocka_unit_test(makes_room_for_the_process_itself),
        cmocka_unit_test(leaves_small_and_short_things_alone),
        cmocka_unit_test(settles),
        cmocka_unit_test(does_not_flap),
        cmocka_unit_test(steps_of_one_neighbour_count_once),
        cmocka_unit_test(knows_when_nothing_helps),
        cmocka_unit_test(batches_stay_the_same),
        cmocka_unit_test(windows_take_no_more_than_they_need),
    };
    return cmocka_run_group_tests(tests, test_loader_begin, test_loader_end);
}
