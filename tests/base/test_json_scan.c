/* Values of JSON lines: numbers are numbers, and nothing else is one. */
#include "base/json_scan.h"
#include "support/harness.h"

#include <string.h>

static double real(const char *text)
{
    return plim__json_real((plim__json_t){text, text + strlen(text)}, -7);
}

static void only_numbers_are_numbers(void **state)
{
    (void)state;
    static const char *const none[] = {"null", "true", "[1]", "{}", "\"1\"", "0x10", "1e999",
                                       "nan",  "inf",  "1 2", "",   "-",     "1;"};
    assert_true(real("0") == 0 && real("-2.5e3") == -2500 && real("12345678901") == 12345678901);
    for (size_t i = 0; i < sizeof none / sizeof none[0]; i++)
        assert_true(real(none[i]) == -7);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(only_numbers_are_numbers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
