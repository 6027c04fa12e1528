/* A node set against a plain array of flags. */
#include "base/node_set.h"
#include "base/rng.h"
#include "support/harness.h"

#include <string.h>

#define UNIVERSE 5000

#define LINES (UNIVERSE / PLIM__NODE_SET_BITS + 1)

static _Alignas(64) plim__node_set_line_t lines[LINES], sparse[LINES + 2], copied[LINES + 2];

static void check(int64_t universe, uint64_t one_in, plim__node_set_t set)
{
    bool flags[UNIVERSE] = {false};
    int64_t listed[UNIVERSE];
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
        if (flags[node] && set.directory == NULL)
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
    assert_false(plim__node_set_full(&set));
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
        for (uint64_t one_in = 1; one_in < 2000; one_in = one_in * 3 + 1) {
            assert_true(plim__node_set_bytes(universes[i]) <= sizeof lines);
            assert_true(plim__node_set_sparse_bytes(universes[i], LINES) <= sizeof sparse);
            check(universes[i], one_in, plim__node_set_make(lines, universes[i]));
            memset(sparse, 0, sizeof sparse);
            check(universes[i], one_in, plim__node_set_make_sparse(sparse, universes[i], LINES));
        }
}

static void sparse_sets_fill_up(void **state)
{
    (void)state;
    memset(sparse, 0, sizeof sparse);
    plim__node_set_t set = plim__node_set_make_sparse(sparse, UNIVERSE, 3);
    plim__node_set_t copy = plim__node_set_make_sparse(copied, UNIVERSE, 3);
    plim__node_set_clear(&copy);
    for (int turn = 0; turn < 2; turn++) {
        plim__node_set_clear(&set);
        for (int64_t node = 4990; node > 3700; node -= 448) {
            assert_true(plim__node_set_add(&set, node));
            assert_true(plim__node_set_add(&copy, node - 448 * turn));
        }
        assert_false(plim__node_set_full(&set));
        plim__node_set_copy(&copy, &set);
        assert_true(plim__node_set_add(&copy, 4991));
        assert_false(plim__node_set_add(&copy, 5));
        assert_true(plim__node_set_full(&copy) && !plim__node_set_full(&set));
        plim__node_set_seal(&copy);
        assert_int_equal(copy.count, 4);
        assert_int_equal(plim__node_set_position(&copy, 4990), 2);
        assert_int_equal(plim__node_set_position(&copy, 5), -1);
        plim__node_set_clear(&copy);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_flags),
                                       cmocka_unit_test(sparse_sets_fill_up)};
    return cmocka_run_group_tests_name("base.node_set", tests, NULL, NULL);
}
