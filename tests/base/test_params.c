/* Structs of another version of the headers: shorter, longer, or without a size. */
#include "support/harness.h"

#include "base/params.h"

#include <plimsoll/plimsoll.h>
#include <string.h>

typedef struct known {
    size_t size;
    int64_t first, second;
} known_t;

typedef struct newer {
    known_t known;
    int64_t third;
} newer_t;

#define KNOWN_INIT                                                                                 \
    {                                                                                              \
        sizeof(known_t), 10, 20                                                                    \
    }

static void takes_params_of_any_version(void **state)
{
    (void)state;
    known_t taken = KNOWN_INIT;
    const known_t same = {sizeof same, 1, 2};
    assert_ok(plim__params_take(&same, "known_t", &taken, sizeof taken));
    assert_memory_equal(&taken, &same, sizeof same);

    taken = (known_t)KNOWN_INIT;
    const known_t older = {offsetof(known_t, second), 3, 4};
    assert_ok(plim__params_take(&older, "known_t", &taken, sizeof taken));
    assert_int_equal(taken.size, sizeof taken);
    assert_int_equal(taken.first, 3);
    assert_int_equal(taken.second, 20); /* the default */

    newer_t newer = {{sizeof newer, 5, 6}, 0};
    assert_ok(plim__params_take(&newer, "known_t", &taken, sizeof taken));
    assert_int_equal(taken.second, 6);
    newer.third = 7;
    assert_int_equal(plim__params_take(&newer, "known_t", &taken, sizeof taken), PLIM_ERR_USAGE);
}

static void refuses_params_without_a_size(void **state)
{
    (void)state;
    known_t taken = KNOWN_INIT;
    const known_t empty = {0};
    assert_int_equal(plim__params_take(&empty, "known_t", &taken, sizeof taken), PLIM_ERR_USAGE);
    assert_int_equal(plim__params_take(NULL, "known_t", &taken, sizeof taken), PLIM_ERR_USAGE);
    assert_int_equal(plim__output_check(&empty, "known_t"), PLIM_ERR_USAGE);
    assert_int_equal(plim__output_check(NULL, "known_t"), PLIM_ERR_USAGE);
}

static void gives_outputs_of_any_version(void **state)
{
    (void)state;
    const known_t known = {sizeof known, 1, 2};
    known_t older = {offsetof(known_t, second), 0, 9};
    plim__output_give(&older, &known, sizeof known);
    assert_int_equal(older.size, offsetof(known_t, second));
    assert_int_equal(older.first, 1);
    assert_int_equal(older.second, 9); /* behind its size */

    newer_t newer = {{sizeof newer, 0, 0}, 9};
    assert_ok(plim__output_check(&newer, "known_t"));
    plim__output_give(&newer, &known, sizeof known);
    assert_int_equal(newer.known.size, sizeof newer);
    assert_int_equal(newer.known.second, 2);
    assert_int_equal(newer.third, 9); /* unknown here */
}

static void says_its_version(void **state)
{
    (void)state;
    assert_true(strlen(plim_version()) >= strlen("0.0.0"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(takes_params_of_any_version),
        cmocka_unit_test(refuses_params_without_a_size),
        cmocka_unit_test(gives_outputs_of_any_version),
        cmocka_unit_test(says_its_version),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
