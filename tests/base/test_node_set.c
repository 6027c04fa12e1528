/* A node set against a plain array of flags. */
#include "base/node_set.h"
#include "base/rng.h"
#include "support/harness.h"

#define UNIVERSE 5000

static _Alignas(64) plim__node_set_line_t lines[UNIVERSE / PLIM__NODE_SET_BITS + 1];

static void check(int64_t universe, uint64_t one_in)
{
    bool flags[UNIVERSE] = {false};
    int64_t listed[UNIVERSE];
    assert_true(plim__node_set_bytes(universe) <= sizeof lines);
    plim__node_set_t set = plim__node_set_make(lines, universe);
    plim__node_set_clear(&set);
    for (int64_t node = 0; node < universe; node++)
        if (plim__rng_u64(one_in, (uint64_t)node) % one_in == 0) {
            flags[node] = true;
            assert_true(plim__node_set_add(&set, node));
            assert_false(plim__node_set_add(&set, node));
        }
    plim__node_set_seal(&set);
    int64_t position = 0;
    for (int64_t node = 0; node < universe; node++) {
        assert_int_equal(plim__node_set_has(&set, node), flags[node]);
        assert_int_equal(plim__node_set_position(&set, node), flags[node] ? position : -1);
        if (flags[node])
            assert_int_equal(plim__node_set_select(&set, position), node);
        int64_t count = plim__node_set_list(&set, node, 3, listed);
        for (int64_t i = 0, next = node; i < count; i++, next++) {
            while (!flags[next])
                next++;
            assert_int_equal(listed[i], next);
        }
        position += flags[node];
    }
    assert_int_equal(set.count, position);
    assert_int_equal(plim__node_set_list(&set, 0, UNIVERSE, listed), position);
    assert_int_equal(plim__node_set_next(&set, 0), position > 0 ? listed[0] : -1);
    assert_int_equal(plim__node_set_next(&set, universe), -1);
    for (int64_t i = 0; i < position; i++) {
        assert_int_equal(plim__node_set_next_before(&set, i > 0 ? listed[i - 1] + 1 : 0, listed[i]),
                         -1);
        assert_int_equal(plim__node_set_next_before(&set, listed[i], listed[i] + 1), listed[i]);
        assert_int_equal(plim__node_set_next_before(&set, i > 0 ? listed[i - 1] + 1 : 0, universe),
                         listed[i]);
    }
}

static void test_against_flags(void **state)
{
    (void)state;
    const int64_t universes[] = {1, 2, 447, 448, 449, 896, 4999};
    for (size_t i = 0; i < sizeof universes / sizeof *universes; i++)
        for (uint64_t one_in = 1; one_in < 2000; one_in = one_in * 3 + 1)
            check(universes[i], one_in);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_flags)};
    return cmocka_run_group_tests_name("base.node_set", tests, NULL, NULL);
}
