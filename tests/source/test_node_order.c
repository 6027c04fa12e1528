/* Places of an order, and nodes of places, against counting. */
#include "base/rng.h"
#include "source/node_order.h"
#include "support/harness.h"

#include <stdlib.h>
#include <string.h>

static void check(int64_t universe, uint64_t one_in, int classes, int64_t unit)
{
    plim__arena_t counted = plim__arena_counting();
    (void)plim__node_order_carve(&counted, universe, universe);
    plim__arena_t arena = {.base = aligned_alloc(4096, (counted.used + 4095) / 4096 * 4096),
                           .size = counted.used};
    assert_non_null(arena.base);
    memset(arena.base, 0, arena.size);
    plim__node_order_t order = plim__node_order_carve(&arena, universe, universe);
    int *numbers = calloc((size_t)universe, sizeof *numbers);
    assert_non_null(numbers);
    for (int64_t node = 0; node < universe; node++) {
        const uint64_t draw = plim__rng_u64(one_in, (uint64_t)node);
        numbers[node] = draw % one_in != 0 ? -1 : (int)(draw >> 32) % classes;
        if (numbers[node] >= 0)
            (void)plim__node_set_add(&order.nodes, node);
    }
    plim__node_set_seal(&order.nodes);
    int64_t position = 0;
    for (int64_t node = 0; node < universe; node++)
        if (numbers[node] >= 0)
            plim__node_order_set(&order, position++, numbers[node]);
    plim__node_order_seal(&order, unit);
    int64_t place = 0;
    for (int number = 0; number < PLIM__ORDER_CLASSES; number++) {
        assert_int_equal(order.first[number], place);
        for (int64_t node = 0; node < universe; node++)
            if (numbers[node] == number) {
                assert_int_equal(plim__node_order_find(&order, node), place);
                assert_int_equal(plim__node_order_node(&order, place), node);
                place++;
            }
        for (; place % unit != 0; place++)
            assert_int_equal(plim__node_order_node(&order, place), -1);
    }
    assert_int_equal(order.first[PLIM__ORDER_CLASSES], place);
    for (int64_t node = 0; node < universe; node++)
        if (numbers[node] < 0)
            assert_int_equal(plim__node_order_find(&order, node), -1);
    free(numbers);
    free(arena.base);
}

static void test_against_counting(void **state)
{
    (void)state;
    static const int64_t universes[] = {1, 127, 128, 129, 5000, 70000};
    for (size_t i = 0; i < sizeof universes / sizeof *universes; i++)
        for (int classes = 1; classes <= PLIM__ORDER_CLASSES; classes += 7)
            for (uint64_t one_in = 1; one_in < 100; one_in = one_in * 5 + 1)
                check(universes[i], one_in, classes, classes == 1 ? 1 : 16);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_against_counting)};
    return cmocka_run_group_tests_name("source.node_order", tests, NULL, NULL);
}
