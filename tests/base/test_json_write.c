/* The text is whole JSON, however small the buffer is. */
#include "base/json_write.h"
#include "support/harness.h"

#include <jansson.h>

static void is_whole_in_any_space(void **state)
{
    (void)state;
    char text[256];
    for (size_t size = 64; size <= sizeof text; size++) {
        plim__json_writer_t json = plim__json_writer(text, size);
        plim__json_open(&json, NULL, '{');
        plim__json_put_text(&json, "a \"key\"", "\x01\x7f\xc3\xbc", SIZE_MAX);
        plim__json_open(&json, "list", '[');
        for (int i = 0; i < 3; i++) {
            plim__json_open(&json, NULL, '{');
            plim__json_put_integer(&json, "number", -7);
            plim__json_put_real(&json, "real", 2, 0.125);
            plim__json_close(&json, '}');
        }
        plim__json_close(&json, ']');
        plim__json_put_real(&json, "none", 2, 1 / 0.0);
        plim__json_put_bool(&json, "last", true);
        plim__json_close(&json, '}');
        assert_true(json.used < size);
        json_t *object = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
        assert_non_null(object);
        assert_string_equal(json_string_value(json_object_get(object, "a \"key\"")),
                            "\x01\x7f\xc3\xbc");
        assert_true(json.overflow || json_array_size(json_object_get(object, "list")) == 3);
        assert_true(json.overflow || json_is_true(json_object_get(object, "last")));
        assert_true(json.overflow ? size <= 145 + PLIM__JSON_CLOSING : size > 145);
        if (!json.overflow)
            assert_true(json_is_null(json_object_get(object, "none")));
        json_decref(object);
    }
    plim__json_writer_t json = plim__json_writer(text, sizeof text);
    plim__json_put_text(&json, NULL, "plenty", SIZE_MAX);
    assert_string_equal(text, "\"plenty\"");
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(is_whole_in_any_space)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
