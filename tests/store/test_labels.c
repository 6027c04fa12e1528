/* Classes in the integer types that labels.npy may have. */
/* labels: asan plain unprivileged */
#include "support/harness.h"

#include "store/labels.h"

#include <string.h>

static void the_smallest_type_holds_all_classes(void **state)
{
    (void)state;
    const struct {
        int64_t classes;
        plim__dtype_t type;
    } cases[] = {{0, PLIM__NPY_I8},
                 {1, PLIM__NPY_I8},
                 {128, PLIM__NPY_I8},
                 {129, PLIM__NPY_I16},
                 {32768, PLIM__NPY_I16},
                 {32769, PLIM__NPY_I32},
                 {(int64_t)1 << 31, PLIM__NPY_I32}};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const int64_t classes[3] = {-1, 0, cases[i].classes - 1};
        int64_t narrow[3], wide[3] = {7, 7, 7};
        assert_int_equal(plim__label_type(cases[i].classes), cases[i].type);
        plim__labels_narrow(cases[i].type, classes, 3, narrow);
        plim__labels_widen(cases[i].type, narrow, 3, wide);
        assert_memory_equal(wide, classes, sizeof wide);
    }
}

static void bytes_without_a_sign_are_classes(void **state)
{
    (void)state;
    const uint8_t stored[3] = {0, 127, 255};
    int64_t wide[3];
    plim__labels_widen(PLIM__NPY_U8, stored, 3, wide);
    assert_memory_equal(wide, ((int64_t[]){0, 127, 255}), sizeof wide);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_smallest_type_holds_all_classes),
        cmocka_unit_test(bytes_without_a_sign_are_classes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
