/* Messages: whole, one a thread, with a remedy, whatever they are made of. */
#include "support/harness.h"

#include "base/fail.h"

#include <errno.h>
#include <pthread.h>
#include <string.h>

static void *ask_elsewhere(void *failure_out)
{
    plim__fail_save(failure_out);
    (void)plim__fail(PLIM_ERR_IO, "from another thread");
    return NULL;
}

static void keeps_a_message_for_each_thread(void **state)
{
    (void)state;
    plim__failure_t elsewhere = {.message = "untouched"};
    pthread_t thread;
    assert_int_equal(plim__fail(PLIM_ERR_DATA, "row %d of %s", 7, "a.npy"), PLIM_ERR_DATA);
    assert_int_equal(pthread_create(&thread, NULL, ask_elsewhere, &elsewhere), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    assert_string_equal(elsewhere.message, "");
    assert_string_equal(plim_last_error(), "row 7 of a.npy");
}

static void may_be_made_of_itself(void **state)
{
    (void)state;
    (void)plim__fail(PLIM_ERR_DATA, "inner");
    (void)plim__fail(PLIM_ERR_DATA, "outer: %s", plim_last_error());
    assert_string_equal(plim_last_error(), "outer: inner");
    (void)plim__fail_errno(EACCES, "%s", plim_last_error());
    assert_non_null(strstr(plim_last_error(), "outer: inner: Permission denied (errno 13)"));
}

static void puts_more_before_it(void **state)
{
    (void)state;
    plim__failure_t saved;
    (void)plim__fail(PLIM_ERR_DATA, "row 7");
    assert_int_equal(plim__fail_prefix(PLIM_ERR_DATA, "%s", "a.npy"), PLIM_ERR_DATA);
    assert_string_equal(plim_last_error(), "a.npy: row 7");
    plim__fail_save(&saved);
    (void)plim__fail(PLIM_ERR_IO, "something else");
    assert_int_equal(plim__fail_restore(PLIM_ERR_DATA, &saved), PLIM_ERR_DATA);
    assert_string_equal(plim_last_error(), "a.npy: row 7");
}

static void carries_figures_until_the_next_error(void **state)
{
    plim_figures_t figures = PLIM_FIGURES_INIT, older = {.size = 0};
    (void)state;
    plim__failure_t saved;
    (void)plim__fail(PLIM_ERR_BUDGET, "too much");
    (void)plim__fail_figures(PLIM_ERR_BUDGET, "memory.max", 300, 200);
    (void)plim__fail_file(PLIM_ERR_BUDGET, "a.npy");
    assert_int_equal(plim__fail_prefix(PLIM_ERR_BUDGET, "a"), PLIM_ERR_BUDGET);
    assert_int_equal(plim_last_figures(&figures), PLIM_OK);
    assert_true(figures.needed == 300 && figures.available == 200);
    assert_string_equal(figures.limit, "memory.max");
    assert_string_equal(figures.file, "a.npy");
    assert_int_equal(plim_last_figures(&older), PLIM_ERR_USAGE);
    assert_string_equal(plim_last_error(), "a: too much");
    plim__fail_save(&saved);
    (void)plim__fail(PLIM_ERR_IO, "without figures");
    assert_int_equal(plim_last_figures(&figures), PLIM_OK);
    assert_true(figures.needed == -1 && figures.available == -1);
    assert_true(figures.limit[0] == '\0' && figures.file[0] == '\0');
    (void)plim__fail_restore(PLIM_ERR_BUDGET, &saved);
    assert_int_equal(plim_last_figures(&figures), PLIM_OK);
    assert_true(figures.needed == 300 && strcmp(figures.file, "a.npy") == 0);
}

static void names_errno_and_remedy(void **state)
{
    (void)state;
    assert_int_equal(plim__fail_errno(ENOSPC, "cannot write %s", "x"), PLIM_ERR_DISK);
    assert_non_null(strstr(plim_last_error(), "cannot write x: No space left on device"));
    assert_non_null(strstr(plim_last_error(), "another disk"));
    assert_int_equal(plim__fail_errno(ENOMEM, "cannot map"), PLIM_ERR_NOMEM);
    assert_int_equal(plim__fail_errno(EDQUOT, "cannot write"), PLIM_ERR_DISK);
    assert_non_null(strstr(plim_last_error(), "quota"));
    assert_int_equal(plim__fail_errno(EFBIG, "cannot write"), PLIM_ERR_DISK);
    assert_non_null(strstr(plim_last_error(), "ulimit -f"));
}

/* Longer than the buffer: cut, never past it; the remedy stays. */
static void is_cut_to_size(void **state)
{
    (void)state;
    char path[4096];
    plim_figures_t figures = PLIM_FIGURES_INIT;
    memset(path, 'p', sizeof path - 1);
    path[sizeof path - 1] = '\0';
    (void)plim__fail(PLIM_ERR_DATA, "%s", path);
    assert_int_equal(strlen(plim_last_error()), PLIM_MESSAGE_MAX - 1);
    (void)plim__fail_prefix(PLIM_ERR_DATA, "%s", path);
    assert_int_equal(strlen(plim_last_error()), PLIM_MESSAGE_MAX - 1);
    (void)plim__fail_errno(ENOSPC, "%s", path);
    assert_non_null(strstr(plim_last_error(), "another disk"));
    (void)plim__fail_file(PLIM_ERR_DATA, path);
    assert_int_equal(plim_last_figures(&figures), PLIM_OK);
    assert_string_equal(figures.file, "");
}

static void every_status_has_a_name(void **state)
{
    (void)state;
    for (int status = PLIM_ERR_DISK; status <= PLIM_OK; status++) {
        assert_string_not_equal(plim_status_name((plim_status_t)status), "unknown");
        for (int other = PLIM_ERR_DISK; other < status; other++)
            assert_string_not_equal(plim_status_name((plim_status_t)status),
                                    plim_status_name((plim_status_t)other));
    }
    assert_string_equal(plim_status_name((plim_status_t)-1000), "unknown");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(keeps_a_message_for_each_thread),
        cmocka_unit_test(may_be_made_of_itself),
        cmocka_unit_test(puts_more_before_it),
        cmocka_unit_test(carries_figures_until_the_next_error),
        cmocka_unit_test(names_errno_and_remedy),
        cmocka_unit_test(is_cut_to_size),
        cmocka_unit_test(every_status_has_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
