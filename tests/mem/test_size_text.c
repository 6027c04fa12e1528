/* Sizes as people write and read them. */
#include "support/harness.h"

#include <plimsoll/limit.h>

#include <string.h>

static void reads_what_people_write(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t bytes;
    } cases[] = {
        {"0", 0},
        {"1", 1},
        {"512B", 512},
        {"4K", 4096},
        {"4k", 4096},
        {"300M", (int64_t)300 << 20},
        {"300MB", (int64_t)300 << 20},
        {"300MiB", (int64_t)300 << 20},
        {"300Mi", (int64_t)300 << 20},
        {"300mib", (int64_t)300 << 20},
        {"300 MiB", (int64_t)300 << 20},
        {"4G", (int64_t)4 << 30},
        {"1.5G", (int64_t)3 << 29},
        {"1.5g", (int64_t)3 << 29},
        {"0.25T", (int64_t)1 << 38},
        {"2.P", (int64_t)1 << 51},
        {"0.3K", 307},
        {"9007199254740993", 9007199254740993}, /* past 2^53, and exact */
        {"4611686018427387903", ((int64_t)1 << 62) - 1},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t bytes = -1;
        assert_ok(plim_size_parse(cases[i].text, &bytes));
        assert_int_equal(bytes, cases[i].bytes);
    }
}

static void refuses_what_is_no_size(void **state)
{
    (void)state;
    static const char *const cases[] = {"",        "G",
                                        "-1",      "+1",
                                        "4GG",     "4X",
                                        "4 ",      "4  G",
                                        " 4G",     "1e3",
                                        "0x10",    "inf",
                                        "nan",     ".5",
                                        "1,5",     "4iB",
                                        "4Gbit",   "4.5.6",
                                        "4G 1M",   "5000P",
                                        "4096P",   "99999999999999999999",
                                        "4194304T"};
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        int64_t bytes = -1;
        if (plim_size_parse(cases[i], &bytes) != PLIM_ERR_USAGE)
            fail_msg("'%s' was taken for %lld", cases[i], (long long)bytes);
        assert_int_equal(bytes, -1);
        assert_non_null(strstr(plim_last_error(), cases[i]));
    }
}

static void writes_what_people_read(void **state)
{
    (void)state;
    static const struct {
        int64_t bytes;
        const char *text;
    } cases[] = {
        {0, "0 B"},
        {1023, "1023 B"},
        {-5000000000, "-5000000000 B"},
        {1024, "1 KiB"},
        {1536, "1.50 KiB"},
        {(int64_t)300 << 20, "300 MiB"},
        {((int64_t)300 << 20) + 1, "300 MiB"},
        {((int64_t)1 << 30) - 1, "1.00 GiB"},
        {(int64_t)2 << 30, "2 GiB"},
        {((int64_t)2 << 30) + ((int64_t)1 << 20), "2.00 GiB"},
        {10737418239, "10.0 GiB"},
        {107374182399, "100 GiB"},
        {(int64_t)12345 << 30, "12.1 TiB"},
        {(int64_t)1 << 61, "2048 PiB"},
        {PLIM_LINE_NONE, "unlimited"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char text[24];
        assert_ptr_equal(plim_size_text(cases[i].bytes, text), text);
        assert_string_equal(text, cases[i].text);
    }
}

static void reads_back_what_it_writes(void **state)
{
    (void)state;
    for (int shift = 0; shift < 62; shift++) {
        char text[24];
        int64_t bytes;
        assert_ok(plim_size_parse(plim_size_text((int64_t)1 << shift, text), &bytes));
        assert_int_equal(bytes, (int64_t)1 << shift);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_what_people_write),
        cmocka_unit_test(refuses_what_is_no_size),
        cmocka_unit_test(writes_what_people_read),
        cmocka_unit_test(reads_back_what_it_writes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
