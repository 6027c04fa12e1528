/* Names are numbered and found again, with a table of all of them or of a part at a time. */
#include "support/harness.h"

#include "base/rng.h"
#include "ingest/names.h"

#include <stdio.h>
#include <string.h>

#define NAMES 300000
#define BUFFER ((size_t)64 << 10)

typedef struct world {
    char directory[512];
    plim_job_t job;
    plim__names_t names;
    plim__name_keys_t keys;
} world_t;

/* A small line, under which the table has fewer slots than there are names, or none. */
static void world_make(world_t *world, bool small)
{
    memset(world, 0, sizeof *world);
    test_directory_make(world->directory);
    world->job = test_job_make(PLIM_LINE_NONE, 1, PLIM_IO_AUTO);
    if (small) {
        int64_t reserved = plim__ledger_reserved(world->job.ledger);
        test_job_end(&world->job);
        world->job = test_job_make(reserved + ((int64_t)8 << 20), 1, PLIM_IO_AUTO);
    }
    assert_ok(plim__names_create(&world->names, &world->job, world->directory, BUFFER, "names"));
}

static void world_end(world_t *world)
{
    plim__names_destroy(&world->names);
    plim__name_keys_destroy(&world->keys);
    test_job_end(&world->job);
    test_directory_remove(world->directory);
}

static plim__text_field_t name_of(int64_t id, char text[24])
{
    const int size = snprintf(text, 24, "n%lld", (long long)id);
    return (plim__text_field_t){text, (size_t)size};
}

static int64_t next_of(plim__id_spool_t *spool)
{
    int64_t value = -7, got;
    assert_ok(spool->ids.read(&spool->ids, &value, 1, &got));
    assert_int_equal(got, 1);
    return value;
}

static void finds_every_name(void **state)
{
    (void)state;
    for (int small = 0; small < 2; small++) {
        static plim__id_spool_t ids;
        char text[24];
        uint64_t draw = 0;
        int64_t missing;
        world_t world;
        world_make(&world, small != 0);
        for (int64_t i = 0; i < NAMES; i++)
            assert_ok(plim__names_add(&world.names, name_of(i, text)));
        assert_false(world.names.integers);
        assert_ok(plim__names_check(&world.names));
        for (int64_t i = 0; i < 5000; i++)
            assert_ok(
                plim__name_keys_add(&world.keys, &world.names,
                                    name_of((int64_t)plim__rng_below(1, &draw, NAMES), text)));
        assert_ok(plim__names_find(&world.names, &world.keys, &ids, &missing));
        assert_int_equal(missing, -1);
        draw = 0;
        for (int64_t i = 0; i < 5000; i++)
            assert_int_equal(next_of(&ids), (int64_t)plim__rng_below(1, &draw, NAMES));
        plim__id_spool_destroy(&ids);
        plim__name_keys_destroy(&world.keys);
        for (int64_t i = 0; i < 3; i++)
            assert_ok(plim__name_keys_add(&world.keys, &world.names, name_of(i * NAMES / 2, text)));
        assert_ok(plim__names_find(&world.names, &world.keys, &ids, &missing));
        assert_int_equal(missing, 2);
        plim__id_spool_destroy(&ids);
        world_end(&world);
    }
}

static void refuses_a_name_that_occurs_twice(void **state)
{
    (void)state;
    for (int small = 0; small < 2; small++) {
        char text[24];
        world_t world;
        world_make(&world, small != 0);
        for (int64_t i = 0; i <= NAMES; i++)
            assert_ok(plim__names_add(&world.names, name_of(i < NAMES ? i : 3, text)));
        assert_int_equal(plim__names_check(&world.names), PLIM_ERR_DATA);
        assert_non_null(strstr(plim_last_error(), "rows 3 and 300000"));
        world_end(&world);
    }
}

static void numbers_by_first_appearance(void **state)
{
    (void)state;
    for (int small = 0; small < 2; small++) {
        static plim__id_spool_t ids, firsts;
        static int64_t node_of[NAMES];
        char text[24];
        uint64_t draw = 0;
        int64_t nodes = 0;
        world_t world;
        world_make(&world, small != 0);
        for (int64_t i = 0; i < 2 * (int64_t)NAMES; i++)
            assert_ok(
                plim__name_keys_add(&world.keys, &world.names,
                                    name_of((int64_t)plim__rng_below(2, &draw, NAMES), text)));
        assert_ok(plim__names_number(&world.names, &world.keys, &ids, &firsts));
        memset(node_of, -1, sizeof node_of);
        draw = 0;
        for (int64_t i = 0; i < 2 * (int64_t)NAMES; i++) {
            const uint64_t name = plim__rng_below(2, &draw, NAMES);
            if (node_of[name] < 0) {
                node_of[name] = nodes++;
                assert_int_equal(next_of(&firsts), i);
            }
            assert_int_equal(next_of(&ids), node_of[name]);
        }
        assert_int_equal(firsts.count, nodes);
        plim__id_spool_destroy(&ids);
        plim__id_spool_destroy(&firsts);
        world_end(&world);
    }
}

static void knows_integers(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool integer;
    } cases[] = {{"0", true},    {"-7", true},  {"9223372036854775807", true},
                 {"007", false}, {"+7", false}, {"9223372036854775808", false},
                 {"7a", false},  {"-0", false}, {"123456789012345678901234567890", false}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        world_t world;
        world_make(&world, false);
        assert_ok(plim__names_add(&world.names,
                                  (plim__text_field_t){cases[i].name, strlen(cases[i].name)}));
        assert_int_equal(world.names.integers, cases[i].integer);
        world_end(&world);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(finds_every_name),
        cmocka_unit_test(refuses_a_name_that_occurs_twice),
        cmocka_unit_test(numbers_by_first_appearance),
        cmocka_unit_test(knows_integers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
